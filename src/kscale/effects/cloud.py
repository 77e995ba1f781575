"""What is asked of the cloud (upstream: ``cloudprovider.CloudProvider`` and ``NodeGroup``)."""

from __future__ import annotations

from typing import Any

import msgspec

from kscale.effects.moments import Moment
from kscale.effects.outcomes import ApiError
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.times import virtual_moment

__all__ = [
    "CreateGroup",
    "CreatedGroups",
    "DecreaseTargetSize",
    "DeleteGroup",
    "DeleteNodes",
    "GetPrices",
    "HasInstances",
    "IncreaseSize",
    "Prices",
    "Refresh",
]


class Refresh(msgspec.Struct, frozen=True):
    """Look at the cloud anew before a loop (``Refresh``). Gives the groups as they are now; None: as they were."""


class HasInstances(msgspec.Struct, frozen=True):
    """Ask of nodes whether their machines still run (``HasInstance``). Gives answers by name; of a node without one the
    cloud cannot tell."""

    nodes: tuple[str, ...]


class GetPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Ask what nodes and pods cost from ``start`` to ``end`` (``Pricing``: ``NodePrice`` and ``PodPrice``), in any
    currency. ``pods``: their API data, whole. ``start`` and ``end`` may be given as aware datetimes, too."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[dict[str, Any], ...] = ()
    start: Moment
    end: Moment

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            msgspec.structs.force_setattr(self, name, virtual_moment(getattr(self, name), name))


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What ``nodes`` and ``pods`` cost, in the order of the question; an :class:`~kscale.effects.ApiError` in place of
    a price that the cloud does not tell."""

    nodes: tuple[float | ApiError, ...] = ()
    pods: tuple[float | ApiError, ...] = ()


class IncreaseSize(msgspec.Struct, frozen=True, kw_only=True):
    """Raise a group's target size by ``delta``; ``atomic``: all of it or nothing (``AtomicIncreaseSize``).

    A provider that cannot do it atomically refuses with ``Not implemented``.
    """

    group: str
    delta: int
    atomic: bool = False


class DecreaseTargetSize(msgspec.Struct, frozen=True, kw_only=True):
    """Lower a group's target size without deleting nodes; ``delta`` is negative."""

    group: str
    delta: int


class DeleteNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Delete nodes of a group in one call, and lower its target size with them.

    ``nodes`` are names of nodes or, of instances that never registered, their provider ids. ``objects``: these nodes as
    they were when their deletion began; the cloud is asked by them, whatever has become of them since (one may be gone,
    or another have taken its name). ``force``: without regard to the minimum size and the like (``ForceDeleteNodes``).
    """

    group: str
    nodes: tuple[str, ...]
    objects: tuple[Node, ...] = ()
    force: bool = False


class CreateGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Make a group that does not exist yet; ``asynchronous``: begin to, and answer groups that are still being made."""

    group: str
    asynchronous: bool = False


class CreatedGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The group that was made (``main``), and others made along with it (``extra``), as the cloud describes them
    now."""

    main: NodeGroup
    extra: tuple[NodeGroup, ...] = ()


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a group that was made by node auto-provisioning and is not needed any more (``Delete``)."""

    group: str
