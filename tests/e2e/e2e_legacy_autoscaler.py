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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

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
PATIENT = ("--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s")
"""Longer than a busy machine keeps a process from renewing its lease."""
STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cluster-autoscaler"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("legacy"), scheduler=True, controllers=True) as plane:
        yield plane


@pytest.fixture(scope="module")
def account(plane: ControlPlane) -> str:
    """The kubeconfig of an account with the rights that ``kscale manifests`` gives."""
    access = installed(plane, "cluster-autoscaler")
    path = plane.directory / "autoscaler.kubeconfig"
    path.write_text(json.dumps(plane.config(user={"token": access.token.reveal()})))
    return str(path)


@pytest.fixture
def kubeconfig(plane: ControlPlane, account: str) -> str:
    """That of the account, in a cluster without anything."""
    cleared(plane)
    return account


class Process(Autoscaler):
    """One process of release 1.3."""

    def __init__(self, kubeconfig: str, url: str, directory: Path, *flags: str) -> None:
        config = directory / "cloud.yaml"
        config.write_text(json.dumps({"address": url}))
        self.log = directory / "log"
        (self.port,) = free_ports(1)
        words = ("run", "cluster-autoscaler", "--cloud-provider=externalgrpc", f"--cloud-config={config}")
        flags = (f"--kubeconfig={kubeconfig}", f"--address=127.0.0.1:{self.port}", *FLAGS, *PATIENT, *flags)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kscale", *words, *flags],
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
    result: dict[str, list[str]] = {}
    for each in plane.ask("GET", "/api/v1/events")["items"]:
        result.setdefault(each["reason"], []).append(each["message"])
    return result


def web(cpu: str = "1500m", replicas: int = 1) -> dict[str, Any]:
    created = deployment("web", replicas)
    created["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 1}
    created["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return created


def waiting(plane: ControlPlane) -> int:
    """How many pods the scheduler has found no node for."""
    pods = plane.ask("GET", "/api/v1/namespaces/default/pods")["items"]
    return sum(
        condition.get("reason") == "Unschedulable"
        for pod in pods
        if not pod["spec"].get("nodeName")
        for condition in pod["status"].get("conditions") or ()
    )


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
    plane: ControlPlane, kubeconfig: str, tmp_path: Path, estimator: str
) -> None:
    """Empty nodes while the loop waits; a node with a pod in the background; metrics and health meanwhile."""
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=5))

    async def main() -> None:
        async with cluster(plane, cloud, 1) as api:
            await api.create("deployments.apps", web(replicas=3))
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                async with asyncio.timeout(60):
                    while await asyncio.to_thread(waiting, plane) < 2:
                        await asyncio.sleep(0.1)
                process = Process(kubeconfig, server.url, tmp_path, f"--estimator={estimator}")
                try:
                    await holds(lambda: running(plane) == 3, process)
                    assert len(nodes(plane)) == 3
                    await holds(lambda: "Cluster-wide:\n  Health:      Healthy (ready=3" in status(plane), process)
                    assert 'cluster_autoscaler_nodes_count{state="ready"} 3.0' in process.served("/metrics")
                    assert process.served("/health-check") == "OK"
                    await api.patch("deployments.apps", "web", {"spec": {"replicas": 1}})
                    await holds(lambda: len(nodes(plane)) == 1, process)
                    assert plane.ask("GET", LEASE)["spec"]["holderIdentity"]
                    output = process.output()
                    assert "Final scale-up plan: [{small 1->3 (max: 5)}]" in output
                    assert "Scale down status: unneededOnly=" in output
                    await holds(lambda: {"TriggeredScaleUp", "ScaleDownEmpty"} <= reasons(plane).keys(), process)
                    assert await asyncio.to_thread(process.end) == 0
                    assert status(plane) == ""
                finally:
                    if process.process.poll() is None:
                        process.end(signal.SIGKILL)

    asyncio.run(main())
    assert cloud.calls[0] == ("IncreaseSize", "small", 2)
    assert sum(call[0] == "IncreaseSize" for call in cloud.calls) == 1
    assert sum(len(call) - 2 for call in cloud.calls if call[0] == "DeleteNodes") == 2
    assert "Scale-up: group small size set to 3" in reasons(plane)["ScaledUpGroup"]


def test_a_node_with_a_pod_is_drained(plane: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=5))

    async def main() -> None:
        async with cluster(plane, cloud, 2) as api:
            created = web("600m", replicas=2)
            created["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": created["spec"]["selector"],
                }
            ]
            await api.create("deployments.apps", created)
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                process = Process(kubeconfig, server.url, tmp_path)
                try:
                    await holds(lambda: running(plane) == 2, process)
                    await holds(lambda: len(nodes(plane)) == 1, process)
                    await holds(lambda: running(plane) == 2, process)
                    await holds(lambda: "ScaleDown" in reasons(plane), process)
                    assert await asyncio.to_thread(process.end) == 0
                finally:
                    if process.process.poll() is None:
                        process.end(signal.SIGKILL)

    asyncio.run(main())
    (message,) = [text for text in reasons(plane)["ScaleDown"] if text.startswith("Scale-down: removing node")]
    assert ", utilization: 0.3, pods to reschedule: default/web-" in message


