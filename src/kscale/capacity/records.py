"""Result records of ``kscale estimate``, ``explain`` and ``fit``."""

from __future__ import annotations

import msgspec

from kscale.errors import InputError
from kscale.objects.argument_types import typed_methods
from kscale.records import Record

__all__ = [
    "UNLIMITED",
    "EstimateReport",
    "Explanation",
    "FitReport",
    "GroupAnswer",
    "GroupEstimate",
    "KarpenterChoice",
    "KarpenterLine",
    "Nearest",
    "NodeVerdict",
    "Part",
    "PluginVerdict",
    "Rejection",
    "Shortage",
    "WorkloadFit",
    "round_money",
]


UNLIMITED = 2**31 - 1  # the maximum size of a group without a stated limit


class Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Base of the parts of records."""


def round_money(amount: float) -> float:
    """Round an amount of money to nine decimals, which removes accumulated rounding errors and negative zero."""
    return round(amount, 9) + 0.0


class Rejection(Part, frozen=True):
    """Pods that were rejected for the same reasons.

    Attributes
    ----------
    pods : int
        Number of pods.
    plugin : str
        The scheduler's plug-in that rejected them.
    reasons : list of str
        Texts of the plug-in, as in kube-scheduler's events.
    example : str
        The first of the pods, as ``namespace/name``.
    """

    pods: int
    plugin: str
    reasons: list[str]
    example: str


class GroupEstimate(Part, frozen=True):
    """The estimate of one node group, as if it alone took the pods.

    Attributes
    ----------
    group : str
        Id of the node group.
    nodes : int
        Number of new nodes, as upstream estimates it, but without upstream's limit per scale-up.
    bound : int
        Proven lower bound of the number of nodes for the same pods.
    bound_method : str
        Method that proved ``bound``.
    pods : int
        Number of pods that the new nodes take.
    utilization : dict of str to float
        Requests divided by allocatable of the new nodes, by resource.
    limited_by : str or None
        The resource with the highest utilization. None: there are no new nodes.
    rejections : list of Rejection
        Pods that the group does not take, and why.
    current : int or None
        Number of nodes of the group now. None: unknown.
    maximum : int or None
        Maximum number of nodes of the group. None: no stated limit.
    price : float or None
        Price of all these nodes per hour. None: unknown.
    placed : dict of str to str or None
        New node of each pod. None: not requested.
    arch : str
        CPU architecture of the nodes (``kubernetes.io/arch``). Empty: the group does not say.
    generation : int or None
        Generation of the machine, according to the name of its type. None: the name does not say.
    """

    group: str
    nodes: int
    bound: int
    bound_method: str
    pods: int
    utilization: dict[str, float]
    limited_by: str | None
    rejections: list[Rejection]
    current: int | None = None
    maximum: int | None = None
    price: float | None = None
    placed: dict[str, str] | None = None
    arch: str = ""
    generation: int | None = None

    @property
    def over_maximum(self) -> int:
        """Return by how many nodes current and new nodes exceed the group's maximum size; 0 without a maximum.

        An unknown current size counts as 0.
        """
        if self.maximum is None:
            return 0
        return max(0, self.nodes + (self.current or 0) - self.maximum)


class KarpenterLine(Part, frozen=True):
    """New nodes of one NodePool, instance type, capacity type and zone.

    Attributes
    ----------
    node_pool : str
        Name of the NodePool.
    type : str
        Instance type.
    capacity_type : str
        Capacity type, such as ``on-demand`` or ``spot``.
    zone : str
        Zone of the nodes. Empty: several zones have the same price.
    nodes : int
        Number of nodes.
    pods : int
        Number of pods on them.
    price : float or None
        Price of one node per hour. None: unknown.
    cost : float or None
        Price of all these nodes per hour. None: unknown.
    """

    node_pool: str
    type: str
    capacity_type: str
    zone: str
    nodes: int
    pods: int
    price: float | None
    cost: float | None


class KarpenterChoice(Part, frozen=True):
    """The nodes that Karpenter would launch for pending pods.

    Attributes
    ----------
    pods : int
        Number of pending pods: ``on_existing`` + ``on_new`` + the number of ``unschedulable`` pods.
    on_existing : int
        Number of pods that go to existing nodes.
    on_new : int
        Number of pods that go to new nodes.
    nodes : int
        Number of new nodes.
    cost : float or None
        Price of the new nodes per hour. None: a price is unknown.
    lines : list of KarpenterLine
        New nodes by type.
    unschedulable : list of str
        Pods that no NodePool takes, as ``namespace/name``.
    unmodelled : list of str
        Constraints of pods that the choice ignores, with their number of pods.
    """

    pods: int
    on_existing: int
    on_new: int
    nodes: int
    cost: float | None
    lines: list[KarpenterLine]
    unschedulable: list[str]
    unmodelled: list[str] = msgspec.field(default_factory=list)


class EstimateReport(Record, frozen=True):
    """Number of nodes of each group that the pending pods need, and the lower bound.

    ``pending_count`` = ``on_existing`` + ``need_new`` + ``unschedulable_count`` + ``daemon_set``.

    Attributes
    ----------
    pending_count : int
        Number of pending pods.
    gated : int
        Number of pods with scheduling gates, which do not count as pending.
    expendable : int
        Number of pods with a priority below ``expendable_cutoff``, which do not count as pending: the Cluster
        Autoscaler adds no nodes for them.
    terminating : int
        Number of pods without a node that are being deleted, which do not count as pending.
    on_unknown_nodes : int
        Number of pods on nodes that are not in the input, which do not count as pending.
    on_existing : int
        Number of pending pods that fit on existing nodes.
    need_new : int
        Number of pending pods that need a new node and that at least one group takes.
    unschedulable_count : int
        Number of pending pods that no group takes.
    daemon_set : int
        Number of pending pods of DaemonSets. They wait for existing nodes; a new node has its own.
    ignored_existing : bool
        Whether existing nodes were ignored.
    groups : list of GroupEstimate
        Estimate of each node group.
    unschedulable : list of str
        Pods that no group takes, as ``namespace/name``.
    unmodelled : list of str
        Features of pods that are not evaluated. They may need more nodes.
    expendable_running : int
        Number of running pods with a priority below ``expendable_cutoff``. Their room counts as free.
    expendable_cutoff : int
        Priority below which pods are expendable.
    placed : dict of str to str or None
        Existing node of each pod that fits on one. None: not requested.
    assumptions : list of str
        Assumptions of the choice of node groups, as texts.
    karpenter : KarpenterChoice or None
        Nodes that Karpenter would launch. None: the node groups are not NodePools.
    """

    KIND = "EstimateReport"
    ROWS = "groups"
    pending_count: int
    gated: int
    expendable: int
    terminating: int
    on_unknown_nodes: int
    on_existing: int
    need_new: int
    unschedulable_count: int
    daemon_set: int
    ignored_existing: bool
    groups: list[GroupEstimate]
    unschedulable: list[str]
    unmodelled: list[str]
    expendable_running: int
    expendable_cutoff: int
    placed: dict[str, str] | None = None
    assumptions: list[str] = msgspec.field(default_factory=list)
    karpenter: KarpenterChoice | None = None

    def summary(self) -> str:
        """Return a line: how many pods fit, need new nodes and fit nowhere, and the new nodes.

        New nodes are given by group, for groups that take pods.
        """
        groups = ", ".join(f"{line.group}: {line.nodes:,} nodes" for line in self.groups if line.pods)
        return (
            f"{self.pending_count:,} pods pending, {self.on_existing:,} fit, {self.need_new:,} need new nodes, "
            f"{self.unschedulable_count:,} unschedulable" + (f" ({groups})" if groups else "")
        )


class Shortage(Part, frozen=True):
    """A resource of which a node has too little free. Amounts are quantities.

    Attributes
    ----------
    resource : str
        Name of the resource.
    asked : str
        The pod's request.
    free : str
        Amount that is free on the node.
    short : str
        The missing amount: ``asked`` minus ``free``.
    """

    resource: str
    asked: str
    free: str
    short: str


class PluginVerdict(Part, frozen=True):
    """The rejection of a pod by one plug-in of the scheduler.

    Attributes
    ----------
    plugin : str
        Name of the plug-in.
    reasons : list of str
        Texts of the plug-in, as in kube-scheduler's events.
    shortages : list of Shortage
        Resources of which too little is free.
    detail : str
        The exact cause. Empty: the reasons say it.
    """

    plugin: str
    reasons: list[str]
    shortages: list[Shortage] = []
    detail: str = ""


class NodeVerdict(Part, frozen=True):
    """Why a pod does not fit a node.

    Attributes
    ----------
    node : str
        Name of the node.
    first : PluginVerdict
        Rejection by the first plug-in that rejects the pod, at which kube-scheduler stops.
    also : list of PluginVerdict
        Rejections by later plug-ins, which kube-scheduler would not check.
    """

    node: str
    first: PluginVerdict
    also: list[PluginVerdict] = []


class Nearest(Part, frozen=True):
    """The node that is closest to taking a pod.

    Attributes
    ----------
    node : str
        Name of the node.
    shortages : list of Shortage
        Resources of which too little is free.
    others : list of PluginVerdict
        Rejections by other plug-ins.
    """

    node: str
    shortages: list[Shortage]
    others: list[PluginVerdict]


class GroupAnswer(Part, frozen=True):
    """Verdict of the Cluster Autoscaler on a pod and a new node of a group.

    Attributes
    ----------
    group : str
        Id of the node group.
    fits : bool
        Whether the pod fits on a new node of the group.
    allocatable : dict of str to str
        Allocatable amounts of a new node by resource, as quantities.
    plugin : str
        The scheduler's plug-in that rejects the pod. Empty: none.
    reasons : list of str
        Texts of the plug-in, as in kube-scheduler's events.
    detail : str
        The exact cause. Empty: the reasons say it.
    csi_aware : bool or None
        Whether the pod fits if the simulation counts CSI volume limits (``enable-csi-node-aware-scheduling``). None: as
        ``fits``. False: the autoscaler would add a node in vain, and ``plugin`` and ``reasons`` say why.
    """

    group: str
    fits: bool
    allocatable: dict[str, str]
    plugin: str = ""
    reasons: list[str] = []
    detail: str = ""
    csi_aware: bool | None = None

    @property
    def takes(self) -> bool:
        """Return whether the autoscaler would add a node for the pod, and the pod would fit it."""
        return self.fits and self.csi_aware is not False


class Explanation(Record, frozen=True):
    """Why a pod fits nowhere, or where it fits.

    ``event`` and ``verdicts`` are about the nodes as they are. ``taken_by`` and ``groups`` follow the rules of the
    Cluster Autoscaler.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    node : str or None
        Node on which the pod is, or the node in ``nominated``. None: neither.
    fits : bool
        Whether the pod is on a node or fits on one, also after the evictions of ``fits_after_eviction``.
    node_count : int
        Number of nodes.
    fits_on : list of str
        Names of the nodes on which the pod fits.
    event : str
        Text of kube-scheduler's FailedScheduling event. Empty: the pod is on a node, or fits on one.
    verdicts : list of NodeVerdict
        Nodes on which the pod does not fit, and why.
    nearest : Nearest or None
        The node that is closest to taking the pod. None: the pod fits somewhere, or there is no such node.
    groups : list of GroupAnswer
        Verdict of the Cluster Autoscaler on each node group. Empty if an existing node takes the pod.
    gates : list of str
        Scheduling gates of the pod. All other fields describe the pod without them.
    unmodelled : list of str
        Features of the pod that are not evaluated.
    taken_by : list of str
        If the pod fits alone, but not after the pods that are placed before it: some of those on the nodes where it
        would fit.
    fits_after_eviction : list of str
        Further nodes on which the pod fits once running pods with a priority below ``expendable_cutoff`` are evicted.
    expendable_cutoff : int
        Priority below which the Cluster Autoscaler counts the room of running pods as free, and adds no nodes for
        pending pods.
    expendable : bool
        Whether the priority of this pod is below ``expendable_cutoff``.
    nominated : str or None
        Node that kube-scheduler has nominated for the pod. The Cluster Autoscaler counts the pod as running there.
        None: none.
    """

    KIND = "Explanation"
    ROWS = "verdicts"
    pod: str
    node: str | None
    fits: bool
    node_count: int
    fits_on: list[str]
    event: str
    verdicts: list[NodeVerdict]
    nearest: Nearest | None
    groups: list[GroupAnswer]
    gates: list[str]
    unmodelled: list[str]
    taken_by: list[str]
    fits_after_eviction: list[str]
    expendable_cutoff: int
    expendable: bool = False
    nominated: str | None = None

    def summary(self) -> str:
        """Return a line: the pod and its node, how many nodes it fits, or kube-scheduler's text on why it fits none."""
        if self.node:
            return f"{self.pod} is on {self.node}"
        if self.fits_on:
            return f"{self.pod} fits {len(self.fits_on):,} of {self.node_count:,} nodes"
        return f"{self.pod}: {self.event}"


