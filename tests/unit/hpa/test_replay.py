"""The replay loop decides as the step machine does, over the plant it states."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kscale.effects import SECOND, Action, GetMetric, GetScale, List, from_text, run_dry, to_text
from kscale.errors import InputError
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.controller.metric_proposals import MetricProposal
from kscale.hpa.controller.reconcile import ReconcileResult, reconcile
from kscale.hpa.controller.state import HPAState
from kscale.hpa.options import PROFILES, HPAOptions
from kscale.hpa.replay import Load, Plant, build_load, build_recorded_replicas, replay, replay_report
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.series import Series, SeriesKey, bin_events

START = from_text("2026-03-01T00:00:00Z")


def resource(name: str, **target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def external(name: str, **target: Any) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def object_(**target: Any) -> dict[str, Any]:
    service = {"kind": "Service", "name": "front", "apiVersion": "v1"}
    return {
        "type": "Object",
        "object": {"metric": {"name": target.pop("metric")}, "describedObject": service, "target": target},
    }


METRICS: dict[str, dict[str, Any]] = {  # by what their series are called
    "cpu": resource("cpu", type="Utilization", averageUtilization=70),
    "memory": resource("memory", type="AverageValue", averageValue="800m"),
    "c/cpu": {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 130},
        },
    },
    "qps": {
        "type": "Pods",
        "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "700m"}},
    },
    "lag": external("lag", type="AverageValue", averageValue="900m"),
    "depth": external("depth", type="Value", value="4"),
    "hits": object_(metric="hits", type="Value", value="3"),
    "users": object_(metric="users", type="AverageValue", averageValue="1100m"),
}
behaviors = st.one_of(
    st.none(),
    st.just({}),
    st.just({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]}}),
    st.just({"scaleDown": {"stabilizationWindowSeconds": 45}, "scaleUp": {"stabilizationWindowSeconds": 30}}),
)


def autoscaler(
    metric: str | list[str], behavior: dict[str, Any] | None, minimum: int = 1, name: str = "web"
) -> HorizontalPodAutoscaler:
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": minimum,
        "maxReplicas": 12,
        "metrics": [METRICS[each] for each in ([metric] if isinstance(metric, str) else metric)],
    }
    if behavior is not None:
        spec["behavior"] = behavior
    document = {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))


@dataclass
class SimulatedPod:
    at: int
    ready: int
    deleted_at: int | None = None


@dataclass
class Tick:
    """The plant at one sync: answers a reconcile."""

    pods: list[SimulatedPod]
    deleted: list[SimulatedPod]
    now: int
    visible: int
    amounts: dict[str, float]  # by metric
    window: float
    named: bool  # usage is asked of a container

    def __call__(self, action: Action) -> Any:
        size = len(self.pods)
        if isinstance(action, GetScale):
            return Scale(spec=ScaleSpec(replicas=size), status=ScaleStatus(replicas=size, selector="app=web"))
        if isinstance(action, List):
            return [self.listed(i, pod) for i, pod in enumerate(self.pods)]
        return self.metrics(action) if isinstance(action, GetMetric) else None

    def listed(self, i: int, pod: SimulatedPod) -> Pod:
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
        stamp = at(self.visible)
        if query.api == "external":
            value = {"metricName": query.metric, "value": f"{milli(self.amounts[query.metric])}m"}
            return from_dict({"items": [value]}, ExternalMetricValueList)
        if query.name:
            amount = f"{milli(self.amounts[query.metric])}m"
            return from_dict({"timestamp": stamp, "value": amount}, MetricValue)
        known = [i for i, pod in enumerate(self.pods) if pod.ready <= self.visible]
        had_theirs = [
            pod for pod in self.deleted if pod.deleted_at is not None and pod.ready <= self.visible < pod.deleted_at
        ]

        def each(name: str) -> str:
            return f"{milli(self.amounts.get(name, 0.0) / (len(known) + len(had_theirs)))}m"

        if query.api == "custom":
            head = {"metric": {"name": query.metric}, "timestamp": stamp, "windowSeconds": round(self.window)}
            items = [
                {**head, "describedObject": {"kind": "Pod", "name": f"web-{i}"}, "value": each(query.metric)}
                for i in known
            ]
            return from_dict({"items": items}, MetricValueList)
        cpu = "c/cpu" if self.named else "cpu"  # of the container alone, or of the pod
        usage = {"cpu": each(cpu), "memory": each("memory")} if known else {}
        head = {"timestamp": stamp, "window": f"{self.window}s", "containers": [{"name": "c", "usage": usage}]}
        items = [{**head, "metadata": {"name": f"web-{i}", "namespace": "shop"}} for i in known]
        return from_dict({"items": items}, PodMetricsList)


@dataclass
class Steps:
    """At every sync: the size, the ready pods, what the HPA asks for, and all about it."""

    sizes: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    desired: list[int] = field(default_factory=list)
    records: list[ReconcileResult] = field(default_factory=list)


def step_by_step(
    hpa: HorizontalPodAutoscaler,
    times: list[int],
    loads: dict[str, list[float]],
    plant: Plant,
    options: HPAOptions,
    recorded: list[int] | None = None,
) -> Steps:
    """The same plant around the step machine."""
    startup, lag = round(plant.startup * SECOND), round(plant.lag * SECOND)
    long_ago = START - startup - options.cpu_initialization_ns - options.initial_readiness_ns - lag - SECOND
    assert hpa.spec.min_replicas is not None
    start = max(1, hpa.spec.min_replicas) if plant.start is None else plant.start
    pods = [SimulatedPod(long_ago, long_ago + startup) for _ in range(start)]
    deleted: list[SimulatedPod] = []
    state, steps, now = HPAState(), Steps(), times[0]
    while now <= times[-1]:
        if recorded is not None:
            removed = resize(pods, recorded[len(steps.sizes)], now if steps.sizes else long_ago, startup)
            deleted += removed if steps.sizes else []  # at first nobody goes: so many there are
        steps.sizes.append(len(pods))
        steps.ready.append(sum(pod.ready <= now for pod in pods))
        visible_until = now - lag
        last = max((i for i, time in enumerate(times) if time <= visible_until), default=0)
        amounts = {name: values[last] for name, values in loads.items()}
        tick = Tick(pods, deleted, now, visible_until, amounts, plant.window, "c/cpu" in loads)
        out = run_dry(reconcile(hpa, state, now=now, options=options), now=now, respond=tick).value
        state = out.state
        hpa = HorizontalPodAutoscaler(metadata=hpa.metadata, spec=hpa.spec, status=out.status)
        desired = len(pods) if out.desired_replicas is None else out.desired_replicas
        steps.desired.append(desired)
        steps.records.append(out)
        if recorded is None:
            deleted += resize(pods, desired, now, startup)
        now += options.sync_period_ns
    return steps


def decisive(record: ReconcileResult) -> int:
    """The metric that decided: the largest, but while that is 0 every later one goes before it."""
    best, value = -1, 0
    for i, each in enumerate(record.metrics if record.proposal is not None else ()):
        if isinstance(each, MetricProposal) and (value == 0 or each.replicas.replicas > value):
            best, value = i, each.replicas.replicas
    return best


def milli(amount: float) -> int:
    """Away from zero, as quantities round."""
    return math.floor(amount * 1000) if amount < 0 else math.ceil(amount * 1000)


def resize(pods: list[SimulatedPod], desired: int, now: int, startup: int) -> list[SimulatedPod]:
    """The newest go first; those that go."""
    removed = [replace(pod, deleted_at=now) for pod in pods[desired:]]
    del pods[desired:]
    pods += [SimulatedPod(now, now + startup) for _ in range(desired - len(pods))]
    return removed


def at(time: int) -> str:
    text = to_text(time, fraction=True)
    assert text is not None
    return text


@st.composite
def chosen(draw: st.DrawFn) -> list[str]:
    """One to three metrics; usage of a container or of whole pods, which are the same pods' metrics."""
    names = draw(st.lists(st.sampled_from(sorted(METRICS)), min_size=1, max_size=3, unique=True))
    return [name for name in names if name != "cpu" or "c/cpu" not in names]


