"""HPAs that wait long for what they ask are decided apart, and hold up nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler, HorizontalView
from kscale.effects import SECOND, GetMetric, Outcome, run_virtually, to_text
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.metrics import ExternalMetricValue, ExternalMetricValueList
from kscale.objects.decode import from_dict
from kscale.snapshot.cluster import Cluster
from kscale.world.kubernetes.transport import Answer, Call
from kscale.world.protocols import Change
from unit.drivers.horizontal_world import HPAS, WIDGET, World, by_backlog, running, scaled_by_a_metric, scenario


class Adapter:
    """Of external metrics: it takes so many seconds for each answer; ``began``: when each question came."""

    def __init__(self, world: World, seconds: float) -> None:
        self.world, self.seconds, self.began = world, seconds, list[int]()
        self.resource: list[int] = []
        """When resource metrics were asked for."""
        self._asked = world.server.call
        world.server.call = self.call

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


def slowed(world: World, seconds: Callable[[Call], float]) -> None:
    """Calls are answered so many seconds later; 0: at once."""
    original_call = world.server.call

    async def call(call: Call) -> Answer:
        if late := seconds(call):
            await asyncio.sleep(late)
        return await original_call(call)

    world.server.call = call


def steps_between(times: list[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise(times)]


def test_slow_answer_delays_no_other_hpa() -> None:
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
            assert {*steps_between(adapter.began[1:])} == {65}  # a period after the last answer
            adapter.seconds = 0.1
            await asyncio.sleep(75)
            before = len(adapter.began)
            await asyncio.sleep(150)
            assert len(adapter.began) == before + 10

    scenario(case)


def test_recovered_hpa_is_not_delayed_by_slow_ones() -> None:
    """Two that were slow together, of which one stays so."""

    async def case(world: World) -> None:
        adapter, slow = Adapter(world, 50), ["/apis/metrics.k8s.io/"]
        slowed(world, lambda call: 50 if call.path.startswith(tuple(slow)) else 0)
        world.deploy("web", 500, 500)
        world.autoscale("web")
        by_backlog(world, "queue")
        async with running(world):
            await asyncio.sleep(120)
            slow.clear()
            await asyncio.sleep(150)
            del adapter.resource[:]
            await asyncio.sleep(300)
            assert {*steps_between(adapter.resource)} == {15}

    scenario(case)


def test_unanswered_discovery_delays_others_briefly() -> None:
    """An aggregated API that hangs: who scales another kind waits for it, the others for five seconds at most."""

    async def case(world: World) -> None:
        adapter, hangs = Adapter(world, 0), True
        slowed(world, lambda call: 600 if hangs and call.path in ("/api", "/apis") else 0)
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


def test_slow_write_delays_no_other_hpa() -> None:
    """Somebody's webhook has its thirty seconds, for each status."""

    async def case(world: World) -> None:
        adapter, written = Adapter(world, 0), list[int]()

        def late(call: Call) -> float:
            if call.method != "PATCH" or not call.path.endswith("/web/status"):
                return 0
            world.cpu |= {"web-0": 520 - len(written) % 2 * 20}  # the next status is another
            written.append(world.api.clock.now() // SECOND)
            return 30

        slowed(world, late)
        world.deploy("web", 500, 500)
        world.autoscale("web")
        by_backlog(world, "queue")
        async with running(world):
            await asyncio.sleep(300)
            assert len(written) >= 6  # the last is under way
            assert {*steps_between(adapter.began[2:])} == {15}
            assert len(adapter.began) >= 18

    scenario(case)


def test_separate_hpa_is_reconciled_again_without_events() -> None:
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


def test_separate_hpa_may_be_deleted_before_its_answer() -> None:
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


@pytest.mark.parametrize("sets", [False, True])
def test_separate_decision_is_recorded_unless_the_clock_is_set(sets: bool) -> None:
    driver, now = HorizontalAutoscaler(HPAOptions(), take_over=True), 1_800_000_000 * SECOND
    hpa = scaled_by_a_metric("web")
    driver.notice(Change(watch=driver.watches[0], new=hpa), now)
    driver.next_due()
    assert driver.controller.take_all(now) == ["shop/web"]
    driver._apart.note_late(["shop/web"], now)
    scale = Scale(spec=ScaleSpec(replicas=1), status=ScaleStatus(replicas=1, selector="app=web"))
    sight = HorizontalView(hpas=[hpa], scales={"shop/web": scale}, pods=Cluster().snapshot().pod_index)
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
    cached = driver.controller.kept.get("shop/web")
    assert (cached is None) is sets
    assert driver._apart._slow == set()
    assert driver.controller.due("shop/web") is not None
