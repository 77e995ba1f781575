"""Informers against the fake API server, in virtual time: every case on every kind of server, and with faults."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kscale import Cluster, InputError
from kscale.effects import SECOND, Observation
from kscale.objects.api.meta import KubeObject
from kscale.world.clock import VirtualClock, run_in_virtual_time
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.informer import Informer, _read_bookmark
from kscale.world.kubernetes.reflector import Reflector
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.stores import ClusterSink, ObjectSink
from kscale.world.kubernetes.transport import FREE_BYTES, Answer, Buffers, Call, ServerLimits
from kscale.world.protocols import Change, Clock, Watch
from kscale.world.simulated.api_server import merge
from unit.world.fake_api_server import BROKEN, REFUSED, FakeApiServer, _Body, status
from unit.world.informer_cases import CASES, PODS, Api, equal, following, pod, until

T0 = 1_800_000_000 * SECOND


class FakeApi:
    def __init__(self, clock: Clock, **options: Any) -> None:
        self.clock = clock
        self.server = FakeApiServer(clock, **options)
        self.client = Client(self.server, clock, qps=-1)

    async def create(self, plural: str, obj: dict[str, Any]) -> None:
        self.server.put(plural, obj)

    async def patch(self, plural: str, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        self.server.put(plural, merge(self.server.get(plural, name, "default"), patch))

    async def delete(self, plural: str, name: str) -> None:
        self.server.drop(plural, name, "default")

    async def names(self, plural: str) -> dict[str, str]:
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in self.server.all(plural)}

    async def cut(self) -> None:
        self.server.cut_watches()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self.server.fault = lambda call: REFUSED
        self.server.cut_watches()
        yield
        self.server.fault = lambda call: None

    async def forget(self) -> None:
        self.server.compact()


def against_fake(case: Callable[[Any], Awaitable[None]], *, seed: int | None = None, **options: Any) -> FakeApi:
    apis: list[FakeApi] = []

    async def main(clock: VirtualClock) -> None:
        apis.append(FakeApi(clock, **options))
        await case(apis[0])

    run_in_virtual_time(main, now=T0, seed=seed)
    return apis[0]


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
@pytest.mark.parametrize("minor", [32, 33, 37])
def test_cases(case: Callable[[Api], Awaitable[None]], minor: int) -> None:
    against_fake(case, minor=minor, cut=minor)


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_cases_in_any_order(case: Callable[[Api], Awaitable[None]]) -> None:
    for seed in range(8):
        against_fake(case, seed=seed, cut=seed, delay=0.003)


def test_streaming_server_gets_one_watch_list_request() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        async with following(api):
            pass
        path = "/api/v1/namespaces/default/pods allowWatchBookmarks=true"
        assert api.server.requested_paths() == [
            f"{path} resourceVersionMatch=NotOlderThan sendInitialEvents=true watch=true"
        ]

    against_fake(case)


def test_non_streaming_server_gets_list_and_watch_requests() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        async with following(api):
            await asyncio.sleep(1)
        path = "/api/v1/namespaces/default/pods"
        assert api.server.requested_paths() == [
            f"{path} allowWatchBookmarks=true resourceVersionMatch=NotOlderThan sendInitialEvents=true watch=true",
            f"{path} limit=500 resourceVersion=0",
            f"{path} allowWatchBookmarks=true resourceVersion=101 watch=true",
        ]

    against_fake(case, minor=33)


def test_bookmarks_keep_a_quiet_watch_young() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        async with following(api) as followed:
            for i in range(3):
                await api.create("nodes", {"metadata": {"name": f"n{i}"}})
            api.server.bookmark()
            await until(lambda: followed.reflector.version == str(api.server.version))
            api.server.compact()
            api.server.cut_watches()
            await api.create("pods", pod("b"))
            await equal(api, followed)
            assert followed.lists == 1  # its version was not too old

    against_fake(case)


def test_expired_history_is_relisted() -> None:
    async def case(api: FakeApi) -> None:
        for name in "ab":
            await api.create("pods", pod(name))
        async with following(api, streaming=False) as followed:
            api.server.cut_watches()
            await api.delete("pods", "a")
            await api.create("pods", pod("c"))
            api.server.compact()
            await equal(api, followed)
            assert followed.lists == 2
            assert followed.changed_names() == ["+a", "+b", "!a", "+c"]
            # Not older than what it had seen.
            assert api.server.requested_paths(watch=False)[-1] == "/api/v1/namespaces/default/pods resourceVersion=102"

    against_fake(case)


@pytest.mark.parametrize(
    ("code", "reason"), [(410, "Expired"), (429, "TooManyRequests"), (500, "InternalError"), (403, "Forbidden")]
)
def test_error_events(code: int, reason: str) -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        async with following(api) as followed:
            api.server.fail_watches(code, reason)
            await api.create("pods", pod("b"))
            await equal(api, followed)
            assert followed.lists == (1 if code == 429 else 2)

    against_fake(case)


def faults(*answers: Any) -> Callable[[Call], Any]:
    remaining = list(answers)
    return lambda call: remaining.pop(0) if remaining else None


def refusal(code: int, reason: str, **headers: str) -> Answer:
    return Answer(code, {"content-type": "application/json", **headers}, json.dumps(status(code, reason)).encode())


@pytest.mark.parametrize("minor", [33, 37])
def test_a_server_in_trouble(minor: int) -> None:
    """Down, throttling, failing, broken: it is asked again, with pauses, until all is well."""

    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        api.server.fault = faults(
            REFUSED,
            refusal(429, "TooManyRequests", **{"retry-after": "1"}),
            BROKEN,
            refusal(500, "InternalError"),
            Answer(502, {"content-type": "text/html"}, b"<html>bad gateway"),
            refusal(401, "Unauthorized"),
            Answer(200, {"content-type": "text/html"}, b"<html>a portal"),
        )
        async with following(api) as followed:
            await equal(api, followed)
            assert followed.informer.last_error is None

    against_fake(case, minor=minor)


def test_informer_reports_why_it_makes_no_progress() -> None:
    async def case(api: FakeApi) -> None:
        api.server.fault = lambda call: refusal(403, "Forbidden")
        sink = ObjectSink(PODS, lambda change: None)
        informer = Informer(api.client, Resources(api.client), PODS, sink, api.clock)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(100)
        assert not informer.synced
        assert informer.last_error is not None
        assert informer.last_error.reason == "Forbidden"
        assert 4 <= len(api.server.calls) <= 20  # with pauses of up to a minute
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)


def test_pages_that_expire() -> None:
    async def case(api: FakeApi) -> None:
        for i in range(5):
            await api.create("pods", pod(f"p{i}"))

        def expire(call: Call) -> Any:
            if dict(call.query).get("continue"):
                api.server.pages.clear()

        api.server.fault = expire
        async with following(api, streaming=False, paged=True, page_size=2) as followed:
            await equal(api, followed)
        assert api.server.requested_paths(watch=False)[-1] == "/api/v1/namespaces/default/pods"  # all at once

    against_fake(case)


def test_events_are_collected_for_a_moment() -> None:
    """Time is virtual and the random sources are fixed, so that the batches are always the same."""
    sizes: list[int] = []

    async def case(api: FakeApi) -> None:
        sink = ObjectSink(PODS, lambda change: None)

        def observe(observation: Observation) -> None:
            if observation.name == "kscale_watch_events_total":
                sizes.append(int(observation.value))

        informer = Informer(
            api.client,
            Resources(api.client),
            PODS,
            sink,
            api.clock,
            observe=observe,
            reflector=Reflector(streaming=False, rng=random.Random(0)),
            rng=random.Random(0),
        )
        task = asyncio.create_task(informer.run())
        await until(lambda: bool(api.server.watches))
        for i in range(600):
            await api.create("pods", pod(f"p{i}"))
            if i % 200 == 0:
                await asyncio.sleep(0.001)
        await until(lambda: len(sink.objects) == 600)
        await asyncio.sleep(0.1)
        await api.create("pods", pod("last"))
        await until(lambda: len(sink.objects) == 601)
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)
    assert sizes == [600, 1]


def test_reader_after_a_long_step_sees_the_events_received_meanwhile() -> None:
    """Events that could not be taken up while the turn was held are taken up before the next who asks for it looks."""
    object_counts: list[int] = []

    async def case(api: FakeApi) -> None:
        turn = asyncio.Lock()
        sink = ObjectSink(PODS, lambda change: None)
        informer = Informer(api.client, Resources(api.client), PODS, sink, api.clock, turn=turn)
        task = asyncio.create_task(informer.run())
        await until(lambda: informer.synced)
        async with turn:
            await api.create("pods", pod("a"))
            await asyncio.sleep(1)
        await informer.caught_up()
        async with turn:
            object_counts.append(len(sink.objects))
        await informer.caught_up()  # nothing is left: at once
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)
    assert object_counts == [1]


@pytest.mark.parametrize(("typed", "lazy", "batches"), [(True, False, [1, 1]), (True, True, [2]), (False, False, [2])])
def test_bytes_are_collected_for_longer_than_objects(typed: bool, lazy: bool, batches: list[int]) -> None:
    """Two events a bit less than a second apart; a cluster takes up both for the price of one."""
    sizes: list[int] = []

    async def case(api: FakeApi) -> None:
        def observe(observation: Observation) -> None:
            if observation.name == "kscale_watch_events_total":
                sizes.append(int(observation.value))

        async with informing(api, typed=typed, lazy=lazy, observe=observe):
            sizes.clear()
            for name in ("a", "b"):
                await api.create("pods", pod(name))
                await asyncio.sleep(0.7)
            await asyncio.sleep(1)

    against_fake(case)
    assert sizes == batches


def test_events_that_come_one_by_one_wake_it_ten_times_a_second() -> None:
    """So many reads for two hundred events in a second; who looks finds all that has come."""
    reads: list[int] = []

    async def case(api: FakeApi) -> None:
        async with informing(api, typed=False) as (informer, sink):
            (watch,) = api.server.watches
            before = watch.reads
            for i in range(200):
                await api.create("pods", pod(f"p{i}"))
                await asyncio.sleep(0.0049)
            await informer.caught_up()
            assert len(sink.objects) == 200
            reads.append(watch.reads - before)

    against_fake(case)
    assert 10 <= reads[0] <= 15


def test_quiet_watch_buffers_events_until_a_read_or_its_end() -> None:
    """After a batch of few lines, bytes are collected for ten seconds; the end of the watch is noticed meanwhile."""
    object_counts: list[int] = []

    async def case(api: FakeApi) -> None:
        async with informing(api, typed=False) as (informer, sink):
            await until(lambda: informer.synced)
            await api.create("pods", pod("a"))
            await until(lambda: len(sink.objects) == 1)  # a batch of few lines
            for name in ("b", "c"):
                await api.create("pods", pod(name))
                await asyncio.sleep(4)
            object_counts.append(len(sink.objects))
            await asyncio.sleep(4)
            object_counts.append(len(sink.objects))
            await api.create("pods", pod("d"))
            await asyncio.sleep(1)
            object_counts.append(len(sink.objects))
            await informer.caught_up()
            object_counts.append(len(sink.objects))
            await api.create("pods", pod("e"))
            await asyncio.sleep(1)
            api.server.cut_watches(None)
            await asyncio.sleep(0.1)
            object_counts.append(len(sink.objects))

    against_fake(case)
    assert object_counts == [1, 3, 3, 4, 5]


def test_the_end_of_a_quiet_watch_that_comes_with_an_event_is_noticed_at_once() -> None:
    async def case(api: FakeApi) -> None:
        async with informing(api, typed=False) as (informer, sink):
            await until(lambda: informer.synced)
            await api.create("pods", pod("a"))
            await until(lambda: len(sink.objects) == 1)  # a batch of few lines
            await api.create("pods", pod("b"))
            api.server.cut_watches(None)
            await asyncio.sleep(0.1)
            assert len(sink.objects) == 2
            await api.create("pods", pod("c"))
            await until(lambda: len(api.server.watches) == 1)
            before = api.clock.monotonic()
            await informer.caught_up()
            assert (len(sink.objects), api.clock.monotonic() - before < 10**6) == (2, True)
            await asyncio.sleep(1.1)
            await informer.caught_up()
            assert len(sink.objects) == 3

    against_fake(case)


def test_a_quiet_watch_is_listed_again_at_once() -> None:
    """When the server reports that the history is gone. Who looks finds the old objects until the list is complete."""
    took: list[int] = []

    async def case(api: FakeApi) -> None:
        async with informing(api, typed=True, lazy=True, streaming=True) as (informer, sink):
            await until(lambda: informer.synced)
            await api.create("pods", pod("a"))
            await until(lambda: len(sink.objects) == 1)  # a batch of few lines
            api.server.cut_watches(None)
            await api.create("pods", pod("b"))
            api.server.compact()
            before = api.clock.monotonic()
            await until(lambda: len(sink.objects) == 2)
            took.append(api.clock.monotonic() - before)

    against_fake(case)
    assert took[0] < 5 * SECOND


def test_who_looks_at_a_quiet_watch_sees_more_than_a_connection_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as fits into the buffer has been received, and the rest has not been read from the socket."""
    size = 2**16

    def read_received(self: _Body) -> bytes:
        received, following = b"", self._watch.queue
        while len(received) < size and not following.empty():
            received += following.get_nowait()
        return received

    async def case(api: FakeApi) -> None:
        async with informing(api, typed=False) as (informer, sink):
            await until(lambda: informer.synced)
            await api.create("pods", pod("a"))
            await until(lambda: len(sink.objects) == 1)  # a batch of few lines
            await api.create("pods", pod("b"))
            await asyncio.sleep(0.1)
            for i in range(600):
                await api.create("pods", pod(f"p{i}"))
            assert len(sink.objects) == 1
            await informer.caught_up()
            assert len(sink.objects) == 602

    monkeypatch.setattr(_Body, "read_received", read_received)
    against_fake(case)


