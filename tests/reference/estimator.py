"""The binpacking estimator over the snapshot (cluster-autoscaler-scale-up 7)."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

from reference import resources, scheduler
from reference.cluster import Cluster, Json, NodeState, labels_of
from reference.labels import SelectorError, label_selector, matches
from reference.scheduler import Failure, pod_key

HOSTNAME = "kubernetes.io/hostname"
SPREAD_REASON = "node(s) didn't match pod topology spread constraints"
Group = list[Json]


def score(group: Group, node: Json) -> float:
    """Share of CPU plus share of memory that the group's first pod takes of the template's allocatable."""
    if not group:
        return 0.0
    requests = resources.occupancy(group[0])
    allocatable = resources.quantities(node["status"].get("allocatable"))
    total = 0.0
    if "cpu" in allocatable and allocatable["cpu"].milli() > 0:
        total += float(requests.get("cpu", resources.ZERO).milli()) / float(allocatable["cpu"].milli())
    if "memory" in allocatable and allocatable["memory"].value() > 0:
        total += float(requests.get("memory", resources.ZERO).value()) / float(allocatable["memory"].value())
    return total


def decreasing(groups: list[Group], node: Json) -> list[Group]:
    return sorted(groups, key=lambda group: score(group, node), reverse=True)


@dataclass(frozen=True)
class Threshold:
    """0 is no limit, below 0 nothing is allowed; the duration is in seconds."""

    nodes: int = 0
    duration: float = 0


def tighter(base: float, target: float) -> float:
    if base < 0 or target < 0:
        return -1
    if target > 0 and (base == 0 or base > target):
        return target
    return base


class Limiter:
    """Grants new nodes until the tightest threshold is reached; the clock is an argument."""

    def __init__(self, thresholds: list[Threshold]) -> None:
        self.thresholds = thresholds
        self.start(0)

    def start(self, now: float) -> None:
        self.started, self.granted = now, 0
        self.limit = Threshold()
        for threshold in self.thresholds:
            nodes = tighter(self.limit.nodes, threshold.nodes)
            self.limit = Threshold(int(nodes), tighter(self.limit.duration, threshold.duration))

    def permission(self, now: float = 0) -> bool:
        nodes, duration = self.limit.nodes, self.limit.duration
        if nodes < 0 or (nodes > 0 and self.granted >= nodes):
            return False
        if duration < 0 or (duration > 0 and now > self.started + duration):
            return False
        self.granted += 1
        return True


def similar_groups_threshold(groups: list[Json]) -> Threshold:
    """Room left in the group and its similar groups; a group whose size is unknown adds nothing."""
    room = sum(max(0, g.get("max_size", 0) - g.get("target_size", 0)) for g in groups if not g.get("target_size_error"))
    return Threshold(room if room > 0 else -1)


def cluster_threshold(most: int, current: int) -> Threshold:
    if most == 0:
        return Threshold()
    return Threshold(most - current if most > 0 and most > current else -1)


def thresholds(options: Json) -> list[Threshold]:
    """The thresholds a recorded estimate names, in its order."""
    result = []
    for name in options.get("thresholds") or []:
        if name == "static":
            result.append(Threshold(options.get("max_nodes", 0)))
        elif options.get("no_context"):
            result.append(Threshold())
        elif name == "sng":
            own = [options["node_group"]] if options.get("node_group") else []
            result.append(similar_groups_threshold(own + (options.get("similar_node_groups") or [])))
        else:
            result.append(cluster_threshold(options.get("cluster_max_nodes", 0), options.get("current_node_count", 0)))
    return result


@dataclass
class Template:
    node: Json
    pods: list[Json] = field(default_factory=list)
    csi_node: Json | None = None
    slices: list[Json] = field(default_factory=list)

    def fresh(self, suffix: str) -> NodeState:
        """A sanitised copy: a new name, the hostname label set to it, pods renamed (4.1)."""
        node = copy.deepcopy(self.node)
        name = f"{node['metadata']['name']}-{suffix}"
        node["metadata"].update(name=name, uid=f"{name}-uid")
        node["metadata"]["labels"] = {**(node["metadata"].get("labels") or {}), HOSTNAME: name}
        pods = copy.deepcopy(self.pods)
        for pod in pods:
            pod["metadata"]["name"] += f"-{suffix}"
            pod["metadata"]["uid"] = f"{pod['metadata'].get('uid', '')}-{suffix}"
            pod["spec"]["nodeName"] = name
        csi_node = copy.deepcopy(self.csi_node)
        if csi_node is not None:
            csi_node["metadata"]["name"] = name
        slices = copy.deepcopy(self.slices)
        for entry in slices:
            entry["metadata"]["name"] += f"-{suffix}"
            entry["spec"]["pool"]["name"] += f"-{suffix}"
            entry["spec"]["nodeName"] = name
        return NodeState(node, pods, csi_node, slices)


class NameClashError(Exception):
    """A new node's name is taken: the whole estimate fails."""


