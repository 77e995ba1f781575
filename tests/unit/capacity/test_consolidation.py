"""``kscale.consolidate``: each step of a path can be carried out, and the path stops where it should."""

from __future__ import annotations

import contextlib
import copy
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import kscale
from kscale.capacity.consolidation import ConsolidationPlan, DisruptionBudget
from kscale.capacity.groups import groups_from
from kscale.capacity.karpenter import node_pools_from
from kscale.effects import SECOND
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.times import nanoseconds
from kscale.scheduling.scores.options import ScoreOptions
from kscale.world.simulated.api_server import RefusedError
from kscale.world.simulated.world import SimulatedWorld, WorldOptions
from unit.capacity import consolidation_checker as checker
from unit.capacity.disruptable_clusters import NOW, budget, cluster, node, pod

START = nanoseconds(NOW)
EVERY = [DisruptionBudget(nodes="100%")]


def path_of(items: list[dict[str, Any]], entries: list[dict[str, Any]], **options: Any) -> ConsolidationPlan:
    chosen = kscale.ConsolidationOptions(**options)
    return kscale.consolidate(kscale.load(items), groups_from(entries), now=START, options=chosen)


# -- against an independent checker and the simulated cluster ----------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_every_step_of_a_random_cluster_can_be_carried_out(seed: int) -> None:
    items, entries = checker.fleet(seed), checker.groups()
    plan = path_of(items, entries, budgets=[DisruptionBudget(nodes="30%")], bound_effort=100_000)
    checker.check(items, entries, plan, share=30)
    assert plan.steps, "the cluster is half empty"
    assert [each.state for each in plan.table] == ["today", "path", "optimum"]
    assert plan == path_of(items, entries, budgets=[DisruptionBudget(nodes="30%")], bound_effort=100_000)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_steps_leave_no_pod_pending_in_the_simulated_cluster(seed: int) -> None:
    items, entries = checker.fleet(seed), checker.groups()
    plan = path_of(items, entries, budgets=EVERY, bound_effort=0)
    options = WorldOptions(latency=0, scores=ScoreOptions())
    objects = [each for kind in ("Node", "ReplicaSet", "PodDisruptionBudget", "Pod") for each in items
               if each["kind"] == kind]  # fmt: skip
    world = SimulatedWorld(now=START, objects=kscale.load(objects), options=options)
    world.begin()
    run(world, 10)
    by_id = {entry["id"]: entry for entry in entries}
    count = len(world.api.get_all("Pod"))
    for step in plan.steps:
        for new in step.add:
            template = copy.deepcopy(by_id[new.group]["template"])
            template["metadata"] |= {"name": new.name}
            template["metadata"]["labels"]["kubernetes.io/hostname"] = new.name
            template["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            world.add(from_dict({"apiVersion": "v1", "kind": "Node", **template}, Node))
        for name in step.remove:
            cordoned = world.api.find("Node", name)
            spec = msgspec.structs.replace(cordoned.spec, unschedulable=True)
            world.api.put(msgspec.structs.replace(cordoned, spec=spec))
        for _ in range(20):
            remaining = [each for each in world.api.get_all("Pod").values() if each.spec.node_name in step.remove]
            if not remaining:
                break
            for each in remaining:
                if each.metadata.deletion_timestamp is None:
                    with contextlib.suppress(RefusedError):  # of a pod of the next wave
                        world.disruption.evict(each.namespace, each.name, None)
            run(world, 60)
        assert not remaining
        for name in step.remove:
            world.api.remove(world.api.find("Node", name))
        run(world, 10)
        pods = world.api.get_all("Pod").values()
        assert len(pods) == count
        assert [each.name for each in pods if not each.spec.node_name] == []
    assert {each.name for each in world.api.get_all("Node").values()} >= {
        each.to for step in plan.steps for each in step.evict if step is plan.steps[-1]
    }
    assert len(world.api.get_all("Node")) == plan.table[1].nodes


def run(world: SimulatedWorld, seconds: int) -> None:
    world.time.run(world.time.now + seconds * SECOND)


# -- kinds of steps ------------------------------------------------------------------------------------------------


def groups(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"min": 0, "max": 10, "price": 1.0, **entry} for entry in entries]