def test_only_a_bookmark_is_read_as_a_bookmark() -> None:
    meta = '"object":{"metadata":{"resourceVersion":"7"}}'
    bookmark = _read_bookmark(f'{{"type":"BOOKMARK",{meta}}}\n'.encode())
    assert bookmark is not None
    assert (bookmark.events, bookmark.version) == (1, "7")
    for line in (f'{{"x":"BOOKMARK","type":"DELETED",{meta}}}', f'{{"type":"BOOKMARK","type":"ADDED",{meta}}}'):
        assert _read_bookmark(f"{line}\n".encode()) is None


def test_a_lone_bookmark_is_taken_up_at_once() -> None:
    """Other events of a cluster wait for a second, in case that more come."""
    lags: list[float] = []

    async def case(api: FakeApi) -> None:
        def observe(observation: Observation) -> None:
            if observation.name == "kscale_watch_lag_seconds":
                lags.append(observation.value)

        async with informing(api, typed=False, observe=observe) as (informer, _):
            await until(lambda: informer.synced)
            await api.create("nodes", {"metadata": {"name": "n"}})
            api.server.bookmark()
            await until(lambda: informer.version == str(api.server.version))

    against_fake(case)
    assert len(lags) == 1
    assert lags[0] < 1.0


def test_a_list_that_comes_by_a_watch_is_taken_up_at_once() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        before = api.clock.monotonic()
        async with informing(api, typed=False, streaming=True) as (informer, sink):
            await until(lambda: informer.settled)
            assert (len(sink.objects), api.clock.monotonic() - before < 10**8) == (1, True)

    against_fake(case)


