"""NodeName (6.2)."""

from __future__ import annotations

from typing import Any

from reference.cluster import Cluster, Json, NodeState, PreFiltered, Status, unresolvable

NAME = "NodeName"


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    node_name = pod["spec"].get("nodeName")
    return PreFiltered(node_names={node_name}) if node_name else PreFiltered()


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    if pod["spec"].get("nodeName") in (None, "", node.name):
        return None
    return unresolvable("node(s) didn't match the requested node name")
