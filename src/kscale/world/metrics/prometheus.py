"""Prometheus over HTTP: range queries in parts that a server answers, and container usage (extra ``[kube]``).

A server refuses more than 11,000 points of a series at once (``web/api/v1: exceeded maximum resolution``), and all have
limits on samples or bytes of their own, which are told by refusing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale.effects import ApiError, Moment, QueryPrometheus
from kscale.errors import InputError
from kscale.libraries import library
from kscale.objects.api.meta import ApiStruct, shortened
from kscale.series import Series
from kscale.series.columns import SeriesKey
from kscale.series.prometheus import read_prometheus
from kscale.series.usage_reader import UsageBatch, usage_of
from kscale.world.server_data import UnreadableError, integer, read_json

__all__ = [
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


class _Refusal(ApiStruct):
    error_type: str = ""
    error: str = ""


class Prometheus:
    """Answers :class:`~kscale.effects.QueryPrometheus` (:class:`kscale.world.protocols.History`).

    ``address``: its URL, of http or https (another raises InputError, which does not tell it: there may be a password
    in it); ``authorization``: the header of that name, asked for each time (empty: none); ``insecure``:
    its certificate is not looked at; ``headers``: others of each question; ``timeout``: seconds that a question may
    take (None: who asks says when it has been enough); ``response_bytes``: what is taken of a response, decompressed,
    unless the question says how much.

    Thanos, Mimir (at ``/prometheus``; the tenant is a header, ``X-Scope-OrgID``) and VictoriaMetrics answer alike.
    """

    __slots__ = ("_address", "_authorization", "_headers", "_http", "_insecure", "_response_bytes", "_timeout")

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
        if not _is_http(address):
            raise InputError("the address of Prometheus is not a URL that begins with http:// or https://")
        self._http: Any = aiohttp
        self._address = address.rstrip("/")
        self._authorization = authorization
        self._headers = dict(headers or {})
        self._insecure = insecure
        self._response_bytes = response_bytes
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    @property
    def server(self) -> str:
        """Whom it asks: host and port, without what the URL may say of who asks."""
        return urlsplit(self._address).netloc.rpartition("@")[2]

    async def query(self, question: QueryPrometheus) -> bytes | ApiError:
        """The answer as it is."""
        given, path = {"query": question.query}, "query"
        if question.start is None:
            given["time"] = _seconds(question.end)
        else:
            path = "query_range"
            given |= {"start": _seconds(question.start), "end": _seconds(question.end), "step": _seconds(question.step)}
        try:
            header = self._authorization()
            headers = {**self._headers, **({"Authorization": header} if header else {})}
            async with self._http.ClientSession(headers=headers, timeout=self._timeout) as session:
                url = f"{self._address}/api/v1/{path}"
                async with session.post(url, data=given, ssl=not self._insecure) as answer:
                    limit = self._response_bytes if question.most_bytes is None else question.most_bytes
                    body = await _read(answer.content, limit)
                    if body is None:
                        return ApiError(f"it answers more than the {limit:,} bytes allowed")
                    return body if answer.status // 100 == 2 else _refusal(answer.status, body)
        except self._http.InvalidURL:  # whose text is the URL, with the password in it
            return ApiError("its address is not a URL that can be asked")
        except (self._http.ClientError, OSError, TimeoutError) as error:
            return ApiError(str(error) or type(error).__name__)


async def _read(content: Any, most: int) -> bytes | None:
    """The whole; None: it is longer."""
    body = bytearray()
    async for part in content.iter_any():
        body += part
        if len(body) > most:
            return None
    return bytes(body)


def _is_http(address: str) -> bool:
    try:
        return urlsplit(address).scheme in ("http", "https")
    except ValueError:  # a bracket too many, or characters that no host has
        return False


def _refusal(code: int, body: bytes) -> ApiError:
    try:
        refusal = read_json(body, _Refusal)
    except UnreadableError:
        refusal = _Refusal()
    text = f"{refusal.error_type}: {refusal.error}" if refusal.error else f"server answered {code}"
    return ApiError(shortened(text, _LONGEST_TEXT), code)


def _seconds(time: Moment) -> str:
    whole, rest = divmod(time, _NANO)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)


MOST_POINTS: Final = 11_000
_TOO_MUCH: Final = (413, 422)
"""What was asked for is more than the server gives: so say Prometheus and Thanos, Mimir and VictoriaMetrics."""
_BUSY: Final = (429, 502, 503, 504)
_PAUSES: Final = (1.0, 4.0, 16.0)

Ask = Callable[[QueryPrometheus], Awaitable["bytes | ApiError"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLimits:
    """``concurrency``: questions under way at a time; ``points`` of a series in an answer; ``total_bytes`` of all
    answers together."""

    concurrency: int = 4
    points: int = MOST_POINTS
    total_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        for name in ("concurrency", "points", "total_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)} is less than 1")


@dataclass(slots=True)
class Traffic:
    """What went over the wire so far: ``queries`` asked (those that were refused included), ``received`` bytes,
    ``warnings`` in answers, each once: Thanos and Mimir say there that an answer is a part of the whole."""

    queries: int = 0
    received: int = 0
    warnings: list[str] = field(default_factory=list)


class _Warned(ApiStruct):
    warnings: list[str] | None = None


class RangeQueries:
    """Asks range queries, part by part; the answers come in the order of time, and of the questions.

    A part that is too much for the server is halved, down to a single point; a server that is busy is asked again after
    a second, four, sixteen. ``ask``: a client (:class:`~kscale.world.metrics.prometheus.Prometheus`), ``sleep``: how it
    waits.
    """

    def __init__(
        self,
        ask: Ask,
        limits: RangeLimits | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._ask = ask
        self._limits = limits or RangeLimits()
        self._sleep = sleep
        self.traffic = Traffic()

    async def at_one_moment(self, question: QueryPrometheus) -> bytes:
        """The answer to a question without a beginning. Raises InputError with what the server says."""
        found = await self._patiently(question)
        if isinstance(found, ApiError):
            raise _no_answer(found)
        return found

    async def answers(
        self, questions: Iterable[QueryPrometheus], points: int = MOST_POINTS
    ) -> AsyncIterator[tuple[QueryPrometheus, bytes]]:
        """Each part that was asked, with its answer as it is; ``points`` of a series in one. Raises InputError with
        what the server says."""
        waiting = (part for question in questions for part in _parts(question, min(points, self._limits.points)))
        under_way: deque[asyncio.Task[list[tuple[QueryPrometheus, bytes]]]] = deque()
        try:
            while True:
                for part in waiting:
                    under_way.append(asyncio.create_task(self._whole(part)))
                    if len(under_way) >= self._limits.concurrency:
                        break
                if not under_way:
                    return
                for found in await under_way.popleft():
                    yield found
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _whole(self, part: QueryPrometheus) -> list[tuple[QueryPrometheus, bytes]]:
        """The answer to a part, or those to its halves."""
        found = await self._patiently(part)
        if isinstance(found, bytes):
            return [(part, found)]
        halves = list(_parts(part, (_points(part) + 1) // 2))
        if found.code not in _TOO_MUCH or len(halves) < 2:
            raise _no_answer(found)
        return [answer for half in halves for answer in await self._whole(half)]

    async def _patiently(self, part: QueryPrometheus) -> bytes | ApiError:
        found = await self._counted(part)
        for pause in _PAUSES:
            if isinstance(found, bytes) or found.code not in _BUSY:
                break
            await self._sleep(pause)
            found = await self._counted(part)
        return found

    async def _counted(self, part: QueryPrometheus) -> bytes | ApiError:
        self.traffic.queries += 1
        found = await self._ask(part)
        if isinstance(found, bytes):
            self.traffic.received += len(found)
            if self.traffic.received > self._limits.total_bytes:
                raise InputError(f"Prometheus has answered more than the {self._limits.total_bytes:,} bytes allowed")
            self.traffic.warnings += [text for text in _warnings(found) if text not in self.traffic.warnings]
        return found


def _warnings(answer: bytes) -> list[str]:
    if b'"warnings"' not in answer:  # far cheaper than to decode each
        return []
    try:
        return list(dict.fromkeys(read_json(answer, _Warned).warnings or ()))
    except UnreadableError:  # whoever reads the answer says what is wrong
        return []


def _no_answer(error: ApiError) -> InputError:
    return InputError(f"Prometheus does not answer: {error.message}")


def _points(question: QueryPrometheus) -> int:
    assert question.start is not None, "a query at one moment has no parts"
    return (question.end - question.start) // question.step + 1


def _parts(question: QueryPrometheus, most: int) -> Iterator[QueryPrometheus]:
    """The question in parts of so many points: together they ask for the same moments, each once."""
    assert question.start is not None, "a query at one moment has no parts"
    span = question.step * most
    for start in range(question.start, question.end + 1, span):
        last = min(start + span - question.step, question.end)
        yield replace(question, start=start, end=last)


async def series_of(queries: RangeQueries, question: QueryPrometheus) -> Series:
    """The answer to a range query; series with the same labels in several parts are one. Raises InputError for what the
    server refuses, and for values that are no numbers: the query leaves these out."""
    numbers: dict[frozenset[tuple[str, str]], int] = {}
    keys: list[SeriesKey] = []
    labels: list[dict[str, str]] = []
    rows: list[np.ndarray] = [np.zeros(0, np.int32)]
    times: list[np.ndarray] = [np.zeros(0, np.int64)]
    values: list[np.ndarray] = [np.zeros(0)]
    async for _, answer in queries.answers([question]):
        part = read_prometheus(answer, source=question.query)
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
"""So many an answer may hold: some ten megabytes."""
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
    """Which usage: of the containers of ``namespaces`` (none: all) whose series have the ``labels`` (pairs; such as the
    cluster's), every ``step`` nanoseconds from ``start`` to ``end``.

    Of series that are doubled (two Prometheus servers that watch the same, a container that was restarted) the highest
    value counts. CPU is the mean of a step, of four scrapes' time at least.
    """

    start: Moment
    end: Moment
    step: int
    namespaces: Sequence[str] = ()
    labels: Sequence[tuple[str, str]] = ()

    def questions(self) -> dict[str, QueryPrometheus]:
        """By resource. Values that are no numbers are left out by the query."""
        matchers = ['container!=""', 'container!="POD"', *(f"{name}={_quoted(value)}" for name, value in self.labels)]
        if self.namespaces:
            any_of = "|".join(map(_literal, self.namespaces))
            matchers.append(f"namespace=~{_quoted(any_of)}")
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
        """CPU first, then memory, each in the order of time. Raises InputError for what the server refuses and what is
        no answer."""
        questions = self.questions()
        series = await _series_of(queries, questions["memory"])
        memory = questions["memory"].query
        async for part, answer in queries.answers(questions.values(), max(1, _SAMPLES // max(1, series))):
            found = read_prometheus(answer, source="Prometheus")
            for batch in usage_of(found, np.full(len(found.keys), part.query == memory)):
                yield batch


async def _series_of(queries: RangeQueries, question: QueryPrometheus) -> int:
    """How many series there are at the end of a question's time."""
    found = await queries.at_one_moment(QueryPrometheus(query=f"count({question.query})", end=question.end))
    try:
        result = read_json(found, _Count).data.result
    except UnreadableError as error:
        raise InputError(f"not a Prometheus answer: {error}") from None
    if not result:
        return 0
    count = integer(result[0].value[1])
    if count is None:
        raise InputError(f"not a Prometheus answer: {shortened(result[0].value[1])} is no count")
    return count


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _literal(text: str) -> str:
    """As a regular expression that means just it."""
    return "".join(letter if letter.isalnum() or letter in "-_" else f"\\{letter}" for letter in text)
