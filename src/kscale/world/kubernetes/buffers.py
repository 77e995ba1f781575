"""Bound the bytes that all responses of one client hold at once."""

from __future__ import annotations

import asyncio
import itertools
from bisect import insort
from typing import Final, NamedTuple, Self

__all__ = ["FREE_BYTES", "PIECE_BYTES", "Buffer", "Buffers"]

PIECE_BYTES: Final = 64 << 10
"""How much a response takes at a time."""
FREE_BYTES: Final = PIECE_BYTES
"""What each response may hold beyond the shared bytes. Small responses, such as that to a lease, never wait."""


class Buffers:
    """The bytes that the responses of one client share: at most ``shared``, ``FREE_BYTES`` of each not counted.

    A response that needs more waits until another one has been released. So that partial responses cannot wait for each
    other for ever, one response of each class may go on beyond ``shared``, up to the limit of a single response:

    - one that is released as soon as it is read, and
    - one that is released only after its caller has applied it (``kept``). Its caller may wait for somebody who waits
      for a response of the first class, but never the other way round.

    A buffer of a watch never goes on beyond ``shared``. The total is therefore at most ``shared``, two single
    responses, and ``FREE_BYTES`` of each response. Kafka's consumers bound their fetches in the same way: a fetch
    beyond the limit is returned if it is the first.

    Single owner: belongs to the loop's thread.
    """

    __slots__ = ("_exceeding", "_numbers", "_waiting", "peak", "shared", "used")

    def __init__(self, shared: int) -> None:
        self.shared = shared
        self.used = 0
        self.peak = 0
        """The most bytes that were used at once."""
        self._numbers = itertools.count()
        self._waiting: list[_Request] = []
        self._exceeding: dict[bool, Buffer] = {}

    def open(self, *, kept: bool = False, is_watch: bool = False) -> Buffer:
        """Open the buffer of a response, to be released by the caller."""
        return Buffer(self, next(self._numbers), kept, is_watch)

    def grant(self, buffer: Buffer, size: int) -> bool:
        """Let a buffer hold ``size`` bytes more, if it may. The first that does not fit may exceed ``shared``."""
        counted = buffer.counted_with(size)
        if counted > 0 and self.used + counted > self.shared and self._exceeding.get(buffer.kept) is not buffer:
            if buffer.is_watch or buffer.kept in self._exceeding:
                return False
            self._exceeding[buffer.kept] = buffer
        buffer.adjust(size)
        return True

    def count(self, counted: int) -> None:
        self.used += counted
        self.peak = max(self.peak, self.used)
        if counted < 0:
            self._wake()

    def let_go(self, buffer: Buffer) -> None:
        if self._exceeding.get(buffer.kept) is buffer:
            del self._exceeding[buffer.kept]
        buffer.adjust(-buffer.size)
        self._wake()

    def _wake(self) -> None:
        """Let waiting buffers go on, the oldest first."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if request.granted.done():  # cancelled
                continue
            if self.grant(request.buffer, request.size):
                request.granted.set_result(None)
            else:
                self._waiting.append(request)

    async def wait(self, buffer: Buffer, size: int) -> None:
        request = _Request(buffer, size, asyncio.get_running_loop().create_future())
        insort(self._waiting, request, key=lambda each: each.buffer.number)
        await request.granted


class Buffer:
    """What one response holds. As a context manager it is released at the end."""

    __slots__ = ("_buffers", "is_watch", "kept", "number", "size")

    def __init__(self, buffers: Buffers, number: int, kept: bool, is_watch: bool) -> None:
        self._buffers, self.number, self.kept, self.is_watch = buffers, number, kept, is_watch
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def fits(self) -> bool:
        """Whether another piece would be taken without a wait, within the shared bytes."""
        counted = self.counted_with(PIECE_BYTES)
        return counted <= 0 or self._buffers.used + counted <= self._buffers.shared

    def counted_with(self, size: int) -> int:
        """Return by how many bytes the use of shared bytes changes if this buffer holds ``size`` more."""
        return max(self.size + size - FREE_BYTES, 0) - max(self.size - FREE_BYTES, 0)

    async def take(self, size: int = PIECE_BYTES) -> None:
        """Hold ``size`` bytes more, which may have to wait."""
        if not self._buffers.grant(self, size):
            await self._buffers.wait(self, size)

    def adjust(self, change: int) -> None:
        """Hold more or fewer bytes, without a wait: as many as have come in fact."""
        counted = self.counted_with(change)
        self.size += change
        if counted:
            self._buffers.count(counted)

    def release(self) -> None:
        """Hold nothing any more."""
        self._buffers.let_go(self)


class _Request(NamedTuple):
    """A buffer that waits to hold ``size`` bytes more."""

    buffer: Buffer
    size: int
    granted: asyncio.Future[None]
