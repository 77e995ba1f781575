"""Endpoints of a program over loopback: health, metrics, debugging snapshots, limits of connections, known requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp.web_protocol import RequestHandler

from kscale import InputError
from kscale.effects import Metric, Observation
from kscale.world.serve.app import (
    ANY_PATH,
    ConnectionLimits,
    DebuggingSnapshotService,
    KnownRequests,
    Server,
    _Connection,
    admission_webhook,
    endpoints,
    parse_address,
    redact,
)
from kscale.world.serve.metrics import MetricStore
from kscale.world.serve.tls import ReloadingContext

AUTHORITY = trustme.CA()

Ask = Callable[..., Awaitable[tuple[int, str, dict[str, str]]]]


def served(
    main: Callable[[Ask], Awaitable[Any]],
    handlers: dict[str, Any],
    *,
    tls: ReloadingContext | None = None,
    **options: Any,
) -> Any:
    async def run() -> Any:
        async with Server(handlers, "127.0.0.1:0", tls=tls, **options) as server, aiohttp.ClientSession() as session:

            async def ask(path: str, method: str = "GET", **more: Any) -> tuple[int, str, dict[str, str]]:
                scheme = "http" if tls is None else "https"
                async with session.request(method, f"{scheme}://127.0.0.1:{server.port}{path}", **more) as answer:
                    return answer.status, await answer.text(), dict(answer.headers)

            return await main(ask)

    return asyncio.run(run())


def test_health_and_readiness_endpoints_report_the_message() -> None:
    messages = {"health": "", "ready": "the caches are not filled"}
    handlers = endpoints(health=lambda: messages["health"], ready=lambda: messages["ready"])

    async def main(ask: Ask) -> None:
        assert (await ask("/health-check"))[:2] == (200, "OK")
        assert (await ask("/health-check", "POST"))[:2] == (200, "OK")
        assert (await ask("/healthz"))[:2] == (200, "ok")
        assert (await ask("/readyz"))[:2] == (500, "the caches are not filled")
        messages["ready"] = ""
        assert (await ask("/readyz"))[0] == 200
        messages["health"] = "Error: last activity more 10m1s ago, last success more than 10m1s ago"
        for path in ("/health-check", "/healthz", "/readyz"):
            assert (await ask(path))[:2] == (500, messages["health"])
        # What was not asked for is not there.
        for path in ("/snapshotz", "/metrics", "/debug/pprof/"):
            assert (await ask(path))[0] == 404

    served(main, handlers)


def test_a_client_that_waits_before_it_sends_its_body() -> None:
    async def review(body: bytes, _seconds: float) -> bytes:
        return body

    async def main(ask: Ask) -> None:
        sent: dict[str, Any] = {"data": b"{}", "headers": {"Content-Type": "application/json"}}
        assert (await ask("/any/path", "POST", expect100=True, **sent))[:2] == (200, "{}")
        sent["headers"]["Expect"] = "a miracle"
        assert (await ask("/", "POST", **sent))[:2] == (417, "Unknown Expect: a miracle")
        sent["headers"]["Expect"] = ""  # expects nothing
        assert (await ask("/", "POST", **sent))[:2] == (200, "{}")

    served(main, {ANY_PATH: admission_webhook(review)})


@pytest.mark.parametrize("expected", ["100-continue", "a miracle"])
def test_a_client_of_http_1_0_expects_nothing(expected: str) -> None:
    lines = ("POST / HTTP/1.0", "Content-Type: application/json", "Content-Length: 2", f"Expect: {expected}")
    assert _first_line("\r\n".join((*lines, "", "{}"))) == "HTTP/1.0 200 OK"


@pytest.mark.parametrize("request_line", ["OPTIONS * HTTP/1.1", "CONNECT example.org:443 HTTP/1.1"])
def test_a_request_without_a_path_has_no_handler(request_line: str) -> None:
    assert _first_line(f"{request_line}\r\nHost: example.org\r\n\r\n") == "HTTP/1.1 404 Not Found"


def _first_line(request: str) -> str:
    """Return the first line of a webhook's response to the text of a request."""

    async def review(body: bytes, _seconds: float) -> bytes:
        return body

    async def run() -> str:
        async with Server({ANY_PATH: admission_webhook(review)}, "127.0.0.1:0") as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request.encode())
            line = await reader.readline()
            writer.close()
            return line.decode().strip()

    return asyncio.run(run())


