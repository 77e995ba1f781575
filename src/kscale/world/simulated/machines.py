"""Machines of a simulated cloud: how they come, how they go, and what they cost."""

from __future__ import annotations

import msgspec

from kscale.effects import SECOND, Moment
from kscale.objects.nodegroup import InstanceError, NodeGroup
from kscale.world.simulated.draws import Spread

__all__ = ["GroupTimes", "Machine", "Pool"]


class GroupTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How the machines of a group behave.

    ``boot``: from being asked for to being a node, ``apart``: those of one increase each so much later than the one
    before; ``ready``: from then to being ready; ``deletion``: from being told
    to go to being gone; ``lifetime``: after so long a machine is lost, and another one comes in its place (None:
    never). ``failures``: of a million machines so many never become nodes. ``stock``: so many there can be at once
    (None: as many as you like); ``out_of_stock``: (begin, end) in which none can be had at all; ``creation``: until a
    group that is made asynchronously is there.
    """

    boot: Spread = Spread.fixed(60 * SECOND)
    apart: int = 0
    ready: Spread = Spread.fixed(0)
    deletion: Spread = Spread.fixed(30 * SECOND)
    lifetime: Spread | None = None
    failures: int = 0
    stock: int | None = None
    out_of_stock: tuple[tuple[Moment, Moment], ...] = ()
    creation: int = 0

    def in_stock(self, running: int, now: Moment) -> bool:
        """Whether another machine can be had."""
        if self.stock is not None and running >= self.stock:
            return False
        return not any(begin <= now < end for begin, end in self.out_of_stock)


class Machine(msgspec.Struct, kw_only=True):
    """A machine; ``id``: of its provider; ``state`` is ``creating``, ``running`` or ``deleting``. ``node``: it is
    one."""

    name: str
    id: str
    since: Moment
    state: str = "creating"
    node: bool = False
    error: InstanceError | None = None


class Pool(msgspec.Struct, kw_only=True):
    """A group and its machines by name. ``paid``: nanoseconds of machines up to ``counted``; ``made``: so many there
    ever were; ``exists`` False: nobody has made it yet. ``added``, ``removed``, ``lost``: machines that were asked for
    (or came in place of a lost one), told to go, and lost since the group is there."""

    group: NodeGroup
    times: GroupTimes
    counted: Moment
    target: int = 0
    machines: dict[str, Machine] = {}
    exists: bool = True
    upcoming: bool = False
    made: int = 0
    paid: int = 0
    added: int = 0
    removed: int = 0
    lost: int = 0

    @property
    def billed(self) -> int:
        """Machines that cost something now: all that are there and not merely promised."""
        return sum(each.error is None for each in self.machines.values())

    def count(self, now: Moment) -> None:
        """Adds up what was paid until now; to be called before anything changes."""
        self.paid += self.billed * (now - self.counted)
        self.counted = now
