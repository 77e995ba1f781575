"""Hostile clients of the ports that programs open: metrics of all programs, the webhook, and the gRPC expander.

Each attack goes to all ports at once. Meanwhile a good client of each port must be answered, and afterwards the program
must hold no more connections and no more memory than before.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import grpc
import trustme

from hostile.campaign import Campaign
from hostile.http_server import Api, HostileServer
from hostile.programs import PROGRAMS, Cluster, Process, free_port
from kscale.drivers.grpc_expander import METHOD
from kscale.drivers.vpa_admission import LARGE
from kscale.world.clock import SystemClock
from unit.drivers.vpa_world import SERVED

__all__ = ["attack_all"]

LIMITS: Final = ("--http-read-timeout=2s", "--http-idle-timeout=5s", "--http-max-connections=200")
CONNECTIONS: Final = 400
"""Twice as many as the programs take."""
_FLOOD: Final = 32 << 20
_ATTACK: Final = 3.0
"""Seconds that an attack lasts at the most."""
_ANSWER: Final = 20.0
_ROOM: Final = 128 << 20
_FILES: Final = 8
"""Open files more than before that are no leak: kept connections of good clients and of clients of the API server."""


@dataclass
class Port:
    """A port of a process. ``tls``: how hostile clients speak TLS with it; None: they do not."""

    name: str
    pid: int
    port: int
    tls: ssl.SSLContext | None
    ask: Callable[[], Awaitable[bool]]
    alive: Callable[[], bool]
    http2: bool = False
    files: int = 0
    memory: int = 0

    def holds(self) -> tuple[int, int]:
        """Open files and bytes of memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir())), int(kib) << 10

    async def connect(self, *, plain: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = None if plain else self.tls
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)


Attack = Callable[[Port], Awaitable[None]]
_HEAD: Final = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
_CHUNKED: Final = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _sending(*pieces: bytes, flood: bytes = b"", end: str = "wait", plain: bool = False) -> Attack:
    """Send bytes, and one piece again and again; then ``wait`` for the server, ``half-close`` before, or ``abort``."""

    async def attack(port: Port) -> None:
        reader, writer = await port.connect(plain=plain)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            sent = 0
            while flood and sent < _FLOOD and not writer.transport.is_closing():
                writer.write(flood)
                await writer.drain()
                sent += len(flood)
            if end == "half-close" and writer.can_write_eof():
                writer.write_eof()
            if end != "abort":
                await reader.read()
        finally:
            writer.transport.abort()

    return attack


async def _many(port: Port) -> None:
    """More connections than are allowed, none of which sends a request."""
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(CONNECTIONS):
            _, writer = await port.connect(plain=True)
            writers.append(writer)
        await asyncio.sleep(_ATTACK)
    finally:
        for writer in writers:
            writer.transport.abort()


async def _many_slow(port: Port) -> None:
    """Connections that send the start of a request, each."""
    await asyncio.gather(*(_sending(b"GET /metrics HTTP/1.1\r\nHost:", plain=True)(port) for _ in range(100)))


async def _never_reads(port: Port) -> None:
    """Requests without reading any answer."""
    _, writer = await port.connect()
    writer.transport.pause_reading()
    try:
        for _ in range(2000):
            if writer.transport.is_closing():
                return
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 10)
            await writer.drain()
    finally:
        writer.transport.abort()


