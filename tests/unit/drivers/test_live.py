"""Machines and drivers on asyncio: in virtual time, and with a worker thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import ref

import pytest

import kscale.drivers.live as live_module
from kscale.drivers.live import Live, Scope
from kscale.effects import (
    CANCELED,
    DEADLINE_EXCEEDED,
    SECOND,
    Action,
    Deferred,
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
    run_virtually,
)
from kscale.objects.api.core import Node, ObjectReference
from kscale.world.clock import SystemClock, VirtualClock, run_in_virtual_time

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
    result, world = in_world(lambda live, world: live.run(company))

    log: list[tuple[str, float]] = []

    def perform(action: Action, now: Moment) -> Outcome:
        if isinstance(action, Emit | Observe):
            log.append((type(action).__name__, (now - T0) / SECOND))
            return Outcome(at=now)
        assert isinstance(action, IncreaseSize)
        log.append((action.group, (now - T0) / SECOND))
        return Outcome(at=now + SECOND)

    assert result == run_virtually(company, perform, now=T0)
    assert sorted(world.log) == sorted(log)
    assert result == (
        [("a", "", 3.0), ("b", "", 3.0), ("c", "", 4.0), ("d", "", 4.0)],
        ("e", "", 5.0),
        (DEADLINE_EXCEEDED, DEADLINE_EXCEEDED, DEADLINE_EXCEEDED, 5.5),
        5.5,
    )


def test_background_work_is_awaited_at_the_end() -> None:
    async def main(live: Live, world: World) -> None:
        await live.run(lambda now: (yield from Progress(now).act(InBackground(partial(asks, "slow")))))
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

    result, _ = in_world(lambda live, world: live.run(machine), rng=Rng())
    assert result == 32 * SECOND // 10


def test_a_scope_that_is_cancelled() -> None:
    async def main(live: Live, world: World) -> Any:
        asyncio.get_running_loop().call_later(1.25, live.scope.cancel)
        return await live.run(
            lambda now: (
                yield from Progress(now).together([partial(asks, "a"), partial(asks, "b"), late_machine], at_most=2)
            )
        )

    (first, second, third), world = in_world(main)
    assert (first, second) == (("a", "", 1.0), ("b", "", 1.0))
    assert third == (CANCELED, CANCELED, CANCELED, 1.25)
    assert "g" not in [what for what, _ in world.log]  # what is asked for afterwards is not even begun


def test_error_returned_within_a_time_limit_is_a_value() -> None:
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


class Alone:
    """A machine that does nothing."""

    def __call__(self, now: Moment) -> Steps[None]:
        yield from Progress(now).clock()


def test_finished_machines_are_released() -> None:
    """Ten thousand machines and what they were made of would stay until the next that is asked for has been done."""
    references: list[ref[Alone]] = []

    def machine(now: Moment) -> Steps[bool]:
        progress = Progress(now)
        company = [Alone()]
        references.append(ref(company[0]))
        yield from progress.together(company)
        del company
        return references[0]() is None

    assert in_world(lambda live, _: live.run(machine))[0]


def test_a_fault_of_a_machine_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_world(lambda live, world: live.run(faulty))


def test_error_of_one_machine_ends_its_siblings() -> None:
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
        await live.run(lambda now: (yield from Progress(now).act(InBackground(faulty))))
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


def test_reads_go_to_the_performer() -> None:
    async def perform(action: Action) -> Outcome:
        assert isinstance(action, Get)
        return Outcome(at=T0, value=Node())

    async def main(clock: VirtualClock) -> Any:
        async with Live(perform, clock) as live:

            def machine(now: Moment) -> Steps[Any]:
                return (yield from Progress(now).act(Get(kind="Node", name="n"))).value

            return await live.run(machine)

    assert run_in_virtual_time(main, now=T0) == Node()


class CountingExecutor(ThreadPoolExecutor):
    """Counts what it is given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.submitted = 0

    def submit(self, *call: Any, **named: Any) -> Any:
        self.submitted += 1
        return super().submit(*call, **named)


def test_brief_steps_are_taken_on_the_loop() -> None:
    """Those of their company are not. While the turn is another's, they go to the thread, and wait for it."""

    def machine(now: Moment) -> Steps[list[int]]:
        before = threading.get_ident()
        yield from Progress(now).act(IncreaseSize(group="g", delta=1))
        return [before, threading.get_ident()]

    def all_of_them(now: Moment) -> Steps[tuple[int, list[list[int]]]]:
        result = yield from Progress(now).together([machine] * 4, at_most=1, brief=True)
        return threading.get_ident(), result

    async def main(*, inline: bool) -> tuple[int, list[list[int]]]:
        turn, released = asyncio.Lock(), list[bool]()

        def release() -> None:
            released.append(True)
            turn.release()

        async def perform(_: Action) -> Outcome:
            if inline and not released:
                await turn.acquire()
                asyncio.get_running_loop().call_later(0.01, release)
            return Outcome(at=0)

        async with Live(perform, SystemClock(), worker=worker, turn=turn) as live:
            result: tuple[int, list[list[int]]] = await live.run(all_of_them)
            assert inline == bool(released)
            return result

    here = threading.get_ident()
    with ThreadPoolExecutor(1) as worker:
        thread, result = asyncio.run(main(inline=False))
        assert thread != here
        assert result == [[here, here]] * 4
        _, result = asyncio.run(main(inline=True))
        assert result[0] == [here, thread]


