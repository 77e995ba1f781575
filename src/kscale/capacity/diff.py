"""``kscale diff``: what changed between two dumps: nodes, workloads, pods, cost, and why pods are pending.

Not in upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec
import numpy as np

from kscale.ca.nodes import is_ready
from kscale.capacity.catalogue import InstanceType
from kscale.capacity.cost import name_workloads, price_of
from kscale.capacity.records import Part, round_money
from kscale.objects.api.core import Node
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.records import Record
from kscale.scheduling.fit import fit
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "ABSENT",
    "ClusterDiff",
    "ClusterTotals",
    "FieldChange",
    "NodeDiff",
    "PodDiff",
    "VerdictDiff",
    "WorkloadDiff",
    "diff",
]

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
ABSENT = "absent"


class ClusterTotals(Part, frozen=True):
    """Sums of one dump.

    Attributes
    ----------
    nodes : int
        Number of nodes.
    pods : int
        Number of pods on nodes.
    pending : int
        Number of pending pods.
    cpu : int
        CPU requests of the pods on nodes, in milli-cores.
    memory : int
        Memory requests of the pods on nodes, in bytes.
    cpu_allocatable : int
        Allocatable CPU of the nodes, in milli-cores.
    memory_allocatable : int
        Allocatable memory of the nodes, in bytes.
    cost : float or None
        Cost per hour of the nodes with a known price. None: no price is known.
    unpriced : int
        Number of nodes without a known price.
    """

    nodes: int
    pods: int
    pending: int
    cpu: int
    memory: int
    cpu_allocatable: int
    memory_allocatable: int
    cost: float | None
    unpriced: int


class FieldChange(Part, frozen=True):
    """A field of a node that differs between the dumps.

    Attributes
    ----------
    field : str
        Name of the field.
    before : str or None
        Value in the first dump. None: absent.
    after : str or None
        Value in the second dump. None: absent.
    """

    field: str
    before: str | None
    after: str | None


class NodeDiff(Part, frozen=True):
    """A node that differs between the dumps.

    Attributes
    ----------
    node : str
        Name of the node.
    change : str
        ``added``, ``removed`` or ``changed``.
    pods_before : int
        Number of pods on the node in the first dump.
    pods_after : int
        Number of pods on the node in the second dump.
    fields : list of FieldChange
        With ``changed``: the fields that differ.
    """

    node: str
    change: str
    pods_before: int
    pods_after: int
    fields: list[FieldChange] = msgspec.field(default_factory=list)


class WorkloadDiff(Part, frozen=True):
    """A workload whose pods or requests differ between the dumps. ``before`` is the first dump, ``after`` the second.

    Attributes
    ----------
    workload : str
        The workload as ``namespace/Kind/name``.
    change : str
        ``added``, ``removed`` or ``changed``.
    pods_before, pods_after : int
        Number of its pods, pending ones included.
    pending_before, pending_after : int
        Number of its pending pods.
    cpu_before, cpu_after : int
        CPU requests of all its pods, in milli-cores.
    memory_before, memory_after : int
        Memory requests of all its pods, in bytes.
    """

    workload: str
    change: str
    pods_before: int
    pods_after: int
    pending_before: int
    pending_after: int
    cpu_before: int
    cpu_after: int
    memory_before: int
    memory_after: int


class PodDiff(Part, frozen=True):
    """A pod that differs between the dumps. ``before`` is the first dump, ``after`` the second.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    change : str
        ``added``, ``removed``, ``moved`` (to another node), ``bound`` (pending before, on a node after), ``unbound``
        (the opposite) or ``resized``.
    node_before, node_after : str or None
        Node of the pod. None: the pod is pending, or not in this dump.
    cpu_before, cpu_after : int or None
        CPU request in milli-cores. None: the pod is not in this dump.
    memory_before, memory_after : int or None
        Memory request in bytes. None: the pod is not in this dump.
    """

    pod: str
    change: str
    node_before: str | None
    node_after: str | None
    cpu_before: int | None = None
    cpu_after: int | None = None
    memory_before: int | None = None
    memory_after: int | None = None


class VerdictDiff(Part, frozen=True):
    """A pod that is pending in at least one of the dumps, and whose verdicts differ.

    A verdict is ``absent``, ``on NODE``, ``fits 3 nodes``, or the reasons of kube-scheduler's filters, most frequent
    first. Reasons are compared without the numbers of nodes.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    before : str
        Verdict in the first dump.
    after : str
        Verdict in the second dump.
    """

    pod: str
    before: str
    after: str


class ClusterDiff(Record, frozen=True):
    """Differences between two dumps of a cluster.

    Attributes
    ----------
    before : ClusterTotals
        Sums of the first dump.
    after : ClusterTotals
        Sums of the second dump.
    nodes : list of NodeDiff
        Nodes that differ.
    workloads : list of WorkloadDiff
        Workloads that differ.
    pods : list of PodDiff
        Pods that differ.
    verdicts : list of VerdictDiff
        Pods that are pending in at least one dump, with another verdict in the other dump.
    newly_pending : int
        Number of pods that are pending in the second dump and were not in the first.
    """

    KIND: ClassVar[str] = "ClusterDiff"
    ROWS: ClassVar[str] = "workloads"

    before: ClusterTotals
    after: ClusterTotals
    nodes: list[NodeDiff]
    workloads: list[WorkloadDiff]
    pods: list[PodDiff]
    verdicts: list[VerdictDiff]
    newly_pending: int


@typed
def diff(
    before: Cluster,
    after: Cluster,
    groups: Iterable[NodeGroup] = (),
    catalogue: Mapping[str, InstanceType] | None = None,
) -> ClusterDiff:
    """Compare two dumps of a cluster.

    Parameters
    ----------
    before, after : Cluster
        The two states.
    groups : iterable of NodeGroup
        Node groups with prices, of both states.
    catalogue : mapping of str to InstanceType, optional
        Prices by instance type.

    Returns
    -------
    ClusterDiff
        The nodes, workloads, pods and verdicts on pending pods that differ, in the order of the second dump; removed
        ones last.

    Notes
    -----
    Pods are compared by name: a pod that its controller created again is removed and added. A pending pod is judged
    alone by all filters, on the nodes of its dump.
    """
    groups = list(groups)
    first, second = _State(before, groups, catalogue), _State(after, groups, catalogue)
    return ClusterDiff(
        before=first.totals(),
        after=second.totals(),
        nodes=_compare_nodes(first, second),
        workloads=_compare_workloads(first, second),
        pods=_compare_pods(first, second),
        verdicts=_compare_verdicts(first, second),
        newly_pending=sum(key not in first.pods or first.pods[key].node is not None for key in second.snapshot.pending),
    )


@dataclass(frozen=True, slots=True)
class _PodState:
    """A pod's node, None if it is pending, and its requests."""

    node: str | None
    cpu: int
    memory: int


