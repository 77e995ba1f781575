"""The horizontal pod autoscaler as a whole process, in virtual time, against the fake API server."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS, HorizontalAutoscaler, HorizontalSight
from kscale.drivers.process import ProcessOptions, Program, Surroundings, run_process
from kscale.effects import LAST_TIME, SECOND, ZERO_TIME, GetMetric, GetScale, Outcome, run_virtually, to_text
from kscale.hpa.defaults import apply_defaults
from kscale.hpa.options import HPAOptions
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.decode import from_dict
from kscale.objects.meta import ObjectMeta
from kscale.objects.metrics import ExternalMetricValue, ExternalMetricValueList
from kscale.objects.rest_mapping import ServedResource
from kscale.snapshot.cluster import Cluster
from kscale.world.kubernetes.transport import Answer, Call, ConnectionFailedError
from kscale.world.metrics.rest import RESTMetrics
from kscale.world.protocols import Change
from unit.world.fake_api_server import Late, status
from unit.world.informer_cases import pod
from unit.world.test_informer import FakeApi, against_fake

HPAS = "horizontalpodautoscalers.autoscaling"
PERIOD = 15 * SECOND
Fault = Answer | ConnectionFailedError | Late
WIDGET = ServedResource("example.com", "v1", "Widget", "widgets", scale="autoscaling/v1")


class World:
    """Pods that use so much cpu (milli, of a request of 1000), and what upstream would see of it."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.server = api, api.server
        self.cpu: dict[str, int] = {}
        self.fail: Callable[[Call], Fault | None] = lambda call: None
        self.server.fault = self.fault

    def fault(self, call: Call) -> Fault | None:
        found = self.fail(call)
        if found is not None or not call.path.startswith("/apis/metrics.k8s.io/"):
            return found
        selector = dict(call.query).get("labelSelector", "")
        namespace = call.path.split("/")[5]
        items = [
            {
                "metadata": {"name": name, "namespace": namespace, "labels": {"app": name.rpartition("-")[0]}},
                "timestamp": to_text(self.api.clock.now()),
                "window": "15s",
                "containers": [{"name": "c", "usage": {"cpu": f"{used}m"}}],
            }
            for name, used in self.cpu.items()
            if selector in ("", f"app={name.rpartition('-')[0]}")
        ]
        return Answer(200, {}, json.dumps({"kind": "PodMetricsList", "items": items}).encode())

    def deploy(self, name: str, *used: int, plural: str = "deployments.apps") -> None:
        spec = {"replicas": len(used), "selector": {"matchLabels": {"app": name}}, "template": {}}
        metadata = {"name": name, "namespace": "default"}
        self.server.put(plural, {"metadata": metadata, "spec": spec, "status": {"replicas": len(used)}})
        old = to_text(self.api.clock.now() - 3600 * SECOND)
        for i, cpu in enumerate(used):
            made = pod(f"{name}-{i}", node="n", app=name)
            made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": old}
            made["status"] = {"phase": "Running", "startTime": old, "conditions": [ready]}
            self.server.put("pods", made)
            self.cpu[f"{name}-{i}"] = cpu

    def autoscale(self, name: str, kind: str = "Deployment", group: str = "apps/v1", **more: Any) -> None:
        target = {"type": "Utilization", "averageUtilization": 50}
        spec = {
            "scaleTargetRef": {"apiVersion": group, "kind": kind, "name": name},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        }
        metadata = {"name": name, "namespace": "default", "generation": 1, **more}
        self.server.put(HPAS, {"metadata": metadata, "spec": spec})

    def replicas(self, name: str) -> int:
        return int(self.server.get("deployments.apps", name, "default")["spec"]["replicas"])

    def reasons(self, name: str) -> dict[str, str]:
        conditions = self.server.get(HPAS, name, "default").get("status", {}).get("conditions") or ()
        return {each["type"]: each["reason"] for each in conditions}

    def events(self) -> list[tuple[str, str]]:
        return [(each["reason"], each["involvedObject"]["name"]) for each in self.server.all("events")]


@asynccontextmanager
async def running(world: World, *, dry_run: bool = False, **more: Any) -> Any:
    stop, around = asyncio.Event(), list[Surroundings]()

    def build(given: Surroundings) -> Program:
        around.append(given)
        return Program(
            driver=HorizontalAutoscaler(HPAOptions(), manager="kscale", **more),
            metrics=HORIZONTAL_METRICS,
            source=RESTMetrics(given.client, given.resources, given.steady),
        )

    options = ProcessOptions(dry_run=dry_run)
    task = asyncio.create_task(
        run_process(build, world.api.client, options, version="1", stop=stop, clock=world.api.clock)
    )
    await asyncio.sleep(1)
    try:
        yield around[0]
    finally:
        stop.set()
        await task


