"""HTTP/1.1 transport based on aiohttp (extra ``[kube]``).

aiohttp opens the connections, and parses and decompresses responses. Two parts of it are not used, because they take
most of the time of a small request: its ``ClientSession``, which builds URL, headers and cookies of each request anew,
and its parser and streams for small successful responses, which :mod:`kscale.world.kubernetes.http_connection` reads.

aiohttp decodes responses that consist of several compressed members. API servers send watches in this form, and a
client that stops after the first member loses the remaining events without an error.
"""

from __future__ import annotations

import asyncio
import errno
import io
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

from kscale.errors import InputError
from kscale.imports import library
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.client_tls import ClientTLS
from kscale.world.kubernetes.credentials import CredentialError, Credentials, RunProgram
from kscale.world.kubernetes.http_connection import HttpConnection, Peer
from kscale.world.kubernetes.kubeconfig import Access, without_password
from kscale.world.kubernetes.transport import (
    DEFAULT_LIMITS,
    FREE_BYTES,
    PIECE_BYTES,
    Answer,
    Buffer,
    Buffers,
    Call,
    ConnectionFailedError,
    FailureKind,
    ServerLimits,
    Stream,
    connection_failure,
)
from kscale.world.protocols import Clock

__all__ = ["AiohttpTransport", "connect", "proxy_of"]


_CONNECT: Final = 30.0
_IDLE_SECONDS: Final = 75.0
"""Time for which an idle connection is kept: longer than a minute, the usual period of loops, and less than the 90
seconds after which an API server closes it."""
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


def _aiohttp() -> Any:
    """Return the module aiohttp. Raises MissingExtraError if it is not installed."""
    return library("aiohttp", "talking to an API server")


def _url_type() -> Any:
    """Return the class of URLs that aiohttp uses."""
    from yarl import URL  # comes with aiohttp

    return URL


