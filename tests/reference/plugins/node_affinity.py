"""NodeAffinity (6.4)."""

from __future__ import annotations

from typing import Any

from reference.cluster import SKIPPED, Cluster, Json, NodeState, PreFiltered, Status, unresolvable
from reference.labels import matches_map, node_selector_matches

NAME = "NodeAffinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def required(pod: Json) -> Json | None:
    """The required node affinity object of a pod, or None."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get(REQUIRED)


def selects(pod: Json, node: NodeState) -> bool:
    """Whether nodeSelector and required node affinity both match."""
    if not matches_map(pod["spec"].get("nodeSelector"), node.labels):
        return False
    selector = required(pod)
    return selector is None or node_selector_matches(selector, node.labels, node.name)


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    selector = required(pod)
    if selector is None and not cluster.options.added_affinity and pod["spec"].get("nodeSelector") is None:
        return PreFiltered(SKIPPED)
    terms = (selector or {}).get("nodeSelectorTerms") or []
    names: set[str] = set()
    for term in terms:
        term_names: set[str] | None = None
        for field in term.get("matchFields") or []:
            if field.get("key") == "metadata.name" and field.get("operator") == "In":
                values = set(field.get("values") or [])
                term_names = values if term_names is None else term_names & values
        if term_names is None:
            return PreFiltered()
        names |= term_names
    if terms and not names:
        return PreFiltered(unresolvable("pod affinity terms conflict"))
    return PreFiltered(node_names=names if terms else None)


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    added = (cluster.options.added_affinity or {}).get(REQUIRED)
    if added is not None and not node_selector_matches(added, node.labels, node.name):
        return unresolvable("node(s) didn't match scheduler-enforced node affinity")
    if not selects(pod, node):
        return unresolvable("node(s) didn't match Pod's node affinity/selector")
    return None
