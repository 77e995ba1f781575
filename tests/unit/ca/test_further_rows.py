"""Rows of upstream's tables (``clusterstate_test.go`` and others) that the tests by subject do not have."""

from __future__ import annotations

from datetime import timedelta

import pytest

from builders import N0, at, node, owner, pod, span
from kscale import ca
from kscale.ca.cluster_state import (
    ClusterStateRegistry,
    build_cluster_status,
    clear_scale_up_failures,
    get_autoscaled_nodes_count,
    get_scale_up_time,
    get_upcoming_nodes,
    is_safe_to_scale_up,
    recalculate_ranges,
    register_failed_scale_up,
    register_scale_up,
    update_nodes,
    update_scale_down_candidates,
)
from kscale.ca.cluster_state.state import ScaleUpError, get_active_backoff, record_failure
from kscale.ca.nodes import is_suspended
from kscale.ca.pod_lists import build_missing_pods, filter_out_young_pods
from kscale.effects import SECOND
from kscale.objects.api.apps import Job, JobSpec, ReplicaSet, ReplicaSetSpec, StatefulSet, StatefulSetSpec
from kscale.objects.api.core import Node, Pod, PodStatus
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.pod_owners import SCALE_UP_DELAY

MINUTE = 60 * SECOND
LOST = ScaleUpError(class_="Other", code="timeout", message="late")
REFUSED = ScaleUpError(class_="Other", code="apiCallError", message="no")
OPTIONS = ca.AutoscalingOptions(max_total_unready_percentage=10.0, ok_total_unready_count=1)


def machine(name: str, *, ready: bool = True) -> Node:
    return node(name, 1000, 1000, ready=ready)


def group(name: str, target: int, nodes: str = "", **more: object) -> NodeGroup:
    return NodeGroup(id=name, min_size=1, max_size=40, target_size=target, nodes=nodes.split(), **more)


# -- health and readiness ----------------------------------------------------------------------------------------------


def test_a_node_of_no_group_and_sizes_of_groups_that_come() -> None:
    groups = Groups([group("g1", 5, "a"), group("g2", 1, "b")])
    nodes = [machine("a"), machine("b"), machine("loose")]
    state = update_nodes(ClusterStateRegistry(), nodes, groups, now=N0, options=OPTIONS).state
    assert get_autoscaled_nodes_count(state) == (2, 6)
    state = update_nodes(state, [machine("a"), machine("a"), machine("b")], groups, now=N0, options=OPTIONS).state
    state = recalculate_ranges(state, Groups([*groups, group("g3", 1)]))
    assert get_autoscaled_nodes_count(state) == (3, 7)
    state = recalculate_ranges(state, Groups([group(name, 10) for name in ("g1", "g2", "g3")]))
    assert get_autoscaled_nodes_count(state) == (3, 30)


def test_which_groups_are_known() -> None:
    state = recalculate_ranges(ClusterStateRegistry(), Groups([group("known", 1)]))
    assert ["known" in state.ranges, "unknown" in state.ranges] == [True, False]


def test_a_candidate_shows_in_its_group_and_the_cluster() -> None:
    groups = Groups([group("g1", 1, "a"), group("g2", 1, "b")])
    nodes = [machine("a"), machine("b", ready=False)]
    state = update_nodes(ClusterStateRegistry(), nodes, groups, now=N0, options=OPTIONS).state
    state = update_scale_down_candidates(state, ["a"], groups, N0)
    status = build_cluster_status(state, groups, now=N0, options=OPTIONS)
    assert (status.cluster_wide.health.status, status.cluster_wide.scale_down.status) == (
        "Healthy",
        "CandidatesPresent",
    )
    first, second = status.node_groups
    assert (first.scale_down.status, second.scale_down.status) == ("CandidatesPresent", "NoCandidates")
    assert second.health.status == "Healthy"


@pytest.mark.parametrize(
    ("conditions", "suspended"),
    [([("Suspended", "True")], True), ([("Suspended", "False")], False), ([("Ready", "True")], False), ([], False)],
)
def test_which_nodes_are_suspended(conditions: list[tuple[str, str]], suspended: bool) -> None:
    one = machine("n")
    one.status.conditions = [Condition(type=kind, status=status) for kind, status in conditions]
    assert is_suspended(one) is suspended


def test_suspended_nodes_are_neither_coming_nor_missing() -> None:
    asleep = machine("b")
    asleep.status.conditions = [Condition(type="Suspended", status="True")]
    groups = Groups([group("g1", 2, "a b")])
    state = update_nodes(ClusterStateRegistry(), [machine("a"), asleep], groups, now=N0, options=OPTIONS).state
    assert get_upcoming_nodes(state, groups, N0) == {}
    status = build_cluster_status(state, groups, now=N0, options=OPTIONS)
    assert status.cluster_wide.health.node_counts.registered.suspended == 1


