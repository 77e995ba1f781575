"""Nodes that a group should have and has not: those on their way."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

import msgspec

from kscale.ca.cluster_state.health import backoff_status
from kscale.ca.cluster_state.state import ClusterStateRegistry
from kscale.effects import Moment, moment
from kscale.objects.nodegroups import Groups

__all__ = ["UpcomingNodes", "is_scaling_up", "upcoming_count", "upcoming_nodes"]


class UpcomingNodes(msgspec.Struct, kw_only=True, frozen=True):
    """How many nodes of a group are still to come, and the names of those that are there but have not started."""

    count: int
    registered: list[str] = []


def upcoming_count(state: ClusterStateRegistry, group: str) -> int:
    """How many nodes the group should have and has not, whatever became of them; negative for too many."""
    expected = state.ranges.get(group)
    if expected is None:
        return 0
    known = state.readiness.get(group)
    if known is None:
        return expected.current_target
    return expected.current_target - (
        len(known.ready) + len(known.unready) + len(known.suspended) + len(known.long_unregistered)
    )


def is_scaling_up(state: ClusterStateRegistry, group: str) -> bool:
    """Whether nodes were asked for and are still to come."""
    return group in state.scale_up_requests and upcoming_count(state, group) > 0


def upcoming_nodes(
    state: ClusterStateRegistry, groups: Groups, now: datetime | Moment, *, templates: Container[str] | None = None
) -> dict[str, UpcomingNodes]:
    """By group, in the provider's order, the nodes that are expected: asked for, not there, not in back-off.

    ``templates``: ids of groups that have a template (None: all have); of the others back-off is not known.
    A group that is still being created expects its whole target size (0 if that cannot be read).
    """
    now = moment(now)
    found: dict[str, UpcomingNodes] = {}
    for group in groups:
        if group.upcoming:
            size = 0 if group.target_size_error is not None else group.size
            found[group.id] = UpcomingNodes(count=size)
        elif is_scaling_up(state, group.id):
            has_template = templates is None or group.id in templates
            if backoff_status(state, group.id, now, has_template=has_template) is not None:
                continue
            known = state.readiness.get(group.id)
            found[group.id] = UpcomingNodes(
                count=upcoming_count(state, group.id), registered=[] if known is None else list(known.not_started)
            )
    return found