class AiohttpTransport:
    """HTTP connections to one API server, with one identity. Create and use it on a running event loop.

    ``user_agent`` is sent as the User-Agent header. ``run`` runs the exec plug-in that provides credentials.
    ``buffers`` limits the bytes that all responses hold at once.
    """

    def __init__(
        self,
        access: Access,
        clock: Clock,
        *,
        user_agent: str = "kscale",
        run: RunProgram | None = None,
        environ: Mapping[str, str] | None = None,
        limits: ServerLimits = DEFAULT_LIMITS,
        buffers: Buffers | None = None,
    ) -> None:
        self.limits = limits
        self.buffers = buffers or Buffers(limits.buffered_bytes)
        self._http = _aiohttp()
        self._url = _url_type()
        self.client_error: type[Exception] = self._http.ClientError
        self._bad_response = library("aiohttp.http_exceptions", "talking to an API server").HttpProcessingError
        self._server = access.server
        self._clock = clock
        self._server_name = access.server_name or None
        self._proxy = proxy_of(access, os.environ if environ is None else environ) or None
        # As in Go, the same context is for a proxy that is reached by TLS.
        uses_tls = any(url.startswith("https://") for url in (access.server, self._proxy or ""))
        self._tls = ClientTLS(access) if uses_tls else None
        self._credentials = Credentials(access, clock, run=run)
        # As in aiohttp's sessions, names and values of headers are checked where they are written.
        encoding = "gzip" if access.compress else "identity"
        self._headers = (("User-Agent", user_agent), ("Accept-Encoding", encoding))
        self._prefix = urlsplit(access.server).path
        self._writes_urls = self._proxy is not None and not access.server.startswith("https://")
        self._connector = self._http.TCPConnector(limit=0, socket_factory=_socket)
        self._connect_timeout = self._http.ClientTimeout(total=None, sock_connect=_CONNECT)
        self._peer: Peer | None = None
        self._idle: list[HttpConnection] = []
        self._cleanup: asyncio.TimerHandle | None = None

    async def call(self, call: Call) -> Answer:
        """Send a request and return the complete response, whatever its status. Status 401 refreshes the credentials.

        The response to a call with ``retained`` holds its bytes in a buffer until it is released. Raises
        ConnectionFailedError if there are no credentials, the connection fails, or the response is too large or not
        complete within ``limits.request_seconds``.
        """
        end = asyncio.get_running_loop().time() + self.limits.request_seconds
        sent = self._clock.monotonic()
        connection = self._take_idle(self._known_peer(sent)) if self._idle and call.method != "HEAD" else None
        if connection is not None:
            answer = await self._call_simply(connection, call, end)
            if answer is not None:
                return answer
        limit = asyncio.timeout_at(end)
        try:
            async with limit:
                response = await self._request(call, sent, connection)
                try:
                    data, buffer = self._received(response), None
                    if data is None:
                        buffer = self.buffers.open(retained=call.retained)
                        data = await self._read(call, response, limit, buffer)
                    elif call.retained:
                        buffer = self.buffers.open(retained=True)
                        buffer.adjust(len(data))
                except BaseException:
                    response.close()  # do not wait for the rest of the body
                    raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self.failure(call, error) from None
        if buffer is not None and not call.retained:
            buffer.release()
            buffer = None
        return Answer(response.status, response.headers, data, buffer)

    async def _call_simply(self, connection: HttpConnection, call: Call, end: float) -> Answer | None:
        """Send a request on an idle connection and return the response if it is simple and a success.

        Returns None for any other response, which the caller reads with :meth:`_read_response`, and if the connection
        broke. ``end``: time of the event loop at which the request times out. Raises ConnectionFailedError.
        """
        try:
            head = connection.peer.write_head(call, self._build_target(call))
            response = await connection.exchange(head + (call.body or b""), end)
        except (OSError, TimeoutError, ValueError) as error:
            connection.close()
            raise self.failure(call, error) from None
        except BaseException:
            connection.close()
            raise
        if response is None:
            return None
        self.give_back(connection)
        buffer = None
        if call.retained:
            buffer = self.buffers.open(retained=True)
            buffer.adjust(len(response.body))
        return Answer(response.status, response.headers, response.body, buffer)

    def _received(self, response: _Response) -> bytes | None:
        """Return the body if it is small and has arrived with the headers; otherwise None."""
        content = response.content
        if not content.is_eof() or content.exception() is not None:
            return None
        if content.total_bytes > min(FREE_BYTES, self.limits.response_bytes):
            return None
        data: bytes = content.read_nowait()
        return data

    async def _read(self, call: Call, response: _Response, limit: asyncio.Timeout, buffer: Buffer) -> bytes:
        """Read the whole body and return it; ``buffer`` accounts for its bytes and is released if reading fails.

        ``limit``: timeout of the response.
        """
        try:
            return await _Body(self, call, response, limit).read_into(buffer)
        except BaseException:
            buffer.release()
            raise

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        """Send a request and yield the response as a stream.

        At the end of the context the connection is closed, unless the whole body has been read. The response must begin
        within ``limits.request_seconds``; with a status other than 200, the context must end by then, too. Raises
        ConnectionFailedError.
        """
        limit = asyncio.timeout(self.limits.request_seconds)
        try:
            async with limit:
                response = await self._request(call, self._clock.monotonic())
                if response.status == 200:
                    limit.reschedule(None)
                try:
                    yield _Body(self, call, response, limit)
                finally:
                    response.close()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self.failure(call, error) from None

    async def close(self) -> None:
        """Close all connections."""
        if self._cleanup is not None:
            self._cleanup.cancel()
        ends = [end for connection in self._idle if (end := connection.http.closed) is not None]
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await self._connector.close()
        await asyncio.gather(*ends, return_exceptions=True)

    def give_back(self, connection: HttpConnection) -> None:
        """Keep a connection for later requests, or close it if it cannot be used again."""
        loop = asyncio.get_running_loop()
        if not connection.is_reusable():
            connection.close()
            return
        connection.is_idle, connection.idle_since = True, loop.time()
        self._idle.append(connection)
        if self._cleanup is None:
            self._cleanup = loop.call_later(_IDLE_SECONDS, self._close_unused)

    def _close_unused(self) -> None:
        """Close the connections that have been idle for too long; the oldest are first."""
        loop = asyncio.get_running_loop()
        self._cleanup = None
        while self._idle and self._idle[0].idle_since + _IDLE_SECONDS <= loop.time():
            self._idle.pop(0).close()
        if self._idle:
            self._cleanup = loop.call_at(self._idle[0].idle_since + _IDLE_SECONDS, self._close_unused)

    def _take_idle(self, peer: Peer | None) -> HttpConnection | None:
        """Take the most recently used idle connection to this peer; None if there is none.

        Connections that cannot be used again are closed, and those to other peers: the credentials or certificates have
        changed.
        """
        while peer is not None and self._idle:
            connection = self._idle.pop()
            connection.is_idle = False
            if connection.peer is peer and connection.is_reusable():
                return connection
            connection.close()
        return None

    def _known_peer(self, now: int) -> Peer | None:
        """Return the peer for a request that is sent at monotonic time ``now``.

        Returns None if an exec plug-in provides the credentials, or if credentials or certificates cannot be read.
        """
        try:
            identity = self._credentials.known_identity()
            if identity is None:
                return None
            context = True if self._tls is None else self._tls.context(now)
        except (CredentialError, InputError):
            return None  # the request reports it
        return self._find_peer(identity.headers, context)

    async def _current_peer(self, now: int) -> Peer:
        """Return the peer for a request that is sent at monotonic time ``now``.

        Raises ConnectionFailedError if credentials or certificates cannot be read.
        """
        try:
            identity = await self._credentials.identity()
            context: ssl.SSLContext | bool = True
            if self._tls is not None:
                context = self._tls.context(now, identity.certificate)
        except (CredentialError, InputError) as error:
            raise ConnectionFailedError(f"getting credentials: {error}") from None
        return self._find_peer(identity.headers, context)

    async def _request(self, call: Call, sent: int, connection: HttpConnection | None = None) -> _Response:
        """Send a request and return its response, whose body is still to be read.

        A GET is sent once more if the connection has broken. Status 401 refreshes the credentials. ``sent``: monotonic
        time of the request. ``connection``: the connection on which the request has been sent already. Raises
        ConnectionFailedError if there are no credentials, or the connection fails or takes too long.
        """
        try:
            peer = await self._current_peer(sent) if connection is None else connection.peer
            try:
                response = await (self._exchange(peer, call) if connection is None else self._read_response(connection))
            except self._http.ClientConnectorError:
                raise
            except (self._http.ClientOSError, self._http.ServerDisconnectedError):
                if call.method != "GET":  # as in Go: the server may have performed a request that writes
                    raise
                response = await self._exchange(peer, call)  # the server may have closed an idle connection
        except ConnectionFailedError:
            raise
        except (self._http.ClientError, self._bad_response, OSError, TimeoutError, ValueError) as error:
            raise self.failure(call, error) from None
        if response.status == 401:
            try:
                await self._credentials.handle_rejection(sent)
            except BaseException:
                response.close()
                raise
        return response

    def _find_peer(self, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | bool) -> Peer:
        """Return the peer for these headers and this TLS context; a new one is built when they change.

        An Authorization header takes the place of the user and password in the server's URL.
        """
        peer = self._peer
        if peer is None or peer.context is not context or peer.identity_headers != headers:
            url = self._url(self._server, encoded=True)
            if any(name == "Authorization" for name, _ in headers):
                url = url.with_user(None)  # as in Go, a token wins over the user and password of a URL
            request = self._http.ClientRequest(
                "GET",
                url,
                headers=[*self._headers, *headers],
                skip_auto_headers=("Accept",),
                loop=asyncio.get_running_loop(),
                ssl=context,
                server_hostname=self._server_name,
                proxy=None if self._proxy is None else self._url(self._proxy),
            )
            peer = self._peer = Peer(request, context, headers)
        return peer

    async def _exchange(self, peer: Peer, call: Call) -> _Response:
        """Send a request on an idle or a new connection and return its response. Raises aiohttp's errors."""
        connection = self._take_idle(peer)
        if connection is None:
            connection = HttpConnection(
                await self._connector.connect(peer.request, [], self._connect_timeout), peer, self.limits
            )
        try:
            connection.parse_with_aiohttp(skip_body=call.method == "HEAD")
            connection.write(peer.write_head(call, self._build_target(call)) + (call.body or b""))
        except BaseException:
            connection.close()
            raise
        return await self._read_response(connection)

    async def _read_response(self, connection: HttpConnection) -> _Response:
        """Return the response that aiohttp parses on a connection. Interim responses are ignored."""
        try:
            message, content = await connection.http.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, content = await connection.http.read()
        except BaseException:
            connection.close()
            raise
        return _Response(self, connection, message, content)

    def _build_target(self, call: Call) -> str:
        """Return the target of the request line: a path with its query, or a URL for a proxy without TLS."""
        if not call.query and not self._writes_urls:
            return self._prefix + call.path
        url = self._url(self._server + call.path, encoded=True)
        if call.query:
            url = url.with_query(list(call.query))
        target: str = str(url) if self._writes_urls else url.raw_path_qs
        return target

    def failure(self, call: Call, error: BaseException) -> ConnectionFailedError:
        """Convert an exception of a request to a ConnectionFailedError, whose message has no header and no password."""
        http = self._http
        kind: FailureKind = "other"
        text = str(error) or type(error).__name__
        if isinstance(error, http.ClientConnectorCertificateError | http.ClientConnectorSSLError | ssl.SSLError):
            text = f"tls: {_reason(error)}"
        elif isinstance(error, ConnectionRefusedError) or getattr(error, "errno", None) == errno.ECONNREFUSED:
            kind, text = "refused", "connect: connection refused"
        elif isinstance(error, TimeoutError):
            kind, text = "timeout", "i/o timeout"
        elif "Got more than" in text or "Too many headers" in text:  # aiohttp has no exception type for this
            kind, text = "too large", "its headers are larger than allowed"
        elif isinstance(error, http.ServerDisconnectedError):
            kind, text = "reset", "EOF"
        elif isinstance(error, http.ClientPayloadError):
            kind, text = "reset", "unexpected EOF"
        elif isinstance(error, http.ClientOSError | ConnectionError):
            reset = isinstance(error, ConnectionError) or getattr(error, "errno", None) in (
                errno.ECONNRESET,
                errno.EPIPE,
            )
            if reset:
                kind, text = "reset", "connection reset by peer"
            elif isinstance(error, http.ClientConnectorError):
                text = connection_failure(error)
        elif isinstance(error, self._bad_response):
            text = " ".join(text.split())  # aiohttp describes an invalid response in several lines
        elif isinstance(error, ValueError) and not isinstance(error, http.ClientError):
            text = "the request cannot be written"  # the exception text may contain a header
        return self._build_error(call, text, kind)

    def too_large(self, call: Call) -> ConnectionFailedError:
        """Return the error for a response that is larger than ``limits.response_bytes``."""
        return self._build_error(call, f"the response is larger than {self.limits.response_bytes:,} bytes", "too large")

    def _build_error(self, call: Call, text: str, kind: FailureKind) -> ConnectionFailedError:
        """Build the error of a call that got no response; passwords are removed from its text."""
        method = call.method.capitalize()
        return ConnectionFailedError(without_password(f'{method} "{self._server}{call.path}": {text}'), kind)


