"""Actions of a reconcile in order, with refusals and delays."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    DryRun,
    Emit,
    GetMetric,
    GetScale,
    List,
    Moment,
    Observe,
    Outcome,
    PutScale,
    Steps,
    VirtualTime,
    Wait,
    WriteStatus,
    from_text,
    run_dry,
)
from kscale.errors import InputError
from kscale.hpa import METRICS, HPAState, ReconcileResult, apply_defaults, reconcile
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.core import ObjectReference
from kscale.objects.api.metrics import ExternalMetricValue, ExternalMetricValueList
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from performing import performed

NOW = from_text("2026-03-02T12:00:00Z")
CONFLICT = ApiError("changed meanwhile", code=409, reason="Conflict")
PREFIX = "horizontal_pod_autoscaler_controller_"


def autoscaler(*metrics: str) -> HorizontalPodAutoscaler:
    document = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 3},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10,
            "metrics": [
                {
                    "type": "External",
                    "external": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "30"}},
                }
                for name in metrics
            ],
        },
    }
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))


def scale(version: str = "7") -> Scale:
    out = Scale(spec=ScaleSpec(replicas=3), status=ScaleStatus(replicas=3, selector="app=web"))
    out.metadata.resource_version = version
    return out


def calm(action: Action) -> Any:
    """Nothing is refused; the jobs ask for four pods."""
    if isinstance(action, GetScale):
        return scale("8" if action.fresh else "7")
    if isinstance(action, List):
        return []
    if isinstance(action, GetMetric):
        return ExternalMetricValueList(items=[ExternalMetricValue(metric_name=action.metric, value=Quantity("100"))])
    return "9" if isinstance(action, WriteStatus) else None


def run(answer: Callable[[Action], Any], *metrics: str) -> DryRun[ReconcileResult]:
    return performed(reconcile(autoscaler(*metrics or ("jobs",)), HPAState(), now=NOW), answer, now=NOW)


def by_hand(answer: Callable[[Action], Any]) -> tuple[list[Action], ReconcileResult]:
    """Every action, waits and reports too, and what came of it."""
    steps = reconcile(autoscaler("jobs"), HPAState(), now=NOW)
    begun: list[Action] = []
    outcome: Outcome | None = None
    while True:
        try:
            begun.append(next(steps) if outcome is None else steps.send(outcome))
        except StopIteration as stop:
            return begun, stop.value
        result = answer(begun[-1])
        outcome = Outcome(at=NOW, error=result) if isinstance(result, ApiError) else Outcome(at=NOW, value=result)


def test_one_reconcile_asks_in_upstreams_order() -> None:
    done = run(calm)
    assert [type(each) for each in done.actions] == [GetScale, List, GetMetric, PutScale, WriteStatus]
    assert done.actions[0] == GetScale(namespace="shop", resource="deployments.apps", name="web")
    assert done.actions[1] == List(kind="Pod", namespace="shop", selector="app=web")
    assert done.actions[2] == GetMetric(api="external", namespace="shop", metric="jobs")
    put = done.actions[3]
    assert isinstance(put, PutScale)
    assert (put.resource, put.replicas, put.scale.metadata.resource_version) == ("deployments.apps", 4, "7")
    wrote = done.actions[4]
    assert isinstance(wrote, WriteStatus)
    assert isinstance(wrote.object, HorizontalPodAutoscaler)
    assert wrote.object.status == done.value.status
    assert done.value.status.observed_generation == 3
    assert [(each.regarding, each.type, each.reason) for each in done.events] == [
        (
            ObjectReference(
                api_version="autoscaling/v2", kind="HorizontalPodAutoscaler", namespace="shop", name="web", uid="u"
            ),
            "Normal",
            "SuccessfulRescale",
        )
    ]


@pytest.mark.parametrize("refused", [1, 4, 5])
def test_a_conflict_is_tried_again_five_times_at_most(refused: int) -> None:
    puts: list[str] = []

    def answer(action: Action) -> Any:
        if not isinstance(action, PutScale):
            return calm(action)
        puts.append(action.scale.metadata.resource_version)
        return CONFLICT if len(puts) <= refused else None

    begun, record = by_hand(answer)
    waits = [each for each in begun if isinstance(each, Wait)]
    tries = min(refused + 1, 5)
    assert puts == ["7", *["8"] * (tries - 1)]  # after a failure at the version read anew
    assert waits == [Wait(SECOND // 100, 0.1)] * (tries - 1)
    assert sum(isinstance(each, GetScale) and each.fresh for each in begun) == min(refused, 5)
    if refused == 5:
        assert record.error == "failed to rescale Deployment/shop/web: changed meanwhile"
        assert record.scale_written is None
    else:
        assert (record.error, record.scale_written) == (None, 4)


@pytest.mark.parametrize("reason", ["InternalError", ""])
def test_other_refusals_are_final_and_reread_the_scale(reason: str) -> None:
    done = run(lambda action: ApiError("no", reason=reason) if isinstance(action, PutScale) else calm(action))
    kinds = [type(each) for each in done.actions]
    assert kinds == [GetScale, List, GetMetric, PutScale, GetScale, WriteStatus]
    assert done.value.error == "failed to rescale Deployment/shop/web: no"
    assert done.value.error_class == "internal"


def test_a_wait_that_is_cut_short_ends_the_retries() -> None:
    def answer(action: Action) -> Any:
        if isinstance(action, Wait):
            return ApiError("the process ends")
        return CONFLICT if isinstance(action, PutScale) else calm(action)

    begun, record = by_hand(answer)
    assert sum(isinstance(each, PutScale) for each in begun) == 1
    assert record.error == "failed to rescale Deployment/shop/web: changed meanwhile"


def test_durations_of_metrics_and_reconcile_are_measured_in_world_time() -> None:
    took = {"jobs": 2 * SECOND, "lag": SECOND // 2}

    def perform(action: Action, at: Moment) -> Outcome:
        if isinstance(action, Emit | Observe):
            if isinstance(action, Observe):
                counted.extend(action.observations)
            return Outcome(at=at)
        if isinstance(action, GetMetric):
            at += took[action.metric]
            if action.metric == "lag":
                return Outcome(at=at, error=ApiError("no answer"))
        if isinstance(action, GetScale):
            at += SECOND
        return Outcome(at=at, value=calm(action))

    counted: list[Any] = []
    time = VirtualTime(perform, now=NOW)
    machine: Steps[ReconcileResult] = reconcile(autoscaler("jobs", "lag"), HPAState(), now=NOW)
    time.start(lambda _: machine)
    time.run()
    result = [(each.name.removeprefix(PREFIX), each.value, *each.labels.values()) for each in counted]
    assert result == [
        ("metric_computation_total", 1.0, "scale_up", "none", "External"),
        ("metric_computation_duration_seconds", 2.0, "scale_up", "none", "External"),
        ("metric_computation_total", 1.0, "none", "internal", "External"),
        ("metric_computation_duration_seconds", 0.5, "none", "internal", "External"),
        ("desired_replicas", 4, "shop", "web"),
        ("reconciliations_total", 1.0, "scale_up", "internal"),
        ("reconciliation_duration_seconds", 3.5, "scale_up", "internal"),
    ]
    for each in counted:
        assert tuple(each.labels) == METRICS[each.name].labels


def test_the_table_of_metrics_is_upstreams() -> None:
    assert {name.removeprefix(PREFIX): each.kind for name, each in METRICS.items()} == {
        "reconciliations_total": "counter",
        "reconciliation_duration_seconds": "histogram",
        "metric_computation_total": "counter",
        "metric_computation_duration_seconds": "histogram",
        "num_horizontal_pod_autoscalers": "gauge",
        "desired_replicas": "gauge",
        "stale_sync_skips_total": "counter",
    }
    bounds = METRICS[f"{PREFIX}reconciliation_duration_seconds"].bounds
    assert bounds[:3] == (0.001, 0.002, 0.004)
    assert (len(bounds), bounds[-1]) == (15, 16.384)


@pytest.mark.parametrize("now", ["2026-03-02T12:00:00Z", 1.5, None])
def test_invalid_now_is_refused(now: Any) -> None:
    with pytest.raises(InputError, match=r"^now: "):
        reconcile(autoscaler("jobs"), HPAState(), now=now)


def test_result_has_a_repr_and_can_be_pickled() -> None:
    at = datetime(2026, 3, 2, 12, tzinfo=UTC)
    done = run_dry(reconcile(autoscaler("jobs"), HPAState(), now=at), now=NOW, respond=calm)
    assert repr(done.value) == "<Reconciliation shop/web: 3 -> 4, external metric jobs(nil) above target>"
    assert pickle.loads(pickle.dumps(done.value)) == done.value
    assert done == run(lambda action: None if isinstance(action, WriteStatus) else calm(action))
