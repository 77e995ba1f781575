"""API requests with client-go's behaviour: rate limit, retries and API errors.

Upstream: ``client-go/rest`` (``request.go``, ``with_retry.go``).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

import msgspec

from kscale.effects import SECOND, ApiError, Moment
from kscale.effects.actions import Metric, Observation
from kscale.errors import KscaleError
from kscale.objects.api.meta import ApiStruct, Int32, shorten
from kscale.objects.go_numbers import parse_int64
from kscale.objects.names import go_quote
from kscale.world.kubernetes.transport import (
    DEFAULT_LIMITS,
    Answer,
    Buffers,
    Call,
    ConnectionFailedError,
    ServerLimits,
    Stream,
    Transport,
)
from kscale.world.protocols import Clock
from kscale.world.server_data import ServerList, UnreadableError, read_json, read_list

__all__ = [
    "REQUEST_METRICS",
    "TOO_LARGE_RESOURCE_VERSION",
    "Client",
    "RequestFailedError",
    "TokenBucket",
    "error_of",
    "is_success",
    "pause_before_retry",
    "read_status",
    "retry_after_seconds",
]


_SECOND: Final = 1e9


class TokenBucket:
    """Rate limiter with ``burst`` tokens at first, refilled with ``qps`` per second up to ``burst``.

    Times are nanoseconds. ``qps`` is rounded as in client-go (``float32``). Has a single owner.
    """

    __slots__ = ("_burst", "_last", "_qps", "_tokens")

    def __init__(self, qps: float, burst: int) -> None:
        self._qps: float = struct.unpack("f", struct.pack("f", qps))[0]
        self._burst = burst
        self._tokens = float(burst)
        self._last: Moment | None = None

    def try_accept(self, now: Moment) -> bool:
        """Take a token if one is available, and return whether it was."""
        tokens = self._get_tokens(now) - 1.0
        if self._burst < 1 or self._wait(tokens) > 0:
            return False
        self._last, self._tokens = now, tokens
        return True

    def reserve(self, now: Moment) -> int:
        """Take a token, possibly a future one, and return the nanoseconds that the caller must wait for it."""
        tokens = self._get_tokens(now) - 1.0
        self._last, self._tokens = now, tokens
        return self._wait(tokens)

    def _get_tokens(self, now: Moment) -> float:
        """Return the number of tokens at a time; negative if tokens are taken in advance."""
        if self._last is None:
            return float(self._burst)
        elapsed = max(now - self._last, 0)
        return min(self._tokens + elapsed / _SECOND * self._qps, float(self._burst))

    def _wait(self, tokens: float) -> int:
        """Return the nanoseconds until a negative number of tokens is refilled; 0 for other numbers."""
        return int(-tokens / self._qps * _SECOND) if tokens < 0 else 0


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
    """Check whether an HTTP status is a success of the API: 200 to 206."""
    return 200 <= status <= 206


def retry_after_seconds(headers: Mapping[str, str]) -> int | None:
    """Return the Retry-After header in seconds, or None if it is absent or not a number of seconds."""
    return parse_int64(headers.get("retry-after", ""))


def error_of(call: Call, answer: Answer) -> ApiError:
    """Return the API error of a failed request, from the server's Status or else from the HTTP status code."""
    after = retry_after_seconds(answer.headers)
    return read_status(answer.body, after=after) or _generic(call, answer, after)


def read_status(body: bytes | msgspec.Raw | memoryview, *, after: int | None = None) -> ApiError | None:
    """Parse the body of a response as a Kubernetes Status that reports a failure.

    Parameters
    ----------
    body : bytes
        JSON text.
    after : int, optional
        Seconds from the Retry-After header. ``details.retryAfterSeconds`` of the Status wins.

    Returns
    -------
    ApiError or None
        None if the body is not a Status or reports success.
    """
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
    # Servers before 1.19 report this only in the message.
    in_words = _TOO_LARGE in texts or _TOO_LARGE in (status.message or "")
    if status.reason == "Timeout" and in_words and TOO_LARGE_RESOURCE_VERSION not in causes:
        causes = (*causes, TOO_LARGE_RESOURCE_VERSION)
    return ApiError(
        shorten(status.message or "", _LONGEST),
        code=status.code or 0,
        reason=status.reason or "",
        causes=causes,
        retry_after=None if after is None else after * SECOND,
    )


