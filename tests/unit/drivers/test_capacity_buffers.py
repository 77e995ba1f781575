"""When the controller of CapacityBuffers looks at a namespace, over stores as plain objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from builders import N0
from kscale.drivers.capacity_buffers import BufferController
from kscale.effects import SECOND, Action, ApiError, Discover
from kscale.objects.apps import Deployment
from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.decode import from_dict
from kscale.objects.meta import KubeObject
from kscale.world.protocols import Stores
from performing import performed

BUFFER = {
    "metadata": {"name": "spare", "namespace": "shop", "uid": "b", "generation": 1},
    "spec": {
        "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"},
        "percentage": 50,
        "provisioningStrategy": "",
    },
}


class Held:
    """A buffer of a Deployment."""

    def __init__(self) -> None:
        self.deployed("1", 2)

    def deployed(self, version: str, replicas: int) -> None:
        about = {"name": "web", "namespace": "shop", "uid": "w", "generation": 1, "resourceVersion": version}
        self.deployment = from_dict({"metadata": about, "status": {"replicas": replicas}}, Deployment)

    def objects(self, kind: str) -> Sequence[KubeObject]:
        return [from_dict(BUFFER, CapacityBuffer)] if kind == "CapacityBuffer" else []

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        assert (kind, namespace, name) == ("Deployment", "shop", "web")
        return self.deployment


def looks(controller: BufferController, held: Held, seconds: float) -> bool:
    """Whether it asks anything then. It is told that nothing works."""
    asked: list[Action] = []

    def answer(action: Action) -> ApiError:
        asked.append(action)
        return ApiError("no", reason="Forbidden", code=403)

    now = N0 + round(seconds * SECOND)
    performed(controller.steps(controller.observe(cast(Stores, held), now), now), answer, now=now)
    return any(isinstance(each, Discover) for each in asked)


def test_the_status_of_a_workload_is_seen_at_once() -> None:
    controller, held = BufferController(), Held()
    assert looks(controller, held, 0)
    held.deployed("2", 10)
    assert looks(controller, held, 0.001), "before it is time to try again"
    assert not looks(controller, held, 0.002)


def test_failures_are_tried_again_no_later_than_the_resync() -> None:
    controller, held = BufferController(), Held()
    at, waits = 0.0, []
    assert looks(controller, held, at)
    for _ in range(20):
        wait = 0.005
        while not looks(controller, held, at + wait):
            wait = min(2 * wait, 300) if wait < 300 else 2 * wait
        waits.append(wait)
        at += wait
    assert waits[:3] == [0.005, 0.01, 0.02]
    assert waits[-3:] == [300, 300, 300]