def connect(
    access: Access,
    clock: Clock,
    *,
    user_agent: str = "kscale",
    qps: float = 0.0,
    burst: int = 0,
    limits: ServerLimits = DEFAULT_LIMITS,
) -> Client:
    """Return a client of an API server. Call it on a running event loop; close it with ``await client.close()``.

    Parameters
    ----------
    access : Access
        Server and identity, for example from :func:`~kscale.world.kubernetes.kubeconfig.load_access`.
    clock : Clock
        Clock for rate limits and expiry of credentials.
    user_agent : str, default "kscale"
        Value of the User-Agent header.
    qps, burst, limits
        As in :class:`~kscale.world.kubernetes.client.Client`.

    Returns
    -------
    Client
        A client with its own connections.

    Raises
    ------
    MissingExtraError
        If aiohttp is not installed.
    """
    buffers = Buffers(limits.buffered_bytes)
    transport = AiohttpTransport(access, clock, user_agent=user_agent, limits=limits, buffers=buffers)
    return Client(transport, clock, qps=qps, burst=burst, limits=limits, buffers=buffers)


class _Response:
    """Status and headers of a response, and its body, or else ``content``, aiohttp's reader of the body.

    At the end of the body the connection is given back.
    """

    __slots__ = ("_connection", "_of", "content", "headers", "status")

    def __init__(self, of: AiohttpTransport, connection: HttpConnection, message: Any, content: Any) -> None:
        self._of, self.content = of, content
        self._connection: HttpConnection | None = connection
        self.status: int = message.code
        self.headers: Mapping[str, str] = message.headers
        content.on_eof(self._release)

    def _release(self) -> None:
        """Give the connection back for later requests, at the end of the body."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.on_full = None
            self._of.give_back(connection)

    def close(self) -> None:
        """Close the connection, unless the whole body has been received. A task that reads the body gets an error."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self.content.exception() is None:
                self.content.set_exception(self._of.client_error("connection closed"))
            connection.close()

    def on_full(self, call: Callable[[], None]) -> None:
        """Call a function whenever no more of the body is received until somebody reads. It replaces an earlier one."""
        if self._connection is not None:
            self._connection.on_full = call

    @property
    def wire(self) -> Any:
        """Transport of the connection; None after the end of the body and if the connection is closed."""
        return None if self._connection is None else self._connection.http.transport

    @property
    def closed(self) -> Any:
        """Future that is done when the connection is closed; None once the whole body has been received."""
        return None if self._connection is None else self._connection.http.closed


