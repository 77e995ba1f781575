"""An HTTP server over loopback, with or without TLS, that writes the bytes that a test chooses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Self

import trustme

from kscale.world.kubernetes.kubeconfig import Pem
from kscale.world.kubernetes.transport import Call

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("kubernetes.default")
CLIENT = AUTHORITY.issue_cert("admin@example.com")
SECRET = "s3cr3t"
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each request with the same bytes, and remembers what it was asked."""

    def __init__(self, reply: bytes | None = None, *, tls: bool = True) -> None:
        self.reply = reply if reply is not None else http(b"{}")
        self.tls = tls
        self.heads: list[str] = []
        self.peers: list[Any] = []
        self.pieces: list[bytes] | None = None

    async def __aenter__(self) -> Self:
        context = None
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            CERTIFICATE.configure_cert(context)
            AUTHORITY.configure_trust(context)
            context.verify_mode = ssl.CERT_OPTIONAL
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *args: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.handle(reader, writer)
        finally:
            writer.close()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            self.peers.append(writer.get_extra_info("peercert"))
            for piece in self.pieces or [self.reply]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def header(self, name: str) -> list[str]:
        lines = self.heads[-1].split("\r\n")[1:]
        return [
            value.strip() for key, _, value in (line.partition(":") for line in lines) if key.lower() == name.lower()
        ]


def http(body: bytes, status: str = "200 OK", *headers: str, length: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


CA = Pem(AUTHORITY.cert_pem.bytes())
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
GET = Call(method="GET", path="/api/v1/pods", query=(("limit", "500"), ("labelSelector", "a=b,c in (d, e)")))
