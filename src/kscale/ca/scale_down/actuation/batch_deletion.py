"""Deletion of nodes in batches and groups, and records of how each deletion ended.

Upstream: ``actuation/delete_in_batch.go``, ``group_deletion_scheduler.go``, ``delay.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from kscale.ca.errors import (
    API_CALL_ERROR,
    CLOUD_PROVIDER_ERROR,
    INTERNAL_ERROR,
    TRANSIENT_ERROR,
    AutoscalerError,
    ErrorRecord,
)
from kscale.ca.events import build_node_event, build_status_events
from kscale.ca.gpu import DEFAULT_GPU_LABEL, get_dra_drivers_label, get_gpu_metric_labels
from kscale.ca.metrics import build_observation
from kscale.ca.nodes import is_ready
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import is_expendable
from kscale.ca.scale_down.actuation.deletion_tracker import (
    NODE_DELETE_ERROR_FAILED_TO_DELETE,
    NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS,
    NODE_DELETE_ERROR_INTERNAL,
    NODE_DELETE_OK,
    NodeDeleteResult,
    NodeDeletionTracker,
)
from kscale.ca.scale_down.actuation.drain import DrainAction, Evictor
from kscale.ca.scale_down.actuation.tainting import TaintAction, clean_to_be_deleted, format_release_warning
from kscale.ca.scale_down.drainability import DrainContext, Listers, get_pods_to_move
from kscale.ca.scale_down.pdb import RemainingPdbTracker, filter_readable_budgets
from kscale.effects import (
    SECOND,
    ApiError,
    DeleteNodes,
    Emit,
    Get,
    InBackground,
    List,
    Moment,
    Observe,
    Progress,
    StepsOf,
    Wait,
    duration,
)
from kscale.effects.moments import OtherDuration
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.names import go_quote
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError

__all__ = [
    "DELAY_DELETION_ANNOTATION_PREFIX",
    "BatchDeletionAction",
    "DeletionEndAction",
    "DeletionRecorder",
    "GroupDeletionScheduler",
    "NodeDeletionAction",
    "NodeDeletionBatcher",
    "NodeGroupView",
    "delete_nodes_async",
    "wait_for_delay_deletion",
]


DeletionEndAction = TaintAction | Emit | Observe
"""Actions at the end of a deletion."""


class DeletionRecorder(msgspec.Struct, eq=False):
    """The last steps of deletions; updates the deletion tracker."""

    _options: AutoscalingOptions
    tracker: NodeDeletionTracker
    _gpu_label: str = DEFAULT_GPU_LABEL
    _gpu_types: Collection[str] = ()

    def record_failure(
        self, p: Progress, node: Node, group: str, drain: bool, result: NodeDeleteResult
    ) -> StepsOf[DeletionEndAction, None]:
        """Report a failed deletion, remove the deletion taint of the node, and register ``result``.

        ``drain``: whether its pods were to be evicted first. With ``cordon_node_before_terminating`` the cordon is
        removed, too. If the taint cannot be removed, the tracker gets a warning.
        """
        message = "" if result.error is None else result.error.message
        text = "failed to drain and delete node" if drain else "failed to delete empty node"
        yield from p.emit(build_node_event(node, "Warning", "ScaleDownFailed", f"{text}: {message}"))
        taint_error, _ = yield from clean_to_be_deleted(p, node, uncordon=self._options.cordon_node_before_terminating)
        if taint_error is not None:
            self.tracker.warn(format_release_warning(node, taint_error))
        self.tracker.end_deletion(group, node.metadata.name, result, p.now)

    def record_success(
        self, p: Progress, node: Node, group: str, drain: bool, slices: Iterable[ResourceSlice] = ()
    ) -> StepsOf[DeletionEndAction, None]:
        """Report a node that the cloud provider deletes, and register the result. The node stays tainted.

        ``drain``: whether its pods were evicted first; ``slices`` are those of the group's template.
        """
        name = node.metadata.name
        yield from p.emit(build_node_event(node, "Normal", "ScaleDown", "nodes removed by cluster autoscaler"))
        self.tracker.register_scale_down(group, name, p.now)
        reason = ("underutilized" if drain else "empty") if is_ready(node) else "unready"
        gpu, drivers = get_gpu_metric_labels(self._gpu_label, node, self._gpu_types), get_dra_drivers_label(slices)
        yield from p.observe(
            build_observation("scaled_down_nodes_total", 1.0, reason=reason, **gpu, dra_drivers=drivers)
        )
        if gpu["gpu_name"]:
            yield from p.observe(build_observation("scaled_down_gpu_nodes_total", 1.0, reason=reason, **gpu))
        if drain:
            status_events = build_status_events(
                self._options, "Normal", "ScaleDown", f"Scale-down: node {name} removed with drain"
            )
        else:
            status_events = build_status_events(
                self._options, "Normal", "ScaleDownEmpty", f"Scale-down: empty node {name} removed"
            )
        yield from p.emit(*status_events)
        self.tracker.end_deletion(group, name, NodeDeleteResult(result=NODE_DELETE_OK), p.now)


DELAY_DELETION_ANNOTATION_PREFIX: Final = "delay-deletion.cluster-autoscaler.kubernetes.io/"
DELAY_DELETION_POLL_INTERVAL: Final[OtherDuration] = 5 * SECOND


def wait_for_delay_deletion(p: Progress, node: Node, timeout: int) -> StepsOf[Get | Wait, AutoscalerError | None]:
    """Wait until no annotation delays the deletion, or until ``timeout`` nanoseconds have passed (0: do not wait).

    The node is deleted in either case, so the result is None, except for the error of a node that cannot be read.
    ``node`` is the object at the time of the decision.
    """
    if not timeout or not _has_delay_annotation(node):
        return None
    until = p.now + timeout
    # The first check is one interval from now, the last one at the timeout.
    while p.now < until:
        yield from p.wait(min(DELAY_DELETION_POLL_INTERVAL, until - p.now))
        outcome = yield from p.act(Get(kind="Node", name=node.metadata.name, watched=True))
        if outcome.error is not None:
            text = f"failed to get node {node.metadata.name}: {outcome.error.message}"
            return AutoscalerError(API_CALL_ERROR, text)
        if not _has_delay_annotation(outcome.value):
            return None
    return None


def _has_delay_annotation(node: Node) -> bool:
    """Check whether an annotation asks to delay the node's deletion."""
    return any(key.startswith(DELAY_DELETION_ANNOTATION_PREFIX) for key in node.metadata.annotations or ())


