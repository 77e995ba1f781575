"""The VPA recommender as a driver: its watches, rounds and initial history.

Upstream: ``pkg/recommender/main.go`` and the feeder of ``pkg/recommender/input``.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kscale.drivers.process import ActivityCheck, Program, ProgramContext
from kscale.drivers.vpa_watches import ControllerFeed, RoundPlanner, Ticker, controller_watches, plan_watches, vpa_watch
from kscale.effects import SECOND, Emit, GetScale, List, Moment, Progress, Steps, StepsOf, duration
from kscale.errors import InputError
from kscale.objects.api.core import Event, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.argument_types import unchecked
from kscale.series.prometheus import PrometheusHistory
from kscale.vpa.controllers import SCALE_REFRESH_INTERVAL, Controllers, ScaleCache
from kscale.vpa.metrics import METRICS
from kscale.vpa.model.saved_state import RecommenderState
from kscale.vpa.model.usage import OutOfMemory, find_memory_evictions, find_oom_kills
from kscale.vpa.model.vpa import PodKey
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender import (
    PodChanges,
    RecommenderResult,
    RecommenderRound,
    diff_pods,
    init_from_checkpoints_steps,
    init_from_prometheus_steps,
    recommender_steps,
)
from kscale.vpa.recommender.checkpoints import CheckpointStorage
from kscale.vpa.recommender.records import VpaResult
from kscale.vpa.recommender.strategy_advice import STRATEGY_METRICS, StrategyAdvisor
from kscale.vpa.target import filter_live_pods, find_controlled_pods_steps, resolve_vpa_selectors_steps
from kscale.world.metrics_apis import RESTMetrics
from kscale.world.protocols import Change, History, Stores, Watch

if TYPE_CHECKING:
    from kscale.capacity.vpa_round_plan import VPARoundPlan

__all__ = ["RECOMMENDER_METRICS", "RecommenderView", "VpaRecommender", "recommender_program"]

_log = logging.getLogger(__name__)
_PREFIXES: Final = ("vpa_recommender_", "vpa_quality_", "vpa_resources_")
_TRY_AGAIN: Final = 10 * SECOND
_SMALL: Final = 500
_find_oom_kills: Final = unchecked(find_oom_kills)
"""VPAs, pods and changes of pods with which no step of a round can delay requests, such as renewals of the lease."""

RECOMMENDER_METRICS: Final = (
    *(metric for name, metric in METRICS.items() if name.startswith(_PREFIXES)),
    *STRATEGY_METRICS,
)
"""Metrics of upstream's recommender, and of strategies."""


@dataclass(frozen=True, slots=True)
class RecommenderView:
    """Inputs of a round. ``refresh``: only scales are refreshed.

    ``live``, ``beside``: all pods, and other objects; both are read only for explanations of the round.
    """

    vpas: Sequence[VerticalPodAutoscaler]
    controllers: Controllers
    pods: PodChanges = field(default_factory=PodChanges)
    ooms: Sequence[OutOfMemory] = ()
    refresh: bool = False
    live: Sequence[Pod] = ()
    beside: Sequence[KubeObject] = ()


