"""How many nodes node groups may have without anything being wrong, and which have others."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from kscale.ca.cluster_state.state import AcceptableRange, ClusterStateRegistry, IncorrectSize
from kscale.ca.errors import AutoscalerError
from kscale.effects import Moment
from kscale.objects.nodegroups import Groups

__all__ = ["acceptable_ranges", "autoscaled_nodes_count", "incorrect_sizes", "recalculate", "target_sizes"]


def recalculate(state: ClusterStateRegistry, groups: Groups) -> ClusterStateRegistry:
    """The expected sizes anew from the provider's target sizes; all zero if one of those cannot be read."""
    try:
        targets = target_sizes(groups)
    except AutoscalerError:
        targets = {}
    return replace(state, ranges=acceptable_ranges(state, groups, targets))


def target_sizes(groups: Groups) -> dict[str, int]:
    """By group. Raises :class:`AutoscalerError` if one cannot be read."""
    for group in groups:
        if group.target_size_error is not None:
            raise AutoscalerError("", group.target_size_error)
    return {group.id: group.size for group in groups}


def acceptable_ranges(
    state: ClusterStateRegistry, groups: Groups, targets: Mapping[str, int]
) -> dict[str, AcceptableRange]:
    """The ranges around these target sizes, with what is under way."""
    ranges: dict[str, AcceptableRange] = {}
    for group in groups:
        if not group.upcoming:
            size = targets.get(group.id, 0)
            known = state.readiness.get(group.id)
            missing = len(known.long_unregistered) if known is not None else 0
            ranges[group.id] = AcceptableRange(min_nodes=size - missing, max_nodes=size, current_target=size)
    for name, request in state.scale_up_requests.items():
        old = ranges.get(name, AcceptableRange())
        ranges[name] = replace(old, min_nodes=old.min_nodes - request.increase)
    for item in state.scale_down_requests:
        old = ranges.get(item.group, AcceptableRange())
        ranges[item.group] = replace(old, max_nodes=old.max_nodes + 1)
    return ranges


def incorrect_sizes(state: ClusterStateRegistry, groups: Groups, now: Moment) -> dict[str, IncorrectSize]:
    """Groups that have another number of nodes than their target says; since when, if they had it before."""
    found: dict[str, IncorrectSize] = {}
    for group in groups:
        known = state.readiness.get(group.id)
        expected = state.ranges.get(group.id)
        if group.upcoming or known is None or expected is None:
            continue
        target = expected.current_target
        registered = len(known.registered)
        waiting = len(known.unregistered) + len(known.long_unregistered)
        if registered > target or registered < target - waiting:
            old = state.incorrect_sizes.get(group.id)
            same = old is not None and (old.current, old.expected) == (registered, target)
            found[group.id] = (
                old
                if old is not None and same
                else IncorrectSize(current=registered, expected=target, first_observed=now)
            )
    return found


def autoscaled_nodes_count(state: ClusterStateRegistry) -> tuple[int, int]:
    """(nodes of groups that have started, target sizes of the groups)."""
    current = sum(len(known.registered) - len(known.not_started) for known in state.readiness.values())
    return current, sum(item.current_target for item in state.ranges.values())
