"""Result records of ``kscale estimate``, ``explain`` and ``fit``."""

from __future__ import annotations

import msgspec

from kscale.records import Record

__all__ = [
    "UNLIMITED",
    "EstimateReport",
    "Explanation",
    "FitReport",
    "GroupAnswer",
    "GroupEstimate",
    "Nearest",
    "NodeVerdict",
    "PluginVerdict",
    "Rejection",
    "Shortage",
    "WorkloadFit",
]


UNLIMITED = 2**31 - 1  # the maximum size of a group whose limit nobody has said


class Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Base of what records consist of."""


class Rejection(Part, frozen=True):
    """Pods that stay without for one and the same reason. ``example`` is the first of them."""

    pods: int
    plugin: str
    reasons: list[str]
    example: str


class GroupEstimate(Part, frozen=True):
    """What one node group would do when it alone takes the pods.

    ``nodes`` is what upstream's estimator asks for without its cap per scale-up; ``bound`` a proven least number of
    nodes for the same pods and ``boundMethod`` what proved it. ``utilization`` is requests over allocatable of the new
    nodes, per resource; ``limitedBy`` the resource used most. ``current`` and ``maximum`` are the group's sizes,
    ``price`` the hourly price of the nodes, where known. ``placement`` (when asked for): pod -> node. ``arch``: of the
    nodes as ``kubernetes.io/arch`` has it, empty where the group does not say.
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
    placement: dict[str, str] | None = None
    arch: str = ""

    @property
    def over_maximum(self) -> int:
        """Nodes asked for beyond the group's maximum size."""
        if self.maximum is None:
            return 0
        return max(0, self.nodes + (self.current or 0) - self.maximum)


class EstimateReport(Record, frozen=True):
    """How many nodes of each group the pending pods need, and why not fewer.

    ``pending`` = ``onExisting`` + ``needNew`` + ``nowhere`` + ``daemonSet``. ``needNew`` counts the pods that at least
    one group would take, ``nowherePods`` names those that none would. ``daemonSet`` pods wait for nodes that exist; a
    new node brings its own. ``expendable`` pods have a priority below the autoscaler's cut-off: it adds no nodes for
    them; they do not count, and those that run take no room. Not pending either are ``gated`` pods, which wait for
    scheduling gates, ``terminating`` ones, which have no node and are being deleted, and those ``onUnknownNodes``.
    ``expendableRunning`` counts those that run, ``expendableCutoff`` is the cut-off. ``unmodelled`` lists what is not
    judged: it may need more nodes. ``existing`` (when asked for): pod -> node.
    """

    KIND = "EstimateReport"
    pending: int
    gated: int
    expendable: int
    terminating: int
    on_unknown_nodes: int
    on_existing: int
    need_new: int
    nowhere: int
    daemon_set: int
    ignored_existing: bool
    groups: list[GroupEstimate]
    nowhere_pods: list[str]
    unmodelled: list[str]
    expendable_running: int
    expendable_cutoff: int
    existing: dict[str, str] | None = None


class Shortage(Part, frozen=True):
    """A resource that is short, as quantities: what the pod asks, what is free, and the difference."""

    resource: str
    asked: str
    free: str
    short: str


class PluginVerdict(Part, frozen=True):
    """One plug-in's no: upstream's reasons, the arithmetic where there is some, and what exactly was in the way."""

    plugin: str
    reasons: list[str]
    shortages: list[Shortage] = []
    detail: str = ""


class NodeVerdict(Part, frozen=True):
    """Why the pod does not fit this node: ``first`` is where upstream stops, ``also`` every later plug-in's no."""

    node: str
    first: PluginVerdict
    also: list[PluginVerdict] = []


class Nearest(Part, frozen=True):
    """The node that is least far from taking the pod: what is short, and the other plug-ins in the way."""

    node: str
    shortages: list[Shortage]
    others: list[PluginVerdict]


class GroupAnswer(Part, frozen=True):
    """Whether a new node of a group would take the pod, as the Cluster Autoscaler judges it.

    ``csiAware`` is the answer of a CSI-node-aware simulation (``enable-csi-node-aware-scheduling``), where it is
    another one: False means that the autoscaler would add a node in vain, and ``plugin`` and ``reasons`` then say why.
    ``detail``: what exactly is in the way, where the reasons do not say it.
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
        """Whether the autoscaler would add a node for the pod, and not in vain."""
        return self.fits and self.csi_aware is not False


class Explanation(Record, frozen=True):
    """Why a pod fits nowhere, or where it fits. ``event`` is the text of kube-scheduler's FailedScheduling event.

    ``node``: where it runs already. ``gates``: scheduling gates it waits for; the rest is then what would be without.
    ``takenBy``: it fits by itself, but not after the pods that are placed before it; some of those that are on nodes
    where it fits.

    ``expendableCutoff``: the Cluster Autoscaler counts the room of running pods of a lower priority as free and adds no
    nodes for pending ones. ``expendable``: this pod's priority is lower. ``fitsAfterEviction``: further nodes where the
    pod fits once such pods are evicted. ``event`` and ``verdicts`` are about the nodes as they are; ``takenBy`` and
    ``groups`` go by the autoscaler's rule.

    ``nominated``: the node that kube-scheduler has nominated, if the pod waits for one; the autoscaler counts the pod
    as running there.
    """

    KIND = "Explanation"
    pod: str
    node: str | None
    fits: bool
    nodes: int
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


class WorkloadFit(Part, frozen=True):
    """How many replicas of a workload find a place now, placed one after the other, and why the others do not.

    ``event`` is kube-scheduler's text for the first replica without a place; where all have one, ``nextEvent`` is that
    for one more (empty: it would fit, too, or its kind has no more). ``placement`` (when asked for): node -> replicas.
    ``exists``: an object of this kind and name is in the input already; its replicas were asked about on top of its
    pods there.
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


class FitReport(Record, frozen=True):
    """Whether workloads that are not in the cluster yet would fit on the nodes that exist."""

    KIND = "FitReport"
    replicas: int
    fit: int
    workloads: list[WorkloadFit]
    unmodelled: list[str]
