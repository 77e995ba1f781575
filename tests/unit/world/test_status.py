"""Refusals: TestTransformUnstructuredError, and the texts of NewGenericServerResponse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kscale.effects import SECOND, ApiError
from kscale.world.kubernetes.client import error_of, read_status
from kscale.world.kubernetes.transport import Answer, Call


def read_error(
    code: int, body: Any = b"", method: str = "GET", resource: str = "", name: str = "", **headers: str
) -> ApiError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    if not isinstance(body, bytes):
        headers.setdefault("content-type", "application/json")
    call = Call(method=method, path="/", resource=resource, name=name)
    return error_of(call, Answer(code, {key.replace("_", "-"): value for key, value in headers.items()}, data))


STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}


# TestTransformUnstructuredError
@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (read_error(409, method="POST", resource="foo", name="bar"), "AlreadyExists", 409),
        (read_error(409, method="PUT", resource="foo", name="bar"), "Conflict", 409),
        (read_error(404, resource="foo", name="bar"), "NotFound", 404),
        (read_error(400), "BadRequest", 400),
        (read_error(400, STATUS), "", 404),
        (read_error(400, {**STATUS, "status": "Success"}), "BadRequest", 400),
        (read_error(400, {}), "BadRequest", 400),
        (read_error(400, {key: value for key, value in STATUS.items() if key != "apiVersion"}), "", 404),
        (read_error(400, {key: value for key, value in STATUS.items() if key != "kind"}), "BadRequest", 400),
        (read_error(500, b"oops"), "InternalError", 500),
        (read_error(418, b"teapot"), "Unknown", 418),
    ],
)
def test_reasons(error: ApiError, reason: str, code: int) -> None:
    assert (error.reason, error.code) == (reason, code)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            read_error(409, method="POST", resource="pods", name="a"),
            "the server reported a conflict (post pods a)",
        ),
        (read_error(404, resource="pods"), "the server could not find the requested resource (get pods)"),
        (read_error(403, b"no, you may not\n", content_type="text/plain"), "no, you may not"),
        (read_error(403, b"<html>", content_type="text/html; charset=utf-8"), "<html>"),
        (
            read_error(500, b'say "why"'),
            r'an error on the server ("say \"why\"") has prevented the request from succeeding',
        ),
        (
            read_error(502, b"\x00\x01", content_type="image/png"),
            'an error on the server ("unknown") has prevented the request from succeeding',
        ),
        (read_error(406), "the server was unable to respond with a content type that the client supports"),
        (read_error(406, b"only these"), "only these"),
        (read_error(302), "the server responded with the status code 302 but did not return more information"),
        (
            read_error(504),
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
    ],
)
def test_texts(error: ApiError, text: str) -> None:
    assert error.message == text


def test_a_status_with_everything() -> None:
    details = {
        "name": "web-1",
        "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget p is still being processed"}],
        "retryAfterSeconds": 10,
    }
    body = {**STATUS, "code": 429, "reason": "TooManyRequests", "message": "Cannot evict pod", "details": details}
    assert read_error(429, body, retry_after="3") == ApiError(
        "Cannot evict pod",
        code=429,
        reason="TooManyRequests",
        causes=("DisruptionBudget",),
        retry_after=10 * SECOND,
    )
    assert read_error(429, retry_after="3").retry_after == 3 * SECOND
    assert read_error(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT").retry_after is None
    assert read_error(400, {**STATUS, "message": None, "details": {"causes": None}}).message == ""


# isTooLargeResourceVersionError, of servers before 1.19
@pytest.mark.parametrize(
    ("change", "too_large"),
    [
        ({"details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}, True),
        ({"reason": "Timeout", "details": {"causes": [{"message": "Too large resource version"}]}}, True),
        ({"reason": "Timeout", "message": "Too large resource version: 8, current: 5", "details": {}}, True),
        ({"reason": "Invalid", "message": "Too large resource version"}, False),
        ({"reason": "Timeout", "message": "slow"}, False),
    ],
)
def test_future_versions_are_read(change: dict[str, Any], too_large: bool) -> None:
    error = read_error(504, {**STATUS, **change})
    assert ("ResourceVersionTooLarge" in error.causes) is too_large


def test_non_status_bodies_are_none() -> None:
    assert read_status(b"") is None
    assert read_status(b"[]") is None
    assert read_status(b"\xff") is None
    assert read_status(b'{"kind":"Pod"}') is None