amounts = st.one_of(st.floats(0, 9, allow_nan=False), st.sampled_from([0.0, -3.0, 1e9, 4e15, -4e14]))


@settings(max_examples=examples(4 / 3), deadline=None)
@given(
    metrics=chosen(),
    behavior=behaviors,
    minimum=st.integers(0, 3),
    load=st.lists(st.lists(amounts, min_size=3, max_size=3), min_size=2, max_size=25),
    startup=st.sampled_from([0.0, 10.0, 40.0]),
    lag=st.sampled_from([0.0, 15.0, 31.0]),
    start=st.one_of(st.none(), st.integers(0, 14)),
    recorded=st.one_of(st.none(), st.lists(st.integers(0, 14), min_size=40, max_size=40)),
    gates=st.fixed_dictionaries({"HPAScaleToZero": st.booleans(), "HPAConfigurableTolerance": st.booleans()}),
    profile=st.sampled_from(PROFILES),
)
def test_the_loop_is_the_step_machine(
    metrics: list[str],
    behavior: dict[str, Any] | None,
    minimum: int,
    load: list[list[float]],
    startup: float,
    lag: float,
    start: int | None,
    recorded: list[int] | None,
    gates: dict[str, bool],
    profile: str,
) -> None:
    legacy = profile != "current" and "c/cpu" not in metrics
    hpa = autoscaler(metrics, behavior, minimum)
    times = [START + i * 20 * SECOND for i in range(len(load))]
    loads = {name: [row[i] for row in load] for i, name in enumerate(metrics)}
    for name in loads.keys() & {"cpu", "c/cpu", "memory"}:
        loads[name] = [abs(value) for value in loads[name]]
    plant = Plant(startup=startup, lag=lag, request=Quantity("500m"), start=start)
    options = HPAOptions(
        horizontal_pod_autoscaler_cpu_initialization_period=timedelta(seconds=60),
        horizontal_pod_autoscaler_downscale_stabilization=timedelta(seconds=60),
        feature_gates={} if legacy else gates,
        profile=profile if legacy else "current",
    )
    given_sizes = None
    if recorded is not None:
        every = START + np.arange(len(recorded), dtype=np.int64) * 15 * SECOND
        given_sizes = Load(every, np.array(recorded, np.float64))
    result = replay(
        hpa,
        {name: Load(np.array(times), np.array(values)) for name, values in loads.items()},
        plant,
        options=options,
        recorded=given_sizes,
    )
    steps = step_by_step(hpa, times, loads, plant, options, recorded)
    assert result.replicas.tolist() == steps.sizes
    assert result.ready.tolist() == steps.ready
    assert result.desired.tolist() == steps.desired
    assert result.decided_by.tolist() == [decisive(each) for each in steps.records]
    assert result.metrics == tuple(metrics)
    for tick, record in enumerate(steps.records):
        if record.proposal is not None:
            assert result.proposal[tick] == record.proposal
        for i, each in enumerate(record.metrics):
            if isinstance(each, MetricProposal):
                assert result.usage[i, tick] == each.replicas.usage