class WorkloadFit(Part, frozen=True):
    """Number of replicas of a workload that can be placed now, one after the other, and the reasons of the others.

    Attributes
    ----------
    name : str
        Name of the workload.
    kind : str
        Kind of the workload.
    namespace : str
        Namespace of the workload.
    replicas : int
        Number of its replicas.
    fit : int
        Number of replicas that fit.
    rejections : list of Rejection
        Replicas that do not fit, and why.
    event : str
        kube-scheduler's text for the first replica that does not fit. Empty: all fit.
    next_event : str
        If all replicas fit: kube-scheduler's text for one more. Empty: one more would fit, too, or the kind has no
        further replicas.
    placement : dict of str to int or None
        Number of replicas by node. None: not requested.
    exists : bool
        Whether an object of this kind and name is in the input already. The replicas were placed in addition to its
        pods.
    """

    name: str
    kind: str
    namespace: str
    replicas: int
    fit: int
    rejections: list[Rejection]
    event: str = ""
    next_event: str = ""
    placement: dict[str, int] | None = None
    exists: bool = False


@typed_methods()
class FitReport(Record, frozen=True):
    """Whether workloads that are not in the cluster yet fit on the existing nodes.

    Attributes
    ----------
    replicas : int
        Number of replicas of all workloads.
    fit : int
        Number of these replicas that fit.
    workloads : list of WorkloadFit
        Result of each workload.
    unmodelled : list of str
        Features of the pods that are not evaluated.
    """

    KIND = "FitReport"
    ROWS = "workloads"
    replicas: int
    fit: int
    workloads: list[WorkloadFit]
    unmodelled: list[str]

    def summary(self) -> str:
        """Return a line: how many replicas of all workloads together fit, and how many of each workload."""
        parts = [f"{item.kind} {item.name}: {item.fit:,} of {item.replicas:,}" for item in self.workloads]
        return f"{self.fit:,} of {self.replicas:,} replicas fit" + (f" ({', '.join(parts)})" if parts else "")

    def explain(self, name: str) -> str:
        """Return how many replicas of a workload fit, and kube-scheduler's event if some do not, in one line.

        ``name``: of the workload, or ``namespace/name``; the first one of that name counts. Raises InputError if it is
        not part of this report.
        """
        for item in self.workloads:
            if name in (item.name, f"{item.namespace}/{item.name}"):
                rest = f"; {item.event}" if item.event else ""
                return f"{item.fit:,} of {item.replicas:,} replicas fit{rest}"
        raise InputError(f"no workload {name!r} in this report")
