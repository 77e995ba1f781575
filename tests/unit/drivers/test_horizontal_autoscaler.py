"""The horizontal pod autoscaler as a whole process, in virtual time, against the fake API server."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import random
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler, HorizontalView
from kscale.effects import LAST_TIME, SECOND, ZERO_TIME, GetMetric, GetScale, Outcome, run_virtually, to_text
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.api.metrics import ExternalMetricValue, ExternalMetricValueList
from kscale.objects.decode import from_dict
from kscale.snapshot.cluster import Cluster
from kscale.world.kubernetes.transport import Answer, Call, ConnectionFailedError
from kscale.world.protocols import Change
from unit.drivers.horizontal_world import HPAS, WIDGET, World, by_backlog, running, scaled_by_a_metric, scenario
from unit.world.fake_api_server import Late, status
from unit.world.test_informer import FakeApi, against_fake


def test_controller_scales_up_and_reports_it() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.deploy("idle", 500)
        world.autoscale("web")
        world.autoscale("idle")
        async with running(world) as around:
            assert (world.replicas("web"), world.replicas("idle")) == (4, 1)
            assert world.reasons("web") == {
                "AbleToScale": "SucceededRescale",
                "ScalingActive": "ValidMetricFound",
                "ScalingLimited": "DesiredWithinRange",
                "ScaledToZero": "NotScaledToZero",
            }
            assert world.reasons("idle")["AbleToScale"] == "ReadyForNewScale"
            result = world.server.get(HPAS, "web", "default")["status"]
            assert (result["currentReplicas"], result["desiredReplicas"], result["observedGeneration"]) == (2, 4, 1)
            assert result["currentMetrics"][0]["resource"]["current"] == {
                "averageUtilization": 90,
                "averageValue": "900m",
            }
            assert around.metrics.value("horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers") == 2
            labels = {"namespace": "default", "hpa_name": "web"}
            assert around.metrics.value("horizontal_pod_autoscaler_controller_desired_replicas", **labels) == 4
        assert world.events() == [("SuccessfulRescale", "web")]
        requests = [path for path in world.server.requested_paths("GET") if "metrics" in path]
        assert requests == ["/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"]  # one for both
        scales = [path for path in world.server.requested_paths() if path.endswith("/scale")]
        assert scales == ["/apis/apps/v1/namespaces/default/deployments/web/scale"] * 2  # GET only before the PUT

    scenario(case)


def test_controller_reconciles_each_sync_period() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500, 500)
        world.autoscale("web")
        async with running(world):
            assert world.replicas("web") == 2
            world.cpu |= {"web-0": 1000, "web-1": 1000}
            await asyncio.sleep(30)
            assert world.replicas("web") == 4
            requests = [path for path in world.server.requested_paths("GET") if "metrics" in path]
            await asyncio.sleep(150)
            again = [path for path in world.server.requested_paths("GET") if "metrics" in path]
            assert len(again) == len(requests) + 10

    scenario(case)


def test_a_round_that_writes_for_long_asks_once() -> None:
    """Forty statuses take more than a third of a period to write; metrics are asked for once a namespace and sync."""

    async def case(world: World) -> None:
        for i in range(40):
            world.deploy(f"w{i}", 500)
            world.autoscale(f"w{i}")
        async with running(world):
            await asyncio.sleep(12)
            assert all(world.reasons(f"w{i}") for i in range(40))
            requests = [path for path in world.server.requested_paths("GET") if "metrics" in path]
            assert len(requests) == 1

    async def main(api: FakeApi) -> None:
        await case(World(api))

    against_fake(main, delay=0.9)


def test_work_queue_metrics_are_exported() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500, 500)
        world.autoscale("web")
        async with running(world) as around:
            queue = {"name": "horizontalpodautoscaler"}
            before = around.metrics.value("workqueue_adds_total", **queue)
            retries = around.metrics.value("workqueue_retries_total", **queue)
            assert before >= 1
            await asyncio.sleep(45)
            assert around.metrics.value("workqueue_adds_total", **queue) == before + 3
            assert around.metrics.value("workqueue_retries_total", **queue) >= retries + 3
            assert around.metrics.value("workqueue_depth", **queue) == 0
            assert around.metrics.value("workqueue_unfinished_work_seconds", **queue) == 0

    scenario(case)


def test_a_new_generation_is_looked_at_at_once() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500, 500)
        world.autoscale("web")
        async with running(world):
            hpa = world.server.get(HPAS, "web", "default")
            hpa["spec"]["minReplicas"] = 5
            hpa["metadata"]["generation"] = 2
            world.server.put(HPAS, hpa)
            await asyncio.sleep(1)
            assert world.replicas("web") == 5

    scenario(case)


def test_deleted_hpa_is_forgotten() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500)
        world.autoscale("web")
        async with running(world) as around:
            world.server.drop(HPAS, "web", "default")
            await asyncio.sleep(60)
            assert around.metrics.value("horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers") == 0
            before = len([path for path in world.server.requested_paths("GET") if "metrics" in path])
            await asyncio.sleep(60)
            assert len([path for path in world.server.requested_paths("GET") if "metrics" in path]) == before

    scenario(case)


def test_series_of_hpas_that_come_and_go_are_removed() -> None:
    """Who may create HPAs cannot fill the metrics: after each batch there are as many series as after the first."""
    sizes = "horizontal_pod_autoscaler_controller_desired_replicas"

    async def case(world: World) -> None:
        async with running(world) as around:
            series_counts = []
            for batch in range(3):
                names = [f"web-{batch}-{number}" for number in range(50)]
                for name in names:
                    world.deploy(name, 500)
                    world.autoscale(name)
                await asyncio.sleep(40)
                assert around.metrics.value(sizes, namespace="default", hpa_name=names[0]) == 1
                for name in names:
                    world.server.drop(HPAS, name, "default")
                    world.server.drop("deployments.apps", name, "default")
                    world.server.drop("pods", f"{name}-0", "default")
                await asyncio.sleep(40)
                series_counts.append(series(around))
            assert [each for each in series_counts[-1] if sizes in each or "web-" in each] == []
            assert series_counts[2] == series_counts[1] == series_counts[0]

    scenario(case)


def series(around: Any) -> set[str]:
    text = around.metrics.exposition()[0].decode()
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def managed(world: World, manager: str, seconds: int) -> list[dict[str, Any]]:
    time = to_text(world.api.clock.now() - seconds * SECOND)
    return [
        {"manager": manager, "operation": "Update", "subresource": "status", "time": time, "fieldsV1": {"f:status": {}}}
    ]


@pytest.mark.parametrize(
    ("manager", "seconds", "more", "writes"),
    [
        ("kube-controller-manager", 30, {}, False),
        ("kube-controller-manager", 70, {}, True),
        ("kube-controller-manager", 30, {"take_over": True}, True),
        ("kscale", 30, {}, True),
    ],
)
def test_two_controllers_do_not_fight(manager: str, seconds: int, more: dict[str, Any], writes: bool) -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web", managedFields=managed(world, manager, seconds))
        async with running(world, **more) as around:
            assert (world.replicas("web") == 4) is writes
            assert around.metrics.value("kscale_horizontal_left_alone") == (not writes)
            if not writes:
                assert "status" not in world.server.get(HPAS, "web", "default")
                await asyncio.sleep(60)  # the other is silent
                assert world.replicas("web") == 4
                assert around.metrics.value("kscale_horizontal_left_alone") == 0

    scenario(case)


def test_only_hpas_that_are_selected() -> None:
    async def case(world: World) -> None:
        for name in ("a", "b"):
            world.deploy(name, 900)
            world.autoscale(name, labels={"team": name})
        async with running(world, selector="team=b"):
            assert (world.replicas("a"), world.replicas("b")) == (1, 2)

    scenario(case)


def test_a_dry_run_writes_nothing() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        async with running(world, dry_run=True):
            await asyncio.sleep(60)
        assert {call.method for call in world.server.calls} == {"GET"}

    scenario(case)


def test_a_conflict_is_met_with_the_same_size() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        met: list[Call] = []

        def fail(call: Call) -> Answer | None:
            if call.method == "PUT" and len(met) < 2:
                met.append(call)
                return Answer(409, {}, json.dumps(status(409, "Conflict", "the object has been modified")).encode())
            return None

        world.fail = fail
        async with running(world):
            assert world.replicas("web") == 4
        assert len(met) == 2
        assert world.events() == [("SuccessfulRescale", "web")]

    scenario(case)


def test_metrics_that_cannot_be_had() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        refusal = Answer(503, {}, json.dumps(status(503, "ServiceUnavailable", "no endpoints")).encode())
        world.fail = lambda call: refusal if "metrics.k8s.io" in call.path else None
        async with running(world):
            assert world.replicas("web") == 2
            assert world.reasons("web")["ScalingActive"] == "FailedGetResourceMetric"
            world.fail = lambda call: None
            await asyncio.sleep(30)
            assert world.replicas("web") == 4
        assert ("FailedComputeMetricsReplicas", "web") in world.events()

    scenario(case)


def test_a_custom_resource_that_comes_later() -> None:
    """What is not served is not asked for again before half a minute has passed."""

    async def case(world: World) -> None:
        served = world.server.served.pop("widgets.example.com")
        world.autoscale("w", kind="Widget", group="example.com/v1")
        async with running(world):
            assert world.reasons("w") == {"AbleToScale": "FailedGetScale"}
            world.server.served["widgets.example.com"] = served
            world.deploy("w", 900, plural="widgets.example.com")
            await asyncio.sleep(45)
            assert world.server.get("widgets.example.com", "w", "default")["spec"]["replicas"] == 2

    scenario(case, resources=[WIDGET])


def test_recommendations_are_kept_across_rounds() -> None:
    """Scaling down waits for the window: recommendations of every round are kept."""

    async def case(world: World) -> None:
        world.deploy("web", 500, 500, 500, 500)
        world.autoscale("web")
        async with running(world):
            for name in world.cpu:
                world.cpu[name] = 100
            await asyncio.sleep(280)
            assert world.replicas("web") == 4
            assert world.reasons("web")["AbleToScale"] == "ScaleDownStabilized"
            await asyncio.sleep(40)
            assert world.replicas("web") == 1

    scenario(case)


def test_ambiguous_hpas_are_reported() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        hpa = world.server.get(HPAS, "web", "default")
        world.server.put(HPAS, {"metadata": {"name": "other", "namespace": "default"}, "spec": hpa["spec"]})
        async with running(world):
            assert world.replicas("web") == 2
            assert world.reasons("web")["ScalingActive"] == "AmbiguousSelector"
            assert world.reasons("other")["ScalingActive"] == "AmbiguousSelector"

    scenario(case)


def test_options_reach_decisions() -> None:
    driver = HorizontalAutoscaler(HPAOptions(horizontal_pod_autoscaler_sync_period=timedelta(seconds=30)))
    assert driver.controller.options.sync_period_ns == 30 * SECOND


def test_restart_forgets_recommendations() -> None:
    """What was recommended is forgotten, as upstream's is: the size that is found is held for a window."""

    async def case(world: World) -> None:
        world.deploy("web", 500, 500, 500, 500)
        world.autoscale("web")
        async with running(world):
            for name in world.cpu:
                world.cpu[name] = 100
            await asyncio.sleep(200)
            assert world.replicas("web") == 4
        async with running(world):
            await asyncio.sleep(280)
            assert world.replicas("web") == 4
            await asyncio.sleep(40)
            assert world.replicas("web") == 1

    scenario(case)


