"""Prometheus over HTTP: range queries in parts that a server accepts, and container usage (extra ``[kube]``).

A server rejects more than 11,000 points per series in one query (``web/api/v1: exceeded maximum resolution``). Further
limits on samples or bytes become known only when it rejects a query.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.effects import ApiError, Moment, QueryPrometheus
from kscale.errors import InputError, Problem
from kscale.imports import library
from kscale.objects.api.meta import ApiStruct, shorten
from kscale.objects.go_numbers import parse_int64
from kscale.series import Series
from kscale.series.columns import SeriesKey
from kscale.series.prometheus import read_prometheus, read_warnings
from kscale.series.usage_reader import UsageBatch, usage_of
from kscale.world.kubernetes.transport import connection_failure
from kscale.world.rpc import create_client_context
from kscale.world.server_data import UnreadableError, read_json

__all__ = [
    "MOST_LABELS",
    "MOST_POINTS",
    "RESPONSE_BYTES",
    "ContainerUsage",
    "Prometheus",
    "RangeLimits",
    "RangeQueries",
    "Traffic",
    "series_of",
]


_NANO: Final = 10**9
_LONGEST_TEXT: Final = 2048
RESPONSE_BYTES: Final = 512 << 20
MOST_LABELS: Final = 5_000_000
"""Limit on the labels of a response, where a series counts as two. Each takes up to 25 times its bytes in memory."""


class _Refusal(ApiStruct):
    error_type: str = ""
    error: str = ""


class Prometheus:
    """Client that answers :class:`~kscale.effects.QueryPrometheus` (:class:`kscale.world.protocols.History`).

    - ``address``: URL with http or https. Any other raises InputError, without the URL, which may contain a password.
    - ``authorization``: returns the Authorization header of each request (empty: none). ``headers``: further headers.
    - ``insecure``: the server's certificate is not verified.
    - ``timeout``: seconds per request (None: the caller limits the time).
    - ``response_bytes``: maximum size of a decompressed response, unless the request sets one.

    Redirects are not followed: the credentials are for this server.

    Thanos, Mimir (path ``/prometheus``; the tenant is the header ``X-Scope-OrgID``) and VictoriaMetrics have the same
    API.
    """

    __slots__ = ("_address", "_authorization", "_headers", "_http", "_response_bytes", "_timeout", "_tls")

    def __init__(
        self,
        address: str,
        *,
        authorization: Callable[[], str] = lambda: "",
        headers: Mapping[str, str] | None = None,
        insecure: bool = False,
        timeout: float | None = 300.0,
        response_bytes: int = RESPONSE_BYTES,
    ) -> None:
        aiohttp = library("aiohttp", "asking Prometheus")
        self._http: Any = aiohttp
        self._address = _split_address(address)
        self._authorization = authorization
        self._headers = dict(headers or {})
        self._response_bytes = response_bytes
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._tls = create_client_context() if self._address.scheme == "https" and not insecure else False

    @property
    def server(self) -> str:
        """Return host and port of the server, without credentials of the URL."""
        return self._address.netloc.rpartition("@")[2]

    @property
    def url(self) -> str:
        """Return the URL of the server, without credentials and without a query, which may contain a token."""
        return self._address._replace(netloc=self.server, query="").geturl()

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        """Return the raw response to a query, or the error. Raises InputError if ``authorization`` does."""
        parameters, path = {"query": question.query}, "query"
        if question.start is None:
            parameters["time"] = _seconds(question.end)
        else:
            path = "query_range"
            parameters |= {
                "start": _seconds(question.start),
                "end": _seconds(question.end),
                "step": _seconds(question.step),
            }
        try:
            header = self._authorization()
            headers = {**self._headers, **({"Authorization": header} if header else {})}
            async with self._http.ClientSession(headers=headers, timeout=self._timeout) as session:
                url = self._address._replace(path=f"{self._address.path}/api/v1/{path}").geturl()
                async with session.post(url, data=parameters, ssl=self._tls, allow_redirects=False) as answer:
                    limit = self._response_bytes if question.most_bytes is None else question.most_bytes
                    body = await _read(answer.content, limit)
                    if body is None:
                        return ApiError(f"it answers more than the {limit:,} bytes allowed")
                    if answer.status // 100 != 2:
                        return _refusal(answer.status, body)
                    if body.count(b":") > MOST_LABELS:
                        return ApiError(f"it answers more than the {MOST_LABELS:,} labels allowed")
                    return body
        except (self._http.InvalidURL, UnicodeError):  # the exception text is the URL with the password
            return ApiError("its address is not a valid URL")
        except self._http.ClientResponseError as error:  # its text is followed by the URL
            return ApiError(shorten(error.message, _LONGEST_TEXT))
        except (self._http.ClientError, OSError, TimeoutError) as error:
            is_plain = isinstance(error, self._http.ClientConnectorError)
            if is_plain and not isinstance(error, self._http.ClientSSLError):
                return ApiError(shorten(connection_failure(error), _LONGEST_TEXT))
            return ApiError(shorten(str(error) or type(error).__name__, _LONGEST_TEXT))
        except InputError:
            raise
        except ValueError:  # the exception text may contain a header
            return ApiError("the request cannot be written: a header has characters that are not allowed")


async def _read(content: Any, most: int) -> bytes | None:
    """Return the whole body, or None if it is longer than ``most`` bytes."""
    body = bytearray()
    async for part in content.iter_any():
        body += part
        if len(body) > most:
            return None
    return bytes(body)


def _split_address(address: str) -> SplitResult:
    """Split the URL of a server, without its fragment and slashes at its end.

    Raises InputError without the URL, which may contain a password.
    """
    try:
        parts = urlsplit(address)
        is_http = parts.scheme in ("http", "https")
    except ValueError:  # unbalanced brackets or invalid characters in the host
        is_http = False
    if not is_http:
        raise InputError("the address of Prometheus is not a URL that begins with http:// or https://")
    return parts._replace(path=parts.path.rstrip("/"), fragment="")


def _refusal(code: int, body: bytes) -> ApiError:
    """Build the error of a response with this status code, with Prometheus' own error text if there is one."""
    try:
        refusal = read_json(body, _Refusal)
    except UnreadableError:
        refusal = _Refusal()
    text = f"{refusal.error_type}: {refusal.error}" if refusal.error else f"server answered {code}"
    if code // 100 == 3:
        text = f"server answered {code}, a redirect, which is not followed"
    return ApiError(shorten(text, _LONGEST_TEXT), code)


