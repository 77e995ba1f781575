"""Conditions, taints and life spans of nodes and pods, and the lists of all and of ready nodes of a loop.

Upstream: ``utils/kubernetes/ready.go``, ``utils/taints``, ``utils/drain``, ``core/static_autoscaler.go``,
``processors/customresources``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.gpu import DEFAULT_GPU_LABEL, GPU_VENDOR_RESOURCES, GpuConfig
from kscale.ca.templates import TaintConfig
from kscale.effects import SECOND, ZERO_TIME
from kscale.effects.moments import ComparedDuration
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import Condition
from kscale.objects.conditions import changed_at
from kscale.objects.go_numbers import TRUE_TEXTS, parse_int64, wrap_int64
from kscale.objects.nodegroup import instance_id_of
from kscale.objects.times import moment_in
from kscale.snapshot.caches import cached_by_identity
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "DELETION_CANDIDATE_TAINT",
    "RESOURCE_NOT_READY_REASON",
    "SCALE_DOWN_DISABLED_KEY",
    "STARTUP_TAINT_REASON",
    "TO_BE_DELETED_TAINT",
    "UPCOMING_NODE_ANNOTATION",
    "NodeLists",
    "Readiness",
    "RegisteredNodes",
    "build_node_lists",
    "build_snapshot_node_lists",
    "get_deletion_candidate_time",
    "get_readiness",
    "get_ready_and_suspended",
    "get_to_be_deleted_time",
    "get_unready_node_copy",
    "has_taint",
    "is_being_deleted",
    "is_long_terminating",
    "is_ready",
    "is_ready_and_active",
    "is_suspended",
    "is_upcoming_node",
    "iterate_usable_nodes",
]

DEFAULT_TERMINATION_GRACE_PERIOD: Final[ComparedDuration] = 30 * SECOND
POD_LONG_TERMINATING_EXTRA_THRESHOLD: Final[ComparedDuration] = 30 * SECOND


def is_long_terminating(pod: Pod, now_ns: int) -> bool:
    """Check whether a pod has been terminating for longer than its grace period and 30 seconds.

    False for a pod without deletion timestamp.
    """
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return False
    grace = pod.spec.termination_grace_period_seconds
    grace_ns = wrap_int64(DEFAULT_TERMINATION_GRACE_PERIOD if grace is None else grace * SECOND)
    deleted_at = moment_in(pod, deleted, "metadata.deletionTimestamp")
    return deleted_at + grace_ns + POD_LONG_TERMINATING_EXTRA_THRESHOLD < now_ns


TO_BE_DELETED_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE_TAINT: Final = "DeletionCandidateOfClusterAutoscaler"
SCALE_DOWN_DISABLED_KEY: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

_NOT_READY_TAINTS: Final = frozenset(
    ("node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable")
)
_NOT_TRUE_STATUSES: Final = ("False", "Unknown")
_TROUBLE_CONDITIONS: Final = ("DiskPressure", "NetworkUnavailable")
_READINESS_CONDITIONS: Final = frozenset(("Ready", *_TROUBLE_CONDITIONS))
MAX_NODE_DELETION_TIME: Final[ComparedDuration] = 300 * SECOND


class Readiness(msgspec.Struct, frozen=True):
    """Whether a node is ready, since when (:data:`~kscale.effects.ZERO_TIME` if unknown), and the condition's reason.

    ``known`` is False for a node without Ready condition, which counts as not ready.
    """

    ready: bool
    last_transition: int = ZERO_TIME
    reason: str = ""
    known: bool = True


def get_readiness(node: Node) -> Readiness:
    """Return the readiness of a node, with the time of its last transition.

    A node is ready unless its Ready condition is missing, False or Unknown, or a disk or network condition or a
    not-ready taint contradicts. ``reason`` is that of the last Ready condition that is not True. Raises InputError for
    an invalid time.
    """
    conditions = node.status.conditions
    if "Ready" not in [condition.type for condition in conditions]:
        return Readiness(ready=False, known=False)
    ready, reason, last = True, "", ZERO_TIME
    for condition in conditions:
        if condition.type not in _READINESS_CONDITIONS:
            continue
        last = max(last, changed_at(node, condition))
        bad = _NOT_TRUE_STATUSES if condition.type == "Ready" else ("True",)
        if condition.status in bad:
            ready = False
            if condition.type == "Ready":
                reason = condition.reason
    for number, taint in enumerate(node.spec.taints):
        if taint.key in _NOT_READY_TAINTS:
            ready = False
            if taint.time_added is not None:
                last = max(last, moment_in(node, taint.time_added, f"spec.taints[{number}].timeAdded"))
    return Readiness(ready=ready, last_transition=last, reason=reason)


def is_ready(node: Node) -> bool:
    """Check whether a node is ready, by the rules of :func:`get_readiness`, without reading times."""
    return get_ready_and_suspended(node)[0]


def get_ready_and_suspended(node: Node) -> tuple[bool, bool]:
    """Return whether the node is ready, and whether its first Suspended condition is True.

    A node without Ready condition is not ready.
    """
    known, ready, suspended = False, True, None
    for condition in node.status.conditions:
        kind = condition.type
        if kind == "Ready":
            known = True
            ready = ready and condition.status not in _NOT_TRUE_STATUSES
        elif kind in _TROUBLE_CONDITIONS:
            ready = ready and condition.status != "True"
        elif kind == "Suspended" and suspended is None:
            suspended = condition.status == "True"
    ready = known and ready
    if ready and node.spec.taints:
        ready = not any(taint.key in _NOT_READY_TAINTS for taint in node.spec.taints)
    return ready, bool(suspended)


def is_ready_and_active(node: Node) -> bool:
    """Check whether a node is ready, not suspended and not tainted for deletion."""
    ready, suspended = get_ready_and_suspended(node)
    return ready and not suspended and not has_taint(node, TO_BE_DELETED_TAINT)


def has_taint(node: Node, key: str) -> bool:
    """Check whether the node has a taint with this key. Value and effect of the taint are ignored."""
    taints = node.spec.taints
    return bool(taints) and any(taint.key == key for taint in taints)


def _get_taint_seconds(node: Node, key: str) -> int | None:
    """Return the value of the first taint with this key as an integer (Unix seconds).

    None if there is no such taint, or if its value is not an int64.
    """
    for taint in node.spec.taints:
        if taint.key == key:
            return parse_int64(taint.value)
    return None


def get_to_be_deleted_time(node: Node) -> int | None:
    """Return the time of the node's deletion taint in nanoseconds since 1970.

    None without the taint ``ToBeDeletedByClusterAutoscaler`` or if its value cannot be parsed.
    """
    seconds = _get_taint_seconds(node, TO_BE_DELETED_TAINT)
    return None if seconds is None else seconds * SECOND


def get_deletion_candidate_time(node: Node) -> int | None:
    """Return the time of the node's soft taint as a deletion candidate in nanoseconds since 1970.

    None without the taint or if its value cannot be parsed.
    """
    seconds = _get_taint_seconds(node, DELETION_CANDIDATE_TAINT)
    return None if seconds is None else seconds * SECOND


def is_being_deleted(node: Node, now_ns: int) -> bool:
    """Check whether the node was tainted for deletion less than five minutes ago (or in the future)."""
    since = get_to_be_deleted_time(node)
    return since is not None and now_ns - since < MAX_NODE_DELETION_TIME


def is_suspended(node: Node) -> bool:
    """Check whether the cloud has suspended the node's instance."""
    return get_ready_and_suspended(node)[1]


