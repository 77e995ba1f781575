"""What every node and every instance is: ready, starting, gone, not there yet (``updateReadinessStats``).

Whether one node is Ready is read in :mod:`kscale.ca.nodes`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kscale.ca.cluster_state.state import ClusterStateRegistry, GroupReadiness, UnregisteredNode
from kscale.ca.node_lists import RESOURCE_NOT_READY
from kscale.ca.node_readings import NodeReadings
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, life_of, readiness
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Moment, duration, from_text, later
from kscale.objects.core import Node
from kscale.objects.nodegroup import InstanceStatus, NodeGroup, NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.nodegroups import Groups

_NOT_STARTED_1_3: Final = {("Ready", "False"), ("OutOfDisk", "True"), ("NetworkUnavailable", "True")}
_SET_WITHIN_1_3: Final = 120 * SECOND
_STARTING_FOR_1_3: Final = 900 * SECOND

__all__ = ["classify", "find_unregistered", "sort_unregistered"]


def classify(
    registered: NodeReadings,
    groups: Groups,
    *,
    now: Moment,
    options: AutoscalingOptions,
    has_instance: Mapping[str, bool],
) -> tuple[dict[str, GroupReadiness], GroupReadiness]:
    """(nodes of each group that has any, nodes of the cluster), each in every list that it belongs to.

    ``has_instance``: the provider's answers by node name.
    """
    nodes, names, odd = registered.nodes, registered.names, registered.odd
    group_of = groups.ids_of_nodes(names)
    gone = {name for name, there in has_instance.items() if not there}
    if gone:
        odd = sorted({*odd, *(i for i, name in enumerate(names) if name in gone)})
    not_ready: dict[int, tuple[bool, bool]] = {}
    """Position -> (is it gone, is it suspended)."""
    for i in odd:
        ready, suspended = life_of(nodes[i])
        is_gone = names[i] in gone or _is_leaving(nodes[i], has_instance)
        if not ready or suspended or is_gone:
            not_ready[i] = is_gone, suspended
    members: dict[str | None, list[str]] = {group: [] for group in group_of}
    for name, group in zip(names, group_of, strict=True):
        members[group].append(name)
    by_group = {group: GroupReadiness(registered=of) for group, of in members.items() if group is not None}
    total = GroupReadiness(registered=[*names], ready=_without(names, {names[i] for i in not_ready}))
    elsewhere: dict[str | None, set[str]] = {}
    for i in not_ready:
        elsewhere.setdefault(group_of[i], set()).add(names[i])
    for group, record in by_group.items():
        record.ready = _without(record.registered, elsewhere.get(group, set()))
    nobody = GroupReadiness()
    for i, (is_gone, suspended) in not_ready.items():
        group = group_of[i]
        if options.legacy:
            kinds = _kinds_of_1_3(nodes[i], is_gone, now)
        else:
            kinds = _kinds(nodes[i], is_gone, suspended, now - _startup_time(i, group_of, groups, options))
        for kind in kinds:
            getattr(nobody if group is None else by_group[group], kind).append(names[i])
            getattr(total, kind).append(names[i])
    return by_group, total


def _without(names: list[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others] if others else [*names]


def _startup_time(i: int, group_of: Sequence[str | None], groups: Groups, options: AutoscalingOptions) -> int:
    """How long node ``i`` may take to start, in nanoseconds. Upstream has one variable for all nodes: one whose group
    says nothing inherits from the node before it."""
    for group in reversed(group_of[: i + 1]):
        own = None if group is None else _startup(groups[group], options.node_group_defaults)
        if own is not None:
            return own
    return duration(options.max_node_startup_time)


def _is_leaving(node: Node, has_instance: Mapping[str, bool]) -> bool:
    """What is made of the taint of a node of which the provider says nothing."""
    return node.metadata.name not in has_instance and has_taint(node, TO_BE_DELETED_TAINT)


def _startup(group: NodeGroup, defaults: NodeGroupAutoscalingOptions) -> int | None:
    """How long nodes of a group may take to start, in nanoseconds; None if its options cannot be read."""
    try:
        return duration(group.options_or(defaults).max_node_startup_time)
    except ProviderError:
        return None


def _kinds(node: Node, gone: bool, suspended: bool, young_since: int) -> tuple[str, ...]:
    """The lists besides ``registered`` that a node belongs to which is not simply ready; made after ``young_since`` it
    may still be starting."""
    if gone:
        return ("deleted",)
    if suspended:
        return ("suspended",)
    if from_text(node.metadata.creation_timestamp) > young_since:
        return ("not_started",)
    return ("unready", "resource_unready") if readiness(node).reason == RESOURCE_NOT_READY else ("unready",)


def _kinds_of_1_3(node: Node, gone: bool, now: Moment) -> tuple[str, ...]:
    """The same in release 1.3: a node is starting whose conditions have not changed since it was made. One that takes
    too long (``LongNotStarted``) counts as unready wherever anything is counted."""
    if gone:
        return ("deleted",)
    made = from_text(node.metadata.creation_timestamp)
    starting = any(
        (each.type, each.status) in _NOT_STARTED_1_3 and from_text(each.last_transition_time) - made < _SET_WITHIN_1_3
        for each in node.status.conditions
    )
    if not starting:
        return ("unready",)
    return ("not_started",) if later(made, _STARTING_FOR_1_3) >= now else ("unready", "long_not_started")


def find_unregistered(
    before: Mapping[str, UnregisteredNode], registered: NodeReadings, groups: Groups, now: Moment
) -> dict[str, UnregisteredNode]:
    """Instances that should be there and have no node object, and since when that is so."""
    known = registered.provider_ids
    found: dict[str, UnregisteredNode] = {}
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
            found[instance] = UnregisteredNode(group=group.id, since=now if old is None else old.since)
    return found


def sort_unregistered(
    state: ClusterStateRegistry, groups: Groups, now: Moment, defaults: NodeGroupAutoscalingOptions
) -> None:
    """Puts the state's unregistered instances into its lists: for long, or not yet. One whose group the cloud cannot
    tell is in neither, nor is one that is of no group any more."""
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
