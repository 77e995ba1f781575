"""Connections of the client, and simple responses beside aiohttp's parser."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kscale.world.clock import SystemClock
from kscale.world.kubernetes.aiohttp_transport import AiohttpTransport
from kscale.world.kubernetes.http_connection import HttpConnection, NotSimpleError, read_simple_response
from kscale.world.kubernetes.kubeconfig import Access
from kscale.world.kubernetes.transport import Call, ConnectionFailedError, ServerLimits
from unit.world.raw_http_server import CA, GET, GOOD, Server

pytestmark = pytest.mark.usefixtures("loop_type")

PATCH = Call(method="PATCH", path="/x", body=b"{}", content_type="application/json")
RESPONSES = {
    "length": GOOD,
    "created": b"HTTP/1.1 201 Created\r\nX-A: b\xc3\xa9 \r\nContent-Length: 3\r\n\r\nabc",
    "empty": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
    "extension of a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
    "trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: y\r\n\r\n",
    "chunk that does not end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "size of a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
    "compressed": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
    % (len(gzip.compress(b"abc", mtime=0)), gzip.compress(b"abc", mtime=0)),
    "repeated header": b"HTTP/1.1 200 OK\r\nWarning: 299 - a\r\nWarning: 299 - b\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
    "no length": b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nall until the end",
    "no header": b"HTTP/1.1 200 OK\r\n\r\nall until the end",
    "close": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    "interim": b"HTTP/1.1 102 Processing\r\n\r\n" + GOOD,
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not found": b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc",
    "throttled": b"HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    "folded header": b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}",
    "control character": b"HTTP/1.1 200 OK\r\nX-A: b\x00\r\nContent-Length: 2\r\n\r\n{}",
    "no name": b"HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 2\r\n\r\n{}",
    "old version": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "many headers": b"HTTP/1.1 200 OK\r\n%sContent-Length: 2\r\n\r\n{}" % (b"X-A: b\r\n" * 200),
    "lines that end with LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    "no response": b"SSH-2.0-x\r\n",
    "cut head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "cut body": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    "cut chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "nothing": b"",
    "large": b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + bytes(200000),
    "large header": b"HTTP/1.1 200 OK\r\nX-A: %s\r\nContent-Length: 2\r\n\r\n{}" % (b"a" * 8000),
    "too large header": b"HTTP/1.1 200 OK\r\nX-A: %s\r\nContent-Length: 2\r\n\r\n{}" % (b"a" * 40000),
}


class Reused(Server):
    """Answers ``warm`` requests of a connection with GOOD, and the next one with ``pieces``, after which it closes."""

    def __init__(self, pieces: list[bytes], warm: int) -> None:
        super().__init__(tls=False)
        self.pieces, self.warm = pieces, warm

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            for number in range(self.warm + 1):
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                for piece in [GOOD] if number < self.warm else self.pieces or []:
                    writer.write(piece)
                    await writer.drain()
                    for _ in range(6):  # the client, which runs in this loop, reads the piece meanwhile
                        await asyncio.sleep(0)


def result_of(pieces: list[bytes], warm: int) -> Any:
    """Return status, headers and body of a response, or the kind of its failure and its text without the URL."""

    async def main() -> Any:
        async with Reused(pieces, warm) as server, asyncio.timeout(30):
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            try:
                for _ in range(warm):
                    await transport.call(PATCH)
                answer = await transport.call(PATCH)
            except ConnectionFailedError as error:
                return error.kind, error.message.replace(server.url, "")
            finally:
                await transport.close()
            return answer.status, {name.lower(): answer.headers[name] for name in answer.headers}, answer.body

    return asyncio.run(main())


@pytest.mark.parametrize("name", RESPONSES)
def test_response_on_a_reused_connection_equals_that_on_a_new_one(name: str) -> None:
    """A new connection is read by aiohttp alone, a used one by :func:`read_simple_response` first."""
    data = RESPONSES[name]
    expected = result_of([data], 0)
    for at in {0, 9, 20, len(data) // 2, len(data) - 1}:
        pieces = [data[:at], data[at:]] if at else [data]
        result = result_of(pieces, 2)
        assert result in (expected, result_of(pieces, 0)), at  # aiohttp's errors name the piece in which they are


@pytest.mark.parametrize("name", ["length", "created", "empty", "chunks"])
def test_a_simple_response_in_pieces(name: str) -> None:
    data = RESPONSES[name]
    assert all(read_simple_response(data[:end]) is None for end in range(len(data)))
    assert read_simple_response(data) is not None
    with pytest.raises(NotSimpleError):
        read_simple_response(data + b"x")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the event loop
@given(st.sampled_from(sorted(RESPONSES)), st.data())
def test_bytes_that_are_no_simple_response(name: str, draw: st.DataObject) -> None:
    """Changed bytes are a response like that which aiohttp reads, or none."""
    data = bytearray(RESPONSES[name][:300])
    for _ in range(draw.draw(st.integers(0, 3))):
        at = draw.draw(st.integers(0, len(data)))
        data[at : at + draw.draw(st.integers(0, 1))] = draw.draw(st.binary(max_size=2))
    with suppress(NotSimpleError):
        simple = read_simple_response(bytes(data))
        if simple is not None:
            assert result_of([bytes(data)], 0) == (simple.status, dict(simple.headers), simple.body)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x",
        b"HTTP/1.0",
        b"HTTP/1.1 4",
        b"HTTP/1.1 200 OK\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0000000009999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n",
    ],
)
def test_the_beginning_of_no_simple_response(data: bytes) -> None:
    """No more data is waited for, and stored, than a simple response has."""
    with pytest.raises(NotSimpleError):
        read_simple_response(data)


def test_a_server_that_ends_lines_with_lf_and_keeps_connections_open() -> None:
    class Lenient(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(2)
                    writer.write(RESPONSES["lines that end with LF"])

    async def main() -> list[bytes]:
        async with Lenient() as server, asyncio.timeout(30):
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            transport = AiohttpTransport(access, SystemClock(), environ={})
            bodies = [(await transport.call(PATCH)).body for _ in range(3)]
            await transport.close()
        return bodies

    assert asyncio.run(main()) == [b"{}"] * 3


def test_a_response_in_many_pieces_is_parsed_by_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the work does not grow with the square of their number."""
    parsed: list[int] = []

    def read(data: bytes, **limits: Any) -> Any:
        parsed.append(len(data))
        return read_simple_response(data, **limits)

    monkeypatch.setattr("kscale.world.kubernetes.http_connection.read_simple_response", read)
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"x" * 500
    assert result_of([data[at : at + 1] for at in range(len(data))], 2)[2] == b"x" * 500
    assert 10 < len(parsed) < 50


