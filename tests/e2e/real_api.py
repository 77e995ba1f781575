"""The real API server as the cases of the unit tests want it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from e2e.control_plane import ControlPlane, Refused
from e2e.wire import Wire
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.aiohttp_transport import AiohttpTransport
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.kubeconfig import Access
from kscale.world.kubernetes.resources import EVERYWHERE

__all__ = ["RealApi", "cleared", "connected"]

SERVED = {each.group_resource: each for each in EVERYWHERE}
MERGE = "application/merge-patch+json"
CLEARED = (
    "deployments.apps", "daemonsets.apps", "statefulsets.apps", "replicasets.apps", "jobs.batch",
    "pods", "configmaps", "leases.coordination.k8s.io", "poddisruptionbudgets.policy",
    "horizontalpodautoscalers.autoscaling", "nodes",
)  # fmt: skip
"""Owners come before their pods, so that a controller does not create the pods again."""
AUTOSCALER = (
    "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cluster-autoscaler",
)
"""What a Cluster Autoscaler leaves behind when it is killed."""
EVENTS = ("/api/v1/namespaces/default/events", "/api/v1/namespaces/kube-system/events")
_PATIENCE = 60.0


class RealApi:
    """The client comes over a wire that can be cut; what is done behind its back does not."""

    def __init__(self, plane: ControlPlane, client: Client, wire: Wire) -> None:
        self.plane, self.client, self.wire = plane, client, wire
        self.clock = SystemClock()

    async def _ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        return await asyncio.to_thread(self.plane.ask, method, path, body, content_type=content_type)

    async def create(self, plural: str, obj: dict[str, Any]) -> None:
        resource = SERVED[plural]
        await self._ask("POST", resource.path(obj["metadata"].get("namespace", "default")), obj)

    async def patch(self, plural: str, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        await self._ask("PATCH", SERVED[plural].path("default", name, subresource), patch, MERGE)

    async def delete(self, plural: str, name: str) -> None:
        await self._ask("DELETE", SERVED[plural].path("default", name) + "?gracePeriodSeconds=0")

    async def names(self, plural: str) -> dict[str, str]:
        listed = await self._ask("GET", SERVED[plural].path("default"))
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed["items"] or ()}

    async def cut(self) -> None:
        self.wire.cut()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self.wire.open = False
        self.wire.cut()
        yield
        self.wire.open = True

    async def forget(self) -> None:
        """A server that has just started remembers nothing."""
        await asyncio.to_thread(self.plane.restart_apiserver)


@asynccontextmanager
async def connected(plane: ControlPlane, access: Access | None = None, **options: Any) -> AsyncIterator[RealApi]:
    """A client (of an administrator) that is connected through a wire."""
    async with Wire(plane.port) as wire:
        over = replace(access or plane.admin, server=f"https://127.0.0.1:{wire.port}")
        clock = SystemClock()
        client = Client(AiohttpTransport(over, clock, user_agent="kscale-e2e"), clock, **{"qps": -1.0, **options})
        try:
            yield RealApi(plane, client, wire)
        finally:
            await client.close()


def cleared(plane: ControlPlane) -> None:
    """Remove what earlier tests left, until controllers create nothing of it again."""
    end = time.monotonic() + _PATIENCE
    while sum(_removed(plane, plural) for plural in CLEARED):
        assert time.monotonic() < end, "objects of earlier tests come back again and again"
    for path in AUTOSCALER:
        _unless_absent(plane, "DELETE", path)
    for path in EVENTS:
        plane.ask("DELETE", path)


def _removed(plane: ControlPlane, plural: str) -> int:
    """Delete all objects of one resource, and return how many there were."""
    path = SERVED[plural].path("default")
    items = plane.ask("GET", path)["items"] or []
    if items:
        plane.ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    for obj in plane.ask("GET", path)["items"] or () if items else ():
        patch = {"metadata": {"finalizers": None}}
        _unless_absent(plane, "PATCH", SERVED[plural].path("default", obj["metadata"]["name"]), patch)
    return len(items)


def _unless_absent(plane: ControlPlane, method: str, path: str, body: Any = None) -> None:
    try:
        plane.ask(method, path, body, content_type=MERGE)
    except Refused as error:
        if error.code != 404:
            raise