@dataclass(slots=True)
class _WorkloadState:
    """Pods of a workload and their requests."""

    pods: int = 0
    pending: int = 0
    cpu: int = 0
    memory: int = 0


@dataclass(slots=True)
class _State:
    """A dump as prepared for the comparison."""

    cluster: Cluster
    groups: list[NodeGroup]
    catalogue: Mapping[str, InstanceType] | None
    snapshot: Snapshot = field(init=False)
    pods: dict[str, _PodState] = field(init=False)
    prices: dict[str, float | None] = field(init=False)

    def __post_init__(self) -> None:
        """Take a snapshot of the dump; collect its placed and pending pods and the prices of its nodes."""
        self.snapshot = snapshot = self.cluster.snapshot(dra=True)
        classes = snapshot.interner.classes
        self.pods = {}
        for key, n, c in zip(snapshot.pods, snapshot.placed_node.tolist(), snapshot.placed_class.tolist(), strict=True):
            amounts = classes[c].occupancy
            self.pods[key] = _PodState(snapshot.nodes[n], amounts.get(CPU, 0), amounts.get(MEMORY, 0))
        for key, pod_class in zip(snapshot.pending, snapshot.pending_classes, strict=True):
            amounts = pod_class.demand
            self.pods[key] = _PodState(None, amounts.get(CPU, 0), amounts.get(MEMORY, 0))
        self.prices = {
            node.metadata.name: price_of(node, self.groups, self.catalogue) for node in snapshot.columns.objects
        }

    def totals(self) -> ClusterTotals:
        """Return the sums over the nodes and pods of the dump. The cost is None if no node has a known price."""
        snapshot = self.snapshot
        known = [price for price in self.prices.values() if price is not None]
        placed = [pod for pod in self.pods.values() if pod.node is not None]
        return ClusterTotals(
            nodes=len(snapshot.nodes),
            pods=len(placed),
            pending=len(snapshot.pending),
            cpu=sum(pod.cpu for pod in placed),
            memory=sum(pod.memory for pod in placed),
            cpu_allocatable=int(snapshot.columns.allocatable[CPU].sum()),
            memory_allocatable=int(snapshot.columns.allocatable[MEMORY].sum()),
            cost=round_money(sum(known)) if known else None,
            unpriced=len(self.prices) - len(known),
        )

    def workloads(self) -> dict[str, _WorkloadState]:
        """Return the number of pods and the requests of each workload, by ``namespace/Kind/name``."""
        keys = list(self.pods)
        states: dict[str, _WorkloadState] = {}
        for key, name in zip(keys, name_workloads(self.cluster, keys), strict=True):
            state, pod = states.setdefault(name, _WorkloadState()), self.pods[key]
            state.pods += 1
            state.pending += pod.node is None
            state.cpu += pod.cpu
            state.memory += pod.memory
        return states

    def verdicts(self) -> dict[str, tuple[str, frozenset[str]]]:
        """Return (text, values to compare) of the scheduler's verdict on each pending pod, by ``namespace/name``.

        The values are the set of reasons, or ``{"fits"}``, so that numbers of nodes are not compared. Without nodes:
        ``("no node", frozenset())``.
        """
        snapshot = self.snapshot
        if not snapshot.pending:
            return {}
        result = fit(snapshot)
        fitting = np.count_nonzero(result.class_ok, axis=1)
        of_class: dict[int, tuple[str, frozenset[str]]] = {}
        verdicts = {}
        for key, c in zip(result.pods, result.class_of.tolist(), strict=True):
            if c not in of_class:
                if fitting[c]:
                    count = int(fitting[c])
                    text = f"fits {count:,} {'node' if count == 1 else 'nodes'}"
                    of_class[c] = text, frozenset({"fits"})
                else:
                    counts = Counter(reason for name in snapshot.nodes for reason in result.verdict(key, name).why)
                    text = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
                    of_class[c] = text or "no node", frozenset(counts)
            verdicts[key] = of_class[c]
        return verdicts


