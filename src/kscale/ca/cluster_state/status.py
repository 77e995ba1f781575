"""Build the status of the cluster and its node groups (upstream: ``clusterstate/clusterstate.go``: GetStatus)."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from typing import Final, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from kscale.ca.cluster_state.health import get_backoff_status, is_cluster_healthy, is_group_healthy, is_scaling_up
from kscale.ca.cluster_state.state import (
    AcceptableRange,
    BackoffInfo,
    ClusterAutoscalerStatus,
    ClusterHealth,
    ClusterScaleUp,
    ClusterStateRegistry,
    ClusterWideStatus,
    GroupHealth,
    GroupReadiness,
    GroupScaleUp,
    NodeCounts,
    NodeGroupStatus,
    RegisteredCount,
    ScaleDownCandidates,
    StatusCondition,
    UnreadyCount,
)
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Moment, moment, to_text
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups

__all__ = ["build_cluster_status", "truncate_message"]

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
    """Build the status after a loop. Call it once per loop and store the result.

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
    """Return the new condition with the time at which its status became the current one."""
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
    status = CANDIDATES_PRESENT if count else NO_CANDIDATES
    return ScaleDownCandidates(status=status, candidates=count or UNSET, last_probe_time=scanned)


def truncate_message(text: str, most: int) -> str:
    """Return at most ``most`` bytes of the text, with a truncation marker at the end if it fits.

    A character that would be split is left out.
    """
    raw = text.encode()
    if len(raw) <= most:
        return text
    cut = raw[: most - len(_TRUNCATION_MARKER)] + _TRUNCATION_MARKER if most >= len(_TRUNCATION_MARKER) else raw[:most]
    return cut.decode(errors="ignore")
