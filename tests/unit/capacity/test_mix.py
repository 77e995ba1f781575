"""The cheapest mix: the plan holds under the exact predicates, no plan is below the bound, limits are kept."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import kscale
from examples import is_nightly
from kscale.capacity.groups import groups_from
from kscale.capacity.mix import SPOT, MixOptions, MixPlan, Offer, groups_entries, mix, node_class_of, node_pool
from kscale.capacity.mix.check import PlannedPlacement, RemainingNodes, check
from kscale.capacity.mix.heuristics import best_first_fit
from kscale.capacity.mix.instance import MONEY
from kscale.capacity.mix.packing import Packed, Packing
from kscale.capacity.mix.solve import Budget, candidates, prove_least_cost
from kscale.errors import BoundError, InputError
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.bounds.effort import Effort, checked_bound
from kscale.scheduling.bounds.instance import BinKinds
from kscale.scheduling.coercion import pods_of

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def pod(name: str, cpu: str = "1", memory: str = "1Gi", labels: dict[str, str] | None = None, **spec: Any) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    if "port" in spec:
        container["ports"] = [{"hostPort": spec.pop("port"), "containerPort": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }


def pods(count: int, cpu: str = "1", memory: str = "1Gi", prefix: str = "p", **more: Any) -> list[Any]:
    return [pod(f"{prefix}{i}", cpu, memory, **more) for i in range(count)]


def node(name: str, cpu: int, memory: int, zone: str = "", **labels: str) -> dict[str, Any]:
    room = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "20"}
    zones = {ZONE: zone} if zone else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, "node.kubernetes.io/instance-type": name, **zones, **labels}},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def offer(name: str, cpu: int, memory: int, price: float, zone: str = "", **more: Any) -> Offer:
    template = NodeTemplate(node=from_dict(node(name, cpu, memory, zone), Node))
    return Offer(name=name, template=template, price=price, type=more.pop("type", name), zone=zone, **more)


SMALL, LARGE, WIDE = offer("small", 2, 4, 0.10), offer("large", 8, 16, 0.36), offer("wide", 4, 32, 0.30)


def placed_again(objects: list[Any], offers: list[Offer], plan: MixPlan) -> None:
    """Everything is where the plan has it, says a world that knows nothing of the plan."""
    snapshot = kscale.load(objects).snapshot()
    by_name = {each.name: i for i, each in enumerate(offers)}
    world = kscale.fork(snapshot, templates=[each.template for each in offers])
    assert plan.nodes is not None
    assert plan.placed is not None
    new_names = {new.name for new in plan.nodes}
    there = {pod: name for pod, name in plan.placed.items() if name not in new_names}
    assert all(world.schedule(pod, name) for pod, name in there.items())
    assert all(plan.placed[pod] == new.name for new in plan.nodes for pod in new.pods)
    for new in plan.nodes:
        at = world.add(by_name[new.offer])
        assert all(world.schedule(each, at) for each in new.pods)
    names = [*there, *(each for new in plan.nodes for each in new.pods)]
    assert sorted(names) == sorted(plan.placed)
    assert sorted([*names, *plan.unschedulable]) == sorted(snapshot.pending)


@pytest.fixture(params=["solver", "without"])
def solver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "without":
        for module in ("solve", "exact"):
            monkeypatch.setattr(f"kscale.capacity.mix.{module}.have_solver", lambda: False)
    return request.param == "solver"


def test_amounts_that_the_kernels_would_clip_are_refused() -> None:
    """Both pods fit one node. If its memory were clipped, two nodes would be planned and called optimal."""
    large = [offer("vast", 8, 1 << 30, 0.1)]  # 2**60 bytes
    with pytest.raises(InputError, match="memory: amounts of more than 576,460,752,303,423,488 are not supported"):
        mix(kscale.load([*pods(1, "3", str(2**59)), *pods(1, "3", "3", "q")]), large)
    plan = mix(kscale.load([*pods(1, "3", str(2**58)), *pods(1, "3", "3", "q")]), large)
    assert (plan.node_count, plan.cost, plan.bound.cost) == (1, 0.1, 0.1)


def test_a_kind_that_only_fulfils_a_constraint_counts_for_the_bound() -> None:
    """The item fits the first kind only; the constraint demands a bin of the second kind, which stays empty."""
    kinds = BinKinds.of([[4]], [1], [[8], [2]], [5, 2], least=[2, 0], available=[3, 3], rows=[[0, 1]], low=[1])
    assert prove_least_cost(kinds, Budget()).value <= 2 * 5 + 2


MANY = [*pods(9, "1", "1Gi"), *pods(5, "3", "2Gi", "q"), *pods(4, "500m", "7Gi", "r")]


def test_a_plan_holds_and_is_not_below_its_bound(solver: bool) -> None:
    plan = mix(kscale.load(MANY), [SMALL, LARGE, WIDE], placements=True)
    placed_again(MANY, [SMALL, LARGE, WIDE], plan)
    assert plan.unschedulable_count == 0
    assert plan.bound.method == ("column_generation" if solver else "volume")
    assert 0 < plan.bound.cost <= plan.cost + 1e-9
    prices = {"small": 0.10, "large": 0.36, "wide": 0.30}
    assert plan.cost == pytest.approx(sum(prices[name] * count for name, count in plan.offers.items()))
    assert plan.bound.gap == pytest.approx(plan.cost / plan.bound.cost - 1, abs=1e-5)
    assert plan.cost <= (1.15 if solver else 1.25) * plan.bound.cost


def cheapest(count: int, offers: list[Offer], each: int = 1) -> float:
    """Of pods that ask for ``each`` cores and nothing else that matters, by trying everything."""
    sizes = [int((one.template.node.status.allocatable or {})["cpu"].value()) // each for one in offers]
    counts = [range(-(-count // size) + 1) for size in sizes]
    return min(
        sum(n * one.price for n, one in zip(chosen, offers, strict=True))
        for chosen in product(*counts)
        if sum(n * size for n, size in zip(chosen, sizes, strict=True)) >= count
    )


@pytest.mark.parametrize("count", [1, 5, 9, 13])
def test_small_mixes_are_the_cheapest(count: int) -> None:
    pytest.importorskip("highspy", reason="the extra [solver] is not installed")
    offers = [offer("three", 3, 90, 0.31), offer("five", 5, 90, 0.45), offer("seven", 7, 90, 0.66)]
    plan = mix(kscale.load(pods(count)), offers)
    best = cheapest(count, offers)
    assert plan.bound.cost <= best + 1e-9
    assert plan.cost == pytest.approx(best)


def test_existing_capacity_is_free(solver: bool) -> None:
    objects = [node("here", 4, 16), *pods(6)]
    plan = mix(kscale.load(objects), [SMALL], placements=True)
    assert (plan.on_existing, plan.on_new, plan.node_count, plan.cost) == (4, 2, 1, 0.1)
    placed_again(objects, [SMALL], plan)
    alone = mix(kscale.load(objects), [SMALL], options=MixOptions(existing=False))
    assert (alone.on_existing, alone.node_count) == (0, 3)


def test_all_pods_are_planned_on_new_nodes(solver: bool) -> None:
    running = pod("runs")
    running["spec"]["nodeName"] = "here"
    running["status"] = {"phase": "Running"}
    finished = pod("done") | {"status": {"phase": "Succeeded"}}
    cluster = kscale.load([node("here", 4, 16), running, finished, *pods(3)])
    plan = mix(cluster, [SMALL], pods="all")
    assert (plan.pods, plan.on_existing, plan.node_count) == (4, 0, 2)
    with pytest.raises(kscale.InputError, match="needs a Cluster"):
        mix(cluster.snapshot(), [SMALL], pods="all")
    some = mix(cluster, [SMALL], pods=["a/p0"], options=MixOptions(existing=False))
    assert (some.pods, some.node_count) == (1, 1)


def test_minima_maxima_and_quotas(solver: bool) -> None:
    few = offer("few", 8, 16, 0.10, most=2)
    plan = mix(kscale.load(pods(24)), [few, LARGE])
    assert plan.offers == {"few": 2, "large": 1}
    assert plan.limits_reached == ["few"]
    must = offer("must", 2, 4, 5.0, least=1, most=4)
    plan = mix(kscale.load(pods(8)), [must, LARGE])
    assert plan.offers["must"] == 1
    assert plan.bound.cost >= 5.0
    plan = mix(kscale.load(pods(8)), [SMALL, LARGE], options=MixOptions(limits={"nodes": 1}))
    assert plan.offers == {"large": 1}
    plan = mix(kscale.load(pods(8)), [SMALL], options=MixOptions(limits={"cpu": 4000}))
    assert (plan.node_count, plan.unschedulable_count, plan.bound.cost, plan.bound.gap) == (2, 4, None, None)


def test_the_share_of_spot() -> None:
    pytest.importorskip("highspy", reason="the extra [solver] is not installed")
    spot = offer("spot", 8, 16, 0.05, capacity_type=SPOT)
    free = mix(kscale.load(pods(32)), [spot, LARGE])
    assert free.offers == {"spot": 4}
    half = mix(kscale.load(pods(32)), [spot, LARGE], options=MixOptions(spot_share=0.5))
    assert half.offers == {"large": 2, "spot": 2}
    assert half.bound.cost <= half.cost
    assert mix(kscale.load(pods(32)), [spot, LARGE], options=MixOptions(spot_share=0.0)).offers == {"large": 4}


def test_few_types_and_the_curve(solver: bool) -> None:
    plan = mix(kscale.load(MANY), [SMALL, LARGE, WIDE], options=MixOptions(max_types=1, curve=True))
    assert plan.types == 1
    assert plan.curve[0].types == 1
    assert plan.curve[0].cost == plan.cost
    free = mix(kscale.load(MANY), [SMALL, LARGE, WIDE], options=MixOptions(curve=True))
    assert plan.bound.cost == free.bound.cost <= free.cost <= plan.cost
    assert free.curve[-1].types is None
    assert free.curve[-1].cost == free.cost


def test_one_type_for_several_zones_is_the_cheapest_in_whole_nodes() -> None:
    """Parts of large nodes are cheaper than parts of small nodes, but each zone needs whole nodes of its own."""
    objects = [each for zone in "abc" for each in pods(100, "2", "1Gi", zone, nodeSelector={ZONE: zone})]
    sizes = (("large", 36, 0.9), ("small", 10, 0.26), ("tiny", 2, 0.11))
    offers = [offer(f"{kind}-{zone}", cpu, 64, price, zone, type=kind) for kind, cpu, price in sizes for zone in "abc"]
    plan = mix(kscale.load(objects), offers, options=MixOptions(max_types=1, curve=True))
    assert (plan.types, plan.node_count, round(plan.cost, 2)) == (1, 60, 15.6)  # 18 large nodes cost 16.20


def test_a_type_with_a_minimum_may_be_the_only_one() -> None:
    small = offer("small", 2, 4, 0.10, least=1)
    plan = mix(kscale.load(pods(9)), [small, LARGE, WIDE], options=MixOptions(max_types=1, curve=True))
    assert (plan.types, set(plan.offers), plan.unschedulable_count) == (1, {"small"}, 0)


def anti_affinity(key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key: str) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "x"}}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]


ZONES = [offer(f"{SMALL.name}-{zone}", 8, 16, 0.36, zone, type="t") for zone in "abc"]


@pytest.mark.parametrize(
    ("rules", "nodes", "relaxed"),
    [
        ({"port": 8080}, 5, []),
        ({"affinity": anti_affinity(HOST)}, 5, []),
        ({"topologySpreadConstraints": spread(HOST)}, 5, ["spread over node: 5 pods"]),
        ({"topologySpreadConstraints": spread(ZONE)}, 3, ["spread over zone: 5 pods"]),
    ],
)
def test_rules_among_pods(rules: dict[str, Any], nodes: int, relaxed: list[str]) -> None:
    objects = pods(5, labels={"app": "x"}, **rules)
    plan = mix(kscale.load(objects), ZONES, placements=True)
    assert plan.unschedulable_count == 0
    assert plan.node_count == nodes
    assert plan.bound.relaxed == relaxed
    assert plan.bound.cost <= plan.cost + 1e-9
    if ZONE in str(rules):
        assert sorted(plan.lines[0].zones) == ["a", "b", "c"]
    if not relaxed:
        assert plan.bound.cost == pytest.approx(5 * 0.36)
        placed_again(objects, ZONES, plan)


def test_repairs_by_the_check_are_counted() -> None:
    pytest.importorskip("highspy", reason="the extra [solver] is not installed")
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "x"}}}
    ]}  # fmt: skip
    objects = [pod("x", "3", labels={"app": "x"}), *pods(3, "1", affinity={"podAffinity": affinity})]
    plan = mix(kscale.load(objects), [offer("four", 4, 16, 0.2)], placements=True)
    assert plan.repairs.moved + plan.unschedulable_count > 0
    assert "affinity within node: 3 pods" in plan.bound.relaxed


@pytest.mark.parametrize(("existing", "moved", "added", "unplaced"), [(True, 2, 1, [7]), (False, 3, 2, [])])
def test_repair_reports_moved_pods(existing: bool, moved: int, added: int, unplaced: list[int]) -> None:
    """A pod too many on the node that exists, more than it holds on the new one; what had no place did not move."""
    snapshot = kscale.load([node("here", 2, 16), node("there", 1, 16), *pods(8)]).snapshot()
    records = pods_of(snapshot, snapshot.pending, waiting=True)
    two = offer("two", 2, 16, 0.1)
    planned = PlannedPlacement(
        np.array([0]), np.array([0, 0, 0, 2, 2, 2, -1, 2] if existing else [1, 0, 0, 2, 2, 2, 2, 0])
    )
    room = RemainingNodes([1 if existing else 2], np.zeros((0, 1), dtype=np.int64), np.zeros(0))
    result = check(snapshot, records, np.zeros(8, dtype=np.int64), [two], planned, room, existing=existing)
    assert (result.moved, result.added, result.left) == (moved, added, unplaced)
    on = np.bincount(result.node[result.node >= 0], minlength=2 + len(result.nodes)).tolist()
    assert on == ([2, 1, 2, 2] if existing else [2, 1, 2, 2, 1])
    expected = {
        i for i, (a, b) in enumerate(zip(planned.node, result.node, strict=True)) if a >= 0 and b >= 0 and a != b
    }
    assert len(expected) == moved


def test_pods_that_nothing_holds() -> None:
    plan = mix(kscale.load([*pods(2), pod("huge", "99")]), [SMALL])
    assert (plan.unschedulable_count, plan.unschedulable, plan.node_count) == (1, ["a/huge"], 1)
    nothing = mix(kscale.load([node("n", 1, 1)]), [SMALL])
    assert (nothing.pods, nothing.node_count, nothing.cost, nothing.bound.cost) == (0, 0, 0, 0)


def test_the_same_again_with_any_number_of_threads() -> None:
    plans = [mix(kscale.load(MANY), [SMALL, LARGE, WIDE], options=MixOptions(threads=n)) for n in (1, 3)]
    assert plans[0] == plans[1]


def test_time_that_is_over_still_gives_a_plan() -> None:
    plan = mix(kscale.load(MANY), [SMALL, LARGE, WIDE], stop=(lambda: True, lambda: True), placements=True)
    placed_again(MANY, [SMALL, LARGE, WIDE], plan)
    assert 0 < plan.bound.cost <= plan.cost


@pytest.mark.parametrize(
    ("offers", "options", "text"),
    [
        ([], {}, "no offer"),
        ([SMALL, SMALL], {}, "offer small: the name comes twice"),
        ([offer("x", 1, 1, -1.0)], {}, "offer x: price: -1.0 is not a price"),
        ([offer("x", 1, 1, 1e300)], {}, r"offer x: price: 1e\+300 is more than 1,000,000"),
        ([offer("x", 1, 1, 1.0, least=3, most=2)], {}, "offer x: at least 3 and at most 2 nodes"),
        ([offer("x", 1, 1, 1.0, capacity_type="cheap")], {}, 'offer x: "cheap" is not one of on-demand, spot'),
        ([SMALL], {"max_types": 0}, "max_types: 0 is not a number of types"),
        ([SMALL], {"spot_share": 1.5}, "spot_share: 1.5 is not a share"),
        ([SMALL], {"limits": {"cpu": -1}}, r"limits\[cpu\]: -1 is negative"),
        ([SMALL], {"plan_effort": -1}, "plan_effort: -1 is negative"),
        ([SMALL], {"limits": {"cpus": 1}}, r"limits\[cpus\]: no resource of nodes"),
        ([SMALL], {"limits": {"cpu": "4"}}, r"MixOptions.limits\['cpu'\] is '4', not a whole number"),
        ([SMALL], {"spot_share": "0.3"}, "MixOptions.spot_share is '0.3', not a number"),
        ([offer("x", 1, 1, 1.0, least=1)], {"limits": {"nodes": 0}}, "limit of nodes: 0 is less than the 1 that"),
        ([offer("x", 4, 1, 1.0, least=1)], {"limits": {"cpu": 2500}}, "limit of cpu: 2.5 is less than the 4 that"),
        ([offer(x, 1, 1, 1.0, least=1) for x in "xy"], {"max_types": 1}, "max_types: 2 types have a minimum"),
    ],
)
def test_contradictory_options_are_named(offers: list[Offer], options: dict[str, Any], text: str) -> None:
    with pytest.raises(kscale.InputError, match=text):
        mix(kscale.load(pods(2)), offers, options=MixOptions(**options))


def test_as_many_types_as_have_a_minimum_may_be_there() -> None:
    offers = [offer(name, 1, 1, 1.0, least=1) for name in "xy"]
    plan = mix(kscale.load(pods(2)), offers, options=MixOptions(max_types=2))
    assert plan.offers == {"x": 1, "y": 1}


def test_costs_beyond_int64_are_exact() -> None:
    """10,000 nodes at the highest price; and a bin that holds as many small ones, each at the highest price."""
    dearest = 1_000_000 * MONEY
    kinds = BinKinds.of([[1]], [10_000], [[1], [1]], [dearest, dearest - 1])
    pattern, nothing = np.ones((1, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
    of_first, of_second = (Packed(np.array([kind]), pattern, np.array([10_000]), nothing) for kind in (0, 1))
    assert of_first.cost(kinds) == 10_000 * dearest
    assert of_second.is_better_than(of_first, kinds)
    few = Packed(np.array([0]), pattern, np.array([9_000]), nothing)
    assert few.is_better_than(of_first, kinds)
    for times in (10_000, 100_000):  # what a product of the first is beyond int64 is negative
        kinds = BinKinds.of([[1]], [1], [[1], [times]], [dearest, dearest])
        assert candidates(kinds).tolist() == [1]


def test_groups_are_offers() -> None:
    template = {"metadata": {"labels": {"karpenter.sh/capacity-type": "spot"}}, "status": node("t", 4, 8)["status"]}
    groups = groups_from([{"id": "g", "min": 1, "max": 3, "target": 2, "price": 0.2, "template": template}])
    plan = mix(kscale.load(pods(8)), groups)
    assert (plan.offers, plan.unschedulable_count) == ({"g": 1}, 4)
    assert plan.lines[0].capacity_type == SPOT
    assert mix(kscale.load(pods(8)), groups, pods="all").node_count == 2
    with pytest.raises(kscale.InputError, match="node group h: price: has no price"):
        mix(kscale.load(pods(1)), groups_from([{"id": "h", "template": template}]))


@pytest.mark.parametrize(
    ("type_", "arch", "labels", "provider_id", "kind"),
    [
        ("m7g.2xlarge", "arm64", {}, "", "EC2NodeClass"),
        ("u-6tb1.metal", "amd64", {}, "", "EC2NodeClass"),
        ("Standard_D4ps_v5", "arm64", {}, "", "AKSNodeClass"),
        ("Standard_HB120-16rs_v2", "amd64", {}, "", "AKSNodeClass"),
        ("t2a-standard-8", "arm64", {}, "", "GCENodeClass"),
        ("a2-highgpu-1g", "amd64", {}, "", "GCENodeClass"),
        ("own", "amd64", {"eks.amazonaws.com/nodegroup": "g"}, "", "EC2NodeClass"),
        ("own", "amd64", {"kubernetes.azure.com/agentpool": "g"}, "", "AKSNodeClass"),
        ("own", "arm64", {"cloud.google.com/gke-nodepool": "g"}, "", "GCENodeClass"),
        ("own", "arm64", {}, "azure:///subscriptions/x", "AKSNodeClass"),
        ("own", "amd64", {}, "gce://project/zone/name", "GCENodeClass"),
        ("own", "amd64", {}, "aws:///us-east-1a/i-0", "EC2NodeClass"),
    ],
)
def test_a_node_pool_names_the_node_class_of_the_cloud(
    type_: str, arch: str, labels: dict[str, str], provider_id: str, kind: str
) -> None:
    machine = node("t", 4, 8, **{"kubernetes.io/arch": arch, **labels})
    machine["spec"] = {"providerID": provider_id}
    offered = [Offer(name="o", template=NodeTemplate(node=from_dict(machine, Node)), price=1.0, type=type_)]
    plan = mix(kscale.load(pods(4)), offered)
    assert plan.lines[0].arch == arch
    spec = node_pool(plan, offered)["spec"]["template"]["spec"]
    group = {
        "EC2NodeClass": "karpenter.k8s.aws",
        "AKSNodeClass": "karpenter.azure.com",
        "GCENodeClass": "karpenter.k8s.gcp",
    }[kind]
    assert spec["nodeClassRef"] == {"group": group, "kind": kind, "name": "default"}
    assert {"key": "kubernetes.io/arch", "operator": "In", "values": [arch]} in spec["requirements"]


@pytest.mark.parametrize("type_", ["c-4x-amd64-linux", "g2-pool", "pool", "m5", "standard_d4", "n2-"])
def test_an_unknown_cloud_is_no_guess(type_: str) -> None:
    with pytest.raises(kscale.InputError, match="the cloud of o is unknown"):
        node_class_of([offer("o", 4, 8, 1.0, type=type_)])


def test_no_offers_have_no_node_class() -> None:
    with pytest.raises(kscale.InputError, match="there are no offers that say of which cloud the nodes are"):
        node_class_of([])


def test_nodes_of_two_clouds_have_no_node_class() -> None:
    names = ("m5.large", "Standard_D4s_v5")
    with pytest.raises(kscale.InputError, match="the nodes are of AWS and Azure: a NodePool has one node class"):
        node_class_of([offer(name, 4, 8, 1.0) for name in names])


def test_a_plan_in_the_words_of_autoscalers() -> None:
    plan = mix(kscale.load(pods(24)), [SMALL, LARGE])
    (group,) = groups_from(groups_entries(plan, [SMALL, LARGE]))
    assert (group.id, group.max_size, group.price) == ("large", 3, 0.36)
    again = kscale.estimate(kscale.load(pods(24)).snapshot(), template=group)
    assert again.node_count == plan.node_count
    own = ("example.com", "NodeClass", "own")
    pool = node_pool(plan, [SMALL, LARGE], name="batch", node_class=own)
    assert pool["spec"]["limits"] == {"cpu": "24", "memory": "48Gi"}
    requirements = {each["key"]: each["values"] for each in pool["spec"]["template"]["spec"]["requirements"]}
    assert requirements == {"node.kubernetes.io/instance-type": ["large"], "karpenter.sh/capacity-type": ["on-demand"]}
    assert pool["spec"]["template"]["spec"]["nodeClassRef"] == dict(zip(("group", "kind", "name"), own, strict=True))
    with pytest.raises(kscale.InputError, match="the cloud of large is unknown: name the node class"):
        node_pool(plan, [SMALL, LARGE])
    with pytest.raises(kscale.InputError, match="large, which is not among the offers"):
        node_pool(plan, [SMALL])
    with pytest.raises(kscale.InputError, match="no new nodes"):
        node_pool(mix(kscale.load([node("n", 1, 1)]), [SMALL]), [SMALL])


def test_a_small_type_is_cheaper_than_a_part_of_a_large_one() -> None:
    """One pod: eight small nodes cost more than a large one that holds eight, and one small node is what it takes."""
    small, large = offer("small", 2, 8, 0.08), offer("large", 16, 64, 0.6)
    plan = mix(kscale.load([pod("only", "100m", "2Gi")]), [small, large])
    assert (plan.offers, plan.cost, plan.bound.cost) == ({"small": 1}, 0.08, 0.08)


@pytest.mark.parametrize("least", [0, 1])
def test_pods_of_one_zone_each_need_no_part_of_a_large_node(least: int) -> None:
    """Two pods in each of six zones, on offers of which three sizes cost in proportion; with minima, too."""
    offers = [
        offer(
            f"{name}-{zone}", cpu, 4 * cpu, 0.05 * cpu, zone, type=name, least=least * (name == "two" and zone == "a")
        )
        for name, cpu in (("two", 2), ("four", 4), ("eight", 8), ("sixteen", 16))
        for zone in "abcdef"
    ]
    objects = [pod(f"{zone}{i}", "900m", nodeSelector={ZONE: zone}) for zone in "abcdef" for i in range(2)]
    plan = mix(kscale.load(objects), offers)
    assert plan.cost == pytest.approx(6 * 0.1)
    assert plan.bound.cost == pytest.approx(6 * 0.1)


LIMITED = [offer("base", 4, 16, 0.2, least=1), offer("big", 8, 32, 0.42), offer("cheap", 4, 16, 0.08)]


@pytest.mark.parametrize(
    ("limits", "offers", "nowhere", "cost"),
    [
        ({}, {"base": 1, "cheap": 2}, 0, 0.36),
        ({"cpu": 8000}, {"base": 1, "cheap": 1}, 2, 0.28),
        ({"nodes": 2}, {"base": 1, "big": 1}, 0, 0.62),
        ({"memory": 48 << 30}, {"base": 1, "cheap": 2}, 0, 0.36),
        ({"cpu": 4000}, {"base": 1}, 4, 0.2),
    ],
)
def test_minimum_nodes_are_used_first_and_count_for_limits(
    limits: dict[str, int], offers: dict[str, int], nowhere: int, cost: float, solver: bool
) -> None:
    objects = pods(6, "1500m")
    plan = mix(kscale.load(objects), LIMITED, options=MixOptions(limits=limits), placements=True)
    placed_again(objects, LIMITED, plan)
    assert (plan.offers, plan.unschedulable_count, plan.cost) == (offers, nowhere, cost)
    assert plan.nodes is not None
    assert all(new.pods for new in plan.nodes)
    if plan.bound.cost is not None:
        assert plan.bound.cost <= plan.cost + 1e-9


def test_a_minimum_of_spot_is_made_up_for(solver: bool) -> None:
    """Two nodes of spot are there: with a share of 30 % five more have to be on demand, one of which stays empty."""
    offers = [offer("ours", 4, 16, 0.2), offer("spot", 4, 16, 0.08, capacity_type=SPOT, least=2)]
    plan = mix(kscale.load(pods(6, "1500m")), offers, options=MixOptions(spot_share=0.3))
    assert (plan.offers, plan.unschedulable_count) == ({"ours": 5, "spot": 2}, 0)
    assert plan.bound.cost is not None
    assert plan.bound.cost <= plan.cost


@pytest.mark.parametrize(
    ("most", "options", "text"),
    [
        (None, {"spot_share": 0.0}, "spot_share: the minimum of spot is more than a share of 0 allows"),
        (4, {"spot_share": 0.3}, "spot_share: the minimum of spot is more than a share of 0.3 allows"),
        (None, {"spot_share": 0.3, "limits": {"nodes": 6}}, r"spot_share, limits\[nodes\]: no plan was found"),
    ],
)
def test_a_minimum_that_no_share_of_spot_allows_has_a_name(
    most: int | None, options: dict[str, Any], text: str, solver: bool
) -> None:
    offers = [offer("ours", 4, 16, 0.2, most=most), offer("spot", 4, 16, 0.08, capacity_type=SPOT, least=2)]
    with pytest.raises(kscale.InputError, match=text):
        mix(kscale.load(pods(6, "1500m")), offers, options=MixOptions(**options))


def test_an_offer_that_holds_no_pod_makes_up_for_spot() -> None:
    """What pods need is spot alone; nodes on demand that stay empty keep the share."""
    ours, spot = offer("ours", 8, 4, 0.48), offer("spot", 2, 8, 0.1, capacity_type=SPOT)
    plan = mix(kscale.load(pods(6, "500m", "7Gi")), [ours, spot], options=MixOptions(spot_share=0.25))
    assert plan.offers == {"ours": 5, "spot": 6} or plan.offers["spot"] == 6
    assert 0.25 * (12_000 + 8_000 * plan.offers["ours"]) >= 12_000
    assert plan.bound.cost is not None
    assert plan.bound.cost <= plan.cost


@pytest.mark.parametrize("share", [0.3335, 1 / 3, 0.123])
def test_a_share_of_spot_is_exact(share: float) -> None:
    spot, ours = offer("spot", 1, 9, 0.01, capacity_type=SPOT), offer("ours", 1, 9, 0.1)
    plan = mix(kscale.load(pods(30)), [spot, ours], options=MixOptions(spot_share=share))
    most = int(30 * share + 1e-9)
    assert plan.offers == {"ours": 30 - most, "spot": most}
    assert plan.bound.cost is not None
    assert plan.bound.cost <= plan.cost + 1e-9


def test_a_plan_of_fewer_types_is_one_of_more() -> None:
    """No point of the curve costs more than the one before it. (Six types; 16 at night.)"""
    pytest.importorskip("highspy", reason="the extra [solver] is not installed")
    cpus, memories = ((2, 4, 8, 16), (8, 16, 32, 64)) if is_nightly() else ((2, 4, 8), (8, 32))
    offers = [offer(f"t{cpu}-{gib}", cpu, gib, round(0.04 * cpu + 0.005 * gib + 0.003 * (cpu * gib % 7), 4))
              for cpu in cpus for gib in memories]  # fmt: skip
    objects = [each for i, (cpu, gib) in enumerate([(300, 500), (1900, 9000), (2600, 2900), (900, 4000), (700, 12000)])
               for each in pods(7, f"{cpu}m", f"{gib}Mi", prefix=f"s{i}-")]  # fmt: skip
    plan = mix(kscale.load(objects), offers, options=MixOptions(curve=True))
    costs = [point.cost for point in plan.curve]
    assert len(costs) > 2
    assert costs == sorted(costs, reverse=True)
    assert plan.bound.cost is not None
    assert plan.bound.cost <= costs[-1] == plan.cost


def test_few_nodes_are_large_ones(solver: bool) -> None:
    """Small nodes are cheaper, and 30 of them hold a quarter of what as many large ones do; in three zones, too."""
    for zones in ("", "abc"):
        small = [offer(f"small{zone}", 2, 8, 0.08, zone, type="small") for zone in zones or " "]
        large = [offer(f"large{zone}", 8, 32, 0.40, zone, type="large") for zone in zones or " "]
        spec = {"topologySpreadConstraints": spread(ZONE), "labels": {"app": "x"}} if zones else {}
        cluster = kscale.load([*pods(6, "1500m", **spec), *pods(150, "1500m", prefix="q")])
        plan = mix(cluster, [*small, *large], options=MixOptions(limits={"nodes": 30}))
        assert plan.unschedulable_count == 156 - 30 * 5, zones


def test_pods_of_three_zones_share_nodes() -> None:
    """Six pods of two cores spread over three zones and six of half a core: three nodes of four cores hold the first
    ones, one more the others; two in each zone would be six."""
    pytest.importorskip("highspy", reason="the extra [solver] is not installed")
    offers = [offer(f"z{zone}", 4, 16, 0.2, zone, type="t") for zone in "abc"]
    objects = [
        *pods(6, "1500m", labels={"app": "x"}, topologySpreadConstraints=spread(ZONE)),
        *pods(6, "1", prefix="free"),
    ]
    plan = mix(kscale.load(objects), offers, placements=True)
    placed_again(objects, offers, plan)
    assert plan.node_count == 4
    assert {new.zone for new in plan.nodes or ()} == {"a", "b", "c"}


def test_a_limit_of_memory_may_have_no_common_unit() -> None:
    """Nodes differ by single bytes, so the solver sees rows of 10^10."""

    def machine(name: str, cpu: str, memory: int, price: float, **more: Any) -> Offer:
        room = {"cpu": cpu, "memory": str(memory), "pods": "29"}
        labels = {"node.kubernetes.io/instance-type": name}
        source = {"metadata": {"name": name, "labels": labels}, "status": {"capacity": room, "allocatable": room}}
        return Offer(name=name, template=NodeTemplate(node=from_dict(source, Node)), price=price, type=name, **more)

    offers = [
        machine("odd", "15667m", 8582594560, 1.0905694),
        machine("even", "8", 17179869183, 0.2644306, least=1),
    ]
    objects = pods(5, "1", "1000Mi", labels={"app": "x"}, affinity=anti_affinity(HOST))
    plan = mix(kscale.load(objects), offers, options=MixOptions(limits={"memory": 72000471043}))
    assert (plan.unschedulable_count, plan.node_count) == (0, 5)
    assert plan.cost == pytest.approx(3 * 0.2644306 + 2 * 1.0905694)
    assert plan.bound.cost is not None
    assert plan.bound.cost <= plan.cost


def test_a_bound_above_a_known_solution_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked_bound(2, 2, "x") == 2
    assert checked_bound(0.1 + 0.2, 0.3, "x") == 0.1 + 0.2
    with pytest.raises(BoundError, match=r"x: the proven least of 3 is more than the 2 of .*a bug in kscale"):
        checked_bound(3, 2, "x")
    monkeypatch.setattr("kscale.capacity.mix.planning.MONEY", 1)
    with pytest.raises(BoundError, match="a mix of any number of types: the proven least"):
        mix(kscale.load(pods(8)), [SMALL, LARGE])


def test_items_without_a_bin_go_first_in_the_next_try() -> None:
    """Ten bins hold both classes and ten only the larger, more valuable class; each bin holds one item."""
    larger, smaller = 60, 50
    kinds = BinKinds.of(
        demand=[[larger], [smaller]],
        count=[10, 10],
        capacity=[[60 + i] for i in range(20)],
        cost=[0] * 20,
        allowed=[[True] * 20, [True] * 10 + [False] * 10],
        available=[1] * 20,
    )
    packed = best_first_fit(Packing(kinds), np.array([2.0, 1.0]), Effort())
    assert packed.missing.tolist() == [0, 0]


def test_a_bin_without_cost_that_is_worth_more_is_no_cheaper_replacement() -> None:
    kinds = BinKinds.of(demand=[[1]], count=[4], capacity=[[2], [2]], cost=[0, 10], available=[1, 5])
    packing = Packing(kinds)
    content = np.array([2])
    assert packing.cheapest(content, 1) == 0
    packing.worth = np.array([1000.0, 10.0])
    assert packing.cheapest(content, 1) == 1
    assert packing.copy().cheapest(content, 1) == 1
