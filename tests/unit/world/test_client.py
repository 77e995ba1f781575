"""What a client sends again, and when: client-go's tables (``with_retry_test.go``, ``request_test.go``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kscale.effects import SECOND
from kscale.world.clock import VirtualClock, run_in_virtual_time
from kscale.world.kubernetes.client import Client, RequestFailedError, error_of, pause_before_retry
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.transport import Answer, Call, ConnectionFailedError, ServerLimits, Stream

T0 = 1_800_000_000 * SECOND
GET, POST = Call(method="GET", path="/x"), Call(method="POST", path="/x", body=b"{}")
OK = Answer(200, {}, b"{}")
RESET, REFUSED, TIMEOUT, OTHER = (
    ConnectionFailedError("broken", kind) for kind in ("reset", "refused", "timeout", "other")
)


def after(code: int, seconds: str | None) -> Answer:
    return Answer(code, {} if seconds is None else {"retry-after": seconds}, b"")


# TestIsNextRetry
@pytest.mark.parametrize(
    ("response", "attempt", "most", "pause"),
    [
        (after(500, "1"), 1, 0, None),
        (RESET, 1, 3, 1),
        (after(429, "2"), 1, 3, 2),
        (after(503, "3"), 1, 3, 3),
        (after(429, None), 1, 1, None),
        (RESET, 3, 3, 1),
        (RESET, 4, 3, None),
    ],
)
def test_is_next_retry(response: Any, attempt: int, most: int, pause: int | None) -> None:
    assert pause_before_retry(GET, response, attempt, max_retries=most) == pause


VERBS = ("GET", "POST", "PUT", "DELETE", "PATCH")


# TestRetryableConditions: a plain call, and a watch (of which there is only GET)
@pytest.mark.parametrize(
    ("verbs", "response", "call", "watch"),
    [
        (VERBS, after(429, "0"), True, True),
        (VERBS, after(503, "0"), True, True),
        (VERBS, after(500, None), False, False),
        (VERBS, after(429, None), False, False),
        (("GET",), RESET, True, True),
        (("POST", "PUT", "DELETE", "PATCH"), RESET, False, False),
        (VERBS, REFUSED, False, False),
        (("GET",), TIMEOUT, False, True),
        (("POST",), TIMEOUT, False, False),
        (VERBS, OTHER, False, False),
        (VERBS, after(200, "0"), False, False),
        (VERBS, after(301, "0"), False, False),
        (VERBS, after(429, "soon"), False, False),
    ],
)
def test_retryable_conditions(verbs: Sequence[str], response: Any, call: bool, watch: bool) -> None:
    for verb in verbs:
        get_call = Call(method=verb, path="/")
        assert (pause_before_retry(get_call, response, 1, max_retries=2) is not None) is call
        assert (pause_before_retry(get_call, response, 1, max_retries=2, watch=True) is not None) is watch


class FakeStream:
    def __init__(self, answer: Answer, then: Exception | None = None) -> None:
        self.status, self.headers, self._body, self._then = answer.status, answer.headers, answer.body, then

    async def read_some(self) -> bytes:
        result, self._body = self._body, b""
        if not result and self._then is not None:
            raise self._then
        return result

    async def read(self) -> bytes:
        return self._body


class Script:
    """Answers what it is told to, in order; the last again and again."""

    def __init__(self, clock: VirtualClock, *responses: Any) -> None:
        self.clock, self.responses = clock, list(responses)
        self.sent: list[float] = []
        self.open_streams = 0

    def next(self) -> Any:
        self.sent.append((self.clock.now() - T0) / SECOND)
        result = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(result, Exception):
            raise result
        return result

    async def call(self, call: Call) -> Answer:
        result: Answer = self.next()
        return result

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream]:
        result = self.next()
        try:
            yield result if isinstance(result, FakeStream) else FakeStream(result)
        finally:
            self.open_streams += 1

    async def close(self) -> None:
        self.open_streams = -1


def run_calls(*responses: Any, call: Call = GET, times: int = 1, **options: Any) -> tuple[list[Any], list[float]]:
    """What came of calls made side by side, and when requests were sent."""

    async def main(clock: VirtualClock) -> tuple[list[Any], list[float]]:
        script = Script(clock, *responses)
        client = Client(script, clock, **options)
        results = await asyncio.gather(*(client.call(call) for _ in range(times)), return_exceptions=True)
        await client.close()
        assert script.open_streams == -1
        return list(results), script.sent

    return run_in_virtual_time(main, now=T0)


# TestCheckRetryHandles429And5xx, TestConnectionResetByPeerIsRetried, TestRequestMaxRetries
@pytest.mark.parametrize(
    ("responses", "sent"),
    [
        ([after(429, "1"), after(503, "4"), OK], [0.0, 1.0, 5.0]),
        ([RESET, RESET, OK], [0.0, 1.0, 2.0]),
        ([OK], [0.0]),
        ([Answer(201, {}, b"")], [0.0]),
    ],
)
def test_retried_request_succeeds(responses: list[Any], sent: list[float]) -> None:
    results, times = run_calls(*responses)
    assert (results, times) == ([responses[-1]], sent)


def test_client_gives_up_after_max_retries() -> None:
    (error,), sent = run_calls(after(429, "1"), call=POST)
    assert isinstance(error, RequestFailedError)
    assert (error.error.code, error.error.reason, error.error.retry_after) == (429, "TooManyRequests", SECOND)
    assert len(sent) == 11
    assert len(run_calls(after(429, "1"), max_retries=0)[1]) == 1


@pytest.mark.parametrize(("response", "refused"), [(REFUSED, True), (RESET, False), (OTHER, False)])
def test_connections_that_break(response: ConnectionFailedError, refused: bool) -> None:
    (error,), sent = run_calls(response, call=POST)
    assert isinstance(error, RequestFailedError)
    assert (error.error.code, error.error.reason, error.error.message) == (0, "", "broken")
    assert error.refused is refused
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, [0.0] * 10 + [0.2, 0.4]),
        ({"qps": 50, "burst": 1}, [round(0.02 * i, 9) for i in range(12)]),
        ({"qps": -1}, [0.0] * 12),
    ],
)
def test_rate_limit(options: Mapping[str, Any], sent: list[float]) -> None:
    assert run_calls(OK, times=12, **options)[1] == pytest.approx(sent, abs=1e-6)


def test_retry_waits_for_the_rate_limit() -> None:
    _, sent = run_calls(after(429, "0"), OK, qps=0.5, burst=1)
    assert sent == pytest.approx([0.0, 2.0])


def test_client_with_own_rate_limit_does_not_wait_for_others() -> None:
    async def main(clock: VirtualClock) -> list[float]:
        script = Script(clock, OK)
        client = Client(script, clock, qps=0.1, burst=1)
        apart = client.with_own_rate_limit()
        for each in (client, apart, client, apart):
            await each.call(GET)
        return script.sent

    assert run_in_virtual_time(main, now=T0) == pytest.approx([0.0, 0.0, 10.0, 10.0])


async def all_of(stream: Stream) -> list[bytes]:
    result = []
    while some := await stream.read_some():
        result.append(some)
    return result


def watched(*responses: Any) -> tuple[Any, list[float], int]:
    async def main(clock: VirtualClock) -> tuple[Any, list[float], int]:
        script = Script(clock, *responses)
        client = Client(script, clock, qps=0.001, burst=1)
        outcome: Any
        try:
            async with client.watch(GET) as stream:
                outcome = None if stream is None else await all_of(stream)
        except (RequestFailedError, ConnectionFailedError) as error:
            outcome = error
        return outcome, script.sent, script.open_streams

    return run_in_virtual_time(main, now=T0)


# TestRequestWatch
def test_watch_is_retried_until_it_opens() -> None:
    assert watched(FakeStream(Answer(200, {}, b"abc"))) == ([b"abc"], [0.0], 1)
    outcome, sent, open_streams = watched(after(429, "2"), TIMEOUT, RESET, FakeStream(Answer(200, {}, b"abc")))
    assert (outcome, sent, open_streams) == ([b"abc"], [0.0, 2.0, 3.0, 4.0], 2)
    outcome, sent, open_streams = watched(Answer(403, {}, b"no"))
    assert (outcome.error.reason, len(sent), open_streams) == ("Forbidden", 1, 1)
    outcome, sent, _ = watched(REFUSED)
    assert (outcome.refused, len(sent)) == (True, 1)


def test_watch_with_broken_connection_before_the_response_is_empty() -> None:
    outcome, sent, _ = watched(RESET)
    assert (outcome, len(sent)) == (None, 11)


def test_error_while_reading_a_watch_is_raised_to_the_reader() -> None:
    outcome, sent, open_streams = watched(FakeStream(Answer(200, {}, b"abc"), then=RESET))
    assert (outcome, len(sent), open_streams) == (RESET, 1, 1)


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("5", 5), ("+5", 5), ("-5", 0), ("0", 0), ("--1", None), ("+-5", None), ("9" * 400, None), ("9" * 5000, None),
        ("", None), ("1.5", None), ("soon", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("31", 30),
        ("9223372036854775807", 30), ("-9223372036854775808", 0),
    ],
)  # fmt: skip
def test_a_retry_after_of_any_kind_is_bounded(header: str, pause: int | None) -> None:
    assert pause_before_retry(GET, after(429, header), 1) == pause
    answer = error_of(GET, after(503, header))
    assert (answer.code, answer.reason) == (503, "ServiceUnavailable")
    assert pause_before_retry(GET, after(429, "31"), 1, limits=ServerLimits(retry_seconds=60)) == 31


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "1e3", '"5"', "{}", "-2147483649"])
def test_status_with_invalid_numbers_is_ignored(number: str) -> None:
    """As Go cannot decode it, the HTTP status says what happened."""
    for body in (
        f'{{"kind":"Status","code":{number}}}',
        f'{{"kind":"Status","details":{{"retryAfterSeconds":{number}}}}}',
    ):
        error = error_of(GET, Answer(503, {}, body.encode()))
        assert (error.code, error.reason, error.retry_after) == (503, "ServiceUnavailable", None)


def test_failures_are_counted_by_reason() -> None:
    reasons: list[str] = []

    async def main(clock: VirtualClock) -> None:
        client = Client(Script(clock, after(429, "1"), RESET, OK), clock, qps=-1)
        client.observe = lambda observation: reasons.append(observation.labels["reason"])
        await client.call(GET)

    run_in_virtual_time(main, now=T0)
    assert reasons == ["throttled", "reset"]


@pytest.mark.parametrize(
    "apis",
    [
        "[]", "5", "null", '"x"', "[" * 2000, '{"groups":5}', '{"groups":[5]}', '{"groups":[{"versions":[5]}]}',
        '{"groups":[{"versions":[{"groupVersion":5}]}]}', '{"groups":[{"versions":[{"groupVersion":"a/b/c"}]}]}',
        '{"groups":[{"preferredVersion":[]}]}', '{"groups":' + '[{"a":' * 1500 + "1" + "}]" * 1500 + "}", "<html>", "",
        '{"kind":"APIGroupDiscoveryList","items":5}',
        '{"kind":"APIGroupDiscoveryList","items":[{"versions":[{"resources":5}]}]}',
        '{"kind":5,"resources":[{"name":5}]}', '{"groupVersion":"a/b/c/d","resources":[]}',
    ],
)  # fmt: skip
def test_discovery_of_any_shape_is_a_failed_request(apis: str) -> None:
    async def main(clock: VirtualClock) -> None:
        client = Client(Script(clock, *[Answer(200, {}, apis.encode())] * 8), clock, qps=-1)
        resources = Resources(client)
        for ask in (
            lambda: resources.find_name("widgets.example.org"),
            lambda: resources.find_kind("Widget", "example.org/v1"),
            resources.mapper,
            lambda: resources.serves("example.org/v1"),
        ):
            with suppress(RequestFailedError):
                await ask()

    run_in_virtual_time(main, now=T0)
