"""Claims, volumes and the pods that wait for them in the simulated world."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kscale.effects import (
    Delete,
)
from kscale.objects.api.apps import StatefulSet
from kscale.objects.api.storage import PersistentVolume, StorageClass
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from unit.world.simulated_cases import deployment, done, node, pod_template, pods, run, scale, workload, world_of


def storage_class(name: str = "fast", mode: str = "WaitForFirstConsumer", **more: Any) -> StorageClass:
    meta = {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    data = {"kind": "StorageClass", "metadata": meta, "provisioner": "disks", "volumeBindingMode": mode, **more}
    return from_dict(data, StorageClass)


def database(replicas: int = 2, **claim: Any) -> StatefulSet:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}, **claim}
    spec = {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim_spec}]}
    return from_dict(workload("StatefulSet", "db", replicas, cpu="3", spec=spec), StatefulSet)


def test_stateful_set_claims_stay_on_their_node() -> None:
    nodes = []
    for zone in "ab":
        created = node(f"n-{zone}")
        labels = {**(created.metadata.labels or {}), "topology.kubernetes.io/zone": zone}
        nodes.append(replace(created, metadata=replace(created.metadata, labels=labels)))
    world = world_of(storage_class(), database(), *nodes, size=0)
    run(world, 10)
    assert sorted(pods(world)) == [("db", "n-a", "Running"), ("db", "n-b", "Running")]
    claims = world.api.get_all("PersistentVolumeClaim")
    assert {key: claim.status.phase for key, claim in claims.items()} == {
        "shop/data-db-0": "Bound",
        "shop/data-db-1": "Bound",
    }
    volume = world.api.get("PersistentVolume", "", claims["shop/data-db-1"].spec.volume_name)
    assert volume.spec.capacity == {"storage": Quantity("10Gi")}
    stored = world.api.get("Node", "", "n-b")
    world.api.put(replace(stored, spec=replace(stored.spec, unschedulable=True)))
    deleted_pod = next(pod for pod in world.api.get_all("Pod").values() if pod.spec.node_name == "n-b")
    done(world, Delete(kind="Pod", namespace="shop", name=deleted_pod.name))
    scaled = world.api.get("StatefulSet", "shop", "db")
    world.api.put(replace(scaled, spec=replace(scaled.spec, replicas=1 if deleted_pod.name == "db-1" else 2)))
    run(world, 10)
    assert len(world.api.get_all("PersistentVolumeClaim")) == 2
    world.add(node("n-c"))  # in no zone: the volume cannot be reached from there
    world.api.put(replace(world.api.get("StatefulSet", "shop", "db"), spec=scaled.spec))
    run(world, 10)
    assert sorted(pods(world)) == [("db", "", "Pending"), ("db", "n-a", "Running")]


def test_smallest_sufficient_volume_is_bound() -> None:
    def volume(name: str, size: str, **spec: Any) -> PersistentVolume:
        offered = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local", **spec}
        data = {
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": offered,
        }
        return from_dict(data, PersistentVolume)

    local = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    volumes = [
        volume("large", "50Gi"),
        volume("small", "5Gi"),
        volume("block", "11Gi", volumeMode="Block"),
        volume("right", "20Gi"),
    ]
    world = world_of(local, *volumes, database(1))
    run(world, 10)
    assert pods(world) == [("db", "pool-0", "Running")]
    assert world.api.get("PersistentVolumeClaim", "shop", "data-db-0").spec.volume_name == "right"
    phases = {name: each.status.phase for name, each in world.api.get_all("PersistentVolume").items()}
    assert phases == {"large": "Available", "small": "Available", "block": "Available", "right": "Bound"}


def test_a_claim_for_one_volume_waits_for_it() -> None:
    world = world_of(storage_class("disks"), database(1, volumeName="not-there"))
    run(world, 10)
    assert pods(world) == [("db", "", "Pending")]
    assert world.api.get("PersistentVolumeClaim", "shop", "data-db-0").spec.volume_name == "not-there"


def test_an_ephemeral_volume_comes_and_goes_with_its_pod() -> None:
    template = pod_template("web")
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    template["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}]
    world = world_of(storage_class(mode="Immediate"), deployment(spec={"template": template}))
    run(world, 10)
    (key,) = world.api.get_all("Pod")
    assert pods(world) == [("web", "pool-0", "Running")]
    assert list(world.api.get_all("PersistentVolumeClaim")) == [f"{key}-scratch"]
    scale(world, 0)
    run(world, 10)
    assert list(world.api.get_all("PersistentVolumeClaim")) == []
