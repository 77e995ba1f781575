"""Run a reflector against an API server, and the sinks that it feeds."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Final, Protocol

import msgspec

from kscale.effects import ApiError, Wait
from kscale.effects.actions import Metric, Observation
from kscale.errors import InputError, Problem
from kscale.objects.api.meta import ApiStruct, KubeObject, object_key, shortened
from kscale.objects.kinds import find_kind
from kscale.world.kubernetes.buffers import PIECE_BYTES, Buffer
from kscale.world.kubernetes.client import Client, RequestFailedError, read_status
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
from kscale.world.kubernetes.transport import Call, ConnectionFailedError, Stream
from kscale.world.protocols import Change, Clock, Watch
from kscale.world.server_data import (
    ServerEvent,
    UnreadableError,
    UnreadableObjectError,
    read_change,
    read_event,
    read_json,
    read_list,
    read_object,
)

__all__ = ["UNREADABLE", "WATCH_METRICS", "Absorbed", "Informer", "ObjectSink", "Sink", "Unreadable"]


_log = logging.getLogger(__name__)
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_NAMES_LOGGED: Final = 1024


class Absorbed(msgspec.Struct, frozen=True):
    """What became of bytes of a watch: how many were used (what is left is a piece of a line), how many events they
    were, and what :class:`~kscale.world.kubernetes.reflector.Batch` tells of them."""

    used: int
    events: int = 0
    version: str = ""
    only_added: bool = False
    synced: bool = False
    error: ApiError | None = None


class Sink(Protocol):
    """What an informer feeds. Raises :class:`~kscale.InputError` for what is no list and no watch of its kind."""

    @property
    def settled(self) -> bool:
        """What is there is a state that once was."""
        ...

    @property
    def unreadable(self) -> int:
        """How many objects have been skipped so far because they cannot be read."""
        ...

    def begin(self) -> None:
        """A list begins; one that has not come to its end is forgotten."""
        ...

    def page(self, data: bytes) -> tuple[str, str]:
        """A page of it: the version of the list, and what to go on with."""
        ...

    def events(self, data: bytes) -> Absorbed:
        """Lines of a watch; of one that lists first, while a list is under way."""
        ...

    def settle(self) -> None:
        """The list has come to its end: what it did not bring is gone."""
        ...


class _Meta(ApiStruct):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(ApiStruct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


class Unreadable:
    """Objects of one kind that were skipped because they cannot be read: counts each, logs each object once."""

    __slots__ = ("_kind", "_logged", "count")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._logged: OrderedDict[str, None] = OrderedDict()
        self.count = 0

    def report(self, name: str, problem: Problem | InputError) -> None:
        """Count a skipped object, and log it unless it was the last time that it came, too."""
        self.count += 1
        if name in self._logged:
            self._logged.move_to_end(name)
            return
        self._logged[name] = None
        if len(self._logged) > _NAMES_LOGGED:
            self._logged.popitem(last=False)
        _log.error("Skipping a %s that cannot be read: %s", self._kind, problem)

    def forget(self, name: str) -> None:
        """The object can be read, or is gone: it is logged again the next time that it cannot."""
        if self._logged:
            self._logged.pop(name, None)


class ObjectSink:
    """Objects of one kind, one by one, as structs.

    ``changed`` is told each change after it was made. A list replaces all at its end, what is gone first
    (client-go's ``Replace``); until then the old state stays.

    An object that cannot be read is skipped (:attr:`unreadable`): the version of it that was read last stays, one that
    was never read is absent. A list or a watch with an object that does not even say which one it is fails: what it
    stands for would be taken for deleted.
    """

    __slots__ = ("_changed", "_listing", "_skipped", "_type", "objects", "watch")

    def __init__(self, watch: Watch, changed: Callable[[Change], None]) -> None:
        self.watch = watch
        self.objects: dict[str, KubeObject] = {}
        """By ``namespace/name``, in the order in which they came."""
        self._type = find_kind(watch.api_version, watch.kind) or KubeObject
        self._changed = changed
        self._listing: dict[str, KubeObject] | None = None
        self._skipped = Unreadable(watch.kind)

    @property
    def settled(self) -> bool:
        return True

    @property
    def unreadable(self) -> int:
        return self._skipped.count

    def begin(self) -> None:
        self._listing = {}

    def page(self, data: bytes) -> tuple[str, str]:
        try:
            page = read_list(data)
        except UnreadableError as error:
            raise InputError(f"not a list of {self.watch.kind}: {error}") from None
        if not page.kind.endswith("List"):
            raise InputError(f"not a list of {self.watch.kind} but a {page.kind or 'text without a kind'}")
        for raw in page.items:
            try:
                self._put(self._read(raw))
            except UnreadableObjectError as error:
                self._skip(error)
        return page.resource_version, page.continue_

    def settle(self) -> None:
        listed, self._listing = self._listing, None
        if listed is None:
            return
        for key in [key for key in self.objects if key not in listed]:
            old = self.objects.pop(key)
            self._changed(Change(watch=self.watch, old=old, missed=True))
        for new in listed.values():
            self._store(new)

    def events(self, data: bytes) -> Absorbed:
        end = data.rfind(b"\n") + 1
        count, version, only_added, synced, failed = 0, "", True, False, None
        for line in data[:end].splitlines():
            if not line.strip():
                continue
            change = read_change(line, self._type)
            if change is not None:
                count += 1
                only_added = only_added and change[0] == "ADDED"
                version = self._apply(change[0], self._named(change[1])) or version
                continue
            try:
                event = read_event(line)
            except UnreadableError as error:
                raise InputError(f"not a watch of {self.watch.kind}: {error}") from None
            if event.type == "ERROR":
                failed = read_status(event.object) or ApiError("an ERROR event without a status", reason="Unknown")
                break
            count += 1
            only_added = only_added and event.type == "ADDED"
            if event.type == "BOOKMARK":
                try:
                    meta = read_json(event.object, _Bookmark).metadata
                except UnreadableError as error:
                    raise InputError(f"not a bookmark of {self.watch.kind}: {error}") from None
                version = meta.resource_version or version
                synced = synced or (meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
            elif event.type in _CHANGES:
                version = self._apply_slowly(event) or version
            else:
                _log.error("Unknown watch event %r of %s", event.type, self.watch.kind)
        return Absorbed(end, count, version, only_added, synced, failed)

    def _apply(self, type_: str, new: KubeObject) -> str:
        """Apply a change; return the version of its object."""
        if type_ != "DELETED":
            return self._put(new)
        self._remove(new.key, new)
        return new.metadata.resource_version

    def _apply_slowly(self, event: ServerEvent) -> str:
        """The same for an event whose object may be unreadable."""
        try:
            return self._apply(event.type, self._read(event.object))
        except UnreadableObjectError as error:
            if event.type == "DELETED" and error.head.name:
                self._remove(object_key(error.head.namespace, error.head.name))
            self._skip(error)
            return error.head.resource_version

    def _remove(self, key: str, last: KubeObject | None = None) -> None:
        """Remove an object; ``last``: as it was at its end, if that can be read."""
        if self._listing is not None:
            self._listing.pop(key, None)
        elif (old := self.objects.pop(key, None)) is not None:
            self._changed(Change(watch=self.watch, old=last or old))

    def _skip(self, error: UnreadableObjectError) -> None:
        """Skip an object; in a list the version that was read last is taken over. Raises InputError if it is unknown
        which object it is."""
        head = error.head
        if not head.name:
            raise InputError(f"a {self.watch.kind} without an identity: {error}") from None
        key = object_key(head.namespace, head.name)
        self._skipped.report(key, error)
        if self._listing is not None and key in self.objects:
            self._listing.setdefault(key, self.objects[key])

    def _read(self, raw: msgspec.Raw) -> KubeObject:
        return self._named(read_object(raw, self._type))

    def _named(self, obj: KubeObject) -> KubeObject:
        obj.kind, obj.api_version = self.watch.kind, self.watch.api_version
        self._skipped.forget(obj.key)
        return obj

    def _put(self, new: KubeObject) -> str:
        if self._listing is not None:
            self._listing[new.key] = new
        else:
            self._store(new)
        return new.metadata.resource_version

    def _store(self, new: KubeObject) -> None:
        old = self.objects.get(new.key)
        version = new.metadata.resource_version
        if old is not None and version and old.metadata.resource_version == version:
            return
        self.objects[new.key] = new
        self._changed(Change(watch=self.watch, old=old, new=new))


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
        self._pages = 0
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
        answer = await self._client.call(msgspec.structs.replace(call, kept=True))
        try:
            async with self._turn:
                if asked.anew:
                    self._sink.begin()
                version, more = self._sink.page(answer.body)
        finally:
            answer.release()
        self._count_unreadable()
        self._pages = 1 if asked.anew else self._pages + 1
        if more and self._pages >= self._limits.list_pages:
            raise InputError(f"a list of {self.watch.kind} with more pages than allowed ({self._limits.list_pages:,})")
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
            with self._client.buffers.open(is_watch=True) as buffer:
                data, more = await self._collect(buffer)
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

    async def _collect(self, buffer: Buffer) -> tuple[bytes, bool]:
        """At least one line, and what comes in the next moments; whether there may be more. Moments are longer where
        many lines at once cost less, and over as soon as somebody asks for what there is."""
        stream = self._open
        if stream is None:
            return b"", False
        came = _Came(self._left, buffer)
        self._asked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ends):
                while not came.ended and not came.lines:
                    await self._wait_for_room(buffer)
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

    async def _wait_for_room(self, buffer: Buffer) -> None:
        """Wait until the watch may read on in a line. A line waits no longer than a request may take, so that lines
        that never end do not keep others waiting."""
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                await buffer.take()
        except TimeoutError:
            text = "a line that has not ended, while other responses fill the buffers"
            raise InputError(f"not a watch of {self.watch.kind}: {text}") from None
        buffer.adjust(-PIECE_BYTES)

    async def _collect_more(self, stream: Stream, came: _Came) -> None:
        """What comes until it is time, somebody asks for it, or it is much; and while the sink is not free."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (self._collecting if self.settled else _COLLECT)  # a list is waited for
        while not came.ended and came.size < self._limits.response_bytes and came.buffer.fits:
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
                    while not came.ended and came.buffer.fits:
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
    """What has been read of a watch and is not taken up yet, and ``buffer`` holds: ``left`` is a piece of a line from
    before."""

    __slots__ = ("buffer", "ended", "lines", "much", "parts", "size")

    def __init__(self, left: bytes, buffer: Buffer) -> None:
        self.parts, self.lines, self.size = [left], 0, len(left)
        self.buffer = buffer
        buffer.adjust(len(left))
        self.ended = False
        self.much = False
        """Of late: the server may not have to wait."""

    def add(self, some: bytes) -> None:
        """The next bytes; empty: that was all."""
        self.ended = not some
        self.parts.append(some)
        self.lines += some.count(b"\n")
        self.size += len(some)
        self.buffer.adjust(len(some))


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
