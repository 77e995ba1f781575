"""The transport over loopback: TLS, names, proxies, credentials, compressed members, and connections that break."""

from __future__ import annotations

import asyncio
import errno
import gzip
import socket
import ssl
import tracemalloc
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import trustme

from kscale.effects import SECOND
from kscale.world.clock import SystemClock, VirtualClock, run_in_virtual_time
from kscale.world.kubernetes.aiohttp_transport import AiohttpTransport, _Body, proxy_of
from kscale.world.kubernetes.kubeconfig import Access, ClientCertificate, ExecConfig, Impersonation, Pem, Secret
from kscale.world.kubernetes.transport import PIECE_BYTES, Answer, Buffers, Call, ConnectionFailedError, ServerLimits
from unit.world.raw_http_server import CA, CLIENT, GET, GOOD, SECRET, Server, http

pytestmark = pytest.mark.usefixtures("loop_type")


def call_server(server: Server, call: Call = GET, *, environ: Any = None, run: Any = None, **access: Any) -> Answer:
    async def main() -> Answer:
        async with server:
            defaults = {"server": server.url, "ca": CA, "server_name": "kubernetes.default"}
            created = Access(**{**defaults, **access})
            transport = AiohttpTransport(created, SystemClock(), user_agent="tester", run=run, environ=environ or {})
            try:
                return await transport.call(call)
            finally:
                await transport.close()

    return asyncio.run(main())


def failed(server: Server, call: Call = GET, **access: Any) -> ConnectionFailedError:
    with pytest.raises(ConnectionFailedError) as error:
        call_server(server, call, **access)
    assert SECRET not in str(error.value)
    return error.value


def test_a_request() -> None:
    server = Server(http(b'{"a":1}', "201 Created", "X-Some: Thing"))
    answer = call_server(server, token=Secret(SECRET), impersonate=Impersonation("jo", groups=("a", "b")))
    assert (answer.status, answer.body, answer.headers["x-some"]) == (201, b'{"a":1}', "Thing")
    assert server.heads[0].startswith("GET /api/v1/pods?limit=500&labelSelector=a%3Db,c+in+(d,+e) HTTP/1.1")
    assert server.header("authorization") == [f"Bearer {SECRET}"]
    assert server.header("impersonate-group") == ["a", "b"]
    assert server.header("user-agent") == ["tester"]
    assert server.header("accept") == ["application/json"]
    assert server.header("accept-encoding") == ["gzip"]
    assert server.header("cookie") == []


def test_a_body() -> None:
    server = Server()
    call = Call(method="PATCH", path="/x", body=b"{}", content_type="application/merge-patch+json")
    call_server(server, call, compress=False)
    assert server.heads[0].startswith("PATCH /x HTTP/1.1")
    assert server.header("content-type") == ["application/merge-patch+json"]
    assert server.header("accept-encoding") == ["identity"]


def test_the_name_in_the_certificate() -> None:
    assert call_server(Server(), server_name="kubernetes.default").status == 200
    assert "certificate" in failed(Server(), server_name="other").message
    assert failed(Server(), server_name="").kind == "other"
    assert "tls: " in failed(Server(), ca=Pem(trustme.CA().cert_pem.bytes())).message
    assert call_server(Server(), server_name="", ca=Pem(), insecure=True).status == 200


def test_a_client_certificate(tmp_path: Path) -> None:
    pair = ClientCertificate(
        Pem(b"".join(blob.bytes() for blob in CLIENT.cert_chain_pems)), Pem(CLIENT.private_key_pem.bytes())
    )
    server = Server()
    call_server(server, certificate=pair)
    assert ("email", "admin@example.com") in server.peers[0]["subjectAltName"]

    async def run(words: Any, env: Any, interactive: bool) -> bytes:
        import json

        status = {"clientCertificateData": pair.certificate.data.decode(), "clientKeyData": pair.key.data.decode()}
        credential = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}
        return json.dumps(credential).encode()

    server = Server()
    call_server(server, exec=ExecConfig("plugin"), run=run)
    assert ("email", "admin@example.com") in server.peers[0]["subjectAltName"]


def test_unavailable_credentials_raise_a_named_error(tmp_path: Path) -> None:
    error = failed(Server(), token_file=str(tmp_path / "missing"))
    assert "getting credentials: failed to read token file" in error.message
    assert failed(Server(), ca=Pem(path=str(tmp_path / "missing"))).kind == "other"


