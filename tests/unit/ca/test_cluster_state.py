"""What the autoscaler believes about its groups: upstream's tables."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from builders import N0, at, group_options, node, span
from kscale import ca
from kscale.ca.cluster_state import (
    AcceptableRange,
    ClusterStateRegistry,
    GroupReadiness,
    IncorrectSize,
    ScaleDownRequest,
    ScaleUpRequest,
    get_autoscaled_nodes_count,
    get_backoff_status,
    get_upcoming_nodes,
    is_cluster_healthy,
    is_group_healthy,
    is_safe_to_scale_up,
    is_scaling_up,
    recalculate_ranges,
    register_failed_scale_up,
    register_scale_down,
    register_scale_up,
    update_nodes,
    update_nodes_steps,
)
from kscale.ca.cluster_state.state import (
    Backoff,
    ScaleUpError,
    get_active_backoff,
    record_failure,
    remove_stale_backoffs,
)
from kscale.effects import SECOND, ApiError, DecreaseTargetSize, run_dry
from kscale.objects.api.core import Node, Taint
from kscale.objects.api.meta import Condition
from kscale.objects.nodegroup import Groups, InstanceError, InstanceStatus, NodeGroup
from performing import performed

N = N0
MINUTE = 60 * SECOND


def _options(**options: Any) -> ca.AutoscalingOptions:
    return ca.AutoscalingOptions(
        **{
            "max_total_unready_percentage": 10.0,
            "ok_total_unready_count": 1,
            "max_node_provision_time": timedelta(minutes=1),
            **options,
        }
    )


def _node(name: str, *, ready: bool = True, created: float | None = None, **changes: Any) -> Node:
    created_node = node(name, 1000, 1000, ready=ready)
    if created is not None:
        created_node.metadata.creation_timestamp = at(minutes=created)
    for field, value in changes.items():
        setattr(created_node.spec, field, value)
    return created_node


def _group(name: str, target: int, *nodes: str, instances: list[str] | None = None, **more: Any) -> NodeGroup:
    names = list(nodes)
    return NodeGroup(
        id=name,
        min_size=more.pop("min_size", 1),
        max_size=10,
        target_size=target,
        nodes=[*names, *(instances or [])],
        instances=names if instances is None else instances,
        **more,
    )


def _timeout(message: str) -> ScaleUpError:
    return ScaleUpError(class_="Other", code="timeout", message=message)


# -- health and readiness --------------------------------------------------------------------------------------


def test_ok_with_scale_up() -> None:
    options = _options()
    groups = Groups([_group("g1", 5, "a"), _group("g2", 1, "b")])
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 4, N, options)
    update = update_nodes(state, [_node("a"), _node("b")], groups, now=N, options=options)
    assert is_cluster_healthy(update.state, options)
    assert update.state.failures == {}
    assert is_scaling_up(update.state, "g1")
    assert not is_scaling_up(update.state, "g2")


def test_empty_group_that_grows_and_is_taken_back() -> None:
    options = _options()
    empty = Groups([_group("g1", 0, min_size=0)])
    state = update_nodes(ClusterStateRegistry(), [], empty, now=N - span(seconds=5), options=options).state
    assert is_cluster_healthy(state, options)
    assert is_group_healthy(state, "g1", options)
    assert not is_scaling_up(state, "g1")
    grown = Groups([_group("g1", 3, min_size=0)])
    state = register_scale_up(state, grown["g1"], 3, N - span(seconds=3), options)
    state = update_nodes(state, [], grown, now=N, options=options).state
    assert is_group_healthy(state, "g1", options)
    assert is_scaling_up(state, "g1")
    state = recalculate_ranges(state, empty)
    assert not is_scaling_up(state, "g1")
    assert "g1" in state.scale_up_requests


@pytest.mark.parametrize(
    ("targets", "ready", "startup", "cluster", "first"),
    [
        ((1, 1), (True, False), 15, True, True),
        ((5, 1), (True, True), 15, True, False),
        ((1, 1), (False, False), 35, False, True),
    ],
)
def test_health(targets: tuple[int, int], ready: tuple[bool, bool], startup: int, cluster: bool, first: bool) -> None:
    options = _options(max_node_startup_time=timedelta(minutes=startup))
    groups = Groups([_group("g1", targets[0], "a"), _group("g2", targets[1], "b")])
    nodes = [_node("a", ready=ready[0]), _node("b", ready=ready[1])]
    state = update_nodes(ClusterStateRegistry(), nodes, groups, now=N, options=options).state
    assert is_cluster_healthy(state, options) is cluster
    assert is_group_healthy(state, "g1", options) is first
    assert not is_group_healthy(state, "unknown", options)


@pytest.mark.parametrize(("startup", "unready", "starting"), [(0, 1, 0), (35, 0, 1)])
def test_start_up_time(startup: int, unready: int, starting: int) -> None:
    own = group_options(max_node_startup_time=startup * 60.0)
    groups = Groups([_group("g1", 1, "a", options=own), _group("g2", 1, "b", options=own)])
    nodes = [_node("a"), _node("b", ready=False, created=-30)]
    state = update_nodes(ClusterStateRegistry(), nodes, groups, now=N, options=_options()).state
    assert (len(state.total.unready), len(state.total.not_started)) == (unready, starting)
    assert get_upcoming_nodes(state, groups, N) == {}


@pytest.mark.parametrize(
    ("ready", "tainted", "starting", "up"), [(False, True, 1, 1), (True, True, 1, 1), (True, False, 0, 2)]
)
def test_not_started(ready: bool, tainted: bool, starting: int, up: int) -> None:
    young = _node("b", ready=ready, created=-10)
    if tainted:
        young.spec.taints = [Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")]
    options = _options(max_node_startup_time=timedelta(minutes=35))
    groups = Groups([_group("g1", 1, "a"), _group("g2", 1, "b")])
    state = update_nodes(ClusterStateRegistry(), [_node("a"), young], groups, now=N, options=options).state
    assert (len(state.total.not_started), len(state.total.ready)) == (starting, up)


def test_start_up_time_leaks_to_nodes_of_no_group() -> None:
    own = group_options()
    groups = Groups([_group("g", 1, "a", options=own)])
    loose = _node("loose", ready=False, created=-1)
    first = update_nodes(ClusterStateRegistry(), [loose, _node("a")], groups, now=N, options=_options()).state
    second = update_nodes(ClusterStateRegistry(), [_node("a"), loose], groups, now=N, options=_options()).state
    assert (first.total.not_started, second.total.unready) == (["loose"], ["loose"])


def test_suspended_nodes() -> None:
    asleep = _node("b")
    asleep.status.conditions = [Condition(type="Suspended", status="True")]
    groups = Groups([_group("g1", 2, "a", "b")])
    state = update_nodes(ClusterStateRegistry(), [_node("a"), asleep], groups, now=N, options=_options()).state
    known = state.readiness["g1"]
    assert (known.registered, known.ready, known.suspended) == (["a", "b"], ["a"], ["b"])
    assert is_group_healthy(state, "g1", _options())


def test_nodes_without_machine() -> None:
    groups = Groups([_group("g1", 1, "a", "b")])
    nodes = [_node("a"), _node("b"), _node("loose")]
    answered = update_nodes(ClusterStateRegistry(), nodes, groups, now=N, has_instance={"b": False}).state
    assert answered.readiness["g1"].deleted == ["b"]
    nodes[1].spec.taints = [Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")]
    assert update_nodes(ClusterStateRegistry(), nodes, groups, now=N).state.readiness["g1"].deleted == ["b"]


def test_size_of_the_cluster() -> None:
    groups = Groups([_group("g1", 5, "a"), _group("g2", 1, "b")])
    state = update_nodes(ClusterStateRegistry(), [_node("a"), _node("b"), _node("loose")], groups, now=N).state
    assert get_autoscaled_nodes_count(state) == (2, 6)
    state = update_nodes(state, [_node("a"), _node("a"), _node("b")], groups, now=N).state
    assert get_autoscaled_nodes_count(state) == (3, 6)


# -- requests --------------------------------------------------------------------------------------------------


def test_scale_up_request_follows_added_and_removed_nodes() -> None:
    options = _options(max_node_provision_time=timedelta(seconds=10))
    group = _group("g1", 100)
    later = N + MINUTE
    state = register_scale_up(ClusterStateRegistry(), group, 100, N, options)
    requests = [state.scale_up_requests["g1"]]
    for delta in (-20, 30):
        state = register_scale_up(state, group, delta, later, options)
        requests.append(state.scale_up_requests["g1"])
    ten = 10 * SECOND
    assert requests == [
        ScaleUpRequest(increase=100, time=N, expected_add_time=N + ten),
        ScaleUpRequest(increase=80, time=N, expected_add_time=N + ten),
        ScaleUpRequest(increase=110, time=later, expected_add_time=later + ten),
    ]
    for _ in range(2):
        state = register_scale_up(state, group, -200, later, options)
        assert state.scale_up_requests == {}


def test_an_overdue_request_is_given_up() -> None:
    options = _options(max_node_provision_time=timedelta(minutes=2))
    groups = Groups([_group("g1", 5, "a")])
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 4, N - span(minutes=3), options)
    steps = update_nodes_steps(state, [_node("a")], groups, now=N, options=options)
    ran = performed(steps, lambda action: ApiError("cloud provider error"), now=N)
    update = ran.value
    assert ran.actions == [DecreaseTargetSize(group="g1", delta=-4)]
    assert update.groups["g1"].size == 5
    assert [(event.reason, event.message) for event in ran.events] == [
        ("ScaleUpTimedOut", "Nodes added to group g1 failed to register within 3m0s"),
        (
            "FailedToRevertScaleUp",
            "Failed to decrease target size for group g1 after scale-up timeout: cloud provider error",
        ),
    ]
    (failure,) = update.state.failures["g1"]
    assert (failure.delta, failure.time) == (4, N)
    assert failure.error == _timeout("Scale-up timed out for node group g1 after 3m0s")
    assert update.state.scale_up_requests == {}
    assert is_cluster_healthy(update.state, options)
    assert not is_group_healthy(update.state, "g1", options)
    assert [e.reason for e in update_nodes(state, [_node("a")], groups, now=N, options=options).events] == [
        "ScaleUpTimedOut"
    ]


def test_the_whole_request_is_taken_back_even_if_some_nodes_came() -> None:
    options = _options(max_node_provision_time=timedelta(minutes=2))
    groups = Groups([_group("g1", 5, "a", "b", "c")])
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 4, N - span(minutes=3), options)
    ran = run_dry(update_nodes_steps(state, [_node(n) for n in "abc"], groups, now=N, options=options), now=N)
    assert ran.actions == [DecreaseTargetSize(group="g1", delta=-4)]
    assert (ran.value.state.ranges["g1"].current_target, ran.value.groups["g1"].size) == (5, 1)


def test_deletions_are_expected_for_a_while() -> None:
    groups = Groups([_group("g1", 1, "a")])
    state = register_scale_down(ClusterStateRegistry(), "g1", "x", N - span(minutes=5))
    assert update_nodes(state, [], groups, now=N - MINUTE).state.ranges["g1"].max_nodes == 2
    assert update_nodes(state, [], groups, now=N).state.scale_down_requests == []


def test_failed_instances_are_registered_as_failures() -> None:
    options = _options()
    error = InstanceError(class_="OutOfResource", code="RESOURCE_POOL_EXHAUSTED", message="none left")
    broken = InstanceStatus(state="creating", error=error)
    group = _group("g1", 2, instances=["x", "y"], instance_status={"x": broken, "y": broken})
    groups = Groups([group])
    state = register_scale_up(ClusterStateRegistry(), group, 2, N, options)
    update = update_nodes(state, [], groups, now=N, options=options)
    assert [event.message for event in update.events] == [
        "Failed adding 2 nodes to group g1 due to OutOfResource.RESOURCE_POOL_EXHAUSTED; source errors: none left"
    ]
    assert update.state.scale_up_requests == {}
    assert update.state.failures["g1"][0].delta == 2
    assert get_backoff_status(update.state, "g1", N) is not None
    again = register_scale_up(update.state, group, 2, N, options)
    assert update_nodes(again, [], groups, now=N, options=options).events == []


# -- back-off --------------------------------------------------------------------------------------------------


def test_back_off_through_timeouts() -> None:
    options = _options(max_node_provision_time=timedelta(minutes=2))
    nodes = [_node(name) for name in "abc"]
    groups = Groups([_group("g1", 4, "a", "b", "c")])
    now = N
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 1, now - span(seconds=180), options)
    state = update_nodes(state, nodes, groups, now=now, options=options).state
    assert is_group_healthy(state, "g1", options)
    assert not is_safe_to_scale_up(state, "g1", now, options)
    backoff_status = get_backoff_status(state, "g1", now)
    assert backoff_status is not None
    assert backoff_status.error == _timeout("Scale-up timed out for node group g1 after 3m0s")
    now += span(minutes=5, seconds=1)
    assert is_safe_to_scale_up(state, "g1", now, options)
    state = register_scale_up(state, groups["g1"], 1, now - span(seconds=121), options)
    state = update_nodes(state, nodes, groups, now=now, options=options).state
    backoff_status = get_backoff_status(state, "g1", now)
    assert backoff_status is not None
    assert backoff_status.error.message == "Scale-up timed out for node group g1 after 2m1s"
    now += span(minutes=5, seconds=1)
    assert not is_safe_to_scale_up(state, "g1", now, options)
    state = register_scale_up(state, groups["g1"], 1, now, options)
    full = Groups([_group("g1", 4, "a", "b", "c", "d")])
    state = update_nodes(state, [*nodes, _node("d")], full, now=now, options=options).state
    assert is_group_healthy(state, "g1", options)
    assert state.scale_up_requests == {}
    assert not is_safe_to_scale_up(state, "g1", now, options)
    assert is_safe_to_scale_up(state, "g1", now, options, has_template=False)


def test_of_a_group_without_template_back_off_is_not_known() -> None:
    options = _options(max_node_provision_time=timedelta(minutes=2))
    groups = Groups([_group("g1", 4, "a", "b", "c")])
    nodes = [_node(name) for name in "abc"]
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 1, N - span(seconds=180), options)
    state = update_nodes(state, nodes, groups, now=N, options=options).state
    state = register_scale_up(state, groups["g1"], 1, N, options)
    assert get_backoff_status(state, "g1", N) is not None
    assert get_upcoming_nodes(state, groups, N) == {}
    assert get_upcoming_nodes(state, groups, N, templates={"g1"}) == {}
    assert [item.count for item in get_upcoming_nodes(state, groups, N, templates=set()).values()] == [1]


_ERROR = ScaleUpError(class_="Other", code="x", message="m")


def _fail(backoffs: dict[str, Backoff], when: datetime, initial: float, maximum: float = 180) -> dict[str, Backoff]:
    return record_failure(backoffs, "g", _ERROR, when, initial=initial * MINUTE, maximum=maximum * MINUTE)


def test_back_off_alone() -> None:
    once = _fail({}, N + MINUTE, 10)
    assert get_active_backoff(once, "g", N + 2 * MINUTE)
    assert not get_active_backoff(once, "g", N + 11 * MINUTE + span(milliseconds=1))
    assert not get_active_backoff(once, "other", N + 2 * MINUTE)
    backoffs = _fail({}, N, 1, 3)
    assert get_active_backoff(backoffs, "g", N)
    assert not get_active_backoff(backoffs, "g", N + MINUTE + span(milliseconds=1))
    backoffs = _fail(backoffs, N + MINUTE, 1, 3)
    assert get_active_backoff(backoffs, "g", N + MINUTE)
    assert not get_active_backoff(backoffs, "g", N + 3 * MINUTE)
    backoffs = _fail(backoffs, N + 3 * MINUTE, 1, 3)
    assert get_active_backoff(backoffs, "g", N + 3 * MINUTE)
    assert get_active_backoff(backoffs, "g", N + 5 * MINUTE)
    assert not get_active_backoff(backoffs, "g", N + 6 * MINUTE)
    assert _fail(backoffs, N + 20 * MINUTE, 1, 3)["g"].duration == 3 * MINUTE


def test_stale_back_offs() -> None:
    hour = 60 * MINUTE
    both = {**_fail({}, N, 1), "late": _fail({}, N + hour, 1)["g"]}
    sizes = [len(remove_stale_backoffs(both, N + hours * hour, 3 * hour)) for hours in (1, 4, 5)]
    assert sizes == [2, 1, 0]


# -- upcoming nodes --------------------------------------------------------------------------------------------


def test_upcoming_nodes() -> None:
    options = _options(max_node_provision_time=timedelta(minutes=15))
    doomed = _node("e2", taints=[Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")])
    nodes = [
        _node("a"),
        _node("b", ready=False),
        _node("c", ready=False, created=-1),
        _node("d", ready=False),
        _node("e1"),
        doomed,
    ]
    groups = Groups([
        _group("g1", 7, "a"),
        _group("g2", 2, "b"),
        _group("g3", 2, "c"),
        _group("g4", 1, "d"),
        _group("g5", 2, "e1", "e2"),
    ])  # fmt: skip
    state = ClusterStateRegistry()
    for name, delta in (("g1", 6), ("g2", 1), ("g3", 2)):
        state = register_scale_up(state, groups[name], delta, N, options)
    state = update_nodes(state, nodes, groups, now=N, options=options, has_instance={"e2": True}).state
    result = get_upcoming_nodes(state, groups, N)
    assert {name: item.count for name, item in result.items()} == {"g1": 6, "g2": 1, "g3": 2}
    assert {name: item.registered for name, item in result.items()} == {"g1": [], "g2": [], "g3": ["c"]}


def test_no_request_no_upcoming_nodes() -> None:
    groups = Groups([_group("g1", 3, "a")])
    state = update_nodes(ClusterStateRegistry(), [_node("a")], groups, now=N).state
    assert get_upcoming_nodes(state, groups, N) == {}
    state = register_scale_up(state, groups["g1"], 2, N, _options())
    assert get_upcoming_nodes(state, groups, N)["g1"].count == 2
    failed = register_failed_scale_up(state, "g1", _ERROR, 2, N, _options())
    assert get_upcoming_nodes(failed, groups, N) == {}


def test_instances_without_node() -> None:
    options = _options(max_node_provision_time=timedelta(seconds=10))
    groups = Groups([_group("g1", 2, "a", instances=["a", "b"])])
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 1, N - MINUTE, options)
    state = update_nodes(state, [_node("a")], groups, now=N - MINUTE, options=options).state
    assert list(state.unregistered) == ["b"]
    assert get_upcoming_nodes(state, groups, N - MINUTE)["g1"].count == 1
    state = update_nodes(state, [_node("a")], groups, now=N + MINUTE, options=options).state
    assert state.unregistered["b"].since == N - MINUTE
    assert state.readiness["g1"].long_unregistered == ["b"]
    assert get_upcoming_nodes(state, groups, N + MINUTE) == {}
    untold = Groups(groups, {"b": "it is late"})  # the cloud fails to tell its group
    state = update_nodes(state, [_node("a")], untold, now=N + MINUTE, options=options).state
    assert state.unregistered["b"].since == N - MINUTE
    assert (state.readiness["g1"].long_unregistered, state.readiness["g1"].unregistered) == ([], [])
    state = update_nodes(state, [_node("a"), _node("b")], groups, now=N + MINUTE, options=options).state
    assert state.unregistered == {}


def test_groups_that_are_being_created() -> None:
    groups = Groups([_group("ng", 2, upcoming=True), _group("ng2", 1)])
    state = register_scale_up(ClusterStateRegistry(), groups["ng2"], 1, N, _options())
    assert {k: v.count for k, v in get_upcoming_nodes(state, groups, N).items()} == {"ng": 2}
    state = update_nodes(state, [], groups, now=N).state
    assert {k: v.count for k, v in get_upcoming_nodes(state, groups, N).items()} == {"ng": 2, "ng2": 1}


@pytest.mark.parametrize(
    ("target", "ready", "request_size", "expected", "upcoming"),
    [
        (1, 1, 0, AcceptableRange(min_nodes=1, max_nodes=1, current_target=1), 0),
        (6, 5, 1, AcceptableRange(min_nodes=5, max_nodes=6, current_target=6), 1),
        (4, 1, 3, AcceptableRange(min_nodes=1, max_nodes=4, current_target=4), 3),
        (4, 4, 0, AcceptableRange(min_nodes=4, max_nodes=4, current_target=4), 0),
    ],
)
def test_recalculate(target: int, ready: int, request_size: int, expected: AcceptableRange, upcoming: int) -> None:
    group = _group("g", target)
    state = ClusterStateRegistry(readiness={"g": GroupReadiness(ready=[str(i) for i in range(ready)])})
    state = register_scale_up(state, group, request_size, N, _options())
    state = recalculate_ranges(state, Groups([group]))
    assert state.ranges["g"] == expected
    result = get_upcoming_nodes(state, Groups([group]), N)
    assert (result["g"].count if result else 0) == upcoming


def test_recalculate_without_answer_expects_nothing() -> None:
    group = _group("g", 4, target_size_error="down")
    assert recalculate_ranges(ClusterStateRegistry(), Groups([group])).ranges["g"] == AcceptableRange()
    with pytest.raises(ca.AutoscalerError, match="down"):
        update_nodes(ClusterStateRegistry(), [], Groups([group]), now=N)


# -- ranges and sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "deletions", "unregistered", "long", "expected"),
    [
        ((0, 0), (0, 0), (0, 0), (0, 0), ((10, 10), (20, 20))),
        ((3, 5), (0, 0), (0, 0), (0, 0), ((7, 10), (15, 20))),
        ((0, 0), (2, 3), (0, 0), (0, 0), ((10, 12), (20, 23))),
        ((0, 0), (0, 0), (2, 3), (0, 0), ((10, 10), (20, 20))),
        ((0, 0), (0, 0), (0, 0), (2, 3), ((8, 10), (17, 20))),
        ((3, 5), (2, 3), (1, 3), (2, 4), ((5, 12), (11, 23))),
    ],
)
def test_ranges(
    requests: tuple[int, int],
    deletions: tuple[int, int],
    unregistered: tuple[int, int],
    long: tuple[int, int],
    expected: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    groups = Groups([_group("g1", 10), _group("g2", 20)])
    state = ClusterStateRegistry()
    for i, name in enumerate(("g1", "g2")):
        state = register_scale_up(state, groups[name], requests[i], N, _options())
        for number in range(deletions[i]):
            state.scale_down_requests.append(
                ScaleDownRequest(group=name, node=str(number), time=N, expected_delete_time=N)
            )
        state.readiness[name] = GroupReadiness(unregistered=["u"] * unregistered[i], long_unregistered=["l"] * long[i])
    ranges = recalculate_ranges(state, groups).ranges
    assert tuple((ranges[name].min_nodes, ranges[name].max_nodes) for name in ("g1", "g2")) == expected


@pytest.mark.parametrize(
    ("registered", "waiting", "old", "expected"),
    [
        ((10, 20), (0, 0), {}, {}),
        ((10, 20), (0, 0), {"g1": (8, 10, -60), "g2": (15, 20, -60)}, {}),
        ((8, 15), (0, 0), {}, {"g1": (8, 10, 0), "g2": (15, 20, 0)}),
        ((12, 25), (0, 0), {}, {"g1": (12, 10, 0), "g2": (25, 20, 0)}),
        ((8, 15), (0, 0), {"g1": (7, 10, -60), "g2": (14, 20, -60)}, {"g1": (8, 10, 0), "g2": (15, 20, 0)}),
        ((8, 15), (0, 0), {"g1": (8, 10, -60), "g2": (15, 20, -1)}, {"g1": (8, 10, -60), "g2": (15, 20, -1)}),
        ((8, 15), (2, 3), {}, {"g2": (15, 20, 0)}),
    ],
)
def test_incorrect_sizes(
    registered: tuple[int, int],
    waiting: tuple[int, int],
    old: dict[str, tuple[int, int, int]],
    expected: dict[str, tuple[int, int, int]],
) -> None:
    def sizes(sizes_by_group: dict[str, tuple[int, int, int]]) -> dict[str, IncorrectSize]:
        return {
            name: IncorrectSize(current=current, expected=target, first_observed=N + minutes * MINUTE)
            for name, (current, target, minutes) in sizes_by_group.items()
        }

    described, nodes = [], []
    for i, (name, target) in enumerate((("g1", 10), ("g2", 20))):
        names = [f"{name}-{number}" for number in range(registered[i])]
        nodes += [_node(item) for item in names]
        described.append(_group(name, target, *names, instances=[*names, *(f"{name}-u{n}" for n in range(waiting[i]))]))
    state = ClusterStateRegistry(incorrect_sizes=sizes(old))
    state = update_nodes(state, nodes, Groups(described), now=N).state
    assert state.incorrect_sizes == sizes(expected)


def test_the_state_survives_json() -> None:
    options = _options()
    groups = Groups([_group("g1", 5, "a", instances=["a", "b"])])
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 4, N, options)
    state = register_scale_down(state, "g1", "x", N)
    state = register_failed_scale_up(state, "g1", _ERROR, 1, N, options)
    state = update_nodes(state, [_node("a")], groups, now=N, options=options).state
    assert msgspec.json.decode(msgspec.json.encode(state), type=ClusterStateRegistry) == state


def test_functions_leave_the_state_they_were_given() -> None:
    groups = Groups([_group("g1", 5, "a")])
    state = register_scale_up(ClusterStateRegistry(), groups["g1"], 4, N - span(hours=1), _options())
    before = msgspec.json.encode(state)
    update_nodes(state, [_node("a")], groups, now=N, options=_options())
    register_failed_scale_up(state, "g1", _ERROR, 1, N, _options())
    assert msgspec.json.encode(state) == before
