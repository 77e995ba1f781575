"""Karpenter's own scheduling benchmark as a mix: 20,000 pods with spread, affinity, anti-affinity; 400 types, 3 zones.

Data: ``karpenter_mix_20000.json.gz``, the diverse pods of its generator; its types are made up (``i`` cores, 2 GiB and
10 pods a core). Opt-in: ``--data DIR``. Karpenter's own solver (at 2266468104f3) chose 4,000 nodes for $7,194.8 an hour
in 92 s.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.scheduling.bounds.master import have_solver

ZONES = ("test-zone-1", "test-zone-2", "test-zone-3")
ZONE = "topology.kubernetes.io/zone"


def pod(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    """As the generator makes it."""
    requests = {"cpu": f"{fields['Cpu']}m", "memory": str(fields["Mem"])}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    kind, _, key = fields["Kind"].partition(":")
    selector = {"matchLabels": fields["Selector"]} if fields.get("Selector") else None
    term = [{"labelSelector": selector, "topologyKey": key}]
    if kind == "spread":
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        ]
    elif kind == "affinity":
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    elif kind != "generic":
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    metadata = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}", "labels": fields["Labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def offer(size: int, zone: str) -> kscale.Offer:
    """A made-up type: the price is in proportion to the size."""
    cores = size + 1
    amounts = {"cpu": f"{cores * 1000 - 100}m", "memory": f"{cores * 2048 - 10}Mi", "pods": str(cores * 10)}
    name = f"fake-it-{size}"
    labels = {ZONE: zone, "node.kubernetes.io/instance-type": name}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": amounts, "allocatable": amounts}}  # fmt: skip
    template = kscale.NodeTemplate(node=kscale.load([node]).snapshot().columns.objects[0])
    price = cores * 0.1 + 0.1 * cores * 2 * 2**30 / 1e9
    return kscale.Offer(name=f"{name}-{zone}", type=name, zone=zone, template=template, price=price)


def pending(data_dir: Path) -> kscale.Snapshot:
    path = data_dir / "karpenter_mix_20000.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    pods = json.loads(gzip.decompress(path.read_bytes()))
    return kscale.load([pod(number, each) for number, each in enumerate(pods)]).snapshot()


def test_each_type_by_itself(benchmark: Any, data_dir: Path) -> None:
    """How many nodes of each of the 400 types the pods need, as the Cluster Autoscaler packs them."""
    snapshot = pending(data_dir)
    offers = [offer(size, ZONES[0]) for size in range(400)]
    templates = [each.template for each in offers]

    def estimates() -> list[kscale.EstimateResult]:
        began = time.process_time()
        result = kscale.estimate_many(snapshot, templates=templates, fresh_cursor=True, threads=2)
        benchmark.extra_info["cpu_seconds"] = round(time.process_time() - began, 2)
        return result

    result = benchmark.pedantic(estimates, rounds=2, warmup_rounds=1)
    prices = [(each.node_count * one.price, one.type) for each, one in zip(result, offers, strict=True)
             if len(each.placed_pods) == len(snapshot.pending)]  # fmt: skip
    print(f"\n{len(prices)} types hold all pods, the cheapest ${min(prices)}; {benchmark.extra_info}")
    assert sum(each.node_count for each in result) == 1_603_277
    for number, each in enumerate(result):  # with one cursor for all, the answer to one of them is another
        alone = kscale.estimate(snapshot, template=templates[number])
        assert (alone.placement_numbers == each.placement_numbers).all()
        assert (alone.node_count, alone.cursor) == (each.node_count, each.cursor)


def test_mix_of_karpenters_pods(benchmark: Any, data_dir: Path) -> None:
    if not have_solver():
        pytest.skip("the extra [solver] is missing")
    snapshot = pending(data_dir)
    offers = [offer(size, zone) for size in range(400) for zone in ZONES]

    def decide() -> kscale.MixPlan:
        began = time.process_time()
        plan = kscale.mix(snapshot, offers, options=kscale.MixOptions(threads=2))
        benchmark.extra_info["cpu_seconds"] = round(time.process_time() - began, 2)
        return plan

    plan = benchmark.pedantic(decide, rounds=1)
    print(f"\n{plan.node_count} nodes, ${plan.cost:.2f}/h, at least ${plan.bound.cost}, planned ${plan.planned:.2f}")
    print(f"{plan.repairs}, effort {plan.effort}, {benchmark.extra_info}")
    assert (plan.pods, plan.unschedulable_count) == (20_000, 0)
    assert plan.cost <= 4_450
    assert plan.bound.gap is not None
    assert plan.bound.gap <= 0.01
