"""Small worlds for tests."""

from __future__ import annotations

from typing import Any

from kscale.effects import SECOND, ApiError, GetScale, Outcome, PutScale, from_text
from kscale.objects.api.apps import Deployment
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.world.simulated.cloud import GroupTimes
from kscale.world.simulated.world import SimulatedWorld, WorldOptions

T0 = from_text("2027-01-15T08:00:00Z")
QUICK = WorldOptions(latency=0)


def pod_template(app: str, cpu: str = "1", memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}], **spec},
    }


def workload(kind: str, name: str = "web", replicas: int | None = 1, **more: Any) -> dict[str, Any]:
    """A controller in namespace ``shop``."""
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": name}}, **more.pop("spec", {})}
    spec.setdefault("template", pod_template(name, **more))
    if replicas is not None:
        spec["replicas"] = replicas
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def deployment(name: str = "web", replicas: int = 1, **more: Any) -> Deployment:
    return from_dict(workload("Deployment", name, replicas, **more), Deployment)


def node(name: str, cpu: str = "4", memory: str = "16Gi") -> Node:
    offered = {"cpu": cpu, "memory": memory, "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return from_dict(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": offered, "allocatable": offered, "conditions": [ready]},
        },
        Node,
    )


def pool(name: str = "pool", *, least: int = 0, most: int = 10, size: int = 0, cpu: str = "4") -> NodeGroup:
    template = NodeTemplate(node=node(name, cpu=cpu))
    return NodeGroup(id=name, min_size=least, max_size=most, target_size=size, template=template, price=0.2)


def world_of(*objects: Any, size: int = 1, times: GroupTimes | None = None, **more: Any) -> SimulatedWorld:
    """A world with one group, ``pool``, of so many nodes."""
    world = SimulatedWorld(now=T0, **more)
    world.cloud.add(pool(size=size), times or GroupTimes())
    for item in objects:
        world.add(item)
    world.begin()
    return world


def run(world: SimulatedWorld, seconds: float) -> None:
    """Lets time go by."""
    world.time.run(world.time.now + round(seconds * SECOND))


def pods(world: SimulatedWorld) -> list[tuple[str, str, str]]:
    """(app and name's end left out, node, phase) of all pods."""
    return [
        ((each.metadata.labels or {}).get("app", each.name), each.spec.node_name, each.status.phase)
        for each in world.api.get_all("Pod").values()
    ]


def done(world: SimulatedWorld, action: Any) -> Any:
    outcome: Outcome = world.perform(action, world.time.now)
    assert outcome.error is None, outcome.error
    return outcome.value


def refused(world: SimulatedWorld, action: Any) -> ApiError:
    outcome: Outcome = world.perform(action, world.time.now)
    assert outcome.error is not None
    return outcome.error


def named(world: SimulatedWorld, name: str) -> Any:
    return world.api.get("Deployment", "shop", name)


def scale(world: SimulatedWorld, replicas: int, name: str = "web") -> None:
    current = done(world, GetScale(namespace="shop", resource="deployments.apps", name=name))
    done(world, PutScale(namespace="shop", resource="deployments.apps", scale=current, replicas=replicas))
