"""How much work a search may do: counted, so that a result can be had again; a clock may end it, and never changes what
is true of the result."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Effort"]


class Effort:
    """``limit`` units of work (about a microsecond each on a machine of 2024; None = no limit) and ``stop``: asked
    between steps, true = time is up.

    The steps and their order depend on the input alone. A search that ``stop`` ended after ``spent`` units ends in the
    same place, with the same result, when it is given that many as ``limit``.
    """

    __slots__ = ("_stop", "limit", "spent", "stopped")

    def __init__(self, limit: int | None = None, stop: Callable[[], bool] | None = None) -> None:
        self.limit = limit
        self.spent = 0
        self.stopped = ""
        """Why there is no more: ``effort`` or ``time``; empty while there is."""
        self._stop = stop

    def spend(self, units: float) -> None:
        """Work that was done. What is still done once it is over does not count: it would be done anyway."""
        if not self.stopped:
            self.spent += int(units)

    def out_of_time(self) -> bool:
        """Whether time is up, asked in the middle of a step: one that ends so is as if it had not been begun."""
        if not self.stopped and self._stop is not None and self._stop():
            self.stopped = "time"
        return self.stopped == "time"

    @property
    def over(self) -> bool:
        """Whether to end here. Asking counts as work: what was spent tells where it was asked."""
        if not self.stopped:
            self.spent += 1
            if self.limit is not None and self.spent >= self.limit:
                self.stopped = "effort"
            elif self._stop is not None and self._stop():
                self.stopped = "time"
        return bool(self.stopped)
