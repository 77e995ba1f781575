"""A work queue of keys with due times and its metrics, and the queue of the HPA controller: when each HPA is due.

Upstream: ``client-go/util/workqueue`` (the delaying queue and ``metrics.go``), without its clock and its locks, and the
event handlers, workers and ``reconcileKey`` of ``horizontal.go``. A driver passes on what it sees of HPAs
(:meth:`HorizontalController.added`, ``updated``, ``deleted``), takes keys, runs :func:`kscale.hpa.reconcile` with
:meth:`HorizontalController.state`, hands the record back, and sleeps until ``next_due``.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from kscale.effects import SECOND, Metric, Moment, Observation, moment
from kscale.hpa.batch.columns import StateStore
from kscale.hpa.batch.reconcile_all import BatchResult
from kscale.hpa.controller.reconcile import ReconcileResult
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState, HPAState
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler

__all__ = ["QUEUE_METRICS", "HorizontalController", "QueueMetrics", "Tombstone", "WorkQueue"]

_BOUNDS: Final = tuple(1e-6 * 10.0**i for i in range(10))
_DEPTH: Final = Metric("workqueue_depth", "gauge", ("name",), help="[BETA] Current depth of workqueue")
_ADDS: Final = Metric(
    "workqueue_adds_total", "counter", ("name",), help="[BETA] Total number of adds handled by workqueue"
)
_WAITED: Final = Metric(
    "workqueue_queue_duration_seconds",
    "histogram",
    ("name",),
    _BOUNDS,
    help="[BETA] How long in seconds an item stays in workqueue before being requested.",
)
_WORKED: Final = Metric(
    "workqueue_work_duration_seconds",
    "histogram",
    ("name",),
    _BOUNDS,
    help="[BETA] How long in seconds processing an item from workqueue takes.",
)
_UNFINISHED: Final = Metric(
    "workqueue_unfinished_work_seconds",
    "gauge",
    ("name",),
    help="[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. "
    "Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at "
    "which this increases.",
)
_LONGEST: Final = Metric(
    "workqueue_longest_running_processor_seconds",
    "gauge",
    ("name",),
    help="[BETA] How many seconds has the longest running processor for workqueue been running.",
)
_RETRIES: Final = Metric(
    "workqueue_retries_total", "counter", ("name",), help="[BETA] Total number of retries handled by workqueue"
)

QUEUE_METRICS: Final = (_DEPTH, _ADDS, _WAITED, _WORKED, _UNFINISHED, _LONGEST, _RETRIES)
"""All of them; ``name`` is the queue's."""


