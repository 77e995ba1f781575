"""A batch decides as the step machine does, one by one."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    DryRun,
    GetMetric,
    GetScale,
    List,
    PutScale,
    from_text,
    run_dry,
    to_text,
)
from kscale.errors import InputError
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.batch.columns import CONDITION_REASONS, CONDITION_TYPES
from kscale.hpa.batch.decisions import DECISION_BRANCHES, RESCALE_REASONS, Decisions, decide
from kscale.hpa.batch.inputs import BatchObjects, prepare_batch
from kscale.hpa.batch.pods import to_batch_pods
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.decision import ReconcileSummary
from kscale.hpa.controller.metric_proposals import MetricError, MetricProposal
from kscale.hpa.controller.reconcile import ReconcileResult, reconcile
from kscale.hpa.controller.replica_calculator import CalculatedReplicas
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState, HPAState, Recommendation, ScaleEvent
from kscale.hpa.controller.status import find_condition
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, MetricSpec, Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import ExternalMetricValue, MetricValue, PodMetrics
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import RESTMapper
from kscale.objects.selectors import parse_selector
from kscale.snapshot.cluster import Cluster

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
    indexed: bool = False
    lazy: bool = False


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
        labelled = st.sampled_from([{"labels": {"app": app}}] * 3 + [{}])
        lists.add_pod_metrics(
            from_dict(
                {
                    "metadata": {"name": pod, "namespace": "ns", **draw(labelled)},
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
    lists.add_pod_labels(all_pods)
    hpas[0].spec.metrics = draw(st.sampled_from([hpas[0].spec.metrics] * 9 + [[MetricSpec(type="Pods")]]))
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
    state = ControllerState(hpas=states)
    return World(hpas, scales, all_pods, lists, state, options, indexed=draw(st.booleans()), lazy=draw(st.booleans()))


def one_by_one(
    world: World, store: SelectorStore, refusals: Mapping[str, ApiError] | None = None
) -> list[DryRun[ReconcileResult] | InputError]:
    """Each by itself, in order; the error of one that upstream would crash on."""

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

    out: list[DryRun[ReconcileResult] | InputError] = []
    for hpa in world.hpas:
        key = f"{hpa.metadata.namespace}/{hpa.metadata.name}"
        machine = reconcile(hpa, world.state.get(key), now=NOW, options=world.options, selectors=store)
        refusal = (refusals or {}).get(key)
        try:
            out.append(
                run_dry(
                    machine,
                    now=NOW,
                    respond=lambda action, key=key: answer(key, action),
                    refuse=lambda action, refusal=refusal: refusal if isinstance(action, PutScale) else None,
                )
            )
        except InputError as error:
            out.append(error)
    return out


def batch(world: World, **more: Any) -> Decisions:
    arguments: dict[str, Any] = {"options": world.options, "state": world.state, "now": NOW, **more}
    pods: Any = world.pods
    if world.indexed:
        pods = Cluster()
        for pod in world.pods:
            pods.apply({"apiVersion": "v1", "kind": "Pod", **to_dict(pod)})
    metrics = (lambda query: world.metrics(query)) if world.lazy else world.metrics
    return decide(world.hpas, world.scales, pods, metrics, **arguments)


def decisive(want: ReconcileResult) -> int:
    """The metric that decided: the largest, but while that is 0 every later one goes before it."""
    best, value = -1, 0
    for i, each in enumerate(want.metrics if want.proposal is not None else ()):
        if isinstance(each, MetricProposal) and (value == 0 or each.replicas.replicas > value):
            best, value = i, each.replicas.replicas
    return best


def reason_of(want: ReconcileResult) -> str:
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


def unmasked(column: Any, row: int) -> int | None:
    """A value of a masked column; what is masked is nothing a caller could take for a size."""
    assert not np.ma.getmaskarray(column)[row] or column.data[row] == -1
    return None if np.ma.getmaskarray(column)[row] else int(column[row])


def compare(decisions: Decisions, row: int, run: DryRun[ReconcileResult], *, refused: bool = False) -> None:
    want = run.value
    branch = DECISION_BRANCHES[decisions.branch[row]]
    if want.desired_replicas is None and not refused:
        assert branch in ("no_scale", "failed")
    assert unmasked(decisions.desired, row) == want.desired_replicas
    assert unmasked(decisions.current, row) == want.current_replicas
    assert unmasked(decisions.proposal, row) == want.proposal
    assert unmasked(decisions.stabilized, row) == (None if want.normalized is None else want.normalized.stabilized)
    assert bool(decisions.rescaled[row]) == (want.scale_written is not None)
    assert ("none", "internal", "spec")[decisions.error[row]] == want.error_class
    reasons = {each.reason for each in run.events}
    events = int(decisions.events[row])
    assert bool(events & 1) == ("FailedGetScale" in reasons)
    assert bool(events & 2) == bool(reasons & {"SelectorRequired", "InvalidSelector", "AmbiguousSelector"})
    failed = [i for i, each in enumerate(want.metrics) if isinstance(each, MetricError)]
    assert decisions.invalid[row] == len(failed)
    assert decisions.first_invalid[row] == (failed[0] if failed else -1)
    assert decisions.best[row] == decisive(want)
    assert RESCALE_REASONS[decisions.reason[row]] == reason_of(want)
    of_metrics = {each.reason for each in want.metrics if isinstance(each, MetricError)}
    assert bool(events & 4) == bool(reasons & of_metrics)
    assert bool(events & 8) == ("FailedComputeMetricsReplicas" in reasons)
    assert bool(events & 16) == ("SuccessfulRescale" in reasons)
    assert bool(events & 32) == ("FailedRescale" in reasons)
    assert decisions.state.get(f"{want.namespace}/{want.name}") == want.state
    columns = decisions.memory.conditions
    for j, type_ in enumerate(CONDITION_TYPES):
        condition = find_condition(want.status.conditions, type_)
        assert columns.status[row, j] == (0 if condition is None else {"True": 1, "False": 2}[condition.status])
        if condition is None:
            continue
        reason = CONDITION_REASONS[columns.reason[row, j]]
        if reason == "MetricFailed":
            assert condition.reason.startswith("FailedGet") or condition.reason in ("InvalidMetricSourceType", "Old")
        elif condition.reason != "Old":
            assert reason == condition.reason
        assert to_text(int(columns.time[row, j])) == condition.last_transition_time


def comparable(summary: ReconcileSummary) -> str:
    """The text of a summary without what no decision shows: times of values and recommendations."""
    metrics = [
        msgspec.structs.replace(each, timestamp=0, groups={name: [*pods] for name, pods in each.groups.items()})
        if isinstance(each, CalculatedReplicas)
        else each
        for each in summary.metrics
    ]
    normalized = summary.normalized and msgspec.structs.replace(summary.normalized, recommendations=())
    plain = {**msgspec.structs.asdict(summary), "metrics": metrics, "normalized": normalized}
    return repr({name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()})


def store_of(world: World) -> SelectorStore:
    """The selectors of all, before the first is checked."""
    observed = BatchObjects.read(world.hpas, world.scales, to_batch_pods(world.pods), world.metrics, None, RESTMapper())
    return prepare_batch(observed, world.state, world.options).encode(world.metrics).store()


@settings(max_examples=examples(4 / 3), deadline=None)
@given(worlds())
def test_a_batch_decides_as_the_step_machine_does(world: World) -> None:
    decisions = batch(world)
    for row, want in enumerate(one_by_one(world, store_of(world))):
        if isinstance(want, InputError):
            assert str(decisions.problems[row]) == str(want)
            key = decisions.keys[row]
            assert (decisions.error[row], decisions.events[row], unmasked(decisions.desired, row)) == (2, 0, None)
            assert decisions.state.get(key) == world.state.get(key)
            continue
        compare(decisions, row, want)
        assert repr(decisions[row]) == repr(want)  # a ratio may be NaN, which equals nothing
        [summary] = decisions.summarize([row])
        assert comparable(summary) == comparable(ReconcileSummary.of_run(want))
    threaded = batch(world, threads=3)
    again = batch(world, previous=batch(world))
    for name in COLUMNS:
        assert np.array_equal(getattr(decisions, name), getattr(threaded, name))
        assert np.array_equal(getattr(decisions, name), getattr(again, name))
    assert decisions.state == again.state


COLUMNS = (
    "branch",
    "desired",
    "proposal",
    "stabilized",
    "best",
    "rescaled",
    "reason",
    "events",
    "error",
    "stabilized_by",
)


@settings(max_examples=examples(2 / 3), deadline=None)
@given(worlds(), st.booleans())
def test_refused_writes(world: World, conflict: bool) -> None:
    decisions = batch(world)
    error = ApiError("the object has been modified", code=409, reason="Conflict") if conflict else ApiError("no")
    refusals = {"ns/a": error, "ns/b": error}
    refused = decisions.with_refused_scales(refusals)
    for row, want in enumerate(one_by_one(world, store_of(world), refusals)):
        if not isinstance(want, InputError):
            compare(refused, row, want, refused=True)
            assert repr(refused[row]) == repr(want)
    for name in COLUMNS:
        assert np.array_equal(getattr(decisions, name)[2:], getattr(refused, name)[2:])


@settings(max_examples=examples(1 / 3), deadline=None)
@given(worlds())
def test_decisions_pickle(world: World) -> None:
    decisions = batch(world)
    again = pickle.loads(pickle.dumps(decisions))
    for name in COLUMNS:
        assert np.array_equal(getattr(decisions, name), getattr(again, name))
    assert (again.state, again.keys, repr(again)) == (decisions.state, decisions.keys, repr(decisions))
    with pytest.raises(TypeError, match="only decisions made from objects"):
        again[0]


@settings(max_examples=examples(1 / 2), deadline=None)
@given(worlds())
def test_the_state_survives_json(world: World) -> None:
    assert ControllerState.from_json(world.state.to_json()) == world.state
    after = batch(world).state
    assert ControllerState.from_json(after.to_json()) == after
    assert batch(world, state=after).state == batch(world, state=ControllerState.from_json(after.to_json())).state


def test_no_hpas_at_all() -> None:
    assert len(decide([], {}, [], MetricLists(), now=NOW)) == 0


def test_data_error_names_its_hpa() -> None:
    target = {"type": "Utilization", "averageUtilization": "x"}
    bad = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]},
    }
    with pytest.raises(InputError) as refused:
        decide([bad], {}, [], MetricLists(), now=NOW)
    (problem,) = refused.value.problems
    assert (problem.object, problem.field) == (
        "HorizontalPodAutoscaler shop/web", "spec.metrics[0].resource.target.averageUtilization",
    )  # fmt: skip
    pod = {"metadata": {"name": "web-0"}, "spec": {"containers": 3}}
    with pytest.raises(InputError, match=r"^Pod default/web-0: spec\.containers: "):
        decide([], {}, [pod], MetricLists(), now=NOW)