def test_the_api_server_is_away_for_a_while() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500, 500)
        world.autoscale("web")
        async with running(world):
            world.fail = lambda call: Answer(500, {}, b"{}")
            world.server.cut_watches()
            world.cpu |= {"web-0": 1000, "web-1": 1000}
            await asyncio.sleep(60)
            assert world.replicas("web") == 2
            world.fail = lambda call: None
            await asyncio.sleep(90)
            assert world.replicas("web") == 4
            assert world.reasons("web")["ScalingActive"] == "ValidMetricFound"

    scenario(case)


@pytest.mark.parametrize("seed", range(4))
def test_any_write_may_fail_or_be_late(seed: int) -> None:
    """Whatever is refused, lost or happened unnoticed: once it stops, the sizes and statuses are right."""

    async def case(world: World) -> None:
        rng = random.Random(seed)
        for i in range(5):
            world.deploy(f"w{i}", 900, 900)
            world.autoscale(f"w{i}")
        broken = ConnectionFailedError("connection reset by peer", "reset")
        faults: list[Any] = [
            Answer(409, {}, json.dumps(status(409, "Conflict", "the object has been modified")).encode()),
            Answer(500, {}, json.dumps(status(500, "InternalError", "oh")).encode()),
            broken,
            Late(broken),
            None,
            None,
        ]
        world.fail = lambda call: rng.choice(faults) if call.method in ("PUT", "PATCH") else None
        async with running(world):
            await asyncio.sleep(120)
            world.fail = lambda call: None
            await asyncio.sleep(60)
            for i in range(5):
                assert world.replicas(f"w{i}") == 4
                assert world.reasons(f"w{i}")["AbleToScale"] == "ReadyForNewScale"
                assert world.server.get(HPAS, f"w{i}", "default")["status"]["currentReplicas"] == 4

    scenario(case, seed=seed)