def _change_of(before: object, after: object) -> str:
    """Return ``ADDED`` if ``before`` is None, ``REMOVED`` if ``after`` is None, otherwise ``CHANGED``."""
    return ADDED if before is None else REMOVED if after is None else CHANGED


def _keys(first: Iterable[str], second: Iterable[str]) -> list[str]:
    """Return the distinct keys of both, those of ``second`` first."""
    return list(dict.fromkeys([*second, *first]))


def _compare_nodes(first: _State, second: _State) -> list[NodeDiff]:
    """Return a row for each node that was added, was removed, or differs in a compared field."""
    nodes = []
    old = {node.metadata.name: node for node in first.snapshot.columns.objects}
    new = {node.metadata.name: node for node in second.snapshot.columns.objects}
    for name in _keys(old, new):
        before, after = old.get(name), new.get(name)
        fields = []
        if before is not None and after is not None:
            was, now = _describe_node(before, first.prices[name]), _describe_node(after, second.prices[name])
            fields = [
                FieldChange(field=key, before=was.get(key), after=now.get(key))
                for key in _keys(was, now)
                if was.get(key) != now.get(key)
            ]
            if not fields:
                continue
        nodes.append(
            NodeDiff(
                node=name,
                change=_change_of(before, after),
                pods_before=_count_pods(first.snapshot, name),
                pods_after=_count_pods(second.snapshot, name),
                fields=fields,
            )
        )
    return nodes


