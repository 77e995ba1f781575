"""DynamicResources (6.13): placeholder until the allocator module lands."""

from __future__ import annotations

from typing import Any

from reference.cluster import SKIPPED, Cluster, Json, NodeState, PreFiltered, Status, unresolvable

NAME = "DynamicResources"


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    if not pod["spec"].get("resourceClaims"):
        return PreFiltered(SKIPPED)
    return PreFiltered(unresolvable("object not found: dra manager is disabled"))


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    return None


def reserve(pod: Json, node: NodeState, cluster: Cluster) -> None:
    return None