class RegisteredNodes:
    """Nodes in the given order, with properties that are computed once for all loops. Immutable.

    ``names``: in the order of the nodes. ``instance_ids``: set of the nodes' instance ids
    (:func:`kscale.objects.nodegroup.instance_id_of`). ``odd``: ascending positions of nodes for which
    :func:`kscale.ca.nodes.is_ready_and_active` is False.
    """

    __slots__ = ("instance_ids", "names", "nodes", "odd")

    def __init__(
        self, nodes: Sequence[Node], names: Sequence[str], instance_ids: Iterable[str], odd: Sequence[int]
    ) -> None:
        self.nodes = nodes
        self.names = names
        self.instance_ids = frozenset(instance_ids)
        self.odd = odd

    @classmethod
    def of(cls, nodes: Iterable[Node] | RegisteredNodes) -> RegisteredNodes:
        """Return the nodes as RegisteredNodes; the same object if they already are."""
        if isinstance(nodes, RegisteredNodes):
            return nodes
        every = [*nodes]
        odd = [i for i, node in enumerate(every) if not is_ready_and_active(node)]
        return cls(every, [node.metadata.name for node in every], map(instance_id_of, every), odd)

    def __len__(self) -> int:
        return len(self.nodes)


UPCOMING_NODE_ANNOTATION: Final = "cluster-autoscaler.k8s.io/upcoming-node"


