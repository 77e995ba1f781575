"""The horizontal pod autoscaler decides from objects as they are once slow answers have come, and no sooner than a full
sync period after it decided last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kscale.effects import SECOND, to_text
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.transport import Answer, Call
from unit.drivers.horizontal_world import HPAS, World, by_backlog, running, scenario
from unit.world.informer_cases import pod

SLOW = 1.5


async def decided(world: World, change: Callable[[], Any], *, seconds: float = SLOW + 4) -> None:
    """Run the program for some seconds, and make a change while it waits for its first answer about metrics."""
    original_call, waiting = world.server.call, asyncio.Event()

    async def call(call: Call) -> Answer:
        if call.path.startswith("/apis/metrics.k8s.io/"):
            waiting.set()
            answer = await original_call(call)  # usage as it was
            await asyncio.sleep(SLOW)
            return answer
        return await original_call(call)

    world.server.call = call

    async def meanwhile() -> None:
        await waiting.wait()
        await asyncio.sleep(SLOW / 2)
        change()

    async def run() -> None:
        async with running(world):
            await asyncio.sleep(seconds)

    await asyncio.gather(meanwhile(), run())


def starting(world: World, name: str) -> None:
    """Put a pod that is not ready yet."""
    created = pod(name, node="n", app=name.rpartition("-")[0])
    created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    now = to_text(world.api.clock.now())
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": now}
    created["status"] = {"phase": "Running", "startTime": now, "conditions": [ready]}
    world.server.put("pods", created)


def be_ready(world: World, name: str) -> None:
    created = world.server.get("pods", name, "default")
    old = to_text(world.api.clock.now() - 3600 * SECOND)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": old}
    created["status"] = {"phase": "Running", "startTime": old, "conditions": [ready]}
    world.server.put("pods", created)


def three_at_75(world: World) -> None:
    """A workload of three pods, each at 150 % of its target, of which one is not ready."""
    world.deploy("web", 750, 750, 750)
    starting(world, "web-2")
    world.autoscale("web")


def test_pod_that_becomes_ready_during_the_metrics_request_counts_as_ready() -> None:
    async def case(world: World) -> None:
        three_at_75(world)
        await decided(world, lambda: be_ready(world, "web-2"))
        assert world.replicas("web") == 5

    scenario(case)


def test_a_pod_that_stays_unready_holds_the_size() -> None:
    async def case(world: World) -> None:
        three_at_75(world)
        await decided(world, lambda: None)
        assert world.replicas("web") == 3

    scenario(case)


def test_pod_deleted_during_the_metrics_request_does_not_count() -> None:
    """Without the usage of the one that goes, the others are at their target."""

    async def case(world: World) -> None:
        world.deploy("web", 500, 500, 2000)
        world.autoscale("web")
        await decided(world, lambda: world.server.drop("pods", "web-2", "default"))
        assert world.replicas("web") == 3

    scenario(case)


def test_the_size_of_a_target_that_is_changed_meanwhile_is_decided_from_as_it_is() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 500, 500)
        world.autoscale("web")

        def grow() -> None:
            target = world.server.get("deployments.apps", "web", "default")
            target["spec"]["replicas"], target["status"]["replicas"] = 12, 12
            world.server.put("deployments.apps", target)

        await decided(world, grow)
        assert world.replicas("web") == 10  # its maximum
        assert world.server.get(HPAS, "web", "default")["status"]["currentReplicas"] == 12

    scenario(case)


def test_concurrent_status_write_does_not_conflict_with_the_resize() -> None:
    """The Deployment controller writes statuses all the time, right after the last resize above all."""

    async def case(world: World) -> None:
        names = [f"web{number}" for number in range(4)]
        for name in names:
            world.deploy(name, 900, 900)
            world.autoscale(name)
        answers: list[tuple[str, str, int]] = []
        answered = world.server.call

        async def call(call: Call) -> Answer:
            answer = await answered(call)
            answers.append((call.method, call.path.rpartition("/")[2], answer.status))
            return answer

        world.server.call = call

        def write_statuses() -> None:
            for name in names:
                target = world.server.get("deployments.apps", name, "default")
                target["status"]["observedGeneration"] = 7
                world.server.put("deployments.apps", target)

        await decided(world, write_statuses)
        assert [world.replicas(name) for name in names] == [4] * 4
        assert [status for method, _, status in answers if method == "PUT"] == [200] * 4
        assert [each for each in answers if each[2] == 409] == []

    scenario(case)


def test_an_hpa_that_is_deleted_meanwhile_changes_no_size() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")
        await decided(world, lambda: world.server.drop(HPAS, "web", "default"), seconds=20)
        assert world.replicas("web") == 2
        assert not [call for call in world.server.calls if call.method in ("PUT", "PATCH")]
        assert world.events() == []

    scenario(case)


def test_a_maximum_that_is_lowered_meanwhile_holds() -> None:
    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.autoscale("web")

        def lower() -> None:
            hpa = world.server.get(HPAS, "web", "default")
            hpa["spec"]["maxReplicas"] = 3
            hpa["metadata"]["generation"] = 2
            world.server.put(HPAS, hpa)

        await decided(world, lower)
        assert world.replicas("web") == 3
        assert [each for each in world.events() if each[0] == "SuccessfulRescale"] == [("SuccessfulRescale", "web")]

    scenario(case)


def test_hpa_with_a_changed_metric_uses_the_new_metric() -> None:
    """It has no answer of the old one, and is asked about anew at once; others are decided."""

    async def case(world: World) -> None:
        world.deploy("web", 900, 900)
        world.deploy("other", 900, 900)
        world.autoscale("web")
        world.autoscale("other")

        def exchange() -> None:
            by_backlog(world, "web")

        await decided(world, exchange, seconds=2 * SLOW + 2)
        assert world.replicas("other") == 4
        assert world.reasons("web")["ScalingActive"] == "FailedGetExternalMetric"

    scenario(case)


# -- a full period between decisions -----------------------------------------------------------------------------------


def writes(world: World, name: str) -> list[int]:
    """When the status of an HPA was written."""
    return [at for at, call in world.times if call.path.endswith(f"/{name}/status")]


def timed(world: World) -> None:
    """Note when each call is answered."""
    world.times = list[tuple[int, Call]]()
    original_call = world.server.call

    async def call(call: Call) -> Any:
        answer = await original_call(call)
        world.times.append((world.api.clock.now(), call))
        return answer

    world.server.call = call


def busy(world: World, count: int) -> None:
    """HPAs whose usage is another each time it is asked for, so that each writes its status each time."""
    for number in range(count):
        world.deploy(f"w{number}", 500)
        world.autoscale(f"w{number}")
    original_call = world.server.call

    async def call(call: Call) -> Any:
        if call.path.startswith("/apis/metrics.k8s.io/"):
            world.cpu = {name: 480 + (used + 7) % 40 for name, used in world.cpu.items()}
        return await original_call(call)

    world.server.call = call


@pytest.mark.parametrize("count", [1, 8, 120])
def test_an_hpa_is_decided_a_full_period_after_it_was_written(count: int) -> None:
    """With 20 requests a second the writes of many take seconds."""

    async def case(world: World) -> None:
        world.api.client = Client(world.server, world.api.clock, qps=20, burst=30)
        timed(world)
        busy(world, count)
        async with running(world):
            await asyncio.sleep(120)
        for number in range(count):
            steps = [later - earlier for earlier, later in pairwise(writes(world, f"w{number}"))]
            assert len(steps) >= 5
            assert min(steps) >= 15 * SECOND
            assert max(steps) <= 23 * SECOND  # writes of 120 take up to six seconds

    scenario(case)


def test_the_scale_of_many_is_written_without_waiting_for_statuses() -> None:
    """Scales, metrics and the rest have a rate limit each, as upstream's clients."""

    async def case(world: World) -> None:
        world.api.client = Client(world.server, world.api.clock, qps=20, burst=30)
        timed(world)
        for number in range(40):
            world.deploy(f"w{number}", 900)
            world.autoscale(f"w{number}")
        async with running(world):
            await asyncio.sleep(10)
        begun = min(at for at, call in world.times if call.path.endswith("/scale"))
        last = max(at for at, call in world.times if call.method == "PUT" and call.path.endswith("/scale"))
        assert last - begun <= 3 * SECOND  # 80 requests, 30 of them at once

    scenario(case)


def test_unrelated_writes_do_not_advance_the_next_round() -> None:
    """Annotations that somebody writes after each decision."""

    async def case(world: World) -> None:
        timed(world)
        busy(world, 3)
        async with running(world):
            for number in range(60):
                await asyncio.sleep(1)
                hpa = world.server.get(HPAS, "w0", "default")
                hpa["metadata"]["annotations"] = {"note": str(number)}
                world.server.put(HPAS, hpa)
        for name in ("w0", "w1", "w2"):
            assert min(later - earlier for earlier, later in pairwise(writes(world, name))) >= 15 * SECOND

    scenario(case)
