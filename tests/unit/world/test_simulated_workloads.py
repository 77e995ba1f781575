"""Workloads of the simulated world: which pods they make, and which they give up."""

from __future__ import annotations

from msgspec.structs import replace

from kscale.effects import (
    SECOND,
)
from kscale.objects.api.apps import DaemonSet, Job, StatefulSet
from kscale.objects.conditions import find, pod_ready
from kscale.objects.decode import from_dict
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution
from kscale.world.simulated.world import WorldOptions
from unit.world.simulated_cases import (
    deployment,
    named,
    pod_template,
    pods,
    run,
    scale,
    workload,
    world_of,
)


def test_deployment_creates_pods_and_reports_status() -> None:
    times = PodTimes(
        pull=DurationDistribution.fixed(2 * SECOND),
        start=DurationDistribution.fixed(SECOND),
        readiness=DurationDistribution.fixed(4 * SECOND),
    )
    world = world_of(deployment(replicas=3), options=WorldOptions(pods=times))
    run(world, 0)
    assert pods(world) == [("web", "pool-0", "Pending")] * 3
    run(world, 3)
    assert pods(world) == [("web", "pool-0", "Running")] * 3
    assert named(world, "web").status.ready_replicas == 0
    run(world, 4)
    status = named(world, "web").status
    assert (status.replicas, status.ready_replicas, status.observed_generation) == (3, 3, 1)
    assert all(pod_ready(pod) for pod in world.api.get_all("Pod").values())


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


def test_invalid_deletion_cost_is_ignored() -> None:
    template = pod_template("web", cpu="500m")
    template["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": "high"}
    world = world_of(deployment(replicas=3, spec={"template": template}))
    run(world, 10)
    scale(world, 1)
    run(world, 10)
    assert len(pods(world)) == 1


def test_stateful_set_scales_in_order_and_in_reverse() -> None:
    item = from_dict(workload("StatefulSet", "db", 3, cpu="500m"), StatefulSet)
    world = world_of(item)
    run(world, 0.5)
    assert [pod.name for pod in world.api.get_all("Pod").values()] == ["db-0"]
    run(world, 10)
    assert [pod.name for pod in world.api.get_all("Pod").values()] == ["db-0", "db-1", "db-2"]
    stateful_set = world.api.get("StatefulSet", "shop", "db")
    world.api.put(replace(stateful_set, spec=replace(stateful_set.spec, replicas=1)))
    run(world, 0.5)
    assert [pod.name for pod in world.api.get_all("Pod").values() if pod.metadata.deletion_timestamp is None] == [
        "db-0", "db-1"
    ]  # fmt: skip
    run(world, 10)
    assert [pod.name for pod in world.api.get_all("Pod").values()] == ["db-0"]


def test_daemon_set_runs_one_pod_on_each_existing_node() -> None:
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
    world = world_of(item, options=WorldOptions(pods=PodTimes(work=DurationDistribution.fixed(10 * SECOND))))
    run(world, 5)
    assert len(pods(world)) == 2
    run(world, 60)
    job = world.api.get("Job", "shop", "batch")
    assert (job.status.succeeded, job.status.active, pods(world)) == (5, 0, [])
    assert find(job.status.conditions, "Complete") is not None


def test_workers_of_a_job_without_completions_go_on_to_their_end() -> None:
    spec = {"parallelism": 3, "template": pod_template("batch", cpu="500m")}
    item = from_dict(workload("Job", "batch", None, spec=spec), Job)
    work = DurationDistribution(((0, 60 * SECOND), (1_000_000, 540 * SECOND)))
    world = world_of(item, options=WorldOptions(pods=PodTimes(work=work)))
    run(world, 9 * 60 + 30)
    job = world.api.get("Job", "shop", "batch")
    assert (job.status.succeeded, job.status.active, pods(world)) == (3, 0, [])
    assert find(job.status.conditions, "Complete") is not None
