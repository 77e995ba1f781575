"""API requests by client-go's rules: rate limit, retries, and API errors.

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
from kscale.objects.api.meta import ApiStruct, Int32, shortened
from kscale.objects.names import go_quote
from kscale.world.kubernetes.buffers import Buffers
from kscale.world.kubernetes.transport import (
    DEFAULT_LIMITS,
    Answer,
    Call,
    ConnectionFailedError,
    ServerLimits,
    Stream,
    Transport,
)
from kscale.world.protocols import Clock
from kscale.world.server_data import ServerList, UnreadableError, integer, read_json, read_list

__all__ = [
    "REQUEST_METRICS",
    "TOO_LARGE_RESOURCE_VERSION",
    "Client",
    "RequestFailedError",
    "TokenBucket",
    "decoded",
    "error_of",
    "is_success",
    "listed",
    "pause_before_retry",
    "read_status",
    "retry_after_seconds",
]


_SECOND: Final = 1e9


class TokenBucket:
    """``burst`` tokens at first, then ``qps`` a second, never more than ``burst``. Moments are nanoseconds.

    ``qps`` is rounded as client-go does (``float32``). Single owner.
    """

    __slots__ = ("_burst", "_last", "_qps", "_tokens")

    def __init__(self, qps: float, burst: int) -> None:
        self._qps: float = struct.unpack("f", struct.pack("f", qps))[0]
        self._burst = burst
        self._tokens = float(burst)
        self._last: Moment | None = None

    def try_accept(self, now: Moment) -> bool:
        """Takes a token if there is one."""
        tokens = self._at(now) - 1.0
        if self._burst < 1 or self._wait(tokens) > 0:
            return False
        self._last, self._tokens = now, tokens
        return True

    def reserve(self, now: Moment) -> int:
        """Takes a token, or the next that there will be: for how many nanoseconds the caller has to wait."""
        tokens = self._at(now) - 1.0
        self._last, self._tokens = now, tokens
        return self._wait(tokens)

    def _at(self, now: Moment) -> float:
        if self._last is None:
            return float(self._burst)
        elapsed = max(now - self._last, 0)
        return min(self._tokens + elapsed / _SECOND * self._qps, float(self._burst))

    def _wait(self, tokens: float) -> int:
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


_FAILURES: Final = "kscale_request_failures_total"
REQUEST_METRICS: Final = (Metric(_FAILURES, "counter", ("reason",)),)
"""Requests to the API server that failed, each try by itself."""

_LONGEST_TEXT: Final = 2048
MAX_RETRIES: Final = 10
_T = TypeVar("_T")


class RequestFailedError(KscaleError, OSError):
    """A request that came to nothing. ``error`` says why; one without code and reason is a connection that broke.

    ``refused``: nobody listened, so nothing has happened.
    """

    def __init__(self, error: ApiError, *, refused: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.refused = refused


def decoded(answer: Answer, type_: type[_T], call: Call) -> _T:
    """The document in the answer to a call. Raises :class:`RequestFailedError` for what is none: who answers in the
    place of an API server (a proxy, a page to log in) may say 200, too."""
    try:
        return read_json(answer.body, type_)
    except UnreadableError as error:
        raise _unreadable(call, error) from None


def listed(answer: Answer, call: Call, more: str = "", *, number: int = 1, limits: ServerLimits) -> ServerList:
    """The page ``number`` of a list in the answer to a call that went on with ``more``. Raises
    :class:`RequestFailedError`."""
    try:
        page = read_list(answer.body)
    except UnreadableError as error:
        raise _unreadable(call, error) from None
    if more and page.continue_ == more:
        raise _unreadable(call, "the next page is the same page")
    if page.continue_ and number >= limits.list_pages:
        raise _unreadable(call, f"the list has more pages than allowed ({limits.list_pages:,})")
    return page


def _unreadable(call: Call, why: object) -> RequestFailedError:
    text = f"the answer to {call.method} {call.path} cannot be read: {why}"
    return RequestFailedError(ApiError(shortened(text, _LONGEST_TEXT), reason="InternalError"))


def pause_before_retry(
    call: Call,
    found: Answer | ConnectionFailedError,
    attempt: int,
    *,
    max_retries: int = MAX_RETRIES,
    watch: bool = False,
    limits: ServerLimits = DEFAULT_LIMITS,
) -> float | None:
    """How many seconds to wait before a request is sent again; None: it is not. ``attempt`` counts from 1.

    Any request is, while the server asks for it (429 or 5xx with ``Retry-After``); a connection that broke is no loss
    for what only reads, and one that timed out none for a watch.
    """
    if attempt > max_retries:
        return None
    if isinstance(found, ConnectionFailedError):
        harmless = found.kind == "reset" or (watch and found.kind == "timeout")
        return 1 if harmless and call.method == "GET" else None
    if found.status != 429 and found.status < 500:
        return None
    pause = retry_after_seconds(found.headers)
    return None if pause is None else min(max(pause, 0), limits.retry_seconds)


class Client:
    """Talks to one API server.

    ``qps`` and ``burst``: the client-side rate limit (``--kube-client-qps``, ``--kube-client-burst``): 0 is client-go's
    default of 5 and 10, a negative ``qps`` is none. Watches are not limited. ``max_retries``: of a request that the
    server asks to send again. ``limits``: how much is taken from the server; ``buffers``: what its responses hold.
    ``observe`` is called with each request that fails (:data:`REQUEST_METRICS`).
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

    def apart(self) -> Client:
        """One that goes over the same connections, with a rate limit of its own: it never waits for this one's turn."""
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
        """The answer to a request. Raises :class:`RequestFailedError`."""
        attempt = 0
        while True:
            attempt += 1
            await self._wait_for_turn()
            try:
                found: Answer | ConnectionFailedError = await self.transport.call(call)
            except ConnectionFailedError as error:
                found = error.with_traceback(None)  # whose frames hold what was read so far
            if isinstance(found, Answer) and is_success(found.status):
                return found
            if isinstance(found, Answer):
                found.release()
            self._count_failure(found)
            pause = pause_before_retry(call, found, attempt, max_retries=self._max_retries, limits=self.limits)
            if pause is None:
                raise _failed(call, found)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def watch(self, call: Call) -> AsyncIterator[Stream | None]:
        """An answer that comes bit by bit; None: the connection broke again and again before there was any, which is no
        more than a watch that ended at once. Raises :class:`RequestFailedError`."""
        attempt = 0
        while True:
            attempt += 1
            async with AsyncExitStack() as stack:
                found: Answer | ConnectionFailedError
                try:
                    stream = await stack.enter_async_context(self.transport.stream(call))
                    found = Answer(stream.status, stream.headers, b"" if stream.status == 200 else await stream.read())
                except ConnectionFailedError as error:
                    found = error.with_traceback(None)  # whose frames hold what was read so far
                if isinstance(found, Answer) and found.status == 200:
                    yield stream
                    return
            self._count_failure(found)
            pause = pause_before_retry(
                call, found, attempt, max_retries=self._max_retries, watch=True, limits=self.limits
            )
            if pause is None:
                if isinstance(found, ConnectionFailedError) and found.kind in ("reset", "timeout"):
                    yield None
                    return
                raise _failed(call, found)
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Lets go of all connections."""
        await self.transport.close()

    def _count_failure(self, found: Answer | ConnectionFailedError) -> None:
        self.observe(Observation(name=_FAILURES, labels={"reason": _reason(found)}))

    async def _wait_for_turn(self) -> None:
        if self._bucket is not None:
            pause = self._bucket.reserve(self._clock.monotonic())
            if pause:
                await asyncio.sleep(pause / _SECOND)


def _reason(found: Answer | ConnectionFailedError) -> str:
    """Why a request failed, as a label of few values."""
    if isinstance(found, ConnectionFailedError):
        return found.kind.replace(" ", "_")
    return "throttled" if found.status == 429 else f"status_{found.status // 100}xx" if found.status >= 300 else "other"


def _failed(call: Call, found: Answer | ConnectionFailedError) -> RequestFailedError:
    if isinstance(found, Answer):
        return RequestFailedError(error_of(call, found))
    return RequestFailedError(ApiError(found.message), refused=found.kind == "refused")
