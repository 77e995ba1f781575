"""Classify every node: ready, starting, deleted, unregistered (upstream: ``updateReadinessStats``,
``getNotRegisteredNodes``).

Whether one node is Ready is read in :mod:`kscale.ca.nodes`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kscale.ca.cluster_state.state import ClusterStateRegistry, GroupReadiness, UnregisteredNode
from kscale.ca.node_lists import RESOURCE_NOT_READY_REASON
from kscale.ca.nodes import TO_BE_DELETED_TAINT, RegisteredNodes, get_readiness, get_ready_and_suspended, has_taint
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Moment, duration, later
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.core import Node
from kscale.objects.conditions import changed_at
from kscale.objects.nodegroup import InstanceStatus, NodeGroup, NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.times import moment_in

__all__ = [
    "LEGACY_NODE_STARTUP_TIME",
    "LEGACY_STATUS_SETTING_DELAY",
    "classify_nodes",
    "classify_unregistered_nodes",
    "find_nodes_without_instance",
    "find_unregistered_nodes",
]


def find_nodes_without_instance(
    nodes: Sequence[Node], names: Sequence[str], odd: Collection[int], has_instance: Mapping[str, bool]
) -> set[int]:
    """Return the positions of nodes whose instance does not exist anymore.

    The provider's answers (``has_instance``, by node name) decide. A node without answer counts if it has the taint
    ``ToBeDeletedByClusterAutoscaler``. ``odd``: the positions of nodes for which
    :func:`kscale.ca.nodes.is_ready_and_active` is False.
    """
    missing = {i for i in odd if names[i] not in has_instance and has_taint(nodes[i], TO_BE_DELETED_TAINT)}
    if not all(has_instance.values()):
        missing.update(i for i, name in enumerate(names) if not has_instance.get(name, True))
    return missing


_LEGACY_NOT_STARTED_CONDITIONS: Final = {("Ready", "False"), ("OutOfDisk", "True"), ("NetworkUnavailable", "True")}
LEGACY_STATUS_SETTING_DELAY: Final[ComparedDuration] = 120 * SECOND
LEGACY_NODE_STARTUP_TIME: Final[ComparedDuration] = 900 * SECOND


def classify_nodes(
    registered: RegisteredNodes,
    groups: Groups,
    *,
    now: Moment,
    options: AutoscalingOptions,
    has_instance: Mapping[str, bool],
) -> tuple[dict[str, GroupReadiness], GroupReadiness]:
    """Return the readiness lists of each group that has nodes, and those of the cluster.

    A node is in every list that it belongs to. ``has_instance``: the provider's answers by node name.
    """
    nodes, names, odd = registered.nodes, registered.names, registered.odd
    group_of = groups.ids_of_nodes(names)
    missing = find_nodes_without_instance(nodes, names, odd, has_instance)
    if missing:
        odd = sorted({*odd, *missing})
    not_ready: dict[int, tuple[bool, bool]] = {}
    """Index of a node -> (whether its instance was deleted, whether it is suspended)."""
    for i in odd:
        ready, suspended = get_ready_and_suspended(nodes[i])
        is_gone = i in missing
        if not ready or suspended or is_gone:
            not_ready[i] = is_gone, suspended
    members = groups.members(names)
    by_group = {
        group: GroupReadiness(registered=[*node_names]) for group, node_names in members.items() if group is not None
    }
    total = GroupReadiness(registered=[*names], ready=_exclude_names(names, {names[i] for i in not_ready}))
    elsewhere: dict[str | None, set[str]] = {}
    for i in not_ready:
        elsewhere.setdefault(group_of[i], set()).add(names[i])
    for name, record in by_group.items():
        record.ready = _exclude_names(record.registered, elsewhere.get(name, set()))
    nobody = GroupReadiness()
    for i, (is_gone, suspended) in not_ready.items():
        group = group_of[i]
        if options.legacy:
            kinds = _get_legacy_readiness_lists(nodes[i], is_gone, now)
        else:
            kinds = _get_readiness_lists(
                nodes[i], is_gone, suspended, now - _get_node_startup_time(i, group_of, groups, options)
            )
        for kind in kinds:
            getattr(nobody if group is None else by_group[group], kind).append(names[i])
            getattr(total, kind).append(names[i])
    return by_group, total


def _exclude_names(names: Sequence[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others] if others else [*names]


def _get_node_startup_time(i: int, group_of: Sequence[str | None], groups: Groups, options: AutoscalingOptions) -> int:
    """Return how long node ``i`` may take to start, in nanoseconds.

    Upstream has one variable for all nodes: a node whose group has no value inherits that of the node before it.
    """
    for group in reversed(group_of[: i + 1]):
        own = None if group is None else _get_group_startup_time(groups[group], options.node_group_defaults)
        if own is not None:
            return own
    return duration(options.max_node_startup_time)


def _get_group_startup_time(group: NodeGroup, defaults: NodeGroupAutoscalingOptions) -> int | None:
    """Return how long nodes of a group may take to start, in nanoseconds; None if its options cannot be read."""
    try:
        return duration(group.options_or(defaults).max_node_startup_time)
    except ProviderError:
        return None


def _get_readiness_lists(node: Node, deleted: bool, suspended: bool, young_since: int) -> tuple[str, ...]:
    """Return the lists, besides ``registered``, of a node that is not simply ready.

    A node created after ``young_since`` counts as still starting.
    """
    if deleted:
        return ("deleted",)
    if suspended:
        return ("suspended",)
    if moment_in(node, node.metadata.creation_timestamp, "metadata.creationTimestamp") > young_since:
        return ("not_started",)
    return ("unready", "resource_unready") if get_readiness(node).reason == RESOURCE_NOT_READY_REASON else ("unready",)


def _get_legacy_readiness_lists(node: Node, deleted: bool, now: Moment) -> tuple[str, ...]:
    """Return the lists of such a node by the rules of release 1.3.

    A node is starting if its conditions have not changed since it was created. A node that takes too long
    (``LongNotStarted``) counts as unready everywhere.
    """
    if deleted:
        return ("deleted",)
    created = moment_in(node, node.metadata.creation_timestamp, "metadata.creationTimestamp")
    starting = any(
        (each.type, each.status) in _LEGACY_NOT_STARTED_CONDITIONS
        and changed_at(node, each) - created < LEGACY_STATUS_SETTING_DELAY
        for each in node.status.conditions
    )
    if not starting:
        return ("unready",)
    return ("not_started",) if later(created, LEGACY_NODE_STARTUP_TIME) >= now else ("unready", "long_not_started")


def find_unregistered_nodes(
    before: Mapping[str, UnregisteredNode], registered: RegisteredNodes, groups: Groups, now: Moment
) -> dict[str, UnregisteredNode]:
    """Find instances without a node object, and since when they lack it."""
    known = registered.instance_ids
    unregistered: dict[str, UnregisteredNode] = {}
    for group in groups:
        if group.upcoming:
            continue
        if known.issuperset(group.instance_ids):
            continue
        for instance in [each for each in group.instance_ids if each not in known]:
            status = group.instance_status.get(instance, InstanceStatus())
            if status.state == "deleting" or status.error is not None:
                continue
            old = before.get(instance)
            unregistered[instance] = UnregisteredNode(group=group.id, since=now if old is None else old.since)
    return unregistered


def classify_unregistered_nodes(
    state: ClusterStateRegistry, groups: Groups, now: Moment, defaults: NodeGroupAutoscalingOptions
) -> None:
    """Add the state's unregistered instances to the readiness lists, by whether their provision time is over.

    Instances of an unknown group, or of one that does not list them anymore, are in neither list.
    """
    for name, item in state.unregistered.items():
        if name in groups.node_errors:
            continue
        owner = groups[item.group]
        if name in owner.gone_instances:
            continue
        try:
            provision = duration(owner.options_or(defaults).max_node_provision_time)
        except ProviderError:
            continue
        kind = "long_unregistered" if item.since + provision < now else "unregistered"
        for record in (state.total, state.readiness.setdefault(owner.id, GroupReadiness())):
            getattr(record, kind).append(name)
