"""NodeUnschedulable (6.1)."""

from __future__ import annotations

from typing import Any

from reference.cluster import Cluster, Json, NodeState, PreFiltered, Status, unresolvable
from reference.labels import tolerates

NAME = "NodeUnschedulable"
TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    return PreFiltered()


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    if not (node.node.get("spec") or {}).get("unschedulable"):
        return None
    if any(tolerates(toleration, TAINT) for toleration in pod["spec"].get("tolerations") or []):
        return None
    return unresolvable("node(s) were unschedulable")
