"""The path of ``kscale.consolidate`` in a large cluster that is half full.

The cluster is read from JSON text, as a dump is; reading is not part of the time. ``KSCALE_BENCH_SCALE`` (default 1)
multiplies the number of nodes, and the target with it.
"""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime
from typing import Any

import kscale
from kscale.capacity.groups import groups_from
from kscale.objects.nodegroup import NodeGroup

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "1"))
ZONES = ("a", "b", "c")
TYPES = {"general": (16, 64, 0.768), "memory": (16, 128, 1.008), "large": (32, 128, 1.5)}
APPS, PER_NODE = 300, 30


def cluster(nodes: int) -> kscale.Cluster:
    """``nodes`` with 30 pods each, half full: two in three general, the others with much memory.

    Ten percent of each application may be disrupted. Every fifth application is spread over zones, every fifth one over
    nodes, and each fiftieth node has a pod without controller.
    """
    draw = random.Random(7)
    items: list[dict[str, Any]] = []
    pods = nodes * PER_NODE
    per_app = pods // APPS
    for app in range(APPS):
        name = f"app-{app}"
        items.append(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"replicas": per_app, "selector": {"matchLabels": {"app": name}}},
            }
        )
        items.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"maxUnavailable": "10%", "selector": {"matchLabels": {"app": name}}},
                "status": {"disruptionsAllowed": max(1, per_app // 10), "expectedPods": per_app},
            }
        )
    for n in range(nodes):
        group = "general" if n % 3 else "memory"
        cpu, memory, _ = TYPES[group]
        amounts = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": f"n{n}", "topology.kubernetes.io/zone": ZONES[n // 3 % 3], "pool": group}
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{n}", "labels": labels},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
    order = [i % APPS for i in range(pods)]
    draw.shuffle(order)
    texts = []
    for i, app in enumerate(order):
        name = f"app-{app}"
        spec: dict[str, Any] = {
            "nodeName": f"n{i // PER_NODE}",
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": f"{100 + 40 * (app % 9)}m", "memory": "1Gi"}}}
            ],
        }
        if app % 5 < 2:
            key = "topology.kubernetes.io/zone" if app % 5 else "kubernetes.io/hostname"
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 20 if app % 5 else 4,
                    "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule" if app % 5 else "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ]
        bare = i % (50 * PER_NODE) == 0
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        pod = {
            "metadata": {
                "name": f"p{i}",
                "namespace": "default",
                "uid": f"u{i}",
                "labels": {"app": name},
                "ownerReferences": [] if bare else [owner],
            },
            "spec": spec,
            "status": {"phase": "Running"},
        }
        texts.append(json.dumps(pod))
    text = f'{{"apiVersion":"v1","kind":"PodList","items":[{",".join(texts)}]}}'
    return kscale.load(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode(), text.encode())


def groups(nodes: int) -> list[NodeGroup]:
    """The two groups of the nodes, and a group of larger nodes without any."""
    entries: list[dict[str, Any]] = [
        {"id": name, "min": 0, "max": nodes, "nodeSelector": {"pool": name}, "price": TYPES[name][2]}
        for name in ("general", "memory")
    ]
    cpu, memory, price = TYPES["large"]
    amounts = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"}
    template = {
        "metadata": {"labels": {"topology.kubernetes.io/zone": "a", "pool": "large"}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    entries.append({"id": "large", "min": 0, "max": nodes, "target": 0, "price": price, "template": template})
    return groups_from(entries)


def test_path_of_1000_nodes(benchmark) -> None:
    """1,000 nodes with 30,000 pods: the whole path and its bound. Target: 20 s on two cores."""
    nodes = max(200, round(1000 * SCALE))
    running, offers = cluster(nodes), groups(nodes)
    plan = benchmark.pedantic(lambda: kscale.consolidate(running, offers, now=NOW), rounds=1, warmup_rounds=0)
    today, path, optimum = plan.table
    assert plan.stopped == "nothing-saves"
    assert today.nodes == nodes
    assert today.cost == round(sum(TYPES["general" if n % 3 else "memory"][2] for n in range(nodes)), 9)
    assert len(plan.held) == -(-nodes // 50)
    assert optimum.cost <= path.cost <= 1.1 * optimum.cost
    assert path.cost < 0.5 * today.cost
    removed = [name for step in plan.steps for name in step.remove]
    assert len(removed) == len(set(removed))
    assert all(len(step.remove) <= -(-(step.nodes + len(step.remove)) // 10) for step in plan.steps)
    where = {each.pod: each.to for step in plan.steps for each in step.evict}
    assert not set(removed).intersection(where.values())
