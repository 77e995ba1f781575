"""Prometheus over HTTP, on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from kscale.effects import SECOND, ApiError, QueryPrometheus
from kscale.errors import InputError
from kscale.world.metrics.prometheus import Prometheus
from kscale.world.serve.app import Server

RANGE = QueryPrometheus(query="up", start=10 * SECOND, end=20 * SECOND + 500_000_000, step=5 * SECOND)


def asked(answer: Any, question: QueryPrometheus, **given: Any) -> tuple[bytes | ApiError, list[tuple[str, Any, str]]]:
    seen: list[tuple[str, Any, str]] = []

    async def handler(request: Any) -> Any:
        seen.append((request.path, dict(await request.post()), request.headers.get("Authorization", "")))
        return answer

    async def main() -> bytes | ApiError:
        async with Server({"/{path:.*}": handler}, "127.0.0.1:0") as server:
            return await Prometheus(f"http://127.0.0.1:{server.port}/", **given).query(question)

    return asyncio.run(main()), seen


def test_questions() -> None:
    answer, seen = asked(web.Response(body=b"{}"), RANGE, authorization=lambda: "Bearer x")
    assert answer == b"{}"
    given = {"query": "up", "start": "10", "end": "20.5", "step": "5"}
    assert seen == [("/api/v1/query_range", given, "Bearer x")]
    _, seen = asked(web.Response(body=b"{}"), QueryPrometheus(query="up", end=20 * SECOND))
    assert seen == [("/api/v1/query", {"query": "up", "time": "20"}, "")]


@pytest.mark.parametrize(("most", "refused"), [(999, True), (1000, False), (None, False)])
def test_an_answer_that_is_too_long(most: int | None, refused: bool) -> None:
    question = QueryPrometheus(query="up", end=20 * SECOND, most_bytes=most)
    answer, _ = asked(web.Response(body=b"x" * 1000), question)
    assert answer == (ApiError("it answers more than the 999 bytes allowed") if refused else b"x" * 1000)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "bad_data: parse error"),
        (b"<html>", "server answered 400"),
    ],
)
def test_refusals(body: bytes, said: str) -> None:
    answer, _ = asked(web.Response(body=body, status=400), RANGE)
    assert answer == ApiError(said, 400)


def test_nobody_listens() -> None:
    async def main() -> bytes | ApiError:
        return await Prometheus("http://127.0.0.1:9").query(RANGE)

    answer = asyncio.run(main())
    assert isinstance(answer, ApiError)
    assert (answer.code, "127.0.0.1:9" in answer.message) == (0, True)


@pytest.mark.parametrize(
    "address", ["ftp://admin:s3cret@prom:9090", "u:s3cret@host:99", "admin:s3cret@host", "http://u:s3cret@[x", ""]
)
def test_an_address_that_is_not_of_http_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(InputError, match=r"begins with http:// or https://$") as caught:
        Prometheus(address)
    assert "s3cret" not in str(caught.value)
