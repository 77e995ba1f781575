"""Nodes that have an object, and what every loop reads of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale.ca.nodes import is_simply_ready
from kscale.objects.core import Node

__all__ = ["NodeReadings", "provider_id_of"]


class NodeReadings:
    """Nodes in the order given, each read once, however many loops ask. Not to be written to.

    ``names`` and ``provider_ids`` are theirs; ``odd`` the positions, ascending, of those that are not simply ready
    (:func:`kscale.ca.nodes.is_simply_ready`).
    """

    __slots__ = ("names", "nodes", "odd", "provider_ids")

    def __init__(
        self, nodes: Sequence[Node], names: Sequence[str], provider_ids: Iterable[str], odd: Sequence[int]
    ) -> None:
        self.nodes = nodes
        self.names = names
        self.provider_ids = frozenset(provider_ids)
        self.odd = odd

    @classmethod
    def of(cls, nodes: Iterable[Node] | NodeReadings) -> NodeReadings:
        """Nodes, or what was read of them already."""
        if isinstance(nodes, NodeReadings):
            return nodes
        every = [*nodes]
        odd = [i for i, node in enumerate(every) if not is_simply_ready(node)]
        return cls(every, [node.metadata.name for node in every], map(provider_id_of, every), odd)

    def __len__(self) -> int:
        return len(self.nodes)


def provider_id_of(node: Node) -> str:
    """What the provider calls a node."""
    return node.spec.provider_id
