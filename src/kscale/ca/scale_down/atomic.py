"""Groups that go whole or not at all (``processors/nodes/scale_down_set_processor.go``, ``core/scaledown/budgets``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kscale.objects.core import Node

__all__ = ["UPCOMING_NODE_ANNOTATION", "is_upcoming", "registered_nodes"]

UPCOMING_NODE_ANNOTATION = "cluster-autoscaler.k8s.io/upcoming-node"
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def is_upcoming(node: Node) -> bool:
    """A node that the autoscaler put into its own picture of the cluster: it is expected, not there yet."""
    return (node.metadata.annotations or {}).get(UPCOMING_NODE_ANNOTATION) in _TRUE


def registered_nodes(nodes: Iterable[Node], instances: Collection[str]) -> list[Node]:
    """The nodes of a group that are really there: not upcoming, and their provider id is one of its instances."""
    wanted = set(instances)
    return [node for node in nodes if node.spec.provider_id in wanted and not is_upcoming(node)]
