"""What is said of a node whose deletion begins (``actuation/actuator.go``, scaleDownNodeToReport)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kscale.ca.errors import INTERNAL_ERROR, NODE_GROUP_DOES_NOT_EXIST_ERROR, AutoscalerError
from kscale.ca.gpu import GPU_VENDOR_RESOURCES, GpuConfig, gpu_config
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.expendable import snapshot_without_expendable
from kscale.ca.scale_down.actuation.pods_to_evict import pods_to_evict
from kscale.ca.scale_down.actuation.results import ScaleDownNode
from kscale.ca.scale_down.node_devices import claims_of, local_slices
from kscale.ca.scale_down.utilization import Utilization, utilization
from kscale.effects import Moment
from kscale.objects.core import Node, Pod
from kscale.objects.go_numbers import format_float
from kscale.objects.nodegroup import ProviderError
from kscale.objects.nodegroups import Groups
from kscale.snapshot.snapshot import Snapshot

__all__ = ["describe", "scale_down_node"]


def scale_down_node(
    snapshot: Snapshot,
    name: str,
    groups: Groups,
    options: AutoscalingOptions,
    now: Moment,
    *,
    drain: bool,
    gpu_label: str,
) -> ScaleDownNode:
    """The node's group, its utilisation at this moment and, if it is drained, the pods to evict.

    Raises :class:`AutoscalerError` where one of these cannot be told.
    """
    try:
        group = groups.of_node(name)
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
    pods = _pods_on(snapshot, name, options.expendable_pods_priority_cutoff)
    gpu = gpu_config(gpu_label, node)
    used = _used(node, pods, snapshot, options, now, gpu, own.ignore_daemonsets_utilization)
    evicted: Sequence[Pod] = ()
    if drain:
        _, evicted = pods_to_evict(pods, evict_daemon_sets=options.daemonset_eviction_for_occupied_nodes)
    return ScaleDownNode(node=name, group=group.id, utilization=used, evicted_pods=[pod.key for pod in evicted])


def _pods_on(snapshot: Snapshot, name: str, cutoff: int) -> list[Pod]:
    snapshot = snapshot_without_expendable(snapshot, cutoff)
    where = np.flatnonzero(snapshot.placed_node == snapshot.columns.index[name]).tolist()
    return [snapshot.placed[at].pod for at in where]


def _used(
    node: Node,
    pods: Sequence[Pod],
    snapshot: Snapshot,
    options: AutoscalingOptions,
    now: Moment,
    gpu: GpuConfig | None,
    skip_daemon_sets: bool,
) -> Utilization:
    slices = []
    if options.enable_dynamic_resource_allocation:
        slices = local_slices(snapshot).get(node.metadata.name, [])
    try:
        return utilization(
            node,
            pods,
            now_ns=now,
            skip_daemon_set_pods=skip_daemon_sets,
            skip_mirror_pods=options.ignore_mirror_pods_utilization,
            gpu=gpu,
            dra_slices=slices,
            dra_claims=claims_of(pods, snapshot) if slices else (),
        )
    except AutoscalerError as error:
        text = f"failed to calculate utilization for {node.metadata.name}: {error.message}"
        raise AutoscalerError(INTERNAL_ERROR, text) from None


def describe(item: ScaleDownNode) -> str:
    """The text of the event, as Go prints it."""
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
