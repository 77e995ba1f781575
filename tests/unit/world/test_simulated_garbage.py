"""What belonged to objects that are gone, in the simulated world."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kscale.objects.api.core import ConfigMap, Pod, PodSpec
from kscale.objects.api.meta import ObjectMeta, OwnerReference
from kscale.objects.decode import from_dict
from kscale.world.simulated.world import SimulatedWorld
from unit.world.simulated_cases import QUICK, deployment, pod_template, run, world_of


def names(world: SimulatedWorld, kind: str) -> list[str]:
    return [each.name for each in world.api.get_all(kind).values()]


def owned_by(name: str, *owners: Any) -> ConfigMap:
    references = [OwnerReference(kind=each.kind, name=each.name, uid=each.metadata.uid) for each in owners]
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="shop", owner_references=references))


def test_pods_and_replica_sets_go_with_their_deployment() -> None:
    world = world_of(deployment("web", 3), deployment("other", 1), options=QUICK)
    run(world, 5)
    assert len(names(world, "Pod")) == 4
    world.api.remove(world.api.get("Deployment", "shop", "web"))
    run(world, 5)
    assert [each.partition("-")[0] for each in names(world, "ReplicaSet")] == ["other"]
    assert [each.partition("-")[0] for each in names(world, "Pod")] == ["other"]


def test_object_with_another_owner_stays() -> None:
    world = world_of(deployment("one"), deployment("two"), options=QUICK)
    one, two = (world.api.get("Deployment", "shop", name) for name in ("one", "two"))
    for item in (owned_by("both", one, two), owned_by("of-one", one), owned_by("of-nobody")):
        world.add(item)
    world.api.remove(one)
    run(world, 1)
    assert names(world, "ConfigMap") == ["both", "of-nobody"]
    world.api.remove(two)
    run(world, 1)
    assert names(world, "ConfigMap") == ["of-nobody"]


def test_adopted_object_stays() -> None:
    world = world_of(deployment("one"), deployment("two"), options=QUICK)
    one, two = (world.api.get("Deployment", "shop", name) for name in ("one", "two"))
    settings = world.add(owned_by("settings", one))
    world.api.put(
        replace(
            settings, metadata=replace(settings.metadata, owner_references=owned_by("", two).metadata.owner_references)
        )
    )
    world.api.remove(one)
    run(world, 1)
    assert names(world, "ConfigMap") == ["settings"]


def test_pods_go_with_an_owner_that_does_not_control_them() -> None:
    world = world_of(deployment("one"), deployment("two"), options=QUICK)
    one, two = (world.api.get("Deployment", "shop", name) for name in ("one", "two"))
    spec = from_dict(pod_template("p")["spec"], PodSpec)
    for name, owners in {"of-one": [one], "both": [one, two]}.items():
        world.add(Pod(metadata=owned_by(name, *owners).metadata, spec=spec))
    run(world, 5)
    world.api.remove(one)
    run(world, 60)
    assert [each for each in names(world, "Pod") if each in ("of-one", "both")] == ["both"]


def test_objects_owned_by_a_pod_are_deleted_with_it() -> None:
    world = world_of(deployment("web"), options=QUICK)
    run(world, 5)
    (pod,) = world.api.get_all("Pod").values()
    world.add(owned_by("of-pod", pod))
    world.add(owned_by("of-nobody"))
    world.api.remove(pod)
    run(world, 5)
    assert names(world, "ConfigMap") == ["of-nobody"]


def test_pods_whose_owner_was_never_there_stay() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "lost", "uid": "u", "controller": True}
    data = {
        "metadata": {"name": "p", "namespace": "shop", "ownerReferences": [owner]},
        "spec": pod_template("p")["spec"],
    }
    world = world_of(from_dict(data, Pod), options=QUICK)
    run(world, 60)
    assert names(world, "Pod") == ["p"]
