"""Runs a reflector against an API server, and feeds a sink."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Final

from kscale.effects import ApiError, Wait
from kscale.effects.reports import Metric, Observation
from kscale.errors import InputError
from kscale.objects.base import shortened
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.reflector import (
    Asked,
    Batch,
    Close,
    Ended,
    Failed,
    Listed,
    ListPage,
    Opened,
    OpenWatch,
    ReadMore,
    Reflector,
    Seen,
    Settle,
    Waited,
)
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.sinks import Sink
from kscale.world.kubernetes.transport import Call, ConnectionFailedError, Stream
from kscale.world.protocols import Clock, Watch

__all__ = ["UNREADABLE", "WATCH_METRICS", "Informer"]

_log = logging.getLogger(__name__)
_COLLECT: Final = 0.005
_COLLECT_BYTES: Final = 1.0  # a cluster takes up fifty lines for the price of two
_REST: Final = 0.1
_GLANCE: Final = 0.0005
_MUCH: Final = 2**16  # a connection holds back more than that
_MOST_EVENTS: Final = 1024
_MOST_BYTES: Final = 8 * 2**20
_LONGEST_TEXT: Final = 2048
_GRACE: Final = 30.0
"""Seconds that a server may keep a watch open for longer than it was asked to."""
_EVENTS: Final = "kscale_watch_events_total"
_LISTS: Final = "kscale_lists_total"
_LAG: Final = "kscale_watch_lag_seconds"
UNREADABLE: Final = "kscale_unreadable_objects_total"
_FAILURES: Final = "kscale_watch_failures_total"

WATCH_METRICS: Final = (
    Metric(_EVENTS, "counter", ("kind",), help="Events that watches delivered, by kind."),
    Metric(_LISTS, "counter", ("kind",), help="Lists of objects that were read, by kind."),
    Metric(UNREADABLE, "counter", ("kind",), help="Objects that were skipped because they cannot be read, by kind."),
    Metric(_FAILURES, "counter", ("kind",), help="Lists and watches that failed, by kind."),
    Metric(
        _LAG,
        "histogram",
        ("kind",),
        (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        help="Seconds that watch events waited in this process before they were processed, by kind.",
    ),
)
"""Events and lists that were taken up, objects in them that were skipped because they cannot be read, lists and watches
that failed, and how long events lay here before they were taken up."""


class Informer:
    """One watch of a driver. ``settled``: its sink may be looked at; ``last_error``: why it does not get on.

    ``turn`` is held while the sink changes; meanwhile events are still read, and wait here. ``told`` is called whenever
    ``settled`` may have become true; ``observe`` is told what happens.
    """

    def __init__(
        self,
        client: Client,
        resources: Resources,
        watch: Watch,
        sink: Sink,
        clock: Clock,
        *,
        reflector: Reflector | None = None,
        turn: asyncio.Lock | None = None,
        rng: random.Random | None = None,
        told: Callable[[], None] = lambda: None,
        observe: Callable[[Observation], None] = lambda _: None,
    ) -> None:
        self.watch = watch
        self._client = client
        self._limits = client.limits
        self._resources = resources
        self._sink = sink
        self._clock = clock
        self._rng = rng or random.Random()
        self._reflector = reflector or Reflector(paged=not watch.typed, rng=self._rng)
        self._turn = turn or asyncio.Lock()
        self._told = told
        self._observe = observe
        self._labels = {"kind": watch.kind}
        self._path = ""
        self._open: Stream | None = None
        self._ends = 0.0
        self._unreadable = 0
        self._left = b""
        self._came = 0
        self._waiting: asyncio.Event | None = None
        self._asked = asyncio.Event()
        self._collecting = _COLLECT if watch.typed else _COLLECT_BYTES

    @property
    def synced(self) -> bool:
        """It was listed once."""
        return self._reflector.synced

    @property
    def settled(self) -> bool:
        """Besides, what is there is a state that once was."""
        return self.synced and self._sink.settled

    @property
    def version(self) -> str:
        """The newest version that was seen."""
        return self._reflector.version

    @property
    def last_error(self) -> ApiError | None:
        """Why the last list or watch came to nothing; None: it did not."""
        return self._reflector.last_error

    async def caught_up(self) -> None:
        """Waits until the events that have been read, but lie here for more to come or because the sink was not free,
        are taken up; no more are waited for."""
        if self._waiting is None:
            return
        self._asked.set()
        await self._waiting.wait()

    async def run(self) -> None:
        """For ever."""
        steps = self._reflector.run(self._clock.monotonic())
        try:
            async with AsyncExitStack() as opened:
                asked = next(steps)
                while True:
                    asked = steps.send(await self._answer(asked, opened))
        finally:
            steps.close()

    async def _answer(self, asked: Asked, opened: AsyncExitStack) -> Seen:
        try:
            match asked:
                case ListPage():
                    return await self._list(asked)
                case OpenWatch():
                    return await self._watch(asked, opened)
                case ReadMore():
                    return await self._read_more(opened)
                case Settle():
                    await self._settle()
                case Close():
                    await self._close(opened)
                case Wait(duration=duration, jitter=jitter):
                    self._tell_of_failure()
                    await asyncio.sleep(duration * (1 + self._rng.random() * jitter) / 1e9)
        except RequestFailedError as error:
            self._count(_FAILURES)
            return Failed(at=self._at(), error=error.error, refused=error.refused)
        except InputError as error:
            self._count(_FAILURES)
            await self._close(opened)
            return Failed(at=self._at(), error=ApiError(shortened(str(error), _LONGEST_TEXT)))
        return Waited(at=self._at())

    def _count(self, metric: str, value: int = 1) -> None:
        self._observe(Observation(name=metric, value=float(value), labels=self._labels))

    def _count_unreadable(self) -> None:
        """Count the objects that the sink has skipped since the last time."""
        before, self._unreadable = self._unreadable, self._sink.unreadable
        if self._unreadable > before:
            self._count(UNREADABLE, self._unreadable - before)

    def _at(self) -> int:
        return self._clock.monotonic()

    def _tell_of_failure(self) -> None:
        error = self._reflector.last_error
        if error is not None:
            _log.warning("Failed to watch %s: %s", self.watch.kind, error.message)

    async def _call(self, *query: tuple[str, str]) -> Call:
        watch = self.watch
        resource = await self._resources.of_kind(watch.kind, watch.api_version)
        selectors = [("fieldSelector", watch.field_selector), ("labelSelector", watch.label_selector)]
        return Call(
            method="GET",
            path=resource.path(watch.namespace),
            query=tuple((name, value) for name, value in (*selectors, *query) if value),
            resource=resource.group_resource,
        )

    async def _list(self, asked: ListPage) -> Listed:
        limit = str(asked.limit) if asked.limit else ""
        call = await self._call(("limit", limit), ("continue", asked.continue_), ("resourceVersion", asked.version))
        answer = await self._client.call(call)
        async with self._turn:
            if asked.anew:
                self._sink.begin()
            version, more = self._sink.page(answer.body)
        self._count_unreadable()
        if more and more == asked.continue_:
            raise InputError(f"a list of {self.watch.kind} whose next page is the same page")
        await asyncio.sleep(0)  # a page is a long time for others
        return Listed(at=self._at(), version=version, continue_=more)

    async def _watch(self, asked: OpenWatch, opened: AsyncExitStack) -> Seen:
        initial = "true" if asked.initial else ""
        call = await self._call(
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(asked.timeout_seconds)),
            ("resourceVersion", asked.version),
            ("sendInitialEvents", initial),
            ("resourceVersionMatch", "NotOlderThan" if initial else ""),
        )
        await self._close(opened)
        self._open = await opened.enter_async_context(self._client.watch(call))
        self._ends = asyncio.get_running_loop().time() + asked.timeout_seconds + _GRACE
        if asked.initial:
            async with self._turn:
                self._sink.begin()
        return Opened(at=self._at())

    async def _read_more(self, opened: AsyncExitStack) -> Seen:
        """Events as they come, collected for a moment: many at once cost less."""
        try:
            data, more = await self._collect()
            if not data:
                await self._close(opened)
                return Ended(at=self._at())
            async with self._turn:
                found = self._sink.events(data)
        finally:
            if self._waiting is not None:
                self._waiting.set()
                self._waiting = None
        self._left = data[found.used :] if more else b""
        self._count_unreadable()
        if found.events:
            self._count(_EVENTS, found.events)
            lag = (self._clock.monotonic() - self._came) / 1e9
            self._observe(Observation(name=_LAG, value=lag, labels=self._labels))
        if not more:
            await self._close(opened)
            if not found.events and found.error is None:
                return Ended(at=self._at())
        await asyncio.sleep(0)
        return Batch(
            at=self._at(),
            events=found.events,
            version=found.version,
            only_added=found.only_added,
            synced=found.synced,
            error=found.error,
        )

    async def _collect(self) -> tuple[bytes, bool]:
        """At least one line, and what comes in the next moments; whether there may be more. Moments are longer where
        many lines at once cost less, and over as soon as somebody asks for what there is."""
        stream = self._open
        if stream is None:
            return b"", False
        came = _Came(self._left)
        self._asked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ends):
                while not came.ended and not came.lines:
                    came.add(await _read(stream))
                    if came.size > self._limits.line_bytes and b"\n" not in came.parts[-1]:
                        text = f"a line of more than {self._limits.line_bytes:,} bytes"
                        raise InputError(f"not a watch of {self.watch.kind}: {text}")
        came.ended = came.ended or not came.lines  # the server keeps it open for too long
        if came.lines and not came.ended:
            self._waiting = asyncio.Event()
            self._came = self._clock.monotonic()
            await self._collect_more(stream, came)
        return b"".join(came.parts) if came.lines else b"", not came.ended

    async def _collect_more(self, stream: Stream, came: _Came) -> None:
        """What comes until it is time, somebody asks for it, or it is much; and while the sink is not free."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (self._collecting if self.settled else _COLLECT)  # a list is waited for
        while not came.ended and came.size < self._limits.response_bytes:
            before, left = came.size, end - loop.time()
            if self._turn.locked():
                with _paused(stream):
                    await asyncio.sleep(_COLLECT)
            elif left <= 0 or self._asked.is_set() or came.lines >= _MOST_EVENTS or came.size >= _MOST_BYTES:
                return
            elif not came.much:
                with _paused(stream), suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _REST)):
                        await self._asked.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GLANCE):
                    while not came.ended:
                        came.add(await _read(stream))
            came.much = came.size - before >= _MUCH

    async def _settle(self) -> None:
        async with self._turn:
            self._sink.settle()
        self._count(_LISTS)
        self._told()

    async def _close(self, opened: AsyncExitStack) -> None:
        self._open, self._left = None, b""
        await opened.pop_all().aclose()


class _Came:
    """What has been read of a watch and is not taken up yet: ``left`` is a piece of a line from before."""

    __slots__ = ("ended", "lines", "much", "parts", "size")

    def __init__(self, left: bytes) -> None:
        self.parts, self.lines, self.size = [left], 0, len(left)
        self.ended = False
        self.much = False
        """Of late: the server may not have to wait."""

    def add(self, some: bytes) -> None:
        """The next bytes; empty: that was all."""
        self.ended = not some
        self.parts.append(some)
        self.lines += some.count(b"\n")
        self.size += len(some)


async def _read(stream: Stream) -> bytes:
    """The next bytes. A watch that breaks has ended: it goes on from the last version."""
    try:
        return await stream.read_some()
    except ConnectionFailedError:
        return b""


@contextmanager
def _paused(stream: Stream) -> Iterator[None]:
    """What comes meanwhile comes at once afterwards: waking this thread costs more than a line does."""
    stream.pause()
    try:
        yield
    finally:
        stream.resume()