def test_ramp_cost_is_exact() -> None:
    times = START + np.arange(0, 3600, 15, dtype=np.int64) * SECOND
    load = Load(times, np.concatenate([np.full(120, 1.0), np.full(120, 3.5)]))
    slow = autoscaler("cpu", {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}})
    fast = autoscaler("cpu", None)
    plant = Plant(request=Quantity("500m"), start=3)
    report, runs = replay_report([slow, fast], load, plant)
    first, second = report.summaries
    assert first.under_provisioned_seconds > second.under_provisioned_seconds > 0
    assert first.pod_hours < second.pod_hours
    assert runs[1].replicas[-1] == 10
    assert list(report.replicas) == ["shop/web", "shop/web (2)"]
    again, _ = replay_report([fast], load, plant, recorded=Load(times, runs[1].replicas.astype(np.float64)))
    assert again.summaries[0].agreement == 1.0


def test_every_metric_that_has_a_series_is_read() -> None:
    times = START + np.arange(0, 3600, 15, dtype=np.int64) * SECOND
    loads = {
        "cpu": Load(times, np.full(240, 1.0)),  # 3 pods of 500m at 70 %
        "lag": Load(times[40:], np.concatenate([np.full(100, 1.0), np.full(100, 6.3)])),  # 7 pods at 900m
    }
    both = autoscaler(["cpu", "lag"], None, name="both")
    one, three = autoscaler("cpu", None, name="one"), autoscaler(["lag", "qps", "cpu"], None, name="three")
    report, runs = replay_report([both, one, three], loads, Plant(request={"cpu": Quantity("500m")}))
    assert [run.replicas[-1] for run in runs] == [7, 3, 7]
    assert [run.metrics for run in runs] == [("cpu", "lag"), ("cpu",), ("lag", "cpu")]
    assert (report.begin, report.syncs) == (to_text(int(times[40])), 200)  # while both are known
    decided = report.summaries[0].decided_by
    assert sum(decided.values()) == 200
    assert decided["cpu"] > 80 < decided["lag"]
    assert runs[0].load.shape == runs[0].usage.shape == runs[0].capacity.shape == (2, 200)
    assert runs[0].capacity[:, -1].tolist() == pytest.approx([7 * 0.35, 7 * 0.9])
    assert report.unmodelled == ["shop/three: qps (Pods) has no series and was left out"]
    alone, _ = replay_report([both], loads["cpu"], Plant(request=Quantity("500m")))
    assert alone.summaries[0].decided_by == {"cpu": 240}
    assert alone.unmodelled == ["shop/both: lag (External) has no series and was left out"]


