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
    """Pods that were rejected for the same reason. ``example`` is the first of them."""

    pods: int
    plugin: str
    reasons: list[str]
    example: str


class GroupEstimate(Part, frozen=True):
    """The estimate of one node group, if it alone takes the pods.

    ``nodes`` is upstream's estimate without its limit per scale-up; ``bound`` a proven lower bound of the number of
    nodes for the same pods, by ``boundMethod``. ``utilization`` is requests divided by allocatable of the new nodes, by
    resource; ``limitedBy`` the resource used most. ``current`` and ``maximum`` are the group's sizes, ``price`` the
    hourly price of the nodes, if known. ``placed`` (if requested): pod -> node. ``arch``: the nodes'
    ``kubernetes.io/arch``, empty if the group does not say; ``generation``: that of the machine by the name of its
    type, null if it is unknown.
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
    """New nodes of one ``node_pool``, ``type`` and ``capacity_type`` (in JSON: ``nodePool``, ``capacityType``).

    ``zone`` is empty if several are possible at the same price. ``nodes`` and ``pods`` are numbers. ``price`` of a node
    and ``cost`` of all are per hour, null if the price is unknown.
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

    ``pods`` = ``on_existing`` + ``on_new`` + the number of ``unschedulable`` pods. ``cost`` of the new ``nodes`` is per
    hour, null if a price is unknown; ``lines`` has them by type. In JSON, names have no underscores: ``onExisting``.
    """

    pods: int
    on_existing: int
    on_new: int
    nodes: int
    cost: float | None
    lines: list[KarpenterLine]
    unschedulable: list[str]
    """Names of pods that no NodePool takes."""
    unmodelled: list[str] = msgspec.field(default_factory=list)
    """Constraints of pods that the choice ignores, with their number of pods."""


class EstimateReport(Record, frozen=True):
    """Number of nodes of each group that the pending pods need, and the lower bound.

    ``pendingCount`` = ``onExisting`` + ``needNew`` + ``unschedulableCount`` + ``daemonSet``. ``needNew`` counts the
    pods that at least one group would take, ``unschedulable`` names those that none would. ``daemonSet`` pods wait for
    existing nodes; a new node brings its own. ``expendable`` pods have a priority below the autoscaler's cutoff: it
    adds no nodes for them; they are not counted, and running ones take no room. Not pending either are ``gated`` pods
    (scheduling gates), ``terminating`` ones, which have no node and are being deleted, and those ``onUnknownNodes``.
    ``expendableRunning`` counts running expendable pods, ``expendableCutoff`` is the cutoff. ``unmodelled`` lists
    features that are not evaluated, which may need more nodes. ``placed`` (if requested): pod -> existing node.
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
    """Assumptions of the choice of node groups, as texts."""
    karpenter: KarpenterChoice | None = None
    """Nodes that Karpenter would launch, if the node groups are NodePools."""

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
    """A resource that is short, as quantities: the request, what is free, and the difference."""

    resource: str
    asked: str
    free: str
    short: str


class PluginVerdict(Part, frozen=True):
    """One plug-in's rejection: upstream's reasons, the shortages if any, and details of the cause."""

    plugin: str
    reasons: list[str]
    shortages: list[Shortage] = []
    detail: str = ""


class NodeVerdict(Part, frozen=True):
    """Why the pod does not fit this node: ``first`` is where upstream stops, ``also`` every later plug-in's
    rejection.
    """

    node: str
    first: PluginVerdict
    also: list[PluginVerdict] = []


class Nearest(Part, frozen=True):
    """The node that is closest to taking the pod: what is short, and the other plug-ins that reject it."""

    node: str
    shortages: list[Shortage]
    others: list[PluginVerdict]


class GroupAnswer(Part, frozen=True):
    """Verdict of the Cluster Autoscaler on a pod and a new node of a group.

    ``csiAware`` is the result of a CSI-node-aware simulation (``enable-csi-node-aware-scheduling``), if it differs:
    False means that the autoscaler would add a node in vain, and ``plugin`` and ``reasons`` then say why. ``detail``:
    the exact cause, if the reasons do not say it.
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
    """Why a pod fits nowhere, or where it fits. ``event`` is the text of kube-scheduler's FailedScheduling event.

    ``node``: the node it already runs on. ``gates``: its scheduling gates; the rest describes it without them.
    ``takenBy``: it fits alone, but not after the pods that are placed before it; names some of those on nodes where it
    fits.

    ``expendableCutoff``: the Cluster Autoscaler counts the room of running pods of a lower priority as free and adds no
    nodes for pending ones. ``expendable``: this pod's priority is lower. ``fitsAfterEviction``: further nodes where the
    pod fits once such pods are evicted. ``event`` and ``verdicts`` refer to the nodes as they are; ``takenBy`` and
    ``groups`` follow the autoscaler's rule.

    ``nominated``: the node that kube-scheduler has nominated, if the pod waits for one; the autoscaler counts the pod
    as running there.
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

    ``event`` is kube-scheduler's text for the first unplaced replica; if all are placed, ``nextEvent`` is that for one
    more (empty: it would fit, too, or its kind has no more). ``placement`` (if requested): node -> replicas.
    ``exists``: an object of this kind and name is in the input already; its replicas were placed in addition to its
    existing pods.
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
    """Fit of workloads that are not in the cluster yet on the existing nodes.

    ``replicas``: replicas of all workloads; ``fit``: how many of them fit. ``unmodelled`` lists what the result does
    not consider.
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
