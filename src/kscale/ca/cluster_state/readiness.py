"""What every node and every instance is: ready, starting, gone, not there yet (``updateReadinessStats``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kscale.ca.cluster_state.state import ClusterStateRegistry, GroupReadiness, UnregisteredNode
from kscale.ca.node_lists import RESOURCE_NOT_READY
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, life_of, readiness
from kscale.ca.options import AutoscalingOptions
from kscale.effects import Moment, duration, from_text
from kscale.objects.core import Node
from kscale.objects.nodegroup import InstanceStatus, NodeGroup, NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["classify", "find_unregistered", "sort_unregistered"]


def classify(
    nodes: Sequence[Node],
    groups: Groups,
    *,
    now: Moment,
    options: AutoscalingOptions,
    has_instance: Mapping[str, bool],
    lives: Iterable[tuple[bool, bool]] | None = None,
) -> tuple[dict[str, GroupReadiness], GroupReadiness]:
    """(nodes of each group that has any, nodes of the cluster), each in every list that it belongs to.

    ``has_instance``: the provider's answers by node name; ``lives``: what :func:`kscale.ca.nodes.life_of` says of the
    nodes, if that is known already.
    """
    total, nobody = GroupReadiness(), GroupReadiness()
    by_group: dict[str, GroupReadiness] = {}
    # One variable for the whole pass: a node whose group says nothing inherits from the node before it.
    startup = duration(options.max_node_startup_time)
    startup_of: dict[str, int | None] = {}
    group_of = groups.id_of_node
    ready_nodes, names = total.ready, total.registered
    for node, (ready, suspended) in zip(nodes, map(life_of, nodes) if lives is None else lives, strict=True):
        name = node.metadata.name
        names.append(name)
        try:
            group = group_of(name)
        except ProviderError:
            group = None
        record = nobody
        if group is not None:
            known = by_group.get(group)
            if known is None:
                known = by_group[group] = GroupReadiness()
                startup_of[group] = _startup(groups[group], options.node_group_defaults)
            record = known
            own = startup_of[group]
            if own is not None:
                startup = own
        record.registered.append(name)
        gone = not has_instance[name] if name in has_instance else has_taint(node, TO_BE_DELETED_TAINT)
        if ready and not gone and not suspended:
            record.ready.append(name)
            ready_nodes.append(name)
            continue
        for kind in _kinds(node, gone, suspended, ready, now - startup):
            getattr(record, kind).append(name)
            getattr(total, kind).append(name)
    return by_group, total


def _startup(group: NodeGroup, defaults: NodeGroupAutoscalingOptions) -> int | None:
    """How long nodes of a group may take to start, in nanoseconds; None if its options cannot be read."""
    try:
        return duration(group.options_or(defaults).max_node_startup_time)
    except ProviderError:
        return None


def _kinds(node: Node, gone: bool, suspended: bool, ready: bool, young_since: int) -> tuple[str, ...]:
    """The lists that a node belongs to besides ``registered``; made after ``young_since`` it may still be starting."""
    if gone:
        return ("deleted",)
    if suspended:
        return ("suspended",)
    if ready:
        return ("ready",)
    if from_text(node.metadata.creation_timestamp) > young_since:
        return ("not_started",)
    return ("unready", "resource_unready") if readiness(node).reason == RESOURCE_NOT_READY else ("unready",)


def find_unregistered(
    before: Mapping[str, UnregisteredNode], nodes: Iterable[Node], groups: Groups, now: Moment
) -> dict[str, UnregisteredNode]:
    """Instances that should be there and have no node object, and since when that is so."""
    registered = {node.spec.provider_id for node in nodes}
    found: dict[str, UnregisteredNode] = {}
    for group in groups:
        if group.upcoming:
            continue
        for instance in [each for each in group.instance_ids if each not in registered]:
            status = group.instance_status.get(instance, InstanceStatus())
            if status.state == "deleting" or status.error is not None:
                continue
            old = before.get(instance)
            found[instance] = UnregisteredNode(group=group.id, since=now if old is None else old.since)
    return found


def sort_unregistered(
    state: ClusterStateRegistry, groups: Groups, now: Moment, defaults: NodeGroupAutoscalingOptions
) -> None:
    """Puts the state's unregistered instances into its lists: for long, or not yet."""
    for name, item in state.unregistered.items():
        owner = groups[item.group]
        try:
            provision = duration(owner.options_or(defaults).max_node_provision_time)
        except ProviderError:
            continue
        kind = "long_unregistered" if item.since + provision < now else "unregistered"
        for record in (state.total, state.readiness.setdefault(owner.id, GroupReadiness())):
            getattr(record, kind).append(name)
