"""The estimators of Cluster Autoscaler 1.3: ``basic`` (removed in 1.16) and binpacking with upcoming nodes.

Upcoming nodes (``coming``) are nodes that were requested and have not registered yet. Both estimators use them first.
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
    """Result of the basic estimator: ``node_count`` is the largest of the counts by measure and by port, at least 0.

    ``by_measure``: number of new nodes that ``cpu``, ``memory`` or ``pods`` alone needs; ``by_port``: the number that
    each host port needs.
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
    """Return the host ports of the pod's regular containers."""
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port > 0}


def _compute_node_count(missing: int, capacity: int, measure: str) -> int:
    """Return how many nodes of this capacity the missing amount needs.

    Raises InputError, which names ``measure``, if the capacity is 0.
    """
    if capacity == 0:
        raise InputError(f"the template's capacity of {measure} is zero: the basic estimator would divide by it")
    return math.ceil(float(missing) / float(capacity))


def estimate_basic(pods: Iterable[Pod], template: TemplateLike, coming: Sequence[Node] = ()) -> BasicEstimate:
    """Estimate the number of new nodes by dividing the pods' total requests by the capacity of one node.

    Parameters
    ----------
    pods : iterable of Pod
        Pending pods. If the list contains the same object twice, its requests count twice, but it is one pod of the
        pod count (as in upstream, where the pods are a set).
    template : NodeTemplate, NodeGroup, Node or dict
        The new node. Its capacity counts, not its allocatable. CPU, memory or pods that the capacity
        does not list are not counted.
    coming : sequence of Node
        Upcoming nodes, whose capacity is subtracted from the requests.

    Returns
    -------
    BasicEstimate
        Number of new nodes, in total and by CPU, memory, pods and host port.

    Raises
    ------
    InputError
        If the template's capacity of CPU, memory or pods is 0.

    Notes
    -----
    Ignored are placed pods, init containers, and all other scheduling rules.
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
    """Result of :func:`estimate_legacy_binpacking`: the number of new nodes and the placement of the pods.

    ``placement``: node of each pod, ``coming-<i>`` or ``new-<i>``, by key of the pod in the order of placement.
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
    """Pack the pods onto upcoming and new nodes: pods by decreasing size, each on the first node that it fits.

    A pod that fits no node gets a new node, *without* a check that it fits there. Existing nodes take no pods, but
    their pods count for inter-pod rules.

    Parameters
    ----------
    snapshot : Snapshot
    pods : sequence of str or Pod, optional
        Pods to place. Default: the snapshot's pending pods.
    template : NodeTemplate, NodeGroup, Node or dict
        The new node.
    coming : sequence of NodeTemplate, NodeGroup, Node or dict
        Upcoming nodes, which are filled first.
    profile : SchedulerProfile, optional
        Scheduler plug-ins to run. Default: upstream's.

    Returns
    -------
    LegacyBinpackingEstimate
        The number of new nodes and the placement of the pods.

    Notes
    -----
    The size of a pod is the sum of the shares of the template's allocatable CPU and memory that it requests. Pods of
    equal size keep their order; upstream's sort is unstable.
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
