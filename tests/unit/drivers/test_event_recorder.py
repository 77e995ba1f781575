"""Events on their way, against the fake API server in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from kscale.drivers.event_correlator import CLUSTER_AUTOSCALER
from kscale.drivers.live import Live
from kscale.drivers.process import EventRecorder
from kscale.effects import Event
from kscale.objects.api.core import ObjectReference
from kscale.world.kubernetes.performer import Performer
from unit.world.fake_api_server import REFUSED
from unit.world.test_informer import FakeApi, against_fake

NODE = ObjectReference(api_version="v1", kind="Node", name="n1", uid="n1")
POD = ObjectReference(api_version="v1", kind="Pod", namespace="shop", name="web-1", uid="u1")


def event(reason: str, message: str, of: ObjectReference = POD, type_: str = "Normal") -> Event:
    return Event(regarding=of, type=type_, reason=reason, message=message)


def recording(case: Callable[[FakeApi, EventRecorder], Awaitable[None]]) -> FakeApi:
    async def run(api: FakeApi) -> None:
        async with Live(Performer(api.client, api.clock), api.clock) as live:
            recorder = EventRecorder(live, api.clock, component="cluster-autoscaler", options=CLUSTER_AUTOSCALER)
            task = asyncio.create_task(recorder.run())
            await case(api, recorder)
            task.cancel()
            await asyncio.wait([task])

    return against_fake(run)


def stored_events(api: FakeApi) -> list[tuple[str, str, str, str, int]]:
    return sorted(
        (each["metadata"]["namespace"], each["involvedObject"]["name"], each["reason"], each["message"], each["count"])
        for each in api.server.all("events")
    )


def test_events_come_to_the_server() -> None:
    async def case(api: FakeApi, recorder: EventRecorder) -> None:
        recorder.emit([event("TriggeredScaleUp", "up"), event("ScaleDown", "gone", NODE), event("x", "y", type_="Odd")])
        await recorder.wait_until_sent()
        recorder.emit([event("TriggeredScaleUp", "up")])  # spam: once in five minutes
        await recorder.wait_until_sent()

    api = recording(case)
    assert stored_events(api) == [
        ("default", "n1", "ScaleDown", "gone", 1),
        ("shop", "web-1", "TriggeredScaleUp", "up", 1),
    ]
    (result,) = (each for each in api.server.all("events") if each["reason"] == "ScaleDown")
    assert result["source"] == {"component": "cluster-autoscaler"}
    assert result["reportingComponent"] == "cluster-autoscaler"


def test_an_event_again_is_counted() -> None:
    async def case(api: FakeApi, recorder: EventRecorder) -> None:
        for _ in range(2):
            recorder.emit([event("NotTriggerScaleUp", "no")])
            await recorder.wait_until_sent()
            await asyncio.sleep(301)

    api = recording(case)
    assert stored_events(api) == [("shop", "web-1", "NotTriggerScaleUp", "no", 2)]
    patch = api.server.calls[-1]
    assert patch.content_type == "application/strategic-merge-patch+json"
    assert json.loads(patch.body or b"")["count"] == 2


def test_unavailable_server_does_not_block_the_recorder() -> None:
    async def case(api: FakeApi, recorder: EventRecorder) -> None:
        down = [True]
        api.server.fault = lambda call: REFUSED if down else None
        before = api.clock.now()
        recorder.emit(
            [event("r", str(i), ObjectReference(kind="Pod", namespace="x", name=f"p{i}")) for i in range(1003)]
        )
        assert api.clock.now() == before
        assert recorder.dropped == 3
        await asyncio.sleep(25)
        down.clear()
        await recorder.wait_until_sent()

    api = recording(case)
    names = [each["involvedObject"]["name"] for each in api.server.all("events")]
    assert len(names) == 1000
    assert len(set(names)) == 1000
