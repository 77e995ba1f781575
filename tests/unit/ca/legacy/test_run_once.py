"""Whole loops of release 1.3, and where they differ from today's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from builders import N0, at, node, owner, pod, span, template
from ca_loops import Cloud, Life
from kscale import ca
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint
from kscale.effects import SECOND, Action, ApiError, DeleteNodes, IncreaseSize, Moment
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.meta import Condition
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.quantity import Quantity

MINUTE = span(minutes=1)
HOUR = span(hours=1)
WEB = owner("ReplicaSet", "rs", "apps/v1")
RS = from_dict(
    {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs", "namespace": "default"},
        "spec": {"replicas": 5},
    },
    ReplicaSet,
)  # fmt: skip


def group(name: str, low: int, nodes: str) -> NodeGroup:
    return NodeGroup(
        id=name, min_size=low, max_size=10, nodes=nodes.split(), template=template(node(f"{name}-like", 1000, 1000))
    )


def machine(name: str) -> Node:
    return node(name, 1000, 1000, ready=True)


def life(groups: list[NodeGroup], nodes: list[Node], pods: list[Pod], **flags: Any) -> Life:
    options = {"scale_down_unneeded_time": timedelta(minutes=1), "max_node_provision_time": timedelta(minutes=5)}
    case = Life(Cloud(groups, nodes, pods), N0, **(options | flags))
    case.options = ca.AutoscalingOptions.for_profile("legacy", **(options | flags))
    case.actuator = ca.Actuator(case.options)
    case.others = [RS]
    return case


def running(name: str, cpu: int, on: str) -> Pod:
    created = pod(name, cpu, 100, owner_references=WEB)
    created.spec.node_name = on
    return created


def waiting(name: str, cpu: int) -> Pod:
    created = pod(name, cpu, 100, owner_references=WEB)
    created.status.conditions = [Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    return created


def refusing(kind: type) -> Any:
    def fate(action: Action, now: Moment) -> tuple[ApiError | None, int, bool]:
        return (ApiError("no"), 0, False) if isinstance(action, kind) else (None, 0, True)

    return fate


def test_removed_machines_end_the_loop() -> None:
    case = life([group("g", 1, "n1 lost")], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 900)])
    case.cloud.targets["g"] = 2
    case.loop(N0)
    case.called()
    case.cloud.pods["default/p3"] = waiting("p3", 900)
    report = case.loop(N0 + 6 * MINUTE)
    assert case.called() == [("down", "g", "lost")]
    assert (report.scale_up, report.scale_down) == (None, None)
    assert report.ended == "Some unregistered nodes were removed, skipping iteration"
    assert report.successful


def test_a_machine_of_no_group_any_more_is_left_alone() -> None:
    case = life([group("g", 1, "n1 gone lost")], [machine("n1")], [running("p1", 900, "n1")])
    case.cloud.groups["g"].gone_instances = ["gone"]
    case.loop(N0)
    case.loop(N0 + 6 * MINUTE)
    assert case.called() == [("down", "g", "lost")]


def test_a_refusal_to_remove_them_is_the_loops_error() -> None:
    case = life([group("g", 1, "n1 lost")], [machine("n1")], [running("p1", 900, "n1")])
    case.loop(N0)
    case.cloud.fate = refusing(DeleteNodes)
    report = case.loop(N0 + 6 * MINUTE)
    assert report.error is not None
    assert (report.error.type, report.error.message) == ("cloudProviderError", "no")
    assert [event.message for event in case.cloud.events] == ["Removing unregistered node lost"]


def test_machines_go_one_by_one_and_a_refusal_ends_it() -> None:
    case = life([group("g", 1, "n1 a b c")], [machine("n1")], [running("p1", 900, "n1")])
    case.loop(N0)

    def fate(action: Action, now: Moment) -> tuple[ApiError | None, int, bool]:
        refused = isinstance(action, DeleteNodes) and action.nodes == ("b",)
        return (ApiError("no"), 0, False) if refused else (None, 0, True)

    case.cloud.fate = fate
    report = case.loop(N0 + 6 * MINUTE)
    assert case.called() == [("down", "g", "a")]
    assert report.error is not None
    assert report.error.message == "no"
    assert report.repair is not None
    assert report.repair.removed == {"g": ["a"]}


@pytest.mark.parametrize(
    ("ready", "message"), [(None, "Cluster has no nodes."), (False, "Cluster has no ready nodes.")]
)
def test_a_cluster_without_nodes_is_left_alone(ready: bool | None, message: str) -> None:
    """Whatever a flag says that is younger; no node is unneeded any more."""
    case = life([group("g", 0, "n1 n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n1")])
    case.loop(N0)
    assert case.state.scale_down.unneeded_since == {"n2": N0}
    case.cloud.nodes = {} if ready is None else {"n1": node("n1", 1000, 1000, ready=False)}
    report = case.loop(N0 + MINUTE)
    assert report.ended == message
    assert case.state.scale_down.unneeded_since == {}
    assert ("cluster_autoscaler_cluster_safe_to_autoscale", 0, {}) in [
        (name, value, dict(labels)) for name, value, labels in case.cloud.metrics
    ]
    assert [(event.reason, event.message) for event in case.cloud.events] == [("ClusterUnhealthy", message)]


def test_the_first_loop_frees_ready_nodes_of_any_group() -> None:
    nodes = [machine("n1"), machine("n2"), node("n3", 1000, 1000, ready=False), machine("n4")]
    for each in nodes:
        each.spec.taints = [Taint(key=TO_BE_DELETED_TAINT, value="1", effect="NoSchedule")]
    nodes[3].spec.unschedulable = True
    case = life([group("g", 1, "n1")], nodes, [running("p1", 900, "n1"), running("p2", 900, "n2")])
    case.loop(N0)
    marked = [name for name, each in case.cloud.nodes.items() if has_taint(each, TO_BE_DELETED_TAINT)]
    assert marked == ["n3", "n4"]
    actions = [
        (event.regarding.name, event.message)
        for event in case.cloud.events
        if event.reason == "ClusterAutoscalerCleanup"
    ]
    assert actions == [("n1", "marking the node as schedulable"), ("n2", "marking the node as schedulable")]


def test_provider_is_not_asked_for_instances() -> None:
    case = life([group("g", 1, "n1")], [machine("n1")], [running("p1", 900, "n1")])
    case.cloud.members["g"] = []
    case.cloud.targets["g"] = 1
    case.loop(N0)
    assert case.state.cluster.total.deleted == []
    assert case.state.cluster.total.ready == ["n1"]


def test_requests_for_tpus_come_from_elsewhere() -> None:
    case = life([group("g", 1, "n1")], [machine("n1")], [running("p1", 900, "n1")])
    asks = waiting("p2", 500)
    asks.spec.containers[0].resources.requests["cloud-tpus.google.com/v2"] = Quantity("8")
    case.cloud.pods[asks.key] = asks
    case.loop(N0)
    assert case.called() == [("up", "g", 1)]


def test_failed_scale_up_emits_no_pod_events() -> None:
    case = life(
        [group("g", 1, "n1")], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 900), waiting("p3", 5000)]
    )
    case.cloud.fate = refusing(IncreaseSize)
    case.loop(N0)
    assert [event for event in case.cloud.events if event.regarding.kind == "Pod"] == []


@pytest.mark.parametrize("late", [False, True])
def test_a_request_is_late_at_once_and_one_that_is_met_ends_the_back_off(late: bool) -> None:
    case = life([group("g", 1, "n1")], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 900)])
    case.loop(N0)
    request = case.state.cluster.scale_up_requests["g"]
    case.loop(request.expected_add_time - (0 if late else 1))
    assert ("g" in case.state.cluster.backoffs) is late
    assert ("g" in case.state.cluster.scale_up_requests) is not late
    if not late:
        return
    case.called()
    case.cloud.fate = refusing(IncreaseSize)
    registered = ca.cluster_state.register_scale_up(
        case.state.cluster, case.cloud.groups["g"], 1, case.time.now, case.options
    )
    case.state = replace(case.state, cluster=registered)
    case.cloud.nodes["n2"] = machine("n2")
    case.cloud.members["g"].append("n2")
    case.loop(request.expected_add_time + SECOND)
    assert case.state.cluster.backoffs == {}


def test_a_group_without_template_enters_back_off() -> None:
    case = life([group("g", 1, "n1")], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 900)])
    case.loop(N0)
    case.cloud.groups["g"] = replace(case.cloud.groups["g"], template=None)
    case.cloud.nodes["n1"].status.conditions[0].status = "False"
    case.cloud.nodes["n9"] = machine("n9")
    case.state = replace(case.state, templates={})
    case.loop(N0 + 10 * MINUTE)
    assert "g" in case.state.cluster.backoffs


@pytest.mark.parametrize(
    ("kind", "status", "after", "age", "want"),
    [
        ("Ready", "False", 60, 600, "not_started"),
        ("Ready", "False", 120, 600, "unready"),
        ("Ready", "Unknown", 60, 600, "unready"),
        ("NetworkUnavailable", "True", 60, 600, "not_started"),
        ("OutOfDisk", "True", 60, 600, "not_started"),
        ("Ready", "False", 60, 901, "unready"),
    ],
)
def test_nodes_that_are_starting(kind: str, status: str, after: int, age: int, want: str) -> None:
    """By their conditions; for fifteen minutes, whatever an option says."""
    late = node("n2", 1000, 1000, ready=True, creation_timestamp=at(seconds=-age))
    others = [] if kind == "Ready" else [Condition(type="Ready", status="Unknown", last_transition_time=at())]
    changed = Condition(type=kind, status=status, last_transition_time=at(seconds=after - age))
    late.status.conditions = [*others, changed]
    case = life([group("g", 1, "n1 n2")], [machine("n1"), late], [running("p1", 900, "n1")])
    case.loop(N0)
    assert getattr(case.state.cluster.total, want) == ["n2"]


def test_a_scale_up_ends_the_loop_and_its_error_is_the_loops() -> None:
    case = life([group("g", 1, "n1")], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 900)])
    report = case.loop(N0)
    assert case.called() == [("up", "g", 1)]
    assert report.scale_up is not None
    assert (report.scale_up.result, report.scale_down) == ("ScaleUpSuccessful", None)
    assert case.state.scale_down.last_scale_up == N0
    case.cloud.pods["default/p3"] = waiting("p3", 900)
    case.cloud.fate = refusing(IncreaseSize)
    report = case.loop(N0 + MINUTE)
    assert report.error is not None
    assert report.error.message == "failed to increase node group size: no"
    assert report.scale_down is None


def test_the_loop_waits_for_empty_nodes() -> None:
    case = life([group("g", 0, "n1 n2 n3")], [machine("n1"), machine("n2"), machine("n3")], [running("p1", 900, "n3")])
    case.loop(N0)
    case.cloud.fate = lambda action, now: (None, 20 * SECOND if isinstance(action, DeleteNodes) else 0, True)
    report = case.loop(N0 + HOUR)
    assert case.called() == [("down", "g", "n1"), ("down", "g", "n2")]
    assert case.time.now == N0 + HOUR + 20 * SECOND
    assert report.scale_down_result == "ScaleDownNodeDeleted"
    assert case.state.scale_down.last_scale_down == N0 + HOUR
    assert [request.node for request in case.state.cluster.scale_down_requests] == ["n1", "n2"]
    assert case.state.deletions == ca.LoopState().deletions


def test_empty_nodes_that_cannot_go_are_free_again() -> None:
    case = life([group("g", 0, "n1 n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n2")])
    case.loop(N0)
    case.cloud.fate = refusing(DeleteNodes)
    report = case.loop(N0 + HOUR)
    assert report.error is not None
    assert report.error.message == "failed to delete at least one empty node: failed to delete n1: no"
    assert not has_taint(case.cloud.nodes["n1"], TO_BE_DELETED_TAINT)
    assert case.state.scale_down.last_failure == N0 + HOUR
    assert case.loop(N0 + HOUR + MINUTE).scale_down_result == "ScaleDownInCooldown"


def test_while_a_node_is_drained_no_other_goes() -> None:
    names = [f"n{i}" for i in range(4)]
    case = life(
        [group("g", 0, " ".join(names))], [machine(name) for name in names],
        [running(f"p{i}", 300, f"n{i}") for i in range(4)],
    )  # fmt: skip
    case.cloud.lingers = {f"p{i}": 5 * MINUTE for i in range(4)}
    case.loop(N0)
    report = case.loop(N0 + HOUR)
    assert report.scale_down_result == "ScaleDownNodeDeleteStarted"
    (going,) = case.state.deletions.drained
    report = case.loop(N0 + HOUR + MINUTE)
    assert len(case.cloud.evicted) == 1
    assert report.scale_down_result == "ScaleDownInProgress"
    assert case.called() == []
    case.time.run()
    assert case.called() == [("down", "g", going)]
    assert not case.cloud.nodes[going].spec.unschedulable
    case.loop(N0 + HOUR + 20 * MINUTE)
    assert case.state.deletions.drained != {going: "g"}


def test_machines_that_should_long_have_registered_make_a_cluster_unhealthy() -> None:
    lost = " ".join(f"lost{i}" for i in range(5))
    case = life([group("g", 6, f"n1 {lost}")], [machine("n1")], [running("p1", 100, "n1")], ok_total_unready_count=3)
    case.loop(N0)
    memory = replace(case.state.scale_down, unneeded_since={"n1": N0})
    case.state = replace(case.state, scale_down=memory)
    report = case.loop(N0 + 6 * MINUTE)
    assert report.ended == "Cluster is unhealthy"
    assert case.state.scale_down.unneeded_since == {}
    today = life([group("g", 6, f"n1 {lost}")], [machine("n1")], [running("p1", 100, "n1")], ok_total_unready_count=3)
    today.options = ca.AutoscalingOptions(max_node_provision_time=timedelta(minutes=5), ok_total_unready_count=3)
    today.loop(N0)
    assert today.loop(N0 + 6 * MINUTE).ended == ""
