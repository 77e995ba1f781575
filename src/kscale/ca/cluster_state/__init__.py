"""What the autoscaler believes about its node groups: readiness, requests under way, back-off, sizes to expect.

Upstream: ``clusterstate/clusterstate.go``. The state is plain data: it goes in, the new one comes out, and it survives
JSON. Where upstream acts in the middle (giving up on nodes that never came) :func:`update_nodes_steps` is a step
machine; :func:`update_nodes` runs it as if every action succeeded.
"""

from __future__ import annotations

from kscale.ca.cluster_state.health import backoff_status, is_cluster_healthy, is_group_healthy, is_safe_to_scale_up
from kscale.ca.cluster_state.registering import (
    forget_failures,
    register_candidates,
    register_failed_scale_up,
    register_scale_down,
    register_scale_up,
    scale_up_time,
)
from kscale.ca.cluster_state.sizes import autoscaled_nodes_count, recalculate
from kscale.ca.cluster_state.state import (
    AcceptableRange,
    ClusterStateRegistry,
    GroupReadiness,
    IncorrectSize,
    ScaleDownRequest,
    ScaleUpFailure,
    ScaleUpRequest,
    UnregisteredNode,
)
from kscale.ca.cluster_state.status import cluster_status
from kscale.ca.cluster_state.status_document import ClusterAutoscalerStatus, initializing_status
from kscale.ca.cluster_state.upcoming import UpcomingNodes, is_scaling_up, upcoming_count, upcoming_nodes
from kscale.ca.cluster_state.update import ClusterUpdate, Updating, update_nodes, update_nodes_steps

__all__ = [
    "AcceptableRange",
    "ClusterAutoscalerStatus",
    "ClusterStateRegistry",
    "ClusterUpdate",
    "GroupReadiness",
    "IncorrectSize",
    "ScaleDownRequest",
    "ScaleUpFailure",
    "ScaleUpRequest",
    "UnregisteredNode",
    "UpcomingNodes",
    "Updating",
    "autoscaled_nodes_count",
    "backoff_status",
    "cluster_status",
    "forget_failures",
    "initializing_status",
    "is_cluster_healthy",
    "is_group_healthy",
    "is_safe_to_scale_up",
    "is_scaling_up",
    "recalculate",
    "register_candidates",
    "register_failed_scale_up",
    "register_scale_down",
    "register_scale_up",
    "scale_up_time",
    "upcoming_count",
    "upcoming_nodes",
    "update_nodes",
    "update_nodes_steps",
]
