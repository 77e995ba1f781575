"""What a whole loop does in which order, how it ends early, and what it says on the way."""

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
from kscale.ca.metrics import METRICS
from kscale.ca.options import ResourceRange
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    DecreaseTargetSize,
    DeleteNodes,
    IncreaseSize,
    Moment,
    Patch,
    Refresh,
)
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import Condition
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeGroupOptions

MINUTE = span(minutes=1)
HOUR = span(hours=1)
WEB = owner("ReplicaSet", "rs", "apps/v1")
STATUS = "cluster-autoscaler-status"


def machine(name: str, **more: Any) -> Node:
    return node(name, 1000, 1000, ready=True, **more)


def running(name: str, cpu: int, on: str) -> Pod:
    created = pod(name, cpu, 100, owner_references=WEB)
    created.spec.node_name = on
    return created


def waiting(name: str, cpu: int) -> Pod:
    created = pod(name, cpu, 100, owner_references=WEB)
    created.status.conditions = [Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    return created


def group(name: str, nodes: str, low: int = 0, **more: Any) -> NodeGroup:
    like = template(machine(f"{name}-like"))
    return NodeGroup(id=name, min_size=low, max_size=10, nodes=nodes.split(), template=like, **more)


def life(groups: list[NodeGroup], nodes: list[Node], pods: list[Pod], **flags: Any) -> Life:
    options = {"scale_down_unneeded_time": timedelta(minutes=1), "skip_nodes_with_custom_controller_pods": False}
    return Life(Cloud(groups, nodes, pods), N0, **(options | flags))


def refusing(*kinds: type) -> Any:
    def fate(action: Action, now: Moment) -> tuple[ApiError | None, int, bool]:
        return (ApiError("no"), 0, False) if isinstance(action, kinds) else (None, 0, True)

    return fate


def metric_values(case: Life) -> dict[str, float]:
    """Metric with its labels -> value; counters add up."""
    result: dict[str, float] = {}
    for name, value, labels in case.cloud.metrics:
        key = f"{name.removeprefix('cluster_autoscaler_')}{''.join(f' {v}' for v in labels.values() if v)}"
        result[key] = result.get(key, 0) + value if METRICS[name].kind == "counter" else value
    return result


def test_the_order_of_a_loop() -> None:
    """As ``RunOnce``: the cloud, repairs, scale-up, scale-down, minimum sizes, the status."""
    groups = [group("g1", "n1 n2"), group("low", "", 1)]
    cluster = kscale.Cluster(
        [machine("n1"), machine("n2"), running("p1", 900, "n1"), waiting("p2", 900), waiting("p3", 900)]
    )
    state = ca.run_once(cluster, groups, now=N0).state
    state = replace(state, scale_down=replace(state.scale_down, last_scale_up=None))
    options = ca.AutoscalingOptions(
        enforce_node_group_min_size=True, scale_down_delay_after_add=timedelta(), skip_nodes_with_system_pods=False
    )
    groups[0] = replace(groups[0], target_size=2)  # the cloud did not do what the first loop asked for
    report = ca.run_once(cluster, groups, now=N0 + MINUTE, options=options, state=state)
    names = [type(action).__name__ for action in report.actions]
    assert names == ["Refresh", "HasInstances", "IncreaseSize", "IncreaseSize", "Get", "Create"]
    assert [action.group for action in report.actions if isinstance(action, IncreaseSize)] == ["g1", "low"]
    assert {each.name for each in report.observations} <= set(METRICS)
    assert repr(report).startswith("<LoopReport: scale_up=ScaleUpSuccessful {g1 2->3 (max: 10)} {low 0->1 (max: 10)}")


def test_scale_down_sees_what_scale_up_placed() -> None:
    """A pod that is about to run on an empty node keeps it, and so does one that will run on a node to come."""
    case = life([group("g1", "n1 n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n1"), waiting("p2", 900)])
    report = case.loop(N0)
    assert report.scale_up is not None
    assert report.scale_up.placed == {"default/p2": "n2"}
    assert report.scale_down is not None
    assert report.scale_down.unneeded == []
    assert sorted(report.snapshot_after.pods) == ["default/p1", "default/p2"]
    alone = kscale.scale_down(report.scale_up.snapshot_after, report.groups, now=N0)
    assert alone.unneeded == []


def test_scale_down_waits_after_a_scale_up() -> None:
    case = life([group("g1", "n1"), group("g2", "n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n1")])
    case.cloud.pods["default/p2"] = waiting("p2", 950)
    case.cloud.pods["default/p3"] = waiting("p3", 950)
    report = case.loop(N0)
    assert report.scale_down_result == "ScaleDownInCooldown"
    assert case.state.scale_down.last_scale_up == N0
    assert list(case.state.scale_down.changes.scale_up.values()) == [N0]
    assert metric_values(case)["scale_down_in_cooldown"] == 1
    assert metric_values(case)["scaled_up_nodes_total"] == 1


def test_a_scale_up_that_failed_is_not_the_loops_error() -> None:
    case = life([group("g1", "n1 n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n1"), waiting("p2", 950)])
    case.cloud.nodes["n2"].spec.unschedulable = True
    case.cloud.fate = refusing(IncreaseSize)
    report = case.loop(N0)
    assert report.scale_up is not None
    assert report.scale_up.result == "ScaleUpError"
    assert (report.error, report.successful) == (None, True)
    assert report.scale_down is not None
    assert case.state.scale_down.last_scale_up is None
    assert metric_values(case)["failed_scale_ups_total cloudProviderError"] == 1


@pytest.mark.parametrize(
    ("what", "type_", "message"),
    [
        ("refresh", "cloudProviderError", "no"),
        ("budget", "internalError", "failed to initialize RemainingPdbTracker: "),
        ("size", "cloudProviderError", "out of order"),
    ],
)
def test_errors_before_anything_is_shown(what: str, type_: str, message: str) -> None:
    case = life([group("g1", "n1")], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 900)])
    if what == "refresh":
        case.cloud.fate = refusing(Refresh)
    elif what == "budget":
        spec = {"selector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}}
        metadata = {"name": "b", "namespace": "default"}
        case.others = [from_dict({"metadata": metadata, "spec": spec}, PodDisruptionBudget)]
        case.others[0].kind, case.others[0].api_version = "PodDisruptionBudget", "policy/v1"
    else:
        case.cloud.groups["g1"].target_size_error = "out of order"
    report = case.loop(N0)
    assert report.error is not None
    assert report.error.type == type_
    assert report.error.message.startswith(message)
    assert (report.scale_up, report.scale_down, report.status) == (None, None, None)
    assert (case.called(), case.cloud.config_maps) == ([], {})
    assert metric_values(case)[f"errors_total {type_}"] == 1
    assert not report.successful


def test_an_unhealthy_cluster_is_shown_and_left_alone() -> None:
    nodes = [node(f"n{i}", 1000, 1000, ready=False) for i in range(5)]
    case = life([group("g1", " ".join(each.name for each in nodes))], nodes, [waiting("p1", 900)])
    case.state = replace(case.state, scale_down=ca.ScaleDownState(unneeded_since={"n1": N0}))
    report = case.loop(N0)
    assert (report.ended, report.error) == ("Cluster is unhealthy", None)
    assert case.state.scale_down.unneeded_since == {}
    assert case.called() == []
    assert "status: Unhealthy" in case.cloud.config_maps[STATUS].data["status"]
    assert metric_values(case)["cluster_safe_to_autoscale"] == 0
    assert metric_values(case)["nodes_count unready"] == 5


def test_a_size_that_was_put_right_ends_the_loop() -> None:
    case = life([group("g1", "n1", target_size=3)], [machine("n1")], [waiting("p1", 900)])
    case.cloud.members["g1"] = ["n1"]
    case.loop(N0)
    case.called()
    case.cloud.pods = {}
    state = case.state
    requests = replace(state.cluster, scale_up_requests={})
    case.state = replace(state, cluster=requests)
    case.loop(N0 + MINUTE)
    report = case.loop(N0 + HOUR)
    targets = [call for call in case.called() if call[0] == "target"]
    assert len(targets) == 1
    assert report.ended == "Some node group target size was fixed, skipping the iteration"
    assert (report.scale_up, report.scale_down) == (None, None)


def test_a_cluster_without_nodes_is_left_alone_where_that_is_wanted() -> None:
    case = life([group("g1", "")], [], [waiting("p1", 900)], scale_up_from_zero=False)
    report = case.loop(N0)
    assert (report.ended, case.called()) == ("Cluster has no nodes.", [])
    text = case.cloud.config_maps[STATUS].data["status"]
    assert "autoscalerStatus: Initializing" in text
    assert [each.reason for each in case.cloud.events] == ["ClusterUnhealthy"]


def test_deletions_that_cannot_begin_are_the_loops_error() -> None:
    case = life([group("g1", "n1 n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n1")])
    case.loop(N0)
    case.cloud.fate = lambda action, now: (
        (ApiError("no"), 0, False)
        if isinstance(action, Patch) and "ToBeDeleted" in str(action.patch)
        else (None, 0, True)
    )
    report = case.loop(N0 + HOUR)
    assert report.error is not None
    assert report.error.message == "couldn't taint 1 nodes with ToBeDeleted"
    assert report.scale_down_result == "ScaleDownError"
    assert case.state.scale_down.last_failure == N0 + HOUR
    assert report.status is not None


def test_a_request_that_is_overdue_is_taken_back_and_counted() -> None:
    case = life(
        [group("g1", "n1", target_size=5)], [machine("n1")], [running("p1", 900, "n1")],
        max_node_provision_time=timedelta(minutes=2),
    )  # fmt: skip
    registered = register_scale_up(case.state.cluster, case.cloud.groups["g1"], 4, N0, case.options)
    case.state = replace(case.state, cluster=registered)
    report = case.loop(N0 + 3 * MINUTE)
    assert case.called() == [("target", "g1", -4)]
    assert report.groups["g1"].size == 1
    assert case.state.cluster.scale_up_requests == {}
    counted = metric_values(case)
    assert counted["failed_scale_ups_total timeout"] == 1
    assert counted["failed_node_creations_total timeout"] == 4
    case.cloud.metrics.clear()
    case.loop(N0 + 4 * MINUTE)
    assert "failed_scale_ups_total timeout" not in metric_values(case)


def test_request_that_cannot_be_reverted_is_reported() -> None:
    case = life([group("g1", "n1", target_size=5)], [machine("n1")], [], max_node_provision_time=timedelta(minutes=2))
    registered = register_scale_up(case.state.cluster, case.cloud.groups["g1"], 4, N0, case.options)
    case.state = replace(case.state, cluster=registered)
    case.cloud.fate = refusing(DecreaseTargetSize)
    case.loop(N0 + 3 * MINUTE)
    assert [each.reason for each in case.cloud.events][:2] == ["ScaleUpTimedOut", "FailedToRevertScaleUp"]


def test_missing_instance_counts_as_deleted() -> None:
    case = life([group("g1", "n1 n2", target_size=1)], [machine("n1"), machine("n2")], [running("p1", 900, "n1")])
    case.cloud.members["g1"].remove("n2")
    case.loop(N0)
    assert case.state.cluster.total.deleted == ["n2"]
    case.cloud.tells_machines = False
    case.loop(N0 + MINUTE)
    assert case.state.cluster.total.deleted == []


def test_a_node_without_csi_node_ends_a_csi_node_aware_loop() -> None:
    cluster = kscale.load(machine("n1"), machine("n2"), {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {}})
    options = ca.AutoscalingOptions(enable_csi_node_aware_scheduling=True)
    text = "failed to initialize ClusterSnapshot: couldn't obtain csi node: csi nodes n2 not found"
    report = ca.run_once(cluster, [group("g", "n1 n2")], now=N0, options=options)
    assert report.error is not None
    assert (report.error.type, report.error.message) == ("internalError", text)
    assert (report.status, report.scale_up, report.scale_down) == (None, None, None)
    for decide in (kscale.scale_up, kscale.scale_down):
        with pytest.raises(ca.AutoscalerError) as failure:
            decide(cluster, [group("g", "n1 n2")], now=N0, options=options)
        assert failure.value.message == text
    assert ca.run_once(cluster, [group("g", "n1 n2")], now=N0).error is None


def test_upcoming_nodes_need_no_csi_node() -> None:
    csi_node = {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {}}
    cluster = kscale.load(machine("n1"), csi_node, running("r", 900, "n1"), waiting("p", 500))
    options = ca.AutoscalingOptions(enable_csi_node_aware_scheduling=True)
    groups = [group("g", "n1", target_size=1)]
    first = ca.run_once(cluster, groups, now=N0, options=options)
    second = ca.run_once(cluster, first.groups, now=N0 + MINUTE, options=options, state=first.state)
    assert second.error is None
    assert second.scale_up is not None
    assert second.scale_up.upcoming == {"g": 1}


def without_provider_id(name: str) -> Node:
    created = machine(name)
    return replace(created, spec=replace(created.spec, provider_id=""))


def test_nodes_without_provider_id_have_registered() -> None:
    nodes = [without_provider_id("n1"), without_provider_id("n2")]
    cluster = kscale.Cluster([*nodes, running("a", 900, "n1"), running("b", 900, "n2")])
    groups, state = [group("g", "n1 n2")], None
    for minutes in (0, 8, 16, 24):
        report = ca.run_once(cluster, groups, now=N0 + minutes * MINUTE, state=state)
        state = report.state
        assert [each for each in report.actions if isinstance(each, DeleteNodes)] == []
        assert (state.cluster.unregistered, state.cluster.readiness["g"].unregistered) == ({}, [])


def test_an_instance_that_no_node_has_is_unregistered_beside_nodes_without_provider_id() -> None:
    cluster = kscale.Cluster([without_provider_id("n1"), running("a", 900, "n1")])
    groups = [group("g", "n1", unregistered_instances=["i-2"], target_size=2)]
    first = ca.run_once(cluster, groups, now=N0)
    later = ca.run_once(cluster, groups, now=N0 + 16 * MINUTE, state=first.state)
    assert [each.nodes for each in later.actions if isinstance(each, DeleteNodes)] == [("i-2",)]


def test_all_registered_nodes_of_a_zero_or_max_group_go_with_or_without_provider_id() -> None:
    options = NodeGroupOptions(zero_or_max_node_scaling=True)
    for of in (machine, without_provider_id):
        cluster = kscale.Cluster([machine("keep"), running("a", 900, "keep"), of("t0"), of("t1"), of("t2")])
        groups = [group("g", "keep", 1), group("tpu", "t0 t1 t2", target_size=4, options=options)]
        first = kscale.scale_down(cluster, groups, now=N0)
        plan = kscale.scale_down(cluster, groups, now=N0 + 11 * MINUTE, state=first.state)
        assert plan.delete_empty == ["t0", "t1", "t2"]


def test_deletions_under_way_are_in_the_state() -> None:
    case = life([group("g1", "n1 n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n1")])
    case.loop(N0)
    case.cloud.fate = lambda action, now: (None, 10 * MINUTE if isinstance(action, DeleteNodes) else 0, True)
    case.loop(N0 + HOUR)
    assert case.state.deletions.empty == {"n2": "g1"}
    case.loop(N0 + HOUR + MINUTE)
    assert case.state.deletions.empty == {"n2": "g1"}
    assert case.called() == [("down", "g1", "n2")]
    case.loop(N0 + HOUR + 12 * MINUTE)
    assert case.state.deletions.empty == {}
    assert [each.node for each in case.state.cluster.scale_down_requests] == ["n2"]


def test_a_plain_call_goes_on_with_deletions_of_the_state() -> None:
    cluster = kscale.Cluster([machine(f"n{i}") for i in range(4)])
    groups = [group("g1", "n0 n1 n2 n3")]
    options = ca.AutoscalingOptions(max_scale_down_parallelism=2, scale_down_unneeded_time=timedelta())
    deletions = ca.LoopState().deletions
    known = replace(deletions, empty={"n0": "g1", "gone": "g1"})
    report = ca.run_once(cluster, groups, now=N0, options=options, state=ca.LoopState(deletions=known))
    assert report.started is not None
    assert [item.node for item in report.started.nodes] == ["n1"]


def test_invalid_process_options_are_refused() -> None:
    options = ca.AutoscalingOptions(predicate_parallelism=0)
    with pytest.raises(InputError, match="predicate-parallelism"):
        ca.run_once(kscale.Cluster([]), [], now=N0, options=options)


def test_observations_of_groups() -> None:
    case = life(
        [group("g1", "n1"), group("g2", "")], [machine("n1")], [running("p1", 900, "n1")],
        emit_per_nodegroup_metrics=True, max_nodes_total=7,
    )  # fmt: skip
    case.loop(N0)
    counted = metric_values(case)
    assert {key: counted[key] for key in counted if key.startswith(("node_group_", "max_nodes"))} == {
        "node_group_healthiness g1": 1,
        "node_group_healthiness g2": 1,
        "node_group_max_count g1": 10,
        "node_group_max_count g2": 10,
        "node_group_min_count g1": 0,
        "node_group_min_count g2": 0,
        "node_group_target_count g1": 1,
        "node_group_target_count g2": 0,
        "max_nodes_count": 7,
    }


def test_estimates_are_counted() -> None:
    other = waiting("p3", 800)
    other.metadata.namespace, other.metadata.owner_references = "other", owner("ReplicaSet", "other", "apps/v1")
    like = machine("like", labels={"node.kubernetes.io/instance-type": "m5"})
    groups = [group("g1", "n1"), replace(group("g2", ""), template=template(like)), group("small", "")]
    small = node("small-like", 100, 100, ready=True)
    groups[2] = replace(groups[2], template=template(small))  # takes none of the pods: no estimate is made
    cluster = kscale.Cluster([machine("n1"), running("p1", 900, "n1"), waiting("p2", 900), other])
    result = ca.run_once(cluster, groups, now=N0).observations
    mixed = [each for each in result if each.name == "cluster_autoscaler_binpacking_heterogeneity"]
    assert [(each.value, *each.labels.values()) for each in mixed] == [(2, "", "1", "2"), (2, "m5", "1", "2")]
    functions = [each.labels["function"] for each in result if "function" in each.labels]
    assert functions.count("scaleUp:estimate") == 2
    assert functions.index("scaleUp:buildPodEquivalenceGroups") < functions.index("scaleUp:estimate")
    assert [each.value for each in result if each.name.endswith("overflowing_controllers_count")] == [0]
    skipped = [(each.value, each.labels) for each in result if each.name.endswith("skipped_pods_count")]
    assert skipped == [(0, {"requestor": "filter-out-pod-list-processor"})]


def test_pods_that_no_cache_has_room_for_are_counted() -> None:
    """Upstream remembers so many shapes a controller, and counts the controllers that have more."""
    pods = [waiting(f"w{i}", 900 + i) for i in range(12)]
    cluster = kscale.Cluster([machine("n1"), running("p1", 900, "n1"), *pods])
    result = ca.run_once(cluster, [group("g1", "n1")], now=N0).observations
    assert [each.value for each in result if each.name.endswith("overflowing_controllers_count")] == [1]


def test_how_long_nodes_wait() -> None:
    case = life(
        [group("g1", "n1 n2")], [machine("n1"), machine("n2")], [running("p1", 900, "n1")],
        node_removal_latency_tracking_enabled=True, max_node_skip_eval_time_tracker_enabled=True,
    )  # fmt: skip
    case.loop(N0)
    assert list(case.state.latencies.nodes) == ["n2"]
    report = case.loop(N0 + 10 * MINUTE)
    assert report.scale_down_result == "ScaleDownNodeDeleteStarted"
    assert case.state.latencies.nodes == {}
    assert metric_values(case)["node_removal_latency_seconds true none"] == 540
    assert metric_values(case)["max_node_skip_eval_duration_seconds"] == 0


def test_groups_that_limits_hold_back_are_counted() -> None:
    case = life(
        [group("g1", "n1")], [machine("n1")], [running("p1", 900, "n1"), waiting("p2", 900)],
        cores_total=ResourceRange(0, 1),
    )  # fmt: skip
    case.loop(N0)
    assert case.called() == []
    assert metric_values(case)["skipped_scale_events_count up CpuResourceLimit"] == 1


def test_repr_of_plans_summarizes_them() -> None:
    cluster = kscale.Cluster([machine("n1"), machine("n2"), running("p1", 900, "n1"), waiting("p2", 950)])
    up = kscale.scale_up(cluster, [group("g1", "n1 n2")], now=N0)
    assert repr(up) == "<ScaleUpPlan: ScaleUpNotNeeded, 0 pods helped, 0 not, 1 fit already>"
    down = kscale.scale_down(
        cluster, [group("g1", "n1 n2")], now=N0, options=ca.AutoscalingOptions(scale_down_unneeded_time=timedelta())
    )
    assert repr(down) == ("<ScaleDownPlan: ScaleDownNodeDeleteStarted, 1 of 2 candidates unneeded, deletes n2>")


def test_failures_of_earlier_loops_are_forgotten() -> None:
    """A state holds what failed in its own loop, however many loops have been refused."""
    case = life(
        [group("g1", "n1")],
        [machine("n1")],
        [running("r", 900, "n1"), waiting("p1", 900)],
        initial_node_group_backoff_duration=timedelta(),
    )
    case.cloud.fate = refusing(IncreaseSize)
    failure_counts = []
    for loop in range(6):
        report = case.loop(N0 + loop * HOUR)
        failure_counts.append({name: len(failures) for name, failures in report.state.cluster.failures.items()})
    assert failure_counts == [{"g1": 1}] * 6


@pytest.mark.parametrize("again", [True, False], ids=["as described before", "with the size that was asked for"])
def test_upcoming_nodes_are_not_requested_again(again: bool) -> None:
    """Also where the caller describes the groups as before; a size that is described anew counts."""
    groups = [group("g1", "n1")]
    cluster = kscale.Cluster([machine("n1"), running("p1", 900, "n1"), waiting("p2", 900)])
    first = ca.run_once(cluster, groups, now=N0)
    assert first.scale_up is not None
    assert first.scale_up.result == "ScaleUpSuccessful"
    second = ca.run_once(cluster, groups if again else first.groups, now=N0 + MINUTE, state=first.state)
    assert second.scale_up is not None
    assert second.scale_up.result == "ScaleUpNotNeeded"
    assert [type(each) for each in second.actions if isinstance(each, IncreaseSize)] == []
    assert second.groups["g1"].size == 2
    lowered = [replace(groups[0], target_size=1)]
    third = ca.run_once(cluster, lowered, now=N0 + MINUTE, state=first.state)
    assert third.scale_up is not None
    assert third.scale_up.result == "ScaleUpSuccessful"


def test_an_unhealthy_cluster_warns_of_instances_that_are_not_removed() -> None:
    nodes = [node(f"n{i}", 1000, 1000, ready=False) for i in range(5)]
    case = life([group("g1", " ".join([*(each.name for each in nodes), "n5"]))], nodes, [])
    case.loop(N0)
    case.cloud.fate = refusing(DeleteNodes)
    report = case.loop(N0 + 20 * 60 * SECOND)
    assert report.ended == "Cluster is unhealthy"
    assert [text for text in report.warnings if text.startswith("Failed to remove unregistered nodes")]
