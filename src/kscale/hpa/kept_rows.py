"""Which rows of a round were rows of the round before: those whose objects are the very same objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names

__all__ = ["KeptRows"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KeptRows:
    """``source`` int64[n]: the row before of each row, -1: it is new; ``fresh`` int64: the new ones, ascending.

    ``in_place``: every row that was kept is where it was, and there are as many as before.
    """

    source: NDArray[np.int64]
    fresh: NDArray[np.int64]
    in_place: bool

    @classmethod
    def of(cls, now: list[Any], before: list[Any]) -> KeptRows:
        """Compares objects by what they are, not by what they say."""
        n = len(now)
        if n == len(before):
            fresh = _names.other_objects(now, before)
            if 2 * len(fresh) <= n:
                source = np.arange(n)
                source[fresh] = -1
                return cls(source, fresh, True)
        rows = {id(each): row for row, each in enumerate(before)}
        source = np.fromiter((rows.get(id(each), -1) for each in now), np.int64, n)
        return cls(source, np.flatnonzero(source < 0), False)

    @property
    def all(self) -> bool:
        """Whether nothing is new and nothing moved."""
        return self.in_place and not len(self.fresh)

    def also(self, fresh: NDArray[np.bool_]) -> KeptRows:
        """With more rows that are taken to be new: bool[n]."""
        source = np.where(fresh, -1, self.source)
        return KeptRows(source, np.flatnonzero(source < 0), self.in_place)

    def array(self, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        """One value a row: those of ``old`` that were kept, and ``new`` for the fresh ones in their order."""
        if not len(old):
            return new
        out = old.copy() if self.in_place else old[self.source]
        out[self.fresh] = new
        return out

    def list(self, old: Sequence[_T], new: Sequence[_T]) -> Sequence[_T]:
        """The same of a list; ``old`` itself where nothing is new."""
        if self.all:
            return old
        out = list(old) if self.in_place else [new[0] if row < 0 else old[row] for row in self.source.tolist()]
        for row, each in zip(self.fresh.tolist(), new, strict=True):
            out[row] = each
        return out
