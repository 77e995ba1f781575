"""The scheduler of the simulated world: where pods go, and whom they drive out."""

from __future__ import annotations

from collections import Counter

from kscale.effects import (
    SECOND,
    Delete,
)
from kscale.objects.api.core import Pod
from kscale.objects.conditions import find
from kscale.objects.decode import from_dict
from kscale.scheduling.scores.options import ScoreOptions
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution
from kscale.world.simulated.world import WorldOptions
from unit.world.simulated_cases import (
    deployment,
    done,
    node,
    pod_template,
    pods,
    run,
    world_of,
)


def test_pod_that_does_not_fit_waits_for_capacity() -> None:
    world = world_of(deployment(replicas=5))
    run(world, 10)
    assert Counter(pods(world)) == {("web", "pool-0", "Running"): 4, ("web", "", "Pending"): 1}
    waiting = next(pod for pod in world.api.get_all("Pod").values() if not pod.spec.node_name)
    condition = find(waiting.status.conditions, "PodScheduled")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    bound_pod = next(pod for pod in world.api.get_all("Pod").values() if pod.spec.node_name)
    done(world, Delete(kind="Pod", namespace="shop", name=bound_pod.name))
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
    created = pod_template(name, cpu=cpu)
    spec = {**created["spec"], "priority": priority}
    return from_dict({"metadata": {"name": name, "namespace": "shop", **created["metadata"]}, "spec": spec}, Pod)


def test_higher_priority_pod_preempts_others() -> None:
    slow = PodTimes(termination=DurationDistribution.fixed(10 * SECOND))
    world = world_of(options=WorldOptions(pods=slow, preemption=True))
    for name, priority, cpu in (("old", 0, "2"), ("young", 0, "1"), ("dear", 50, "1")):
        world.add(prioritised(name, priority, cpu))
        run(world, 5)
    world.add(prioritised("vip", 100, "2"))
    world.add(prioritised("late", 0, "1"))
    run(world, 1)
    ends = {pod.name: pod.metadata.deletion_timestamp is not None for pod in world.api.get_all("Pod").values()}
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
    slow = PodTimes(termination=DurationDistribution.fixed(25 * SECOND))
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


def test_no_pod_is_evicted_without_preemption() -> None:
    world = world_of()
    world.add(prioritised("old", 0, "3"))
    run(world, 5)
    world.add(prioritised("vip", 100, "2"))
    run(world, 5)
    assert sorted(pods(world)) == [("old", "pool-0", "Running"), ("vip", "", "")]
