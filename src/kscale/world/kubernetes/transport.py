"""HTTP requests and responses as bytes: the interface between client and network."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, Protocol

import msgspec

from kscale.errors import KscaleError
from kscale.world.kubernetes.buffers import Buffer

__all__ = [
    "DEFAULT_LIMITS",
    "Answer",
    "Call",
    "ConnectionFailedError",
    "FailureKind",
    "ServerLimits",
    "Stream",
    "Transport",
]

FailureKind = Literal["refused", "reset", "timeout", "too large", "other"]


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of what is accepted from a server.

    - ``response_bytes``: of one response, decompressed; for a watch, of events that wait to be applied.
    - ``buffered_bytes``: of all responses that are being read at once
      (:class:`~kscale.world.kubernetes.buffers.Buffers`).
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

    ``resource`` and ``name`` describe the object in messages (``pods``, ``web-1``). ``kept``: the response stays
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
    kept: bool = False


class Answer(msgspec.Struct, frozen=True):
    """HTTP response; header names are in lower case. It holds ``buffer`` until :meth:`release`."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    buffer: Buffer | None = None

    def release(self) -> None:
        """Let other responses be read in the room of this one."""
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
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read_some(self) -> bytes:
        """Return the available bytes of the body, empty at its end. Cancelling loses no data."""
        ...

    def pause(self) -> None:
        """Stop reading: data stays in the system's buffers and does not wake the event loop."""
        ...

    def resume(self) -> None:
        """Start reading again after :meth:`pause`."""
        ...

    async def read(self) -> bytes:
        """Return the whole body."""
        ...


class Transport(Protocol):
    """Sends HTTP requests. Raises :class:`ConnectionFailedError` for failed connections, never for a status."""

    async def call(self, call: Call) -> Answer:
        """Send a request and return the complete response."""
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[Stream]:
        """Send a request and return a context with the response as a stream; the connection is closed at its end."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