def _generic(call: Call, answer: Answer, after: int | None) -> ApiError:
    """Build the error of a response that has no Status object, as client-go does.

    ``after``: seconds of ``Retry-After``; None without this header.
    """
    code = answer.status
    media = answer.headers.get("content-type", "text/").partition(";")[0].strip()
    body_text = "unknown"
    if media.startswith("text/"):
        body_text = answer.body[:_LONGEST].decode("utf-8", "replace").strip()
    reason, message = _REASONS.get(code, ("", ""))
    if code == 409 and call.method == "POST":
        reason = "AlreadyExists"
    if not reason and code >= 500:
        reason = "InternalError"
        message = f"an error on the server ({go_quote(body_text)}) has prevented the request from succeeding"
    elif not reason:
        reason = "Unknown"
        message = f"the server responded with the status code {code} but did not return more information"
    elif code == 406 and body_text in ("", "unknown"):
        message = "the server was unable to respond with a content type that the client supports"
    elif not message:
        message = body_text
    about = " ".join(part for part in (call.method.lower(), call.resource, call.name) if part)
    if call.resource:
        message = f"{message} ({about})"
    return ApiError(message, code=code, reason=reason, retry_after=None if after is None else after * SECOND)


_FAILURES: Final = "kscale_request_failures_total"
REQUEST_METRICS: Final = (Metric(_FAILURES, "counter", ("reason",)),)
"""Metric of failed requests to the API server; each attempt counts."""

_LONGEST_TEXT: Final = 2048
MAX_RETRIES: Final = 10
_T = TypeVar("_T")


