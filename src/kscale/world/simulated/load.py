"""Load of workloads: usage over time, queues of work, and reproducible random draws.

Draws depend only on seed, purpose, entity and number, so that runs that differ in one option are comparable. Entities
that reuse a name have different numbers. All values are integers and identical on every machine.

Usage is divided among the ready pods. The metrics pipeline (:mod:`.metrics`) samples this module.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.effects import LAST_TIME, SECOND, Moment, VirtualTime
from kscale.objects.api.core import Pod
from kscale.objects.conditions import find
from kscale.world.simulated.controllers import HAPPENINGS, Key, OwnedPods

__all__ = ["MILLION", "DurationDistribution", "Load", "Queue", "RandomDraws", "Signal", "Usage", "serving_since"]


MILLION: Final = 1_000_000
_BITS: Final = 64


class DurationDistribution(msgspec.Struct, frozen=True):
    """Distribution of durations by its quantiles.

    ``points`` are (share in millionths, nanoseconds), both rising, from 0 to a million; values between two points are
    interpolated linearly.
    """

    points: tuple[tuple[int, int], ...]

    @classmethod
    def fixed(cls, nanoseconds: int) -> DurationDistribution:
        """Return the distribution of a constant duration."""
        return cls(((0, nanoseconds), (MILLION, nanoseconds)))

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        times = [time for _, time in self.points]
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != MILLION or shares != sorted(set(shares)):
            raise ValueError("quantiles rise from 0 to 1, each given once")
        if times[0] < 0 or times != sorted(times):
            raise ValueError("durations are not negative, and rise with their quantiles")

    @property
    def maximum(self) -> int:
        """Return the longest duration in nanoseconds."""
        return self.points[-1][1]

    def get_quantile(self, bits: int) -> int:
        """Return the duration in nanoseconds at the quantile ``bits / 2**64``."""
        if self.points[0][1] == self.points[-1][1]:
            return self.points[0][1]
        place = bits * MILLION
        for (share, low), (following, high) in zip(self.points, self.points[1:], strict=False):
            if place < following << _BITS:
                width = (following - share) << _BITS
                return low + (high - low) * (place - (share << _BITS)) // width
        return self.maximum


class RandomDraws:
    """Reproducible random draws of one seed."""

    __slots__ = ("_key", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._key = str(seed).encode()[:64]

    def bits(self, purpose: str, entity: str, number: int = 0) -> int:
        """Return 64 random bits, identical for identical arguments."""
        text = f"{purpose}\0{entity}\0{number}".encode()
        return int.from_bytes(blake2b(text, digest_size=8, key=self._key).digest(), "big")

    def below(self, bound: int, purpose: str, entity: str, number: int = 0) -> int:
        """Return a random number from 0 up to ``bound``, exclusive; identical for identical arguments."""
        return self.bits(purpose, entity, number) * bound >> _BITS

    def happens(self, millionths: int, purpose: str, entity: str, number: int = 0) -> bool:
        """Return whether an event with a probability in millionths occurs; identical for identical arguments."""
        return millionths > 0 and self.below(MILLION, purpose, entity, number) < millionths

    def duration(self, spread: DurationDistribution, purpose: str, entity: str, number: int = 0) -> int:
        """Return a duration in nanoseconds drawn from a distribution."""
        points = spread.points
        if points[0][1] == points[-1][1]:
            return points[0][1]
        return spread.get_quantile(self.bits(purpose, entity, number))


_MILLISECOND = 10**6


class Signal:
    """Step function of time.

    ``value[i]`` (int64, milli) applies from ``time[i]`` (int64, nanoseconds, rising) to ``time[i + 1]``. Before the
    first step the first value applies, after the last step the last one. ``repeat``: period in nanoseconds after which
    the signal starts again. Means are computed in whole milliseconds.
    """

    __slots__ = ("_flat", "_sums", "_time", "_value", "begin", "repeat")

    def __init__(
        self, time: Sequence[int] | NDArray[np.int64], value: Sequence[int] | NDArray[np.int64], *, repeat: int = 0
    ) -> None:
        times, values = np.asarray(time, np.int64), np.asarray(value, np.int64)
        if not len(times) or len(times) != len(values) or (np.diff(times) <= 0).any():
            raise ValueError("a signal has rising times, and a value for each")
        self.begin = int(times[0])
        steps = (times - self.begin) // _MILLISECOND
        sums = np.concatenate([[0], np.cumsum(np.diff(steps) * values[:-1])])
        # Accessed one by one, for which lists are faster than arrays.
        self._time: list[int] = steps.tolist()
        self._value: list[int] = values.tolist()
        self._sums: list[int] = sums.tolist()
        self._flat: tuple[Moment, Moment, int] = (0, -1, 0)  # (begin, end, value) of a constant interval
        self.repeat = repeat // _MILLISECOND
        if self.repeat and self.repeat <= self._time[-1]:
            raise ValueError("a signal repeats after its last step")

    @classmethod
    def constant(cls, value: int) -> Signal:
        """Return a constant signal."""
        return cls([0], [value])

    def get_value(self, time: Moment) -> int:
        """Return the value at a moment, in milli."""
        place = (time - self.begin) // _MILLISECOND
        if self.repeat and place >= 0:
            place %= self.repeat
        return self._value[self._step(place)]

    def mean(self, begin: Moment, end: Moment) -> int:
        """Return the mean value over an interval, in milli.

        If the interval is shorter than a millisecond, returns the value at its end.
        """
        return self.mean_and_flat(begin, end)[0]

    def mean_and_flat(self, begin: Moment, end: Moment) -> tuple[int, Moment]:
        """Return (:meth:`mean` over the interval, :meth:`flat_until` of its begin)."""
        first, flat, value = self._flat
        if not first <= begin < flat:
            change, value = self._next(begin)
            flat = LAST_TIME if change is None else change
            self._flat = begin, flat, value
        if end <= flat and end - begin >= _MILLISECOND:
            return value, flat
        low, high = (begin - self.begin) // _MILLISECOND, (end - self.begin) // _MILLISECOND
        return self.get_value(end) if high <= low else (self._sum(high) - self._sum(low)) // (high - low), flat

    def flat_until(self, begin: Moment) -> Moment:
        """Return until when the value at ``begin`` stays constant; :data:`LAST_TIME` if it never changes."""
        return self.mean_and_flat(begin, begin)[1]

    def _next(self, time: Moment) -> tuple[Moment | None, int]:
        """Return (time of the next change, None if there is none; value until then)."""
        place = (time - self.begin) // _MILLISECOND
        rounds = place // self.repeat if self.repeat and place >= 0 else 0
        step = bisect_right(self._time, place - rounds * self.repeat)
        value = self._value[step - 1 if step else 0]
        if step < len(self._time):
            return self.begin + (rounds * self.repeat + self._time[step]) * _MILLISECOND, value
        return self.begin + (rounds + 1) * self.repeat * _MILLISECOND if self.repeat else None, value

    def _step(self, place: int) -> int:
        """Return the index of the step at ``place`` milliseconds from the begin; 0 before the begin."""
        return max(bisect_right(self._time, place) - 1, 0)

    def _sum(self, place: int) -> int:
        """Return the integral from the signal's begin, in milli times milliseconds."""
        total = 0
        if self.repeat and place >= 0:
            rounds, place = divmod(place, self.repeat)
            total = rounds * self._within(self.repeat)
        return total + self._within(place)

    def _within(self, place: int) -> int:
        """Return the integral up to ``place`` milliseconds, without repetition, in milli times milliseconds."""
        step = self._step(place)
        return self._sums[step] + (place - self._time[step]) * self._value[step]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a resource or pod metric by a workload: of all its ready pods together, or of each (``per_pod``)."""

    signal: Signal
    per_pod: bool = False


class Queue(msgspec.Struct, kw_only=True):
    """Queue of work in milli.

    Work arrives at the rate ``arrivals`` per second; each ready pod does ``capacity`` per second.

    ``used``: usage of each resource (milli) of a pod that is never idle. Work that would wait longer than ``patience``
    nanoseconds on arrival is late. ``waiting``: unfinished work; ``arrived``, ``late``, ``done``: totals in milli.
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
    """Total work that the pods could have done, in milli."""
    past: deque[tuple[Moment, int, int]] = msgspec.field(default_factory=deque)
    """(time, ``done``, ``able``) after each step, as far back as it is queried."""

    def step(self, begin: Moment, end: Moment, ready: int) -> None:
        """Advance the queue over an interval with a number of ready pods."""
        width = end - begin
        arrivals = self.arrivals.mean(begin, end) * width // SECOND
        able = self.capacity * ready * width // SECOND
        late = self.waiting * SECOND > self.capacity * ready * self.patience
        done = min(self.waiting + arrivals, able)
        self.waiting += arrivals - done
        self.arrived += arrivals
        self.done += done
        self.late += arrivals if late else 0
        self.able += able
        self.past.append((end, self.done, self.able))

    def forget(self, before: Moment) -> None:
        """Discard the history before a moment, except for the values at that moment."""
        while len(self.past) > 1 and self.past[1][0] <= before:
            self.past.popleft()

    def busy(self, begin: Moment, end: Moment) -> int:
        """Return the share of the pods' time, in millionths, in which they worked.

        The interval runs from the last step that ended at or before ``begin`` to the last one at or before ``end``.
        """
        (done, able), (done_before, able_before) = self._until(end), self._until(begin)
        return (done - done_before) * 1_000_000 // (able - able_before) if able > able_before else 0

    def _until(self, time: Moment) -> tuple[int, int]:
        """Return (work done, work that could have been done) up to the last step that ended at or before a moment."""
        return next(((done, able) for end, done, able in reversed(self.past) if end <= time), (0, 0))


