"""Keys of the objects that an input changed, and the page or watch data that came with it."""

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
    def joined(parts: Sequence[ChangedKeys]) -> ChangedKeys:
        """Concatenate consecutive changes."""
        if len(parts) == 1:
            return parts[0]
        return ChangedKeys(
            list(chain.from_iterable(each.added for each in parts)),
            list(chain.from_iterable(each.modified for each in parts)),
            list(chain.from_iterable(each.removed for each in parts)),
        )


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What lines of a watch came to.

    - ``used``: how many bytes were read. What is behind them is a piece of a line: put it in front of the next bytes.
    - ``events``: how many events there were, bookmarks included.
    - ``only_added``: whether every line was an ADDED event.
    - ``changes``: by kind, what is different now; an event that brings the version that is there changes nothing.
    - ``version``: the resource version of the last event or bookmark that has one; empty if none has.
    - ``synced``: whether a bookmark said that the initial events of a streaming list have ended.
    - ``error``: the status of an ERROR event, the last one; None if there is none.
    - ``skipped``: events of kinds that are not modelled, by ``kind.group``.
    - ``problems``: lines that are no events, and objects that cannot be read; the others count nevertheless, and what
      was there under the key of such an object still is.
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
    """What a page of a list came to: the resource version of the list, what to go on with (empty: it was the last
    page), how many objects are behind it (None: the server does not say), what is different now, and objects that
    cannot be read; the others count nevertheless."""

    version: str
    """The resource version of the list."""
    continue_: str
    """What the next question goes on with; empty: there is no more."""
    remaining: int | None
    """Objects behind this page, as the server guesses."""
    change: ChangedKeys
    """What is different now."""
    problems: tuple[Problem, ...] = ()
    """Objects that cannot be read."""
