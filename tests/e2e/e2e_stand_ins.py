"""The stand-ins do what the drivers' tests count on: workloads run, machines register, metrics are served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane
from e2e.kubelet import FakeKubelet
from e2e.metrics_server import FakeMetrics
from e2e.real_api import connected
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import ProviderError
from kscale.world.kubernetes.client import RequestFailedError
from kscale.world.kubernetes.transport import Call
from kscale.world.protocols import NodeGroups
from unit.world.informer_cases import until
from unit.world.writer_cases import deployment


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("whole"), scheduler=True, controllers=True, audit=True) as plane:
        yield plane


async def holds(api: Any, test: Any) -> None:
    """Until it is so."""
    async with asyncio.timeout(90):
        while not await asyncio.to_thread(test):
            await asyncio.sleep(0.2)


def test_a_workload_runs(plane: ControlPlane) -> None:
    cloud = FakeCloud(plane, Machines("small", most=3, boot=0.2))
    assert isinstance(cloud, NodeGroups)

    def pods() -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = plane.ask("GET", "/api/v1/namespaces/default/pods")["items"]
        return result

    def running(count: int) -> bool:
        phases = [each["status"].get("phase") for each in pods()]
        return phases == ["Running"] * count

    async def main() -> None:
        async with connected(plane) as api:
            kubelet = FakeKubelet(api.client, api.clock)
            task = asyncio.create_task(kubelet.run())
            await api.create("deployments.apps", deployment("web", 3))
            await until(lambda: task.done() or len(pods()) == 3)
            assert not running(3)  # there is no node
            await asyncio.to_thread(cloud.increase_size, "small", 2)
            await holds(api, lambda: running(3))
            usage = {"cpu": "250m", "memory": "64Mi"}
            async with FakeMetrics(plane, lambda *_: usage):
                call = Call(method="GET", path="/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")

                async def answered() -> bytes:
                    while True:
                        try:
                            return (await api.client.call(call)).body
                        except RequestFailedError:
                            await asyncio.sleep(0.2)

                body = await asyncio.wait_for(answered(), 60)
                assert body.count(b'"cpu":"250m"') + body.count(b'"cpu": "250m"') == 3
            await api.patch("deployments.apps", "web", {"spec": {"replicas": 1}})
            await holds(api, lambda: running(1))
            task.cancel()
            await asyncio.wait([task])

    try:
        asyncio.run(main())
        (group,) = cloud.refresh()
        assert (group.target_size, group.instances) == (2, ["fake:///small-0", "fake:///small-1"])
        with pytest.raises(ProviderError, match="max: 3"):
            cloud.increase_size("small", 5)
        with pytest.raises(ProviderError, match="existing nodes"):
            cloud.decrease_target_size("small", -1)
        node = Node()
        node.metadata.name = "small-1"
        cloud.delete_nodes("small", [node])
        assert [call[0] for call in cloud.calls] == [
            "IncreaseSize",
            "IncreaseSize",
            "DecreaseTargetSize",
            "DeleteNodes",
        ]
    finally:
        cloud.close()
    assert [each["metadata"]["name"] for each in plane.ask("GET", "/api/v1/nodes")["items"]] == ["small-0"]
    agents = {each["userAgent"].split("/")[0] for each in plane.audit()}
    assert {"kube-scheduler", "kube-controller-manager", "kscale-e2e"} <= agents