def serving_since(pod: Pod) -> str | None:
    """Return when a ready pod became ready and began to get load, in API format.

    Returns None for a pod that is not ready or is being deleted.
    """
    ready = find(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True" or pod.metadata.deletion_timestamp is not None:
        return None
    return ready.last_transition_time or ""


_STEP: Final = SECOND


class _CachedUsage(msgspec.Struct, frozen=True):
    """Cached usage per ready pod of a workload over any time from ``begin`` to ``end``.

    It is valid while ``usage`` and the number of ``ready`` pods stay the same. ``pods``: change counter of pods at the
    time of counting.
    """

    usage: Mapping[str, Usage]
    pods: int
    ready: int
    begin: Moment
    end: Moment
    used: dict[str, int]

    def is_valid(self, usage: Mapping[str, Usage], ready: int, begin: Moment, end: Moment) -> bool:
        """Check whether the cached usage is that of this interval, with these signals and number of ready pods.

        The mean of an empty interval is the value at its end.
        """
        within = self.begin <= begin and (end < self.end or begin < end == self.end)
        return within and ready == self.ready and usage == self.usage


class Load:
    """Load of all workloads.

    ``usage``: signals by workload and name of the resource or metric. ``queues``: queues by workload, stepped once a
    second. ``window``: longest interval in nanoseconds for which usage is queried.
    """

    def __init__(self, time: VirtualTime, pods: OwnedPods, *, window: int) -> None:
        self._time, self._window = time, window
        self.pods = pods
        self.usage: dict[Key, dict[str, Usage]] = {}
        self.queues: dict[Key, Queue] = {}
        self._stepped: Moment = time.now
        self._steady: dict[Key, _CachedUsage] = {}
        self._until: tuple[Moment, Moment] | None = None  # (begin, result of :meth:`steady_until`)

    def begin(self) -> None:
        """Start the arrival of work: schedule the first step of all queues."""
        self._stepped = self._time.now
        if self.queues:
            self._time.at(self._time.now + _STEP, self._step, rank=HAPPENINGS)

    def _step(self) -> None:
        """Advance all queues to now, and schedule the next step in a second."""
        now = self._time.now
        for key, queue in self.queues.items():
            queue.step(self._stepped, now, self.pods.count_ready(key))
            queue.forget(now - self._window - _STEP)
        self._stepped = now
        self._time.at(now + _STEP, self._step, rank=HAPPENINGS)

    def steady_until(self, begin: Moment) -> Moment:
        """Return until when all usage stays constant from ``begin`` on, if pods do not change.

        With queues this is ``begin``.
        """
        if self.queues:
            return begin
        if self._until is not None and self._until[0] == begin:
            return self._until[1]
        signals = (entry.signal for used in self.usage.values() for entry in used.values())
        return min((signal.flat_until(begin) for signal in signals), default=LAST_TIME)

    def names(self, key: Key) -> Sequence[str]:
        """Return the names of the resources and metrics of a workload that are defined."""
        queue = self.queues.get(key)
        return sorted({*self.usage.get(key, ()), *(queue.used if queue is not None else ())})

    def used_by_all(self, begin: Moment, end: Moment) -> dict[Key, dict[str, int]]:
        """Return the usage in milli (:meth:`get_usage`) of each workload by name of the resource or metric."""
        ready_of, result, first = self.pods.count_ready, {}, LAST_TIME
        pods, steady, queues = self.pods.count, self._steady, self.queues
        for key, usage in self.usage.items():
            if key in queues:
                result[key] = {name: self.get_usage(key, name, begin, end) or 0 for name in self.names(key)}
                continue
            cached = steady.get(key)
            ready = cached.ready if cached is not None and cached.pods == pods else ready_of(key)
            if cached is not None and cached.is_valid(usage, ready, begin, end):
                used, until = cached.used, cached.end
            else:
                used, until = {}, LAST_TIME
                for name in sorted(usage) if len(usage) > 1 else usage:
                    entry = usage[name]
                    value, flat = entry.signal.mean_and_flat(begin, end)
                    used[name] = value if entry.per_pod else value // ready if ready else 0
                    if flat < until:
                        until = flat
                if end < until or begin < end == until:
                    steady[key] = _CachedUsage(usage.copy(), pods, ready, begin, until, used)
            result[key] = used
            if until < first:
                first = until
        for key in self.queues:
            if key not in result:
                result[key] = {name: self.get_usage(key, name, begin, end) or 0 for name in self.names(key)}
        self._until = begin, first
        return result

    def get_usage(self, key: Key, name: str, begin: Moment, end: Moment) -> int | None:
        """Return the average usage (milli) of each ready pod of a workload.

        Returns None if the name is not defined for the workload.
        """
        usage = self.usage.get(key, {}).get(name)
        if usage is not None:
            value, ready = usage.signal.mean(begin, end), self.pods.count_ready(key)
            return value if usage.per_pod else value // ready if ready else 0
        queue = self.queues.get(key)
        if queue is None or name not in queue.used:
            return None
        return queue.used[name] * queue.busy(min(begin, end - _STEP), end) // 1_000_000
