"""Pods of the simulated world that are resized in place."""

from __future__ import annotations

from msgspec.structs import replace

from kscale.effects import (
    PatchOperation,
    Resize,
)
from kscale.objects.api.core import Pod
from kscale.objects.conditions import find
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from unit.world.simulated_cases import QUICK, deployment, done, refused, run, scale, world_of


def resized(pod: Pod, cpu: str) -> Resize:
    path = "/spec/containers/0/resources/requests/cpu"
    return Resize(namespace="shop", name=pod.name, patch=(PatchOperation(op="replace", path=path, value=cpu),))


def test_a_pod_is_resized_where_there_is_room() -> None:
    world = world_of(deployment(replicas=2), options=QUICK)
    run(world, 5)
    pod = next(iter(world.api.get_all("Pod").values()))
    done(world, resized(pod, "2"))
    now = world.api.get_current(pod)
    assert now.status.container_statuses[0].allocated_resources["cpu"] == Quantity("2")
    error = refused(world, resized(pod, "5"))
    assert (error.reason, error.causes) == ("Forbidden", ("NodeCapacity",))
    done(world, resized(pod, "3500m"))
    now = world.api.get_current(pod)
    condition = find(now.status.conditions, "PodResizePending")
    assert condition is not None
    assert condition.reason == "Deferred"
    assert now.status.container_statuses[0].allocated_resources["cpu"] == Quantity("2")


def test_deferred_resize_is_done_once_capacity_is_free() -> None:
    world = world_of(deployment("web", 2), deployment("other", 1), options=QUICK)
    run(world, 5)
    first, second = (pod for pod in world.api.get_all("Pod").values() if pod.name.startswith("web"))
    for pod in (first, second):
        done(world, resized(pod, "2"))

    def cpu(pod: Pod) -> tuple[str, bool]:
        now = world.api.get_current(pod)
        assert now is not None
        allocated_cpu = (now.status.container_statuses[0].allocated_resources or {})["cpu"]
        return str(allocated_cpu), find(now.status.conditions, "PodResizePending") is not None

    run(world, 60)
    assert [cpu(first), cpu(second)] == [("2", False), ("1", True)]
    scale(world, 0, "other")
    run(world, 5)
    assert [cpu(first), cpu(second)] == [("2", False), ("2", False)]


def test_dumped_pod_keeps_its_allocation_while_its_resize_is_deferred() -> None:
    world = world_of(deployment("web", 2), deployment("other", 1), options=QUICK)
    run(world, 5)
    first, second = (pod for pod in world.api.get_all("Pod").values() if pod.name.startswith("web"))
    for pod in (first, second):  # kubelets of before 1.33 do not tell what containers take
        now = world.api.get_current(pod)
        statuses = [replace(each, allocated_resources=None) for each in now.status.container_statuses]
        world.api.put(replace(now, status=replace(now.status, container_statuses=statuses)))
    done(world, resized(first, "3"))
    assert world.api.get_current(first).status.container_statuses[0].allocated_resources["cpu"] == Quantity("1")
    done(world, resized(second, "3"))
    for pod in (first, second):
        now = world.api.get_current(pod)
        assert find(now.status.conditions, "PodResizePending") is not None
    scale(world, 0, "other")
    run(world, 5)
    allocated = [
        world.api.get_current(pod).status.container_statuses[0].allocated_resources["cpu"] for pod in (first, second)
    ]
    assert allocated == [Quantity("3"), Quantity("1")]


def test_deferred_resizes_are_retried_in_upstream_order() -> None:
    """``sortPendingResizes``: priority, then quality of service, then who waits longest."""
    world = world_of(options=QUICK)
    fixed = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
    cases = [("first", 0, {}), ("fixed", 0, fixed), ("dear", 10, {}), ("blocks", 0, {"requests": {"cpu": "2"}})]
    for name, priority, resources in cases:
        container = {"name": "c", "image": "x", "resources": resources or {"requests": {"cpu": "500m"}}}
        spec = {"containers": [container], "priority": priority}
        world.add(from_dict({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, Pod))
    run(world, 5)
    for name in ("first", "fixed", "dear"):
        resize = resized(world.api.get("Pod", "shop", name), "1500m")
        limit = PatchOperation(op="replace", path="/spec/containers/0/resources/limits/cpu", value="1500m")
        done(world, replace(resize, patch=(*resize.patch, limit)) if name == "fixed" else resize)

    def waits() -> list[str]:
        pods = world.api.get_all("Pod").values()
        return [pod.name for pod in pods if find(pod.status.conditions, "PodResizePending") is not None]

    assert waits() == ["first", "fixed", "dear"]
    for cpu, expected in (("1500m", ["first", "fixed"]), ("500m", ["first"])):
        done(world, resized(world.api.get("Pod", "shop", "blocks"), cpu))
        run(world, 1)
        assert waits() == expected
