"""HTTP requests and responses as bytes: the interface between client and network."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from bisect import insort
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol, Self

import msgspec

from kscale.errors import KscaleError

__all__ = [
    "DEFAULT_LIMITS",
    "FREE_BYTES",
    "PIECE_BYTES",
    "Answer",
    "Buffer",
    "Buffers",
    "Call",
    "ConnectionFailedError",
    "FailureKind",
    "ServerLimits",
    "Stream",
    "Transport",
    "connection_failure",
]


FailureKind = Literal["refused", "reset", "timeout", "too large", "other"]


def connection_failure(error: OSError) -> str:
    """Return why no connection was made, in Go's form. ``error`` is aiohttp's ClientConnectorError."""
    cause: OSError = getattr(error, "os_error", error)
    host, port = getattr(error, "host", ""), getattr(error, "port", "")
    if isinstance(cause, socket.gaierror):
        return f"dial tcp: lookup {host}: {cause.strerror or cause}"
    return f"dial tcp {host}:{port}: connect: {os.strerror(cause.errno).lower() if cause.errno else cause}"


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of what is accepted from a server.

    - ``response_bytes``: of one response, decompressed; for a watch, of events that wait to be applied.
    - ``buffered_bytes``: of all responses that are being read at once
      (:class:`~kscale.world.kubernetes.transport.Buffers`).
    - ``list_pages``: pages of one list.
    - ``line_bytes``: of one line of a watch.
    - ``header_bytes``: of one header of a response, which may have 128 of them.
    - ``request_seconds``: from a request to the end of its response, or to the headers of a watch.
    - ``retry_seconds``: maximum of ``Retry-After``; a longer time is reduced to it.
    """

    response_bytes: int = 256 << 20
    buffered_bytes: int = 256 << 20
    list_pages: int = 2000
    line_bytes: int = 16 << 20
    header_bytes: int = 16 << 10
    request_seconds: float = 60.0
    retry_seconds: float = 30.0


DEFAULT_LIMITS: Final = ServerLimits()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """HTTP request. ``path`` begins with a slash and is quoted already; ``query`` is not.

    ``resource`` and ``name`` describe the object in messages (``pods``, ``web-1``). ``retained``: the response stays
    buffered until the caller calls :meth:`Answer.release`.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = ""
    accept: str = "application/json"
    resource: str = ""
    name: str = ""
    retained: bool = False


class Answer(msgspec.Struct, frozen=True):
    """HTTP response. ``headers`` is asked for names in lower case. It holds ``buffer`` until :meth:`release`."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    buffer: Buffer | None = None

    def release(self) -> None:
        """Release the buffered bytes of this response, so that other responses can be read."""
        if self.buffer is not None:
            self.buffer.release()


class ConnectionFailedError(KscaleError, OSError):
    """There is no complete response.

    Kinds: ``refused``: the connection was refused. ``reset``: it broke or ended too early. ``timeout``: no data came in
    time. ``too large``: the response exceeds :class:`ServerLimits`.
    """

    def __init__(self, message: str, kind: FailureKind = "other") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


class Stream(Protocol):
    """Response whose body is read in pieces. Raises :class:`ConnectionFailedError` if the connection breaks."""

    @property
    def status(self) -> int:
        """Return the HTTP status of the response."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers of the response."""
        ...

    async def read_some(self) -> bytes:
        """Return the available bytes of the body, empty at its end. Cancelling loses no data."""
        ...

    def read_received(self) -> bytes:
        """Return the bytes of the body that have been received, without waiting; empty if there are none."""
        ...

    def on_end(self, call: Callable[[], None]) -> None:
        """Call a function when the response ends, its connection breaks or the buffer of received bytes is full.

        The function is not called while reading is paused.
        """
        ...

    def pause_reading(self) -> None:
        """Stop reading: data stays in the system's buffers and does not wake the event loop."""
        ...

    def resume_reading(self) -> None:
        """Read from the connection again after :meth:`pause_reading`. No effect if it is closed."""
        ...

    async def read(self) -> bytes:
        """Return the whole body."""
        ...