def test_metrics_endpoint_serves_prometheus_text() -> None:
    created = MetricStore([Metric("a_total", "counter")])
    created.observe([Observation(name="a_total")])

    async def main(ask: Ask) -> None:
        status, body, headers = await ask("/metrics")
        assert status == 200
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "a_total 1.0" in body
        assert "process_resident_memory_bytes" in body
        _, body, headers = await ask("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert body.endswith("# EOF\n")

    served(main, endpoints(metrics=created))


def test_the_debugging_snapshot() -> None:
    desk = DebuggingSnapshotService()
    pod = {
        "metadata": {"name": "p", "annotations": {"last-applied": "s3cr3t"}, "labels": {"a": "b"}},
        "spec": {
            "containers": [
                {"name": "c", "env": [{"name": "KEY", "value": "s3cr3t"}, {"name": "REF", "valueFrom": {"a": 1}}]}
            ]
        },
    }

    async def main(ask: Ask) -> None:
        assert not desk.is_requested
        desk.deliver({"NodeList": []}, start=0, end=1)  # nobody has asked
        first = asyncio.create_task(ask("/snapshotz"))
        while not desk.is_requested:
            await asyncio.sleep(0)
        status, body, _ = await ask("/snapshotz")
        assert (status, body.startswith("Another debugging snapshot request")) == (429, True)
        await asyncio.to_thread(desk.deliver, {"Pods": [pod]}, start=0, end=10**9)
        status, body, headers = await first
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert "s3cr3t" not in body
        result = json.loads(body)
        assert result["Pods"] == [
            {
                "metadata": {"name": "p", "annotations": {"last-applied": "<redacted>"}, "labels": {"a": "b"}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "env": [{"name": "KEY", "value": "<redacted>"}, {"name": "REF", "valueFrom": {"a": 1}}],
                        }
                    ]
                },
            }
        ]
        assert (result["StartTimestamp"], result["EndTimestamp"]) == ("1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z")
        assert not desk.is_requested

    served(main, endpoints(snapshot=desk))
    assert redact(5) == 5


def test_bodies_that_are_too_long() -> None:
    async def echo(request: Any) -> Any:
        return aiohttp.web.Response(body=await request.read())

    async def main(ask: Ask) -> None:
        assert (await ask("/", "POST", data=b"x" * 1024))[0] == 200
        assert (await ask("/", "POST", data=b"x" * 1025))[0] == 413

    served(main, {"/": echo}, most=1024)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (":8085", ("", 8085)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
    ],
)
def test_listen_addresses_are_parsed(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address", ["", "8085", "localhost", "::1:80", ":http", ":70000", ":-1", ":+1", ":٨", ":" + "9" * 5000]
)
def test_invalid_listen_address_is_an_input_error(address: str) -> None:
    with pytest.raises(InputError, match="no address to listen on"):
        parse_address(address)


def test_address_in_use_is_an_error() -> None:
    async def main() -> None:
        async with Server({}, "127.0.0.1:0") as first:
            with pytest.raises(InputError, match="cannot listen on"):
                await Server({}, f"127.0.0.1:{first.port}").__aenter__()

    asyncio.run(main())


# -- connections that keep a server waiting --------------------------------------------------------------------------


