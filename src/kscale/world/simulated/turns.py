"""What follows upon something at the same moment, once: simultaneous changes are answered as one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kscale.effects import VirtualTime

__all__ = ["CONTROLLERS", "DISRUPTION", "DRIVERS", "HAPPENINGS", "SCHEDULER", "Turn"]

HAPPENINGS: Final = 0
"""What comes about by itself: a machine has booted, a container has started, load changes."""
CONTROLLERS: Final = 10
SCHEDULER: Final = 20
DISRUPTION: Final = 30
DRIVERS: Final = 40
"""The first of the drivers; each has a rank of its own."""


class Turn:
    """Calls a function at the present moment, after what ranks before it, however often it is asked for till then."""

    __slots__ = ("_call", "_rank", "_time", "_waits")

    def __init__(self, time: VirtualTime, call: Callable[[], None], rank: int) -> None:
        self._time, self._call, self._rank = time, call, rank
        self._waits = False

    def ask(self) -> None:
        """Its turn comes."""
        if not self._waits:
            self._waits = True
            self._time.at(self._time.now, self._take, rank=self._rank)

    def _take(self) -> None:
        self._waits = False
        self._call()
