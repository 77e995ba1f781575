"""Listing and watching: client-go's tables (``reflector_test.go``, ``reflector_watchlist_test.go``, ``pager_test.go``).

A script answers what the reflector asks; no store, no loop, no socket. What comes of it is what was asked, and which
version the reflector ended with.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from kscale.effects import SECOND, ApiError, Wait
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
    Settle,
    Waited,
)

EXPIRED = ApiError("too old", code=410, reason="Expired")
THROTTLED = ApiError("busy, check again later", code=429, reason="TooManyRequests")
INVALID = ApiError("streaming is not allowed", code=422, reason="Invalid")
TOO_LARGE = ApiError("too large", code=504, reason="Timeout", causes=("ResourceVersionTooLarge",))
INTERNAL = ApiError("etcdserver: no leader", code=500, reason="InternalError")
OTHER = ApiError("dummy error")
REFUSED = "refused"
CLOSED = "closed"
OPENED = "opened"


def page(version: str, more: str = "") -> Listed:
    return Listed(at=0, version=version, continue_=more)


def events(
    count: int, version: str, *, synced: bool = False, error: ApiError | None = None, added: bool = False
) -> Batch:
    return Batch(at=0, events=count, version=version, synced=synced, error=error, only_added=added)


class Run:
    """One reflector, and what became of a script. Each answer to a request comes a second and a bit after the last."""

    def __init__(
        self, script: Sequence[Any], *, version: str = "", rounds: int = 1, takes: int = 1100, **options: Any
    ) -> None:
        self.reflector = Reflector(rng=random.Random(1), **options)
        self.reflector.version = version
        self.now, self.takes = 0, takes * 10**6
        self.script = list(script)
        self.raw_requests: list[Asked] = []
        self.waits: list[Wait] = []
        self.settled: list[str] = []
        self.returned: list[ApiError | None] = []
        self.stopped = False
        for _ in range(rounds):
            self.once()

    def once(self) -> None:
        steps = self.reflector.list_and_watch(self.now)
        try:
            request = next(steps)
            while True:
                answer = self.answer(request)
                if answer is None:
                    self.stopped = True
                    steps.close()
                    return
                request = steps.send(answer)
        except StopIteration as stop:
            self.returned.append(stop.value)

    def answer(self, request: Asked) -> Any:
        match request:
            case Wait(duration=duration):
                self.waits.append(request)
                self.now += duration
                return Waited(at=self.now)
            case Settle(version=version):
                self.settled.append(version)
                return Waited(at=self.now)
            case Close():
                self.raw_requests.append(request)
                return Waited(at=self.now)
            case ListPage() | OpenWatch():
                self.raw_requests.append(request)
        if not self.script:
            return None
        self.now += self.takes
        match self.script.pop(0):
            case ApiError() as error:
                return Failed(at=self.now, error=error)
            case "refused":
                return Failed(at=self.now, error=ApiError("connection refused"), refused=True)
            case "closed":
                return Ended(at=self.now)
            case "opened":
                return Opened(at=self.now)
            case Listed() | Batch() as found:
                return type(found)(**{**{f: getattr(found, f) for f in found.__struct_fields__}, "at": self.now})
            case other:
                raise AssertionError(other)

    @property
    def requests(self) -> list[tuple[str, ...]]:
        """What was asked, in short: ``list VERSION LIMIT CONTINUE``, ``stream VERSION``, ``watch VERSION``."""
        described = []
        for request in self.raw_requests:
            match request:
                case ListPage(version=version, limit=limit, continue_=more):
                    described.append(("list", version, str(limit), more))
                case OpenWatch(version=version, initial=initial):
                    described.append(("stream" if initial else "watch", version))
                case Close():
                    described.append(("close",))
        return described


STREAM, FIRST = ("stream", ""), ("list", "0", "500", "")

# TestWatchList: what happens, what is asked for, the version it settled with and the last one, what it returned.
WATCH_LIST: dict[str, tuple[list[Any], list[tuple[str, ...]], list[str], str]] = {
    "the reflector won't be synced if the bookmark event has not been received": (
        [OPENED, events(1, "1", added=True)], [STREAM], [], "",
    ),
    "returning any other error than apierrors.NewInvalid forces fallback": (
        [OTHER, page("1"), OPENED, events(1, "2")], [STREAM, FIRST, ("watch", "1")], ["1"], "2",
    ),
    "the reflector can fall back to old LIST/WATCH semantics when a server doesn't support streaming": (
        [INVALID, page("1"), OPENED, events(1, "2")], [STREAM, FIRST, ("watch", "1")], ["1"], "2",
    ),
    "prove that the reflector is synced after receiving a bookmark event": (
        [OPENED, events(2, "2", added=True), events(1, "2", synced=True)], [STREAM], ["2"], "2",
    ),
    "check if Updates and Deletes events are propagated during streaming (until the bookmark is received)": (
        [OPENED, events(3, "3"), events(3, "5", synced=True)], [STREAM], ["5"], "5",
    ),
    "checks if the reflector retries 429": (
        [THROTTLED, THROTTLED, OPENED, events(2, "2", synced=True)], [STREAM] * 3, ["2"], "2",
    ),
    "check if stopping a watcher before sync results in creating a new watch-list request": (
        [OPENED, events(1, "1"), CLOSED, OPENED, events(2, "1", synced=True)], [STREAM] * 2, ["1"], "1",
    ),
    "stopping a watcher after synchronization results in creating a new watch request": (
        [OPENED, events(3, "2", synced=True), events(1, "3"), CLOSED, OPENED, events(1, "4")],
        [STREAM, ("watch", "3")], ["2"], "4",
    ),
    "expiring an established watcher results in returning an error from the reflector": (
        [OPENED, events(2, "2", synced=True), events(1, "3"), CLOSED, EXPIRED], [STREAM, ("watch", "3")], ["2"], "3",
    ),
    "prove that the reflector is checking the value of the initialEventsEnd annotation": (
        [OPENED, events(3, "2")], [STREAM], [], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WATCH_LIST)
def test_watch_list(name: str) -> None:
    script, requests, settled, version = WATCH_LIST[name]
    run = Run(script)
    assert run.requests == requests
    assert run.settled == settled
    assert run.reflector.version == version
    assert run.reflector.synced is bool(settled)
    assert run.returned == ([EXPIRED] if name.startswith("expiring") else [])
    assert len(run.waits) == script.count(THROTTLED)


def test_without_streaming() -> None:
    """The reflector uses the old LIST/WATCH semantics if the UseWatchList is turned off."""
    assert Run([page("1"), OPENED], streaming=False).requests == [FIRST, ("watch", "1")]


# isErrorRetriableWithSideEffectsFn
@pytest.mark.parametrize("at", ["open", "read"])
@pytest.mark.parametrize("error", [EXPIRED, TOO_LARGE])
def test_a_stream_from_a_version_that_is_not_there(error: ApiError, at: str) -> None:
    refused = [error] if at == "open" else [OPENED, events(1, "", error=error)]
    run = Run([*refused, OPENED, events(1, "9", synced=True)], version="7")
    assert [each for each in run.requests if each != ("close",)] == [("stream", "7"), ("stream", "")]
    assert (run.reflector.version, run.waits) == ("9", [])
    # And the next time it goes by the version again.
    run.script = [OPENED]
    run.once()
    assert run.requests[-1] == ("stream", "9")


def test_a_stream_to_a_server_that_is_down() -> None:
    run = Run([REFUSED, REFUSED, OPENED])
    assert (run.requests, len(run.waits)) == ([STREAM] * 3, 2)


def test_a_stream_that_ends_with_an_error_is_closed() -> None:
    run = Run([OPENED, events(1, "1", error=INTERNAL), page("1")])
    assert run.requests == [STREAM, ("close",), FIRST, ("watch", "1")]


def test_very_short_stream_falls_back_to_list_and_watch() -> None:
    """A proxy that does not know the way would else be asked again and again without a pause."""
    assert Run([OPENED, CLOSED, page("1")], takes=1).requests == [STREAM, FIRST, ("watch", "1")]
    assert Run([OPENED, CLOSED], takes=600).requests == [STREAM, STREAM]


# TestReflectorResyncWithResourceVersion, TestReflectorNotPaginatingNotConsistentReads
def test_relist_is_not_older_than_the_last_seen_version() -> None:
    run = Run([page("10"), OPENED, events(1, "11", error=EXPIRED), page("12")], streaming=False, rounds=2)
    assert [each for each in run.requests if each[0] == "list"] == [FIRST, ("list", "11", "0", "")]
    assert run.settled == ["10", "12"]
    assert run.returned == [None]


# TestReflectorExpiredExactResourceVersion, TestReflectorFullListIfTooLarge
@pytest.mark.parametrize("error", [EXPIRED, ApiError("gone", code=410, reason="Gone"), TOO_LARGE])
def test_a_list_from_a_version_that_is_not_there(error: ApiError) -> None:
    run = Run([error, page("20"), OPENED], streaming=False, version="10")
    assert run.requests == [("list", "10", "0", ""), ("list", "", "500", ""), ("watch", "20")]
    run.script = [page("21")]
    run.once()
    assert run.requests[-2:] == [("list", "20", "0", ""), ("watch", "21")]


def test_a_list_that_fails_twice() -> None:
    run = Run([EXPIRED, EXPIRED], streaming=False, version="10")
    assert (run.returned, run.reflector.synced, len(run.raw_requests)) == ([EXPIRED], False, 2)
    run.script = [page("30")]
    run.once()
    assert run.requests[2] == ("list", "", "500", "")


# TestReflectorWatchListPageSize, TestListPager_List
def test_list_is_read_page_by_page() -> None:
    run = Run([page("10", "C1"), page("10", "C2"), page("10")], streaming=False, version="10", page_size=4)
    assert run.requests == [
        ("list", "10", "4", ""), ("list", "", "4", "C1"), ("list", "", "4", "C2"), ("watch", "10"),
    ]  # fmt: skip
    assert [request.anew for request in run.raw_requests if isinstance(request, ListPage)] == [True, False, False]


# TestReflectorFullListIfExpired
def test_pages_that_expire() -> None:
    run = Run([page("10", "C1"), EXPIRED, page("11")], streaming=False, page_size=4)
    assert run.requests == [("list", "0", "4", ""), ("list", "", "4", "C1"), ("list", "0", "0", ""), ("watch", "11")]
    assert [request.anew for request in run.raw_requests if isinstance(request, ListPage)] == [True, False, True]
    assert run.settled == ["11"]


def test_pages_that_fail() -> None:
    run = Run([page("10", "C1"), INTERNAL], streaming=False)
    assert (run.returned, run.settled) == ([INTERNAL], [])


# TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled
def test_a_server_that_keeps_nothing_in_memory() -> None:
    run = Run(
        [page("10", "C1"), page("10"), OPENED, events(1, "", error=EXPIRED), page("10", "C1"), page("10")],
        streaming=False,
        rounds=2,
    )
    lists = [each for each in run.requests if each[0] == "list"]
    assert lists == [FIRST, ("list", "", "500", "C1"), ("list", "10", "500", ""), ("list", "", "500", "C1")]


def test_always_page_by_page() -> None:
    script = [page("10", "C1"), page("10"), OPENED, events(1, "11", error=EXPIRED), page("12")]
    run = Run(script, streaming=False, paged=True, rounds=2)
    lists = [each for each in run.requests if each[0] == "list"]
    assert lists == [("list", "", "500", ""), ("list", "", "500", "C1"), ("list", "", "500", "")]
    assert run.reflector.version == "12"


# TestReflectorListAndWatchWithErrors
def test_lists_and_watches_with_errors() -> None:
    failed = ApiError("a list error", code=500)
    watch_error = ApiError("a watch error", code=500)
    run = Run(
        [
            page("1"), OPENED, events(2, "3"), events(0, "", error=OTHER),
            page("3"), OPENED, events(2, "5"), events(0, "", error=OTHER),
            failed,
            page("5"), watch_error,
            page("5"), OPENED, events(1, "6"),
        ],
        streaming=False,
        rounds=5,
    )  # fmt: skip
    assert run.returned == [None, None, failed, watch_error]
    assert [each[1] for each in run.requests if each[0] == "list"] == ["0", "3", "5", "5", "5"]
    assert [each[1] for each in run.requests if each[0] == "watch"] == ["1", "3", "5", "5"]
    assert run.reflector.version == "6"


# TestReflectorListAndWatchInitConnBackoff, TestNewReflectorWithCustomBackoff
def test_back_off() -> None:
    run = Run([page("1"), *[REFUSED] * 8], streaming=False, takes=0)
    assert [wait.duration / SECOND for wait in run.waits] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert {wait.jitter for wait in run.waits} == {1.0}
    assert sum(isinstance(request, ListPage) for request in run.raw_requests) == 1


def test_back_off_starts_anew_every_two_minutes() -> None:
    run = Run([page("1"), *[REFUSED] * 12], streaming=False, takes=0)
    pauses = [wait.duration / SECOND for wait in run.waits]
    assert pauses[:9] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
    assert pauses[9:] == [0.8, 1.6, 3.2]


# TestBackoffOnTooManyRequests
def test_back_off_on_too_many_requests() -> None:
    run = Run([page("1"), THROTTLED, OPENED, events(0, "", error=THROTTLED), OPENED, CLOSED], streaming=False, takes=0)
    assert len(run.waits) == 2
    assert [each[0] for each in run.requests] == ["list", "watch", "watch", "close", "watch"]


# TestNoRelistOnTooManyRequests
def test_no_list_on_too_many_requests() -> None:
    run = Run([page("1"), *[THROTTLED] * 4, OPENED], streaming=False)
    assert [each[0] for each in run.requests] == ["list", *["watch"] * 5]


# TestRetryInternalError ("retries off", which is what informers have)
def test_an_internal_error_ends_the_watch() -> None:
    run = Run([page("1"), OPENED, events(0, "", error=INTERNAL)], streaming=False)
    assert (run.returned, run.reflector.last_error) == ([None], INTERNAL)
    assert run.requests[-1] == ("close",)


def test_a_watch_that_is_refused_ends_it() -> None:
    forbidden = ApiError("no", code=403, reason="Forbidden")
    assert Run([page("1"), forbidden], streaming=False).returned == [forbidden]


# TestReflectorWatchHandler, handleAnyWatch: a very short watch
def test_a_very_short_watch_ends_it() -> None:
    run = Run([page("1"), OPENED, CLOSED], streaming=False, takes=1)
    assert run.returned[0] is not None
    assert "very short watch" in run.returned[0].message
    again = Run([page("1"), OPENED, events(1, "2"), CLOSED], streaming=False, takes=1)
    assert again.requests[-1] == ("watch", "2")
    slow = Run([page("1"), OPENED, CLOSED], streaming=False, takes=600)
    assert slow.requests[-2:] == [("watch", "1"), ("watch", "1")]


# TestReflectorResourceVersionUpdate
def test_versions_of_events() -> None:
    run = Run([page("1"), OPENED, events(1, "10"), events(2, "30"), events(1, ""), events(1, "40")], streaming=False)
    assert run.reflector.version == "40"


@pytest.mark.parametrize("version", ["", "0"])
def test_initial_events_may_arrive_in_any_order(version: str) -> None:
    run = Run([page(version), OPENED, events(2, "7", added=True)], streaming=False)
    assert run.reflector.version == version
    run = Run(
        [page(version), OPENED, events(2, "7", added=True), events(2, "8"), events(1, "9", added=True)], streaming=False
    )
    assert run.reflector.version == "9"


# TestWatchTimeout
def test_how_long_watches_are_to_last() -> None:
    requests = [Run([page("1")], streaming=False).raw_requests[-1]]
    reflector = Reflector(rng=random.Random(2))
    for _ in range(200):
        first = next(reflector.list_and_watch(0))
        requests.append(first)
    seconds = {each.timeout_seconds for each in requests if isinstance(each, OpenWatch)}
    assert min(seconds) >= 300
    assert max(seconds) < 600
    assert len(seconds) > 50


# TestRunUntil
def test_reflector_runs_until_it_is_closed() -> None:
    reflector = Reflector(streaming=False, rng=random.Random(1))
    steps = reflector.run(0)
    requests = [next(steps)]
    for answer in (
        Failed(at=1, error=OTHER),
        Waited(at=2 * SECOND),
        Listed(at=3 * SECOND, version="1"),
        Waited(at=3 * SECOND),
        Opened(at=3 * SECOND),
        Batch(at=4 * SECOND, events=0, error=EXPIRED),
        Waited(at=4 * SECOND),
    ):
        requests.append(steps.send(answer))
        if isinstance(answer, Failed):
            assert (reflector.last_error, reflector.synced) == (OTHER, False)
    assert [type(each) for each in requests] == [ListPage, Wait, ListPage, Settle, OpenWatch, ReadMore, Close, Wait]
    assert reflector.synced


@pytest.mark.parametrize(("error", "last_error"), [(INTERNAL, INTERNAL), (EXPIRED, None)])
def test_the_error_that_ends_a_watch_is_there_during_the_pause(error: ApiError, last_error: ApiError | None) -> None:
    """An informer logs it then. An expired version is nothing to report."""
    reflector = Reflector(streaming=False, rng=random.Random(1))
    steps = reflector.run(0)
    next(steps)
    for answer in (
        Listed(at=SECOND, version="1"),
        Waited(at=SECOND),
        Opened(at=SECOND),
        Batch(at=4 * SECOND, events=0, error=error),
    ):
        steps.send(answer)
    assert isinstance(steps.send(Waited(at=4 * SECOND)), Wait)
    assert reflector.last_error == last_error
    steps.send(Waited(at=5 * SECOND))
    steps.send(Listed(at=6 * SECOND, version="2"))
    steps.send(Waited(at=6 * SECOND))
    assert reflector.last_error is None
