"""Health, acceptable ranges, incorrect sizes and upcoming nodes of node groups, and the status built from them.

Upstream: ``IsClusterHealthy``, ``IsNodeGroupSafeToScaleUp``, ``GetUpcomingNodes`` and ``GetStatus`` in
``clusterstate/clusterstate.go``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from kscale.ca.cluster_state.state import (
    AcceptableRange,
    Backoff,
    BackoffInfo,
    ClusterAutoscalerStatus,
    ClusterHealth,
    ClusterScaleUp,
    ClusterStateRegistry,
    ClusterWideStatus,
    GroupHealth,
    GroupReadiness,
    GroupScaleUp,
    IncorrectSize,
    NodeCounts,
    NodeGroupStatus,
    RegisteredCount,
    ScaleDownCandidates,
    StatusCondition,
    UnreadyCount,
    get_active_backoff,
)
from kscale.ca.errors import AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Moment, moment, to_text
from kscale.objects.nodegroup import Groups, NodeGroup

__all__ = [
    "UpcomingNodes",
    "build_cluster_status",
    "compute_acceptable_ranges",
    "count_upcoming_nodes",
    "find_incorrect_sizes",
    "get_autoscaled_nodes_count",
    "get_backoff_status",
    "get_target_sizes",
    "get_upcoming_nodes",
    "is_cluster_healthy",
    "is_group_healthy",
    "is_safe_to_scale_up",
    "is_scaling_up",
    "recalculate_ranges",
    "truncate_message",
]


def recalculate_ranges(state: ClusterStateRegistry, groups: Groups) -> ClusterStateRegistry:
    """Return the state with acceptable node ranges recomputed from the provider's target sizes.

    If the target size of one group cannot be read, all target sizes count as 0.
    """
    try:
        targets = get_target_sizes(groups)
    except AutoscalerError:
        targets = {}
    return replace(state, ranges=compute_acceptable_ranges(state, groups, targets))


def get_target_sizes(groups: Groups) -> dict[str, int]:
    """Return the target sizes by group id. Raises :class:`AutoscalerError` if one cannot be read."""
    for group in groups:
        if group.target_size_error is not None:
            raise AutoscalerError("", group.target_size_error)
    return {group.id: group.size for group in groups}


def compute_acceptable_ranges(
    state: ClusterStateRegistry, groups: Groups, targets: Mapping[str, int]
) -> dict[str, AcceptableRange]:
    """Compute the acceptable node counts by group id, from target sizes and running requests.

    The minimum is the target size (``targets``: by group id) minus long unregistered instances and nodes requested by
    a scale-up. The maximum is the target size plus nodes being deleted. A group that is still being created has target
    size 0, and a range only if it has a scale-up or scale-down request.
    """
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


def find_incorrect_sizes(state: ClusterStateRegistry, groups: Groups, now: Moment) -> dict[str, IncorrectSize]:
    """Return how the node count of each group differs from its target, by group id.

    Left out: groups with the right count, groups that lack only nodes whose instances are unregistered, groups that
    are still being created, and groups whose nodes or target are unknown.

    A group with unchanged numbers keeps the time at which the difference was first observed.
    """
    incorrect: dict[str, IncorrectSize] = {}
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
            incorrect[group.id] = (
                old
                if old is not None and same
                else IncorrectSize(current=registered, expected=target, first_observed=now)
            )
    return incorrect


def get_autoscaled_nodes_count(state: ClusterStateRegistry) -> tuple[int, int]:
    """Return the number of started nodes in the groups, and the sum of the groups' target sizes."""
    current = sum(len(known.registered) - len(known.not_started) for known in state.readiness.values())
    return current, sum(item.current_target for item in state.ranges.values())


def get_backoff_status(
    state: ClusterStateRegistry, group: str, now: datetime | Moment, *, has_template: bool = True
) -> Backoff | None:
    """Return the back-off of a group if it has not ended, otherwise None.

    ``has_template`` False: the group had no template when ``state`` was updated, so that no back-off applies (None).
    Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    return get_active_backoff(state.backoffs, group, now) if has_template else None


def is_cluster_healthy(state: ClusterStateRegistry, options: AutoscalingOptions) -> bool:
    """Check whether the number of unready nodes is acceptable.

    False if there are more unready nodes than ``ok_total_unready_count`` and more than ``max_total_unready_percentage``
    of all nodes. Release 1.3 also counts long unregistered instances.
    """
    unready = len(state.total.unready)
    if options.legacy:
        unready += len(state.total.long_unregistered)
    share = options.max_total_unready_percentage / 100.0 * state.node_count
    return not (unready > options.ok_total_unready_count and unready > share)


def is_group_healthy(state: ClusterStateRegistry, group: str, options: AutoscalingOptions) -> bool:
    """Check whether few enough nodes of a group are missing.

    False if the group's size is unknown, or if more nodes are missing than ``ok_total_unready_count`` and more than
    ``max_total_unready_percentage`` of its present nodes. A group that never had nodes is healthy if none are required
    yet.
    """
    expected = state.ranges.get(group)
    if expected is None:
        return False
    known = state.readiness.get(group)
    if known is None:
        return expected.current_target == 0 or (expected.min_nodes == 0 and expected.current_target > 0)
    missing = max(0, expected.min_nodes - len(known.ready) - len(known.suspended))
    present = len(known.ready) + len(known.unready) + len(known.not_started) + len(known.suspended)
    share = options.max_total_unready_percentage / 100.0 * present
    return not (missing > options.ok_total_unready_count and missing > share)


def is_safe_to_scale_up(
    state: ClusterStateRegistry,
    group: str,
    now: datetime | Moment,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> bool:
    """Check whether a group is healthy and not in back-off. ``has_template``: as in :func:`get_backoff_status`.

    Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    if not is_group_healthy(state, group, options):
        return False
    return get_backoff_status(state, group, now, has_template=has_template) is None