def template(cpu: str, memory: str = "16Gi", **labels: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory, "pods": "20"}
    return {"metadata": {"labels": labels}, "status": {"allocatable": amounts, "capacity": amounts}}


def plan_of(*items: dict[str, Any], entries: list[dict[str, Any]] | None = None, **options: Any) -> ConsolidationPlan:
    if entries is None:
        names = [item["metadata"]["name"] for item in items if item["kind"] == "Node"]
        entries = groups({"id": "g", "nodes": names})
    chosen = kscale.ConsolidationOptions(**{"budgets": EVERY, "bound_effort": 0, **options})
    return kscale.consolidate(cluster(*items), groups_from(entries), now=START, options=chosen)


def kinds(plan: ConsolidationPlan) -> list[tuple[str, list[str], list[str]]]:
    return [(step.kind, [new.group for new in step.add], step.remove) for step in plan.steps]


def test_empty_nodes_go_first_and_then_nodes_whose_pods_fit_elsewhere() -> None:
    plan = plan_of(node("n1"), node("n2"), node("n3"), pod("a", "n1"), pod("b", "n2", "2"))
    assert kinds(plan) == [("empty", [], ["n3"]), ("remove", [], ["n1"])]
    (eviction,) = plan.steps[1].evict
    assert (eviction.pod, eviction.from_node, eviction.to, eviction.wave) == ("shop/a", "n1", "n2", 1)
    assert [(each.state, each.nodes, each.cost) for each in plan.table] == [("today", 3, 3.0), ("path", 1, 1.0)]
    assert plan.stopped == "nothing-saves"


def test_a_node_is_replaced_by_a_cheaper_one() -> None:
    small = {"id": "small", "price": 0.4, "target": 0, "template": template("2")}
    entries = groups({"id": "g", "nodes": ["n1"]}, small)
    plan = plan_of(node("n1"), pod("a", "n1"), entries=entries)
    assert kinds(plan) == [("replace", ["small"], ["n1"])]
    assert (plan.steps[0].saves, plan.steps[0].cost, plan.steps[0].peak) == (0.6, 0.4, 1.4)
    dear = [entries[0], {**entries[1], "price": 1.0}]
    assert plan_of(node("n1"), pod("a", "n1"), entries=dear).steps == [], "the same price saves nothing"
    assert plan_of(node("n1"), pod("a", "n1"), entries=entries, replace=False).steps == []


def test_several_nodes_are_replaced_by_one() -> None:
    large = {"id": "large", "price": 2.5, "target": 0, "template": template("12")}
    items = [node(f"n{i}") for i in range(3)] + [pod(f"p{i}", f"n{i}", "3500m") for i in range(3)]
    entries = groups({"id": "g", "nodes": ["n0", "n1", "n2"]}, large)
    plan = plan_of(*items, entries=entries)
    assert kinds(plan) == [("replace", ["large"], ["n0", "n1", "n2"])]
    assert plan.steps[0].saves == 0.5


def test_a_full_group_gets_no_node_and_a_group_at_its_minimum_loses_none() -> None:
    small = {"id": "small", "price": 0.4, "target": 0, "max": 0, "template": template("2")}
    entries = groups({"id": "g", "nodes": ["n1", "n2"], "min": 1}, small)
    plan = plan_of(node("n1"), node("n2"), pod("a", "n1"), entries=entries)
    assert kinds(plan) == [("empty", [], ["n2"])]


def test_held_nodes_stay_and_say_why() -> None:
    items = [
        node("n1"), node("n2", annotations={"karpenter.sh/do-not-disrupt": "true"}), node("n3"), node("n4"),
        pod("a", "n1", annotations={"karpenter.sh/do-not-disrupt": "true"}), pod("b", "n3"), budget("web", 0),
    ]  # fmt: skip
    plan = plan_of(*items, entries=groups({"id": "g", "nodes": ["n1", "n2", "n3"]}))
    assert plan.steps == []
    assert [(each.node, each.reason) for each in plan.held] == [
        ("n1", "BlockedByPod"),
        ("n2", "DoNotDisruptAnnotation"),
        ("n3", "BlockedByPod"),
        ("n4", "NoPrice"),
    ]
    assert "allows no eviction now" in plan.held[2].why
    assert plan.unpriced == 1


