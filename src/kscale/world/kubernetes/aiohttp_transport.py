"""HTTP/1.1 transport based on aiohttp (extra ``[kube]``).

aiohttp opens the connections, and parses and decompresses responses. Two parts of it are not used, because they take
most of the time of a small request: its ``ClientSession``, which builds URL, headers and cookies of each request anew,
and its parser and streams for a response that :func:`read_simple_response` can read.

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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple
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
        self._idle: list[_Channel] = []
        self._cleanup: asyncio.TimerHandle | None = None

    async def call(self, call: Call) -> Answer:
        """Send a request and return the complete response, whatever its status. Status 401 refreshes the credentials.

        The response to a call with ``kept`` holds its bytes in a buffer until it is released. Raises
        ConnectionFailedError if there are no credentials, the connection fails, or the response is too large or not
        complete within ``limits.request_seconds``.
        """
        end = asyncio.get_running_loop().time() + self.limits.request_seconds
        sent = self._clock.monotonic()
        channel = self._take_idle(self._known_peer(sent)) if self._idle and call.method != "HEAD" else None
        if channel is not None:
            answer = await self._call_simply(channel, call, end)
            if answer is not None:
                return answer
        limit = asyncio.timeout_at(end)
        try:
            async with limit:
                response = await self._request(call, sent, channel)
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

    async def _call_simply(self, channel: _Channel, call: Call, end: float) -> Answer | None:
        """Send a request on an idle connection and return the response if it is simple and a success.

        Returns None for other responses, and for broken connections; :meth:`_read_response` then has the response.
        ``end``: time of the loop when the request fails. Raises ConnectionFailedError.
        """
        try:
            head = channel.peer.write_head(call, self._build_target(call))
            response = await channel.exchange(head + (call.body or b""), end)
        except (OSError, TimeoutError, ValueError) as error:
            channel.close()
            raise self.failure(call, error) from None
        except BaseException:
            channel.close()
            raise
        if response is None:
            return None
        self.give_back(channel)
        buffer = None
        if call.kept:
            buffer = self.buffers.open(kept=True)
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
        """Return the body, whose bytes ``buffer`` holds; release the buffer if reading fails.

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
        ends = [end for channel in self._idle if (end := channel.http.closed) is not None]
        for channel in self._idle:
            channel.close()
        self._idle.clear()
        await self._connector.close()
        await asyncio.gather(*ends, return_exceptions=True)

    def give_back(self, channel: _Channel) -> None:
        """Keep a connection for later requests, or close it if it cannot be used again."""
        loop = asyncio.get_running_loop()
        if not channel.is_reusable():
            channel.close()
            return
        channel.is_idle, channel.idle_since = True, loop.time()
        self._idle.append(channel)
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

    def _take_idle(self, peer: _Peer | None) -> _Channel | None:
        """Take the most recently used idle connection to this peer; None if there is none.

        Connections that cannot be used again are closed, and those to other peers: the credentials or certificates have
        changed.
        """
        while peer is not None and self._idle:
            channel = self._idle.pop()
            channel.receive_arrived()
            channel.is_idle = False
            if channel.peer is peer and channel.is_reusable():
                return channel
            channel.close()
        return None

    def _known_peer(self, now: int) -> _Peer | None:
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

    async def _current_peer(self, now: int) -> _Peer:
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

    async def _request(self, call: Call, sent: int, channel: _Channel | None = None) -> _Response:
        """Send a request and return its response, whose body is still to be read.

        A GET is sent once more if the connection has broken. Status 401 refreshes the credentials. ``sent``: monotonic
        time of the request. ``channel``: the connection on which the request has been sent already. Raises
        ConnectionFailedError if there are no credentials, or the connection fails or takes too long.
        """
        try:
            peer = await self._current_peer(sent) if channel is None else channel.peer
            try:
                response = await (self._exchange(peer, call) if channel is None else self._read_response(channel))
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

    def _find_peer(self, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | bool) -> _Peer:
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
            peer = self._peer = _Peer(request, context, headers)
        return peer

    async def _exchange(self, peer: _Peer, call: Call) -> _Response:
        """Send a request on an idle or a new connection and return its response. Raises aiohttp's errors."""
        channel = self._take_idle(peer)
        if channel is None:
            channel = _Channel(
                await self._connector.connect(peer.request, [], self._connect_timeout), peer, self.limits
            )
        try:
            channel.parse_with_aiohttp(skip_body=call.method == "HEAD")
            channel.write(peer.write_head(call, self._build_target(call)) + (call.body or b""))
        except BaseException:
            channel.close()
            raise
        return await self._read_response(channel)

    async def _read_response(self, channel: _Channel) -> _Response:
        """Return the response that aiohttp parses on a connection. Interim responses are ignored."""
        try:
            message, content = await channel.http.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, content = await channel.http.read()
        except BaseException:
            channel.close()
            raise
        return _Response(self, channel, message, content)

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

    Raises
    ------
    MissingExtraError
        If aiohttp is not installed.
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