def test_nodes_that_the_cloud_has_deleted_stay_so_until_their_object_goes() -> None:
    state, deleted = ClusterStateRegistry(), {"ng1-2": False}
    for name in ("ng1-2", "ng1-3"):
        groups = Groups([group("ng1", 1, f"ng1-1 {name}")])
        deleted = {name: False}
        for minute in range(3):
            nodes = [machine("ng1-1"), machine(name), machine("loose")]
            now = N0 + minute * MINUTE
            state = update_nodes(state, nodes, groups, now=now, options=OPTIONS, has_instance=deleted).state
            assert state.readiness["ng1"].deleted == [name]
        state = update_nodes(state, [machine("ng1-1")], Groups([group("ng1", 1, "ng1-1")]), now=N0 + 9 * MINUTE).state
        assert state.readiness["ng1"].deleted == []


# -- requests ----------------------------------------------------------------------------------------------------------


def test_scale_up_time_is_recorded_per_group() -> None:
    requested = group("g1", 5)
    state = register_scale_up(ClusterStateRegistry(), requested, 4, N0, OPTIONS)
    assert get_scale_up_time(state, requested) == N0
    message = "failed to find scaleUpRequest for node group"
    with pytest.raises(ca.AutoscalerError, match=f"{message}: unexpected node group passed"):
        get_scale_up_time(state, None)
    with pytest.raises(ca.AutoscalerError, match=message):
        get_scale_up_time(state, group("g2", 1))


def test_failures_are_recorded_per_group_until_the_next_loop() -> None:
    state = ClusterStateRegistry()
    for name, delta, error, later in (("g1", 3, LOST, 0), ("g2", 2, LOST, 0), ("g1", 1, REFUSED, MINUTE)):
        state = register_failed_scale_up(state, name, error, delta, N0 + later, OPTIONS)
    failures = {
        name: [(each.error.code, each.delta, each.time - N0) for each in result]
        for name, result in state.failures.items()
    }
    assert failures == {"g1": [("timeout", 3, 0), ("apiCallError", 1, MINUTE)], "g2": [("timeout", 2, 0)]}
    assert clear_scale_up_failures(state).failures == {}


def test_failure_during_backoff_keeps_its_duration() -> None:
    first = record_failure({}, "g", LOST, N0, initial=5 * MINUTE, maximum=30 * MINUTE)
    again = record_failure(first, "g", REFUSED, N0 + 2 * MINUTE, initial=5 * MINUTE, maximum=30 * MINUTE)
    assert (again["g"].error, again["g"].duration) == (REFUSED, 5 * MINUTE)
    assert [bool(get_active_backoff(again, "g", N0 + minutes * MINUTE)) for minutes in (6, 8)] == [True, False]


# -- upcoming nodes ----------------------------------------------------------------------------------------------------


def counts(state: ClusterStateRegistry, groups: Groups) -> dict[str, int]:
    return {name: item.count for name, item in get_upcoming_nodes(state, groups, N0).items()}


@pytest.mark.parametrize(
    ("upcoming", "targets", "requested", "updated", "want"),
    [
        ("ng", {"ng": 2}, {}, False, {"ng": 2}),
        ("ng ng2", {"ng": 2, "ng2": 3}, {}, False, {"ng": 2, "ng2": 3}),
        ("", {"ng": 2}, {"ng": 2}, True, {"ng": 2}),
        ("ng", {"ng": 2, "ng2": 1}, {"ng2": 1}, True, {"ng": 2, "ng2": 1}),
        ("ng", {"ng": 2, "ng2": 1}, {}, False, {"ng": 2}),
    ],
)
def test_upcoming_groups_count_their_requested_nodes(
    upcoming: str, targets: dict[str, int], requested: dict[str, int], updated: bool, want: dict[str, int]
) -> None:
    groups = Groups([group(name, size, upcoming=name in upcoming.split()) for name, size in targets.items()])
    state = ClusterStateRegistry()
    for name, delta in requested.items():
        state = register_scale_up(state, groups[name], delta, N0, OPTIONS)
    if updated:
        state = update_nodes(state, [], groups, now=N0, options=OPTIONS).state
    assert counts(state, groups) == want