def is_upcoming_node(node: Node) -> bool:
    """Return whether the node is a placeholder for an instance that was requested and has not registered yet."""
    return (node.metadata.annotations or {}).get(UPCOMING_NODE_ANNOTATION) in TRUE_TEXTS


RESOURCE_NOT_READY_REASON = "cluster-autoscaler.kubernetes.io/resource-not-ready"
"""Reason of nodes that are unready because their devices are not allocatable yet."""
STARTUP_TAINT_REASON = "cluster-autoscaler.kubernetes.io/startup-taint"
"""Reason of nodes that are unready because they still have a startup taint."""


class NodeLists(msgspec.Struct, kw_only=True):
    """Nodes of a loop by readiness.

    ``all``: all nodes in input order; a node whose Ready condition is True too early is replaced by an unready copy.
    ``ready``: the ready nodes that are not cordoned. ``unready``: reason by name for each replaced node.
    ``registered``: ``all`` with cached properties.
    """

    all: list[Node]
    ready: list[Node]
    unready: dict[str, str]
    registered: RegisteredNodes


def get_unready_node_copy(node: Node, reason: str) -> Node:
    """Return a copy of the node whose Ready condition is False for this reason, since the node's creation."""
    off = Condition(type="Ready", status="False", reason=reason, last_transition_time=node.metadata.creation_timestamp)
    conditions = [off if condition.type == "Ready" else condition for condition in node.status.conditions]
    return replace(node, status=replace(node.status, conditions=conditions))


def build_node_lists(
    nodes: Iterable[Node],
    *,
    gpu_label: str = DEFAULT_GPU_LABEL,
    taints: TaintConfig | None = None,
    gpu_of: Callable[[Node], GpuConfig | None] | None = None,
    lacks: Callable[[Node], bool] | None = None,
) -> NodeLists:
    """Find the nodes whose Ready condition is True although they are not usable yet, and build the node lists.

    A node is not usable yet if it waits for a GPU, lacks devices or drivers, or has a startup taint.

    Parameters
    ----------
    nodes : iterable of Node
    gpu_label : str
        Label of nodes that will have a GPU.
    taints : TaintConfig, optional
        Which taints are startup taints. Default: upstream's.
    gpu_of : callable, optional
        Returns the provider's GPU configuration of a node, or None. A GPU that it exposes through DRA is not waited
        for.
    lacks : callable, optional
        Checks whether a node lacks devices or drivers
        (:func:`kscale.ca.template_devices.build_missing_devices_check`).

    Returns
    -------
    NodeLists
    """
    taints = taints or TaintConfig()
    every = list(nodes)
    checks = [_check_node(node, gpu_label, taints, gpu_of, lacks) for node in every]
    return _assemble_node_lists(every, checks, [node.metadata.name for node in every], map(instance_id_of, every))


def build_snapshot_node_lists(
    snapshot: Snapshot, gpu_label: str, taints: TaintConfig, lacks: Callable[[Node], bool] | None = None
) -> NodeLists:
    """Build the node lists of a snapshot, as :func:`build_node_lists` does.

    ``lacks``: checks whether a node lacks devices or drivers. Without it, results for unchanged nodes are reused from
    earlier snapshots.
    """
    nodes, names = snapshot.columns.objects, snapshot.columns.names
    if lacks is not None:
        return build_node_lists(nodes, gpu_label=gpu_label, taints=taints, lacks=lacks)

    def check(node: Node) -> _NodeCheck:
        return _check_node(node, gpu_label, taints, None, None)

    def build(nodes: list[Node]) -> NodeLists:
        checks = cached_by_identity(snapshot.interner.memo, ("node checks", gpu_label, taints), nodes, check)
        return _assemble_node_lists(
            [*nodes],
            checks,
            names,
            cached_by_identity(snapshot.interner.memo, ("instance ids",), nodes, instance_id_of),
        )

    return cached_by_identity(snapshot.interner.memo, ("node lists", gpu_label, taints), [nodes], build)[0]