class UpcomingNodes(msgspec.Struct, kw_only=True, frozen=True):
    """Number of upcoming nodes of a group, and the names of those that have registered but not started."""

    count: int
    registered: list[str] = []


def count_upcoming_nodes(state: ClusterStateRegistry, group: str) -> int:
    """Return how many nodes the group lacks compared to its target size; negative if it has too many.

    Nodes that are starting count as lacking, long unregistered instances do not. 0 if the target is unknown.
    """
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
    """Check whether nodes that were requested for the group have not started yet."""
    return group in state.scale_up_requests and count_upcoming_nodes(state, group) > 0


def get_upcoming_nodes(
    state: ClusterStateRegistry, groups: Groups, now: datetime | Moment, *, templates: Container[str] | None = None
) -> dict[str, UpcomingNodes]:
    """Return the nodes that are requested but not present, by group id; groups in back-off are left out.

    Groups are in the provider's order. ``templates``: ids of groups that have a template (None: all have); for others
    no back-off applies. Groups without a running scale-up are left out. A group that is still being created expects its
    target size (0 if it cannot be read). Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    upcoming: dict[str, UpcomingNodes] = {}
    for group in groups:
        if group.upcoming:
            size = 0 if group.target_size_error is not None else group.size
            upcoming[group.id] = UpcomingNodes(count=size)
        elif is_scaling_up(state, group.id):
            has_template = templates is None or group.id in templates
            if get_backoff_status(state, group.id, now, has_template=has_template) is not None:
                continue
            known = state.readiness.get(group.id)
            upcoming[group.id] = UpcomingNodes(
                count=count_upcoming_nodes(state, group.id), registered=[] if known is None else list(known.not_started)
            )
    return upcoming


HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
IN_PROGRESS: Final = "InProgress"
NO_ACTIVITY: Final = "NoActivity"
IN_BACKOFF: Final = "Backoff"
CANDIDATES_PRESENT: Final = "CandidatesPresent"
NO_CANDIDATES: Final = "NoCandidates"

MAX_ERROR_BYTES: Final = 500
_TRUNCATION_MARKER: Final = b"<truncated>"


def build_cluster_status(
    state: ClusterStateRegistry,
    groups: Groups,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions,
    templates: Container[str] | None = None,
) -> ClusterAutoscalerStatus:
    """Build the status after a loop. Call it once per loop and store the result as ``state.last_status``.

    Groups that are still being created are left out. Raises InputError if ``now`` is not a time.

    A condition with unchanged status keeps its transition time from ``state.last_status``. ``templates``: ids of groups
    that have a template (None: all have); for others no back-off applies.
    """
    now = moment(now)
    before = state.last_status
    known = {} if before is None or before.node_groups is UNSET else {each.name: each for each in before.node_groups}
    probed = _format_probe_time(state.last_update, options)
    scanned = _format_probe_time(state.last_scale_down_update, options)
    group_statuses = []
    for group in groups:
        if group.upcoming:
            continue
        old = known.get(group.id, NodeGroupStatus())
        has_template = templates is None or group.id in templates
        group_statuses.append(
            NodeGroupStatus(
                name=group.id,
                health=_with_transition_time(old.health, _build_group_health(state, group, options, probed)),
                scale_up=_with_transition_time(
                    old.scale_up, _build_group_scale_up(state, group, now, options, probed, has_template)
                ),
                scale_down=_with_transition_time(
                    old.scale_down, _build_scale_down_candidates(len(state.candidates.get(group.id, ())), scanned)
                ),
            )
        )
    previous = ClusterWideStatus() if before is None else before.cluster_wide
    healthy = is_cluster_healthy(state, options)
    growing = any(each.scale_up.status == IN_PROGRESS for each in group_statuses)
    health = ClusterHealth(
        status=HEALTHY if healthy else UNHEALTHY, node_counts=_build_node_counts(state.total), last_probe_time=probed
    )
    scale_up = ClusterScaleUp(status=IN_PROGRESS if growing else NO_ACTIVITY, last_probe_time=probed)
    return ClusterAutoscalerStatus(
        cluster_wide=ClusterWideStatus(
            health=_with_transition_time(previous.health, health),
            scale_up=_with_transition_time(previous.scale_up, scale_up),
            scale_down=_with_transition_time(
                previous.scale_down, _build_scale_down_candidates(sum(map(len, state.candidates.values())), scanned)
            ),
        ),
        node_groups=group_statuses or UNSET,
    )


_C = TypeVar("_C", bound=StatusCondition)


def _with_transition_time(old: _C, new: _C) -> _C:
    """Return ``new`` with a transition time.

    It is that of ``old`` if both have the same status, otherwise the probe time of ``new``.
    """
    same = old.status == new.status
    return replace(new, last_transition_time=old.last_transition_time if same else new.last_probe_time)


def _format_probe_time(time: Moment | None, options: AutoscalingOptions) -> str | None:
    """Format a time as the API does, in integral seconds; for release 1.3 with nanoseconds. None stays None."""
    if time is None:
        return None
    printed, rest = to_text(time), time % SECOND
    if printed is None or not (options.legacy and rest):
        return printed
    return f"{printed.removesuffix('Z')}.{rest:09d}Z"


def _build_node_counts(known: GroupReadiness) -> NodeCounts:
    """Build the node counts of the status from the readiness lists."""
    return NodeCounts(
        registered=RegisteredCount(
            total=len(known.registered),
            ready=len(known.ready),
            not_started=len(known.not_started),
            suspended=len(known.suspended),
            being_deleted=len(known.deleted) or UNSET,
            unready=UnreadyCount(total=len(known.unready), resource_unready=len(known.resource_unready)),
        ),
        long_unregistered=len(known.long_unregistered),
        unregistered=len(known.unregistered),
    )


def _build_group_health(
    state: ClusterStateRegistry, group: NodeGroup, options: AutoscalingOptions, probed: str | None
) -> GroupHealth:
    """Build the health of a group for the status. ``probed``: formatted probe time."""
    known = state.readiness.get(group.id)
    return GroupHealth(
        status=HEALTHY if is_group_healthy(state, group.id, options) else UNHEALTHY,
        node_counts=_build_node_counts(known or GroupReadiness()),
        cloud_provider_target=state.ranges.get(group.id, AcceptableRange()).current_target,
        min_size=group.min_size,
        max_size=group.max_size,
        last_probe_time=None if known is None else probed,
    )


def _build_group_scale_up(
    state: ClusterStateRegistry,
    group: NodeGroup,
    now: Moment,
    options: AutoscalingOptions,
    probed: str | None,
    has_template: bool,
) -> GroupScaleUp:
    """Build the scale-up status of a group.

    ``probed``: formatted probe time. ``has_template``: see :func:`get_backoff_status`.
    """
    backoff = get_backoff_status(state, group.id, now, has_template=has_template)
    info = BackoffInfo()
    if is_scaling_up(state, group.id):
        status = IN_PROGRESS
    elif not is_group_healthy(state, group.id, options):
        status = IN_BACKOFF if options.legacy else UNHEALTHY  # release 1.3 does not distinguish the two
    elif backoff is not None:
        status = IN_BACKOFF
        info = BackoffInfo(
            error_code=backoff.error.code or UNSET,
            error_message=truncate_message(backoff.error.message, MAX_ERROR_BYTES) or UNSET,
        )
    else:
        status = NO_ACTIVITY
    probed = probed if group.id in state.readiness else None
    return GroupScaleUp(status=status, backoff_info=info, last_probe_time=probed)


def _build_scale_down_candidates(count: int, scanned: str | None) -> ScaleDownCandidates:
    """Build the scale-down status for ``count`` unneeded nodes. ``scanned``: formatted time of the last pass."""
    status = CANDIDATES_PRESENT if count else NO_CANDIDATES
    return ScaleDownCandidates(status=status, candidates=count or UNSET, last_probe_time=scanned)


def truncate_message(text: str, max_bytes: int) -> str:
    """Shorten the text to ``max_bytes`` bytes of UTF-8; a text that is short enough is returned unchanged.

    A shortened text ends with a truncation marker, unless ``max_bytes`` is less than the marker's length. A character
    that would be split is left out.
    """
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text
    length = max_bytes - len(_TRUNCATION_MARKER)
    cut = raw[:length] + _TRUNCATION_MARKER if length >= 0 else raw[:max_bytes]
    return cut.decode(errors="ignore")
