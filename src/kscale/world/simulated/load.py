"""Load of workloads: usage over time, queues of work, and the random draws behind them.

So two runs that differ in one thing compare like with like. Of entities that have one name one after the other each has
a number of its own. Integers only: the same on every machine.

Usage is spread over the pods that are ready. Nothing here knows of metrics pipelines: :mod:`.metrics` looks at this
from time to time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.effects import LAST_TIME, SECOND, Moment, VirtualTime
from kscale.objects.api.core import Pod
from kscale.objects.conditions import find
from kscale.world.simulated.controllers import HAPPENINGS, Key, OwnedPods

__all__ = ["MILLION", "Draws", "Load", "Queue", "Signal", "Spread", "Usage", "serving_since"]


MILLION: Final = 1_000_000
_BITS: Final = 64


class Spread(msgspec.Struct, frozen=True):
    """Durations by their quantiles: points (share in millionths, nanoseconds), both rising, from 0 to a million;
    between two points it is linear."""

    points: tuple[tuple[int, int], ...]

    @classmethod
    def fixed(cls, nanoseconds: int) -> Spread:
        """Always the same."""
        return cls(((0, nanoseconds), (MILLION, nanoseconds)))

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        times = [time for _, time in self.points]
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != MILLION or shares != sorted(set(shares)):
            raise ValueError("quantiles rise from 0 to 1, each given once")
        if times[0] < 0 or times != sorted(times):
            raise ValueError("durations are not negative, and rise with their quantiles")

    @property
    def most(self) -> int:
        """The longest."""
        return self.points[-1][1]

    def at(self, bits: int) -> int:
        """The duration at a share of ``bits / 2**64``."""
        if self.points[0][1] == self.points[-1][1]:
            return self.points[0][1]
        place = bits * MILLION
        for (share, low), (following, high) in zip(self.points, self.points[1:], strict=False):
            if place < following << _BITS:
                width = (following - share) << _BITS
                return low + (high - low) * (place - (share << _BITS)) // width
        return self.most


class Draws:
    """What a seed comes to."""

    __slots__ = ("_key", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._key = str(seed).encode()[:64]

    def bits(self, purpose: str, entity: str, number: int = 0) -> int:
        """64 bits, the same whenever they are asked for."""
        text = f"{purpose}\0{entity}\0{number}".encode()
        return int.from_bytes(blake2b(text, digest_size=8, key=self._key).digest(), "big")

    def below(self, bound: int, purpose: str, entity: str, number: int = 0) -> int:
        """A number from 0 up to ``bound``."""
        return self.bits(purpose, entity, number) * bound >> _BITS

    def happens(self, millionths: int, purpose: str, entity: str, number: int = 0) -> bool:
        """Whether what has this chance comes about."""
        return millionths > 0 and self.below(MILLION, purpose, entity, number) < millionths

    def duration(self, spread: Spread, purpose: str, entity: str, number: int = 0) -> int:
        """How long something takes."""
        points = spread.points
        if points[0][1] == points[-1][1]:
            return points[0][1]
        return spread.at(self.bits(purpose, entity, number))

    def one_of(self, choices: Sequence[str], purpose: str, entity: str, number: int = 0) -> str:
        """One of several."""
        return choices[self.below(len(choices), purpose, entity, number)]


_MILLISECOND = 10**6


class Signal:
    """``value[i]`` (int64, milli) holds from ``time[i]`` (int64, nanoseconds, rising) up to ``time[i + 1]``; before the
    first the first, after the last the last. ``repeat``: after so many nanoseconds it begins again.

    Means are taken in whole milliseconds.
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
        # Looked at one by one, where lists are faster than arrays.
        self._time: list[int] = steps.tolist()
        self._value: list[int] = values.tolist()
        self._sums: list[int] = sums.tolist()
        self._flat: tuple[Moment, Moment, int] = (0, -1, 0)  # (from, up to, its value all the while)
        self.repeat = repeat // _MILLISECOND
        if self.repeat and self.repeat <= self._time[-1]:
            raise ValueError("a signal repeats after its last step")

    @classmethod
    def constant(cls, value: int) -> Signal:
        """Always the same."""
        return cls([0], [value])

    def at(self, time: Moment) -> int:
        """The value at a moment."""
        place = (time - self.begin) // _MILLISECOND
        if self.repeat and place >= 0:
            place %= self.repeat
        return self._value[self._step(place)]

    def mean(self, begin: Moment, end: Moment) -> int:
        """The mean value from one moment up to another; of no time at all the value at its end."""
        return self.mean_and_flat(begin, end)[0]

    def mean_and_flat(self, begin: Moment, end: Moment) -> tuple[int, Moment]:
        """(:meth:`mean` from one moment up to another, :meth:`flat_until` of the first)."""
        flat = self.flat_until(begin)
        if end <= flat and end - begin >= _MILLISECOND:
            return self._flat[2], flat
        low, high = (begin - self.begin) // _MILLISECOND, (end - self.begin) // _MILLISECOND
        return self.at(end) if high <= low else (self._sum(high) - self._sum(low)) // (high - low), flat

    def flat_until(self, begin: Moment) -> Moment:
        """Up to when the value is what it is at a moment."""
        if not self._flat[0] <= begin < self._flat[1]:
            change, value = self._next(begin)
            self._flat = begin, LAST_TIME if change is None else change, value
        return self._flat[1]

    def next_change(self, time: Moment) -> Moment | None:
        """When its next step begins after a moment; None: there is none."""
        return self._next(time)[0]

    def _next(self, time: Moment) -> tuple[Moment | None, int]:
        """(:meth:`next_change`, the value up to then)."""
        place = (time - self.begin) // _MILLISECOND
        rounds = place // self.repeat if self.repeat and place >= 0 else 0
        step = bisect_right(self._time, place - rounds * self.repeat)
        value = self._value[step - 1 if step else 0]
        if step < len(self._time):
            return self.begin + (rounds * self.repeat + self._time[step]) * _MILLISECOND, value
        return self.begin + (rounds + 1) * self.repeat * _MILLISECOND if self.repeat else None, value

    def _step(self, place: int) -> int:
        return max(bisect_right(self._time, place) - 1, 0)

    def _sum(self, place: int) -> int:
        """Milli times milliseconds from its beginning."""
        whole = 0
        if self.repeat and place >= 0:
            rounds, place = divmod(place, self.repeat)
            whole = rounds * self._within(self.repeat)
        return whole + self._within(place)

    def _within(self, place: int) -> int:
        step = self._step(place)
        return self._sums[step] + (place - self._time[step]) * self._value[step]


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
