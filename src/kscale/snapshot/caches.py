"""Values computed from something immutable, cached with it; and control of the garbage collector during bulk work."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any, Final, TypeVar

__all__ = ["Ease", "Memo", "collector_at_ease", "collector_paused"]


T = TypeVar("T")


class Memo:
    """One value of each type, made when it is first asked for. Whoever owns the type owns what is kept under it, and
    does not change it afterwards but with a lock of its own. Gone with what it is kept with; never pickled or copied.
    """

    __slots__ = ("_kept", "_lock")

    def __init__(self) -> None:
        self._kept: dict[type[Any], Any] = {}
        self._lock = RLock()  # making one value may ask for another

    def of(self, kind: type[T], make: Callable[[], T]) -> T:
        """The value of a type; ``make`` makes it."""
        found: T | None = self._kept.get(kind)
        if found is None:
            with self._lock:
                found = self._kept.get(kind)
                if found is None:
                    found = self._kept[kind] = make()
        return found

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()

    def __deepcopy__(self, known: Any) -> Memo:
        return Memo()

    def __copy__(self) -> Memo:
        return Memo()


_AT_EASE: Final = 200_000


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: it would walk the same objects again and again, and find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Ease:
    """Who wants the collector at ease, in all threads: the first and who wants more set its threshold, the last puts it
    back."""

    def __init__(self) -> None:
        self._lock, self._users, self._before, self._set = Lock(), 0, 0, 0

    def begin(self, objects: int) -> None:
        with self._lock:
            self._users += 1
            now, *others = gc.get_threshold()
            if self._users == 1:
                self._before = self._set = now
            if 0 < now < objects and now == self._set:  # else somebody has set it meanwhile
                self._set = objects
                gc.set_threshold(objects, *others)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            now, *others = gc.get_threshold()
            if self._users == 0 and now == self._set != self._before:
                gc.set_threshold(self._before, *others)


_EASE = Ease()


@contextmanager
def collector_at_ease(objects: int = _AT_EASE) -> Iterator[None]:
    """Cyclic garbage is looked for after so many more ``objects``, meanwhile: for what makes very many of them, few in
    cycles, on top of very many that stay. A collector that is off, or is more at ease already, stays as it is."""
    ease = _EASE
    ease.begin(objects)
    try:
        yield
    finally:
        ease.end()
