"""What was worked out of one snapshot, kept with its cluster and renewed for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kscale.snapshot.snapshot import Snapshot

__all__ = ["renewed"]

T = TypeVar("T")


class _Last(dict[type[Any], Any]):
    """The newest value of each type; kept with the interner that snapshots of a cluster share."""


def renewed(snapshot: Snapshot, kind: type[T], renew: Callable[[T | None], T]) -> T:
    """The value of a type that a snapshot has. ``renew`` makes it from the last one that was made for a snapshot of the
    same cluster (None: there was none), which it may give back as it is, and does not change.

    A value keeps alive what it refers to until the next is made: never the snapshot itself.
    """

    def make() -> T:
        last = snapshot.interner.memo.of(_Last, _Last)
        found = last[kind] = renew(last.get(kind))
        return found

    return snapshot.memo.of(kind, make)
