"""List and watch of one kind: client-go's reflector as a step machine without I/O.

Upstream: ``client-go/tools/cache/reflector.go``, ``tools/pager``. The caller performs the requests, handles objects
and events, and reports to the machine only what it needs to know (:data:`Seen`).
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from kscale.effects import SECOND, ApiError, Exchange, Wait
from kscale.objects.api.meta import is_older_version
from kscale.world.kubernetes.client import TOO_LARGE_RESOURCE_VERSION

__all__ = [
    "PAGE_SIZE",
    "Asked",
    "Batch",
    "Close",
    "Ended",
    "Failed",
    "ListPage",
    "Listed",
    "OpenWatch",
    "Opened",
    "ReadMore",
    "Reflector",
    "Seen",
    "Settle",
    "Waited",
]

PAGE_SIZE: Final = 500
_SHORTEST_WATCH: Final = 300
_LONGEST_WATCH: Final = 600
_FIRST_PAUSE: Final = 8 * SECOND // 10
_LONGEST_PAUSE: Final = 30 * SECOND
_RESET: Final = 120 * SECOND


class ListPage(msgspec.Struct, frozen=True):
    """Request a page of a list. ``limit`` 0 means no limit, an empty ``continue_`` means the first page.

    ``anew``: a new list begins, and the objects of an unfinished list are discarded.
    """

    version: str
    limit: int = 0
    continue_: str = ""
    anew: bool = False


class OpenWatch(msgspec.Struct, frozen=True):
    """Open a watch with bookmarks.

    ``initial``: the watch begins with all objects (``sendInitialEvents``, not older than ``version``), as a new list.
    """

    version: str
    timeout_seconds: int
    initial: bool = False


class ReadMore(msgspec.Struct, frozen=True):
    """Read more of the open watch."""


class Settle(msgspec.Struct, frozen=True):
    """Finish the list at this version: objects that it did not contain are removed."""

    version: str


class Close(msgspec.Struct, frozen=True):
    """Close the open watch."""


Asked = ListPage | OpenWatch | ReadMore | Settle | Close | Wait


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """The step is done. ``at``: monotonic time in nanoseconds."""

    at: int


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A page was read: version of the list, and continue token (empty for the last page)."""

    at: int
    version: str
    continue_: str = ""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The watch is open."""

    at: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Events were read; ``events`` is their number, including bookmarks.

    ``version``: their newest resource version. ``only_added``: all events are additions. ``synced``: one marks the end
    of the initial events. ``error``: an ERROR event, which ends the watch.
    """

    at: int
    events: int
    version: str = ""
    only_added: bool = False
    synced: bool = False
    error: ApiError | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The watch was closed or broke."""

    at: int


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The request failed, or (``refused``) the connection was refused."""

    at: int
    error: ApiError
    refused: bool = False


Seen = Waited | Listed | Opened | Batch | Ended | Failed
_Steps = Exchange[Asked, Seen, ApiError | None]


def _is_expired(error: ApiError) -> bool:
    """Check whether the error says that the resource version is too old."""
    return error.reason in ("Expired", "Gone") or error.code == 410


def _is_unavailable(error: ApiError) -> bool:
    """Check whether the requested resource version has expired or is not available yet."""
    return _is_expired(error) or TOO_LARGE_RESOURCE_VERSION in error.causes


def _is_refused_version(error: ApiError, version: str) -> bool:
    """Check whether the server rejected a resource version as invalid, as it does for foreign versions."""
    return version not in ("", "0") and (error.code == 400 or error.reason == "BadRequest")


def _is_throttled(error: ApiError) -> bool:
    """Check whether the error says that the client sends too many requests."""
    return error.reason == "TooManyRequests" or error.code == 429


class _Backoff:
    """Pauses of 0.8 s, doubled up to 30 s, each with up to 100 % jitter; back to 0.8 s after two minutes."""

    __slots__ = ("_next", "_since")

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE
        self._since: int | None = None

    def wait(self, now: int) -> Wait:
        """Return the pause before the next try, and double the pause after it, up to a maximum.

        The pauses are short again once enough time has passed since the first one. ``now``: monotonic nanoseconds.
        """
        if self._since is None:
            self._since = now
        elif now - self._since > _RESET:
            self._next, self._since = _FIRST_PAUSE, now
        pause = self._next
        self._next = min(2 * pause, _LONGEST_PAUSE)
        return Wait(pause, 1.0)


