"""Small random questions about the cheapest nodes: as a problem of the reference, and as kscale is asked."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

import kscale
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import groups_from
from kscale.capacity.mix import MixOptions, MixPlan
from kscale.objects.nodegroup import NodeGroup
from kscale.snapshot.cluster import Cluster
from reference.mixes import Machine, Problem, Shape

__all__ = ["Case", "case_of", "running", "wide_case_of"]

ZONE, TYPE, HOST = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "kubernetes.io/hostname"
SPOT = {"karpenter.sh/capacity-type": "spot"}
MIB = 2**20


@dataclass(frozen=True)
class Case:
    """``problem`` for the reference; ``cluster``, ``groups`` and ``options`` for kscale.

    ``objects`` and ``described`` are the cluster and the groups as plain data.
    """

    problem: Problem
    cluster: Cluster
    groups: list[NodeGroup]
    options: MixOptions
    objects: list[dict[str, Any]]
    described: list[dict[str, Any]]


def case_of(seed: int) -> Case:
    """Return the question of a seed: one to five offers, up to twelve pods, and some of the rules that there are."""
    draw = random.Random(seed)
    zones = draw.choice([[""], ["a", "b"], ["a", "b", "c"]])
    daemon = (draw.choice([100, 300]), draw.choice([64, 256])) if draw.random() < 0.25 else None
    machines = _offers(draw, zones, daemon)
    objects = [_daemon_set(daemon)] if daemon else []
    if draw.random() < 0.4:
        existing, more = _existing(draw, zones)
        machines, objects = [*machines, *existing], [*objects, *more]
    shapes = _shapes(draw, zones)
    limits: dict[str, int] = {}
    cpu = sum(shape.cpu * shape.count for shape in shapes)
    here = [machine for machine in machines if machine.exists]
    there = [machine for machine in machines if not machine.exists for _ in range(machine.least)]
    installed = [sum(machine.size[r] for machine in [*here, *there]) for r in (0, 1)]
    if draw.random() < 0.15:
        limits["cpu"] = installed[0] + draw.choice([cpu // 2, cpu, 2 * cpu, 4 * cpu])
    if draw.random() < 0.15:
        limits["nodes"] = len(here) + len(there) + draw.randint(1, 5)
    if draw.random() < 0.1:
        limits["memory"] = installed[1] + draw.choice([4096, 16384, 65536])
    share = draw.choice([0.0, 0.25, 0.3, 0.5, 2 / 3]) if draw.random() < 0.3 else None
    types = draw.randint(1, 3) if draw.random() < 0.25 else None
    problem = Problem(shapes, machines, limits, share, types)
    objects += [_pod(shape, i) for shape in shapes for i in range(shape.count)]
    cluster = kscale.load(objects)
    described = [_group(machine, daemon) for machine in machines if not machine.exists]
    groups = with_templates(cluster, cluster.snapshot(dra=True), groups_from(described))
    amounts = {name: most * MIB if name == "memory" else most for name, most in limits.items()}
    options = MixOptions(limits=amounts, spot_share=share, max_types=types)
    # The groups have no nodes: who exists belongs to none of them.
    groups = [replace(group, target_size=0, nodes=[]) for group in groups]
    return Case(problem, cluster, groups, options, objects, described)


def wide_case_of(seed: int, pods: int = 40) -> Case:
    """Return a larger question: up to 15 types with reserved machines, 40 pods, and more rules that pods have."""
    draw = random.Random(f"wide {seed}")
    zones = draw.choice([[""], ["a", "b"], ["a", "b", "c"]])
    daemon = (draw.choice([100, 250]), draw.choice([64, 256])) if draw.random() < 0.4 else None
    machines = _many_offers(draw, zones, daemon)
    objects = [_daemon_set(daemon)] if daemon else []
    if draw.random() < 0.4:
        existing, more = _existing(draw, zones)
        machines, objects = [*machines, *existing], [*objects, *more]
    shapes = _many_shapes(draw, zones, pods)
    share = draw.choice([0.0, 0.3, 0.5]) if draw.random() < 0.2 else None
    types = draw.randint(1, 4) if draw.random() < 0.2 else None
    problem = Problem(shapes, machines, {}, share, types)
    objects += [_pod(shape, i) for shape in shapes for i in range(shape.count)]
    cluster = kscale.load(objects)
    described = [_group(machine, daemon) for machine in machines if not machine.exists]
    groups = with_templates(cluster, cluster.snapshot(dra=True), groups_from(described))
    groups = [replace(group, target_size=0, nodes=[]) for group in groups]
    return Case(problem, cluster, groups, MixOptions(spot_share=share, max_types=types), objects, described)


def _many_offers(draw: random.Random, zones: list[str], daemon: tuple[int, int] | None) -> list[Machine]:
    """Types with a price near that of their size, in some zones each; of some a few machines are reserved."""
    daemon_use = (daemon[0], daemon[1], 1) if daemon else (0, 0, 0)
    machines = []
    for t in range(draw.randint(2, 15)):
        cpu, memory = draw.choice([1, 2, 4, 8, 16]) * 1000, draw.choice([2, 4, 8, 16, 32, 64]) * 1024
        pods = draw.choice([4, 8, 29, 58, 110])
        price = (cpu / 1000 * 0.03 + memory / 1024 * 0.004) * draw.uniform(0.85, 1.25)
        spot, tainted = draw.random() < 0.2, draw.random() < 0.15
        labels = {TYPE: f"t{t}", "arch": draw.choice(["amd64", "amd64", "arm64"])}
        if draw.random() < 0.3:
            labels["pool"] = draw.choice("xy")
        for zone in draw.sample(zones, draw.randint(1, len(zones))):
            reserved = draw.randint(1, 3) if draw.random() < 0.15 and not spot else 0
            least = 1 if draw.random() < 0.04 else 0
            most = least + draw.randint(0, 4) if draw.random() < 0.15 else None
            own = {**labels, **({ZONE: zone} if zone else {})}
            machine = Machine(
                name=f"t{t}{zone}",
                type=f"t{t}",
                size=(cpu, memory),
                room=(cpu - daemon_use[0], memory - daemon_use[1], pods - daemon_use[2]),
                price=round(price * draw.choice([1.0, 1.0, 1.04]), 4),
                labels={**own, **(SPOT if spot else {})},
                tainted=tainted,
                spot=spot,
                least=least,
                most=most,
            )
            machines.append(machine)
            if reserved:
                cheap = round(machine.price * draw.choice([0.0, 0.4, 0.7]), 4)
                labelled = {**own, "karpenter.sh/capacity-type": "reserved"}
                more = {"name": f"r{t}{zone}", "price": cheap, "labels": labelled, "least": 0, "most": reserved}
                machines.append(dataclasses.replace(machine, **more))
    return machines


def _many_shapes(draw: random.Random, zones: list[str], pods: int) -> list[Shape]:
    shapes: list[Shape] = []
    remaining = draw.randint(2, pods)
    for s in range(draw.randint(1, 6)):
        count = min(remaining, draw.randint(1, max(2, pods // 3)))
        if not count:
            break
        remaining -= count
        affine: list[tuple[str, str, tuple[str, ...]]] = []
        if draw.random() < 0.15:
            affine.append(("arch", draw.choice(["In", "NotIn"]), ("arm64",)))
        if draw.random() < 0.1:
            affine.append(("pool", draw.choice(["Exists", "DoesNotExist"]), ()))
        if zones[0] and draw.random() < 0.12:
            affine.append((ZONE, "In", tuple(draw.sample(zones, draw.randint(1, len(zones))))))
        others = [shape.name for shape in shapes]
        shapes.append(
            Shape(
                name=f"s{s}",
                count=count,
                cpu=draw.choice([100, 250, 500, 800, 1000, 1500, 1900, 3000]),
                memory=draw.choice([128, 500, 1000, 1900, 3500, 6000, 12000]),
                selector={ZONE: draw.choice(zones)} if zones[0] and draw.random() < 0.15 else {},
                tolerates=draw.random() < 0.3,
                port=8080 if draw.random() < 0.06 else 0,
                alone=draw.random() < 0.1,
                even=bool(zones[0]) and draw.random() < 0.2,
                affine=affine,
                apart=frozenset([draw.choice(others)]) if others and draw.random() < 0.08 else frozenset(),
                skew=draw.choice([1, 1, 2]),
            )
        )
    return shapes


def running(case: Case, plan: MixPlan) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the objects of the cluster that a plan on new nodes makes, and its groups with their nodes."""
    assert plan.nodes is not None
    template = {group["id"]: group["template"] for group in case.described}
    pod_of = {f"d/{item['metadata']['name']}": item for item in case.objects if item["kind"] == "Pod"}
    objects = [item for item in case.objects if item["kind"] not in ("Node", "Pod")]
    nodes: dict[str, list[str]] = {name: [] for name in template}
    for new in plan.nodes:
        name = f"{new.offer}-{len(nodes[new.offer])}"
        nodes[new.offer].append(name)
        own = template[new.offer]
        metadata = {"name": name, "labels": {**own["metadata"]["labels"], HOST: name}}
        objects.append({"apiVersion": "v1", "kind": "Node", **own, "metadata": metadata})
        for pod in new.pods:
            one = pod_of[pod]
            objects.append({**one, "spec": {**one["spec"], "nodeName": name}, "status": {"phase": "Running"}})
    groups = [{**group, "nodes": nodes[group["id"]], "target": len(nodes[group["id"]])} for group in case.described]
    return objects, groups


