"""What a Filter plug-in is: a PreFilter per pod class, and either a verdict per (pod class, node) or counters.

A plug-in never sees the packing engine. *Static* plug-ins say which node columns they read, so that their verdict is
computed once per distinct combination of those columns. *Counting* plug-ins describe counters; the engine keeps them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = [
    "CORDON",
    "CSI",
    "DEVICES",
    "ERROR",
    "FEATURES",
    "NAME",
    "TAINTS",
    "UNRESOLVABLE",
    "UNSCHEDULABLE",
    "Plugin",
    "PreFilter",
    "Status",
    "error",
    "unresolvable",
    "unschedulable",
]

UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"
ERROR = "Error"

# Node columns that are not labels.
NAME = "\0name"
TAINTS = "\0taints"
CORDON = "\0unschedulable"
FEATURES = "\0features"
CSI = "\0csi"
DEVICES = "\0devices"


@dataclass(frozen=True, slots=True)
class Status:
    """Why not: a status code of the framework and all reasons, verbatim."""

    code: str
    reasons: tuple[str, ...]


def unschedulable(*reasons: str) -> Status:
    """Removing pods might help."""
    return Status(UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Removing pods would not help."""
    return Status(UNRESOLVABLE, reasons)


def error(reason: str) -> Status:
    """The plug-in could not decide."""
    return Status(ERROR, (reason,))


@dataclass(frozen=True, slots=True)
class PreFilter:
    """What a PreFilter says of a pod: skip the Filter, a failure, or a set of node names to look at."""

    skip: bool = False
    failure: Status | None = None
    nodes: frozenset[str] | None = None


NOTHING = PreFilter()
SKIP = PreFilter(skip=True)


class Plugin:
    """The base of all Filter plug-ins: passes everything."""

    name: ClassVar[str]
    ordinal: ClassVar[int]

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Once per pod class."""
        return NOTHING

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        """What the static verdict depends on besides the node; None = it never fails."""
        return None

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        """The node columns (label keys and the special ones above) that the static verdict reads."""
        return frozenset()

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        """The static verdict on one node: None = passes."""
        return None
