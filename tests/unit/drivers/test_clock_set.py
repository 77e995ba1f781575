"""Somebody sets the clock while the HPA or a program of the VPA runs: rounds go on as before."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS, HorizontalAutoscaler
from kscale.drivers.live import Live
from kscale.drivers.process import Program, ProgramContext
from kscale.drivers.vpa_admission import ADMISSION_METRICS, AdmissionController
from kscale.drivers.vpa_recommender import recommender_program
from kscale.drivers.vpa_updater import updater_program
from kscale.drivers.work_queue import HorizontalController
from kscale.effects import SECOND, from_text
from kscale.hpa import HPAState
from kscale.hpa.controller.state import Recommendation, ScaleEvent
from kscale.hpa.options import HPAOptions
from kscale.vpa import RecommenderOptions, UpdaterOptions
from kscale.vpa.admission.review import ReviewResult
from kscale.vpa.controllers import ScaleCache
from kscale.world.kubernetes.performer import Performer
from kscale.world.metrics_apis import RESTMetrics
from unit.drivers.horizontal_world import World
from unit.drivers.set_clock import SetClock
from unit.drivers.test_vpa_admission import RECOMMENDED, review
from unit.drivers.test_vpa_recommender import SERVED, against_fake
from unit.drivers.test_vpa_updater import far, lives
from unit.drivers.vpa_world import autoscaler, cluster, running, running_pod, used, workload
from unit.world.test_informer import FakeApi

HOUR = 3600 * SECOND
NAME = "vpa-admission-controller"
VPAS = "verticalpodautoscalers.autoscaling.k8s.io"


def horizontal_program(around: ProgramContext) -> Program:
    driver = HorizontalAutoscaler(HPAOptions(), manager="kscale")
    source = RESTMetrics(around.client, around.resources, around.steady)
    return Program(driver=driver, metrics=HORIZONTAL_METRICS, source=source, clock_set=driver.clock_set)


def admission_program(_: ProgramContext) -> Program:
    driver = AdmissionController(holder="host")
    return Program(driver=driver, metrics=ADMISSION_METRICS, clock_set=driver.clock_set)


def scaled(api: FakeApi) -> None:
    world = World(api)
    world.deploy("web", 500)
    world.autoscale("web")


def right_sized(api: FakeApi) -> None:
    cluster(api)
    api.server.put(VPAS, autoscaler("web"))


@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize(
    ("build", "begin", "asks", "interval"),
    [
        (horizontal_program, scaled, "metrics.k8s.io", 15),
        (partial(recommender_program, options=RecommenderOptions()), right_sized, "metrics.k8s.io", 60),
        (partial(updater_program, options=UpdaterOptions()), right_sized, "leases", 60),
        (admission_program, right_sized, "leases", 10),
    ],
    ids=["horizontal", "recommender", "updater", "admission"],
)
def test_rounds_go_on(build: Any, begin: Callable[[FakeApi], None], asks: str, interval: int, hours: int) -> None:
    async def case(api: FakeApi) -> None:
        def rounds() -> int:
            return sum(asks in path for method in ("GET", "PATCH") for path in api.server.requested_paths(method))

        begin(api)
        clock = SetClock(api.clock)
        async with running(api, build, clock=clock):
            await asyncio.sleep(4 * 60 + 5)
            before = rounds()
            await asyncio.sleep(4 * 60)
            each = rounds() - before
            assert each >= 4 * 60 // interval
            clock.ahead = hours * HOUR
            await asyncio.sleep(4 * 60)
            assert abs(rounds() - before - 2 * each) <= 1

    against_fake(case, **({} if build is horizontal_program else {"resources": SERVED}))


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_is_set_while_sizes_are_written(hours: int) -> None:
    """Each is written once all the same, and the next syncs come when they would have come."""

    async def case(api: FakeApi) -> None:
        world = World(api)
        for i in range(30):
            world.deploy(f"w{i}", 900)
            world.autoscale(f"w{i}")

        def sized() -> list[str]:
            return [path for path in api.server.requested_paths("PUT") if path.endswith("/scale")]

        def syncs() -> int:
            return sum("metrics.k8s.io" in path for path in api.server.requested_paths("GET"))

        clock = SetClock(api.clock)
        async with running(api, horizontal_program, clock=clock):
            while len(sized()) < 10:
                await asyncio.sleep(0.2)
            assert len(sized()) < 20
            clock.ahead = hours * HOUR
            await asyncio.sleep(40)
            assert len(sized()) == len(set(sized())) == 30
            assert {world.replicas(f"w{i}") for i in range(30)} == {2}
            before = syncs()
            await asyncio.sleep(150)
            assert 9 <= syncs() - before <= 11

    against_fake(case, delay=0.3)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_is_set_while_checkpoints_are_written(hours: int) -> None:
    """None is lost, and the next round comes when it would have come."""
    options = RecommenderOptions(update_worker_count=1)

    async def case(api: FakeApi) -> None:
        cluster(api)
        for i in range(12):
            api.server.put(VPAS, autoscaler(f"v{i:02}", "web"))

        def written() -> list[str]:
            return [path for path in api.server.requested_paths("POST") if path.endswith("checkpoints")]

        def rounds() -> int:
            return sum("metrics.k8s.io" in path for path in api.server.requested_paths("GET"))

        clock = SetClock(api.clock)
        async with running(api, partial(recommender_program, options=options), clock=clock):
            await asyncio.sleep(50)
            while len(written()) < 4:
                used(api, "web-0", "200m", "300Mi")
                used(api, "web-1", "200m", "300Mi")
                await asyncio.sleep(0.2)
            assert len(written()) < 8
            before = rounds()
            clock.ahead = hours * HOUR
            await asyncio.sleep(150)
            assert len(api.server.all("verticalpodautoscalercheckpoints.autoscaling.k8s.io")) == 12
            assert 2 <= rounds() - before <= 3

    against_fake(case, resources=SERVED, delay=0.3)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_is_set_while_pods_are_evicted(hours: int) -> None:
    """The rate limit goes on as it was: one pod each ten seconds."""
    options = UpdaterOptions(eviction_rate_limit=0.1, eviction_rate_burst=1, eviction_tolerance=1.0)

    async def case(api: FakeApi) -> None:
        cluster(api, pods=5)
        api.server.put(VPAS, far())
        clock = SetClock(api.clock)

        def evicted() -> int:
            return sum(path.endswith("/eviction") for path in api.server.requested_paths("POST"))

        async def live(seconds: float) -> None:
            end = api.clock.now() + round(seconds * SECOND)
            while api.clock.now() < end:
                lives(api, api.clock.now() + clock.ahead)
                await asyncio.sleep(1)

        async with running(api, partial(updater_program, options=options), clock=clock):
            while evicted() < 2:
                await live(1)
            clock.ahead = hours * HOUR
            await live(5)
            assert evicted() == 2
            await live(16)
            assert evicted() == 4

    against_fake(case, resources=SERVED)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_is_set_while_an_eviction_is_under_way(hours: int) -> None:
    """Its answer is taken for what it is, and no pod is evicted twice."""
    options = UpdaterOptions(eviction_tolerance=1.0)

    async def case(api: FakeApi) -> None:
        cluster(api, pods=5)
        api.server.put(VPAS, far())
        clock = SetClock(api.clock)

        def evicted() -> list[str]:
            return [path for path in api.server.requested_paths("POST") if path.endswith("/eviction")]

        async def live(until: Callable[[], bool], most: int) -> None:
            for _ in range(most * 10):
                if until():
                    return
                lives(api, clock.now())
                await asyncio.sleep(0.1)
            raise AssertionError(f"not after {most} s")

        async with running(api, partial(updater_program, options=options), clock=clock):
            soon = api.clock.now() + 50 * SECOND
            await live(lambda: api.clock.now() > soon, 60)
            api.server.delay = 3
            await live(lambda: len(evicted()) == 1, 60)
            assert len(api.server.all("pods")) == 5  # asked, not answered
            clock.ahead = hours * HOUR
            await live(lambda: len(api.server.all("pods")) == 0, 200)
            assert len(evicted()) == len(set(evicted())) == 5

    against_fake(case, resources=SERVED)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_is_set_while_the_status_lease_is_renewed(hours: int) -> None:
    """The next renewals come when they would have come, with the time of the clock as it is set."""

    async def case(api: FakeApi) -> None:
        right_sized(api)
        clock = SetClock(api.clock)

        def renewals() -> int:
            return sum("leases" in path for path in api.server.requested_paths("PATCH"))

        def renewed() -> str:
            lease: dict[str, Any] = api.server.get("leases.coordination.k8s.io", NAME, "kube-system")
            return str(lease["spec"]["renewTime"])

        async with running(api, admission_program, clock=clock):
            await asyncio.sleep(60)
            api.server.delay, before, old = 3, renewals(), renewed()
            while renewals() == before:
                await asyncio.sleep(0.1)
            assert renewed() == old  # asked, not answered
            clock.ahead = hours * HOUR
            await asyncio.sleep(5)
            assert renewed() > old
            api.server.delay, before = 0, renewals()
            await asyncio.sleep(60)
            assert 5 <= renewals() - before <= 7
            behind = clock.now() - from_text(renewed())
            assert 0 <= behind <= 15 * SECOND

    against_fake(case, resources=SERVED)


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_is_set_while_a_pod_is_reviewed(hours: int) -> None:
    """It gets what is recommended, and so do those that come then."""
    driver = AdmissionController(holder="host")
    lives: list[Live] = []

    def build(around: ProgramContext) -> Program:
        lives.append(Live(Performer(around.client, around.clock, resources=around.resources), around.clock))
        return Program(driver=driver, metrics=ADMISSION_METRICS, clock_set=driver.clock_set)

    async def case(api: FakeApi) -> None:
        cluster(api)
        clock = SetClock(api.clock)
        rollout = ("Rollout", "argoproj.io/v1alpha1")
        api.server.put("rollouts.argoproj.io", workload("r", kind=rollout[0], api=rollout[1]))
        api.server.put(VPAS, autoscaler("r", kind=rollout[0], api=rollout[1], status=RECOMMENDED))
        body = review(running_pod("r-1", "r", owner=rollout))

        async def patches() -> list[dict[str, Any]]:
            reviewed: ReviewResult = await lives[0].run(partial(driver.review, body))
            return list(json.loads(base64.b64decode(json.loads(reviewed.body)["response"]["patch"])))

        def scales() -> int:
            return sum(path.endswith("/rollouts/r/scale") for path in api.server.requested_paths("GET"))

        async with running(api, build, clock=clock):
            await asyncio.sleep(60)
            before = scales()
            api.server.delay = 3
            first = asyncio.create_task(patches())
            await asyncio.sleep(1)
            request_count = scales()
            assert request_count == before + 1
            assert not first.done()
            clock.ahead = hours * HOUR
            result = await first
            assert {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "1"} in result
            for _ in range(20):
                assert await patches() == result
                await asyncio.sleep(60)
            assert (
                scales() == request_count + 1 + 20
            )  # its owner's once, and the one by which its VPA selects each time

    against_fake(case, resources=SERVED)


def test_hpa_history_keeps_its_age_when_the_clock_is_set() -> None:
    controller = HorizontalController(HPAOptions())
    now = 100 * HOUR
    controller.kept["a/b"] = HPAState(
        recommendations=(Recommendation(3, now),), scale_up_events=(ScaleEvent(1, now),), scale_down_events=()
    )
    controller.kept["a/new"] = HPAState()
    controller.clock_set(-HOUR)
    result = controller.kept["a/b"]
    assert result.recommendations == (Recommendation(3, 99 * HOUR),)
    assert (result.scale_up_events, result.scale_down_events) == ((ScaleEvent(1, 99 * HOUR),), ())
    assert controller.kept["a/new"] == HPAState()


def test_cached_scales_keep_their_age_when_the_clock_is_set() -> None:
    cache = ScaleCache()
    cache.now = 100 * HOUR
    cache.clock_set(HOUR)
    assert cache.now == 101 * HOUR