def test_reading_does_not_wait_for_more_events() -> None:
    async def case(api: FakeApi) -> None:
        async with informing(api, typed=False) as (informer, sink):
            await api.create("pods", pod("a"))
            await asyncio.sleep(0.01)
            assert len(sink.objects) == 0, "it lies there for a while"
            before = api.clock.monotonic()
            await informer.caught_up()
            assert (len(sink.objects), api.clock.monotonic() - before < 10**6) == (1, True)

    against_fake(case)


@pytest.mark.parametrize("coming", ["b", "bc"])
def test_reading_does_not_wait_although_events_keep_arriving(coming: str) -> None:
    async def case(api: FakeApi) -> None:
        async with informing(api, typed=False) as (informer, sink):
            await api.create("pods", pod("a"))
            await asyncio.sleep(0.01)
            before = api.clock.monotonic()
            for name in coming:
                await api.create("pods", pod(name))
            await informer.caught_up()
            assert (len(sink.objects), api.clock.monotonic() - before < 10**6) == (1 + len(coming), True)
            await api.create("pods", pod("last"))
            await asyncio.sleep(0.01)
            assert len(sink.objects) == 1 + len(coming), "nobody looks: it lies there for a while again"

    against_fake(case)


@asynccontextmanager
async def informing(
    api: FakeApi,
    *,
    typed: bool,
    lazy: bool = False,
    streaming: bool = False,
    turn: asyncio.Lock | None = None,
    observe: Callable[[Observation], None] = lambda _: None,
) -> AsyncIterator[tuple[Informer, ObjectSink]]:
    """An informer of pods that has listed them, or (``streaming``) is about to."""
    watch = Watch(kind="Pod", api_version="v1", typed=typed, lazy=lazy)
    sink = ObjectSink(watch, lambda change: None)
    reflector = Reflector(streaming=streaming)
    informer = Informer(
        api.client,
        Resources(api.client),
        watch,
        sink,
        api.clock,
        observe=observe,
        reflector=reflector,
        turn=turn,
    )
    task = asyncio.create_task(informer.run())
    await until(lambda: bool(api.server.watches))
    yield informer, sink
    task.cancel()
    await asyncio.wait([task])


