"""Nodes that have an object, and what every loop reads of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale.ca.nodes import is_simply_ready
from kscale.objects.core import Node

__all__ = ["NodeReadings"]


class NodeReadings:
    """Nodes in the order given, each read once, however many loops ask. Not to be written to.

    ``names`` and ``provider_ids`` are theirs; ``odd`` the positions, ascending, of those that are not simply ready
    (:func:`kscale.ca.nodes.is_simply_ready`).
    """

    __slots__ = ("names", "nodes", "odd", "provider_ids")

    def __init__(self, nodes: Iterable[Node], odd: Sequence[int] | None = None) -> None:
        """``odd``: if it is known already."""
        self.nodes = [*nodes]
        self.names = [node.metadata.name for node in self.nodes]
        self.provider_ids = frozenset(node.spec.provider_id for node in self.nodes)
        if odd is None:
            odd = [i for i, node in enumerate(self.nodes) if not is_simply_ready(node)]
        self.odd = odd

    @classmethod
    def of(cls, nodes: Iterable[Node] | NodeReadings) -> NodeReadings:
        """Nodes, or what was read of them already."""
        return nodes if isinstance(nodes, NodeReadings) else cls(nodes)

    def __len__(self) -> int:
        return len(self.nodes)