@dataclass
class Estimate:
    scheduled: list[Json] = field(default_factory=list)
    placement: dict[str, str] = field(default_factory=dict)
    nodes_with_pods: list[str] = field(default_factory=list)
    new_nodes: list[str] = field(default_factory=list)
    order: list[Group] = field(default_factory=list)
    failed: bool = False

    @property
    def node_count(self) -> int:
        return len(self.nodes_with_pods)

    def track(self, pod: Json, node: str) -> None:
        self.scheduled.append(pod)
        self.placement[pod_key(pod)] = node
        if node not in self.nodes_with_pods:
            self.nodes_with_pods.append(node)


class Packing:
    """One estimate in progress."""

    def __init__(self, cluster: Cluster, template: Template, limiter: Limiter) -> None:
        self.cluster, self.template, self.limiter = cluster, template, limiter
        self.result = Estimate()
        self.last: NodeState | None = None

    def add_node(self) -> NodeState:
        node = self.template.fresh(f"e-{len(self.result.new_nodes)}")
        if self.cluster.find(node.name) is not None:
            raise NameClashError(node.name)
        self.cluster.nodes.append(node)
        self.result.new_nodes.append(node.name)
        self.last = node
        return node

    def is_new(self, node: NodeState) -> bool:
        return node.name in self.result.new_nodes

    def try_existing(self, pods: Group) -> Group:
        """Onto the new nodes there are; the first pod that fits none of them, and all after it, are left."""
        for index, pod in enumerate(pods):
            result = scheduler.schedule_pod_on_any_node(pod, self.cluster, self.is_new)
            if isinstance(result, Failure):
                return pods[index:]
            self.result.track(pod, result)
        return []

    def try_last(self, pod: Json) -> bool:
        """Onto the last new node, or, for a pod spread over host names, onto any other node of the snapshot."""
        last = self.last
        if last is None:
            return False
        failure = scheduler.schedule_pod(pod, last, self.cluster)
        if failure is None:
            self.result.track(pod, last.name)
            return True
        spread = pod["spec"].get("topologySpreadConstraints") or []
        if any(each.get("topologyKey") == HOSTNAME for each in spread) and SPREAD_REASON in failure.reasons:
            result = scheduler.schedule_pod_on_any_node(pod, self.cluster, lambda node: node.name != last.name)
            if not isinstance(result, Failure):
                self.result.track(pod, result)
                return True
        return False

    def try_new(self, pods: Group) -> bool:
        """False when no more nodes may be added, for this group and all later ones."""
        for pod in pods:
            if self.try_last(pod):
                continue
            if self.last is not None and self.last.name not in self.result.nodes_with_pods:
                return True
            if not self.limiter.permission():
                return False
            node = self.add_node()
            if scheduler.schedule_pod(pod, node, self.cluster) is not None:
                break
            self.result.track(pod, node.name)
        return True

    def fast_path(self, pods: Group) -> bool:
        """Fills one fresh node and multiplies."""
        if not pods:
            return True
        if not self.limiter.permission():
            return False
        node = self.add_node()
        fitting = 0
        for pod in pods:
            if scheduler.schedule_pod(pod, node, self.cluster) is not None:
                break
            self.result.track(pod, node.name)
            fitting += 1
        if fitting == 0:
            return True
        for index in range(1, -(-len(pods) // fitting)):
            if not self.limiter.permission():
                return False
            for pod in pods[index * fitting : (index + 1) * fitting]:
                self.result.track(pod, f"{node.name}-fake-{index}")
        return True


def estimate(
    cluster: Cluster, groups: list[Group], template: Template, limiter: Limiter, *, fast_path: bool = False
) -> Estimate:
    """How many copies of the template the groups need; the snapshot is left as it was, the cursor is not."""
    limiter.start(0)
    packing = Packing(cluster, template, limiter)
    ordered = decreasing(groups, template.node)
    packing.result.order = list(ordered)
    best = best_for_fast_path(ordered, template.node) if fast_path else -1
    if best >= 0:
        ordered.append(ordered.pop(best))
    saved = cluster.fork()
    may_add = True
    try:
        for index, group in enumerate(ordered):
            rest = packing.try_existing(group)
            if may_add:
                fast = best >= 0 and index == len(ordered) - 1
                may_add = packing.fast_path(rest) if fast else packing.try_new(rest)
    except NameClashError:
        return Estimate(order=packing.result.order, failed=True)
    finally:
        cluster.revert(saved)
    return packing.result


def best_for_fast_path(groups: list[Group], node: Json) -> int:
    """The eligible group whose nodes would save most placements; of equals the last; -1 for none (7.4)."""
    best, most = -1, 0
    for index, group in enumerate(groups):
        if not group or not fast_path_eligible(group[0]):
            continue
        nodes = fast_path_nodes(group, node)
        saved = len(group) - len(group) // nodes if nodes > 0 else 0
        if saved >= most:
            best, most = index, saved
    return best


def required_anti_terms(pod: Json) -> list[Json]:
    anti = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    return anti.get("requiredDuringSchedulingIgnoredDuringExecution") or []


def fast_path_eligible(pod: Json) -> bool:
    if pod["spec"].get("topologySpreadConstraints") is not None:
        return False
    return all(term.get("topologyKey") == HOSTNAME for term in required_anti_terms(pod))


def fast_path_nodes(group: Group, node: Json) -> int:
    pod = group[0]
    nodes = len(group) if repels_itself(pod) else 0
    containers = pod["spec"].get("containers") or []
    requests = (containers[0].get("resources") or {}).get("requests") if containers else None
    if requests is not None:
        capacity = resources.quantities(node["status"].get("capacity"))
        requested = resources.quantities(requests)
        for name in ("cpu", "memory"):
            want = requested.get(name, resources.ZERO).approximate()
            have = capacity.get(name, resources.ZERO).approximate()
            # A division by zero becomes the smallest integer when Go converts it (amd64): never the maximum.
            nodes = max(nodes, math.ceil(float(len(group)) * want / have) if have else 0)
    return nodes


def repels_itself(pod: Json) -> bool:
    """By a required anti-affinity term over host names that matches the pod's own labels, whatever its namespaces."""
    for term in required_anti_terms(pod):
        try:
            selector = label_selector(term.get("labelSelector"))
        except SelectorError:
            continue
        if term.get("topologyKey") == HOSTNAME and matches(selector, labels_of(pod)):
            return True
    return False


def expand(elements: list[Any]) -> list[Json]:
    """Recorded pods: `{"count": n, "pod": pod}` stands for n numbered copies."""
    pods = []
    for element in elements:
        if "count" not in element:
            pods.append(element)
            continue
        for index in range(element["count"]):
            pod = copy.deepcopy(element["pod"])
            pod["metadata"]["name"] += f"-{index}"
            pod["metadata"]["uid"] = f"{pod['metadata'].get('uid', '')}-{index}"
            pods.append(pod)
    return pods