def connected(main: Callable[[int], Awaitable[Any]], handlers: dict[str, Any], limits: ConnectionLimits) -> None:
    """Run ``main`` with the port of a server with these limits."""

    async def run() -> None:
        async with Server(handlers, "127.0.0.1:0", limits=limits) as server, asyncio.timeout(30):
            await main(server.port)

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a", b"GET /"])
def test_a_connection_without_a_whole_request_is_closed(sent: bytes) -> None:
    async def main(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()

    connected(main, {}, ConnectionLimits(read_timeout=0.1))


def test_an_idle_connection_is_closed() -> None:
    async def main(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health-check HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = await reader.read()  # until the server closes
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"OK")
        writer.close()

    connected(main, endpoints(), ConnectionLimits(idle_timeout=0.1))


def test_no_more_connections_than_allowed_and_the_next_one_waits() -> None:
    async def main(port: int) -> None:
        open_connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        late_reader, late = await asyncio.open_connection("127.0.0.1", port)  # the kernel takes it
        late.write(b"GET /health-check HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = asyncio.create_task(late_reader.read())
        for reader, writer in open_connections:
            writer.write(b"GET /health-check HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\nOK")
        assert not answer.done()
        open_connections[0][1].close()
        assert (await answer).startswith(b"HTTP/1.1 200 OK\r\n")
        for writer in (open_connections[1][1], late):
            writer.close()

    connected(main, endpoints(), ConnectionLimits(connections=2))


def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    ended = asyncio.Event()

    async def large(request: Any) -> Any:
        response = aiohttp.web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 2**20)
        finally:
            ended.set()

    async def main(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await ended.wait()
        writer.close()

    connected(main, {"/": large}, ConnectionLimits(read_timeout=0.1))


def test_a_client_that_leaves_a_small_rest_unread_is_dropped() -> None:
    """Its place is free for the next connection."""
    transports: list[Any] = []

    async def answer(request: Any) -> Any:
        transports.append(request.transport)
        return aiohttp.web.Response(body=b"x" * 30_000)

    async def main(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()
        while not transports or not transports[0].get_write_buffer_size():
            count = len(transports)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            while len(transports) == count:
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # the response is written
        next_reader, next_writer = await asyncio.open_connection("127.0.0.1", port)
        next_writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await next_reader.readline()).startswith(b"HTTP/1.1 200 ")
        for each in (writer, next_writer):
            each.close()

    connected(main, {"/": answer}, ConnectionLimits(connections=1, read_timeout=0.3, idle_timeout=0.3))


def test_a_handshake_that_does_not_end_is_closed(tmp_path: Path) -> None:
    AUTHORITY.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))

    async def main() -> None:
        tls = ReloadingContext(str(tmp_path / "pem"), str(tmp_path / "pem"))
        limits = ConnectionLimits(connections=1, read_timeout=0.1)
        async with Server({}, "127.0.0.1:0", tls=tls, limits=limits) as server, asyncio.timeout(30):
            for _ in range(3):  # each gives its place back
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                assert await reader.read() == b""
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_invalid_http_is_answered_with_400_and_one_log_line(
    sent: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.read()).split(b" ")[1] == b"400"
        writer.close()

    with caplog.at_level("DEBUG", logger="kscale"):
        connected(main, endpoints(), ConnectionLimits(read_timeout=5.0))
    records = [record for record in caplog.records if record.name.startswith("kscale")]
    assert [record.getMessage().partition(":")[0] for record in records] == ["a request that cannot be read"]
    assert [(record.exc_info, "\n" in record.getMessage()) for record in records] == [(None, False)]
    assert capfd.readouterr().err == ""


_POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "in_tls"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", False),
        (bytes(range(256)), True),
        (_POST + b"Content-Length: x\r\n\r\n", True),
        (_POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", True),
        (_POST + b"Content-Length: 9\r\n\r\n{", True),
        (_POST + b"Content-Length: 10000000\r\n\r\n{", True),
    ],
    ids=["no handshake", "no HTTP", "an odd length", "an odd chunk", "a body cut off", "a body that is too long"],
)
def test_a_bad_connection_frees_its_buffers_without_the_garbage_collector(
    tmp_path: Path, sent: bytes, in_tls: bool
) -> None:
    """Each holds 256 KiB for TLS. The collector of a program may run only after hundreds of connections."""
    AUTHORITY.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))

    async def review(body: bytes, _: float) -> bytes:
        return body

    def connect(port: int) -> None:
        # Blocking, because a client of asyncio would have such buffers itself.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(plain) if in_tls else plain as connection, contextlib.suppress(OSError):
            connection.sendall(sent)
            connection.settimeout(0.1)  # wait for the response where one comes
            connection.recv(65536)

    async def main() -> list[type]:
        tls = ReloadingContext(str(tmp_path / "pem"), str(tmp_path / "pem"))
        async with Server({ANY_PATH: admission_webhook(review)}, "127.0.0.1:0", tls=tls) as server:
            await asyncio.to_thread(connect, server.port)
            for _ in range(3000):
                leaked = [type(each) for each in gc.get_objects() if isinstance(each, (SSLProtocol, RequestHandler))]
                if not leaked:
                    break
                await asyncio.sleep(0.01)
            return leaked

    gc.collect()
    gc.freeze()  # so that get_objects returns the objects of this test
    gc.disable()
    try:
        assert asyncio.run(main()) == []
    finally:
        gc.enable()  # without unfreeze, since conftest.py has frozen what was collected


