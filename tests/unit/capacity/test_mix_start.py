"""Mixes without effort cost no more than one type for all pods, nor than the nodes that Karpenter would launch."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import kscale
from examples import examples
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.estimate import estimate_groups
from kscale.capacity.group_templates import with_templates
from kscale.capacity.karpenter import groups_of_pools, node_pools_from
from kscale.capacity.karpenter.plan import plan_nodes
from kscale.capacity.mix import MixOptions, MixPlan, Offer, StartPlan, mix, offers_of
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster
from unit.capacity.test_mix import LARGE, SMALL, WIDE, node, offer, placed_again, pods

ZONE = "topology.kubernetes.io/zone"
NONE = MixOptions(bound_effort=0, plan_effort=0)

types = st.lists(
    st.tuples(st.sampled_from([2, 4, 8, 16]), st.sampled_from([4, 8, 16, 32, 64]), st.integers(20, 60)),
    min_size=1,
    max_size=5,
    unique_by=lambda drawn: drawn[:2],
)
shapes = st.lists(
    st.tuples(
        st.integers(1, 8),
        st.sampled_from([100, 500, 900, 1000, 1700, 2500, 3900]),
        st.sampled_from([200, 900, 2000, 3500, 7000, 13000]),
        st.sampled_from(["", "", "", "alone", "port", "zone"]),
    ),
    min_size=1,
    max_size=4,
)


def catalogue_of(drawn: list[tuple[int, int, int]]) -> bytes:
    rows = ["instance_type,arch,vcpu,memory_mib,gpu,gpu_name,ondemand_usd_per_hour_here"]
    for number, (cpu, memory, price) in enumerate(drawn):
        rows.append(f"m{number}.large,amd64,{cpu},{memory * 1024},0,,{(cpu * 0.03 + memory * 0.004) * price / 40:.5f}")
    return "\n".join(rows).encode() + b"\n"


def pods_of(drawn: list[tuple[int, int, int, str]], zones: list[str]) -> list[dict[str, Any]]:
    items = []
    for number, (count, cpu, memory, rule) in enumerate(drawn):
        labels, more = {"app": f"s{number}"}, dict[str, Any]()
        if rule == "alone":
            term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
            more["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if rule == "port":
            more["port"] = 8080
        if rule == "zone" and zones:
            more["nodeSelector"] = {ZONE: zones[-1]}
        items += pods(count, f"{cpu}m", f"{memory}Mi", prefix=f"s{number}-", labels=labels, **more)
    return [{**item, "status": {"phase": "Pending"}} for item in items]


def pool_of(name: str, *, weight: int = 1) -> dict[str, Any]:
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"weight": weight, "template": {"spec": {"requirements": requirements, "nodeClassRef": reference}}},
    }


def groups_of(offers: list[Offer]) -> list[NodeGroup]:
    return [
        NodeGroup(id=each.name, min_size=0, max_size=1000, target_size=0, price=each.price, template=each.template)
        for each in offers
    ]


def compare_with_single_types(cluster: Cluster, groups: list[NodeGroup], plan: MixPlan) -> None:
    report = estimate_groups(cluster.snapshot(dra=True), groups)
    complete = [line for line in report.groups if line.pods + report.on_existing == report.pending_count]
    if not complete:
        return
    assert not plan.unschedulable_count
    cheapest = min(complete, key=lambda line: line.price or 0.0)
    assert cheapest.price is not None
    assert plan.cost <= cheapest.price + 1e-9, f"{cheapest.nodes} x {cheapest.group} cost {cheapest.price}"


@settings(deadline=None, max_examples=examples(1 / 4))
@given(types, shapes, st.sampled_from([[], ["a"], ["a", "b"]]), st.booleans())
def test_a_mix_without_effort_costs_no_more_than_simple_rules(
    drawn_types: list[Any], drawn_shapes: list[Any], zones: list[str], is_second_pool: bool
) -> None:
    kinds = list(read_catalogue(catalogue_of(drawn_types)).values())
    items = pods_of(drawn_shapes, zones)
    cluster = kscale.load(items)
    pools = node_pools_from([pool_of("general"), *([pool_of("second", weight=5)] if is_second_pool else [])])
    snapshot = cluster.snapshot(dra=True)
    converted = groups_of_pools(pools, kinds, zones=zones)
    groups = with_templates(cluster, snapshot, converted.groups)
    choice, start = plan_nodes(snapshot, snapshot.pending, pools, converted, groups)
    for more in ([], [start]):
        plan = mix(cluster, groups, options=NONE, placements=True, start=more)
        placed_again(items, offers_of(groups), plan)
        compare_with_single_types(cluster, groups, plan)
        assert plan.unschedulable_count <= len(choice.unschedulable)
        if not choice.unschedulable and choice.cost is not None:
            assert plan.cost <= choice.cost + 1e-9
        assert plan.bound.cost is None or plan.bound.cost <= plan.cost + 1e-9


@settings(deadline=None, max_examples=examples(1 / 12))
@given(st.integers(0, 1_000_000))
@example(21)
@example(28)
@example(39)
def test_a_mix_without_effort_of_many_shapes_costs_no_more_than_one_type(seed: int) -> None:
    draw = Random(seed)
    items = []
    for shape in range(draw.choice([8, 20, 30])):
        count, cpu, memory = draw.randint(1, 4), draw.randint(1, 39) * 100, draw.randint(1, 130) * 100
        items += pods(count, f"{cpu}m", f"{memory}Mi", prefix=f"s{shape}-")
    sizes = draw.sample([(4, 16), (8, 16), (8, 32), (16, 32), (16, 64), (4, 32), (32, 64), (16, 128)], 4)
    prices = [round((cpu * 0.03 + memory * 0.004) * draw.uniform(0.8, 1.2), 4) for cpu, memory in sizes]
    choices = [offer(f"t{i}", *size, price) for i, (size, price) in enumerate(zip(sizes, prices, strict=True))]
    cluster = kscale.load(items)
    compare_with_single_types(cluster, groups_of(choices), mix(cluster, choices, options=NONE))


def test_a_start_plan_beyond_a_limit_is_not_used() -> None:
    """Two small nodes are enough, and one is allowed."""
    cluster = kscale.load(pods(2, "2", "2Gi"))
    few = offer("few", 2, 4, 0.05, most=1)
    start = StartPlan([("few", ["a/p0"]), ("few", ["a/p1"])], {})
    plan = mix(cluster, [few, SMALL], options=NONE, placements=True, start=[start])
    assert plan.offers == {"few": 1, "small": 1}
    limited = replace(NONE, limits={"nodes": 1})
    two_small = StartPlan([("small", ["a/p0"]), ("small", ["a/p1"])], {})
    plan = mix(cluster, [SMALL, LARGE], options=limited, start=[two_small])
    assert plan.offers == {"large": 1}


def test_a_start_plan_keeps_minima_and_existing_nodes() -> None:
    cluster = kscale.load([node("here", 2, 4), *pods(2, "1500m", "2Gi")])
    wide = offer("wide", 4, 32, 0.30, least=1)
    start = StartPlan([("small", ["a/p1"])], {"a/p0": "here"})
    plan = mix(cluster, [SMALL, wide], options=NONE, placements=True, start=[start])
    assert plan.offers["wide"] == 1
    assert plan.cost <= 0.4
    alone = mix(cluster, [SMALL], options=replace(NONE, existing=False), start=[start])
    assert alone.offers == {"small": 2}


def test_a_start_plan_is_compared_with_plans_of_few_types() -> None:
    pytest.importorskip("highspy")
    cluster = kscale.load([*pods(3, "1500m", "1Gi"), *pods(3, "500m", "9Gi", prefix="w")])
    plan = mix(cluster, [SMALL, LARGE, WIDE], options=replace(NONE, max_types=1, curve=True), placements=True)
    assert plan.types == 1
    compare_with_single_types(cluster, groups_of([SMALL, LARGE, WIDE]), plan)


def test_spread_pods_have_no_plan_of_one_node() -> None:
    """The predicates count only nodes that exist, so that one node would satisfy the constraint."""
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**constraint, "labelSelector": {"matchLabels": {"app": "x"}}}]
    cluster = kscale.load(pods(3, "100m", labels={"app": "x"}, topologySpreadConstraints=spread))
    assert mix(cluster, [LARGE], options=NONE).node_count == 3
