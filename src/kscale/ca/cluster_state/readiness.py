"""What every node is: ready, starting, gone (``updateReadinessStats``).

Whether one node is Ready is read in :mod:`kscale.ca.nodes`, whether it still has a machine in
:mod:`~.has_instance`; machines without a node are in :mod:`~.unregistered`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kscale.ca.cluster_state.has_instance import without_instance
from kscale.ca.cluster_state.state import GroupReadiness
from kscale.ca.node_lists import RESOURCE_NOT_READY
from kscale.ca.node_readings import NodeReadings
from kscale.ca.nodes import life_of, readiness
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Moment, duration, later
from kscale.effects.moments import ComparedDuration
from kscale.objects.conditions import changed_at
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeGroupAutoscalingOptions, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.objects.times import moment_in

_NOT_STARTED_1_3: Final = {("Ready", "False"), ("OutOfDisk", "True"), ("NetworkUnavailable", "True")}
SET_WITHIN_1_3: Final[ComparedDuration] = 120 * SECOND
STARTING_FOR_1_3: Final[ComparedDuration] = 900 * SECOND

__all__ = ["SET_WITHIN_1_3", "STARTING_FOR_1_3", "classify"]


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
    gone = without_instance(nodes, names, odd, has_instance)
    if gone:
        odd = sorted({*odd, *gone})
    not_ready: dict[int, tuple[bool, bool]] = {}
    """Position -> (is it gone, is it suspended)."""
    for i in odd:
        ready, suspended = life_of(nodes[i])
        is_gone = i in gone
        if not ready or suspended or is_gone:
            not_ready[i] = is_gone, suspended
    members = groups.members(names)
    by_group = {group: GroupReadiness(registered=[*of]) for group, of in members.items() if group is not None}
    total = GroupReadiness(registered=[*names], ready=_without(names, {names[i] for i in not_ready}))
    elsewhere: dict[str | None, set[str]] = {}
    for i in not_ready:
        elsewhere.setdefault(group_of[i], set()).add(names[i])
    for name, record in by_group.items():
        record.ready = _without(record.registered, elsewhere.get(name, set()))
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


def _without(names: Sequence[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others] if others else [*names]


def _startup_time(i: int, group_of: Sequence[str | None], groups: Groups, options: AutoscalingOptions) -> int:
    """How long node ``i`` may take to start, in nanoseconds. Upstream has one variable for all nodes: one whose group
    says nothing inherits from the node before it."""
    for group in reversed(group_of[: i + 1]):
        own = None if group is None else _startup(groups[group], options.node_group_defaults)
        if own is not None:
            return own
    return duration(options.max_node_startup_time)


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
    if moment_in(node, node.metadata.creation_timestamp, "metadata.creationTimestamp") > young_since:
        return ("not_started",)
    return ("unready", "resource_unready") if readiness(node).reason == RESOURCE_NOT_READY else ("unready",)


def _kinds_of_1_3(node: Node, gone: bool, now: Moment) -> tuple[str, ...]:
    """The same in release 1.3: a node is starting whose conditions have not changed since it was made. One that takes
    too long (``LongNotStarted``) counts as unready wherever anything is counted."""
    if gone:
        return ("deleted",)
    made = moment_in(node, node.metadata.creation_timestamp, "metadata.creationTimestamp")
    starting = any(
        (each.type, each.status) in _NOT_STARTED_1_3 and changed_at(node, each) - made < SET_WITHIN_1_3
        for each in node.status.conditions
    )
    if not starting:
        return ("unready",)
    return ("not_started",) if later(made, STARTING_FOR_1_3) >= now else ("unready", "long_not_started")
