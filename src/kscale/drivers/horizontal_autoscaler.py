"""The horizontal pod autoscaler as a live driver: HPAs that are due together are decided together.

Upstream: ``pkg/controller/podautoscaler``, as kube-controller-manager runs it. Which HPA is due stands in
:mod:`kscale.drivers.horizontal_queue`, what is done with those that are in :mod:`kscale.hpa.batch.reconcile_all`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from kscale.drivers.horizontal_queue import HorizontalController, Tombstone
from kscale.drivers.work_queue import QUEUE_METRICS
from kscale.effects import (
    LAST_TIME,
    SECOND,
    ZERO_TIME,
    Discover,
    InBackground,
    Metric,
    Moment,
    Observation,
    Outcome,
    Progress,
    ReadStores,
    Steps,
    StepsOf,
    Within,
    from_text,
    moment,
)
from kscale.hpa.batch.precomputed import is_unchanged_since_write
from kscale.hpa.batch.reconcile_all import (
    BatchResult,
    CurrentObjects,
    RefreshObjects,
    is_stable_batch,
    reconcile_all,
    repeat_batch,
)
from kscale.hpa.batch.requests import has_built_in_targets
from kscale.hpa.controller.monitor import METRICS, NUM_HPAS
from kscale.hpa.controller.reconcile import reconcile
from kscale.hpa.controller.state import ControllerState, HPAState, is_older_version
from kscale.hpa.options import HPAOptions
from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import CrossVersionObjectReference, HorizontalPodAutoscaler, Scale
from kscale.objects.api.meta import KubeObject
from kscale.objects.rest_mapping import BUILT_IN_MAPPER, RESTMapper
from kscale.objects.scale import ScaleError, scale_of_workload
from kscale.snapshot.caches import collector_at_ease
from kscale.snapshot.pods.index import PodIndex
from kscale.world.protocols import Change, GoesBy, Stores, Watch

__all__ = [
    "CANNOT_BE_RECONCILED",
    "HORIZONTAL_METRICS",
    "NAME",
    "Apart",
    "HorizontalAutoscaler",
    "HorizontalSight",
    "Rivals",
    "discover_steps",
]


def discover_steps(progress: Progress, longest: int) -> StepsOf[Within, Outcome]:
    """The answer to :class:`~kscale.effects.Discover`; an error where it takes longer (nanoseconds)."""

    def discover(now: Moment) -> StepsOf[Discover, Outcome]:
        return (yield from Progress(now).act(Discover()))

    found: Outcome = yield from progress.within(longest, discover)
    return found


_log = logging.getLogger(__name__)
CANNOT_BE_RECONCILED: Final = "HorizontalPodAutoscaler %s cannot be reconciled: %s"


class Apart:
    """Those of a ``controller`` that are slow: of which a question or a write took longer than a sync period.

    All that are due are decided together, one batch after the other, however long each waits for its answers. Who waits
    for none of them that long any more is slow no longer, whoever else is. ``refresh`` reads their objects again once
    they have their answers. Single owner, as the controller.
    """

    def __init__(self, controller: HorizontalController, refresh: RefreshObjects | None = None) -> None:
        self._controller, self._refresh = controller, refresh
        self._slow: set[str] = set()
        self._clock_sets = 0
        self.looked_at: Moment | None = None
        """While a batch is under way: when it is to be looked at whether it has ended."""

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        self._clock_sets += 1
        if self.looked_at is not None:
            self.looked_at += by

    def forget(self, key: str) -> None:
        """An HPA is gone."""
        self._slow.discard(key)

    def look(self, now: Moment) -> None:
        """A round has come: whether a batch has ended is looked at again in a period."""
        if self.looked_at is not None:
            self.looked_at = now + self._controller.options.sync_period_ns

    def note_late(self, keys: Iterable[str], now: Moment) -> None:
        """What these asked was not answered in time: they are slow, and come up again."""
        for key in keys:
            self.note_slow([key])
            self._controller.left_alone(key, now=now)

    def note_slow(self, keys: Iterable[str]) -> None:
        """These took too long."""
        for key in keys:
            self._slow.add(key)
            text = "HorizontalPodAutoscaler %s is decided apart: the API server took over a sync period to answer"
            _log.warning(text, key)

    def without_slow(
        self,
        due: list[HorizontalPodAutoscaler],
        pods: PodIndex,
        scales: Mapping[str, Scale],
        mapper: RESTMapper,
        progress: Progress,
    ) -> Steps[list[HorizontalPodAutoscaler]]:
        """Those of the HPAs that are due that are not slow. The others are begun, or come up again while a batch of
        such is under way. ``pods``, ``scales``, ``mapper``: as :func:`~kscale.hpa.batch.reconcile_all.reconcile_all`
        has them."""
        slow = [hpa for hpa in due if hpa.key in self._slow] if self._slow else []
        if not slow:
            return due
        if self.looked_at is not None:
            for hpa in slow:
                self._controller.left_alone(hpa.key, now=progress.now)
        else:
            self.looked_at = progress.now + self._controller.options.sync_period_ns
            known = {hpa.key: scales[hpa.key] for hpa in slow if hpa.key in scales}
            yield from progress.act(InBackground(partial(self._steps, slow, pods, known, mapper)))
        return [hpa for hpa in due if hpa.key not in self._slow]

    def _steps(
        self,
        hpas: Sequence[HorizontalPodAutoscaler],
        pods: PodIndex,
        scales: Mapping[str, Scale],
        mapper: RESTMapper,
        now: Moment,
    ) -> Steps[None]:
        progress, controller, clock_sets = Progress(now), self._controller, self._clock_sets
        found = yield from reconcile_all(
            hpas,
            controller.kept,
            pods,
            scales=scales,
            now=now,
            options=controller.options,
            selectors=controller.selectors,
            mapper=mapper,
            slow_after=controller.options.sync_period_ns,
            refresh=self._refresh,
        )
        ended = yield from progress.clock()
        self.looked_at = None
        keys = [hpa.key for hpa in hpas]
        self._slow.difference_update({*keys}.difference(found.slow))
        if clock_sets == self._clock_sets:
            controller.done_all(found, ended=ended)
            for key in found.gone:
                controller.left_alone(key, now=ended)
        else:  # what it would remember is of another time
            for key in keys:
                controller.left_alone(key, now=ended)
        for key, problem in found.problems.items():
            _log.error(CANNOT_BE_RECONCILED, key, problem)


_FRESH: Final = 4
"""Sync periods after which another that has written nothing is taken for gone."""
_FRESH_AGAIN: Final = 40
"""The same, once another has come back after it was taken for gone. Not much longer: nobody scales meanwhile if it is
gone by then."""


class _Rival(NamedTuple):
    """Of one HPA: when another wrote its status last (``written``, the API server's clock; the zero time: never) and
    when that was ``noticed`` (our clock); whether the HPA is ``left`` alone, and whether another ``returned``."""

    written: Moment
    noticed: Moment
    left: bool = False
    returned: bool = False


class Rivals:
    """Who else writes the status of HPAs. Single owner.

    ``manager``: our own name in ``managedFields``; ``period``: of syncs, in nanoseconds.

    Another is there for four periods after its last write. A controller writes a status only when something in it
    changes: one that was silent for longer may be there all the same. If it writes again while we work on its HPA, that
    is shown, and from then on it is there for 40 periods after its last write.

    How old a write is that was there when we first looked, is told by its time, unless that is yet to come; later ones
    count from when they are noticed, so that our clock need not agree with the API server's.
    """

    def __init__(self, manager: str, period: int) -> None:
        self._manager, self._period = manager, period
        self._known: dict[str, _Rival] = {}
        self._left: set[str] = set()

    @property
    def left_alone(self) -> int:
        """How many HPAs are another's."""
        return len(self._left)

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what was noticed is as old as it was."""
        self._known = {
            key: rival._replace(noticed=rival.noticed + by) if rival.noticed != ZERO_TIME else rival
            for key, rival in self._known.items()
        }

    def forget(self, key: str) -> None:
        """An HPA is gone."""
        self._known.pop(key, None)
        self._left.discard(key)

    def has(self, hpa: HorizontalPodAutoscaler, key: str, now: Moment) -> bool:
        """Whether an HPA is another's now; ``key``: of the HPA."""
        known = self._known.get(key)
        if known is None and not hpa.metadata.managed_fields:
            return False
        name, written = "", ZERO_TIME
        for each in hpa.metadata.managed_fields:
            if (
                each.subresource == "status"
                and each.manager != self._manager
                and (at := from_text(each.time)) > written
            ):
                name, written = each.manager, at
        if known is None:
            rival = _Rival(written, min(written, now))
        elif written > known.written:
            rival = _Rival(written, now, returned=known.returned or not known.left)
        else:
            rival = known
        periods = _FRESH_AGAIN if rival.returned else _FRESH
        left = rival.noticed != ZERO_TIME and now < rival.noticed + periods * self._period
        if left and not (known and known.left):
            text = "HorizontalPodAutoscaler %s is left alone: %s writes its status%s"
            _log.warning(text, key, name, ", which had been silent" if rival.returned else "")
        if rival.left != left:
            rival = rival._replace(left=left)
            (self._left.add if left else self._left.discard)(key)
        if rival is not known:
            self._known[key] = rival
        return left


NAME: Final = "horizontal-pod-autoscaler"
_KIND: Final = "HorizontalPodAutoscaler"
_WATCHED: Final = frozenset({("apps", "Deployment"), ("apps", "StatefulSet")})
_KINDS_FORGOTTEN: Final = 30 * SECOND  # kube-controller-manager resets its mapper so often
_KINDS_WITHIN: Final = 5 * SECOND  # those of usual kinds wait for it, too
_OBJECTS: Final = 50  # what a round makes of one HPA, nearly all of which it lets go of at its end, are not so many
_LEFT_ALONE: Final = Metric(
    "kscale_horizontal_left_alone", "gauge", help="Number of HPAs that another controller manages."
)

HORIZONTAL_METRICS: Final = (*METRICS.values(), *QUEUE_METRICS, _LEFT_ALONE)
"""Upstream's, of the controller and of its queue, and how many HPAs another controller has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizontalSight:
    """What a round goes by: the HPAs that are due, and keys of those that are ``gone``; ``scales`` of the targets that
    are watched; ``pods``: None where nothing is due; ``version``: the newest of HPAs that was seen."""

    hpas: Sequence[HorizontalPodAutoscaler] = ()
    gone: Sequence[str] = ()
    scales: dict[str, Scale] = field(default_factory=dict)
    pods: PodIndex | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class _Round:
    """The last round: its HPAs, what came of it, and how long was asked before it was decided."""

    hpas: dict[str, HorizontalPodAutoscaler]
    found: BatchResult
    asking: int


class HorizontalAutoscaler:
    """The driver (:class:`kscale.drivers.driver.Driver`).

    - ``selector``: of labels: only HPAs that it selects are seen, and known to each other;
    - ``manager``: the name under which this process writes. While another has written the status of an HPA within the
      last four sync periods (:class:`~kscale.drivers.horizontal_autoscaler.Rivals`), nothing is done about it, unless
      ``take_over``;
    - ``state``: what an earlier one remembered;
    - ``repeats``: whether the last round is kept, for rounds that only repeat it (:meth:`repeat`): live ones never do;
    - ``aligned``: rounds begin at whole multiples of the sync period: live ones do not.
    """

    name = NAME

    def __init__(
        self,
        options: HPAOptions | None = None,
        *,
        selector: str = "",
        manager: str = "",
        take_over: bool = False,
        state: ControllerState | None = None,
        repeats: bool = False,
        aligned: bool = False,
    ) -> None:
        self.options = options or HPAOptions()
        self.controller = HorizontalController(self.options, state, together=not aligned, aligned=aligned)
        self.watches: Sequence[Watch] = (
            Watch(kind=_KIND, api_version="autoscaling/v2", label_selector=selector, typed=True),
            Watch(kind="Pod", api_version="v1"),
            *(Watch(kind=kind, api_version=f"{group}/v1", typed=True) for group, kind in sorted(_WATCHED)),
        )
        self._manager, self._take_over = manager, take_over
        self._changes: deque[tuple[Change, Moment]] = deque()
        self._scales: dict[str, tuple[CrossVersionObjectReference, KubeObject, Scale]] = {}
        self._mapper = BUILT_IN_MAPPER
        self._mapper_tick = -1
        self._rivals = Rivals(manager, self.options.sync_period_ns)
        self._apart = Apart(self.controller, self._read_again)
        self._repeats = repeats
        self._last: _Round | None = None
        self._before: BatchResult | None = None
        self._changed: dict[str, HorizontalPodAutoscaler | None] = {}

    # -- where the stores live ---------------------------------------------------------------------------------------

    def notice(self, change: Change, now: datetime | Moment) -> None:
        """Another HPA, or the target of one; the latter is looked at when its HPA is due."""
        now = moment(now)
        if change.watch.kind == _KIND:
            self._changes.append((change, now))
            if self._repeats:
                self._note_change(change)

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        self._take_in()
        self.controller.clock_set(by)
        self._rivals.clock_set(by)
        self._apart.clock_set(by)

    def next_due(self) -> Moment | None:
        """When an HPA is due."""
        self._take_in()
        if self.controller.ready:
            return 0
        due, apart = self.controller.next_due(), self._apart.looked_at
        return apart if due is None else due if apart is None else min(due, apart)

    def observe(self, stores: Stores, now: datetime | Moment) -> HorizontalSight:
        """The HPAs that are due, and what they need of what is watched."""
        now = moment(now)
        self._take_in()
        self._before, self._last, self._changed = None if self._last is None else self._last.found, None, {}
        hpas: list[HorizontalPodAutoscaler] = []
        gone: list[str] = []
        scales: dict[str, Scale] = {}
        for key in self.controller.take_all(now):
            namespace, _, name = key.partition("/")
            hpa = stores.get(_KIND, namespace, name)
            if not isinstance(hpa, HorizontalPodAutoscaler):
                gone.append(key)
                continue
            hpas.append(hpa)
            scale = self._scale(stores, key, hpa)
            if scale is not None:
                scales[key] = scale
        return HorizontalSight(
            hpas=hpas,
            gone=gone,
            scales=scales,
            pods=stores.snapshot().pod_index if hpas else None,
            version=stores.resource_version(_KIND),
        )

    def _read_again(self, progress: Progress, hpas: Sequence[HorizontalPodAutoscaler]) -> Steps[CurrentObjects | None]:
        """Read the objects of some HPAs as the watches have brought them by now."""
        outcome = yield from progress.act(ReadStores(partial(self._current, hpas)))
        found: CurrentObjects | None = outcome.value
        return found

    def _current(self, hpas: Sequence[HorizontalPodAutoscaler], stores: Stores) -> CurrentObjects:
        scales: dict[str, Scale] = {}
        current: list[HorizontalPodAutoscaler | None] = []
        for known in hpas:
            hpa = stores.get(_KIND, known.metadata.namespace, known.metadata.name)
            current.append(hpa if isinstance(hpa, HorizontalPodAutoscaler) else None)
            if isinstance(hpa, HorizontalPodAutoscaler):
                scale = self._scale(stores, key := hpa.key, hpa)
                if scale is not None:
                    scales[key] = scale
        return CurrentObjects(hpas=current, scales=scales, pods=stores.snapshot().pod_index)

    def _take_in(self) -> None:
        """What was noticed. As the last of a round this runs elsewhere than :meth:`notice`, and beside it: one after
        the other is taken off, since what is noticed may still go to a list that was exchanged for a new one."""
        while self._changes:
            change, now = self._changes.popleft()
            old, new = change.old, change.new
            if isinstance(new, HorizontalPodAutoscaler):
                if isinstance(old, HorizontalPodAutoscaler):
                    self.controller.updated(old, new, now=now)
                else:
                    self.controller.added(new, now=now)
            elif isinstance(old, HorizontalPodAutoscaler):
                of = old.metadata
                self.controller.deleted(
                    Tombstone(namespace=of.namespace, name=of.name, last=old) if change.missed else old
                )

    def _scale(self, stores: Stores, key: str, hpa: HorizontalPodAutoscaler) -> Scale | None:
        """The scale of a target that is watched; None: it has to be asked for."""
        reference, known = hpa.spec.scale_target_ref, self._scales.get(key)
        same = known is not None and known[0] is reference
        if not same and (reference.api_version.partition("/")[0], reference.kind) not in _WATCHED:
            return None
        held = stores.get(reference.kind, hpa.metadata.namespace, reference.name)
        if not isinstance(held, Deployment | StatefulSet):
            return None
        if same and known is not None and known[1] is held:
            return known[2]
        try:
            scale = scale_of_workload(held)
        except ScaleError:
            return None  # the API server says why not
        self._scales[key] = reference, held, scale
        return scale

    # -- a round -----------------------------------------------------------------------------------------------------

    def steps(self, sight: HorizontalSight, now: datetime | Moment) -> Steps[None]:
        """Reconciles what is due."""
        now = moment(now)
        objects, steps = _OBJECTS * len(sight.hpas), self._steps(sight, now)
        del sight  # it goes with the round, before the collector looks again
        with collector_at_ease(objects):
            yield from steps

    def _steps(self, sight: HorizontalSight, now: Moment) -> Steps[None]:
        progress, controller = Progress(now), self.controller
        for key in sight.gone:
            controller.done(key, None, now=now)
            self._scales.pop(key, None)
            self._rivals.forget(key)
            self._apart.forget(key)
        by_key: dict[str, HorizontalPodAutoscaler] = {}
        for hpa in sight.hpas:
            key = hpa.key
            if self._take_over or not self._rivals.has(hpa, key, now):
                kept = controller.kept.rest(key)
                if kept is None or kept.written is None or not _is_behind(hpa, kept, sight.version):
                    by_key[key] = hpa
                    continue
                yield from reconcile(hpa, kept, now=now, options=self.options, seen_version=sight.version)
            controller.left_alone(key, now=now)
        due = [*by_key.values()]
        mapper = self._mapper
        if due:
            mapper = yield from self._kinds(progress, due)
        self._apart.look(progress.now)
        if due and sight.pods is not None:
            due = yield from self._apart.without_slow(due, sight.pods, sight.scales, mapper, progress)
        if due and sight.pods is not None:
            yield from progress.observe(*controller.queue_metrics.observations(progress.now))
            found = yield from reconcile_all(
                due,
                controller.kept,
                sight.pods,
                scales=sight.scales,
                now=progress.now,
                options=self.options,
                selectors=controller.selectors,
                mapper=mapper,
                within=self.options.sync_period_ns,
                before=self._before,
                refresh=self._read_again,
            )
            self._before = None
            controller.done_all(found, ended=(yield from progress.clock()))
            for key in found.gone:  # found missing when it comes up again, as upstream has it
                controller.left_alone(key, now=progress.now)
            self._apart.note_late(found.late, progress.now)
            self._apart.note_slow(found.slow)
            if self._repeats and len(due) == len(by_key) and by_key.keys() <= sight.scales.keys() and not sight.gone:
                self._last = _Round(by_key, found, found.at - now)
            for key, problem in found.problems.items():
                _log.error(CANNOT_BE_RECONCILED, key, problem)
        if sight.hpas or sight.gone:
            yield from progress.observe(
                Observation(name=NUM_HPAS, value=float(controller.num_horizontal_pod_autoscalers)),
                Observation(name=_LEFT_ALONE.name, value=float(self._rivals.left_alone)),
                *controller.queue_metrics.observations(progress.now),
            )
        self._take_in()  # objects as they were before are held no longer

    # -- rounds that are left out --------------------------------------------------------------------------------------

    @property
    def goes_by(self) -> GoesBy:
        """Metrics; of HPAs it knows what it has written itself."""
        return GoesBy(metrics=True, judged=frozenset({_KIND}))

    def _note_change(self, change: Change) -> None:
        new = change.new
        key = (new or change.old).key  # type: ignore[union-attr]  # one of the two is there
        self._changed[key] = new if isinstance(new, HorizontalPodAutoscaler) else None

    def repeats_until(self) -> Moment:
        """For ever, where rounds are kept and the columns said all of all HPAs: what time changes is decided
        anew (:meth:`repeat`)."""
        last = self._last
        if last is None or not is_stable_batch(last.found):
            return ZERO_TIME
        hpas = last.hpas.values()
        return (
            LAST_TIME
            if has_built_in_targets(hpas) and not any(hpa.metadata.managed_fields for hpa in hpas)
            else ZERO_TIME
        )

    def repeat(self, now: datetime | Moment) -> Moment | None:
        """Takes a round for done in which all that was decided in the last is decided again; the moment at which it
        ends. None: it has to be run."""
        now = moment(now)
        self._take_in()
        last, controller = self._last, self.controller
        if last is None or controller.waiting(now) != last.hpas.keys():
            return None
        hpas = _as_written(last, self._changed)
        ended = now + last.asking
        found = None if hpas is None else repeat_batch(last.found, ended, self.options)
        if hpas is None or found is None:
            return None
        controller.take_all(now)
        controller.done_all(found, ended=ended)
        self._last, self._changed = replace(last, hpas=hpas, found=found), {}
        return ended

    def _kinds(self, progress: Progress, due: Sequence[HorizontalPodAutoscaler]) -> Steps[RESTMapper]:
        """What kinds are served as. What every server has is not asked for; the rest is forgotten after half a minute,
        what is not there too. Where it cannot be told, or not soon, what was known stays."""
        if has_built_in_targets(due):
            return self._mapper
        tick = progress.now // _KINDS_FORGOTTEN
        if tick != self._mapper_tick:
            outcome = yield from discover_steps(progress, _KINDS_WITHIN)
            if outcome.error is not None:
                _log.error("what is served cannot be told: %s", outcome.error.message)
            else:
                self._mapper, self._mapper_tick = outcome.value, tick
        return self._mapper


def _is_behind(hpa: HorizontalPodAutoscaler, kept: HPAState, seen: str) -> bool:
    """Whether the watch, which has brought HPAs up to a version, has not brought yet what was written of one."""
    written = kept.written
    return written is not None and written.uid == hpa.metadata.uid and is_older_version(seen, written.resource_version)


def _as_written(
    last: _Round, changed: Mapping[str, HorizontalPodAutoscaler | None]
) -> dict[str, HorizontalPodAutoscaler] | None:
    """The HPAs after a round; None: they are not what it made of them, or not yet."""
    written = last.found.written
    if changed.keys() != written.keys():
        return None
    if not written:
        return last.hpas
    for key, status in written.items():
        after = changed[key]
        if after is None or not is_unchanged_since_write(after, last.hpas[key], status):
            return None
    return {key: changed.get(key) or hpa for key, hpa in last.hpas.items()}
