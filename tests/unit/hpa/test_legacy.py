"""The legacy profile: the controller of Kubernetes 1.18 to 1.20, one test a difference."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kscale.drivers import HorizontalController
from kscale.effects import SECOND, Action, ApiError, DryRun, GetMetric, GetScale, List, PutScale, WriteStatus, from_text
from kscale.errors import InputError
from kscale.hpa import HPAOptions, HPAState, ReconcileResult, SelectorStore, apply_defaults, from_v1, reconcile, to_v1
from kscale.hpa.controller.metric_proposals import get_tolerances
from kscale.hpa.controller.replica_calculator import Tolerances, get_pod_requests
from kscale.objects.api.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerV1,
    Scale,
    ScaleSpec,
    ScaleStatus,
)
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import ExternalMetricValue, ExternalMetricValueList
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from performing import performed
from unit.hpa.support import NOW, SELECTOR, Fixture, pods

TIME = from_text(NOW)
PERIODS: dict[str, Any] = {
    "horizontal_pod_autoscaler_cpu_initialization_period": timedelta(seconds=120),
    "horizontal_pod_autoscaler_initial_readiness_delay": timedelta(seconds=10),
}
LEGACY = HPAOptions(profile="legacy", **PERIODS)
CURRENT = HPAOptions(**PERIODS)
V1_19 = HPAOptions(profile="legacy-1.19", **PERIODS)
V1_18 = HPAOptions(profile="legacy-1.18", **PERIODS)
ALL = pytest.mark.parametrize("options", [CURRENT, LEGACY, V1_19, V1_18], ids=["current", "1.20", "1.19", "1.18"])
BOTH = pytest.mark.parametrize("options", [CURRENT, LEGACY], ids=["current", "legacy"])
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100}}}
BOGUS = {"type": "CheddarCheese"}


def external(name: str, value: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": value}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def cpu(percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def raw(amount: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": amount}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def autoscaler(*metrics: dict[str, Any], minimum: int = 1, **more: Any) -> HorizontalPodAutoscaler:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "test-rc"},
        "minReplicas": minimum,
        "maxReplicas": 100,
        "metrics": list(metrics),
    }
    document = {"metadata": {"name": "test-hpa", "namespace": "test-namespace", "uid": "u"}, "spec": spec, **more}
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))


class World:
    """A target of some size, its pods, their usage, and external metrics."""

    def __init__(
        self,
        size: int,
        listed: list[Pod],
        usage: list[int] = [],  # noqa: B006  # only read
        *,
        values: dict[str, str] = {},  # noqa: B006  # only read
        conflicts: int = 0,
    ) -> None:
        self.size, self.values, self.conflicts = size, values, conflicts
        self.fixture = Fixture(listed, levels=[[each // 2, each // 2] for each in usage], timestamp=NOW)

    def __call__(self, action: Action) -> Any:
        if isinstance(action, GetScale):
            return Scale(spec=ScaleSpec(replicas=self.size), status=ScaleStatus(replicas=self.size, selector=SELECTOR))
        if isinstance(action, PutScale):
            self.conflicts -= 1
            return ApiError("changed", reason="Conflict") if self.conflicts >= 0 else None
        if isinstance(action, GetMetric) and action.api == "external":
            if action.metric not in self.values:
                return ApiError("no such metric")
            return ExternalMetricValueList(items=[ExternalMetricValue(value=Quantity(self.values[action.metric]))])
        return None if isinstance(action, WriteStatus) else self.fixture(action)


def run(
    hpa: HorizontalPodAutoscaler | HorizontalPodAutoscalerV1,
    world: World,
    options: HPAOptions,
    store: SelectorStore | None = None,
) -> DryRun[ReconcileResult]:
    state = HPAState(recommendations=())
    return performed(reconcile(hpa, state, now=TIME, options=options, selectors=store), world, now=TIME)


def reason(done: DryRun[ReconcileResult], type_: str) -> str:
    return next((each.reason for each in done.value.status.conditions or () if each.type == type_), "")


# -- workers, first run ------------------------------------------------------------------------------------------------


@BOTH
def test_one_worker_and_a_new_hpa_waits_a_period(options: HPAOptions) -> None:
    controller = HorizontalController(options)
    names = [f"web-{i}" for i in range(3)]
    for name in names:
        controller.added(
            from_dict({"metadata": {"namespace": "shop", "name": name}}, HorizontalPodAutoscaler), now=TIME
        )
    keys = [f"shop/{name}" for name in names]
    if options.legacy:
        assert controller.take(TIME) is None
        assert controller.next_due() == TIME + 15 * SECOND
        assert controller.take(TIME + 15 * SECOND) == keys[0]
        assert controller.take(TIME + 15 * SECOND) is None  # its one worker is busy
    else:
        assert [controller.take(TIME) for _ in names] == keys


@BOTH
def test_another_spec_waits_a_period_too(options: HPAOptions) -> None:
    controller = HorizontalController(options)
    old, new = (
        from_dict({"metadata": {"namespace": "shop", "name": "web", "generation": n}}, HorizontalPodAutoscaler)
        for n in (1, 2)
    )
    controller.updated(old, new, now=TIME)
    assert controller.take(TIME) == (None if options.legacy else "shop/web")


# -- tolerance ---------------------------------------------------------------------------------------------------------


@BOTH
def test_a_tenth_more_is_outside_by_its_distance_from_one(options: HPAOptions) -> None:
    done = run(autoscaler(CPU), World(10, pods(10, [500] * 10), [1100] * 10), options)
    assert done.value.desired_replicas == (11 if options.legacy else 10)


@BOTH
def test_tolerances_by_direction_do_not_count(options: HPAOptions) -> None:
    behavior = {"scaleUp": {"tolerance": "0.5"}, "scaleDown": {"tolerance": "0.2"}}
    document = from_dict({"spec": {"maxReplicas": 1, "behavior": behavior}}, HorizontalPodAutoscaler)
    result = get_tolerances(document, options)
    assert result == (Tolerances(0.1, 0.1, by_distance=True) if options.legacy else Tolerances(0.2, 0.5))
    assert Tolerances(0.1, 0.1, by_distance=True).contains(1.1) is False
    assert Tolerances(0.1, 0.1).contains(1.1) is True


# -- metrics that fail -------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("failing", [BOGUS, external("gone", "1")], ids=["invalid", "failing"])
def test_some_failing_metrics_do_not_forbid_scaling_down(options: HPAOptions, failing: dict[str, Any]) -> None:
    world = World(5, pods(5, [500] * 5), [500] * 5)
    done = run(autoscaler(CPU, failing), world, options)
    assert done.events[0].type == "Warning"
    if options.legacy:
        assert (done.value.desired_replicas, done.value.error, done.value.error_class) == (3, None, "none")
        assert reason(done, "ScalingActive") == "ValidMetricFound"
    else:
        assert done.value.desired_replicas is None
        assert done.value.error is not None
        assert reason(done, "ScalingActive") in ("InvalidMetricSourceType", "FailedGetExternalMetric")


@BOTH
def test_scaling_up_beside_a_failing_metric_is_no_error(options: HPAOptions) -> None:
    done = run(autoscaler(CPU, BOGUS), World(3, pods(3, [500] * 3), [2000] * 3), options)
    assert done.value.desired_replicas == 6
    assert (done.value.error is None) == options.legacy
    assert done.value.error_class == ("none" if options.legacy else "spec")


@BOTH
def test_no_metric_at_all_is_an_error_of_its_own(options: HPAOptions) -> None:
    """What upstream signalled by 0 replicas then, and by -1 now: nothing is decided."""
    done = run(autoscaler(BOGUS, external("gone", "1")), World(3, pods(3, [500] * 3)), options)
    assert (done.value.desired_replicas, done.value.proposal, done.value.scale_written) == (None, None, None)
    assert done.value.error is not None
    assert "invalid metrics (2 invalid out of 2)" in done.value.error
    assert done.events[-1].reason == "FailedComputeMetricsReplicas"


# -- pods that do not count --------------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("state", ["ph RRF", "ph RRR,del 001"])
def test_failed_and_deleting_pods_are_never_filled_in(options: HPAOptions, state: str) -> None:
    """Two pods at twice their target make four, whatever a third pod that ends would have used."""
    done = run(autoscaler(cpu(50)), World(2, pods(3, [500] * 3, state), [1000, 1000]), options)
    assert done.value.desired_replicas == 4
    (metric,) = done.value.metrics
    assert metric.replicas is not None
    assert metric.replicas.path == ()


@ALL
@pytest.mark.parametrize("state", ["ph RRF", "ph RRR,del 001"])
@pytest.mark.parametrize("of_requests", [True, False])
def test_samples_of_failed_and_deleting_pods_stay_in_the_sum_of_older_calculators(
    options: HPAOptions, state: str, of_requests: bool
) -> None:
    """Of the third pod, which uses nothing, a sample is left: 67 % of 50 % (1.32) of two pods instead of 2 of two."""
    metric = cpu(50) if of_requests else raw("500m")
    done = run(autoscaler(metric), World(2, pods(3, [500] * 3, state), [1000, 1000, 0]), options)
    assert done.value.desired_replicas == (3 if options in (V1_19, V1_18) else 4)


@ALL
def test_a_sample_of_a_failed_pod_alone_is_enough_for_older_calculators(options: HPAOptions) -> None:
    done = run(autoscaler(cpu(100)), World(1, pods(1, [500], "ph F"), [1000]), options)
    assert done.value.desired_replicas == (1 if options in (V1_19, V1_18) else None)


@ALL
def test_pods_that_are_pending_or_unready_have_a_group_of_their_own(options: HPAOptions) -> None:
    done = run(autoscaler(CPU), World(3, pods(3, [500] * 3, "ph RRP,rdy TFT"), [900, 900]), options)
    (metric,) = done.value.metrics
    assert metric.replicas is not None
    groups = {name: list(names) for name, names in metric.replicas.groups.items() if names}
    set_aside = ["test-pod-1", "test-pod-2"]
    assert groups == {"ready": ["test-pod-0"], "unready": set_aside}


@BOTH
def test_missing_pods_at_the_target_are_filled_with_nothing(options: HPAOptions) -> None:
    """An average exactly at its target: then the missing pod pulled it below."""
    done = run(autoscaler(raw("1000m")), World(2, pods(2, [500] * 2), [1000]), options)
    (metric,) = done.value.metrics
    assert metric.replicas is not None
    assert metric.replicas.second_ratio == (0.5 if options.legacy else 1.0)
    assert done.value.desired_replicas == (1 if options.legacy else 2)


@BOTH
def test_missing_pods_use_their_request_at_most(options: HPAOptions) -> None:
    done = run(autoscaler(cpu(300)), World(4, pods(4, [500] * 4), [1000] * 3), options)
    (metric,) = done.value.metrics
    assert metric.replicas is not None
    # 3 pods of 100 %, and the fourth of 100 % then, of the target's 300 % now.
    assert metric.replicas.second_ratio == (100 / 300 if options.legacy else 150 / 300)
    assert done.value.desired_replicas == 2


@ALL
@pytest.mark.parametrize("metric", [CPU, raw("1")], ids=["utilization", "usage"])
def test_more_pods_than_replicas_may_turn_the_direction(options: HPAOptions, metric: dict[str, Any]) -> None:
    """A rollout: five pods for two replicas, of which one is not measured: 44 % of five are three.

    Today the size is held; from 1.19.0 on it was held for utilization, before for nothing.
    """
    is_held = options is CURRENT or (metric is CPU and options is not V1_18)
    done = run(autoscaler(metric), World(2, pods(5, [500] * 5), [300] * 4), options)
    assert done.value.proposal == (2 if is_held else 3)
    (result,) = done.value.metrics
    assert result.replicas is not None
    assert ("hold_count_direction" in result.replicas.path) == is_held


@BOTH
def test_event_without_counted_samples_has_the_upstream_message(options: HPAOptions) -> None:
    done = run(autoscaler(CPU), World(1, pods(1, [500], "ph P"), [500]), options)
    text = "for any ready pods" if options.legacy else "for targeted pods (pods might be unready)"
    assert done.events[0].message == f"failed to get cpu utilization: did not receive metrics {text}"


# -- requests ----------------------------------------------------------------------------------------------------------


CONTAINERS = HPAOptions(profile="legacy", feature_gates={"HPAContainerMetrics": True}, **PERIODS)


@pytest.mark.parametrize("options", [CURRENT, LEGACY, V1_19, V1_18, CONTAINERS])
def test_metrics_of_one_container_are_known_from_1_20_on_behind_a_gate(options: HPAOptions) -> None:
    source = {"name": "cpu", "container": "container1", "target": {"type": "Utilization", "averageUtilization": 100}}
    metric = {"type": "ContainerResource", "containerResource": source}
    done = run(autoscaler(metric), World(2, pods(2, [500] * 2), [2000] * 2), options)
    known = options in (CURRENT, CONTAINERS)
    assert done.value.desired_replicas == (4 if known else None)
    if not known:
        assert (done.events[0].reason, done.value.error_class) == ("InvalidMetricSourceType", "spec")
        assert done.events[0].message == 'unknown metric source type "ContainerResource"'


@BOTH
def test_sidecars_and_requests_of_the_whole_pod_do_not_count(options: HPAOptions) -> None:
    main = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    spec = {"containers": [main], "initContainers": [sidecar]}
    with_pod_requests = {**spec, "resources": {"requests": {"cpu": "4"}}}
    listed = [
        from_dict({"metadata": {"name": f"p{i}"}, "spec": each}, Pod)
        for i, each in enumerate((spec, with_pod_requests))
    ]
    result, bad, _ = get_pod_requests(listed, "", "cpu", options=options)
    assert (result.tolist(), bad) == ([1000, 1000] if options.legacy else [1500, 4000], -1)


# -- company -----------------------------------------------------------------------------------------------------------


@BOTH
def test_hpas_that_overlap_fight_each_other(options: HPAOptions) -> None:
    store = SelectorStore()
    store.put_if_absent("test-namespace", "test-hpa")
    store.put_if_absent("test-namespace", "rival", SELECTOR)
    done = run(autoscaler(CPU), World(3, pods(3, [500] * 3), [2000] * 3), options, store)
    assert done.value.desired_replicas == (6 if options.legacy else None)
    assert reason(done, "ScalingActive") == ("ValidMetricFound" if options.legacy else "AmbiguousSelector")
    if options.legacy:  # nobody asks for pods but the calculator
        assert sum(isinstance(each, List) for each in done.actions) == 1


@BOTH
def test_a_conflict_waits_for_the_next_period(options: HPAOptions) -> None:
    done = run(autoscaler(CPU), World(3, pods(3, [500] * 3), [2000] * 3, conflicts=1), options)
    puts = sum(isinstance(each, PutScale) for each in done.actions)
    gets = sum(isinstance(each, GetScale) for each in done.actions)
    assert (puts, gets) == ((1, 1) if options.legacy else (2, 2))
    assert done.value.scale_written == (None if options.legacy else 6)
    if options.legacy:
        assert reason(done, "AbleToScale") == "FailedUpdateScale"


# -- zero --------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("minimum", [0, 1])
def test_a_target_at_zero_is_left_alone_unless_the_minimum_is_zero(options: HPAOptions, minimum: int) -> None:
    world = World(0, [], values={"jobs": "100"})
    done = run(autoscaler(external("jobs", "30"), minimum=minimum), world, options)
    works = options.legacy and minimum == 0
    assert done.value.desired_replicas == (4 if works else 0)
    assert reason(done, "ScalingActive") == ("ValidMetricFound" if works else "ScalingDisabled")


@BOTH
def test_the_condition_of_zero_is_not_known(options: HPAOptions) -> None:
    condition = {"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero"}
    hpa = autoscaler(external("jobs", "30"), status={"conditions": [condition]})
    done = run(hpa, World(3, [], values={"jobs": "300"}), options)
    assert done.value.desired_replicas == 6
    assert reason(done, "ScaledToZero") == ("ScaledToZero" if options.legacy else "NotScaledToZero")


# -- version of the objects ------------------------------------------------------------------------------------------


@BOTH
def test_status_is_written_as_v1_with_its_annotations(options: HPAOptions) -> None:
    old = to_v1(autoscaler(cpu(50), external("jobs", "30")))
    done = run(old, World(3, pods(3, [500] * 3), [1000] * 3, values={"jobs": "300"}), options)
    assert done.value.desired_replicas == 6
    wrote = next(each.object for each in done.actions if isinstance(each, WriteStatus))
    if options.legacy:
        assert isinstance(wrote, HorizontalPodAutoscalerV1)
        assert wrote.status.current_cpu_utilization_percentage == 100
        conditions = (wrote.metadata.annotations or {})["autoscaling.alpha.kubernetes.io/conditions"]
        assert '"reason":"SucceededRescale"' in conditions
        assert from_v1(wrote).status.conditions == done.value.status.conditions
    else:
        assert isinstance(wrote, HorizontalPodAutoscaler)


# -- the profile as an option ----------------------------------------------------------------------------------------


def test_unknown_profiles_and_gates_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"unknown profile 'old'; there are current, legacy, legacy-1\.19, legacy-1\.18"
    ):
        HPAOptions(profile="old")
    with pytest.raises(InputError, match="unrecognized feature gate: HPAGeneration"):
        HPAOptions(profile="legacy", feature_gates={"HPAGeneration": True})
    assert HPAOptions(profile="legacy", feature_gates={"HPAScaleToZero": True}).gates["HPAScaleToZero"]
    assert not LEGACY.gates["HPAScaleToZero"]
