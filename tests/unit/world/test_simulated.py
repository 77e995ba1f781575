"""The simulated world without drivers: workloads, scheduler, kubelet, budgets, machines."""

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
    DecreaseTargetSize,
    Delete,
    DeleteNodes,
    Evict,
    Get,
    GetScale,
    IncreaseSize,
    List,
    Patch,
    PatchOperation,
    Progress,
    PutScale,
    Refresh,
    Steps,
    WriteStatus,
)
from kscale.objects.apps import DaemonSet, StatefulSet
from kscale.objects.batch import Job
from kscale.objects.conditions import find, pod_ready
from kscale.objects.core import ConfigMap, Pod
from kscale.objects.decode import from_dict
from kscale.objects.meta import ObjectMeta
from kscale.objects.policy import PodDisruptionBudget
from kscale.objects.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.cluster import Cluster
from kscale.world.protocols import Change, NodeGroups, TellingStores, Watch
from kscale.world.simulated.draws import Draws, Spread
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.machines import GroupTimes
from kscale.world.simulated.world import WorldOptions
from unit.world.simulated_cases import (
    QUICK,
    deployment,
    done,
    named,
    node,
    pod_template,
    pods,
    pool,
    refused,
    run,
    scale,
    workload,
    world_of,
)

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


def test_a_nominated_pod_takes_room_elsewhere_before_its_victims_are_gone() -> None:
    slow = PodTimes(termination=Spread.fixed(25 * SECOND))
    world = world_of(options=WorldOptions(pods=slow, preemption=True))
    world.add(prioritised("old", 0, "3"))
    run(world, 5)
    world.add(prioritised("vip", 100, "2"))
    world.add(prioritised("small", 0, "1"))
    run(world, 5)
    assert world.api.get("Pod", "shop", "vip").status.nominated_node_name == "pool-0"
    world.add(node("free"))
    run(world, 1)
    vip = world.api.get("Pod", "shop", "vip")
    assert (vip.spec.node_name, vip.status.nominated_node_name) == ("free", "")
    assert world.api.get("Pod", "shop", "old").metadata.deletion_timestamp is not None


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
        world.api.listen_all(lambda kind, changes: told.extend((world.time.now, kind, key) for key, _, _ in changes))
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


@pytest.mark.parametrize("kind", ["VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint"])
@pytest.mark.parametrize("op", ["add", "replace"])
def test_a_status_that_is_patched_in_whole(kind: str, op: str) -> None:
    world = world_of()
    made = {"apiVersion": "autoscaling.k8s.io/v1", "kind": kind, "metadata": {"name": "v", "namespace": "shop"}}
    world.add(from_dict({**made, "spec": {}, "status": _STATUSES[kind][0]}, KINDS[kind]))
    before = world.api.get(kind, "shop", "v")
    operation = PatchOperation(op, "/status", _STATUSES[kind][1])
    of = "status" if kind == "VerticalPodAutoscaler" else ""  # checkpoints have no sub-resource
    done(world, Patch(kind=kind, namespace="shop", name="v", subresource=of, type="json", patch=(operation,)))
    after = world.api.get(kind, "shop", "v")
    assert after.status == from_dict({**made, "status": _STATUSES[kind][1]}, KINDS[kind]).status
    assert after.status != before.status
    assert int(after.metadata.resource_version) == int(before.metadata.resource_version) + 1
    assert replace(after.metadata, resource_version=before.metadata.resource_version) == before.metadata


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
    made: dict[str, Any] = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    made |= {"metadata": {"name": "v", "namespace": "shop"}, "status": {"conditions": [_CONDITION]}}
    world.add(from_dict(made, VerticalPodAutoscaler))
    asked = {"kind": "VerticalPodAutoscaler", "namespace": "shop", "name": "v", "type": "json"}
    done(world, Patch(**asked, patch=(PatchOperation("replace", "/status", {}),)))
    assert world.api.get("VerticalPodAutoscaler", "shop", "v").status.conditions


def test_pods_that_change_together_are_told_together() -> None:
    world = world_of(node("n"), deployment("web", 3), options=QUICK)
    told: list[list[str]] = []
    world.api.listen("Pod", lambda changes: told.append([key for key, _, _ in changes]))
    run(world, 5)
    keys = list(world.api.of("Pod"))
    assert len(keys) == 3
    assert told[0] == keys
    assert all(each == keys for each in told)  # made, bound, started


def test_applying_and_deleting() -> None:
    world = world_of(node("n"), deployment("web", 1), options=QUICK)
    run(world, 5)
    held = world.api.get("Deployment", "shop", "web")
    assert held.status.ready_replicas == 1
    made = replace(deployment("web", 2), metadata=ObjectMeta(name="web", namespace="shop", labels={"a": "b"}))
    after = world.apply(made)
    assert (after.metadata.uid, after.metadata.labels, after.status) == (held.metadata.uid, {"a": "b"}, held.status)
    assert after.metadata.generation == 2
    run(world, 5)
    assert len(pods(world)) == 2
    pod = next(iter(world.api.of("Pod").values()))
    world.apply(replace(pod, metadata=replace(pod.metadata, labels={}), spec=replace(pod.spec, node_name="")))
    assert world.api.find("Pod", pod.key).spec.node_name == "n"
    for _ in range(2):  # what is not there is not missed
        world.delete("Deployment", "shop/web")
    run(world, 60)
    assert pods(world) == []
    world.apply(replace(deployment("new", 1), metadata=ObjectMeta(name="new")))
    assert world.api.find("Deployment", "default/new") is not None