def scenario(case: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def main(api: FakeApi) -> None:
        await case(World(api))

    against_fake(main, delay=0.001, **options)


def test_it_scales_up_and_says_so() -> None:
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
            found = world.server.get(HPAS, "web", "default")["status"]
            assert (found["currentReplicas"], found["desiredReplicas"], found["observedGeneration"]) == (2, 4, 1)
            assert found["currentMetrics"][0]["resource"]["current"] == {
                "averageUtilization": 90,
                "averageValue": "900m",
            }
            assert around.metrics.value("horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers") == 2
            labels = {"namespace": "default", "hpa_name": "web"}
            assert around.metrics.value("horizontal_pod_autoscaler_controller_desired_replicas", **labels) == 4
        assert world.events() == [("SuccessfulRescale", "web")]
        asked = [path for path in world.server.asked("GET") if "metrics" in path]
        assert asked == ["/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"]  # one for both
        scales = [path for path in world.server.asked() if path.endswith("/scale")]
        assert scales == ["/apis/apps/v1/namespaces/default/deployments/web/scale"] * 2  # GET only before the PUT

    scenario(case)


def test_it_goes_on_each_sync_period() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500, 500)
        world.autoscale("web")
        async with running(world):
            assert world.replicas("web") == 2
            world.cpu |= {"web-0": 1000, "web-1": 1000}
            await asyncio.sleep(30)
            assert world.replicas("web") == 4
            asked = [path for path in world.server.asked("GET") if "metrics" in path]
            await asyncio.sleep(150)
            again = [path for path in world.server.asked("GET") if "metrics" in path]
            assert len(again) == len(asked) + 10

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
            asked = [path for path in world.server.asked("GET") if "metrics" in path]
            assert len(asked) == 1

    async def main(api: FakeApi) -> None:
        await case(World(api))

    against_fake(main, delay=0.9)


def test_its_queue_is_measured() -> None:
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


def test_an_hpa_that_is_gone_is_forgotten() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500)
        world.autoscale("web")
        async with running(world) as around:
            world.server.drop(HPAS, "web", "default")
            await asyncio.sleep(60)
            assert around.metrics.value("horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers") == 0
            before = len([path for path in world.server.asked("GET") if "metrics" in path])
            await asyncio.sleep(60)
            assert len([path for path in world.server.asked("GET") if "metrics" in path]) == before

    scenario(case)


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


def test_what_one_remembers_outlives_a_round() -> None:
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


def test_rivals_are_told() -> None:
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
    assert driver.controller.options.sync_period_ns == 2 * PERIOD


def test_a_restart_begins_anew() -> None:
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


def test_the_collector_is_at_ease_while_a_round_of_many_is_under_way() -> None:
    before, hpas = gc.get_threshold(), 100_000
    sight = HorizontalSight(hpas=[HorizontalPodAutoscaler()] * hpas)
    steps = HorizontalAutoscaler(take_over=True).steps(sight, 1_800_000_000 * SECOND)
    next(steps)
    assert gc.get_threshold() == (50 * hpas, *before[1:])
    steps.close()
    assert gc.get_threshold() == before


def test_what_is_noticed_while_a_round_takes_in_is_not_lost() -> None:
    """The watch of HPAs goes on while a round ends in another thread, which may take in just before an HPA is added to
    what was noticed."""
    driver, now = HorizontalAutoscaler(take_over=True), 1_800_000_000 * SECOND
    kept: Any = type(driver._changes)

    class Slow(kept):  # type: ignore[misc]  # of whatever it is kept in
        def append(self, noticed: Any) -> None:
            for _ in driver.steps(HorizontalSight(), now):
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


