"""Follow a cluster on an event loop, with kubernetes-asyncio or kopf, and report what its pending pods need.

Only the event loop changes the Cluster. A snapshot never changes, so a decision runs on a thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import kscale


class Planner:
    """The cluster that events keep current, and the decisions about its pending pods."""

    def __init__(self, groups: list[kscale.NodeGroup]) -> None:
        self.cluster, self.groups = kscale.Cluster(), groups
        self.reports: asyncio.Queue[str] = asyncio.Queue()
        self.deciding = asyncio.Lock()  # reports keep the order of the events

    async def handle(self, event: Mapping[str, Any], **_: Any) -> None:
        """Apply one event and report what the pending pods need."""
        (self.cluster.remove if event["type"] == "DELETED" else self.cluster.apply)(dict(event["object"]))
        async with self.deciding:
            snapshot = self.cluster.snapshot()
            placed = await asyncio.to_thread(kscale.place, snapshot)
            plan = await asyncio.to_thread(kscale.estimate_many, snapshot, placed.unschedulable, templates=self.groups)
            needs = {group.id: result.node_count for group, result in zip(self.groups, plan, strict=True)}
            await self.reports.put(f"{placed.placed_count} pods fit, the others need new nodes: {needs}")


async def follow(planner: Planner, kinds: Mapping[str, Any]) -> None:
    """Handle the events of watches until cancelled. ``kinds``: list calls of kubernetes-asyncio's ``CoreV1Api``."""
    from kubernetes_asyncio import watch

    async def read(kind: str, call: Any) -> None:
        async with watch.Watch() as stream:
            async for event in stream.stream(call):
                obj = {"apiVersion": "v1", "kind": kind, **event["raw_object"]}
                await planner.handle({"type": event["type"], "object": obj})

    await asyncio.gather(*(read(kind, call) for kind, call in kinds.items()))


def register(planner: Planner, on: Any, **options: Any) -> None:
    """Register kopf's handlers: ``register(planner, kopf.on)``. Then ``kopf run -A`` follows the cluster."""
    on.event("", "v1", "pods", **options)(planner.handle)
    on.event("", "v1", "nodes", **options)(planner.handle)


async def show(planner: Planner) -> None:
    while True:
        print(await planner.reports.get(), flush=True)


async def main() -> None:
    from kubernetes_asyncio import client, config

    await config.load_kube_config()
    async with client.ApiClient() as api:
        core, planner = client.CoreV1Api(api), Planner(kscale.read_groups(sys.argv[1]))
        kinds = {"Node": core.list_node, "Pod": core.list_pod_for_all_namespaces}
        await asyncio.gather(follow(planner, kinds), show(planner))


if __name__ == "__main__":
    asyncio.run(main())
