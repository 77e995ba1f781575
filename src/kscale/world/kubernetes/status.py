"""What an API server says when it refuses (upstream: ``apimachinery/pkg/api/errors``, ``client-go/rest``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kscale.effects import SECOND, ApiError
from kscale.objects.base import ApiStruct, Int32, shortened
from kscale.objects.names import go_quote
from kscale.world.kubernetes.transport import Answer, Call
from kscale.world.server_data import UnreadableError, integer, read_json

__all__ = ["TOO_LARGE_RESOURCE_VERSION", "error_of", "is_success", "read_status", "retry_after_seconds"]

TOO_LARGE_RESOURCE_VERSION: Final = "ResourceVersionTooLarge"
_TOO_LARGE: Final = "Too large resource version"
_LONGEST: Final = 2048

_REASONS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", ""),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    406: ("NotAcceptable", ""),
    409: ("Conflict", "the server reported a conflict"),
    415: ("UnsupportedMediaType", ""),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: (
        "TooManyRequests",
        "the server has received too many requests and has asked us to try again later",
    ),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}


class _Cause(ApiStruct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(ApiStruct):
    causes: list[_Cause] | None = None
    retry_after_seconds: Int32 | None = None


class _Status(ApiStruct):
    kind: str = ""
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    code: Int32 | None = None
    details: _Details | None = None


def is_success(status: int) -> bool:
    """Whether an answer is what was asked for."""
    return 200 <= status <= 206


def retry_after_seconds(headers: Mapping[str, str]) -> int | None:
    """After how many seconds the server asks to be tried again; None: it does not, or not in seconds."""
    return integer(headers.get("retry-after", ""))


def error_of(call: Call, answer: Answer) -> ApiError:
    """Why a call was refused: as the server's Status says it, or else by its code."""
    after = retry_after_seconds(answer.headers)
    return read_status(answer.body, after=after) or _generic(call, answer, after)


def read_status(body: bytes | msgspec.Raw | memoryview, *, after: int | None = None) -> ApiError | None:
    """A Status that says of a failure; None: this is none. ``after``: of the header."""
    try:
        status = read_json(body, _Status)
    except UnreadableError:
        return None
    if status.kind != "Status" or status.status == "Success":
        return None
    details = status.details or _Details()
    if details.retry_after_seconds:
        after = details.retry_after_seconds
    causes = tuple(cause.reason or "" for cause in details.causes or ())
    texts = [cause.message for cause in details.causes or ()]
    # Servers before 1.19 said it in words only.
    in_words = _TOO_LARGE in texts or _TOO_LARGE in (status.message or "")
    if status.reason == "Timeout" and in_words and TOO_LARGE_RESOURCE_VERSION not in causes:
        causes = (*causes, TOO_LARGE_RESOURCE_VERSION)
    return ApiError(
        shortened(status.message or "", _LONGEST),
        code=status.code or 0,
        reason=status.reason or "",
        causes=causes,
        retry_after=None if after is None else after * SECOND,
    )


def _generic(call: Call, answer: Answer, after: int | None) -> ApiError:
    code = answer.status
    media = answer.headers.get("content-type", "text/").partition(";")[0].strip()
    said = "unknown"
    if media.startswith("text/"):
        said = answer.body[:_LONGEST].decode("utf-8", "replace").strip()
    reason, message = _REASONS.get(code, ("", ""))
    if code == 409 and call.method == "POST":
        reason = "AlreadyExists"
    if not reason and code >= 500:
        reason = "InternalError"
        message = f"an error on the server ({go_quote(said)}) has prevented the request from succeeding"
    elif not reason:
        reason = "Unknown"
        message = f"the server responded with the status code {code} but did not return more information"
    elif code == 406 and said in ("", "unknown"):
        message = "the server was unable to respond with a content type that the client supports"
    elif not message:
        message = said
    about = " ".join(part for part in (call.method.lower(), call.resource, call.name) if part)
    if call.resource:
        message = f"{message} ({about})"
    return ApiError(message, code=code, reason=reason, retry_after=None if after is None else after * SECOND)
