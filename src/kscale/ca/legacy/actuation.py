"""Deleting nodes as release 1.3 does (``core/scale_down.go``): empty ones at once, one drained behind the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from kscale.ca.errors import (
    API_CALL_ERROR,
    CLOUD_PROVIDER_ERROR,
    INTERNAL_ERROR,
    AutoscalerError,
)
from kscale.ca.event_subjects import node_event, status_event
from kscale.ca.go_math import format_shortest
from kscale.ca.legacy.metrics import gpu_name_1_3
from kscale.ca.metrics import PREFIX
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, is_ready, life_of
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeletionTracker
from kscale.ca.scale_down.actuation.drain import Draining, Evictor
from kscale.ca.scale_down.actuation.results import (
    NODE_DELETE_ERROR_FAILED_TO_DELETE,
    NODE_DELETE_OK,
    NodeDeleteResult,
)
from kscale.ca.scale_down.actuation.tainting import Writing, clean_to_be_deleted, mark_to_be_deleted
from kscale.effects import (
    DeleteNodes,
    Emit,
    InBackground,
    Moment,
    Observation,
    Observe,
    Progress,
    StepsOf,
    Together,
)
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeTemplate, ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["LegacyDeleting", "delete_empty_nodes", "free_ready_nodes", "start_draining"]

LegacyDeleting = Draining | Writing | DeleteNodes | Emit | Observe | Together | InBackground
"""What deleting nodes asks for."""


def free_ready_nodes(p: Progress, nodes: Iterable[Node]) -> StepsOf[Writing | Emit, None]:
    """What the first loop of a process does: nodes that are ready, of whatever group, lose the mark that an earlier
    process left on them."""
    for node in nodes:
        if not life_of(node)[0] or node.spec.unschedulable or not has_taint(node, TO_BE_DELETED_TAINT):
            continue
        error, changed = yield from clean_to_be_deleted(p, node, uncordon=False)
        if error is not None:
            text = f"failed to clean toBeDeletedTaint: {error.message}"
            yield from p.emit(node_event(node, "Warning", "ClusterAutoscalerCleanup", text))
        elif changed:
            yield from p.emit(node_event(node, "Normal", "ClusterAutoscalerCleanup", "marking the node as schedulable"))


def delete_empty_nodes(
    p: Progress,
    nodes: Sequence[Node],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
    templates: Mapping[str, NodeTemplate],
) -> StepsOf[LegacyDeleting, AutoscalerError | None]:
    """Delete nodes side by side and wait for all of them; return the last error, None if there was none.

    ``templates`` are those of the groups, for the label of GPUs in metrics.
    """
    for node in nodes:
        text = f"Scale-down: removing empty node {node.name}"
        yield from p.emit(status_event(options, "Normal", "ScaleDownEmpty", text))
    found: list[AutoscalerError | None] = yield from p.together(
        [partial(_delete_empty, node, groups, tracker, templates) for node in nodes]
    )
    failed = [error for error in found if error is not None]
    return failed[-1].with_prefix("failed to delete at least one empty node: ") if failed else None


def _delete_empty(
    node: Node, groups: Groups, tracker: NodeDeletionTracker, templates: Mapping[str, NodeTemplate], now: Moment
) -> StepsOf[LegacyDeleting, AutoscalerError | None]:
    p = Progress(now)
    marked = yield from _mark(p, node)
    if marked is not None:
        return marked
    error = yield from _ask_cloud(p, node, groups, tracker)
    if error is not None:
        yield from clean_to_be_deleted(p, node, uncordon=False)
        text = f"failed to delete empty node: {error.message}"
        yield from p.emit(node_event(node, "Warning", "ScaleDownFailed", text))
        return error
    yield from _count(p, node, groups, templates, "empty")
    return None


def _count(
    p: Progress, node: Node, groups: Groups, templates: Mapping[str, NodeTemplate], reason: str
) -> StepsOf[Observe, None]:
    """Count a node that was removed (``RegisterScaleDown``)."""
    labels = {"reason": reason if is_ready(node) else "unready"}
    gpu = gpu_name_1_3(node, templates.get(groups.id_of_node(node.name) or ""))
    yield from p.observe(Observation(name=f"{PREFIX}scaled_down_nodes_total", labels=labels))
    if gpu:
        yield from p.observe(
            Observation(name=f"{PREFIX}scaled_down_gpu_nodes_total", labels={**labels, "gpu_name": gpu})
        )


def start_draining(
    p: Progress,
    node: Node,
    pods: Sequence[Pod],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
    templates: Mapping[str, NodeTemplate],
    utilization: float,
) -> StepsOf[LegacyDeleting, None]:
    """Begin to drain a node; no other node is touched until the drain has ended."""
    names = ",".join(pod.key for pod in pods)
    share = format_shortest(utilization)
    text = f"Scale-down: removing node {node.name}, utilization: {share}, pods to reschedule: {names}"
    yield from p.emit(status_event(options, "Normal", "ScaleDown", text))
    group = groups.id_of_node(node.name) or ""
    tracker.start_deletion(group, node.name, drain=True)
    yield from p.act(InBackground(partial(_drain, node, group, pods, groups, options, tracker, templates)))


def _drain(
    node: Node,
    group: str,
    pods: Sequence[Pod],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
    templates: Mapping[str, NodeTemplate],
    now: Moment,
) -> StepsOf[LegacyDeleting, None]:
    p = Progress(now)
    error = yield from _mark(p, node)
    if error is None:
        yield from p.emit(node_event(node, "Normal", "ScaleDown", "marked the node as toBeDeleted/unschedulable"))
        evictor = Evictor(replace(options, drain_priority_config=""), tracker.register_eviction)
        error = (yield from evictor.evict(p, node.name, pods, [])).error
        text = "failed to drain the node, aborting ScaleDown"
        if error is None:
            error = yield from _ask_cloud(p, node, groups, tracker)
            text = "failed to delete the node"
        if error is not None:
            yield from clean_to_be_deleted(p, node, uncordon=False)
            yield from p.emit(node_event(node, "Warning", "ScaleDownFailed", text))
    result = NodeDeleteResult(result=NODE_DELETE_OK)
    if error is None:
        yield from _count(p, node, groups, templates, "underutilized")
    else:
        result = NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=error.record)
    tracker.end_deletion(group, node.name, result, p.now)


def _mark(p: Progress, node: Node) -> StepsOf[Writing | Emit, AutoscalerError | None]:
    """That release did not cordon."""
    refusal = yield from mark_to_be_deleted(p, node, cordon=False)
    if refusal is None:
        return None
    text = f"failed to mark the node as toBeDeleted/unschedulable: {refusal.message}"
    yield from p.emit(node_event(node, "Warning", "ScaleDownFailed", text))
    return AutoscalerError(API_CALL_ERROR, refusal.message)


def _ask_cloud(
    p: Progress, node: Node, groups: Groups, tracker: NodeDeletionTracker
) -> StepsOf[DeleteNodes | Emit, AutoscalerError | None]:
    try:
        group = groups.of_node(node.name)
    except ProviderError as error:
        text = f"failed to find node group for {node.name}: {error.message}"
        return AutoscalerError(CLOUD_PROVIDER_ERROR, text)
    if group is None:
        text = f"picked node that doesn't belong to a node group: {node.name}"
        return AutoscalerError(INTERNAL_ERROR, text)
    refusal = (yield from p.act(DeleteNodes(group=group.id, nodes=(node.name,), objects=(node,)))).error
    if refusal is not None:
        return AutoscalerError(CLOUD_PROVIDER_ERROR, f"failed to delete {node.name}: {refusal.message}")
    yield from p.emit(node_event(node, "Normal", "ScaleDown", "node removed by cluster autoscaler"))
    tracker.register_scale_down(group.id, node.name, p.now)
    return None
