"""Facts of upstream's ``horizontal_test.go``: whole reconciles of one HPA, and the selector store."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    DryRun,
    GetMetric,
    GetScale,
    List,
    PutScale,
    WriteStatus,
    from_text,
)
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.controller.monitor import METRIC_COMPUTATIONS
from kscale.hpa.controller.reconcile import ReconcileResult, reconcile
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import HPAState, Recommendation, WrittenVersion
from kscale.hpa.controller.status import find_condition
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from performing import performed
from unit.hpa.support import NOW, Fixture, pods

TIME = from_text(NOW)
SHORT = {"AS": "AbleToScale", "SA": "ScalingActive", "SL": "ScalingLimited", "Z": "ScaledToZero"}
OK = {"AS": "SucceededRescale", "SA": "ValidMetricFound", "SL": "DesiredWithinRange", "Z": "NotScaledToZero"}
SERVICE = {"kind": "Service", "name": "front", "apiVersion": "v1"}
FAILING = "external lag"


def metric(text: str) -> dict[str, Any]:
    kind, *rest = text.split()
    if kind == "bogus":
        return {"type": "CheddarCheese"}
    if kind == "cpu":
        target = {"type": "Utilization", "averageUtilization": int(rest[0])}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    if kind.startswith("container"):
        target = {"type": "Utilization", "averageUtilization": int(rest[0])}
        source = {"name": "cpu", "container": kind, "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    target = {"type": "Value", "value": rest[-1]}
    if rest[0] == "avg":
        target = {"type": "AverageValue", "averageValue": rest[-1]}
    source = {"metric": {"name": "failing" if rest[0] == "failing" else "qps"}, "target": target}
    if kind == "object":
        return {"type": "Object", "object": {**source, "describedObject": SERVICE}}
    if kind == "pods":
        target = {"type": "AverageValue", "averageValue": rest[-1]}
        return {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": target}}
    return {"type": "External", "external": source}


@dataclass
class Case:
    name: str
    bounds: tuple[int, int]
    size: tuple[int, int]  # spec, status
    metrics: list[str]
    levels: list[int] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    desired: int = 0
    want: dict[str, str | None] = field(default_factory=dict)
    state: str = ""
    past: list[tuple[int, int]] | None = None  # (replicas, seconds ago); None: first pass
    zero: bool = False  # ScaledToZero was true
    gate: bool = True
    off: str = ""  # another gate that is off
    behavior: dict[str, Any] | None = None
    failure: str = ""
    rivals: dict[str, str] = field(default_factory=dict)
    selector: str = "name=test-pod"
    error: str = "none"
    action: str | None = None
    computed: str | None = None  # the action that the metric is counted with
    written: bool = True  # the status
    labels: dict[str, str] = field(default_factory=dict)  # more labels of the first pod
    status: dict[str, Any] = field(default_factory=dict)
    target: str = "v1 ReplicationController replicationcontrollers"  # API version, kind, resource


def ok(**changes: str | None) -> dict[str, str | None]:
    return {**OK, **changes}


ONES = [1.0] * 3
NEAR = [0.9, 1.0, 1.1]
DOWN = [100, 300, 500, 250, 250]
EMPTY: list[tuple[int, int]] = []
HOLD = {"AS": "ReadyForNewScale"}
IGNORED_UP = {"levels": [500, 700], "requests": [1.0] * 4, "size": (2, 2), "desired": 4}
CAPPED = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 700, "periodSeconds": 60}]}
}
COMPUTED = [0.4, 0.2, 0.31, 0.29, 0.302, 0.298, 0.301, 0.299, 0.3, 0.3]
DISABLED = {"AS": "SucceededGetScale", "SA": "ScalingDisabled"}
BOTH_MIN = {"AS": "SucceededRescale", "Z": "NotScaledToZero", "SA": None, "SL": None}
CURRENT = {
    "observedGeneration": 0,
    "currentReplicas": 2,
    "desiredReplicas": 2,
    "lastScaleTime": "2026-03-01T11:00:00Z",
    "currentMetrics": [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "400m"}},
        }
    ],
    "conditions": [
        {"type": type_, "status": status, "lastTransitionTime": "2026-03-01T11:00:00Z", "reason": why, "message": text}
        for type_, status, why, text in (
            ("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
            (
                "ScalingActive",
                "True",
                "ValidMetricFound",
                (
                    "the HPA was able to successfully calculate a replica count from cpu resource utilization "
                    "(percentage of request)"
                ),
            ),
            (
                "ScalingLimited",
                "True",
                "TooFewReplicas",
                "the desired replica count is less than the minimum replica count",
            ),
        )
    ],
}

CASES = [
    Case("scale up", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 5, ok()),
    Case("scale up, Deployment", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 5, ok(),
         target="apps/v1 Deployment deployments.apps"),
    Case("scale up, ReplicaSet", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 5, ok(),
         target="apps/v1 ReplicaSet replicasets.apps"),
    Case("unready less", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 4, ok(), "rdy FTT"),
    Case("hot less", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 4, ok(), "st hcc"),
    Case("failed ignored", (2, 6), metrics=["cpu 30"], want=ok(), state="rdy TTFF,ph RRFF", **IGNORED_UP),
    Case("deleting ignored", (2, 6), metrics=["cpu 30"], want=ok(), state="rdy TTFF,del 0011", **IGNORED_UP),
    Case("unready in range", (2, 6), (3, 3), ["cpu 30"], [400, 500, 700], ONES, 3, HOLD, "rdy TFF"),
    Case("hot, no scale", (2, 6), (3, 3), ["cpu 30"], [400, 500, 700], ONES, 3, ok(AS="ReadyForNewScale", Z=None),
         "rdy TFF,st chh"),
    Case("down", (2, 6), (5, 5), ["cpu 50"], DOWN, [1.0] * 5, 3, ok(), past=EMPTY),
    Case("down, unready", (2, 6), (5, 5), ["cpu 50"], DOWN, [1.0] * 5, 2, ok(), "rdy TTTFF", EMPTY),
    Case("down, hot", (2, 6), (5, 5), ["cpu 50"], DOWN, [1.0] * 5, 2, ok(), "st ccchh", EMPTY),
    Case("down, failed", (2, 6), (5, 5), ["cpu 50"], DOWN, [1.0] * 7, 3, ok(), "rdy TTTTTFF,ph RRRRRFF", EMPTY),
    Case("down, deleting", (2, 6), (5, 5), ["cpu 50"], DOWN, [1.0] * 7, 3, ok(), "rdy TTTTTFF,del 0000011", EMPTY),
    Case("first pass holds", (2, 6), (5, 5), ["cpu 50"], DOWN, [1.0] * 5, 5, {"AS": "ScaleDownStabilized"},
         action="none", computed="scale_down"),
    Case("container up", (2, 6), (3, 3), ["container1 30"], [300, 500, 700], ONES, 5, ok()),
    Case("container down", (2, 6), (5, 5), ["container2 50"], DOWN, [1.0] * 5, 3, ok(), past=EMPTY),
    Case("pods up", (2, 6), (3, 3), ["pods qps 15"], [20000, 10000, 30000], [], 4, ok()),
    Case("pods, unready", (2, 6), (3, 3), ["pods qps 15"], [50000, 10000, 30000], [], 6, ok(), "rdy TTF,st cch"),
    Case("pods, capped", (2, 6), (3, 3), ["pods qps 15"], [50000, 15000, 30000], [], 6, ok(SL="TooManyReplicas"),
         "rdy FTF,st hch"),
    Case("object value up", (2, 6), (3, 3), ["object value 15"], [20000], [], 4, ok()),
    Case("object value down", (2, 6), (5, 5), ["object value 20"], [12000], [], 3, ok(), past=EMPTY),
    Case("object per pod up", (2, 6), (3, 3), ["object avg 10"], [40000], [], 4, ok()),
    Case("object per pod down", (2, 6), (5, 5), ["object avg 20"], [60000], [], 3, ok(), past=EMPTY),
    Case("external value up", (2, 6), (3, 3), ["external value 6666m"], [8600], [], 4, ok()),
    Case("external value down", (2, 6), (5, 5), ["external value 14400m"], [8600], [], 3, ok(), past=EMPTY),
    Case("external per pod up", (2, 6), (3, 3), ["external avg 2222m"], [8600], [], 4, ok()),
    Case("external per pod down", (2, 6), (5, 5), ["external avg 3000m"], [8600], [], 3, ok(), past=EMPTY),
    Case("object to zero", (0, 6), (5, 5), ["object value 20"], [0], [], 0, ok(Z="ScaledToZero"), past=EMPTY),
    Case("external to zero", (0, 6), (5, 5), ["external value 14400m"], [0], [], 0, ok(Z="ScaledToZero"), past=EMPTY),
    Case("object to zero, gate off", (0, 6), (5, 5), ["object value 20"], [0], [], 0, ok(Z=None), past=EMPTY,
         gate=False),
    Case("external to zero, gate off", (0, 6), (5, 5), ["external value 14400m"], [0], [], 0, ok(Z=None), past=EMPTY,
         gate=False),
    Case("from zero", (0, 6), (0, 0), ["object value 15"], [20000], [], 2, ok(), zero=True),
    Case("from zero, gate off", (0, 6), (0, 0), ["object value 15"], [20000], [], 0, {**DISABLED, "Z": None},
         zero=True, gate=False),
    Case("from zero ignores tolerance", (0, 6), (0, 0), ["object value 1"], [1000], [], 1, ok(), zero=True),
    Case("from zero ignores tolerance, gate off", (0, 6), (0, 0), ["object value 1"], [1000], [], 0,
         {**DISABLED, "Z": None}, zero=True, gate=False),
    Case("from zero, min raised", (2, 6), (0, 0), ["object value 15"], [10000], [], 2, ok(SL="TooFewReplicas"),
         zero=True),
    Case("from zero, min raised, gate off", (2, 6), (0, 0), ["object value 15"], [10000], [], 0, DISABLED, zero=True,
         gate=False),
    Case("from zero without condition", (0, 6), (0, 0), ["object value 15"], [20000], [], 0, DISABLED),
    Case("from zero, cpu + bogus", (0, 6), (0, 0), ["cpu 30", "bogus"], [300, 400, 500], ONES, 0, DISABLED),
    Case("manual zero", (1, 6), (0, 0), ["cpu 50"], [], [], 0, DISABLED),
    Case("manual zero, gate off", (1, 6), (0, 0), ["cpu 50"], [], [], 0, DISABLED, gate=False),
    Case("zero replicas, min 3", (3, 5), (0, 0), ["cpu 90"], [], [], 0, DISABLED),
    Case("normal rescale clears Z", (1, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 5, ok(), zero=True),
    Case("normal rescale clears Z, gate off", (1, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 5, ok(Z=None),
         zero=True, gate=False),
    Case("one metric invalid, up", (2, 6), (3, 3), ["cpu 30", "bogus"], [300, 400, 500], ONES, 4, ok(), error="spec",
         action="scale_up"),
    Case("one metric failing, up", (2, 6), (3, 3), ["cpu 30", "external failing 1"], [300, 400, 500], ONES, 4, ok(),
         error="internal"),
    Case("one metric invalid, down", (2, 6), (5, 5), ["cpu 50", "bogus"], DOWN, [1.0] * 5, 5,
         {"AS": "SucceededGetScale", "SA": "InvalidMetricSourceType"}, past=EMPTY, error="spec"),
    Case("one metric failing, down", (2, 6), (5, 5), ["cpu 50", "external failing 1"], DOWN, [1.0] * 5, 5,
         {"SA": "FailedGetExternalMetric"}, past=EMPTY, error="internal"),
    Case("only invalid type", (2, 6), (3, 3), ["bogus"], [], [], 3, {"SA": "InvalidMetricSourceType"}, error="spec"),
    *(
        Case(f"all failing: {text}", (1, 100), (3, 3), [text], [], ONES, 3, {"SA": f"FailedGet{kind}Metric"},
             failure="metrics", error="internal")
        for text, kind in (("cpu 10", "Resource"), ("pods qps 1", "Pods"), ("object value 1", "Object"),
                           ("external value 1", "External"))
    ),
    Case("tolerance", (1, 5), (3, 3), ["cpu 100"], [1010, 1030, 1020], NEAR, 3, HOLD),
    Case("tolerance 1 % up", (1, 5), (3, 3), ["cpu 100"], [1010, 1030, 1020], NEAR, 4, ok(),
         behavior={"scaleUp": {"tolerance": "0.01"}}),
    Case("tolerance 1 % up, gate off", (1, 5), (3, 3), ["cpu 100"], [1010, 1030, 1020], NEAR, 3, HOLD,
         behavior={"scaleUp": {"tolerance": "0.01"}}, off="HPAConfigurableTolerance"),
    Case("tolerance 57 % up, reached", (1, 5), (3, 3), ["cpu 100"], [1570] * 3, ONES, 3, HOLD,
         behavior={"scaleUp": {"tolerance": "0.57"}}),  # 1 + 0.57 is less than 1.57, in doubles
    Case("tolerance 57 % up, passed", (1, 5), (3, 3), ["cpu 100"], [1580] * 3, ONES, 5, ok(),
         behavior={"scaleUp": {"tolerance": "0.57"}}),
    Case("tolerance 90 % down", (1, 5), (3, 3), ["cpu 100"], [300] * 3, ONES, 3, HOLD,
         behavior={"scaleDown": {"tolerance": "0.9"}}),
    Case("tolerance, pods", (1, 5), (3, 3), ["pods qps 20"], [20000, 20001, 21000], [], 3, HOLD),
    Case("tolerance, object", (1, 5), (3, 3), ["object value 20"], [20050], [], 3, HOLD),
    Case("tolerance, external", (2, 6), (4, 4), ["external value 8666m"], [8600], [], 4, HOLD),
    Case("tolerance per pod, object", (2, 6), (4, 4), ["object avg 2200m"], [8600], [], 4, HOLD),
    Case("tolerance per pod, external", (2, 6), (4, 4), ["external avg 2200m"], [8600], [], 4, HOLD),
    Case("min", (2, 5), (3, 3), ["cpu 90"], [10, 95, 10], NEAR, 2, ok(SL="TooFewReplicas"), past=EMPTY),
    Case("zero allowed", (0, 5), (3, 3), ["cpu 90"], [0, 0, 0], NEAR, 0, ok(), past=EMPTY),
    Case("zero, min 2", (2, 5), (3, 3), ["cpu 90"], [0, 0, 0], NEAR, 2, ok(SL="TooFewReplicas"), past=EMPTY),
    Case("below min", (3, 5), (2, 2), ["cpu 90"], [], [], 3, BOTH_MIN),
    Case("above max", (3, 5), (10, 10), ["cpu 90"], [], [], 5, BOTH_MIN),
    Case("immediately up", (2, 6), (1, 1), ["cpu 90"], [], [], 2, BOTH_MIN, status={"lastScaleTime": NOW}),
    Case("immediately down", (2, 5), (6, 6), ["cpu 50"], [], [], 5, BOTH_MIN, status={"lastScaleTime": NOW}),
    Case("max", (2, 5), (3, 3), ["cpu 90"], [8000, 9500, 1000], NEAR, 5, ok(SL="TooManyReplicas")),
    Case("superfluous metrics", (2, 6), (4, 4), ["cpu 100"], [4000, 9500, 3000, 7000, 3200, 2000], [1.0] * 4, 6,
         ok(SL="TooManyReplicas")),
    Case("missing metrics", (2, 6), (4, 4), ["cpu 100"], [400, 95], [1.0] * 4, 3, ok(), past=EMPTY),
    Case("empty metrics", (2, 6), (4, 4), ["cpu 100"], [], [1.0] * 4, 4, {"SA": "FailedGetResourceMetric"},
         error="internal"),
    Case("no pods", (1, 5), (1, 1), ["cpu 100"], [200], [], 1, {"SA": "FailedGetResourceMetric"}, error="internal"),
    Case("missing reports", (1, 5), (4, 4), ["cpu 50"], [200], [0.2], 2, ok(), past=EMPTY),
    Case("event created", (1, 5), (1, 1), ["cpu 50"], [200], [0.2], 2, ok()),
    Case("event not created", (1, 5), (2, 2), ["cpu 50"], [200, 200], [0.4, 0.4], 2, HOLD),
    Case("up cap", (1, 100), (3, 3), ["cpu 10"], [100, 200, 300], [0.1] * 3, 24, ok(SL="ScaleUpLimit"),
         behavior=CAPPED),
    Case("up cap > max", (1, 20), (3, 3), ["cpu 10"], [100, 200, 300], [0.1] * 3, 20, ok(SL="TooManyReplicas"),
         behavior=CAPPED),
    Case("surge", (1, 8), (4, 5), ["cpu 50"], [500] * 5, [1.0] * 5, 4, HOLD),
    Case("selector missing", (1, 100), (3, 3), ["cpu 10"], [], ONES, 3, {"SA": "InvalidSelector"}, selector="",
         error="internal"),
    Case("selector invalid", (1, 100), (3, 3), ["cpu 10"], [], ONES, 3, {"SA": "InvalidSelector"},
         selector="cheddar cheese", error="internal"),
    Case("other selector", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 5, ok(),
         rivals={"test-hpa-2": "cheddar=cheese"}),
    Case("same selector", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 3, {"SA": "AmbiguousSelector"},
         rivals={"test-hpa-2": "name=test-pod"}, error="internal"),
    Case("overlapping selector", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 3, {"SA": "AmbiguousSelector"},
         rivals={"test-hpa-2": "name in (test-pod,other)"}, error="internal"),
    Case("overlap by the labels of one pod", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 3,
         {"SA": "AmbiguousSelector"}, rivals={"test-hpa-2": "cheddar=cheese"}, labels={"cheddar": "cheese"},
         error="internal"),
    Case("get scale fails", (1, 100), (3, 3), ["cpu 10"], [], [], 3,
         {"AS": "FailedGetScale", "SA": None, "SL": None, "Z": None}, failure="get", error="internal"),
    Case("update scale fails", (1, 5), (3, 3), ["cpu 100"], [150] * 3, [0.1] * 3, 3,
         {"AS": "FailedUpdateScale", "SA": "ValidMetricFound", "SL": "DesiredWithinRange"}, failure="put",
         error="internal"),
    Case("update conflicts once", (2, 6), (3, 3), ["cpu 50"], [600, 700, 800], ONES, 5, ok(), failure="conflict"),
    Case("recent scale does not delay", (1, 5), (3, 3), ["pods qps 15"], [20000, 10000, 30000], ONES, 4, ok(),
         status={"lastScaleTime": NOW}),
    Case("recent scale does not delay, cpu", (1, 5), (3, 3), ["pods qps 15", "cpu 10"], [20000, 10000, 30000], ONES, 5,
         ok(SL="TooManyReplicas"), status={"lastScaleTime": NOW}),
    Case("stabilise down", (1, 5), (4, 4), ["cpu 100"], [50] * 3, [0.1] * 3, 4, {"AS": "ScaleDownStabilized"},
         past=[(10, 600), (4, 60)], action="none", computed="scale_down"),
    Case("computed tolerance a", (0, 1000), (10, 10), ["cpu 56"], [150] * 10, COMPUTED, 9, ok(), past=EMPTY),
    Case("computed tolerance b", (0, 1000), (10, 10), ["cpu 55"], [150] * 10, COMPUTED, 10, HOLD, past=EMPTY),
    Case("no needless write", (2, 6), (2, 2), ["cpu 80"], [400, 500, 700], ONES, 2, ok(AS="ReadyForNewScale",
         SL="TooFewReplicas", Z=None), "st chh", past=EMPTY, action="none", computed="scale_down", written=False,
         status=CURRENT),
]  # fmt: skip


class World:
    """A scale target ``test-rc`` and its pods."""

    def __init__(self, case: Case) -> None:
        self.case, self.puts, self.written = case, 0, False
        per_container = [[level // 2, level // 2] for level in case.levels]
        count = len(case.requests) or (0 if case.name == "no pods" else case.size[1])
        requests = [round(each * 500) for each in case.requests] or [500] * count
        self.pods: list[Pod] = pods(count, requests, case.state, since_start=True)
        for pod in self.pods[:1]:
            pod.metadata.labels = {**(pod.metadata.labels or {}), **case.labels}
        self.fixture = Fixture(self.pods, levels=per_container, values=case.levels, timestamp=NOW)

    def __call__(self, action: Action) -> Any:
        case = self.case
        if isinstance(action, GetScale):
            assert (action.resource, action.name) == (case.target.split()[2], "test-rc")
            if case.failure == "get":
                return ApiError("internal error", reason="InternalError")
            status = ScaleStatus(replicas=case.size[1], selector=case.selector)
            return Scale(spec=ScaleSpec(replicas=case.size[0]), status=status)
        if isinstance(action, PutScale):
            self.puts += 1
            if case.failure == "put" or (case.failure == "conflict" and self.puts == 1):
                return ApiError("fake error", reason="Conflict" if case.failure == "conflict" else "InternalError")
            return None
        if isinstance(action, WriteStatus):
            self.written = True
            return "11"
        if isinstance(action, GetMetric) and (case.failure == "metrics" or action.metric == "failing"):
            return ApiError("something went wrong")
        assert isinstance(action, (GetMetric, List))
        return self.fixture(action)


def reconciled(case: Case) -> tuple[DryRun[ReconcileResult], World]:
    conditions = [{"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero"}] if case.zero else []
    version, kind, _ = case.target.split()
    document = {
        "metadata": {"name": "test-hpa", "namespace": "test-namespace", "uid": "u"},
        "spec": {
            "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "test-rc"},
            "minReplicas": case.bounds[0],
            "maxReplicas": case.bounds[1],
            "metrics": [metric(each) for each in case.metrics],
            **({} if case.behavior is None else {"behavior": case.behavior}),
        },
        "status": {
            "currentReplicas": case.size[0],
            "desiredReplicas": case.size[0],
            "conditions": conditions,
            **case.status,
        },
    }
    past = None
    if case.past is not None:
        past = tuple(Recommendation(value, TIME - age * SECOND) for value, age in case.past)
    store = SelectorStore()
    store.put_if_absent("test-namespace", "test-hpa")
    for name, selector in case.rivals.items():
        store.put_if_absent("test-namespace", name, selector)
    options = HPAOptions(
        horizontal_pod_autoscaler_cpu_initialization_period=timedelta(seconds=120),
        horizontal_pod_autoscaler_initial_readiness_delay=timedelta(seconds=10),
        feature_gates={"HPAScaleToZero": case.gate, **({case.off: False} if case.off else {})},
    )
    world = World(case)
    hpa = apply_defaults(from_dict(document, HorizontalPodAutoscaler))
    machine = reconcile(hpa, HPAState(recommendations=past), now=TIME, options=options, selectors=store)
    return performed(machine, world, now=TIME), world


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_one_reconcile(case: Case) -> None:
    run, world = reconciled(case)
    out = run.value
    assert out.status.desired_replicas == case.desired
    for short, reason in case.want.items():
        condition = find_condition(out.status.conditions, SHORT[short])
        assert (None if condition is None else condition.reason) == reason
    assert out.error_class == case.error
    if case.action is not None:
        assert out.action == case.action
    if case.computed is not None:
        counted = [each.labels["action"] for each in run.observations if each.name == METRIC_COMPUTATIONS]
        assert counted == [case.computed]
    rescales = [each.message for each in run.events if each.reason == "SuccessfulRescale"]
    if case.name == "event created":
        assert rescales == ["New size: 2; reason: cpu resource utilization (percentage of request) above target"]
    assert bool(rescales) == (case.desired != case.size[0])
    assert world.written == out.status_written == case.written


def test_an_ambiguous_selector_is_named_as_the_scale_writes_it() -> None:
    case = Case("overlap", (2, 6), (3, 3), ["cpu 30"], [300, 500, 700], ONES, 3, {}, error="internal",
                rivals={"test-hpa-2": "name=test-pod"}, selector="name in (test-pod,other)")  # fmt: skip
    run, _ = reconciled(case)
    text = "pods by selector name in (test-pod,other) are controlled by more than one HPA"
    assert [event.message for event in run.events if text in event.message]


def answer(action: Action) -> ApiError:
    return ApiError(str(action))


@pytest.mark.parametrize(
    ("read", "stale"),
    [("1", True), ("4", True), ("5", False), ("6", False), ("", False), ("abc", False), (None, False)],
)
def test_staleness(read: str | None, stale: bool) -> None:
    hpa = from_dict({"metadata": {"uid": "u"}, "spec": {}}, HorizontalPodAutoscaler)
    state = HPAState(written=WrittenVersion("u", "5"))
    out = performed(reconcile(hpa, state, now=TIME, seen_version=read), answer, now=TIME).value
    text = f"read version: {read} is not as new as written version: 5 for group resource "
    assert out.stale == stale
    assert (out.error == f"{text}horizontalpodautoscalers.autoscaling") == stale
    assert out.state.written == (WrittenVersion("u", "5") if stale else None)


WEB = [{"app": "web"}]


@pytest.fixture
def store() -> SelectorStore:
    """Two of namespace ``ns`` match ``app=web``, a third matches nothing."""
    store = SelectorStore()
    assert store.put_if_absent("ns", "a", "app=web")
    assert store.put_if_absent("ns", "b", "app in (web,db)")
    assert store.put_if_absent("ns", "c")
    return store


@pytest.mark.parametrize("selector", ["app=other", None])
def test_the_first_selector_stays(store: SelectorStore, selector: str | None) -> None:
    assert not store.put_if_absent("ns", "a", selector)
    assert store.matching("ns", WEB) == ["a", "b"]


@pytest.mark.parametrize(
    ("namespace", "name", "known"), [("ns", "c", True), ("ns", "unknown", False), ("other", "c", False)]
)
def test_only_a_registered_hpa_gets_a_selector(store: SelectorStore, namespace: str, name: str, known: bool) -> None:
    assert store.put_if_present(namespace, name, "app=web") == known
    assert store.matching("ns", WEB) == (["a", "b", "c"] if known else ["a", "b"])
    assert store.is_registered(namespace, name) == known
    assert store.namespaces() == ("ns",)


@pytest.mark.parametrize(("limit", "matches"), [(0, ["a", "b"]), (2, ["a", "b"]), (1, ["a"])])
def test_matches_are_limited(store: SelectorStore, limit: int, matches: list[str]) -> None:
    assert store.matching("ns", WEB, limit) == matches
    assert store.copy().matching("ns", WEB, limit) == matches


@pytest.mark.parametrize("labels", [[{"app": "web"}], [{"app": "db"}], [None], []])
def test_other_namespaces_never_match(store: SelectorStore, labels: list[dict[str, str] | None]) -> None:
    assert store.matching("other", labels) == []


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_the_last_hpa_takes_its_namespace_with_it(store: SelectorStore, order: str) -> None:
    for remaining, name in zip((2, 1, 0), order, strict=True):
        assert store.delete("ns", name)
        assert not store.delete("ns", name)
        assert store.namespaces() == (("ns",) if remaining else ())
    assert store.matching("ns", WEB) == []