class VpaRecommender:
    """Driver that recommends every ``recommender_interval``, first one interval after it has loaded its history.

    ``scales``: cached scales; ``history``: Prometheus queries if ``storage`` is ``prometheus``, with ``query_timeout``;
    ``monitored`` is called when the history is loaded, ``active`` after each round. ``explain`` receives, in each
    round, the effect of the recommendations on nodes. ``advisor``: a strategy that decides targets. ``storage``: stores
    checkpoints in a simulation. ``state`` is the recommender's state.
    """

    name = "vpa-recommender"

    def __init__(
        self,
        options: RecommenderOptions | None = None,
        *,
        scales: ScaleCache | None = None,
        history: PrometheusHistory | None = None,
        query_timeout: timedelta = timedelta(minutes=5),
        monitored: Callable[[], None] = lambda: None,
        active: Callable[[], None] = lambda: None,
        explain: Callable[[VPARoundPlan], None] | None = None,
        advisor: StrategyAdvisor | None = None,
        storage: CheckpointStorage | None = None,
    ) -> None:
        self.options = options or RecommenderOptions()
        self._planner = None if explain is None else RoundPlanner(explain)
        self.state = RecommenderState(self.options)
        self._scales = scales if scales is not None else ScaleCache()
        self._feed = ControllerFeed(Controllers(scales=self._scales))
        self._pods: dict[PodKey, Pod | None] = {}
        self._ooms: list[OutOfMemory] = []
        self._history = history or PrometheusHistory(namespace=self.options.vpa_object_namespace)
        self._query_timeout = duration(query_timeout)
        self._monitored, self._active = monitored, active
        self._advisor = advisor
        self._storage = storage
        self._first = True
        self._rounds: Ticker | None = None
        self._refreshes: Ticker | None = None
        self._begin_at: Moment = 0

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches: VPAs, pods that are not pending, well-known controllers, and eviction events.

        If the driver explains its rounds: also the objects that decide where pods fit (:func:`plan_watches`).
        """
        namespace = self.options.vpa_object_namespace
        pods = Watch(
            kind="Pod",
            api_version="v1",
            namespace=namespace,
            field_selector="status.phase!=Pending",
            typed=True,
            lazy=True,
        )
        events = Watch(kind="Event", api_version="v1", namespace=namespace, field_selector="reason=Evicted", typed=True)
        plans = [] if self._planner is None else plan_watches()
        return [vpa_watch(namespace), pods, events, *controller_watches(namespace), *plans]

    # -- changes -----------------------------------------------------------------------------------------------------

    def notice(self, change: Change, now: Moment) -> None:
        """Record a change for the next round, with the OOM kills that it reports.

        Inputs of plans only are ignored; a kill that cannot be read is logged.
        """
        del now
        old, new = change.old, change.new
        try:
            if isinstance(new, Pod):
                metadata = new.metadata
                self._pods[metadata.namespace, metadata.name] = new
                if isinstance(old, Pod) and old.status.container_statuses:
                    self._ooms += _find_oom_kills(old, new)
            elif isinstance(old, Pod):
                self._pods[old.namespace, old.name] = None
            elif not RoundPlanner.is_plan_input(change):
                self._feed.notice(change)
                if isinstance(new, Event) and old is None:
                    self._ooms += find_memory_evictions(new)
        except InputError as error:
            _log.error("A kill for memory cannot be read: %s", error)

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        self._begin_at += by
        self.state.clock_set(by)
        self._scales.clock_set(by)
        if self._advisor is not None:
            self._advisor.clock_set(by)
        for ticker in (self._rounds, self._refreshes):
            if ticker is not None:
                ticker.clock_set(by)

    def next_due(self) -> Moment | None:
        """Return when the next round, or the next refresh of cached scales, is due. Never None."""
        if self._rounds is None or self._refreshes is None:
            return self._begin_at
        return min(self._rounds.due, self._refreshes.due) if len(self._scales) else self._rounds.due

    def is_small(self, view: RecommenderView) -> bool:
        """Check whether no step of a round with these inputs can delay requests, such as renewals of the lease.

        A strategy of the user may take any time.
        """
        count = len(view.vpas) + len(view.pods.changed) + len(self.state.pods)
        return self._advisor is None and count <= _SMALL

    def observe(self, stores: Stores, now: Moment) -> RecommenderView:
        """Return the VPAs, and the changes of pods and OOM kills since the last round.

        Before the history is loaded: the VPAs only. Between two rounds: only that scales are to be refreshed.
        """
        controllers = self._feed.settle()
        if self._rounds is not None and self._refreshes is not None:
            if now < self._rounds.due:
                self._refreshes.advance(now)
                return RecommenderView((), controllers, refresh=True)
            self._rounds.advance(now)
        vpas = [item for item in stores.objects("VerticalPodAutoscaler") if isinstance(item, VerticalPodAutoscaler)]
        if self._rounds is None:
            return RecommenderView(vpas, controllers)
        pods, self._pods = self._pods, {}
        ooms, self._ooms = self._ooms, []
        existing = [pod for pod in pods.values() if pod is not None]
        if self._first:  # also drops the history of deleted pods
            self._first, changes = False, diff_pods(self.state, existing)
        else:
            changes = PodChanges(changed=existing, deleted=[key for key, pod in pods.items() if pod is None])
        if self._planner is None:
            return RecommenderView(vpas, controllers, changes, ooms)
        live = [item for item in stores.objects("Pod") if isinstance(item, Pod)]
        return RecommenderView(vpas, controllers, changes, ooms, live=live, beside=self._planner.list_objects(stores))

    # -- rounds ------------------------------------------------------------------------------------------------------

    def steps(self, view: RecommenderView, now: Moment) -> Steps[None]:
        """Run a round.

        If ``view`` asks for a refresh, only the scales are refreshed. Until the history is loaded, a round only tries
        to load it.
        """
        progress = Progress(now)
        if view.refresh:
            yield from self._scales.refresh_steps(now)
            return
        yield from self._feed.discover_steps(progress)
        if self._rounds is None:
            yield from self._load_history(view, progress)
            return
        round_inputs = RecommenderRound(vpas=view.vpas, pods=view.pods, controllers=view.controllers, ooms=view.ooms)
        planner = self._planner
        explain = None if planner is None else partial(self._explain_steps, planner, view)
        result = yield from recommender_steps(
            self.state, round_inputs, now=progress.now, advisor=self._advisor, explain=explain, storage=self._storage
        )
        self._log_result(result)
        self._active()

    def _explain_steps(
        self, planner: RoundPlanner, view: RecommenderView, decided: Sequence[VpaResult], progress: Progress
    ) -> StepsOf[GetScale | Emit, None]:
        """Report what the recommendations of a round (``decided``) would do to nodes if all pods had them.

        No recommendation is written yet at this point.
        """
        from kscale.capacity.vpa_round_plan import recommendation_plan

        statuses = {(each.namespace, each.name): each.status for each in decided}
        vpas = [
            msgspec.structs.replace(vpa, status=statuses[vpa.namespace, vpa.name])
            for vpa in view.vpas
            if (vpa.namespace, vpa.name) in statuses
        ]
        selected = yield from resolve_vpa_selectors_steps(vpas, view.controllers, progress)
        live = filter_live_pods(view.live)
        controlled = yield from find_controlled_pods_steps(live, selected, view.controllers, progress)
        plan = recommendation_plan(planner.cluster(view.beside, live), controlled, now=progress.now)
        yield from planner.report_steps(plan, progress)

    def _load_history(self, view: RecommenderView, progress: Progress) -> Steps[None]:
        """Load the history from checkpoints or Prometheus, and schedule the first round.

        If checkpoints cannot be listed, the list is retried after ten seconds, since otherwise empty state would
        overwrite the checkpoints. Other problems are logged.
        """
        if self.options.use_checkpoints:
            checkpoint_list = yield from progress.act(
                List(
                    kind="VerticalPodAutoscalerCheckpoint",
                    api_version="autoscaling.k8s.io/v1",
                    namespace=self.options.vpa_object_namespace,
                    watched=False,
                )
            )
            if checkpoint_list.error is not None:
                _log.error("Cannot list VPA checkpoints: %s", checkpoint_list.error.message)
                self._begin_at = progress.now + _TRY_AGAIN
                return
            controllers, checkpoints = view.controllers, checkpoint_list.value
            problems: list[Any] = yield from init_from_checkpoints_steps(
                self.state, view.vpas, checkpoints, controllers=controllers, now=progress.now
            )
            for text in problems:
                _log.error("%s", text)
            _log.info("%d checkpoints were loaded", len(checkpoints) - len(problems))
        else:
            for text in (
                yield from init_from_prometheus_steps(
                    self.state, self._history, timeout=self._query_timeout, now=progress.now
                )
            ):
                _log.error("%s", text)
        begun = yield from progress.clock()
        self._rounds = Ticker(duration(self.options.recommender_interval), begun)
        self._refreshes = Ticker(SCALE_REFRESH_INTERVAL, begun)
        self._monitored()

    def _log_result(self, result: RecommenderResult) -> None:
        """Log the errors, counts and duration of a round.

        With the memory saver, errors about samples of unknown pods and containers are not logged.
        """
        for text in result.diagnostics:
            _log.warning("%s", text)
        saver = self.options.memory_saver
        for error in result.errors:
            if error.what == "oom":
                _log.warning("Failed to record OOM: %s/%s/%s: %s", *error[1:4], error.error)
            elif not (saver and error.is_key_error):
                _log.warning("Error adding metric sample: %s/%s/%s: %s", *error[1:4], error.error)
        if result.collected:
            _log.info("%d aggregates were collected as garbage", len(result.collected))
        total = sum(step.total_seconds() for step in result.steps.values())
        _log.info("%r in %.3f s", result, total)


def recommender_program(
    context: ProgramContext,
    *,
    options: RecommenderOptions,
    history: PrometheusHistory | None = None,
    query_timeout: timedelta = timedelta(minutes=5),
    prometheus: History | None = None,
    explain: Callable[[VPARoundPlan], None] | None = None,
    advisor: StrategyAdvisor | None = None,
) -> Program:
    """Build the recommender program of a process.

    ``prometheus`` is queried for ``history`` if ``storage`` requests it, and for the ``advisor``; ``explain`` is that
    of :class:`VpaRecommender`.
    """
    health = ActivityCheck(5 * options.recommender_interval, context.steady.now())
    rng = random.Random()
    driver = VpaRecommender(
        options,
        scales=ScaleCache(jitter=rng.random),
        history=history,
        query_timeout=query_timeout,
        monitored=lambda: health.start_monitoring(context.steady.now()),
        active=lambda: health.update_last_activity(context.steady.now()),
        explain=explain,
        advisor=advisor,
    )
    source = RESTMetrics(context.client, context.resources, context.steady)
    return Program(
        driver=driver,
        metrics=RECOMMENDER_METRICS,
        health=health,
        source=source,
        prometheus=prometheus,
        clock_set=driver.clock_set,
        is_small=driver.is_small,
    )
