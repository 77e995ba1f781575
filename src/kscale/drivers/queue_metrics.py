"""What a work queue counts, under upstream's names (``client-go/util/workqueue/metrics.go``,
``component-base/metrics/prometheus/workqueue``)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kscale.effects import SECOND, Metric, Moment, Observation

__all__ = ["QUEUE_METRICS", "QueueMetrics"]

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
    """Of one queue, ``name``. Single owner, as the queue."""

    __slots__ = ("_added", "_adds", "_begun", "_depth", "_labels", "_retries", "_waited", "_worked")

    def __init__(self, name: str) -> None:
        self._labels = {"name": name}
        self._depth = self._adds = self._retries = 0
        self._added: dict[str, Moment] = {}
        self._begun: dict[str, Moment] = {}
        self._waited, self._worked = _Durations(), _Durations()

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what has been waited for stays."""
        self._added = {key: at + by for key, at in self._added.items()}
        self._begun = {key: at + by for key, at in self._begun.items()}

    def added(self, key: str, now: Moment) -> None:
        """A key that was not to be worked on is."""
        self._adds += 1
        self._depth += 1
        self._added.setdefault(key, now)

    def added_all(self, keys: Sequence[str], now: Moment) -> None:
        """Keys that were not to be worked on are."""
        self._adds += len(keys)
        self._depth += len(keys)
        if self._added.keys().isdisjoint(keys):
            self._added.update(dict.fromkeys(keys, now))
        else:
            for key in keys:
                self._added.setdefault(key, now)

    def retried(self, keys: int = 1) -> None:
        """Keys are to come up again later."""
        self._retries += keys

    def taken(self, key: str, now: Moment) -> None:
        """Work on a key begins."""
        self._depth -= 1
        self._begun[key] = now
        added = self._added.pop(key, None)
        if added is not None:
            self._waited.add(now - added)

    def taken_all(self, keys: Sequence[str], now: Moment) -> None:
        """Work on keys begins, on one after the other."""
        self._depth -= len(keys)
        self._begun.update(dict.fromkeys(keys, now))
        for added, count in _counted(self._added, keys):
            self._waited.add(now - added, count)

    def done(self, key: str, now: Moment) -> None:
        """Work on a key is over."""
        begun = self._begun.pop(key, None)
        if begun is not None:
            self._worked.add(now - begun)

    def done_all(self, keys: Sequence[str], now: Moment) -> None:
        """Work on keys is over."""
        for begun, count in _counted(self._begun, keys):
            self._worked.add(now - begun, count)

    def observations(self, now: Moment) -> Iterator[Observation]:
        """What has been counted since this was last asked, and what is under way."""
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


def _counted(moments: dict[str, Moment], keys: Sequence[str]) -> Iterable[tuple[Moment, int]]:
    """Takes the moments of keys out, as far as they have some; each with how many have it."""
    return Counter([moments.pop(key) for key in keys if key in moments]).items()


class _Durations:
    """Durations by bucket, and their sum in nanoseconds."""

    __slots__ = ("_last", "buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.total = 0
        self._last = (0, 0)  # a duration and its bucket: many that are taken together have waited as long

    def add(self, duration: int, count: int = 1) -> None:
        self.total += duration * count
        if duration != self._last[0]:
            self._last = duration, bisect_left(_BOUNDS, duration / SECOND)
        self.buckets[self._last[1]] += count
