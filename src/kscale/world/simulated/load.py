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

from kscale.effects import LAST_TIME, SECOND, ZERO_TIME, Moment, VirtualTime
from kscale.objects.api.core import Pod
from kscale.objects.conditions import find
from kscale.world.simulated.controllers import HAPPENINGS, Key, OwnedPods, WorkloadCounts

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
        """Return the duration at the quantile ``bits / 2**64``, in nanoseconds (rounded down)."""
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
        """Return 64 random bits, identical for identical arguments and seed.

        ``purpose`` (such as ``boot``), ``entity`` (such as a pod's key) and ``number`` only identify the draw.
        """
        text = f"{purpose}\0{entity}\0{number}".encode()
        return int.from_bytes(blake2b(text, digest_size=8, key=self._key).digest(), "big")

    def below(self, bound: int, purpose: str, entity: str, number: int = 0) -> int:
        """Return a random number from 0 up to ``bound``, exclusive. The other arguments are those of :meth:`bits`."""
        return self.bits(purpose, entity, number) * bound >> _BITS

    def happens(self, millionths: int, purpose: str, entity: str, number: int = 0) -> bool:
        """Return whether an event with a probability of ``millionths`` occurs. Other arguments as for :meth:`bits`."""
        return millionths > 0 and self.below(MILLION, purpose, entity, number) < millionths

    def duration(self, spread: DurationDistribution, purpose: str, entity: str, number: int = 0) -> int:
        """Return a random duration of ``spread``, in nanoseconds. Other arguments as for :meth:`bits`."""
        points = spread.points
        if points[0][1] == points[-1][1]:
            return points[0][1]
        return spread.get_quantile(self.bits(purpose, entity, number))


_MILLISECOND = 10**6