def _offers(draw: random.Random, zones: list[str], daemon: tuple[int, int] | None) -> list[Machine]:
    machines = []
    for t in range(draw.randint(1, 3)):
        cpu, memory = draw.choice([1, 2, 4, 8]) * 1000, draw.choice([2, 4, 8, 16, 32]) * 1024
        pods = draw.choice([3, 5, 110, 110])
        fair = cpu / 1000 * 0.04 + memory / 1024 * 0.005
        price = round(fair * (1.0 if draw.random() < 0.4 else draw.uniform(0.6, 1.6)), 4)
        labels = {TYPE: f"t{t}", **({"pool": draw.choice("xy")} if draw.random() < 0.4 else {})}
        spot, tainted = draw.random() < 0.3, draw.random() < 0.15
        for zone in draw.sample(zones, draw.randint(1, len(zones))):
            if len(machines) == 5:
                break
            least = draw.choice([1, 2]) if draw.random() < 0.12 else 0
            most = least + draw.randint(0, 3) if draw.random() < 0.25 else None
            reserved = (daemon[0], daemon[1], 1) if daemon else (0, 0, 0)
            machines.append(
                Machine(
                    name=f"t{t}{zone}",
                    type=f"t{t}",
                    size=(cpu, memory),
                    room=(cpu - reserved[0], memory - reserved[1], pods - reserved[2]),
                    price=round(price * (1.0 if draw.random() < 0.7 else draw.uniform(0.9, 1.2)), 4),
                    labels={**labels, **({ZONE: zone} if zone else {}), **(SPOT if spot else {})},
                    tainted=tainted,
                    spot=spot,
                    least=least,
                    most=most,
                )
            )
    return machines