def test_a_budget_is_used_once_a_wave() -> None:
    pods = [pod(f"p{i}", "n1", "500m") for i in range(4)]
    plan = plan_of(node("n1"), node("n2"), *pods, budget("web", 1), pod("x", "n2", app=""))
    (step,) = plan.steps
    assert step.waves == 4
    assert [each.wave for each in step.evict] == [1, 2, 3, 4]
    assert plan_of(node("n1"), node("n2"), *pods, budget("web", 1), pod("x", "n2", app=""), max_waves=3).steps == []


def test_a_step_evicts_no_more_pods_than_allowed() -> None:
    items = [node(f"n{i}") for i in range(3)] + [pod(f"p{i}", f"n{i}", "500m") for i in range(3)]
    assert [len(step.evict) for step in plan_of(*items, max_evictions=1).steps] == [1, 1]
    assert plan_of(*items, max_evictions=0).steps == []


def test_pending_pods_that_fit_take_their_room_first() -> None:
    items = [node("n1"), node("n2"), pod("a", "n1", "3"), pod("early", cpu="3"), pod("huge", cpu="30")]
    plan = plan_of(*items)
    assert plan.steps == [], "both nodes are needed"
    assert plan.pending_count == 1
    assert kinds(plan_of(*items[:3])) == [("empty", [], ["n2"])]


# -- where the path stops ----------------------------------------------------------------------------------------------


def test_the_path_stops_at_a_step_that_saves_too_little() -> None:
    items = [node("n1"), node("n2"), pod("a", "n1")]
    assert plan_of(*items, min_saving=1.5).stopped == "min-saving"
    assert plan_of(*items, min_saving=1.5).steps == []
    assert len(plan_of(*items, min_saving=1.0).steps) == 1


def test_a_node_goes_only_if_it_repays_its_evictions() -> None:
    items = [node("n1"), node("n2"), pod("a", "n1"), pod("b", "n2")]
    # One node saves 1.0 an hour, and its single pod costs one eviction.
    assert plan_of(*items, eviction_cost=2.0, payback=timedelta(hours=2)).steps == []
    assert len(plan_of(*items, eviction_cost=1.9, payback=timedelta(hours=2)).steps) == 1


def test_the_number_of_steps_is_limited() -> None:
    items = [node("n1"), node("n2"), node("n3"), pod("a", "n1")]
    plan = plan_of(*items, max_steps=1, budgets=[DisruptionBudget(nodes="1")])
    assert (len(plan.steps), plan.stopped) == (1, "max-steps")


def test_budgets_of_the_time_of_day_delay_a_step() -> None:
    # NOW is Wednesday, 12:00.
    items = [node("n1"), node("n2"), pod("a", "n1")]
    office = DisruptionBudget(nodes="0", schedule="0 9 * * mon-fri", duration="8h")
    plan = plan_of(*items, budgets=[office, *EVERY])
    assert [step.at for step in plan.steps] == ["2026-07-01T17:00:00Z"]
    only_moves = msgspec.structs.replace(office, reasons=["Underutilized"])
    assert [step.at for step in plan_of(*items, budgets=[only_moves]).steps] == ["2026-07-01T12:00:00Z"]
    closed = plan_of(*items, budgets=[DisruptionBudget(nodes="0")])
    assert (closed.steps, closed.stopped) == ([], "budgets")


def test_moves_wait_for_their_budget_while_empty_nodes_go() -> None:
    items = [node("n1"), node("n2"), node("n3"), pod("a", "n1"), pod("b", "n2")]
    moves = DisruptionBudget(nodes="0", schedule="0 12 * * *", duration="1h", reasons=["Underutilized"])
    plan = plan_of(*items, budgets=[moves])
    assert [(step.kind, step.at) for step in plan.steps] == [
        ("empty", "2026-07-01T12:00:00Z"),
        ("remove", "2026-07-01T13:00:00Z"),
    ]


# -- NodePools ---------------------------------------------------------------------------------------------------------


def pool_of(name: str, disruption: dict[str, Any]) -> Any:
    spec = {"template": {"spec": {"requirements": []}}, "disruption": disruption}
    item = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
    return node_pools_from([item]).pools[0].disruption()


