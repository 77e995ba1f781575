"""Facts of upstream's tests of the metrics clients, of the quantities in a status, and of validation."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

import pytest

from kscale import Quantity
from kscale.effects import SECOND, ApiError, Outcome, Progress, from_text
from kscale.hpa import HPAOptions, admit, apply_defaults
from kscale.hpa.controller.metric_proposals import RESTMetricsClient, get_tolerances, to_status_quantity
from kscale.hpa.controller.replica_calculator import MetricsError, Sample
from kscale.objects.api.autoscaling import CrossVersionObjectReference, HorizontalPodAutoscaler
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.decode import from_dict
from unit.hpa.support import NOW, SELECTOR

TIME = from_text(NOW)
LISTS: Final = {"resource": PodMetricsList, "custom": MetricValueList, "external": ExternalMetricValueList}

# -- metrics clients -------------------------------------------------------------------------------------------------


def client_result(query: Generator[Any, Any, Any], answer: Any) -> Any:
    """What a client makes of one answer."""
    next(query)
    with pytest.raises(StopIteration) as stop:
        query.send(Outcome(at=TIME, value=answer))
    return stop.value.value


def query(api: str, container: str = "") -> Generator[Any, Any, Any]:
    client = RESTMetricsClient(Progress(TIME))
    if api == "resource":
        return client.get_resource_metric("cpu", "test-namespace", SELECTOR, container)
    if api == "custom":
        return client.get_raw_metric("qps", "test-namespace", SELECTOR, "")
    return client.get_external_metric("qps", "test-namespace", "")


def pod_metrics(*usages: list[int]) -> PodMetricsList:
    """One pod an argument, with the milli cores of its containers."""
    items = [
        {
            "metadata": {"name": f"pod{i}", "namespace": "test-namespace"},
            "timestamp": NOW,
            "window": "1m0s",
            "containers": [{"name": f"c{j}", "usage": {"cpu": f"{each}m"}} for j, each in enumerate(usage)],
        }
        for i, usage in enumerate(usages)
    ]
    return from_dict({"items": items}, PodMetricsList)


@pytest.mark.parametrize(
    ("container", "want"),
    [("", {"pod0": 100, "pod1": 700}), ("c0", {"pod0": 100, "pod1": 300}), ("c1", {"pod1": 400}), ("c2", {})],
)
def test_usage_of_pods(container: str, want: dict[str, int]) -> None:
    result = client_result(query("resource", container), pod_metrics([100], [300, 400], []))
    assert result.samples == {name: Sample(value, TIME, 60 * SECOND) for name, value in want.items()}
    assert result.timestamp == TIME


@pytest.mark.parametrize("values", [[10, 20, 30], [0, 0, 0]], ids=["some", "all zero"])
@pytest.mark.parametrize(("extra", "seconds"), [({}, 60), ({"windowSeconds": 30}, 30), ({"windowSeconds": 0}, 0)])
def test_custom_metrics_of_pods(values: list[int], extra: dict[str, int], seconds: int) -> None:
    items = [
        {"describedObject": {"kind": "Pod", "name": f"pod{i}"}, "timestamp": NOW, "value": str(value), **extra}
        for i, value in enumerate(values)
    ]
    result = client_result(query("custom"), from_dict({"items": items}, MetricValueList))
    window = seconds * SECOND
    assert result.samples == {f"pod{i}": Sample(value * 1000, TIME, window) for i, value in enumerate(values)}


@pytest.mark.parametrize("values", [[10, 0, 10], [0, 0, 0]], ids=["some", "all zero"])
def test_external_metrics(values: list[int]) -> None:
    items = [{"metricName": "qps", "timestamp": NOW, "value": str(value)} for value in values]
    answer = from_dict({"items": items}, ExternalMetricValueList)
    assert client_result(query("external"), answer) == ([value * 1000 for value in values], TIME)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("value", [10, 0])
def test_a_custom_metric_of_an_object(value: int, listed: bool) -> None:
    service = CrossVersionObjectReference(kind="Service", name="front", api_version="v1")
    asking = RESTMetricsClient(Progress(TIME)).get_object_metric("qps", "test-namespace", service, "")
    answer = from_dict({"timestamp": NOW, "value": str(value)}, MetricValue)
    assert client_result(asking, MetricValueList(items=[answer]) if listed else answer) == (value * 1000, TIME)


@pytest.mark.parametrize("count", [0, 2])
def test_an_object_has_one_value(count: int) -> None:
    service = CrossVersionObjectReference(kind="Service", name="front", api_version="v1")
    asking = RESTMetricsClient(Progress(TIME)).get_object_metric("qps", "test-namespace", service, "")
    next(asking)
    text = f"the custom metrics API server returned {count} results when we asked for exactly one"
    with pytest.raises(MetricsError, match=f"^unable to fetch metrics from custom metrics API: {text}$"):
        asking.send(Outcome(at=TIME, value=MetricValueList(items=[MetricValue()] * count)))


@pytest.mark.parametrize("api", LISTS)
def test_an_empty_list_is_an_error(api: str) -> None:
    asking = query(api)
    next(asking)
    with pytest.raises(MetricsError, match=f"^no metrics returned from {api} metrics API$"):
        asking.send(Outcome(at=TIME, value=LISTS[api]()))


@pytest.mark.parametrize("api", LISTS)
def test_a_failing_api_is_an_error(api: str) -> None:
    asking = query(api)
    next(asking)
    with pytest.raises(MetricsError, match=f"^unable to fetch metrics from {api} metrics API: something is wrong$"):
        asking.send(Outcome(at=TIME, error=ApiError("something is wrong")))


# -- quantities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "milli", "text", "notation"),
    [
        ("memory", 1000, "1", "BinarySI"),
        ("memory", 1_000_000, "1k", "BinarySI"),  # 1000 bytes, in the spelling of what is below 1Ki
        ("cpu", 100, "100m", "DecimalSI"),
        ("cpu", 500, "500m", "DecimalSI"),
        ("cpu", 1, "1m", "DecimalSI"),
        ("example.com/foo", 200, "200m", "DecimalSI"),
        ("", 300, "300m", "DecimalSI"),
    ],
)
def test_quantities_of_a_status(resource: str, milli: int, text: str, notation: str) -> None:
    result = to_status_quantity(milli, resource)
    assert (str(result), result.format, result.milli_value()) == (text, notation, milli)


@pytest.mark.parametrize(("text", "want"), [("0.57", 0.5700000000000001), ("0.1", 0.1), ("10m", 0.01), ("0", 0.0)])
def test_tolerances_are_doubles_of_a_scaled_integer(text: str, want: float) -> None:
    assert Quantity(text).approximate_float() == want
    spec = {"maxReplicas": 1, "behavior": {"scaleUp": {"tolerance": text}, "scaleDown": {"tolerance": text}}}
    hpa = apply_defaults(from_dict({"spec": spec}, HorizontalPodAutoscaler))
    result = get_tolerances(hpa, HPAOptions())
    assert (result.scale_down, result.scale_up) == (want, want)


# -- validation ------------------------------------------------------------------------------------------------------

CPU: Final = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
QPS: Final = {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "5"}}
SOURCES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "Resource": ("resource", CPU),
    "ContainerResource": ("containerResource", {**CPU, "container": "app"}),
    "Pods": ("pods", QPS),
    "Object": ("object", {**QPS, "describedObject": {"kind": "Service", "name": "front", "apiVersion": "v1"}}),
    "External": ("external", QPS),
}
BOUND: Final = "must be greater than or equal to 1"
TO_ZERO: Final = "must specify at least one Object or External metric to support scaling to zero replicas"
POLICIES: Final = [{"type": "Pods", "value": 1, "periodSeconds": 60}]


def metric(type_: str, source: str | None = None) -> dict[str, Any]:
    name, fields = SOURCES[source or type_]
    return {"type": type_, name: fields}


def document(**spec: Any) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 5, "metrics": [metric("Resource")], **spec},
    }


def errors(document_: dict[str, Any], old: dict[str, Any] | None = None, *, to_zero: bool = True) -> list[str]:
    out = admit(document_, old, options=HPAOptions(feature_gates={"HPAScaleToZero": to_zero}))
    assert out.decode_error is None
    assert (out.hpa is None) == bool(out.errors)
    return [str(error) for error in out.errors]


@pytest.mark.parametrize("type_", SOURCES)
def test_every_source_is_taken_under_its_own_type(type_: str) -> None:
    assert errors(document(metrics=[metric(type_)])) == []


@pytest.mark.parametrize("type_", SOURCES)
@pytest.mark.parametrize("source", SOURCES)
def test_the_source_must_be_that_of_the_type(type_: str, source: str) -> None:
    if type_ == source:
        source = "none"
    metric_ = {"type": type_} if source == "none" else metric(type_, source)
    path = f"spec.metrics[0].{SOURCES[type_][0]}"
    want = [f"{path}: Required value: must populate information for the given metric source"]
    assert [each for each in errors(document(metrics=[metric_])) if each.startswith(f"{path}:")] == want


@pytest.mark.parametrize("metrics", [["Object"], ["External"], ["Resource", "External"]])
def test_zero_replicas(metrics: list[str]) -> None:
    zero = document(minReplicas=0, metrics=[metric(each) for each in metrics])
    one = document(minReplicas=1, metrics=[metric(each) for each in metrics])
    refused = [f"spec.minReplicas: Invalid value: 0: {BOUND}"]
    assert errors(zero) == []
    assert errors(zero, to_zero=False) == refused
    assert errors(zero, one, to_zero=False) == refused
    assert errors(zero, zero, to_zero=False) == []  # stored while the gate was on
    assert errors(one, zero, to_zero=False) == []


@pytest.mark.parametrize("type_", ["Resource", "ContainerResource", "Pods"])
def test_zero_replicas_need_a_metric_that_lives_without_pods(type_: str) -> None:
    assert errors(document(minReplicas=0, metrics=[metric(type_)])) == [f"spec.metrics: Forbidden: {TO_ZERO}"]


@pytest.mark.parametrize("direction", ["scaleUp", "scaleDown"])
@pytest.mark.parametrize(
    ("tolerance", "printed"),
    [("0", ""), ("0.1", ""), ("10", ""), ("100m", ""), ("1m", ""), ("-0.001", "-1m"), ("-10m", "-10m")],
)
def test_tolerances(direction: str, tolerance: str, printed: str) -> None:
    path = f"spec.behavior.{direction}.tolerance"
    want = [f'{path}: Invalid value: "{printed}": must be greater than or equal to 0'] if printed else []
    assert errors(document(behavior={direction: {"policies": POLICIES, "tolerance": tolerance}})) == want


@pytest.mark.parametrize("direction", ["scaleUp", "scaleDown"])
def test_rules_need_a_policy(direction: str) -> None:
    want = [f"spec.behavior.{direction}.policies: Required value: must specify at least one Policy"]
    assert errors(document(behavior={direction: {"policies": []}})) == want
