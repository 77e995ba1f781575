"""Deleting nodes as release 1.3 does (``core/scale_down.go``): empty ones at once, one drained behind the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from kscale.ca.errors import (
    API_CALL_ERROR,
    CLOUD_PROVIDER_ERROR,
    INTERNAL_ERROR,
    AutoscalerError,
)
from kscale.ca.event_subjects import node_event, status_event
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, life_of
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.actuation.deletion_tracker import NodeDeletionTracker
from kscale.ca.scale_down.actuation.drain import Draining, Evictor
from kscale.ca.scale_down.actuation.results import (
    NODE_DELETE_ERROR_FAILED_TO_DELETE,
    NODE_DELETE_OK,
    NodeDeleteResult,
)
from kscale.ca.scale_down.actuation.tainting import Writing, clean_to_be_deleted, mark_to_be_deleted
from kscale.effects import DeleteNodes, Emit, InBackground, Moment, Progress, StepsOf, Together
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import ProviderError
from kscale.objects.nodegroups import Groups

__all__ = ["LegacyDeleting", "delete_empty_nodes", "free_ready_nodes", "start_draining"]

LegacyDeleting = Draining | Writing | DeleteNodes | Emit | Together | InBackground
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
) -> StepsOf[LegacyDeleting, AutoscalerError | None]:
    """Deletes nodes side by side and waits for all of them; the last error, if any."""
    for node in nodes:
        text = f"Scale-down: removing empty node {node.name}"
        yield from p.emit(status_event(options, "Normal", "ScaleDownEmpty", text))
    found: list[AutoscalerError | None] = yield from p.together(
        [partial(_delete_empty, node, groups, options, tracker) for node in nodes]
    )
    failed = [error for error in found if error is not None]
    return failed[-1].with_prefix("failed to delete at least one empty node: ") if failed else None


def _delete_empty(
    node: Node, groups: Groups, options: AutoscalingOptions, tracker: NodeDeletionTracker, now: Moment
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
    said = f"Scale-down: empty node {node.name} removed"
    yield from p.emit(status_event(options, "Normal", "ScaleDownEmpty", said))
    return None


def start_draining(
    p: Progress,
    node: Node,
    pods: Sequence[Pod],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
) -> StepsOf[LegacyDeleting, None]:
    """Begins to drain a node; until that has ended no other is touched."""
    names = ",".join(pod.name for pod in pods)
    text = f"Scale-down: removing node {node.name}, pods to reschedule: {names}"
    yield from p.emit(status_event(options, "Normal", "ScaleDown", text))
    group = groups.id_of_node(node.name) or ""
    tracker.start_deletion(group, node.name, drain=True)
    yield from p.act(InBackground(partial(_drain, node, group, pods, groups, options, tracker)))


def _drain(
    node: Node,
    group: str,
    pods: Sequence[Pod],
    groups: Groups,
    options: AutoscalingOptions,
    tracker: NodeDeletionTracker,
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
    if error is not None:
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