class Reflector:
    """Reflector of one kind. ``version`` is the newest resource version seen; ``synced``: the kind was listed once.

    - ``streaming``: list by a watch where the server supports it, else by pages.
    - ``paged``: always list the newest state page by page. Otherwise list as client-go does, from the server's watch
      cache and in one piece.
    - ``page_size``: page size of all lists; 0: client-go's choice.
    - ``rng``: draws the timeout of each watch.
    """

    __slots__ = (
        "_backoff",
        "_now",
        "_page_size",
        "_paged",
        "_rng",
        "_streaming",
        "_unavailable",
        "_was_paginated",
        "last_error",
        "synced",
        "version",
    )

    def __init__(
        self, *, streaming: bool = True, paged: bool = False, page_size: int = 0, rng: random.Random | None = None
    ) -> None:
        self._streaming = streaming
        self._paged = paged
        self._page_size = page_size
        self._rng = rng or random.Random()
        self._backoff = _Backoff()
        self._unavailable = self._was_paginated = False
        self._now = 0
        self.version = ""
        self.synced = False
        self.last_error: ApiError | None = None
        """Error of the last attempt, or None if it succeeded."""

    def run(self, now: int) -> Exchange[Asked, Seen, None]:
        """Run forever: list, watch, pause, and repeat. Yields the requested steps, and is sent their results.

        ``now``: monotonic nanoseconds.
        """
        self._now = now
        while True:
            failed = yield from self.list_and_watch(self._now)
            if failed is not None:  # the error of a watch is set already
                self.last_error = failed
            yield from self._pause()

    def list_and_watch(self, now: int) -> _Steps:
        """List and watch until a new list is necessary.

        Returns the error of the list, or of a watch that could not be opened or ended at once; None if an open watch
        failed. Sets ``version``, ``synced`` and ``last_error`` on the way. Yields the requested steps, and is sent
        their results. ``now``: monotonic nanoseconds.
        """
        self._now = now
        is_open = False
        if self._streaming:
            is_open = (yield from self._watch_list()) is None
        if not is_open:
            failed = yield from self._list()
            if failed is not None:
                return failed
        self.synced, self.last_error = True, None
        return (yield from self._watch(is_open))

    def _perform(self, asked: Asked) -> Exchange[Asked, Seen, Seen]:
        """Yield a request and return its result, whose time becomes the current time."""
        seen = yield asked
        self._now = seen.at
        return seen

    def _pause(self) -> Exchange[Asked, Seen, None]:
        """Wait for the next interval of the back-off."""
        yield from self._perform(self._backoff.wait(self._now))

    # -- listing in pages --------------------------------------------------------------------------------------------

    def _list(self) -> _Steps:
        """List in pages. Returns the error, or None if the list is complete.

        If the server does not have the resource version, the newest state is listed instead.
        """
        version = self._list_version()
        result = yield from self._pages(version)
        if isinstance(result, Failed) and (_is_unavailable(result.error) or _is_refused_version(result.error, version)):
            self._unavailable = True
            result = yield from self._pages(self._list_version())
        if isinstance(result, Failed):
            return result.error
        newest, paginated = result
        if version == "0" and paginated:
            self._was_paginated = True  # the server has no watch cache for this kind
        return (yield from self._settle(newest))

    def _list_version(self) -> str:
        """Return the resource version to list: empty for the newest, ``0`` for any in the server's watch cache.

        After the first list it is the last one seen, unless the newest is needed.
        """
        if self._unavailable or self._paged:
            return ""  # the newest
        return self.version or "0"  # at first any version in the server's watch cache

    def _pages(self, version: str) -> Exchange[Asked, Seen, Failed | tuple[str, bool]]:
        """List all pages and return (resource version, whether there were several pages), or the failure.

        If the continue token expires, all objects are listed again in one piece.
        """
        limit = self._page_size
        if not limit and (self._was_paginated or version in ("", "0")):
            limit = PAGE_SIZE  # with another version the server uses its watch cache only if there is no limit
        seen = yield from self._perform(ListPage(version, limit, anew=True))
        newest, paginated = seen.version if isinstance(seen, Listed) else "", False
        while isinstance(seen, Listed) and seen.continue_:
            paginated = True
            seen = yield from self._perform(ListPage("", limit, seen.continue_))
            if isinstance(seen, Failed) and _is_expired(seen.error):
                seen = yield from self._perform(ListPage(version, anew=True))  # took too long: all at once
                newest = seen.version if isinstance(seen, Listed) else ""
                break
        if isinstance(seen, Failed):
            return seen
        return newest, paginated

    # -- listing by a watch ------------------------------------------------------------------------------------------

    def _watch_list(self) -> _Steps:
        """List by a watch.

        Returns None when the list is complete and the watch is open, or the error if the objects must be listed in
        pages.
        """
        while True:
            started = self._now
            version = "" if self._unavailable else self.version
            seen = yield from self._open(version, initial=True)
            events = 0
            while isinstance(seen, Opened | Batch):
                seen = yield from self._perform(ReadMore())
                if not isinstance(seen, Batch):
                    continue
                events += seen.events
                if seen.synced:
                    unsettled = yield from self._settle(seen.version)
                    if unsettled is not None:
                        yield from self._perform(Close())
                        return unsettled
                    if seen.error is None:
                        return None
                if seen.error is not None:
                    break
            failed = yield from self._failure(seen)
            if failed is None:
                if self._now - started < SECOND and not events:
                    return _VERY_SHORT
                continue  # the watch ended before its bookmark: start again
            error, refused = failed
            if refused or _is_throttled(error):
                yield from self._pause()
            elif _is_unavailable(error) or _is_refused_version(error, version):
                self._unavailable = True
            else:
                return error

    def _open(self, version: str, *, initial: bool = False) -> Exchange[Asked, Seen, Seen]:
        """Open a watch of the given version with a random timeout of five to ten minutes, and return the result.

        ``initial``: the watch first sends all objects.
        """
        timeout = int(_SHORTEST_WATCH + self._rng.random() * (_LONGEST_WATCH - _SHORTEST_WATCH))
        return (yield from self._perform(OpenWatch(version, timeout, initial)))

    def _failure(self, seen: Seen) -> Exchange[Asked, Seen, tuple[ApiError, bool] | None]:
        """Return (error, whether the connection was refused) of a failed watch, or None if it just ended.

        ``seen``: result of the last read. Closes a watch that ended with an ERROR event.
        """
        if isinstance(seen, Failed):
            return seen.error, seen.refused
        if isinstance(seen, Batch) and seen.error is not None:
            yield from self._perform(Close())
            return seen.error, False
        return None

    def _settle(self, version: str) -> _Steps:
        """Finish a list, and record its resource ``version``.

        Returns the error if the list cannot be finished (nothing is recorded then), else None.
        """
        seen = yield from self._perform(Settle(version))
        if isinstance(seen, Failed):
            return seen.error
        self._unavailable = False
        self.version = version
        return None

    # -- watching ----------------------------------------------------------------------------------------------------

    def _watch(self, is_open: bool) -> _Steps:
        """Watch, and open the watch again when it ends, until a new list is necessary.

        ``is_open``: the watch is open already. Returns the error if the watch cannot be opened or ends within a second
        without events; None if an open watch failed. If the server throttles or refuses the connection, it only pauses.
        """
        while True:
            started = self._now
            in_order = is_open or self.version not in ("", "0")
            seen: Seen
            if not is_open:
                seen = yield from self._open(self.version)
                if isinstance(seen, Failed):
                    if not seen.refused and not _is_throttled(seen.error):
                        return seen.error
                    yield from self._pause()
                    continue
            is_open = False
            events = 0
            while True:
                seen = yield from self._perform(ReadMore())
                if not isinstance(seen, Batch):
                    break
                events += seen.events
                in_order = in_order or not seen.only_added  # existing objects arrive in no particular order
                # A watch never goes back to an older version; a list may, after a restore of the server.
                if seen.version and in_order and not is_older_version(seen.version, self.version):
                    self.version = seen.version
                if seen.error is not None:
                    break
            failed = yield from self._failure(seen)
            if failed is None:
                if self._now - started < SECOND and not events:
                    return _VERY_SHORT
            elif _is_throttled(failed[0]):
                yield from self._pause()
            else:
                # Also for an expired version: the next list must not be older than what was seen.
                self.last_error = None if _is_expired(failed[0]) else failed[0]
                return None


_VERY_SHORT: Final = ApiError("very short watch: it lasted less than a second and no items received")
