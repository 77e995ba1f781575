"""What a driver is: observe, decide, act, and nothing else.

A driver has no loop, no clock and no client of its own. Whoever runs it tells it what changes (:meth:`~Driver.notice`),
waits until it is due, lets it :meth:`~Driver.observe` (where the stores live), runs its :meth:`~Driver.steps` (wherever
there is room) and carries their actions out. The same driver runs live and in virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kscale.effects import Moment, Steps
from kscale.world.protocols import Change, Stores, Watch

__all__ = ["Driver"]

_Sight = TypeVar("_Sight")


class Driver(Protocol[_Sight]):
    """One program. Single owner: the next round begins after the last one has ended."""

    @property
    def name(self) -> str:
        """As it stands in events, leases and user agents (``cluster-autoscaler``)."""
        ...

    @property
    def watches(self) -> Sequence[Watch]:
        """What it must see."""
        ...

    def notice(self, change: Change, now: Moment) -> None:
        """Something that it watches (``typed``) has changed. Called where the stores live, at any time, also while
        :meth:`steps` runs elsewhere: quick, and touches nothing that steps touch."""
        ...

    def next_due(self) -> Moment | None:
        """When the next round is due; None: only after the next change. Asked after each change and each round."""
        ...

    def observe(self, stores: Stores, now: Moment) -> _Sight:
        """What the round will go by. Quick, and does not change the stores."""
        ...

    def steps(self, sight: _Sight, now: Moment) -> Steps[None]:
        """The round, begun at ``now``: decides, yields what shall be done, and keeps what the next round needs."""
        ...
