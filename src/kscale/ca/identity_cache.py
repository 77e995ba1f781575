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
    """Where objects stood in an older sequence. ``same``: they are the very same; ``fresh``: positions of new ones;
    ``rows``: the older position of each, 0 for new ones; None: the others stand where they stood, and are as many."""

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
    """One value an object: made anew for objects that were not among those asked about last. Objects do not change."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[Sequence[K], list[V]] = (), []

    def of(
        self,
        objects: Sequence[K],
        make: Callable[[K], V],
        match: Callable[[Sequence[K], Sequence[K]], _SequenceMatch] = _SequenceMatch,
    ) -> list[V]:
        """The values of objects, in order: the very same list while the objects are the same (not to be written to).

        ``match``: finds objects among those asked about last."""
        before, values = self._last
        if before is objects:
            return values
        found = match(before, objects) if before else None
        if found is None:
            values = [make(each) for each in objects]
        elif not found.same:
            values = [*values] if found.rows is None else [*map(values.__getitem__, found.rows)]
            for i in found.fresh:
                values[i] = make(objects[i])
        self._last = objects, values
        return values


class _IdentityCaches:
    """By what they are for; kept with the interner that the snapshots of a cluster share."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, IdentityCache[Any, Any]]] = []
        self._matched: list[tuple[Sequence[object], Sequence[object], _SequenceMatch]] = []

    def match(self, before: Sequence[object], objects: Sequence[object]) -> _SequenceMatch:
        """Sequences are matched once for all purposes."""
        if len(objects) < _MIN_MATCHED_LENGTH:
            return _SequenceMatch(before, objects)
        for old, new, known in self._matched:
            if old is before and new is objects:
                return known
        found = _SequenceMatch(before, objects)
        self._matched = [(before, objects, found), *self._matched[: _MAX_MATCHES - 1]]
        return found


_MAX_CACHES: Final = 32
_MAX_MATCHES: Final = 4
_MIN_MATCHED_LENGTH: Final = 64
"""From so many objects on it is worth while to remember how sequences match."""


def cached_by_identity(
    snapshot: Snapshot, what: tuple[Any, ...], objects: Sequence[K], make: Callable[[K], V]
) -> list[V]:
    """The values of objects for a purpose, kept with the cluster of a snapshot. ``what`` names the purpose, and has all
    besides the objects that values depend on; the purposes that were asked for last are kept."""
    kept = snapshot.interner.memo.of(_IdentityCaches, _IdentityCaches)
    for known, values in kept.found:
        if known == what:
            return values.of(objects, make, kept.match)
    values = IdentityCache()
    kept.found = [(what, values), *kept.found[: _MAX_CACHES - 1]]
    return values.of(objects, make)
