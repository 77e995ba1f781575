"""Amounts over time, as steps: what load is made of. Integers only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.effects import LAST_TIME, Moment

__all__ = ["Signal"]

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
