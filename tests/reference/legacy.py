"""The estimators of Cluster Autoscaler 1.3 (cluster-autoscaler-scale-up 15.1, 15.2)."""

from __future__ import annotations

import copy
import math
from collections import Counter

from reference import resources, scheduler
from reference.cluster import Cluster, Json, NodeState
from reference.estimator import Template
from reference.resources import Quantity, Requests


def regular_requests(pod: Json) -> Requests:
    """Regular containers only."""
    total: Requests = {}
    for container in pod["spec"].get("containers") or []:
        resources.add(total, resources.spec_requests(container))
    return total


def basic(pods: list[Json], node: Json, coming: list[Json]) -> int:
    """Sums against the capacity of a node; the same pod object twice is one pod, but asks twice."""
    total: Requests = {}
    ports: Counter[int] = Counter()
    for pod in pods:
        resources.add(total, regular_requests(pod))
        host_ports = {p.get("hostPort") or 0 for c in pod["spec"].get("containers") or [] for p in c.get("ports") or []}
        ports.update(host_ports - {0})
    count = len({id(pod) for pod in pods})

    have: Requests = {}
    for each in coming:
        resources.add(have, resources.quantities(each["status"].get("capacity")))
    capacity = resources.quantities(node["status"].get("capacity"))

    def quotient(name: str, read: str) -> int:
        def of(amounts: Requests) -> int:
            return getattr(amounts.get(name, resources.ZERO), read)()

        return math.ceil(float(of(total) - of(have)) / float(of(capacity)))

    result = 0
    if "cpu" in capacity:
        result = max(result, quotient("cpu", "milli"))
    if "memory" in capacity:
        result = max(result, quotient("memory", "value"))
    if "pods" in capacity:
        room = have.get("pods", resources.ZERO).value()
        result = max(result, math.ceil(float(count - room) / float(capacity["pods"].value())))
    return max([result, *(number - len(coming) for number in ports.values())])


def score(pod: Json, node: Json) -> float:
    requests = regular_requests(pod)
    allocatable = resources.quantities(node["status"].get("allocatable"))

    def share(name: str, read: str) -> float:
        def of(amount: Quantity) -> int:
            return getattr(amount, read)()

        capacity = of(allocatable.get(name, resources.ZERO))
        return float(of(requests.get(name, resources.ZERO))) / float(capacity) if capacity > 0 else 0.0

    return share("cpu", "milli") + share("memory", "value")


def binpacking(pods: list[Json], template: Template, coming: list[Json]) -> int:
    """First fit over coming and new nodes for every pod; a pod that fits nowhere opens a node unchecked."""
    cluster = Cluster([])
    cluster.nodes = [NodeState(copy.deepcopy(node)) for node in coming]
    for pod in sorted(pods, key=lambda each: score(each, template.node), reverse=True):
        for node in cluster.nodes:
            if scheduler.schedule_pod(pod, node, cluster) is None:
                break
        else:
            fresh = template.fresh(f"legacy-{len(cluster.nodes)}")
            fresh.pods.append(pod)
            cluster.nodes.append(fresh)
    return len(cluster.nodes) - len(coming)
