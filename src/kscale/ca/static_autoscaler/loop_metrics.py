"""Observations of a loop under upstream's metric names (upstream: ``metrics/metrics.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

from kscale.ca.cluster_state import ClusterStateRegistry, get_backoff_status, is_cluster_healthy, is_group_healthy
from kscale.ca.gpu import get_dra_drivers_label, get_gpu_metric_labels
from kscale.ca.identity_cache import cached_by_identity
from kscale.ca.loop_state import NodeLatency
from kscale.ca.metrics import build_observation
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.nodes import TO_BE_DELETED_TAINT, is_being_deleted
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.unneeded import UnremovableNode
from kscale.ca.template_devices import MISMATCH_TYPES
from kscale.ca.templates import TaintConfig
from kscale.effects import SECOND, Moment, Observation
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import Groups, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "build_device_mismatch_observations",
    "build_failed_scale_up_observations",
    "build_group_health_observations",
    "build_group_observations",
    "build_inactive_observations",
    "build_latency_observations",
    "build_node_observations",
    "build_readiness_observations",
    "build_scale_up_observations",
    "build_skipped_scale_up_observations",
    "build_unremovable_observations",
]

_SKIPPED_REASONS: Final = {"cpu": "CpuResourceLimit", "memory": "MemoryResourceLimit"}
_NODE_STATES: Final = ("ready", "unready", "notStarted", "suspended", "longUnregistered", "unregistered")


def build_node_observations(snapshot: Snapshot, now: Moment, taints: TaintConfig) -> list[Observation]:
    """Build observations of the cores and bytes of the nodes that stay, and of the taints by kind."""

    def amounts(node: Node) -> tuple[int, int, list[str]]:
        capacity = node.status.capacity or {}
        kinds = [*map(taints.kind_of, node.spec.taints)]
        return _get_amount(capacity.get("cpu")), _get_amount(capacity.get("memory")), kinds

    nodes = snapshot.columns.objects
    sizes = cached_by_identity(snapshot, ("sizes of nodes", taints), nodes, amounts)
    cores, memory, kinds = cached_by_identity(snapshot, ("sizes of all nodes", taints), [sizes], _sum_sizes)[0]
    if TO_BE_DELETED_TAINT in kinds:
        stay = [each for each, node in zip(sizes, nodes, strict=True) if not is_being_deleted(node, now)]
        cores, memory, _ = _sum_sizes(stay)
    return [
        build_observation("cluster_cpu_current_cores", cores),
        build_observation("cluster_memory_current_bytes", memory),
        *(build_observation("node_taints_count", count, type=kind) for kind, count in kinds.items()),
    ]


def _sum_sizes(sizes: Sequence[tuple[int, int, list[str]]]) -> tuple[int, int, Counter[str]]:
    if not sizes:
        return 0, 0, Counter()
    cores, memory, kinds = zip(*sizes, strict=True)
    return sum(cores), sum(memory), Counter(chain.from_iterable(kinds))


def _get_amount(amount: Quantity | None) -> int:
    return 0 if amount is None else max(0, amount.value())


def build_group_observations(groups: Groups, options: AutoscalingOptions) -> list[Observation]:
    """Build observations of the sizes of existing groups, and of the maximum number of nodes."""
    there = [group for group in groups if group.exists]
    max_nodes = sum(group.max_size for group in there)
    if options.max_nodes_total > 0:
        max_nodes = min(max_nodes, options.max_nodes_total)
    observations = [build_observation("max_nodes_count", max_nodes)]
    if options.emit_per_nodegroup_metrics:
        for group in there:
            observations.append(build_observation("node_group_min_count", group.min_size, node_group=group.id))
            observations.append(build_observation("node_group_max_count", group.max_size, node_group=group.id))
    return observations


def build_readiness_observations(
    state: ClusterStateRegistry, groups: Groups, options: AutoscalingOptions
) -> list[Observation]:
    """Build observations of the readiness after an update of the cluster state."""
    running = [group for group in groups if not group.upcoming]
    provisioned = sum(group.autoprovisioned for group in running)
    total = state.total
    lists = (
        total.ready, total.unready, total.not_started, total.suspended, total.long_unregistered, total.unregistered,
    )  # fmt: skip
    observations = [
        build_observation("node_groups_count", len(running) - provisioned, node_group_type="autoscaled"),
        build_observation("node_groups_count", provisioned, node_group_type="autoprovisioned"),
    ]
    if options.emit_per_nodegroup_metrics:
        observations += [
            build_observation("node_group_target_count", group.size, node_group=group.id) for group in running
        ]
    observations.append(build_observation("cluster_safe_to_autoscale", int(is_cluster_healthy(state, options))))
    observations += [
        build_observation("nodes_count", len(names), state=which)
        for which, names in zip(_NODE_STATES, lists, strict=True)
    ]
    return observations


def build_inactive_observations() -> list[Observation]:
    """Build the observations of a cluster that is not actionable."""
    observations = [build_observation("cluster_safe_to_autoscale", 0)]
    return observations + [build_observation("nodes_count", 0, state=which) for which in _NODE_STATES]


def build_scale_up_observations(
    resized: Iterable[tuple[ScaleUpInfo, Moment]],
    templates: Mapping[str, NodeTemplate],
    gpu_label: str,
    gpu_types: Collection[str],
) -> list[Observation]:
    """Build observations of the requested nodes."""
    observations = []
    for info, _ in resized:
        labels = _get_device_labels(templates.get(info.group), gpu_label, gpu_types)
        count = info.new - info.current
        observations.append(build_observation("scaled_up_nodes_total", count, **labels))
        del labels["dra_drivers"]
        if labels["gpu_name"]:
            observations.append(build_observation("scaled_up_gpu_nodes_total", count, **labels))
    return observations


def build_skipped_scale_up_observations(exceeded: Mapping[str, Iterable[str]]) -> list[Observation]:
    """Build observations of groups that quotas held back."""
    return [
        build_observation("skipped_scale_events_count", 1.0, direction="up", reason=_SKIPPED_REASONS[name])
        for names in exceeded.values()
        for name in names
        if name in _SKIPPED_REASONS
    ]


def build_failed_scale_up_observations(
    state: ClusterStateRegistry, templates: Mapping[str, NodeTemplate], gpu_label: str, gpu_types: Collection[str]
) -> list[Observation]:
    """Build observations of the scale-ups that failed in this loop, and of their node counts."""
    observations = []
    for group, failures in state.failures.items():
        for failure in failures:
            reason = failure.error.code
            labels = _get_device_labels(templates.get(group), gpu_label, gpu_types)
            observations.append(build_observation("failed_scale_ups_total", 1.0, reason=reason, **labels))
            observations.append(build_observation("failed_node_creations_total", failure.delta, reason=reason))
            del labels["dra_drivers"]
            if labels["gpu_name"]:
                observations.append(build_observation("failed_gpu_scale_ups_total", 1.0, reason=reason, **labels))
    return observations


def _get_device_labels(template: NodeTemplate | None, gpu_label: str, gpu_types: Collection[str]) -> dict[str, str]:
    if template is None:
        return {"gpu_resource_name": "", "gpu_name": "", "dra_drivers": ""}
    gpu = get_gpu_metric_labels(gpu_label, template.node, gpu_types)
    return {**gpu, "dra_drivers": get_dra_drivers_label(template.resource_slices)}


def build_latency_observations(latencies: Iterable[NodeLatency]) -> list[Observation]:
    """Build observations of how long nodes stayed past their unneeded-time threshold."""
    return [
        build_observation(
            "node_removal_latency_seconds",
            each.latency / SECOND,
            deleted="true" if each.deleted else "false",
            delay_reason=each.delay_reason,
        )
        for each in latencies
    ]


def build_device_mismatch_observations(mismatches: Mapping[str, Counter[str]]) -> list[Observation]:
    """Build observations of the device groups that differ from templates, by driver and mismatch type."""
    return [
        build_observation("dra_node_template_resources_mismatch", counts[type_], driver=driver, mismatch_type=type_)
        for driver, counts in mismatches.items()
        for type_ in MISMATCH_TYPES
    ]


def build_unremovable_observations(unremovable: Mapping[str, UnremovableNode]) -> list[Observation]:
    """Build observations of unremovable nodes by reason; reasons without nodes are left out."""
    counts = Counter(map(attrgetter("reason"), unremovable.values()))
    return [build_observation("unremovable_nodes_count", count, reason=reason) for reason, count in counts.items()]


def build_group_health_observations(
    state: ClusterStateRegistry, groups: Groups, now: Moment, options: AutoscalingOptions, templates: Collection[str]
) -> list[Observation]:
    """Build observations of the health and backoff of every group, for ``emit_per_nodegroup_metrics``."""
    observations = []
    for group in groups:
        if group.upcoming or not group.exists:
            continue
        healthy = is_group_healthy(state, group.id, options)
        observations.append(build_observation("node_group_healthiness", int(healthy), node_group=group.id))
        backoff = get_backoff_status(state, group.id, now, has_template=group.id in templates)
        if backoff is not None:
            reason = backoff.error.code or "unknown"
            observations.append(build_observation("node_group_backoff_status", 1, node_group=group.id, reason=reason))
    return observations