@pytest.mark.usefixtures("own_collector")
def test_garbage_collector_is_relaxed_during_a_large_round() -> None:
    before, hpas = gc.get_threshold(), 100_000
    sight = HorizontalView(hpas=[HorizontalPodAutoscaler()] * hpas)
    steps = HorizontalAutoscaler(take_over=True).steps(sight, 1_800_000_000 * SECOND)
    next(steps)
    assert gc.get_threshold() == (50 * hpas, *before[1:])
    steps.close()
    assert gc.get_threshold() == before


def test_changes_during_a_round_are_not_lost() -> None:
    """The watch of HPAs goes on while a round ends in another thread, which may take in just before an HPA is added to
    what was noticed."""
    driver, now = HorizontalAutoscaler(take_over=True), 1_800_000_000 * SECOND
    changes_type: Any = type(driver._changes)

    class Slow(changes_type):
        def append(self, noticed: Any) -> None:
            for _ in driver.steps(HorizontalView(), now):
                pass
            super().append(noticed)

    driver._changes = Slow()
    hpa = HorizontalPodAutoscaler(metadata=ObjectMeta(name="web", namespace="shop"))
    driver.notice(Change(watch=driver.watches[0], new=hpa), now)
    assert driver.next_due() is not None
    assert driver.controller.take_all(now) == ["shop/web"]


