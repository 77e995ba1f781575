"""The horizontal pod autoscaler beside a metrics API that takes its time: it decides from pods as they are once the
answers have come, and again no sooner than a full sync period later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

from e2e.control_plane import ControlPlane
from e2e.e2e_horizontal import CPU, DEPLOYMENTS, HPAS, METRICS, NAMESPACE, Scene, ago, holds, process, serves
from e2e.metrics_server import FakeMetrics
from e2e.real_api import MERGE, connected
from kscale.hpa.options import HPAOptions
from unit.world.informer_cases import pod

SLOW = 1.5
PODS = f"/api/v1{NAMESPACE}/pods"


class SlowMetrics(FakeMetrics):
    """It tells usage as it was when it was asked, and that later."""

    async def _list(self, path: str, selector: str) -> bytes:
        found = await super()._list(path, selector)
        await asyncio.sleep(SLOW)
        return found


def put_pod(plane: ControlPlane, name: str, *, ready: bool, exists: bool = False) -> None:
    if not exists:
        made = pod(name, node="n", app=name.rpartition("-")[0])
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        plane.ask("POST", PODS, made)
    since = ago(3000 if ready else 0)
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    told = {"phase": "Running", "startTime": ago(3600) if ready else since, "conditions": [condition]}
    plane.ask("PATCH", f"{PODS}/{name}/status", {"status": told}, content_type=MERGE)


def running(plane: ControlPlane, scene: Scene, case: Callable[[FakeMetrics], Awaitable[None]], period: float) -> None:
    """Run a case while our controller runs with a sync period of so many seconds."""
    options = HPAOptions(horizontal_pod_autoscaler_sync_period=timedelta(seconds=period))

    async def main() -> None:
        async with SlowMetrics(plane, scene.usage) as metrics:
            metrics.now = lambda: ago(0)
            await holds(lambda: serves(plane, METRICS))
            stop = asyncio.Event()
            async with connected(plane) as api:
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


def test_a_pod_that_becomes_ready_while_metrics_are_asked_for_counts(plane: ControlPlane) -> None:
    """Three pods at 150 % of their target, one of which is not ready when the question is asked: with it the size is
    five, without it three."""
    scene = Scene(plane)
    scene.usage = lambda of, container: {"cpu": "750m"}  # type: ignore[method-assign]
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


def test_there_is_a_full_period_between_two_decisions(plane: ControlPlane) -> None:
    """Eight HPAs whose usage changes all the time: each writes its status after each decision."""
    scene = Scene(plane)
    used = {"web": 480}

    def usage(of: dict[str, Any], container: str) -> dict[str, str]:
        used["web"] = 480 + (used["web"] + 7) % 40
        return {"cpu": f"{used['web']}m"}

    scene.usage = usage  # type: ignore[method-assign]
    names = [f"web{number}" for number in range(8)]
    for name in names:
        scene.target(name, 2, "/apis/apps/v1", "deployments", "Deployment")
    written: dict[str, list[float]] = {name: [] for name in names}
    seen: dict[str, Any] = {}

    def look() -> bool:
        for hpa in plane.ask("GET", HPAS)["items"]:
            name, status = hpa["metadata"]["name"], hpa.get("status")
            if status and seen.get(name) != status:
                seen[name] = status
                written[name].append(time.monotonic())
        return all(len(times) >= 5 for times in written.values())

    async def case(metrics: FakeMetrics) -> None:
        for name in names:
            await asyncio.to_thread(hpa_of, scene, name)
        await holds(look)

    running(plane, scene, case, 4)
    for times in written.values():
        assert min(later - earlier for earlier, later in list(pairwise(times))[1:]) >= 4 - 0.5  # looked at now and then