def _existing(draw: random.Random, zones: list[str]) -> tuple[list[Machine], list[dict[str, Any]]]:
    machines, objects = [], []
    for i in range(draw.randint(1, 2)):
        cpu, memory, used = draw.choice([2000, 4000]), draw.choice([4096, 8192]), draw.choice([0, 500, 1500])
        zone = draw.choice(zones)
        labels = {**({ZONE: zone} if zone else {}), **({"pool": draw.choice("xy")} if draw.random() < 0.4 else {})}
        name = f"e{i}"
        machines.append(
            Machine(name, "", (cpu, memory), (cpu - used, memory - used, 20 - (used > 0)), 0.0, labels, exists=True)
        )
        objects.append(_node(name, cpu, memory, 20, labels))
        if used:
            running = _pod(Shape(f"runs-{name}", 1, used, used), 0)
            running["spec"]["nodeName"], running["status"] = name, {"phase": "Running"}
            objects.append(running)
    return machines, objects


def _shapes(draw: random.Random, zones: list[str]) -> list[Shape]:
    shapes, remaining = [], draw.randint(1, 12)
    for s in range(draw.randint(1, 4)):
        count = min(remaining, draw.randint(1, 6))
        if not count:
            break
        remaining -= count
        selector = {}
        if zones[0] and draw.random() < 0.3:
            selector[ZONE] = draw.choice(zones)
        if draw.random() < 0.12:
            selector["pool"] = draw.choice("xy")
        shapes.append(
            Shape(
                name=f"s{s}",
                count=count,
                cpu=draw.choice([100, 300, 500, 900, 1000, 1300, 1900, 2500]),
                memory=draw.choice([128, 500, 1000, 1500, 2600, 5000, 7000]),
                selector=selector,
                tolerates=draw.random() < 0.3,
                port=8080 if draw.random() < 0.1 else 0,
                alone=draw.random() < 0.08,
                even=bool(zones[0]) and draw.random() < 0.15,
            )
        )
    return shapes