def test_a_new_request_after_a_timeout_brings_nothing_while_the_group_is_backed_off() -> None:
    groups = Groups([group("g", 3, "a")])
    options = ca.AutoscalingOptions(max_node_provision_time=timedelta(minutes=1))
    state = register_scale_up(ClusterStateRegistry(), groups["g"], 2, N0 - 2 * MINUTE, options)
    state = update_nodes(state, [machine("a")], groups, now=N0, options=options).state
    assert not is_safe_to_scale_up(state, "g", N0, options)
    state = register_scale_up(state, groups["g"], 2, N0, options)
    assert counts(state, groups) == {}


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("long", "young"), [((2, 3), (0, 0)), ((1, 1), (1, 2)), ((1, 2), (1, 1))])
def test_machines_without_a_node_explain_a_size(long: tuple[int, int], young: tuple[int, int]) -> None:
    """Of g2 they are too few to."""
    nodes, described, names = [], [], {}
    for i, (name, target, there) in enumerate((("g1", 10, 8), ("g2", 20, 15))):
        names[name] = [f"{name}-{number}" for number in range(there)]
        old, new = ([f"{name}-{kind}{n}" for n in range(each[i])] for kind, each in (("old", long), ("new", young)))
        nodes += [machine(each) for each in names[name]]
        described.append((name, target, old, new))

    def look(state: ClusterStateRegistry, now: int, *, all_of_them: bool) -> ClusterStateRegistry:
        groups = Groups([])
        for name, target, old, new in described:
            members = [*names[name], *old, *(new if all_of_them else [])]
            groups = Groups([*groups, group(name, target, " ".join(members), instances=members)])
        return update_nodes(state, nodes, groups, now=now, options=OPTIONS).state

    state = look(ClusterStateRegistry(), N0 - 60 * MINUTE, all_of_them=False)
    state = look(state, N0, all_of_them=True)
    assert [len(state.readiness[name].long_unregistered) for name in ("g1", "g2")] == [*long]
    assert list(state.incorrect_sizes) == ["g2"]
    result = state.incorrect_sizes["g2"]
    assert (result.current, result.expected) == (15, 20)


def test_a_wrong_size_keeps_its_time_until_it_changes() -> None:
    groups = Groups([group("g1", 5, "a")])
    state = ClusterStateRegistry()
    wrong_sizes = []
    for minutes, nodes in ((-5, "a"), (-4, "a"), (-3, "aa")):
        now = N0 + minutes * MINUTE
        state = update_nodes(state, [machine(each) for each in nodes], groups, now=now, options=OPTIONS).state
        result = state.incorrect_sizes["g1"]
        wrong_sizes.append((result.current, result.expected, (result.first_observed - N0) // MINUTE))
    assert wrong_sizes == [(1, 5, -5), (1, 5, -5), (2, 5, -3)]


# -- pods --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "later", "pod_names", "remaining", "message"),
    [
        (0, 0, "p1 p2", "p1", ""),
        (0, 5, "p1 p2", "p1 p2", ""),
        (5, 0, "p1 p2", "", ""),
        (5, 2, "p1 p3", "", "Failed to set pod scale up delay for"),
        (0, 0, "p1 p4", "p1 p4", "Failed to parse pod"),
    ],
)
def test_young_pods(delay: int, later: int, pod_names: str, remaining: str, message: str) -> None:
    own = {"p2": "5m", "p3": "2m", "p4": "error"}
    pods = [
        pod(name, creation_timestamp=at(minutes=-1), annotations={SCALE_UP_DELAY: own[name]} if name in own else None)
        for name in pod_names.split()
    ]
    result = filter_out_young_pods(pods, N0 + later * MINUTE, span(minutes=delay))
    assert [each.name for each in result.pods] == remaining.split()
    assert all(message in warning for warning in result.warnings)
    assert bool(result.warnings) is bool(message)


def meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default", uid=name)


def stateful_set(policy: str) -> StatefulSet:
    return StatefulSet(metadata=meta("s"), spec=StatefulSetSpec(replicas=10, pod_management_policy=policy))


@pytest.mark.parametrize(
    ("kind", "controller", "gated", "want"),
    [
        ("ReplicaSet", ReplicaSet(metadata=meta("s"), spec=ReplicaSetSpec(replicas=5)), False, 2),
        ("ReplicaSet", ReplicaSet(metadata=meta("s"), spec=ReplicaSetSpec(replicas=5)), True, 1),
        ("Job", Job(metadata=meta("s"), spec=JobSpec(parallelism=10, completions=10)), False, 7),
        ("StatefulSet", stateful_set("Parallel"), False, 7),
        ("StatefulSet", stateful_set("Parallel"), True, 6),
        ("StatefulSet", stateful_set("OrderedReady"), False, 0),
    ],
)
def test_pods_that_controllers_are_to_make(
    kind: str, controller: ReplicaSet | Job | StatefulSet, gated: bool, want: int
) -> None:
    of = owner(kind, "s")
    pods = [pod("run", owner_references=of, spec={"node_name": "n"}, creation_timestamp=at(minutes=-9))]
    pods += [pod(f"wait-{i}", owner_references=of, creation_timestamp=at(minutes=i - 5)) for i in range(2)]
    if gated:
        waiting: Pod = pod("gated", owner_references=of, creation_timestamp=at(minutes=-8))
        waiting.status = PodStatus(
            conditions=[Condition(type="PodScheduled", status="False", reason="SchedulingGated")]
        )
        pods.append(waiting)
    strangers = [pod("other", owner_references=owner("ReplicaSet", "unknown")), pod("bare")]
    result = build_missing_pods([controller], [*pods, *strangers])
    assert [each.name for each in result] == [f"wait-1-copy-{i}" for i in range(1, want + 1)]
    assert [each.metadata.uid for each in result] == [f"s-{i}" for i in range(1, want + 1)]
    assert all(each.spec.node_name == "" for each in result)
