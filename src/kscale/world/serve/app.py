"""HTTP endpoints of a program with aiohttp (extra ``[kube]``): ``/metrics``, ``/health-check``, ``/snapshotz`` and
admission webhooks.

Values of environment variables and annotations are redacted. Upstream: ``pkg/debuggingsnapshot``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import partial
from typing import Any, Final, Self

import msgspec

from kscale.effects import Moment, to_text
from kscale.errors import InputError
from kscale.imports import library
from kscale.objects.go_numbers import parse_int64
from kscale.world.serve.metrics import MetricStore
from kscale.world.serve.tls import ReloadingContext

__all__ = [
    "ANY_PATH",
    "BusyError",
    "ConnectionLimits",
    "Connections",
    "DebuggingSnapshotService",
    "Handler",
    "KnownRequests",
    "Server",
    "admission_webhook",
    "endpoints",
    "open_socket",
    "parse_address",
    "redact",
]


_HIDDEN: Final = "<redacted>"


class BusyError(RuntimeError):
    """Another request is waiting for a snapshot."""


class DebuggingSnapshotService(msgspec.Struct, eq=False):
    """Debugging snapshot requests: one at a time waits until a loop delivers its snapshot."""

    _waiting: asyncio.Future[Any] | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_requested(self) -> bool:
        """Return whether a request waits for the next loop's snapshot. Thread-safe."""
        waiting = self._waiting
        return waiting is not None and not waiting.done()

    async def request(self) -> bytes:
        """Return the next snapshot as JSON text. Raises :class:`BusyError` if another request is waiting."""
        if self.is_requested:
            raise BusyError
        self._loop = asyncio.get_running_loop()
        self._waiting = self._loop.create_future()
        try:
            return msgspec.json.encode(redact(await self._waiting))
        finally:
            self._waiting = None

    def deliver(self, data: Any, *, start: Moment, end: Moment) -> None:
        """Pass a loop's inputs, as plain data, to the waiting request; does nothing without one. Thread-safe.

        ``start``, ``end``: of the loop, which the response contains, too.
        """
        report = {**data, "StartTimestamp": to_text(start, fraction=True), "EndTimestamp": to_text(end, fraction=True)}
        loop, waiting = self._loop, self._waiting
        if loop is not None and waiting is not None:
            loop.call_soon_threadsafe(_set_result, waiting, report)


def _set_result(waiting: asyncio.Future[Any], data: Any) -> None:
    """Set the result of a future unless it is done."""
    if not waiting.done():
        waiting.set_result(data)