class Signal:
    """Step function of time.

    ``value[i]`` (int64, milli) applies from ``time[i]`` (int64, nanoseconds, rising) to ``time[i + 1]``. Before the
    first step the first value applies, after the last step the last one. ``repeat``: period in nanoseconds after which
    the signal starts again. Means are computed in whole milliseconds. Attributes: ``times`` in milliseconds since
    ``begin``, ``values`` in milli, and ``repeat`` in milliseconds.
    """

    __slots__ = ("_flat", "_sums", "begin", "repeat", "times", "values")

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
        self.times: list[int] = steps.tolist()
        self.values: list[int] = values.tolist()
        self._sums: list[int] = sums.tolist()
        self._flat: tuple[Moment, Moment, int] = (0, -1, 0)  # (begin, end, value) of a constant interval
        self.repeat = repeat // _MILLISECOND
        if self.repeat and self.repeat <= self.times[-1]:
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
        return self.values[self._step(place)]

    def mean(self, begin: Moment, end: Moment) -> int:
        """Return the mean value over an interval, in milli (rounded down).

        If the interval is shorter than a millisecond, returns the value at its end.
        """
        if end <= self.flat_until(begin) and end - begin >= _MILLISECOND:
            return self._flat[2]
        low, high = (begin - self.begin) // _MILLISECOND, (end - self.begin) // _MILLISECOND
        return self.get_value(end) if high <= low else (self._sum(high) - self._sum(low)) // (high - low)

    def flat_until(self, begin: Moment) -> Moment:
        """Return until when the value at ``begin`` stays constant; :data:`LAST_TIME` if it never changes."""
        if not self._flat[0] <= begin < self._flat[1]:
            change, value = self._next(begin)
            self._flat = begin, LAST_TIME if change is None else change, value
        return self._flat[1]

    def _next(self, time: Moment) -> tuple[Moment | None, int]:
        """Return (time of the next change, None if there is none; value until then)."""
        place = (time - self.begin) // _MILLISECOND
        rounds = place // self.repeat if self.repeat and place >= 0 else 0
        step = bisect_right(self.times, place - rounds * self.repeat)
        value = self.values[step - 1 if step else 0]
        if step < len(self.times):
            return self.begin + (rounds * self.repeat + self.times[step]) * _MILLISECOND, value
        return self.begin + (rounds + 1) * self.repeat * _MILLISECOND if self.repeat else None, value

    def _step(self, place: int) -> int:
        """Return the index of the step at ``place`` milliseconds from the begin; 0 before the begin."""
        return max(bisect_right(self.times, place) - 1, 0)

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
        return self._sums[step] + (place - self.times[step]) * self.values[step]


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
        """Advance the queue over an interval with a number of ready pods.

        Arrivals count as late if the work that waits at ``begin`` takes these pods longer than the queue's patience.
        """
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

        The share is 0 if they could have done no work. The interval runs from the last step that ended at or before
        ``begin`` to the last one at or before ``end``.
        """
        (done, able), (done_before, able_before) = self._until(end), self._until(begin)
        return (done - done_before) * 1_000_000 // (able - able_before) if able > able_before else 0

    def _until(self, time: Moment) -> tuple[int, int]:
        """Return (work done, work that could have been done) up to the last step that ended at or before a moment."""
        return next(((done, able) for end, done, able in reversed(self.past) if end <= time), (0, 0))


def serving_since(pod: Pod) -> str | None:
    """Return when a ready pod became ready and began to get load, in API format (empty if the time is unknown).

    Returns None for a pod that is not ready or is being deleted.
    """
    ready = find(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True" or pod.metadata.deletion_timestamp is not None:
        return None
    return ready.last_transition_time or ""


_STEP: Final = SECOND


class _UsageColumns:
    """All signals of ``usage`` as columns, which are read together. ``workloads``: counts of the pods of its workloads.

    ``values``: the value of each signal from ``begin`` on, constant until ``flat`` (int64[signals]). ``until``: the
    first time at which one of them changes.
    """

    def __init__(self, usage: Mapping[Key, Mapping[str, Usage]], workloads: WorkloadCounts) -> None:
        self._workloads = workloads
        self.usage = {key: {**own} for key, own in usage.items()}
        self._names = [sorted(own) for own in usage.values()]
        entries = [own[name] for own in usage.values() for name in sorted(own)]
        self._signals = signals = [entry.signal for entry in entries]
        self._workload = np.repeat(np.arange(len(usage)), [len(names) for names in self._names])
        self._per_pod = np.array([entry.per_pod for entry in entries], np.bool_)
        self._starts = np.array([signal.begin for signal in signals], np.int64)
        self._repeat = np.array([signal.repeat for signal in signals], np.int64)
        self._longest = 1 + max((signal.times[-1] for signal in signals), default=0)  # after all steps of a signal
        self._place = np.arange(len(signals)) * (self._longest + 2)  # of each signal in the joined steps
        steps = [
            np.empty(0, np.int64),
            *(np.array(each.times) + at for each, at in zip(signals, self._place, strict=True)),
        ]
        self._steps = np.concatenate(steps)
        self._step_values = np.array([value for signal in signals for value in signal.values], np.int64)
        self._ends = np.cumsum([len(signal.times) for signal in signals], dtype=np.int64)
        self._begins = np.append(0, self._ends)[:-1]
        self.begin = self.until = ZERO_TIME
        self.values = self.flat = np.empty(0, np.int64)

    def _move_to(self, begin: Moment) -> None:
        """Set ``values`` to the signals at a moment, and ``until`` to the next moment at which one may change."""
        place = (begin - self._starts) // _MILLISECOND
        rounds = np.where((self._repeat > 0) & (place >= 0), place // np.maximum(self._repeat, 1), 0)
        within = (place - rounds * self._repeat).clip(-1, self._longest)
        step = np.searchsorted(self._steps, self._place + within, side="right")
        self.values = self._step_values[np.maximum(step - 1, self._begins)]
        ends = step == self._ends
        following = np.where(ends, self._repeat, self._steps[np.where(ends, 0, step)] - self._place)
        change = self._starts + (rounds * self._repeat + following) * _MILLISECOND
        self.flat = np.where(ends & (self._repeat == 0), LAST_TIME, change)
        self.begin, self.until = begin, int(self.flat.min(initial=LAST_TIME))

    def read(self, begin: Moment, end: Moment) -> dict[Key, dict[str, int]]:
        """Return the usage of each ready pod over an interval, in milli, by workload and resource or metric."""
        if not self.begin <= begin < self.until:
            self._move_to(begin)
        amounts = self.values
        if end > self.until or end - begin < _MILLISECOND:
            amounts = amounts.copy()
            for i in np.flatnonzero((self.flat < end) | (end - begin < _MILLISECOND)).tolist():
                amounts[i] = self._signals[i].mean(begin, end)
        pods = np.array(self._workloads.list_ready(), np.int64)[self._workload]
        shares = np.where(self._per_pod, amounts, np.where(pods > 0, amounts // np.maximum(pods, 1), 0))
        values = iter(shares.tolist())
        return {key: {name: next(values) for name in names} for key, names in zip(self.usage, self._names, strict=True)}


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
        self._columns: _UsageColumns | None = None
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
        """Return what :meth:`get_usage` returns for all workloads and names, by workload and name."""
        columns = self._columns
        if columns is None or columns.usage != self.usage or [*columns.usage] != [*self.usage]:
            columns = self._columns = _UsageColumns(self.usage, self.pods.find_workloads(self.usage))
        result = columns.read(begin, end)
        for key in self.queues:
            result[key] = {name: self.get_usage(key, name, begin, end) or 0 for name in self.names(key)}
        self._until = begin, columns.until
        return result

    def get_usage(self, key: Key, name: str, begin: Moment, end: Moment) -> int | None:
        """Return the average usage (milli) of each ready pod of a workload from ``begin`` to ``end``.

        Usage of all pods together is divided among the ready ones, rounded down; it is 0 without ready pods. Of a
        workload with a queue, it is the usage of a busy pod times the share of time in which the pods worked. Returns
        None if the name is not defined for the workload.
        """
        usage = self.usage.get(key, {}).get(name)
        if usage is not None:
            value, ready = usage.signal.mean(begin, end), self.pods.count_ready(key)
            return value if usage.per_pod else value // ready if ready else 0
        queue = self.queues.get(key)
        if queue is None or name not in queue.used:
            return None
        return queue.used[name] * queue.busy(min(begin, end - _STEP), end) // 1_000_000