def test_a_compressed_body_is_handed_over_as_it_is() -> None:
    async def echo(request: Any) -> Any:
        return aiohttp.web.Response(body=await request.read())

    async def main(ask: Ask) -> None:
        status, body, _ = await ask("/", "POST", data=b"no gzip", headers={"Content-Encoding": "gzip"})
        assert (status, body) == (200, "no gzip")

    served(main, {"/": echo})


def test_a_body_that_does_not_come_is_given_up() -> None:
    refusals: list[str] = []

    async def review(body: bytes, _: float) -> bytes:
        return body

    async def main(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()

    handler = admission_webhook(review, refused=lambda why, _: refusals.append(why), read_timeout=0.1)
    connected(main, {ANY_PATH: handler}, ConnectionLimits(read_timeout=5.0))
    assert refusals == ["the body did not arrive in time"]


# -- known requests ----------------------------------------------------------------------------------------------------


def _review_request(body: bytes, *more: str, path: str = "/") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: a",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Reviews:
    """A webhook that says which function answered: ``now`` or ``later``, and the body."""

    def __init__(self) -> None:
        self.answered: list[str] = []

    async def review(self, body: bytes, _seconds: float) -> bytes:
        self.answered.append("later")
        if body == b"fault":
            raise RuntimeError("as asked")
        return b"to " + body

    def review_now(self, body: bytes) -> bytes | None:
        if body in (b"fault", b"slow"):
            if body == b"fault":
                raise RuntimeError("as asked")
            return None
        self.answered.append("now")
        return b"to " + body

    def handler(self) -> Any:
        return admission_webhook(self.review, review_now=self.review_now)


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    (length,) = (int(line.split(":")[1]) for line in head.lower().split("\r\n") if line.startswith("content-length:"))
    assert "date:" in head.lower()
    return int(head.split()[1]), await reader.readexactly(length)


def _with_webhook(
    main: Callable[[asyncio.StreamReader, asyncio.StreamWriter, _Reviews], Awaitable[None]], **options: Any
) -> None:
    reviews = _Reviews()

    async def run() -> None:
        server = Server({ANY_PATH: reviews.handler(), "/other": reviews.handler()}, "127.0.0.1:0", **options)
        async with server, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await main(reader, writer, reviews)
            writer.close()

    asyncio.run(run())


def test_a_request_with_known_headers_is_answered_at_once() -> None:
    async def main(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reviews: _Reviews) -> None:
        for body in (b"one", b"three", b"seventeen-bytes-x", b"slow", b"two"):
            writer.write(_review_request(body))
            assert await _read_response(reader) == (200, b"to " + body)
        assert reviews.answered == ["later", "now", "now", "later", "now"]

    _with_webhook(main)


@pytest.mark.parametrize(
    "special",
    [
        _review_request(b"x", path="/other"),
        _review_request(b"x", "Connection: keep-alive"),
        _review_request(b"x", "Expect: 100-continue"),
        _review_request(b"x").replace(b"HTTP/1.1", b"HTTP/1.0"),
        _POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        _review_request(b"x").replace(b"application/json", b"text/plain"),
        _review_request(b"x").replace(b"Content-Length: 1", b"Content-Length: +1"),
        _review_request(b"x").replace(b"Content-Length: 1", b"Content-Length: 01"),
        _review_request(b"x", "Content-Length: 1"),
        _review_request(b"").replace(b"Content-Length: 0", b"Content-Length: x"),
        b"\r\n" + _review_request(b"x"),
    ],
)
def test_uncommon_requests_use_the_general_parser(special: bytes) -> None:
    """Also after known ones, and their headers are not known afterwards if they ask for something special."""

    async def main(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reviews: _Reviews) -> None:
        for _ in range(2):
            writer.write(_review_request(b"a"))
            await _read_response(reader)
        assert reviews.answered.pop() == "now"
        writer.write(special)
        await reader.readuntil(b"\r\n\r\n")
        assert reviews.answered.count("now") == 0

    _with_webhook(main)


def test_requests_in_pieces_and_several_at_once() -> None:
    """However they are cut, each gets its response, in order."""
    bodies = [b"a" * n for n in range(1, 8)]
    sent = b"".join(map(_review_request, bodies))

    async def main(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: _Reviews) -> None:
        for step in (7, 50, 83, 84, 85, 86, 87, 170, len(sent)):
            for begin in range(0, len(sent), step):
                writer.write(sent[begin : begin + step])
                await writer.drain()
                await asyncio.sleep(0)
            assert [await _read_response(reader) for _ in bodies] == [(200, b"to " + body) for body in bodies]

    _with_webhook(main)


def test_a_known_request_keeps_its_limits(caplog: pytest.LogCaptureFixture) -> None:
    async def main(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reviews: _Reviews) -> None:
        for body, status in ((b"a", 200), (b"b" * 1024, 200), (b"fault", 500)):
            writer.write(_review_request(body))
            assert (await _read_response(reader))[0] == status
        assert reviews.answered == ["later", "now", "later"]

    _with_webhook(main, most=1024)
    assert "as asked" in caplog.text

    async def too_long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: _Reviews) -> None:
        for body, status in ((b"a", 200), (b"b" * 1025, 413)):
            writer.write(_review_request(body))
            assert int((await reader.readuntil(b"\r\n\r\n")).split()[1]) == status
            if status == 200:
                await reader.readexactly(4)

    _with_webhook(too_long, most=1024)


