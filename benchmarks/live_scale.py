"""The Cluster Autoscaler on a large cluster behind a real API server (built with Go), and upstream's beside it.

``PYTHONPATH=tests python benchmarks/live_scale.py --nodes 1000 --pods 10000 --upstream FOLDER``: from the start to the
first call to the cloud, memory, CPU time of a loop in which nothing has changed, and of a change that a watch brings.
``--synthetic``: behind a server of pages that were written before, for clusters that a real one here cannot hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from synthetic_api import SyntheticPlane

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane
from e2e.duel.programs import Player
from e2e.real_api import connected
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.transport import Call
from kscale.world.nodegroups.external_server import ExternalServer

PODS = "/api/v1/namespaces/default/pods"
FLAGS = (
    "--scale-down-unneeded-time=1h", "--kube-client-qps=1000", "--kube-client-burst=1000",
    "--leader-elect=false", "--v=0",
)  # fmt: skip
SCAN = 10.0
AT_ONCE = 32
EACH_SECOND = 200


class Figures(msgspec.Struct, kw_only=True):
    """Of one side: seconds and CPU seconds to the first decision, memory then and at most (MiB), CPU seconds of a loop
    in which nothing has changed, CPU milliseconds of a change of a pod."""

    side: str
    first: float
    first_cpu: float
    memory: float
    most_memory: float
    loop_cpu: float
    event_cpu_ms: float

    def __str__(self) -> str:
        return (
            f"{self.side:9} first decision {self.first:.1f} s ({self.first_cpu:.1f} s CPU), "
            f"memory {self.memory:.0f} MiB (most {self.most_memory:.0f}), "
            f"loop {self.loop_cpu:.3f} s CPU, change of a pod {self.event_cpu_ms:.3f} ms CPU"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="The Cluster Autoscaler on a large cluster.")
    parser.add_argument("--upstream", type=Path, help="the folder of upstream's binaries, to be measured beside")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--loops", type=int, default=3)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--synthetic", action="store_true", help="behind pages that were written before")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        (synthetic if arguments.synthetic else real)(Path(directory), arguments)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def real(directory: Path, arguments: argparse.Namespace) -> None:
    """An API server and etcd."""
    with ControlPlane(directory) as plane:
        begun = time.monotonic()
        cloud = FakeCloud(plane, machines(arguments))
        asyncio.run(fill(plane, cloud, arguments))
        print(f"{arguments.nodes} nodes, {arguments.pods} pods, made in {time.monotonic() - begun:.0f} s", flush=True)

        async def change_pods() -> None:
            async with connected(plane) as api:
                changes = (("PATCH", f"{PODS}/p-{i % arguments.pods}", change(i)) for i in range(arguments.events))
                await together(api.client, changes)
                await asyncio.sleep(2)

        measure(plane, cloud, arguments, change_pods)


def synthetic(directory: Path, arguments: argparse.Namespace) -> None:
    """Pages."""
    begun = time.monotonic()
    with SyntheticPlane(directory, arguments.nodes, arguments.pods, pod("pending", "", cpu="14")) as plane:
        print(
            f"{arguments.nodes} nodes, {arguments.pods} pods, written in {time.monotonic() - begun:.0f} s", flush=True
        )
        group = machines(arguments)
        group.running = [node["metadata"]["name"] for node in plane.nodes]

        async def change_pods() -> None:
            await asyncio.to_thread(plane.change_pods, arguments.events, arguments.events / EACH_SECOND)
            await asyncio.sleep(2)

        measure(plane, FakeCloud(plane, group), arguments, change_pods)


def machines(arguments: argparse.Namespace) -> Machines:
    return Machines("big", cpu="16", memory="64Gi", most=arguments.nodes + 10, registers=False)


def measure(
    plane: ControlPlane | SyntheticPlane,
    cloud: FakeCloud,
    arguments: argparse.Namespace,
    change_pods: Callable[[], Awaitable[None]],
) -> None:
    """One side after the other."""
    for binaries in dict.fromkeys((arguments.upstream, None)):
        print(asyncio.run(measured(plane, cloud, binaries, arguments, change_pods)), flush=True)
    cloud.close()


async def fill(plane: ControlPlane, cloud: FakeCloud, arguments: argparse.Namespace) -> None:
    """Nodes of the group, pods on them, and one that finds no place."""
    nodes = cloud.create_machines("big", arguments.nodes)
    names = [node["metadata"]["name"] for node in nodes]
    async with connected(plane) as api:
        await together(api.client, (("POST", "/api/v1/nodes", node) for node in nodes))
        pods = (pod(f"p-{i}", names[i % len(names)]) for i in range(arguments.pods))
        await together(api.client, (("POST", PODS, each) for each in pods))
        await together(api.client, [("POST", PODS, pod("pending", "", cpu="14"))])
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        await asyncio.to_thread(
            plane.ask, "PATCH", f"{PODS}/pending/status", {"status": {"conditions": [unschedulable]}},
            content_type="application/merge-patch+json",
        )  # fmt: skip


def pod(name: str, node: str, *, cpu: str = "700m") -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": "1Gi"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "u", "controller": True}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "s"}, "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]},
    }


async def together(client: Client, writes: Iterable[tuple[str, str, Any]]) -> None:
    """Some at a time, in their order."""
    waiting: Iterator[tuple[str, str, Any]] = iter(writes)

    async def work() -> None:
        for method, path, body in waiting:
            patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
            await client.call(Call(method=method, path=path, body=json.dumps(body).encode(), content_type=patch))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def measured(
    plane: ControlPlane | SyntheticPlane,
    cloud: FakeCloud,
    binaries: Path | None,
    arguments: argparse.Namespace,
    change_pods: Callable[[], Awaitable[None]],
) -> Figures:
    """One side: from its start to its end."""
    cloud.calls.clear()
    cloud.refuse = lambda call: "no"  # the pod goes on waiting
    with ExternalServer(cloud, "127.0.0.1:0") as server:
        config = plane.directory / "cloud.yaml"
        config.write_text(json.dumps({"address": server.url, "grpc_timeout": "60s"}))
        player = Player("cluster-autoscaler", plane, binaries, [*FLAGS, f"--cloud-config={config}"])
        begun = time.monotonic()
        player.start(f"--scan-interval={SCAN:.0f}s")
        try:
            await until(player, lambda: bool(cloud.calls))
            first, first_cpu, memory = time.monotonic() - begun, player.cpu_seconds(), player.memory("VmRSS")
            await asyncio.sleep(2 * SCAN)  # what is done once is over
            loop_cpu = await spent(player, lambda: asyncio.sleep(arguments.loops * SCAN))
            most_memory = player.memory("VmHWM")
            player.kill()
            player.start("--scan-interval=1h")  # it watches, and nothing else
            await quiet(player)
            event_cpu = await spent(player, change_pods)
        except Exception as error:
            raise RuntimeError(player.tail()) from error
        finally:
            player.kill()
    return Figures(
        side=player.side, first=first, first_cpu=first_cpu, memory=memory, most_memory=most_memory,
        loop_cpu=loop_cpu / arguments.loops, event_cpu_ms=1000 * event_cpu / arguments.events,
    )  # fmt: skip


def change(i: int) -> dict[str, Any]:
    return {"metadata": {"annotations": {"changed": f"{time.monotonic()}-{i}"}}}


async def spent(player: Player, does: Callable[[], Awaitable[None]]) -> float:
    """CPU seconds that pass meanwhile."""
    before = player.cpu_seconds()
    await does()
    return player.cpu_seconds() - before


async def quiet(player: Player) -> None:
    """Until it has done nearly nothing for fifteen seconds in a row: what is there is listed."""
    async with asyncio.timeout(600):
        await asyncio.sleep(SCAN)
        remaining = 3
        while remaining:
            remaining = remaining - 1 if await spent(player, lambda: asyncio.sleep(5)) < 0.1 else 3
            player.check()


async def until(player: Player, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(600):
        while not holds():
            player.check()
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
