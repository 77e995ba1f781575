"""The drivers in the simulated world: they cannot tell it from a live one."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from kscale.ca.options import AutoscalingOptions
from kscale.drivers.cluster_autoscaler import AutoscalerProcess, ClusterAutoscaler, CurrentNodes
from kscale.drivers.driver import Driver, VirtualDrive
from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler
from kscale.drivers.process import HealthCheck, HealthCheckOptions
from kscale.drivers.vpa_recommender import VpaRecommender
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.effects import (
    SECOND,
    ZERO_TIME,
    Action,
    DeleteNodes,
    Evict,
    IncreaseSize,
    Moment,
    Outcome,
    Patch,
    PutScale,
    Resize,
)
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.vpa.options import RecommenderOptions, UpdaterOptions
from kscale.world.simulated.load import Signal, Usage
from kscale.world.simulated.world import SimulatedWorld
from unit.drivers.vpa_world import autoscaler
from unit.world.simulated_cases import T0, deployment, run, world_of

OPTIONS = AutoscalingOptions(
    scale_down_unneeded_time=timedelta(minutes=1), scale_down_delay_after_add=timedelta(seconds=30)
)
RECORDED_ACTIONS = IncreaseSize | DeleteNodes | Evict | PutScale | Resize


class Drive:
    """A driver in a world; ``asked``: what it asked for that changes something, and was not refused."""

    def __init__(self, world: SimulatedWorld, driver: Driver[Any], rank: int = 40) -> None:
        self.world = world
        self.actions: list[tuple[float, Any]] = []
        self.drive = VirtualDrive(driver, world.stores(driver.watches), world.time, self.perform, rank=rank)

    def perform(self, action: Action, now: Moment) -> Outcome:
        outcome = self.world.perform(action, now)
        if isinstance(action, RECORDED_ACTIONS) and outcome.error is None:
            self.actions.append(((now - T0) / SECOND, action))
        return outcome


def cluster_autoscaler(world: SimulatedWorld, *, repeats: bool = False) -> ClusterAutoscaler:
    health = HealthCheck(HealthCheckOptions(), world.time.now)
    return ClusterAutoscaler(OPTIONS, AutoscalerProcess(), world.clock, health, CurrentNodes(), repeats=repeats)


def scale(world: SimulatedWorld, replicas: int) -> None:
    deployment = world.api.get("Deployment", "shop", "web")
    world.api.put(replace(deployment, spec=replace(deployment.spec, replicas=replicas)))


def nodes(world: SimulatedWorld) -> list[str]:
    return list(world.api.get_all("Node"))


def test_the_cluster_autoscaler_grows_and_shrinks_its_group() -> None:
    world = world_of(deployment(replicas=2, cpu="3"))
    drive = Drive(world, cluster_autoscaler(world))
    run(world, 90)
    assert (nodes(world), [type(each) for _, each in drive.actions]) == (["pool-0", "pool-1"], [IncreaseSize])
    scale(world, 1)
    run(world, 240)
    assert [type(each) for _, each in drive.actions] == [IncreaseSize, DeleteNodes]
    assert len(nodes(world)) == 1
    assert "autoscalerStatus: Running" in world.api.get("ConfigMap", "kube-system", "cluster-autoscaler-status").data[
        "status"
    ]  # fmt: skip


def test_killed_driver_stops_and_a_new_one_continues() -> None:
    world = world_of(deployment(replicas=2, cpu="1"), size=2)
    first = Drive(world, cluster_autoscaler(world))
    tainted: list[float] = []
    while not tainted and world.time.now < T0 + 300 * SECOND:
        world.time.step()
        tainted += [
            (world.time.now - T0) / SECOND
            for node in world.api.get_all("Node").values()
            if any(taint.key.startswith("ToBeDeleted") for taint in node.spec.taints)
        ]
    first.drive.stop()
    known = len(first.actions)
    run(world, 60)
    assert (len(first.actions), len(nodes(world))) == (known, 2)
    second = Drive(world, cluster_autoscaler(world))
    run(world, 12)
    keys = {taint.key for node in world.api.get_all("Node").values() for taint in node.spec.taints}
    assert "ToBeDeletedByClusterAutoscaler" not in keys
    run(world, 300)
    assert [type(each) for _, each in second.actions if isinstance(each, DeleteNodes)] == [DeleteNodes]
    assert len(nodes(world)) == 1


def hpa(most: int = 10, **spec: Any) -> HorizontalPodAutoscaler:
    target = {"type": "Utilization", "averageUtilization": 50}
    return from_dict(
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": most,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
                **spec,
            },
        },
        HorizontalPodAutoscaler,
    )


def test_horizontal_follows_the_load_and_the_cluster_autoscaler_the_pods() -> None:
    world = world_of(deployment(replicas=2), hpa())
    signal = Signal([T0, T0 + 60 * SECOND, T0 + 300 * SECOND], [800, 4000, 400])
    world.load.usage["Deployment", "shop", "web"] = {"cpu": Usage(signal=signal)}
    window = timedelta(seconds=60)
    options = HPAOptions(horizontal_pod_autoscaler_downscale_stabilization=window)
    Drive(world, HorizontalAutoscaler(options), rank=40)
    machines = Drive(world, cluster_autoscaler(world), rank=41)
    run(world, 55)
    assert world.api.get("Deployment", "shop", "web").spec.replicas == 2
    run(world, 240)
    assert world.api.get("Deployment", "shop", "web").status.ready_replicas == 8
    assert len(nodes(world)) == 2
    run(world, 400)
    assert world.api.get("Deployment", "shop", "web").spec.replicas == 1
    assert len(nodes(world)) == 1
    conditions = world.api.get("HorizontalPodAutoscaler", "shop", "web").status.conditions
    assert {each.type: each.status for each in conditions}["ScalingActive"] == "True"
    assert [type(each) for _, each in machines.actions if not isinstance(each, Evict)] == [IncreaseSize, DeleteNodes]


def test_horizontal_keeps_a_round_only_to_repeat_it() -> None:
    world = world_of(deployment(replicas=2), hpa())
    world.load.usage["Deployment", "shop", "web"] = {"cpu": Usage(signal=Signal([T0], [800]))}
    live, repeating = HorizontalAutoscaler(), HorizontalAutoscaler(repeats=True)
    Drive(world, live, rank=40)
    Drive(world, repeating, rank=41)
    run(world, 100)
    assert repeating.repeats_until() > world.time.now
    assert live.repeats_until() == ZERO_TIME


@pytest.mark.parametrize("repeats", [False, True])
def test_the_cluster_autoscaler_keeps_a_round_only_to_repeat_it(repeats: bool) -> None:
    world = world_of(deployment(replicas=2))
    driver = cluster_autoscaler(world, repeats=repeats)
    Drive(world, driver)
    run(world, 100)
    assert (driver.repeats_until() > world.time.now) is repeats


def test_no_loop_runs_while_pods_come_and_go_on_a_utilized_node() -> None:
    world = world_of(deployment(replicas=2, cpu="1200m"))
    driver = cluster_autoscaler(world, repeats=True)
    stores = world.stores(driver.watches, driver.input_sources)
    inputs = partial(world.inputs, stores, driver.input_sources)
    drive = VirtualDrive(driver, stores, world.time, world.perform, rank=40, inputs=inputs)
    runs = []
    for replicas, seconds in ((2, 4000), (3, 100), (2, 100), (1, 200), (5, 200)):
        scale(world, replicas)
        run(world, seconds)
        assert driver.next_due() is not None
        runs.append(drive.rounds - drive.skipped)
    assert runs[0] == runs[1] == runs[2] < runs[3] < runs[4]
    assert len(nodes(world)) == 2


def vpa(mode: str) -> VerticalPodAutoscaler:
    item = autoscaler("web", kind="Deployment", updatePolicy={"updateMode": mode, "minReplicas": 1})
    item["metadata"]["namespace"] = "shop"
    return from_dict(item, VerticalPodAutoscaler)


def test_the_vpa_recommends_and_resizes() -> None:
    world = world_of(deployment(replicas=2, cpu="100m", memory="200Mi"), vpa("InPlaceOrRecreate"))
    world.load.usage["Deployment", "shop", "web"] = {
        "cpu": Usage(signal=Signal.constant(700), per_pod=True),
        "memory": Usage(signal=Signal.constant(300 * 2**20 * 1000), per_pod=True),
    }
    Drive(world, VpaRecommender(RecommenderOptions()), rank=40)
    options = UpdaterOptions(use_admission_controller_status=False)
    updater = Drive(world, VpaUpdater(options), rank=41)
    run(world, 3700)
    autoscaler = world.api.get("VerticalPodAutoscaler", "shop", "web")
    target = autoscaler.status.recommendation.container_recommendations[0].target
    assert target["cpu"].milli_value() > 700
    assert Resize in {type(each) for _, each in updater.actions}
    requests = [
        each.spec.containers[0].resources.requests["cpu"].milli_value() for each in world.api.get_all("Pod").values()
    ]
    assert min(requests) > 700
    assert list(world.api.get_all("VerticalPodAutoscalerCheckpoint"))
    assert any(isinstance(each, Patch | Resize) for _, each in updater.actions)
