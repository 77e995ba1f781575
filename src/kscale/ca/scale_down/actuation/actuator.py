"""Start of deletions: what happens before the loop continues, and what continues in the background.

Upstream: ``actuation/actuator.go`` (DeletionResults), ``core/static_autoscaler.go`` (the times).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial

import numpy as np
from msgspec.structs import replace

from kscale.ca.cluster_state import register_scale_down
from kscale.ca.errors import INTERNAL_ERROR, NODE_GROUP_DOES_NOT_EXIST_ERROR, AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.gpu import DEFAULT_GPU_LABEL, GPU_VENDOR_RESOURCES, GpuConfig, get_gpu_config
from kscale.ca.loop_state import Deletions, LoopState, register_group_change
from kscale.ca.metrics import build_observation
from kscale.ca.options import AutoscalingOptions, default_options
from kscale.ca.pod_lists import drop_expendable_pods
from kscale.ca.scale_down.actuation.batch_deletion import (
    DeletionRecorder,
    GroupDeletionScheduler,
    NodeDeletionBatcher,
    NodeGroupView,
    delete_nodes_async,
)
from kscale.ca.scale_down.actuation.deletion_tracker import (
    NodeDeletionTracker,
    RegisteredDeletion,
    ScaleDownNode,
    StartedDeletion,
)
from kscale.ca.scale_down.actuation.drain import Evictor, get_pods_to_evict
from kscale.ca.scale_down.actuation.tainting import TaintLatencyHistory, TaintNodesAction, taint_nodes_sync
from kscale.ca.scale_down.candidates import GroupNodes, assign_groups, build_budget_groups, crop_nodes
from kscale.ca.scale_down.utilization import Utilization, calculate_utilization, get_pod_claims, group_local_slices
from kscale.effects import Emit, InBackground, Machine, Moment, Observe, Progress, StepsOf, moment
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import typed
from kscale.objects.names import format_float
from kscale.objects.nodegroup import Groups, ProviderError
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "Actuator",
    "build_scale_down_node",
    "format_scale_down_event",
    "record_deletion_start",
    "record_deletions",
    "sync_deletions",
]


def record_deletions(state: LoopState, changes: Iterable[RegisteredDeletion]) -> LoopState:
    """Return the state after the provider's responses to deletions (from the tracker's ``take_registered``).

    Each response is recorded as a change of its group; a successful one also as a scale-down request.
    """
    for change in changes:
        if change.node is None:
            state = register_group_change(state, "scale_down_failure", change.group, change.time)
        else:
            cluster = register_scale_down(state.cluster, change.group, change.node, change.time)
            state = register_group_change(replace(state, cluster=cluster), "scale_down", change.group, change.time)
    return state


@typed
def sync_deletions(state: LoopState, tracker: NodeDeletionTracker) -> LoopState:
    """Return the state with the deletions of ``tracker``.

    The provider's responses since the last call are recorded (:func:`record_deletions`).
    """
    return replace(record_deletions(state, tracker.take_registered()), deletions=tracker.deletions())


def record_deletion_start(state: LoopState, started: StartedDeletion, now: datetime | Moment) -> LoopState:
    """Return the state after deletions were started; ``now`` is the time of the loop.

    ``started.error``, an error before the deletions continued in the background, is recorded as the last failure. The
    caller recalculates the expected sizes after a start (:func:`kscale.ca.cluster_state.recalculate_ranges`). Raises
    InputError if ``now`` is not a time.
    """
    now = moment(now)
    memory = state.scale_down
    if started.result == "ScaleDownNodeDeleteStarted":
        memory = replace(memory, last_scale_down=now)
    if started.error is not None:
        memory = replace(memory, last_failure=now)
    return replace(state, scale_down=memory)


def build_scale_down_node(
    snapshot: Snapshot,
    name: str,
    groups: Groups,
    options: AutoscalingOptions,
    now: Moment,
    *,
    drain: bool,
    gpu_label: str,
) -> ScaleDownNode:
    """Return the node's group, its current utilization and, with ``drain``, the pods to evict.

    DaemonSet, mirror and fake pods are not among these. Pods below the priority cutoff count nowhere. Raises
    :class:`AutoscalerError` if the group or the utilization is unknown.
    """
    try:
        group = groups.find_group_of_node(name)
    except ProviderError as error:
        raise AutoscalerError(INTERNAL_ERROR, f"failed to get node group for node {name}: {error.message}") from None
    if group is None:
        raise AutoscalerError(NODE_GROUP_DOES_NOT_EXIST_ERROR, f"no node group for node {name}")
    try:
        own = group.options_or(options.node_group_defaults)
    except ProviderError as error:
        text = f"failed to get ignoreDaemonSetsUtilization for node group {group.id}: {error.message}"
        raise AutoscalerError(INTERNAL_ERROR, text) from None
    node = snapshot.columns.objects[snapshot.columns.index[name]]
    pods = _get_pods_on_node(snapshot, name, options.expendable_pods_priority_cutoff)
    gpu = get_gpu_config(gpu_label, node)
    used = _calculate_node_utilization(node, pods, snapshot, options, now, gpu, own.ignore_daemonsets_utilization)
    evicted: Sequence[Pod] = ()
    if drain:
        _, evicted = get_pods_to_evict(pods, evict_daemon_sets=options.daemonset_eviction_for_occupied_nodes)
    return ScaleDownNode(node=name, group=group.id, utilization=used, evicted_pods=[pod.key for pod in evicted])


def _get_pods_on_node(snapshot: Snapshot, name: str, cutoff: int) -> list[Pod]:
    """Return the pods on a node, without those of a priority below ``cutoff``."""
    snapshot = drop_expendable_pods(snapshot, cutoff)
    where = np.flatnonzero(snapshot.placed_node == snapshot.columns.index[name]).tolist()
    return [snapshot.placed[at].pod for at in where]


def _calculate_node_utilization(
    node: Node,
    pods: Sequence[Pod],
    snapshot: Snapshot,
    options: AutoscalingOptions,
    now: Moment,
    gpu: GpuConfig | None,
    skip_daemon_sets: bool,
) -> Utilization:
    """Return the node's utilization at ``now``, without pods of DaemonSets if ``skip_daemon_sets``.

    Raises AutoscalerError if the utilization is unknown.
    """
    slices = []
    if options.enable_dynamic_resource_allocation:
        slices = group_local_slices(snapshot).get(node.metadata.name, [])
    try:
        return calculate_utilization(
            node,
            pods,
            now_ns=now,
            skip_daemon_set_pods=skip_daemon_sets,
            skip_mirror_pods=options.ignore_mirror_pods_utilization,
            gpu=gpu,
            dra_slices=slices,
            dra_claims=get_pod_claims(pods, snapshot) if slices else (),
        )
    except AutoscalerError as error:
        text = f"failed to calculate utilization for {node.metadata.name}: {error.message}"
        raise AutoscalerError(INTERNAL_ERROR, text) from None


def format_scale_down_event(item: ScaleDownNode) -> str:
    """Format the text of the event about a node that is drained, as Go prints it."""
    used = item.utilization
    of_gpu = used.resource_name in GPU_VENDOR_RESOURCES
    of_devices = used.cpu is None and not of_gpu
    numbers = (
        used.cpu or 0.0,
        used.memory or 0.0,
        used.utilization if of_gpu else 0.0,
        used.utilization if of_devices else 0.0,
    )
    info = f"{{{' '.join(map(format_float, numbers))} {used.resource_name} {format_float(used.utilization)}}}"
    names = ",".join(key.partition("/")[2] for key in item.evicted_pods)
    return f"Scale-down: removing node {item.node}, utilization: {info}, pods to reschedule: {names}"


class Actuator:
    """Deletes nodes. It has a single owner, and keeps the deletions in progress between starts.

    ``tracker`` tracks these deletions. Nothing happens before a machine is run.
    """

    __slots__ = ("_gpu_label", "_options", "_past_latencies", "_scheduler", "tracker")

    def __init__(
        self,
        options: AutoscalingOptions | None = None,
        *,
        gpu_label: str = DEFAULT_GPU_LABEL,
        gpu_types: Collection[str] = (),
        known: Deletions | None = None,
    ) -> None:
        """Create an actuator; ``known`` are deletions in progress that another process continues."""
        self._options = options = options or default_options()
        self._gpu_label = gpu_label
        self.tracker = NodeDeletionTracker(known=known)
        self._past_latencies = TaintLatencyHistory()
        ending = DeletionRecorder(options, self.tracker, gpu_label, gpu_types)
        evictor = Evictor(options, self.tracker.register_eviction)
        self._scheduler = GroupDeletionScheduler(options, evictor, NodeDeletionBatcher(options, ending), ending)

    def start_deletion(
        self, empty: Sequence[str], drain: Sequence[str], snapshot: Snapshot, groups: Groups, *, force: bool = False
    ) -> Machine:
        """Return a machine that starts to delete the nodes that a plan chose, as many as the budgets allow.

        ``empty`` and ``drain`` are names before the budgets (``plan.chosen``); ``snapshot`` and ``groups`` are those of
        the same loop. The machine returns a :class:`StartedDeletion` when all nodes are tainted; the rest continues in
        the background. With ``force`` pods that cannot be evicted, and nodes that cannot be prepared, are deleted
        anyway. Nodes without a group are skipped, as in upstream. Raises InputError for an unknown node.
        """
        for name in (*empty, *drain):
            if name not in snapshot.columns.index:
                raise InputError(f"there is no node {name}")
        return lambda now: self.start_deletion_in(Progress(now), empty, drain, snapshot, groups, force=force)

    def start_deletion_in(
        self,
        p: Progress,
        empty: Sequence[str],
        drain: Sequence[str],
        snapshot: Snapshot,
        groups: Groups,
        *,
        force: bool = False,
    ) -> StepsOf[TaintNodesAction | InBackground | Observe, StartedDeletion]:
        """Start the deletions within a machine in progress, whose progress is ``p``.

        Unknown nodes are not checked. Otherwise ``empty``, ``drain``, ``force`` and the result are those of
        :meth:`start_deletion`.
        """
        waiting = self._scheduler.reset()
        yield from p.observe(build_observation("pending_node_deletions", waiting))
        nodes = snapshot.columns.objects
        cropped = crop_nodes(
            assign_groups(empty, groups),
            assign_groups(drain, groups),
            build_budget_groups(groups, self._options, nodes),
            in_progress=self.tracker.in_progress(),
            max_scale_down_parallelism=self._options.max_scale_down_parallelism,
            max_drain_parallelism=self._options.max_drain_parallelism,
        )
        if not cropped.empty and not cropped.drain:
            return StartedDeletion(result="ScaleDownNoNodeDeleted")
        by_name = {node.metadata.name: node for node in nodes}
        reported: list[ScaleDownNode] = []
        # Nodes to drain are tainted after the empty ones have started, so that their failure does not stop those.
        for drained, chosen in ((False, cropped.empty), (True, cropped.drain)):
            buckets = [_build_node_group_view(item, by_name, groups, drained) for item in chosen]
            if not buckets:
                continue
            marked = yield from taint_nodes_sync(
                p, [node for bucket in buckets for node in bucket.nodes], self._options, self._past_latencies
            )
            for warning in marked.warnings:
                self.tracker.warn(warning)
            if marked.error is not None:
                return StartedDeletion(result="ScaleDownError", nodes=reported, error=marked.error.record)
            for bucket in buckets:
                for node in bucket.nodes:
                    yield from self._announce(p, node, bucket, snapshot, groups, reported)
                    self.tracker.start_deletion(bucket.group.id, node.metadata.name, drain=drained)
            for bucket in buckets:
                deletion = partial(
                    delete_nodes_async, bucket, self._scheduler, groups, self._options, marked.delay, force=force
                )
                yield from p.act(InBackground(deletion))
        return StartedDeletion(result="ScaleDownNodeDeleteStarted", nodes=reported)

    def _announce(
        self,
        p: Progress,
        node: Node,
        bucket: NodeGroupView,
        snapshot: Snapshot,
        groups: Groups,
        reported: list[ScaleDownNode],
    ) -> StepsOf[Emit, None]:
        """Emit the events of a node whose deletion begins, and append its record to ``reported``.

        ``bucket``: the deleted nodes of the node's group. If the node's utilization is unknown there is no record, and
        no event about a drain.
        """
        name = node.metadata.name
        if not bucket.drain:
            text = f'Scale-down: removing empty node "{name}"'
            yield from p.emit(*build_status_events(self._options, "Normal", "ScaleDownEmpty", text))
        try:
            scale_down_node = build_scale_down_node(
                snapshot, name, groups, self._options, p.now, drain=bucket.drain, gpu_label=self._gpu_label
            )
        except AutoscalerError:
            return
        if bucket.drain:
            yield from p.emit(
                *build_status_events(self._options, "Normal", "ScaleDown", format_scale_down_event(scale_down_node))
            )
        reported.append(scale_down_node)


def _build_node_group_view(item: GroupNodes, nodes: dict[str, Node], groups: Groups, drain: bool) -> NodeGroupView:
    """Return the nodes to delete of one group, with their objects from ``nodes`` (all nodes by name).

    ``item``: names of the nodes to delete; ``drain``: whether their pods are evicted first.
    """
    return NodeGroupView(
        group=groups[item.group], nodes=[nodes[name] for name in item.nodes], batch_size=item.batch_size, drain=drain
    )
