"""What is worked out of single objects, kept from loop to loop while the objects are the very same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Generic, TypeVar

from kscale.snapshot.snapshot import Snapshot

__all__ = ["ByIdentity", "kept_with"]

K = TypeVar("K")
V = TypeVar("V")


class ByIdentity(Generic[K, V]):
    """One value an object: made anew for objects that were not among those asked about last. Objects do not change."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[Sequence[K], list[V]] = (), []

    def of(self, objects: Sequence[K], make: Callable[[K], V]) -> list[V]:
        """The values of objects, in order: the very same list while the objects are the same (not to be written to)."""
        before, values = self._last
        if before is objects:
            return values
        if len(before) == len(objects):
            others = [i for i, same in enumerate(map(is_, before, objects)) if not same]
            if others:
                values = values.copy()
                for i in others:
                    values[i] = make(objects[i])
        else:
            known = dict(zip(map(id, before), values, strict=True))
            values = [known[id(each)] if id(each) in known else make(each) for each in objects]
        self._last = objects, values
        return values


class _Kept:
    """By what they are for; kept with the interner that the snapshots of a cluster share."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, ByIdentity[Any, Any]]] = []


_MOST = 32


def kept_with(snapshot: Snapshot, what: tuple[Any, ...], objects: Sequence[K], make: Callable[[K], V]) -> list[V]:
    """The values of objects for a purpose, kept with the cluster of a snapshot. ``what`` names the purpose, and has all
    besides the objects that values depend on; the purposes that were asked for last are kept."""
    kept = snapshot.interner.memo.of(_Kept, _Kept)
    for known, values in kept.found:
        if known == what:
            return values.of(objects, make)
    values = ByIdentity()
    kept.found = [(what, values), *kept.found[: _MOST - 1]]
    return values.of(objects, make)