def test_a_token_that_is_not_accepted_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    async def main() -> list[list[str]]:
        tokens = []
        async with Server(http(b"", "401 Unauthorized")) as server:
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default", token_file=str(path))
            transport = AiohttpTransport(access, SystemClock(), environ={})
            for token in ("new", "newer"):
                assert (await transport.call(GET)).status == 401
                tokens.append(server.header("authorization"))
                path.write_text(token)
            await transport.call(GET)
            tokens.append(server.header("authorization"))
            await transport.close()
        return tokens

    # The first was read for that very request: only when it is not accepted again it is taken for an old one.
    assert asyncio.run(main()) == [["Bearer old"], ["Bearer old"], ["Bearer newer"]]


def test_redirects_are_not_followed() -> None:
    server = Server(http(b"", "302 Found", "Location: https://example.com/"))
    assert call_server(server, token=Secret(SECRET)).status == 302
    assert len(server.heads) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"", "reset"),
        (http(b"12345", "200 OK", "Content-Length: 50", length=False), "reset"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", "reset"),
        (b"garbage\r\n\r\n", "other"),
    ],
)
def test_connections_that_break(reply: bytes, kind: str) -> None:
    server = Server(reply)
    server.pieces = [reply]
    error = failed(server, token=Secret(SECRET))
    assert error.kind == kind
    assert "/api/v1/pods" in error.message


def test_refused_connection_is_a_connection_failed_error() -> None:
    async def main() -> None:
        async with Server(tls=False) as server:
            url = server.url
        transport = AiohttpTransport(Access(server=url), SystemClock(), environ={})
        try:
            with pytest.raises(ConnectionFailedError, match="connection refused") as error:
                await transport.call(GET)
            assert error.value.kind == "refused"
        finally:
            await transport.close()

    asyncio.run(main())


def test_unknown_host_is_named_without_internals_of_the_library() -> None:
    async def main() -> str:
        transport = AiohttpTransport(Access(server="https://host"), SystemClock(), environ={})
        key = aiohttp.client_reqrep.ConnectionKey("host", 443, True, ssl.create_default_context(), None, None, None)
        unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        unreachable = OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 443)")
        try:
            messages = [
                transport.failure(GET, aiohttp.ClientConnectorDNSError(key, unknown)).message,
                transport.failure(GET, aiohttp.ClientConnectorError(key, unreachable)).message,
            ]
            return "; ".join(message.partition('": ')[2] for message in messages)
        finally:
            await transport.close()

    lookup, connect = "dial tcp: lookup host: Name or service not known", "dial tcp host:443: connect: no route to host"
    assert asyncio.run(main()) == f"{lookup}; {connect}"


def test_invalid_header_value_is_not_in_the_error() -> None:
    assert "cannot be written" in failed(Server(), token=Secret(f"{SECRET}\nX: y")).message


def test_url_password_is_not_in_the_error() -> None:
    async def main() -> str:
        transport = AiohttpTransport(Access(server=f"https://me:{SECRET}@host"), SystemClock(), environ={})
        try:
            return transport.failure(GET, OSError(f"no answer of http://me:{SECRET}@proxy:3128")).message
        finally:
            await transport.close()

    output = asyncio.run(main())
    assert SECRET not in output
    assert output.startswith('Get "https://me:xxxxx@host')
    assert output.endswith("no answer of http://me:xxxxx@proxy:3128")


def members(parts: list[bytes]) -> bytes:
    """Each compressed on its own, one after the other: as an API server of 1.37 sends a watch."""
    return b"".join(map(gzip.compress, parts))


def streamed(pieces: list[bytes]) -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece]
    server = Server(tls=False)
    server.pieces = [head, *chunks, b"0\r\n\r\n"]

    async def main() -> list[bytes]:
        async with server:
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            try:
                async with transport.stream(GET) as stream:
                    assert stream.status == 200
                    return [await stream.read()]
            finally:
                await transport.close()

    return asyncio.run(main())


LINES = [b'{"type":"ADDED","n":%d}\n' % i for i in range(5)]


