"""Running drivers in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kscale.drivers.driver import Driver
from kscale.drivers.live import TellingStores
from kscale.effects import Action, Moment, Outcome, Perform, VirtualTime
from kscale.effects.virtual_time import Running
from kscale.world.protocols import Change

__all__ = ["VirtualDrive"]

_NEVER: Final = 2**63 - 1


class VirtualDrive:
    """A driver's rounds, one after the other: what :func:`kscale.drivers.live.drive` does live.

    ``rank``: of what is due at one moment, whose turn it is. ``perform`` carries its actions out. ``rounds`` counts.
    """

    def __init__(
        self,
        driver: Driver[Any],
        stores: TellingStores,
        time: VirtualTime,
        perform: Perform,
        *,
        rank: int = 0,
    ) -> None:
        self.driver = driver
        self._stores, self._time, self._rank = stores, time, rank
        self._performs = perform
        self._mine: Perform = self._perform  # one object, which tells this driver's machines from others
        self.rounds = self.skipped = 0
        self._under_way: Running | None = None
        self._due: tuple[Moment, Running] | None = None
        self._ended = False
        self._begun = False
        self._unsubscribe: Callable[[], None] = stores.subscribe(self._told)
        self._begun = True
        self._plan()

    def stop(self) -> None:
        """As a process that is killed: nothing more is done, and nothing is said."""
        self._ended = True
        self._unsubscribe()
        if self._due is not None:
            self._due[1].cancel()
        self._time.cancel_all(self._mine)

    def _perform(self, action: Action, now: Moment) -> Outcome:
        return self._performs(action, now)

    def _told(self, change: Change | None) -> None:
        if change is not None:
            self.driver.notice(change, self._time.now)
        if self._begun:  # not while the first list is told
            self._plan()

    def _plan(self) -> None:
        """Waits until the driver is due."""
        if self._under_way is not None or self._ended:
            return
        due = self.driver.next_due()
        at = _NEVER if due is None else max(due, self._time.now)
        if self._due is not None:
            if self._due[0] == at:
                return
            self._due[1].cancel()
            self._due = None
        if due is not None:
            self._due = at, self._time.at(at, self._begin, rank=self._rank)

    def _begin(self) -> None:
        self._due = None
        now = self._time.now
        sight = self.driver.observe(self._stores, now)
        self.rounds += 1
        self._under_way = self._time.start(
            lambda at: self.driver.steps(sight, at), self._done, rank=self._rank, perform=self._mine
        )

    def _done(self, value: None, at: Moment) -> None:
        del value, at
        self._under_way = None
        self._plan()