def test_brief_steps_within_a_time_limit_are_taken_on_the_loop() -> None:
    threads: list[bool] = []

    def part(now: Moment) -> Steps[None]:
        threads.append(threading.current_thread() is threading.main_thread())
        yield from Progress(now).wait(0)

    def machine(now: Moment) -> Steps[None]:
        yield from Progress(now).within(SECOND, part)

    async def perform(action: Action) -> Outcome:
        return Outcome(at=0)

    async def main() -> None:
        with ThreadPoolExecutor(1) as worker:
            async with Live(perform, SystemClock(), worker=worker) as live:
                for brief in (True, False):
                    await live.run(machine, brief=brief)

    asyncio.run(main())
    assert threads == [True, False]


def test_brief_steps_let_others_take_their_turn() -> None:
    """Also where no action waits for anything, as in a dry run. Each look at the clock takes half a millisecond."""

    class Slow(SystemClock):
        looks = 0

        def monotonic(self) -> int:
            self.looks += 1
            return self.looks * 500_000

    def machine(now: Moment) -> Steps[None]:
        yield from Progress(now).act(IncreaseSize(group="g", delta=1))

    def all_of_them(now: Moment) -> Steps[list[None]]:
        return (yield from Progress(now).together([machine] * 100, at_most=5, brief=True))

    async def main() -> tuple[int, int]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        clock = Slow()
        async with Live(nothing, clock, worker=worker) as live:
            waiting = asyncio.create_task(others())
            await live.run(all_of_them)
            waiting.cancel()
        return turns, clock.looks

    with ThreadPoolExecutor(1) as worker:
        turns, looks = asyncio.run(main())
    assert looks >= 600  # three a step
    assert turns >= 15  # all five places let go after two steps each, in the same turn of the loop


def test_deferred_observations_are_built_in_the_worker_thread() -> None:
    created: list[int] = []

    def observed() -> list[Observation]:
        created.append(threading.get_ident())
        return [Observation(name="seen")]

    def machine(now: Moment) -> Steps[int]:
        yield from Progress(now).act(Observe(Deferred(observed)))
        return threading.get_ident()

    async def main() -> int:
        async with Live(nothing, SystemClock(), worker=worker) as live:
            result: int = await live.run(machine)
            return result

    with ThreadPoolExecutor(1) as worker:
        thread = asyncio.run(main())
    assert created == [thread]
    assert thread != threading.get_ident()


def test_steps_that_are_due_together_go_to_the_thread_together() -> None:
    """A hundred machines of three steps: not three hundred ways to the thread. A fault of one is that one's."""

    def machine(now: Moment) -> Steps[int]:
        progress = Progress(now)
        yield from progress.observe(Observation(name="seen"))
        yield from progress.emit(Event(regarding=ObjectReference(), type="Normal", reason="r", message="m"))
        return threading.get_ident()

    def all_of_them(now: Moment) -> Steps[list[int]]:
        return (yield from Progress(now).together([machine] * 100))

    async def main() -> tuple[list[int], BaseException | int]:
        async with Live(nothing, SystemClock(), worker=worker) as live:
            result = await live.run(all_of_them)
            faults = await asyncio.gather(live.run(faulty), live.run(machine), return_exceptions=True)
            assert isinstance(faults[1], int)
            return result, faults[0]

    with CountingExecutor() as worker:
        result, fault = asyncio.run(main())
    assert isinstance(fault, ZeroDivisionError)
    assert len(result) == 100
    assert set(result) != {threading.get_ident()}
    assert worker.submitted < 20


def test_machine_cancelled_before_its_step_runs_none() -> None:
    steps: list[str] = []
    holding, let_go = threading.Event(), threading.Event()

    def first(now: Moment) -> Steps[None]:
        holding.set()
        assert let_go.wait(60)
        yield from Progress(now).observe()

    def second(now: Moment) -> Steps[None]:
        steps.append("second")
        yield from Progress(now).observe()

    async def main() -> None:
        with ThreadPoolExecutor(1) as worker:
            async with Live(nothing, SystemClock(), worker=worker) as live:
                running = asyncio.create_task(live.run(first))
                while not holding.is_set():
                    await asyncio.sleep(0)
                waiting = asyncio.create_task(live.run(second))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                let_go.set()
                await running

    asyncio.run(main())
    assert steps == []