NOW_AND_THEN = np.array([START, START + SECOND])


@pytest.mark.parametrize(
    ("metric", "plant", "message"),
    [
        (METRICS["cpu"], Plant(), r"needs the request of a pod \(cpu\)"),
        (METRICS["cpu"], Plant(request={"memory": Quantity("1Gi")}), r"needs the request of a pod \(cpu\)"),
        ({"type": "Phase"}, Plant(), "a metric that can be replayed is needed"),
        (external("x", type="Value"), Plant(), "a target is needed"),
        (object_(metric="x", type="Value", averageValue="1"), Plant(), "type and field agree"),
    ],
)
def test_unreplayable_metrics_are_named(
    monkeypatch: pytest.MonkeyPatch, metric: dict[str, Any], plant: Plant, message: str
) -> None:
    monkeypatch.setitem(METRICS, "bad", metric)
    with pytest.raises(InputError, match=message):
        replay(autoscaler("bad", None), Load(NOW_AND_THEN, np.ones(2)), plant)


@pytest.mark.parametrize(
    ("time", "value", "message"),
    [
        ([], [], "the series is empty"),
        ([2, 1], [1.0, 1.0], "times must ascend"),
        ([1, 1], [1.0, 1.0], "times must ascend"),
        ([1, 2], [1.0, float("nan")], "a value is not a number"),
        ([1, 2], [1.0, float("inf")], "a value is not a number"),
        ([1, 2], [1.0], "2 times, but 1 values"),
    ],
)
def test_a_load_is_checked(time: list[int], value: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Load(np.array(time, np.int64), np.array(value))


def test_loads_must_fit_the_hpas() -> None:
    load, later = Load(NOW_AND_THEN, np.ones(2)), Load(NOW_AND_THEN + 10 * SECOND, np.ones(2))
    hpa, plant = autoscaler(["qps", "lag"], None), Plant()
    with pytest.raises(InputError, match=r"no HPA reads the series of 'cpu' \(metrics: qps, lag\)"):
        replay_report([hpa], {"qps": load, "cpu": load}, plant)
    with pytest.raises(InputError, match=r"no HPA reads the series of the first metric"):
        replay_report([hpa], {"qps": load, "": Load(NOW_AND_THEN, np.ones(2))}, plant)
    with pytest.raises(InputError, match=r"shop/web: none of its metrics has a series \(metrics: qps, lag\)"):
        replay(hpa, {"cpu": load}, plant)
    with pytest.raises(InputError, match="the series do not overlap"):
        replay_report([hpa], {"qps": load, "lag": later}, plant)
    with pytest.raises(InputError, match="the sync period must be greater than zero"):
        replay(hpa, load, plant, options=HPAOptions(horizontal_pod_autoscaler_sync_period=timedelta()))
    with pytest.raises(InputError, match="no HorizontalPodAutoscaler to replay"):
        replay_report([], load, plant)


def pods_of(offsets: list[int], syncs: int = 20, value: float = 2.0, step: int = 15) -> Series:
    """A series a pod, each beginning so many seconds later than the first."""
    n = len(offsets)
    number = np.repeat(np.arange(n, dtype=np.int32), syncs)
    time = START + (np.tile(np.arange(syncs) * step, n) + np.repeat(offsets, syncs)).astype(np.int64) * SECOND
    keys = [SeriesKey("shop", f"web-{i}", "c") for i in range(n)]
    return Series.of(keys, number, time, np.full(n * syncs, value))


@pytest.mark.parametrize("offsets", [[0, 0, 0], [0, 1, 2], [0, 7, 14]])
def test_pods_that_are_measured_at_other_times_add_up(offsets: list[int]) -> None:
    series = pods_of(offsets)
    assert set(build_load(series).value.tolist()) == {6.0}
    recorded = Load(np.array([START]), np.array([5.0]))
    assert set(build_load(series, "per-pod", recorded).value.tolist()) == {10.0}
    assert set(build_recorded_replicas(series).value.tolist()) == {6.0}


def test_series_of_a_deleted_pod_is_not_extended() -> None:
    series = pods_of([0, 1])
    remaining = ~((series.series == 1) & (series.time > START + 100 * SECOND))
    shortened = Series.of(series.keys, series.series[remaining], series.time[remaining], series.value[remaining])
    load = build_load(shortened)
    assert load.get_values(np.array([START + 90 * SECOND, START + 135 * SECOND])).tolist() == [4.0, 2.0]


def test_numbers_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match=r"the value 1e\+300 is too large"):
        Load(np.array([START]), np.array([1e300]))
    times = np.array([START, START + 60 * SECOND])
    with pytest.raises(InputError, match="the usage of cpu is negative"):
        replay(autoscaler("cpu", None), Load(times, np.array([1.0, -1.0])), Plant(request=Quantity("1")))
    with pytest.raises(InputError, match="bins must be wider"):
        bin_events(times, 1)


