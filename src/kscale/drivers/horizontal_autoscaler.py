"""The horizontal pod autoscaler as a live driver: HPAs that are due together are decided together.

Upstream: ``pkg/controller/podautoscaler``, as kube-controller-manager runs it. :mod:`kscale.drivers.work_queue`
decides which HPA is due, :mod:`kscale.hpa.batch.reconcile_all` reconciles those that are.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from kscale.drivers.driver import discover_steps
from kscale.drivers.work_queue import QUEUE_METRICS, HorizontalController, Tombstone
from kscale.effects import (
    LAST_TIME,
    SECOND,
    ZERO_TIME,
    InBackground,
    Metric,
    Moment,
    Observation,
    Progress,
    ReadStores,
    Steps,
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
from kscale.hpa.controller.monitor import DESIRED_REPLICAS, METRICS, NUM_HPAS
from kscale.hpa.controller.reconcile import reconcile
from kscale.hpa.controller.state import ControllerState, HPAState
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import CrossVersionObjectReference, HorizontalPodAutoscaler, Scale
from kscale.objects.api.meta import KubeObject, is_older_version, object_key
from kscale.objects.argument_types import unchecked
from kscale.objects.kinds import BUILT_IN_MAPPER, RESTMapper
from kscale.objects.scale import ScaleError, scale_of_workload
from kscale.snapshot.caches import collector_relaxed
from kscale.snapshot.pods.index import PodIndex
from kscale.snapshot.snapshot import Snapshot
from kscale.world.protocols import Change, InputSources, Stores, Watch

__all__ = [
    "CANNOT_BE_RECONCILED",
    "HORIZONTAL_METRICS",
    "NAME",
    "HorizontalAutoscaler",
    "HorizontalView",
    "OtherControllers",
    "SlowHpas",
]


_log = logging.getLogger(__name__)
CANNOT_BE_RECONCILED: Final = "HorizontalPodAutoscaler %s cannot be reconciled: %s"
_reconcile_all: Final = unchecked(reconcile_all)  # the store has only structs of the right types


class SlowHpas:
    """HPAs of a ``controller`` whose requests or writes took longer than a sync period.

    All that are due are decided together in the background, one batch after the other. An HPA that waits less than a
    period is no longer slow, whatever the other HPAs of the batch do. ``refresh`` reads their objects again after the
    responses. It has a single owner, like the controller.
    """

    def __init__(self, controller: HorizontalController, refresh: RefreshObjects | None = None) -> None:
        self._controller, self._refresh = controller, refresh
        self._slow: set[str] = set()
        self._clock_sets = 0
        self.looked_at: Moment | None = None
        """When to check whether the running batch has ended; None while no batch is running."""

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        self._clock_sets += 1
        if self.looked_at is not None:
            self.looked_at += by

    def forget(self, key: str) -> None:
        """Forget a deleted HPA."""
        self._slow.discard(key)

    def schedule_check(self, now: Moment) -> None:
        """Schedule the next check, one period from now, whether the batch of slow HPAs has ended."""
        if self.looked_at is not None:
            self.looked_at = now + self._controller.options.sync_period_ns

    def note_late(self, keys: Iterable[str], now: Moment) -> None:
        """Mark HPAs as slow whose requests were not answered in time, and requeue them."""
        for key in keys:
            self.note_slow([key])
            self._controller.requeue_skipped(key, now=now)

    def note_slow(self, keys: Iterable[str]) -> None:
        """Mark HPAs as slow and log a warning: they are reconciled separately from now on."""
        for key in keys:
            self._slow.add(key)
            text = (
                "HorizontalPodAutoscaler %s is reconciled separately: the API server took over a sync period to answer"
            )
            _log.warning(text, key)

    def without_slow(
        self,
        due: list[HorizontalPodAutoscaler],
        pods: PodIndex,
        scales: Mapping[str, Scale],
        mapper: RESTMapper,
        progress: Progress,
    ) -> Steps[list[HorizontalPodAutoscaler]]:
        """Return the due HPAs that are not slow.

        The slow ones are started in the background, or requeued while a batch of slow HPAs is running. ``pods``,
        ``scales`` and ``mapper`` are those of :func:`~kscale.hpa.batch.reconcile_all.reconcile_all`.
        """
        slow = [hpa for hpa in due if hpa.key in self._slow] if self._slow else []
        if not slow:
            return due
        if self.looked_at is not None:
            for hpa in slow:
                self._controller.requeue_skipped(hpa.key, now=progress.now)
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
        """Reconcile slow HPAs, and requeue them. HPAs that were fast enough this time no longer count as slow."""
        progress, controller, clock_sets = Progress(now), self._controller, self._clock_sets
        batch = yield from reconcile_all(
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
        self._slow.difference_update({*keys}.difference(batch.slow))
        if clock_sets == self._clock_sets:
            controller.done_all(batch, ended=ended)
            for key in batch.deleted:
                controller.requeue_skipped(key, now=ended)
        else:  # its state would have times of the old clock
            for key in keys:
                controller.requeue_skipped(key, now=ended)
        for key, problem in batch.problems.items():
            _log.error(CANNOT_BE_RECONCILED, key, problem)


_FRESH: Final = 4
"""Number of sync periods without a write after which another controller counts as inactive."""
_FRESH_AGAIN: Final = 40
"""The same for a controller that wrote again after it had counted as inactive. Not much longer, because nobody scales
the HPA meanwhile if that controller has ended."""


class _OtherController(NamedTuple):
    """Another controller of one HPA.

    ``written``: when it last wrote the status (the API server's clock; the zero time: never); ``noticed``: when that
    was noticed (our clock). ``left``: the HPA is left alone; ``returned``: the other controller wrote again.
    """

    written: Moment
    noticed: Moment
    left: bool = False
    returned: bool = False


class OtherControllers:
    """Other controllers that write the status of HPAs. Single owner.

    ``manager``: our own name in ``managedFields``; ``period``: of syncs, in nanoseconds.

    Another controller counts as active for four periods after its last write. A controller writes a status only when
    the status changes, so a controller that was silent for longer may still be active. If it writes again while this
    process manages its HPA, it counts as active for 40 periods after its last write from then on.

    The age of the first observed write is taken from the write's time, unless that is in the future. Later writes count
    from when they are noticed, so that our clock need not agree with the API server's.
    """

    def __init__(self, manager: str, period: int) -> None:
        self._manager, self._period = manager, period
        self._known: dict[str, _OtherController] = {}
        self._left: set[str] = set()

    @property
    def skipped_count(self) -> int:
        """Return the number of HPAs that belong to other controllers."""
        return len(self._left)

    @property
    def is_idle(self) -> bool:
        """Return whether no other controller was ever seen to manage an HPA that still exists."""
        return not self._known

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that ages are unchanged."""
        self._known = {
            key: rival._replace(noticed=rival.noticed + by) if rival.noticed != ZERO_TIME else rival
            for key, rival in self._known.items()
        }

    def forget(self, key: str) -> None:
        """Forget a deleted HPA."""
        self._known.pop(key, None)
        self._left.discard(key)

    def has(self, hpa: HorizontalPodAutoscaler, key: str, now: Moment) -> bool:
        """Check whether another controller manages an HPA now, and record its last write. ``key``: that of the HPA.

        Logs a warning when this process starts to leave the HPA alone.
        """
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
            rival = _OtherController(written, min(written, now))
        elif written > known.written:
            rival = _OtherController(written, now, returned=known.returned or not known.left)
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
_KINDS_FORGOTTEN: Final = 30 * SECOND  # kube-controller-manager resets its mapper at this interval
_KINDS_WITHIN: Final = 5 * SECOND  # HPAs of built-in kinds wait for discovery, too
_OBJECTS: Final = 50  # upper bound of objects per HPA in a round, most of them temporary
_LEFT_ALONE: Final = Metric(
    "kscale_horizontal_left_alone", "gauge", help="Number of HPAs that another controller manages."
)

HORIZONTAL_METRICS: Final = (*METRICS.values(), *QUEUE_METRICS, _LEFT_ALONE)
"""Metrics of upstream's controller and of its queue, and the number of HPAs that other controllers manage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizontalView:
    """Inputs of a round: the HPAs that are due.

    ``keys``: of the HPAs, if they are those of the last round and it is cached, else empty; ``deleted``: keys of
    deleted HPAs; ``scales``: scales of the watched targets by key of the HPA; ``pods``: None if no HPA is due;
    ``version``: the newest observed resource version of HPAs.
    """

    hpas: Sequence[HorizontalPodAutoscaler] = ()
    keys: Sequence[str] = ()
    deleted: Sequence[str] = ()
    scales: dict[str, Scale] = field(default_factory=dict)
    pods: PodIndex | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class _Round:
    """The last round: its HPAs and their targets' scales, its result, and how long requests took before the decision.

    ``keys``: of the HPAs, in their order.
    """

    hpas: dict[str, HorizontalPodAutoscaler]
    scales: dict[str, Scale]
    batch: BatchResult
    asking: int
    keys: Sequence[str]


class HorizontalAutoscaler:
    """The driver (:class:`kscale.drivers.driver.Driver`).

    - ``selector``: label selector; other HPAs are ignored, also where HPAs that select the same pods block each other;
    - ``manager``: the name under which this process writes. While another controller has written the status of an HPA
      recently (:class:`~kscale.drivers.horizontal_autoscaler.OtherControllers`), the HPA is left alone,
      unless ``take_over``;
    - ``state``: the state of an earlier driver;
    - ``repeats``: whether the last round is cached, for rounds that only repeat it (:meth:`repeat`); live drivers never
      do;
    - ``aligned``: rounds begin at integer multiples of the sync period; live ones do not.
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
        self.options = options or DEFAULT_OPTIONS
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
        self._rivals = OtherControllers(manager, self.options.sync_period_ns)
        self._apart = SlowHpas(self.controller, self._read_again)
        self._repeats = repeats
        self._last: _Round | None = None
        self._before: BatchResult | None = None
        self._changed: dict[str, HorizontalPodAutoscaler | None] = {}
        self._changed_targets: set[tuple[str, str, str]] = set()  # kind, namespace and name
        self._seen_version = ""
        self._notices = 0  # changes of HPAs and targets
        self._observed: tuple[int, Snapshot | None] = 0, None  # notices, and pods, when the round began
        self._outdated_writes: set[str] = set()  # keys of HPAs

    # -- stores ------------------------------------------------------------------------------------------------------

    def notice(self, change: Change, now: datetime | Moment) -> None:
        """Record a change of an HPA, or that a target has changed. Targets are read when their HPAs are due."""
        now = moment(now)
        self._notices += 1
        if change.watch.kind == _KIND:
            self._changes.append((change, now))
            if self._repeats:
                self._note_change(change)
        elif self._repeats and (target := change.new or change.old) is not None:
            self._changed_targets.add((change.watch.kind, target.metadata.namespace, target.metadata.name))

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        self._take_in()
        self.controller.clock_set(by)
        self._rivals.clock_set(by)
        self._apart.clock_set(by)

    def next_due(self) -> Moment | None:
        """Return when the next HPA, or the next check of slow HPAs, is due.

        0: an HPA is due now. None: no HPA is queued.
        """
        self._take_in()
        if self.controller.ready:
            return 0
        due, apart = self.controller.next_due(), self._apart.looked_at
        return apart if due is None else due if apart is None else min(due, apart)

    def observe(self, stores: Stores, now: datetime | Moment) -> HorizontalView:
        """Return the HPAs that are due and take them from the queue, with the watched objects that they need."""
        now = moment(now)
        self._take_in()
        last, keys = self._last, self.controller.take_all(now)
        hpas: list[HorizontalPodAutoscaler] = []
        deleted: list[str] = []
        scales: dict[str, Scale] = {}
        is_repeated = last is not None and keys == last.keys and None not in self._changed.values()
        if last is not None and is_repeated:
            hpas, scales = self._find_current(stores, last)
        else:
            for key in keys:
                namespace, _, name = key.partition("/")
                hpa = stores.get(_KIND, namespace, name)
                if not isinstance(hpa, HorizontalPodAutoscaler):
                    deleted.append(key)
                    continue
                hpas.append(hpa)
                scale = self._scale(stores, key, hpa)
                if scale is not None:
                    scales[key] = scale
        self._before, self._last, self._changed = None if last is None else last.batch, None, {}
        self._changed_targets = set()
        snapshot = stores.snapshot() if hpas else None
        self._observed = self._notices, snapshot
        return HorizontalView(
            hpas=hpas,
            keys=last.keys if last is not None and is_repeated else (),
            deleted=deleted,
            scales=scales,
            pods=None if snapshot is None else snapshot.pod_index,
            version=stores.resource_version(_KIND),
        )

    def _find_current(self, stores: Stores, last: _Round) -> tuple[list[HorizontalPodAutoscaler], dict[str, Scale]]:
        """Return the HPAs of the ``last`` round as they are now, and the scales of their watched targets by key.

        Reads only objects that changed since that round. Call this only if none of the HPAs was deleted.
        """
        changed, targets, scales = self._changed, self._changed_targets, dict(last.scales)
        hpas = [changed.get(key) or hpa for key, hpa in last.hpas.items()]
        for key, before, hpa in zip(last.keys, last.hpas.values(), hpas, strict=True):
            if hpa is before and not targets:
                continue
            reference = hpa.spec.scale_target_ref
            if hpa.spec is not before.spec or (
                targets and (reference.kind, hpa.metadata.namespace, reference.name) in targets
            ):
                scale = self._scale(stores, key, hpa)
                if scale is None:
                    scales.pop(key, None)
                else:
                    scales[key] = scale
        return hpas, scales

    def _read_again(self, progress: Progress, hpas: Sequence[HorizontalPodAutoscaler]) -> Steps[CurrentObjects | None]:
        """Read some HPAs, their scales and all pods from the stores again; None if the stores are not settled."""
        outcome = yield from progress.act(ReadStores(partial(self._current, hpas)))
        current: CurrentObjects | None = outcome.value
        return current

    def _read_if_changed(
        self, progress: Progress, hpas: Sequence[HorizontalPodAutoscaler]
    ) -> Steps[CurrentObjects | None]:
        """Read the current objects like :meth:`_read_again`, but only if some have changed since the round began.

        Returns None if nothing has changed or the stores are not settled.
        """

        def read(stores: Stores) -> CurrentObjects | None:
            (notices, snapshot), self._observed = self._observed, (0, None)
            if notices == self._notices and stores.snapshot() is snapshot:
                return None
            return self._current(hpas, stores)

        outcome = yield from progress.act(ReadStores(read))
        current: CurrentObjects | None = outcome.value
        return current

    def _current(self, hpas: Sequence[HorizontalPodAutoscaler], stores: Stores) -> CurrentObjects:
        """Return the current state of some HPAs (None: deleted), the scales of their watched targets, and all pods."""
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
        """Pass the changes that :meth:`notice` has recorded to the controller's queue, and remove them.

        At the end of a round this may run while another thread calls :meth:`notice`. Changes are therefore removed one
        by one.
        """
        while self._changes:
            change, now = self._changes.popleft()
            old, new = change.old, change.new
            if isinstance(new, HorizontalPodAutoscaler):
                if isinstance(old, HorizontalPodAutoscaler):
                    self.controller.updated(old, new, now=now)
                else:
                    self.controller.added(new, now=now)
            elif isinstance(old, HorizontalPodAutoscaler):
                metadata = old.metadata
                self.controller.deleted(
                    Tombstone(namespace=metadata.namespace, name=metadata.name, last=old) if change.missed else old
                )

    def _scale(self, stores: Stores, key: str, hpa: HorizontalPodAutoscaler) -> Scale | None:
        """Return the scale of an HPA's target, cached while the target is the same object; ``key``: that of the HPA.

        Returns None if the scale must be requested: the target is of another kind, does not exist or has no valid
        scale.
        """
        reference, known = hpa.spec.scale_target_ref, self._scales.get(key)
        same = known is not None and known[0] is reference
        if not same and (reference.api_version.partition("/")[0], reference.kind) not in _WATCHED:
            return None
        workload = stores.get(reference.kind, hpa.metadata.namespace, reference.name)
        if same and known is not None and known[1] is workload:
            return known[2]
        if not isinstance(workload, (Deployment, StatefulSet)):
            return None
        try:
            scale = scale_of_workload(workload)
        except ScaleError:
            return None  # the API server returns the error
        self._scales[key] = reference, workload, scale
        return scale

    # -- a round -----------------------------------------------------------------------------------------------------

    def steps(self, view: HorizontalView, now: datetime | Moment) -> Steps[None]:
        """Reconcile the HPAs that are due. ``view``: the inputs, as :meth:`observe` returns them."""
        now = moment(now)
        objects, steps = _OBJECTS * len(view.hpas), self._steps(view, now)
        del view  # free it with the round, before the next garbage collection
        with collector_relaxed(objects):
            yield from steps

    def _steps(self, view: HorizontalView, now: Moment) -> Steps[None]:
        """Reconcile the HPAs that are due, and requeue those that must wait.

        HPAs wait that other controllers manage, that are slow, or whose last write has not been observed yet.
        """
        progress, controller = Progress(now), self.controller
        for key in view.deleted:
            controller.done(key, None, now=now)
            self._scales.pop(key, None)
            self._outdated_writes.discard(key)
            self._rivals.forget(key)
            self._apart.forget(key)
        if is_older_version(view.version, self._seen_version):
            # The server was restored from a backup: versions of earlier writes cannot be compared with its new ones.
            self._outdated_writes = set(controller.kept)
        self._seen_version = view.version or self._seen_version
        by_key = self._find_all_ready(view)
        if by_key is None:
            by_key = yield from self._find_ready_steps(view, now)
        due = [*by_key.values()]
        mapper = self._mapper
        if due:
            mapper = yield from self._kinds(progress, due)
        self._apart.schedule_check(progress.now)
        if due and view.pods is not None:
            due = yield from self._apart.without_slow(due, view.pods, view.scales, mapper, progress)
        if due and view.pods is not None:
            yield from progress.observe(*controller.queue_metrics.observations(progress.now))
            batch = yield from _reconcile_all(
                due,
                controller.kept,
                view.pods,
                scales=view.scales,
                now=progress.now,
                options=self.options,
                selectors=controller.selectors,
                mapper=mapper,
                within=self.options.sync_period_ns,
                before=self._before,
                refresh=self._read_if_changed,
            )
            self._before = None
            controller.done_all(batch, ended=(yield from progress.clock()))
            for key in batch.deleted:  # as upstream, found missing at its next reconcile
                controller.requeue_skipped(key, now=progress.now)
            self._apart.note_late(batch.late, progress.now)
            self._apart.note_slow(batch.slow)
            if self._repeats and len(due) == len(by_key) and by_key.keys() <= view.scales.keys() and not view.deleted:
                keys = view.keys if len(view.keys) == len(by_key) else [*by_key]
                self._last = _Round(by_key, view.scales, batch, batch.at - now, keys)
            for key, problem in batch.problems.items():
                _log.error(CANNOT_BE_RECONCILED, key, problem)
        if view.hpas or view.deleted:
            yield from progress.observe(
                Observation(name=NUM_HPAS, value=float(controller.num_horizontal_pod_autoscalers)),
                Observation(name=_LEFT_ALONE.name, value=float(self._rivals.skipped_count)),
                *map(_forget_size, view.deleted),
                *controller.queue_metrics.observations(progress.now),
            )
        self._observed = 0, None
        self._take_in()  # release old versions of objects

    def _find_all_ready(self, view: HorizontalView) -> dict[str, HorizontalPodAutoscaler] | None:
        """Return the HPAs by key if a quick check shows that all can be reconciled now.

        The check: the watch has delivered all own writes, and no other controller manages or has written an HPA.
        Returns None if each HPA must be checked (:meth:`_find_ready_steps`).
        """
        if not view.keys or self._outdated_writes or not self._rivals.is_idle:
            return None
        _, states = self.controller.kept.get_columns(view.keys)
        for hpa, state in zip(view.hpas, states, strict=True):
            metadata, written = hpa.metadata, state.written
            if metadata.managed_fields or (
                written is not None and written.resource_version != metadata.resource_version
            ):
                return None
        return dict(zip(view.keys, view.hpas, strict=True))

    def _find_ready_steps(self, view: HorizontalView, now: Moment) -> Steps[dict[str, HorizontalPodAutoscaler]]:
        """Return the HPAs by key that can be reconciled now, and requeue the others.

        HPAs wait that other controllers manage, or whose last write has not been observed yet.
        """
        controller = self.controller
        by_key: dict[str, HorizontalPodAutoscaler] = {}
        outdated, plain_state = self._outdated_writes, controller.kept.plain_state
        for hpa in view.hpas:
            metadata = hpa.metadata
            key = object_key(metadata.namespace, metadata.name)
            if self._take_over or not self._rivals.has(hpa, key, now):
                hpa_state = plain_state(key)
                if (
                    hpa_state is None
                    or hpa_state.written is None
                    or hpa_state.written.resource_version == metadata.resource_version
                    or key in outdated
                    or not _is_behind(hpa, hpa_state, view.version)
                ):
                    if outdated:
                        outdated.discard(key)
                    by_key[key] = hpa
                    continue
                yield from reconcile(hpa, hpa_state, now=now, options=self.options, seen_version=view.version)
            controller.requeue_skipped(key, now=now)
        return by_key

    # -- skipped rounds ------------------------------------------------------------------------------------------------

    @property
    def input_sources(self) -> InputSources:
        """Declare that rounds depend on metrics.

        The driver itself recognizes the changes of HPAs that it has written.
        """
        return InputSources(metrics=True, judged=frozenset({_KIND}))

    def _note_change(self, change: Change) -> None:
        """Record the current version of an HPA (None: deleted) for :meth:`repeat`."""
        new = change.new
        key = (new or change.old).key  # type: ignore[union-attr]  # one of the two is not None
        self._changed[key] = new if isinstance(new, HorizontalPodAutoscaler) else None

    def repeats_until(self) -> Moment:
        """Return until when rounds may repeat the last one.

        This is for ever if the last round is cached and its batch is stable, otherwise the zero time. :meth:`repeat`
        checks again what depends on the time.
        """
        last = self._last
        if last is None or not is_stable_batch(last.batch):
            return ZERO_TIME
        hpas = last.hpas.values()
        return (
            LAST_TIME
            if has_built_in_targets(hpas) and not any(hpa.metadata.managed_fields for hpa in hpas)
            else ZERO_TIME
        )

    def repeat(self, now: datetime | Moment) -> Moment | None:
        """Repeat the last round with its cached decisions, if exactly its HPAs are due. Returns when the round ends.

        Returns None if the round has to be run.
        """
        now = moment(now)
        self._take_in()
        last, controller = self._last, self.controller
        if last is None or controller.waiting(now) != last.hpas.keys():
            return None
        hpas = _as_written(last, self._changed)
        ended = now + last.asking
        batch = None if hpas is None else repeat_batch(last.batch, ended, self.options)
        if hpas is None or batch is None:
            return None
        controller.take_all(now)
        controller.done_all(batch, ended=ended)
        self._last, self._changed = replace(last, hpas=hpas, batch=batch), {}
        return ended

    def _kinds(self, progress: Progress, due: Sequence[HorizontalPodAutoscaler]) -> Steps[RESTMapper]:
        """Return the mapper of the served kinds. If all targets are of built-in kinds, nothing is requested.

        The result of discovery is used for at most half a minute. If the discovery fails or takes longer than five
        seconds, the old mapper stays.
        """
        if has_built_in_targets(due):
            return self._mapper
        tick = progress.now // _KINDS_FORGOTTEN
        if tick != self._mapper_tick:
            outcome = yield from discover_steps(progress, _KINDS_WITHIN)
            if outcome.error is not None:
                _log.error("the APIs that the server offers cannot be read: %s", outcome.error.message)
            else:
                self._mapper, self._mapper_tick = outcome.value, tick
        return self._mapper


def _forget_size(key: str) -> Observation:
    """Return the observation that removes the gauge of a deleted HPA.

    Upstream keeps the gauge for ever, so that HPAs that come and go fill the memory.
    """
    namespace, _, name = key.partition("/")
    return Observation(name=DESIRED_REPLICAS, labels={"namespace": namespace, "hpa_name": name}, reset=True)


def _is_behind(hpa: HorizontalPodAutoscaler, hpa_state: HPAState, seen: str) -> bool:
    """Check whether the watch has not delivered this process's last write of the HPA yet.

    It has if the version of ``hpa``, or ``seen``, the version of the watch, is not older than that of the write.
    """
    written = hpa_state.written
    return (
        written is not None
        and written.uid == hpa.metadata.uid
        and is_older_version(hpa.metadata.resource_version, written.resource_version)
        and is_older_version(seen, written.resource_version)
    )


def _as_written(
    last: _Round, changed: Mapping[str, HorizontalPodAutoscaler | None]
) -> dict[str, HorizontalPodAutoscaler] | None:
    """Return the HPAs of the last round as they are now, by key.

    Returns None if they differ from what the round wrote, or if a write has not been observed yet. ``changed``: HPAs
    that changed since (None: deleted).
    """
    written = last.batch.written
    if changed.keys() != written.keys():
        return None
    if not written:
        return last.hpas
    for key, status in written.items():
        after = changed[key]
        if after is None or not is_unchanged_since_write(after, last.hpas[key], status):
            return None
    return {key: changed.get(key) or hpa for key, hpa in last.hpas.items()}
