"""Every action there is, and how machines that yield them are typed.

Time and company stand here too: upstream's goroutines are machines of their own, so these actions hold machines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

from kscale.effects.api import (
    Create,
    Delete,
    Discover,
    Evict,
    Get,
    GetScale,
    GetWhole,
    List,
    Patch,
    Preview,
    PutScale,
    Resize,
    WriteStatus,
)
from kscale.effects.cloud import (
    CreateGroup,
    DecreaseTargetSize,
    DeleteGroup,
    DeleteNodes,
    GetPrices,
    HasInstances,
    IncreaseSize,
    Refresh,
)
from kscale.effects.metrics import GetMetric, QueryPrometheus
from kscale.effects.moments import Moment
from kscale.effects.outcomes import Outcome
from kscale.effects.ranking import RankOptions
from kscale.effects.reports import Emit, Observe

__all__ = [
    "Action",
    "Exchange",
    "InBackground",
    "Machine",
    "ReadStores",
    "Steps",
    "StepsOf",
    "Together",
    "Wait",
    "Within",
]


class Wait(msgspec.Struct, frozen=True):
    """Let ``duration`` nanoseconds pass; with ``jitter`` up to that fraction more, as the world draws it."""

    duration: int
    jitter: float = 0.0


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Run machines side by side, ``at_most`` so many at a time (None: all), begun in their order.

    Gives the list of what they return, when the last has ended. ``brief``: each of their steps takes well under a
    millisecond, so that nobody needs to be spared waiting for one; not those of machines that they run in turn.
    """

    machines: tuple[Machine, ...]
    at_most: int | None = None
    brief: bool = False


class Within(msgspec.Struct, frozen=True):
    """Run a machine that has ``duration`` nanoseconds (Go's ``context.WithTimeout``). Gives what it returns.

    When they are over, what it does just then ends with :data:`~kscale.effects.DEADLINE_EXCEEDED` although it may have
    happened, and so does at once everything that it asks for afterwards; reports are still taken. Machines that it runs
    together share its time; those that it starts in the background have their own.
    """

    duration: int
    machine: Machine


class ReadStores(msgspec.Struct, frozen=True):
    """Read what the watches have brought by now: a machine that waited for slow answers works with current objects.

    Gives what ``read(stores)`` returns, which is called where the stores live and while nothing changes them, or None
    while some kind is being listed anew.
    """

    read: Callable[[Any], Any]


class InBackground(msgspec.Struct, frozen=True):
    """Start a machine and go on. What it returns is of no interest; what it finds out it tells whom it was made for."""

    machine: Machine


Action = (
    Refresh
    | HasInstances
    | GetPrices
    | IncreaseSize
    | DecreaseTargetSize
    | DeleteNodes
    | CreateGroup
    | DeleteGroup
    | Get
    | GetWhole
    | List
    | Discover
    | Create
    | Preview
    | Patch
    | Delete
    | Evict
    | Resize
    | GetScale
    | PutScale
    | WriteStatus
    | GetMetric
    | QueryPrometheus
    | RankOptions
    | Wait
    | Together
    | Within
    | InBackground
    | ReadStores
    | Emit
    | Observe
)

_T = TypeVar("_T")
_A = TypeVar("_A")
_O = TypeVar("_O")

Exchange = Generator[_A, _O, _T]
"""What goes back and forth with any step machine: it yields the first, is sent the second, returns the third. All but
the few that speak to one part of a program only, in words of their own, are :data:`Steps`."""

Steps = Exchange[Action, Outcome, _T]
"""A step machine: yields actions, is sent their outcomes, returns what it decided."""

StepsOf = Exchange[_A, Outcome, _T]
"""A step machine that yields only some actions: ``StepsOf[Evict | Wait, int]`` is a ``Steps[int]`` too."""

Machine = Callable[[Moment], Steps[Any]]
"""What begins a step machine at a moment."""
