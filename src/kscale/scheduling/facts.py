"""One node as plug-ins see it, and the names of what they read of it."""

from __future__ import annotations

from typing import Final

import msgspec

from kscale.objects.core import Node, Taint
from kscale.objects.storage import CSINode

__all__ = ["CORDON", "CSI", "DEVICES", "FEATURES", "HOSTNAME", "NAME", "TAINTS", "ZONE", "NodeFacts"]

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

# Columns of nodes that are no labels.
NAME: Final = "\0name"
TAINTS: Final = "\0taints"
CORDON: Final = "\0unschedulable"
FEATURES: Final = "\0features"
CSI: Final = "\0csi"
DEVICES: Final = "\0devices"


class NodeFacts(msgspec.Struct):
    """``offered``: resources of which something is allocatable."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    features: frozenset[str]
    csi_node: CSINode | None
    offered: frozenset[str]

    @classmethod
    def of(cls, node: Node, csi_node: CSINode | None) -> NodeFacts:
        """The facts of a node object."""
        return cls(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            taints=tuple(node.spec.taints),
            unschedulable=node.spec.unschedulable,
            features=frozenset(node.status.declared_features),
            csi_node=csi_node,
            offered=frozenset(name for name, q in (node.status.allocatable or {}).items() if q.sign > 0),
        )
