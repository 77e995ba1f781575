"""Soft taints as data: which nodes to mark as candidates for deletion (``core/scaledown/actuation/softtaint.go``).

How many at a time, and for how long: ``actuation/soft_tainting.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, has_taint
from kscale.objects.core import Node
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
    concerned = [node for node in nodes if node.spec.taints or node.metadata.name in names]
    group_of = groups.ids_of_nodes([node.metadata.name for node in concerned])
    for node, group in zip(concerned, group_of, strict=True):
        name = node.metadata.name
        if group is None or has_taint(node, TO_BE_DELETED_TAINT):
            continue
        tainted = has_taint(node, DELETION_CANDIDATE_TAINT)
        if tainted and name not in names:
            remove.append(name)
        elif name in names and not tainted:
            add.append(name)
    return SoftTaints(remove=remove, add=add)
