"""The cost of a cluster by team: idle capacity, usage, volumes, and amounts that add up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kscale
from examples import examples
from json_schemas import validate
from kscale import InputError
from kscale.capacity.cost import CostAllocation
from kscale.capacity.cost_allocation import PodUsage, allocate_cost, apportion, average_usage
from kscale.capacity.groups import groups_from
from kscale.schemas import schema
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from unit.capacity.test_cost import node, pod, replica_set
from unit.cli.test_output_schemas import strict

GIB = 2**30
GROUPS = [{"id": "plain", "nodeSelector": {"pool": "plain"}, "price": 0.8}]


def labelled(item: dict[str, Any], annotations: Mapping[str, str] | None = None, **labels: str) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "labels": labels, "annotations": dict(annotations or {})}}


def mounting(item: dict[str, Any], claim: str) -> dict[str, Any]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return {**item, "spec": {**item["spec"], "volumes": [volume]}}


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


CLUSTER = [
    node("n1", "plain", "4", "30Gi"),
    node("n2", "plain", "4", "30Gi"),
    node("free", "other", "4", "30Gi"),
    namespace("shop", team="retail"),
    replica_set("shop", "web"),
    labelled(pod("shop/web-1", "n1", "2", "15Gi", "web"), team="blue"),
    pod("shop/web-2", "n1", "1", "7680Mi", "web"),
    labelled(pod("ml/train", "n2", "1", "7680Mi"), {"cost": "c-7"}),
    pod("ml/elsewhere", "free", "1", "1Gi"),
]


def amounts(allocation: CostAllocation) -> dict[str, tuple[float, float, float]]:
    return {line.name: (line.requested, line.idle, line.cost) for line in allocation.lines}


def allocate(items: list[dict[str, Any]] = CLUSTER, **more: Any) -> CostAllocation:
    return allocate_cost(kscale.load(items), groups_from(GROUPS), **more)


def test_teams_by_label_of_the_pod_or_its_namespace() -> None:
    # n1: blue has half, web-2 a quarter; n2: train has a quarter.
    assert amounts(allocate(by="label:team")) == {
        "blue": (0.4, 0.4, 0.8),
        "retail": (0.2, 0.2, 0.4),
        "(none)": (0.2, 0.2, 0.4),
    }
    assert set(amounts(allocate(by="annotation:cost"))) == {"c-7", "(none)"}
    assert set(amounts(allocate(by="workload"))) == {"shop/ReplicaSet/web", "ml/Pod/train"}
    assert set(amounts(allocate(by="controller"))) == {"shop/ReplicaSet/web", "ml/Pod/train"}
    for wrong in ("team", "label:", "label", "node"):
        with pytest.raises(InputError, match=f'by is "{wrong}"'):
            allocate(by=wrong)


def test_idle_capacity_by_each_rule() -> None:
    assert amounts(allocate(idle="separate")) == {
        "shop": (0.6, 0.0, 0.6),
        "ml": (0.2, 0.0, 0.2),
        "(idle)": (0.0, 0.8, 0.8),
    }
    left_out = allocate(idle="none")
    assert (left_out.cost, amounts(left_out)) == (0.8, {"shop": (0.6, 0.0, 0.6), "ml": (0.2, 0.0, 0.2)})
    with pytest.raises(InputError, match="proportional, separate, none"):
        allocate(idle="half")


def test_unassignable_idle_capacity_has_its_own_line() -> None:
    items = [each for each in CLUSTER if each["metadata"]["name"] != "train"]
    assert amounts(allocate(items)) == {"shop": (0.6, 1.0, 1.6)}
    nobody = [each for each in CLUSTER if each["kind"] != "Pod"]
    assert amounts(allocate(nobody)) == {"(idle)": (0.0, 1.6, 1.6)}


def test_pods_that_request_more_than_a_node_offers_share_its_cost() -> None:
    items = [*CLUSTER, pod("ml/static", "n1", "5", "37Gi")]
    allocation = allocate(items, idle="separate")
    assert (allocation.cost, allocation.idle) == (1.6, 0.6)


def test_a_month_costs_as_many_hours() -> None:
    month = allocate(hours=720)
    assert (month.cost, month.decimals) == (1152.0, 2)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="is not a number of hours"):
            allocate(hours=wrong)


def test_usage_divides_nodes_beside_requests() -> None:
    usage = {
        "shop/web-1": PodUsage(1_000, 7_680 * 2**20),
        "shop/web-2": PodUsage(4_000, 30 * GIB),
        "gone/pod": PodUsage(9, 9),
    }
    allocation = allocate(usage=usage, idle="separate", by="label:team")
    assert {line.name: line.by_usage for line in allocation.lines} == {
        "blue": 0.16,
        "retail": 0.64,
        "(none)": 0.0,
        "(idle)": 0.8,
    }
    assert allocation.unmeasured_pods == 1
    assert {line.name: line.by_usage for line in allocate(by="label:team").lines}["blue"] is None


def volume(name: str, class_: str, size: str, claim: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"capacity": {"storage": size}, "storageClassName": class_}
    if claim:
        space, _, own = claim.partition("/")
        spec["claimRef"] = {"namespace": space, "name": own}
    phase = "Bound" if claim else "Available"
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec,
            "status": {"phase": phase}}  # fmt: skip


def claim(name: str, class_: str, size: str, volume_name: str = "", **labels: str) -> dict[str, Any]:
    space, _, own = name.partition("/")
    metadata = {"namespace": space, "name": own, "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": {"storageClassName": class_, "volumeName": volume_name},
            "status": {"phase": "Bound", "capacity": {"storage": size}}}  # fmt: skip


def test_volumes_are_paid_by_the_pods_that_use_them() -> None:
    shared = [
        mounting(labelled(pod("shop/web-1", "n1", "2", "15Gi", "web"), team="blue"), "disk"),
        mounting(pod("shop/web-2", "n1", "1", "7680Mi", "web"), "disk"),
    ]
    items = [
        *(each for each in CLUSTER if each["metadata"]["name"] not in ("web-1", "web-2")),
        *shared,
        volume("v1", "gp3", "730Gi", "shop/disk"),
        claim("shop/disk", "gp3", "730Gi", "v1"),
        volume("v2", "gp3", "73Gi"),
        claim("ml/no-volume-in-the-dump", "gp2", "73Gi", "v9", team="red"),
        volume("v3", "local", "10Gi"),
    ]
    allocation = allocate(items, by="label:team", storage_prices={"gp3": 0.1, "gp*": 0.2}, idle="none")
    assert {line.name: line.storage for line in allocation.lines} == {
        "blue": 0.05,
        "retail": 0.05,
        "(none)": 0.0,
        "(unbound volumes)": 0.01,
        "red": 0.02,
    }
    assert (allocation.volumes, allocation.unpriced_volumes, allocation.storage) == (3, 1, 0.13)
    assert allocate(items).storage == 0


def test_the_average_usage_of_a_window() -> None:
    keys = [SeriesKey("shop", "web-1", "a"), SeriesKey("shop", "web-1", "b"), SeriesKey("ml", "train", "c")]
    batch = UsageBatch(
        keys,
        ["", "", ""],
        np.array([0, 0, 1, 2, 0], dtype=np.int32),
        np.array([10, 20, 20, 20, 30], dtype=np.int64),
        np.array([9.0, 1.0, 0.5, np.nan, 2.0]),
        np.array([np.nan, 100.0, 50.0, 7.0, 200.0]),
    )
    assert average_usage([batch], start=10, end=30) == {
        "shop/web-1": PodUsage(2_000, 200),
        "ml/train": PodUsage(0, 7),
    }
    assert average_usage([batch, batch], end=10) == {"shop/web-1": PodUsage(9_000, 0)}


@given(st.integers(0, 10**30), st.lists(st.integers(0, 10**18), min_size=1, max_size=20))
@settings(max_examples=examples(5 / 6), deadline=None, derandomize=True)
def test_parts_add_up_to_the_amount(total: int, weights: list[int]) -> None:
    if not any(weights):
        total = 0
    parts = apportion(total, weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * sum(weights) - total * weight) < max(1, sum(weights))


AMOUNT = st.integers(1, 5_000)


@given(
    prices=st.tuples(st.floats(0, 100, allow_nan=False), st.floats(0, 1e-3, allow_nan=False)),
    requests=st.lists(st.tuples(AMOUNT, AMOUNT, st.sampled_from(["n1", "n2", "free"])), max_size=6),
    used=st.lists(st.tuples(AMOUNT, AMOUNT), min_size=6, max_size=6),
    hours=st.floats(0.1, 9_000),
    idle=st.sampled_from(["proportional", "separate"]),
    size=st.integers(1, 10_000),
)
@settings(max_examples=examples(2 / 3), deadline=None, derandomize=True)
def test_lines_add_up_to_the_cost_of_the_cluster(
    prices: tuple[float, float],
    requests: list[tuple[int, int, str]],
    used: list[tuple[int, int]],
    hours: float,
    idle: str,
    size: int,
) -> None:
    pods = [pod(f"s{i % 3}/p{i}", on, f"{cpu}m", f"{mib}Mi") for i, (cpu, mib, on) in enumerate(requests)]
    items = [*CLUSTER[:3], *pods, volume("v", "gp3", f"{size}Gi")]
    groups = [
        {"id": "plain", "nodeSelector": {"pool": "plain"}, "price": prices[0]},
        {"id": "other", "nodeSelector": {"pool": "other"}, "price": prices[1]},
    ]
    usage = {f"s{i % 3}/p{i}": PodUsage(*each) for i, each in enumerate(used)}
    allocation = allocate_cost(
        kscale.load(items),
        groups_from(groups),
        by="workload",
        idle=idle,
        hours=hours,
        storage_prices={"gp3": 0.0837},
        usage=usage,
    )
    total = Decimal(repr(allocation.cost))
    for name in ("requested", "idle", "storage", "cost"):
        column = [Decimal(repr(getattr(line, name))) for line in allocation.lines]
        assert sum(column) == Decimal(repr(getattr(allocation, name)))
    assert sum(Decimal(repr(line.by_usage)) for line in allocation.lines) == total
    for line in allocation.lines:
        parts = [Decimal(repr(each)) for each in (line.requested, line.idle, line.storage)]
        assert sum(parts) == Decimal(repr(line.cost))
    hourly = Decimal(repr(2 * prices[0])) + Decimal(repr(prices[1]))
    exact = hourly * Decimal(repr(hours)) + size * Decimal("0.0837") * Decimal(repr(hours)) / 730
    assert abs(total - exact) <= Decimal("0.5") / 10**allocation.decimals + Decimal("1e-8")


def test_allocation_matches_its_schema() -> None:
    document = json.loads(allocate().to_json())
    assert document["kind"] == "CostAllocation"
    assert document["lines"]
    validate(document, strict(schema("CostAllocation")))
