"""What containers used, as a Prometheus remembers it: CPU and memory in a few range queries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from kscale.effects import Moment, QueryPrometheus
from kscale.errors import InputError
from kscale.objects.base import ApiStruct, shortened
from kscale.series.prometheus_reader import read_prometheus
from kscale.series.usage_reader import UsageBatch, usage_of
from kscale.world.metrics.range_queries import RangeQueries
from kscale.world.server_data import UnreadableError, integer, read_json

__all__ = ["ContainerUsage"]

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
