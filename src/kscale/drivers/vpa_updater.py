"""The VPA updater as a driver (upstream: ``pkg/updater/main.go``)."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kscale.drivers.process import ActivityCheck, Program, ProgramContext
from kscale.drivers.vpa_watches import (
    ControllerFeed,
    RoundPlanner,
    Ticker,
    controller_watches,
    limit_range_watch,
    plan_watches,
    vpa_watch,
)
from kscale.effects import LAST_TIME, ZERO_TIME, Action, Moment, Progress, Steps, dry_run_steps, duration
from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.vpa.capping import LimitRanges
from kscale.vpa.controllers import Controllers, ScaleCache
from kscale.vpa.metrics import LEGACY_METRICS, METRICS
from kscale.vpa.options import UpdaterOptions
from kscale.vpa.target import is_active_vpa
from kscale.vpa.updater import (
    ScalingDirectionAdmission,
    UpdaterResult,
    UpdaterRound,
    UpdaterState,
    legacy_updater_steps,
    updater_steps,
)
from kscale.world.protocols import Change, InputSources, Stores, Watch

if TYPE_CHECKING:
    from kscale.capacity.vpa_round_plan import VPARoundPlan

__all__ = ["LEGACY_UPDATER_METRICS", "UPDATER_METRICS", "UpdaterView", "VpaUpdater", "updater_program"]

_log = logging.getLogger(__name__)
_PODS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

_SMALL: Final = 500
"""VPAs and pods with which no step of a loop can delay requests, such as renewals of the lease."""

UPDATER_METRICS: Final = tuple(metric for name, metric in METRICS.items() if name.startswith("vpa_updater_"))
"""Metrics of the updater."""
LEGACY_UPDATER_METRICS: Final = tuple(LEGACY_METRICS.values())
"""Metrics of the updater of 2020."""


@dataclass(frozen=True, slots=True)
class UpdaterView:
    """Inputs of a loop. ``beside``: other objects, which are read only to plan the loop."""

    vpas: Sequence[VerticalPodAutoscaler]
    pods: Sequence[Pod]
    controllers: Controllers
    beside: Sequence[KubeObject] = ()


class VpaUpdater:
    """Driver that evicts and resizes pods every ``updater_interval``, first one interval after its lists are complete.

    ``monitored`` is called at that moment, ``active`` after each loop; ``plan`` receives, before each loop, the effect
    of the loop on nodes. ``state`` is the state between loops.
    """

    name = "vpa-updater"

    def __init__(
        self,
        options: UpdaterOptions | None = None,
        *,
        monitored: Callable[[], None] = lambda: None,
        active: Callable[[], None] = lambda: None,
        plan: Callable[[VPARoundPlan], None] | None = None,
    ) -> None:
        self.options = options or UpdaterOptions()
        self._planner = None if plan is None else RoundPlanner(plan)
        self.state = UpdaterState()
        self.on_result: Callable[[UpdaterResult], None] | None = None
        """Called with the result of each loop."""
        self.limit_ranges = LimitRanges()
        self._admission = ScalingDirectionAdmission()
        # Scales are requested once, as upstream's updater never refreshes them.
        self._feed = ControllerFeed(Controllers(scales=ScaleCache()))
        self._limits: dict[tuple[str, str], LimitRange | None] = {}
        self._monitored, self._active = monitored, active
        self._loops: Ticker | None = None
        self._acts = True
        """Whether a VPA was active in the last loop or has become active since."""

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches: VPAs, active pods on nodes, limit ranges and well-known controllers.

        If the driver plans its loops: also the objects that decide where pods fit (:func:`plan_watches`).
        """
        namespace = self.options.vpa_object_namespace
        pods = Watch(kind="Pod", api_version="v1", namespace=namespace, field_selector=_PODS, typed=True, lazy=True)
        plans = [] if self._planner is None else plan_watches()
        return [vpa_watch(namespace), pods, limit_range_watch(namespace), *controller_watches(namespace), *plans]

    def notice(self, change: Change, now: Moment) -> None:
        """Store a change of a limit range or controller for the next loop; other objects are read in that loop."""
        del now
        item = change.new or change.old
        if isinstance(item, Pod) or RoundPlanner.is_plan_input(change):
            return
        if isinstance(item, VerticalPodAutoscaler):
            self._acts = self._acts or is_active_vpa(item)
        if isinstance(item, LimitRange):
            self._limits[item.namespace, item.name] = change.new if isinstance(change.new, LimitRange) else None
        else:
            self._feed.notice(change)

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        self.state.clock_set(by)
        if self._loops is not None:
            self._loops.clock_set(by)

    def next_due(self) -> Moment | None:
        """Return when the next loop is due; 0 before the first observation."""
        return 0 if self._loops is None else self._loops.due

    def observe(self, stores: Stores, now: Moment) -> UpdaterView | None:
        """Return the current VPAs, pods and controllers; None for the first observation.

        The first loop runs one interval after the first observation.
        """
        limits, self._limits = self._limits, {}
        for key, item in limits.items():
            if item is None:
                self.limit_ranges.remove(*key)
            else:
                self.limit_ranges.apply(item)
        controllers = self._feed.settle()
        if self._loops is None:
            self._loops = Ticker(duration(self.options.updater_interval), now)
            self._monitored()
            return None
        self._loops.advance(now)
        self._acts = False
        vpas = [item for item in stores.objects("VerticalPodAutoscaler") if isinstance(item, VerticalPodAutoscaler)]
        pods = [item for item in stores.objects("Pod") if isinstance(item, Pod)]
        return UpdaterView(vpas, pods, controllers, () if self._planner is None else self._planner.list_objects(stores))

    def steps(self, view: UpdaterView | None, now: Moment) -> Steps[None]:
        """Run one loop of the updater; nothing if ``view`` is None."""
        if view is None:
            return
        self._acts = self._acts or any(map(is_active_vpa, view.vpas))
        progress = Progress(now)
        yield from self._feed.discover_steps(progress)
        inputs = UpdaterRound(
            vpas=view.vpas, pods=view.pods, controllers=view.controllers, limit_ranges=self.limit_ranges
        )
        if self._planner is not None:
            yield from self._plan_steps(self._planner, view, inputs, progress)
        result = yield from self._loop_steps(self.state, inputs, progress.now, self._admission)
        self._log_result(result)
        if self.on_result is not None:
            self.on_result(result)
        self._active()

    def _loop_steps(
        self, state: UpdaterState, inputs: UpdaterRound, now: Moment, admission: ScalingDirectionAdmission
    ) -> Steps[UpdaterResult]:
        """Return the steps of one updater loop, by the rules of the configured release. ``admission``: not in 1.3."""
        if self.options.legacy:  # release 1.3 has no eviction admission
            return legacy_updater_steps(state, inputs, now=now, options=self.options)
        return updater_steps(state, inputs, now=now, options=self.options, admission=admission)

    @property
    def input_sources(self) -> InputSources:
        """Declare that rounds depend on watched objects only, and that the driver decides which changes matter."""
        return InputSources(judged=frozenset(watch.kind for watch in self.watches))

    def repeats_until(self) -> Moment:
        """Return :data:`LAST_TIME` if rounds may be skipped while the input is unchanged, else :data:`ZERO_TIME`.

        Rounds are skipped only without an active VPA and without a planner: other rounds depend on the times of
        earlier actions.
        """
        return ZERO_TIME if self._acts or self._planner is not None else LAST_TIME

    def repeat(self, now: Moment) -> Moment | None:
        """Mark a loop without an active VPA as done. Returns its end; None if the loop must be run."""
        if self._acts or self._loops is None:
            return None
        self._loops.advance(now)
        self._active()
        return now

    def _plan_steps(
        self, planner: RoundPlanner, view: UpdaterView, inputs: UpdaterRound, progress: Progress
    ) -> Steps[None]:
        """Report the effect of the loop on nodes, from a dry run on a copy of the state.

        Scales and the lease are requested as in the loop.
        """
        from kscale.capacity.vpa_round_plan import update_plan

        actions: list[Action] = []
        now = progress.now
        steps = self._loop_steps(copy.deepcopy(self.state), inputs, now, ScalingDirectionAdmission())
        result: UpdaterResult = yield from dry_run_steps(steps, actions.append, now=now)
        cluster = planner.cluster(view.beside, view.pods)
        yield from planner.report_steps(update_plan(cluster, inputs, result, actions, now=now), progress)

    def _log_result(self, result: UpdaterResult) -> None:
        """Log the chosen pods and the messages of a loop."""
        for pod in result.chosen:
            why = "outside the recommended range" if pod.outside_recommended_range else f"by {pod.resource_diff:.3g}"
            _log.info("Pod accepted for update: %s/%s, %s: %s", pod.namespace, pod.pod, why, pod.targets)
        for text in result.details:
            _log.info("%s", text)
        for text in result.diagnostics:
            _log.warning("%s", text)


def updater_program(
    context: ProgramContext, *, options: UpdaterOptions, plan: Callable[[VPARoundPlan], None] | None = None
) -> Program:
    """Build the updater's program. For ``plan`` see :class:`VpaUpdater`."""
    health = ActivityCheck(5 * options.updater_interval, context.steady.now())
    driver = VpaUpdater(
        options,
        monitored=lambda: health.start_monitoring(context.steady.now()),
        active=lambda: health.update_last_activity(context.steady.now()),
        plan=plan,
    )
    if options.legacy:  # release 1.3 monitors from the start
        health.start_monitoring(context.steady.now())
    if options.eviction_rate_limit <= 0:
        _log.info("Rate limit disabled")
    metrics = LEGACY_UPDATER_METRICS if options.legacy else UPDATER_METRICS
    return Program(
        driver=driver, metrics=metrics, health=health, clock_set=driver.clock_set,
        is_small=lambda view: view is None or len(view.vpas) + len(view.pods) <= _SMALL,
    )  # fmt: skip