class _Headers(Mapping[str, str]):
    """Headers of a response, by name in lower case, parsed when one is read. A repeated header has its first value."""

    __slots__ = ("_lines", "_values")

    def __init__(self, lines: bytes) -> None:
        self._lines = lines
        self._values: dict[str, str] | None = None

    def _parse(self) -> dict[str, str]:
        """Return the headers by name in lower case, parsed on first use."""
        if self._values is None:
            self._values = {}
            for line in self._lines.decode("utf-8", "surrogateescape").split("\r\n")[:-1]:
                name, _, value = line.partition(":")
                self._values.setdefault(name.lower(), value.strip(" \t"))
        return self._values

    def __getitem__(self, name: str) -> str:
        return self._parse()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parse())

    def __len__(self) -> int:
        return len(self._parse())


class SimpleResponse(NamedTuple):
    """Complete response with status 200 or 201. ``headers`` has names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSimpleError(Exception):
    """A response that :func:`read_simple_response` does not read."""


_SIMPLE_HEAD: Final = re.compile(
    rb"HTTP/1\.1 (20[01]) [^\x00-\x1f\x7f]*\r\n"
    rb"((?:[!#-'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n){1,100})\r\n"
)
_SIMPLE_HEAD_BYTES: Final = 4096
_MOST_PIECES: Final = 32
"""Pieces in which a simple response may arrive: each piece is parsed with all before it."""
_FRAMING: Final = re.compile(
    rb"\n(connection|content-encoding|content-length|trailer|transfer-encoding|upgrade):[ \t]*([^\r]*?)[ \t]*\r",
    re.IGNORECASE,
)
_BEGIN_OF_HEAD: Final = re.compile(rb"HTTP/1\.1 20(?:[01](?: [^\r\n]*(?:\r\n(?!\r)[^\r\n]*)*(?:\r\n\r|\r)?)?)?")
_SHORTEST_BEGIN: Final = b"HTTP/1.1 20"
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_BEGIN_OF_CHUNK: Final = re.compile(rb"(?:[0-9A-Fa-f]{1,8}\r?)?")
_MOST_DIGITS: Final = 9  # of a Content-Length


def read_simple_response(
    data: bytes, *, head_bytes: int = _SIMPLE_HEAD_BYTES, body_bytes: int = FREE_BYTES
) -> SimpleResponse | None:
    """Parse a response as API servers send it to small requests; None if ``data`` may be the beginning of one.

    Such a response has status 200 or 201, a length or chunks without extensions and trailers, no content encoding, no
    ``Connection`` header, at most ``head_bytes`` of status and headers, and a body of at most ``body_bytes``. Raises
    NotSimpleError for all other data.
    """
    head = _SIMPLE_HEAD.match(data, 0, head_bytes)
    if head is None:
        if len(data) < head_bytes and (_SHORTEST_BEGIN.startswith(data) or _BEGIN_OF_HEAD.fullmatch(data)):
            return None
        raise NotSimpleError
    start = head.end()
    framing = _FRAMING.findall(data, 0, start)
    if len(framing) != 1:
        raise NotSimpleError
    name, value = framing[0][0].lower(), framing[0][1]
    if name == b"content-length" and value.isdigit() and len(value) <= _MOST_DIGITS and int(value) <= body_bytes:
        missing = int(value) - (len(data) - start)
        if missing < 0:
            raise NotSimpleError
        body = None if missing else data[start:]
    elif name == b"transfer-encoding" and value == b"chunked":
        body = _join_chunks(data, start, body_bytes)
    else:
        raise NotSimpleError
    return None if body is None else SimpleResponse(int(head[1]), _Headers(head[2]), body)


def _join_chunks(data: bytes, start: int, most: int) -> bytes | None:
    """Return the body of a chunked response; None if its end is missing.

    Raises NotSimpleError if the chunks have more than ``most`` bytes with their sizes, or are not simple.
    """
    if len(data) - start > most:
        raise NotSimpleError
    chunks: list[bytes] = []
    while True:
        size = _CHUNK_SIZE.match(data, start)
        if size is None:
            if _BEGIN_OF_CHUNK.fullmatch(data, start):
                return None
            raise NotSimpleError
        start, end = size.end(), size.end() + int(size[1], 16)
        if end - start > most:
            raise NotSimpleError
        if not b"\r\n".startswith(data[end : end + 2]):
            raise NotSimpleError
        if len(data) < end + 2:
            return None
        if start == end:
            if len(data) != end + 2:
                raise NotSimpleError
            return b"".join(chunks)
        chunks.append(data[start:end])
        start = end + 2


class _Channel(asyncio.Protocol):
    """A connection to a peer, which reads simple responses itself.

    It stands between asyncio's transport and ``http``, aiohttp's protocol of the connection, which receives everything
    that belongs to no simple response: other responses, the end of the connection, and unexpected data.
    """

    def __init__(self, connection: Any, peer: _Peer, limits: ServerLimits) -> None:
        self.connection, self.peer, self.idle_since = connection, peer, 0.0
        self.http = connection.protocol
        self.transport = connection.transport
        self._limits = limits
        self._head_bytes = min(_SIMPLE_HEAD_BYTES, limits.header_bytes)
        self._body_bytes = min(FREE_BYTES, limits.response_bytes)
        self._data = b""
        self._pieces = 0
        self._waiter: asyncio.Future[SimpleResponse | None] | None = None
        self._end = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_clean = self._is_lost = False
        self.is_idle = False
        self._has_unexpected_data = False
        self.on_full: Callable[[], None] | None = None
        """Called when no more data of a response is received until somebody reads."""
        self.transport.set_protocol(self)

    def write(self, data: bytes) -> None:
        """Send data on the connection."""
        self.transport.write(data)

    def is_reusable(self) -> bool:
        """Check whether another request can be sent: the connection is open and nothing is left over.

        A server may have sent data that is the response to no request. For example, some load balancers respond with
        status 408 to a connection that is idle. As in Go, such a connection must not be used, because the data would be
        taken for the response to the next request. Nor if the last request has not been sent completely.
        """
        if not self._is_clean:
            is_open = self.http.transport is not None and not self.transport.is_closing()
            self._is_clean = is_open and not self.http.should_close and not self._has_unexpected_data
        return self._is_clean and not self.transport.get_write_buffer_size()

    def receive_arrived(self) -> None:
        """Receive what has arrived, so that it is not taken for the response to the next request."""
        if isinstance(self.transport, TLSTransport):  # asyncio's transports leave nothing
            self.transport.receive_arrived()

    def close(self) -> None:
        """Close the connection at once. Unsent data is dropped: the server may never receive it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiter = self.on_full = None
        if not self._is_lost:
            self.transport.abort()
        self.connection.close()

    async def exchange(self, request: bytes, end: float) -> SimpleResponse | None:
        """Send a request and return its response if it is simple.

        Returns None as soon as the response turns out not to be simple, or the connection has broken: aiohttp's
        protocol has then received what came. Raises TimeoutError at ``end``, a time of the loop.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[SimpleResponse | None] = loop.create_future()
        self._waiter = waiter
        self._end = end
        self._pieces = 0
        if self._timer is None:  # one timer serves many requests
            self._timer = loop.call_at(end, self._check_time)
        self.transport.write(request)
        return await waiter

    def _check_time(self) -> None:
        """Fail the current exchange with TimeoutError if its time is over; otherwise schedule the next check."""
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._waiter is None:
            return
        if loop.time() < self._end:
            self._timer = loop.call_at(self._end, self._check_time)
        elif not self._waiter.done():
            self._waiter.set_exception(TimeoutError())

    def parse_with_aiohttp(self, *, skip_body: bool = False) -> None:
        """Let aiohttp parse the response to the next request. ``skip_body``: it has none, whatever its headers say."""
        self._is_clean = False
        self.http.set_response_params(
            read_until_eof=True,
            read_bufsize=_BUFFER,
            max_line_size=self._limits.header_bytes,
            max_field_size=self._limits.header_bytes,
            skip_payload=skip_body,
        )

    def _hand_over(self) -> None:
        """Leave the response to aiohttp, with the bytes received so far; the current exchange returns None."""
        waiter, self._waiter = self._waiter, None
        data, self._data = self._data, b""
        self.parse_with_aiohttp()
        if data:
            self.http.data_received(data)
            self._is_clean = False
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Complete the current exchange when its response has arrived, or leave the data to aiohttp's parser.

        aiohttp gets a response that is not simple, and all data while no exchange is in progress.
        """
        waiter = self._waiter
        if waiter is None:
            self._has_unexpected_data = self._has_unexpected_data or self.is_idle
            self.http.data_received(data)
            self._is_clean = False  # also if the connection was given back at the end of a body before other data
            if self.on_full is not None and not self.transport.is_reading():
                self.on_full()
            return
        data = self._data + data if self._data else data
        try:
            response = read_simple_response(data, head_bytes=self._head_bytes, body_bytes=self._body_bytes)
        except NotSimpleError:
            self._data = data
            self._hand_over()
            return
        if response is None:
            self._data = data
            self._pieces += 1
            if self._pieces > _MOST_PIECES:
                self._hand_over()
            return
        self._data, self._waiter = b"", None
        if not waiter.done():
            waiter.set_result(response)

    def eof_received(self) -> None:
        """Leave the response to aiohttp, as the server sends no more data."""
        if self._waiter is not None:
            self._hand_over()
        self._is_clean = False
        self.http.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """Leave the response to aiohttp, as the connection has ended."""
        if self._waiter is not None:
            self._hand_over()
        self._is_clean, self._is_lost = False, True
        self.http.connection_lost(error)

    def pause_writing(self) -> None:
        """Tell aiohttp that the connection takes no more data for now."""
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """Tell aiohttp that the connection takes data again."""
        self.http.resume_writing()