def _count_pods(snapshot: Snapshot, name: str) -> int:
    """Return the number of pods on a node; 0 if the snapshot has no such node."""
    index = snapshot.columns.index.get(name)
    return 0 if index is None else int(snapshot.pod_count[index])


def _describe_node(node: Node, price: float | None) -> dict[str, str]:
    """Return the compared fields of a node as texts, by field path.

    These are ready, unschedulable, the price if it is known, allocatable resources, labels and taints.
    """
    fields = {"ready": str(is_ready(node)).lower(), "unschedulable": str(node.spec.unschedulable).lower()}
    if price is not None:
        fields["price"] = f"{price:.9g}"
    fields |= {f"allocatable.{name}": str(amount) for name, amount in (node.status.allocatable or {}).items()}
    fields |= {f"labels.{key}": value for key, value in (node.metadata.labels or {}).items()}
    fields |= {f"taints.{taint.key}:{taint.effect}": taint.value for taint in node.spec.taints}
    return fields


def _compare_workloads(first: _State, second: _State) -> list[WorkloadDiff]:
    """Return a row for each workload whose number of pods or pending pods, or whose requests differ."""
    old, new = first.workloads(), second.workloads()
    nothing = _WorkloadState()
    rows = []
    for name in _keys(old, new):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        was, now = before or nothing, after or nothing
        rows.append(
            WorkloadDiff(
                workload=name,
                change=_change_of(before, after),
                pods_before=was.pods,
                pods_after=now.pods,
                pending_before=was.pending,
                pending_after=now.pending,
                cpu_before=was.cpu,
                cpu_after=now.cpu,
                memory_before=was.memory,
                memory_after=now.memory,
            )
        )
    return rows


def _compare_pods(first: _State, second: _State) -> list[PodDiff]:
    """Return a row for each pod that is in one dump only, or whose node or requests differ."""
    rows = []
    for key in _keys(first.pods, second.pods):
        before, after = first.pods.get(key), second.pods.get(key)
        if before == after:
            continue
        change = _change_of(before, after)
        if before is not None and after is not None:
            if before.node == after.node:
                change = "resized"
            else:
                change = "bound" if before.node is None else "unbound" if after.node is None else "moved"
        rows.append(
            PodDiff(
                pod=key,
                change=change,
                node_before=None if before is None else before.node,
                node_after=None if after is None else after.node,
                cpu_before=None if before is None else before.cpu,
                cpu_after=None if after is None else after.cpu,
                memory_before=None if before is None else before.memory,
                memory_after=None if after is None else after.memory,
            )
        )
    return rows


def _compare_verdicts(first: _State, second: _State) -> list[VerdictDiff]:
    """Return a row for each pod that is pending in at least one dump and whose verdicts differ.

    Verdicts that differ only in numbers of nodes count as equal.
    """
    old, new = first.verdicts(), second.verdicts()
    rows = []
    for key in _keys(old, new):
        before, after = (
            verdicts.get(key) or _describe_other(state, key) for state, verdicts in ((first, old), (second, new))
        )
        if before[1] != after[1]:
            rows.append(VerdictDiff(pod=key, before=before[0], after=after[0]))
    return rows


def _describe_other(state: _State, key: str) -> tuple[str, frozenset[str]]:
    """Return the verdict on a pod that is not pending: its node, or that it is absent.

    The two values are those of :meth:`_State.verdicts`. ``key``: ``namespace/name`` of the pod.
    """
    pod = state.pods.get(key)
    text = ABSENT if pod is None else f"on {pod.node}"
    return text, frozenset({text})