BatchDeletionAction = DeletionEndAction | DeleteNodes | Wait
"""Actions that delete several nodes of a group in one call."""


class NodeDeletionBatcher:
    """Collects nodes of a group for a while (``--node-deletion-batcher-interval``), then deletes them together."""

    __slots__ = ("_buckets", "_ending", "_interval")

    def __init__(self, options: AutoscalingOptions, ending: DeletionRecorder) -> None:
        self._interval = duration(options.node_deletion_batcher_interval)
        self._ending = ending
        self._buckets: dict[str, list[tuple[Node, bool]]] = {}

    def add(
        self, p: Progress, nodes: Sequence[Node], group: str, drain: bool, groups: Groups
    ) -> StepsOf[BatchDeletionAction, None]:
        """Delete nodes at once, or after the batch interval together with nodes that are added meanwhile.

        The first caller of a batch waits and deletes; others return at once. ``drain``: whether the nodes were drained.
        """
        if not self._interval:
            yield from self._delete(p, [(node, drain) for node in nodes], group, groups)
        elif self.collect(nodes, group, drain):
            yield from p.wait(self._interval)
            yield from self.remove(p, group, groups)

    def collect(self, nodes: Sequence[Node], group: str, drain: bool) -> bool:
        """Add nodes to the batch of their group. Returns whether the batch was empty before.

        ``drain``: whether the nodes were drained.
        """
        bucket = self._buckets.setdefault(group, [])
        first = not bucket
        bucket.extend((node, drain) for node in nodes)
        return first

    def remove(self, p: Progress, group: str, groups: Groups) -> StepsOf[BatchDeletionAction, None]:
        """Delete the batch of a group. Raises :class:`AutoscalerError` if there is none."""
        if group not in self._buckets:
            raise AutoscalerError("", f"Node Group {group} is not present in the batch deleter")
        yield from self._delete(p, self._buckets.pop(group), group, groups)

    def _delete(
        self, p: Progress, nodes: Sequence[tuple[Node, bool]], group: str, groups: Groups
    ) -> StepsOf[BatchDeletionAction, None]:
        """Delete nodes of a group, each with whether it was drained, and record the result of each node."""
        error = yield from self._delete_in_cloud(p, tuple(node for node, _ in nodes), groups)
        known = groups.get(group)
        template = None if known is None or known.template_error is not None else known.template
        slices = [] if template is None else template.resource_slices
        for node, drain in nodes:
            if error is None:
                yield from self._ending.record_success(p, node, group, drain, slices)
            else:
                result = NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=error.record)
                yield from self._ending.record_failure(p, node, group, drain, result)

    def _delete_in_cloud(
        self, p: Progress, nodes: tuple[Node, ...], groups: Groups
    ) -> StepsOf[DeleteNodes, AutoscalerError | None]:
        """Delete the instances of the nodes.

        Returns the error, or None; a refusal of the provider is registered in the tracker.
        """
        names = tuple(node.metadata.name for node in nodes)
        try:
            group = groups.find_group_of_node(names[0])
        except ProviderError as error:
            text = f"failed to find node group for {names[0]}: {error.message}"
            return AutoscalerError(CLOUD_PROVIDER_ERROR, text)
        if group is None:
            return AutoscalerError(INTERNAL_ERROR, f"picked node that doesn't belong to a node group: {names[0]}")
        refusal = (yield from p.act(DeleteNodes(group=group.id, nodes=names, objects=nodes))).error
        if refusal is None:
            return None
        self._ending.tracker.register_failed_scale_down(group.id, p.now)
        text = f"failed to delete nodes from group {group.id}: {refusal.message}"
        return AutoscalerError(CLOUD_PROVIDER_ERROR, text)


