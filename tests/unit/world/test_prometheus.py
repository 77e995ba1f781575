"""Prometheus over HTTP, on loopback."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from kscale.effects import SECOND, ApiError, QueryPrometheus
from kscale.errors import InputError
from kscale.world.prometheus import ContainerUsage, Prometheus, RangeQueries, series_of
from kscale.world.serve.app import ANY_PATH, Server

RANGE = QueryPrometheus(query="up", start=10 * SECOND, end=20 * SECOND + 500_000_000, step=5 * SECOND)


def query_prometheus(
    answer: Any, question: QueryPrometheus, **options: Any
) -> tuple[bytes | ApiError, list[tuple[str, Any, str]]]:
    requests: list[tuple[str, Any, str]] = []

    async def handler(request: Any) -> Any:
        requests.append((request.path, dict(await request.post()), request.headers.get("Authorization", "")))
        return answer

    async def main() -> bytes | ApiError:
        async with Server({ANY_PATH: handler}, "127.0.0.1:0") as server:
            return await Prometheus(f"http://127.0.0.1:{server.port}/", **options).query(question)

    return asyncio.run(main()), requests


def test_questions() -> None:
    answer, requests = query_prometheus(web.Response(body=b"{}"), RANGE, authorization=lambda: "Bearer x")
    assert answer == b"{}"
    expected_form = {"query": "up", "start": "10", "end": "20.5", "step": "5"}
    assert requests == [("/api/v1/query_range", expected_form, "Bearer x")]
    _, requests = query_prometheus(web.Response(body=b"{}"), QueryPrometheus(query="up", end=20 * SECOND))
    assert requests == [("/api/v1/query", {"query": "up", "time": "20"}, "")]


@pytest.mark.parametrize(("most", "refused"), [(999, True), (1000, False), (None, False)])
def test_an_answer_that_is_too_long(most: int | None, refused: bool) -> None:
    question = QueryPrometheus(query="up", end=20 * SECOND, most_bytes=most)
    answer, _ = query_prometheus(web.Response(body=b"x" * 1000), question)
    assert answer == (ApiError("it answers more than the 999 bytes allowed") if refused else b"x" * 1000)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "bad_data: parse error"),
        (b"<html>", "server answered 400"),
    ],
)
def test_refusals(body: bytes, message: str) -> None:
    answer, _ = query_prometheus(web.Response(body=body, status=400), RANGE)
    assert answer == ApiError(message, 400)


def test_refused_connection_is_an_api_error() -> None:
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


def head(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    return head(status, f"Content-Length: {len(body)}", *headers) + body


def hostile(
    answer: bytes,
    use: Callable[[RangeQueries], Awaitable[Any]],
    *,
    flood: bytes = b"",
    stays_open: bool = False,
    **options: Any,
) -> tuple[str, list[bytes]]:
    """Return the error of a use of a server that answers with bytes, and ``flood`` again and again; and its requests.

    With ``stays_open``, the server says nothing more and waits until the client closes the connection. The URL of the
    server has a password and a token.
    """
    requests: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            writer.write(answer)
            await writer.drain()
            while flood:
                writer.write(flood)
                await writer.drain()
            if stays_open:
                await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def main() -> str:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = Prometheus(f"http://user:s3cret@127.0.0.1:{port}/mimir/?token=hush", **options)
        queries = RangeQueries(client.query, source=client.url, sleep=lambda _: asyncio.sleep(0))
        try:
            with pytest.raises(InputError) as caught:
                await use(queries)
        finally:
            server.close()
        text = str(caught.value)
        assert text.startswith(f"http://127.0.0.1:{port}/mimir: "), text
        assert not any(secret in text for secret in ("s3cret", "hush"))
        assert len(text) < 3000
        return text

    return asyncio.run(main()), requests


async def read_usage(queries: RangeQueries) -> Any:
    usage = ContainerUsage(start=0, end=3600 * SECOND, step=300 * SECOND)
    return [batch async for batch in usage.batches(queries)]


async def read_series(queries: RangeQueries) -> Any:
    return await series_of(queries, RANGE)


def matrix(result: str, rest: str = "") -> bytes:
    text = f'{{"status":"success","data":{{"resultType":"matrix","result":{result}}}{rest}}}'
    return response(text.encode())


HOSTILE: dict[str, tuple[bytes, str]] = {
    "HTML": (response(b"<html>log in</html>"), "not a Prometheus answer"),
    "an error of a proxy": (response(b"<html>no</html>", "500 X"), "server answered 500"),
    "too many requests": (response(b"later", "429 X"), "server answered 429"),
    "a body that is cut off": (head("200 OK", "Content-Length: 1000") + b"{", "payload is not completed"),
    "no gzip": (response(b"nonsense", "200 OK", "Content-Encoding: gzip"), "Can not decode content-encoding: gzip"),
    "an encoding that was not asked for": (response(b"{}", "200 OK", "Content-Encoding: br"), "encoding"),
    "no HTTP": (bytes(range(256)) * 100, "Bad status line"),
    "a long header": (head("200 OK", "X: " + "a" * 100_000), "Got more than 8190 bytes"),
    "a chunk of another size": (head("200 OK", "Transfer-Encoding: chunked") + b"zz\r\n", "chunk size"),
    "an unknown status": (response(b"{}", "999 X"), "server answered 999"),
    "a deep refusal": (response(b'{"error":' * 10_000, "400 X"), "server answered 400"),
    "a long refusal": (response(b'{"error":"' + b"a" * 10**6 + b'"}', "400 X"), "aaa"),
    "nothing": (b"", "disconnected"),
    "an empty body": (response(b""), "not a Prometheus answer"),
    "null": (response(b"null"), "not a Prometheus answer"),
    "an array": (response(b"[]"), "not a Prometheus answer"),
    "deep": (response(b"[" * 100_000), "not a Prometheus answer"),
    "no UTF-8": (response(b'{"status":"\xff"}'), "not a Prometheus answer"),
}
MATRICES: dict[str, tuple[bytes, str]] = {
    "no data": (response(b"{}"), "there is no data in it"),
    "a long status": (response(b'{"status":"' + b"a" * 10**6 + b'"}'), "Prometheus answered aaa"),
    "a type that is long": (
        response(b'{"data":{"resultType":"' + b"a" * 10**6 + b'","result":[]}}'), "not the matrix of a range query"
    ),
    "a status that is a number": (response(b'{"status":5}'), "status"),
    "data that is a number": (response(b'{"data":5}'), "data"),
    "a result that is a map": (matrix("{}"), "Expected `array`, got `object`"),
    "a series that is a number": (matrix("[5]"), "got `int`"),
    "a series without values": (matrix('[{"metric":{}}]'), "missing required field `values`"),
    "labels that are numbers": (matrix('[{"metric":{"a":5},"values":[]}]'), "got `int`"),
    "values that are a map": (matrix('[{"metric":{},"values":{}}]'), "data.result[0].values"),
    "values that are deep": (matrix('[{"metric":{},"values":' + "[" * 5000 + "]" * 5000 + "}]"), ""),
    "a point of three": (matrix('[{"metric":{},"values":[[1,"1",2]]}]'), "data.result[0].values"),
    "a time that is a text": (matrix('[{"metric":{},"values":[["1","1"]]}]'), "data.result[0].values"),
    "a time of 400 digits": (matrix(f'[{{"metric":{{}},"values":[[{"9" * 400},"1"]]}}]'), "data.result[0].values"),
    "a time before all": (matrix('[{"metric":{},"values":[[-1e300,"1"]]}]'), "too far from 1970"),
    "a value that is a number": (matrix('[{"metric":{},"values":[[1,1]]}]'), "data.result[0].values"),
    "a value of another script": (matrix('[{"metric":{},"values":[[1,"\u0661"]]}]'), "not a value of Prometheus"),
    "an empty value": (matrix('[{"metric":{},"values":[[1,""]]}]'), "not a value of Prometheus"),
    "NaN": (matrix('[{"metric":{},"values":[[1,"NaN"]]}]'), "value: nan is not a number"),
    "an infinite value": (matrix('[{"metric":{},"values":[[1,"+Inf"]]}]'), "value: inf is not a number"),
    "warnings that are a map": (matrix("[]", ',"warnings":{}'), "Expected `array"),
    "warnings that are long": (
        matrix("[]", ',"warnings":["' + "a" * 2**20 + '"]'), "the warnings are longer than 1,048,576 bytes"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "message"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("use", [read_usage, read_series])
def test_a_wrong_answer_names_the_server(answer: bytes, message: str, use: Any) -> None:
    text, _ = hostile(answer, use)
    assert message in text


@pytest.mark.parametrize(("answer", "message"), MATRICES.values(), ids=MATRICES)
def test_a_wrong_matrix_names_the_server_and_the_query(answer: bytes, message: str) -> None:
    text, _ = hostile(answer, read_series)
    assert ": up: " in text
    assert message in text


@pytest.mark.parametrize(
    "count", ['["1"]', "[1]", '[1,"1",2]', '[1,"NaN"]', '[1,"+Inf"]', '[1,"1e9"]', '[1,"\u0661"]', f'[1,"{"9" * 400}"]']
)
def test_invalid_series_count_is_an_error(count: str) -> None:
    """The count of all series decides how many points each query asks for."""
    text, _ = hostile(matrix(f'[{{"value":{count}}}]'), read_usage)
    assert "not a Prometheus answer" in text


@pytest.mark.parametrize("location", ["http://127.0.0.1:9/other", "/api/v1/query", "ftp://x/", "http://[x", ""])
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(code: int, location: str) -> None:
    """Headers such as X-Api-Key would go to another server."""
    text, requests = hostile(response(b"", f"{code} X", f"Location: {location}"), read_series)
    assert text.endswith(f"Prometheus does not answer: server answered {code}, a redirect, which is not followed")
    assert len(requests) == 1
    assert requests[0].startswith(b"POST /mimir/api/v1/query_range?token=hush HTTP")


@pytest.mark.parametrize(
    ("answer", "flood", "message"),
    [
        (
            head("200 OK", "Transfer-Encoding: chunked"),
            b"10000\r\n" + b" " * 65536 + b"\r\n",
            "more than the 1,000,000",
        ),
        (response(gzip.compress(bytes(10**7)), "200 OK", "Content-Encoding: gzip"), b"", "more than the 1,000,000"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 65536, "Got more than"),
        (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n" * 4096, "Too many headers"),
        (head("200 OK", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n", b"X: a\r\n" * 4096, "Too many headers"),
    ],
    ids=["a body", "a gzip bomb", "a header", "headers", "trailers"],
)
def test_answers_without_end(answer: bytes, flood: bytes, message: str) -> None:
    text, _ = hostile(answer, read_series, flood=flood, response_bytes=10**6)
    assert message in text


def test_a_slow_body_runs_into_the_timeout() -> None:
    body_without_end = head("200 OK", "Content-Length: 9") + b"{"
    text, requests = hostile(body_without_end, read_series, stays_open=True, timeout=0.2)
    assert len(requests) >= 1  # it was asked, and the error is that of the body
    assert "Prometheus does not answer: TimeoutError" in text


def test_labels_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory they take many times as much as in the response."""
    monkeypatch.setattr("kscale.world.prometheus.MOST_LABELS", 100)
    few = ",".join(['{"metric":{"a":"b"},"values":[]}'] * 20)
    text, _ = hostile(matrix(f"[{few},{few}]"), read_series)
    assert text.endswith("it answers more than the 100 labels allowed")


def test_many_warnings() -> None:
    """The first hundred are reported."""
    texts = ",".join(f'"{i}"' for i in range(10_000))
    body = f'{{"status":"success","warnings":[{texts}],"data":{{"resultType":"matrix","result":[]}}}}'.encode()

    async def ask(_: QueryPrometheus) -> bytes:
        return body

    async def main() -> list[str]:
        queries = RangeQueries(ask)
        await series_of(queries, RANGE)
        return queries.traffic.warnings

    assert asyncio.run(main()) == [f"{i}" for i in range(100)]


@pytest.mark.parametrize("address", ["http://a..b:9", f"http://{'a' * 300}:9", "http://x:99999", "http://:9"])
def test_invalid_addresses_are_an_api_error(address: str) -> None:
    answer = asyncio.run(Prometheus(address).query(RANGE))
    assert answer == ApiError("its address is not a valid URL")


@pytest.mark.parametrize("token", ["a\nb", "a\rb", "a\0b"])
def test_invalid_token_is_not_in_the_error(token: str) -> None:
    answer, _ = query_prometheus(web.Response(body=b"{}"), RANGE, authorization=lambda: f"Bearer s3cret{token}")
    assert answer == ApiError("the request cannot be written: a header has characters that are not allowed")
