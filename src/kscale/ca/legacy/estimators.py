"""The estimators of Cluster Autoscaler 1.3: ``basic`` (removed in 1.16) and binpacking with upcoming nodes.

Both count the nodes that are already upcoming (``coming``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.pod_resources import CPU, MEMORY, PODS
from kscale.objects.quantity import Quantity
from kscale.scheduling.coercion import PodsLike, TemplateLike, pods_of, template_of
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.pods.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["BasicEstimate", "LegacyBinpackingEstimate", "estimate_basic", "estimate_legacy_binpacking"]

_ZERO_QUANTITY = Quantity("0")


class BasicEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Node count of the basic estimator, and what each measure alone would need: ``cpu``, ``memory``, ``pods``, host
    ports.
    """

    node_count: int
    by_measure: dict[str, int]
    by_port: dict[int, int]

    @property
    def report(self) -> str:
        """Return upstream's text report: the nodes that each resource and each host port needs."""
        names = {"cpu": "CPU", "memory": "Mem", "pods": "Pods"}
        lines = [f"{names[name]}: {count}" for name, count in self.by_measure.items()]
        lines += [f"Port {port}: {count}" for port, count in self.by_port.items()]
        return "\n".join(["Needed nodes according to:", *lines, ""])


def _sum_container_requests(pod: Pod) -> ResourceList:
    """Return the sum of the requests of regular containers; init containers do not count."""
    total: ResourceList = {}
    for container in pod.spec.containers:
        for name, quantity in (container.resources.requests or {}).items():
            total[name] = total[name] + quantity if name in total else quantity
    return total


def _add_amounts(total: ResourceList, amounts: ResourceList | None) -> None:
    """Add the amounts to ``total`` in place."""
    for name, quantity in (amounts or {}).items():
        total[name] = total[name] + quantity if name in total else quantity


def _get_host_ports(pod: Pod) -> set[int]:
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port > 0}


def _compute_node_count(missing: int, capacity: int, measure: str) -> int:
    """Return how many nodes of this capacity the missing amount needs.

    Raises InputError, which names ``measure``, if the capacity is 0.
    """
    if capacity == 0:
        raise InputError(f"the template's capacity of {measure} is zero: the basic estimator would divide by it")
    return math.ceil(float(missing) / float(capacity))


def estimate_basic(pods: Iterable[Pod], template: TemplateLike, coming: Sequence[Node] = ()) -> BasicEstimate:
    """Estimate the node count from sums of requests and the *capacity* of the template, minus upcoming nodes.

    Pods that run already, other predicates and allocatable do not count. A pod object passed twice is one pod but
    requests twice, as in upstream's set of pods. Raises InputError where upstream divides by zero.
    """
    pod_list = list(pods)
    capacity = template_of(template).node.status.capacity or {}
    asked: ResourceList = {}
    ports: Counter[int] = Counter()
    for pod in pod_list:
        _add_amounts(asked, _sum_container_requests(pod))
        ports.update(_get_host_ports(pod))
    available: ResourceList = {}
    for node in coming:
        _add_amounts(available, node.status.capacity)
    by_measure: dict[str, int] = {}
    if CPU in capacity:
        missing = asked.get(CPU, _ZERO_QUANTITY).milli_value() - available.get(CPU, _ZERO_QUANTITY).milli_value()
        by_measure[CPU] = _compute_node_count(missing, capacity[CPU].milli_value(), CPU)
    if MEMORY in capacity:
        missing = asked.get(MEMORY, _ZERO_QUANTITY).value() - available.get(MEMORY, _ZERO_QUANTITY).value()
        by_measure[MEMORY] = _compute_node_count(missing, capacity[MEMORY].value(), MEMORY)
    if PODS in capacity:
        missing = len({id(pod) for pod in pod_list}) - available.get(PODS, _ZERO_QUANTITY).value()
        by_measure[PODS] = _compute_node_count(missing, capacity[PODS].value(), PODS)
    by_port = {port: users - len(coming) for port, users in sorted(ports.items())}
    return BasicEstimate(
        node_count=max([0, *by_measure.values(), *by_port.values()]), by_measure=by_measure, by_port=by_port
    )


class LegacyBinpackingEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the estimate: ``node_count`` new nodes; ``placement``: pod -> ``coming-<i>`` or ``new-<i>``, in the
    order
    of placement.
    """

    node_count: int
    placement: dict[str, str]


def _compute_pod_score(record: PodRecord, node: Node) -> float:
    """Return the sum of the shares of the node's allocatable CPU and memory that the pod requests."""
    requests, allocatable = _sum_container_requests(record.pod), node.status.allocatable or {}
    cpu, memory = allocatable.get(CPU, _ZERO_QUANTITY).milli_value(), allocatable.get(MEMORY, _ZERO_QUANTITY).value()
    score = 0.0
    if cpu > 0:
        score += float(requests.get(CPU, _ZERO_QUANTITY).milli_value()) / float(cpu)
    if memory > 0:
        score += float(requests.get(MEMORY, _ZERO_QUANTITY).value()) / float(memory)
    return score


def estimate_legacy_binpacking(
    snapshot: Snapshot,
    pods: PodsLike = None,
    *,
    template: TemplateLike,
    coming: Sequence[TemplateLike] = (),
    profile: SchedulerProfile | None = None,
) -> LegacyBinpackingEstimate:
    """Pack every pod by decreasing score, first fit in index order, onto the upcoming nodes and the new ones.

    A pod that fits no node opens a new node *without* being checked against it. Existing nodes take no pods, but their
    pods count for inter-pod rules. Equal scores keep their order (upstream uses an unstable sort).
    """
    records = [pod_record(record) for record in pods_of(snapshot, pods, waiting=True)]
    nodes = snapshot.columns.objects
    new, underway = template_of(template, nodes), [template_of(node, nodes) for node in coming]
    records.sort(key=lambda record: -_compute_pod_score(record, new.node))
    classes = snapshot.classify(records)
    session = Session(snapshot, classes, [new, *underway], profile)
    engine, first = session.engine, len(snapshot.columns)
    placement: dict[str, str] = {}
    engine.fork()
    try:
        for i in range(len(underway)):
            engine.add(session.templates[1 + i], i)
        for record, pod in zip(records, session.classes_of(classes).tolist(), strict=True):
            node = next((n for n in range(first, engine.nodes) if engine.check(pod, n) == 0), -1)
            if node < 0:
                node = engine.add(session.templates[0], engine.nodes - first - len(underway))
            engine.place(pod, node)
            number = node - first
            placement[record.key] = f"coming-{number}" if number < len(underway) else f"new-{number - len(underway)}"
        return LegacyBinpackingEstimate(node_count=engine.nodes - first - len(underway), placement=placement)
    finally:
        engine.revert()