@pytest.mark.parametrize("early", [b"H", b"HTTP/1.1 200 OK\r\nX-A: ", b"\r\n"])
def test_a_connection_on_which_data_came_too_early_is_not_used(early: bytes) -> None:
    """Also data that is a part of a response."""

    async def main() -> None:
        async with Reused([GOOD], 1) as server, asyncio.timeout(30):
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            await transport.call(PATCH)
            (connection,) = transport._idle
            assert connection.is_reusable()
            connection.data_received(early)
            assert not connection.is_reusable()
            assert (await transport.call(PATCH)).body == b"{}"
            assert connection.transport.is_closing()
            await transport.close()

    asyncio.run(main())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[HttpConnection]:
    """Return the connections that have been opened so far."""
    connections: list[HttpConnection] = []
    create = HttpConnection.__init__

    def created(self: HttpConnection, *arguments: Any) -> None:
        create(self, *arguments)
        connections.append(self)

    monkeypatch.setattr(HttpConnection, "__init__", created)
    return connections


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_does_not_read(tls: bool, opened: list[HttpConnection]) -> None:
    """Its connection is closed when the time of the request is over, and the rest of the request is dropped."""
    done = asyncio.Event()

    class Deaf(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()
            await done.wait()
            writer.transport.abort()

    async def main() -> None:
        async with Deaf(tls=tls) as server, asyncio.timeout(30):
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            limits = ServerLimits(request_seconds=0.2)
            transport = AiohttpTransport(access, SystemClock(), environ={}, limits=limits)
            with pytest.raises(ConnectionFailedError) as error:
                await transport.call(Call(method="POST", path="/x", body=bytes(32 << 20)))
            assert error.value.kind == "timeout"
            for _ in range(10):
                await asyncio.sleep(0)
            (connection,) = opened
            assert connection.http._connection_lost_called
            await transport.close()
            done.set()

    asyncio.run(main())


@pytest.mark.parametrize("tls", [False, True])
def test_idle_connections_are_closed_at_the_end(tls: bool, opened: list[HttpConnection]) -> None:
    class Open(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(GOOD)

    async def main() -> None:
        async with Open(tls=tls) as server, asyncio.timeout(30):
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            transport = AiohttpTransport(access, SystemClock(), environ={})
            await asyncio.gather(*(transport.call(GET) for _ in range(3)))
            await transport.close()
            assert [each.http._connection_lost_called for each in opened] == [True] * 3

    asyncio.run(main())


def test_limits_of_a_simple_response() -> None:
    for limits in ({"body_bytes": 1}, {"head_bytes": 20}):
        with pytest.raises(NotSimpleError):
            read_simple_response(GOOD, **limits)

    async def main() -> str:
        async with Reused([RESPONSES["chunks"]], 1) as server, asyncio.timeout(30):
            limits = ServerLimits(response_bytes=12)
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={}, limits=limits)
            assert (await transport.call(PATCH)).status == 200
            with pytest.raises(ConnectionFailedError) as error:
                await transport.call(PATCH)
            await transport.close()
        return error.value.kind

    assert asyncio.run(main()) == "too large"


def test_a_request_on_a_used_connection_takes_too_long() -> None:
    async def main() -> str:
        async with Reused([], 1) as server, asyncio.timeout(30):
            limits = ServerLimits(request_seconds=0.05)
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={}, limits=limits)
            await transport.call(PATCH)
            server.pieces = None
            (connection,) = transport._idle
            connection.transport.pause_reading()  # nor the end of the connection is seen
            with pytest.raises(ConnectionFailedError) as error:
                await transport.call(PATCH)
            assert connection.transport.is_closing()
            await transport.close()
        return error.value.kind

    assert asyncio.run(main()) == "timeout"


def test_a_cancelled_request_closes_its_connection() -> None:
    async def main() -> None:
        async with Reused([GOOD], 1) as server, asyncio.timeout(30):
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            await transport.call(PATCH)
            (connection,) = transport._idle
            request = asyncio.create_task(transport.call(PATCH))
            await asyncio.sleep(0)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert connection.transport.is_closing()
            assert transport._idle == []
            await transport.close()

    asyncio.run(main())


def test_idle_connections_are_closed_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Reused([GOOD], 5) as server, asyncio.timeout(30):
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            monkeypatch.setattr("kscale.world.kubernetes.aiohttp_transport._IDLE_SECONDS", 0.0)
            await asyncio.gather(*(transport.call(PATCH) for _ in range(3)))
            while transport._idle:
                await asyncio.sleep(0)
            assert transport._cleanup is None
            await transport.call(PATCH)
            await transport.close()

    asyncio.run(main())
