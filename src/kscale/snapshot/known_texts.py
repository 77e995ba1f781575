"""What texts stand for, by the number that a projector gave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.columns import Growing, distinct

__all__ = ["KnownTexts"]

T = TypeVar("T")


class KnownTexts(Generic[T]):
    """What texts stand for, by number + 1; 0 is no text. Those that stand for None make a pod be read the slow way.

    ``read``: from the number of a text to what it stands for; ``absent``: what no text stands for; ``columns``: values
    of what texts stand for, with their types, 0 for texts that are not usable."""

    def __init__(
        self, read: Callable[[int], T | None], absent: T | None, **columns: tuple[Callable[[T], Any], Any]
    ) -> None:
        self._read = read
        self._made_by = {name: made_by for name, (made_by, _) in columns.items()}
        self.values: list[T | None] = []
        self._columns = {name: Growing(dtype) for name, (_, dtype) in columns.items()}
        self._known = Growing(np.bool_)
        self._usable = Growing(np.bool_)
        self._grow(1)
        self._set(np.zeros(1, dtype=np.int32), [absent])

    def column(self, name: str) -> NDArray[Any]:
        """A column, by number + 1."""
        return self._columns[name].array

    def learn(self, numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Read the texts that are new; whether each is usable."""
        places = numbers + 1
        self._grow(int(places.max(initial=0)) + 1)
        fresh = distinct(places[~self._known.array[places]])
        if len(fresh):
            self._set(fresh, [self._read(at - 1) for at in fresh.tolist()])
        usable: NDArray[np.bool_] = self._usable.array[places]
        return usable

    def forget(self, gone: NDArray[np.int64]) -> None:
        """Texts of these numbers may be others from now on."""
        places = gone + 1
        places = places[places < len(self.values)]
        self._known.array[places] = False
        self._usable.array[places] = False
        for column in self._columns.values():
            column.array[places] = 0
        for at in places.tolist():
            self.values[at] = None

    def _grow(self, size: int) -> None:
        more = size - len(self.values)
        if more > 0:
            self.values += [None] * more
            for column in (self._known, self._usable, *self._columns.values()):
                column.extend_to(size)

    def _set(self, places: NDArray[np.int32], found: list[T | None]) -> None:
        good = [each for each in found if each is not None]
        usable = np.fromiter((each is not None for each in found), np.bool_, len(found))
        for at, each in zip(places.tolist(), found, strict=True):
            self.values[at] = each
        self._known.array[places] = True
        self._usable.array[places] = usable
        for name, made_by in self._made_by.items():
            self._columns[name].array[places[usable]] = [made_by(each) for each in good]
