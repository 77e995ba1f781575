"""The fixture of upstream's table tests: pods ``test-pod-i`` with two containers, metrics, one moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kscale.effects import Action, ApiError, GetMetric, List, Progress, from_text, run_dry
from kscale.hpa.controller.metric_proposals import RESTMetricsClient
from kscale.hpa.controller.replica_calculator import CalculatedReplicas, CalculationSteps, ReplicaCalculator
from kscale.hpa.options import HPAOptions
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.decode import from_dict

NOW = "2026-03-01T12:00:00Z"
ZERO = "0001-01-01T00:00:00Z"
STARTS = {"h": NOW, "c": "2026-03-01T11:57:00Z"}
PHASES = {"R": "Running", "F": "Failed", "P": "Pending"}
OPTIONS = HPAOptions(
    horizontal_pod_autoscaler_cpu_initialization_period=timedelta(seconds=120),
    horizontal_pod_autoscaler_initial_readiness_delay=timedelta(seconds=10),
)
SELECTOR = "name=test-pod"


def states(state: str) -> dict[str, str]:
    """``rdy TFF, st chh`` as a dict."""
    return dict(part.split() for part in state.split(",") if part.strip())


def pods(count: int, requests: Sequence[int | None], state: str = "", *, since_start: bool = False) -> list[Pod]:
    """Pods of which each of the two containers has a request (milli; None: none); ``state`` as in the tables.

    Ready or not since the year 1, or with ``since_start`` since the pod's start.
    """
    marks = states(state)
    out = []
    for i in range(count):
        request = requests[i] if i < len(requests) else None
        resources: dict[str, Any] = {} if request is None else {"requests": {"cpu": f"{request}m", "memory": "1Gi"}}
        ready = marks.get("rdy", "T" * count)
        starts, phases = marks.get("st", ""), marks.get("ph", "")
        metadata: dict[str, Any] = {
            "name": f"test-pod-{i}",
            "namespace": "test-namespace",
            "labels": {"name": "test-pod"},
        }
        if marks.get("del", "")[i : i + 1] == "1":
            metadata["deletionTimestamp"] = NOW
        status = "True" if ready[i : i + 1] in ("", "T") else "False"
        start = STARTS[starts[i]] if starts else ZERO
        since = start if since_start else ZERO
        out.append(
            from_dict(
                {
                    "metadata": metadata,
                    "spec": {"containers": [{"name": f"container{n}", "resources": resources} for n in (1, 2)]},
                    "status": {
                        "phase": PHASES[phases[i]] if phases else "Running",
                        "startTime": start,
                        "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}],
                    },
                },
                Pod,
            )
        )
    return out


class Fixture:
    """Answers queries with canned lists, whatever is asked."""

    def __init__(
        self,
        listed: Sequence[Pod] | ApiError,
        *,
        levels: Sequence[Sequence[int]] = (),
        names: Sequence[str] = (),
        values: Sequence[int] = (),
        timestamp: str = ZERO,
        failure: ApiError | None = None,
        resource: str = "cpu",
    ) -> None:
        self.listed, self.levels, self.values, self.timestamp = listed, levels, values, timestamp
        self.names = names or [f"test-pod-{i}" for i in range(max(len(levels), len(values)))]
        self.failure, self.resource = failure, resource

    def __call__(self, action: Action) -> Any:
        if isinstance(action, List):
            return self.listed
        assert isinstance(action, GetMetric)
        if self.failure is not None:
            return self.failure
        if action.api == "resource":
            items = [
                {
                    "metadata": {"name": name, "namespace": "test-namespace"},
                    "timestamp": self.timestamp,
                    "window": "1m0s",
                    "containers": [
                        {"name": f"container{n + 1}", "usage": {self.resource: f"{level}m"}}
                        for n, level in enumerate(levels)
                    ],
                }
                for name, levels in zip(self.names, self.levels, strict=False)
            ]
            return from_dict({"items": items}, PodMetricsList)
        quantities = [f"{value}m" for value in self.values]
        if action.api == "external":
            items = [{"metricName": action.metric, "timestamp": self.timestamp, "value": each} for each in quantities]
            return from_dict({"items": items}, ExternalMetricValueList)
        if action.name:
            return from_dict({"timestamp": self.timestamp, "value": quantities[0]}, MetricValue)
        items = [
            {"describedObject": {"kind": "Pod", "name": name}, "timestamp": self.timestamp, "value": each}
            for name, each in zip(self.names, quantities, strict=True)
        ]
        return from_dict({"items": items}, MetricValueList)

    def run(self, calculation: CalculationSteps) -> CalculatedReplicas:
        return run_dry(calculation, now=from_text(NOW), respond=self).value


def calculator() -> ReplicaCalculator:
    now = from_text(NOW)
    progress = Progress(now)
    return ReplicaCalculator(RESTMetricsClient(progress), progress, now, OPTIONS)
