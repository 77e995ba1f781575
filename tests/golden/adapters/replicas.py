"""``replicas``: one call of one replica-calculator function. Compares the ``path`` where it was recorded."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from kscale.effects import SECOND, ApiError, List, Progress, from_text, run_dry, to_text
from kscale.hpa.controller.replica_calculator import (
    CalculationSteps,
    MetricsError,
    PodSamples,
    ReplicaCalculator,
    Sample,
    Tolerances,
)
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import CrossVersionObjectReference
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import LabelSelector
from kscale.objects.decode import from_dict
from kscale.objects.selectors import parse_selector

VALUES = {"GetResourceReplicas", "GetRawResourceReplicas", "GetMetricReplicas"}


class Recorded:
    """The recorded answer of the metrics client."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case

    def _answer(self, value: Any) -> Generator[Any, Any, Any]:
        if "metrics_error" in self.case:
            raise MetricsError(self.case["metrics_error"])
        return value
        yield

    def get_resource_metric(self, *_: Any) -> Generator[Any, Any, Any]:
        samples = {
            item["pod"]: Sample(item["value_milli"], from_text(item["timestamp"]), item["window_s"] * SECOND)
            for item in self.case.get("metrics", [])
        }
        return self._answer(PodSamples(samples, from_text(self.case.get("metrics_timestamp"))))

    get_raw_metric = get_resource_metric

    def get_object_metric(self, *_: Any) -> Generator[Any, Any, Any]:
        return self._answer((self.case.get("object_value_milli"), from_text(self.case.get("metrics_timestamp"))))

    def get_external_metric(self, *_: Any) -> Generator[Any, Any, Any]:
        return self._answer((self.case.get("external_values_milli"), from_text(self.case.get("metrics_timestamp"))))


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = HPAOptions(
        horizontal_pod_autoscaler_cpu_initialization_period=timedelta(seconds=inputs["cpu_initialization_period_s"]),
        horizontal_pod_autoscaler_initial_readiness_delay=timedelta(
            seconds=inputs["delay_of_initial_readiness_status_s"]
        ),
        feature_gates=inputs.get("gates", {}),
        kubernetes_version=inputs.get("kubernetes_version", ""),
    )
    now = from_text(inputs["now"])
    machine = ReplicaCalculator(Recorded(inputs), Progress(now), now, options)
    listed = [from_dict(pod, Pod) for pod in inputs.get("pods") or []]

    def respond(action: Any) -> Any:
        assert isinstance(action, List)
        if "pods_error" in inputs:
            return ApiError(inputs["pods_error"])
        selector = parse_selector(action.selector)
        return [
            pod
            for pod in listed
            if pod.metadata.namespace == action.namespace and selector.matches(pod.metadata.labels)
        ]

    result = run_dry(_calculation(machine, inputs), now=now, respond=respond).value
    calculated = {
        "replicas": result.replicas,
        "utilization": result.utilization,
        "raw_milli": result.usage,
        "timestamp": to_text(result.timestamp),
        "error": result.error,
        "path": list(result.path),
    }
    expected = {key: value for key, value in want.items() if key != "unspecified"}
    calculated = {key: value for key, value in calculated.items() if key != "path" or "path" in expected}
    assert calculated == expected, f"{calculated} is not {expected}"


def _calculation(machine: ReplicaCalculator, inputs: dict[str, Any]) -> CalculationSteps:
    function = inputs["function"]
    tolerances = Tolerances(inputs["tolerance_down"], inputs["tolerance_up"])
    namespace, selector = inputs["namespace"], inputs["pod_selector"]
    resource, container = inputs.get("resource", ""), inputs.get("container", "")
    metric, raw = inputs.get("metric_name", ""), inputs.get("metric_selector")
    metric_selector = None if raw is None else from_dict(raw, LabelSelector)
    described = from_dict(inputs.get("object") or {}, CrossVersionObjectReference)
    current, target = inputs.get("current_replicas"), inputs.get("target_milli")
    if function == "GetResourceReplicas":
        percent = inputs["target_utilization"]
        return machine.get_resource_replicas(current, percent, resource, tolerances, namespace, selector, container)
    if function == "GetRawResourceReplicas":
        return machine.get_raw_resource_replicas(current, target, resource, tolerances, namespace, selector, container)
    if function == "GetMetricReplicas":
        return machine.get_metric_replicas(current, target, metric, tolerances, namespace, selector)
    if function == "GetObjectMetricReplicas":
        return machine.get_object_metric_replicas(current, target, metric, tolerances, namespace, described, selector)
    if function == "GetExternalMetricReplicas":
        return machine.get_external_metric_replicas(
            current, target, metric, tolerances, namespace, metric_selector, selector
        )
    status = inputs["status_replicas"]
    if function == "GetObjectPerPodMetricReplicas":
        return machine.get_object_per_pod_metric_replicas(status, target, metric, tolerances, namespace, described)
    assert function == "GetExternalPerPodMetricReplicas"
    return machine.get_external_per_pod_metric_replicas(status, target, metric, tolerances, namespace, metric_selector)
