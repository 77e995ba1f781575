"""``kscale run cluster-autoscaler --profile legacy`` as a whole process: release 1.3's loop on a real control plane."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane, Refused, free_ports
from e2e.e2e_cluster_autoscaler import Autoscaler, holds, nodes, running
from e2e.kubelet import FakeKubelet
from e2e.real_api import RealApi, cleared, connected
from e2e.rights import installed
from kscale.world.nodegroups.external_server import ExternalServer
from unit.world.writer_cases import deployment

FLAGS = ("--profile=legacy", "--scan-interval=1s", "--scale-down-unneeded-time=4s", "--scale-down-delay-after-add=3s",
         "--scale-down-delay-after-delete=1s", "--scale-down-delay-after-failure=1s",
         "--log-format=json", "-v=4")  # fmt: skip
STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cluster-autoscaler"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("legacy"), scheduler=True, controllers=True) as plane:
        yield plane


@pytest.fixture(scope="module")
def account(whole: ControlPlane) -> str:
    """The kubeconfig of an account with the rights that ``kscale manifests`` gives."""
    access = installed(whole, "cluster-autoscaler")
    path = whole.directory / "autoscaler.kubeconfig"
    path.write_text(json.dumps(whole.config(user={"token": access.token.reveal()})))
    return str(path)


@pytest.fixture
def kubeconfig(whole: ControlPlane, account: str) -> str:
    """That of the account, in a cluster without anything."""
    cleared(whole)
    return account


class Process(Autoscaler):
    """One process of release 1.3."""

    def __init__(self, kubeconfig: str, url: str, directory: Path, *flags: str) -> None:
        config = directory / "cloud.yaml"
        config.write_text(json.dumps({"address": url}))
        self.log = directory / "log"
        (self.port,) = free_ports(1)
        address = f"--address=127.0.0.1:{self.port}"
        words = ("run", "cluster-autoscaler", "--cloud-provider=externalgrpc", f"--cloud-config={config}")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kscale", *words, f"--kubeconfig={kubeconfig}", address, *FLAGS, *flags],
                env={**os.environ, "HOSTNAME": directory.name},  # the name by which it would lead
                stderr=log,
                stdout=subprocess.DEVNULL,
            )

    def served(self, path: str) -> str:
        """What the process serves under a path; the status where it is not 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                body: bytes = answer.read()
                return body.decode()
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"


def status(plane: ControlPlane) -> str:
    try:
        return str(plane.ask("GET", STATUS)["data"]["status"])
    except Refused:
        return ""


def reasons(plane: ControlPlane) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in plane.ask("GET", "/api/v1/events")["items"]:
        found.setdefault(each["reason"], []).append(each["message"])
    return found