class _Response:
    """Status and headers of a response, and its body, or else ``content``, aiohttp's reader of the body.

    At the end of the body the connection is given back.
    """

    __slots__ = ("_channel", "_of", "content", "headers", "status")

    def __init__(self, of: AiohttpTransport, channel: _Channel, message: Any, content: Any) -> None:
        self._of, self.content = of, content
        self._channel: _Channel | None = channel
        self.status: int = message.code
        self.headers: Mapping[str, str] = message.headers
        content.on_eof(self._release)

    def _release(self) -> None:
        """Give the connection back for later requests, at the end of the body."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.on_full = None
            self._of.give_back(channel)

    def close(self) -> None:
        """Close the connection, unless the whole body has been received. A task that reads the body gets an error."""
        channel, self._channel = self._channel, None
        if channel is not None:
            if self.content.exception() is None:
                self.content.set_exception(self._of.client_error("connection closed"))
            channel.close()

    def on_full(self, call: Callable[[], None]) -> None:
        """Call a function whenever no more of the body is received until somebody reads. It replaces an earlier one."""
        if self._channel is not None:
            self._channel.on_full = call

    @property
    def wire(self) -> Any:
        """Transport of the connection; None after the end of the body and if the connection is closed."""
        return None if self._channel is None else self._channel.http.transport

    @property
    def closed(self) -> Any:
        """Future of the end of the connection; None after the end of the body."""
        return None if self._channel is None else self._channel.http.closed


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
        """Return the whole body and let ``buffer`` hold as many bytes.

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
    """Check whether an entry of ``NO_PROXY`` covers a server. An entry with a port covers that port only.

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
