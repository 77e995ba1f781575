"""The metrics of release 1.3 (``metrics/metrics.go`` of that time), and today's observations in its terms.

The parts of a loop that both releases share observe today's metrics. :func:`in_terms_of_1_3` runs a machine of such
parts and rewrites what it observes: fewer labels, other reasons, and nothing of metrics that release 1.3 lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from kscale.ca.metrics import METRICS, PREFIX
from kscale.effects import InBackground, Machine, Metric, Moment, Observation, Observe, Steps, StepsOf, Together, Within
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeTemplate

__all__ = ["GPU_LABEL_1_3", "LEGACY_METRICS", "gpu_name_1_3", "in_terms_of_1_3", "initial_observations_1_3"]

GPU_LABEL_1_3: Final = "cloud.google.com/gke-accelerator"
_GPU: Final = "nvidia.com/gpu"
_KNOWN_GPUS: Final = frozenset({"nvidia-tesla-k80", "nvidia-tesla-p100", "nvidia-tesla-v100"})
_DURATIONS: Final = (
    0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5, 30.0, 50.0, 75.0, 100.0,
    1000.0,
)  # fmt: skip
_STATES: Final = frozenset({"ready", "unready", "notStarted", "longUnregistered", "unregistered"})
_OLD_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster_safe_to_autoscale": (),
    "nodes_count": ("state",),
    "node_groups_count": ("node_group_type",),
    "unschedulable_pods_count": (),
    "last_activity": ("activity",),
    "function_duration_seconds": ("function",),
    "errors_total": ("type",),
    "scaled_up_nodes_total": (),
    "scaled_up_gpu_nodes_total": ("gpu_name",),
    "failed_scale_ups_total": ("reason",),
    "scaled_down_nodes_total": ("reason",),
    "scaled_down_gpu_nodes_total": ("reason", "gpu_name"),
    "evicted_pods_total": (),
    "unneeded_nodes_count": (),
    "created_node_groups_total": (),
    "deleted_node_groups_total": (),
}


def _metric(name: str, labels: tuple[str, ...]) -> Metric:
    today = METRICS[PREFIX + name]
    bounds = _DURATIONS if name == "function_duration_seconds" else today.bounds
    return today._replace(labels=labels, bounds=bounds, help=today.help.removeprefix("[ALPHA] "))


LEGACY_METRICS: Final[Mapping[str, Metric]] = {
    PREFIX + name: _metric(name, labels) for name, labels in _OLD_LABELS.items()
} | {
    PREFIX + "nap_enabled": Metric(
        PREFIX + "nap_enabled",
        "gauge",
        help="Whether or not Node Autoprovisioning is enabled. 1 if it is, 0 otherwise.",
    )
}
"""Every metric of release 1.3 by its name."""


def initial_observations_1_3(autoprovisioning: bool) -> list[Observation]:
    """Return what the process observes when it registers its metrics: those without labels at zero, and whether
    auto-provisioning is enabled."""
    first = [Observation(name=each.name, value=0.0) for each in LEGACY_METRICS.values() if not each.labels]
    return [*first, Observation(name=PREFIX + "nap_enabled", value=float(autoprovisioning))]


def gpu_name_1_3(node: Node, template: NodeTemplate | None) -> str:
    """Return the label ``gpu_name`` of a node, empty without a GPU (``utils/gpu``: GetGpuTypeForMetrics).

    ``template`` is what the node's group would create: it tells a GPU that is missing from one that never was there.
    """
    capacity = (node.status.capacity or {}).get(_GPU)
    kind = (node.metadata.labels or {}).get(GPU_LABEL_1_3)
    if kind is None:
        return "generic" if capacity is not None and capacity.milli_value() else ""
    if capacity is not None:
        return kind if kind in _KNOWN_GPUS else "not-listed"
    if template is not None and _GPU in (template.node.status.capacity or {}):
        return "missing-gpu"
    return "unexpected-label"


def in_terms_of_1_3(steps: StepsOf[Any, Any]) -> StepsOf[Any, Any]:
    """Run a machine, and rewrite what it observes, also in the machines that it starts."""
    try:
        action = next(steps)
    except StopIteration as end:
        return end.value
    while True:
        match action:
            case Observe(observations=observations):
                action = Observe(_rewritten(observations))
            case InBackground(machine=machine):
                action = replace(action, machine=partial(_machine, machine))
            case Together(machines=machines):
                action = replace(action, machines=tuple(partial(_machine, machine) for machine in machines))
            case Within(machine=machine):
                action = replace(action, machine=partial(_machine, machine))
        outcome = yield action
        try:
            action = steps.send(outcome)
        except StopIteration as end:
            return end.value


def _machine(machine: Machine, now: Moment) -> Steps[Any]:
    return (yield from in_terms_of_1_3(machine(now)))


def _rewritten(observations: Sequence[Observation]) -> list[Observation]:
    rewritten = [_old(each) for each in observations]
    return [each for each in rewritten if each is not None]


def _old(seen: Observation) -> Observation | None:
    """Return an observation in the terms of release 1.3; None if that release did not make it."""
    metric = LEGACY_METRICS.get(seen.name)
    if metric is None:
        return None
    values = seen.labels
    if values.get("state", "ready") not in _STATES or values.get("eviction_result", "succeeded") != "succeeded":
        return None
    if values.get("type", "unschedulable") != "unschedulable" and not metric.labels:
        return None
    labels = {label: values[label] for label in metric.labels}
    if seen.name == PREFIX + "failed_scale_ups_total" and labels["reason"] != "timeout":
        labels["reason"] = "apiCallError"
    return replace(seen, labels=labels)
