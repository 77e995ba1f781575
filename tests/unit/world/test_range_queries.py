"""Range queries in parts, and the usage of containers that comes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_prometheus import FakePrometheus
from kscale.effects import SECOND, ApiError, QueryPrometheus
from kscale.errors import InputError
from kscale.series.usage_reader import UsageBatch
from kscale.world.prometheus import ContainerUsage, Prometheus, RangeLimits, RangeQueries

HOUR = 3600 * SECOND
CONTAINERS = {("shop", f"web-{i}", "app"): (0.1 * (i + 1), 1e6 * (i + 1)) for i in range(3)}


def moments(question: QueryPrometheus) -> list[int]:
    assert question.start is not None
    return list(range(question.start, question.end + 1, question.step))


@given(st.integers(0, 50), st.integers(0, 400), st.integers(1, 20), st.integers(1, 30), st.integers(1, 5))
def test_parts_request_each_timestamp_once(start: int, span: int, step: int, points: int, concurrency: int) -> None:
    question = QueryPrometheus(query="up", start=start, end=start + span, step=step)
    under_way = most = 0

    async def ask(part: QueryPrometheus) -> bytes | ApiError:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        if len(moments(part)) > 7:
            return ApiError("too many samples", 422)
        return repr(moments(part)).encode()

    async def main() -> list[tuple[QueryPrometheus, bytes]]:
        queries = RangeQueries(ask, RangeLimits(points=points, concurrency=concurrency))
        return [each async for each in queries.answers([question, question])]

    result = asyncio.run(main())
    times = [moment for part, answer in result for moment in moments(part) if answer == repr(moments(part)).encode()]
    assert times == moments(question) * 2
    assert most <= concurrency


def patient(codes: list[int]) -> tuple[Any, list[float], RangeQueries]:
    paused: list[float] = []
    answers = iter(codes)

    async def ask(part: QueryPrometheus) -> bytes | ApiError:
        code = next(answers)
        return b"{}" if code == 200 else ApiError("later", code)

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    queries = RangeQueries(ask, sleep=sleep)

    async def main() -> list[tuple[QueryPrometheus, bytes]]:
        question = QueryPrometheus(query="up", start=0, end=0, step=1)
        return [each async for each in queries.answers([question])]

    return main, paused, queries


def test_busy_server_is_retried() -> None:
    main, paused, queries = patient([429, 503, 200])
    assert len(asyncio.run(main())) == 1
    assert (paused, queries.traffic.queries, queries.traffic.received) == ([1.0, 4.0], 3, 2)
    main, paused, _ = patient([429] * 4)
    with pytest.raises(InputError, match="Prometheus does not answer: later"):
        asyncio.run(main())
    assert paused == [1.0, 4.0, 16.0]


@pytest.mark.parametrize("code", [400, 401, 422, 500, 0])
def test_other_errors_are_not_retried(code: int) -> None:
    main, paused, _ = patient([code])
    with pytest.raises(InputError, match="does not answer"):
        asyncio.run(main())
    assert paused == []


def test_a_budget_of_bytes() -> None:
    async def ask(part: QueryPrometheus) -> bytes:
        return b"x" * 600

    async def main() -> None:
        queries = RangeQueries(ask, RangeLimits(points=1, total_bytes=1000))
        async for _ in queries.answers([QueryPrometheus(query="up", start=0, end=9, step=1)]):
            pass

    with pytest.raises(InputError, match="more than the 1,000 bytes allowed"):
        asyncio.run(main())
    with pytest.raises(InputError, match="concurrency: 0"):
        RangeLimits(concurrency=0)


def usage(
    fake: FakePrometheus, limits: RangeLimits | None = None, **more: Any
) -> tuple[list[UsageBatch], RangeQueries]:
    usage_request = ContainerUsage(start=10 * HOUR + 1, end=34 * HOUR, step=300 * SECOND, **more)

    async def main(url: str) -> tuple[list[UsageBatch], RangeQueries]:
        queries = RangeQueries(Prometheus(f"{url}/prometheus", headers={"X-Scope-OrgID": "team"}).query, limits)
        return [batch async for batch in usage_request.batches(queries)], queries

    with fake.served() as url:
        return asyncio.run(main(url))


def test_usage_of_containers() -> None:
    fake = FakePrometheus(CONTAINERS, most=300)
    limits = RangeLimits(points=200)
    batches, queries = usage(fake, limits, namespaces=["shop", "a.b"], labels=[("cluster", 'p"rod')])
    matchers = 'container!="",container!="POD",cluster="p\\"rod",namespace=~"shop|a\\\\.b"'
    of = "max by (namespace,pod,container)"
    cpu = f"{of} (rate(container_cpu_usage_seconds_total{{{matchers}}}[300s])) >= 0"
    memory = f"{of} (container_memory_working_set_bytes{{{matchers}}}) >= 0"
    assert {each["query"] for each in fake.requests} == {f"count({memory})", cpu, memory}
    assert {each["path"].rpartition("/")[0] for each in fake.requests} == {"/prometheus/api/v1"}
    assert all(each["X-Scope-OrgID"] == "team" for each in fake.headers)
    assert queries.traffic.queries == len(fake.requests)
    resources = ["cpu" if batch.cpu is not None else "memory" for batch in batches]
    assert resources == sorted(resources), "CPU first"
    for resource in ("cpu", "memory"):
        parts = [batch for batch in batches if getattr(batch, resource) is not None]
        times = np.concatenate([batch.time[batch.series == 0] for batch in parts])
        assert times.tolist() == list(range(10 * HOUR + 300 * SECOND, 34 * HOUR + 1, 300 * SECOND))
        for batch in parts:
            values = getattr(batch, resource)
            keys = [tuple(batch.keys[i]) for i in batch.series.tolist()]
            assert values.tolist() == [CONTAINERS[key][resource == "memory"] for key in keys]


def test_few_parts_for_few_containers_and_many_for_many() -> None:
    fake = FakePrometheus(CONTAINERS)
    usage(fake)
    assert len(fake.requests) == 3
    many = FakePrometheus({("shop", f"web-{i}", "app"): (0.1, 1.0) for i in range(2_000)})
    _, queries = usage(many)
    assert queries.traffic.queries == 5, "2,000 containers and 288 moments: half a million samples an answer"


@pytest.mark.parametrize("body", [b"<html>", b'{"data":{"result":[{"value":[1,"x"]}]}}', b'{"data":{"result":[7]}}'])
def test_invalid_response_is_an_input_error(body: bytes) -> None:
    async def ask(part: QueryPrometheus) -> bytes:
        return body

    async def main() -> None:
        usage_request = ContainerUsage(start=0, end=HOUR, step=300 * SECOND)
        async for _ in usage_request.batches(RangeQueries(ask)):
            pass

    with pytest.raises(InputError, match="not a Prometheus answer"):
        asyncio.run(main())