def test_a_connection_is_idle_from_its_last_request_on() -> None:
    """Whichever way it was answered."""

    async def main(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reviews: _Reviews) -> None:
        for body in (b"one", b"two", b"slow"):
            writer.write(_review_request(body))
            await _read_response(reader)
        writer.write(_review_request(b"two"))
        await _read_response(reader)
        assert reviews.answered == ["later", "now", "later", "now"]
        assert await reader.read() == b""

    _with_webhook(main, limits=ConnectionLimits(idle_timeout=0.1))


@pytest.mark.parametrize("sent", [b"", b"P", b"POST / HTTP/1.1\r\nHost: a\r\n", b"POST / HTTP/1.1\r\n"])
def test_a_part_of_a_request_does_not_keep_a_connection_open(sent: bytes) -> None:
    """Also if the request before it was answered at once."""

    async def main(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reviews: _Reviews) -> None:
        for body in (b"one", b"two"):
            writer.write(_review_request(body))
            await _read_response(reader)
        assert reviews.answered == ["later", "now"]
        writer.write(sent)
        assert await reader.read() == b""

    _with_webhook(main, limits=ConnectionLimits(idle_timeout=0.1))


def test_a_client_that_reads_no_responses_is_dropped_although_it_sends_requests() -> None:
    answered: list[str] = []

    def answer(how: str) -> bytes:
        answered.append(how)
        return b"x" * 60_000

    async def review(_body: bytes, _seconds: float) -> bytes:
        return answer("later")

    async def send_forever(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(_review_request(b"x"))
            await writer.drain()
            await asyncio.sleep(0)

    async def main(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()
        while answered.count("later") < 2:  # the second one follows when the server cannot write any more
            count = len(answered)
            writer.write(_review_request(b"x"))
            while len(answered) == count:
                await asyncio.sleep(0)
        with pytest.raises(ConnectionError):
            await send_forever(writer)
        writer.close()

    handler = admission_webhook(review, review_now=lambda _body: answer("now"))
    connected(main, {ANY_PATH: handler}, ConnectionLimits(read_timeout=0.3))
    assert answered.count("now") > 1


def test_a_connection_does_not_keep_long_headers() -> None:
    """aiohttp accepts up to a mebibyte of them, and a connection may be idle for long."""
    connection = _Connection(asyncio.Protocol, ConnectionLimits(), lambda: None, KnownRequests(1024))

    class Transport(asyncio.Transport):
        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

    async def main() -> None:
        connection.connection_made(Transport())
        connection.data_received(_review_request(b"x", "X: " + "a" * 5000))
        assert connection._head == b""
        connection.connection_lost(None)

    asyncio.run(main())


def test_headers_that_always_differ_do_not_fill_the_memory() -> None:
    known = KnownRequests(1024)
    for number in range(1000):
        known.learn(b"POST / HTTP/1.1\r\nHost: a\r\nX: %d\r\nContent-Length: 1" % number, lambda body: body)
    assert len(known._known) <= 64
    known.learn(b"POST / HTTP/1.1\r\nX: %b\r\nContent-Length: 1" % (b"a" * 5000), lambda body: body)
    assert known.respond(b"POST / HTTP/1.1\r\nX: %b\r\nContent-Length: 1\r\n\r\nx" % (b"a" * 5000)) is None
