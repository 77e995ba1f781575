"""Usage from metrics-server and from external metrics (spec 7.4, 7.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kscale.errors import InputError
from kscale.objects.decode import from_dict
from kscale.objects.metrics import ExternalMetricValueList, PodMetrics
from kscale.objects.selector_text import parse_selector
from kscale.vpa import ClusterState
from kscale.vpa.metrics_sources import (
    ExternalMetrics,
    ExternalMetricsResult,
    ListExternalMetric,
    external_metrics,
    usage_of_pods,
)
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE
from unit.vpa.builders import vpa

SECOND = 10**9
T0 = 1767571200
BOTH = ExternalMetrics(external_metrics_cpu_metric="cpu_used", external_metrics_memory_metric="memory_used")


def metrics(name: str, timestamp: str | None, **usage: Mapping[str, str]) -> PodMetrics:
    containers = [{"name": key, "usage": amounts} for key, amounts in usage.items()]
    body = {"metadata": {"name": name, "namespace": "shop"}, "timestamp": timestamp, "containers": containers}
    return from_dict(body, PodMetrics)


def test_two_samples_of_each_container() -> None:
    usage = usage_of_pods(
        [
            metrics("a", "2026-01-05T00:00:00Z", app={"cpu": "100500u", "memory": "1Ki"}, side={"cpu": "1"}),
            metrics("b", "2026-01-05T00:00:01Z", app={}),
            metrics("c", None),
        ]
    )
    assert list(usage.containers) == [("shop", "a", "app"), ("shop", "a", "side"), ("shop", "b", "app")]
    rows = zip(usage.container, usage.time, usage.value, usage.kind, strict=True)  # type: ignore[arg-type]  # a column
    assert [tuple(map(int, row)) for row in rows] == [
        (0, T0 * SECOND, 101, CPU_SAMPLE),
        (0, T0 * SECOND, 1024, MEMORY_SAMPLE),
        (1, T0 * SECOND, 1000, CPU_SAMPLE),
        (1, T0 * SECOND, 0, MEMORY_SAMPLE),
        (2, (T0 + 1) * SECOND, 0, CPU_SAMPLE),
        (2, (T0 + 1) * SECOND, 0, MEMORY_SAMPLE),
    ]


@pytest.mark.parametrize("timestamp", [None, "today"])
def test_usage_without_a_time_is_named(timestamp: str | None) -> None:
    with pytest.raises(InputError, match="PodMetrics shop/a: timestamp"):
        usage_of_pods([metrics("a", timestamp, app={"cpu": "1"})])


def state(*pods: str) -> ClusterState:
    found = ClusterState()
    found.add_vpa(vpa(), parse_selector("app=x,tier in (a, b)"))
    for name in pods:
        found.add_pod("default", name, {"app": "x", "tier": "a"}, "Running", 0)
    found.add_pod("default", "other", {"app": "y"}, "Running", 0)
    return found


def item(value: str, at: str = "2026-01-05T00:00:00Z", window: int | None = None, **labels: str) -> dict[str, Any]:
    return {"metricName": "m", "metricLabels": labels, "timestamp": at, "window": window, "value": value}


def ask(
    known: ClusterState, answers: Mapping[str, Any], options: ExternalMetrics = BOTH, namespace: str = ""
) -> tuple[list[ListExternalMetric], ExternalMetricsResult]:
    """``answers``: by metric; a text is an error."""
    asked = []
    steps = external_metrics(known, options, namespace)
    try:
        query = next(steps)
        while True:
            asked.append(query)
            answer = answers.get(query.metric, [])
            query = steps.send(
                answer if isinstance(answer, str) else from_dict({"items": answer}, ExternalMetricValueList)
            )
    except StopIteration as stop:
        return asked, stop.value


def test_each_pod_is_asked_for_by_name() -> None:
    asked, found = ask(
        state("b", "a"),
        {
            "cpu_used": [item("1", name="app"), item("2", name="side"), item("3", name="app"), item("9", other="app")],
            "memory_used": [item("1Gi", "2026-01-05T00:00:07Z", 30, name="app")],
        },
    )
    assert asked == [
        ListExternalMetric("default", metric, f"app=x,pod={pod},tier in (a,b)")
        for pod in ("a", "b")
        for metric in ("cpu_used", "memory_used")
    ]
    assert found.error == ""
    assert [one.key for one in found.items] == ["default/a", "default/b"]
    (one, _) = found.items
    assert (one.timestamp, one.window) == ("2026-01-05T00:00:07Z", "30s")
    assert [(c.name, {k: str(v) for k, v in c.usage.items()}) for c in one.containers or ()] == [
        ("app", {"cpu": "3", "memory": "1Gi"}),
        ("side", {"cpu": "2"}),
    ]
    assert len(usage_of_pods(found.items)) == 8


def test_only_what_is_configured_is_asked_for() -> None:
    asked, found = ask(state("a"), {}, ExternalMetrics(external_metrics_memory_metric="memory_used"))
    assert [query.metric for query in asked] == ["memory_used"]
    assert [(one.name, one.timestamp, one.containers) for one in found.items] == [("a", None, [])]
    assert len(usage_of_pods(found.items)) == 0


def test_vpas_without_pods_and_other_namespaces_are_passed_over() -> None:
    assert ask(state(), {}) == ([], ExternalMetricsResult())
    assert ask(state("a"), {}, namespace="elsewhere") == ([], ExternalMetricsResult())
    assert len(ask(state("a"), {}, namespace="default")[0]) == 2


def test_any_error_ends_it_all() -> None:
    asked, found = ask(state("a", "b"), {"cpu_used": [item("1", name="app")], "memory_used": "no such metric"})
    assert len(asked) == 2
    assert found == ExternalMetricsResult(error="no such metric")


def test_a_name_that_is_no_label_value_is_an_error() -> None:
    asked, found = ask(state("p" * 64), {})
    assert asked == []
    assert found.error.startswith("values[0][pod]: Invalid value")
