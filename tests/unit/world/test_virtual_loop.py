"""asyncio in virtual time: what it promises, and that a seed is an order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kscale.effects import SECOND, Moment, Outcome, Progress, Steps, VirtualTime
from kscale.world.clock import StuckError, VirtualClock, VirtualLoop, run_in_virtual_time

T0 = 1_800_000_000 * SECOND


def test_a_day_passes_at_once() -> None:
    async def main(clock: VirtualClock) -> list[int]:
        times = []
        for _ in range(24):
            await asyncio.sleep(3600)
            times.append((clock.now() - T0) // SECOND)
        return times

    assert run_in_virtual_time(main, now=T0) == [3600 * i for i in range(1, 25)]


def test_time_is_exact_and_starts_near_zero() -> None:
    async def main(clock: VirtualClock) -> tuple[float, int, int]:
        loop = asyncio.get_running_loop()
        first = loop.time()
        await asyncio.sleep(0.3)
        await asyncio.sleep(30 * 86400)
        return first, clock.now() - T0, clock.monotonic() - clock.now()

    assert run_in_virtual_time(main, now=T0) == (0.0, 30 * 86400 * SECOND + 3 * SECOND // 10, 0)


def order(seed: int | None) -> list[int]:
    log: list[int] = []

    async def one(i: int) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            log.append(i)

    async def main(clock: VirtualClock) -> None:
        await asyncio.gather(*map(one, range(5)))

    run_in_virtual_time(main, now=T0, seed=seed)
    return log


def test_same_seed_gives_the_same_order() -> None:
    assert order(None) == [0, 1, 2, 3, 4] * 3
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5
    assert sorted(order(3)) == sorted(order(None))


def test_a_deadlock_is_an_error() -> None:
    async def main(clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        run_in_virtual_time(main, now=T0)


def test_timeouts_and_cancelled_timers() -> None:
    async def main(clock: VirtualClock) -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        async with asyncio.timeout(3600):
            await asyncio.sleep(1)
        queue: asyncio.Queue[int] = asyncio.Queue()
        asyncio.get_running_loop().call_later(2, queue.put_nowait, 7)
        assert await asyncio.wait_for(queue.get(), 60) == 7
        return (clock.now() - T0) // SECOND

    assert run_in_virtual_time(main, now=T0) == 8  # timers that were cancelled are not waited for


def test_threads_run_inline() -> None:
    async def main(clock: VirtualClock) -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return await loop.run_in_executor(None, len, "abc"), await asyncio.to_thread(str, 5)

    assert run_in_virtual_time(main, now=T0) == (3, "5")


def test_system_facilities_are_unavailable() -> None:
    async def main(clock: VirtualClock) -> None:
        await asyncio.open_connection("localhost", 1)

    with pytest.raises(NotImplementedError):
        run_in_virtual_time(main, now=T0)


def test_interrupted_tasks_and_generators_are_closed() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(1)
        finally:
            closed.append("generator")

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append("task")

    tasks: list[Any] = []

    async def main(clock: VirtualClock) -> None:
        tasks.append(asyncio.create_task(forever()))
        tasks.append(numbers())
        await anext(tasks[1])
        await asyncio.sleep(1)

    run_in_virtual_time(main, now=T0)
    assert sorted(closed) == ["generator", "task"]


def test_callback_error_is_raised() -> None:
    async def main(clock: VirtualClock) -> None:
        asyncio.get_running_loop().call_soon(divmod, 1, 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_in_virtual_time(main, now=T0)


def test_machines_and_coroutines_share_one_order() -> None:
    log: list[tuple[str, int]] = []
    virtual = VirtualTime(lambda action, now: Outcome(at=now), now=T0)

    def machine(now: Moment) -> Steps[None]:
        progress = Progress(now)
        for _ in range(3):
            yield from progress.wait(2 * SECOND)
            log.append(("machine", (progress.now - T0) // SECOND))

    async def coroutine() -> None:
        for _ in range(3):
            await asyncio.sleep(3)
            log.append(("coroutine", (virtual.now - T0) // SECOND))

    virtual.start(machine)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(virtual)) as runner:
        runner.run(coroutine())
    assert log == [
        ("machine", 2), ("coroutine", 3), ("machine", 4), ("machine", 6), ("coroutine", 6), ("coroutine", 9),
    ]  # fmt: skip


def test_closed_loop_accepts_no_callbacks() -> None:
    loop = VirtualLoop(VirtualTime(lambda action, now: Outcome(at=now), now=T0))
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
