"""The bytes that responses share: who may take some, who waits, and that nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from kscale.effects import SECOND
from kscale.world.clock import VirtualClock, run_in_virtual_time
from kscale.world.kubernetes.transport import FREE_BYTES, PIECE_BYTES, Buffer, Buffers

SHARED = 10 * PIECE_BYTES
RESPONSE = 40 * PIECE_BYTES


async def read(buffer: Buffer, size: int, *, hangs: bool = False) -> None:
    """Take a response piece by piece; ``hangs``: and never end."""
    with buffer:
        for _ in range(size // PIECE_BYTES):
            await buffer.take()
            await asyncio.sleep(0.001)
        if hangs:
            await asyncio.Event().wait()


def test_responses_that_are_read_at_once_share_the_bytes_and_all_end() -> None:
    buffers = Buffers(SHARED)

    async def main(clock: VirtualClock) -> None:
        async with asyncio.timeout(100):
            await asyncio.gather(*(read(buffers.open(retained=bool(i % 2)), RESPONSE) for i in range(30)))

    run_in_virtual_time(main, now=SECOND)
    assert SHARED < buffers.peak <= SHARED + 2 * RESPONSE
    assert buffers.used == 0


def test_a_small_response_never_waits() -> None:
    buffers = Buffers(0)

    async def main(clock: VirtualClock) -> None:
        first, second, small = buffers.open(), buffers.open(), buffers.open()
        await first.take(FREE_BYTES + 1)
        async with asyncio.timeout(1):
            await small.take(FREE_BYTES)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await second.take(FREE_BYTES + 1)
        assert second.size == 0

    run_in_virtual_time(main, now=SECOND)


def test_the_oldest_response_goes_on_first() -> None:
    buffers = Buffers(0)
    order: list[str] = []

    async def take(name: str, buffer: Buffer) -> None:
        with buffer:
            await buffer.take(RESPONSE)
            order.append(name)
            await asyncio.sleep(1)

    async def main(clock: VirtualClock) -> None:
        opened = {name: buffers.open() for name in ("first", "second", "third", "fourth")}
        async with asyncio.TaskGroup() as group:
            for name in ("second", "fourth", "third", "first"):
                group.create_task(take(name, opened[name]))

    run_in_virtual_time(main, now=SECOND)
    assert order == ["second", "first", "third", "fourth"]  # the first to come found nobody there


def test_a_list_that_waits_to_be_applied_keeps_no_other_response_waiting() -> None:
    """Whoever holds the stores may need a response before a list can be applied."""
    buffers = Buffers(0)

    async def main(clock: VirtualClock) -> None:
        listed, following = buffers.open(retained=True), buffers.open(retained=True)
        await listed.take(RESPONSE)
        async with asyncio.timeout(1):
            await read(buffers.open(), RESPONSE)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await following.take(RESPONSE)
        listed.release()
        async with asyncio.timeout(1):
            await following.take(RESPONSE)

    run_in_virtual_time(main, now=SECOND)


def test_watch_never_exceeds_the_shared_buffer() -> None:
    """So watches whose lines never end cannot keep lists from being read."""
    buffers = Buffers(SHARED)

    async def main(clock: VirtualClock) -> None:
        watches = [asyncio.create_task(read(buffers.open(is_watch=True), RESPONSE)) for _ in range(5)]
        await asyncio.sleep(1)
        assert buffers.used <= SHARED
        async with asyncio.timeout(1):
            await read(buffers.open(retained=True), RESPONSE)
        for task in watches:
            assert not task.done()
            task.cancel()
        await asyncio.wait(watches)
        assert buffers.used == 0

    run_in_virtual_time(main, now=SECOND)


def test_a_response_that_is_given_up_lets_others_go_on() -> None:
    buffers = Buffers(0)

    async def main(clock: VirtualClock) -> None:
        hanging = asyncio.create_task(read(buffers.open(), RESPONSE, hangs=True))
        waiting = [asyncio.create_task(read(buffers.open(), RESPONSE)) for _ in range(3)]
        await asyncio.sleep(1)
        waiting[0].cancel()
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting[1:])
        hanging.cancel()
        async with asyncio.timeout(1):
            await asyncio.gather(*waiting[1:])

    run_in_virtual_time(main, now=SECOND)
    assert buffers.used == 0


def test_bytes_that_did_not_come_are_free_for_others() -> None:
    buffers = Buffers(PIECE_BYTES)

    slow, other = buffers.open(is_watch=True), buffers.open(is_watch=True)
    slow.adjust(FREE_BYTES + PIECE_BYTES)
    assert other.fits
    other.adjust(FREE_BYTES)
    assert not other.fits
    slow.adjust(-PIECE_BYTES)
    assert other.fits
