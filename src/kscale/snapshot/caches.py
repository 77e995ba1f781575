"""Caches of values computed from objects that do not change, and control of the garbage collector in bulk work.

:class:`TypedCache` holds one value per type with its owner, :class:`IdentityCache` one value per object from loop to
loop while the objects are identical.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, count
from operator import is_, is_not
from threading import Lock, RLock
from typing import Any, Final, Generic, TypeVar

__all__ = [
    "GarbageCollectionPause",
    "IdentityCache",
    "TypedCache",
    "cached_by_identity",
    "collector_paused",
    "collector_relaxed",
]


T = TypeVar("T")


class TypedCache:
    """A cache of one value per type, computed on first use.

    The owner of the key type owns the value, and may modify it only under a lock of its own. The cache lives as long
    as the object that holds it, and is never pickled or copied.
    """

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._values: dict[type[Any], Any] = {}
        self._lock = RLock()  # computing one value may request another

    def get(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the value cached under the type ``kind``. On first use, ``make()`` creates it under a lock."""
        cached: T | None = self._values.get(kind)
        if cached is None:
            with self._lock:
                cached = self._values.get(kind)
                if cached is None:
                    cached = self._values[kind] = make()
        return cached

    def find(self, kind: type[T]) -> T | None:
        """Return the value cached under the type ``kind``; None if it was not computed yet. Computes nothing."""
        return self._values.get(kind)

    def clear(self) -> None:
        """Remove all cached values."""
        with self._lock:
            self._values.clear()

    def __reduce__(self) -> tuple[type[TypedCache], tuple[()]]:
        return TypedCache, ()

    def __deepcopy__(self, known: Any) -> TypedCache:
        return TypedCache()

    def __copy__(self) -> TypedCache:
        return TypedCache()


_OBJECTS_PER_COLLECTION: Final = 200_000


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable cyclic garbage collection inside the context, and enable it again at the end if it was enabled.

    For code that creates many objects without cycles, which the collector would traverse in vain.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class GarbageCollectionPause:
    """Shared state of :func:`collector_relaxed` in all threads.

    The first user, or one with a greater limit, sets the collector's threshold, and the last user restores it.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._before, self._set = Lock(), 0, 0, 0

    def enter(self, objects: int) -> None:
        """Begin a use of :func:`collector_relaxed`: raise the collector's threshold to ``objects``.

        A collector that is off or has a higher threshold is left as it is. Several threads may enter at once.
        """
        with self._lock:
            self._users += 1
            now, *others = gc.get_threshold()
            if self._users == 1:
                self._before = self._set = now
            if 0 < now < objects and now == self._set:  # otherwise other code has set it meanwhile
                self._set = objects
                gc.set_threshold(objects, *others)

    def leave(self) -> None:
        """End a use. When no use is left, restore the earlier threshold, unless other code has set it meanwhile."""
        with self._lock:
            self._users -= 1
            now, *others = gc.get_threshold()
            if self._users == 0 and now == self._set != self._before:
                gc.set_threshold(self._before, *others)


_PAUSE = GarbageCollectionPause()


@contextmanager
def collector_relaxed(objects: int = _OBJECTS_PER_COLLECTION) -> Iterator[None]:
    """Reduce cyclic garbage collection inside the context to one per ``objects`` new objects.

    For code that creates very many objects, few of them in cycles, while very many others stay alive. A collector that
    is off or runs even less often is left as it is.
    """
    pause = _PAUSE
    pause.enter(objects)
    try:
        yield
    finally:
        pause.leave()


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
        self.rows: list[int] | None = None
        self.same = len(before) == len(objects) and all(map(is_, before, objects))
        if self.same:
            self.fresh: list[int] = []
            return
        others = [*compress(count(), map(is_not, before, objects))]
        both = min(len(before), len(objects))
        left, come = [*others, *range(both, len(before))], [*others, *range(both, len(objects))]
        row_of = {id(before[i]): i for i in left}
        moved = {i: row for i in come if (row := row_of.get(id(objects[i]))) is not None}
        self.fresh = [i for i in come if i not in moved]
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
        """Return the value of each object, in order. Do not modify the list: equal calls return the same one.

        ``make`` computes the value of an object that was not in the last call. ``match(before, objects)`` finds which
        objects were in ``before``, the sequence of the last call.
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
    """The identity caches of a cluster, by purpose."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, IdentityCache[Any, Any]]] = []
        self._matched: list[tuple[Sequence[object], Sequence[object], _SequenceMatch]] = []

    def match(self, before: Sequence[object], objects: Sequence[object]) -> _SequenceMatch:
        """Return where ``objects`` were in ``before``. Matches of long sequences are cached for all purposes."""
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
"""Minimum length of sequences for which it pays to remember how they match."""


def cached_by_identity(
    cache: TypedCache, what: tuple[Any, ...], objects: Sequence[K], make: Callable[[K], V]
) -> list[V]:
    """Return the values of objects, cached while the objects are identical.

    ``make(object)`` computes a value. ``cache`` is that of the snapshots of a cluster (``snapshot.interner.memo``).
    ``what`` names the purpose and contains everything else that the values depend on. Only the 32 purposes that were
    added last are cached. Do not modify the result.
    """
    caches = cache.get(_IdentityCaches, _IdentityCaches)
    for known, values in caches.found:
        if known == what:
            return values.get(objects, make, caches.match)
    values = IdentityCache()
    caches.found = [(what, values), *caches.found[: _MAX_CACHES - 1]]
    return values.get(objects, make)
