"""A custom resource whose number is the horizontal pod autoscaler's and whose memory is the vertical one's: four of our
programs, each with its own rights, at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane
from e2e.duel.programs import Player
from e2e.kubelet import FakeKubelet
from e2e.metrics_server import FakeMetrics
from e2e.real_api import MERGE, RealApi, connected
from e2e.widgets import DEFINITION, GROUP
from kscale.drivers.vpa_definitions import vpa_definitions
from kscale.effects import to_text

NAMESPACE = "/namespaces/default"
WIDGET = f"{GROUP}{NAMESPACE}/widgets/web"
SET = f"/apis/apps/v1{NAMESPACE}/replicasets/web"
HPA = f"/apis/autoscaling/v2{NAMESPACE}/horizontalpodautoscalers"
VPA = f"/apis/autoscaling.k8s.io/v1{NAMESPACE}/verticalpodautoscalers"
TARGET = {"apiVersion": "duel.example.com/v1", "kind": "Widget", "name": "web"}
LEAST = "262144000"  # of what is recommended


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path / "plane", scheduler=True, controllers=("replicaset-controller",)) as plane:
        plane.define(DEFINITION, *vpa_definitions())
        yield plane


def make(plane: ControlPlane) -> None:
    cloud = FakeCloud(plane, Machines("small", cpu="64", memory="256Gi"))
    cloud.start("small", 1)
    widget = plane.ask(
        "POST", f"{GROUP}{NAMESPACE}/widgets", {**TARGET, "metadata": {"name": "web"}, "spec": {"replicas": 2}}
    )
    owner = {**TARGET, "uid": widget["metadata"]["uid"], "controller": True}
    requests = {"cpu": "500m", "memory": "100Mi"}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
    }
    labels = {"app": "web"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": "web", "ownerReferences": [owner]}
    plane.ask("POST", SET.removesuffix("/web"), {"metadata": metadata, "spec": spec})
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    hpa = {
        "scaleTargetRef": TARGET,
        "minReplicas": 2,
        "maxReplicas": 4,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    plane.ask("POST", HPA, {"metadata": {"name": "web"}, "spec": hpa})
    policy = {"containerPolicies": [{"containerName": "c", "controlledResources": ["memory"]}]}
    vpa = {"targetRef": TARGET, "updatePolicy": {"updateMode": "Recreate"}, "resourcePolicy": policy}
    kind = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    plane.ask("POST", VPA, {**kind, "metadata": {"name": "web"}, "spec": vpa})


def follow(plane: ControlPlane) -> None:
    """What the operator of the custom resource does."""
    widget, replicas = plane.ask("GET", WIDGET), plane.ask("GET", SET)
    wanted = widget["spec"]["replicas"]
    if replicas["spec"]["replicas"] != wanted:
        plane.ask("PATCH", SET, {"spec": {"replicas": wanted}}, content_type=MERGE)
    status = {"replicas": replicas["status"].get("replicas", 0), "selector": "app=web"}
    if widget.get("status") != status:
        plane.ask("PATCH", f"{WIDGET}/status", {"status": status}, content_type=MERGE)


def requests(plane: ControlPlane) -> list[dict[str, str]]:
    """Of the pods that run."""
    items = plane.ask("GET", f"/api/v1{NAMESPACE}/pods")["items"]
    return [
        each["spec"]["containers"][0]["resources"]["requests"]
        for each in items
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    ]


def recommended(plane: ControlPlane) -> dict[str, str]:
    status = plane.ask("GET", f"{VPA}/web").get("status") or {}
    items = (status.get("recommendation") or {}).get("containerRecommendations") or [{"target": {}}]
    found: dict[str, str] = items[0]["target"]
    return found


def test_a_custom_resource_is_scaled_and_right_sized(plane: ControlPlane) -> None:
    players = {
        name: Player(name, plane, None, flags)
        for name, flags in (
            ("vpa-admission", ()), ("vpa-recommender", ()), ("vpa-updater", ()), ("horizontal", ()),
        )
    }  # fmt: skip

    async def operate() -> None:
        while True:
            await asyncio.to_thread(follow, plane)
            await asyncio.sleep(0.2)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not await asyncio.to_thread(holds):
                for player in players.values():
                    player.check()
                await asyncio.sleep(0.2)

    async def play(api: RealApi) -> None:
        players["vpa-admission"].start()
        players["vpa-recommender"].start()
        await until(lambda: recommended(plane).get("memory", LEAST) != LEAST)
        target = await asyncio.to_thread(recommended, plane)
        assert set(target) == {"memory"}
        assert int(target["memory"]) > 600 * 2**20
        assert {each["memory"] for each in await asyncio.to_thread(requests, plane)} == {"100Mi"}
        players["horizontal"].start()
        players["vpa-updater"].start()

        def settled() -> bool:
            found = requests(plane)
            return len(found) == 4 and {each["memory"] for each in found} == {recommended(plane)["memory"]}

        await until(settled)
        assert {each["cpu"] for each in await asyncio.to_thread(requests, plane)} == {"500m"}
        hpa = await asyncio.to_thread(plane.ask, "GET", f"{HPA}/web")
        assert hpa["status"]["desiredReplicas"] == 4
        assert (await asyncio.to_thread(plane.ask, "GET", WIDGET))["spec"]["replicas"] == 4

    async def main() -> None:
        async with (
            connected(plane) as api,
            FakeMetrics(plane, lambda *_: {"cpu": "450m", "memory": "600Mi"}) as metrics,
        ):
            metrics.now = lambda: to_text(api.clock.now())
            await asyncio.to_thread(make, plane)
            beside = [asyncio.create_task(FakeKubelet(api.client, api.clock).run()), asyncio.create_task(operate())]
            try:
                await play(api)
                for player in players.values():
                    await asyncio.to_thread(player.stop)
            finally:
                for player in players.values():
                    player.kill()
                for task in beside:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

    asyncio.run(main())
