"""The debugging snapshot: what one loop went by, asked for over HTTP (upstream: ``pkg/debuggingsnapshot``).

What people put into environment variables and annotations is not shown.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from kscale.effects import Moment, to_text

__all__ = ["BusyError", "SnapshotDesk", "redacted"]

_HIDDEN: Final = "<redacted>"


class BusyError(RuntimeError):
    """Somebody is waiting for a snapshot already."""


class SnapshotDesk:
    """Where a request for a snapshot waits until a loop has delivered one. One at a time."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self) -> None:
        self._waiting: asyncio.Future[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def wanted(self) -> bool:
        """Somebody waits: the next loop is to deliver. May be asked in any thread."""
        waiting = self._waiting
        return waiting is not None and not waiting.done()

    async def ask(self) -> bytes:
        """Waits for the next snapshot, as JSON text. Raises :class:`BusyError`."""
        if self.wanted:
            raise BusyError
        self._loop = asyncio.get_running_loop()
        self._waiting = self._loop.create_future()
        try:
            return msgspec.json.encode(redacted(await self._waiting))
        finally:
            self._waiting = None

    def deliver(self, data: Any, *, start: Moment, end: Moment) -> None:
        """What a loop went by, as plain data; nothing if nobody waits. May be called in any thread."""
        told = {**data, "StartTimestamp": to_text(start, fraction=True), "EndTimestamp": to_text(end, fraction=True)}
        loop, waiting = self._loop, self._waiting
        if loop is not None and waiting is not None:
            loop.call_soon_threadsafe(_give, waiting, told)


def _give(waiting: asyncio.Future[Any], data: Any) -> None:
    if not waiting.done():
        waiting.set_result(data)


def redacted(data: Any) -> Any:
    """Plain data of objects of the API, without the values of environment variables and of annotations."""
    if isinstance(data, dict):
        return {key: _without(key, value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [redacted(each) for each in data]
    return data


def _without(key: Any, value: Any) -> Any:
    if key == "annotations" and isinstance(value, dict):
        return dict.fromkeys(value, _HIDDEN)
    if key == "env" and isinstance(value, list):
        return [{**redacted(each), **({"value": _HIDDEN} if each.get("value") else {})} for each in value]
    return redacted(value)
