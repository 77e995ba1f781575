"""What was worked out of something that does not change, kept with it."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar

__all__ = ["Memo"]

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
