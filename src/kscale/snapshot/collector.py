"""The cyclic garbage collector, while very many objects and no cycles are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

__all__ = ["Ease", "collector_at_ease", "collector_paused"]

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
