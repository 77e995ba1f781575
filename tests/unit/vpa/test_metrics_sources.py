"""Usage from metrics-server and from external metrics (spec 7.4, 7.9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kscale.effects import ZERO_TIME, Action, ApiError, GetMetric, Progress
from kscale.errors import InputError
from kscale.objects.api.metrics import ExternalMetricValueList, PodMetrics, PodMetricsList
from kscale.objects.decode import from_dict, from_json
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import parse_selector
from kscale.vpa import RecommenderOptions, RecommenderState
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE
from kscale.vpa.recommender.cluster_feeder import convert_pod_metrics, convert_usage_columns, external_metrics_steps
from unit.vpa.builders import vpa
from unit.vpa.worlds import World

SECOND = 10**9
T0 = 1767571200
BOTH = RecommenderOptions(external_metrics_cpu_metric="cpu_used", external_metrics_memory_metric="memory_used")


def metrics(name: str, timestamp: str | None, **usage: Mapping[str, str]) -> PodMetrics:
    containers = [{"name": key, "usage": amounts} for key, amounts in usage.items()]
    body = {"metadata": {"name": name, "namespace": "shop"}, "timestamp": timestamp, "containers": containers}
    return from_dict(body, PodMetrics)


def test_two_samples_of_each_container() -> None:
    usage = convert_pod_metrics(
        [
            metrics("a", "2026-01-05T00:00:00Z", app={"cpu": "100500u", "memory": "1Ki"}, side={"cpu": "1"}),
            metrics("b", "2026-01-05T00:00:01Z", app={}),
            metrics("c", None),
        ]
    )
    assert list(usage.containers) == [("shop", "a", "app"), ("shop", "a", "side"), ("shop", "b", "app")]
    rows = zip(usage.container, usage.time, usage.value, usage.kind, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [
        (0, T0 * SECOND, 101, CPU_SAMPLE),
        (0, T0 * SECOND, 1024, MEMORY_SAMPLE),
        (1, T0 * SECOND, 1000, CPU_SAMPLE),
        (1, T0 * SECOND, 0, MEMORY_SAMPLE),
        (2, (T0 + 1) * SECOND, 0, CPU_SAMPLE),
        (2, (T0 + 1) * SECOND, 0, MEMORY_SAMPLE),
    ]


@pytest.mark.parametrize("memory", ["10P", "9.3E", "-1500m", "-1.5", "-0.3Ki", "0.1", "1536m"])
def test_columns_say_the_same_of_memory_however_large_or_negative(memory: str) -> None:
    usage = [{"name": "app", "usage": {"cpu": "1", "memory": memory}}]
    item = {"metadata": {"name": "a", "namespace": "b"}, "timestamp": "2026-01-05T00:00:00Z", "window": "30s"}
    document = json.dumps({"items": [item | {"containers": usage}]}).encode()
    items = from_json(document, PodMetricsList).items
    expected = convert_pod_metrics(items)
    for result in (PodUsage.of(items), PodUsage.from_json(document)):
        assert (
            convert_usage_columns(result).value.tolist() == expected.value.tolist() == [1000, Quantity(memory).value()]
        )


def test_usage_with_invalid_time_is_named() -> None:
    with pytest.raises(InputError, match="PodMetrics shop/a: timestamp"):
        convert_pod_metrics([metrics("a", "today", app={"cpu": "1"})])
    built = metrics("a", None, app={"cpu": "1"})
    built.timestamp = 5
    with pytest.raises(InputError, match=r"PodMetrics shop/a: timestamp: text is 5, not a string \(got int\)"):
        convert_pod_metrics([built])


def state(*pods: str, options: RecommenderOptions = BOTH) -> RecommenderState:
    result = RecommenderState(options)
    result.add_vpa(vpa(), parse_selector("app=x,tier in (a, b)"))
    for name in pods:
        result.add_pod("default", name, {"app": "x", "tier": "a"}, "Running", 0)
    result.add_pod("default", "other", {"app": "y"}, "Running", 0)
    return result


def item(value: str, at: str = "2026-01-05T00:00:00Z", window: int | None = None, **labels: str) -> dict[str, Any]:
    return {"metricName": "m", "metricLabels": labels, "timestamp": at, "window": window, "value": value}


def ask(
    known: RecommenderState, answers: Mapping[str, Any], namespace: str = ""
) -> tuple[list[GetMetric], list[PodMetrics] | ApiError]:
    """``answers``: by metric; a text is an error."""

    def answer(action: Action) -> Any:
        assert isinstance(action, GetMetric)
        return from_dict({"items": answers.get(action.metric, [])}, ExternalMetricValueList)

    def refuse(action: Action) -> ApiError | None:
        scripted = answers.get(action.metric) if isinstance(action, GetMetric) else None
        return ApiError(scripted) if isinstance(scripted, str) else None

    world = World(refuse, answer)
    result = world.run(external_metrics_steps(known, Progress(0), namespace), 0)
    return world.actions, result if isinstance(result, ApiError) else result.items


def test_each_pod_is_requested_by_name() -> None:
    queries, result = ask(
        state("b", "a"),
        {
            "cpu_used": [item("1", name="app"), item("2", name="side"), item("3", name="app"), item("9", other="app")],
            "memory_used": [item("1Gi", "2026-01-05T00:00:07Z", 30, name="app")],
        },
    )
    assert queries == [
        GetMetric(api="external", namespace="default", metric=metric, metric_selector=f"app=x,pod={pod},tier in (a,b)")
        for pod in ("a", "b")
        for metric in ("cpu_used", "memory_used")
    ]
    assert not isinstance(result, ApiError)
    assert [one.key for one in result] == ["default/a", "default/b"]
    (one, _) = result
    assert (one.timestamp, one.window) == ("2026-01-05T00:00:07Z", "30s")
    assert [(c.name, {k: str(v) for k, v in c.usage.items()}) for c in one.containers or ()] == [
        ("app", {"cpu": "3", "memory": "1Gi"}),
        ("side", {"cpu": "2"}),
    ]
    assert len(convert_pod_metrics(result)) == 8


def test_only_configured_metrics_are_requested() -> None:
    queries, result = ask(state("a", options=RecommenderOptions(external_metrics_memory_metric="memory_used")), {})
    assert not isinstance(result, ApiError)
    assert [query.metric for query in queries] == ["memory_used"]
    assert [(one.name, one.timestamp, one.containers) for one in result] == [("a", None, [])]
    assert len(convert_pod_metrics(result)) == 0


def test_vpas_without_pods_and_other_namespaces_are_passed_over() -> None:
    assert ask(state(), {}) == ([], [])
    assert ask(state("a"), {}, namespace="elsewhere") == ([], [])
    assert len(ask(state("a"), {}, namespace="default")[0]) == 2


def test_any_error_ends_it_all() -> None:
    queries, result = ask(state("a", "b"), {"cpu_used": [item("1", name="app")], "memory_used": "no such metric"})
    assert len(queries) == 2
    assert result == ApiError("no such metric")


def test_a_name_that_is_no_label_value_is_an_error() -> None:
    queries, result = ask(state("p" * 64), {})
    assert queries == []
    assert isinstance(result, ApiError)
    assert result.message.startswith("values[0][pod]: Invalid value")


def test_columns_equal_objects() -> None:
    pods = [
        metrics("a", "2027-01-15T08:00:00Z", c={"cpu": "250m", "memory": "100Mi"}, side={"memory": "1500m"}),
        metrics("none", None),
        metrics("b", "2027-01-15T08:00:30.5Z", c={"cpu": "1n", "nvidia.com/gpu": "1"}),
    ]
    from_columns, expected = convert_usage_columns(PodUsage.of(pods)), convert_pod_metrics(pods)
    assert from_columns.containers == expected.containers
    for name in ("container", "time", "value", "kind"):
        assert getattr(from_columns, name).tolist() == getattr(expected, name).tolist()
        assert getattr(from_columns, name).dtype == getattr(expected, name).dtype


def test_a_time_that_is_missing_is_the_zero_time() -> None:
    pods = [metrics("a", None, c={"cpu": "1"})]
    for result in (convert_usage_columns(PodUsage.of(pods)), convert_pod_metrics(pods)):
        assert result.time.tolist() == [ZERO_TIME, ZERO_TIME]