def test_unreadable_objects_are_skipped() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        bad = pod("bad")
        bad["spec"]["containers"] = 5
        await api.create("pods", bad)
        async with following(api) as followed:
            assert set(followed.names) == {"a"}
            await api.create("pods", pod("b"))
            await until(lambda: set(followed.names) == {"a", "b"})

    against_fake(case)


def test_a_line_without_end_is_not_collected() -> None:
    """The limit holds before the first line end, too; the watch is closed, and the list begins anew."""
    endless = b'{"type":"ADDED","object":{"metadata":{"name":"' + b"a" * (1 << 16)

    async def case(api: FakeApi) -> None:
        api.client.limits = ServerLimits(line_bytes=1 << 18)
        await api.create("pods", pod("a"))
        async with following(api, streaming=False) as followed:
            await api.create("pods", pod("b"))
            await until(lambda: set(followed.names) == {"a", "b"})
            (watch,) = api.server.watches
            read = watch.reads
            for _ in range(64):
                watch.queue.put_nowait(endless)
                await asyncio.sleep(0)
            await until(lambda: watch not in api.server.watches)
            assert watch.reads - read <= 8
            await api.create("pods", pod("c"))
            await until(lambda: set(followed.names) == {"a", "b", "c"})

    against_fake(case)


def test_a_line_that_does_not_end_is_given_up_while_other_responses_fill_the_buffers() -> None:
    """Short lines go on; a line that waits for longer than a request may take is listed instead."""

    async def case(api: FakeApi) -> None:
        api.client.limits = ServerLimits(request_seconds=20)
        api.client.buffers = Buffers(0)
        await api.create("pods", pod("a"))
        async with following(api, streaming=False) as followed:
            await api.create("pods", pod("b"))
            await until(lambda: set(followed.names) == {"a", "b"})
            (watch,) = api.server.watches
            watch.queue.put_nowait(b'{"type":"ADDED","object":{"metadata":{"name":"' + b"a" * FREE_BYTES)
            await asyncio.sleep(19)
            assert watch in api.server.watches
            await until(lambda: watch not in api.server.watches, seconds=2)
            await api.create("pods", pod("c"))
            await until(lambda: set(followed.names) == {"a", "b", "c"})
            assert api.client.buffers.used == 0

    against_fake(case)


