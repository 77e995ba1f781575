"""Nodes that have an object, and what every loop reads of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale.ca.nodes import is_simply_ready
from kscale.objects.core import Node
from kscale.objects.nodegroups import instance_id_of

__all__ = ["NodeReadings"]


class NodeReadings:
    """Nodes in the order given, each read once, however many loops ask. Not to be written to.

    ``names`` and ``instance_ids`` (:func:`kscale.objects.nodegroups.instance_id_of`) are theirs; ``odd`` are the
    positions, ascending, of those that are not simply ready (:func:`kscale.ca.nodes.is_simply_ready`).
    """

    __slots__ = ("instance_ids", "names", "nodes", "odd")

    def __init__(
        self, nodes: Sequence[Node], names: Sequence[str], instance_ids: Iterable[str], odd: Sequence[int]
    ) -> None:
        self.nodes = nodes
        self.names = names
        self.instance_ids = frozenset(instance_ids)
        self.odd = odd

    @classmethod
    def of(cls, nodes: Iterable[Node] | NodeReadings) -> NodeReadings:
        """Nodes, or what was read of them already."""
        if isinstance(nodes, NodeReadings):
            return nodes
        every = [*nodes]
        odd = [i for i, node in enumerate(every) if not is_simply_ready(node)]
        return cls(every, [node.metadata.name for node in every], map(instance_id_of, every), odd)

    def __len__(self) -> int:
        return len(self.nodes)
