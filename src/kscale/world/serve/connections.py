"""Accepts the connections of an HTTP server, and closes those that hold a place without sending a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ConnectionLimits", "Connections", "open_socket"]

_log = logging.getLogger(__name__)
_BACKLOG: Final = 128
_ACCEPT_RETRY: Final = 1.0
"""Seconds to wait when the system has no file descriptor left, as asyncio's own servers do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one HTTP server holds at the most; times in seconds.

    - ``connections``: open connections, those in a TLS handshake included. Further ones wait in the kernel's queue.
    - ``read_timeout``: until a new connection has sent its first request (the handshake included), until a body has
      arrived after its headers, and until a client has read the part of an answer that is ready for it.
    - ``idle_timeout``: until a kept connection sends its next request.
    """

    connections: int = 1000
    read_timeout: float = 10.0
    idle_timeout: float = 90.0


class Connections:
    """The open connections of one listening socket, each served by a protocol of ``make_protocol``."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening, self._make_protocol, self._limits, self._tls = listening, make_protocol, limits, tls
        self._places = asyncio.Semaphore(limits.connections)
        self._opening: set[asyncio.Task[None]] = set()

    async def accept(self) -> None:
        """Accept connections until cancelled; as many at a time as the limits allow."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._places.acquire()
                try:
                    client, _ = await loop.sock_accept(self._listening)
                except OSError as error:
                    self._places.release()
                    _log.warning("cannot accept a connection: %s", error.strerror or error)
                    await asyncio.sleep(_ACCEPT_RETRY)
                    continue
                task = loop.create_task(self._open(client))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)
        finally:
            for task in self._opening:
                task.cancel()
            await asyncio.gather(*self._opening, return_exceptions=True)

    async def _open(self, client: socket.socket) -> None:
        connection = _Connection(self._make_protocol(), self._limits.read_timeout, self._places.release)
        timeout = self._limits.read_timeout
        try:
            if self._tls is None:
                await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)
            else:
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    client,
                    ssl=self._tls,
                    ssl_handshake_timeout=timeout,
                    ssl_shutdown_timeout=timeout,
                )
        except OSError as error:  # a handshake that failed or took too long, a client that has gone
            _log.debug("a connection ended before its first request: %s", error)
        finally:
            if not connection.was_made:
                client.close()
                self._places.release()


class _Connection(asyncio.Protocol):
    """Hands everything to the protocol of the server, and closes a connection that keeps it waiting."""

    __slots__ = ("_inner", "_release", "_timeout", "_timer", "_transport", "was_made")

    def __init__(self, inner: asyncio.Protocol, timeout: float, release: Callable[[], None]) -> None:
        self._inner, self._timeout, self._release = inner, timeout, release
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self.was_made = False

    def request_arrived(self) -> None:
        """Note that the headers of a request are there: from now on the server itself watches the time."""
        self._stop_timer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.was_made, self._transport = True, transport
        self._start_timer()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._start_timer()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._stop_timer()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._release()
        self._inner.connection_lost(exc)

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._timeout, self._transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. An empty ``host``: all addresses of the machine, of IPv6 too where it has that.

    Raises OSError where the address cannot be had.
    """
    if host:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    else:
        dual = socket.has_dualstack_ipv6()
        family, kind, protocol = (socket.AF_INET6 if dual else socket.AF_INET), socket.SOCK_STREAM, 0
        address = ("::" if dual else "0.0.0.0", port)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        with contextlib.suppress(OSError):
            listening.close()
        raise
    return listening
