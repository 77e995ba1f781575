"""HTTP requests and responses as bytes, between the rules of a client and the network."""

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
    """How much is taken from a server.

    - ``response_bytes``: of one response, decompressed; of a watch this is the room for events that wait to be applied.
    - ``buffered_bytes``: of all responses that are being read at once
      (:class:`~kscale.world.kubernetes.buffers.Buffers`).
    - ``list_pages``: of one list.
    - ``line_bytes``: of one line of a watch.
    - ``header_bytes``: of one header of a response, of which there may be 128.
    - ``request_seconds``: from a request to the end of its response, or to the headers of a watch.
    - ``retry_seconds``: the longest ``Retry-After`` that is waited for; a longer one counts as this.
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
    """One request. ``path`` begins with a slash and is quoted already; ``query`` is not.

    ``resource`` and ``name`` say in texts what it is about (``pods``, ``web-1``). ``kept``: the answer is buffered
    until the caller calls :meth:`Answer.release`.
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
    """What came back; names of headers are in lower case. ``buffer`` is held until :meth:`release`."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    buffer: Buffer | None = None

    def release(self) -> None:
        """Let other responses be read in the room of this one."""
        if self.buffer is not None:
            self.buffer.release()


class ConnectionFailedError(KscaleError, OSError):
    """There is no answer, or only a part of it.

    ``refused``: nobody listens there. ``reset``: it broke, or ended too early. ``timeout``: nothing came for too long.
    ``too large``: it is beyond :class:`ServerLimits`.
    """

    def __init__(self, message: str, kind: FailureKind = "other") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


class Stream(Protocol):
    """An answer whose body comes bit by bit. Raises :class:`ConnectionFailedError` where it breaks."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read_some(self) -> bytes:
        """What has come of the body; empty: that was all. May be cancelled without a loss."""
        ...

    def pause(self) -> None:
        """What comes stays with the system, as far as that has room, and wakes nobody."""
        ...

    def resume(self) -> None:
        """It is taken from there again."""
        ...

    async def read(self) -> bytes:
        """All of the body."""
        ...


class Transport(Protocol):
    """Carries requests. Raises :class:`ConnectionFailedError`, and never for a status."""

    async def call(self, call: Call) -> Answer:
        """Sends a request and gives the whole answer."""
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[Stream]:
        """Sends a request; the connection is closed when the context is left."""
        ...

    async def close(self) -> None:
        """Lets go of all connections."""
        ...
