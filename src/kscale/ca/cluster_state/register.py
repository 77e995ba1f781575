"""Register scale-ups, scale-downs and failed scale-ups of node groups (upstream: ``RegisterScaleUp``,
``RegisterScaleDown``, ``RegisterFailedScaleUp``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from kscale.ca.cluster_state.state import (
    ClusterStateRegistry,
    ScaleDownRequest,
    ScaleUpError,
    ScaleUpFailure,
    ScaleUpRequest,
    record_failure,
)
from kscale.ca.errors import AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Moment, duration, later, moment
from kscale.effects.moments import ComparedDuration
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups

__all__ = [
    "clear_scale_up_failures",
    "get_scale_up_time",
    "register_failed_scale_up",
    "register_scale_down",
    "register_scale_up",
    "update_scale_down_candidates",
]

SCALE_DOWN_TIMEOUT: Final[ComparedDuration] = 300 * SECOND
"""For how long a deletion that the cloud accepted is still expected to show."""


def register_scale_up(
    state: ClusterStateRegistry, group: NodeGroup, delta: int, now: datetime | Moment, options: AutoscalingOptions
) -> ClusterStateRegistry:
    """Register a change of a group's target size by ``delta`` (negative: decreased).

    A pending request grows by ``delta``; a positive ``delta`` restarts its time. The state is returned unchanged if the
    group's options cannot be read.
    """
    now = moment(now)
    try:
        provision = duration(group.options_or(options.node_group_defaults).max_node_provision_time)
    except ProviderError:
        return state
    requests = dict(state.scale_up_requests)
    old = requests.get(group.id)
    if old is None:
        if delta > 0:
            requests[group.id] = ScaleUpRequest(increase=delta, time=now, expected_add_time=later(now, provision))
    elif old.increase + delta <= 0:
        del requests[group.id]
    else:
        requests[group.id] = ScaleUpRequest(
            increase=old.increase + delta,
            time=now if delta > 0 else old.time,
            expected_add_time=later(now, provision) if delta > 0 else old.expected_add_time,
        )
    return replace(state, scale_up_requests=requests)


def register_scale_down(
    state: ClusterStateRegistry, group: str, node: str, now: datetime | Moment
) -> ClusterStateRegistry:
    """Register a node deletion that the cloud provider accepted."""
    now = moment(now)
    request = ScaleDownRequest(group=group, node=node, time=now, expected_delete_time=later(now, SCALE_DOWN_TIMEOUT))
    return replace(state, scale_down_requests=[*state.scale_down_requests, request])


def get_scale_up_time(state: ClusterStateRegistry, group: NodeGroup | None) -> Moment:
    """Return the time at which the group's scale-up request last grew (``NodeGroupScaleUpTime``).

    Raises :class:`~kscale.ca.AutoscalerError` without a group or a request.
    """
    if group is None:
        raise AutoscalerError("", "failed to find scaleUpRequest for node group: unexpected node group passed")
    request = state.scale_up_requests.get(group.id)
    if request is None:
        raise AutoscalerError("", f"failed to find scaleUpRequest for node group: {group.id}")
    return request.time


def register_failed_scale_up(
    state: ClusterStateRegistry,
    group: str,
    error: ScaleUpError,
    delta: int,
    now: datetime | Moment,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> ClusterStateRegistry:
    """Register a failed scale-up. A group without template never enters back-off, as upstream."""
    now = moment(now)
    failure = ScaleUpFailure(time=now, delta=delta, error=error)
    failures = {**state.failures, group: [*state.failures.get(group, []), failure]}
    backoffs = state.backoffs
    if has_template:
        backoffs = record_failure(
            backoffs,
            group,
            error,
            now,
            initial=duration(options.initial_node_group_backoff_duration),
            maximum=duration(options.max_node_group_backoff_duration),
        )
    return replace(state, failures=failures, backoffs=backoffs)


def update_scale_down_candidates(
    state: ClusterStateRegistry, unneeded: Iterable[str], groups: Groups, now: datetime | Moment
) -> ClusterStateRegistry:
    """Set the unneeded nodes of the last scale-down pass, by group; nodes without group are omitted."""
    now = moment(now)
    candidates: dict[str, list[str]] = {}
    for name in unneeded:
        try:
            group = groups.id_of_node(name)
        except ProviderError:
            continue
        if group is not None:
            candidates.setdefault(group, []).append(name)
    return replace(state, candidates=candidates, last_scale_down_update=now)


def clear_scale_up_failures(state: ClusterStateRegistry) -> ClusterStateRegistry:
    """Return the state without the scale-up failures of the previous loop, which are already reported."""
    return replace(state, failures={}) if state.failures else state
