"""The endpoints of a program, on aiohttp (extra ``[kube]``): ``/metrics``, ``/health-check`` and the like."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Self

from kscale.errors import InputError
from kscale.libraries import library
from kscale.world.serve.connections import ConnectionLimits, Connections, open_socket
from kscale.world.serve.metrics import MetricStore
from kscale.world.serve.snapshotz import BusyError, SnapshotDesk
from kscale.world.serve.tls import ReloadingContext

__all__ = ["ConnectionLimits", "Handler", "Server", "endpoints", "parse_address"]

_log = logging.getLogger(__name__)

Handler = Callable[[Any], Awaitable[Any]]
Check = Callable[[], str]


def endpoints(
    *,
    metrics: MetricStore | None = None,
    health: Check = lambda: "",
    ready: Check = lambda: "",
    snapshot: SnapshotDesk | None = None,
) -> dict[str, Handler]:
    """Paths and what answers them.

    ``health`` and ``ready`` say why not, or nothing: ``/health-check`` in upstream's words, ``/healthz`` and
    ``/readyz`` as Kubernetes has them. ``snapshot``: ``/snapshotz``, which is not there without it.
    """
    web = _web()

    async def health_check(_request: Any) -> Any:
        error = health()
        return web.Response(text=error or "OK", status=500 if error else 200)

    async def healthz(_request: Any) -> Any:
        error = health()
        return web.Response(text=error or "ok", status=500 if error else 200)

    async def readyz(_request: Any) -> Any:
        error = health() or ready()
        return web.Response(text=error or "ok", status=500 if error else 200)

    async def metrics_text(request: Any) -> Any:
        assert metrics is not None
        # Thousands of series take a while: nothing else waits for it.
        text, content_type = await asyncio.to_thread(metrics.exposition, request.headers.get("Accept", ""))
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    async def snapshotz(_request: Any) -> Any:
        assert snapshot is not None
        try:
            return web.Response(body=await snapshot.ask(), content_type="application/json")
        except BusyError:
            text = "Another debugging snapshot request is being processed. Concurrent requests not supported"
            return web.Response(text=text, status=429)

    found: dict[str, Handler] = {"/health-check": health_check, "/healthz": healthz, "/readyz": readyz}
    if metrics is not None:
        found["/metrics"] = metrics_text
    if snapshot is not None:
        found["/snapshotz"] = snapshotz
    return found


class Server:
    """Serves handlers by their paths, with any method, until it is left.

    Parameters
    ----------
    handlers
        Path -> what answers its requests.
    address
        As Go has it: ``:8085``, ``127.0.0.1:0``.
    tls
        Serve over TLS, with certificates that may be replaced.
    most
        The longest body that is taken, in bytes; a longer one is answered with 413. A compressed body is not
        unpacked: handlers see its bytes, as Go's do.
    limits
        How many connections there may be, and how long each may keep the server waiting.
    """

    def __init__(
        self,
        handlers: dict[str, Handler],
        address: str,
        *,
        tls: ReloadingContext | None = None,
        most: int = 2**20,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._web = _web()
        self.limits = limits or ConnectionLimits()
        self._app = self._web.Application(client_max_size=most, middlewares=[self._web.middleware(_note_arrival)])
        for path, handler in handlers.items():
            self._app.router.add_route("*", path, handler)
        self._host, self._port = parse_address(address)
        self._tls = tls
        self._runner: Any = None
        self._listening: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            self._listening = await asyncio.to_thread(open_socket, self._host, self._port)
        except OSError as error:
            raise InputError(f"cannot listen on {self._host}:{self._port}: {error.strerror}") from None
        self._runner = self._web.AppRunner(
            self._app,
            access_log=None,
            shutdown_timeout=1.0,
            keepalive_timeout=self.limits.idle_timeout,
            lingering_time=self.limits.read_timeout,
            auto_decompress=False,
            logger=_RequestLog(_log),
        )
        await self._runner.setup()
        context = None if self._tls is None else self._tls.context
        connections = Connections(self._listening, self._runner.server, self.limits, context)
        self._tasks.append(asyncio.create_task(connections.accept()))
        if self._tls is not None:
            self._tasks.append(asyncio.create_task(self._tls.watch()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._listening is not None
        return int(self._listening.getsockname()[1])


async def _note_arrival(request: Any, handler: Handler) -> Any:
    """Answer a request by its handler, once its connection knows that the headers are there."""
    if request.transport is not None:
        request.transport.get_protocol().request_arrived()
    return await handler(request)


class _RequestLog(logging.LoggerAdapter[logging.Logger]):
    """Where aiohttp logs: what a client sent wrong is one line of a program's log, never a traceback of its own."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        http_error = library("aiohttp.http_exceptions", "serving over HTTP").HttpProcessingError
        if isinstance(exc_info, http_error):
            _log.info("a request that cannot be read: %s", _one_line(exc_info))
        else:
            _log.error(str(msg), *args, exc_info=exc_info)

    def debug(self, msg: object, *args: object, exc_info: Any = None, **_: Any) -> None:
        _log.debug("a request that cannot be read: %s", _one_line(exc_info or str(msg) % args))


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``:8085``, ``localhost:8085``, ``[::1]:8085``; raises :class:`~kscale.InputError`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"{address!r} is no address to listen on: HOST:PORT or :PORT is expected")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InputError(f"{address!r} is no address to listen on: too many colons")
    return host, int(port)


def _web() -> Any:
    return library("aiohttp.web", "serving over HTTP")
