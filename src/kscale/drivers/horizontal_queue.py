"""The queue of the HPA controller: which HPA is reconciled when.

Upstream: the event handlers, workers and ``reconcileKey`` of ``horizontal.go``. A driver passes on what it sees of
HPAs (:meth:`HorizontalController.added`, ``updated``, ``deleted``), takes keys, runs :func:`kscale.hpa.reconcile`
with :meth:`HorizontalController.state`, hands the record back, and sleeps until ``next_due``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from kscale.drivers.work_queue import QueueMetrics, WorkQueue
from kscale.effects import Moment, moment
from kscale.hpa.batch.columns import StateStore
from kscale.hpa.batch.reconcile_all import BatchResult
from kscale.hpa.controller.reconcile import ReconcileResult
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState, HPAState
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler

__all__ = ["HorizontalController", "Tombstone"]


_SHARE: Final = 10  # fraction of a sync period that HPAs wait for each other


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """A deletion that a watch has missed: the object's key and its last observed state."""

    namespace: str
    name: str
    last: HorizontalPodAutoscaler | None = None


HpaOrTombstone = HorizontalPodAutoscaler | Tombstone


class HorizontalController:
    """State of the HPA controller between reconciles.

    Keys are ``namespace/name``; ``now`` is an aware datetime or nanoseconds since 1970, and never goes back but for
    :meth:`clock_set`. ``selectors`` is an input of reconciles. ``num_horizontal_pod_autoscalers`` is the gauge of this
    name, ``queue_metrics`` the metrics of upstream's queue; the rest of upstream's metrics is observed by reconciles.
    ``kept``: the state of each HPA.

    An HPA is reconciled again a full sync period after its reconcile ended. ``together``: up to a tenth of a period
    later, at the same time as other HPAs, so that many can be reconciled in one batch. ``aligned``: at an integer
    multiple of the sync period, nine tenths of a period or more after its reconcile ended, so that simulated time stays
    on round numbers. Single owner: not for use from several threads at once.
    """

    __slots__ = (
        "_aligned",
        "_queue",
        "_within",
        "_workers",
        "kept",
        "num_horizontal_pod_autoscalers",
        "options",
        "selectors",
    )

    def __init__(
        self,
        options: HPAOptions | None = None,
        state: ControllerState | None = None,
        *,
        together: bool = False,
        aligned: bool = False,
    ) -> None:
        self.options = options or DEFAULT_OPTIONS
        self.selectors = SelectorStore()
        self.num_horizontal_pod_autoscalers = 0
        self._workers = self.options.workers
        self._queue = WorkQueue("horizontalpodautoscaler")
        self._aligned = aligned
        self._within = self.options.sync_period_ns // _SHARE if together or aligned else 0
        self.kept = StateStore(state.hpas if state is not None else None)

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that waits and ages are unchanged."""
        self._queue.clock_set(by)
        self.kept = StateStore({key: state.later(by) for key, state in self.kept.items()})

    # -- changes of HPAs ---------------------------------------------------------------------------------------------

    def added(self, hpa: HorizontalPodAutoscaler, *, now: datetime | Moment) -> None:
        """Register an HPA that is new or has another spec. It is due at once (legacy: after a sync period)."""
        time = moment(now)
        key = _key(hpa)
        saved = self.kept.plain_state(key)
        # A saved state takes effect at once: its selector blocks other HPAs before this HPA is reconciled again.
        if self.selectors.put_if_absent(*_names(hpa), None if saved is None else saved.selector):
            self.num_horizontal_pod_autoscalers += 1
        if self.options.legacy:
            self._add_rate_limited(key, time)
        else:
            self._queue.add(key, time)

    def updated(self, old: HpaOrTombstone, new: HpaOrTombstone, *, now: datetime | Moment) -> None:
        """Handle a change of an HPA from ``old`` to ``new``, or a resync.

        With the gate HPAGeneration, an HPA with a changed generation is handled as a new one. All others are due after
        a sync period.
        """
        time = moment(now)
        if (
            isinstance(old, HorizontalPodAutoscaler)
            and isinstance(new, HorizontalPodAutoscaler)
            and self.options.gates["HPAGeneration"]
            and old.metadata.generation != new.metadata.generation
        ):
            self.added(new, now=time)
        else:
            self._add_rate_limited(_key(new), time)

    def deleted(self, hpa: HpaOrTombstone) -> None:
        """Remove an HPA. Its histories stay until its key is taken from the queue and the object is not found."""
        if self.selectors.delete(*_names(hpa)):
            self.num_horizontal_pod_autoscalers -= 1
        state, last = self.kept.get(_key(hpa)), hpa.last if isinstance(hpa, Tombstone) else hpa
        if state is not None:
            written = state.written
            if written is not None and last is not None and written.uid == last.metadata.uid:
                written = None
            self.kept[_key(hpa)] = msgspec.structs.replace(state, selector=None, written=written)

    # -- work ------------------------------------------------------------------------------------------------------

    def take(self, now: datetime | Moment) -> str | None:
        """Take the key to reconcile now; None if nothing is due, or all workers are busy."""
        return None if len(self._queue.working) >= self._workers else self._queue.take(moment(now))

    def take_all(self, now: datetime | Moment) -> list[str]:
        """Take all keys to reconcile now, for a batch, whatever the number of workers."""
        return self._queue.take_all(moment(now))

    def waiting(self, now: datetime | Moment) -> set[str]:
        """Return the keys that :meth:`take_all` would take now."""
        return self._queue.waiting(now)

    @property
    def queue_metrics(self) -> QueueMetrics:
        """Return the metrics of the queue."""
        return self._queue.metrics

    @property
    def ready(self) -> bool:
        """Return whether a key is ready to be reconciled."""
        return self._queue.ready

    def next_due(self) -> Moment | None:
        """Return when the first waiting key is due; None if none is waiting."""
        return self._queue.next_due()

    def due(self, key: str) -> Moment | None:
        """Return when a key is due; None if it is not waiting."""
        return self._queue.due(key)

    def state(self, key: str) -> HPAState:
        """Return the state to reconcile an HPA from."""
        registered = self.selectors.is_registered(*key.split("/", 1))
        return msgspec.structs.replace(self.kept.get(key) or HPAState(), registered=registered)

    def states(self) -> ControllerState:
        """Return the states of all HPAs that were reconciled."""
        return ControllerState(hpas={key: self.state(key) for key in self.kept})

    def done(self, key: str, record: ReconcileResult | None, *, now: datetime | Moment) -> None:
        """Mark a reconcile as done; ``record`` None means that the HPA does not exist, and its state is dropped.

        An existing HPA is requeued after a sync period, whatever the result.
        """
        time = moment(now)
        if record is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = record.state
            self._add_rate_limited(key, time)
        self._queue.done(key, time)

    def done_all(self, result: BatchResult, *, ended: datetime | Moment) -> None:
        """Mark a batch as done, with its result.

        Each HPA is requeued a period after its own reconcile ended; unfinished ones are due at once.
        """
        over = moment(ended, "ended")
        self.kept.put(result.keys, result.histories, result.plain_states)
        period = self.options.sync_period_ns
        for keys, end in reversed(self._group_by_end(result)):
            self._queue.done_until(keys, self._next_sync(end), over, within=self._within, period=period)
        for key in result.unfinished:
            self._queue.add(key, over)
            self._queue.done(key, over)

    def _group_by_end(self, batch: BatchResult) -> list[tuple[Sequence[str], Moment]]:
        """Group the keys of a batch by their approximate end.

        Returns (keys, latest end) of each group, the earliest first.
        """
        quick = batch.at + self._within
        ends = sorted((end, key) for key, end in batch.ends.items() if end > quick)
        slow = {key for _, key in ends}
        first = [key for key in batch.keys if key not in slow] if slow else batch.keys
        groups = [(first, max([batch.at, *(end for end in batch.ends.values() if end <= quick)]))] if first else []
        while ends:
            count = bisect_right(ends, (ends[0][0] + self._within,), key=lambda each: each[:1])
            groups.append(([key for _, key in ends[:count]], ends[count - 1][0]))
            del ends[:count]
        return groups

    def requeue_skipped(self, key: str, *, now: datetime | Moment) -> None:
        """Mark a key as done although its HPA was not reconciled, and queue it again after a sync period."""
        time = moment(now)
        self._add_rate_limited(key, time)
        self._queue.done(key, time)

    def _add_rate_limited(self, key: str, now: Moment) -> None:
        """Queue a key for the next sync after ``now``."""
        # Twice, because the HPA's own status write arrives as a change just after its reconcile.
        self._queue.add_after(key, self._next_sync(now), within=2 * self._within)

    def _next_sync(self, ended: Moment) -> Moment:
        """Return when an HPA whose reconcile ended at ``ended`` is due again."""
        period = self.options.sync_period_ns
        return -((self._within - ended - period) // period) * period if self._aligned else ended + period


def _names(hpa: HpaOrTombstone) -> tuple[str, str]:
    """Return (namespace, name)."""
    return (hpa.namespace, hpa.name) if isinstance(hpa, Tombstone) else (hpa.metadata.namespace, hpa.metadata.name)


def _key(hpa: HpaOrTombstone) -> str:
    """Return the key, ``namespace/name``."""
    return "/".join(_names(hpa))