class QueueMetrics:
    """Metrics of the queue ``name``. Single owner, like the queue."""

    __slots__ = ("_added", "_adds", "_begun", "_depth", "_labels", "_retries", "_waited", "_worked")

    def __init__(self, name: str) -> None:
        self._labels = {"name": name}
        self._depth = self._adds = self._retries = 0
        self._added: dict[str, Moment] = {}
        self._begun: dict[str, Moment] = {}
        self._waited, self._worked = _Durations(), _Durations()

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that measured waits are unchanged."""
        self._added = {key: at + by for key, at in self._added.items()}
        self._begun = {key: at + by for key, at in self._begun.items()}

    def added(self, key: str, now: Moment) -> None:
        """Count a key that was added to the queue, and store the time, unless the key has one already."""
        self._adds += 1
        self._depth += 1
        self._added.setdefault(key, now)

    def added_all(self, keys: Sequence[str], now: Moment) -> None:
        """Count keys that were added to the queue, and store the time of each, unless the key has one already."""
        self._adds += len(keys)
        self._depth += len(keys)
        if self._added.keys().isdisjoint(keys):
            self._added.update(dict.fromkeys(keys, now))
        else:
            for key in keys:
                self._added.setdefault(key, now)

    def retried(self, count: int = 1) -> None:
        """Count ``count`` keys that will be retried later."""
        self._retries += count

    def taken(self, key: str, now: Moment) -> None:
        """Register the start of the work on a key, and record how long the key waited in the queue."""
        self._depth -= 1
        self._begun[key] = now
        added = self._added.pop(key, None)
        if added is not None:
            self._waited.add(now - added)

    def taken_all(self, keys: Sequence[str], now: Moment) -> None:
        """Register the start of the work on keys, and record how long each key waited in the queue."""
        self._depth -= len(keys)
        self._begun.update(dict.fromkeys(keys, now))
        for added, count in _count_moments(self._added, keys):
            self._waited.add(now - added, count)

    def done(self, key: str, now: Moment) -> None:
        """Register the end of the work on a key, and record how long it took. No effect if the work has not begun."""
        begun = self._begun.pop(key, None)
        if begun is not None:
            self._worked.add(now - begun)

    def done_all(self, keys: Sequence[str], now: Moment) -> None:
        """Register the end of the work on keys, and record how long each took. Keys without begun work are ignored."""
        for begun, count in _count_moments(self._begun, keys):
            self._worked.add(now - begun, count)

    def observations(self, now: Moment) -> Iterator[Observation]:
        """Yield the depth, the work in progress, and the counts and durations since the last call, which are reset.

        Counts and durations without an entry since then are left out.
        """
        ages = [now - begun for begun in self._begun.values()]
        for metric, value in (
            (_DEPTH, self._depth),
            (_UNFINISHED, sum(ages) / SECOND),
            (_LONGEST, max(ages, default=0) / SECOND),
        ):
            yield Observation(name=metric.name, value=float(value), labels=self._labels)
        for metric, count in ((_ADDS, self._adds), (_RETRIES, self._retries)):
            if count:
                yield Observation(name=metric.name, value=float(count), labels=self._labels)
        for metric, durations in ((_WAITED, self._waited), (_WORKED, self._worked)):
            if any(durations.buckets):
                yield Observation(
                    name=metric.name,
                    value=durations.total / SECOND,
                    labels=self._labels,
                    buckets=tuple(durations.buckets),
                )
        self._adds = self._retries = 0
        self._waited, self._worked = _Durations(), _Durations()


def _count_moments(moments: dict[str, Moment], keys: Sequence[str]) -> Iterable[tuple[Moment, int]]:
    """Remove the stored moments of keys, and return (moment, number of keys that had it) of each."""
    if len(keys) == len(moments) and all(map(moments.__contains__, keys)):
        counts = Counter(moments.values())
        moments.clear()
        return counts.items()
    return Counter([moments.pop(key) for key in keys if key in moments]).items()


class _Durations:
    """Durations by bucket, and their sum in nanoseconds."""

    __slots__ = ("_last", "buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.total = 0
        self._last = (0, 0)  # last duration and its bucket, as keys taken together have equal waits

    def add(self, duration: int, count: int = 1) -> None:
        """Add ``count`` equal durations, in nanoseconds."""
        self.total += duration * count
        if duration != self._last[0]:
            self._last = duration, bisect_left(_BOUNDS, duration / SECOND)
        self.buckets[self._last[1]] += count


class WorkQueue:
    """Keys that are waiting, ready or being worked on. Times are aware datetimes or moments; InputError otherwise.

    A key is ready at most once, and never worked on twice at a time: if it is added meanwhile, it is ready again when
    :meth:`done`. ``metrics`` records everything. Single owner: not for use from several threads at once.
    """

    __slots__ = ("_due", "_heap", "_number", "_ready", "_sizes", "_times", "_unclean", "_working", "metrics")

    def __init__(self, name: str) -> None:
        self.metrics = QueueMetrics(name)
        self._ready: deque[str] = deque()
        self._unclean: set[str] = set()  # to be worked on: ready, or added while worked on
        self._working: set[str] = set()
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, int, Sequence[str]]] = []  # (due, order of adding, keys), void where not in _due
        self._times: list[int] = []  # the different times in the heap, ascending
        self._sizes: dict[int, int] = {}  # by due time, the number of keys
        self._number = 0

    @property
    def working(self) -> frozenset[str]:
        """Return the keys that are being worked on."""
        return frozenset(self._working)

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        self._due = {key: due + by for key, due in self._due.items()}
        self._heap = [(due + by, number, keys) for due, number, keys in self._heap]
        self._times = [due + by for due in self._times]
        self._sizes = {due + by: size for due, size in self._sizes.items()}
        self.metrics.clock_set(by)

    def add(self, key: str, now: datetime | Moment) -> None:
        """Make a key ready. While it is being worked on, it becomes ready when the work is done.

        No effect if it is ready, or was added already while it is worked on.
        """
        time = moment(now)
        if key in self._unclean:
            return
        self.metrics.added(key, time)
        self._unclean.add(key)
        if key not in self._working:
            self._ready.append(key)

    def add_after(self, key: str, due: datetime | Moment, *, within: int = 0, period: int = 0) -> None:
        """Make a key ready at ``due``, or at most ``within`` nanoseconds later, together with other keys.

        A key that already waits keeps its time, unless that is more than ``within`` after ``due``. ``period``: interval
        in nanoseconds after which keys usually become ready again.
        """
        due = moment(due, "due")
        self.metrics.retried()
        known = self._due.get(key)
        if known is not None and known <= due + within:
            return
        due = self._get_joined_time(due, within, period)
        self._due[key] = due
        self._push(due, (key,))

    def _get_joined_time(self, due: Moment, within: int, period: int) -> Moment:
        """Return when a key that is due at ``due`` becomes ready: up to ``within`` nanoseconds later, to join others.

        The key takes the first time in this span at which other keys become ready. If there is none, it takes the end
        of the span if several keys are due at one time in the half ``period`` after ``due``, or were due one period
        before such a time; otherwise it takes ``due``. So keys that became separate meet again. They meet only within
        one whole multiple of the period, because otherwise keys could follow each other for ever.
        """
        times, at = self._times, bisect_left(self._times, due)
        if at < len(times) and times[at] <= due + within:
            return times[at]
        if not within or not period:
            return due
        reach = due + period // 2
        ahead = [(each, each) for each in times[at:] if each <= reach]
        ahead += [(each, each + period) for each in times[bisect_left(times, due - period) :] if each <= reach - period]
        several = any(self._sizes[each] > 1 and then // period == due // period for each, then in ahead)
        return due + within if several else due

    def _push(self, due: Moment, keys: Sequence[str]) -> None:
        """Store keys that become ready at ``due``."""
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, keys))
        if due not in self._sizes:
            insort(self._times, due)
        self._sizes[due] = self._sizes.get(due, 0) + len(keys)

    def _pop(self) -> tuple[Moment, Sequence[str]]:
        """Remove the entry that is due first, and return (due time, keys)."""
        due, _, keys = heapq.heappop(self._heap)
        if not self._heap or self._heap[0][0] != due:
            del self._sizes[self._times.pop(0)]
        return due, keys

    def take(self, now: datetime | Moment) -> str | None:
        """Take the next key to work on; None if none is ready at ``now``."""
        time = moment(now)
        self._wake(time)
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._unclean.discard(key)
        self._working.add(key)
        self.metrics.taken(key, time)
        return key

    def take_all(self, now: datetime | Moment) -> list[str]:
        """Take all keys that are ready at ``now``, in order."""
        time = moment(now)
        self._wake(time)
        keys = list(self._ready)
        self._ready.clear()
        self._unclean.difference_update(keys)
        self._working.update(keys)
        self.metrics.taken_all(keys, time)
        return keys

    def _wake(self, now: Moment) -> None:
        """Make the keys ready whose time has come."""
        heap, waiting = self._heap, self._due
        while heap and heap[0][0] <= now:
            due, keys = self._pop()
            woken = [key for key in keys if waiting.get(key) == due]
            if len(woken) == len(waiting):
                waiting.clear()
            else:
                for key in woken:
                    del waiting[key]
            fresh = [key for key in woken if key not in self._unclean] if self._unclean else woken
            self.metrics.added_all(fresh, due)
            self._unclean.update(fresh)
            self._ready.extend([key for key in fresh if key not in self._working] if self._working else fresh)

    def waiting(self, now: datetime | Moment) -> set[str]:
        """Return the keys that are ready at ``now``, or become ready then. Takes none of them."""
        time = moment(now)
        return {*self._ready, *(key for key, due in self._due.items() if due <= time)}

    @property
    def ready(self) -> bool:
        """Return whether a key is ready."""
        return bool(self._ready)

    def done(self, key: str, now: datetime | Moment) -> None:
        """Mark the work on a key as done. A key that was added meanwhile is ready again."""
        self.metrics.done(key, moment(now))
        self._working.discard(key)
        if key in self._unclean:
            self._ready.append(key)

    def done_until(
        self, keys: Sequence[str], due: datetime | Moment, now: datetime | Moment, *, within: int = 0, period: int = 0
    ) -> None:
        """Mark the work on different keys as done, and make each ready again at ``due``.

        Does :meth:`add_after` and :meth:`done` for each key, with the same meaning of ``within`` and ``period``.
        """
        due, time = self._get_joined_time(moment(due, "due"), within, period), moment(now)
        waiting = self._due
        later = keys if waiting.keys().isdisjoint(keys) else [key for key in keys if waiting.get(key, due + 1) > due]
        if later:
            waiting.update(dict.fromkeys(later, due))
            self._push(due, later)
        self._working.difference_update(keys)
        if self._unclean:
            self._ready.extend(key for key in keys if key in self._unclean)
        self.metrics.retried(len(keys))
        self.metrics.done_all(keys, time)

    def due(self, key: str) -> Moment | None:
        """Return when a waiting key becomes ready; None if it is not waiting."""
        return self._due.get(key)

    def next_due(self) -> Moment | None:
        """Return when the first waiting key becomes ready; None if none is waiting."""
        heap, waiting = self._heap, self._due
        while heap:
            due, _, keys = heap[0]
            if waiting.get(keys[0]) == due or any(waiting.get(key) == due for key in keys):
                return due
            self._pop()
        return None


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
            and old.metadata.generation != new.metadata.generation
            and self.options.gates["HPAGeneration"]
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
        """Return the state to reconcile an HPA from; a new state for an HPA that was never reconciled."""
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

        Each HPA is requeued about a period after its own reconcile ended (HPAs that ended at nearly the same time are
        due together); unfinished ones are due at once.
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
        """Return when an HPA whose reconcile ended at ``ended`` is due again: a sync period later.

        If ``aligned``: at the first multiple of the period that is at least nine tenths of a period later.
        """
        period = self.options.sync_period_ns
        return -((self._within - ended - period) // period) * period if self._aligned else ended + period


def _names(hpa: HpaOrTombstone) -> tuple[str, str]:
    """Return (namespace, name) of an HPA or a tombstone of one."""
    return (hpa.namespace, hpa.name) if isinstance(hpa, Tombstone) else (hpa.metadata.namespace, hpa.metadata.name)


def _key(hpa: HpaOrTombstone) -> str:
    """Return the key, ``namespace/name``, of an HPA or a tombstone of one."""
    metadata = hpa if isinstance(hpa, Tombstone) else hpa.metadata
    return f"{metadata.namespace}/{metadata.name}"
