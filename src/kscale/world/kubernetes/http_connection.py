"""One HTTP/1.1 connection of a client: request heads, and a reader of small successful responses.

The reader saves the time that aiohttp's parser and streams take for a small request. It leaves every response that it
does not recognise to aiohttp.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kscale.world.kubernetes.transport import FREE_BYTES, Call, ServerLimits

__all__ = ["HttpConnection", "NotSimpleError", "Peer", "SimpleResponse", "read_simple_response"]

_READ_BYTES: Final = 2**18
"""Bytes of a body that aiohttp buffers before it stops reading from the connection."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Peer:
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

    Such a response has

    - status 200 or 201, and a length, or chunks without extensions and trailers;
    - no content encoding, and no ``Connection`` header;
    - at most ``head_bytes`` of status and headers, and a body of at most ``body_bytes``.

    Raises NotSimpleError for all other data.
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


class HttpConnection(asyncio.Protocol):
    """A connection to a peer, which reads simple responses itself.

    It stands between asyncio's transport and ``http``, aiohttp's protocol of the connection, which receives everything
    that belongs to no simple response: other responses, the end of the connection, and unexpected data.
    """

    def __init__(self, aiohttp_connection: Any, peer: Peer, limits: ServerLimits) -> None:
        self._aiohttp_connection, self.peer, self.idle_since = aiohttp_connection, peer, 0.0
        self.http = aiohttp_connection.protocol
        self.transport = aiohttp_connection.transport
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
        taken for the response to the next request. A connection whose last request has not been sent completely must
        not be used either.
        """
        if not self._is_clean:
            is_open = self.http.transport is not None and not self.transport.is_closing()
            self._is_clean = is_open and not self.http.should_close and not self._has_unexpected_data
        return self._is_clean and not self.transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection at once. Unsent data is dropped: the server may never receive it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiter = self.on_full = None
        if not self._is_lost:
            self.transport.abort()
        self._aiohttp_connection.close()

    async def exchange(self, request: bytes, end: float) -> SimpleResponse | None:
        """Send a request and return its response if it is simple.

        Returns None as soon as the response turns out not to be simple, or if the connection breaks. The received bytes
        have then been passed to aiohttp's protocol. Raises TimeoutError at ``end``, a time of the event loop.
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
            read_bufsize=_READ_BYTES,
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
