"""``kscale nodes``: how full each node is by requests, limits and usage, and which pods keep it.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca import unremovable_reasons
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.pod_lists import drop_uncounted_pods
from kscale.ca.scale_down.drainability import Listers
from kscale.ca.scale_down.pdb import get_cached_pdb_tracker
from kscale.ca.scale_down.plan import explain_no_place
from kscale.ca.scale_down.removal import RemovalSimulator, UnremovableCandidate
from kscale.capacity.catalogue import InstanceType
from kscale.capacity.cost import price_of
from kscale.capacity.evictions import Evictions, PodHold, node_hold
from kscale.capacity.records import Part, round_money
from kscale.effects import Moment, moment
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import PodMetrics
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.pod_resources import CPU, MEMORY, is_extended, pod_limits, to_integers
from kscale.records import Record
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["NodeTotals", "NodeUsage", "NodeUsageReport", "ResourceUse", "fullness", "node_usage"]

_EXPLAINED = 20
"""Maximum number of nodes with an explanation why a pod fits on no other node: each explanation checks all nodes."""


class ResourceUse(Part, frozen=True):
    """One resource of a node, or of all nodes. Amounts are milli-cores for CPU, bytes for memory, and units for other
    resources.

    Attributes
    ----------
    allocatable : int
        Amount that the node offers to pods.
    requests : int
        Sum of the requests of the pods on the node.
    limits : int
        Sum of the limits of the pods on the node.
    unlimited : int
        Number of pods with a container without a limit. If it is not 0, ``limits`` is no upper bound.
    usage : int or None
        Amount in use, in milli-cores, bytes or units. None: no metrics.
    """

    allocatable: int
    requests: int
    limits: int = 0
    unlimited: int = 0
    usage: int | None = None


class NodeUsage(Part, frozen=True):
    """Utilization of one node, and what keeps it.

    Attributes
    ----------
    node : str
        Name of the node.
    group : str or None
        Id of its node group. None: none.
    price : float or None
        Price of the node per hour. None: unknown.
    pods : int
        Number of pods on it.
    pod_slots : int
        Number of pods that may run on it.
    cpu : ResourceUse
        CPU, in milli-cores.
    memory : ResourceUse
        Memory, in bytes.
    others : dict of str to ResourceUse
        Extended resources by name.
    removable : bool
        Whether the node could be removed if no other node was.
    reason : str or None
        Scale-down's reason why it is not removable. None: it is removable.
    why : str
        Explanation of the reason.
    held_by : list of PodHold
        Every pod that must not be evicted.
    """

    node: str
    group: str | None
    price: float | None
    pods: int
    pod_slots: int
    cpu: ResourceUse
    memory: ResourceUse
    others: dict[str, ResourceUse]
    removable: bool
    reason: str | None = None
    why: str = ""
    held_by: list[PodHold] = msgspec.field(default_factory=list)


class NodeTotals(Part, frozen=True):
    """Sums over all nodes.

    Attributes
    ----------
    nodes : int
        Number of nodes.
    pods : int
        Number of pods on them.
    pod_slots : int
        Number of pods that may run on them.
    cpu : ResourceUse
        CPU, in milli-cores. The usage is that of the ``measured`` nodes only.
    memory : ResourceUse
        Memory, in bytes. The usage is that of the ``measured`` nodes only.
    others : dict of str to ResourceUse
        Extended resources by name.
    price : float
        Price per hour of the nodes with a known price.
    unpriced : int
        Number of nodes without a known price.
    removable : int
        Number of nodes that could be removed, each alone.
    measured : int
        Number of nodes with usage.
    """

    nodes: int
    pods: int
    pod_slots: int
    cpu: ResourceUse
    memory: ResourceUse
    others: dict[str, ResourceUse]
    price: float
    unpriced: int
    removable: int
    measured: int


class NodeUsageReport(Record, frozen=True):
    """Utilization of each node, and what keeps it.

    Attributes
    ----------
    nodes : list of NodeUsage
        The nodes.
    totals : NodeTotals
        Sums over all nodes.
    pending_count : int
        Number of pods without a node. They count nowhere else.
    """

    KIND: ClassVar[str] = "NodeUsageReport"
    ROWS: ClassVar[str] = "nodes"

    nodes: list[NodeUsage]
    totals: NodeTotals
    pending_count: int


@typed
def node_usage(
    cluster: Cluster,
    groups: Iterable[NodeGroup] = (),
    catalogue: Mapping[str, InstanceType] | None = None,
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    threads: int | None = None,
) -> NodeUsageReport:
    """Compute how full each node is by requests, limits and usage, and why it cannot be removed.

    Parameters
    ----------
    cluster : Cluster
        The cluster. Usage is read from its NodeMetrics; for a node without, the PodMetrics of its pods are added up.
    groups : iterable of NodeGroup
        Node groups: a node of none of them, or of a group at its minimum size, cannot be removed. Without any group,
        these two checks are left out.
    catalogue : mapping of str to InstanceType, optional
        Prices by instance type, for nodes whose group has no price.
    now : datetime or Moment
        Time of the checks: the age of kube-system pods matters.
    options : AutoscalingOptions, optional
        Options of the drain rules (``skip_nodes_with_system_pods`` and others). Default: upstream's.
    threads : int, optional
        Number of threads. Default: the number of CPUs. The result does not depend on it.

    Returns
    -------
    NodeUsageReport
        One row per node, the fullest first by the greater share of cpu and memory requests; then by name.

    Raises
    ------
    InputError
        For a disruption budget with an invalid selector, and for a ``now`` that is no time.
    """
    options = options or default_options()
    at = moment(now)
    snapshot = cluster.snapshot(dra=True, now=at)
    groups = list(groups)
    of_nodes = Groups.of(groups, snapshot.columns.objects)
    evictions = Evictions(snapshot, at, options)
    held_by = _list_holding_pods(evictions)
    failures = _simulate_removals(snapshot, options, at, threads)
    uses = _Uses(cluster, snapshot)
    rows = []
    for n, (name, node) in enumerate(zip(snapshot.nodes, snapshot.columns.objects, strict=True)):
        group = of_nodes.find_group_of_node(name)
        holds = held_by.get(n, [])
        failure = failures.get(name)
        reason, why = node_hold(node) or (_hold_by_group(group) if groups else None) or (None, "")
        if reason is None and holds:
            reason, why = unremovable_reasons.BLOCKED_BY_POD, holds[0].why
        elif reason is None and failure is not None:
            reason, why = failure.reason, f"{failure.homeless} fits on no other node"
        rows.append(
            NodeUsage(
                node=name,
                group=None if group is None else group.id,
                price=price_of(node, groups, catalogue),
                pods=int(snapshot.pod_count[n]),
                pod_slots=int(snapshot.columns.slots[n]),
                cpu=uses.use(n, CPU),
                memory=uses.use(n, MEMORY),
                others={each: uses.use(n, each) for each in uses.extended_on(n)},
                removable=reason is None,
                reason=reason,
                why=why,
                held_by=holds,
            )
        )
    rows.sort(key=lambda row: (-fullness(row), row.node))
    without_place = [i for i, row in enumerate(rows) if row.reason == unremovable_reasons.NO_PLACE_TO_MOVE_PODS]
    for i in without_place[:_EXPLAINED]:
        homeless = failures[rows[i].node].homeless or ""
        why = f"{rows[i].why}: {explain_no_place(rows[i].node, homeless, snapshot, options)}"
        rows[i] = msgspec.structs.replace(rows[i], why=why)
    return NodeUsageReport(nodes=rows, totals=_add_up(rows), pending_count=len(snapshot.pending))


@typed
def fullness(row: NodeUsage) -> float:
    """Return the requested share of a node's allocatable CPU or memory, whichever share is greater.

    ``row``: the node. The result is 0 if the node has neither resource, and more than 1 if it is overcommitted.
    """
    return max((use.requests / use.allocatable for use in (row.cpu, row.memory) if use.allocatable > 0), default=0.0)


def _list_holding_pods(evictions: Evictions) -> dict[int, list[PodHold]]:
    """Return the pods that must not be evicted now, with the reasons, by index of their node."""
    held_by: dict[int, list[PodHold]] = {}
    for i in np.flatnonzero(evictions.holding()).tolist():
        hold = evictions.holds(i)
        if hold is not None:
            held_by.setdefault(int(evictions.pods.node[i]), []).append(hold)
    return held_by


def _hold_by_group(group: NodeGroup | None) -> tuple[str, str] | None:
    """Return (reason, explanation) if ``group`` forbids the removal of a node, otherwise None.

    ``group``: the node's group; None: it belongs to none, which forbids the removal, too.
    """
    if group is None:
        return unremovable_reasons.NOT_AUTOSCALED, "belongs to no node group"
    if group.size <= group.min_size:
        text = f"group {group.id} is at its minimum of {group.min_size}"
        return unremovable_reasons.NODE_GROUP_MIN_SIZE_REACHED, text
    return None


def _simulate_removals(
    snapshot: Snapshot, options: AutoscalingOptions, now: Moment, threads: int | None
) -> dict[str, UnremovableCandidate]:
    """Simulate the removal of each node separately.

    Returns, by name, the nodes that cannot be removed because a pod fits no other node.
    """
    simulator = RemovalSimulator(
        drop_uncounted_pods(snapshot, options),
        now=now,
        options=options,
        listers=Listers(snapshot.informers.workloads),
        pdbs=get_cached_pdb_tracker(snapshot).fork(),
    )
    destinations = np.ones(len(snapshot.nodes), dtype=np.uint8)
    verdicts = simulator.judge_alone(snapshot.nodes, destinations, threads=threads)
    return {
        verdict.node: verdict
        for verdict in verdicts
        if isinstance(verdict, UnremovableCandidate) and verdict.reason == unremovable_reasons.NO_PLACE_TO_MOVE_PODS
    }


class _Uses:
    """Requests, limits and usage of the nodes of a snapshot."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot) -> None:
        """Add up the limits of the placed pods by node, and read the usage from the cluster's metrics."""
        self._snapshot = snapshot
        self._extended = [name for name in snapshot.columns.allocatable if is_extended(name)]
        self._limits: dict[str, NDArray[np.int64]] = {}
        self._unlimited: dict[str, NDArray[np.int64]] = {}
        for record, n in zip(snapshot.placed, snapshot.placed_node.tolist(), strict=True):
            self._add_limits(record.pod, n)
        self._usage = _read_usage(cluster, snapshot)

    def _add_limits(self, pod: Pod, n: int) -> None:
        """Add a pod's limits to those of the node at index ``n``.

        The pod also counts as unlimited for each of cpu and memory for which one of its containers has no limit, unless
        the pod itself has one. Init containers do not count for this.
        """
        for name, amount in to_integers(pod_limits(pod)).items():
            self._column(self._limits, name)[n : n + 1] += amount  # as an array: sums wrap, as upstream's do
        pod_level = (pod.spec.resources.limits if pod.spec.resources is not None else None) or {}
        for name in (CPU, MEMORY):
            if name not in pod_level and any(name not in (c.resources.limits or {}) for c in pod.spec.containers):
                self._column(self._unlimited, name)[n] += 1

    def _column(self, table: dict[str, NDArray[np.int64]], name: str) -> NDArray[np.int64]:
        """Return the column of resource ``name`` in a table (int64[nodes]).

        A missing one is added to the table with zeros.
        """
        if name not in table:
            table[name] = np.zeros(len(self._snapshot.nodes), dtype=np.int64)
        return table[name]

    def extended_on(self, n: int) -> list[str]:
        """Return the names of the extended resources of which the node at index ``n`` offers more than 0."""
        return [name for name in self._extended if self._amount(self._snapshot.columns.allocatable, name, n)]

    def use(self, n: int, name: str) -> ResourceUse:
        """Return allocatable, requests, limits and usage of resource ``name`` on the node at index ``n``.

        The usage is None if it was not measured.
        """
        return ResourceUse(
            allocatable=self._amount(self._snapshot.columns.allocatable, name, n),
            requests=self._amount(self._snapshot.used, name, n),
            limits=self._amount(self._limits, name, n),
            unlimited=self._amount(self._unlimited, name, n),
            usage=self._usage.get(n, {}).get(name),
        )

    @staticmethod
    def _amount(table: Mapping[str, NDArray[np.int64]], name: str, n: int) -> int:
        """Return the amount of resource ``name`` on node ``n``; 0 if the table has no such resource."""
        return int(table[name][n]) if name in table else 0


