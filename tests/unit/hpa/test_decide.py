"""A batch decides as the step machine does, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kscale.effects import SECOND, Action, ApiError, DryRun, GetMetric, GetScale, List, as_if_done, from_text, to_text
from kscale.hpa.conditions import find
from kscale.hpa.decide import BRANCHES, REASONS, Decisions, decide, decide_columns
from kscale.hpa.defaults import apply_defaults
from kscale.hpa.encode import Observed, encode
from kscale.hpa.memory import CONDITION_REASONS, CONDITION_TYPES
from kscale.hpa.metric_sources import MetricError, MetricProposal
from kscale.hpa.options import HPAOptions
from kscale.hpa.queries import MetricLists
from kscale.hpa.reconcile import reconcile
from kscale.hpa.records import Reconciliation
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import ControllerState, HPAState, Recommendation, ScaleEvent
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.metrics import ExternalMetricValue, MetricValue, PodMetrics
from kscale.objects.rest_mapping import RESTMapper
from kscale.objects.selector_text import parse_selector

NOW = from_text("2026-03-01T12:00:00Z")
NAMES = ("a", "b", "c")


def ago(seconds: int) -> str:
    text = to_text(NOW - seconds * SECOND)
    assert text is not None
    return text


small = st.integers(0, 12)
sizes = st.one_of(small, small, small, st.sampled_from([2**31 - 1, 2**30]))
quantities = st.one_of(
    st.integers(-50, 4000).map(lambda milli: f"{milli}m"), st.sampled_from(["0", "9E", "-9E", "9223372036854775807"])
)
ages = st.sampled_from([0, 5, 29, 31, 59, 61, 119, 299, 300, 301, 4000])


@st.composite
def pods(draw: st.DrawFn, app: str, number: int) -> dict[str, Any]:
    requests = draw(
        st.sampled_from(
            [{"cpu": "100m"}, {"cpu": "1", "memory": "64Mi"}] * 3
            + [{}, {"cpu": "0"}, {"cpu": "-50m"}, {"cpu": "9E", "memory": "9223372036854775807"}]
        )
    )
    status: dict[str, Any] = {"phase": draw(st.sampled_from(["Running"] * 4 + ["Pending", "Failed", "Succeeded"]))}
    if draw(st.integers(0, 5)):
        status["startTime"] = ago(draw(ages))
    ready = draw(st.sampled_from(["True"] * 4 + ["False", "Unknown", ""]))
    if ready:
        status["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": ago(draw(ages))}]
    metadata: dict[str, Any] = {"name": f"{app}-{number}", "namespace": "ns", "labels": {"app": app}}
    if draw(st.integers(0, 9)) == 0:
        metadata["deletionTimestamp"] = ago(1)
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return {"metadata": metadata, "spec": {"containers": containers}, "status": status}


percents = st.one_of(st.integers(1, 200), st.sampled_from([0, -5, 2**31 - 1]))
amounts = st.one_of(
    st.integers(1, 5000).map(lambda milli: f"{milli}m"), st.sampled_from(["0", "-1", "9E", "9223372036854775807"])
)
averages = amounts.map(lambda text: {"type": "AverageValue", "averageValue": text})
targets = st.one_of(
    percents.map(lambda percent: {"type": "Utilization", "averageUtilization": percent}),
    averages,
    st.just({"type": "Utilization"}),  # no target at all
)
values = st.one_of(amounts.map(lambda text: {"type": "Value", "value": text}), averages, st.just({"type": "Value"}))
service = {"kind": "Service", "name": "front", "apiVersion": "v1"}
specs = st.one_of(
    targets.map(lambda target: {"type": "Resource", "resource": {"name": "cpu", "target": target}}),
    targets.map(lambda target: {"type": "Resource", "resource": {"name": "memory", "target": target}}),
    targets.map(
        lambda target: {
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": "main", "target": target},
        }
    ),
    averages.map(lambda target: {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": target}}),
    values.map(lambda target: {"type": "External", "external": {"metric": {"name": "lag"}, "target": target}}),
    values.map(
        lambda target: {
            "type": "Object",
            "object": {"metric": {"name": "hits"}, "describedObject": service, "target": target},
        }
    ),
    st.just({"type": "Phase"}),
)
policies = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Pods", "Percent"]),
            "value": st.integers(1, 200),
            "periodSeconds": st.sampled_from([15, 60, 300]),
        }
    ),
    min_size=1,
    max_size=3,
)
rules = st.fixed_dictionaries(
    {},
    optional={
        "stabilizationWindowSeconds": st.sampled_from([0, 30, 300]),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "policies": policies,
        "tolerance": st.sampled_from(["0", "0.05", "0.5"]),
    },
)
behaviors = st.fixed_dictionaries({}, optional={"scaleUp": rules, "scaleDown": rules})
conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(CONDITION_TYPES),
            "status": st.sampled_from(["True", "False"]),
            "reason": st.just("Old"),
            "lastTransitionTime": ages.map(ago),
        }
    ),
    max_size=4,
    unique_by=lambda condition: condition["type"],
)
recommendations = st.lists(st.tuples(small, ages), max_size=5)
events = st.lists(st.tuples(small, ages, st.booleans()), max_size=4)


@dataclass
class World:
    hpas: list[HorizontalPodAutoscaler]
    scales: dict[str, Scale | ApiError]
    pods: list[Pod]
    metrics: MetricLists
    state: ControllerState
    options: HPAOptions


@st.composite
def worlds(draw: st.DrawFn) -> World:
    hpas, scales, all_pods, states = [], {}, [], {}
    lists = MetricLists()
    for name in NAMES:
        minimum = draw(st.integers(0, 4))
        spec = {
            "scaleTargetRef": {"apiVersion": draw(st.sampled_from(["apps/v1"] * 9 + ["a/b/c"])), "kind": "Deployment",
                               "name": name},
            "minReplicas": minimum,
            "maxReplicas": draw(st.one_of(st.integers(minimum, minimum + 12), st.just(2**31 - 1))),
            "metrics": draw(st.lists(specs, min_size=1, max_size=3)),
        }  # fmt: skip
        if draw(st.booleans()):
            spec["behavior"] = draw(behaviors)
        status = {"conditions": draw(conditions), "currentReplicas": draw(small)}
        document = {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status}
        hpas.append(apply_defaults(from_dict(document, HorizontalPodAutoscaler)))
        app = draw(st.sampled_from([name] * 6 + [""]))
        selector = draw(st.sampled_from([f"app={name}"] * 8 + ["app in (a,b)", "", "app=a=b"]))
        scales[f"ns/{name}"] = (
            Scale(
                spec=ScaleSpec(replicas=draw(sizes)),
                status=ScaleStatus(replicas=draw(sizes), selector=selector),
            )
            if draw(st.integers(0, 9))
            else ApiError("no answer")
        )
        own = [draw(pods(app, i)) for i in range(draw(st.integers(0, 4)))]
        all_pods += [from_dict(pod, Pod) for pod in own]
        named = [pod["metadata"]["name"] for pod in own if draw(st.integers(0, 4))]
        named += [f"{name}-gone"] if draw(st.integers(0, 4)) == 0 else []
        labels = {"app": app}
        lists.add_pod_metrics(
            from_dict(
                {
                    "metadata": {"name": pod, "namespace": "ns", "labels": labels},
                    "timestamp": ago(draw(ages)),
                    "window": "30s",
                    "containers": [{"name": "main", "usage": {"cpu": draw(quantities), "memory": draw(quantities)}}],
                },
                PodMetrics,
            )
            for pod in named
        )
        lists.add_custom(
            from_dict(
                {
                    "describedObject": {"kind": "Pod", "namespace": "ns", "name": pod},
                    "metric": {"name": "qps"},
                    "timestamp": ago(draw(ages)),
                    "value": draw(quantities),
                },
                MetricValue,
            )
            for pod in named
        )
        states[f"ns/{name}"] = HPAState(
            recommendations=draw(
                st.one_of(
                    st.none(),
                    recommendations.map(lambda rows: tuple(Recommendation(n, NOW - age * SECOND) for n, age in rows)),
                )
            ),
            scale_up_events=tuple(ScaleEvent(n, NOW - age * SECOND, old) for n, age, old in draw(events)),
            scale_down_events=tuple(ScaleEvent(n, NOW - age * SECOND, old) for n, age, old in draw(events)),
            selector=draw(st.sampled_from([None, f"app={name}"])),
            registered=draw(st.integers(0, 9)) != 0,
        )
    if draw(st.booleans()):
        hits = {
            "describedObject": {"kind": "Service", "namespace": "ns", "name": "front"},
            "metric": {"name": "hits"},
            "value": draw(quantities),
        }
        lists.add_custom([from_dict(hits, MetricValue)])
    lags = draw(st.lists(quantities, max_size=3))
    lists.add_external("ns", [from_dict({"metricName": "lag", "value": lag}, ExternalMetricValue) for lag in lags])
    lists.know_pods(all_pods)
    profile = draw(st.sampled_from(["current", "current", "legacy"]))
    gates = {"HPAScaleToZero": draw(st.booleans())}
    if profile == "current":
        gates["HPAConfigurableTolerance"] = draw(st.booleans())
    options = HPAOptions(
        horizontal_pod_autoscaler_downscale_stabilization=timedelta(seconds=draw(st.sampled_from([0, 60, 300]))),
        horizontal_pod_autoscaler_tolerance=draw(st.sampled_from([0.0, 0.1, 0.5])),
        feature_gates=gates,
        profile=profile,
    )
    return World(hpas, scales, all_pods, lists, ControllerState(hpas=states), options)


def one_by_one(world: World, store: SelectorStore) -> list[DryRun[Reconciliation]]:
    def answer(key: str, action: Action) -> Any:
        if isinstance(action, GetScale):
            return world.scales[key]
        if isinstance(action, List):
            selector = parse_selector(action.selector)
            return [
                pod
                for pod in world.pods
                if pod.metadata.namespace == action.namespace and selector.matches(pod.metadata.labels)
            ]
        if isinstance(action, GetMetric):
            return world.metrics(action)
        raise AssertionError(action)

    out = []
    for hpa in world.hpas:
        key = f"{hpa.metadata.namespace}/{hpa.metadata.name}"
        machine = reconcile(hpa, world.state.get(key), now=NOW, options=world.options, selectors=store)
        out.append(as_if_done(machine, now=NOW, respond=lambda action, key=key: answer(key, action)))  # type: ignore[misc]  # the lambda's default is bound on purpose
    return out


def batch(world: World, threads: int = 1) -> Decisions:
    return decide(
        world.hpas,
        world.scales,
        world.pods,
        world.metrics,
        options=world.options,
        state=world.state,
        now=NOW,
        threads=threads,
    )


def decisive(want: Reconciliation) -> int:
    """The metric that decided: the largest, but while that is 0 every later one goes before it."""
    best, value = -1, 0
    for i, each in enumerate(want.metrics if want.proposal is not None else ()):
        if isinstance(each, MetricProposal) and (value == 0 or each.replicas.replicas > value):
            best, value = i, each.replicas.replicas
    return best


def reason_of(want: Reconciliation) -> str:
    fixed = {
        "": "none",
        "Current number of replicas above Spec.MaxReplicas": "above_max",
        "Current number of replicas below Spec.MinReplicas": "below_min",
        "All metrics below target": "all_below",
    }
    if want.reason in fixed:
        return fixed[want.reason]
    assert want.reason.endswith(" above target")
    return "metric_above"


def compare(decisions: Decisions, row: int, run: DryRun[Reconciliation], before: HPAState) -> None:
    want = run.value
    branch = BRANCHES[decisions.branch[row]]
    if want.desired_replicas is None:
        assert branch in ("no_scale", "failed")
    else:
        assert decisions.desired[row] == want.desired_replicas
    assert bool(decisions.rescaled[row]) == (want.scale_written is not None)
    assert ("none", "internal", "spec")[decisions.error[row]] == want.error_class
    told = {each.reason for each in run.events}
    events = int(decisions.events[row])
    assert bool(events & 1) == ("FailedGetScale" in told)
    assert bool(events & 2) == bool(told & {"SelectorRequired", "InvalidSelector", "AmbiguousSelector"})
    failed = [i for i, each in enumerate(want.metrics) if isinstance(each, MetricError)]
    assert decisions.invalid[row] == len(failed)
    assert decisions.first_invalid[row] == (failed[0] if failed else -1)
    assert decisions.best[row] == decisive(want)
    assert REASONS[decisions.reason[row]] == reason_of(want)
    of_metrics = {each.reason for each in want.metrics if isinstance(each, MetricError)}
    assert bool(events & 4) == bool(told & of_metrics)
    assert bool(events & 8) == ("FailedComputeMetricsReplicas" in told)
    assert bool(events & 16) == ("SuccessfulRescale" in told)
    if want.normalized is not None:
        assert decisions.proposal[row] == want.proposal
        assert decisions.stabilized[row] == want.normalized.stabilized
    assert decisions.memory.state(row, want.state) == want.state
    columns = decisions.memory.conditions
    for j, type_ in enumerate(CONDITION_TYPES):
        condition = find(want.status.conditions, type_)
        assert columns.status[row, j] == (0 if condition is None else {"True": 1, "False": 2}[condition.status])
        if condition is None:
            continue
        reason = CONDITION_REASONS[columns.reason[row, j]]
        if reason == "MetricFailed":
            assert condition.reason.startswith("FailedGet") or condition.reason in ("InvalidMetricSourceType", "Old")
        elif condition.reason != "Old":
            assert reason == condition.reason
        assert to_text(int(columns.time[row, j])) == condition.last_transition_time


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_a_batch_decides_as_the_step_machine_does(world: World) -> None:
    decisions = batch(world)
    observed = Observed(world.hpas, world.scales, world.pods, world.metrics, None, RESTMapper())
    encoded, memory = encode(observed, world.state, world.options)
    for row, want in enumerate(one_by_one(world, encoded.selectors)):
        compare(decisions, row, want, world.state.get(f"{want.value.namespace}/{want.value.name}"))
        assert repr(decisions[row]) == repr(want)  # a ratio may be NaN, which equals nothing
    threaded = decide_columns(encoded, memory, now=NOW, options=world.options, threads=3)
    for name in ("branch", "desired", "proposal", "stabilized", "best", "rescaled", "reason", "events", "error"):
        assert np.array_equal(getattr(decisions, name), getattr(threaded, name))


@settings(max_examples=30, deadline=None)
@given(worlds())
def test_the_state_survives_json(world: World) -> None:
    assert ControllerState.from_json(world.state.to_json()) == world.state


def test_no_hpas_at_all() -> None:
    assert len(decide([], {}, [], MetricLists(), now=NOW)) == 0
