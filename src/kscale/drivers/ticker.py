"""When a loop with a fixed interval runs: Go's ``time.Ticker``, without a clock."""

from __future__ import annotations

from kscale.effects import Moment

__all__ = ["Ticker"]


class Ticker:
    """Ticks each ``interval`` nanoseconds from a beginning on. A tick that passes while nobody waits is kept for who
    waits next; a second one is lost."""

    __slots__ = ("_begun", "due", "interval")

    def __init__(self, interval: int, begun: Moment) -> None:
        self.interval = interval
        self._begun = begun
        self.due = begun + interval
        """The next tick."""

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        self._begun += by
        self.due += by

    def take(self, now: Moment) -> None:
        """The tick that is due has been taken."""
        self.due = self._begun + ((now - self._begun) // self.interval + 1) * self.interval