class RequestFailedError(KscaleError, OSError):
    """A request failed. ``error`` is the reason; one without code and reason is a broken connection.

    ``refused``: the connection was refused, so the request had no effect.
    """

    def __init__(self, error: ApiError, *, refused: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.refused = refused


def pause_before_retry(
    call: Call,
    result: Answer | ConnectionFailedError,
    attempt: int,
    *,
    max_retries: int = MAX_RETRIES,
    watch: bool = False,
    limits: ServerLimits = DEFAULT_LIMITS,
) -> float | None:
    """Return the seconds to wait before a failed request is sent again, or None if it must not be retried.

    A request is retried if the server asks for it (status 429 or 5xx with ``Retry-After``). A GET is also retried after
    a connection reset, and a watch after a timeout, both after one second. Nothing is retried after ``max_retries``
    retries.

    Parameters
    ----------
    call : Call
        The request.
    result : Answer or ConnectionFailedError
        Result of the last attempt.
    attempt : int
        Number of attempts so far, from 1.
    max_retries : int
        Maximum number of retries.
    watch : bool, default False
        Whether the request is a watch.
    limits : ServerLimits
        ``limits.retry_seconds`` caps the pause.

    Returns
    -------
    float or None
        Pause in seconds.
    """
    if attempt > max_retries:
        return None
    if isinstance(result, ConnectionFailedError):
        harmless = result.kind == "reset" or (watch and result.kind == "timeout")
        return 1 if harmless and call.method == "GET" else None
    if result.status != 429 and result.status < 500:
        return None
    pause = retry_after_seconds(result.headers)
    return None if pause is None else min(max(pause, 0), limits.retry_seconds)


class Client:
    """Client of one API server, with rate limit and retries.

    Parameters
    ----------
    transport : Transport
        Sends the requests.
    clock : Clock
        Clock of the rate limit.
    qps, burst
        Client-side rate limit (``--kube-client-qps``, ``--kube-client-burst``). 0 means client-go's defaults of 5 and
        10; a negative ``qps`` disables the limit. Watches are not limited.
    max_retries : int
        Maximum number of retries of a request.
    limits : ServerLimits
        Maximum sizes of responses and pauses.
    buffers : Buffers
        Limits the bytes that all responses hold at once.

    Notes
    -----
    ``observe`` is called with an observation for each failed request (:data:`REQUEST_METRICS`).
    """

    __slots__ = ("_bucket", "_clock", "_limit", "_max_retries", "buffers", "limits", "observe", "transport")

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        qps: float = 0.0,
        burst: int = 0,
        max_retries: int = MAX_RETRIES,
        limits: ServerLimits = DEFAULT_LIMITS,
        buffers: Buffers | None = None,
    ) -> None:
        self.transport = transport
        self.limits = limits
        self.buffers = buffers or Buffers(limits.buffered_bytes)
        self.observe: Callable[[Observation], None] = lambda _: None
        self._clock = clock
        self._limit = (qps, burst)
        self._bucket = None if qps < 0 else TokenBucket(qps or 5.0, burst or 10)
        self._max_retries = max_retries

    def with_own_rate_limit(self) -> Client:
        """Return a client with the same connections but its own rate limit."""
        qps, burst = self._limit
        client = Client(
            self.transport,
            self._clock,
            qps=qps,
            burst=burst,
            max_retries=self._max_retries,
            limits=self.limits,
            buffers=self.buffers,
        )
        client.observe = self.observe
        return client

    async def call(self, call: Call) -> Answer:
        """Send a request, with retries, and return the response.

        Raises :class:`RequestFailedError` if the last attempt failed: no response, or a status that is no success.
        """
        attempt = 0
        while True:
            attempt += 1
            await self._wait_for_turn()
            try:
                result: Answer | ConnectionFailedError = await self.transport.call(call)
            except ConnectionFailedError as error:
                result = error.with_traceback(None)  # drop the traceback: its frames keep the data read so far alive
            if isinstance(result, Answer) and is_success(result.status):
                return result
            if isinstance(result, Answer):
                result.release()
            self._count_failure(result)
            pause = pause_before_retry(call, result, attempt, max_retries=self._max_retries, limits=self.limits)
            if pause is None:
                raise _build_failure(call, result)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def watch(self, call: Call) -> AsyncIterator[Stream | None]:
        """Open a watch and yield its stream. Raises :class:`RequestFailedError` if it cannot be opened.

        Yields None, to be treated as a watch that ended at once, if the connection of the last attempt broke or timed
        out before a response came.
        """
        attempt = 0
        while True:
            attempt += 1
            async with AsyncExitStack() as stack:
                result: Answer | ConnectionFailedError
                try:
                    stream = await stack.enter_async_context(self.transport.stream(call))
                    result = Answer(stream.status, stream.headers, b"" if stream.status == 200 else await stream.read())
                except ConnectionFailedError as error:
                    result = error.with_traceback(
                        None
                    )  # drop the traceback: its frames keep the data read so far alive
                if isinstance(result, Answer) and result.status == 200:
                    yield stream
                    return
            self._count_failure(result)
            pause = pause_before_retry(
                call, result, attempt, max_retries=self._max_retries, watch=True, limits=self.limits
            )
            if pause is None:
                if isinstance(result, ConnectionFailedError) and result.kind in ("reset", "timeout"):
                    yield None
                    return
                raise _build_failure(call, result)
            await asyncio.sleep(pause)

    def decode(self, answer: Answer, type_: type[_T], call: Call) -> _T:
        """Decode the JSON document in a response.

        Raises :class:`RequestFailedError`, which counts as a failed request, if the body cannot be decoded as
        ``type_``. Proxies and login pages also respond with status 200.
        """
        try:
            return read_json(answer.body, type_)
        except UnreadableError as error:
            raise self._build_unreadable(call, error) from None

    def decode_list(self, answer: Answer, call: Call, more: str = "", *, number: int = 1) -> ServerList:
        """Decode page ``number`` of a list from a response.

        ``more``: the continue token of the request, empty for the first page. Raises :class:`RequestFailedError`, which
        counts as a failed request, if the body is not a list, the list has more pages than the limits allow, or the
        next page has the same token.
        """
        try:
            page = read_list(answer.body)
        except UnreadableError as error:
            raise self._build_unreadable(call, error) from None
        if more and page.continue_ == more:
            raise self._build_unreadable(call, "the next page is the same page")
        if page.continue_ and number >= self.limits.list_pages:
            text = f"the list has more pages than allowed ({self.limits.list_pages:,})"
            raise self._build_unreadable(call, text)
        return page

    def _build_unreadable(self, call: Call, why: object) -> RequestFailedError:
        """Count a response that cannot be read as a failed request, and build its error."""
        self.count_unreadable()
        text = f"the answer to {call.method} {call.path} cannot be read: {why}"
        return RequestFailedError(ApiError(shorten(text, _LONGEST_TEXT), reason="InternalError"))

    def count_unreadable(self) -> None:
        """Count a response that cannot be read as a failed request."""
        self.observe(Observation(name=_FAILURES, labels={"reason": "unreadable"}))

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    def _count_failure(self, failure: Answer | ConnectionFailedError) -> None:
        """Observe a failed attempt with its reason."""
        self.observe(Observation(name=_FAILURES, labels={"reason": _reason(failure)}))

    async def _wait_for_turn(self) -> None:
        """Wait for the rate limit."""
        if self._bucket is not None:
            pause = self._bucket.reserve(self._clock.monotonic())
            if pause:
                await asyncio.sleep(pause / _SECOND)


def _reason(failure: Answer | ConnectionFailedError) -> str:
    """Return why an attempt failed, as a metric label with few values."""
    if isinstance(failure, ConnectionFailedError):
        return failure.kind.replace(" ", "_")
    return (
        "throttled"
        if failure.status == 429
        else f"status_{failure.status // 100}xx"
        if failure.status >= 300
        else "other"
    )


def _build_failure(call: Call, failure: Answer | ConnectionFailedError) -> RequestFailedError:
    """Build the error of a request from the result of its last attempt."""
    if isinstance(failure, Answer):
        return RequestFailedError(error_of(call, failure))
    return RequestFailedError(ApiError(failure.message), refused=failure.kind == "refused")
