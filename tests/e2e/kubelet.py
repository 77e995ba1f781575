"""A stand-in for all kubelets: pods that are bound run, and pods that are deleted go."""

from __future__ import annotations

import asyncio
from typing import Any

from kscale.effects import Delete, Moment, Patch, to_text
from kscale.objects.core import Pod
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.informer import Informer
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.sinks import ObjectSink
from kscale.world.protocols import Change, Clock, Watch

__all__ = ["FakeKubelet"]

_BOUND = Watch(kind="Pod", api_version="v1", field_selector="spec.nodeName!=", typed=True)


class FakeKubelet:
    """Runs until it is cancelled. ``starting`` and ``ending``: how many seconds a pod takes to run, and to go."""

    def __init__(self, client: Client, clock: Clock, *, starting: float = 0.0, ending: float = 0.0) -> None:
        self._clock = clock
        self._starting, self._ending = starting, ending
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
        gone = pod.metadata.deletion_timestamp is not None
        key = f"{pod.metadata.uid} {'end' if gone else 'start'}"
        if key in self._under_way or (not gone and pod.status.phase not in ("", "Pending")):
            return
        self._under_way.add(key)
        self._group.create_task(self._end(pod) if gone else self._start(pod))

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
                }
                for container in pod.spec.containers
            ],
        }  # fmt: skip
        await self._performer(
            Patch(
                kind="Pod",
                name=pod.name,
                namespace=pod.namespace,
                type="strategic",
                subresource="status",
                patch={"status": status},
            )
        )

    async def _end(self, pod: Pod) -> None:
        await asyncio.sleep(self._ending)
        uid = pod.metadata.uid
        await self._performer(
            Delete(kind="Pod", name=pod.name, namespace=pod.namespace, uid=uid, grace_period_seconds=0)
        )
