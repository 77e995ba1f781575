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
    given, want = case["input"], case["want"]
    options = HPAOptions(
        horizontal_pod_autoscaler_cpu_initialization_period=timedelta(seconds=given["cpu_initialization_period_s"]),
        horizontal_pod_autoscaler_initial_readiness_delay=timedelta(
            seconds=given["delay_of_initial_readiness_status_s"]
        ),
        feature_gates=given.get("gates", {}),
        kubernetes_version=given.get("kubernetes_version", ""),
    )
    now = from_text(given["now"])
    machine = ReplicaCalculator(Recorded(given), Progress(now), now, options)
    listed = [from_dict(pod, Pod) for pod in given.get("pods") or []]

    def respond(action: Any) -> Any:
        assert isinstance(action, List)
        if "pods_error" in given:
            return ApiError(given["pods_error"])
        selector = parse_selector(action.selector)
        return [
            pod
            for pod in listed
            if pod.metadata.namespace == action.namespace and selector.matches(pod.metadata.labels)
        ]

    result = run_dry(_calculation(machine, given), now=now, respond=respond).value
    found = {
        "replicas": result.replicas,
        "utilization": result.utilization,
        "raw_milli": result.usage,
        "timestamp": to_text(result.timestamp),
        "error": result.error,
        "path": list(result.path),
    }
    wanted = {key: value for key, value in want.items() if key != "unspecified"}
    found = {key: value for key, value in found.items() if key != "path" or "path" in wanted}
    assert found == wanted, f"{found} is not {wanted}"


def _calculation(machine: ReplicaCalculator, given: dict[str, Any]) -> CalculationSteps:
    function = given["function"]
    tolerances = Tolerances(given["tolerance_down"], given["tolerance_up"])
    namespace, selector = given["namespace"], given["pod_selector"]
    resource, container = given.get("resource", ""), given.get("container", "")
    metric, raw = given.get("metric_name", ""), given.get("metric_selector")
    metric_selector = None if raw is None else from_dict(raw, LabelSelector)
    described = from_dict(given.get("object") or {}, CrossVersionObjectReference)
    current, target = given.get("current_replicas"), given.get("target_milli")
    if function == "GetResourceReplicas":
        percent = given["target_utilization"]
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
    status = given["status_replicas"]
    if function == "GetObjectPerPodMetricReplicas":
        return machine.get_object_per_pod_metric_replicas(status, target, metric, tolerances, namespace, described)
    assert function == "GetExternalPerPodMetricReplicas"
    return machine.get_external_per_pod_metric_replicas(status, target, metric, tolerances, namespace, metric_selector)