NodeDeletionAction = DrainAction | BatchDeletionAction
"""Actions that delete a node."""

_OTHER_NODES_FAILED: Final = NodeDeleteResult(
    result=NODE_DELETE_ERROR_FAILED_TO_DELETE,
    error=ErrorRecord(type=TRANSIENT_ERROR, message="couldn't scale down other nodes in this node group"),
)


class GroupDeletionScheduler(msgspec.Struct, eq=False):
    """Queue of nodes that are ready for deletion, by group. Atomic groups wait for all nodes. Kept between loops."""

    _options: AutoscalingOptions
    _evictor: Evictor
    _batcher: NodeDeletionBatcher
    _ending: DeletionRecorder
    _queue: dict[str, list[Node]] = {}
    _failed: set[str] = set()

    def reset(self) -> int:
        """Clear the failed groups before each start, and return the number of nodes that wait in the queue.

        Groups that failed may be tried again; waiting nodes stay in the queue.
        """
        self._failed.clear()
        return sum(map(len, self._queue.values()))

    def schedule_deletion(
        self,
        node: Node,
        pods: Sequence[Pod],
        group: NodeGroup,
        batch_size: int,
        now: Moment,
        *,
        drain: bool,
        groups: Groups,
        force: bool = False,
    ) -> StepsOf[NodeDeletionAction, None]:
        """Prepare a node for deletion and add it to the batch of its group.

        Preparing means to evict its pods (``drain``; otherwise only DaemonSet pods) and to wait for delays.
        ``batch_size``: number of nodes for which an atomic group waits. If a node cannot be prepared, its deletion has
        failed; with ``force`` the cloud provider is asked to delete it nevertheless.
        """
        p = Progress(now)
        try:
            atomic = group.options_or(self._options.node_group_defaults).zero_or_max_node_scaling
        except ProviderError as error:
            text = f"GetOptions returned error {error.message}"
            result = NodeDeleteResult(
                result=NODE_DELETE_ERROR_INTERNAL, error=ErrorRecord(type=INTERNAL_ERROR, message=text)
            )
            yield from self.abort(p, node, group.id, drain, result)
            return
        failure = yield from self._prepare(p, node, pods, drain, force)
        if failure is not None and force:
            asked = DeleteNodes(group=group.id, nodes=(node.metadata.name,), objects=(node,), force=True)
            refusal = (yield from p.act(asked)).error
            if refusal is None:
                failure = None  # as upstream, the node is deleted nevertheless
            else:
                record = ErrorRecord(type="", message=refusal.message)
                failure = NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=record)
        if failure is not None:
            yield from self.abort(p, node, group.id, drain, failure)
        else:
            yield from self.add_to_batcher(p, node, group.id, batch_size, drain, atomic, groups)

    def _prepare(
        self, p: Progress, node: Node, pods: Sequence[Pod], drain: bool, force: bool
    ) -> StepsOf[DrainAction, NodeDeleteResult | None]:
        """Drain the node, or evict its DaemonSet pods, and wait for delays. Returns the failure, or None.

        ``force``: a pod that cannot be evicted is deleted.
        """
        name = node.metadata.name
        if drain:
            drained = yield from self._evictor.drain(p, name, pods, force=force)
            if drained.error is not None:
                return NodeDeleteResult(
                    result=NODE_DELETE_ERROR_FAILED_TO_EVICT_PODS, error=drained.error.record, evictions=drained.results
                )
        else:
            yield from self._evictor.evict_daemon_sets(p, name, pods)
        error = yield from wait_for_delay_deletion(p, node, duration(self._options.node_deletion_delay_timeout))
        if error is not None:
            return NodeDeleteResult(result=NODE_DELETE_ERROR_FAILED_TO_DELETE, error=error.record)
        return None

    def add_to_batcher(
        self, p: Progress, node: Node, group: str, batch_size: int, drain: bool, atomic: bool, groups: Groups
    ) -> StepsOf[BatchDeletionAction, None]:
        """Add a ready node, with all waiting nodes of its group, to the batcher.

        The nodes of an ``atomic`` group wait until ``batch_size`` nodes are ready. If another deletion of the atomic
        group has failed, the deletion of this node fails, too. ``drain`` applies to all nodes that are added.
        """
        queue = self._queue.setdefault(group, [])
        queue.append(node)
        if atomic:
            if group in self._failed:
                queue.clear()
                yield from self._ending.record_failure(p, node, group, drain, _OTHER_NODES_FAILED)
                return
            if len(queue) < batch_size:
                return
        del self._queue[group]
        yield from self._batcher.add(p, queue, group, drain, groups)

    def abort(
        self, p: Progress, node: Node, group: str, drain: bool, result: NodeDeleteResult
    ) -> StepsOf[DeletionEndAction, None]:
        """Report the failed deletion of a node, with ``result``, and of all waiting nodes of its group.

        The group counts as failed until :meth:`reset`. ``drain``: whether the pods of the nodes are evicted first.
        """
        self._failed.add(group)
        waiting = self._queue.pop(group, [])
        yield from self._ending.record_failure(p, node, group, drain, result)
        for other in waiting:
            if other is not node:
                yield from self._ending.record_failure(p, other, group, drain, _OTHER_NODES_FAILED)


