"""PodTopologySpread (6.11)."""

from __future__ import annotations

from dataclasses import dataclass

from reference.cluster import (
    SKIPPED,
    Cluster,
    Json,
    NodeState,
    PreFiltered,
    Status,
    error,
    labels_of,
    namespace_of,
    unresolvable,
    unschedulable,
)
from reference.labels import Selector, SelectorError, first_untolerated, label_selector, matches
from reference.plugins import node_affinity

NAME = "PodTopologySpread"
REASON = "node(s) didn't match pod topology spread constraints"


@dataclass
class Constraint:
    key: str
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool
    selector: Selector
    counts: dict[str, int]


def constraint(raw: Json, selector: Selector) -> Constraint:
    return Constraint(
        key=raw["topologyKey"],
        max_skew=raw["maxSkew"],
        min_domains=1 if raw.get("minDomains") is None else raw["minDomains"],
        honor_affinity=(raw.get("nodeAffinityPolicy") or "Honor") == "Honor",
        honor_taints=(raw.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        selector=selector,
        counts={},
    )


def hard_constraints(pod: Json, cluster: Cluster) -> list[Constraint]:
    own = pod["spec"].get("topologySpreadConstraints") or []
    if not own:
        return default_constraints(pod, cluster)
    result = []
    for raw in own:
        if raw.get("whenUnsatisfiable") != "DoNotSchedule":
            continue
        selector = label_selector(raw.get("labelSelector"))
        if selector is not None:
            values = labels_of(pod)
            selector += [(key, "In", [values[key]]) for key in raw.get("matchLabelKeys") or [] if key in values]
        result.append(constraint(raw, selector))
    return result


def default_constraints(pod: Json, cluster: Cluster) -> list[Constraint]:
    """The configured list, with the selector of whatever selects or owns the pod."""
    hard = [raw for raw in cluster.options.default_constraints if raw.get("whenUnsatisfiable") == "DoNotSchedule"]
    selector = default_selector(pod, cluster) if hard else []
    return [constraint(raw, selector) for raw in hard] if selector else []


def default_selector(pod: Json, cluster: Cluster) -> list:
    """Of the Services that select the pod and of the controller that owns it; [] is none."""
    namespace = namespace_of(pod)
    labels: Json = {}
    for service in cluster.all("Service"):
        chosen = service["spec"].get("selector")
        if namespace_of(service) == namespace and chosen is not None:
            have = labels_of(pod)
            if all(have.get(key) == value for key, value in chosen.items()):
                labels.update(chosen)
    more: list = []
    for owner in pod["metadata"].get("ownerReferences") or []:
        if not owner.get("controller"):
            continue
        controller = cluster.get(owner["kind"], owner["name"], namespace)
        if controller is None:
            continue
        if owner["kind"] == "ReplicationController":
            labels.update(controller["spec"].get("selector") or {})
        elif owner["kind"] in ("ReplicaSet", "StatefulSet"):
            more = label_selector(controller["spec"].get("selector")) or []
    return [(key, "In", [value]) for key, value in labels.items()] + more


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    try:
        constraints = hard_constraints(pod, cluster)
    except SelectorError as problem:
        text = f"get constraints from pod: obtaining pod's hard topology spread constraints: {problem}"
        return PreFiltered(error(text))
    if not constraints:
        return PreFiltered(SKIPPED)
    for node in cluster.nodes:
        if not all(each.key in node.labels for each in constraints):
            continue
        for each in constraints:
            if each.honor_affinity and not node_affinity.selects(pod, node):
                continue
            if each.honor_taints and first_untolerated(pod, node.node) is not None:
                continue
            value = node.labels[each.key]
            each.counts[value] = each.counts.get(value, 0) + count_pods(pod, node, each.selector)
    return PreFiltered(state=constraints)


def count_pods(pod: Json, node: NodeState, selector: Selector) -> int:
    if selector == []:  # upstream's shortcut: a selector of everything counts nothing
        return 0
    return sum(
        namespace_of(placed) == namespace_of(pod)
        and not placed["metadata"].get("deletionTimestamp")
        and matches(selector, labels_of(placed))
        for placed in node.pods
    )


def check(state: list[Constraint], pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    for each in state:
        if each.key not in node.labels:
            return unresolvable(REASON + " (missing required label)")
        minimum = min(each.counts.values(), default=0)
        if len(each.counts) < each.min_domains:
            minimum = 0
        itself = 1 if matches(each.selector, labels_of(pod)) else 0
        if each.counts.get(node.labels[each.key], 0) + itself - minimum > each.max_skew:
            return unschedulable(REASON)
    return None