class Transport(Protocol):
    """Sends HTTP requests. Raises :class:`ConnectionFailedError` for failed connections, never for a status."""

    async def call(self, call: Call) -> Answer:
        """Send a request and return the complete response. Raises ConnectionFailedError if none arrives."""
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[Stream]:
        """Send a request and return a context with the response as a stream; the connection is closed at its end.

        Entering the context raises ConnectionFailedError if no response arrives.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


PIECE_BYTES: Final = 64 << 10
"""Number of bytes that a response reads at a time."""
FREE_BYTES: Final = PIECE_BYTES
"""Bytes that each response may buffer in addition to the shared bytes. Small responses, such as that to a lease, never
wait.
"""


class Buffers:
    """Limits the bytes that all responses of one client buffer at once to ``shared``.

    The first ``FREE_BYTES`` of each response are not counted. A response that needs more waits until another one has
    been released. So that partial responses cannot wait for each other for ever, one response of each class may exceed
    ``shared``, up to the limit of a single response:

    - one that is released as soon as it is read, and
    - one that is released only after its caller has applied it (``retained``). Its caller may wait for somebody who
      waits for a response of the first class, but never the other way round.

    The buffer of a watch never exceeds ``shared``. The total is therefore at most ``shared``, two single responses, and
    ``FREE_BYTES`` of each response. Kafka's consumers bound their fetches in the same way: a fetch beyond the limit is
    returned if it is the first.

    Has a single owner: the thread of the event loop.
    """

    __slots__ = ("_exceeding", "_numbers", "_waiting", "peak", "shared", "used")

    def __init__(self, shared: int) -> None:
        self.shared = shared
        self.used = 0
        self.peak = 0
        """Maximum number of bytes in use at one time."""
        self._numbers = itertools.count()
        self._waiting: list[_Request] = []
        self._exceeding: dict[bool, Buffer] = {}

    def open(self, *, retained: bool = False, is_watch: bool = False) -> Buffer:
        """Open the buffer of a response, to be released by the caller.

        ``retained``: it is released only after the caller has applied the response, not as soon as that is read.
        ``is_watch``: it must never exceed the shared bytes.
        """
        return Buffer(self, next(self._numbers), retained, is_watch)

    def grant(self, buffer: Buffer, size: int) -> bool:
        """Let a buffer hold ``size`` bytes more, and return True. Returns False if the buffer must wait.

        One buffer with ``retained`` and one without may exceed ``shared``: the first that does not fit. A buffer of a
        watch never exceeds it.
        """
        counted = buffer.counted_with(size)
        if counted > 0 and self.used + counted > self.shared and self._exceeding.get(buffer.retained) is not buffer:
            if buffer.is_watch or buffer.retained in self._exceeding:
                return False
            self._exceeding[buffer.retained] = buffer
        buffer.adjust(size)
        return True

    def count(self, counted: int) -> None:
        """Change the number of shared bytes in use by ``counted``. If it falls, waiting buffers may go on."""
        self.used += counted
        self.peak = max(self.peak, self.used)
        if counted < 0:
            self._wake()

    def let_go(self, buffer: Buffer) -> None:
        """Release all bytes of a buffer, and grant what fits then to waiting buffers."""
        if self._exceeding.get(buffer.retained) is buffer:
            del self._exceeding[buffer.retained]
        buffer.adjust(-buffer.size)
        self._wake()

    def _wake(self) -> None:
        """Grant the waiting requests that fit now, those of the oldest buffers first."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if request.granted.done():  # cancelled
                continue
            if self.grant(request.buffer, request.size):
                request.granted.set_result(None)
            else:
                self._waiting.append(request)

    async def wait(self, buffer: Buffer, size: int) -> None:
        """Wait until ``size`` bytes more have been granted to a buffer."""
        request = _Request(buffer, size, asyncio.get_running_loop().create_future())
        insort(self._waiting, request, key=lambda each: each.buffer.number)
        await request.granted


class Buffer:
    """Buffered bytes of one response. The context manager releases them at its end."""

    __slots__ = ("_buffers", "is_watch", "number", "retained", "size")

    def __init__(self, buffers: Buffers, number: int, retained: bool, is_watch: bool) -> None:
        self._buffers, self.number, self.retained, self.is_watch = buffers, number, retained, is_watch
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def fits(self) -> bool:
        """Whether another piece can be taken without waiting and without exceeding the shared bytes."""
        counted = self.counted_with(PIECE_BYTES)
        return counted <= 0 or self._buffers.used + counted <= self._buffers.shared

    def counted_with(self, size: int) -> int:
        """Return by how many bytes the shared use would change if this buffer held ``size`` bytes more.

        The shared use (``Buffers.used``) is what all responses of a client hold together, without the first
        ``FREE_BYTES`` of each. ``size`` is negative if the buffer is to hold fewer bytes; the result is then negative
        or zero. Nothing is changed.
        """
        return max(self.size + size - FREE_BYTES, 0) - max(self.size - FREE_BYTES, 0)

    async def take(self, size: int = PIECE_BYTES) -> None:
        """Hold ``size`` bytes more. Waits until they are available."""
        if not self._buffers.grant(self, size):
            await self._buffers.wait(self, size)

    def adjust(self, change: int) -> None:
        """Hold ``change`` bytes more, or fewer if negative, without waiting.

        For bytes that have been received already.
        """
        counted = self.counted_with(change)
        self.size += change
        if counted:
            self._buffers.count(counted)

    def release(self) -> None:
        """Release all bytes."""
        self._buffers.let_go(self)


class _Request(NamedTuple):
    """A buffer that waits to hold ``size`` bytes more."""

    buffer: Buffer
    size: int
    granted: asyncio.Future[None]