def test_every_member_is_decompressed_wherever_they_are_cut() -> None:
    data = members(LINES)
    for at in range(1, len(data), 7):
        assert b"".join(streamed([data[:at], data[at:]])) == b"".join(LINES), at
    assert b"".join(streamed([data[i : i + 1] for i in range(len(data))])) == b"".join(LINES)
    assert b"".join(streamed([gzip.compress(line) for line in LINES])) == b"".join(LINES)


LIMITS = ServerLimits(response_bytes=1 << 20, header_bytes=1024, request_seconds=0.5)


def over_the_limit(*pieces: bytes, hangs: bool = False) -> ConnectionFailedError:
    """What the transport says of a response that is sent in pieces; ``hangs``: and never ends."""

    class Slow(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError, asyncio.CancelledError):  # the client has had enough
                await reader.readuntil(b"\r\n\r\n")
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                if hangs:
                    await reader.read()
            writer.close()

    async def main() -> None:
        async with Slow(tls=False) as server:
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={}, limits=LIMITS)
            try:
                await transport.call(GET)
            finally:
                await transport.close()

    with pytest.raises(ConnectionFailedError) as error:
        asyncio.run(main())
    return error.value


def test_a_response_beyond_the_limits_is_a_failed_request() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    endless = over_the_limit(chunked, *[b"10000\r\n" + bytes(1 << 16) + b"\r\n"] * 1000)
    assert (endless.kind, "1,048,576 bytes" in endless.message) == ("too large", True)
    bomb = gzip.compress(bytes(200 << 20), 1)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    assert over_the_limit(head, bomb).kind == "too large"
    assert over_the_limit(b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 5000 + b"\r\n\r\n").kind == "too large"
    assert over_the_limit(b"HTTP/1.1 200 OK\r\n" + b"X-Many: a\r\n" * 5000 + b"\r\n").kind == "too large"


def test_a_response_that_does_not_come_to_its_end_is_a_failed_request() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    for pieces in ((), (b"HTTP/1.1 200 OK\r\n",), (half,)):
        assert over_the_limit(*pieces, hangs=True).kind == "timeout"


def test_interim_responses_do_not_extend_the_time_of_a_request() -> None:
    """They are legal and are ignored."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert over_the_limit(interim, hangs=True).kind == "timeout"
    assert over_the_limit(*[interim * 100] * 100_000).kind == "timeout"


class Endless(Server):
    """Answers with a body that never ends."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
                await writer.drain()
        writer.close()


def test_responses_that_are_read_at_once_are_bounded_together() -> None:
    """Each of them still fails with its own error when it is beyond the limit of one."""
    count, single, shared = 25, 3 << 20, 3 << 20
    limits = ServerLimits(response_bytes=single, buffered_bytes=shared, request_seconds=600)

    async def main() -> tuple[list[Any], int, int]:
        async with Endless(tls=False) as server:
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={}, limits=limits)
            tracemalloc.start()
            try:
                results = await asyncio.gather(*[transport.call(GET) for _ in range(count)], return_exceptions=True)
                return results, transport.buffers.peak, tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                await transport.close()

    errors, peak, allocated = asyncio.run(main())
    assert {str(error).rpartition(": ")[2] for error in errors} == {"the response is larger than 3,145,728 bytes"}
    assert shared < peak <= shared + single + PIECE_BYTES
    # Beyond the buffers: what aiohttp, asyncio and the server of the test hold of each connection.
    assert allocated < peak + count * (1 << 20) < count * single


def test_the_time_of_a_request_does_not_run_while_it_waits_for_other_responses() -> None:
    buffers = Buffers(0)

    async def main(clock: VirtualClock) -> bytes:
        other = buffers.open()
        await other.take(2 * PIECE_BYTES)
        content = asyncio.StreamReader()
        content.feed_data(bytes(5 * PIECE_BYTES))
        transport = SimpleNamespace(buffers=buffers, limits=ServerLimits(), client_error=OSError)
        response = SimpleNamespace(status=200, headers={}, content=content)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(2) as limit:
            body = _Body(transport, GET, response, limit)
            loop.call_later(100, other.release)
            loop.call_later(101, content.feed_eof)
            return await body.read()

    assert len(run_in_virtual_time(main, now=SECOND)) == 5 * PIECE_BYTES


