"""A whole process against the real API server: it leads, watches, decides in a thread, writes, reports; and what goes
wrong goes wrong as it should."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from e2e.control_plane import ControlPlane, Refused
from e2e.real_api import RealApi, connected
from kscale.drivers.leader_election import (
    LEADER_METRICS,
    LeaderElectionOptions,
    LeaderElector,
    LostLeadershipError,
    lead,
)
from kscale.drivers.live import Live, drive
from kscale.drivers.process import EventRecorder
from kscale.effects import Create, Event, Metric, Moment, Observation, Patch, Progress, Steps
from kscale.objects.api.core import ConfigMap, ObjectReference
from kscale.objects.api.meta import ObjectMeta
from kscale.world.clock import SteadyClock
from kscale.world.kubernetes.informer import WATCH_METRICS
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.stores import KubernetesStores
from kscale.world.protocols import Change, Watch
from kscale.world.serve.app import Server, endpoints
from kscale.world.serve.metrics import MetricStore
from unit.world.informer_cases import pod, until

RULES: Sequence[dict[str, Any]] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
)
ROUNDS = Metric("tally_rounds_total", "counter")
TALLY = ObjectReference(api_version="v1", kind="ConfigMap", namespace="default", name="tally")


class Tally:
    """Counts pods: each round writes their number into a ConfigMap, if it is another than before."""

    name = "tally"
    watches = (
        Watch(kind="Pod", api_version="v1"),
        Watch(kind="Pod", api_version="v1", field_selector="spec.nodeName=", typed=True),
    )

    def __init__(self, deciding: Callable[[], None] = lambda: None, *, turn: int = 2) -> None:
        self.turn = turn
        self.due: Moment | None = 0
        self.written = -1
        self.rounds = 0
        self.deciding = deciding

    def notice(self, change: Change, now: Moment) -> None:
        self.due = now

    def next_due(self) -> Moment | None:
        return self.due

    def observe(self, stores: Any, now: Moment) -> int:
        self.due = now + self.turn * 10**9
        return len(stores.cluster.keys("Pod"))

    def steps(self, sight: int, now: Moment) -> Steps[None]:
        progress = Progress(now)
        self.deciding()
        self.rounds += 1
        yield from progress.observe(Observation(name=ROUNDS.name))
        if sight == self.written:
            return
        patch = Patch(kind="ConfigMap", name="tally", namespace="default", patch={"data": {"pods": str(sight)}})
        done = yield from progress.act(patch)
        if done.error is not None and done.error.is_not_found:
            created = ConfigMap(metadata=ObjectMeta(name="tally", namespace="default"), data={"pods": str(sight)})
            done = yield from progress.act(Create(created))
        if done.error is None:
            self.written = sight
            message = f"there are {sight} pods"
            yield from progress.emit(Event(regarding=TALLY, type="Normal", reason="Counted", message=message))


class Process:
    """One candidate, put together as a program does it."""

    def __init__(self, api: RealApi, driver: Tally, identity: str, *, lease: float, renew: float, retry: float) -> None:
        self.api, self.driver = api, driver
        self.metrics = MetricStore([ROUNDS, *WATCH_METRICS, *LEADER_METRICS])
        self.elector = LeaderElector(
            LeaderElectionOptions(
                identity=identity,
                resource_name="tally",
                resource_namespace="default",
                lease_duration=timedelta(seconds=lease),
                renew_deadline=timedelta(seconds=renew),
                retry_period=timedelta(seconds=retry),
            )
        )
        self.events: list[Event] = []

    async def run(self) -> None:
        api, clock, turn = self.api, self.api.clock, asyncio.Lock()
        steady = SteadyClock(clock)

        def observe(observation: Observation) -> None:
            self.metrics.observe([observation])

        with ThreadPoolExecutor(1) as worker:
            stores = KubernetesStores(api.client, self.driver.watches, clock, turn=turn, observe=observe)
            recorders: list[EventRecorder] = []
            performer = Performer(
                api.client,
                clock,
                stores=stores,
                turn=turn,
                emit=lambda events: recorders[0].emit(events),
                observe=self.metrics.observe,
            )
            async with Live(performer, clock, worker=worker, turn=turn) as live, Live(performer, steady) as other:
                recorders.append(EventRecorder(other, clock, component="tally"))
                sending = asyncio.create_task(recorders[0].run())

                async def work() -> None:
                    watching = asyncio.create_task(stores.run())
                    try:
                        await drive(self.driver, stores, live, clock)
                    finally:
                        watching.cancel()
                        await asyncio.wait([watching])

                try:
                    await lead(self.elector, other, work, release=True)
                    await recorders[0].wait_until_sent()
                finally:
                    sending.cancel()
                    await asyncio.wait([sending])


@asynccontextmanager
async def running(
    plane: ControlPlane, driver: Tally, identity: str = "one", *, lease: float = 40, renew: float = 30, retry: float = 1
) -> AsyncIterator[tuple[Process, asyncio.Task[None]]]:
    access = replace(ACCESS[plane], namespace="default")
    async with connected(plane, access) as api:
        process = Process(api, driver, identity, lease=lease, renew=renew, retry=retry)
        task = asyncio.create_task(process.run())
        try:
            yield process, task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, LostLeadershipError):
                await task


ACCESS: dict[ControlPlane, Any] = {}


@pytest.fixture(autouse=True)
def account(plane: ControlPlane) -> None:
    """The process may do no more than its rules say."""
    if plane not in ACCESS:
        ACCESS[plane] = plane.account("tally", RULES)


def written(plane: ControlPlane) -> str:
    with contextlib.suppress(Refused):
        return str(plane.ask("GET", "/api/v1/namespaces/default/configmaps/tally")["data"]["pods"])
    return ""


def make(plane: ControlPlane, *names: str) -> None:
    for name in names:
        plane.ask("POST", "/api/v1/namespaces/default/pods", pod(name))


def lease(plane: ControlPlane) -> dict[str, Any]:
    spec: dict[str, Any] = plane.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/tally")["spec"]
    return spec


@pytest.mark.smoke
def test_a_process(plane: ControlPlane) -> None:
    async def main() -> None:
        make(plane, "a", "b")
        driver = Tally(turn=60)
        async with running(plane, driver) as (process, task):
            await until(lambda: task.done() or written(plane) == "2")
            assert not task.done(), task.result()
            make(plane, "c")
            await until(lambda: written(plane) == "3", 30)  # long before its next turn
            assert lease(plane)["holderIdentity"] == "one"
            check = process.elector.check
            handlers = endpoints(metrics=process.metrics, health=lambda: check(process.api.clock.now()))
            async with Server(handlers, "127.0.0.1:0") as server:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                text = (await reader.read()).decode()
                writer.close()
            assert 'leader_election_master_status{name="tally"} 1.0' in text
            assert 'kscale_lists_total{kind="Pod"} 2.0' in text
        assert lease(plane)["holderIdentity"] == ""  # given up for the next

    asyncio.run(main())
    events = plane.ask("GET", "/api/v1/namespaces/default/events")["items"]
    counted = [each for each in events if each["involvedObject"]["name"] == "tally" and each["reason"] == "Counted"]
    assert {"there are 2 pods", "there are 3 pods"} <= {each["message"] for each in counted}
    assert {each["source"]["component"] for each in counted} == {"tally"}


def test_the_api_server_is_killed_and_comes_back(plane: ControlPlane) -> None:
    async def main() -> None:
        make(plane, "a")
        driver = Tally()
        async with running(plane, driver) as (_, task):
            await until(lambda: written(plane) == "1")
            await asyncio.to_thread(plane.end, "apiserver", kill=True)
            rounds = driver.rounds
            await until(lambda: driver.rounds > rounds)  # it goes on with what it knows
            await asyncio.to_thread(plane.start_apiserver)
            make(plane, "b", "c")
            await until(lambda: written(plane) == "3")
            assert not task.done()

    asyncio.run(main())


def test_a_lease_that_is_taken_away_ends_the_process(plane: ControlPlane) -> None:
    async def main() -> None:
        async with running(plane, Tally(), lease=6, renew=4, retry=0.5) as (_, task):
            await until(lambda: written(plane) == "0")
            patch = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}
            path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/tally"
            plane.ask("PATCH", path, patch, content_type="application/merge-patch+json")
            async with asyncio.timeout(6):
                with pytest.raises(LostLeadershipError):
                    await task
            make(plane, "a")
            await asyncio.sleep(1)
            assert written(plane) == "0"

    asyncio.run(main())


def test_the_next_takes_over(plane: ControlPlane) -> None:
    async def main() -> None:
        first, second = Tally(), Tally()
        async with (
            running(plane, second, "two", retry=0.5) as (_, waiting),
            running(plane, first, retry=0.5) as (_, leading),
        ):
            await until(lambda: bool(first.rounds or second.rounds))
            if second.rounds:  # it was faster
                first, second, leading, waiting = second, first, waiting, leading
            await asyncio.sleep(2)
            assert second.rounds == 0
            leading.cancel()
            await until(lambda: second.rounds > 0, 20)  # and not after the forty seconds of the lease
            assert lease(plane)["leaseTransitions"] >= 1
            assert not waiting.done()

    asyncio.run(main())


def test_lease_and_watches_do_not_wait_for_a_decision(plane: ControlPlane) -> None:
    """A decision that takes longer than the lease: it stays ours, because its renewal does not wait."""
    decide, begun = threading.Event(), threading.Event()

    def deciding() -> None:
        begun.set()
        assert decide.wait(60)

    async def main() -> None:
        async with running(plane, Tally(deciding), lease=3, renew=2, retry=0.5) as (process, task):
            await until(begun.is_set)
            before = lease(plane)
            make(plane, "a")
            await asyncio.sleep(6)
            now = lease(plane)
            assert (now["holderIdentity"], now["leaseTransitions"]) == ("one", before["leaseTransitions"])
            assert now["renewTime"] > before["renewTime"]
            assert not task.done()
            events = process.metrics.value("kscale_watch_events_total", kind="Pod")
            assert events is not None
            assert events >= 1
            decide.set()
            await until(lambda: written(plane) == "1")

    asyncio.run(main())
