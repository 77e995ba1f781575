"""What a node costs: by its instance type in a catalogue, or by the node group that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kscale.capacity.catalogue import InstanceType
from kscale.capacity.groups import members_of
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup

__all__ = ["price_of", "priced"]

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
    """As :func:`~kscale.capacity.groups.members_of`; a group that says neither has the node that it is modelled on."""
    if group.nodes or not group.node_selector:
        return node.metadata.name in group.nodes or node.metadata.name == group.from_node
    return all(labels.get(key) == value for key, value in group.node_selector.items())


def priced(
    groups: Iterable[NodeGroup], catalogue: Mapping[str, InstanceType] | None, nodes: Sequence[Node] = ()
) -> list[NodeGroup]:
    """The groups, with the catalogue's price of what their template is where they have none of their own; without a
    template, of what the node that they are modelled on is, or the first of their ``nodes``."""
    found = []
    for group in groups:
        if group.price is None and catalogue is not None:
            model = _model(group, nodes)
            group = msgspec.structs.replace(group, price=None if model is None else price_of(model, (), catalogue))
        found.append(group)
    return found


def _model(group: NodeGroup, nodes: Sequence[Node]) -> Node | None:
    if group.template is not None:
        return group.template.node
    named = [node for node in nodes if node.metadata.name == group.from_node]
    return next(iter(named or members_of(group, nodes)), None)
