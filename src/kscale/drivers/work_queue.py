"""A work queue of keys with due times, computed from a ``now`` that is passed in.

Upstream: ``client-go/util/workqueue`` (the delaying queue), without its clock and its locks.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from datetime import datetime

from kscale.drivers.queue_metrics import QueueMetrics
from kscale.effects import Moment, moment

__all__ = ["WorkQueue"]


class WorkQueue:
    """Keys that wait, keys that are ready, keys that are worked on. Times are aware datetimes or
    moments; InputError for anything else.

    A key is ready at most once, and never worked on twice at a time: added while it is, it is ready again when
    :meth:`done`. ``metrics`` is told of all that happens. Single owner: not for use from several threads at once.
    """

    __slots__ = ("_due", "_heap", "_number", "_ready", "_times", "_unclean", "_working", "metrics")

    def __init__(self, name: str) -> None:
        self.metrics = QueueMetrics(name)
        self._ready: deque[str] = deque()
        self._unclean: set[str] = set()  # to be worked on: ready, or added while worked on
        self._working: set[str] = set()
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, int, Sequence[str]]] = []  # (due, order of adding, keys), void where not in _due
        self._times: list[int] = []  # the different times in the heap, ascending
        self._number = 0

    @property
    def working(self) -> frozenset[str]:
        """Keys that are worked on."""
        return frozenset(self._working)

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        self._due = {key: due + by for key, due in self._due.items()}
        self._heap = [(due + by, number, keys) for due, number, keys in self._heap]
        self._times = [due + by for due in self._times]
        self.metrics.clock_set(by)

    def add(self, key: str, now: datetime | Moment) -> None:
        """Make a key ready."""
        time = moment(now)
        if key in self._unclean:
            return
        self.metrics.added(key, time)
        self._unclean.add(key)
        if key not in self._working:
            self._ready.append(key)

    def add_after(self, key: str, due: datetime | Moment, *, within: int = 0) -> None:
        """Make a key ready at ``due``; one that already waits keeps the earlier time.

        ``within``: it may become ready so many nanoseconds later, together with others.
        """
        due = moment(due, "due")
        self.metrics.retried()
        known = self._due.get(key)
        if known is not None and known <= due + within:
            return
        due = self._joined(due, within)
        self._due[key] = due
        self._push(due, (key,))

    def _joined(self, due: Moment, within: int) -> Moment:
        """Return the first time from ``due`` on at which others become ready, if it is ``within`` reach."""
        if not within:
            return due
        at = bisect_left(self._times, due)
        return self._times[at] if at < len(self._times) and self._times[at] <= due + within else due

    def _push(self, due: Moment, keys: Sequence[str]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, keys))
        at = bisect_left(self._times, due)
        if at == len(self._times) or self._times[at] != due:
            insort(self._times, due)

    def _pop(self) -> tuple[Moment, Sequence[str]]:
        due, _, keys = heapq.heappop(self._heap)
        if not self._heap or self._heap[0][0] != due:
            self._times.pop(0)
        return due, keys

    def take(self, now: datetime | Moment) -> str | None:
        """The next key to work on, or None: nothing is ready yet."""
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
        """The keys to work on, one after the other."""
        time = moment(now)
        self._wake(time)
        found = list(self._ready)
        self._ready.clear()
        self._unclean.difference_update(found)
        self._working.update(found)
        self.metrics.taken_all(found, time)
        return found

    def _wake(self, now: Moment) -> None:
        """Those that have waited long enough are ready."""
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
        """The keys that may be taken by then, if none is added."""
        time = moment(now)
        return {*self._ready, *(key for key, due in self._due.items() if due <= time)}

    @property
    def ready(self) -> bool:
        """Whether a key waits for nothing but somebody to take it."""
        return bool(self._ready)

    def done(self, key: str, now: datetime | Moment) -> None:
        """Work on a key is over."""
        self.metrics.done(key, moment(now))
        self._working.discard(key)
        if key in self._unclean:
            self._ready.append(key)

    def done_until(
        self, keys: Sequence[str], due: datetime | Moment, now: datetime | Moment, *, within: int = 0
    ) -> None:
        """Work on different keys is over, each of which is to be ready again at ``due``, or ``within`` so many
        nanoseconds of it: :meth:`add_after` and :meth:`done` of one after the other."""
        due, time = self._joined(moment(due, "due"), within), moment(now)
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
        """When a waiting key becomes ready; None: it does not wait."""
        return self._due.get(key)

    def next_due(self) -> Moment | None:
        """When the first of the waiting keys becomes ready; None: none waits."""
        heap, waiting = self._heap, self._due
        while heap:
            due, _, keys = heap[0]
            if waiting.get(keys[0]) == due or any(waiting.get(key) == due for key in keys):
                return due
            self._pop()
        return None
