"""The cyclic garbage collector, while very many objects and no cycles are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

__all__ = ["collector_at_ease", "collector_paused"]

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


class _Ease:
    """Who wants the collector at ease, in all threads: the first sets its threshold, the last puts it back."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = Lock(), 0, 0

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before, *others = gc.get_threshold()
                if 0 < self._before < _AT_EASE:
                    gc.set_threshold(_AT_EASE, *others)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            now, *others = gc.get_threshold()
            if self._users == 0 and now == _AT_EASE:  # else somebody has set it meanwhile
                gc.set_threshold(self._before, *others)


_EASE: Final = _Ease()


@contextmanager
def collector_at_ease() -> Iterator[None]:
    """Cyclic garbage is looked for after so many more objects, meanwhile: for what makes millions of them, few in
    cycles, on top of very many that stay. A collector that is off, or is more at ease already, stays as it is."""
    _EASE.begin()
    try:
        yield
    finally:
        _EASE.end()
