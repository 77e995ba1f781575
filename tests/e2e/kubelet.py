"""A stand-in for all kubelets: pods that are bound run, are resized, and go when they are deleted."""

from __future__ import annotations

import asyncio
from typing import Any

from kscale.effects import Action, ApiError, Delete, Moment, Patch, to_text
from kscale.objects.api.core import Pod
from kscale.objects.decode import to_dict
from kscale.objects.quantity import Quantity
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.informer import Informer
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.stores import ObjectSink
from kscale.world.protocols import Change, Clock, Watch

__all__ = ["FakeKubelet"]

_BOUND = Watch(kind="Pod", api_version="v1", field_selector="spec.nodeName!=", typed=True)
_AGAIN = 0.2


class FakeKubelet:
    """Runs until it is cancelled. ``starting`` and ``ending``: how many seconds a pod takes to run, and to go.

    With ``room`` containers are resized in place: one that asks for more CPU than that cannot be.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        starting: float = 0.0,
        ending: float = 0.0,
        room: Quantity | None = None,
    ) -> None:
        self._clock = clock
        self._starting, self._ending, self._room = starting, ending, room
        self._performer = Performer(client, clock)
        sink = ObjectSink(_BOUND, self._changed)
        self._informer = Informer(client, Resources(client), _BOUND, sink, clock)
        self._under_way: set[str] = set()
        self._group = asyncio.TaskGroup()

    async def run(self) -> None:
        async with self._group:
            await self._informer.run()

    def _changed(self, change: Change) -> None:
        pod = change.new
        if not isinstance(pod, Pod):
            return
        is_deleting = pod.metadata.deletion_timestamp is not None
        if not is_deleting and pod.status.phase not in ("", "Pending"):
            if self._room is not None and any(_resources(pod)[name] != has for name, has in _has(pod).items()):
                self._group.create_task(self._resize(pod, self._room))
            return
        key = f"{pod.metadata.uid} {'end' if is_deleting else 'start'}"
        if key in self._under_way:
            return
        self._under_way.add(key)
        self._group.create_task(self._end(pod) if is_deleting else self._start(pod))

    async def _start(self, pod: Pod) -> None:
        await asyncio.sleep(self._starting)
        now: Moment = self._clock.now()
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": to_text(now)}
            for kind in ("Initialized", "Ready", "ContainersReady")
        ]
        status: dict[str, Any] = {
            "phase": "Running",
            "startTime": to_text(now),
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": container.name, "image": "x", "imageID": "x", "ready": True, "started": True,
                    "restartCount": 0, "state": {"running": {"startedAt": to_text(now)}},
                    **({} if self._room is None else {"resources": _resources(pod)[container.name]}),
                }
                for container in pod.spec.containers
            ],
        }  # fmt: skip
        await self._tell(pod, status)

    async def _resize(self, pod: Pod, room: Quantity) -> None:
        requests = _resources(pod)
        if any(Quantity((each.get("requests") or {}).get("cpu", "0")) > room for each in requests.values()):
            pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no room"}
            await self._tell(pod, {"conditions": [pending]})
            return
        statuses = [{"name": name, "resources": resources} for name, resources in requests.items()]
        await self._tell(pod, {"containerStatuses": statuses})

    async def _tell(self, pod: Pod, status: dict[str, Any]) -> None:
        await self._insist(
            Patch(
                kind="Pod",
                name=pod.name,
                namespace=pod.namespace,
                type="strategic",
                subresource="status",
                patch={"metadata": {"uid": pod.metadata.uid}, "status": status},
            )
        )

    async def _end(self, pod: Pod) -> None:
        await asyncio.sleep(self._ending)
        uid = pod.metadata.uid
        await self._insist(Delete(kind="Pod", name=pod.name, namespace=pod.namespace, uid=uid, grace_period_seconds=0))

    async def _insist(self, action: Action) -> None:
        """Again and again until the API server has said yes or no: it may be away, and nobody else would do it."""
        while (error := (await self._performer(action)).error) is not None and _may_pass(error):
            await asyncio.sleep(_AGAIN)


def _may_pass(error: ApiError) -> bool:
    """Nothing was decided: no connection, or a server that has just begun."""
    return error.code in (0, 429) or error.code >= 500


def _resources(pod: Pod) -> dict[str, Any]:
    """What each container asks for, as plain data."""
    return {container.name: to_dict(container.resources) for container in pod.spec.containers}


def _has(pod: Pod) -> dict[str, Any]:
    """What each container has, as plain data."""
    return {each.name: to_dict(each.resources) for each in pod.status.container_statuses}