def test_an_hpa_that_may_scale_to_zero_starts_with_one() -> None:
    times = START + np.arange(20, dtype=np.int64) * 15 * SECOND
    report, _ = replay_report([autoscaler("lag", None, 0)], Load(times, np.full(20, 9.0)), Plant())
    assert (report.summaries[0].start, report.summaries[0].max_replicas) == (1, 10)
    stopped, _ = replay_report([autoscaler("lag", None, 0)], Load(times, np.full(20, 9.0)), Plant(start=0))
    assert (stopped.summaries[0].start, stopped.summaries[0].max_replicas) == (0, 0)


def test_a_recording_must_overlap() -> None:
    times = START + np.arange(20, dtype=np.int64) * 15 * SECOND
    load = Load(times, np.full(20, 9.0))
    for late in (times - 3600 * SECOND, times + 3600 * SECOND):
        with pytest.raises(InputError, match="do not overlap the load"):
            replay_report([autoscaler("lag", None)], load, Plant(), recorded=Load(late, np.full(20, 3.0)))


def test_metrics_with_the_same_name_are_distinguished() -> None:
    hpa = autoscaler(["depth", "depth"], None)
    times = START + np.arange(20, dtype=np.int64) * 15 * SECOND
    report, _ = replay_report([hpa], {"depth": Load(times, np.full(20, 9.0))}, Plant())
    assert list(report.summaries[0].decided_by) == ["depth (metrics[0])", "depth (metrics[1])"]
    assert sum(report.summaries[0].decided_by.values()) == 20


def test_the_legacy_profile_does_not_know_metrics_of_one_container() -> None:
    hpa = autoscaler(["c/cpu"], None, 1)
    load = Load(np.array([START, START + 60 * SECOND]), np.array([1.0, 1.0]))
    with pytest.raises(InputError, match=r"spec\.metrics\[0\]\.type: a metric that can be replayed is needed"):
        replay(hpa, {"c/cpu": load}, Plant(request=Quantity("1")), options=HPAOptions(profile="legacy"))