def _pod(shape: Shape, number: int) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "x"}
    container["resources"] = {"requests": {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi"}}
    if shape.port:
        container["ports"] = [{"containerPort": 80, "hostPort": shape.port}]
    spec: dict[str, Any] = {"containers": [container]}
    meant = {"labelSelector": {"matchLabels": {"app": shape.name}}}
    if shape.selector:
        spec["nodeSelector"] = dict(shape.selector)
    if shape.tolerates:
        spec["tolerations"] = [{"key": "special", "operator": "Exists"}]
    names = [*([shape.name] if shape.alone else []), *sorted(shape.apart)]
    terms = [{"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": HOST} for name in names]
    if terms:
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if shape.affine:
        expressions = [{"key": k, "operator": op, **({"values": [*v]} if v else {})} for k, op, v in shape.affine]
        required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        spec.setdefault("affinity", {})["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    if shape.even:
        constraint = {**meant, "maxSkew": shape.skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [constraint]
    name = f"{shape.name}-{number}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": shape.name, "uid": shape.name, "controller": True}
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {"app": shape.name},
            "ownerReferences": [owner],
        },
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [unschedulable]},
    }


def _node(name: str, cpu: int, memory: int, pods: int, labels: dict[str, str]) -> dict[str, Any]:
    room = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": str(pods)}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, **labels}},
        "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
    }


def _group(machine: Machine, daemon: tuple[int, int] | None) -> dict[str, Any]:
    pods = machine.room[2] + (1 if daemon else 0)
    node = _node(machine.name, *machine.size, pods, dict(machine.labels))
    template = {"metadata": {"labels": dict(machine.labels)}, "status": node["status"]}
    if machine.tainted:
        template["spec"] = {"taints": [{"key": "special", "value": "x", "effect": "NoSchedule"}]}
    most = 1000 if machine.most is None else machine.most
    return {"id": machine.name, "min": machine.least, "max": most, "price": machine.price, "template": template}


def _daemon_set(amounts: tuple[int, int]) -> dict[str, Any]:
    requests = {"cpu": f"{amounts[0]}m", "memory": f"{amounts[1]}Mi"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "d", "uid": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {
                    "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        },
    }