_CONTROLLER_KINDS = ("ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class NodeGroupView(msgspec.Struct, kw_only=True, frozen=True):
    """Nodes of one group that are deleted together: empty nodes or, with ``drain``, nodes to drain.

    ``batch_size`` 0: all of them.
    """

    group: NodeGroup
    nodes: list[Node]
    batch_size: int = 0
    drain: bool = False


def delete_nodes_async(
    bucket: NodeGroupView,
    scheduler: GroupDeletionScheduler,
    groups: Groups,
    options: AutoscalingOptions,
    delay: int,
    now: Moment,
    *,
    force: bool = False,
) -> StepsOf[DeletionEndAction | List | InBackground, None]:
    """Check the pods on the nodes after ``delay`` nanoseconds, and start the deletions that are still allowed.

    Each deletion runs in the background (:meth:`GroupDeletionScheduler.schedule_deletion`). The deletion of a node
    whose pods forbid it is reported as failed. If the cluster cannot be read, all deletions are reported as failed. The
    disruption budgets of each node are checked as if no other node was drained. ``force`` is passed on; it skips none
    of these checks.
    """
    p = Progress(now)
    if delay > 0:
        yield from p.wait(delay)
    names = [node.metadata.name for node in bucket.nodes]
    outcome = yield from p.act(List(kind="Pod", nodes=tuple(names)))
    if outcome.error is not None:
        yield from _abort_all(p, bucket, scheduler, f"createSnapshot returned error {outcome.error.message}")
        return
    on_node = _group_pods_by_node(outcome.value, names, options.expendable_pods_priority_cutoff)
    listers, budgets = None, RemainingPdbTracker()
    if bucket.drain:
        outcome = yield from p.act(List(kind="PodDisruptionBudget"))
        if outcome.error is not None:
            text = f"podDisruptionBudgetLister.List returned error {outcome.error.message}"
            yield from _abort_all(p, bucket, scheduler, text)
            return
        budgets = RemainingPdbTracker(filter_readable_budgets(outcome.value))
        controllers, error = yield from _list_controllers(p)
        if error is not None:
            yield from _abort_all(p, bucket, scheduler, f"controllers cannot be listed: {error.message}")
            return
        listers = Listers(controllers)
    for node in bucket.nodes:
        pods = on_node[node.metadata.name]
        problem = _find_deletion_problem(node, pods, DrainContext(p.now, options, listers, budgets), bucket.drain)
        if problem is not None:
            yield from scheduler.abort(p, node, bucket.group.id, bucket.drain, _build_internal_error(problem))
            continue
        deletion = partial(
            scheduler.schedule_deletion,
            node,
            pods,
            bucket.group,
            bucket.batch_size or len(bucket.nodes),
            drain=bucket.drain,
            groups=groups,
            force=force,
        )
        yield from p.act(InBackground(deletion))


def _find_deletion_problem(node: Node, pods: Sequence[Pod], context: DrainContext, drain: bool) -> str | None:
    """Return the error message why the node may not be deleted after all; None if it may.

    ``drain``: the node is drained; without it, no pods to move may be on the node.
    """
    to_move = get_pods_to_move(pods, context)
    name = go_quote(node.metadata.name)
    if to_move.error is not None:
        return f"GetPodsToMove for {name} returned error: {to_move.error}"
    if not drain and to_move.pods:
        return f"failed to delete empty node {name}, new pods scheduled"
    if not drain and to_move.on_completion_pods:
        return f"failed to delete empty node {name}, active on-completion pods present"
    return None


def _group_pods_by_node(pods: Sequence[Pod], names: Sequence[str], cutoff: int) -> dict[str, list[Pod]]:
    """Return the pods on each of these nodes by node name, without pods of a priority below ``cutoff``."""
    pods_by_node: dict[str, list[Pod]] = {name: [] for name in names}
    for pod in pods:
        if pod.spec.node_name in pods_by_node and not is_expendable(pod, cutoff):
            pods_by_node[pod.spec.node_name].append(pod)
    return pods_by_node


def _list_controllers(p: Progress) -> StepsOf[List, tuple[list[KubeObject], ApiError | None]]:
    """List the controllers of all kinds in ``_CONTROLLER_KINDS``.

    Returns (controllers, None), or ([], error) at the first kind that cannot be listed.
    """
    controllers: list[KubeObject] = []
    for kind in _CONTROLLER_KINDS:
        outcome = yield from p.act(List(kind=kind))
        if outcome.error is not None:
            return [], outcome.error
        controllers += outcome.value
    return controllers, None


def _abort_all(
    p: Progress, bucket: NodeGroupView, scheduler: GroupDeletionScheduler, problem: str
) -> StepsOf[DeletionEndAction, None]:
    """Report the failed deletion of every node, with an internal error whose message is ``problem``."""
    for node in bucket.nodes:
        yield from scheduler.abort(p, node, bucket.group.id, bucket.drain, _build_internal_error(problem))


def _build_internal_error(message: str) -> NodeDeleteResult:
    """Build the result of a deletion that failed with an internal error."""
    error = ErrorRecord(type=INTERNAL_ERROR, message=message)
    return NodeDeleteResult(result=NODE_DELETE_ERROR_INTERNAL, error=error)
