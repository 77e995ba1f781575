"""Search effort, counted so that a result can be reproduced, and the check that every printed bound passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kscale.errors import BoundError

__all__ = ["Effort", "checked_bound"]


class Effort:
    """A limit of work and time. ``limit``: units of work (about a microsecond each on a machine of 2024; None = no
    limit); ``stop``: polled between steps, True = time is up.

    The steps and their order depend on the input alone. If ``stop`` ended a search after ``spent`` units, the same
    search with that number as ``limit`` ends at the same step, with the same result.
    """

    __slots__ = ("_stop", "limit", "spent", "stopped")

    def __init__(self, limit: int | None = None, stop: Callable[[], bool] | None = None) -> None:
        self.limit = limit
        self.spent = 0
        self.stopped = ""
        """Reason to stop the search: ``effort`` or ``time``; empty while the search may continue."""
        self._stop = stop

    def spend(self, units: float) -> None:
        """Add units of work to ``spent``, unless the search was stopped already."""
        if not self.stopped:
            self.spent += int(units)

    def out_of_time(self) -> bool:
        """Check in the middle of a step whether time is up. The call does not count as work.

        The caller discards an interrupted step, as if it had not begun.
        """
        if not self.stopped and self._stop is not None and self._stop():
            self.stopped = "time"
        return self.stopped == "time"

    @property
    def is_exhausted(self) -> bool:
        """Check between steps whether the effort or the time is used up.

        Each reading counts as a unit of work, so that ``spent`` identifies the step after which the search ended.
        """
        if not self.stopped:
            self.spent += 1
            if self.limit is not None and self.spent >= self.limit:
                self.stopped = "effort"
            elif self._stop is not None and self._stop():
                self.stopped = "time"
        return bool(self.stopped)


_Number = TypeVar("_Number", int, float)
_NOISE = 1e-9  # tolerance of a sum of prices, relative and absolute


def checked_bound(bound: _Number, cost: float, subject: str) -> _Number:
    """Return a lower bound after a check that it is not above the cost of a known solution.

    Parameters
    ----------
    bound : int or float
        The proven least cost, or number of nodes.
    cost : int or float
        What a solution of the same problem costs.
    subject : str
        What the bound is about, for the message.

    Raises
    ------
    BoundError
        If the bound is above the cost: one of the two is wrong.
    """
    if bound > cost + _NOISE * max(1.0, abs(cost)):
        raise BoundError(f"{subject}: the proven least of {bound:g} is more than the {cost:g} of a known solution")
    return bound
