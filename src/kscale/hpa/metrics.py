"""Upstream's metrics of the controller by name (``pkg/controller/podautoscaler/monitor``).

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
    "seconds",
]

_PREFIX: Final = "horizontal_pod_autoscaler_controller_"
RECONCILIATIONS: Final = f"{_PREFIX}reconciliations_total"
RECONCILIATION_DURATION: Final = f"{_PREFIX}reconciliation_duration_seconds"
METRIC_COMPUTATIONS: Final = f"{_PREFIX}metric_computation_total"
METRIC_COMPUTATION_DURATION: Final = f"{_PREFIX}metric_computation_duration_seconds"
NUM_HPAS: Final = f"{_PREFIX}num_horizontal_pod_autoscalers"
DESIRED_REPLICAS: Final = f"{_PREFIX}desired_replicas"
STALE_SYNC_SKIPS: Final = f"{_PREFIX}stale_sync_skips_total"

_BOUNDS: Final = tuple(0.001 * 2.0**i for i in range(15))
_OUTCOME: Final = ("action", "error")
_COMPUTATION: Final = ("action", "error", "metric_type")

METRICS: Final[Mapping[str, Metric]] = {
    each.name: each
    for each in (
        Metric(RECONCILIATIONS, "counter", _OUTCOME),
        Metric(RECONCILIATION_DURATION, "histogram", _OUTCOME, _BOUNDS),
        Metric(METRIC_COMPUTATIONS, "counter", _COMPUTATION),
        Metric(METRIC_COMPUTATION_DURATION, "histogram", _COMPUTATION, _BOUNDS),
        Metric(NUM_HPAS, "gauge"),
        Metric(DESIRED_REPLICAS, "gauge", ("namespace", "hpa_name")),
        Metric(STALE_SYNC_SKIPS, "counter", ("group", "resource")),
    )
}
"""Name -> metric, with its labels in upstream's order; durations are seconds."""


def seconds(name: str, since: Moment, until: Moment, labels: dict[str, str]) -> Observation:
    """An observation of how long something took."""
    return Observation(name=name, value=(until - since) / SECOND, labels=labels)
