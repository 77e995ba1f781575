"""Values cached with the immutable object they are computed from, and control of the garbage collector in bulk work."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any, Final, TypeVar

__all__ = ["GarbageCollectionPause", "TypedCache", "collector_paused", "collector_relaxed"]


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
        """Return the cached value of a type. ``make`` computes it on first use, under the cache's lock."""
        cached: T | None = self._values.get(kind)
        if cached is None:
            with self._lock:
                cached = self._values.get(kind)
                if cached is None:
                    cached = self._values[kind] = make()
        return cached

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
    """Stop cyclic garbage collection inside the context.

    The collector would traverse the same objects repeatedly without finding garbage.
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
        """Begin a use: raise the collector's threshold to ``objects``, unless it is off or higher."""
        with self._lock:
            self._users += 1
            now, *others = gc.get_threshold()
            if self._users == 1:
                self._before = self._set = now
            if 0 < now < objects and now == self._set:  # otherwise other code has set it meanwhile
                self._set = objects
                gc.set_threshold(objects, *others)

    def leave(self) -> None:
        """End a use. The last one restores the threshold, unless other code has set it."""
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