@pytest.mark.parametrize("limits", [ServerLimits(response_bytes=1 << 18), ServerLimits(buffered_bytes=1 << 18)])
def test_events_that_wait_to_be_applied_are_bounded(limits: ServerLimits) -> None:
    """By the limit of the watch, and by that of all responses: the rest stays with the server."""

    async def case(api: FakeApi) -> None:
        api.client.limits = limits
        api.client.buffers = buffers = Buffers(limits.buffered_bytes)
        turn = asyncio.Lock()
        async with informing(api, typed=True, turn=turn) as (informer, sink):
            await until(lambda: informer.synced)
            async with turn:
                for number in range(200):
                    named = pod(f"p{number}")
                    named["metadata"]["annotations"] = {"text": "a" * 10_000}
                    await api.create("pods", named)
                    await asyncio.sleep(0.01)
                assert 1 << 17 < buffers.peak <= 1 << 19
                assert not sink.objects
            await until(lambda: len(sink.objects) == 200)
            assert buffers.used == 0

    against_fake(case)


def test_a_page_is_buffered_until_it_is_applied() -> None:
    async def case(api: FakeApi) -> None:
        buffers, turn = Buffers(1 << 20), asyncio.Lock()
        listed, ask = asyncio.Event(), api.server.call

        async def call(call: Call) -> Answer:
            answer = await ask(call)
            if not call.retained:
                return answer
            buffer = buffers.open(retained=True)
            buffer.adjust(len(answer.body) + FREE_BYTES)
            listed.set()
            return msgspec.structs.replace(answer, buffer=buffer)

        api.server.call = call
        await api.create("pods", pod("a"))
        watch = Watch(kind="Pod", api_version="v1")
        sink = ObjectSink(watch, lambda change: None)
        reflector = Reflector(streaming=False)
        informer = Informer(api.client, Resources(api.client), watch, sink, api.clock, reflector=reflector, turn=turn)
        async with turn:
            task = asyncio.create_task(informer.run())
            await listed.wait()
            await asyncio.sleep(1)
            assert buffers.used > 0
        await until(lambda: informer.synced)
        assert buffers.used == 0
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)