def test_a_stream_that_breaks() -> None:
    async def main() -> list[bytes]:
        server = Server(tls=False)
        server.pieces = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nabcde\r\n"]
        chunks = []
        async with server:
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            try:
                async with transport.stream(GET) as stream:
                    chunks.append(await stream.read_some())
                    with pytest.raises(ConnectionFailedError) as error:
                        await stream.read_some()
                    assert error.value.kind == "reset"
            finally:
                await transport.close()
        return chunks

    assert asyncio.run(main()) == [b"abcde"]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_stream_is_paused(tls: bool) -> None:
    """What comes meanwhile is not seen, and is there at once afterwards."""
    sent = asyncio.Event()

    class Slow(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            await go.wait()
            for _ in range(50):
                writer.write(b"4\r\nmore\r\n")
                await writer.drain()
            sent.set()
            writer.write(b"0\r\n\r\n")
            writer.close()

    go = asyncio.Event()

    async def main() -> None:
        async with Slow(tls=tls) as server:
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            transport = AiohttpTransport(access, SystemClock(), environ={})
            try:
                async with transport.stream(GET) as stream:
                    assert await stream.read_some() == b"first"
                    stream.pause_reading()
                    go.set()
                    await sent.wait()
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await stream.read_some()
                    stream.resume_reading()
                    assert await stream.read() == b"more" * 50
                    stream.pause_reading()  # it has ended: there is nothing to be paused
                    stream.resume_reading()
            finally:
                await transport.close()

    asyncio.run(main())


def test_through_a_proxy() -> None:
    """The proxy is told where to, and sees nothing of what is said."""
    connected: list[str] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append((await reader.readuntil(b"\r\n\r\n")).decode())
        port = int(connected[-1].split()[1].rpartition(":")[2])
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    target.write(data)
            except ConnectionError:
                pass
            finally:
                target.close()

        await asyncio.gather(pass_on(reader, other_writer), pass_on(other_reader, writer))

    async def main() -> tuple[int, Server]:
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with Server() as server:
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default", proxy=url, token=Secret(SECRET))
            transport = AiohttpTransport(access, SystemClock(), environ={})
            answer = await transport.call(GET)
            await transport.close()
        proxy.close()
        await proxy.wait_closed()
        return answer.status, server

    status, server = asyncio.run(main())
    assert status == 200
    assert [head.split()[0] for head in connected] == ["CONNECT"]
    assert SECRET not in connected[0]
    assert server.header("authorization") == [f"Bearer {SECRET}"]


def test_through_a_proxy_without_tls() -> None:
    """The proxy gets the whole URL, and its user and password."""
    proxy = Server(tls=False)

    async def main() -> None:
        async with proxy:
            url = proxy.url.replace("http://", "http://me:pass@")
            access = Access(server="http://api.example/prefix", proxy=url, token=Secret(SECRET))
            transport = AiohttpTransport(access, SystemClock(), environ={})
            for call in (GET, Call(method="GET", path="/x")):
                assert (await transport.call(call)).status == 200
                assert proxy.header("host") == ["api.example"]
                assert proxy.header("proxy-authorization") == ["Basic bWU6cGFzcw=="]
                assert proxy.header("authorization") == [f"Bearer {SECRET}"]
            await transport.close()

    asyncio.run(main())
    first, second = (head.split(" ")[1] for head in proxy.heads)
    assert first.startswith("http://api.example/prefix/api/v1/pods?limit=500&")
    assert second == "http://api.example/prefix/x"


@pytest.mark.parametrize("token", ["", "abc"])
def test_user_and_password_of_a_url(token: str) -> None:
    """As in Go, a token wins over them."""
    server = Server(tls=False)

    async def main() -> None:
        async with server:
            access = Access(server=server.url.replace("http://", "http://me:pass@"), token=Secret(token))
            transport = AiohttpTransport(access, SystemClock(), environ={})
            await transport.call(GET)
            await transport.close()

    asyncio.run(main())
    assert server.header("authorization") == ["Bearer abc" if token else "Basic bWU6cGFzcw=="]
    assert server.header("host") == [f"127.0.0.1:{server.port}"]


class _Persistent(Server):
    """Answers ``limit`` requests on each connection, then closes it without a response to the next."""

    limit = 2

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for _ in range(self.limit):
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                length = next(iter(self.header("content-length")), "0")
                await reader.readexactly(int(length))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@pytest.mark.parametrize(("method", "sent"), [("GET", 6), ("PUT", 3), ("DELETE", 3), ("PATCH", 3), ("POST", 3)])
def test_a_request_on_a_connection_that_the_server_has_closed(method: str, sent: int) -> None:
    """As in Go, only a request that reads is sent again, on another connection."""
    server = _Persistent(tls=False)
    call = Call(method=method, path="/x", body=None if method == "GET" else b"{}", content_type="application/json")

    async def main() -> None:
        async with server:
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            try:
                for _ in range(4):
                    assert (await transport.call(call)).body == b"{}"
            finally:
                await transport.close()

    if method == "GET":
        asyncio.run(main())
        sent -= 1  # the last connection is still open
    else:
        with pytest.raises(ConnectionFailedError) as error:
            asyncio.run(main())
        assert error.value.kind == "reset"
    assert len(server.heads) == sent


@pytest.mark.parametrize(
    "first",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 408 Late\r\nContent-Length: 2\r\n\r\nno"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"],
    ],
)
def test_unexpected_data_on_an_idle_connection_is_not_used_as_a_response(first: list[bytes]) -> None:
    """As in Go: a connection that has received data while it was idle is not used."""
    connections: list[int] = []
    good = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]

    class Talkative(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(0)
            try:
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    connections[-1] += 1
                    for piece in first if len(connections) == 1 else good:
                        writer.write(piece)
                        for _ in range(10):  # the client, which runs in this loop, reads the piece meanwhile
                            await asyncio.sleep(0)
            except asyncio.IncompleteReadError:
                writer.close()

    async def main() -> list[bytes]:
        async with Talkative(tls=False) as server, asyncio.timeout(30):
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            bodies = [(await transport.call(GET)).body]
            (idle,) = transport._idle
            while idle.is_reusable():
                await asyncio.sleep(0)
            bodies += [(await transport.call(GET)).body for _ in range(2)]
            await transport.close()
        return bodies

    assert asyncio.run(main()) == [b"{}"] * 3
    assert connections == [1, 2]


def test_a_second_response_in_another_record_is_not_the_next_one() -> None:
    """It has arrived with the first response, to which only one record of TLS belongs."""
    connections: list[int] = []

    class Twice(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(0)
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    connections[-1] += 1
                    writer.write(GOOD)
                    if connections[-1] == 2:
                        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")

    async def main() -> list[bytes]:
        async with Twice() as server, asyncio.timeout(30):
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            transport = AiohttpTransport(access, SystemClock(), environ={})
            bodies = [(await transport.call(GET)).body for _ in range(6)]
            await transport.close()
        return bodies

    assert asyncio.run(main()) == [b"{}"] * 6
    assert connections == [2, 2, 2]


def test_a_response_to_head_has_no_body() -> None:
    answer = call_server(
        Server(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", tls=False), Call(method="HEAD", path="/")
    )
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
    "call",
    [
        Call(method="GET", path="/x\x0by"),
        Call(method="GET", path="/x\x7f"),
        Call(method="GET", path="/x HTTP/1.1\r\nX: y"),
        Call(method="GET\n", path="/x"),
        Call(method="GET", path="/x", accept="a/b\r\nX: y"),
        Call(method="POST", path="/x", body=b"{}", content_type="a/b\r\nX: y"),
    ],
)
def test_no_request_contains_control_characters(call: Call) -> None:
    server = Server(tls=False)
    assert "the request cannot be written" in str(failed(server, call))
    assert server.heads == []


def test_invalid_response_is_described_in_one_line() -> None:
    assert "\n" not in str(failed(Server(b"SSH-2.0-x\r\n", tls=False)))


def test_a_response_before_the_whole_request_was_sent() -> None:
    """It is read, and the connection is closed: the rest of the body must not become the next request."""
    heads: list[bytes] = []

    class Hasty(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            try:
                await reader.read()
            finally:
                writer.close()

    async def main() -> list[int]:
        async with Hasty(tls=False) as server:
            transport = AiohttpTransport(Access(server=server.url), SystemClock(), environ={})
            large = Call(method="POST", path="/x", body=bytes(64 << 20), content_type="application/json")
            statuses = [(await transport.call(large)).status, (await transport.call(GET)).status]
            await transport.close()
        return statuses

    assert asyncio.run(main()) == [413, 413]
    assert [head.split()[0] for head in heads] == [b"POST", b"GET"]


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        ("https://h", {}, ""),
        ("https://h", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://h", {"https_proxy": "p:1"}, "http://p:1"),
        ("http://h", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("http://h", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("https://localhost:6443", {"HTTPS_PROXY": "p"}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "p"}, ""),
        ("https://[::1]:6443", {"HTTPS_PROXY": "p"}, ""),
        ("https://10.0.0.1", {"HTTPS_PROXY": "p", "NO_PROXY": "10.0.0.0/8"}, ""),
        ("https://11.0.0.1", {"HTTPS_PROXY": "p", "NO_PROXY": "10.0.0.0/8"}, "http://p"),
        ("https://10.0.0.1", {"HTTPS_PROXY": "p", "NO_PROXY": "10.0.0.1"}, ""),
        ("https://10.0.0.1:6443", {"HTTPS_PROXY": "p", "NO_PROXY": "10.0.0.1:443"}, "http://p"),
        ("https://10.0.0.1:6443", {"HTTPS_PROXY": "p", "NO_PROXY": "10.0.0.1:6443"}, ""),
        ("https://a.example.com", {"HTTPS_PROXY": "p", "NO_PROXY": "example.com"}, ""),
        ("https://example.com", {"HTTPS_PROXY": "p", "NO_PROXY": ".example.com"}, "http://p"),
        ("https://a.example.com", {"HTTPS_PROXY": "p", "NO_PROXY": "x, *.example.com"}, ""),
        ("https://anexample.com", {"HTTPS_PROXY": "p", "NO_PROXY": "example.com"}, "http://p"),
        ("https://h", {"HTTPS_PROXY": "p", "NO_PROXY": "*"}, ""),
    ],
)
def test_proxies_of_the_environment(server: str, environ: dict[str, str], proxy: str) -> None:
    assert proxy_of(Access(server=server), environ) == proxy
    assert proxy_of(Access(server=server, proxy="http://own"), environ) == "http://own"


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
def test_stream_end_is_reported_without_a_pending_read(breaks: bool) -> None:
    class Ending(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            await writer.drain()
            await go.wait()
            writer.write(b"4\r\nmore\r\n" if breaks else b"4\r\nmore\r\n0\r\n\r\n")
            writer.close()

    go = asyncio.Event()

    async def main() -> None:
        async with Ending() as server:
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            transport = AiohttpTransport(access, SystemClock(), environ={})
            ended = asyncio.Event()
            try:
                async with transport.stream(GET) as stream:
                    stream.on_end(ended.set)
                    assert await stream.read_some() == b"first"
                    assert stream.read_received() == b""
                    go.set()
                    async with asyncio.timeout(10):
                        await ended.wait()
                    assert stream.read_received() == (b"" if breaks else b"more")
                    if breaks:
                        with pytest.raises(ConnectionFailedError):
                            await stream.read_some()
                    else:
                        assert await stream.read_some() == b""
            finally:
                await transport.close()

    asyncio.run(main())


def test_a_full_buffer_of_a_stream_is_reported_while_nobody_reads() -> None:
    class Much(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            await go.wait()
            with suppress(ConnectionError):
                writer.write(b"1000000\r\n" + bytes(1 << 24))
                await writer.drain()

    go = asyncio.Event()

    async def main() -> None:
        async with Much() as server, asyncio.timeout(30):
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            transport = AiohttpTransport(access, SystemClock(), environ={})
            full = asyncio.Event()
            async with transport.stream(GET) as stream:
                assert await stream.read_some() == b"first"
                stream.on_end(full.set)
                go.set()
                await full.wait()
                assert 2**18 < len(stream.read_received()) < 2**21
            await transport.close()

    asyncio.run(main())


def test_request_larger_than_the_socket_buffer_is_sent() -> None:
    """The server reads late; a part of the request waits for that."""
    size = 8 << 20
    received: list[int] = []

    class Late(Server):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.01)
            head = await reader.readuntil(b"\r\n\r\n")
            received.append(len(await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))))
            writer.write(http(b"{}"))
            await writer.drain()

    async def main() -> None:
        async with Late() as server:
            access = Access(server=server.url, ca=CA, server_name="kubernetes.default")
            transport = AiohttpTransport(access, SystemClock(), environ={})
            try:
                answer = await transport.call(Call(method="POST", path="/", body=b"x" * size))
                assert answer.status == 200
            finally:
                await transport.close()

    asyncio.run(main())
    assert received == [size]
