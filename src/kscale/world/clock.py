"""What time it is: the machine's clocks."""

from __future__ import annotations

import time

from kscale.effects import SECOND, Moment
from kscale.world.protocols import Clock

__all__ = ["FollowingClock", "SteadyClock", "SystemClock"]


class SystemClock:
    """The wall clock, which may be set, and the monotonic one, which is not."""

    def now(self) -> Moment:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Nanoseconds since some moment."""
        return time.monotonic_ns()


class SteadyClock:
    """Moments that only ever go on: the wall clock as it stood when this was made, and what passed since.

    For what measures durations by moments (leases, health): it must not see the wall clock set, as Go's times do not.
    """

    __slots__ = ("_ahead", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.now() - clock.monotonic()

    def now(self) -> Moment:
        """Nanoseconds since 1970, by a clock that nobody else has set since."""
        return self._clock.monotonic() + self._ahead

    def monotonic(self) -> int:
        """Nanoseconds since some moment."""
        return self._clock.monotonic()


class FollowingClock(SteadyClock):
    """Moments that go on evenly although somebody sets the wall clock, until it is asked to follow that: for loops
    that wait by moments, and compare them with what others have written."""

    __slots__ = ()

    def follow(self) -> int:
        """Sets itself by the wall clock if that is off by a second or more. Gives by how many nanoseconds."""
        by = self._clock.now() - self.now()
        if abs(by) < SECOND:
            return 0
        self._ahead += by
        return by