def test_a_machine_that_never_registers_is_removed(plane: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=5, registers=False))

    async def main() -> None:
        async with cluster(plane, cloud, 1) as api:
            await api.create("deployments.apps", web(replicas=2))
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                process = Process(kubeconfig, server.url, tmp_path, "--max-node-provision-time=6s")
                try:
                    await holds(lambda: ("DeleteNodes", "small", "small-1") in cloud.calls, process)
                    await holds(lambda: "removed, skipping iteration" in process.output(), process)
                    await holds(lambda: "DeleteUnregistered" in reasons(plane), process)
                finally:
                    process.end(signal.SIGKILL)

    asyncio.run(main())
    assert ("IncreaseSize", "small", 1) in cloud.calls
    assert "Removing unregistered node fake:///small-1" in reasons(plane)["DeleteUnregistered"]


def long_unready(new_node: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a node as etcd stores it that has been there for an hour and has not been ready for half of it.

    A node that was created just now is starting, and counts as unready after 15 minutes only.
    """
    now = datetime.now(UTC)
    created, since = (f"{now - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}" for minutes in (60, 30))
    new_node["metadata"] |= {"uid": str(uuid4()), "creationTimestamp": created}
    new_node["spec"]["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "lastTransitionTime": since}
    new_node["status"]["conditions"] = [condition]
    return f"minions/{new_node['metadata']['name']}", new_node


def test_an_unhealthy_cluster_is_left_alone(plane: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    """Four of five nodes are not ready, which is more than it goes on with: no group grows for the pods that wait, and
    no empty node goes."""
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=0, most=9))

    async def main() -> None:
        async with cluster(plane, cloud, 1) as api:
            await asyncio.to_thread(
                plane.store, [long_unready(created) for created in cloud.create_machines("small", 4)]
            )
            await api.create("deployments.apps", web(replicas=3))
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                process = Process(kubeconfig, server.url, tmp_path, "--ok-total-unready-count=3")
                try:
                    await holds(lambda: waiting(plane) == 2, process)
                    await holds(lambda: "Cluster-wide:\n  Health:      Unhealthy (ready=1 unready=4" in status(plane),
                                process)  # fmt: skip
                    await holds(lambda: "ClusterUnhealthy" in reasons(plane), process)
                    await holds(lambda: process.output().count("Cluster is unhealthy") >= 8, process)
                finally:
                    process.end(signal.SIGKILL)

    asyncio.run(main())
    assert cloud.calls == []
    assert "Cluster is unhealthy" in reasons(plane)["ClusterUnhealthy"]


def test_one_of_two_leads_and_serves_its_metrics(plane: ControlPlane, kubeconfig: str, tmp_path: Path) -> None:
    cloud = FakeCloud(plane, Machines("small", cpu="2", least=1, most=5))
    lease = (
        "--leader-elect-lease-duration=12s",
        "--leader-elect-renew-deadline=10s",
        "--leader-elect-retry-period=1s",
    )

    async def main() -> None:
        async with cluster(plane, cloud, 1):
            with ExternalServer(cloud, "127.0.0.1:0") as server:
                folders = [tmp_path / name for name in ("one", "two")]
                for folder in folders:
                    folder.mkdir()
                one = Process(kubeconfig, server.url, folders[0], *lease)
                two = None
                try:
                    await holds(lambda: "LoopReport" in one.output(), one)
                    assert "Cluster-wide:" in status(plane)
                    text = await asyncio.to_thread(one.served, "/metrics")
                    assert "\ncluster_autoscaler_nap_enabled 0.0\n" in text
                    assert 'cluster_autoscaler_nodes_count{state="ready"} 1.0' in text
                    assert "cluster_autoscaler_cpu_limits_cores" not in text
                    assert await asyncio.to_thread(one.served, "/health-check") == "OK"
                    two = Process(kubeconfig, server.url, folders[1], *lease)
                    await holds(lambda: "Lease is held by and has not yet expired" in two.output(), two)
                    assert plane.ask("GET", LEASE)["spec"]["holderIdentity"] == "one"
                    assert await asyncio.to_thread(two.served, "/health-check") == "OK"
                    assert "LoopReport" not in two.output()
                    one.end(signal.SIGKILL)
                    await holds(lambda: "LoopReport" in two.output(), two)
                    assert plane.ask("GET", LEASE)["spec"]["holderIdentity"] == "two"
                finally:
                    for each in (one, two):
                        if each is not None and each.process.poll() is None:
                            each.end(signal.SIGKILL)

    asyncio.run(main())