def _read_usage(cluster: Cluster, snapshot: Snapshot) -> dict[int, dict[str, int]]:
    """Return the usage of the nodes that have metrics, by node index and resource (milli-cores, bytes).

    Read from NodeMetrics or, if a node has none, summed over the PodMetrics of its pods.
    """
    index = snapshot.columns.index
    usage: dict[int, dict[str, int]] = {}
    metrics: dict[str, PodMetrics] = {item.key: item for item in cluster.all("PodMetrics")}
    if metrics:
        for key, n in zip(snapshot.pods, snapshot.placed_node.tolist(), strict=True):
            for container in (metrics[key].containers or ()) if key in metrics else ():
                total = usage.setdefault(n, {})
                for name, amount in to_integers(container.usage).items():
                    total[name] = total.get(name, 0) + amount
    for item in cluster.all("NodeMetrics"):
        if item.metadata.name in index:
            usage[index[item.metadata.name]] = to_integers(item.usage)
    return usage


def _add_up(rows: Sequence[NodeUsage]) -> NodeTotals:
    """Return the sums over the rows."""
    others = dict.fromkeys(name for row in rows for name in row.others)
    return NodeTotals(
        nodes=len(rows),
        pods=sum(row.pods for row in rows),
        pod_slots=sum(row.pod_slots for row in rows),
        cpu=_add_uses(row.cpu for row in rows),
        memory=_add_uses(row.memory for row in rows),
        others={name: _add_uses(row.others[name] for row in rows if name in row.others) for name in others},
        price=round_money(sum(row.price or 0.0 for row in rows)),
        unpriced=sum(row.price is None for row in rows),
        removable=sum(row.removable for row in rows),
        measured=sum(row.cpu.usage is not None or row.memory.usage is not None for row in rows),
    )


def _add_uses(uses: Iterable[ResourceUse]) -> ResourceUse:
    """Return the sums of the uses of one resource. The usage counts measured uses; None if none is measured."""
    uses = list(uses)
    measured = [use.usage for use in uses if use.usage is not None]
    return ResourceUse(
        allocatable=sum(use.allocatable for use in uses),
        requests=sum(use.requests for use in uses),
        limits=sum(use.limits for use in uses),
        unlimited=sum(use.unlimited for use in uses),
        usage=sum(measured) if measured else None,
    )
