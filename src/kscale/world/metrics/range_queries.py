"""Long range queries in parts that a server answers: Prometheus, Thanos, Mimir, VictoriaMetrics.

A server refuses more than 11,000 points of a series at once (``web/api/v1: exceeded maximum resolution``), and all have
limits on samples or bytes of their own, which are told by refusing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from kscale.effects import ApiError, QueryPrometheus
from kscale.errors import InputError
from kscale.objects.base import ApiStruct
from kscale.world.server_data import UnreadableError, read_json

__all__ = ["MOST_POINTS", "RangeLimits", "RangeQueries", "Traffic"]

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
