"""Usage of containers from a Prometheus over loopback: how many questions, how many bytes, how long."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fake_prometheus import FakePrometheus
from kscale.effects import SECOND
from kscale.world.prometheus import ContainerUsage, Prometheus, RangeQueries

PODS = 1_000
DAY = 86_400 * SECOND
END = 20_000 * DAY
USAGE = ContainerUsage(start=END - 8 * DAY, end=END, step=300 * SECOND)
MOMENTS = 8 * 288 + 1


class Remembering(FakePrometheus):
    """Gives the same answer again without working it out."""

    def __init__(self) -> None:
        draw = random.Random(1).random
        names = (("shop", f"web-{i:04}-5d4f8c7b9-{i:05}", "app") for i in range(PODS))
        super().__init__({name: (round(draw(), 12), float(int(draw() * 2**32))) for name in names})
        self._answers: dict[tuple[tuple[str, str], ...], tuple[int, Any]] = {}

    def answer(self, path: str, form: dict[str, str], headers: dict[str, str]) -> tuple[int, Any]:
        known = tuple(form.items())
        if known not in self._answers:
            code, result = super().answer(path, form, headers)
            self._answers[known] = code, json.dumps(result).encode()
        return self._answers[known]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Remembering().served() as result:
        yield result


def test_usage_of_1000_pods_in_8_days(benchmark: Any, url: str) -> None:
    """Reading and server in one process."""

    def read() -> tuple[int, RangeQueries]:
        began = time.process_time()
        queries = RangeQueries(Prometheus(url).query)

        async def rows() -> int:
            return sum([len(batch) async for batch in USAGE.batches(queries)])

        result = asyncio.run(rows())
        benchmark.extra_info["cpu_seconds"] = round(time.process_time() - began, 2)
        return result, queries

    count, queries = benchmark.pedantic(read, rounds=1, warmup_rounds=1)
    assert count == 2 * PODS * MOMENTS
    traffic = queries.traffic
    benchmark.extra_info |= {"queries": traffic.queries, "megabytes": round(traffic.received / 1e6, 1)}
    print(f"\n{benchmark.extra_info}")
    assert (traffic.queries, traffic.received < 200e6) == (11, True)