def _seconds(time: Moment) -> str:
    """Format a time or duration in nanoseconds as decimal seconds."""
    seconds, nanoseconds = divmod(time, _NANO)
    return f"{seconds}.{nanoseconds:09d}".rstrip("0").rstrip(".") if nanoseconds else str(seconds)


MOST_POINTS: Final = 11_000
_TOO_MUCH: Final = (413, 422)
"""Status codes of Prometheus, Thanos, Mimir and VictoriaMetrics for a query that is too large."""
_BUSY: Final = (429, 502, 503, 504)
_PAUSES: Final = (1.0, 4.0, 16.0)

Ask = Callable[[QueryPrometheus], Awaitable["bytes | ApiError"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLimits:
    """Limits of range queries.

    ``concurrency``: concurrent requests. ``points``: points per series in a response. ``total_bytes``: size of all
    responses together.
    """

    concurrency: int = 4
    points: int = MOST_POINTS
    total_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        for name in ("concurrency", "points", "total_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)} is less than 1")


@dataclass(slots=True)
class Traffic:
    """Statistics of all requests.

    ``queries``: their number, including rejected ones. ``received``: bytes of the responses. ``warnings``: distinct
    warnings of responses (Thanos and Mimir warn that a response is partial), the first 100 of them.
    """

    queries: int = 0
    received: int = 0
    warnings: list[str] = field(default_factory=list)


_MOST_WARNINGS: Final = 100
"""Distinct warnings of all responses that are reported."""


class _Warned(ApiStruct):
    warnings: msgspec.Raw = msgspec.Raw()


class RangeQueries:
    """Runs range queries in parts; responses come in the order of queries and of time.

    A part that is too large for the server is halved, down to a single point. If the server is busy, a request is
    retried after 1, 4 and 16 seconds. ``ask`` sends a query (:class:`~kscale.world.prometheus.Prometheus`),
    ``sleep`` waits, ``source`` names the server in errors.
    """

    def __init__(
        self,
        ask: Ask,
        limits: RangeLimits | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        source: str = "Prometheus",
    ) -> None:
        self._ask = ask
        self.source = source
        self._limits = limits or RangeLimits()
        self._sleep = sleep
        self.traffic = Traffic()

    async def query_instant(self, question: QueryPrometheus) -> bytes:
        """Return the response to an instant query, with retries.

        Raises InputError with the server's message if it fails.
        """
        response = await self._query_with_retries(question)
        if isinstance(response, ApiError):
            raise self._no_answer(response)
        return response

    async def answers(
        self, questions: Iterable[QueryPrometheus], points: int = MOST_POINTS
    ) -> AsyncIterator[tuple[QueryPrometheus, bytes]]:
        """Yield (query, raw response) for each part of the queries, with at most ``points`` points per series.

        Raises InputError with the server's message if a part fails, and if all responses together are too large.
        """
        waiting = (
            part for question in questions for part in _split_range_query(question, min(points, self._limits.points))
        )
        under_way: deque[asyncio.Task[list[tuple[QueryPrometheus, bytes]]]] = deque()
        try:
            while True:
                for part in waiting:
                    under_way.append(asyncio.create_task(self._query_in_parts(part)))
                    if len(under_way) >= self._limits.concurrency:
                        break
                if not under_way:
                    return
                for result in await under_way.popleft():
                    yield result
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _query_in_parts(self, part: QueryPrometheus) -> list[tuple[QueryPrometheus, bytes]]:
        """Return (query, response) of a part, or of its halves if the server rejects it as too large.

        Raises InputError if it fails for another reason.
        """
        response = await self._query_with_retries(part)
        if isinstance(response, bytes):
            return [(part, response)]
        halves = list(_split_range_query(part, (_points(part) + 1) // 2))
        if response.code not in _TOO_MUCH or len(halves) < 2:
            raise self._no_answer(response)
        return [answer for half in halves for answer in await self._query_in_parts(half)]

    async def _query_with_retries(self, part: QueryPrometheus) -> bytes | ApiError:
        """Return the response to the query ``part``, or the error of the last attempt.

        Only a busy server is asked again.
        """
        response = await self._query_within_limits(part)
        for pause in _PAUSES:
            if isinstance(response, bytes) or response.code not in _BUSY:
                break
            await self._sleep(pause)
            response = await self._query_within_limits(part)
        return response

    async def _query_within_limits(self, part: QueryPrometheus) -> bytes | ApiError:
        """Send the query ``part``, update the statistics, and return the response or the error.

        Raises InputError if all responses together are too large.
        """
        self.traffic.queries += 1
        response = await self._ask(part)
        if isinstance(response, bytes):
            self.traffic.received += len(response)
            if self.traffic.received > self._limits.total_bytes:
                text = f"Prometheus has answered more than the {self._limits.total_bytes:,} bytes allowed"
                raise InputError(Problem(text, self.source))
            for text in _warnings(response):
                if len(self.traffic.warnings) < _MOST_WARNINGS and text not in self.traffic.warnings:
                    self.traffic.warnings.append(text)
        return response

    def _no_answer(self, error: ApiError) -> InputError:
        """Build the InputError of a failed query."""
        return InputError(Problem(f"Prometheus does not answer: {error.message}", self.source))


def _warnings(answer: bytes) -> list[str]:
    """Return the warnings of a response; empty if it cannot be read."""
    if b'"warnings"' not in answer:  # much cheaper than decoding every response
        return []
    try:
        return read_warnings(read_json(answer, _Warned).warnings)
    except InputError:  # the reader of the response reports the error
        return []


def _points(question: QueryPrometheus) -> int:
    """Return the number of points of a range query per series."""
    assert question.start is not None, "a query at one moment has no parts"
    return (question.end - question.start) // question.step + 1


def _split_range_query(question: QueryPrometheus, most: int) -> Iterator[QueryPrometheus]:
    """Split a range query into parts of at most ``most`` points per series. Together they cover each moment once."""
    assert question.start is not None, "a query at one moment has no parts"
    span = question.step * most
    for start in range(question.start, question.end + 1, span):
        last = min(start + span - question.step, question.end)
        yield replace(question, start=start, end=last)


async def series_of(queries: RangeQueries, question: QueryPrometheus) -> Series:
    """Run a range query and return its series. Series with equal labels in several parts are joined.

    Raises InputError if the server rejects the query or a value is not a number; the query has to exclude such values.
    """
    numbers: dict[frozenset[tuple[str, str]], int] = {}
    keys: list[SeriesKey] = []
    labels: list[dict[str, str]] = []
    rows: list[np.ndarray] = [np.zeros(0, np.int32)]
    times: list[np.ndarray] = [np.zeros(0, np.int64)]
    values: list[np.ndarray] = [np.zeros(0)]
    async for _, answer in queries.answers([question]):
        part = read_prometheus(answer, source=f"{queries.source}: {question.query}")
        of_all = np.zeros(len(part.keys), dtype=np.int32)
        for i, (key, mine) in enumerate(zip(part.keys, part.labels, strict=True)):
            of_all[i] = numbers.setdefault(frozenset(mine.items()), len(numbers))
            if of_all[i] == len(keys):
                keys.append(key)
                labels.append(dict(mine))
        rows.append(of_all[part.series])
        times.append(part.time)
        values.append(part.value)
    return Series.of(
        keys, np.concatenate(rows), np.concatenate(times), np.concatenate(values), labels=labels, source=question.query
    )


_SAMPLES: Final = 500_000
"""Maximum samples per response: about ten megabytes."""
_CPU: Final = "rate(container_cpu_usage_seconds_total{{{0}}}[{1}])"
_MEMORY: Final = "container_memory_working_set_bytes{{{0}}}"
_OF_A_CONTAINER: Final = "namespace,pod,container"
_SECOND: Final = 10**9


class _Sample(ApiStruct):
    value: tuple[float, str]


class _Vector(ApiStruct):
    result: list[_Sample] = msgspec.field(default_factory=list)


class _Count(ApiStruct):
    data: _Vector = msgspec.field(default_factory=_Vector)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUsage:
    """Selection of container usage.

    Selects containers of ``namespaces`` (none: all) whose series have all ``labels`` (pairs of name and value), every
    ``step`` nanoseconds from ``start`` to ``end``.

    Of duplicate series (two Prometheus servers for the same targets, a restarted container) the highest value counts.
    CPU is the mean of a step, or of four minutes if the step is shorter.
    """

    start: Moment
    end: Moment
    step: int
    namespaces: Sequence[str] = ()
    labels: Sequence[tuple[str, str]] = ()

    def questions(self) -> dict[str, QueryPrometheus]:
        """Return the queries by resource (``cpu``, ``memory``). They exclude NaN and negative values.

        The first moment is a whole number of steps before the last, not before ``start``.
        """
        matchers = [
            'container!=""',
            'container!="POD"',
            *(f"{name}={_quote_string(value)}" for name, value in self.labels),
        ]
        if self.namespaces:
            any_of = "|".join(map(_escape_regex, self.namespaces))
            matchers.append(f"namespace=~{_quote_string(any_of)}")
        chosen = ",".join(matchers)
        window = f"{max(self.step // _SECOND, 240)}s"
        first = self.end - (self.end - self.start) // self.step * self.step
        return {
            resource: QueryPrometheus(
                query=f"max by ({_OF_A_CONTAINER}) ({query}) >= 0", start=first, end=self.end, step=self.step
            )
            for resource, query in (("cpu", _CPU.format(chosen, window)), ("memory", _MEMORY.format(chosen)))
        }

    async def batches(self, queries: RangeQueries) -> AsyncIterator[UsageBatch]:
        """Yield batches of usage, CPU first and then memory, each in the order of time.

        Raises InputError if the server rejects a query or its response is invalid.
        """
        questions = self.questions()
        series = await _series_of(queries, questions["memory"])
        memory = questions["memory"].query
        async for part, answer in queries.answers(questions.values(), max(1, _SAMPLES // max(1, series))):
            series_of_part = read_prometheus(answer, source=queries.source)
            for batch in usage_of(series_of_part, np.full(len(series_of_part.keys), part.query == memory)):
                yield batch


async def _series_of(queries: RangeQueries, question: QueryPrometheus) -> int:
    """Return the number of series at the end of a query's time range; 0 if there are none.

    Raises InputError if the query fails.
    """
    response = await queries.query_instant(QueryPrometheus(query=f"count({question.query})", end=question.end))
    try:
        result = read_json(response, _Count).data.result
    except UnreadableError as error:
        raise InputError(Problem(f"not a Prometheus answer: {error}", queries.source)) from None
    if not result:
        return 0
    count = parse_int64(result[0].value[1])
    if count is None:
        text = f"not a Prometheus answer: {shorten(result[0].value[1])} is no count"
        raise InputError(Problem(text, queries.source))
    return count


def _quote_string(text: str) -> str:
    """Return the text as a quoted string of PromQL."""
    return msgspec.json.encode(text).decode()


def _escape_regex(text: str) -> str:
    """Return a regular expression that matches ``text`` literally."""
    return "".join(letter if letter.isalnum() or letter in "-_" else f"\\{letter}" for letter in text)
