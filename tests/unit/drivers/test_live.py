"""Machines and drivers on asyncio: in virtual time, and with a worker thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kscale.drivers.leader_election import LeaderElectionOptions, LeaderElector
from kscale.drivers.live import Live, LostLeadershipError, Scope, drive, lead
from kscale.effects import (
    CANCELED,
    DEADLINE_EXCEEDED,
    SECOND,
    Action,
    Emit,
    Event,
    Get,
    InBackground,
    IncreaseSize,
    Moment,
    Observation,
    Observe,
    Outcome,
    Progress,
    Steps,
    Together,
    Within,
    run_virtually,
)
from kscale.objects.core import Node, ObjectReference
from kscale.objects.meta import KubeObject
from kscale.snapshot.snapshot import Snapshot
from kscale.world.clock import SystemClock
from kscale.world.protocols import Change, Watch
from kscale.world.virtual_loop import VirtualClock, run_in_virtual_time
from unit.drivers.test_leader_election import Server

T0 = 1_800_000_000 * SECOND


class World:
    """Answers each action after ``delay`` seconds."""

    def __init__(self, clock: VirtualClock, delay: float = 1.0) -> None:
        self.clock, self.delay = clock, delay
        self.log: list[tuple[str, float]] = []

    def note(self, what: str) -> None:
        self.log.append((what, (self.clock.now() - T0) / SECOND))

    async def __call__(self, action: Action) -> Outcome:
        if isinstance(action, Emit | Observe):
            self.note(type(action).__name__)
            return Outcome(at=self.clock.now())
        assert isinstance(action, IncreaseSize)
        self.note(action.group)
        await asyncio.sleep(self.delay)
        return Outcome(at=self.clock.now())


def in_world(main: Callable[[Live, World], Awaitable[Any]], delay: float = 1.0, **options: Any) -> tuple[Any, World]:
    worlds: list[World] = []

    async def run(clock: VirtualClock) -> Any:
        worlds.append(World(clock, delay))
        async with Live(worlds[0], clock, **options) as live:
            return await main(live, worlds[0])

    return run_in_virtual_time(run, now=T0), worlds[0]


def asks(group: str, now: Moment) -> Steps[tuple[str, str, float]]:
    progress = Progress(now)
    outcome = yield from progress.act(IncreaseSize(group=group, delta=1))
    return group, outcome.error.message if outcome.error else "", (progress.now - T0) / SECOND


def company(now: Moment) -> Steps[Any]:
    progress = Progress(now)
    yield from progress.wait(2 * SECOND)
    yield from progress.act(InBackground(partial(asks, "back")))
    together = yield from progress.together([partial(asks, name) for name in "abcd"], at_most=2)
    in_time = yield from progress.within(5 * SECOND, partial(asks, "e"))
    late = yield from progress.within(SECOND // 2, lambda at: (yield from late_machine(at)))
    yield from progress.emit(Event(regarding=ObjectReference(), type="Normal", reason="r", message="m"))
    return together, in_time, late, (progress.now - T0) / SECOND


def late_machine(now: Moment) -> Steps[Any]:
    progress = Progress(now)
    first = (yield from progress.act(IncreaseSize(group="f", delta=1))).error
    second = (yield from progress.act(IncreaseSize(group="g", delta=1))).error
    yield from progress.observe()
    return first, second, (yield from progress.wait(SECOND)).error, (progress.now - T0) / SECOND


def test_a_machine_runs_as_in_virtual_time() -> None:
    """What VirtualTime gives and what asyncio in virtual time gives is the same: values, moments, and order."""
    found, world = in_world(lambda live, world: live.run(company))

    log: list[tuple[str, float]] = []

    def perform(action: Action, now: Moment) -> Outcome:
        if isinstance(action, Emit | Observe):
            log.append((type(action).__name__, (now - T0) / SECOND))
            return Outcome(at=now)
        assert isinstance(action, IncreaseSize)
        log.append((action.group, (now - T0) / SECOND))
        return Outcome(at=now + SECOND)

    assert found == run_virtually(company, perform, now=T0)
    assert sorted(world.log) == sorted(log)
    assert found == (
        [("a", "", 3.0), ("b", "", 3.0), ("c", "", 4.0), ("d", "", 4.0)],
        ("e", "", 5.0),
        (DEADLINE_EXCEEDED, DEADLINE_EXCEEDED, DEADLINE_EXCEEDED, 5.5),
        5.5,
    )


def test_what_was_begun_in_the_background_is_waited_for() -> None:
    async def main(live: Live, world: World) -> None:
        await live.run(lambda now: (yield from Progress(now).act(InBackground(partial(asks, "slow")))))  # type: ignore[arg-type, misc, return-value]
        world.note("returned")

    _, world = in_world(main, delay=60)
    assert sorted(world.log) == [("returned", 0.0), ("slow", 0.0)]
    assert world.clock.now() == T0 + 60 * SECOND


def test_jitter() -> None:
    class Rng:
        def random(self) -> float:
            return 0.5

    def machine(now: Moment) -> Steps[Moment]:
        progress = Progress(now)
        yield from progress.wait(2 * SECOND, jitter=1.2)
        return progress.now - T0

    found, _ = in_world(lambda live, world: live.run(machine), rng=Rng())
    assert found == 32 * SECOND // 10


def test_a_scope_that_is_cancelled() -> None:
    async def main(live: Live, world: World) -> Any:
        asyncio.get_running_loop().call_later(1.25, live.scope.cancel)
        return await live.run(
            lambda now: (
                yield from Progress(now).together([partial(asks, "a"), partial(asks, "b"), late_machine], at_most=2)
            )  # type: ignore[misc, return-value]
        )

    (first, second, third), world = in_world(main)
    assert (first, second) == (("a", "", 1.0), ("b", "", 1.0))
    assert third == (CANCELED, CANCELED, CANCELED, 1.25)
    assert "g" not in [what for what, _ in world.log]  # what is asked for afterwards is not even begun


def test_what_a_machine_returns_within_a_time_may_be_an_error() -> None:
    """It is what it has to say, and no refusal of the time that it was given."""

    def machine(now: Moment) -> Steps[Any]:
        yield from Progress(now).wait(0)
        return CANCELED

    def outer(now: Moment) -> Steps[Any]:
        return (yield from Progress(now).within(SECOND, machine))

    assert in_world(lambda live, _: live.run(outer))[0] == CANCELED


def test_scopes_within_scopes() -> None:
    async def main(clock: VirtualClock) -> None:
        outer = Scope()
        inner = outer.within(10)
        innermost = inner.within(100)
        assert innermost.deadline == inner.deadline
        assert (outer.error, inner.error) == (None, None)
        await asyncio.sleep(10)
        assert (outer.error, inner.error, innermost.error) == (None, DEADLINE_EXCEEDED, DEADLINE_EXCEEDED)
        other = outer.within()
        outer.cancel()
        assert (other.error, outer.within(5).error, inner.error) == (CANCELED, CANCELED, DEADLINE_EXCEEDED)
        assert await other.limit(asyncio.sleep(1, "never")) == CANCELED

    run_in_virtual_time(main, now=T0)


def test_a_time_out_of_the_work_itself_is_its_own() -> None:
    async def main(clock: VirtualClock) -> None:
        async def work() -> None:
            raise TimeoutError("mine")

        with pytest.raises(TimeoutError, match="mine"):
            await Scope().limit(work())

    run_in_virtual_time(main, now=T0)


def faulty(now: Moment) -> Steps[None]:
    yield from Progress(now).wait(SECOND)
    raise ZeroDivisionError("a fault")


def test_a_fault_of_a_machine_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_world(lambda live, world: live.run(faulty))


def test_a_fault_in_company_ends_the_company() -> None:
    closed: list[str] = []

    def other(now: Moment) -> Steps[None]:
        try:
            yield from Progress(now).wait(3600 * SECOND)
        finally:
            closed.append("other")

    def both(now: Moment) -> Steps[Any]:
        return (yield from Progress(now).together([other, faulty]))

    with pytest.raises(ZeroDivisionError):
        in_world(lambda live, world: live.run(both))
    assert closed == ["other"]


def test_a_fault_in_the_background_ends_the_process() -> None:
    async def main(live: Live, world: World) -> None:
        await live.run(lambda now: (yield from Progress(now).act(InBackground(faulty))))  # type: ignore[arg-type, misc, return-value]
        await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        in_world(main)


async def nothing(action: Action) -> Outcome:
    return Outcome(at=0)


def test_the_loop_does_not_wait_for_a_decision() -> None:
    """A step that takes until the loop has done something else: were it done on the loop, this would hang."""
    other_things_done, thread = threading.Event(), []

    def decision(now: Moment) -> Steps[str]:
        thread.append(threading.current_thread())
        assert other_things_done.wait(60)
        yield from Progress(now).wait(0)
        return "decided"

    async def main() -> str:
        with ThreadPoolExecutor(1) as worker:
            async with Live(nothing, SystemClock(), worker=worker) as live:
                running = asyncio.create_task(live.run(decision))
                while not thread:
                    await asyncio.sleep(0)
                other_things_done.set()
                return await running

    assert asyncio.run(main()) == "decided"
    assert thread[0] is not threading.main_thread()


def test_a_cancelled_machine_is_closed_after_its_step() -> None:
    stepping, go_on, closed = threading.Event(), threading.Event(), []

    def decision(now: Moment) -> Steps[None]:
        try:
            stepping.set()
            assert go_on.wait(60)
            yield from Progress(now).wait(3600 * SECOND)
        finally:
            closed.append(go_on.is_set())

    async def main() -> None:
        with ThreadPoolExecutor(1) as worker:
            async with Live(nothing, SystemClock(), worker=worker) as live:
                running = asyncio.create_task(live.run(decision))
                while not stepping.is_set():
                    await asyncio.sleep(0)
                running.cancel()
                await asyncio.sleep(0)
                running.cancel()  # twice: it waits for the step all the same
                await asyncio.sleep(0)
                assert not running.done()
                go_on.set()
                with pytest.raises(asyncio.CancelledError):
                    await running

    asyncio.run(main())
    assert closed == [True]


class FakeStores:
    """One typed kind."""

    def __init__(self) -> None:
        self.synced = self.settled = True
        self.calls: list[Callable[[Change | None], None]] = []
        self.seen = self.coming = 0

    def subscribe(self, call: Callable[[Change | None], None]) -> Callable[[], None]:
        self.calls.append(call)
        return lambda: self.calls.remove(call)

    async def caught_up(self) -> None:
        self.seen += self.coming
        self.coming = 0

    def tell(self, change: Change | None) -> None:
        for call in self.calls:
            call(change)

    def objects(self, kind: str) -> Sequence[KubeObject]:
        return [Node()] * self.seen

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
    script: Callable[[FakeStores, FakeDriver], Awaitable[None]], takes: int = 0, told: list[Observation] | None = None
) -> list[tuple[int, float]]:
    observe = (lambda _: None) if told is None else told.append

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


def test_a_change_brings_a_round_forward_and_one_during_a_round_is_not_lost() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        await asyncio.sleep(4)
        stores.seen = 1
        stores.tell(Change(watch=WATCH, new=Node()))
        await asyncio.sleep(1)
        stores.seen = 2
        stores.tell(Change(watch=WATCH, new=Node()))
        stores.tell(Change(watch=WATCH, new=Node()))
        await asyncio.sleep(4)

    assert driven(script, takes=2 * SECOND) == [(1, 4.0), (2, 6.0)]


def test_what_has_come_is_taken_up_before_a_round() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        stores.coming = 3
        await asyncio.sleep(11)

    assert driven(script) == [(3, 10.0)]


def test_nothing_is_decided_while_the_stores_are_not_settled() -> None:
    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        stores.settled = False
        stores.tell(Change(watch=WATCH, new=Node()))
        await asyncio.sleep(60)
        assert driver.rounds == []
        stores.settled = True
        stores.tell(None)
        await asyncio.sleep(1)

    told: list[Observation] = []
    assert driven(script, told=told) == [(0, 60.0)]
    assert [each.name for each in told] == ["kscale_skipped_loops_total", "kscale_decision_seconds"]


@pytest.mark.parametrize("synced", [False, True])
def test_a_round_that_is_due_while_a_kind_is_listed_anew_is_told_once(synced: bool) -> None:
    """Before all has been listed for the first time no round can be due."""

    async def script(stores: FakeStores, driver: FakeDriver) -> None:
        stores.synced, stores.settled = synced, False
        for _ in range(3):
            await asyncio.sleep(7)
            stores.tell(None)
        stores.synced = stores.settled = True
        stores.tell(None)
        await asyncio.sleep(1)

    told: list[Observation] = []
    assert driven(script, told=told) == [(0, 21.0)]
    skipped = [Observation(name="kscale_skipped_loops_total", labels={"driver": "fake"})]
    assert [each for each in told if each.name.startswith("kscale_skipped")] == skipped[: int(synced)]


def test_it_is_told_how_long_a_round_decided() -> None:
    """And not how long it waited: here each look at the clock is a second after the last."""
    told: list[Observation] = []

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
            await drive(driver, FakeStores(), live, clock, observe=told.append)

    run_in_virtual_time(main, now=T0)
    assert told == [Observation(name="kscale_decision_seconds", value=2.0, labels={"driver": "fake"})]


def test_it_is_told_what_machines_decided_that_a_machine_runs() -> None:
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


def elected(
    work: Callable[[], Awaitable[Any]], *, release: bool = False, stop: float | None = None, hang: float | None = None
) -> tuple[Any, Server, Moment]:
    server = Server()
    options = LeaderElectionOptions(
        identity="me", resource_name="bar", resource_namespace="foo", renew_deadline=timedelta(seconds=10)
    )

    async def main(clock: VirtualClock) -> tuple[Any, Moment]:
        async def perform(action: Action) -> Outcome:
            if hang is not None and clock.now() - T0 >= hang * SECOND and not isinstance(action, Emit | Observe):
                await asyncio.sleep(3600)
            return server.perform(action, clock.now())

        async with Live(perform, clock) as live:
            if stop is not None:
                asyncio.get_running_loop().call_later(stop, live.scope.cancel)
            found: Any = None
            try:
                found = await lead(LeaderElector(options), live, work, release=release)
            except LostLeadershipError as error:
                found = error
            return found, clock.now() - T0

    found, took = run_in_virtual_time(main, now=T0)
    return found, server, took


def test_work_is_done_by_the_leader() -> None:
    found, server, took = elected(lambda: asyncio.sleep(60, "done"), release=True)
    assert (found, took) == ("done", 60 * SECOND)
    assert server.holders[-1] == ""
    assert server.asked.count("patch") == 32  # at 0, 2, ..., 60 s, and the release
    assert server.events == ["me became leader", "me stopped leading"]


def test_the_lease_is_kept_for_the_next_start_unless_it_is_given_up() -> None:
    _, server, _ = elected(lambda: asyncio.sleep(60))
    assert server.holders[-1] == "me"


def test_who_cannot_renew_stops_working() -> None:
    stopped: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(True)

    found, _, took = elected(work, hang=7)
    assert isinstance(found, LostLeadershipError)
    assert stopped == [True]
    assert took == 18 * SECOND  # the round that began at 8 s has 10


def test_a_fault_of_the_work_is_raised() -> None:
    async def work() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        elected(work)


def test_stopped_before_it_led() -> None:
    found, server, took = elected(lambda: asyncio.sleep(1, "never"), stop=30, hang=0)
    assert (found, server.holders, took) == (None, [], 30 * SECOND)


def test_questions_are_asked_of_the_world() -> None:
    async def perform(action: Action) -> Outcome:
        assert isinstance(action, Get)
        return Outcome(at=T0, value=Node())

    async def main(clock: VirtualClock) -> Any:
        async with Live(perform, clock) as live:

            def machine(now: Moment) -> Steps[Any]:
                return (yield from Progress(now).act(Get(kind="Node", name="n"))).value

            return await live.run(machine)

    assert run_in_virtual_time(main, now=T0) == Node()