_NodeCheck = tuple[bool, bool, str | None]
"""Result of :func:`_check_node`: (is ready and active, is ready and not cordoned, why it counts as unready)."""

_READY_CHECK: Final[_NodeCheck] = (True, True, None)
"""Result for a usable node, that is, for nearly all nodes: one shared object."""


def _check_node(
    node: Node,
    gpu_label: str,
    taints: TaintConfig,
    gpu_of: Callable[[Node], GpuConfig | None] | None,
    lacks: Callable[[Node], bool] | None,
) -> _NodeCheck:
    """Check a node for the node lists (parameters: :func:`build_node_lists`).

    Returns (whether it is ready and active, whether it is ready and not cordoned, why it counts as unready). The reason
    is None for a node that is not ready, is cordoned, or lacks nothing.
    """
    simply, spec = is_ready_and_active(node), node.spec
    if spec.unschedulable or not (simply or is_ready(node)):
        return simply, False, None
    labels = node.metadata.labels
    suspect = lacks is not None or spec.taints or (labels and gpu_label in labels)
    reason = _explain_unready(node, gpu_label, taints, gpu_of, lacks) if suspect else None
    return _READY_CHECK if simply and reason is None else (simply, True, reason)


def _assemble_node_lists(
    nodes: list[Node], checks: Sequence[_NodeCheck], names: Sequence[str], instance_ids: Iterable[str]
) -> NodeLists:
    """Build the node lists from the result of :func:`_check_node` for each node.

    Nodes that are unready for a reason are replaced in ``nodes``, in place, by unready copies.
    """
    exceptions = [(i, *check) for i, check in enumerate(checks) if check is not _READY_CHECK]
    excluded = {i for i, _, is_schedulable, reason in exceptions if not is_schedulable or reason is not None}
    ready = [node for i, node in enumerate(nodes) if i not in excluded] if excluded else [*nodes]
    unready: dict[str, str] = {}
    not_simply_ready = []
    for i, is_active, _, reason in exceptions:
        if reason is not None:
            unready[names[i]] = reason
            nodes[i] = get_unready_node_copy(nodes[i], reason)
        if not is_active or reason is not None:
            not_simply_ready.append(i)
    registered = RegisteredNodes(nodes, names, instance_ids, not_simply_ready)
    return NodeLists(all=nodes, ready=ready, unready=unready, registered=registered)


def iterate_usable_nodes(nodes: Iterable[Node], gpu_label: str) -> Iterator[Node]:
    """Yield the nodes that are ready, not cordoned and not waiting for a GPU.

    A node waits for a GPU if it has the label ``gpu_label`` but no allocatable GPU yet. Nodes without the label are
    included, and so are nodes that wait for other devices.
    """
    for node in nodes:
        if not node.spec.unschedulable and is_ready(node) and not _is_missing_gpu(node, gpu_label, None):
            yield node


def _is_missing_gpu(node: Node, gpu_label: str, gpu_of: Callable[[Node], GpuConfig | None] | None) -> bool:
    """Check whether the node has the label ``gpu_label`` but no allocatable GPU yet.

    False for a GPU that ``gpu_of`` (the provider's GPU configuration of a node) exposes through a DRA driver.
    """
    if gpu_label not in (node.metadata.labels or {}):
        return False
    config = gpu_of(node) if gpu_of is not None else None
    allocatable = node.status.allocatable or {}
    shown = any(name in allocatable and not allocatable[name].is_zero for name in GPU_VENDOR_RESOURCES)
    return not shown and not (config is not None and config.dra_driver)


def _explain_unready(
    node: Node,
    gpu_label: str,
    taints: TaintConfig,
    gpu_of: Callable[[Node], GpuConfig | None] | None,
    lacks: Callable[[Node], bool] | None,
) -> str | None:
    """Return the reason why a node that claims to be ready counts as unready; None if it counts as ready.

    The parameters are those of :func:`build_node_lists`.
    """
    if _is_missing_gpu(node, gpu_label, gpu_of):
        return RESOURCE_NOT_READY_REASON
    if lacks is not None and lacks(node):
        return RESOURCE_NOT_READY_REASON
    if node.spec.taints and any(taints.is_startup(taint) for taint in node.spec.taints):
        return STARTUP_TAINT_REASON
    return None
