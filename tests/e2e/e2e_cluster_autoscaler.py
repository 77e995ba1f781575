"""``kscale run cluster-autoscaler`` as a whole process: a real control plane, a cloud behind gRPC, and an account that
may do what the manifests say and no more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane, Refused
from e2e.kubelet import FakeKubelet
from e2e.real_api import RealApi, cleared, connected
from e2e.rights import installed
from kscale.world.nodegroups.external_server import ExternalServer
from unit.world.writer_cases import deployment

FLAGS = (
    "--scan-interval=1s", "--scale-down-unneeded-time=4s", "--scale-down-delay-after-add=3s",
    "--node-delete-delay-after-taint=1s", "--address=127.0.0.1:0", "--log-format=json", "-v=4",
)  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("whole"), scheduler=True, controllers=True, audit=True) as plane:
        yield plane


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane) -> str:
    access = installed(plane, "cluster-autoscaler")
    path = plane.directory / "autoscaler.kubeconfig"
    path.write_text(json.dumps(plane.config(user={"token": access.token.reveal()})))
    return str(path)


class Autoscaler:
    """A process of its own; its log is in ``log``. ``environment``: further environment variables."""

    def __init__(
        self,
        kubeconfig: str,
        url: str,
        directory: Path,
        *flags: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        config = directory / "cloud.yaml"
        config.write_text(json.dumps({"address": url}))
        self.log = directory / "log"
        words = ("run", "cluster-autoscaler", "--cloud-provider=externalgrpc", f"--cloud-config={config}")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kscale", *words, f"--kubeconfig={kubeconfig}", *FLAGS, *flags],
                stderr=log,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )

    def output(self) -> str:
        return self.log.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)


def nodes(plane: ControlPlane) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = plane.ask("GET", "/api/v1/nodes")["items"]
    return result


def running(plane: ControlPlane) -> int:
    pods = plane.ask("GET", "/api/v1/namespaces/default/pods")["items"]
    return sum(each["status"].get("phase") == "Running" for each in pods)


async def holds(test: Any, autoscaler: Autoscaler, seconds: float = 60) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(test):
                assert autoscaler.process.poll() is None, autoscaler.output()[-3000:]
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(autoscaler.output()[-3000:]) from None


async def scaled(api: RealApi, replicas: int) -> None:
    await api.patch("deployments.apps", "web", {"spec": {"replicas": replicas}})


@pytest.mark.smoke
def test_from_one_node_to_three_and_back(plane: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=5))
    web = deployment("web", 1)
    web["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 1}
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m"}}

    async def main() -> None:
        async with connected(plane) as api:
            kubelet = asyncio.create_task(FakeKubelet(api.client, api.clock).run())
            await asyncio.to_thread(cloud.increase_size, "small", 1)
            cloud.calls.clear()
            await api.create("deployments.apps", web)
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                autoscaler = Autoscaler(kubeconfig, server.url, tmp_path)
                try:
                    await holds(lambda: running(plane) == 1, autoscaler)
                    await scaled(api, 3)
                    await holds(lambda: running(plane) == 3, autoscaler)
                    assert len(nodes(plane)) == 3
                    await scaled(api, 1)
                    await holds(lambda: len(nodes(plane)) == 1, autoscaler)
                    status = plane.ask("GET", "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status")
                    assert "autoscalerStatus: Running" in status["data"]["status"]
                    assert await asyncio.to_thread(autoscaler.end) == 0
                finally:
                    if autoscaler.process.poll() is None:
                        autoscaler.end(signal.SIGKILL)
            kubelet.cancel()
            await asyncio.wait([kubelet])
            output = autoscaler.output()
            assert " forbidden" not in output.lower(), output[-3000:]
            assert '"level": "error"' not in output, output[-3000:]

    asyncio.run(main())
    cloud.close()
    kinds = [call[0] for call in cloud.calls]
    assert kinds[0] == "IncreaseSize"
    assert sum(call[2] for call in cloud.calls if call[0] == "IncreaseSize") == 2
    assert sum(len(call) - 2 for call in cloud.calls if call[0] == "DeleteNodes") == 2
    with pytest.raises(Refused):
        plane.ask("GET", "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status")
    reasons = {each["reason"] for each in plane.ask("GET", "/api/v1/events")["items"]}
    assert {"TriggeredScaleUp", "ScaledUpGroup", "ScaleDown", "ScaleDownEmpty"} <= reasons
    lease = plane.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cluster-autoscaler")
    assert lease["spec"]["holderIdentity"]  # it is not given up, as upstream does not


EVICTS = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"


def daemon_set(name: str, evicts: str) -> dict[str, Any]:
    """Agents on each node, which say whether they are evicted from a node that goes; empty: they do not say."""
    labels = {"app": name}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "10m"}}}
    template = {
        "metadata": {"labels": labels, "annotations": {EVICTS: evicts} if evicts else {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def evictions(plane: ControlPlane) -> list[str]:
    """The pods whose eviction was granted, by the names of their owners."""
    return [
        entry["objectRef"]["name"].split("-")[0]
        for entry in plane.audit()
        if entry["objectRef"].get("subresource") == "eviction" and entry["responseStatus"]["code"] == 201
    ]


EMPTY, OCCUPIED = "--daemonset-eviction-for-empty-nodes", "--daemonset-eviction-for-occupied-nodes"


@pytest.mark.parametrize(
    ("workers", "flags", "expected"),
    [
        pytest.param(1, (), {"leaves"}, id="empty"),
        pytest.param(1, (f"{EMPTY}=true", f"{OCCUPIED}=false"), {"leaves", "silent"}, id="empty, flag on"),
        pytest.param(2, (), {"web", "leaves", "silent"}, id="drained"),
        pytest.param(2, (f"{EMPTY}=true", f"{OCCUPIED}=false"), {"web", "leaves"}, id="drained, flag off"),
    ],
)
def test_pods_of_daemon_sets_say_whether_they_are_evicted(
    plane: ControlPlane, kubeconfig: str, tmp_path: Path, workers: int, flags: tuple[str, ...], expected: set[str]
) -> None:
    """The annotation decides, and without it the flag for empty or for occupied nodes. Pods are evicted before their
    machine is deleted. One of two nodes goes: it is empty, or runs one of two workers."""
    cleared(plane)
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=5))
    web = deployment("web", workers)
    web["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 1}
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "600m"}}
    agents = [daemon_set("stays", "false"), daemon_set("leaves", "true"), daemon_set("silent", "")]
    before = len(evictions(plane))
    at_deletion: list[list[str]] = []

    def deleting(call: tuple[Any, ...]) -> str:
        if call[0] == "DeleteNodes":
            at_deletion.append(evictions(plane)[before:])
        return ""

    cloud.refuse = deleting

    async def main() -> None:
        async with connected(plane) as api:
            kubelet = asyncio.create_task(FakeKubelet(api.client, api.clock).run())
            try:
                await asyncio.to_thread(cloud.start, "small", 2)
                for agent in agents:
                    await api.create("daemonsets.apps", agent)
                await api.create("deployments.apps", web)
                async with asyncio.timeout(60):
                    while await asyncio.to_thread(running, plane) < 6 + workers:
                        await asyncio.sleep(0.1)
                with ExternalServer(cloud, "127.0.0.1:0") as server:
                    autoscaler = Autoscaler(kubeconfig, server.url, tmp_path, *flags)
                    try:
                        await holds(lambda: len(nodes(plane)) == 1, autoscaler)
                    finally:
                        autoscaler.end(signal.SIGKILL)
            finally:
                kubelet.cancel()
                await asyncio.wait([kubelet])
                cloud.close()

    asyncio.run(main())
    (evicted,) = at_deletion
    assert sorted(evicted) == sorted(expected)
    assert evictions(plane)[before:] == evicted
