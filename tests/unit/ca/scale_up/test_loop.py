"""A whole loop of scale-up: pending pods in, plan out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import kscale
from builders import N0, at, node, owner, pod, run_steps, span
from json_schemas import validate
from kscale.ca import AutoscalerError, AutoscalingOptions, ExpanderInput, LoopState
from kscale.ca.cluster_state.state import Backoff, ScaleUpError, remove_stale_backoffs
from kscale.ca.expander.price import GroupPrices
from kscale.ca.options import ResourceRange
from kscale.effects import GetPrices, Moment, Prices
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod, PodStatus
from kscale.objects.api.meta import Condition
from kscale.objects.decode import to_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.schemas import schema
from kscale.snapshot.cluster import Cluster


def machine(name: str, cpu: int = 1000, **metadata: Any) -> Node:
    return replace(node(name, cpu, 1000, ready=True, **metadata), api_version="v1", kind="Node")


def waiting(name: str, cpu: int, *, age: int = 60, spec: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    created = pod(name, cpu, 10, spec=spec, creation_timestamp=at(seconds=-age), **metadata)
    return replace(created, status=PodStatus(phase="Pending", conditions=[condition]))


def running(name: str, cpu: int, on: str, **spec: Any) -> Pod:
    return pod(name, cpu, 10, spec={"node_name": on, **spec})


def group(name: str, cpu: int = 1000, **fields: Any) -> NodeGroup:
    return NodeGroup(id=name, max_size=10, template=NodeTemplate(node=machine(f"{name}-template", cpu)), **fields)


def test_pods_that_fit_nowhere_get_nodes() -> None:
    cluster = Cluster([machine("n1"), running("r", 700, "n1"), *(waiting(f"p{i}", 300) for i in range(5))])
    plan = kscale.scale_up(cluster, [group("a", 600)], now=N0)
    assert plan.result == "ScaleUpSuccessful"
    assert plan.placed == {"default/p0": "n1"}
    assert [str(info) for info in plan.scale_ups] == ["{a 0->2 (max: 10)}"]
    assert sorted(plan.triggered) == [f"default/p{i}" for i in range(1, 5)]
    assert (plan.remain_unschedulable, plan.lists.waiting, plan.lists.on_existing, plan.lists.asked) == ([], 5, 1, 4)
    assert {event.reason for event in plan.events} == {"ScaledUpGroup", "TriggeredScaleUp"}
    option = plan.options[0]
    assert (option.nodes, option.pods, option.chosen, option.bound) == (2, 4, True, 2)
    assert [(score.expander, score.kept) for score in option.scores] == [("least-waste", True)]
    validate(plan.record().to_dict(), schema("ScaleUpPlan"))
    assert LoopState.from_json(plan.state.to_json()) == plan.state


def test_every_pod_that_stays_is_explained() -> None:
    pods = [waiting("fits", 500), waiting("wide", 5000), waiting("picky", 100, spec={"node_selector": {"a": "b"}})]
    groups = [group("a"), group("b", 800), replace(group("full"), max_size=0)]
    plan = kscale.scale_up(Cluster([machine("n1", 10), *pods]), groups, now=N0)
    assert plan.triggered == ["default/fits"]
    remaining = {result.pods[0]: result for result in plan.remain_unschedulable}
    assert remaining.keys() == {"default/wide", "default/picky"}
    assert remaining["default/wide"].rejected["a"].plugin == "NodeResourcesFit"
    assert remaining["default/wide"].rejected["a"].numbers == [{"resource": "cpu", "asked": 5000, "free": 1000}]
    assert remaining["default/wide"].why == "1 max node group size reached, 2 Insufficient cpu"
    assert remaining["default/picky"].rejected["b"].plugin == "NodeAffinity"
    assert [option.skipped for option in plan.options] == [[], [], ["max node group size reached"]]
    assert plan.chosen == "b"


@pytest.mark.parametrize(
    ("item", "options", "field"),
    [
        (waiting("p", 500, spec={"priority": -11}), {}, "expendable"),
        (waiting("p", 500, owner_references=owner("DaemonSet")), {}, "daemon_set"),
        (waiting("p", 500, age=0), {}, "young"),
        (waiting("p", 500), {"new_pod_scale_up_delay": timedelta(minutes=2)}, "young"),
        (pod("p", 500, 10), {}, "ignored"),
        (waiting("p", 500), {"allowed_scheduler_names": ["other"]}, "ignored"),
    ],
)
def test_excluded_pods_cause_no_scale_up(item: Pod, options: dict[str, Any], field: str) -> None:
    cluster = Cluster([machine("n1", 100), item])
    plan = kscale.scale_up(cluster, [group("a")], now=N0, options=AutoscalingOptions(**options))
    assert (plan.result, plan.scale_ups) == ("ScaleUpNotNeeded", [])
    assert getattr(plan.lists, field) == 1


def test_a_bypassed_scheduler_is_not_waited_for() -> None:
    options = AutoscalingOptions(bypassed_scheduler_names=["default-scheduler"])
    plan = kscale.scale_up(Cluster([pod("p", 500, 10)]), [group("a")], now=N0, options=options)
    assert plan.triggered == ["default/p"]


def test_expendable_pods_take_no_room() -> None:
    cluster = Cluster([machine("n1"), running("cheap", 900, "n1", priority=-20), waiting("p", 500)])
    plan = kscale.scale_up(cluster, [group("a")], now=N0)
    assert (plan.result, plan.placed) == ("ScaleUpNotNeeded", {"default/p": "n1"})
    assert kscale.scale_up(cluster.snapshot(), [group("a")], now=N0).placed == plan.placed
    salvo = AutoscalingOptions(salvo_scale_up=True)
    again = kscale.scale_up(cluster, [group("a")], now=N0, options=salvo)
    assert (again.result, again.placed) == (plan.result, plan.placed)


@pytest.mark.parametrize(
    ("spec", "options"),
    [({"priority": -20}, {}), ({"scheduler_name": "other"}, {"allowed_scheduler_names": ["default-scheduler"]})],
    ids=["expendable", "of another scheduler"],
)
def test_templates_have_none_of_the_pods_that_do_not_count(spec: dict[str, Any], options: dict[str, Any]) -> None:
    """Upstream takes them out of its snapshot before it makes templates of nodes: ``RunOnce`` of
    ``static_autoscaler.go``."""
    agent = pod("agent", 600, 10, spec={"node_name": "n1", **spec}, owner_references=owner("DaemonSet"))
    cluster = Cluster([machine("n1"), running("r", 500, "n1"), agent, waiting("p", 800)])
    grows = NodeGroup(id="a", max_size=10, nodes=["n1"])
    plan = kscale.scale_up(cluster, [grows], now=N0, options=AutoscalingOptions(**options))
    assert [str(info) for info in plan.scale_ups] == ["{a 1->2 (max: 10)}"]
    report = kscale.ca.run_once(cluster, [grows], now=N0, options=AutoscalingOptions(**options))
    assert report.scale_up is not None
    assert [str(info) for info in report.scale_up.scale_ups] == ["{a 1->2 (max: 10)}"]


def test_expendable_pods_of_a_drained_node_need_no_place() -> None:
    cluster = Cluster([machine("n1"), running("r", 500, "n1"), running("cheap", 500, "n1", priority=-20)])
    inputs = kscale.ca.LoopInputs(draining=["n1"])
    plan = kscale.scale_up(cluster, [group("a")], now=N0, inputs=inputs)
    assert plan.lists.drained == 1


def test_a_snapshot_does_where_a_cluster_does() -> None:
    options = AutoscalingOptions(salvo_scale_up=True)
    cluster = Cluster([machine("n1"), running("cheap", 900, "n1", priority=-20), waiting("p", 500), waiting("q", 800)])
    assert kscale.scale_up(cluster, [group("a")], now=N0, options=options).triggered == ["default/q"]
    for flags in (options, AutoscalingOptions(capacity_quotas_enabled=True)):
        plan = kscale.scale_up(cluster.snapshot(), [group("a")], now=N0, options=flags)
        assert plan.record() == kscale.scale_up(cluster, [group("a")], now=N0, options=flags).record()
        assert plan.triggered == ["default/q"]


def test_nodes_that_are_coming_take_pods_in_the_next_loop() -> None:
    cluster = Cluster([machine("n1", 100), waiting("p0", 800), waiting("p1", 800)])
    first = kscale.scale_up(cluster, [group("a")], now=N0)
    assert first.new_node_count == 2
    later = N0 + span(seconds=10)
    grown = [replace(group("a"), target_size=2)]
    second = kscale.scale_up(cluster, grown, now=later, state=first.state)
    assert (second.result, second.upcoming) == ("ScaleUpNotNeeded", {"a": 2})
    assert set(second.placed) == {"default/p0", "default/p1"}
    assert all("upcoming" in name for name in second.placed.values())
    cluster.apply(waiting("p2", 800))
    third = kscale.scale_up(cluster, grown, now=later, state=second.state)
    assert [str(info) for info in third.scale_ups] == ["{a 2->3 (max: 10)}"]
    assert third.triggered == ["default/p2"]


def test_a_loop_of_several_scale_ups_ends_as_the_last_one() -> None:
    options = AutoscalingOptions(salvo_scale_up=True)
    cluster = Cluster([machine("n1", 100), waiting("p", 500), waiting("wide", 5000)])
    plan = kscale.scale_up(cluster, [group("a")], now=N0, options=options)
    assert [result.status.result for result in plan.rounds] == ["ScaleUpSuccessful", "ScaleUpNoOptionsAvailable"]
    assert (plan.result, plan.triggered) == ("ScaleUpNoOptionsAvailable", ["default/p"])
    assert plan.state.cluster == plan.rounds[-1].state


@pytest.mark.parametrize("profile", ["current", "legacy"])
@pytest.mark.parametrize(("unready", "best"), [(1, "small"), (2, "large")])
def test_the_preferred_node_grows_with_all_nodes_ready_or_not(profile: str, unready: int, best: str) -> None:
    """Up to two nodes a core is preferred, up to six two cores. The prices are the same."""
    others = [replace(node(f"u{i}", 100, 10, ready=False), api_version="v1", kind="Node") for i in range(unready)]
    groups = [group("small", 1000, price=1.0), group("large", 2000, price=1.0)]
    options = AutoscalingOptions(profile=profile, expander="price")
    cluster = Cluster([machine("n1", 100), *others, waiting("p", 900)])
    plan = kscale.scale_up(cluster, groups, now=N0, options=options)
    assert plan.chosen == best


@dataclass(frozen=True)
class OfSomeCloud:
    """Prices of groups as a cloud tells them, of which nobody knows what it reads of a pod."""

    prices: GroupPrices

    def node_price(self, node: Node, start: Moment, end: Moment) -> float:
        return self.prices.node_price(node, start, end)

    def pod_price(self, pod: Pod, start: Moment, end: Moment) -> float:
        return self.prices.pod_price(pod, start, end)


def test_prices_of_groups_count_like_pods_in_a_row_and_come_to_the_same() -> None:
    groups = [group("a", 1000, price=0.3), group("b", 2000, price=0.7)]
    waits = [waiting(f"p{i}", 300 + 70 * (i % 2), labels={"shape": str(i % 2)}) for i in range(40)]
    items = [*map(to_dict, [machine("n1", 10), *waits])]
    raw = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
    options = AutoscalingOptions(expander="price")
    counted = kscale.scale_up(kscale.load(raw), groups, now=N0, options=options).rounds[0]
    assert counted.expander_input is not None
    assert isinstance(counted.expander_input.prices, GroupPrices)
    expander_input = ExpanderInput(prices=OfSomeCloud(counted.expander_input.prices))
    inputs = kscale.ca.LoopInputs(expander_input=expander_input)
    single = kscale.scale_up(kscale.load(raw), groups, now=N0, options=options, inputs=inputs).rounds[0]
    assert [[run.count for run in option.pods] for option in counted.expander_options] == [[20], [20, 20]]
    assert [[run.count for run in option.pods] for option in single.expander_options] == [[1] * 20, [1] * 40]
    first, second = ([run.record for run in option.pods] for option in counted.expander_options)
    assert first[0] is second[0]  # and is decoded once for both
    assert counted.expansion is not None
    assert single.expansion is not None
    assert counted.expansion.steps[0].filtered.notes == single.expansion.steps[0].filtered.notes
    assert counted.status == single.status


def test_each_pod_price_is_requested_once() -> None:
    """As upstream asks, whatever is alike; but what several options have is asked for once."""
    requests: list[GetPrices] = []

    def prices(question: GetPrices) -> Prices:
        requests.append(question)
        return Prices(nodes=(1.0,) * len(question.nodes), pods=(0.1,) * len(question.pods))

    cluster = Cluster([machine("n1", 10), *(waiting(f"p{i}", 300) for i in range(20))])
    inputs = kscale.ca.LoopInputs(expander_input=ExpanderInput(ask_prices=True))
    options = AutoscalingOptions(expander="price")
    kscale.ca.run_once(cluster, [group("a"), group("b", 2000)], now=N0, options=options, inputs=inputs, prices=prices)
    (question,) = requests
    names = [each["metadata"]["name"] for each in question.pods]
    assert names == ["stabilize", *(f"p{i}" for i in range(20))]
    assert len(question.nodes) == 2


def test_pods_of_drained_nodes_need_a_place() -> None:
    cordoned = machine("n1")
    cordoned = replace(cordoned, spec=replace(cordoned.spec, unschedulable=True))
    cluster = Cluster([cordoned, running("moving", 500, "n1")])
    plan = kscale.scale_up(cluster, [group("a")], now=N0, inputs=kscale.ca.LoopInputs(draining=["n1", "gone"]))
    assert (plan.triggered, plan.lists.drained) == (["default/moving"], 1)
    assert len(plan.warnings) == 1


def test_the_limit_on_nodes_ends_the_loop() -> None:
    cluster = Cluster([machine("n1", 100), waiting("p", 500)])
    plan = kscale.scale_up(cluster, [group("a")], now=N0, options=AutoscalingOptions(max_nodes_total=1))
    assert plan.result == "ScaleUpLimitedByMaxNodesTotal"
    assert [event.message for event in plan.events] == [
        "Max total nodes in cluster reached: 1",
        "pod didn't trigger scale-up: max total nodes in cluster reached",
    ]
    assert [result.pods for result in plan.remain_unschedulable] == [["default/p"]]


def test_minimum_size_scale_up_emits_only_its_own_events() -> None:
    cluster = Cluster([machine("n1", 100), waiting("p", 500)])
    options = AutoscalingOptions(max_nodes_total=1, enforce_node_group_min_size=True)
    plan = kscale.scale_up(cluster, [group("a")], now=N0, options=options)
    assert plan.result == "ScaleUpLimitedByMaxNodesTotal"
    assert [event.reason for event in plan.events] == ["MaxNodesTotalReached"]


@pytest.mark.parametrize(("cores", "raised"), [(3, ["{a 0->1 (max: 10)}"]), (2, []), (4, ["{a 0->2 (max: 10)}"])])
def test_nodes_that_are_not_ready_count_when_groups_are_raised_to_their_minimum(cores: int, raised: list[str]) -> None:
    unready = [replace(node(name, 1000, 1000, ready=False), api_version="v1", kind="Node") for name in ("n1", "n2")]
    options = AutoscalingOptions(enforce_node_group_min_size=True, cores_total=ResourceRange(min=0, max=cores))
    plan = kscale.scale_up(Cluster([*unready]), [group("a", min_size=2)], now=N0, options=options)
    assert [str(info) for info in plan.min_sizes] == raised


def test_a_group_without_template_is_not_ready_even_if_it_failed_before() -> None:
    cluster = Cluster([machine("n1", 100), waiting("p", 500)])
    first = kscale.scale_up(cluster, [group("a")], now=N0)
    failed = run_steps(kscale.ca.scale_up_steps(cluster, [group("a")], now=N0), AutoscalerError("", "no")).value
    state = replace(failed.state, templates={})
    assert (first.error, failed.error.message) == (None, "failed to increase node group size: no")
    bare = NodeGroup(id="a", max_size=10)
    for described, why in ((group("a"), "in backoff after failed scale-up"), (bare, "not ready for scale-up")):
        plan = kscale.scale_up(cluster, [described], now=N0 + span(seconds=30), state=state)
        assert plan.options[0].skipped == [why]


def test_invalid_remembered_template_is_reported_for_its_group() -> None:
    cluster = Cluster([machine("n1", labels={"pool": "a"}), waiting("p", 5000)])
    described = NodeGroup(id="a", max_size=10, node_selector={"pool": "a"})
    state = kscale.scale_up(cluster, [described], now=N0).state
    broken = replace(state.templates["a"], template={"node": {"status": []}})
    with pytest.raises(InputError, match=r"^templates\[a\] of the state: node.status: expected `object`, got `array`$"):
        kscale.scale_up(cluster, [described], now=N0, state=replace(state, templates={"a": broken}))


def test_a_failure_at_the_end_of_time_is_not_old() -> None:
    last = 2**63 - 1
    entry = Backoff(duration=0, until=N0, last_failed=last, error=ScaleUpError(class_="Other", code="x", message=""))
    assert remove_stale_backoffs({"a": entry}, N0, span(hours=3)) == {"a": entry}


def test_a_group_without_template_cannot_grow() -> None:
    cluster = Cluster([machine("n1", 100), waiting("p", 500)])
    plan = kscale.scale_up(cluster, [NodeGroup(id="empty")], now=N0)
    assert plan.result == "ScaleUpNoOptionsAvailable"
    assert plan.options[0].skipped == ["not ready for scale-up"]
    assert plan.warnings == ["node group empty has no template: it cannot grow"]
    assert plan.remain_unschedulable[0].why == "1 not ready for scale-up"


def test_an_unhealthy_cluster_is_left_alone() -> None:
    broken = [replace(node(f"n{i}", 100, 10, ready=False), api_version="v1", kind="Node") for i in range(5)]
    plan = kscale.scale_up(
        Cluster([*broken, waiting("p", 50)]), [group("a", nodes=[item.name for item in broken])], now=N0
    )
    assert (plan.result, [event.reason for event in plan.events]) == ("ScaleUpNotTried", ["ClusterUnhealthy"])


def test_a_broken_priority_map_is_upstreams_event() -> None:
    cluster = Cluster([machine("n1", 100), waiting("p", 500)])
    plan = kscale.scale_up(
        cluster,
        [group("a"), group("b")],
        now=N0,
        options=AutoscalingOptions(expander="priority"),
        inputs=kscale.ca.LoopInputs(expander_input=ExpanderInput(priorities={"priorities": "{"})),
    )
    assert plan.result == "ScaleUpSuccessful"
    assert "PriorityConfigMapInvalid" in {event.reason for event in plan.events}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"expander": "cheapest"}, AutoscalerError, "Expander cheapest not supported"),
        ({"estimator": "guess"}, InputError, "Unknown estimator: guess"),
        ({"profile": "1.3"}, InputError, "unknown profile '1.3'"),
        ({"predicate_parallelism": 0}, InputError, "Invalid value for --predicate-parallelism"),
    ],
)
def test_options_that_upstream_refuses(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kscale.scale_up(Cluster(), [], now=N0, options=AutoscalingOptions(**options))


def test_the_order_of_dict_keys_does_not_matter() -> None:
    pods = [waiting("p", 300), waiting("q", 900)]
    turned = [replace(item, metadata=replace(item.metadata, labels={"b": "1", "a": "2"})) for item in pods]
    straight = [replace(item, metadata=replace(item.metadata, labels={"a": "2", "b": "1"})) for item in pods]
    plans = [
        kscale.scale_up(Cluster(objects), [group("a"), group("b", 1500)], now=N0) for objects in (turned, straight)
    ]
    assert plans[0].record().to_json() == plans[1].record().to_json()


@pytest.mark.parametrize(
    ("most", "flags", "message"),
    [
        (1, {}, "the maximum size of a is 1"),
        (9, {"max_nodes_per_scaleup": 1}, "--max-nodes-per-scaleup is 1"),
        (9, {"max_nodes_total": 2}, "--max-nodes-total is 2"),
        (1, {"balance_similar_node_groups": True}, "similar groups have room for 2 nodes"),
    ],
)
def test_which_limit_it_is(most: int, flags: dict[str, Any], message: str) -> None:
    groups = [replace(group("a"), max_size=most), replace(group("b"), max_size=most)]
    pods = [waiting(f"p{i}", 900) for i in range(4)]
    offered_groups = groups if "balance_similar_node_groups" in flags else groups[:1]
    plan = kscale.scale_up(
        Cluster([machine("n1", 100), *pods]), offered_groups, now=N0, options=AutoscalingOptions(**flags)
    )
    assert [item.why for item in plan.remain_unschedulable] == [
        f"a was chosen: no further node was permitted ({message})"
    ] * len(plan.remain_unschedulable)
    assert plan.unschedulable_count == 4 - plan.new_node_count > 0
