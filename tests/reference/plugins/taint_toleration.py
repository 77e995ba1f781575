"""TaintToleration (6.3)."""

from __future__ import annotations

from typing import Any

from reference.cluster import Cluster, Json, NodeState, PreFiltered, Status, unresolvable
from reference.labels import first_untolerated

NAME = "TaintToleration"


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    return PreFiltered()


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    if first_untolerated(pod, node.node) is None:
        return None
    return unresolvable("node(s) had untolerated taint(s)")
