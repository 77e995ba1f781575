"""Informers: run a reflector against an API server and pass lists and events to sinks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Final, Protocol

import msgspec

from kscale.effects import ApiError, Wait
from kscale.effects.actions import Metric, Observation
from kscale.errors import InputError, Problem
from kscale.objects.api.meta import shorten
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
from kscale.world.kubernetes.transport import PIECE_BYTES, Buffer, Call, ConnectionFailedError, Stream
from kscale.world.protocols import Clock, Watch
from kscale.world.server_data import (
    INITIAL_EVENTS_END,
    Bookmark,
    UnreadableError,
    read_event,
    read_json,
)

__all__ = ["UNREADABLE", "WATCH_METRICS", "Absorbed", "Informer", "Sink", "Unreadable"]


_log = logging.getLogger(__name__)
_LIST_END: Final = INITIAL_EVENTS_END.encode()
_NAMES_LOGGED: Final = 1024


class Absorbed(msgspec.Struct, frozen=True):
    """Result of reading bytes of a watch.

    ``used`` bytes were read (the rest is part of a line) and contained ``events`` events. The other fields are those
    of :class:`~kscale.world.kubernetes.reflector.Batch`.
    """

    used: int
    events: int = 0
    version: str = ""
    only_added: bool = False
    synced: bool = False
    error: ApiError | None = None


class Sink(Protocol):
    """Store that an informer fills.

    Methods that read data raise :class:`~kscale.InputError` if it is not a list or a watch of the sink's kind.
    """

    @property
    def settled(self) -> bool:
        """Return whether the content is a consistent state of the server, with no list half read."""
        ...

    @property
    def unreadable(self) -> int:
        """Return how many objects have been skipped so far because they cannot be read."""
        ...

    def begin(self) -> None:
        """Start a list and discard an unfinished one."""
        ...

    def read_page(self, data: bytes) -> tuple[str, str]:
        """Read one page of a list and return (resource version, continue token).

        The token of the last page is empty.
        """
        ...

    def read_events(self, data: bytes) -> Absorbed:
        """Read the complete lines of a watch; the result says how many bytes they have and what they contain.

        Between :meth:`begin` and :meth:`settle` the events belong to a streaming list.
        """
        ...

    def settle(self) -> None:
        """Finish the list: objects that it did not contain are removed."""
        ...


class Unreadable:
    """Objects of one kind that were skipped as unreadable: each skip is counted, each object is logged once."""

    __slots__ = ("_kind", "_logged", "count")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._logged: OrderedDict[str, None] = OrderedDict()
        self.count = 0

    def report(self, name: str, problem: Problem | InputError) -> None:
        """Count a skipped object. Log the problem unless the object has been logged since it was last readable.

        The names of the last 1,024 objects are remembered; an older one is logged again.
        """
        self.count += 1
        if name in self._logged:
            self._logged.move_to_end(name)
            return
        self._logged[name] = None
        if len(self._logged) > _NAMES_LOGGED:
            self._logged.popitem(last=False)
        _log.error("Skipping a %s that cannot be read: %s", self._kind, problem)

    def forget(self, name: str) -> None:
        """Forget an object that is readable again or deleted, so that its next problem is logged."""
        if self._logged:
            self._logged.pop(name, None)


_COLLECT: Final = 0.005
_COLLECT_BYTES: Final = 1.0  # a cluster reads fifty lines at the cost of two
_COLLECT_FEW: Final = 10.0  # a quiet watch: whoever reads the objects calls caught_up before
_REST: Final = 0.1
_LONGER: Final = 9  # factor of the next rest after one without lines, as waking up costs as much as several lines
_BOOKMARK: Final = b'"BOOKMARK"'
_TYPE_BYTES: Final = 32
_GLANCE: Final = 0.0005
_FEW: Final = 32  # lines of a quiet watch: fewer wake-ups than pausing the stream would cost
_MUCH: Final = 2**16  # less than a connection buffers
_MOST_EVENTS: Final = 1024
_MOST_BYTES: Final = 8 * 2**20
_LONGEST_TEXT: Final = 2048
_GRACE: Final = 30.0
"""Seconds that a server may keep a watch open beyond the requested timeout."""
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
"""Metrics: applied events and lists, skipped unreadable objects, failed lists and watches, and how long events were
buffered."""


class Informer:
    """Informer of one watch of a driver.

    ``settled`` reports whether the sink may be read, and ``last_error`` why the last list or watch failed.

    ``turn`` is held while the sink changes; events that arrive meanwhile are read and buffered. ``notify`` is called
    whenever ``settled`` may have become true. ``observe`` receives the metrics (:data:`WATCH_METRICS`).
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
        notify: Callable[[], None] = lambda: None,
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
        self._notify = notify
        self._observe = observe
        self._labels = {"kind": watch.kind}
        self._path = ""
        self._open: Stream | None = None
        self._ends = 0.0
        self._pages = 0
        self._unreadable = 0
        self._left = b""
        self._came = 0
        self._waiting: asyncio.Event | None = None
        self._is_asked = False
        self._resting: asyncio.Future[None] | None = None
        self._is_quiet = False
        self._is_listing = False
        self._needs_reading: Stream | None = None
        is_prompt = watch.typed and not watch.lazy
        self._collecting, self._collecting_few = (_COLLECT, _COLLECT) if is_prompt else (_COLLECT_BYTES, _COLLECT_FEW)

    @property
    def synced(self) -> bool:
        """Return whether the kind has been listed once."""
        return self._reflector.synced

    @property
    def settled(self) -> bool:
        """Return whether the kind has been listed and the sink's content is a consistent state."""
        return self.synced and self._sink.settled

    @property
    def version(self) -> str:
        """Return the newest resource version seen."""
        return self._reflector.version

    @property
    def last_error(self) -> ApiError | None:
        """Return the error of the last list or watch; None if it succeeded, or its resource version had expired."""
        return self._reflector.last_error

    async def caught_up(self) -> None:
        """Wait until buffered events have been applied to the sink. Does not wait for further events."""
        if self._waiting is None:
            return
        self._is_asked = True
        self._wake()
        await self._waiting.wait()

    async def run(self) -> None:
        """Run the informer until it is cancelled."""
        steps = self._reflector.run(self._clock.monotonic())
        try:
            async with AsyncExitStack() as opened:
                step = next(steps)
                while True:
                    step = steps.send(await self._answer(step, opened))
        finally:
            steps.close()

    async def _answer(self, asked: Asked, opened: AsyncExitStack) -> Seen:
        """Perform what the reflector requests, and return the result.

        RequestFailedError and InputError are counted and returned as Failed; InputError also closes the open watch.
        ``opened`` owns the open watch.
        """
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
                    self._log_failure()
                    await asyncio.sleep(duration * (1 + self._rng.random() * jitter) / 1e9)
        except RequestFailedError as error:
            self._count(_FAILURES)
            return Failed(at=self._now(), error=error.error, refused=error.refused)
        except InputError as error:
            self._count(_FAILURES)
            await self._close(opened)
            return Failed(at=self._now(), error=ApiError(shorten(str(error), _LONGEST_TEXT)))
        return Waited(at=self._now())

    def _count(self, metric: str, value: int = 1) -> None:
        """Count ``value`` in a metric, with the labels of this informer's kind."""
        self._observe(Observation(name=metric, value=float(value), labels=self._labels))

    def _count_unreadable(self) -> None:
        """Count the objects that the sink has skipped since the last call."""
        before, self._unreadable = self._unreadable, self._sink.unreadable
        if self._unreadable > before:
            self._count(UNREADABLE, self._unreadable - before)

    def _now(self) -> int:
        """Return the monotonic time in nanoseconds."""
        return self._clock.monotonic()

    def _log_failure(self) -> None:
        """Log the error of the reflector's last attempt, if there is one."""
        error = self._reflector.last_error
        if error is not None:
            _log.warning("Failed to watch %s: %s", self.watch.kind, error.message)

    async def _call(self, *query: tuple[str, str]) -> Call:
        """Build the GET request of the watch's objects. Parameters of ``query`` with an empty value are left out.

        Raises RequestFailedError if the server does not have the kind.
        """
        watch = self.watch
        resource = await self._resources.find_kind(watch.kind, watch.api_version)
        selectors = [("fieldSelector", watch.field_selector), ("labelSelector", watch.label_selector)]
        return Call(
            method="GET",
            path=resource.path(watch.namespace),
            query=tuple((name, value) for name, value in (*selectors, *query) if value),
            resource=resource.group_resource,
        )

    async def _list(self, asked: ListPage) -> Listed:
        """Read one page of a list into the sink.

        Raises RequestFailedError if the request fails, InputError if the data is not a list, or if the list has too
        many pages or repeats a page.
        """
        limit = str(asked.limit) if asked.limit else ""
        call = await self._call(("limit", limit), ("continue", asked.continue_), ("resourceVersion", asked.version))
        answer = await self._client.call(msgspec.structs.replace(call, retained=True))
        try:
            async with self._turn:
                if asked.anew:
                    self._sink.begin()
                version, next_page = self._sink.read_page(answer.body)
        finally:
            answer.release()
        self._count_unreadable()
        self._pages = 1 if asked.anew else self._pages + 1
        if next_page and self._pages >= self._limits.list_pages:
            raise InputError(f"a list of {self.watch.kind} with more pages than allowed ({self._limits.list_pages:,})")
        if next_page and next_page == asked.continue_:
            raise InputError(f"a list of {self.watch.kind} whose next page is the same page")
        await asyncio.sleep(0)  # reading a page takes long: let other tasks run
        return Listed(at=self._now(), version=version, continue_=next_page)

    async def _watch(self, asked: OpenWatch, opened: AsyncExitStack) -> Seen:
        """Open a watch in place of the open one, and return Opened. With ``initial`` it starts a list in the sink.

        Raises RequestFailedError if the watch cannot be opened.
        """
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
        if self._open is not None:
            self._open.on_end(partial(self._handle_end, self._open))
        self._is_listing = asked.initial
        self._ends = asyncio.get_running_loop().time() + asked.timeout_seconds + _GRACE
        if asked.initial:
            async with self._turn:
                self._sink.begin()
        return Opened(at=self._now())

    async def _read_more(self, opened: AsyncExitStack) -> Seen:
        """Read a batch of events, pass it to the sink, and return the Batch.

        Returns Ended if the watch ended without an event or an error. Raises InputError if the data cannot be read. A
        batch costs less than single events.
        """
        try:
            with self._client.buffers.open(is_watch=True) as buffer:
                data, is_open = await self._collect(buffer)
                if not data:
                    await self._close(opened)
                    return Ended(at=self._now())
                absorbed = _read_bookmark(data)
                if absorbed is None:
                    async with self._turn:
                        absorbed = self._sink.read_events(data)
        finally:
            if self._waiting is not None:
                self._waiting.set()
                self._waiting = None
        self._left = data[absorbed.used :] if is_open else b""
        self._count_unreadable()
        if absorbed.events:
            self._count(_EVENTS, absorbed.events)
            lag = (self._clock.monotonic() - self._came) / 1e9
            self._observe(Observation(name=_LAG, value=lag, labels=self._labels))
        if not is_open:
            await self._close(opened)
            if not absorbed.events and absorbed.error is None:
                return Ended(at=self._now())
        if len(data) >= _MUCH:
            await asyncio.sleep(0)  # reading took long: let other tasks run
        return Batch(
            at=self._now(),
            events=absorbed.events,
            version=absorbed.version,
            only_added=absorbed.only_added,
            synced=absorbed.synced,
            error=absorbed.error,
        )

    async def _collect(self, buffer: Buffer) -> tuple[bytes, bool]:
        """Collect at least one line and what follows shortly. Returns (data, whether the stream is still open).

        The data is empty at the end of the watch. Collection takes longer where batches are much cheaper, and ends
        early if :meth:`caught_up` is called. A lone bookmark, which each watch gets once a minute, is returned at once.
        Raises InputError if a line is too long.
        """
        stream = self._open
        if stream is None:
            return b"", False
        received = _Came(self._left, buffer)
        self._is_asked = False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ends):
                while not received.ended and not received.lines:
                    if not buffer.fits:
                        await self._wait_for_room(buffer)
                    received.add(await _read(stream))
                    if received.size > self._limits.line_bytes and b"\n" not in received.parts[-1]:
                        text = f"a line of more than {self._limits.line_bytes:,} bytes"
                        raise InputError(f"not a watch of {self.watch.kind}: {text}")
        received.ended = received.ended or not received.lines  # the server has kept the watch open for too long
        self._came = self._clock.monotonic()
        if received.lines and not received.ended and not received.is_bookmark:
            self._waiting = asyncio.Event()
            await self._collect_more(stream, received)
        return b"".join(received.parts) if received.lines else b"", not received.ended

    async def _wait_for_room(self, buffer: Buffer) -> None:
        """Wait until the buffer has room for another piece of an incomplete line.

        Raises InputError after the time limit of a request, so that lines that never end do not keep others waiting.
        """
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                await buffer.take()
        except TimeoutError:
            text = "a line that has not ended, while other responses fill the buffers"
            raise InputError(f"not a watch of {self.watch.kind}: {text}") from None
        buffer.adjust(-PIECE_BYTES)

    async def _collect_more(self, stream: Stream, came: _Came) -> None:
        """Collect lines until a time or size limit is reached, the stream ends or :meth:`caught_up` is called.

        Collection continues while the sink is locked. The stream is paused meanwhile, unless the last batch had few
        lines.
        """
        loop = asyncio.get_running_loop()
        longest = self._collecting_few if self._is_quiet else self._collecting
        is_awaited = self._is_listing or not self.settled
        end, rest = loop.time() + (_COLLECT if is_awaited else longest), _REST
        while not came.ended and came.size < self._limits.response_bytes and came.buffer.fits:
            before, left = came.size, end - loop.time()
            if self._turn.locked():
                with _paused(stream):
                    await asyncio.sleep(_COLLECT)
            elif left <= 0 or self._is_asked or came.lines >= _MOST_EVENTS or came.size >= _MOST_BYTES:
                break
            elif self._is_quiet:
                if self._needs_reading is not stream:
                    await self._rest(left)
                end = loop.time()  # a timer may fire a little early
                if data := stream.read_received():
                    came.add(data)
                if came.size - before < _MUCH:
                    continue
            elif not came.much:
                with _paused(stream):
                    await self._rest(min(left, rest))
            with suppress(TimeoutError):
                async with asyncio.timeout(_GLANCE):
                    while came.buffer.fits:
                        came.add(await _read(stream))
                        if came.ended:
                            break
            came.much = came.size - before >= _MUCH
            rest = rest * _LONGER if came.size == before else _REST
        self._is_quiet = came.lines < _FEW and not came.much
        self._needs_reading = None

    async def _rest(self, seconds: float) -> None:
        """Wait for some seconds, or until the stream ends or :meth:`caught_up` is called."""
        loop = asyncio.get_running_loop()
        self._resting = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._resting
        finally:
            timer.cancel()
            self._resting = None

    def _handle_end(self, stream: Stream) -> None:
        """Wake the informer to read the stream, which has ended or whose buffer of received bytes is full."""
        if stream is self._open:
            self._needs_reading = stream
            self._wake()

    def _wake(self) -> None:
        """End :meth:`_rest`."""
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    async def _settle(self) -> None:
        """Finish the list of the sink, and notify that the stores may have become settled."""
        async with self._turn:
            self._sink.settle()
        self._is_listing = False
        self._count(_LISTS)
        self._notify()

    async def _close(self, opened: AsyncExitStack) -> None:
        """Close the open watch, which ``opened`` owns, and drop an incomplete line."""
        self._open, self._left = None, b""
        await opened.pop_all().aclose()


