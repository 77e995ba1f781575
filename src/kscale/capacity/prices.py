"""What a node costs: by its instance type in a catalogue, or by the node group that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kscale.capacity.catalogue import InstanceType
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup

__all__ = ["price_of"]

_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")


def price_of(
    node: Node, groups: Iterable[NodeGroup] = (), catalogue: Mapping[str, InstanceType] | None = None
) -> float | None:
    """Of one hour; None = not known. A group's price comes first: it is the user's own.

    A region that the catalogue has no column for counts as the first one that it has.
    """
    labels = node.metadata.labels or {}
    for group in groups:
        if group.price is not None and _has(group, node, labels):
            return group.price
    name = next((labels[key] for key in _TYPES if key in labels), "")
    if catalogue is None or name not in set(catalogue):
        return None
    kind = catalogue[name]
    region = next((labels[key] for key in _REGIONS if key in labels), "")
    price = kind.price(region)
    return kind.price() if price is None else price


def _has(group: NodeGroup, node: Node, labels: Mapping[str, str]) -> bool:
    if group.nodes or group.from_node:
        return node.metadata.name in group.nodes or node.metadata.name == group.from_node
    wanted = group.node_selector
    return bool(wanted) and all(labels.get(key) == value for key, value in (wanted or {}).items())
