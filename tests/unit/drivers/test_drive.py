"""A driver's rounds on asyncio: when they come, what they see, and what is told of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import pytest

from kscale.drivers.live import Live, drive
from kscale.effects import (
    SECOND,
    Action,
    InBackground,
    IncreaseSize,
    Moment,
    Observation,
    Outcome,
    Progress,
    Steps,
    Together,
    Within,
)
from kscale.objects.api.core import Node
from kscale.objects.api.meta import KubeObject
from kscale.snapshot.snapshot import Snapshot
from kscale.world.clock import SystemClock, VirtualClock, run_in_virtual_time
from kscale.world.protocols import Change, Watch

T0 = 1_800_000_000 * SECOND


async def nothing(action: Action) -> Outcome:
    return Outcome(at=0)


class FakeStores:
    """One typed kind."""

    def __init__(self) -> None:
        self.synced = self.settled = True
        self.calls: list[Callable[[Change | None], None]] = []
        self.processed = self.coming = 0

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        self.calls.append(call)
        return lambda: self.calls.remove(call)

    async def caught_up(self) -> None:
        self.processed += self.coming
        self.coming = 0

    def tell(self, change: Change | None) -> None:
        for call in self.calls:
            call(change)

    def objects(self, kind: str) -> Sequence[KubeObject]:
        return [Node()] * self.processed

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        return None

    def snapshot(self) -> Snapshot:
        raise AssertionError

    def resource_version(self, kind: str) -> str:
        return ""


WATCH = Watch(kind="Node", api_version="v1", typed=True)


class FakeDriver:
    """Due every ten seconds, and at once after a change."""

    name = "fake"
    watches = (WATCH,)

    def __init__(self, now: Moment, takes: int = 0) -> None:
        self.due: Moment = now + 10 * SECOND
        self.takes = takes
        self.rounds: list[tuple[int, float]] = []
        self.changed = False

    def notice(self, change: Change, now: Moment) -> None:
        self.changed = True

    def next_due(self) -> Moment | None:
        return 0 if self.changed else self.due

    def observe(self, stores: Any, now: Moment) -> int:
        self.changed = False
        return len(stores.objects("Node"))

    def steps(self, sight: int, now: Moment) -> Steps[None]:
        progress = Progress(now)
        self.rounds.append((sight, (now - T0) / SECOND))
        yield from progress.wait(self.takes)
        self.due = progress.now + 10 * SECOND


def driven(
    script: Callable[[FakeStores, FakeDriver], Awaitable[None]],
    takes: int = 0,
    observations: list[Observation] | None = None,
) -> list[tuple[int, float]]:
    observe = (lambda _: None) if observations is None else observations.append

    async def main(clock: VirtualClock) -> list[tuple[int, float]]:
        stores, driver = FakeStores(), FakeDriver(clock.now(), takes)
        async with Live(nothing, clock) as live:
            driving = asyncio.create_task(drive(driver, stores, live, clock, observe=observe))
            await script(stores, driver)
            live.scope.cancel()
            await driving
            assert stores.calls == []
        return driver.rounds

    return run_in_virtual_time(main, now=T0)


def test_rounds_come_when_they_are_due() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        await asyncio.sleep(35)

    assert driven(script, takes=3 * SECOND) == [(0, 10.0), (0, 23.0)]


class Sight:
    """What a round goes by."""


class SeeingDriver(FakeDriver):
    """Lets go of what it has seen before its round ends, and looks whether others have, too."""

    def __init__(self, now: Moment) -> None:
        super().__init__(now)
        self.still_alive: list[bool] = []

    def observe(self, stores: Any, now: Moment) -> Any:
        return Sight()

    def steps(self, sight: Any, now: Moment) -> Steps[None]:
        progress, sight_ref = Progress(now), ref(sight)
        del sight
        yield from progress.clock()
        self.still_alive.append(sight_ref() is not None)
        self.due = progress.now + 10 * SECOND


def test_round_releases_its_observation() -> None:
    """A driver that lets go of it frees it: all the objects as they were before."""

    async def main(clock: VirtualClock) -> list[bool]:
        driver = SeeingDriver(clock.now())
        async with Live(nothing, clock) as live:
            driving = asyncio.create_task(drive(driver, FakeStores(), live, clock))
            await asyncio.sleep(25)
            live.scope.cancel()
            await driving
        return driver.still_alive

    assert run_in_virtual_time(main, now=T0) == [False, False]


def test_a_change_brings_a_round_forward_and_one_during_a_round_is_not_lost() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        await asyncio.sleep(4)
        stores.processed = 1
        stores.tell(Change(watch=WATCH, new=Node()))
        await asyncio.sleep(1)
        stores.processed = 2
        stores.tell(Change(watch=WATCH, new=Node()))
        stores.tell(Change(watch=WATCH, new=Node()))
        await asyncio.sleep(4)

    assert driven(script, takes=2 * SECOND) == [(1, 4.0), (2, 6.0)]


def test_received_events_are_applied_before_a_round() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        stores.coming = 3
        await asyncio.sleep(11)

    assert driven(script) == [(3, 10.0)]


def test_no_round_starts_while_stores_are_unsettled() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        stores.settled = False
        stores.tell(Change(watch=WATCH, new=Node()))
        await asyncio.sleep(60)
        assert driver.rounds == []
        stores.settled = True
        stores.tell(None)
        await asyncio.sleep(1)

    observations: list[Observation] = []
    assert driven(script, observations=observations) == [(0, 60.0)]
    assert [each.name for each in observations] == ["kscale_skipped_loops_total", "kscale_decision_seconds"]


@pytest.mark.parametrize("synced", [False, True])
def test_round_delayed_by_a_relist_is_reported_once(synced: bool) -> None:
    """Before all has been listed for the first time no round can be due."""

    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        stores.synced, stores.settled = synced, False
        for _ in range(3):
            await asyncio.sleep(7)
            stores.tell(None)
        stores.synced = stores.settled = True
        stores.tell(None)
        await asyncio.sleep(1)

    observations: list[Observation] = []
    assert driven(script, observations=observations) == [(0, 21.0)]
    skipped = [Observation(name="kscale_skipped_loops_total", labels={"driver": "fake"})]
    assert [each for each in observations if each.name.startswith("kscale_skipped")] == skipped[: int(synced)]


def test_decision_time_of_a_round_is_reported() -> None:
    """And not how long it waited: here each look at the clock is a second after the last."""
    observations: list[Observation] = []

    async def main(clock: VirtualClock) -> None:
        class Ticking:
            ticks = 0

            def now(self) -> Moment:
                return clock.now()

            def monotonic(self) -> int:
                self.ticks += 1
                return self.ticks * SECOND

        driver = FakeDriver(clock.now(), takes=60 * SECOND)
        async with Live(nothing, Ticking()) as live:
            asyncio.get_running_loop().call_later(11, live.scope.cancel)
            await drive(driver, FakeStores(), live, clock, observe=observations.append)

    run_in_virtual_time(main, now=T0)
    assert observations == [Observation(name="kscale_decision_seconds", value=2.0, labels={"driver": "fake"})]


def test_decision_time_includes_nested_machines() -> None:
    def inner(now: Moment) -> Steps[None]:
        yield from Progress(now).wait(SECOND)

    def outer(now: Moment) -> Steps[None]:
        yield Together(machines=(inner, inner))
        yield Within(60 * SECOND, inner)
        yield InBackground(inner)

    async def steps(threads: bool) -> int:
        with ThreadPoolExecutor(1) as worker:
            spent: list[int] = []
            async with Live(nothing, SystemClock(), worker=worker if threads else None) as live:
                await live.run(outer, live.scope.within(0.0), spent.append)
            assert min(spent) >= 0
            return len(spent)

    assert [asyncio.run(steps(threads)) for threads in (False, True)] == [12, 12]


def test_a_round_under_way_ends_before_the_driver_does() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        await asyncio.sleep(11)

    ended: list[Moment] = []

    async def main(clock: VirtualClock) -> None:
        driver = FakeDriver(clock.now(), takes=60 * SECOND)
        async with Live(nothing, clock) as live:
            asyncio.get_running_loop().call_later(11, live.scope.cancel)
            await drive(driver, FakeStores(), live, clock)
            ended.append(clock.now() - T0)
        assert driver.due == T0 + 21 * SECOND  # its wait was cut short, and it went on to its end

    run_in_virtual_time(main, now=T0)
    assert ended == [11 * SECOND]


def test_rounds_of_a_small_cluster_run_on_the_loop() -> None:
    """The first round runs in the worker, the next ones do if a step of the last one took long."""

    class Threads(FakeDriver):
        def __init__(self) -> None:
            super().__init__(0)
            self.threads: list[bool] = []
            self.ended = asyncio.Event()

        def next_due(self) -> Moment | None:
            return 0

        def steps(self, sight: int, now: Moment) -> Steps[None]:
            progress = Progress(now)
            self.threads.append(threading.current_thread() is threading.main_thread())
            yield from progress.act(IncreaseSize(group="group", delta=1))
            if len(self.threads) == 3:
                clock.seconds += 1
            if len(self.threads) == 5:
                self.ended.set()

    class SetClock:
        seconds = 0

        def now(self) -> Moment:
            return T0

        def monotonic(self) -> int:
            return self.seconds * SECOND

    clock = SetClock()

    async def perform(action: Action) -> Outcome:
        await asyncio.sleep(0)
        return Outcome(at=T0)

    async def main() -> list[bool]:
        driver = Threads()
        with ThreadPoolExecutor(1) as worker:
            async with Live(perform, clock, worker=worker) as live:
                driving = asyncio.create_task(
                    drive(driver, FakeStores(), live, clock, is_small=lambda sight: sight == 0)
                )
                await driver.ended.wait()
                live.scope.cancel()
                await driving
        return driver.threads[:5]

    assert asyncio.run(main()) == [False, True, True, False, True]
