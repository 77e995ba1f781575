"""Whole loops of release 1.3, and where they differ from today's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from builders import N0, node, owner, pod, span, template
from ca_loops import Cloud, Life
from kscale import ca
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint
from kscale.effects import SECOND, Action, ApiError, DeleteNodes, IncreaseSize, Moment
from kscale.objects.apps import ReplicaSet
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.meta import Condition
from kscale.objects.nodegroup import NodeGroup

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
    given = {"scale_down_unneeded_time": timedelta(minutes=1), "max_node_provision_time": timedelta(minutes=5)}
    case = Life(Cloud(groups, nodes, pods), N0, **(given | flags))
    case.options = ca.AutoscalingOptions.for_profile("legacy", **(given | flags))
    case.actuator = ca.Actuator(case.options)
    case.others = [RS]
    return case


def running(name: str, cpu: int, on: str) -> Pod:
    made = pod(name, cpu, 100, owner_references=WEB)
    made.spec.node_name = on
    return made


def waiting(name: str, cpu: int) -> Pod:
    made = pod(name, cpu, 100, owner_references=WEB)
    made.status.conditions = [Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    return made


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


def test_a_refusal_to_remove_them_is_the_loops_error() -> None:
    case = life([group("g", 1, "n1 lost")], [machine("n1")], [running("p1", 900, "n1")])
    case.loop(N0)
    case.cloud.fate = refusing(DeleteNodes)
    report = case.loop(N0 + 6 * MINUTE)
    assert report.error is not None
    assert (report.error.type, report.error.message) == (
        "cloudProviderError",
        "Failed to remove unregistered nodes: no",
    )


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