def test_a_controller_that_was_silent_and_comes_back_is_left_its_hpa() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web", managedFields=managed(world, "kube-controller-manager", 70))
        async with running(world) as around:
            assert world.replicas("web") == 4
            hpa = world.server.get(HPAS, "web", "default")
            hpa["metadata"]["managedFields"] = managed(world, "kube-controller-manager", 0)
            world.server.put(HPAS, hpa)
            world.cpu |= dict.fromkeys(world.cpu, 2000)
            await asyncio.sleep(570)
            assert world.replicas("web") == 4
            assert around.metrics.value("kscale_horizontal_left_alone") == 1
            await asyncio.sleep(60)
            assert world.replicas("web") > 4
            assert around.metrics.value("kscale_horizontal_left_alone") == 0

    scenario(case)


def test_adapter_with_invalid_times_affects_only_its_hpa() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        by_backlog(world, "queue")
        item = {"metricName": "backlog", "value": "30", "timestamp": "lately"}
        answer = Answer(200, {}, json.dumps({"kind": "ExternalMetricValueList", "items": [item]}).encode())
        world.fail = lambda call: answer if call.path.startswith("/apis/external.metrics") else None
        async with running(world):
            await asyncio.sleep(30)
            assert world.replicas("web") == 4
            assert world.reasons("queue")["ScalingActive"] == "FailedGetExternalMetric"

    scenario(case)


