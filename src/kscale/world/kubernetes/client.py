"""Requests by client-go's rules: rate limit, what is tried again and after how long, and refusals as errors.

Upstream: ``client-go/rest`` (``request.go``, ``with_retry.go``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from kscale.effects import ApiError
from kscale.effects.reports import Metric, Observation
from kscale.errors import KscaleError
from kscale.objects.base import shortened
from kscale.world.kubernetes.rate_limit import TokenBucket
from kscale.world.kubernetes.status import error_of, is_success, retry_after_seconds
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
from kscale.world.server_data import ServerList, UnreadableError, read_json, read_list

__all__ = ["REQUEST_METRICS", "Client", "RequestFailedError", "decoded", "listed", "pause_before_retry"]

_FAILURES: Final = "kscale_request_failures_total"
REQUEST_METRICS: Final = (Metric(_FAILURES, "counter", ("reason",)),)
"""Requests to the API server that failed, each try by itself."""

_LONGEST_TEXT: Final = 2048
_SECOND: Final = 1e9
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


def listed(answer: Answer, call: Call, more: str = "") -> ServerList:
    """The page of a list in the answer to a call that went on with ``more``. Raises :class:`RequestFailedError`."""
    try:
        page = read_list(answer.body)
    except UnreadableError as error:
        raise _unreadable(call, error) from None
    if more and page.continue_ == more:
        raise _unreadable(call, "the next page is the same page")
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
    server asks to send again. ``limits``: how much is taken from the server. ``observe`` is called with each request
    that fails (:data:`REQUEST_METRICS`).
    """

    __slots__ = ("_bucket", "_clock", "_limit", "_max_retries", "limits", "observe", "transport")

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        qps: float = 0.0,
        burst: int = 0,
        max_retries: int = MAX_RETRIES,
        limits: ServerLimits = DEFAULT_LIMITS,
    ) -> None:
        self.transport = transport
        self.limits = limits
        self.observe: Callable[[Observation], None] = lambda _: None
        self._clock = clock
        self._limit = (qps, burst)
        self._bucket = None if qps < 0 else TokenBucket(qps or 5.0, burst or 10)
        self._max_retries = max_retries

    def apart(self) -> Client:
        """One that goes over the same connections, with a rate limit of its own: it never waits for this one's turn."""
        qps, burst = self._limit
        client = Client(
            self.transport, self._clock, qps=qps, burst=burst, max_retries=self._max_retries, limits=self.limits
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