def web(cpu: str = "1500m") -> dict[str, Any]:
    made = deployment("web", 1)
    made["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 1}
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


@asynccontextmanager
async def cluster(plane: ControlPlane, cloud: FakeCloud, count: int, group: str = "small") -> AsyncIterator[RealApi]:
    async with connected(plane) as api:
        kubelet = asyncio.create_task(FakeKubelet(api.client, api.clock).run())
        await asyncio.to_thread(cloud.start, group, count)
        try:
            yield api
        finally:
            kubelet.cancel()
            await asyncio.wait([kubelet])
            cloud.close()


@pytest.mark.smoke
@pytest.mark.parametrize("estimator", ["binpacking", "basic"])
def test_both_estimators_scale_up_and_nodes_go(
    whole: ControlPlane, kubeconfig: str, tmp_path: Path, estimator: str
) -> None:
    """Empty nodes while the loop waits; a node with a pod in the background; metrics and health meanwhile."""
    cloud = FakeCloud(whole, Machines("small", cpu="2", least=1, most=5))

    async def main() -> None:
        async with cluster(whole, cloud, 1) as api:
            await api.create("deployments.apps", web())
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                process = Process(kubeconfig, server.url, tmp_path, f"--estimator={estimator}")
                try:
                    await holds(lambda: running(whole) == 1, process)
                    await holds(lambda: "Cluster-wide:\n  Health:      Healthy (ready=1" in status(whole), process)
                    await api.patch("deployments.apps", "web", {"spec": {"replicas": 3}})
                    await holds(lambda: running(whole) == 3, process)
                    assert len(nodes(whole)) == 3
                    await api.patch("deployments.apps", "web", {"spec": {"replicas": 1}})
                    await holds(lambda: len(nodes(whole)) == 1, process)
                    assert whole.ask("GET", LEASE)["spec"]["holderIdentity"]
                    said = process.said()
                    assert "Final scale-up plan: [{small 1->3 (max: 5)}]" in said
                    assert "Scale down status: unneededOnly=" in said
                    assert await asyncio.to_thread(process.end) == 0
                    assert status(whole) == ""
                finally:
                    if process.process.poll() is None:
                        process.end(signal.SIGKILL)

    asyncio.run(main())
    assert ("IncreaseSize", "small", 2) in cloud.calls
    assert sum(len(call) - 2 for call in cloud.calls if call[0] == "DeleteNodes") == 2
    told = reasons(whole)
    assert "Scale-up: group small size set to 3" in told["ScaledUpGroup"]
    assert {"TriggeredScaleUp", "ScaleDownEmpty"} <= told.keys()


def test_a_node_with_a_pod_is_drained(whole: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    cloud = FakeCloud(whole, Machines("small", cpu="2", least=1, most=5))

    async def main() -> None:
        async with cluster(whole, cloud, 2) as api:
            made = web("600m")
            made["spec"]["replicas"] = 2
            made["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": made["spec"]["selector"],
                }
            ]
            await api.create("deployments.apps", made)
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                process = Process(kubeconfig, server.url, tmp_path)
                try:
                    await holds(lambda: running(whole) == 2, process)
                    await holds(lambda: len(nodes(whole)) == 1, process)
                    await holds(lambda: running(whole) == 2, process)
                    assert await asyncio.to_thread(process.end) == 0
                finally:
                    if process.process.poll() is None:
                        process.end(signal.SIGKILL)

    asyncio.run(main())
    (told,) = [text for text in reasons(whole)["ScaleDown"] if text.startswith("Scale-down: removing node")]
    assert ", utilization: 0.3, pods to reschedule: default/web-" in told


def test_a_machine_that_never_registers_is_removed(whole: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    cloud = FakeCloud(whole, Machines("small", cpu="2", least=1, most=5, registers=False))

    async def main() -> None:
        async with cluster(whole, cloud, 1) as api:
            made = web()
            made["spec"]["replicas"] = 2
            await api.create("deployments.apps", made)
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                process = Process(kubeconfig, server.url, tmp_path, "--max-node-provision-time=6s")
                try:
                    await holds(lambda: ("DeleteNodes", "small", "small-1") in cloud.calls, process)
                    await holds(lambda: "removed, skipping iteration" in process.said(), process)
                finally:
                    process.end(signal.SIGKILL)

    asyncio.run(main())
    assert ("IncreaseSize", "small", 1) in cloud.calls
    assert "Removing unregistered node fake:///small-1" in reasons(whole)["DeleteUnregistered"]


def test_an_unhealthy_cluster_is_left_alone(whole: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    """Four of five nodes are not ready, which is more than it goes on with."""
    cloud = FakeCloud(whole, Machines("small", cpu="2", least=0, most=9))

    async def main() -> None:
        async with cluster(whole, cloud, 1) as api:
            for made in cloud.made("small", 4):
                made["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
                await asyncio.to_thread(whole.ask, "POST", "/api/v1/nodes", made)
            made = web()
            made["spec"]["replicas"] = 3
            await api.create("deployments.apps", made)
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                process = Process(kubeconfig, server.url, tmp_path, "--ok-total-unready-count=0")
                try:
                    await holds(lambda: "Health:      Unhealthy (ready=1 " in status(whole), process, 180)
                    await holds(lambda: "ClusterUnhealthy" in reasons(whole), process)
                finally:
                    process.end(signal.SIGKILL)

    asyncio.run(main())
    assert cloud.calls == []


def test_one_of_two_leads_and_serves_its_metrics(whole: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    cloud = FakeCloud(whole, Machines("small", cpu="2", least=1, most=5))
    lease = ("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s")

    async def main() -> None:
        async with cluster(whole, cloud, 1):
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                folders = [tmp_path / name for name in ("one", "two")]
                for folder in folders:
                    folder.mkdir()
                one = Process(kubeconfig, server.url, folders[0], *lease)
                two = None
                try:
                    await holds(lambda: "Cluster-wide:" in status(whole), one)
                    text = await asyncio.to_thread(one.served, "/metrics")
                    assert "\ncluster_autoscaler_nap_enabled 0.0\n" in text
                    assert 'cluster_autoscaler_nodes_count{state="ready"} 1.0' in text
                    assert "cluster_autoscaler_cpu_limits_cores" not in text
                    assert await asyncio.to_thread(one.served, "/health-check") == "OK"
                    two = Process(kubeconfig, server.url, folders[1], *lease)
                    await asyncio.sleep(3)
                    assert "Cluster-wide" not in two.said()
                    one.end(signal.SIGKILL)
                    await holds(lambda: "LoopReport" in two.said(), two)
                finally:
                    for each in (one, two):
                        if each is not None and each.process.poll() is None:
                            each.end(signal.SIGKILL)

    asyncio.run(main())
