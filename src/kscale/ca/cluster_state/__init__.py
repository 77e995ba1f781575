"""State of node groups: readiness, scale-up and scale-down requests, back-off and expected sizes.

Upstream: ``clusterstate/clusterstate.go``. The state is plain data that can be stored as JSON; functions return a new
state. :func:`update_nodes_steps` is a step machine, because upstream acts during the update (it gives up on nodes that
never registered); :func:`update_nodes` runs it as if every action succeeded.
"""

from __future__ import annotations

from kscale.ca.cluster_state.health import (
    UpcomingNodes,
    build_cluster_status,
    count_upcoming_nodes,
    get_autoscaled_nodes_count,
    get_backoff_status,
    get_upcoming_nodes,
    is_cluster_healthy,
    is_group_healthy,
    is_safe_to_scale_up,
    is_scaling_up,
    recalculate_ranges,
)
from kscale.ca.cluster_state.state import (
    AcceptableRange,
    ClusterAutoscalerStatus,
    ClusterStateRegistry,
    GroupReadiness,
    IncorrectSize,
    ScaleDownRequest,
    ScaleUpFailure,
    ScaleUpRequest,
    UnregisteredNode,
    build_initializing_status,
)
from kscale.ca.cluster_state.update import (
    ClusterUpdate,
    ClusterUpdateAction,
    clear_scale_up_failures,
    get_scale_up_time,
    register_failed_scale_up,
    register_scale_down,
    register_scale_up,
    update_nodes,
    update_nodes_steps,
    update_scale_down_candidates,
)

__all__ = [
    "AcceptableRange",
    "ClusterAutoscalerStatus",
    "ClusterStateRegistry",
    "ClusterUpdate",
    "ClusterUpdateAction",
    "GroupReadiness",
    "IncorrectSize",
    "ScaleDownRequest",
    "ScaleUpFailure",
    "ScaleUpRequest",
    "UnregisteredNode",
    "UpcomingNodes",
    "build_cluster_status",
    "build_initializing_status",
    "clear_scale_up_failures",
    "count_upcoming_nodes",
    "get_autoscaled_nodes_count",
    "get_backoff_status",
    "get_scale_up_time",
    "get_upcoming_nodes",
    "is_cluster_healthy",
    "is_group_healthy",
    "is_safe_to_scale_up",
    "is_scaling_up",
    "recalculate_ranges",
    "register_failed_scale_up",
    "register_scale_down",
    "register_scale_up",
    "update_nodes",
    "update_nodes_steps",
    "update_scale_down_candidates",
]