def test_a_watch_that_the_server_does_not_end_is_ended() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        async with following(api) as followed:
            (watch,) = api.server.watches
            watch.wants = lambda _: False  # nothing comes any more
            await api.create("pods", pod("b"))
            await until(lambda: set(followed.names) == {"a", "b"}, seconds=700)

    against_fake(case)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("version", ["abc", "-1", "9" * 400])
def test_invalid_resource_version_is_dropped(streaming: bool, version: str) -> None:
    """A server refuses to list or watch from it, and would do so for ever."""

    def refuse(call: Call) -> Answer | None:
        if dict(call.query).get("resourceVersion") == version:
            return Answer(400, {}, json.dumps(status(400, "BadRequest", "invalid resource version")).encode())
        return None

    async def case(api: FakeApi) -> None:
        api.server.fault = refuse
        await api.create("pods", pod("a"))
        async with following(api, streaming=streaming) as followed:
            (watch,) = api.server.watches
            odd = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}}
            watch.send("MODIFIED", merge(pod("a"), {"metadata": {"resourceVersion": "101", "uid": "uid-1"}}))
            watch.send("BOOKMARK", odd)
            await until(lambda: followed.reflector.version == version)
            await api.cut()
            await api.create("pods", pod("b"))
            await until(lambda: set(followed.names) == {"a", "b"})

    against_fake(case)


