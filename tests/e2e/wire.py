"""A wire to an API server that can be cut: bytes go through as they are."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

__all__ = ["Wire"]


class Wire:
    """Passes connections on to a port of this machine. ``open`` False: none gets through."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None] | None] = set()
        self.open = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        await asyncio.gather(*filter(None, self._tasks), return_exceptions=True)
        await asyncio.sleep(0)  # what is aborted is closed in the loop's next turn

    def cut(self) -> None:
        """Breaks what is connected."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.current_task())
        try:
            await self._passing(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _passing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            with suppress(asyncio.CancelledError):  # the test is over
                await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        finally:
            self._writers -= {writer, back}

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()
