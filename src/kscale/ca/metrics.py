"""Upstream's metrics of the Cluster Autoscaler by name, and how observations of them are made (upstream:
``metrics/metrics.go``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kscale.ca.errors import API_CALL_ERROR, CLOUD_PROVIDER_ERROR, ERROR_TYPES
from kscale.effects import SECOND, Metric, Moment, Observation, Observe, Progress, StepsOf, Wait

__all__ = [
    "METRICS",
    "METRIC_PREFIX",
    "FunctionTimer",
    "build_duration_observation",
    "build_initial_observations",
    "build_last_activity_observation",
    "build_observation",
]

METRIC_PREFIX: Final = "cluster_autoscaler_"

_GPU_LABELS: Final = ("gpu_resource_name", "gpu_name")
_DEVICE_LABELS: Final = (*_GPU_LABELS, "dra_drivers")
_DURATION_BOUNDS: Final = tuple(0.1 * (1800 / 0.1) ** (i / 149) for i in range(150))

METRICS: Final[Mapping[str, Metric]] = {
    METRIC_PREFIX + metric.name: metric._replace(name=METRIC_PREFIX + metric.name, help=f"[ALPHA] {metric.help}")
    for metric in (
        Metric(
            "cluster_safe_to_autoscale",
            "gauge",
            help="Whether or not cluster is healthy enough for autoscaling. 1 if it is, 0 otherwise.",
        ),
        Metric("nodes_count", "gauge", ("state",), help="Number of nodes in cluster."),
        Metric("node_groups_count", "gauge", ("node_group_type",), help="Number of node groups managed by CA."),
        Metric("unschedulable_pods_count", "gauge", ("type",), help="Number of unschedulable pods in the cluster."),
        Metric("max_nodes_count", "gauge", help="Maximum number of nodes in all node groups"),
        Metric(
            "cluster_cpu_current_cores", "gauge", help="Current number of cores in the cluster, minus deleting nodes."
        ),
        Metric("cpu_limits_cores", "gauge", ("direction",), help="Minimum and maximum number of cores in the cluster."),
        Metric(
            "cluster_memory_current_bytes",
            "gauge",
            help="Current number of bytes of memory in the cluster, minus deleting nodes.",
        ),
        Metric(
            "memory_limits_bytes",
            "gauge",
            ("direction",),
            help="Minimum and maximum number of bytes of memory in cluster.",
        ),
        Metric("node_group_min_count", "gauge", ("node_group",), help="Minimum number of nodes in the node group"),
        Metric("node_group_max_count", "gauge", ("node_group",), help="Maximum number of nodes in the node group"),
        Metric(
            "node_group_target_count", "gauge", ("node_group",), help="Target number of nodes in the node group by CA."
        ),
        Metric(
            "node_group_healthiness",
            "gauge",
            ("node_group",),
            help="Whether or not node group is healthy enough for autoscaling. 1 if it is, 0 otherwise.",
        ),
        Metric(
            "node_group_backoff_status",
            "gauge",
            ("node_group", "reason"),
            help="Whether or not node group is backoff for not autoscaling. 1 if it is, 0 otherwise.",
        ),
        Metric("last_activity", "gauge", ("activity",), help="Last time certain part of CA logic executed."),
        Metric(
            "function_duration_seconds",
            "histogram",
            ("function",),
            _DURATION_BOUNDS,
            help="Time taken by various parts of CA main loop.",
        ),
        Metric(
            "function_duration_quantile_seconds",
            "summary",
            ("function",),
            of=METRIC_PREFIX + "function_duration_seconds",
            help="Quantiles of time taken by various parts of CA main loop.",
        ),
        Metric(
            "pending_node_deletions",
            "gauge",
            help="Number of nodes that haven't been removed or aborted after finished scale-down phase.",
        ),
        Metric("errors_total", "counter", ("type",), help="The number of CA loops failed due to an error."),
        Metric("scaled_up_nodes_total", "counter", _DEVICE_LABELS, help="Number of nodes added by CA."),
        Metric(
            "scaled_up_gpu_nodes_total", "counter", _GPU_LABELS, help="Number of GPU nodes added by CA, by GPU name."
        ),
        Metric(
            "failed_scale_ups_total",
            "counter",
            ("reason", *_DEVICE_LABELS),
            help="Number of times scale-up operation has failed.",
        ),
        Metric(
            "failed_node_creations_total",
            "counter",
            ("reason",),
            help="Number of nodes which failed to be added by CA.",
        ),
        Metric(
            "failed_gpu_scale_ups_total",
            "counter",
            ("reason", *_GPU_LABELS),
            help="Number of times scale-up operation has failed.",
        ),
        Metric(
            "scaled_down_nodes_total", "counter", ("reason", *_DEVICE_LABELS), help="Number of nodes removed by CA."
        ),
        Metric(
            "scaled_down_gpu_nodes_total",
            "counter",
            ("reason", *_GPU_LABELS),
            help="Number of GPU nodes removed by CA, by reason and GPU name.",
        ),
        Metric("evicted_pods_total", "counter", ("eviction_result",), help="Number of pods evicted by CA"),
        Metric("unneeded_nodes_count", "gauge", help="Number of nodes currently considered unneeded by CA."),
        Metric(
            "unremovable_nodes_count",
            "gauge",
            ("reason",),
            help="Number of nodes currently considered unremovable by CA.",
        ),
        Metric(
            "scale_down_in_cooldown",
            "gauge",
            help="Whether or not the scale down is in cooldown. 1 if its, 0 otherwise.",
        ),
        Metric("old_unregistered_nodes_removed_count", "counter", help="Number of unregistered nodes removed by CA."),
        Metric(
            "overflowing_controllers_count",
            "gauge",
            help="Number of controllers that own a large set of heterogenous pods, preventing CA from treating "
            "these pods as equivalent.",
        ),
        Metric(
            "skipped_scale_events_count",
            "counter",
            ("direction", "reason"),
            help="Count of scaling events that the CA has chosen to skip.",
        ),
        Metric(
            "created_node_groups_total",
            "counter",
            ("group_type",),
            help="Number of node groups created by Node Autoprovisioning.",
        ),
        Metric(
            "deleted_node_groups_total",
            "counter",
            ("group_type",),
            help="Number of node groups deleted by Node Autoprovisioning.",
        ),
        Metric("node_taints_count", "gauge", ("type",), help="Number of taints per type used in the cluster."),
        Metric(
            "inconsistent_instances_migs_count",
            "gauge",
            help="Number of migs where instance count according to InstanceGroupManagers.List() differs from the "
            "results of Instances.List(). This can happen when some instances are abandoned or a user edits "
            "instance 'created-by' metadata.",
        ),  # specific to one cloud provider, but upstream registers it for all
        Metric(
            "binpacking_heterogeneity",
            "histogram",
            ("instance_type", "cpu_count", "namespace_count"),
            (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
            help="Number of groups of equivalent pods being processed as a part of the same binpacking simulation.",
        ),
        Metric(
            "max_node_skip_eval_duration_seconds",
            "gauge",
            help="Maximum evaluation time of a node being skipped during ScaleDown.",
        ),
        Metric(
            "node_removal_latency_seconds",
            "histogram",
            ("deleted", "delay_reason"),
            tuple(1.5**i for i in range(19)),
            help="Latency from when an unneeded node is eligible for scale down until it is removed (deleted=true) "
            "or it became needed again (deleted=false). The 'delay_reason' label indicates the technical "
            "bottleneck that delayed the scale-down ('none' if not delayed).",
        ),
        Metric(
            "dra_node_template_resources_mismatch",
            "gauge",
            ("driver", "mismatch_type"),
            help="Count of resource mismatches between ready nodes and node templates",
        ),
        Metric(
            "skipped_pods_count",
            "gauge",
            ("requestor",),
            help="Number of pods where scheduling simulation was skipped.",
        ),
        Metric(
            "capacity_buffer_oldest_reconciliation_timestamp_seconds",
            "gauge",
            ("new_buffer",),
            help="Unix timestamp of the oldest capacity buffer last reconciliation time.",
        ),
    )
}
"""Every metric by its name. Durations are seconds; only some are observed by loops, the others by the process."""


def build_observation(name: str, value: float = 1.0, **labels: str) -> Observation:
    """Build one observation; ``name`` is without upstream's prefix.

    Raises KeyError for an unknown name, and ValueError unless ``labels`` are exactly the metric's, in its order.
    """
    metric = METRICS[METRIC_PREFIX + name]
    if tuple(labels) != metric.labels:
        raise ValueError(f"{name} has the labels {', '.join(metric.labels)}, not {', '.join(labels)}")
    return Observation(name=metric.name, value=value, labels=labels)


def build_initial_observations() -> list[Observation]:
    """Build the observations of a starting process, all zero: metrics without labels, and some counters with labels.

    The counters are those that upstream sets to zero, for known values of the labels, so that the first error is
    an increase (upstream: ``InitMetrics``, ``RegisterAll``).
    """
    no_device = dict.fromkeys(_DEVICE_LABELS, "")
    observations = [Observation(name=each.name, value=0.0) for each in METRICS.values() if not each.labels]
    observations += [build_observation("errors_total", 0.0, type=type_) for type_ in ERROR_TYPES]
    for reason in (CLOUD_PROVIDER_ERROR, API_CALL_ERROR, "timeout"):
        observations.append(build_observation("failed_scale_ups_total", 0.0, reason=reason, **no_device))
        observations.append(build_observation("failed_node_creations_total", 0.0, reason=reason))
    observations += [
        build_observation("scaled_down_nodes_total", 0.0, reason=reason, **no_device)
        for reason in ("underutilized", "empty", "unready")
    ]
    observations += [
        build_observation("evicted_pods_total", 0.0, eviction_result=result) for result in ("succeeded", "failed")
    ]
    return observations + [
        build_observation("skipped_scale_events_count", 0.0, direction=direction, reason=reason)
        for direction in ("down", "up")
        for reason in ("CpuResourceLimit", "MemoryResourceLimit")
    ]


def build_last_activity_observation(activity: str, at: Moment) -> Observation:
    """Build the observation that the last time of an activity is ``at``, in integral Unix seconds."""
    return build_observation("last_activity", at // SECOND, activity=activity)


def build_duration_observation(function: str, time: int) -> Observation:
    """Build the observation of a function's duration; ``time`` is in nanoseconds."""
    return build_observation("function_duration_seconds", time / SECOND, function=function)


class FunctionTimer:
    """Timer of a part of the loop (``UpdateDurationFromStart``)."""

    __slots__ = ("_begun", "_name", "_progress")

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._name = name
        self._begun = progress.now

    def stop(self) -> StepsOf[Wait | Observe, None]:
        """Observe the duration since the timer was created."""
        now = yield from self._progress.clock()
        yield from self._progress.observe(build_duration_observation(self._name, now - self._begun))
