"""What workloads have to do: usage that is theirs, and work that arrives in a queue.

Usage is spread over the pods that are ready. Nothing here knows of metrics pipelines: :mod:`.metrics` looks at this
from time to time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kscale.effects import LAST_TIME, SECOND, Moment, VirtualTime
from kscale.objects.conditions import find
from kscale.objects.core import Pod
from kscale.world.simulated.owned_pods import Key, OwnedPods
from kscale.world.simulated.signals import Signal
from kscale.world.simulated.turns import HAPPENINGS

__all__ = ["Load", "Queue", "Usage", "serving_since"]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a resource (or of a metric of pods) a workload uses: all its ready pods together, or each of them
    (``per_pod``)."""

    signal: Signal
    per_pod: bool = False


class Queue(msgspec.Struct, kw_only=True):
    """Work (milli) that arrives at ``arrivals`` a second, and of which each ready pod does ``capacity`` a second.

    ``used``: what of each resource a pod uses (milli) that is never idle. What would have to wait for longer than
    ``patience`` nanoseconds when it arrives is late. ``waiting``: work not done yet; ``arrived``, ``late``, ``done``:
    milli, since the beginning.
    """

    arrivals: Signal
    capacity: int
    used: Mapping[str, int] = {}
    patience: int = 10 * SECOND
    waiting: int = 0
    arrived: int = 0
    late: int = 0
    done: int = 0
    able: int = 0
    """What the pods could have done."""
    past: deque[tuple[Moment, int, int]] = msgspec.field(default_factory=deque)
    """(when, ``done``, ``able``) after each step, as far back as somebody asks."""

    def step(self, begin: Moment, end: Moment, ready: int) -> None:
        """Lets time go by with so many pods ready."""
        width = end - begin
        came = self.arrivals.mean(begin, end) * width // SECOND
        able = self.capacity * ready * width // SECOND
        late = self.waiting * SECOND > self.capacity * ready * self.patience
        done = min(self.waiting + came, able)
        self.waiting += came - done
        self.arrived += came
        self.done += done
        self.late += came if late else 0
        self.able += able
        self.past.append((end, self.done, self.able))

    def forget(self, before: Moment) -> None:
        """Nobody asks for what was before a moment any more."""
        while len(self.past) > 1 and self.past[1][0] <= before:
            self.past.popleft()

    def busy(self, begin: Moment, end: Moment) -> int:
        """Millionths of the pods' time in which they worked, from the step that ended at ``begin`` or before up to the
        one that ended at ``end`` or before."""
        (done, able), (done_before, able_before) = self._until(end), self._until(begin)
        return (done - done_before) * 1_000_000 // (able - able_before) if able > able_before else 0

    def _until(self, time: Moment) -> tuple[int, int]:
        return next(((done, able) for at, done, able in reversed(self.past) if at <= time), (0, 0))


def serving_since(pod: Pod) -> str | None:
    """When a pod became ready, if it is, and is not told to end: from then on it has a share of the load."""
    ready = find(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True" or pod.metadata.deletion_timestamp is not None:
        return None
    return ready.last_transition_time or ""


_STEP: Final = SECOND


class _Steady(NamedTuple):
    """What each ready pod of a workload uses over any time from ``begin`` up to ``end``, as long as it has so much
    ``usage`` and so many pods are ``ready``. ``pods``: how much had happened to pods when those were counted."""

    usage: Mapping[str, Usage]
    pods: int
    ready: int
    begin: Moment
    end: Moment
    used: dict[str, int]

    def holds(self, usage: Mapping[str, Usage], ready: int, begin: Moment, end: Moment) -> bool:
        """Whether it is what is used from one moment up to another. (The mean of no time is the value at its end.)"""
        within = self.begin <= begin and (end < self.end or begin < end == self.end)
        return within and ready == self.ready and usage == self.usage


class Load:
    """The load of all workloads. ``usage``: by workload and name of the resource or metric; ``queues``: by workload.

    Queues are stepped once a second. ``window``: over so many nanoseconds usage is asked for at most.
    """

    def __init__(self, time: VirtualTime, pods: OwnedPods, *, window: int) -> None:
        self._time, self._window = time, window
        self.pods = pods
        self.usage: dict[Key, dict[str, Usage]] = {}
        self.queues: dict[Key, Queue] = {}
        self._stepped: Moment = time.now
        self._steady: dict[Key, _Steady] = {}
        self._until: tuple[Moment, Moment] | None = None  # (begin, what :meth:`steady_until` says of it)

    def begin(self) -> None:
        """From now on work arrives."""
        self._stepped = self._time.now
        if self.queues:
            self._time.at(self._time.now + _STEP, self._step, rank=HAPPENINGS)

    def _step(self) -> None:
        now = self._time.now
        for key, queue in self.queues.items():
            queue.step(self._stepped, now, self.pods.ready(key))
            queue.forget(now - self._window - _STEP)
        self._stepped = now
        self._time.at(now + _STEP, self._step, rank=HAPPENINGS)

    def steady_until(self, begin: Moment) -> Moment:
        """Up to when each workload uses what it does at a moment, as long as nothing happens to its pods."""
        if self.queues:
            return begin
        if self._until is not None and self._until[0] == begin:
            return self._until[1]
        signals = (each.signal for used in self.usage.values() for each in used.values())
        return min((signal.flat_until(begin) for signal in signals), default=LAST_TIME)

    def names(self, key: Key) -> Sequence[str]:
        """What is known of how much a workload uses, by name."""
        queue = self.queues.get(key)
        return sorted({*self.usage.get(key, ()), *(queue.used if queue is not None else ())})

    def used_by_all(self, begin: Moment, end: Moment) -> dict[Key, dict[str, int]]:
        """:meth:`used` of all workloads, by :meth:`names`."""
        ready_of, found, first = self.pods.ready, {}, LAST_TIME
        pods = self.pods.count
        for key, usage in self.usage.items():
            if key in self.queues:
                found[key] = {name: self.used(key, name, begin, end) or 0 for name in self.names(key)}
                continue
            known = self._steady.get(key)
            ready = known.ready if known is not None and known.pods == pods else ready_of(key)
            if known is not None and known.holds(usage, ready, begin, end):
                found[key], first = known.used, min(first, known.end)
                continue
            used, until = {}, LAST_TIME
            for name in sorted(usage) if len(usage) > 1 else usage:
                each = usage[name]
                value, flat = each.signal.mean_and_flat(begin, end)
                used[name] = value if each.per_pod else value // ready if ready else 0
                until = min(until, flat)
            found[key], first = used, min(first, until)
            if end < until or begin < end == until:
                self._steady[key] = _Steady({**usage}, pods, ready, begin, until, used)
        for key in self.queues:
            if key not in found:
                found[key] = {name: self.used(key, name, begin, end) or 0 for name in self.names(key)}
        self._until = begin, first
        return found

    def used(self, key: Key, name: str, begin: Moment, end: Moment) -> int | None:
        """How much each ready pod of a workload used of something (milli), on average; None: nothing is known."""
        found = self.usage.get(key, {}).get(name)
        if found is not None:
            value, ready = found.signal.mean(begin, end), self.pods.ready(key)
            return value if found.per_pod else value // ready if ready else 0
        queue = self.queues.get(key)
        if queue is None or name not in queue.used:
            return None
        return queue.used[name] * queue.busy(min(begin, end - _STEP), end) // 1_000_000
