"""Numbers for things that come and go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["Facets", "Numbering"]

K = TypeVar("K")


class Numbering(Generic[K]):
    """A number for each key, the same for as long as the key is used; those of keys that went are given again.

    ``keys``: by number, None where there is none now. Keys are never None.
    """

    __slots__ = ("_free", "_number", "keys")

    def __init__(self) -> None:
        self.keys: list[K | None] = []
        self._number: dict[K, int] = {}
        self._free: list[int] = []

    def get(self, key: K) -> int | None:
        """The number of a key, None if it has none."""
        return self._number.get(key)

    @property
    def next(self) -> int:
        """The number that the next key gets: what it stands for is put there first, as others may look meanwhile."""
        return self._free[-1] if self._free else len(self.keys)

    def add(self, key: K) -> int:
        """The number of a key that has none yet."""
        number = self.next
        if number < len(self.keys):
            self._free.pop()
            self.keys[number] = key
        else:
            self.keys.append(key)
        self._number[key] = number
        return number

    def discard(self, numbers: Iterable[int]) -> None:
        """Keys go."""
        for number in numbers:
            key = self.keys[number]
            if key is not None:
                del self._number[key]
                self.keys[number] = None
                self._free.append(number)

    def __copy__(self) -> Numbering[K]:
        """The same numbers, on their own."""
        made: Numbering[K] = Numbering()
        made.keys, made._number = self.keys.copy(), self._number.copy()
        made._free = self._free.copy()
        return made


class Facets(Generic[K]):
    """A number for each key, and how many use it; a number is never given again, whatever becomes of its key."""

    __slots__ = ("_key", "_next", "_number", "_used")

    def __init__(self) -> None:
        self._number: dict[K, int] = {}
        self._key: dict[int, K] = {}
        self._used: dict[int, int] = {}
        self._next = 0

    def take(self, key: K) -> int:
        """The number of a key, used once more."""
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = self._next
            self._next += 1
            self._key[number] = key
            self._used[number] = 1
        else:
            self._used[number] += 1
        return number

    def get(self, key: K) -> int | None:
        """The number of a key, None if nothing uses it."""
        return self._number.get(key)

    def release(self, number: int) -> bool:
        """It is used once less; whether by nothing any more."""
        count = self._used[number]
        if count > 1:
            self._used[number] = count - 1
            return False
        del self._used[number], self._number[self._key.pop(number)]
        return True

    def __copy__(self) -> Facets[K]:
        """The same numbers, on their own."""
        made: Facets[K] = Facets()
        made._number, made._key, made._next = self._number.copy(), self._key.copy(), self._next
        made._used = self._used.copy()
        return made
