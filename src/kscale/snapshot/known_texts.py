"""What texts stand for, by the number that a projector gave them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.columns import Growing

__all__ = ["KnownTexts"]

T = TypeVar("T")


class KnownTexts(Generic[T]):
    """What texts stand for, by number + 1; 0 is no text. Those that stand for None make a pod be read the slow way.

    ``read``: from the number of a text to what it stands for; ``absent``: what no text stands for; ``columns``,
    ``entries``: names and types of values, and those of what a text stands for; 0 for texts that are not usable."""

    def __init__(
        self,
        read: Callable[[int], T | None],
        absent: T | None,
        columns: Sequence[tuple[str, Any]] = (),
        entries: Callable[[T], tuple[Any, ...]] = lambda _: (),
    ) -> None:
        self._read = read
        self._entries = entries
        self.values: list[T | None] = []
        self._columns = Growing(np.dtype([*columns, ("known", np.bool_), ("usable", np.bool_)]))
        self._grow(1)
        self._set(0, absent)

    @property
    def columns(self) -> NDArray[Any]:
        """The columns, by number + 1."""
        return self._columns.array

    def learn(self, numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Read the texts that are new; whether each is usable."""
        places = numbers + 1
        self._grow(int(places.max(initial=0)) + 1)
        fresh = places[~self._columns.array["known"][places]]
        for at in dict.fromkeys(fresh.tolist()):
            self._set(at, self._read(at - 1))
        usable: NDArray[np.bool_] = self._columns.array["usable"][places]
        return usable

    def forget(self, gone: NDArray[np.int64]) -> None:
        """Texts of these numbers may be others from now on."""
        places = gone + 1
        places = places[places < len(self.values)]
        self._columns.array[places] = 0
        for at in places.tolist():
            self.values[at] = None

    def _grow(self, size: int) -> None:
        more = size - len(self.values)
        if more > 0:
            self.values += [None] * more
            self._columns.extend_to(size)

    def _set(self, at: int, found: T | None) -> None:
        self.values[at] = found
        if found is None:
            self._columns.array["known"][at] = True
        else:
            self._columns.array[at] = (*self._entries(found), True, True)
