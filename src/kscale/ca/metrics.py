"""Upstream's metrics of the Cluster Autoscaler by name, and saying what is to be counted (``metrics/metrics.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kscale.ca.errors import API_CALL_ERROR, CLOUD_PROVIDER_ERROR, ERROR_TYPES
from kscale.effects import SECOND, Metric, Moment, Observation, Observe, Progress, StepsOf, Wait

__all__ = ["METRICS", "PREFIX", "FunctionTimer", "initial_observations", "last_activity", "observation", "took"]

PREFIX: Final = "cluster_autoscaler_"

_GPU: Final = ("gpu_resource_name", "gpu_name")
_DEVICES: Final = (*_GPU, "dra_drivers")
_DURATIONS: Final = tuple(0.1 * (1800 / 0.1) ** (i / 149) for i in range(150))

METRICS: Final[Mapping[str, Metric]] = {
    PREFIX + metric.name: metric._replace(name=PREFIX + metric.name)
    for metric in (
        Metric("cluster_safe_to_autoscale", "gauge"),
        Metric("nodes_count", "gauge", ("state",)),
        Metric("node_groups_count", "gauge", ("node_group_type",)),
        Metric("unschedulable_pods_count", "gauge", ("type",)),
        Metric("max_nodes_count", "gauge"),
        Metric("cluster_cpu_current_cores", "gauge"),
        Metric("cpu_limits_cores", "gauge", ("direction",)),
        Metric("cluster_memory_current_bytes", "gauge"),
        Metric("memory_limits_bytes", "gauge", ("direction",)),
        Metric("node_group_min_count", "gauge", ("node_group",)),
        Metric("node_group_max_count", "gauge", ("node_group",)),
        Metric("node_group_target_count", "gauge", ("node_group",)),
        Metric("node_group_healthiness", "gauge", ("node_group",)),
        Metric("node_group_backoff_status", "gauge", ("node_group", "reason")),
        Metric("last_activity", "gauge", ("activity",)),
        Metric("function_duration_seconds", "histogram", ("function",), _DURATIONS),
        Metric("function_duration_quantile_seconds", "summary", ("function",), of=PREFIX + "function_duration_seconds"),
        Metric("pending_node_deletions", "gauge"),
        Metric("errors_total", "counter", ("type",)),
        Metric("scaled_up_nodes_total", "counter", _DEVICES),
        Metric("scaled_up_gpu_nodes_total", "counter", _GPU),
        Metric("failed_scale_ups_total", "counter", ("reason", *_DEVICES)),
        Metric("failed_node_creations_total", "counter", ("reason",)),
        Metric("failed_gpu_scale_ups_total", "counter", ("reason", *_GPU)),
        Metric("scaled_down_nodes_total", "counter", ("reason", *_DEVICES)),
        Metric("scaled_down_gpu_nodes_total", "counter", ("reason", *_GPU)),
        Metric("evicted_pods_total", "counter", ("eviction_result",)),
        Metric("unneeded_nodes_count", "gauge"),
        Metric("unremovable_nodes_count", "gauge", ("reason",)),
        Metric("scale_down_in_cooldown", "gauge"),
        Metric("old_unregistered_nodes_removed_count", "counter"),
        Metric("overflowing_controllers_count", "gauge"),
        Metric("skipped_scale_events_count", "counter", ("direction", "reason")),
        Metric("created_node_groups_total", "counter", ("group_type",)),
        Metric("deleted_node_groups_total", "counter", ("group_type",)),
        Metric("node_taints_count", "gauge", ("type",)),
        Metric("inconsistent_instances_migs_count", "gauge"),  # of one cloud; upstream shows it for all
        Metric(
            "binpacking_heterogeneity",
            "histogram",
            ("instance_type", "cpu_count", "namespace_count"),
            (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        ),
        Metric("max_node_skip_eval_duration_seconds", "gauge"),
        Metric(
            "node_removal_latency_seconds", "histogram", ("deleted", "delay_reason"), tuple(1.5**i for i in range(19))
        ),
        Metric("dra_node_template_resources_mismatch", "gauge", ("driver", "mismatch_type")),
        Metric("skipped_pods_count", "gauge", ("requestor",)),
        Metric("capacity_buffer_oldest_reconciliation_timestamp_seconds", "gauge", ("new_buffer",)),
    )
}
"""Every metric by its name. Durations are seconds; only some are observed by loops, the others by the process."""


def observation(name: str, value: float = 1.0, **labels: str) -> Observation:
    """One observation, by the name without upstream's prefix. Raises ValueError for labels that the metric has not."""
    metric = METRICS[PREFIX + name]
    if tuple(labels) != metric.labels:
        raise ValueError(f"{name} has the labels {', '.join(metric.labels)}, not {', '.join(labels)}")
    return Observation(name=metric.name, value=value, labels=labels)


def initial_observations() -> list[Observation]:
    """Counters at zero, so that the first error is an increase (``InitMetrics``); and all that has no labels, which is
    there from the beginning (``RegisterAll``)."""
    no_device = dict.fromkeys(_DEVICES, "")
    found = [Observation(name=each.name, value=0.0) for each in METRICS.values() if not each.labels]
    found += [observation("errors_total", 0.0, type=type_) for type_ in ERROR_TYPES]
    for reason in (CLOUD_PROVIDER_ERROR, API_CALL_ERROR, "timeout"):
        found.append(observation("failed_scale_ups_total", 0.0, reason=reason, **no_device))
        found.append(observation("failed_node_creations_total", 0.0, reason=reason))
    found += [
        observation("scaled_down_nodes_total", 0.0, reason=reason, **no_device)
        for reason in ("underutilized", "empty", "unready")
    ]
    found += [observation("evicted_pods_total", 0.0, eviction_result=result) for result in ("succeeded", "failed")]
    return found + [
        observation("skipped_scale_events_count", 0.0, direction=direction, reason=reason)
        for direction in ("down", "up")
        for reason in ("CpuResourceLimit", "MemoryResourceLimit")
    ]


def last_activity(activity: str, at: Moment) -> Observation:
    """When something was last done, in whole Unix seconds."""
    return observation("last_activity", at // SECOND, activity=activity)


def took(function: str, time: int) -> Observation:
    """How long a part of the loop took, from nanoseconds."""
    return observation("function_duration_seconds", time / SECOND, function=function)


class FunctionTimer:
    """How long a part of the loop took (``UpdateDurationFromStart``)."""

    __slots__ = ("_begun", "_name", "_progress")

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._name = name
        self._begun = progress.now

    def stop(self) -> StepsOf[Wait | Observe, None]:
        """It is over now."""
        now = yield from self._progress.clock()
        yield from self._progress.observe(took(self._name, now - self._begun))
