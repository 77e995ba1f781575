"""Upstream's horizontal pod autoscaler and ours on the same scene, one after the other: the same sizes, conditions,
statuses and events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from e2e.control_plane import ControlPlane, Refused
from e2e.metrics_server import FakeMetrics
from e2e.real_api import MERGE, connected
from e2e.rights import installed
from e2e.widgets import DEFINITION, GROUP
from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS, HorizontalAutoscaler
from kscale.drivers.process import ProcessOptions, Program, ProgramContext, run_process
from kscale.hpa.options import HPAOptions
from kscale.world.metrics_apis import RESTMetrics
from unit.world.informer_cases import Api, pod

NAMESPACE = "/namespaces/default"
HPAS = f"/apis/autoscaling/v2{NAMESPACE}/horizontalpodautoscalers"
DEPLOYMENTS = f"/apis/apps/v1{NAMESPACE}/deployments"
METRICS = "/apis/metrics.k8s.io/v1beta1/pods"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
QPS = {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "1"}}}
LAG = {"type": "External", "external": {"metric": {"name": "lag"}, "target": {"type": "Value", "value": "1"}}}
UP = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}]}}
# name -> (size, cpu of each of two pods in milli, spec of the HPA)
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "grows": (2, 900, {"metrics": [CPU]}),
    "stays": (2, 500, {"metrics": [CPU]}),
    "held": (4, 100, {"metrics": [CPU]}),
    "limited": (2, 990, {"metrics": [CPU], "behavior": UP}),
    "half-known": (2, 900, {"metrics": [CPU, QPS]}),
    "half-known-down": (2, 100, {"metrics": [QPS, CPU]}),
    "unknown": (2, 900, {"metrics": [LAG]}),
    "too-small": (1, 500, {"metrics": [CPU], "minReplicas": 3}),
    "too-large": (9, 500, {"metrics": [CPU], "maxReplicas": 5}),
    "paused": (0, 500, {"metrics": [CPU]}),
}


def ago(seconds: int) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Scene:
    """What both find."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def make(self) -> None:
        ask = self.plane.ask
        for name, (size, _, spec) in CASES.items():
            self.target(name, size, "/apis/apps/v1", "deployments", "Deployment")
            self.hpa(name, {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, spec)
        self.target("widget", 2, GROUP, "widgets", "Widget")
        self.hpa(
            "widget", {"apiVersion": "duel.example.com/v1", "kind": "Widget", "name": "widget"}, {"metrics": [CPU]}
        )
        self.hpa("nowhere", {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nowhere"}, {"metrics": [CPU]})
        self.hpa("no-kind", {"apiVersion": "x.example.com/v1", "kind": "Odd", "name": "odd"}, {"metrics": [CPU]})
        self.target("of-v1", 2, "/apis/apps/v1", "deployments", "Deployment")
        self.hpa_of_v1("of-v1")
        assert len(ask("GET", HPAS)["items"]) == len(CASES) + 4

    def target(self, name: str, size: int, group: str, plural: str, kind: str) -> None:
        ask = self.plane.ask
        spec: dict[str, Any] = {"replicas": size, "selector": {"matchLabels": {"app": name}}}
        labels = {"metadata": {"labels": {"app": name}}}
        spec["template"] = {**labels, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        path = f"{group}{NAMESPACE}/{plural}"
        api_version = group.removeprefix("/apis/")
        ask("POST", path, {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
        status = {"replicas": size, "selector": f"app={name}"}
        ask("PATCH", f"{path}/{name}/status", {"status": status}, content_type=MERGE)
        for i in range(2):
            created = pod(f"{name}-{i}", node="n", app=name)
            created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
            ask("POST", f"/api/v1{NAMESPACE}/pods", created)
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": ago(3000)}
            pod_status = {"phase": "Running", "startTime": ago(3600), "conditions": [ready]}
            ask("PATCH", f"/api/v1{NAMESPACE}/pods/{name}-{i}/status", {"status": pod_status}, content_type=MERGE)

    def hpa(self, name: str, target: dict[str, Any], spec: dict[str, Any]) -> None:
        created = {"metadata": {"name": name}, "spec": {"maxReplicas": 10, **spec, "scaleTargetRef": target}}
        self.plane.ask("POST", HPAS, created)

    def hpa_of_v1(self, name: str) -> None:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "maxReplicas": 10, "targetCPUUtilizationPercentage": 50}
        self.plane.ask("POST", HPAS.replace("/v2/", "/v1/"), {"metadata": {"name": name}, "spec": spec})

    def clear(self) -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for path in (
            HPAS,
            DEPLOYMENTS,
            f"{GROUP}{NAMESPACE}/widgets",
            f"/api/v1{NAMESPACE}/pods",
            f"/api/v1{NAMESPACE}/events",
        ):
            self.plane.ask("DELETE", path, options)

    def usage(self, of: dict[str, Any], container: str) -> dict[str, str] | None:
        del container
        app = of["metadata"]["labels"]["app"]
        return {"cpu": f"{CASES[app][1] if app in CASES else 900}m"}

    def statuses(self) -> dict[str, Any]:
        """Return the status and size of each HPA, without times."""
        out = {}
        for hpa in self.plane.ask("GET", HPAS)["items"]:
            status = hpa.get("status") or {}
            for condition in status.get("conditions") or ():
                condition.pop("lastTransitionTime")
            out[hpa["metadata"]["name"]] = {**status, "lastScaleTime": "lastScaleTime" in status}
        return out

    def sizes(self) -> dict[str, int]:
        paths = (DEPLOYMENTS, f"{GROUP}{NAMESPACE}/widgets")
        items = [each for path in paths for each in self.plane.ask("GET", path)["items"]]
        return {each["metadata"]["name"]: each["spec"]["replicas"] for each in items}

    def events(self) -> set[tuple[str, str, str, str, str]]:
        """Of HPAs: the API server has its own of the Service ``kubernetes``, when it repairs its address."""
        return {
            (
                each["involvedObject"]["name"],
                each["type"],
                each["reason"],
                each["message"],
                each["source"]["component"],
            )
            for each in self.plane.ask("GET", f"/api/v1{NAMESPACE}/events")["items"]
            if each["involvedObject"]["kind"] == "HorizontalPodAutoscaler"
        }

    def all(self) -> tuple[dict[str, Any], dict[str, int], Any]:
        return self.statuses(), self.sizes(), self.events()

    async def settled(self) -> tuple[dict[str, Any], dict[str, int], Any]:
        """What there is once it has not changed for four syncs, and every HPA was looked at, also after it was resized
        (a machine that is slow may not come to that within four syncs)."""
        last: Any = None
        since = 0.0
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(150):
            while True:
                now = await asyncio.to_thread(self.all)
                statuses, sizes, _ = now
                done = all(each.get("conditions") for each in statuses.values())
                done = done and all(statuses[name].get("currentReplicas", 0) == size for name, size in sizes.items())
                if now != last or not done:
                    last, since = now, loop.time()
                elif loop.time() - since > 8:
                    return now
                await asyncio.sleep(0.5)


@pytest.fixture(scope="module")
def upstreams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of which nothing but the horizontal pod autoscaler runs."""
    controllers = ("horizontal-pod-autoscaler-controller",)
    with ControlPlane(tmp_path_factory.mktemp("duel"), controllers=controllers, audit=True) as plane:
        plane.define(DEFINITION)
        yield plane


def written_sizes(plane: ControlPlane, agent: str) -> set[tuple[str, int]]:
    """(object, size) of every scale that an agent wrote."""
    return {
        (each["objectRef"]["name"], each["requestObject"]["spec"]["replicas"])
        for each in plane.audit()
        if each["userAgent"].startswith(agent)
        and each["objectRef"].get("subresource") == "scale"
        and each["verb"] == "update"
    }


def test_the_same_as_upstream(upstreams: ControlPlane) -> None:
    scene = Scene(upstreams)

    async def main() -> None:
        async with FakeMetrics(upstreams, scene.usage) as metrics:
            metrics.now = lambda: ago(0)
            await holds(lambda: serves(upstreams, METRICS, f"{GROUP}/widgets"))
            await asyncio.to_thread(scene.make)
            theirs = await scene.settled()
            await asyncio.to_thread(upstreams.end, "controllers")
            await asyncio.to_thread(scene.clear)
            await holds(lambda: not upstreams.ask("GET", f"/api/v1{NAMESPACE}/pods")["items"])
            await asyncio.to_thread(scene.make)
            access = await asyncio.to_thread(installed, upstreams, "horizontal")
            async with connected(upstreams, replace(access, namespace="default")) as restricted:
                stop = asyncio.Event()
                options = HPAOptions(horizontal_pod_autoscaler_sync_period=timedelta(seconds=2))
                task = asyncio.create_task(process(restricted, options, stop))
                try:
                    ours = await scene.settled()
                finally:
                    stop.set()
                    await task
            for name, status in theirs[0].items():
                assert ours[0][name] == status, name
            assert ours[1] == theirs[1]
            assert ours[1]["grows"] == ours[1]["widget"] == ours[1]["of-v1"] == 4
            assert ours[2] == theirs[2]

    asyncio.run(main())
    assert written_sizes(upstreams, "kscale-e2e") == written_sizes(upstreams, "kube-controller-manager")


def test_the_legacy_controller(plane: ControlPlane) -> None:
    """It writes by autoscaling/v1; the API server keeps what it says as conditions and metrics of v2."""
    scene = Scene(plane)
    size, _, spec = CASES["grows"]
    options = HPAOptions(profile="legacy", horizontal_pod_autoscaler_sync_period=timedelta(seconds=2))

    async def main() -> dict[str, Any]:
        async with FakeMetrics(plane, scene.usage) as metrics:
            metrics.now = lambda: ago(0)
            await holds(lambda: serves(plane, METRICS))
            await asyncio.to_thread(scene.target, "grows", size, "/apis/apps/v1", "deployments", "Deployment")
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "grows"}
            await asyncio.to_thread(scene.hpa, "grows", target, spec)
            access = await asyncio.to_thread(installed, plane, "horizontal", name="legacy")
            async with connected(plane, replace(access, namespace="default")) as restricted:
                stop = asyncio.Event()
                task = asyncio.create_task(process(restricted, options, stop))
                try:
                    path = f"{HPAS}/grows"
                    await holds(lambda: (plane.ask("GET", path).get("status") or {}).get("currentReplicas") == size)
                finally:
                    stop.set()
                    await task
            result: dict[str, Any] = plane.ask("GET", path)
            return result

    hpa = asyncio.run(main())
    status = hpa["status"]
    assert (status["desiredReplicas"], plane.ask("GET", f"{DEPLOYMENTS}/grows")["spec"]["replicas"]) == (4, 4)
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "AbleToScale": "True", "ScalingActive": "True", "ScalingLimited": "False"
    }  # fmt: skip
    assert [each["resource"]["name"] for each in status["currentMetrics"]] == ["cpu"]
    assert "annotations" not in hpa["metadata"]


def test_upstreams_is_left_alone_while_it_writes_and_relieved_when_it_ends(tmp_path: Path) -> None:
    """Usage changes all the time, so that whoever works writes a status each sync."""
    controllers = ("horizontal-pod-autoscaler-controller",)
    options = HPAOptions(horizontal_pod_autoscaler_sync_period=timedelta(seconds=2))

    async def main(plane: ControlPlane) -> None:
        scene = Scene(plane)

        def writers() -> list[str]:
            fields = plane.ask("GET", f"{HPAS}/stays")["metadata"]["managedFields"]
            return sorted(each["manager"] for each in fields if each.get("subresource") == "status")

        def usage(of: dict[str, Any], container: str) -> dict[str, str]:
            del of, container
            return {"cpu": f"{500 + datetime.now(UTC).second % 20}m"}

        async with FakeMetrics(plane, usage) as metrics:
            metrics.now = lambda: ago(0)
            await holds(lambda: serves(plane, METRICS))
            await asyncio.to_thread(scene.target, "stays", 2, "/apis/apps/v1", "deployments", "Deployment")
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "stays"}
            await asyncio.to_thread(scene.hpa, "stays", target, {"metrics": [CPU]})
            await holds(lambda: writers() == ["kube-controller-manager"])
            access = await asyncio.to_thread(installed, plane, "horizontal")
            async with connected(plane, replace(access, namespace="default")) as restricted:
                stop = asyncio.Event()
                contexts: list[ProgramContext] = []
                task = asyncio.create_task(process(restricted, options, stop, contexts))
                try:
                    await holds(
                        lambda: bool(contexts) and contexts[0].metrics.value("kscale_horizontal_left_alone") == 1
                    )
                    await asyncio.sleep(10)  # longer than it waits for one that has gone
                    assert contexts[0].metrics.value("kscale_horizontal_left_alone") == 1
                    assert "kscale-e2e" not in await asyncio.to_thread(writers)
                    await asyncio.to_thread(plane.end, "controllers")
                    await holds(lambda: "kscale-e2e" in writers())
                    assert contexts[0].metrics.value("kscale_horizontal_left_alone") == 0
                finally:
                    stop.set()
                    await task

    with ControlPlane(tmp_path, controllers=controllers) as plane:
        asyncio.run(main(plane))


async def holds(test: Callable[[], bool]) -> None:
    """Until it is so. The metrics server answers on this loop: nothing else may hold it up."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(test):
            await asyncio.sleep(0.2)


def serves(plane: ControlPlane, *paths: str) -> bool:
    with contextlib.suppress(Refused):
        for path in paths:
            plane.ask("GET", path)
        return True
    return False


async def process(
    api: Api, options: HPAOptions, stop: asyncio.Event, contexts: list[ProgramContext] | None = None
) -> None:
    """Ours, until it is told to stop; ``contexts`` gets what it has around it."""

    def build(around: ProgramContext) -> Program:
        if contexts is not None:
            contexts.append(around)
        return Program(
            driver=HorizontalAutoscaler(options, manager="kscale-e2e"),
            metrics=HORIZONTAL_METRICS,
            source=RESTMetrics(around.client, around.resources, around.steady, renewal=timedelta(seconds=2)),
        )

    await run_process(build, api.client, ProcessOptions(), version="1", stop=stop, clock=api.clock)
