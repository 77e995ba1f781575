"""When the controller of CapacityBuffers looks at a namespace, over stores as plain objects."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

from builders import N0
from kscale.drivers.cluster_autoscaler_controllers import BufferController
from kscale.effects import SECOND, Action, ApiError, Discover, WriteStatus, to_text
from kscale.objects.api.apps import Deployment
from kscale.objects.api.cluster_autoscaler import CapacityBuffer
from kscale.objects.api.meta import KubeObject
from kscale.objects.decode import from_dict
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


class BufferStores:
    """A buffer of a Deployment."""

    def __init__(self) -> None:
        self.buffer: dict[str, Any] = deepcopy(BUFFER)
        self.deployed("1", 2)

    def deployed(self, version: str, replicas: int) -> None:
        about = {"name": "web", "namespace": "shop", "uid": "w", "generation": 1, "resourceVersion": version}
        self.deployment = from_dict({"metadata": about, "status": {"replicas": replicas}}, Deployment)

    def objects(self, kind: str) -> Sequence[KubeObject]:
        return [from_dict(self.buffer, CapacityBuffer)] if kind == "CapacityBuffer" else []

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        assert (kind, namespace, name) == ("Deployment", "shop", "web")
        return self.deployment


def looks(controller: BufferController, stores: BufferStores, seconds: float) -> bool:
    """Whether it asks anything then. It is told that nothing works."""
    actions: list[Action] = []

    def answer(action: Action) -> ApiError:
        actions.append(action)
        return ApiError("no", reason="Forbidden", code=403)

    now = N0 + round(seconds * SECOND)
    performed(controller.steps(controller.observe(cast(Stores, stores), now), now), answer, now=now)
    return any(isinstance(each, Discover) for each in actions)


def test_workload_status_change_is_handled_immediately() -> None:
    controller, stores = BufferController(), BufferStores()
    assert looks(controller, stores, 0)
    stores.deployed("2", 10)
    assert looks(controller, stores, 0.001), "before it is time to try again"
    assert not looks(controller, stores, 0.002)


def test_failures_are_retried_by_the_next_resync() -> None:
    controller, stores = BufferController(), BufferStores()
    at, waits = 0.0, []
    assert looks(controller, stores, at)
    for _ in range(20):
        wait = 0.005
        while not looks(controller, stores, at + wait):
            wait = min(2 * wait, 300) if wait < 300 else 2 * wait
        waits.append(wait)
        at += wait
    assert waits[:3] == [0.005, 0.01, 0.02]
    assert waits[-3:] == [300, 300, 300]


def observed_ages(
    controller: BufferController, stores: BufferStores, seconds: float, refused: bool
) -> dict[str, float]:
    """What it observes of a look then, by whether it is of new buffers: seconds ago."""
    now = N0 + round(seconds * SECOND)

    def answer(action: Action) -> ApiError | None:
        if isinstance(action, WriteStatus):
            return ApiError("no", reason="Forbidden", code=403) if refused else None
        return ApiError("no", reason="NotFound", code=404)

    ran = performed(controller.steps(controller.observe(cast(Stores, stores), now), now), answer, now=now)
    name = "cluster_autoscaler_capacity_buffer_oldest_reconciliation_timestamp_seconds"
    assert {each.name for each in ran.observations} == {name}
    return {each.labels["new_buffer"]: now // SECOND - each.value for each in ran.observations}


def test_age_of_the_oldest_reconciliation_is_reported() -> None:
    """``TestReconciliationTimestampCollector`` of upstream: new ones since they were made, the others since they were
    written; those of an earlier process count when they are written again."""
    controller, stores = BufferController(), BufferStores()
    stores.buffer["metadata"]["creationTimestamp"] = to_text(N0 - 60 * SECOND)
    assert observed_ages(controller, stores, 0, True) == {"true": 60, "false": 0}
    assert observed_ages(controller, stores, 100, False) == {"true": 0, "false": 0}
    assert observed_ages(controller, stores, 130, True) == {"true": 0, "false": 30}
    stores.buffer["metadata"]["uid"] = "another"
    stores.buffer["status"] = {"conditions": [{"type": "ReadyForProvisioning", "status": "False"}]}
    assert observed_ages(controller, stores, 135, True) == {"true": 0, "false": 0}
