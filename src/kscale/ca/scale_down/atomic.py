"""Groups that go whole or not at all (``processors/nodes/scale_down_set_processor.go``, ``core/scaledown/budgets``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down import reasons
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups, instance_id_of

__all__ = [
    "UPCOMING_NODE_ANNOTATION",
    "AtomicResult",
    "filter_atomic",
    "is_upcoming",
    "registered_nodes",
    "registered_size",
]

UPCOMING_NODE_ANNOTATION = "cluster-autoscaler.k8s.io/upcoming-node"
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


class AtomicResult(msgspec.Struct, kw_only=True):
    """The candidates that stay, ordinary groups first, and why the others do not."""

    kept: list[str]
    unremovable: dict[str, str]


def is_upcoming(node: Node) -> bool:
    """A node that the autoscaler put into its own picture of the cluster: it is expected, not there yet."""
    return (node.metadata.annotations or {}).get(UPCOMING_NODE_ANNOTATION) in _TRUE


def registered_nodes(nodes: Iterable[Node], instances: Collection[str]) -> list[Node]:
    """Return the nodes of a group that have registered: not upcoming, and each is one of the group's instances."""
    wanted = set(instances)
    return [node for node in nodes if instance_id_of(node) in wanted and not is_upcoming(node)]


def registered_size(nodes: Iterable[Node], group: NodeGroup) -> int:
    """How many of the nodes are really there of a group; none if its instances cannot be told."""
    return 0 if group.instances_error is not None else len(registered_nodes(nodes, group.instance_ids))


def filter_atomic(
    candidates: Sequence[str], *, groups: Groups, options: AutoscalingOptions, snapshot_nodes: Iterable[Node]
) -> AtomicResult:
    """Drops candidates of zero-or-max groups that are not wholly among the candidates.

    Wholly: as many as the group's target size, or as its nodes in the snapshot. Groups are judged in the order of
    their first candidate.
    """
    result = AtomicResult(kept=[], unremovable={})
    atomic: dict[str, list[str]] = {}
    for name in candidates:
        try:
            group = groups.of_node(name)
            own = None if group is None else group.options_or(options.node_group_defaults)
        except ProviderError:
            result.unremovable[name] = reasons.UNEXPECTED_ERROR
            continue
        if group is None or own is None:
            result.unremovable[name] = reasons.NOT_AUTOSCALED
        elif own.zero_or_max_node_scaling:
            atomic.setdefault(group.id, []).append(name)
        else:
            result.kept.append(name)
    nodes = list(snapshot_nodes) if atomic else []
    for group_id, names in atomic.items():
        reason = _refusal(groups[group_id], len(names), nodes)
        if reason is None:
            result.kept += names
        else:
            result.unremovable.update(dict.fromkeys(names, reason))
    return result


def _refusal(group: NodeGroup, considered: int, nodes: Iterable[Node]) -> str | None:
    if group.target_size_error is not None:
        return reasons.UNEXPECTED_ERROR
    if considered in (group.size, registered_size(nodes, group)):
        return None
    return reasons.ATOMIC_SCALE_DOWN_FAILED
