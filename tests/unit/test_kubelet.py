"""The stand-in for kubelets: what it has begun it ends, an API server that is away or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e.kubelet import FakeKubelet
from kscale.effects import SECOND
from kscale.world.clock import VirtualClock, run_in_virtual_time
from kscale.world.kubernetes.client import Client
from unit.world.fake_api_server import REFUSED, FakeApiServer
from unit.world.informer_cases import pod

T0 = 1_800_000_000 * SECOND


@pytest.mark.parametrize("away", [0, 30])
def test_a_pod_runs_and_goes_although_the_api_server_is_away(away: float) -> None:
    async def main(clock: VirtualClock) -> None:
        server = FakeApiServer(clock)
        kubelet = FakeKubelet(Client(server, clock, qps=-1), clock, starting=5, ending=5)
        task = asyncio.create_task(kubelet.run())

        async def outlived() -> None:
            """It is away when the pod would be told of."""
            await asyncio.sleep(1)
            if away:
                server.fault = lambda call: REFUSED
                server.cut_watches()
                await asyncio.sleep(away)
                server.fault = lambda call: None
            await asyncio.sleep(60)

        server.put("pods", pod("web-0", node="small-0"))
        await outlived()
        result: dict[str, Any] = server.get("pods", "web-0", "default")
        assert result["status"]["phase"] == "Running"
        metadata = {**result["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
        server.put("pods", {**result, "metadata": metadata})
        await outlived()
        assert server.all("pods") == []
        task.cancel()
        await asyncio.wait([task])

    run_in_virtual_time(main, now=T0)
