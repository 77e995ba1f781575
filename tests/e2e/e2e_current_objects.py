"""The horizontal pod autoscaler beside a metrics API that takes its time: it decides from pods as they are once the
answers have come, and again no sooner than a full sync period later."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from e2e.control_plane import ControlPlane
from e2e.e2e_horizontal import CPU, DEPLOYMENTS, HPAS, METRICS, NAMESPACE, Scene, ago, holds, process, serves
from e2e.metrics_server import FakeMetrics
from e2e.real_api import MERGE, cleared, connected
from kscale.hpa.options import HPAOptions
from unit.world.informer_cases import pod

SLOW = 1.5
PODS = f"/api/v1{NAMESPACE}/pods"


class SlowMetrics(FakeMetrics):
    """It tells usage as it was when it was asked, and that later."""

    async def _list(self, path: str, selector: str) -> bytes:
        result = await super()._list(path, selector)
        await asyncio.sleep(SLOW)
        return result


def put_pod(plane: ControlPlane, name: str, *, ready: bool, exists: bool = False) -> None:
    if not exists:
        created = pod(name, node="n", app=name.rpartition("-")[0])
        created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        plane.ask("POST", PODS, created)
    since = ago(3000 if ready else 0)
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    status = {"phase": "Running", "startTime": ago(3600) if ready else since, "conditions": [condition]}
    plane.ask("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=MERGE)


def running(
    plane: ControlPlane,
    scene: Scene,
    case: Callable[[FakeMetrics], Awaitable[None]],
    period: float,
    **limits: Any,
) -> None:
    """Run a case while our controller runs with a sync period of so many seconds, and ``limits`` of its client."""
    options = HPAOptions(horizontal_pod_autoscaler_sync_period=timedelta(seconds=period))

    async def main() -> None:
        async with SlowMetrics(plane, scene.usage) as metrics:
            metrics.now = lambda: ago(0)
            await holds(lambda: serves(plane, METRICS))
            stop = asyncio.Event()
            async with connected(plane, **limits) as api:
                task = asyncio.create_task(process(api, options, stop))
                try:
                    await case(metrics)
                finally:
                    stop.set()
                    await task

    asyncio.run(main())


def hpa_of(scene: Scene, name: str) -> None:
    scene.hpa(name, {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, {"metrics": [CPU]})


def size_of(plane: ControlPlane, name: str) -> int:
    return int(plane.ask("GET", f"{DEPLOYMENTS}/{name}")["spec"]["replicas"])


def test_pod_that_becomes_ready_during_the_metrics_request_counts(plane: ControlPlane) -> None:
    """Three pods at 150 % of their target, one of which is not ready when the question is asked: with it the size is
    five, without it three."""
    scene = Scene(plane)
    scene.usage = lambda of, container: {"cpu": "750m"}
    scene.target("web", 3, "/apis/apps/v1", "deployments", "Deployment")
    put_pod(plane, "web-2", ready=False)

    async def case(metrics: FakeMetrics) -> None:
        await asyncio.to_thread(hpa_of, scene, "web")
        async with asyncio.timeout(30):
            while not metrics.listed:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(put_pod, plane, "web-2", ready=True, exists=True)
        await holds(lambda: (plane.ask("GET", f"{HPAS}/web").get("status") or {}).get("desiredReplicas", 0) > 0)
        assert await asyncio.to_thread(size_of, plane, "web") == 5

    running(plane, scene, case, 60)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("audited"), audit=True) as plane:
        yield plane


def writes(plane: ControlPlane) -> list[tuple[str, datetime, int]]:
    """The statuses of HPAs that were written: name, when the API server received it, and the code of its answer."""
    return [
        (entry["objectRef"]["name"], datetime.fromisoformat(entry["requestReceivedTimestamp"]),
         entry["responseStatus"]["code"])
        for entry in plane.audit()
        if entry["objectRef"]["resource"] == "horizontalpodautoscalers" and entry["verb"] == "patch"
        and entry["objectRef"].get("subresource") == "status"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "period", "limits"),
    [
        pytest.param(8, 4, {}, id="8 HPAs"),
        pytest.param(40, 5, {"qps": 20.0, "burst": 1}, id="40 HPAs, 20 requests a second"),
    ],
)
def test_there_is_a_full_period_between_two_decisions(
    audited: ControlPlane, count: int, period: int, limits: dict[str, Any]
) -> None:
    """HPAs whose usage changes all the time: each writes its status after each decision. Where requests are limited,
    those writes go on for most of a period; none of them meets a newer version of its HPA."""
    plane = audited
    cleared(plane)
    scene = Scene(plane)
    used = itertools.cycle(range(480, 517))  # a prime number: never the same again for the pods of one HPA

    def usage(of: dict[str, Any], container: str) -> dict[str, str]:
        return {"cpu": f"{next(used)}m"}

    scene.usage = usage
    names = [f"web{number}" for number in range(count)]
    for name in names:
        scene.target(name, 2, "/apis/apps/v1", "deployments", "Deployment")
    before = len(writes(plane))

    async def case(metrics: FakeMetrics) -> None:
        for name in names:
            await asyncio.to_thread(hpa_of, scene, name)
        async with asyncio.timeout(300):
            while len(await asyncio.to_thread(writes, plane)) < before + 5 * count:
                await asyncio.sleep(0.5)

    running(plane, scene, case, period, **limits)
    written = writes(plane)[before:]
    assert {name for name, _, _ in written} == set(names)
    assert Counter(code for _, _, code in written).keys() == {200}
    for name in names:
        times = [time for each, time, _ in written if each == name]
        assert min((later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)) >= period
