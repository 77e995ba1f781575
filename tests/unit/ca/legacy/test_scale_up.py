"""The profile of release 1.3: its tables of upstream's tests, and what differs from today."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import N0, Ran, at, node, owner, pod, run_steps
from kscale import ca
from kscale.ca import AutoscalerError, AutoscalingOptions, ExpanderInput, HourlyPrices, LoopState
from kscale.ca.legacy.scale_up import (
    UNKNOWN_LIMIT,
    apply_resources_limits,
    build_legacy_candidates,
    choose_best_label_set,
    compute_resources_delta,
    compute_resources_left_limits,
    find_exceeded_resources,
)
from kscale.ca.legacy.scale_up_loop import find_schedulable_pods
from kscale.ca.options import ResourceLimiter, ResourceRange
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.effects import CreateGroup, IncreaseSize
from kscale.errors import InputError
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod, PodStatus
from kscale.objects.api.meta import Condition
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.snapshot.cluster import Cluster


def machine(name: str, cpu: int, **metadata: Any) -> Node:
    return replace(node(name, cpu, 1000, ready=True, **metadata), api_version="v1", kind="Node")


def waiting(name: str, cpu: int, *, priority: int | None = None, **metadata: Any) -> Pod:
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    created = pod(name, cpu, 0, spec={"priority": priority}, creation_timestamp=at(seconds=-60), **metadata)
    return replace(created, status=PodStatus(phase="Pending", conditions=[condition]))


def running(name: str, cpu: int, on: str, **spec: Any) -> Pod:
    return pod(name, cpu, 0, spec={"node_name": on, **spec})


def legacy(
    cluster: Cluster, groups: list[NodeGroup], flags: dict[str, Any] | None = None, **fields: Any
) -> ScaleUpPlan:
    options = AutoscalingOptions.for_profile("legacy", **(flags or {}))
    state, inputs = fields.pop("state", None), kscale.ca.LoopInputs(**fields)
    return kscale.scale_up(cluster, groups, now=N0, options=options, state=state, inputs=inputs)


def two_groups(*pending: Pod) -> tuple[Cluster, list[NodeGroup]]:
    """ng1 with a full small node; ng2 with one large node of two that were asked for."""
    cluster = Cluster(
        [machine("n1", 100), machine("n2", 1000), running("p1", 80, "n1"), running("p2", 800, "n2"), *pending]
    )
    return cluster, [
        NodeGroup(id="ng1", min_size=1, max_size=10, nodes=["n1"]),
        NodeGroup(id="ng2", min_size=1, max_size=10, nodes=["n2"], target_size=2),
    ]


@pytest.mark.parametrize("estimator", ["binpacking", "basic"])
@pytest.mark.parametrize(("count", "plan"), [(1, []), (2, ["{ng2 2->3 (max: 10)}"])])
def test_nodes_that_are_coming_are_the_estimators_business(estimator: str, count: int, plan: list[str]) -> None:
    cluster, groups = two_groups(*(waiting(f"p-{i}", 550) for i in range(count)))
    result = legacy(cluster, groups, {"estimator": estimator})
    assert [str(info) for info in result.scale_ups] == plan
    assert result.upcoming == {"ng2": 1}
    assert result.result == ("ScaleUpSuccessful" if plan else "ScaleUpNoOptionsAvailable")
    skipped = {choice.group: choice.skipped for choice in result.options}
    assert skipped["ng1"] == ["No pod can fit to ng1"]
    assert skipped["ng2"] == ([] if plan else ["No need for any nodes in ng2"])
    if plan:
        assert result.triggered == ["default/p-0", "default/p-1"]
        assert {event.reason for event in result.events} == {"ScaledUpGroup", "TriggeredScaleUp"}
    assert LoopState.from_json(result.state.to_json()) == result.state


@pytest.mark.parametrize(
    ("limits_left", "delta", "names"),
    [
        ({"a": 10}, {"a": 10}, []),
        ({"a": 10}, {"a": 11}, ["a"]),
        ({"a": 10}, {"b": 10}, []),
        ({"a": UNKNOWN_LIMIT}, {"a": 0}, []),
        ({"a": UNKNOWN_LIMIT}, {"a": 1}, ["a"]),
        ({"a": 10, "b": 20, "c": 30}, {"a": 11, "b": 20, "c": 31}, ["a", "c"]),
    ],
)
def test_check_of_a_delta(limits_left: dict[str, int], delta: dict[str, int], names: list[str]) -> None:
    assert find_exceeded_resources(limits_left, delta) == names


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        ({"cpu": 10}, {"cpu": 10 - 2 * 2 - 1}),
        ({"cpu": 3}, {"cpu": 0}),
        ({"cpu": 0, "memory": 5000}, {"memory": 5000 - 3 * 1000}),
        ({}, {}),
    ],
)
def test_limits_left_count_target_sizes(limits: dict[str, int], want: dict[str, int]) -> None:
    groups = [NodeGroup(id="a", max_size=5, target_size=2), NodeGroup(id="b", max_size=5, target_size=0)]
    templates = {"a": machine("t", 2000)}
    assert (
        compute_resources_left_limits(ResourceLimiter(max=limits), groups, templates, [machine("alone", 1000)]) == want
    )


def test_devices_of_one_type_add_up() -> None:
    nodes = [machine(name, 1000, labels={"gpu": "nvidia-tesla-k80"}) for name in "ab"]
    for each in nodes:
        each.status.capacity["nvidia.com/gpu"] = each.status.allocatable["nvidia.com/gpu"] = Quantity("2")
    limiter = ResourceLimiter(max={"nvidia-tesla-k80": 10})
    assert compute_resources_left_limits(limiter, [], {}, nodes, "gpu") == {"nvidia-tesla-k80": 6}


def test_a_minimum_alone_blocks_once_nothing_is_there() -> None:
    limits_left = compute_resources_left_limits(ResourceLimiter(min={"gpu": 1}), [], {}, [])
    assert limits_left == {"gpu": UNKNOWN_LIMIT}
    assert find_exceeded_resources(limits_left, {"gpu": 1}) == ["gpu"]


def test_a_group_of_unknown_size_or_without_template_stops_everything() -> None:
    for group, message in (
        (NodeGroup(id="a", max_size=5, target_size_error="boom"), "Failed to get node group size of a:boom"),
        (NodeGroup(id="a", max_size=5, target_size=1), "No node info for: a"),
    ):
        with pytest.raises(AutoscalerError, match=message):
            compute_resources_left_limits(ResourceLimiter(max={"cpu": 5}), [group], {}, [])


def test_how_many_nodes_the_limits_allow() -> None:
    delta = compute_resources_delta(ResourceLimiter(max={"cpu": 9}), NodeGroup(id="a", max_size=5), machine("t", 2000))
    assert delta == {"cpu": 2, "memory": 1000}
    assert apply_resources_limits(5, {"cpu": 9}, delta) == 4
    assert apply_resources_limits(5, {}, delta) == 5
    with pytest.raises(AutoscalerError, match="cannot create any node; max limit for resource cpu reached"):
        apply_resources_limits(5, {"cpu": 1}, delta)
    with pytest.raises(AutoscalerError, match="limit unknown for resource cpu"):
        apply_resources_limits(5, {"cpu": UNKNOWN_LIMIT}, delta)


@pytest.mark.parametrize(
    ("placed", "unplaced"),
    [
        ([running("s1", 100, "n")], ["u3", "u4"]),
        ([running("s1", 100, "n"), running("s2", 1500, "n")], ["u1", "u3", "u4"]),
        (
            [
                running("s1", 100, "n"),
                replace(pod("w", 1500, 0, spec={"priority": 100}), status=PodStatus(nominated_node_name="n")),
            ],
            ["u1", "u3", "u4"],
        ),
    ],
)
def test_pods_are_tried_alone_on_nodes_that_exist(placed: list[Pod], unplaced: list[str]) -> None:
    pending = [
        waiting("u1", 1500),
        waiting("u3", 3000, owner_references=owner("ReplicationController", "rc1")),
        waiting("u4", 3000, owner_references=owner("ReplicationController", "rc1")),
        waiting("u5", 100, owner_references=owner("ReplicationController", "rc2")),
        waiting("u6", 100, owner_references=owner("ReplicationController", "rc2")),
    ]
    cheap = running("s3", 4000, "n", priority=1)
    cluster = Cluster([machine("n", 2000), cheap, *placed, *pending])
    result = legacy(cluster, [], {"expendable_pods_priority_cutoff": 10})
    assert sorted(name for part in result.remain_unschedulable for name in part.pods) == [
        f"default/{name}" for name in unplaced
    ]
    snapshot = cluster.snapshot()
    assert find_schedulable_pods(snapshot, list(snapshot.pending_records), set()) == {}


def test_no_pod_takes_room_from_another() -> None:
    """Two pods for one free place: today one of them would ask for a node."""
    cluster = Cluster([machine("n", 1000), waiting("a", 800), waiting("b", 800)])
    groups = [NodeGroup(id="g", max_size=10, template=NodeTemplate(node=machine("t", 1000)))]
    assert legacy(cluster, groups).placed == {"default/a": "n", "default/b": "n"}
    assert kscale.scale_up(cluster, groups, now=N0).new_node_count == 1


def test_remaining_pods_get_events_even_after_a_scale_up() -> None:
    cluster, groups = two_groups(waiting("fits", 900), waiting("fits-too", 900), waiting("huge", 9000))
    result = legacy(cluster, groups)
    assert [str(info) for info in result.scale_ups] == ["{ng2 2->3 (max: 10)}"]
    messages = {event.about: event.message for event in result.events if event.reason == "NotTriggerScaleUp"}
    assert messages == {"Pod/default/huge": "pod didn't trigger scale-up (it wouldn't fit if a new node is added)"}
    assert result.unschedulable_count == 1
    assert result.remain_unschedulable[0].rejected["ng2"].reasons == ["Insufficient cpu"]


@pytest.mark.parametrize(
    ("flags", "result", "message"),
    [
        ({"max_nodes_total": 3}, "ScaleUpSuccessful", ""),
        ({"max_nodes_total": 2}, "ScaleUpNoOptionsAvailable", ""),
        ({"cores_total": ResourceRange(0, 3)}, "ScaleUpNoOptionsAvailable", "maximal limit exceeded for [cpu]"),
    ],
)
def test_limits(flags: dict[str, Any], result: str, message: str) -> None:
    cluster, groups = two_groups(*(waiting(f"p-{i}", 900) for i in range(4)))
    plan = legacy(cluster, groups, flags)
    assert plan.result == result
    if result == "ScaleUpSuccessful":
        assert plan.new_node_count == 1  # of three: only ready nodes count
    assert any(message in text for choice in plan.options for text in choice.skipped) or not message


def test_a_full_cluster_has_neither_result_nor_event_of_its_own() -> None:
    cluster, groups = two_groups(waiting("p", 900))
    result = legacy(cluster, groups, {"max_nodes_total": 2})
    assert (result.result, result.events, result.new_node_count) == ("ScaleUpNoOptionsAvailable", [], 0)
    assert result.warnings == ["Max total nodes in cluster reached"]
    now = kscale.scale_up(cluster, groups, now=N0, options=AutoscalingOptions(max_nodes_total=2))
    assert now.result == "ScaleUpLimitedByMaxNodesTotal"
    assert "MaxNodesTotalReached" in {event.reason for event in now.events}


def test_a_price_tie_goes_to_the_first_and_other_ties_to_chance() -> None:
    class Last:
        def randrange(self, stop: int, /) -> int:
            return stop - 1

    cluster = Cluster([machine("n", 100), waiting("p", 500)])
    groups = [NodeGroup(id=name, max_size=5, template=NodeTemplate(node=machine(name, 1000))) for name in ("a", "b")]
    prices = ExpanderInput(prices=HourlyPrices(nodes={f"template-node-for-{name}-0": 1.0 for name in ("a", "b")}))
    assert legacy(cluster, groups, {"expander": "price"}, expander_input=prices, rng=Last()).chosen == "a"
    for name in ("random", "most-pods", "least-waste"):
        assert legacy(cluster, groups, {"expander": name}, rng=Last()).chosen == "b"
        assert legacy(cluster, groups, {"expander": name}).chosen == "a"


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({"expander": "least-nodes"}, AutoscalerError, "Expander least-nodes not supported"),
        ({"expander": "most-pods,random"}, AutoscalerError, "Expander most-pods,random not supported"),
        ({"estimator": "guess"}, InputError, "Unrecognized estimator: guess"),
    ],
)
def test_options_unknown_to_1_3_are_refused(flags: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        legacy(Cluster(), [], flags)


def test_similar_groups_share_and_must_agree_in_memory_exactly() -> None:
    def like(name: str, memory: int) -> NodeGroup:
        one = replace(node(name, 1000, memory, ready=True), api_version="v1", kind="Node")
        return NodeGroup(id=name, max_size=10, template=NodeTemplate(node=one))

    cluster = Cluster([machine("n", 100), *(waiting(f"p{i}", 900) for i in range(4))])
    flags = {"balance_similar_node_groups": True}
    shared = legacy(cluster, [like("a", 1000), like("b", 1000)], flags)
    assert [str(info) for info in shared.scale_ups] == ["{a 0->2 (max: 10)}", "{b 0->2 (max: 10)}"]
    alone = legacy(cluster, [like("a", 1000), like("b", 1001)], flags)
    assert [str(info) for info in alone.scale_ups] == ["{a 0->4 (max: 10)}"]


def test_candidate_groups_are_considered() -> None:
    cluster = Cluster([machine("n", 100), waiting("p", 900)])
    candidate = NodeGroup(
        id="made", max_size=5, exists=False, autoprovisioned=True, template=NodeTemplate(node=machine("t", 1000))
    )
    assert legacy(cluster, [candidate]).result == "ScaleUpNoOptionsAvailable"
    result = legacy(cluster, [candidate], {"node_autoprovisioning_enabled": True})
    assert [str(info) for info in result.scale_ups] == ["{made 0->1 (max: 5)}"]
    assert [created.main for created in result.created_groups] == ["made"]


def _steps(cluster: Cluster, groups: list[NodeGroup], *answers: Any, **flags: Any) -> Ran:
    options = AutoscalingOptions.for_profile("legacy", **flags)
    steps = ca.scale_up_steps(cluster, groups, now=N0, options=options)
    return run_steps(steps, *answers)


def test_created_groups_emit_events() -> None:
    cluster = Cluster([machine("n", 100), waiting("p", 900)])
    candidate = NodeGroup(
        id="m1", max_size=5, exists=False, autoprovisioned=True, template=NodeTemplate(node=machine("t", 1000))
    )
    ran = _steps(cluster, [candidate], node_autoprovisioning_enabled=True)
    assert ran.actions == [CreateGroup(group="m1"), IncreaseSize(group="m1", delta=1)]
    assert [event.message for event in ran.events][:2] == [
        "NodeAutoprovisioning: created new node group m1",
        "Scale-up: group m1 size set to 1",
    ]
    failed = _steps(cluster, [candidate], AutoscalerError("", "no room"), node_autoprovisioning_enabled=True)
    assert (failed.value.error.type, failed.value.error.message) == ("cloudProviderError", "no room")
    assert failed.events[0].message == "NodeAutoprovisioning: attempt to create node group m1 failed: no room"
    enough = {"node_autoprovisioning_enabled": True, "max_autoprovisioned_node_group_count": 1}
    there = NodeGroup(id="made", max_size=1, nodes=["n"], target_size=1, autoprovisioned=True)
    assert legacy(cluster, [there, candidate], enough).scale_ups == []


def _selecting(name: str, cpu: int, gpus: int = 0, **selector: str) -> Pod:
    created = waiting(name, cpu)
    (one,) = created.spec.containers
    requests = {**(one.resources.requests or {}), **({"nvidia.com/gpu": Quantity(str(gpus))} if gpus else {})}
    one = replace(one, resources=replace(one.resources, requests=requests))
    labels = {key.replace("__", "/").replace("_", "."): value for key, value in selector.items()}
    return replace(created, spec=replace(created.spec, containers=[one], node_selector=labels or None))


@pytest.mark.parametrize(
    ("pods", "labels"),
    [
        ([], {}),
        ([_selecting("a", 100)], {}),
        ([_selecting("a", 100), _selecting("b", 200, disk="ssd")], {"disk": "ssd"}),
        ([_selecting("a", 300, disk="hdd"), _selecting("b", 200, disk="ssd")], {"disk": "hdd"}),
        (
            [_selecting("a", 300, disk="hdd"), *(_selecting(f"b{i}", 200, disk="ssd") for i in range(2))],
            {"disk": "ssd"},
        ),
        ([_selecting("a", 300, disk="hdd"), _selecting("b", 200, team="x")], {"disk": "hdd", "team": "x"}),
        ([_selecting("a", 300, disk="hdd"), _selecting("b", 200, kubernetes_io__os="x", team="x")], {"disk": "hdd"}),
        ([_selecting("a", 300, kubernetes_io__os="x")], {"kubernetes.io/os": "x"}),
        ([_selecting("a", 0, disk="hdd"), _selecting("b", 49, disk="ssd")], {"disk": "hdd"}),
    ],
)
def test_the_labels_that_most_pods_want(pods: list[Pod], labels: dict[str, str]) -> None:
    assert choose_best_label_set(pods) == labels


def test_machines_get_the_labels_and_devices_that_pods_want() -> None:
    gpu_label = "example.com/accelerator"
    pods = [
        _selecting("plain", 700, disk="ssd"),
        _selecting("one", 100, 1),
        _selecting("two", 100, 2, example_com__accelerator="v100"),
        _selecting("four", 100, 4, example_com__accelerator="v100"),
    ]
    types = [NodeGroup(id=name, max_size=5, exists=False, autoprovisioned=True) for name in ("m1", "m2", "hdd", "dgx")]
    nodes = {
        "m1": machine("t1", 1000),
        "hdd": machine("t3", 1000, labels={"disk": "hdd"}),
        "dgx": machine("t4", 1000),
    }
    assert nodes["dgx"].status.capacity is not None
    nodes["dgx"].status.capacity["nvidia.com/gpu"] = Quantity("8")
    result = build_legacy_candidates(
        types,
        {name: NodeTemplate(node=item) for name, item in nodes.items()},
        Groups(),
        pods,
        AutoscalingOptions.for_profile("legacy", node_autoprovisioning_enabled=True),
    )
    got = {
        group.id: (
            result.templates[group.id].node.metadata.labels,
            str((result.templates[group.id].node.status.allocatable or {}).get("nvidia.com/gpu", 0)),
        )
        for group in result.groups
    }
    k80, v100 = {gpu_label: "nvidia-tesla-k80"}, {gpu_label: "v100"}
    assert got == {
        "m1": ({"disk": "ssd", **v100}, "0"),
        "m1-nvidia-tesla-k80": (k80, "1"),
        "m1-v100": (v100, "4"),
        "hdd-nvidia-tesla-k80": ({"disk": "hdd", **k80}, "1"),
        "hdd-v100": ({"disk": "hdd", **v100}, "4"),
        "dgx": ({"disk": "ssd", **v100}, "0"),
    }
    assert result.warnings == [
        "node group hdd could not be created with the labels that pods request: disk=ssd (it has hdd)"
    ]


def test_a_pod_that_wants_a_device_gets_a_group_with_one() -> None:
    cluster = Cluster([machine("n", 100), _selecting("p", 500, 2)])
    candidate = NodeGroup(
        id="m1", max_size=5, exists=False, autoprovisioned=True, template=NodeTemplate(node=machine("t", 1000))
    )
    result = legacy(cluster, [candidate], {"node_autoprovisioning_enabled": True})
    assert [str(info) for info in result.scale_ups] == ["{m1-nvidia-tesla-k80 0->1 (max: 5)}"]


def test_templates_from_a_description_get_the_daemonsets_that_fit() -> None:
    def daemonset(name: str, cpu: str) -> DaemonSet:
        containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        template = {"metadata": {"labels": {"ds": name}}, "spec": {"containers": containers}}
        data = {"metadata": {"name": name, "namespace": "default"}, "spec": {"template": template}}
        return from_dict({"apiVersion": "apps/v1", "kind": "DaemonSet", **data}, DaemonSet)

    groups = [NodeGroup(id="g", max_size=5, template=NodeTemplate(node=machine("t", 1000)))]
    pending = [machine("n", 10), waiting("p", 600)]
    huge = Cluster([*pending, daemonset("huge", "2")])  # does not fit: today it would still take its place
    assert legacy(huge, groups).new_node_count == 1
    assert kscale.scale_up(huge, groups, now=N0).new_node_count == 0
    small = Cluster([*pending, daemonset("small", "500m")])
    assert legacy(small, groups).result == "ScaleUpNoOptionsAvailable"


def test_an_unhealthy_cluster_is_left_alone() -> None:
    nodes = [replace(node(f"n{i}", 1000, 1000, ready=False), api_version="v1", kind="Node") for i in range(10)]
    result = legacy(Cluster([*nodes, waiting("p", 100)]), [])
    assert (result.result, [event.reason for event in result.events]) == ("ScaleUpNotTried", ["ClusterUnhealthy"])