def test_a_watch_does_not_go_back() -> None:
    """Who waits for what he wrote himself would take all that comes for older."""

    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        async with following(api) as followed:
            (watch,) = api.server.watches
            await api.create("pods", pod("b"))
            await until(lambda: followed.informer.version == "102")
            back = {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": "odd", "resourceVersion": "90", "labels": 5},
            }
            for type_ in ("ADDED", "BOOKMARK"):
                watch.send(type_, back if type_ == "ADDED" else {"metadata": {"resourceVersion": "90"}})
            await asyncio.sleep(1)
            assert (followed.informer.version, followed.sink.unreadable) == ("102", 1)
            await api.create("pods", pod("c"))
            await until(lambda: followed.informer.version == "103")

    against_fake(case)


def test_a_list_that_goes_on_with_the_same_page_fails() -> None:
    async def case(api: FakeApi) -> None:
        same = {"kind": "PodList", "metadata": {"resourceVersion": "1", "continue": "again"}, "items": [pod("x")]}
        api.server.fault = lambda call: Answer(200, {}, json.dumps(same).encode())
        sink = ObjectSink(PODS, lambda change: None)
        reflector = Reflector(streaming=False)
        informer = Informer(api.client, Resources(api.client), PODS, sink, api.clock, reflector=reflector)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(1)
        assert len(api.server.calls) <= 4
        assert "the same page" in str(informer.last_error)
        api.server.fault = lambda call: None
        await until(lambda: informer.synced)
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)


def test_a_list_of_more_pages_than_allowed_fails() -> None:
    """Each page goes on with another one, for ever."""

    async def case(api: FakeApi) -> None:
        api.client.limits = ServerLimits(list_pages=10)
        pages = 0

        def another(call: Call) -> Answer:
            nonlocal pages
            pages += 1
            metadata = {"resourceVersion": "1", "continue": f"{pages}"}
            return Answer(200, {}, json.dumps({"kind": "PodList", "metadata": metadata, "items": []}).encode())

        api.server.fault = another
        sink = ObjectSink(PODS, lambda change: None)
        reflector = Reflector(streaming=False)
        informer = Informer(api.client, Resources(api.client), PODS, sink, api.clock, reflector=reflector)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(0.5)
        assert "a list of Pod with more pages than allowed (10)" in str(informer.last_error)
        assert pages == 10
        api.server.fault = lambda call: None
        await until(lambda: informer.synced)
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)


def test_skipped_objects_and_failed_watches_are_counted() -> None:
    counts: dict[str, float] = {}

    def observe(observation: Observation) -> None:
        counts[observation.name] = counts.get(observation.name, 0) + observation.value

    async def case(api: FakeApi) -> None:
        bad = pod("bad")
        bad["spec"]["containers"] = 5
        await api.create("pods", bad)
        sink = ObjectSink(PODS, lambda change: None)
        informer = Informer(api.client, Resources(api.client), PODS, sink, api.clock, observe=observe)
        task = asyncio.create_task(informer.run())
        await until(lambda: informer.synced)
        assert counts["kscale_unreadable_objects_total"] == 1
        (watch,) = api.server.watches
        watch.queue.put_nowait(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":5}}}\n')
        await until(lambda: counts.get("kscale_watch_failures_total", 0) == 1)
        await api.create("pods", pod("a"))
        await until(lambda: "default/a" in sink.objects)
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)


@pytest.mark.parametrize("data", [b"nonsense", b'{"kind":"Pod"}', b"\xff", b'{"kind":"Status","status":"Failure"}'])
def test_invalid_lists_and_watch_lines_are_input_errors(data: bytes) -> None:
    sink = ObjectSink(PODS, lambda change: None)
    sink.begin()
    with pytest.raises(InputError, match="not a list of Pod"):
        sink.read_page(data)
    with pytest.raises(InputError, match="not a watch of Pod"):
        sink.read_events(b"nonsense\n")


def test_incomplete_lines_are_left_unread() -> None:
    changes: list[Change] = []
    sink = ObjectSink(PODS, changes.append)
    line = json.dumps({"type": "ADDED", "object": pod("a")}).encode() + b"\n"
    result = sink.read_events(line + line[:10])
    assert (result.used, result.events, result.only_added) == (len(line), 1, True)
    assert sink.read_events(line[:10]).used == 0
    assert [change.new.name for change in changes if change.new is not None] == ["a"]


