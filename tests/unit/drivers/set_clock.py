"""A clock that somebody sets."""

from __future__ import annotations

from kscale.world.clock import VirtualClock

__all__ = ["SetClock"]


class SetClock:
    """``ahead``: by how many nanoseconds it has been set."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.ahead = 0

    def now(self) -> int:
        return self._clock.now() + self.ahead

    def monotonic(self) -> int:
        return self._clock.monotonic()
