"""TLS in front of the hostile server, whose handshakes can be spoiled."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final, Self

import trustme

from e2e.wire import Wire
from hostile.http_server import HostileServer

__all__ = ["SPOILT", "TlsFront"]

SPOILT: Final[dict[str, bytes | None]] = {
    "TLS: reset in the handshake": None,
    "TLS: closed in the handshake": b"",
    "TLS: HTTP in place of a handshake": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "TLS: a handshake of noise": bytes(range(256)) * 20,
    "TLS: an alert": b"\x15\x03\x01\x00\x02\x02\x28",
}
"""What is sent in place of a ServerHello; None: the connection is reset."""


class _Spoiling(Wire):
    """``answer``: what each new connection is sent, once it has said hello; ``spoils``: whether."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.spoils = False
        self.answer: bytes | None = None
        self.spoilt = 0

    async def _passing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.spoils:
            await super()._passing(reader, writer)
            return
        self.spoilt += 1
        await reader.read(64)
        if self.answer is None:
            writer.transport.abort()
            return
        writer.write(self.answer)
        writer.close()


class TlsFront:
    """Serves what a server serves, over TLS; ``url`` is where, ``ca`` the file with the authority."""

    def __init__(self, server: HostileServer, directory: Path) -> None:
        self._server = server
        self.ca = directory / "server-ca.pem"

    async def __aenter__(self) -> Self:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._behind = await self._server.listen(context)
        self._wire = _Spoiling(self._behind.sockets[0].getsockname()[1])
        await self._wire.__aenter__()
        self.url = f"https://127.0.0.1:{self._wire.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._behind.close()
        await self._wire.__aexit__()
        await self._behind.wait_closed()

    @property
    def spoilt(self) -> int:
        """How many handshakes have been spoilt."""
        return self._wire.spoilt

    def spoil(self, answer: bytes | None) -> None:
        """Break what is connected, and spoil each handshake from now on."""
        self._wire.spoils, self._wire.answer, self._wire.spoilt = True, answer, 0
        self._wire.cut()

    def behave(self) -> None:
        """Let handshakes come to their end."""
        self._wire.spoils = False
