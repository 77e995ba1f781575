"""The replay loop decides as the step machine does, over the plant it states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kscale.errors import InputError
from kscale.hpa.actions import Action, GetMetric, GetScale, ListPods
from kscale.hpa.defaults import apply_defaults
from kscale.hpa.moments import SECOND, from_text, to_text
from kscale.hpa.options import HPAOptions
from kscale.hpa.reconcile import reconcile, run
from kscale.hpa.replay import Plant, replay, replay_report
from kscale.hpa.state import HPAState
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.metrics import ExternalMetricValueList, MetricValueList, PodMetricsList
from kscale.objects.quantity import Quantity

START = from_text("2026-03-01T00:00:00Z")


def resource(name: str, **target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def external(**target: Any) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": "lag"}, "target": target}}


METRICS: dict[str, dict[str, Any]] = {
    "utilization": resource("cpu", type="Utilization", averageUtilization=70),
    "memory": resource("memory", type="AverageValue", averageValue="800m"),
    "pods": {
        "type": "Pods",
        "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "700m"}},
    },
    "external": external(type="AverageValue", averageValue="900m"),
    "value": external(type="Value", value="4"),
}
behaviors = st.one_of(
    st.none(),
    st.just({}),
    st.just({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]}}),
    st.just({"scaleDown": {"stabilizationWindowSeconds": 45}, "scaleUp": {"stabilizationWindowSeconds": 30}}),
)


def autoscaler(metric: dict[str, Any], behavior: dict[str, Any] | None, minimum: int = 1) -> HorizontalPodAutoscaler:
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": minimum,
        "maxReplicas": 12,
        "metrics": [metric],
    }
    if behavior is not None:
        spec["behavior"] = behavior
    document = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))


@dataclass
class Made:
    at: int
    ready: int


@dataclass
class Tick:
    """The plant at one sync: answers a reconcile."""

    pods: list[Made]
    now: int
    seen: int
    amount: float
    window: float

    def __call__(self, action: Action) -> Any:
        size = len(self.pods)
        if isinstance(action, GetScale):
            return Scale(spec=ScaleSpec(replicas=size), status=ScaleStatus(replicas=size, selector="app=web"))
        if isinstance(action, ListPods):
            return [self.listed(i, pod) for i, pod in enumerate(self.pods)]
        return self.metrics(action) if isinstance(action, GetMetric) else None

    def listed(self, i: int, pod: Made) -> Pod:
        ready = pod.ready <= self.now
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": at(pod.ready)}
        phase = "Running" if ready else "Pending"
        return from_dict(
            {
                "metadata": {"name": f"web-{i}", "namespace": "shop", "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
                "status": {"phase": phase, "startTime": at(pod.at), "conditions": [condition]},
            },
            Pod,
        )

    def metrics(self, query: GetMetric) -> Any:
        stamp = at(self.seen)
        if query.api == "external":
            value = {"metricName": query.metric, "value": f"{math.ceil(self.amount * 1000)}m"}
            return from_dict({"items": [value]}, ExternalMetricValueList)
        known = [i for i, pod in enumerate(self.pods) if pod.ready <= self.seen]
        each = f"{math.ceil(self.amount / len(known) * 1000)}m" if known else "0"
        if query.api == "custom":
            head = {"metric": {"name": query.metric}, "timestamp": stamp, "windowSeconds": round(self.window)}
            items = [{**head, "describedObject": {"kind": "Pod", "name": f"web-{i}"}, "value": each} for i in known]
            return from_dict({"items": items}, MetricValueList)
        usage = [{"name": "c", "usage": {"cpu": each, "memory": each}}]
        head = {"timestamp": stamp, "window": f"{self.window}s", "containers": usage}
        items = [{**head, "metadata": {"name": f"web-{i}", "namespace": "shop"}} for i in known]
        return from_dict({"items": items}, PodMetricsList)


def step_by_step(
    hpa: HorizontalPodAutoscaler, times: list[int], load: list[float], plant: Plant, options: HPAOptions
) -> list[int]:
    """The same plant around the step machine: the size at every sync."""
    startup, lag = round(plant.startup * SECOND), round(plant.lag * SECOND)
    long_ago = START - startup - options.cpu_initialization_ns - options.initial_readiness_ns - lag - SECOND
    start = hpa.spec.min_replicas if plant.start is None else plant.start
    assert start is not None
    pods = [Made(long_ago, long_ago + startup) for _ in range(start)]
    state, sizes, now = HPAState(), [], times[0]
    while now <= times[-1]:
        sizes.append(len(pods))
        seen = now - lag
        amount = next((value for time, value in reversed(list(zip(times, load, strict=True))) if time <= seen), load[0])
        out = run(reconcile(hpa, state, now=now, options=options), Tick(pods, now, seen, amount, plant.window))
        state = out.state
        hpa = HorizontalPodAutoscaler(metadata=hpa.metadata, spec=hpa.spec, status=out.status)
        wanted = len(pods) if out.desired_replicas is None else out.desired_replicas
        del pods[wanted:]
        pods += [Made(now, now + startup) for _ in range(wanted - len(pods))]
        now += round(options.horizontal_pod_autoscaler_sync_period * SECOND)
    return sizes


def at(time: int) -> str:
    text = to_text(time, fraction=True)
    assert text is not None
    return text


@settings(max_examples=40, deadline=None)
@given(
    metric=st.sampled_from(sorted(METRICS)),
    behavior=behaviors,
    minimum=st.integers(0, 3),
    load=st.lists(st.floats(0, 9, allow_nan=False), min_size=2, max_size=25),
    startup=st.sampled_from([0.0, 10.0, 40.0]),
    lag=st.sampled_from([0.0, 15.0, 31.0]),
    start=st.one_of(st.none(), st.integers(0, 14)),
)
def test_the_loop_is_the_step_machine(
    metric: str,
    behavior: dict[str, Any] | None,
    minimum: int,
    load: list[float],
    startup: float,
    lag: float,
    start: int | None,
) -> None:
    hpa = autoscaler(METRICS[metric], behavior, minimum)
    times = [START + i * 20 * SECOND for i in range(len(load))]
    plant = Plant(startup=startup, lag=lag, request=Quantity("500m"), start=start)
    options = HPAOptions(
        horizontal_pod_autoscaler_cpu_initialization_period=60,
        horizontal_pod_autoscaler_downscale_stabilization=60,
    )
    found = replay(hpa, np.array(times), np.array(load), plant, options=options)
    assert found.replicas.tolist() == step_by_step(hpa, times, load, plant, options)


def test_a_ramp_costs_what_it_costs() -> None:
    times = START + np.arange(0, 3600, 15, dtype=np.int64) * SECOND
    load = np.concatenate([np.full(120, 1.0), np.full(120, 3.5)])
    slow = autoscaler(
        METRICS["utilization"], {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    )
    fast = autoscaler(METRICS["utilization"], None)
    plant = Plant(request=Quantity("500m"), start=3)
    report, runs = replay_report([slow, fast], times, load, plant)
    first, second = report.summaries
    assert first.under_provisioned_seconds > second.under_provisioned_seconds > 0
    assert first.pod_hours < second.pod_hours
    assert runs[1].replicas[-1] == 10
    assert list(report.replicas) == ["shop/web", "shop/web (2)"]
    again, _ = replay_report([fast], times, load, plant, recorded=runs[1].replicas.astype(np.float64))
    assert again.summaries[0].agreement == 1.0


@pytest.mark.parametrize(
    ("metric", "plant", "message"),
    [
        (METRICS["utilization"], Plant(), "needs the request of a pod"),
        ({"type": "Phase"}, Plant(), "a metric that can be replayed is needed"),
        ({"type": "External", "external": {"metric": {"name": "x"}, "target": {"type": "Value"}}}, Plant(), "a target"),
    ],
)
def test_what_cannot_be_replayed_is_named(metric: dict[str, Any], plant: Plant, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay(autoscaler(metric, None), np.array([START, START + SECOND]), np.ones(2), plant)
    with pytest.raises(InputError, match="the series is empty"):
        replay(autoscaler(METRICS["pods"], None), np.empty(0, np.int64), np.empty(0), plant)
