"""Cache of values computed from objects, reused from loop to loop while the objects are identical."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any, Final, Generic, TypeVar

from kscale.snapshot.snapshot import Snapshot

__all__ = ["IdentityCache", "cached_by_identity"]

K = TypeVar("K")
V = TypeVar("V")


class _SequenceMatch:
    """Positions of objects in an older sequence. ``same``: all objects are identical; ``fresh``: positions of new
    objects.

    ``rows``: the older position of each object, 0 for new ones; None: the others have their old positions, and the
    length is equal.
    """

    __slots__ = ("fresh", "rows", "same")

    def __init__(self, before: Sequence[object], objects: Sequence[object]) -> None:
        others = [*compress(count(), map(is_not, before, objects))]
        both = min(len(before), len(objects))
        left, come = [*others, *range(both, len(before))], [*others, *range(both, len(objects))]
        self.same = not left and not come
        row_of = {id(before[i]): i for i in left}
        moved = {i: row for i in come if (row := row_of.get(id(objects[i]))) is not None}
        self.fresh = [i for i in come if i not in moved]
        self.rows: list[int] | None = None
        if moved or len(before) != len(objects):
            self.rows = [*range(len(objects))]
            for i in come:
                self.rows[i] = moved.get(i, 0)


class IdentityCache(Generic[K, V]):
    """Cache of one value per object of the last request. Objects are compared by identity and must not change."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[Sequence[K], list[V]] = (), []

    def get(
        self,
        objects: Sequence[K],
        make: Callable[[K], V],
        match: Callable[[Sequence[K], Sequence[K]], _SequenceMatch] = _SequenceMatch,
    ) -> list[V]:
        """Return the values of objects in order; the same list while the objects are the same (do not modify it).

        ``make`` computes the values of new objects. ``match`` finds objects among those of the last call.
        """
        before, values = self._last
        if before is objects:
            return values
        matched = match(before, objects) if before else None
        if matched is None:
            values = [make(each) for each in objects]
        elif not matched.same:
            values = [*values] if matched.rows is None else [*map(values.__getitem__, matched.rows)]
            for i in matched.fresh:
                values[i] = make(objects[i])
        self._last = objects, values
        return values


class _IdentityCaches:
    """Caches by purpose, stored with the interner that the snapshots of a cluster share."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, IdentityCache[Any, Any]]] = []
        self._matched: list[tuple[Sequence[object], Sequence[object], _SequenceMatch]] = []

    def match(self, before: Sequence[object], objects: Sequence[object]) -> _SequenceMatch:
        """Return the match of two sequences, cached for all purposes if they are long."""
        if len(objects) < _MIN_MATCHED_LENGTH:
            return _SequenceMatch(before, objects)
        for old, new, known in self._matched:
            if old is before and new is objects:
                return known
        matched = _SequenceMatch(before, objects)
        self._matched = [(before, objects, matched), *self._matched[: _MAX_MATCHES - 1]]
        return matched


_MAX_CACHES: Final = 32
_MAX_MATCHES: Final = 4
_MIN_MATCHED_LENGTH: Final = 64
"""From so many objects on it is worth while to remember how sequences match."""


def cached_by_identity(
    snapshot: Snapshot, what: tuple[Any, ...], objects: Sequence[K], make: Callable[[K], V]
) -> list[V]:
    """Return the values of objects, cached with the snapshot's cluster while the objects are identical.

    ``what`` names the purpose and contains everything else that the values depend on. Only the most recently used
    purposes are cached.
    """
    caches = snapshot.interner.memo.get(_IdentityCaches, _IdentityCaches)
    for known, values in caches.found:
        if known == what:
            return values.get(objects, make, caches.match)
    values = IdentityCache()
    caches.found = [(what, values), *caches.found[: _MAX_CACHES - 1]]
    return values.get(objects, make)