def test_sink_reports_the_type_of_each_event() -> None:
    """Of a kind that is served under another version, too: an object is of what is watched."""
    changes: list[Change] = []
    sink = ObjectSink(PODS, changes.append)
    created = {**pod("a"), "apiVersion": "v0", "kind": "Thing"}
    result = []
    for version, lines in enumerate([["ADDED", "MODIFIED"], ["ADDED"], ["DELETED"], ["ODD"], ["ADDED", "ODD"]]):
        created["metadata"]["resourceVersion"] = str(version)
        data = b"".join(json.dumps({"type": each, "object": created}).encode() + b"\n" for each in lines)
        each = sink.read_events(data)
        result.append((each.events, each.version, each.only_added))
    assert result == [(2, "0", False), (1, "1", True), (1, "2", False), (1, "", False), (2, "4", False)]
    objects = [change.new or change.old for change in changes]
    assert {(each.api_version, each.kind) for each in objects if each is not None} == {("v1", "Pod")}
    assert [(change.old is None, change.new is None) for change in changes] == [
        (True, False), (False, False), (False, True), (True, False)
    ]  # fmt: skip


@pytest.mark.parametrize("old", ["pod", "unreadable", "bookmark"])
def test_the_version_of_lines_does_not_go_back(old: str) -> None:
    """An event with an older version may arrive in one piece with newer ones, which were seen all the same."""
    newer = {"type": "MODIFIED", "object": merge(pod("a"), {"metadata": {"resourceVersion": "179"}})}
    metadata = {"name": "odd", "namespace": "default", "resourceVersion": "90"}
    lines: dict[str, dict[str, Any]] = {
        "pod": {"type": "ADDED", "object": merge(pod("b"), {"metadata": metadata})},
        "unreadable": {"type": "ADDED", "object": merge(pod("b"), {"metadata": {**metadata, "generation": "x"}})},
        "bookmark": {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "90"}}},
    }
    both = b"".join(json.dumps(each).encode() + b"\n" for each in (newer, lines[old]))
    assert ObjectSink(PODS, lambda change: None).read_events(both).version == "179"
    assert ClusterSink(Cluster(), "Pod").read_events(both).version == "179"


def test_the_version_of_a_streaming_list_is_that_of_its_last_bookmark() -> None:
    """It may be older than an object in the list, and newer events may follow in one piece with it."""
    end = {"resourceVersion": "90", "annotations": {"k8s.io/initial-events-end": "true"}}
    lines = [
        {"type": "ADDED", "object": merge(pod("a"), {"metadata": {"resourceVersion": "179"}})},
        {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": end}},
        {"type": "ADDED", "object": merge(pod("b"), {"metadata": {"resourceVersion": "91"}})},
    ]
    for count, version in ((2, "90"), (3, "91")):
        data = b"".join(json.dumps(each).encode() + b"\n" for each in lines[:count])
        for sink in (ObjectSink(PODS, lambda change: None), ClusterSink(Cluster(), "Pod")):
            sink.begin()
            read = sink.read_events(data)
            assert (read.version, read.synced) == (version, True)


def test_recreated_object_of_the_same_name_is_a_delete_and_an_add() -> None:
    replaced: list[tuple[KubeObject | None, KubeObject | None]] = []
    sink = ObjectSink(Watch(kind="Pod", api_version="v1", typed=True), lambda c: replaced.append((c.old, c.new)))
    for uid, version in (("1", "10"), ("1", "10"), ("2", "11")):
        created = merge(pod("a"), {"metadata": {"uid": uid, "resourceVersion": version}})
        sink.read_events(json.dumps({"type": "ADDED", "object": created}).encode() + b"\n")
    assert len(replaced) == 2  # one version is told once
    old, new = replaced[1]
    assert old is not None
    assert new is not None
    assert (old.metadata.uid, new.metadata.uid) == ("1", "2")
