"""A work queue of keys with due times, and its metrics.

Upstream: ``client-go/util/workqueue`` (the delaying queue and ``metrics.go``), without its clock and its locks.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from kscale.effects import SECOND, Metric, Moment, Observation, moment

__all__ = ["QUEUE_METRICS", "QueueMetrics", "WorkQueue"]


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
        """Count a key that was added to the queue."""
        self._adds += 1
        self._depth += 1
        self._added.setdefault(key, now)

    def added_all(self, keys: Sequence[str], now: Moment) -> None:
        """Count keys that were added to the queue."""
        self._adds += len(keys)
        self._depth += len(keys)
        if self._added.keys().isdisjoint(keys):
            self._added.update(dict.fromkeys(keys, now))
        else:
            for key in keys:
                self._added.setdefault(key, now)

    def retried(self, keys: int = 1) -> None:
        """Count keys that will be retried later. ``keys``: their number."""
        self._retries += keys

    def taken(self, key: str, now: Moment) -> None:
        """Register the start of the work on a key."""
        self._depth -= 1
        self._begun[key] = now
        added = self._added.pop(key, None)
        if added is not None:
            self._waited.add(now - added)

    def taken_all(self, keys: Sequence[str], now: Moment) -> None:
        """Register the start of the work on keys."""
        self._depth -= len(keys)
        self._begun.update(dict.fromkeys(keys, now))
        for added, count in _count_moments(self._added, keys):
            self._waited.add(now - added, count)

    def done(self, key: str, now: Moment) -> None:
        """Register the end of the work on a key."""
        begun = self._begun.pop(key, None)
        if begun is not None:
            self._worked.add(now - begun)

    def done_all(self, keys: Sequence[str], now: Moment) -> None:
        """Register the end of the work on keys."""
        for begun, count in _count_moments(self._begun, keys):
            self._worked.add(now - begun, count)

    def observations(self, now: Moment) -> Iterator[Observation]:
        """Yield the counts since the last call, which are reset, and the work in progress."""
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
    """Remove the stored moments of keys, and return each with the number of keys that have it."""
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
        """Make a key ready. While it is being worked on, it becomes ready when the work is done."""
        time = moment(now)
        if key in self._unclean:
            return
        self.metrics.added(key, time)
        self._unclean.add(key)
        if key not in self._working:
            self._ready.append(key)

    def add_after(self, key: str, due: datetime | Moment, *, within: int = 0, period: int = 0) -> None:
        """Make a key ready at ``due``; a key that already waits keeps an earlier time.

        ``within``: the key may become ready so many nanoseconds later, together with others. ``period``: interval after
        which keys become ready again.
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

        The key takes the first existing time in this span. If there is none, it takes the end of the span if several
        keys are due together in the half ``period`` after ``due``, now or one period later. So keys that became
        separate meet again. They meet only within one whole multiple of the period, because otherwise keys could follow
        each other for ever.
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
            for key in woken:
                del waiting[key]
            fresh = [key for key in woken if key not in self._unclean]
            self.metrics.added_all(fresh, due)
            self._unclean.update(fresh)
            self._ready.extend([key for key in fresh if key not in self._working])

    def waiting(self, now: datetime | Moment) -> set[str]:
        """Return the keys that may be taken at ``now`` if none is added."""
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