def redact(data: Any) -> Any:
    """Return plain data of API objects with the values of environment variables and annotations as ``<redacted>``.

    The argument is not changed. Empty values of environment variables stay; tuples become lists.
    """
    if isinstance(data, dict):
        return {key: _redact_value(key, value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [redact(item) for item in data]
    return data


def _redact_value(key: Any, value: Any) -> Any:
    """Return the value of a key, redacted: all values of ``annotations``, and those of the variables in ``env``."""
    if key == "annotations" and isinstance(value, dict):
        return dict.fromkeys(value, _HIDDEN)
    if key == "env" and isinstance(value, list):
        return [{**redact(variable), **({"value": _HIDDEN} if variable.get("value") else {})} for variable in value]
    return redact(value)


_log = logging.getLogger(__name__)
_BACKLOG: Final = 128
_ACCEPT_RETRY: Final = 1.0
"""Seconds to wait when the system has no file descriptor left, as in asyncio's servers."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an HTTP server; times are in seconds.

    - ``connections``: open connections, including TLS handshakes. Further ones wait in the kernel's queue.
    - ``read_timeout``: time for a new connection to send its first request (including the handshake), for a body to
      arrive after its headers, and for a client to read the available part of a response.
    - ``idle_timeout``: time until a kept-alive connection sends its next request.
    """

    connections: int = 1000
    read_timeout: float = 10.0
    idle_timeout: float = 90.0


class Connections:
    """Open connections of one listening socket, each with a protocol from ``make_protocol``."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        limits: ConnectionLimits,
        tls: ReloadingContext | None,
        known: KnownRequests,
    ) -> None:
        self._listening, self._make_protocol, self._limits, self._tls = listening, make_protocol, limits, tls
        self._known = known
        self._places = asyncio.Semaphore(limits.connections)
        self._opening: set[asyncio.Task[None]] = set()

    async def accept(self) -> None:
        """Accept connections until cancelled, up to the limit of open connections.

        If accepting fails, this is logged, and goes on after a pause. At the end, connections that are just being
        opened are dropped.
        """
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
        """Serve an accepted connection with a new protocol. If that fails, close it and free its place."""
        connection = _Connection(self._make_protocol, self._limits, self._places.release, self._known)
        timeout = self._limits.read_timeout
        try:
            if self._tls is None:
                await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)
            else:
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    client,
                    ssl=self._tls.context_of_connection(),
                    ssl_handshake_timeout=timeout,
                    ssl_shutdown_timeout=timeout,
                )
        except OSError as error:  # a handshake failed or timed out, or the client has disconnected
            _log.debug("a connection ended before its first request: %s", error)
            _drop_traceback(error)
        finally:
            if not connection.was_made:
                client.close()
                self._places.release()


RespondNow = Callable[[bytes], bytes | None]
"""Returns the JSON response to a body, or None if the request needs more than a moment or cannot be answered."""
_MAX_KNOWN: Final = 64
_MAX_KNOWN_BYTES: Final = 4096
_OK_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
_LENGTH: Final = b"\r\nContent-Length: "


class KnownRequests:
    """Headers of POST requests that aiohttp has parsed, with the function that answers such requests at once.

    A client of a webhook sends the same headers again and again, except for ``Content-Length``. A request with known
    headers is answered without parsing them again. Any other request, and one with a body of more than ``most`` bytes,
    goes through aiohttp.
    """

    __slots__ = ("_date", "_known", "_most", "_second")

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[bytes, bytes], RespondNow] = {}
        self._date, self._second = b"", 0

    def respond(self, data: bytes) -> bytes | None:
        """Return the complete HTTP response if ``data`` is exactly one request with known headers; otherwise None."""
        head, _, body = data.partition(b"\r\n\r\n")
        key, length = _split_head(head)
        respond_now = self._known.get(key)
        if respond_now is None or not length or length != len(body) or length > self._most:
            return None
        try:
            answer = respond_now(body)
        except Exception:  # noqa: BLE001  # aiohttp calls the handler again and reports the error
            return None
        if answer is None:
            return None
        return b"%b%d\r\nDate: %b\r\n\r\n%b" % (_OK_HEAD, len(answer), self._format_date(), answer)

    def _format_date(self) -> bytes:
        """Return the value of the Date header, formatted once a second."""
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._date

    def learn(self, head: bytes, respond_now: RespondNow) -> None:
        """Add the headers of a request that aiohttp has parsed and that asks for nothing special.

        No effect if the headers are long or unusual. When 64 requests are known, they are dropped first. ``head``
        begins with the request line and ends before the empty line.
        """
        key, length = _split_head(head)
        if length and head.count(b"\n") == head.count(b"\r\n") and len(head) <= _MAX_KNOWN_BYTES:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()  # clients whose headers always differ must not fill the memory
            self._known[key] = respond_now


def _split_head(head: bytes) -> tuple[tuple[bytes, bytes], int]:
    """Return the parts before and after the value of Content-Length, and that value (0: absent or unusual)."""
    before, _, rest = head.partition(_LENGTH)
    digits, _, after = rest.partition(b"\r\n")
    length = int(digits) if digits.isdigit() and len(digits) < 8 and digits[:1] != b"0" else 0
    return (before, after), length


class _Connection(asyncio.Protocol):
    """asyncio protocol that closes connections that are too slow, and passes data to the server's protocol.

    The server's protocol exists from the end of the TLS handshake. A request in ``known`` is answered here, if no other
    request is in progress.
    """

    __slots__ = ("_arrived", "_busy", "_head", "_idle_since", "_idle_timer", "_inner", "_known", "_limits",
        "_make_inner", "_paused", "_received", "_release", "_timer", "_transport", "was_made")  # fmt: skip

    def __init__(
        self,
        make_inner: Callable[[], asyncio.Protocol],
        limits: ConnectionLimits,
        release: Callable[[], None],
        known: KnownRequests,
    ) -> None:
        self._make_inner, self._limits, self._release, self._known = make_inner, limits, release, known
        self._inner: Any
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._busy = self._paused = False
        self._arrived = False  # whether the server's protocol handles a request, whose headers have arrived
        self._head, self._received = b"", 0
        self.was_made = False

    def request_arrived(self) -> None:
        """Stop the timer when the headers of a request have arrived; the server then limits the time.

        While writing is paused, the timer limits how long the client may take to read, so it keeps running.
        """
        self._arrived = True
        if not self._paused:
            self._stop_timer()

    def response_ended(self, request: Any, respond_now: RespondNow) -> None:
        """Note that the server's protocol has answered a request. No effect if the client has sent more meanwhile.

        From now on ``respond_now`` answers requests with the same headers, if they are POST requests of HTTP/1.1 on a
        connection that stays open, and have no special headers.
        """
        head, length = self._head, request.content_length or 0
        if not head or self._received != len(head) + len(b"\r\n\r\n") + length:
            return  # the beginning of another request may wait in aiohttp's parser
        self._busy = self._arrived = False
        self._idle_since = asyncio.get_running_loop().time()
        headers = request.headers
        special = any(name in headers for name in ("Expect", "Transfer-Encoding", "Upgrade", "Connection"))
        if request.method == "POST" and request.version == (1, 1) and request.keep_alive and not special:
            self._known.learn(head, respond_now)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the request's headers and hand the connection to the inner protocol."""
        self.was_made, self._transport = True, transport
        if transport.get_extra_info("sslcontext") is None:
            # Writing is paused, and the timer runs, while any byte waits for the client: closing waits for these bytes
            # without a timeout. TLS has a timeout of its own.
            self._transport.set_write_buffer_limits(high=0)
        self._start_timer()
        self._inner = self._make_inner()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Answer a known request, or pass the data to the inner protocol.

        For the first data of a request that is passed on, also notes its head, unless that is long.
        """
        if self._busy:
            self._received += len(data)
        else:
            if not self._paused and (response := self._known.respond(data)) is not None:
                self._stop_timer()
                self._inner.keep_alive(True)  # stops aiohttp's timer of idle connections
                self._transport.write(response)
                self._start_idle_timer()
                return
            head, end, _ = data.partition(b"\r\n\r\n")
            is_short = end and len(head) <= _MAX_KNOWN_BYTES  # connections must not keep long heads
            self._busy, self._head, self._received = True, head if is_short else b"", len(data)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the client's data to the inner protocol, and return its result."""
        ended: bool | None = self._inner.eof_received()
        return ended

    def pause_writing(self) -> None:
        """Start the timer that limits how long the client may take to read, and notify the inner protocol."""
        self._paused = True
        self._start_timer()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Stop the timer, and notify the inner protocol."""
        self._paused = False
        self._stop_timer()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, release the connection's place, and notify the inner protocol."""
        self._stop_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._release()
        self._inner.connection_lost(exc)

    def _start_timer(self) -> None:
        """Abort the connection after the read timeout, counted from now."""
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._limits.read_timeout, self._transport.abort)

    def _stop_timer(self) -> None:
        """Cancel the timer, if it runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_idle_timer(self) -> None:
        """Close the connection when no request has come for the idle timeout. A running timer is kept."""
        loop = asyncio.get_running_loop()
        self._idle_since = loop.time()
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(self._limits.idle_timeout, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close the connection if it has been idle for the timeout, also if only a part of a request's headers came.

        Connections whose last request was handled by aiohttp are closed by aiohttp.
        """
        self._idle_timer = None
        loop = asyncio.get_running_loop()
        due = self._idle_since + self._limits.idle_timeout
        if self._arrived or loop.time() < due:
            self._idle_timer = loop.call_at(max(due, loop.time() + 1), self._close_if_idle)
        else:
            self._transport.close()


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. An empty ``host`` means all addresses of the machine, including IPv6 if available.

    Raises OSError if the address is not available.
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


Handler = Callable[[Any], Awaitable[Any]]
Check = Callable[[], str]


def endpoints(
    *,
    metrics: MetricStore | None = None,
    health: Check = lambda: "",
    ready: Check = lambda: "",
    snapshot: DebuggingSnapshotService | None = None,
) -> dict[str, Handler]:
    """Return the handlers of the standard endpoints by path.

    Parameters
    ----------
    metrics : MetricStore, optional
        Served at ``/metrics``, which is absent without it.
    health, ready : callable
        Return an error text, which is the response with status 500, or an empty text if all is well. ``/health-check``
        responds in upstream's words, ``/healthz`` and ``/readyz`` as in Kubernetes. ``/readyz`` fails if either has an
        error.
    snapshot : DebuggingSnapshotService, optional
        Served at ``/snapshotz``, which is absent without it. A second request meanwhile gets status 429.

    Returns
    -------
    dict
        Path -> handler.
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
        # Formatting thousands of series takes a while, so it runs in another thread.
        text, content_type = await asyncio.to_thread(metrics.exposition, request.headers.get("Accept", ""))
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    async def snapshotz(_request: Any) -> Any:
        assert snapshot is not None
        try:
            return web.Response(body=await snapshot.request(), content_type="application/json")
        except BusyError:
            text = "Another debugging snapshot request is being processed. Concurrent requests not supported"
            return web.Response(text=text, status=429)

    handlers: dict[str, Handler] = {"/health-check": health_check, "/healthz": healthz, "/readyz": readyz}
    if metrics is not None:
        handlers["/metrics"] = metrics_text
    if snapshot is not None:
        handlers["/snapshotz"] = snapshotz
    return handlers


class Server:
    """HTTP server that runs within a context. It serves handlers by path, for any method.

    Parameters
    ----------
    handlers
        Path -> handler of its requests; that of :data:`ANY_PATH` handles all other paths.
    address
        Listen address in Go's form: ``:8085``, ``127.0.0.1:0``.
    tls
        Serve over TLS, with certificates that may be replaced.
    most
        Maximum size of a request body in bytes; a longer one gets status 413. Compressed bodies are not unpacked:
        handlers see their bytes, as Go's do.
    limits
        Maximum number of connections, and how long each may keep the server waiting.
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
        self._handlers, self._most = handlers, most
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
        # Without aiohttp's Application, whose router, middlewares and signals cost a tenth of a small request.
        server = self._web.Server(
            self._handle,
            request_factory=partial(_build_request, self._web.BaseRequest, self._most, asyncio.get_running_loop()),
            access_log=None,
            keepalive_timeout=self.limits.idle_timeout,
            lingering_time=self.limits.read_timeout,
            auto_decompress=False,
            logger=_RequestLog(_log),
        )
        self._runner = self._web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        connections = Connections(
            self._listening, self._runner.server, self.limits, self._tls, KnownRequests(self._most)
        )
        self._tasks.append(asyncio.create_task(connections.accept()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    async def _handle(self, request: Any) -> Any:
        """Handle a request after notifying its connection that the headers have arrived.

        Raises aiohttp's errors for an unknown path (404) and an unknown header ``Expect`` (417).
        """
        if request.transport is not None:
            request.transport.get_protocol().request_arrived()
        path = request.path
        handler = (self._handlers.get(path) or self._handlers.get(ANY_PATH)) if path.startswith("/") else None
        if handler is None:
            raise self._web.HTTPNotFound
        expected = request.headers.get("Expect")
        if expected and request.version >= (1, 1):  # clients of HTTP 1.0 do not understand status 100
            if expected.lower() != "100-continue":
                raise self._web.HTTPExpectationFailed(text=f"Unknown Expect: {expected}")
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the response has not begun
        return await handler(request)

    @property
    def port(self) -> int:
        """Return the port on which the server listens."""
        assert self._listening is not None
        return int(self._listening.getsockname()[1])


def _build_request(
    request_type: Any, most: int, loop: Any, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
) -> Any:
    """Build the request of a message, whose body may have ``most`` bytes."""
    return request_type(message, payload, protocol, writer, task, loop, client_max_size=most)


class _RequestLog(logging.LoggerAdapter[logging.Logger]):
    """Logger for aiohttp that reduces a client's invalid request to one log line without a traceback."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        """Log an invalid request as one line, and any other exception as an error with its traceback."""
        http_error = library("aiohttp.http_exceptions", "serving over HTTP").HttpProcessingError
        if isinstance(exc_info, http_error):
            _log.info("a request that cannot be read: %s", _one_line(exc_info))
            _drop_traceback(exc_info)
        else:
            _log.error(str(msg), *args, exc_info=exc_info)

    def debug(self, msg: object, *args: object, exc_info: Any = None, **_: Any) -> None:
        """Log an invalid request as one line at debug level."""
        _log.debug("a request that cannot be read: %s", _one_line(exc_info or str(msg) % args))
        if isinstance(exc_info, BaseException):
            _drop_traceback(exc_info)


def _drop_traceback(error: BaseException | None) -> None:
    """Remove the tracebacks of an error of a connection, and of the errors that it was raised from.

    The frames of a traceback, and the frames that called them, refer to the error itself and to TLS buffers of 256 KiB.
    Otherwise each bad connection would occupy its buffers until the garbage collector runs.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def _one_line(text: object) -> str:
    """Return a text in one line: white space at its ends removed, any other run of it as a single space."""
    return " ".join(str(text).split())


def parse_address(address: str) -> tuple[str, int]:
    """Parse ``:8085``, ``localhost:8085`` or ``[::1]:8085`` and return (host, port).

    Raises :class:`~kscale.InputError` if the text is not such an address.
    """
    host, colon, port = address.rpartition(":")
    number = parse_int64(port) if port.isdigit() else None
    if not colon or number is None or number > 65535:
        raise InputError(f"{address!r} is no address to listen on: HOST:PORT or :PORT is expected")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InputError(f"{address!r} is no address to listen on: too many colons")
    return host, number


def _web() -> Any:
    """Return the module aiohttp.web. Raises MissingExtraError if it is not installed."""
    return library("aiohttp.web", "serving over HTTP")


ANY_PATH: Final = "*"
_TOO_LATE: Final = "the body did not arrive in time\n"
_TOO_LARGE: Final = "request payload too large\n"


def admission_webhook(
    review: Callable[[bytes, float], Awaitable[bytes]],
    *,
    review_now: RespondNow = lambda _body: None,
    refused: Callable[[str, float], None] = lambda _why, _took: None,
    read_timeout: float = 10.0,
) -> Handler:
    """Return the handler of a webhook, which responds with ``review(body, seconds of reading the body)``.

    ``review_now`` returns the same response at once, or None if that needs a request or much time.

    For these requests, the handler calls ``refused`` with the reason and the duration in seconds:

    - The body is too long: status 413.
    - The body does not arrive within ``read_timeout`` seconds: status 408.
    - The content type is not ``application/json``: status 200 without a body.
    """
    web = library("aiohttp.web", "serving a webhook")
    response_type: Any = web.Response

    class ReviewResponse(response_type):  # type: ignore[misc]  # aiohttp is imported at run time
        """Response that tells its connection when it has been written."""

        request: Any

        async def write_eof(self, data: bytes = b"") -> None:
            await super().write_eof(data)
            request, self.request = self.request, None
            if request is not None and request.transport is not None:
                request.transport.get_protocol().response_ended(request, review_now)

    async def answer(request: Any) -> Any:
        started = time.perf_counter()
        try:
            content = request.content
            if content.is_eof():  # the body has arrived with the headers
                body = content.read_nowait()
                if len(body) > request.client_max_size:
                    raise web.HTTPRequestEntityTooLarge(request.client_max_size)
            else:
                async with asyncio.timeout(read_timeout):
                    body = await request.read()
        except TimeoutError:
            refused("the body did not arrive in time", time.perf_counter() - started)
            return web.Response(status=408, text=_TOO_LATE)
        except web.HTTPRequestEntityTooLarge:
            refused(_TOO_LARGE.strip(), time.perf_counter() - started)
            return web.Response(status=413, text=_TOO_LARGE)
        except ConnectionError as error:  # the client has disconnected, so nobody reads this response
            _drop_traceback(error)
            return web.Response(status=400)
        read = time.perf_counter() - started
        content_type = request.headers.get("Content-Type", "")
        if content_type != "application/json":
            refused(f"contentType={content_type}, expect application/json", read)
            return web.Response()
        response = ReviewResponse(body=await review(body, read), content_type="application/json")
        response.request = request
        return response

    return answer
