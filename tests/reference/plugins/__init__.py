"""The fourteen plug-ins of the default profile (Kubernetes 1.37), in PreFilter and Filter order.

A plug-in module has NAME, `pre_filter(pod, cluster) -> PreFiltered` and
`check(state, pod, node, cluster) -> Status | None`.
"""

from __future__ import annotations

from reference.plugins import (
    declared_features,
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_unschedulable,
    resources_fit,
    taint_toleration,
    topology_spread,
    volume_binding,
    volume_limits,
    volume_restrictions,
    volume_zone,
)

PROFILE = (
    node_name,
    node_unschedulable,
    taint_toleration,
    node_affinity,
    node_ports,
    resources_fit,
    volume_restrictions,
    volume_limits,
    volume_binding,
    volume_zone,
    topology_spread,
    inter_pod_affinity,
    dynamic_resources,
    declared_features,
)
