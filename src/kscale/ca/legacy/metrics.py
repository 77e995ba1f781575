"""The metrics of release 1.3, and current observations rewritten for them (upstream: ``metrics.go``).

The parts of a loop that both releases share observe the current metrics. :func:`rewrite_observations_steps` rewrites
these observations and drops the metrics that release 1.3 lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from kscale.ca.metrics import METRIC_PREFIX, METRICS
from kscale.effects import InBackground, Machine, Metric, Moment, Observation, Observe, Steps, StepsOf, Together, Within
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeTemplate

__all__ = [
    "LEGACY_GPU_LABEL",
    "LEGACY_METRICS",
    "build_legacy_initial_observations",
    "get_legacy_gpu_name",
    "rewrite_observations_steps",
]

LEGACY_GPU_LABEL: Final = "cloud.google.com/gke-accelerator"
_NVIDIA_GPU: Final = "nvidia.com/gpu"
_KNOWN_GPUS: Final = frozenset({"nvidia-tesla-k80", "nvidia-tesla-p100", "nvidia-tesla-v100"})
_DURATION_BOUNDS: Final = (
    0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5, 30.0, 50.0, 75.0, 100.0,
    1000.0,
)  # fmt: skip
_NODE_STATES: Final = frozenset({"ready", "unready", "notStarted", "longUnregistered", "unregistered"})
_LEGACY_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
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


def _build_legacy_metric(name: str, labels: tuple[str, ...]) -> Metric:
    """Return the current metric ``name`` (without prefix) with the labels, bounds and help text of release 1.3."""
    today = METRICS[METRIC_PREFIX + name]
    bounds = _DURATION_BOUNDS if name == "function_duration_seconds" else today.bounds
    return today._replace(labels=labels, bounds=bounds, help=today.help.removeprefix("[ALPHA] "))


LEGACY_METRICS: Final[Mapping[str, Metric]] = {
    METRIC_PREFIX + name: _build_legacy_metric(name, labels) for name, labels in _LEGACY_LABELS.items()
} | {
    METRIC_PREFIX + "nap_enabled": Metric(
        METRIC_PREFIX + "nap_enabled",
        "gauge",
        help="Whether or not Node Autoprovisioning is enabled. 1 if it is, 0 otherwise.",
    )
}
"""Every metric of release 1.3 by its name."""


def build_legacy_initial_observations(autoprovisioning: bool) -> list[Observation]:
    """Return the observations at the start of the process.

    Metrics without labels are 0; ``nap_enabled`` says whether auto-provisioning is enabled.
    """
    first = [Observation(name=each.name, value=0.0) for each in LEGACY_METRICS.values() if not each.labels]
    return [*first, Observation(name=METRIC_PREFIX + "nap_enabled", value=float(autoprovisioning))]


def get_legacy_gpu_name(node: Node, template: NodeTemplate | None) -> str:
    """Return the value of the metrics' label ``gpu_name`` for a node (``utils/gpu``: GetGpuTypeForMetrics).

    ``template`` is that of the node's group.

    - Node without GPU label: empty, or ``generic`` if it has GPUs.
    - Labelled node whose capacity lists GPUs, even 0: the label's value, or ``not-listed`` if upstream does not know
      it.
    - Other labelled node: ``missing-gpu`` if the template's capacity lists GPUs, otherwise ``unexpected-label``.
    """
    capacity = (node.status.capacity or {}).get(_NVIDIA_GPU)
    kind = (node.metadata.labels or {}).get(LEGACY_GPU_LABEL)
    if kind is None:
        return "generic" if capacity is not None and capacity.milli_value() else ""
    if capacity is not None:
        return kind if kind in _KNOWN_GPUS else "not-listed"
    if template is not None and _NVIDIA_GPU in (template.node.status.capacity or {}):
        return "missing-gpu"
    return "unexpected-label"


def rewrite_observations_steps(steps: StepsOf[Any, Any]) -> StepsOf[Any, Any]:
    """Run a machine, but replace its metric observations by those of Cluster Autoscaler 1.3.

    Observations that release 1.3 does not make are dropped. Machines that this machine starts are rewritten too. Other
    actions, outcomes and the result are unchanged.
    """
    try:
        action = next(steps)
    except StopIteration as end:
        return end.value
    while True:
        match action:
            case Observe(observations=observations):
                action = Observe(_rewrite_observations(observations))
            case InBackground(machine=machine):
                action = replace(action, machine=partial(_run_rewritten_steps, machine))
            case Together(machines=machines):
                action = replace(action, machines=tuple(partial(_run_rewritten_steps, machine) for machine in machines))
            case Within(machine=machine):
                action = replace(action, machine=partial(_run_rewritten_steps, machine))
        outcome = yield action
        try:
            action = steps.send(outcome)
        except StopIteration as end:
            return end.value


def _run_rewritten_steps(machine: Machine, now: Moment) -> Steps[Any]:
    """Run ``machine``, started at ``now``, with rewritten observations (:func:`rewrite_observations_steps`)."""
    return (yield from rewrite_observations_steps(machine(now)))


def _rewrite_observations(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations with the labels of release 1.3, without those that release 1.3 does not make."""
    rewritten = [_rewrite_observation(each) for each in observations]
    return [each for each in rewritten if each is not None]


def _rewrite_observation(seen: Observation) -> Observation | None:
    """Return an observation with the labels of release 1.3; None if release 1.3 does not make it."""
    metric = LEGACY_METRICS.get(seen.name)
    if metric is None:
        return None
    values = seen.labels
    if values.get("state", "ready") not in _NODE_STATES or values.get("eviction_result", "succeeded") != "succeeded":
        return None
    if values.get("type", "unschedulable") != "unschedulable" and not metric.labels:
        return None
    labels = {label: values[label] for label in metric.labels}
    if seen.name == METRIC_PREFIX + "failed_scale_ups_total" and labels["reason"] != "timeout":
        labels["reason"] = "apiCallError"
    return replace(seen, labels=labels)
