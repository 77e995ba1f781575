"""The three programs of the VPA against the real API server, with no more rights than their pages name: what is
measured becomes a recommendation, pods that are far from it are resized, and a new pod is patched by the webhook."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from msgspec.structs import replace

from e2e.control_plane import ControlPlane, Refused, free_ports
from e2e.metrics_server import FakeMetrics
from e2e.real_api import connected
from e2e.rights import installed
from kscale.drivers.manifests.autoscalers import vpa_definitions
from kscale.drivers.process import Build, ProcessOptions
from kscale.drivers.process import run_process as run
from kscale.drivers.vpa_admission import Serving, admission_program
from kscale.drivers.vpa_recommender import recommender_program
from kscale.drivers.vpa_registration import RegistrationOptions
from kscale.drivers.vpa_updater import updater_program
from kscale.vpa.options import AdmissionOptions, RecommenderOptions, UpdaterOptions
from kscale.world.clock import SystemClock
from kscale.world.serve.app import Server
from kscale.world.serve.tls import ReloadingContext
from unit.world.informer_cases import pod

NAMESPACE = "/namespaces/default"
VPAS = f"/apis/autoscaling.k8s.io/v1{NAMESPACE}/verticalpodautoscalers"
CHECKPOINTS = f"/apis/autoscaling.k8s.io/v1{NAMESPACE}/verticalpodautoscalercheckpoints"
PODS = f"/api/v1{NAMESPACE}/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/vpa-admission-controller"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("vpa")) as plane:
        plane.define(*vpa_definitions())
        yield plane


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def owned(name: str, uid: str) -> dict[str, Any]:
    created = pod(name, node="n", app="web")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
    created["metadata"]["ownerReferences"] = [owner]
    created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": "50Mi"}}
    return created


def scene(plane: ControlPlane) -> str:
    """A replica set of two, and a VPA over it; gives the set's UID."""
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod("t")["spec"]},
    }
    created = plane.ask("POST", f"/apis/apps/v1{NAMESPACE}/replicasets", {"metadata": {"name": "web"}, "spec": spec})
    uid: str = created["metadata"]["uid"]
    plane.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    offered = {"cpu": "8", "memory": "32Gi", "pods": "100"}
    status_patch: dict[str, Any] = {"status": {"capacity": offered, "allocatable": offered}}
    plane.ask("PATCH", "/api/v1/nodes/n/status", status_patch, content_type="application/merge-patch+json")
    for i in range(2):
        plane.ask("POST", PODS, owned(f"web-{i}", uid))
        status_patch = {"status": {"phase": "Running", "startTime": now()}}
        plane.ask("PATCH", f"{PODS}/web-{i}/status", status_patch, content_type="application/merge-patch+json")
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    body = {
        "kind": "VerticalPodAutoscaler",
        "apiVersion": "autoscaling.k8s.io/v1",
        "metadata": {"name": "web"},
        "spec": {"targetRef": target, "updatePolicy": {"updateMode": "InPlaceOrRecreate"}},
    }
    plane.ask("POST", VPAS, body)
    return uid


