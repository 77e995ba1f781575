"""The API server of the simulated world: versions, conflicts, statuses, watches and columns."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from kscale import InputError
from kscale.effects import (
    SECOND,
    ApiError,
    Create,
    Delete,
    Get,
    GetScale,
    IncreaseSize,
    List,
    Patch,
    PatchOperation,
    PutScale,
    Refresh,
    WriteStatus,
)
from kscale.objects.api.apps import StatefulSet
from kscale.objects.api.core import ConfigMap
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.api.vpa import (
    RecommendedContainerResources,
    RecommendedPodResources,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerCheckpointStatus,
    VerticalPodAutoscalerStatus,
)
from kscale.objects.decode import from_dict, to_dict
from kscale.snapshot.cluster import Cluster
from kscale.vpa.resources import to_memory_quantity
from kscale.world.protocols import Change, NotifyingStores, Watch
from kscale.world.simulated.world import WorldOptions
from unit.world.simulated_cases import (
    QUICK,
    deployment,
    done,
    named,
    node,
    pods,
    refused,
    run,
    scale,
    workload,
    world_of,
)


def test_writes_check_versions_and_missing_objects() -> None:
    world = world_of(deployment(), options=QUICK)
    run(world, 5)
    assert refused(world, Get(kind="Node", name="none")).is_not_found
    assert refused(world, List(kind="Pod", selector="a in", watched=False)).code == 400
    node = world.api.find("Node", "pool-0")
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    version = done(
        world, Patch(kind="Node", name="pool-0", patch=taint, resource_version=node.metadata.resource_version)
    )
    assert version == world.api.find("Node", "pool-0").metadata.resource_version != node.metadata.resource_version
    stale = Patch(kind="Node", name="pool-0", patch=taint, resource_version=node.metadata.resource_version)
    assert refused(world, stale).is_conflict
    read = done(world, GetScale(namespace="shop", resource="deployments.apps", name="web"))
    scale(world, 2)
    assert named(world, "web").metadata.generation == 2
    put = PutScale(namespace="shop", resource="deployments.apps", scale=read, replicas=3)
    assert refused(world, put).is_conflict
    created = ConfigMap(metadata=ObjectMeta(name="c", namespace="kube-system"), data={"a": "1"})
    done(world, Create(created))
    assert refused(world, Create(created)).is_already_exists
    done(world, Patch(kind="ConfigMap", namespace="kube-system", name="c", patch={"data": {"a": None, "b": "2"}}))
    assert done(world, Get(kind="ConfigMap", namespace="kube-system", name="c")).data == {"b": "2"}
    done(world, Delete(kind="ConfigMap", namespace="kube-system", name="c"))
    assert refused(world, Delete(kind="ConfigMap", namespace="kube-system", name="c")).is_not_found


def test_a_status_is_written_at_its_version_only_and_changes_nothing_else() -> None:
    world = world_of(deployment(), options=QUICK)
    run(world, 5)
    stored = named(world, "web")
    other = replace(stored, spec=replace(stored.spec, replicas=9), status=replace(stored.status, replicas=7))
    done(world, WriteStatus(other))
    assert (named(world, "web").spec.replicas, named(world, "web").metadata.generation) == (1, 1)
    assert refused(world, WriteStatus(other)).is_conflict


def test_watch_delivers_changes_after_the_lag() -> None:
    world = world_of(deployment(replicas=5), options=WorldOptions(watch_lag=3 * SECOND))
    stores: NotifyingStores = world.stores([
        Watch(kind="Pod", api_version="v1", field_selector="spec.nodeName=,status.phase!=Failed", typed=True),
        Watch(kind="Node", api_version="v1"),
    ])  # fmt: skip
    changes: list[Change] = []
    stop = stores.subscribe(lambda change: changes.append(change) if change is not None else None)
    run(world, 2.5)
    assert (changes, stores.snapshot().nodes) == ([], ())
    run(world, 1)
    assert stores.snapshot().nodes == ("pool-0",)
    assert Counter((each.old is None, each.new is None) for each in changes) == {
        (True, False): 5,
        (False, False): 1,
        (False, True): 4,
    }
    assert [pod.spec.node_name for pod in stores.objects("Pod")] == [""]
    assert len(stores.pods_of(["pool-0"])) == 4
    stop()
    with pytest.raises(InputError, match=r"cannot select by 'spec\.size=3'"):
        world.stores([Watch(kind="Pod", api_version="v1", field_selector="spec.size=3", typed=True)])


def test_columns_are_those_of_the_objects() -> None:
    """Also of pods that came back under their names between two looks, and of pods that came and went."""
    world = world_of(deployment(replicas=6), from_dict(workload("StatefulSet", "db", 2, cpu="250m"), StatefulSet))
    for seconds in (0, 1, 3, 3, 3, 3):
        run(world, seconds)
        result, fresh = world.view.snapshot(), Cluster(texts="pending")
        for kind in ("Node", "Pod"):
            for item in world.api.get_all(kind).values():
                fresh.apply(item)
        expected = fresh.snapshot()
        assert (result.pods, result.pending, result.counts) == (expected.pods, expected.pending, expected.counts)
        assert {name: list(used) for name, used in result.used.items()} == {
            name: list(used) for name, used in expected.used.items()
        }
        of = [each.metadata.uid for each in world.view.cluster.pods()]
        assert of == [each.metadata.uid for each in fresh.pods()]
        for name in ("db-0", "db-1"):
            if world.api.find("Pod", f"shop/{name}") is not None:
                done(world, Delete(kind="Pod", namespace="shop", name=name, grace_period_seconds=0))
        scale(world, 6 if named(world, "web").spec.replicas == 2 else 2)


def test_faults_and_delays_are_configurable() -> None:
    world = world_of(options=QUICK)
    world.perform.fault = lambda action, now: ApiError("no") if isinstance(action, IncreaseSize) else 7
    assert refused(world, IncreaseSize(group="pool", delta=1)).message == "no"
    assert world.perform(Refresh(), world.time.now).at == world.time.now + 7
    assert world.cloud.refresh()[0].target_size == 1


def test_nodes_of_no_group_and_lists() -> None:
    world = world_of(node("bare"), deployment(replicas=5), options=QUICK)
    run(world, 5)
    assert {each for _, each, _ in pods(world)} == {"pool-0", "bare"}
    result = done(world, List(kind="Pod", namespace="shop", selector="app=web", watched=False))
    assert len(result) == 5
    assert len(done(world, List(kind="Pod", nodes=("bare", "pool-0")))) == 5


@pytest.mark.parametrize("kind", ["VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint"])
@pytest.mark.parametrize("op", ["add", "replace"])
@pytest.mark.parametrize("data", [True, False], ids=["data", "struct"])
def test_a_status_that_is_patched_in_whole(kind: str, op: str, data: bool) -> None:
    world = world_of()
    created = {"apiVersion": "autoscaling.k8s.io/v1", "kind": kind, "metadata": {"name": "v", "namespace": "shop"}}
    world.add(from_dict({**created, "spec": {}, "status": _STATUSES[kind][0]}, KINDS[kind]))
    before = world.api.get(kind, "shop", "v")
    status = _STATUSES[kind][1]
    operation = PatchOperation(op, "/status", status if data else from_dict({"status": status}, KINDS[kind]).status)
    of = "status" if kind == "VerticalPodAutoscaler" else ""  # checkpoints have no sub-resource
    done(world, Patch(kind=kind, namespace="shop", name="v", subresource=of, type="json", patch=(operation,)))
    after = world.api.get(kind, "shop", "v")
    assert after.status == from_dict({**created, "status": _STATUSES[kind][1]}, KINDS[kind]).status
    assert after.status != before.status
    assert int(after.metadata.resource_version) == int(before.metadata.resource_version) + 1
    assert replace(after.metadata, resource_version=before.metadata.resource_version) == before.metadata


def test_quantities_of_a_status_are_as_the_api_prints_them() -> None:
    """731500000 bytes that were made print as they are; read from that text, they print as 731500k."""
    created = to_memory_quantity(731_500_000)
    assert str(created) == "731500000"
    container = RecommendedContainerResources(container_name="c", target={"memory": created})
    status = VerticalPodAutoscalerStatus(recommendation=RecommendedPodResources(container_recommendations=[container]))
    statuses = []
    for value in (status, to_dict(status)):
        world = world_of()
        world.add(VerticalPodAutoscaler(metadata=ObjectMeta(name="v", namespace="shop")))
        patch = (PatchOperation("add", "/status", value),)
        done(
            world,
            Patch(
                kind="VerticalPodAutoscaler",
                namespace="shop",
                name="v",
                subresource="status",
                type="json",
                patch=patch,
            ),
        )
        statuses.append(to_dict(world.api.get("VerticalPodAutoscaler", "shop", "v").status))
    assert statuses[0] == statuses[1]
    assert statuses[0]["recommendation"]["containerRecommendations"][0]["target"] == {"memory": "731500k"}


KINDS = {each.__name__: each for each in (VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint)}


_CONDITION = {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": None}


_STATUSES = {
    "VerticalPodAutoscaler": (
        {"conditions": [{**_CONDITION, "status": "False"}]},
        {"conditions": [_CONDITION], "recommendation": {"containerRecommendations": [{"containerName": "c"}]}},
    ),
    "VerticalPodAutoscalerCheckpoint": ({"version": "v3", "totalSamplesCount": 1}, {"totalSamplesCount": 2}),
}


def test_a_status_without_the_sub_resource_is_not_written() -> None:
    world = world_of()
    created: dict[str, Any] = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    created |= {"metadata": {"name": "v", "namespace": "shop"}, "status": {"conditions": [_CONDITION]}}
    world.add(from_dict(created, VerticalPodAutoscaler))
    patch_target = {"kind": "VerticalPodAutoscaler", "namespace": "shop", "name": "v", "type": "json"}
    done(world, Patch(**patch_target, patch=(PatchOperation("replace", "/status", {}),)))
    assert world.api.get("VerticalPodAutoscaler", "shop", "v").status.conditions


def test_simultaneous_pod_changes_arrive_in_one_batch() -> None:
    world = world_of(node("n"), deployment("web", 3), options=QUICK)
    batches: list[list[str]] = []
    world.api.listen("Pod", lambda changes: batches.append([key for key, _, _ in changes]))
    run(world, 5)
    keys = list(world.api.get_all("Pod"))
    assert len(keys) == 3
    assert batches[0] == keys
    assert all(each == keys for each in batches)  # made, bound, started
    batches.clear()
    scale(world, 0)
    run(world, 10)
    assert [sorted(each) for each in batches] == [sorted(keys)] * 2  # told to end, gone


def test_applying_and_deleting() -> None:
    world = world_of(node("n"), deployment("web", 1), options=QUICK)
    run(world, 5)
    stored = world.api.get("Deployment", "shop", "web")
    assert stored.status.ready_replicas == 1
    created = replace(deployment("web", 2), metadata=ObjectMeta(name="web", namespace="shop", labels={"a": "b"}))
    after = world.apply(created)
    assert (after.metadata.uid, after.metadata.labels, after.status) == (stored.metadata.uid, {"a": "b"}, stored.status)
    assert after.metadata.generation == 2
    run(world, 5)
    assert len(pods(world)) == 2
    pod = next(iter(world.api.get_all("Pod").values()))
    world.apply(replace(pod, metadata=replace(pod.metadata, labels={}), spec=replace(pod.spec, node_name="")))
    assert world.api.find("Pod", pod.key).spec.node_name == "n"
    for _ in range(2):  # what is not there is not missed
        world.delete("Deployment", "shop/web")
    run(world, 60)
    assert pods(world) == []
    world.apply(replace(deployment("new", 1), metadata=ObjectMeta(name="new")))
    assert world.api.find("Deployment", "default/new") is not None


def checkpoint(name: str) -> VerticalPodAutoscalerCheckpoint:
    """A checkpoint in namespace ``shop``."""
    return VerticalPodAutoscalerCheckpoint(metadata=ObjectMeta(name=name, namespace="shop"), kind=CHECKPOINT)


CHECKPOINT = "VerticalPodAutoscalerCheckpoint"


def test_statuses_are_built_when_the_kind_is_read_and_only_the_last_ones() -> None:
    world = world_of(checkpoint("a"), checkpoint("b"), options=QUICK)
    built: list[int] = []

    def put(total: int, *keys: str) -> bool:
        def make() -> dict[str, VerticalPodAutoscalerCheckpointStatus]:
            built.append(total)
            return {key: VerticalPodAutoscalerCheckpointStatus(total_samples_count=total) for key in keys}

        return world.api.put_statuses_later(CHECKPOINT, keys, make)

    assert put(1, "shop/a", "shop/b")
    assert put(2, "shop/a", "shop/b")
    assert put(3, "shop/b")
    assert not put(4, "shop/b", "shop/none")
    assert built == []
    first, second = world.api.get_all(CHECKPOINT).values()
    assert built == [2, 3]
    assert (first.status.total_samples_count, second.status.total_samples_count) == (2, 3)
    assert (first.metadata.resource_version, second.metadata.resource_version) == ("5", "7")
    assert world.api.get_version(CHECKPOINT) == "7"
    assert put(8, "shop/a")
    status = VerticalPodAutoscalerCheckpointStatus(total_samples_count=9)
    assert world.api.put_status(world.api.get(CHECKPOINT, "shop", "a"), status) == "9"
    world.api.remove(world.api.get(CHECKPOINT, "shop", "b"))
    assert [each.status.total_samples_count for each in world.api.get_all(CHECKPOINT).values()] == [9]


def test_watched_statuses_are_not_deferred() -> None:
    changes: list[Any] = []
    world = world_of(checkpoint("a"), options=QUICK)
    world.api.listen(CHECKPOINT, changes.append)
    assert not world.api.put_statuses_later(CHECKPOINT, ["shop/a"], dict)
    seen_late = world_of(checkpoint("a"), options=replace(QUICK, watch_lag=SECOND))
    assert not seen_late.api.put_statuses_later(CHECKPOINT, ["shop/a"], dict)
