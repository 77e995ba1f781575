"""Keys of the objects that an input changed, and the page or watch data that came with it.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from kscale.errors import Problem
from kscale.objects.api.meta import Status

__all__ = ["ChangedKeys", "Page", "Watched"]


class ChangedKeys(msgspec.Struct, frozen=True):
    """Keys of changed objects of one kind, in order.

    ``added`` are new objects, ``modified`` changed ones, and ``removed`` deleted ones. An object that is known to have
    been replaced by another of the same name is in ``removed`` and ``added``.
    """

    added: list[str] = []
    modified: list[str] = []
    removed: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.removed)

    @staticmethod
    def concatenate(parts: Sequence[ChangedKeys]) -> ChangedKeys:
        """Return consecutive changes (``parts``) as one, in order. A key that changed in several parts is repeated."""
        if len(parts) == 1:
            return parts[0]
        return ChangedKeys(
            list(chain.from_iterable(each.added for each in parts)),
            list(chain.from_iterable(each.modified for each in parts)),
            list(chain.from_iterable(each.removed for each in parts)),
        )


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """Result of applying lines of a watch.

    - ``used``: number of bytes read. The rest is an incomplete line: put it in front of the next bytes.
    - ``events``: number of events, including bookmarks.
    - ``only_added``: whether every line was an ADDED event.
    - ``changes``: changed keys by kind; an event with the version that is already stored changes nothing.
    - ``version``: the newest resource version of an event or bookmark; empty if there is none.
    - ``synced``: whether a bookmark marked the end of the initial events of a streaming list.
    - ``error``: status of the last ERROR event, or None.
    - ``skipped``: number of events of kinds that are not modelled, by ``kind.group``.
    - ``problems``: lines that are not events, and objects that cannot be read. All others were applied. An object that
      cannot be read leaves the stored one under its key unchanged.
    """

    used: int
    events: int
    only_added: bool
    changes: dict[str, ChangedKeys]
    version: str = ""
    synced: bool = False
    error: Status | None = None
    skipped: dict[str, int] = {}
    problems: tuple[Problem, ...] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Result of applying a page of a list.

    It has the list's resource version, the continue token (empty for the last page), the number of remaining objects
    (None if the server does not report it), the changed keys, and the objects that cannot be read. All others were
    applied.
    """

    version: str
    """The resource version of the list."""
    continue_: str
    """Token that continues the list in the next request; empty on the last page."""
    remaining: int | None
    """Server's estimate of the number of objects after this page."""
    change: ChangedKeys
    """Keys of the changed objects."""
    problems: tuple[Problem, ...] = ()
    """Objects that cannot be read."""
