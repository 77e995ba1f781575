"""HTTP/1.1 transport based on aiohttp (extra ``[kube]``).

aiohttp keeps the connections, and parses and decompresses responses. Its ``ClientSession`` is not used: it builds URL,
headers and cookies of each request anew, which takes three fifths of the time of a small request.

A small response that arrives as a whole on a :class:`~kscale.world.kubernetes.client_tls.TLSTransport` is read without
aiohttp's parser.

aiohttp decodes responses that consist of several compressed members. API servers send watches in this form, and a
client that stops after the first member loses the remaining events without an error.
"""

from __future__ import annotations

import asyncio
import errno
import io
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

from kscale.errors import InputError
from kscale.imports import library
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.client_tls import ClientTLS, TLSTransport
from kscale.world.kubernetes.credentials import CredentialError, Credentials, RunProgram
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
)
from kscale.world.protocols import Clock

__all__ = ["AiohttpTransport", "connect", "proxy_of"]


_BUFFER: Final = 2**18
_CONNECT: Final = 30.0
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
        # asyncio does TLS to a server within TLS to a proxy only on its own transports.
        direct = not (self._proxy or "").startswith("https://")
        self._tls = ClientTLS(access, direct=direct) if uses_tls else None
        self._credentials = Credentials(access, clock, run=run)
        # As in aiohttp's sessions, names and values of headers are checked where they are written.
        encoding = "gzip" if access.compress else "identity"
        self._headers = (("User-Agent", user_agent), ("Accept-Encoding", encoding))
        self._prefix = urlsplit(access.server).path
        self._writes_urls = self._proxy is not None and not access.server.startswith("https://")
        self._connector = self._http.TCPConnector(limit=0, socket_factory=_socket)
        self._connect_timeout = self._http.ClientTimeout(total=None, sock_connect=_CONNECT)
        self._peer: _Peer | None = None

    async def call(self, call: Call) -> Answer:
        """Send a request and return the complete response."""
        limit = asyncio.timeout(self.limits.request_seconds)
        try:
            async with limit:
                response = await self._request(call, whole=True)
                try:
                    data, buffer = self._received(response), None
                    if data is None:
                        buffer = self.buffers.open(kept=call.kept)
                        data = await self._read(call, response, limit, buffer)
                    elif call.kept:
                        buffer = self.buffers.open(kept=True)
                        buffer.adjust(len(data))
                except BaseException:
                    response.close()  # do not wait for the rest of the body
                    raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self.failure(call, error) from None
        if buffer is not None and not call.kept:
            buffer.release()
            buffer = None
        return Answer(response.status, response.headers, data, buffer)

    def _received(self, response: _Response) -> bytes | None:
        """Return the body if it is small and has arrived with the headers; otherwise None."""
        content = response.content
        if content is None:
            return response.body
        if not content.is_eof() or content.exception() is not None:
            return None
        if content.total_bytes > min(FREE_BYTES, self.limits.response_bytes):
            return None
        data: bytes = content.read_nowait()
        return data

    async def _read(self, call: Call, response: _Response, limit: asyncio.Timeout, buffer: Buffer) -> bytes:
        """Read the body into ``buffer``, which is released if that fails."""
        try:
            return await _Body(self, call, response, limit).read_into(buffer)
        except BaseException:
            buffer.release()
            raise

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        """Send a request and yield the response as a stream; the connection is closed at the end of the context."""
        limit = asyncio.timeout(self.limits.request_seconds)
        try:
            async with limit:
                response = await self._request(call)
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
        await self._connector.close()

    async def _request(self, call: Call, *, whole: bool = False) -> _Response:
        """Send a request and return its response, whose body is still to be read.

        ``whole``: the caller needs the whole body, so a small response may be read at once.
        Raises ConnectionFailedError if there are no credentials, or the connection fails or takes too long.
        """
        sent = self._clock.monotonic()
        try:
            identity = await self._credentials.identity()
            context: ssl.SSLContext | bool = True
            if self._tls is not None:
                context = self._tls.context(sent, identity.certificate)
        except (CredentialError, InputError) as error:
            raise ConnectionFailedError(f"getting credentials: {error}") from None
        try:
            peer = self._find_peer(identity.headers, context)
            try:
                response = await self._exchange(peer, call, whole)
            except self._http.ClientConnectorError:
                raise
            except (self._http.ClientOSError, self._http.ServerDisconnectedError):
                if call.method != "GET":  # as in Go: the server may have performed a request that writes
                    raise
                response = await self._exchange(peer, call, whole)  # the server may have closed an idle connection
        except (self._http.ClientError, self._bad_response, OSError, TimeoutError, ValueError) as error:
            raise self.failure(call, error) from None
        if response.status == 401:
            try:
                await self._credentials.handle_rejection(sent)
            except BaseException:
                response.close()
                raise
        return response

    def _find_peer(self, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | bool) -> _Peer:
        """Return the peer for these headers and this TLS context, which is built when they change."""
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
            peer = self._peer = _Peer(request, context, headers)
        return peer

    async def _exchange(self, peer: _Peer, call: Call, whole: bool) -> _Response:
        """Send a request on a connection of aiohttp's pool and return its response. Raises aiohttp's errors."""
        connection = await self._connector.connect(peer.request, [], self._connect_timeout)
        while _has_unexpected_data(connection):
            connection.close()
            connection = await self._connector.connect(peer.request, [], self._connect_timeout)
        try:
            protocol, transport = connection.protocol, connection.transport
            request = peer.write_head(call, self._build_target(call)) + (call.body or b"")
            if whole and isinstance(transport, TLSTransport) and call.method != "HEAD":
                small = self._offer_small(transport, protocol)
                transport.write(request)
                if (response := await small) is not None:
                    return _Response(self, connection, *response)
            else:
                self._start_parser(protocol, call.method)
                transport.write(request)
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:  # interim responses are ignored
                message, content = await protocol.read()
        except BaseException:
            connection.close()
            raise
        return _Response(self, connection, message.code, message.headers, None, content)

    def _start_parser(self, protocol: Any, method: str = "") -> None:
        """Let aiohttp parse the next response."""
        protocol.set_response_params(
            read_until_eof=True,
            read_bufsize=_BUFFER,
            max_line_size=self.limits.header_bytes,
            max_field_size=self.limits.header_bytes,
            skip_payload=method == "HEAD",
        )

    def _offer_small(self, transport: TLSTransport, protocol: Any) -> asyncio.Future[_Small | None]:
        """Return a future of the next response if it is small and simple; None if aiohttp parses it."""
        small: asyncio.Future[_Small | None] = asyncio.get_running_loop().create_future()
        header_bytes, body_bytes = self.limits.header_bytes, min(FREE_BYTES, self.limits.response_bytes)

        def take(data: bytes) -> bool:
            response = _parse_small(data, header_bytes, body_bytes)
            if response is None:
                self._start_parser(protocol)
            if not small.done():
                small.set_result(response)
            return response is not None

        transport.offer(take)
        return small

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
            kind, text = ("reset", "connection reset by peer") if reset else ("other", text)
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
    """
    buffers = Buffers(limits.buffered_bytes)
    transport = AiohttpTransport(access, clock, user_agent=user_agent, limits=limits, buffers=buffers)
    return Client(transport, clock, qps=qps, burst=burst, limits=limits, buffers=buffers)


_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class _Peer:
    """The server with one identity: what its requests have in common.

    ``request`` is aiohttp's: the connector opens connections for it.
    """

    __slots__ = ("_common", "context", "identity_headers", "request")

    def __init__(self, request: Any, context: ssl.SSLContext | bool, identity_headers: tuple[tuple[str, str], ...]):
        self.request, self.context, self.identity_headers = request, context, identity_headers
        self._common = ""

    def write_head(self, call: Call, target: str) -> bytes:
        """Return request line and headers. Raises ValueError if a value contains a control character.

        Call it after a connection has been opened, as aiohttp then adds the credentials of a proxy.
        """
        if not self._common:
            lines = [f"{name}: {value}" for name, value in self.request.headers.items()]
            self._common = "\r\n".join(map(_check_line, lines))
        _check_line(f"{call.method} {target} {call.accept} {call.content_type}")
        head = f"{call.method} {target} HTTP/1.1\r\n{self._common}\r\nAccept: {call.accept}\r\n"
        if call.content_type:
            head += f"Content-Type: {call.content_type}\r\n"
        if call.body is not None or call.method != "GET":
            head += f"Content-Length: {len(call.body or b'')}\r\n"
        return f"{head}\r\n".encode()


def _check_line(line: str) -> str:
    """Return the line. Raises ValueError if it contains a control character other than a tab."""
    if _CONTROL.search(line):
        raise ValueError("a line of the request contains a control character")
    return line


def _has_unexpected_data(connection: Any) -> bool:
    """Check whether a connection from the pool has received data that is the response to no request.

    For example, some load balancers respond with status 408 to a connection that is idle. As in Go, such a connection
    must not be used, because the data would be taken for the response to the next request.
    """
    protocol, transport = connection.protocol, connection.transport
    # A new connection has no parser and has not been used.
    is_used: bool = protocol._parser is not None or (isinstance(transport, TLSTransport) and transport.is_used)  # noqa: SLF001
    return is_used and bool(protocol.should_close)


_Small = tuple[int, Mapping[str, str], bytes]
_SMALL_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5]\d\d) [^\r\n\0]*\r\n((?:[-!#$%&'*+.^`|~\w]+:[^\r\n\0]*\r\n){1,128})\r\n"
)
_NOT_SIMPLE: Final = frozenset({"connection", "content-encoding", "transfer-encoding", "upgrade"})


def _parse_small(data: bytes, header_bytes: int, body_bytes: int) -> _Small | None:
    """Parse a response that has arrived as a whole: status, headers by names in lower case, and body.

    Returns None for other data, if the headers or the body have more bytes than allowed, and for what needs further
    rules of HTTP: a transfer or content encoding, a connection that ends, a repeated header.
    """
    head = _SMALL_HEAD.match(data)
    if head is None or head.end() > header_bytes:
        return None
    lines = head[2].decode("utf-8", "surrogateescape").split("\r\n")[:-1]
    headers = {name.lower(): value.strip(" \t") for name, _, value in (line.partition(":") for line in lines)}
    length = len(data) - head.end()
    if len(headers) < len(lines) or not _NOT_SIMPLE.isdisjoint(headers) or length > body_bytes:
        return None
    if headers.get("content-length") != str(length) or head[1] in (b"204", b"304"):
        return None
    return int(head[1]), headers, data[head.end() :]


class _Response:
    """Status and headers of a response, and its body, or else ``content``, aiohttp's reader of the body.

    At the end of the body the connection returns to the pool.
    """

    __slots__ = ("_closed", "body", "connection", "content", "headers", "status")

    def __init__(
        self,
        of: AiohttpTransport,
        connection: Any,
        status: int,
        headers: Mapping[str, str],
        body: bytes | None,
        content: Any = None,
    ) -> None:
        self._closed = of.client_error
        self.connection, self.content, self.body = connection, content, body
        self.status, self.headers = status, headers
        if content is None:
            self._release()
        else:
            content.on_eof(self._release)

    def _release(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if connection.transport is None or connection.transport.get_write_buffer_size():
            connection.close()  # the server has responded before the whole request was sent
        else:
            connection.release()

    def close(self) -> None:
        """Close the connection, unless the whole body has been received. A task that reads the body gets an error."""
        connection, self.connection = self.connection, None
        if connection is not None:
            if self.content.exception() is None:
                self.content.set_exception(self._closed("connection closed"))
            connection.close()


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
        content = self._response.content
        data: bytes = b"" if content.exception() is not None else content.read_nowait()
        return data

    def on_end(self, call: Callable[[], None]) -> None:
        def handle_closed(closed: asyncio.Future[None]) -> None:
            closed.exception()  # retrieve it: reading reports it
            call()

        self._response.content.on_eof(call)
        connection = self._response.connection
        if connection is not None and (closed := connection.protocol.closed) is not None:
            closed.add_done_callback(handle_closed)

    def pause_reading(self) -> None:
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
        connection = self._response.connection
        return None if connection is None else connection.transport

    async def read(self) -> bytes:
        with self._of.buffers.open() as buffer:
            return await self.read_into(buffer)

    async def read_into(self, buffer: Buffer) -> bytes:
        """Return the whole body and let ``buffer`` hold as many bytes.

        Raises ConnectionFailedError if the body is larger than ``limits.response_bytes``.
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
    """Create a socket with TCP keep-alive, so that a lost peer is detected as in Go."""
    family, kind, protocol, _, _ = address
    result = socket.socket(family, kind, protocol)
    result.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            result.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return result


def proxy_of(access: Access, environ: Mapping[str, str]) -> str:
    """Return the URL of the proxy for a server, or an empty string for a direct connection.

    The proxy of the kubeconfig comes first, then ``HTTPS_PROXY`` or ``HTTP_PROXY`` with the exceptions in
    ``NO_PROXY``. As in Go, a domain in ``NO_PROXY`` covers its subdomains, a network covers its addresses, and
    localhost never uses a proxy.
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
    """Check whether an entry of ``NO_PROXY`` covers a server. ``address``: the host as an IP address, if it is one."""
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
