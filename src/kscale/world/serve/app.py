"""The endpoints of a program, on aiohttp (extra ``[kube]``): ``/metrics``, ``/health-check`` and the like."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Self

from kscale.errors import InputError
from kscale.libraries import library
from kscale.world.serve.metrics import MetricStore
from kscale.world.serve.snapshotz import BusyError, SnapshotDesk
from kscale.world.serve.tls import ReloadingContext

__all__ = ["Handler", "Server", "endpoints", "parse_address"]

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

    ``address`` as Go has it (``:8085``, ``127.0.0.1:0``). ``tls``: over TLS, with certificates that may be replaced.
    ``most``: the longest body that is taken, in bytes; a longer one is answered with 413.
    """

    def __init__(
        self, handlers: dict[str, Handler], address: str, *, tls: ReloadingContext | None = None, most: int = 2**20
    ) -> None:
        self._web = _web()
        self._app = self._web.Application(client_max_size=most)
        for path, handler in handlers.items():
            self._app.router.add_route("*", path, handler)
        self._host, self._port = parse_address(address)
        self._tls = tls
        self._runner: Any = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._runner = self._web.AppRunner(self._app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        context = None if self._tls is None else self._tls.context
        site = self._web.TCPSite(self._runner, self._host or None, self._port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise InputError(f"cannot listen on {self._host}:{self._port}: {error.strerror}") from None
        if self._tls is not None:
            self._watching = asyncio.create_task(self._tls.watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._runner.addresses[0][1])


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
