"""The simulated world without drivers: workloads, scheduler, kubelet, budgets, machines, metrics."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kscale import InputError
from kscale.drivers.live import TellingStores
from kscale.effects import (
    SECOND,
    ApiError,
    Create,
    DecreaseTargetSize,
    Delete,
    DeleteNodes,
    Evict,
    Get,
    GetMetric,
    GetScale,
    IncreaseSize,
    List,
    Outcome,
    Patch,
    PatchOperation,
    Progress,
    PutScale,
    Refresh,
    Resize,
    Steps,
    WriteStatus,
)
from kscale.objects.apps import DaemonSet, StatefulSet
from kscale.objects.batch import Job
from kscale.objects.conditions import find, pod_ready
from kscale.objects.core import ConfigMap, Pod
from kscale.objects.decode import from_dict
from kscale.objects.meta import ObjectMeta
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.policy import PodDisruptionBudget
from kscale.objects.quantity import Quantity
from kscale.objects.storage import PersistentVolume, StorageClass
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.cluster import Cluster
from kscale.world.protocols import Change, NodeGroups, Watch
from kscale.world.simulated.draws import Draws, Spread
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import Queue, Usage
from kscale.world.simulated.machines import GroupTimes
from kscale.world.simulated.metrics import ExternalMetric, Pipeline
from kscale.world.simulated.signals import Signal
from kscale.world.simulated.world import SimulatedWorld, WorldOptions
from unit.world.simulated_cases import T0, deployment, node, pod_template, pods, pool, run, workload, world_of

QUICK = WorldOptions(latency=0)


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
    held = done(world, GetScale(namespace="shop", resource="deployments.apps", name=name))
    done(world, PutScale(namespace="shop", resource="deployments.apps", scale=held, replicas=replicas))


# -- workloads ---------------------------------------------------------------------------------------------------------


def test_a_deployment_has_its_pods_and_says_so() -> None:
    times = PodTimes(pull=Spread.fixed(2 * SECOND), start=Spread.fixed(SECOND), readiness=Spread.fixed(4 * SECOND))
    world = world_of(deployment(replicas=3), options=WorldOptions(pods=times))
    run(world, 0)
    assert pods(world) == [("web", "pool-0", "Pending")] * 3
    run(world, 3)
    assert pods(world) == [("web", "pool-0", "Running")] * 3
    assert named(world, "web").status.ready_replicas == 0
    run(world, 4)
    status = named(world, "web").status
    assert (status.replicas, status.ready_replicas, status.observed_generation) == (3, 3, 1)
    assert all(pod_ready(pod) for pod in world.api.of("Pod").values())


def test_what_does_not_fit_waits_until_there_is_room() -> None:
    world = world_of(deployment(replicas=5))
    run(world, 10)
    assert Counter(pods(world)) == {("web", "pool-0", "Running"): 4, ("web", "", "Pending"): 1}
    waiting = next(pod for pod in world.api.of("Pod").values() if not pod.spec.node_name)
    condition = find(waiting.status.conditions, "PodScheduled")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    gone = next(pod for pod in world.api.of("Pod").values() if pod.spec.node_name)
    done(world, Delete(kind="Pod", namespace="shop", name=gone.name))
    run(world, 10)  # one took its place, the sixth waits now
    assert Counter(pods(world)) == {("web", "pool-0", "Running"): 4, ("web", "", "Pending"): 1}
    world.cloud.increase_size("pool", 1)
    run(world, 70)
    assert Counter(pods(world)) == {("web", "pool-0", "Running"): 4, ("web", "pool-1", "Running"): 1}


def test_scores_choose_among_nodes_that_fit() -> None:
    def where(scores: ScoreOptions | None) -> set[str]:
        world = world_of(node("wide", cpu="64"), options=WorldOptions(scores=scores))
        for i in range(3):
            data = {"metadata": {"name": f"p{i}", "namespace": "shop"}, "spec": pod_template("none", cpu="1")["spec"]}
            world.add(from_dict(data, Pod))
        run(world, 5)
        return {each for _, each, _ in pods(world)}

    assert where(ScoreOptions()) == {"wide"}
    assert where(None) == {"pool-0", "wide"}


def prioritised(name: str, priority: int, cpu: str) -> Pod:
    made = pod_template(name, cpu=cpu)
    spec = {**made["spec"], "priority": priority}
    return from_dict({"metadata": {"name": name, "namespace": "shop", **made["metadata"]}, "spec": spec}, Pod)


def test_a_pod_of_a_higher_priority_makes_others_end() -> None:
    slow = PodTimes(termination=Spread.fixed(10 * SECOND))
    world = world_of(options=WorldOptions(pods=slow, preemption=True))
    for name, priority, cpu in (("old", 0, "2"), ("young", 0, "1"), ("dear", 50, "1")):
        world.add(prioritised(name, priority, cpu))
        run(world, 5)
    world.add(prioritised("vip", 100, "2"))
    world.add(prioritised("late", 0, "1"))
    run(world, 1)
    ends = {pod.name: pod.metadata.deletion_timestamp is not None for pod in world.api.of("Pod").values()}
    assert ends == {"old": True, "young": False, "dear": False, "vip": False, "late": False}
    vip = world.api.get("Pod", "shop", "vip")
    assert (vip.status.nominated_node_name, vip.spec.node_name) == ("pool-0", "")
    condition = find(world.api.get("Pod", "shop", "old").status.conditions, "DisruptionTarget")
    assert condition is not None
    assert condition.reason == "PreemptionByScheduler"
    run(world, 15)
    assert sorted(pods(world)) == [
        ("dear", "pool-0", "Running"),
        ("late", "", ""),
        ("vip", "pool-0", "Running"),
        ("young", "pool-0", "Running"),
    ]
    assert world.api.get("Pod", "shop", "vip").status.nominated_node_name == ""


def test_without_preemption_nobody_ends() -> None:
    world = world_of()
    world.add(prioritised("old", 0, "3"))
    run(world, 5)
    world.add(prioritised("vip", 100, "2"))
    run(world, 5)
    assert sorted(pods(world)) == [("old", "pool-0", "Running"), ("vip", "", "")]


def test_a_deployment_that_shrinks_gives_up_pods_that_are_not_ready_first() -> None:
    world = world_of(deployment(replicas=5))
    run(world, 10)
    scale(world, 4)
    run(world, 10)
    assert pods(world) == [("web", "pool-0", "Running")] * 4
    scale(world, 0)
    run(world, 10)
    assert pods(world) == []
    assert named(world, "web").status.replicas == 0


def test_a_cost_of_deletion_that_is_no_number_is_none() -> None:
    template = pod_template("web", cpu="500m")
    template["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": "high"}
    world = world_of(deployment(replicas=3, spec={"template": template}))
    run(world, 10)
    scale(world, 1)
    run(world, 10)
    assert len(pods(world)) == 1


def test_a_stateful_set_comes_in_order_and_goes_in_reverse() -> None:
    item = from_dict(workload("StatefulSet", "db", 3, cpu="500m"), StatefulSet)
    world = world_of(item)
    run(world, 0.5)
    assert [pod.name for pod in world.api.of("Pod").values()] == ["db-0"]
    run(world, 10)
    assert [pod.name for pod in world.api.of("Pod").values()] == ["db-0", "db-1", "db-2"]
    held = world.api.get("StatefulSet", "shop", "db")
    world.api.put(replace(held, spec=replace(held.spec, replicas=1)))
    run(world, 0.5)
    assert [pod.name for pod in world.api.of("Pod").values() if pod.metadata.deletion_timestamp is None] == [
        "db-0", "db-1"
    ]  # fmt: skip
    run(world, 10)
    assert [pod.name for pod in world.api.of("Pod").values()] == ["db-0"]


def test_a_daemon_set_has_a_pod_on_each_node_and_none_on_one_that_is_gone() -> None:
    item = from_dict(workload("DaemonSet", "agent", None, cpu="100m"), DaemonSet)
    world = world_of(item, size=2)
    run(world, 5)
    assert sorted(pods(world)) == [("agent", "pool-0", "Running"), ("agent", "pool-1", "Running")]
    world.cloud.delete_nodes("pool", [world.api.find("Node", "pool-0")])
    run(world, 40)
    assert pods(world) == [("agent", "pool-1", "Running")]
    world.cloud.increase_size("pool", 1)
    run(world, 70)
    assert sorted(pods(world)) == [("agent", "pool-1", "Running"), ("agent", "pool-2", "Running")]


def test_a_job_ends_when_enough_pods_have() -> None:
    spec = {"completions": 5, "parallelism": 2, "template": pod_template("batch", cpu="500m")}
    item = from_dict(workload("Job", "batch", None, spec=spec), Job)
    world = world_of(item, options=WorldOptions(pods=PodTimes(work=Spread.fixed(10 * SECOND))))
    run(world, 5)
    assert len(pods(world)) == 2
    run(world, 60)
    held = world.api.get("Job", "shop", "batch")
    assert (held.status.succeeded, held.status.active, pods(world)) == (5, 0, [])
    assert find(held.status.conditions, "Complete") is not None


def test_workers_of_a_job_without_completions_go_on_to_their_end() -> None:
    spec = {"parallelism": 3, "template": pod_template("batch", cpu="500m")}
    item = from_dict(workload("Job", "batch", None, spec=spec), Job)
    work = Spread(((0, 60 * SECOND), (1_000_000, 540 * SECOND)))
    world = world_of(item, options=WorldOptions(pods=PodTimes(work=work)))
    run(world, 9 * 60 + 30)
    held = world.api.get("Job", "shop", "batch")
    assert (held.status.succeeded, held.status.active, pods(world)) == (3, 0, [])
    assert find(held.status.conditions, "Complete") is not None


def storage_class(name: str = "fast", mode: str = "WaitForFirstConsumer", **more: Any) -> StorageClass:
    meta = {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    data = {"kind": "StorageClass", "metadata": meta, "provisioner": "disks", "volumeBindingMode": mode, **more}
    return from_dict(data, StorageClass)


def database(replicas: int = 2, **claim: Any) -> StatefulSet:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}, **claim}
    spec = {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": wanted}]}
    return from_dict(workload("StatefulSet", "db", replicas, cpu="3", spec=spec), StatefulSet)


def test_a_stateful_set_has_its_claims_which_stay_where_they_are() -> None:
    nodes = []
    for zone in "ab":
        made = node(f"n-{zone}")
        labels = {**(made.metadata.labels or {}), "topology.kubernetes.io/zone": zone}
        nodes.append(replace(made, metadata=replace(made.metadata, labels=labels)))
    world = world_of(storage_class(), database(), *nodes, size=0)
    run(world, 10)
    assert sorted(pods(world)) == [("db", "n-a", "Running"), ("db", "n-b", "Running")]
    claims = world.api.of("PersistentVolumeClaim")
    assert {key: claim.status.phase for key, claim in claims.items()} == {
        "shop/data-db-0": "Bound",
        "shop/data-db-1": "Bound",
    }
    volume = world.api.get("PersistentVolume", "", claims["shop/data-db-1"].spec.volume_name)
    assert volume.spec.capacity == {"storage": Quantity("10Gi")}
    held = world.api.get("Node", "", "n-b")
    world.api.put(replace(held, spec=replace(held.spec, unschedulable=True)))
    gone = next(pod for pod in world.api.of("Pod").values() if pod.spec.node_name == "n-b")
    done(world, Delete(kind="Pod", namespace="shop", name=gone.name))
    scaled = world.api.get("StatefulSet", "shop", "db")
    world.api.put(replace(scaled, spec=replace(scaled.spec, replicas=1 if gone.name == "db-1" else 2)))
    run(world, 10)
    assert len(world.api.of("PersistentVolumeClaim")) == 2
    world.add(node("n-c"))  # in no zone: the volume cannot be reached from there
    world.api.put(replace(world.api.get("StatefulSet", "shop", "db"), spec=scaled.spec))
    run(world, 10)
    assert sorted(pods(world)) == [("db", "", "Pending"), ("db", "n-a", "Running")]


def test_the_smallest_volume_that_will_do_is_taken() -> None:
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
    phases = {name: each.status.phase for name, each in world.api.of("PersistentVolume").items()}
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
    (key,) = world.api.of("Pod")
    assert pods(world) == [("web", "pool-0", "Running")]
    assert list(world.api.of("PersistentVolumeClaim")) == [f"{key}-scratch"]
    scale(world, 0)
    run(world, 10)
    assert list(world.api.of("PersistentVolumeClaim")) == []


# -- the API server ----------------------------------------------------------------------------------------------------


def test_versions_conflicts_and_what_is_not_there() -> None:
    world = world_of(deployment(), options=QUICK)
    run(world, 5)
    assert refused(world, Get(kind="Node", name="none")).is_not_found
    held = world.api.find("Node", "pool-0")
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    version = done(
        world, Patch(kind="Node", name="pool-0", patch=taint, resource_version=held.metadata.resource_version)
    )
    assert version == world.api.find("Node", "pool-0").metadata.resource_version != held.metadata.resource_version
    stale = Patch(kind="Node", name="pool-0", patch=taint, resource_version=held.metadata.resource_version)
    assert refused(world, stale).is_conflict
    read = done(world, GetScale(namespace="shop", resource="deployments.apps", name="web"))
    scale(world, 2)
    assert named(world, "web").metadata.generation == 2
    put = PutScale(namespace="shop", resource="deployments.apps", scale=read, replicas=3)
    assert refused(world, put).is_conflict
    made = ConfigMap(metadata=ObjectMeta(name="c", namespace="kube-system"), data={"a": "1"})
    done(world, Create(made))
    assert refused(world, Create(made)).is_already_exists
    done(world, Patch(kind="ConfigMap", namespace="kube-system", name="c", patch={"data": {"a": None, "b": "2"}}))
    assert done(world, Get(kind="ConfigMap", namespace="kube-system", name="c")).data == {"b": "2"}
    done(world, Delete(kind="ConfigMap", namespace="kube-system", name="c"))
    assert refused(world, Delete(kind="ConfigMap", namespace="kube-system", name="c")).is_not_found


def test_a_status_is_written_at_its_version_only_and_changes_nothing_else() -> None:
    world = world_of(deployment(), options=QUICK)
    run(world, 5)
    held = named(world, "web")
    other = replace(held, spec=replace(held.spec, replicas=9), status=replace(held.status, replicas=7))
    done(world, WriteStatus(other))
    assert (named(world, "web").spec.replicas, named(world, "web").metadata.generation) == (1, 1)
    assert refused(world, WriteStatus(other)).is_conflict


def test_what_a_driver_watches() -> None:
    world = world_of(deployment(replicas=5), options=WorldOptions(watch_lag=3 * SECOND))
    stores: TellingStores = world.stores([
        Watch(kind="Pod", api_version="v1", field_selector="spec.nodeName=,status.phase!=Failed", typed=True),
        Watch(kind="Node", api_version="v1"),
    ])  # fmt: skip
    told: list[Change] = []
    stop = stores.subscribe(lambda change: told.append(change) if change is not None else None)
    run(world, 2.5)
    assert (told, stores.snapshot().nodes) == ([], ())
    run(world, 1)
    assert stores.snapshot().nodes == ("pool-0",)
    assert Counter((each.old is None, each.new is None) for each in told) == {
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
        found, fresh = world.view.snapshot(), Cluster(texts="pending")
        for kind in ("Node", "Pod"):
            for item in world.api.of(kind).values():
                fresh.apply(item)
        wanted = fresh.snapshot()
        assert (found.pods, found.pending, found.counts) == (wanted.pods, wanted.pending, wanted.counts)
        assert {name: list(used) for name, used in found.used.items()} == {
            name: list(used) for name, used in wanted.used.items()
        }
        of = [each.metadata.uid for each in world.view.cluster.pods()]
        assert of == [each.metadata.uid for each in fresh.pods()]
        for name in ("db-0", "db-1"):
            if world.api.find("Pod", f"shop/{name}") is not None:
                done(world, Delete(kind="Pod", namespace="shop", name=name, grace_period_seconds=0))
        scale(world, 6 if named(world, "web").spec.replicas == 2 else 2)


def test_refusals_and_delays_are_the_tests_to_choose() -> None:
    world = world_of(options=QUICK)
    world.perform.fault = lambda action, now: ApiError("no") if isinstance(action, IncreaseSize) else 7
    assert refused(world, IncreaseSize(group="pool", delta=1)).message == "no"
    assert world.perform(Refresh(), world.time.now).at == world.time.now + 7
    assert world.cloud.refresh()[0].target_size == 1


# -- disruption --------------------------------------------------------------------------------------------------------


def budget(**spec: Any) -> PodDisruptionBudget:
    data = {"metadata": {"name": "b", "namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    return from_dict({**data, "spec": {**data["spec"], **spec}}, PodDisruptionBudget)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "60%"}, 1),
        ({"maxUnavailable": 2}, 2),
        ({"maxUnavailable": "30%"}, 2),
        ({"minAvailable": 5}, 0),
    ],
)
def test_a_budget_counts_what_may_go(spec: dict[str, Any], allowed: int) -> None:
    world = world_of(budget(**spec), deployment(replicas=4), options=QUICK)
    run(world, 5)
    held = world.api.get("PodDisruptionBudget", "shop", "b")
    assert held.status.disruptions_allowed == allowed
    names = [pod.name for pod in world.api.of("Pod").values()]
    for name in names[:allowed]:
        done(world, Evict(namespace="shop", name=name))
    error = refused(world, Evict(namespace="shop", name=names[allowed]))
    assert (error.code, error.reason, error.causes) == (429, "TooManyRequests", ("DisruptionBudget",))
    run(world, 30)  # their places are taken
    assert world.api.get("PodDisruptionBudget", "shop", "b").status.disruptions_allowed == allowed


def test_a_pod_that_is_not_running_may_always_be_evicted() -> None:
    world = world_of(budget(minAvailable=9), deployment(replicas=5), options=QUICK)
    run(world, 5)
    waiting = next(pod.name for pod in world.api.of("Pod").values() if not pod.spec.node_name)
    done(world, Evict(namespace="shop", name=waiting))


# -- machines ----------------------------------------------------------------------------------------------------------


def test_machines_boot_become_ready_and_go_with_their_pods() -> None:
    times = GroupTimes(boot=Spread.fixed(40 * SECOND), ready=Spread.fixed(20 * SECOND))
    world = world_of(deployment(replicas=4), size=0, times=times, options=QUICK)
    assert isinstance(world.cloud, NodeGroups)
    done(world, IncreaseSize(group="pool", delta=1))
    run(world, 30)
    told = done(world, Refresh())[0]
    assert (told.target_size, told.nodes, told.instances) == (1, [], ["sim:///pool-0"])
    assert told.instance_status["sim:///pool-0"].state == "creating"
    run(world, 15)
    assert [taint.key for taint in world.api.find("Node", "pool-0").spec.taints] == ["node.kubernetes.io/not-ready"]
    assert {node for _, node, _ in pods(world)} == {""}
    run(world, 20)
    assert pods(world) == [("web", "pool-0", "Running")] * 4
    done(world, DeleteNodes(group="pool", nodes=("pool-0",)))
    run(world, 31)
    assert (list(world.api.of("Node")), {node for _, node, _ in pods(world)}) == ([], {""})
    assert world.cloud.paid(world.time.now) == {"pool": (30 + 15 + 20 + 30) * SECOND}


def test_the_cloud_begins_once_a_request_has_reached_it() -> None:
    def machine(now: int) -> Steps[None]:
        yield from Progress(now).act(IncreaseSize(group="pool", delta=1))

    world = world_of(options=WorldOptions(latency=20 * SECOND))
    world.time.start(machine)
    run(world, 19)
    assert world.cloud.refresh()[0].target_size == 1
    run(world, 2)
    assert world.cloud.refresh()[0].target_size == 2
    run(world, 58)
    assert list(world.api.of("Node")) == ["pool-0"]
    run(world, 2)
    assert list(world.api.of("Node")) == ["pool-0", "pool-1"]


def test_limits_stock_failures_and_losses() -> None:
    times = GroupTimes(stock=2, failures=0)
    world = world_of(times=times, options=QUICK)
    assert "max: 10" in refused(world, IncreaseSize(group="pool", delta=10)).message
    assert refused(world, IncreaseSize(group="pool", delta=2, atomic=True)).message.startswith("2 machines")
    done(world, IncreaseSize(group="pool", delta=2))
    errors = [each.error for each in done(world, Refresh())[0].instance_status.values() if each.error is not None]
    assert [error.class_ for error in errors] == ["OutOfResource"]
    run(world, 70)
    assert list(world.api.of("Node")) == ["pool-0", "pool-1"]
    world.cloud.lose("pool-0")
    run(world, 70)
    assert list(world.api.of("Node")) == ["pool-1", "pool-3"]  # what could not be had is no machine
    done(world, DeleteNodes(group="pool", nodes=("sim:///pool-2", "pool-3")))
    run(world, 31)
    done(world, IncreaseSize(group="pool", delta=1))
    run(world, 61)
    assert list(world.api.of("Node")) == ["pool-1", "pool-4"]
    assert refused(world, DecreaseTargetSize(group="pool", delta=-1)).message == "attempt to delete existing nodes"
    failing = world_of(times=GroupTimes(failures=1_000_000), options=QUICK)
    failing.cloud.increase_size("pool", 1)
    run(failing, 3600)
    assert list(failing.api.of("Node")) == ["pool-0"]


def test_machines_that_live_for_a_while_are_replaced() -> None:
    world = world_of(size=3, times=GroupTimes(lifetime=Spread.fixed(600 * SECOND)))
    run(world, 599)
    assert list(world.api.of("Node")) == ["pool-0", "pool-1", "pool-2"]
    run(world, 62)
    assert list(world.api.of("Node")) == ["pool-3", "pool-4", "pool-5"]


def test_groups_are_made_and_deleted() -> None:
    world = world_of(options=QUICK)
    world.cloud.add(replace(pool("other"), exists=False), GroupTimes(creation=30 * SECOND))
    made = world.cloud.create_group("other", asynchronous=True)
    assert (made[0].exists, made[0].upcoming) == (True, True)
    run(world, 31)
    assert not world.cloud.refresh()[1].upcoming
    world.cloud.delete_group("other")
    assert not world.cloud.refresh()[1].exists


# -- load and metrics --------------------------------------------------------------------------------------------------


def test_signals() -> None:
    signal = Signal([0, 10 * SECOND, 20 * SECOND], [100, 200, 0], repeat=40 * SECOND)
    assert [signal.at(second * SECOND) for second in (-5, 0, 9, 10, 25, 40, 55)] == [100, 100, 100, 200, 0, 100, 200]
    assert signal.mean(5 * SECOND, 15 * SECOND) == 150
    assert signal.mean(0, 40 * SECOND) == signal.mean(400 * SECOND, 480 * SECOND) == 75
    assert [signal.next_change(second * SECOND) for second in (0, 10, 20, 45)] == [
        10 * SECOND, 20 * SECOND, 40 * SECOND, 50 * SECOND
    ]  # fmt: skip
    assert Signal.constant(3).next_change(0) is None
    with pytest.raises(ValueError, match="rising times"):
        Signal([1, 1], [0, 0])


def test_usage_is_shared_by_ready_pods_scraped_and_told_late() -> None:
    item = deployment(replicas=4)
    world = world_of(
        item, options=WorldOptions(pipeline=Pipeline(scrape=15 * SECOND, window=15 * SECOND, lag=20 * SECOND))
    )
    world.load.usage["Deployment", "shop", "web"] = {
        "cpu": Usage(signal=Signal([0, T0 + 45 * SECOND], [2000, 4000])),
        "memory": Usage(signal=Signal.constant(100 * 2**20 * 1000), per_pod=True),
    }
    asked = GetMetric(api="resource", namespace="shop", selector="app=web")
    run(world, 10)
    assert world.metrics.get(asked).items == []  # type: ignore[union-attr]  # a list
    run(world, 54)
    found = world.metrics.get(asked).items  # type: ignore[union-attr]  # a list
    assert [each.containers[0].usage["cpu"].milli_value() for each in found] == [500] * 4
    assert (found[0].timestamp, found[0].window) == ("2027-01-15T08:00:30Z", "15s")
    assert found[0].containers[0].usage["memory"] == Quantity("100Mi")
    run(world, 16)
    assert world.metrics.get(asked).items[0].containers[0].usage["cpu"].milli_value() == 1000  # type: ignore[union-attr]
    run(world, 15)
    columns = world.metrics.get(GetMetric(api="resource", namespace="shop", columns=True))
    assert sorted(columns.keys) == sorted(f"shop/{pod.name}" for pod in world.api.of("Pod").values())  # type: ignore[union-attr]


@pytest.mark.parametrize("columns", [False, True])
def test_pods_that_are_not_ready_have_no_share(columns: bool) -> None:
    times = PodTimes(readiness=Spread.fixed(40 * SECOND))
    world = world_of(deployment(replicas=2), options=WorldOptions(pods=times))
    world.load.usage["Deployment", "shop", "web"] = {"memory": Usage(signal=Signal.constant(10 * 2**30 * 1000))}
    run(world, 90)
    scale(world, 4)
    run(world, 30)
    assert len([pod for pod in world.api.of("Pod").values() if pod.status.phase == "Running"]) == 4
    found: Any = world.metrics.get(GetMetric(api="resource", namespace="shop", columns=columns))
    if columns:
        told = sorted(found.samples("memory", np.arange(len(found.keys)))[1].tolist())
    else:
        told = sorted(each.containers[0].usage["memory"].milli_value() for each in found.items)
    assert told == [0, 0, 5 * 2**30 * 1000, 5 * 2**30 * 1000]


def test_a_pod_that_wants_to_be_with_another_waits_for_it() -> None:
    wanted = pod_template("first", cpu="500m")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "second"}}}
    wanted["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    first = deployment("first", spec={"template": wanted})
    second = deployment("second", spec={"template": pod_template("second", cpu="500m")})
    world = world_of(first, second)
    run(world, 10)
    assert [phase for _, _, phase in pods(world)] == ["Running", "Running"]


def test_columns_tell_what_objects_tell() -> None:
    template = pod_template("db", cpu="100m")
    template["spec"]["containers"].append({"name": "side", "image": "x"})
    items = [
        deployment(replicas=3, cpu="500m"),
        from_dict(workload("StatefulSet", "db", 2, spec={"template": template}), StatefulSet),
    ]
    times = PodTimes(start=Spread(((0, SECOND), (1_000_000, 50 * SECOND))))
    world = world_of(*items, options=WorldOptions(pods=times))
    for kind, name in (("Deployment", "web"), ("StatefulSet", "db")):
        world.load.usage[kind, "shop", name] = {
            "cpu": Usage(signal=Signal([0, T0 + 40 * SECOND], [1001, 1702])),
            "memory": Usage(signal=Signal.constant(123_456), per_pod=True),
        }
    for _ in range(12):
        run(world, 7)
        for selector in ("", "app=web", "app=none"):
            asked = GetMetric(api="resource", namespace="shop", selector=selector)
            told = PodUsage.of(world.metrics.get(asked).items)  # type: ignore[union-attr]  # a list
            columns = world.metrics.get(replace(asked, columns=True))
            assert rows(columns) == rows(told)


def rows(usage: Any) -> list[Any]:
    """Key, labels, time, window and containers of each pod."""
    found = []
    begin = 0
    amounts = {name: list(values) for name, values, _ in usage.columns()}
    for i, key in enumerate(usage.keys):
        labels = usage.label_sets[usage.labels[i]] if usage.labels[i] >= 0 else None
        containers = [
            (usage.containers[usage.container[k]], {name: int(values[k]) for name, values in sorted(amounts.items())})
            for k in range(begin, usage.ends[i])
        ]
        begin = usage.ends[i]
        found.append((key, labels, int(usage.time[i]), int(usage.window[i]), containers))
    return sorted(found, key=lambda each: each[0])


def test_a_queue_fills_while_there_are_too_few_and_tells_who_is_late() -> None:
    world = world_of(deployment(replicas=1))
    key = "Deployment", "shop", "web"
    queue = Queue(arrivals=Signal.constant(3000), capacity=1000, used={"cpu": 500}, patience=5 * SECOND)
    world.load.queues[key] = queue
    world.load.begin()
    world.metrics.external["shop", "rate"] = [ExternalMetric(queue=key)]
    world.metrics.external["shop", "waiting"] = [ExternalMetric(queue=key, tells="waiting")]
    run(world, 61)
    assert queue.arrived == 3000 * 61
    assert queue.done == 1000 * 60
    assert queue.waiting == queue.arrived - queue.done
    rate, waiting = (
        world.metrics.get(GetMetric(api="external", namespace="shop", metric=name)) for name in ("rate", "waiting")
    )
    assert rate.items[0].value == Quantity("3")  # type: ignore[union-attr]  # a list
    assert waiting.items[0].value.milli_value() > 100_000  # type: ignore[union-attr]  # a list
    assert 0 < queue.late < queue.arrived
    missing = world.metrics.get(GetMetric(api="external", namespace="shop", metric="none"))
    assert isinstance(missing, ApiError)
    assert missing.is_not_found


def test_usage_of_a_queue_is_that_of_the_whole_window() -> None:
    world = world_of(deployment(replicas=1), options=WorldOptions(pipeline=Pipeline(window=10 * SECOND)))
    steps = Signal([T0 + second * SECOND for second in (0, 20, 25)], [0, 1000, 0])
    world.load.queues["Deployment", "shop", "web"] = Queue(arrivals=steps, capacity=1000, used={"cpu": 600})
    world.load.begin()
    run(world, 31)  # scraped at 30 s: idle from 25 s on, and busy for the five seconds before
    found: Any = world.metrics.get(GetMetric(api="resource", namespace="shop"))
    assert [each.containers[0].usage["cpu"].milli_value() for each in found.items] == [300]
    assert len(world.load.queues["Deployment", "shop", "web"].past) <= 12


def test_selectors_of_metrics() -> None:
    world = world_of(deployment(replicas=1))
    world.load.usage["Deployment", "shop", "web"] = {"qps": Usage(signal=Signal.constant(1000))}
    world.metrics.external["shop", "depth"] = [
        ExternalMetric(signal=Signal.constant(value * 1000), labels={"queue": name})
        for name, value in (("mail", 3), ("jobs", 5))
    ]
    run(world, 31)

    def asked(selector: str) -> list[int]:
        question = GetMetric(api="external", namespace="shop", metric="depth", metric_selector=selector)
        found: Any = world.metrics.get(question)
        return [each.value.value() for each in found.items]

    assert [asked(text) for text in ("", "queue=jobs", "queue in (mail)", "queue=none")] == [[3, 5], [5], [3], []]
    of_pods = GetMetric(api="custom", namespace="shop", kind="Pod", metric="qps", selector="app=web")
    for selector, count in (("", 1), ("verb=get", 0)):
        found: Any = world.metrics.get(replace(of_pods, metric_selector=selector))
        assert len(found.items) == count


# -- resizing ----------------------------------------------------------------------------------------------------------


def resized(pod: Pod, cpu: str) -> Resize:
    path = "/spec/containers/0/resources/requests/cpu"
    return Resize(namespace="shop", name=pod.name, patch=(PatchOperation(op="replace", path=path, value=cpu),))


def test_a_pod_is_resized_where_there_is_room() -> None:
    world = world_of(deployment(replicas=2), options=QUICK)
    run(world, 5)
    pod = next(iter(world.api.of("Pod").values()))
    done(world, resized(pod, "2"))
    now = world.api.same(pod)
    assert now.status.container_statuses[0].allocated_resources["cpu"] == Quantity("2")
    error = refused(world, resized(pod, "5"))
    assert (error.reason, error.causes) == ("Forbidden", ("NodeCapacity",))
    done(world, resized(pod, "3500m"))
    now = world.api.same(pod)
    condition = find(now.status.conditions, "PodResizePending")
    assert condition is not None
    assert condition.reason == "Deferred"
    assert now.status.container_statuses[0].allocated_resources["cpu"] == Quantity("2")


def test_a_resize_that_was_put_off_is_done_once_there_is_room() -> None:
    world = world_of(deployment("web", 2), deployment("other", 1), options=QUICK)
    run(world, 5)
    first, second = (pod for pod in world.api.of("Pod").values() if pod.name.startswith("web"))
    for pod in (first, second):
        done(world, resized(pod, "2"))

    def cpu(pod: Pod) -> tuple[str, bool]:
        now = world.api.same(pod)
        assert now is not None
        taken = (now.status.container_statuses[0].allocated_resources or {})["cpu"]
        return str(taken), find(now.status.conditions, "PodResizePending") is not None

    run(world, 60)
    assert [cpu(first), cpu(second)] == [("2", False), ("1", True)]
    scale(world, 0, "other")
    run(world, 5)
    assert [cpu(first), cpu(second)] == [("2", False), ("2", False)]


def test_a_pod_of_a_dump_keeps_what_it_had_when_its_resize_is_put_off() -> None:
    world = world_of(deployment("web", 2), deployment("other", 1), options=QUICK)
    run(world, 5)
    first, second = (pod for pod in world.api.of("Pod").values() if pod.name.startswith("web"))
    for pod in (first, second):  # kubelets of before 1.33 do not tell what containers take
        now = world.api.same(pod)
        statuses = [replace(each, allocated_resources=None) for each in now.status.container_statuses]
        world.api.put(replace(now, status=replace(now.status, container_statuses=statuses)))
    done(world, resized(first, "3"))
    assert world.api.same(first).status.container_statuses[0].allocated_resources["cpu"] == Quantity("1")
    done(world, resized(second, "3"))
    for pod in (first, second):
        now = world.api.same(pod)
        assert find(now.status.conditions, "PodResizePending") is not None
    scale(world, 0, "other")
    run(world, 5)
    taken = [world.api.same(pod).status.container_statuses[0].allocated_resources["cpu"] for pod in (first, second)]
    assert taken == [Quantity("3"), Quantity("1")]


# -- chance ------------------------------------------------------------------------------------------------------------


def test_draws_depend_on_the_entity_alone() -> None:
    spread = Spread(((0, 10), (500_000, 20), (1_000_000, 120)))
    first, again, other = Draws(1), Draws(1), Draws(2)
    drawn = [first.duration(spread, "boot", f"m{i}") for i in range(400)]
    assert drawn[::-1] == [again.duration(spread, "boot", f"m{i}") for i in reversed(range(400))]
    assert drawn != [other.duration(spread, "boot", f"m{i}") for i in range(400)]
    assert 140 < sum(each < 20 for each in drawn) < 260
    assert min(drawn) >= 10
    assert max(drawn) < 120
    assert spread.at(0) == 10
    assert spread.at(2**63) == 20
    assert spread.at(2**64 - 1) == 119
    with pytest.raises(ValueError, match="from 0 to 1"):
        Spread(((0, 1),))


def test_the_same_seed_is_the_same_world() -> None:
    def story(seed: int) -> list[Any]:
        times = GroupTimes(boot=Spread(((0, 10 * SECOND), (1_000_000, 90 * SECOND))), failures=200_000)
        options = WorldOptions(seed=seed, pods=PodTimes(start=Spread(((0, 0), (1_000_000, 20 * SECOND)))))
        world = world_of(deployment(replicas=30), times=times, options=options)
        told: list[Any] = []
        world.api.listen_all(lambda kind, old, new: told.append((world.time.now, kind, (new or old).key)))  # type: ignore[union-attr]
        world.cloud.increase_size("pool", 8)
        run(world, 200)
        return told

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_nodes_of_no_group_and_lists() -> None:
    world = world_of(node("bare"), deployment(replicas=5), options=QUICK)
    run(world, 5)
    assert {each for _, each, _ in pods(world)} == {"pool-0", "bare"}
    found = done(world, List(kind="Pod", namespace="shop", selector="app=web", watched=False))
    assert len(found) == 5
    assert len(done(world, List(kind="Pod", nodes=("bare", "pool-0")))) == 5