def _read_bookmark(data: bytes) -> Absorbed | None:
    """Read a lone bookmark, which changes nothing but the version; None for other data and at the end of a list."""
    if data.find(_BOOKMARK, 0, _TYPE_BYTES) < 0 or data.find(b"\n") != len(data) - 1 or _LIST_END in data:
        return None
    try:
        event = read_event(data)
        if event.type != "BOOKMARK":
            return None
        return Absorbed(len(data), 1, read_json(event.object, Bookmark).metadata.resource_version)
    except UnreadableError:
        return None  # the sink reports it


class _Came:
    """Data of a watch that has been read but not applied, in ``buffer``.

    ``left`` is the incomplete line of the previous batch.
    """

    __slots__ = ("buffer", "ended", "lines", "much", "parts", "size")

    def __init__(self, left: bytes, buffer: Buffer) -> None:
        self.parts, self.lines, self.size = [left], 0, len(left)
        self.buffer = buffer
        buffer.adjust(len(left))
        self.ended = False
        self.much = False
        """Whether the last read returned much data, so that reading must not pause."""

    @property
    def is_bookmark(self) -> bool:
        """Return whether the data is one bookmark."""
        return self.lines == 1 and _BOOKMARK in b"".join(self.parts)[:_TYPE_BYTES]  # the type comes first

    def add(self, some: bytes) -> None:
        """Add bytes; empty bytes mean the end of the stream."""
        self.ended = not some
        self.parts.append(some)
        self.lines += some.count(b"\n")
        self.size += len(some)
        self.buffer.adjust(len(some))


async def _read(stream: Stream) -> bytes:
    """Read bytes of a watch; empty bytes mean that it has ended.

    A broken connection also counts as the end: the next watch resumes from the last version.
    """
    try:
        return await stream.read_some()
    except ConnectionFailedError:
        return b""


@contextmanager
def _paused(stream: Stream) -> Iterator[None]:
    """Pause a stream within the context, since waking this thread costs more than processing a line."""
    stream.pause_reading()
    try:
        yield
    finally:
        stream.resume_reading()
