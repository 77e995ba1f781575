"""Upstream's own sequences of whole loops (``core/static_autoscaler_test.go``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import N0, node, owner, pod, span, template
from ca_loops import Cloud, Life
from kscale import ca
from kscale.ca.cluster_state import register_scale_up
from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, TO_BE_DELETED_TAINT, has_taint
from kscale.ca.options import ResourceRange
from kscale.effects import (
    CANCELED,
    LEGAL_OUTCOMES,
    SECOND,
    DeleteNodes,
    HasInstances,
    IncreaseSize,
    Outcome,
    Wait,
    to_text,
)
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.meta import Condition
from kscale.objects.nodegroup import NodeGroup

HOUR = span(hours=1)
MINUTE = span(minutes=1)
WEB = owner("ReplicaSet", "rs", "apps/v1")


def machine(name: str, cpu: int = 1000, **metadata: Any) -> Node:
    return node(name, cpu, 1000, ready=True, **metadata)


def running(name: str, cpu: int, on: str, **more: Any) -> Pod:
    created = pod(name, cpu, 100, owner_references=WEB, **more)
    created.spec.node_name = on
    return created


def waiting(name: str, cpu: int, **more: Any) -> Pod:
    created = pod(name, cpu, 100, owner_references=WEB, **more)
    created.status.conditions = [Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    return created


def group(name: str, low: int, high: int, nodes: str = "", cpu: int = 1000, **more: Any) -> NodeGroup:
    like = template(machine(f"{name}-like", cpu))
    return NodeGroup(id=name, min_size=low, max_size=high, nodes=nodes.split(), template=like, **more)


def life(groups: list[NodeGroup], nodes: list[Node], pods: list[Pod], **flags: Any) -> Life:
    options: dict[str, Any] = {
        "expander": "random",
        "scale_down_unneeded_time": timedelta(minutes=1),
        "scale_down_unready_time": timedelta(minutes=1),
        "max_node_provision_time": timedelta(seconds=10),
        "ok_total_unready_count": 1,
        "skip_nodes_with_custom_controller_pods": False,
    }
    return Life(Cloud(groups, nodes, pods), N0, **(options | flags))


def set_pods(case: Life, *pods: Pod) -> None:
    case.cloud.pods = {each.key: each for each in pods}


def set_nodes(case: Life, *nodes: Node) -> None:
    case.cloud.nodes = {each.name: each for each in nodes}


def test_run_once() -> None:
    limits = {"cores_total": ResourceRange(0, 10), "memory_total": ResourceRange(0, 100)}
    case = life(
        [group("g1", 1, 10, "n1")], [machine("n1")], [running("p1", 600, "n1"), waiting("p2", 600)],
        enforce_node_group_min_size=True, max_nodes_total=1, **limits,
    )  # fmt: skip
    report = case.loop(N0)
    assert report.scale_up is not None
    assert (report.scale_up.result, case.called()) == ("ScaleUpLimitedByMaxNodesTotal", [])
    case.options = replace(case.options, max_nodes_total=10)
    case.loop(N0 + HOUR)
    assert case.called() == [("up", "g1", 1)]
    case.cloud.members["g1"].append("n2")
    set_nodes(case, machine("n1"), machine("n2"))
    set_pods(case, running("p1", 600, "n1"))
    report = case.loop(N0 + 2 * HOUR)
    assert ([item.name for item in report.scale_down.unneeded], case.called()) == (["n2"], [])
    case.loop(N0 + 3 * HOUR)
    case.time.run()
    assert case.called() == [("down", "g1", "n2")]
    # A machine that Kubernetes never hears of.
    set_nodes(case, machine("n1"))
    case.cloud.groups["g2"] = group("g2", 0, 10)
    case.cloud.members["g2"], case.cloud.targets["g2"] = ["n3"], 1
    case.loop(N0 + 4 * HOUR)
    assert case.called() == []
    report = case.loop(N0 + 5 * HOUR)
    assert case.called() == [("down", "g2", "n3")]
    assert report.repair is not None
    assert report.repair.removed == {"g2": ["n3"]}
    # A group below its minimum.
    set_pods(case)
    set_nodes(case, machine("n4"))
    case.cloud.groups["g3"] = group("g3", 3, 10)
    case.cloud.members["g3"], case.cloud.targets["g3"] = ["n4"], 1
    case.loop(N0 + 5 * HOUR)
    assert case.called() == [("up", "g3", 2)]


@pytest.mark.parametrize("forced", [False, True])
def test_machines_that_never_registered(forced: bool) -> None:
    case = life(
        [group("g1", 2, 10, "n1 broken", target_size=2)], [machine("n1")], [running("p1", 600, "n1")],
        force_delete_unregistered_nodes=forced,
    )  # fmt: skip
    case.loop(N0)
    case.loop(N0 + MINUTE)
    set_pods(case, running("p1", 600, "n1"), waiting("p2", 600))
    called = case.called()
    case.loop(N0 + HOUR + MINUTE)
    called += case.called()
    if forced:
        assert ("down", "g1", "broken") in called
        return
    assert called == [("up", "g1", 1)]
    case.cloud.members["g1"].append("n2")
    set_nodes(case, machine("n1"), machine("n2"))
    case.loop(N0 + 2 * HOUR + MINUTE)
    assert ("down", "g1", "broken") in case.called()


def test_priorities() -> None:
    case = life(
        [group("g1", 0, 10, "n1", cpu=100), group("g2", 0, 10, "n2 n3")],
        [machine("n1", 100), machine("n2"), machine("n3")],
        [
            running("p1", 40, "n1", spec={"priority": 1}), running("p2", 400, "n2", spec={"priority": 1}),
            running("p3", 400, "n2", spec={"priority": 100}), nominated("p5", 800, "n3", 100),
            waiting("p4", 500, spec={"priority": 100}), waiting("p6", 1000, spec={"priority": 100}),
        ],
        expendable_pods_priority_cutoff=10,
    )  # fmt: skip
    case.loop(N0)
    assert case.called() == [("up", "g2", 1)]
    del case.cloud.pods["default/p6"]
    case.cloud.targets["g2"] = 2
    case.loop(N0 + 30 * SECOND)
    assert case.called() == []
    case.cloud.pods["default/p4"].spec.node_name = "n2"
    case.loop(N0 + 3 * HOUR)
    case.time.run()
    assert case.called() == [("down", "g1", "n1")]


def test_a_pod_that_the_scheduler_has_not_spoken_of() -> None:
    """A node of the group is still to come; the pod would not fit where others are."""
    case = life([group("g1", 0, 10, "n1")], [machine("n1")], [running("p1", 800, "n1"), pod("p2", 800, 100)])
    case.cloud.targets["g1"] = 2
    case.loop(N0 + HOUR)
    assert case.called() == []


@pytest.mark.parametrize("from_the_start", [False, True])
def test_a_process_that_ends_scales_nothing(from_the_start: bool) -> None:
    """As with a context that is cancelled: no error, no scale-up, no deletion."""
    nodes = [machine(name) for name in ("n1", "n2")]
    cluster = kscale.Cluster([*nodes, running("p1", 600, "n1"), waiting("p2", 1000)])
    groups = [group("g1", 0, 10, "n1 n2")]
    options = ca.AutoscalingOptions(write_status_configmap=False)
    steps = ca.run_once_steps(cluster, groups, now=N0, options=options)
    action_types, outcome = [], None
    try:
        while True:
            action = steps.send(outcome)
            action_types.append(type(action))
            over = isinstance(action, Wait) or (from_the_start and LEGAL_OUTCOMES[type(action)].refusable)
            answer = {name.name: True for name in nodes} if isinstance(action, HasInstances) and not over else None
            outcome = Outcome(at=N0, value=answer, error=CANCELED if over else None)
    except StopIteration as stop:
        report = stop.value
    assert report.successful
    assert (report.error, report.ended) == (None, "the process ends")
    assert not {IncreaseSize, DeleteNodes} & set(action_types)


def nominated(name: str, cpu: int, on: str, priority: int) -> Pod:
    created = waiting(name, cpu, spec={"priority": priority})
    created.status.nominated_node_name = on
    return created


def test_a_nominated_pod_holds_its_place() -> None:
    case = life([group("g1", 0, 10, "n1", cpu=2000)], [machine("n1", 2000)], [running("p1", 1400, "n1")])
    case.cloud.pods["default/p2"] = nominated("p2", 1400, "n1", 0)
    case.loop(N0 + HOUR)
    assert case.called() == []


def test_taints_of_nodes_that_are_not_ours_stay() -> None:
    case = life([group("g1", 0, 10, "n1")], [tainted("n1", 0), tainted("n2", 0)], [running("p1", 900, "n1")])
    case.cloud.pods["default/p2"] = running("p2", 900, "n2")
    case.loop(N0 + HOUR)
    assert {name: has_taint(each, DELETION_CANDIDATE_TAINT) for name, each in case.cloud.nodes.items()} == {
        "n1": False,
        "n2": True,
    }


def tainted(name: str, since: int | str, key: str = DELETION_CANDIDATE_TAINT) -> Node:
    created = machine(name)
    effect = "PreferNoSchedule" if key == DELETION_CANDIDATE_TAINT else "NoSchedule"
    created.spec.taints = [Taint(key=key, value=str(since), effect=effect)]
    return created


@pytest.mark.parametrize("cooldown", [False, True])
@pytest.mark.parametrize(
    ("names", "remaining"), [("low", []), ("ng", ["b1", "b2", "b3", "b4"]), ("low ng", ["b1", "b2", "b3", "b4"])]
)
def test_candidates_of_groups_at_their_minimum_lose_their_taints(
    names: str, remaining: list[str], cooldown: bool
) -> None:
    every = {"low": group("low", 2, 10, "a1 a2"), "ng": group("ng", 3, 10, "b1 b2 b3 b4")}
    groups = [every[name] for name in names.split()]
    case = life(
        groups,
        [tainted(name, 0) for each in groups for name in each.nodes],
        [],
        scale_down_unneeded_time=timedelta(hours=9),
    )
    if cooldown:
        case.state = replace(case.state, scale_down=replace(case.state.scale_down, last_scale_up=N0))
    report = case.loop(N0 + MINUTE)
    assert (report.scale_down_result == "ScaleDownInCooldown") is cooldown
    marked = [name for name, each in case.cloud.nodes.items() if has_taint(each, DELETION_CANDIDATE_TAINT)]
    assert marked == remaining


def test_state_of_an_earlier_process_is_read_from_taints() -> None:
    now = N0 // SECOND
    case = life(
        [group("g1", 0, 10, "n1 n2 n3 n4 n5")],
        [tainted("n1", now - 120), tainted("n2", now - 600), tainted("n3", now - 120), tainted("n4", "x"),
         machine("n5")],
        [running("p3", 100, "n3", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})],
        node_deletion_candidate_ttl=timedelta(minutes=5),
    )  # fmt: skip
    report = case.loop(N0)
    assert report.started is not None
    assert [item.node for item in report.started.nodes] == ["n1"]


def test_the_first_loop_frees_nodes_of_an_earlier_process() -> None:
    case = life([group("g1", 0, 10, "n1")], [tainted("n1", 0, TO_BE_DELETED_TAINT)], [running("p1", 900, "n1")])
    case.loop(N0)
    assert not case.cloud.nodes["n1"].spec.taints
    case.cloud.nodes["n1"] = tainted("n1", 0, TO_BE_DELETED_TAINT)
    case.loop(N0 + MINUTE)
    assert case.cloud.nodes["n1"].spec.taints
    case.state = ca.reset_for_new_process(case.state)
    case.loop(N0 + 2 * MINUTE)
    assert not case.cloud.nodes["n1"].spec.taints


@pytest.mark.parametrize(
    ("kind", "changed", "deleted_node"),
    [("scale_up", "g1", "n2"), ("scale_down", "g2", "n1"), ("scale_down_failure", "g1", "n2")],
)
def test_delays_of_a_group_of_its_own(kind: str, changed: str, deleted_node: str) -> None:
    delays = {f"scale_down_delay_after_{what}": timedelta(minutes=5) for what in ("add", "delete", "failure")}
    case = life(
        [group("g1", 0, 10, "n1"), group("g2", 0, 10, "n2")], [machine("n1"), machine("n2")], [],
        scale_down_delay_type_local=True, scale_down_unneeded_time=timedelta(), **delays,
    )  # fmt: skip
    case.state = ca.register_group_change(case.state, kind, changed, N0 - 3 * MINUTE)
    case.loop(N0)
    case.time.run()
    assert case.called() == [("down", {"n1": "g1", "n2": "g2"}[deleted_node], deleted_node)]


def test_groups_of_auto_provisioning_come_and_go() -> None:
    small = group("tn1", 0, 10, autoprovisioned=True)
    large = replace(group("tn2", 0, 10, cpu=4000), exists=False, autoprovisioned=True)
    case = life([small, large], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 3000)])
    report = case.loop(N0)
    assert case.called() == [("create", "tn2"), ("up", "tn2", 1), ("delete", "tn1")]
    assert report.removed_groups == ["tn1"]


@pytest.mark.parametrize("allowed", [False, True])
def test_bypassed_schedulers(allowed: bool) -> None:
    rows = {
        ("ours", 100): [], ("default-scheduler", 600): [("up", "g1", 1)], ("ours", 600): [("up", "g1", 1)],
        ("other", 600): [],
    }  # fmt: skip
    for (scheduler, cpu), want in rows.items():
        case = life(
            [group("g1", 0, 10, "n1")], [machine("n1")], [running("p1", 600, "n1")],
            bypassed_scheduler_names=["default-scheduler", "ours"],
            allowed_scheduler_names=["default-scheduler", "ours", "other"] if allowed else [],
        )  # fmt: skip
        case.cloud.pods["default/p2"] = pod("p2", cpu, 100, spec={"scheduler_name": scheduler}, owner_references=WEB)
        case.loop(N0 + HOUR)
        assert case.called() == want


@pytest.mark.parametrize("later", [0, 15 * MINUTE - SECOND, 15 * MINUTE + SECOND])
def test_nodes_that_have_not_started_are_no_candidates(later: int) -> None:
    created = to_text(N0)
    names = {which: [f"{which}-{i}" for i in range(6)] for which in ("g1", "g2")}
    nodes = []
    for members in names.values():
        for i, name in enumerate(members):
            state = node(name, 1000, 1000, ready=i < 4, creation_timestamp=created)
            nodes.append(state)
    fifteen = timedelta(minutes=15)
    case = life(
        [group(which, 0, 10, " ".join(members)) for which, members in names.items()], nodes, [],
        max_node_provision_time=timedelta(minutes=30), max_node_startup_time=fifteen, ok_total_unready_count=10,
        scale_down_unneeded_time=fifteen,
    )  # fmt: skip
    for each in case.cloud.groups.values():
        registered = register_scale_up(case.state.cluster, each, 2, N0, case.options)
        case.state = replace(case.state, cluster=registered)
    report = case.loop(N0 + later)
    assert report.scale_down is not None
    candidates = set(report.scale_down.candidates)
    ready = {name for members in names.values() for name in members[:4]}
    coming = [name for name in report.snapshot_after.nodes if "upcoming" in name]
    if later < 15 * MINUTE:
        assert candidates == ready
        assert len(coming) == 4
        assert len(report.snapshot_after.nodes) == 12
    else:
        assert candidates == {name for members in names.values() for name in members}
        assert coming == []


def test_a_minimum_of_cores() -> None:
    case = life(
        [group("g1", 0, 10, "n1 n2", cpu=2000)], [machine("n1", 2000), machine("n2", 2000)], [],
        cores_total=ResourceRange(3, 100), scale_down_unneeded_time=timedelta(),
    )  # fmt: skip
    for at in (N0, N0 + MINUTE):
        report = case.loop(at)
        case.time.run(until=at + 30 * SECOND)
        assert report.scale_down is not None
        assert {item.reason for item in report.scale_down.unremovable.values()} == {"MinimalResourceLimitExceeded"}
    assert case.called() == []


def test_status_of_scale_down() -> None:
    full = life([group("g1", 0, 10, "n1")], [machine("n1")], [running("p1", 900, "n1")])
    report = full.loop(N0)
    assert report.scale_down is not None
    assert report.scale_down_result == "ScaleDownNoNodeDeleted"
    assert report.scale_down.unremovable["n1"].reason == "NotUnderutilized"
    bare = pod("p1", 100, 100)
    bare.spec.node_name = "n1"
    case = life(
        [group("g1", 0, 10, "n1 n2")], [machine("n1"), machine("n2")], [bare], scale_down_unneeded_time=timedelta()
    )
    report = case.loop(N0)
    assert report.scale_down is not None
    assert report.scale_down_result == "ScaleDownNodeDeleteStarted"
    assert report.started is not None
    assert [item.node for item in report.started.nodes] == ["n2"]
    blocked = report.scale_down.unremovable["n1"]
    assert blocked.reason == "BlockedByPod"
    assert blocked.blocking_pod is not None
    assert blocked.blocking_pod.reason == "NotReplicated"
    assert report.deletion_results == {}
    assert case.state.deletions.empty == {"n2": "g1"}
    report = case.loop(N0 + MINUTE)
    assert {name: each.result for name, each in report.deletion_results.items()} == {"n2": "NodeDeleteOk"}
    assert case.loop(N0 + 2 * MINUTE).deletion_results == {}
    assert case.state.deletions.empty == {}


@pytest.mark.parametrize(
    ("flags", "degraded", "want"),
    [
        ({"scale_down_enabled": False}, 0, False),
        ({}, 5, True),
        ({"enable_graceful_degradation": True}, 0, True),
    ],
)
def test_whether_scale_down_is_tried(flags: dict[str, Any], degraded: int, want: bool) -> None:
    case = life([group("g1", 0, 10, "n1")], [machine("n1")], [running("p1", 900, "n1")], **flags)
    case.state = replace(case.state, scale_up=ca.ScaleUpState(degraded_loops=degraded))
    assert (case.loop(N0).scale_down is not None) is want


@pytest.mark.parametrize(("salvo", "calls"), [(False, 1), (True, 2)])
def test_a_salvo(salvo: bool, calls: int) -> None:
    pods = [waiting(f"p{i}", 600, spec={"node_selector": {"pool": f"g{i}"}}) for i in (1, 2)]
    groups = []
    for i in (1, 2):
        each = group(f"g{i}", 0, 10, f"n{i}")
        each.template = template(machine(f"g{i}-like", labels={"pool": f"g{i}"}))
        groups.append(each)
    nodes = [machine(f"n{i}", labels={"pool": f"g{i}"}) for i in (1, 2)]
    case = life(groups, nodes, [running("p3", 900, "n1"), running("p4", 900, "n2"), *pods], salvo_scale_up=salvo)
    report = case.loop(N0 + HOUR)
    called = case.called()
    assert len(called) == calls
    coming = [name for name in report.snapshot_after.nodes if "salvo" in name]
    assert len(coming) == (1 if salvo else 0)
