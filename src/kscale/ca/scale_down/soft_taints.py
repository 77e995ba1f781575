"""Soft taints as data: which nodes to mark as candidates for deletion (``core/scaledown/actuation/softtaint.go``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, has_taint
from kscale.objects.core import Node
from kscale.objects.nodegroup import ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["SoftTaints", "soft_taints"]


class SoftTaints(msgspec.Struct, kw_only=True, frozen=True):
    """Nodes to take the taint from, and then nodes to give it to."""

    remove: list[str] = []
    add: list[str] = []


def soft_taints(nodes: Iterable[Node], unneeded: Collection[str], groups: Groups) -> SoftTaints:
    """All that should change, in the order of the nodes; how many do in one loop is for whoever changes them.

    Nodes of no group, and nodes that are being deleted, are left alone.
    """
    names = set(unneeded)
    remove, add = [], []
    for node in nodes:
        name = node.metadata.name
        if not node.spec.taints and name not in names:
            continue
        if not _autoscaled(name, groups) or has_taint(node, TO_BE_DELETED_TAINT):
            continue
        tainted = has_taint(node, DELETION_CANDIDATE_TAINT)
        if tainted and name not in names:
            remove.append(name)
        elif name in names and not tainted:
            add.append(name)
    return SoftTaints(remove=remove, add=add)


def _autoscaled(name: str, groups: Groups) -> bool:
    try:
        return groups.of_node(name) is not None
    except ProviderError:
        return False
