"""A random cluster as plain dicts, and a checker of a path that shares no code with kscale's scheduler."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

from kscale.capacity.consolidation import ConsolidationPlan

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
ZONES = ("a", "b")
TYPES = {"small": (4000, 16, 0.2), "large": (8000, 32, 0.38), "memory": (4000, 32, 0.27)}


def amounts(kind: str) -> dict[str, str]:
    cpu, memory, _ = TYPES[kind]
    return {"cpu": f"{cpu}m", "memory": f"{memory}Gi", "pods": "12"}


def groups() -> list[dict[str, Any]]:
    """Entries of a groups file; nodes of the group ``memory`` have a taint."""
    entries = []
    for kind, (_, _, price) in TYPES.items():
        template: dict[str, Any] = {
            "metadata": {"labels": {"pool": kind, "topology.kubernetes.io/zone": "a"}},
            "status": {"allocatable": amounts(kind), "capacity": amounts(kind)},
        }
        if kind == "memory":
            template["spec"] = {"taints": [{"key": "memory", "value": "", "effect": "NoSchedule"}]}
        entries.append(
            {"id": kind, "min": 1, "max": 12, "nodeSelector": {"pool": kind}, "price": price, "template": template}
        )
    return entries


def fleet(seed: int, nodes: int = 9) -> list[dict[str, Any]]:
    """Objects of a half-empty cluster. Applications differ in size, selectors, tolerations, budgets and protection."""
    draw = random.Random(seed)
    items: list[dict[str, Any]] = []
    free: dict[str, list[int]] = {}
    kinds: dict[str, str] = {}
    for n in range(nodes):
        kind = ("small", "large", "memory")[n % 3]
        name = f"n{n}"
        kinds[name], free[name] = kind, [TYPES[kind][0], TYPES[kind][1], 12]
        node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "pool": kind,
                    "topology.kubernetes.io/zone": ZONES[n // 3 % 2],
                },
            },
            "spec": {},
            "status": {
                "allocatable": amounts(kind),
                "capacity": amounts(kind),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        if kind == "memory":
            node["spec"]["taints"] = [{"key": "memory", "value": "", "effect": "NoSchedule"}]
        items.append(node)
    for a in range(7):
        app = f"app-{a}"
        replicas = draw.randint(2, 4)
        cpu, memory = draw.choice([200, 400, 700]), draw.choice([1, 2, 4])
        spec: dict[str, Any] = {}
        if a == 1:
            spec["nodeSelector"] = {"topology.kubernetes.io/zone": "a"}
        if a >= 4:
            spec["tolerations"] = [{"key": "memory", "operator": "Exists", "effect": "NoSchedule"}]
        if a == 5:
            spec["nodeSelector"] = {"pool": "memory"}
        if a == 2:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        resources = {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Gi"}}
        spec["containers"] = [{"name": "c", "image": "x", "resources": resources}]
        items.append(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": app, "namespace": "shop", "uid": app},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": app}},
                    "template": {"metadata": {"labels": {"app": app}}, "spec": spec},
                },
            }
        )
        if a % 2 == 0:
            allowed = draw.randint(1, 2)
            items.append(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": app, "namespace": "shop"},
                    "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": app}}},
                    "status": {
                        "disruptionsAllowed": allowed,
                        "expectedPods": replicas,
                        "currentHealthy": replicas,
                        "desiredHealthy": replicas - allowed,
                    },
                }
            )
        used: set[str] = set()
        for i in range(replicas):
            order = sorted(free)
            draw.shuffle(order)
            for name in order:
                node = next(each for each in items if each["kind"] == "Node" and each["metadata"]["name"] == name)
                if a == 2 and name in used:
                    continue
                if free[name][0] >= cpu and free[name][1] >= memory and free[name][2] and _admits(node, spec):
                    break
            else:
                continue
            used.add(name)
            for r, amount in enumerate((cpu, memory, 1)):
                free[name][r] -= amount
            protected = a == 3 and i == 0 and seed % 2 == 0
            items.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": f"{app}-{i}",
                        "namespace": "shop",
                        "uid": f"{app}-{i}",
                        "labels": {"app": app},
                        "annotations": {DO_NOT_DISRUPT: "true"} if protected else {},
                        "ownerReferences": [
                            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
                        ],
                    },
                    "spec": {**spec, "nodeName": name},
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
                }
            )
    return items


def _admits(node: dict[str, Any], spec: dict[str, Any]) -> bool:
    labels = node["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    tolerated = {each["key"] for each in spec.get("tolerations", ())}
    return all(taint["key"] in tolerated for taint in node.get("spec", {}).get("taints", ()))


def check(items: list[dict[str, Any]], entries: list[dict[str, Any]], plan: ConsolidationPlan, share: int = 10) -> None:
    """Assert that each step of a path can be carried out, and that its numbers are right."""
    nodes = {each["metadata"]["name"]: each for each in items if each["kind"] == "Node"}
    pods = {f"shop/{each['metadata']['name']}": each for each in items if each["kind"] == "Pod"}
    at = {key: each["spec"]["nodeName"] for key, each in pods.items()}
    allowed = {
        each["spec"]["selector"]["matchLabels"]["app"]: each["status"]["disruptionsAllowed"]
        for each in items
        if each["kind"] == "PodDisruptionBudget"
    }
    by_id = {entry["id"]: entry for entry in entries}

    def pool(name: str) -> str:
        return str(nodes[name]["metadata"]["labels"]["pool"])

    def cost() -> float:
        return sum(by_id[pool(name)]["price"] for name in nodes)

    assert math.isclose(plan.table[0].cost, cost())
    for number, step in enumerate(plan.steps, 1):
        assert step.number == number
        assert len(step.remove) <= -(-share * len(nodes) // 100)
        before = cost()
        for new in step.add:
            assert new.name not in nodes
            template = by_id[new.group]["template"]
            labels = {**template["metadata"]["labels"], "kubernetes.io/hostname": new.name}
            nodes[new.name] = {**template, "metadata": {"name": new.name, "labels": labels}}
            assert new.price == by_id[new.group]["price"]
        assert math.isclose(step.peak, cost())
        sizes = Counter(map(pool, nodes))
        assert all(sizes[entry["id"]] <= entry["max"] for entry in entries)
        assert set(step.remove) <= set(nodes)
        for wave in range(1, step.waves + 1):
            evicted = [each for each in step.evict if each.wave == wave]
            assert evicted
            charged = Counter(pods[each.pod]["metadata"]["labels"]["app"] for each in evicted)
            assert all(count <= allowed.get(app, count) for app, count in charged.items()), "a budget is exceeded"
            for each in evicted:
                assert at[each.pod] == each.from_node
                assert each.from_node in step.remove
                assert each.to not in step.remove
                assert pods[each.pod]["metadata"]["annotations"].get(DO_NOT_DISRUPT) != "true"
                assert _admits(nodes[each.to], pods[each.pod]["spec"])
                at[each.pod] = each.to
            _check_room(nodes, pods, at)
        for name in step.remove:
            assert name not in at.values(), "a pod is left on a removed node"
            del nodes[name]
        sizes = Counter(map(pool, nodes))
        assert all(sizes[entry["id"]] >= entry["min"] for entry in entries)
        assert math.isclose(step.cost, cost())
        assert math.isclose(step.saves, before - cost())
        assert step.saves > 0
        assert step.nodes == len(nodes)
    assert set(at) == set(pods)
    assert set(at.values()) <= set(nodes), "a pod is pending"
    assert math.isclose(plan.table[1].cost, cost())
    assert plan.table[1].nodes == len(nodes)
    if len(plan.table) == 3:
        assert plan.table[2].cost <= cost() + 1e-9


def _check_room(nodes: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]], at: dict[str, str]) -> None:
    """Assert that the pods on each node fit by requests, and that pods with anti-affinity are alone of their kind."""
    for name, node in nodes.items():
        here = [pods[key] for key, where in at.items() if where == name]
        requests = [each["spec"]["containers"][0]["resources"]["requests"] for each in here]
        allocatable = node["status"]["allocatable"]
        assert sum(int(each["cpu"][:-1]) for each in requests) <= int(allocatable["cpu"][:-1])
        assert sum(int(each["memory"][:-2]) for each in requests) <= int(allocatable["memory"][:-2])
        assert len(here) <= int(allocatable["pods"])
        apart = Counter(each["metadata"]["labels"]["app"] for each in here if "affinity" in each["spec"])
        assert all(count == 1 for count in apart.values())
