"""What keeps a loop from scaling up, and what gets it going all the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import N0
from kscale import ca
from kscale.ca import AutoscalingOptions, LoopState, ScaleUpState
from kscale.ca.loop_context import check_actionable
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.snapshot.cluster import Cluster
from unit.ca.scale_up.test_loop import group, machine, waiting

_MINUTE = timedelta(minutes=1)


def _state(degraded: int) -> LoopState:
    return LoopState(scale_up=ScaleUpState(degraded_loops=degraded))


def _loop(pods: int = 3, *, degraded: int = 0, **loop_fields: Any) -> Any:
    """One node of 2000m, pods of 500m."""
    flags = {key: loop_fields.pop(key) for key in list(loop_fields) if key in AutoscalingOptions.__struct_fields__}
    cluster = Cluster([machine("n1", 2000), *(waiting(f"p{i}", 500) for i in range(pods))])
    options = AutoscalingOptions(**flags)
    inputs = ca.LoopInputs(**loop_fields)
    return kscale.scale_up(cluster, [group("a")], now=N0, options=options, state=_state(degraded), inputs=inputs)


# -- graceful degradation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enabled", "timeout", "counter", "scheduled", "after", "event"),
    [
        (True, -_MINUTE, 0, 0, 1, "GracefulDegradationStarted"),
        (True, timedelta(), 1, 0, 2, None),
        (True, 4 * _MINUTE, 5, 3, 0, "GracefulDegradationStopped"),
        (True, 4 * _MINUTE, 0, 3, 0, None),
        (False, -_MINUTE, 0, 3, 0, None),
    ],
)
def test_upstreams_table(
    enabled: bool, timeout: timedelta, counter: int, scheduled: int, after: int, event: str | None
) -> None:
    plan = _loop(degraded=counter, enable_graceful_degradation=enabled, pending_pods_batching_timeout=timeout)
    assert len(plan.placed) == scheduled
    assert plan.lists.asked == 0
    assert plan.lists.out_of_time == len(plan.not_tried) == 3 - scheduled
    assert plan.state.scale_up.degraded_loops == after
    assert [item.reason for item in plan.events if "Degradation" in item.reason] == ([event] if event else [])


def test_time_for_some_pods_only() -> None:
    plan = _loop(6, enable_graceful_degradation=True, max_looks=8)
    # Every pod is looked at for its hint, then two of them again.
    assert list(plan.placed) == ["default/p0", "default/p1"]
    assert plan.not_tried == [f"default/p{i}" for i in range(2, 6)]
    assert (plan.result, plan.lists.asked) == ("ScaleUpNotNeeded", 0)
    assert LoopState.from_json(plan.state.to_json()).scale_up.degraded_loops == 1
    with pytest.raises(InputError, match="max_looks is -1"):
        _loop(1, enable_graceful_degradation=True, max_looks=-1)


def test_without_the_flag_there_is_time_for_all() -> None:
    plan = _loop(6, max_looks=0)
    assert (len(plan.placed), plan.lists.asked, plan.not_tried) == (4, 2, [])


@pytest.mark.parametrize(("counter", "result"), [(2, "ScaleUpSuccessful"), (3, "ScaleUpInCooldown")])
def test_one_degraded_loop_of_four_is_for_scale_down(counter: int, result: str) -> None:
    """Ten pods of 500m on 2000m: in time are looks at the hints of all, then at six."""
    plan = _loop(10, degraded=counter, enable_graceful_degradation=True, max_looks=16)
    assert plan.lists.out_of_time == 4
    assert (plan.result, plan.lists.asked) == (result, 2)
    assert not plan.scale_down_disabled


@pytest.mark.parametrize(
    ("enabled", "degradation", "counter", "may"),
    [
        (False, False, 0, False),
        (False, True, 0, False),
        (True, False, 0, True),
        (True, False, 5, True),
        (True, True, 0, True),
        (True, True, 5, False),
        (True, True, 8, True),
    ],
)
def test_when_scale_down_may_run(enabled: bool, degradation: bool, counter: int, may: bool) -> None:
    options = AutoscalingOptions(scale_down_enabled=enabled, enable_graceful_degradation=degradation)
    assert ca.can_scale_down(counter, options) is may


# -- more pods may be on their way -------------------------------------------------------------------------------------


def test_new_pods_keep_nodes_from_going() -> None:
    cluster = Cluster([machine("n1", 100), waiting("p", 500, age=1)])
    plan = kscale.scale_up(cluster, [group("a")], now=N0)
    assert (plan.result, plan.scale_down_disabled) == ("ScaleUpInCooldown", True)
    assert plan.record().scale_down_disabled


# -- enforcers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["autoscaling.x-k8s.io", "cluster-autoscaler.kubernetes.io"])
def test_pods_that_consume_a_provisioning_request_open_the_gate(key: str) -> None:
    annotations = {f"{key}/consume-provisioning-request": "mine"}
    for pod_annotations, result in ((annotations, "ScaleUpSuccessful"), (None, "ScaleUpInCooldown")):
        cluster = Cluster([machine("n1", 100), waiting("p", 500, age=1, annotations=pod_annotations)])
        inputs = ca.LoopInputs(enforcer=ca.has_provisioning_request_consumer)
        plan = kscale.scale_up(cluster, [group("a")], now=N0, inputs=inputs)
        assert (plan.result, plan.scale_down_disabled) == (result, True)


def test_limit_overruled_by_an_enforcer_is_still_reported() -> None:
    plan = _loop(9, max_nodes_total=1, enforcer=lambda pods: len(pods) == 5)
    # The estimator keeps to the limit all the same.
    assert plan.result == "ScaleUpNoOptionsAvailable"
    assert plan.events[0].reason == "MaxNodesTotalReached"


def test_a_loop_for_scale_down_is_not_overruled() -> None:
    plan = _loop(10, degraded=3, enable_graceful_degradation=True, max_looks=16, enforcer=lambda pods: True)
    assert plan.result == "ScaleUpInCooldown"


# -- clusters without nodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "ready", "from_zero", "age", "message", "has_event"),
    [
        (0, 0, True, None, None, False),
        (0, 0, False, None, "Cluster has no nodes.", True),
        (0, 0, False, _MINUTE, "Cluster has no nodes.", True),
        (2, 0, False, None, "Cluster has no ready nodes.", True),
        (2, 0, False, 10 * _MINUTE, "Cluster has no ready nodes.", False),
        (2, 0, False, 11 * _MINUTE, "Cluster has no ready nodes.", True),
        (2, 1, False, _MINUTE, None, False),
    ],
)
def test_scale_up_from_zero(
    nodes: int, ready: int, from_zero: bool, age: timedelta | None, message: str | None, has_event: bool
) -> None:
    result = check_actionable(nodes, ready, AutoscalingOptions(scale_up_from_zero=from_zero), age)
    assert (None if result is None else result.message) == message
    assert (result is not None and result.has_event) is has_event


def _unready(name: str) -> Node:
    created = machine(name)
    (condition,) = created.status.conditions
    return replace(created, status=replace(created.status, conditions=[replace(condition, status="False")]))


def test_a_loop_without_ready_nodes_does_nothing() -> None:
    options = AutoscalingOptions(scale_up_from_zero=False)
    cluster = Cluster([_unready("n1"), waiting("p", 500)])
    young, old = (ca.LoopInputs(process_age=minutes * _MINUTE) for minutes in (1, 11))
    plan = kscale.scale_up(cluster, [group("a")], now=N0, options=options, inputs=young)
    assert (plan.result, plan.events, plan.warnings) == ("ScaleUpNotTried", [], ["Cluster has no ready nodes."])
    later = kscale.scale_up(cluster, [group("a")], now=N0, options=options, inputs=old)
    assert [event.message for event in later.events] == ["Cluster has no ready nodes."]
    cluster.apply(machine("n2"))
    assert kscale.scale_up(cluster, [group("a")], now=N0, options=options).result == "ScaleUpNotNeeded"


def test_stopping_reason_is_a_readable_message() -> None:
    limited = _loop(9, max_nodes_total=1)
    assert limited.result == "ScaleUpLimitedByMaxNodesTotal"
    (stays,) = limited.remain_unschedulable
    assert (len(stays.pods), stays.why) == (5, "max total nodes in cluster reached")
    reserved = _loop(10, degraded=3, enable_graceful_degradation=True, max_looks=16)
    assert [each.why for each in reserved.remain_unschedulable] == [
        "this loop does not scale up: the pods are too new, or it is reserved for scale-down"
    ]