def test_controller_continues_after_a_server_restore() -> None:
    """The new versions are older than those of the controller's own writes, which no longer mean anything."""

    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        world.server.version = 5000
        async with running(world):
            await asyncio.sleep(5)
            assert world.replicas("web") == 4  # and the status was written
            world.server.version = 1
            for obj in [obj for objects in world.server.kinds.values() for obj in objects.values()]:
                obj["metadata"]["resourceVersion"] = "1"
            world.server.fail_watches(410, "Expired")
            world.server.compact()
            await asyncio.sleep(60)
            world.cpu = dict.fromkeys(world.cpu, 1400)
            await asyncio.sleep(60)
            assert world.replicas("web") > 4

    scenario(case)


@pytest.mark.parametrize("watched", [False, True])
def test_round_with_requested_scales_is_not_repeated(watched: bool) -> None:
    """Though as many others are watched: of HPAs that are left alone."""
    driver, now = HorizontalAutoscaler(HPAOptions(), manager="ours", repeats=True), 1_800_000_000 * SECOND
    them = [{"manager": "them", "subresource": "status", "time": to_text(now)}]
    hpas = []
    for name, writers in (("own", []), ("others", them)):
        hpas.append(scaled_by_a_metric(name, managedFields=writers))
        driver.notice(Change(watch=driver.watches[0], new=hpas[-1]), now)
    driver.next_due()
    assert driver.controller.take_all(now) == ["shop/own", "shop/others"]
    scale = Scale(spec=ScaleSpec(replicas=1), status=ScaleStatus(replicas=1, selector="app=web"))
    known = {"shop/own" if watched else "shop/others": scale}
    sight = HorizontalView(hpas=hpas, scales=known, pods=Cluster().snapshot().pod_index)

    def perform(action: Any, at: int) -> Outcome:
        if isinstance(action, GetMetric):
            value = from_dict({"metricName": "m", "value": "1"}, ExternalMetricValue)
            return Outcome(at=at, value=ExternalMetricValueList(items=[value]))
        return Outcome(at=at, value=scale if isinstance(action, GetScale) else None)

    run_virtually(partial(driver.steps, sight), perform, now=now)
    assert "shop/own" in driver.controller.kept
    assert driver.repeats_until() == (LAST_TIME if watched else ZERO_TIME)


@pytest.mark.parametrize("profile", ["current", "legacy", "legacy-1.19", "legacy-1.18"])
def test_failed_and_deleting_pods_do_not_hold_back_a_scale_up(profile: str) -> None:
    """Two pods at 180 % of their target make four, in each release."""

    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        for name, change in (("web-7", {"status": {"phase": "Failed"}}), ("web-8", {"metadata": DELETING})):
            ended = copy.deepcopy(world.server.get("pods", "web-0", "default"))
            ended["metadata"] = {"name": name, "namespace": "default", "labels": {"app": "web"}}
            for part, values in change.items():
                ended[part] |= values
            world.server.put("pods", ended)
        async with running(world, options=HPAOptions(profile=profile)):
            await asyncio.sleep(40)
        assert world.replicas("web") == 4

    scenario(case)


DELETING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