class _Body:
    """Response body that is read in pieces."""

    __slots__ = ("_call", "_of", "_response", "_timeout", "headers", "status")

    def __init__(self, of: AiohttpTransport, call: Call, response: _Response, timeout: asyncio.Timeout) -> None:
        self._of, self._call, self._response, self._timeout = of, call, response, timeout
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read_some(self, most: int = 0) -> bytes:
        """Return the next bytes, at most ``most`` (0: all that have been received); empty at the end of the body.

        Raises ConnectionFailedError.
        """
        content = self._response.content
        try:
            data: bytes = await (content.read(most) if most else content.readany())
        except (OSError, TimeoutError, self._of.client_error) as error:
            raise self._of.failure(self._call, error) from None
        return data

    def read_received(self) -> bytes:
        """Return the bytes received so far, without waiting; empty if there are none or the connection has failed."""
        content = self._response.content
        data: bytes = b"" if content.exception() is not None else content.read_nowait()
        return data

    def on_end(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the response ends, its connection is closed, or no more is received until somebody reads.

        It may be called several times.
        """

        def handle_closed(closed: asyncio.Future[None]) -> None:
            closed.exception()  # retrieve it: reading reports it
            call()

        self._response.on_full(call)
        self._response.content.on_eof(call)
        closed = self._response.closed
        if closed is not None:
            closed.add_done_callback(handle_closed)

    def pause_reading(self) -> None:
        """Stop reading from the connection. No effect if it is closed."""
        transport = self._wire()
        if transport is not None:
            if hasattr(transport, "set_read_buffer_limits"):
                transport.set_read_buffer_limits(high=1)  # TLS: bytes that are not decrypted stay in the socket
            transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the connection again after :meth:`pause_reading`. No effect if it is closed."""
        transport = self._wire()
        if transport is not None:
            transport.resume_reading()

    def _wire(self) -> Any:
        """Return asyncio's transport of the connection, or None if the connection is closed."""
        return self._response.wire

    async def read(self) -> bytes:
        """Return the whole body. Raises ConnectionFailedError."""
        with self._of.buffers.open() as buffer:
            return await self.read_into(buffer)

    async def read_into(self, buffer: Buffer) -> bytes:
        """Return the whole body; ``buffer`` accounts for its bytes.

        Raises ConnectionFailedError if the connection fails or the body is larger than ``limits.response_bytes``.
        """
        body = io.BytesIO()  # its value is not copied
        while True:
            await self._take(buffer)
            some = await self.read_some(PIECE_BYTES)
            buffer.adjust(len(some) - PIECE_BYTES)
            if not some:
                return body.getvalue()
            body.write(some)
            if body.tell() > self._of.limits.response_bytes:
                del body  # not held by the frames of the error
                raise self._of.too_large(self._call)

    async def _take(self, buffer: Buffer) -> None:
        """Wait until the buffer has room for another piece, and reserve it.

        The timeout of the server's response is paused while the buffer waits for other responses.
        """
        end = self._timeout.when()
        if buffer.fits or end is None:
            await buffer.take()
            return
        loop = asyncio.get_running_loop()
        begin = loop.time()
        self._timeout.reschedule(None)
        try:
            await buffer.take()
        finally:
            if not self._timeout.expired():
                self._timeout.reschedule(end + loop.time() - begin)


def _reason(error: BaseException) -> str:
    """Return why TLS failed, without the server's address."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or str(cause)


def _socket(address: Any) -> socket.socket:
    """Create a socket with TCP keep-alive, so that a lost peer is detected as in Go.

    ``address``: an entry of ``getaddrinfo``.
    """
    family, kind, protocol, _, _ = address
    result = socket.socket(family, kind, protocol)
    result.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            result.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return result


def proxy_of(access: Access, environ: Mapping[str, str]) -> str:
    """Return the URL of the proxy for a server, or an empty string for a direct connection.

    The proxy of the kubeconfig comes first, then ``HTTPS_PROXY`` or ``HTTP_PROXY`` (by the server's scheme) with the
    exceptions in ``NO_PROXY``; upper or lower case. As in Go, a domain in ``NO_PROXY`` covers its subdomains, a network
    covers its addresses, and the variables do not apply to localhost and loopback addresses. A proxy without a scheme
    gets ``http://``.
    """
    if access.proxy:
        return access.proxy
    parts = urlsplit(access.server)
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    host, port = parts.hostname or "", str(parts.port or {"https": 443}.get(parts.scheme, 80))
    if not proxy or host == "localhost":
        return ""
    address = None
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
    if address is not None and address.is_loopback:
        return ""
    for entry in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").lower().split(","):
        if _is_excepted(entry.strip(), host.lower(), port, address):
            return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_excepted(
    entry: str, host: str, port: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    """Check whether an entry of ``NO_PROXY`` covers a server: ``*``, a network, an IP address, or a domain.

    A domain covers its subdomains; with a leading dot, only these. An entry with a port covers that port only.
    ``address``: the host as an IP address, if it is one.
    """
    if entry == "*":
        return True
    with suppress(ValueError):
        network = ipaddress.ip_network(entry, strict=False)
        return address is not None and address in network
    name, colon, excepted_port = entry.rpartition(":")
    if colon and excepted_port.isdigit():
        if excepted_port != port:
            return False
        entry = name.strip("[]")
    with suppress(ValueError):
        return ipaddress.ip_address(entry) == address
    entry = entry.removeprefix("*")
    if entry.startswith("."):
        return host.endswith(entry)
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))