def by_backlog(world: World, name: str) -> None:
    """A workload that is scaled by what an adapter tells, ten a pod."""
    world.deploy(name, 500)
    world.autoscale(name)
    hpa = world.server.get(HPAS, name, "default")
    external = {"metric": {"name": "backlog"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    hpa["spec"]["metrics"] = [{"type": "External", "external": external}]
    world.server.put(HPAS, hpa)


class Adapter:
    """Of external metrics: it takes so many seconds for each answer; ``began``: when each question came."""

    def __init__(self, world: World, seconds: float) -> None:
        self.world, self.seconds, self.began = world, seconds, list[int]()
        self.resource: list[int] = []
        """When resource metrics were asked for."""
        self._asked = world.server.call
        world.server.call = self.call  # type: ignore[method-assign]

    async def call(self, call: Call) -> Answer:
        now = self.world.api.clock.now() // SECOND
        if call.path.startswith("/apis/metrics.k8s.io/"):
            self.resource.append(now)
        if not call.path.startswith("/apis/external.metrics.k8s.io/"):
            return await self._asked(call)
        self.began.append(now)
        await asyncio.sleep(self.seconds)
        item = {"metricName": "backlog", "value": "30", "timestamp": to_text(self.world.api.clock.now())}
        return Answer(200, {}, json.dumps({"kind": "ExternalMetricValueList", "items": [item]}).encode())


def test_an_adapter_whose_times_are_none_costs_its_own_hpa_and_no_more() -> None:
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


def steps_between(times: list[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise(times)]


def test_an_answer_that_takes_long_holds_up_nobody_else() -> None:
    """Once it has been too late; its own HPA is decided when it comes."""

    async def case(world: World) -> None:
        adapter = Adapter(world, 50)
        world.deploy("web", 500, 500)
        world.autoscale("web")
        by_backlog(world, "queue")
        async with running(world):
            await asyncio.sleep(200)
            assert steps_between(adapter.resource[1:]) == [15] * (len(adapter.resource) - 2)
            assert len(adapter.resource) >= 12
            assert world.replicas("queue") == 3
            assert world.reasons("queue")["ScalingActive"] == "ValidMetricFound"
            assert {*steps_between(adapter.began[1:])} <= {60, 75}  # one after the other
            adapter.seconds = 0.1
            await asyncio.sleep(75)
            before = len(adapter.began)
            await asyncio.sleep(150)
            assert len(adapter.began) == before + 10

    scenario(case)


def test_who_is_answered_soon_again_is_not_held_up_by_those_who_are_not() -> None:
    """Two that were slow together, of which one stays so."""

    async def case(world: World) -> None:
        adapter = Adapter(world, 0)
        asked, slow, began = adapter.call, {"queue", "web"}, list[int]()

        async def call(call: Call) -> Answer:
            metrics = {"queue": "/apis/external.metrics.k8s.io/", "web": "/apis/metrics.k8s.io/"}
            for name, path in metrics.items():
                if call.path.startswith(path):
                    if name == "web":
                        began.append(world.api.clock.now() // SECOND)
                    if name in slow:
                        await asyncio.sleep(50)
            return await asked(call)

        world.server.call = call  # type: ignore[method-assign]
        world.deploy("web", 500, 500)
        world.autoscale("web")
        by_backlog(world, "queue")
        async with running(world):
            await asyncio.sleep(120)
            slow.remove("web")
            await asyncio.sleep(150)
            del began[:]
            await asyncio.sleep(300)
            assert {*steps_between(began)} == {15}

    scenario(case)


def test_kinds_that_nobody_tells_hold_up_nobody_for_long() -> None:
    """An aggregated API that hangs: who scales another kind waits for it, the others for five seconds at most."""

    async def case(world: World) -> None:
        adapter = Adapter(world, 0)
        asked, hangs = adapter.call, True

        async def slow(call: Call) -> Answer:
            if hangs and call.path in ("/api", "/apis"):
                await asyncio.sleep(600)
            return await asked(call)

        world.server.call = slow  # type: ignore[method-assign]
        world.deploy("w", 900, plural="widgets.example.com")
        world.autoscale("w", kind="Widget", group="example.com/v1")
        by_backlog(world, "queue")
        async with running(world):
            await asyncio.sleep(120)
            assert {*steps_between(adapter.began[1:])} <= {15, 20}
            assert len(adapter.began) >= 6
            assert world.reasons("w") == {"AbleToScale": "FailedGetScale"}
            hangs = False
            await asyncio.sleep(60)
            assert world.server.get("widgets.example.com", "w", "default")["spec"]["replicas"] == 2

    scenario(case, resources=[WIDGET])


def test_a_write_that_takes_long_holds_up_nobody_else() -> None:
    """Somebody's webhook has its thirty seconds, for each status."""

    async def case(world: World) -> None:
        adapter = Adapter(world, 0)
        asked, written = adapter.call, list[int]()

        async def slow(call: Call) -> Answer:
            if call.method == "PATCH" and call.path.endswith("/web/status"):
                world.cpu |= {"web-0": 520 - len(written) % 2 * 20}  # the next status is another
                await asyncio.sleep(30)
                written.append(world.api.clock.now() // SECOND)
            return await asked(call)

        world.server.call = slow  # type: ignore[method-assign]
        world.deploy("web", 500, 500)
        world.autoscale("web")
        by_backlog(world, "queue")
        async with running(world):
            await asyncio.sleep(300)
            assert len(written) >= 5
            assert {*steps_between(adapter.began[2:])} == {15}
            assert len(adapter.began) >= 18

    scenario(case)


def test_who_is_decided_apart_is_decided_again_though_nothing_happens() -> None:
    async def case(world: World) -> None:
        adapter = Adapter(world, 40)
        by_backlog(world, "queue")
        async with running(world):
            await asyncio.sleep(120)
            assert world.replicas("queue") == 3
            world.deploy("queue", 500, 500, 500)
            before = len(adapter.began)
            await asyncio.sleep(600)  # its status stays as it is: no watch tells of anything
            assert len(adapter.began) >= before + 9

    scenario(case)


def test_who_is_decided_apart_may_be_gone_when_the_answer_comes() -> None:
    async def case(world: World) -> None:
        adapter = Adapter(world, 50)
        by_backlog(world, "queue")
        async with running(world) as around:
            await asyncio.sleep(30)
            world.server.drop(HPAS, "queue", "default")
            await asyncio.sleep(120)
            before = len(adapter.began)
            await asyncio.sleep(120)
            assert len(adapter.began) == before
            assert around.metrics.value("horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers") == 0

    scenario(case)


@pytest.mark.parametrize("watched", [False, True])
def test_a_round_whose_scales_were_asked_for_is_not_repeated(watched: bool) -> None:
    """Though as many others are watched: of HPAs that are left alone."""
    driver, now = HorizontalAutoscaler(HPAOptions(), manager="ours", repeats=True), 1_800_000_000 * SECOND
    external = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    them = [{"manager": "them", "subresource": "status", "time": to_text(now)}]
    hpas = []
    for name, writers in (("own", []), ("others", them)):
        target = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 9}
        document = {
            "metadata": {"name": name, "namespace": "shop", "managedFields": writers},
            "spec": {**target, "metrics": [{"type": "External", "external": external}]},
        }
        hpas.append(apply_defaults(from_dict(document, HorizontalPodAutoscaler)))
        driver.notice(Change(watch=driver.watches[0], new=hpas[-1]), now)
    driver.next_due()
    assert driver.controller.take_all(now) == ["shop/own", "shop/others"]
    scale = Scale(spec=ScaleSpec(replicas=1), status=ScaleStatus(replicas=1, selector="app=web"))
    known = {"shop/own" if watched else "shop/others": scale}
    sight = HorizontalSight(hpas=hpas, scales=known, pods=Cluster().snapshot().pod_index)

    def perform(action: Any, at: int) -> Outcome:
        if isinstance(action, GetMetric):
            value = from_dict({"metricName": "m", "value": "1"}, ExternalMetricValue)
            return Outcome(at=at, value=ExternalMetricValueList(items=[value]))
        return Outcome(at=at, value=scale if isinstance(action, GetScale) else None)

    run_virtually(partial(driver.steps, sight), perform, now=now)
    assert "shop/own" in driver.controller.kept
    assert driver.repeats_until() == (LAST_TIME if watched else ZERO_TIME)


@pytest.mark.parametrize("sets", [False, True])
def test_what_is_decided_apart_is_remembered_unless_the_clock_is_set_meanwhile(sets: bool) -> None:
    driver, now = HorizontalAutoscaler(HPAOptions(), take_over=True), 1_800_000_000 * SECOND
    target = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 9}
    external = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    document = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {**target, "metrics": [{"type": "External", "external": external}]},
    }
    hpa = apply_defaults(from_dict(document, HorizontalPodAutoscaler))
    driver.notice(Change(watch=driver.watches[0], new=hpa), now)
    driver.next_due()
    assert driver.controller.take_all(now) == ["shop/web"]
    driver._apart.note_late(["shop/web"], now)
    scale = Scale(spec=ScaleSpec(replicas=1), status=ScaleStatus(replicas=1, selector="app=web"))
    sight = HorizontalSight(hpas=[hpa], scales={"shop/web": scale}, pods=Cluster().snapshot().pod_index)
    began: list[str] = []

    def perform(action: Any, at: int) -> Outcome:
        if isinstance(action, GetMetric):
            began.append(action.metric)
            if sets:
                driver.clock_set(3600 * SECOND)
            value = from_dict({"metricName": "m", "value": "1"}, ExternalMetricValue)
            return Outcome(at=at + SECOND, value=ExternalMetricValueList(items=[value]))
        return Outcome(at=at)

    run_virtually(partial(driver.steps, sight), perform, now=now)
    assert began == ["m"]
    kept = driver.controller.kept.get("shop/web")
    assert (kept is None) is sets
    assert driver._apart._slow == set()
    assert driver.controller.due("shop/web") is not None