def plan_of_pools(*items: dict[str, Any], pools: dict[str, dict[str, Any]], **options: Any) -> ConsolidationPlan:
    entries = [
        {"id": name, "min": 0, "max": 10, "price": 0.2, "nodeSelector": {"karpenter.sh/nodepool": name}}
        for name in pools
    ]
    rules = [pool_of(name, disruption) for name, disruption in pools.items()]
    chosen = kscale.ConsolidationOptions(node_pools=rules, bound_effort=0, replace=False, **options)
    return kscale.consolidate(cluster(*items), groups_from(entries), now=START, options=chosen)


def pool_nodes(pool: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [node(f"{pool}{i}", labels={"karpenter.sh/nodepool": pool}, **more) for i in range(count)]


def removed_of(plan: ConsolidationPlan) -> list[tuple[str, list[str]]]:
    return [(step.at[11:16], sorted(step.remove)) for step in plan.steps]


def test_each_node_pool_has_a_budget_of_its_own() -> None:
    """10 % of three nodes are rounded up to one; 50 % of four are two."""
    items = [*pool_nodes("a", 3), *pool_nodes("b", 4)]
    plan = plan_of_pools(*items, pools={"a": {}, "b": {"budgets": [{"nodes": "50%"}]}})
    assert removed_of(plan)[0] == ("12:00", ["a0", "b0", "b1"])
    limited = plan_of_pools(*items, pools={"a": {}, "b": {}}, budgets=[DisruptionBudget(nodes="1")])
    assert removed_of(limited)[0] == ("12:00", ["a0"])


def test_nodes_that_are_not_ready_use_the_budget_of_their_pool() -> None:
    broken = node("a9", labels={"karpenter.sh/nodepool": "a"})
    broken["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert removed_of(plan_of_pools(*pool_nodes("a", 3), broken, pools={"a": {"budgets": [{"nodes": "1"}]}})) == []
    two = plan_of_pools(*pool_nodes("a", 3), broken, pools={"a": {"budgets": [{"nodes": "2"}]}})
    assert len(removed_of(two)[0][1]) == 1


def test_a_node_that_is_not_initialized_does_not_count() -> None:
    young = node("a9", labels={"karpenter.sh/nodepool": "a", "karpenter.sh/registered": "true"})
    items = [*pool_nodes("a", 2), young, pod("p", "a9", cpu="3", annotations={"karpenter.sh/do-not-disrupt": "true"})]
    plan = plan_of_pools(*items, pools={"a": {"budgets": [{"nodes": "50%"}]}})
    assert len(removed_of(plan)[0][1]) == 1, "half of two nodes, not of three"


def test_a_pool_that_is_consolidated_when_empty_keeps_its_pods() -> None:
    items = [*pool_nodes("a", 3), pod("p", "a0"), pod("q", "a1")]
    every = {"budgets": [{"nodes": "100%"}]}
    plan = plan_of_pools(*items, pools={"a": {**every, "consolidationPolicy": "WhenEmpty"}})
    assert removed_of(plan) == [("12:00", ["a2"])]
    assert plan.stopped == "nothing-saves"
    assert removed_of(plan_of_pools(*items, pools={"a": every}))[1] == ("12:10", ["a0"])


def test_a_pool_is_never_consolidated_or_after_some_time() -> None:
    """The pod of a0 started twelve hours ago; moving it to a1 begins the time of a1 again."""
    items = [*pool_nodes("a", 2), pod("p", "a0"), *pool_nodes("b", 1)]
    never = {"consolidateAfter": "Never"}
    plan = plan_of_pools(*items, pools={"a": never, "b": never})
    assert (plan.steps, plan.stopped) == ([], "nothing-saves")
    fresh = pod("p", "a0", started="2026-07-01T11:55:00Z")
    after = {"consolidateAfter": "25m", "budgets": [{"nodes": "100%"}]}
    plan = plan_of_pools(*pool_nodes("a", 2), fresh, pod("q", "a1"), pools={"a": after})
    assert removed_of(plan) == [("12:00", ["a1"])]
    assert plan.stopped == "nothing-saves"


def test_a_pool_whose_last_node_was_removed_is_not_waited_for() -> None:
    """10 % of no node are none, at every time."""
    items = [*pool_nodes("a", 1), *pool_nodes("b", 1), pod("p", "b0")]
    plan = plan_of_pools(*items, pools={"a": {}, "b": {"consolidateAfter": "Never"}})
    assert removed_of(plan) == [("12:00", ["a0"])]
    assert plan.stopped == "nothing-saves"


def test_reasons_and_schedules_of_a_pool_delay_its_steps() -> None:
    items = [*pool_nodes("a", 3), pod("p", "a0"), pod("q", "a1"), *pool_nodes("b", 2), pod("r", "b0"), pod("s", "b1")]
    closed = {"nodes": "0", "schedule": "0 12 * * *", "duration": "1h", "reasons": ["Underutilized"]}
    plan = plan_of_pools(*items, pools={"a": {"budgets": [closed, {"nodes": "100%"}]}, "b": {}})
    times: dict[str, list[str]] = {"a": [], "b": []}
    for at, names in removed_of(plan):
        for name in names:
            times[name[0]].append(at)
    assert times["a"] == ["12:00", "13:00"]
    assert times["b"][0] == "12:10"


def test_moves_that_are_never_allowed_end_the_path() -> None:
    items = [node("n1"), node("n2"), pod("a", "n1"), pod("b", "n2")]
    plan = plan_of(*items, budgets=[DisruptionBudget(nodes="0", reasons=["Underutilized"])])
    assert (plan.steps, plan.stopped) == ([], "budgets")


def test_bad_budgets_of_a_pool_are_named() -> None:
    for budget_, text in (
        ({"nodes": "1", "schedule": "never", "duration": "1h"}, "is not a cron schedule"),
        ({"nodes": "1", "reasons": ["Cheap"]}, '"Cheap" is not one of'),
    ):
        with pytest.raises(InputError, match=text):
            pool_of("a", {"budgets": [budget_]})


# -- the optimum -------------------------------------------------------------------------------------------------------


def test_the_optimum_is_printed_only_where_it_is_proven() -> None:
    items = [node("n1"), node("n2"), pod("a", "n1"), pod("b", "n2", "3500m")]
    plan = plan_of(*items, bound_effort=100_000)
    assert (plan.no_bound, plan.table[2].cost) == ("", 2.0)
    unpriced = plan_of(*items, node("n3"), entries=groups({"id": "g", "nodes": ["n1", "n2"]}), bound_effort=100_000)
    assert (len(unpriced.table), unpriced.no_bound) == (2, "some nodes have no known price")


def test_the_optimum_counts_nodes_that_exist_but_can_no_longer_be_bought() -> None:
    # A cheap node that no group offers: a bound over the groups alone would exceed the cost of today.
    old = node("old", "16", labels={"kind": "old"})
    entries = groups({"id": "g", "nodes": ["n1"]}, {"id": "old", "nodes": ["old"], "price": 0.1, "max": 1})
    plan = plan_of(node("n1"), old, pod("a", "old", "9"), entries=entries, bound_effort=100_000)
    assert kinds(plan) == [("empty", [], ["n1"])]
    assert plan.table[1].cost == plan.table[2].cost == 0.1


def test_pods_that_could_not_be_scheduled_to_their_node_are_left_out_of_the_optimum() -> None:
    # The pod runs beside a label that its node has lost. Nothing else could take it, at no price.
    stray = pod("a", "n1", spec={"nodeSelector": {"gone": "x"}})
    plan = plan_of(node("n1"), stray, bound_effort=100_000)
    assert (plan.steps, plan.table[2].cost) == ([], 0.0)
    crowded = [pod(f"p{i}", "n1", "3") for i in range(2)]
    assert plan_of(node("n1"), *crowded, bound_effort=100_000).table[2].cost <= 1.0


# -- input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_waves": 0}, "0 is less than 1"),
        ({"min_saving": -1.0}, "-1.0 is not an amount of money"),
        ({"eviction_cost": float("nan")}, "nan is not an amount of money"),
        ({"payback": timedelta(0)}, "is not a time above zero"),
        ({"budgets": [DisruptionBudget(nodes="x")]}, '"x" is neither a number'),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        plan_of(node("n1"), **options)


def test_prices_are_needed() -> None:
    with pytest.raises(InputError, match="no node has a known price"):
        plan_of(node("n1"), entries=[{"id": "g", "nodes": ["n1"]}])