async def holds(what: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(what):
            await asyncio.sleep(0.2)


def test_from_usage_to_pods(cluster: ControlPlane, tmp_path: Path) -> None:
    plane = cluster
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    tls = ReloadingContext(str(tmp_path / "cert"), str(tmp_path / "key"))
    second = timedelta(seconds=1)

    async def main() -> None:
        servers: asyncio.Queue[Server] = asyncio.Queue()
        stop = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async with contextlib.AsyncExitStack() as stack:

            async def begin(name: str, build: Build) -> None:
                access = await asyncio.to_thread(installed, plane, name)
                api = await stack.enter_async_context(connected(plane, replace(access, namespace="default")))
                one = run(build, api.client, ProcessOptions(), version="1", stop=stop, clock=SystemClock())
                tasks.append(asyncio.create_task(one, name=name))

            def going_on() -> None:
                for task in tasks:
                    if task.done():
                        task.result()

            def container(name: str) -> dict[str, Any]:
                going_on()
                result: dict[str, Any] = plane.ask("GET", f"{PODS}/{name}")["spec"]["containers"][0]
                return result

            def targets() -> list[dict[str, str]]:
                going_on()
                status = plane.ask("GET", f"{VPAS}/web").get("status") or {}
                items = (status.get("recommendation") or {}).get("containerRecommendations") or []
                return [each["target"] for each in items]

            metrics = await stack.enter_async_context(FakeMetrics(plane, lambda *_: {"cpu": "700m", "memory": "600Mi"}))
            metrics.now = now
            uid = await asyncio.to_thread(scene, plane)
            try:
                recommending = RecommenderOptions(recommender_interval=second)
                await begin("vpa-recommender", partial(recommender_program, options=recommending))
                await holds(lambda: bool(targets()) and targets()[0]["cpu"] != "25m")
                (result,) = await asyncio.to_thread(targets)
                assert int(result["cpu"].removesuffix("m")) > 700
                assert int(result["memory"]) > 600 * 2**20
                await holds(lambda: names(plane, CHECKPOINTS) == ["web-c"])

                # There is no network of services here: by URL.
                admission = AdmissionOptions(status_lease_update_interval=second)
                (port,) = free_ports(1)
                registration = RegistrationOptions(
                    register_by_url=True, webhook_address="https://127.0.0.1", webhook_port=str(port)
                )
                serving = Serving(address=f"127.0.0.1:{port}", tls=tls, served=servers.put_nowait)
                build = partial(
                    admission_program,
                    options=admission,
                    registration=registration,
                    serving=serving,
                    holder="here",
                    ca=authority.cert_pem.bytes,
                )
                await begin("vpa-admission", build)
                async with asyncio.timeout(30):
                    await servers.get()
                await holds(lambda: "renewTime" in lease(plane))
                await asyncio.to_thread(plane.ask, "POST", PODS, owned("web-new", uid))
                created = await asyncio.to_thread(container, "web-new")
                assert created["resources"]["requests"]["cpu"] == result["cpu"]
                marks = (await asyncio.to_thread(plane.ask, "GET", f"{PODS}/web-new"))["metadata"]["annotations"]
                assert marks["vpaObservedContainers"] == "c"
                assert marks["vpaUpdates"].startswith("Pod resources updated by web: container 0: ")

                updating = UpdaterOptions(updater_interval=second)
                await begin("vpa-updater", partial(updater_program, options=updating))
                await holds(
                    lambda: (
                        container("web-0")["resources"]["requests"]["cpu"] != "100m"
                        or container("web-1")["resources"]["requests"]["cpu"] != "100m"
                    )
                )
                reasons = f"/api/v1{NAMESPACE}/events"
                await holds(lambda: "InPlaceResizedByVPA" in {e["reason"] for e in plane.ask("GET", reasons)["items"]})
            finally:
                stop.set()
                await asyncio.gather(*tasks)

    asyncio.run(main())


def names(plane: ControlPlane, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in plane.ask("GET", path)["items"]]


def lease(plane: ControlPlane) -> dict[str, Any]:
    with contextlib.suppress(Refused):  # it is not there yet
        return dict(plane.ask("GET", LEASE)["spec"])
    return {}


def test_the_updater_of_2020_evicts_by_itself(cluster: ControlPlane) -> None:
    """No admission controller lives here, and it does not look for one."""
    plane = cluster
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "old"}},
        "template": {"metadata": {"labels": {"app": "old"}}, "spec": pod("t")["spec"]},
    }
    created = plane.ask("POST", f"/apis/apps/v1{NAMESPACE}/replicasets", {"metadata": {"name": "old"}, "spec": spec})
    for i in range(2):
        body = owned(f"old-{i}", created["metadata"]["uid"])
        body["metadata"]["labels"] = {"app": "old"}
        body["metadata"]["ownerReferences"][0]["name"] = "old"
        plane.ask("POST", PODS, body)
        status: dict[str, Any] = {"status": {"phase": "Running", "startTime": now()}}
        plane.ask("PATCH", f"{PODS}/old-{i}/status", status, content_type="application/merge-patch+json")
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "old"}
    plane.ask(
        "POST",
        VPAS,
        {
            "kind": "VerticalPodAutoscaler",
            "apiVersion": "autoscaling.k8s.io/v1",
            "metadata": {"name": "old"},
            "spec": {"targetRef": target, "updatePolicy": {"updateMode": "Recreate"}},
        },
    )
    bounds = {name: {"cpu": "2"} for name in ("target", "lowerBound", "upperBound")}
    recommended = {"recommendation": {"containerRecommendations": [{"containerName": "c", **bounds}]}}
    plane.ask("PATCH", f"{VPAS}/old/status", {"status": recommended}, content_type="application/merge-patch+json")

    def remaining_pods() -> list[str]:
        return [
            name
            for name in names(plane, PODS)
            if name.startswith("old-") and "deletionTimestamp" not in plane.ask("GET", f"{PODS}/{name}")["metadata"]
        ]

    async def main() -> None:
        stop = asyncio.Event()
        options = UpdaterOptions(profile="legacy", updater_interval=timedelta(seconds=1))
        access = await asyncio.to_thread(installed, plane, "vpa-updater", name="vpa-updater-2020")
        async with connected(plane, replace(access, namespace="default")) as api:
            build = partial(updater_program, options=options)
            running = asyncio.create_task(
                run(build, api.client, ProcessOptions(), version="1", stop=stop, clock=SystemClock())
            )
            await holds(lambda: running.done() or len(remaining_pods()) == 1)
            stop.set()
            await running

    asyncio.run(main())
    told_by = {each["reason"]: each["message"] for each in plane.ask("GET", f"/api/v1{NAMESPACE}/events")["items"]}
    assert told_by["EvictedByVPA"] == "Pod was evicted by VPA Updater to apply resource recommendation."
