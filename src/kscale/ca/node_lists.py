"""All nodes and the ready nodes of a loop (upstream: ``core/static_autoscaler.go``, ``processors/customresources``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.gpu import DEFAULT_GPU_LABEL, GPU_VENDOR_RESOURCES, GpuConfig
from kscale.ca.identity_cache import cached_by_identity
from kscale.ca.nodes import RegisteredNodes, is_ready, is_ready_and_active
from kscale.ca.templates import TaintConfig
from kscale.objects.api.core import Node
from kscale.objects.api.meta import Condition
from kscale.objects.nodegroups import instance_id_of
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "RESOURCE_NOT_READY_REASON",
    "STARTUP_TAINT_REASON",
    "NodeLists",
    "build_node_lists",
    "build_snapshot_node_lists",
    "get_unready_node_copy",
    "iterate_nodes_with_gpus",
]

RESOURCE_NOT_READY_REASON = "cluster-autoscaler.kubernetes.io/resource-not-ready"
"""The reason of nodes whose devices have not shown up yet."""
STARTUP_TAINT_REASON = "cluster-autoscaler.kubernetes.io/startup-taint"
"""The reason of nodes that have not started yet."""


class NodeLists(msgspec.Struct, kw_only=True):
    """Nodes of a loop by readiness.

    ``all``: all nodes in input order, with copies of nodes that are not really ready; ``ready``: the schedulable ready
    ones. ``unready``: why a node with condition Ready does not count as ready; ``registered``: cached facts about
    ``all``.
    """

    all: list[Node]
    ready: list[Node]
    unready: dict[str, str]
    registered: RegisteredNodes


def get_unready_node_copy(node: Node, reason: str) -> Node:
    """Return a copy of the node with Ready set to False for a reason, since the node's creation."""
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
    """Separate ready nodes from those that only claim to be ready.

    The latter lack a GPU that a label promises, lack devices or drivers, or have a startup taint. ``gpu_of`` is the
    provider's GPU configuration where it differs from the label's (a GPU exposed through DRA is not awaited).
    ``lacks`` checks whether a node lacks devices or drivers
    (:func:`kscale.ca.template_devices.build_missing_devices_check`).
    """
    taints = taints or TaintConfig()
    every = list(nodes)
    checks = [_check_node(node, gpu_label, taints, gpu_of, lacks) for node in every]
    return _assemble_node_lists(every, checks, [node.metadata.name for node in every], map(instance_id_of, every))


def build_snapshot_node_lists(
    snapshot: Snapshot, gpu_label: str, taints: TaintConfig, lacks: Callable[[Node], bool] | None = None
) -> NodeLists:
    """Build the node lists of a snapshot's nodes.

    Without ``lacks`` (a check whether a node lacks devices) the result is cached between snapshots.
    """
    nodes, names = snapshot.columns.objects, snapshot.columns.names
    if lacks is not None:
        return build_node_lists(nodes, gpu_label=gpu_label, taints=taints, lacks=lacks)

    def look(node: Node) -> _NodeCheck:
        return _check_node(node, gpu_label, taints, None, None)

    def sorted_out(nodes: list[Node]) -> NodeLists:
        checks = cached_by_identity(snapshot, ("looks at nodes", gpu_label, taints), nodes, look)
        return _assemble_node_lists(
            [*nodes], checks, names, cached_by_identity(snapshot, ("instance ids",), nodes, instance_id_of)
        )

    return cached_by_identity(snapshot, ("lists of nodes", gpu_label, taints), [nodes], sorted_out)[0]


_NodeCheck = tuple[bool, bool, str | None]
"""(is it simply ready, does it call itself ready to take pods, why it is not)."""

_READY_CHECK: Final[_NodeCheck] = (True, True, None)
"""Check of nearly all nodes, as one shared object."""


def _check_node(
    node: Node,
    gpu_label: str,
    taints: TaintConfig,
    gpu_of: Callable[[Node], GpuConfig | None] | None,
    lacks: Callable[[Node], bool] | None,
) -> _NodeCheck:
    simply, spec = is_ready_and_active(node), node.spec
    if spec.unschedulable or not (simply or is_ready(node)):
        return simply, False, None
    labels = node.metadata.labels
    suspect = lacks is not None or spec.taints or (labels and gpu_label in labels)
    reason = _explain_unready(node, gpu_label, taints, gpu_of, lacks) if suspect else None
    return _READY_CHECK if simply and reason is None else (simply, True, reason)


def _assemble_node_lists(
    every: list[Node], looks: Sequence[_NodeCheck], names: Sequence[str], instance_ids: Iterable[str]
) -> NodeLists:
    apart = [(i, *look) for i, look in enumerate(looks) if look is not _READY_CHECK]
    others = {i for i, _, called, reason in apart if not called or reason is not None}
    ready = [node for i, node in enumerate(every) if i not in others] if others else [*every]
    unready: dict[str, str] = {}
    odd = []
    for i, simply, _, reason in apart:
        if reason is not None:
            unready[names[i]] = reason
            every[i] = get_unready_node_copy(every[i], reason)
        if not simply or reason is not None:
            odd.append(i)
    registered = RegisteredNodes(every, names, instance_ids, odd)
    return NodeLists(all=every, ready=ready, unready=unready, registered=registered)


def iterate_nodes_with_gpus(nodes: Iterable[Node], gpu_label: str) -> Iterator[Node]:
    """Yield the ready, uncordoned nodes whose GPUs are visible, even if they lack other devices."""
    for node in nodes:
        if not node.spec.unschedulable and is_ready(node) and not _is_missing_gpu(node, gpu_label, None):
            yield node


def _is_missing_gpu(node: Node, gpu_label: str, gpu_of: Callable[[Node], GpuConfig | None] | None) -> bool:
    """Check whether the label promises a GPU that is not allocatable yet."""
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
    if _is_missing_gpu(node, gpu_label, gpu_of):
        return RESOURCE_NOT_READY_REASON
    if lacks is not None and lacks(node):
        return RESOURCE_NOT_READY_REASON
    if node.spec.taints and any(taints.is_startup(taint) for taint in node.spec.taints):
        return STARTUP_TAINT_REASON
    return None
