"""Prometheus metrics of the controller, by upstream's names (upstream: ``pkg/controller/podautoscaler/monitor``).

:func:`kscale.hpa.reconcile` observes all but the gauge of HPAs, which the queue counts
(:class:`kscale.drivers.HorizontalController`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kscale.effects import SECOND, Metric, Moment, Observation

__all__ = [
    "DESIRED_REPLICAS",
    "METRICS",
    "METRIC_COMPUTATIONS",
    "METRIC_COMPUTATION_DURATION",
    "NUM_HPAS",
    "RECONCILIATIONS",
    "RECONCILIATION_DURATION",
    "STALE_SYNC_SKIPS",
    "observe_duration",
]

_PREFIX: Final = "horizontal_pod_autoscaler_controller_"
RECONCILIATIONS: Final = f"{_PREFIX}reconciliations_total"
RECONCILIATION_DURATION: Final = f"{_PREFIX}reconciliation_duration_seconds"
METRIC_COMPUTATIONS: Final = f"{_PREFIX}metric_computation_total"
METRIC_COMPUTATION_DURATION: Final = f"{_PREFIX}metric_computation_duration_seconds"
NUM_HPAS: Final = f"{_PREFIX}num_horizontal_pod_autoscalers"
DESIRED_REPLICAS: Final = f"{_PREFIX}desired_replicas"
STALE_SYNC_SKIPS: Final = f"{_PREFIX}stale_sync_skips_total"

_DURATION_BOUNDS: Final = tuple(0.001 * 2.0**i for i in range(15))
_RECONCILIATION_LABELS: Final = ("action", "error")
_COMPUTATION_LABELS: Final = ("action", "error", "metric_type")
_ACTION_HELP: Final = "The label 'action' should be either 'scale_down', 'scale_up', or 'none'. "
_ERROR_HELP: Final = "the label 'error' should be either 'spec', 'internal', or 'none'. "
_FIRST_ERROR_HELP: Final = (
    "Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in "
    "`error` label."
)
_METRIC_TYPE_HELP: Final = "The label 'metric_type' corresponds to HPA.spec.metrics[*].type"

# fmt: off
_METRICS: Final = (
    Metric(RECONCILIATIONS, "counter", _RECONCILIATION_LABELS,
           help="[BETA] Number of reconciliations of HPA controller. "
           f"{_ACTION_HELP}Also, {_ERROR_HELP}{_FIRST_ERROR_HELP}"),
    Metric(RECONCILIATION_DURATION, "histogram", _RECONCILIATION_LABELS, _DURATION_BOUNDS,
           help=f"[BETA] The time(seconds) that the HPA controller takes to reconcile once. {_ACTION_HELP}Also, "
           f"{_ERROR_HELP}{_FIRST_ERROR_HELP}"),
    Metric(METRIC_COMPUTATIONS, "counter", _COMPUTATION_LABELS,
           help=f"[BETA] Number of metric computations. {_ACTION_HELP}Also, {_ERROR_HELP}{_METRIC_TYPE_HELP}"),
    Metric(METRIC_COMPUTATION_DURATION, "histogram", _COMPUTATION_LABELS, _DURATION_BOUNDS,
           help=f"[BETA] The time(seconds) that the HPA controller takes to calculate one metric. {_ACTION_HELP}The "
           f"{_ERROR_HELP.removeprefix('the ')}{_METRIC_TYPE_HELP}"),
    Metric(NUM_HPAS, "gauge", help="[ALPHA] Current number of controlled HPA objects."),
    Metric(DESIRED_REPLICAS, "gauge", ("namespace", "hpa_name"),
           help="[ALPHA] Current desired replica count for HPA objects."),
    Metric(STALE_SYNC_SKIPS, "counter", ("group", "resource"),
           help="[ALPHA] Total number of HPA syncs skipped due to a stale watch cache."),
)
# fmt: on
METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _METRICS}
"""Name -> metric, with its labels in upstream's order; durations are seconds."""


def observe_duration(name: str, since: Moment, until: Moment, labels: dict[str, str]) -> Observation:
    """Build the observation of a duration, in seconds."""
    return Observation(name=name, value=(until - since) / SECOND, labels=labels)
