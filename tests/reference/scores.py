"""What kube-scheduler's Score plug-ins give the nodes that take a pod (`plugins/*/scoring.go` and their like): one
function a plug-in, over API data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from reference import labels, resources
from reference.cluster import Cluster, Json, NodeState, namespace_of
from reference.plugins import inter_pod_affinity, node_affinity, topology_spread, volume_binding
from reference.resources import quantity
from reference.volumes import claim_names, claim_of, class_name

MOST = 100
NON_ZERO = {"cpu": "100m", "memory": str(200 * 1024 * 1024)}
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
PREFERRED, REQUIRED = (
    "preferredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingIgnoredDuringExecution",
)
Numbers = list[int]


def normalized(scores: Numbers, *, reverse: bool) -> Numbers:
    most = max(scores, default=0)
    if most == 0:
        return [MOST for _ in scores] if reverse else scores
    result = [MOST * score // most for score in scores]
    return [MOST - score for score in result] if reverse else result


# -- TaintToleration ---------------------------------------------------------------------------------------------------


def taint_toleration(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
    soft = [t for t in pod["spec"].get("tolerations") or [] if t.get("effect", "") in ("", "PreferNoSchedule")]

    def untolerated(node: NodeState) -> int:
        taints = [t for t in (node.node.get("spec") or {}).get("taints") or [] if t["effect"] == "PreferNoSchedule"]
        return sum(not any(labels.tolerates(each, taint) for each in soft) for taint in taints)

    return normalized([untolerated(node) for node in nodes], reverse=True)


# -- NodeAffinity ------------------------------------------------------------------------------------------------------


def node_affinity_wishes(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
    wishes = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED) or []

    def weight(node: NodeState) -> int:
        return sum(
            wish["weight"]
            for wish in wishes
            if labels.node_selector_matches({"nodeSelectorTerms": [wish["preference"]]}, node.labels, node.name)
        )

    return normalized([weight(node) for node in nodes], reverse=False)


# -- resources ---------------------------------------------------------------------------------------------------------


def filled(container: Json, amounts: dict[str, str]) -> Json:
    own = (container.get("resources") or {}).get("requests") or {}
    return {**container, "resources": {"requests": {**amounts, **own}}}


def with_defaults(pod: Json, amounts: dict[str, str]) -> Json:
    """The pod with what each container is taken to ask for."""
    spec = pod["spec"]
    parts = {kind: [filled(c, amounts) for c in spec.get(kind) or []] for kind in ("containers", "initContainers")}
    return {**pod, "spec": {**spec, **parts}}


def non_zero(placed: Json) -> dict[str, int]:
    """What a placed pod is taken to take of cpu and memory. With requests for the pod as a whole, what is known then is
    not filled in."""
    known = resources.occupancy(placed) if resources.pod_level_requests(placed) else {}
    missing = {name: amount for name, amount in NON_ZERO.items() if name not in known}
    return resources.as_integers(resources.occupancy(with_defaults(placed, missing)))


def allocatable(node: NodeState) -> dict[str, int]:
    amounts = (node.node.get("status") or {}).get("allocatable")
    return resources.as_integers(resources.quantities(amounts))


def shares(pod: Json, node: NodeState, names: Iterable[str], *, fill: bool) -> list[tuple[str, int, int, int]]:
    """(resource, asked, used, allocatable) of the resources that count."""
    have = allocatable(node)
    if fill:  # which is without requests of the pod as a whole
        pod = with_defaults({**pod, "spec": {**pod["spec"], "resources": None}}, NON_ZERO)
    requested = resources.as_integers(resources.demand(pod))
    used: dict[str, int] = {}
    for placed in node.pods:
        occupied = resources.as_integers(resources.occupancy(placed))
        if fill:
            more = non_zero(placed)
            occupied |= {name: more[name] for name in ("cpu", "memory") if name in more}
        for name, amount in occupied.items():
            used[name] = used.get(name, 0) + amount
    result = []
    for name in names:
        if have.get(name, 0) == 0 or (requested.get(name, 0) == 0 and resources.is_scalar(name)):
            continue
        result.append((name, requested.get(name, 0), used.get(name, 0), have[name]))
    return result


def broken_line(shape: list[tuple[int, int]], at: int) -> int:
    if at <= shape[0][0]:
        return shape[0][1]
    for (x0, y0), (x1, y1) in pairwise(shape):
        if at <= x1:
            return y0 + int((y1 - y0) * (at - x0) / (x1 - x0))
    return shape[-1][1]


def resources_fit(strategy: str, weights: dict[str, int], shape: list[tuple[int, int]]) -> Callable[..., Numbers]:
    def one(requested: int, capacity: int) -> int:
        if strategy == "LeastAllocated":
            return 0 if requested > capacity else (capacity - requested) * MOST // capacity
        if strategy == "MostAllocated":
            return min(requested, capacity) * MOST // capacity
        percent = 100 if requested > capacity else max(0, requested) * 100 // capacity
        return broken_line([(x, 10 * y) for x, y in shape], percent)

    def score(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
        result = []
        for node in nodes:
            parts = [
                (one(used + request, have), weights[name])
                for name, request, used, have in shares(pod, node, weights, fill=True)
            ]
            if strategy == "RequestedToCapacityRatio":
                parts = [(score, weight) for score, weight in parts if score > 0]
            total, weight = sum(score * weight for score, weight in parts), sum(weight for _, weight in parts)
            if strategy == "RequestedToCapacityRatio":
                result.append(math.floor(total / weight + 0.5) if weight else 0)
            else:
                result.append(total // weight if weight else 0)
        return result

    return score


def deviation(fractions: list[float]) -> float:
    fractions = [min(1.0, fraction) for fraction in fractions]
    if len(fractions) < 2:
        return 0.0
    if len(fractions) == 2:
        return abs((fractions[0] - fractions[1]) / 2)
    mean = sum(fractions) / len(fractions)
    total = 0.0
    for fraction in fractions:
        total = total + (fraction - mean) * (fraction - mean)
    return math.sqrt(total / len(fractions))


def balanced_allocation(names: list[str]) -> Callable[..., Numbers]:
    def score(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
        requested = resources.as_integers(resources.demand(pod))
        if not any(requested.get(name, 0) for name in names):
            return [0 for _ in nodes]
        result = []
        for node in nodes:
            parts = shares(pod, node, names, fill=False)
            after = int((1 - deviation([(used + requested) / have for _, requested, used, have in parts])) * MOST)
            before = int((1 - deviation([used / have for _, _, used, have in parts])) * MOST)
            result.append(50 + int((50 + after - before) / 2))
        return result

    return score


# -- ImageLocality -----------------------------------------------------------------------------------------------------


def with_tag(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else name + ":latest"


def image_locality(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
    spec = pod["spec"]
    image_names = [c.get("image", "") for kind in ("initContainers", "containers") for c in spec.get(kind) or []]
    image_names += [v["image"].get("reference", "") for v in spec.get("volumes") or [] if v.get("image") is not None]
    least, most = 23 * 2**20, 1000 * 2**20 * len(image_names)

    def pulled(node: NodeState) -> list[tuple[str, int]]:
        images = (node.node.get("status") or {}).get("images") or []
        return [(name, image["sizeBytes"]) for image in images for name in image["names"]]

    def score(node: NodeState) -> int:
        total = 0
        for name in map(with_tag, image_names):
            having = [other for other in cluster.nodes if name in dict(pulled(other))]
            if any(other.name == node.name for other in having):
                size = next(size for each, size in pulled(having[0]) if each == name)
                total += int(float(size) * (len(having) / len(cluster.nodes)))
        return 0 if total < least else MOST * (min(total, most) - least) // (most - least)

    return [score(node) for node in nodes]


# -- VolumeBinding -----------------------------------------------------------------------------------------------------


def storage_capacity(shape: list[tuple[int, int]]) -> Callable[..., Numbers]:
    def score(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
        claims = [claim for name, _ in claim_names(pod) if (claim := claim_of(pod, name, cluster)) is not None]
        waiting = [claim for claim in claims if not volume_binding.is_bound(claim)]
        return [of_node(volume_binding.delayed(waiting, node, cluster)) for node in nodes]

    def of_node(node_volumes: Any) -> int:
        bindings, provisions = node_volumes
        classes: dict[str, list[tuple[int, int]]] = {}
        if bindings:
            for claim, volume in bindings:
                there = quantity(volume["spec"]["capacity"]["storage"]).value()
                classes.setdefault(volume["spec"].get("storageClassName", ""), []).append(
                    (requested_bytes(claim), there)
                )
            used = {name: (sum(a for a, _ in each), sum(b for _, b in each)) for name, each in classes.items()}
        else:
            for claim, capacity in provisions:
                if capacity is not None:
                    there = quantity(capacity.get("capacity", "0")).value()
                    classes.setdefault(class_name(claim), []).append((requested_bytes(claim), there))
            used = {name: (sum(a for a, _ in each), each[-1][1]) for name, each in classes.items()}
        scores = [
            line(100 if there == 0 or requested > there else requested * 100 // there)
            for requested, there in used.values()
        ]
        return math.floor(sum(scores) / len(scores) + 0.5) if scores else 0

    def requested_bytes(claim: Json) -> int:
        return quantity(claim["spec"]["resources"]["requests"]["storage"]).value()

    def line(percent: int) -> int:
        return broken_line([(x, 10 * y) for x, y in shape], percent)

    return score


# -- PodTopologySpread -------------------------------------------------------------------------------------------------


def soft_constraints(pod: Json, cluster: Cluster) -> tuple[list[topology_spread.Constraint], bool]:
    """(soft constraints of the pod, or the system's defaults; whether nodes need all keys)."""
    own = pod["spec"].get("topologySpreadConstraints") or []
    if own:
        turned = [{**each, "whenUnsatisfiable": "DoNotSchedule"} for each in own if soft(each)]
        stand_in = {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": turned}}
        return (topology_spread.hard_constraints(stand_in, cluster) if turned else []), True
    selector = topology_spread.default_selector(pod, cluster)
    if not selector:
        return [], False
    raw = [{"maxSkew": 3, "topologyKey": HOSTNAME}, {"maxSkew": 5, "topologyKey": ZONE}]
    return [topology_spread.constraint(each, selector) for each in raw], False


def soft(constraint: Json) -> bool:
    return constraint["whenUnsatisfiable"] == "ScheduleAnyway"


def spread(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
    constraints, all_required = soft_constraints(pod, cluster)
    if not constraints:
        return [0 for _ in nodes]

    def left_out(node: NodeState) -> bool:
        return all_required and not all(each.key in node.labels for each in constraints)

    compared = [node for node in nodes if not left_out(node)]
    sums = [0.0 for _ in nodes]
    for each in constraints:
        values = {node.labels.get(each.key, "") for node in compared}
        weight = math.log((len(compared) if each.key == HOSTNAME else len(values)) + 2)
        for i, node in enumerate(nodes):
            if left_out(node) or each.key not in node.labels:
                continue
            if each.key == HOSTNAME:
                count = topology_spread.count_pods(pod, node, each.selector)
            else:
                count = sum(
                    topology_spread.count_pods(pod, other, each.selector)
                    for other in cluster.nodes
                    if other.labels.get(each.key) == node.labels[each.key]
                    and not left_out(other)
                    and included(each, pod, other)
                )
            sums[i] += count * weight + (each.max_skew - 1)
    raw = [None if left_out(node) else math.floor(total + 0.5) for node, total in zip(nodes, sums, strict=True)]
    known = [score for score in raw if score is not None]
    most, least = max(known, default=0), min(known, default=0)
    if most == 0:
        return [0 if score is None else MOST for score in raw]
    return [0 if score is None else MOST * (most + least - score) // most for score in raw]


def included(each: topology_spread.Constraint, pod: Json, node: NodeState) -> bool:
    if each.honor_affinity and not node_affinity.selects(pod, node):
        return False
    return not each.honor_taints or labels.first_untolerated(pod, node.node) is None


# -- InterPodAffinity --------------------------------------------------------------------------------------------------


def near(hard_weight: int) -> Callable[..., Numbers]:
    def score(pod: Json, nodes: list[NodeState], cluster: Cluster) -> Numbers:
        drawn: dict[tuple[str, str], int] = {}

        def add(term: inter_pod_affinity.Term, weight: int, node: NodeState) -> None:
            if term.key in node.labels:
                key = term.key, node.labels[term.key]
                drawn[key] = drawn.get(key, 0) + weight

        mine = [
            (inter_pod_affinity.resolved(term, cluster), sign * weight)
            for term, weight, sign in wishes(pod, strict=True)
        ]
        for node in cluster.nodes:
            for placed in node.pods:
                for term, weight in mine:
                    if means(term, placed, None):
                        add(term, weight, node)
                terms = [(term, sign * weight) for term, weight, sign in wishes(placed, strict=False)]
                if hard_weight:
                    terms += [(term, hard_weight) for term in required(placed)]
                spaces = cluster.get("Namespace", namespace_of(pod))
                own = (spaces["metadata"].get("labels") or {}) if spaces else {}
                for term, weight in terms:
                    if means(term, pod, own):
                        add(term, weight, node)
        raw = [sum(drawn.get((key, value), 0) for key, value in node.labels.items()) for node in nodes]
        least, most = min(raw, default=0), max(raw, default=0)
        if most == least:
            return [0 for _ in raw]
        return [int(float(MOST) * ((score - least) / (most - least))) for score in raw]

    return score


def wishes(pod: Json, *, strict: bool) -> list[tuple[inter_pod_affinity.Term, int, int]]:
    result = []
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        raw = ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(PREFERRED) or []
        try:
            terms = inter_pod_affinity.terms(pod, [each["podAffinityTerm"] for each in raw])
        except labels.SelectorError:
            if strict:
                raise
            continue
        result += [(term, each["weight"], sign) for term, each in zip(terms, raw, strict=True)]
    return result


def required(pod: Json) -> list[inter_pod_affinity.Term]:
    raw = ((pod["spec"].get("affinity") or {}).get("podAffinity") or {}).get(REQUIRED) or []
    try:
        return inter_pod_affinity.terms(pod, raw)
    except labels.SelectorError:
        return []


def means(term: inter_pod_affinity.Term, pod: Json, namespace_labels: Any) -> bool:
    return term.means(pod, namespace_labels)


def all_scores(
    pod: Json,
    nodes: list[NodeState],
    cluster: Cluster,
    *,
    strategy: str,
    fit: dict[str, int],
    shape: list[tuple[int, int]],
    balanced: list[str],
    hard_weight: int,
    volume_shape: list[tuple[int, int]],
) -> dict[str, Numbers]:
    plugins = {
        "TaintToleration": taint_toleration,
        "NodeAffinity": node_affinity_wishes,
        "NodeResourcesFit": resources_fit(strategy, fit, shape),
        "PodTopologySpread": spread,
        "InterPodAffinity": near(hard_weight),
        "NodeResourcesBalancedAllocation": balanced_allocation(balanced),
        "ImageLocality": image_locality,
        "VolumeBinding": storage_capacity(volume_shape),
    }
    return {name: score(pod, nodes, cluster) for name, score in plugins.items()}