async def _many_unreadable(port: Port) -> None:
    """Many requests that are no HTTP, each in a connection of its own."""
    noise = _sending(bytes(range(256)) * 16)
    for _ in range(CONNECTIONS // 20):
        await asyncio.gather(*(noise(port) for _ in range(20)), return_exceptions=True)


async def _come_and_go(port: Port) -> None:
    """Connections that are reset at once."""
    for _ in range(CONNECTIONS):
        _, writer = await port.connect(plain=True)
        writer.transport.abort()


def _body(body: bytes, *headers: bytes) -> bytes:
    return _HEAD + b"".join(each + b"\r\n" for each in headers) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


_SETTINGS: Final = _frame(4, 0, 0, b"")
_HEADERS: Final = bytes.fromhex("838684410161")
"""POST https / with an authority, as HPACK has them."""
HTTP: Final[dict[str, Attack]] = {
    "slow headers": _many_slow,
    "headers without end": _sending(_HEAD, flood=b"X-Many: a\r\n" * 1000),
    "a header without end": _sending(_HEAD + b"X-Long: ", flood=b"a" * 65536),
    "a request line without end": _sending(b"GET /", flood=b"a" * 65536),
    "a body without end": _sending(_HEAD + b"Content-Length: 10000000000\r\n\r\n", flood=b"a" * 65536),
    "chunks without end": _sending(_CHUNKED, flood=b"10000\r\n" + b"a" * 65536 + b"\r\n"),
    "a chunk extension without end": _sending(_CHUNKED + b"1;", flood=b"a" * 65536),
    "chunks of nonsense": _sending(_CHUNKED + b"zz\r\nx\r\n"),
    "a chunk size beyond all": _sending(_CHUNKED + b"FFFFFFFFFFFFFFFFFFFF\r\nx\r\n"),
    "a negative length": _sending(_HEAD + b"Content-Length: -5\r\n\r\n"),
    "a length that is no number": _sending(_HEAD + b"Content-Length: much\r\n\r\n"),
    "a length of 400 digits": _sending(_HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n"),
    "two lengths": _sending(_HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"),
    "a length and chunks": _sending(_HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET "),
    "longer than it says": _sending(_body(b"{}") + b"more" * 1000),
    "shorter than it says": _sending(_HEAD + b"Content-Length: 1000\r\n\r\n{}"),
    "half closed": _sending(_HEAD + b"Content-Length: 1000\r\n\r\n{}", end="half-close"),
    "half closed before a request": _sending(end="half-close"),
    "Expect without a body": _sending(_HEAD + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"),
    "an upgrade": _sending(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    "many requests, no answer read": _never_reads,
    "many requests that are no HTTP": _many_unreadable,
    "noise": _sending(bytes(range(256)) * 16),
    "zeros": _sending(bytes(4096)),
    "the preface of HTTP/2": _sending(_PREFACE + _SETTINGS),
    "a gzip bomb": _sending(_body(gzip.compress(bytes(64 << 20), 1), b"Content-Encoding: gzip")),
    "gzip that is none": _sending(_body(b"nonsense", b"Content-Encoding: gzip")),
    "brackets": _sending(_body(b"[" * (4 << 20))),
    "a deep object": _sending(_body(b'{"request":' * 100_000 + b"1" + b"}" * 100_000)),
    "TRACE and a path of nonsense": _sending(b"TRACE /../../%00%ff?\xff HTTP/1.1\r\nHost: a\r\n\r\n"),
    "HTTP/9.9": _sending(b"GET / HTTP/9.9\r\n\r\n"),
}
CONNECTING: Final[dict[str, Attack]] = {
    "connections that send nothing": _many,
    "connections that are reset": _come_and_go,
    "a TLS hello cut off": _sending(bytes.fromhex("16030100f5010000f10303") + bytes(40), plain=True),
    "a TLS record that is too long": _sending(b"\x16\x03\x01\xff\xff" + bytes(70_000), plain=True),
    "a TLS alert": _sending(b"\x15\x03\x01\x00\x02\x02\x28", plain=True),
    "plain HTTP": _sending(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", plain=True),
    "plain noise": _sending(bytes(range(256)) * 16, plain=True),
}
GRPC: Final[dict[str, Attack]] = {
    "HTTP/1.1": _sending(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "frames of noise": _sending(_PREFACE + _SETTINGS + bytes(range(256)) * 16),
    "a frame of 16 MiB": _sending(_PREFACE + _SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", flood=bytes(65536)),
    "settings without end": _sending(_PREFACE, flood=_SETTINGS * 1000),
    "pings without end": _sending(_PREFACE + _SETTINGS, flood=_frame(6, 0, 0, bytes(8)) * 1000),
    "streams that are reset": _sending(
        _PREFACE + _SETTINGS,
        b"".join(_frame(1, 4, i, _HEADERS) + _frame(3, 0, i, b"\0\0\0\x08") for i in range(1, 20_000, 2)),
    ),
    "headers that go on for ever": _sending(
        _PREFACE + _SETTINGS + _frame(1, 0, 1, _HEADERS), flood=_frame(9, 0, 1, b"\0\x01a\x01b" * 1000)
    ),
    "window updates beyond all": _sending(_PREFACE + _SETTINGS, flood=_frame(8, 0, 0, b"\x7f\xff\xff\xff") * 1000),
    "a preface cut off": _sending(_PREFACE[:10]),
}


SMOKE: Final = {"slow headers", "a body without end", "half closed", "connections that send nothing", "frames of noise"}
"""Attacks of the short run."""


async def attack_all(directory: Path, *, scale: float, only: str = "", smoke: bool = False) -> int:
    """Run all attacks, or those of the short run; returns the exit status."""
    campaign = Campaign(directory, scale)
    api = Api(SystemClock(), resources=SERVED)
    campaign.cluster, campaign.more_flags = Cluster(api), LIMITS
    failures: list[str] = []
    count = 0
    async with HostileServer(api) as campaign.server:
        expander = _Expander(directory)
        try:
            await campaign.start(PROGRAMS)
            ports = [*_ports(campaign), expander.port()]
            for port in ports:
                await _answered(port, 60 * scale)
            await _start_worker(ports, scale)
            for port in ports:
                port.files, port.memory = port.holds()
            for name, attack, chosen in _attacks(ports):
                if only not in name or (smoke and name.partition(": ")[2] not in SMOKE):
                    continue
                begin = time.monotonic()
                outcomes = await asyncio.gather(*(_attacked(port, attack, scale) for port in chosen))
                odd = {port.name: outcome for port, outcome in zip(chosen, outcomes, strict=True) if outcome != "ok"}
                failures += [f"{name}: {port}: {outcome}" for port, outcome in odd.items()]
                count += 1
                print(f"{time.monotonic() - begin:6.1f} s  {name}  {odd or f'ok ({len(chosen)} ports)'}", flush=True)
        finally:
            expander.end()
            for program in campaign.programs.values():
                program.end()
    print(*failures, f"{count} attacks, {len(failures)} failures", sep="\n")
    return 1 if failures else 0


async def _start_worker(ports: list[Port], scale: float) -> None:
    """Send a large review to the webhook.

    The webhook reads large reviews in a worker process, which it starts with the first of them and keeps until it ends.
    The nine pipes to this process are no leak. Attacks with large bodies come late in the list, and every attack from
    there on would count the pipes.
    """
    large = _sending(_body(b" " * 2 * LARGE))
    for port in ports:
        if port.name == "webhook":
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER * scale):
                    await large(port)


def _attacks(ports: list[Port]) -> list[tuple[str, Attack, list[Port]]]:
    http = [port for port in ports if not port.http2]
    rpc = [port for port in ports if port.http2]
    return [
        *((f"HTTP: {name}", attack, http) for name, attack in HTTP.items()),
        *((f"any: {name}", attack, ports) for name, attack in CONNECTING.items()),
        *((f"gRPC: {name}", attack, rpc) for name, attack in GRPC.items()),
    ]


async def _attacked(port: Port, attack: Attack, scale: float) -> str:
    """What became of a port: ok, ended, silent (a good client was not answered), or what it holds too much of."""

    async def run() -> None:
        with suppress(OSError, ssl.SSLError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_ATTACK * scale):
                await attack(port)

    task = asyncio.create_task(run())
    await asyncio.sleep(0.1)
    meanwhile = await _answered(port, _ANSWER * scale)
    highest = port.holds()[1] if port.alive() else 0
    await task
    if not port.alive():
        return "ended"
    if not meanwhile:
        return "silent meanwhile"
    if not await _answered(port, _ANSWER * scale):
        return "silent afterwards"
    end = time.monotonic() + _ANSWER * scale
    while (files := port.holds()[0]) > port.files + _FILES and time.monotonic() < end:
        await asyncio.sleep(0.2)
    if files > port.files + _FILES:
        return f"{files - port.files} open files more"
    memory = max(highest, port.holds()[1])
    return "ok" if memory <= port.memory + _ROOM else f"unbounded ({memory >> 20} MiB)"


async def _answered(port: Port, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and port.alive():
        with suppress(OSError, aiohttp.ClientError, TimeoutError):
            if await port.ask():
                return True
        await asyncio.sleep(0.1)
    return False


def _ports(campaign: Campaign) -> list[Port]:
    ports = []
    for program in campaign.programs.values():
        ports.append(_metrics_port(program))
        if program.name == "vpa-admission":
            ports.append(_webhook_port(program, campaign))
    return ports


def _metrics_port(program: Process) -> Port:
    async def ask() -> bool:
        timeout = aiohttp.ClientTimeout(total=5)
        url = f"http://127.0.0.1:{program.metrics_port}/metrics"
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            return answer.status == 200 and "process_" in await answer.text()

    name = f"{program.name} metrics"
    return Port(name, program.pid, program.metrics_port, None, ask, lambda: program.alive)


def _webhook_port(program: Process, campaign: Campaign) -> Port:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

    async def ask() -> bool:
        return await campaign.cluster.work(program, 5)

    return Port("webhook", program.pid, program.port, tls, ask, lambda: program.alive)


class _Expander:
    """``kscale serve expander`` as a process."""

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        files = {name: directory / f"expander-{name}.pem" for name in ("cert", "key")}
        certificate.cert_chain_pems[0].write_to_path(str(files["cert"]))
        certificate.private_key_pem.write_to_path(str(files["key"]))
        self._ca = authority.cert_pem.bytes()
        flags = [f"--address=127.0.0.1:{self._port}", f"--tls-cert-file={files['cert']}"]
        with (directory / "expander.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kscale", "serve", "expander", "least-waste", *flags,
                 f"--tls-private-key-file={files['key']}"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def port(self) -> Port:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.set_alpn_protocols(["h2"])
        return Port("expander", self._process.pid, self._port, tls, self._ask, self.alive, http2=True)

    def alive(self) -> bool:
        return self._process.poll() is None

    async def _ask(self) -> bool:
        """Any answer of the method counts, also an error of its own."""
        credentials = grpc.ssl_channel_credentials(root_certificates=self._ca)
        async with grpc.aio.secure_channel(f"127.0.0.1:{self._port}", credentials) as channel:
            try:
                await channel.unary_unary(METHOD)(b"", timeout=5)
            except grpc.aio.AioRpcError as error:
                return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return True

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