def test_a_quick_step_does_not_wait_for_a_slow_one_that_was_due_with_it() -> None:
    """Nor does who gives it up, and one whose turn has not come by then is not taken."""
    slow_began, let_go = threading.Event(), threading.Event()
    steps: list[str] = []

    def quick(now: Moment) -> Steps[None]:
        try:
            yield from Progress(now).emit(Event(regarding=ObjectReference(), type="Normal", reason="r", message="m"))
        finally:
            steps.append("quick is closed")

    def slow(now: Moment) -> Steps[str]:
        slow_began.set()
        assert let_go.wait(60)
        yield from Progress(now).observe()
        return "slow"

    def later(now: Moment) -> Steps[None]:
        steps.append("later")
        yield from Progress(now).observe()

    async def perform(action: Action) -> Outcome:
        if isinstance(action, Emit):
            acted.set()
            await asyncio.Event().wait()
        return Outcome(at=0)

    async def main() -> None:
        with ThreadPoolExecutor(1) as worker:
            async with Live(perform, SystemClock(), worker=worker) as live:
                machines = (quick, slow, later)
                first, second, third = [asyncio.create_task(live.run(machine)) for machine in machines]
                try:
                    async with asyncio.timeout(30):
                        await acted.wait()
                        while not slow_began.is_set():
                            await asyncio.sleep(0)
                        for task in (third, first):
                            task.cancel()
                            with pytest.raises(asyncio.CancelledError):
                                await task
                    assert not second.done()
                finally:
                    let_go.set()
                assert await second == "slow"

    acted = asyncio.Event()
    asyncio.run(main())
    assert steps == ["quick is closed"]


def test_faults_of_steps_that_are_due_together_are_each_ones_own() -> None:
    def at_once(now: Moment) -> Steps[None]:
        raise ZeroDivisionError("a fault")
        yield

    def machine(now: Moment) -> Steps[str]:
        yield from Progress(now).observe()
        return "done"

    async def main() -> list[Any]:
        with ThreadPoolExecutor(1) as worker:
            async with Live(nothing, SystemClock(), worker=worker) as live:
                machines = (at_once, machine, at_once)
                return await asyncio.gather(*(live.run(each) for each in machines), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert (type(first), second, type(third)) == (ZeroDivisionError, "done", ZeroDivisionError)


@pytest.mark.parametrize("fails", [False, True])
def test_reports_between_two_requests_wake_the_worker_once(fails: bool) -> None:
    """They are performed in order, before the next request or the error of the machine."""
    performed: list[str] = []

    def steps(now: Moment) -> Steps[str]:
        yield IncreaseSize(group="first", delta=1)
        for _ in range(20):
            yield Observe([])
        yield Emit([])
        if fails:
            raise ValueError("after reports")
        yield IncreaseSize(group="second", delta=1)
        return "done"

    async def perform(action: Action) -> Outcome:
        performed.append(action.group if isinstance(action, IncreaseSize) else type(action).__name__)
        return Outcome(at=T0)

    async def run(worker: ThreadPoolExecutor) -> str:
        async with Live(perform, StoppedClock(), worker=worker) as live:
            result: str = await live.run(steps)
            return result

    with CountingExecutor() as worker:
        if fails:
            with pytest.raises(ValueError, match="after reports"):
                asyncio.run(run(worker))
        else:
            assert asyncio.run(run(worker)) == "done"
    reports = ["Observe"] * 20 + ["Emit"]
    assert performed == ["first", *reports, *([] if fails else ["second"])]
    assert worker.submitted == (2 if fails else 3)


def test_reading_the_clock_does_not_leave_the_worker() -> None:
    """Except that a scope is over: then the machine is told."""
    scope = Scope()
    errors: list[bool] = []

    def steps(now: Moment) -> Steps[str]:
        progress = Progress(now)
        for _ in range(20):
            yield from progress.clock()
        scope.cancel()
        errors.append((yield from progress.wait(0)).error is not None)
        return "done"

    async def run(worker: ThreadPoolExecutor) -> str:
        async with Live(nothing, StoppedClock(), worker=worker) as live:
            result: str = await live.run(steps, scope)
            return result

    with CountingExecutor() as worker:
        assert asyncio.run(run(worker)) == "done"
    assert (worker.submitted, errors) == (2, [True])


class StoppedClock(SystemClock):
    """A clock for tests that must not depend on the speed of the machine."""

    def monotonic(self) -> int:
        return 0


@pytest.mark.parametrize("first", ["result", "cancellation"])
@pytest.mark.parametrize("fails", [False, True])
def test_machine_with_a_finished_step_is_cancelled_immediately(
    fails: bool, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would wait for the end of a step that has ended: a program that is told to end would not."""
    closed: list[bool] = []

    def machine(now: Moment) -> Steps[None]:
        try:
            if fails:
                raise ValueError("a fault")
            yield IncreaseSize(group="a", delta=1)
        finally:
            closed.append(True)

    async def perform(action: Action) -> Outcome:
        raise AssertionError(action)

    async def main() -> None:
        original = live_module._Step.set_result

        def set_and_cancel(step: Any, result: Any) -> None:
            if first == "cancellation":
                task.cancel()
            original(step, result)
            task.cancel()  # before the task that waits for the result goes on

        monkeypatch.setattr(live_module._Step, "set_result", set_and_cancel)
        with ThreadPoolExecutor(1) as worker:
            task = asyncio.create_task(Live(perform, SystemClock(), worker=worker).run(machine))
            async with asyncio.timeout(10):
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(main())
    assert closed == [True]
