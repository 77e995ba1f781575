"""Lists one after the other, which are not copied: who knows one of them knows it again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Generic, TypeVar, overload

__all__ = ["JoinedLists"]

_T = TypeVar("_T")


class JoinedLists(Sequence[_T], Generic[_T]):
    """All items of several lists, in order. ``parts``: those lists, which nobody writes to any more; ``ends``: behind
    the last item of each."""

    __slots__ = ("ends", "parts")

    def __init__(self, parts: Sequence[Sequence[_T]]) -> None:
        self.parts = tuple(parts)
        self.ends = list(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __iter__(self) -> Iterator[_T]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, i: int) -> _T: ...
    @overload
    def __getitem__(self, i: slice) -> list[_T]: ...
    def __getitem__(self, i: int | slice) -> _T | list[_T]:
        if isinstance(i, slice):
            return list(self)[i]
        i = range(len(self))[i]
        number = bisect_right(self.ends, i)
        return self.parts[number][i - self.ends[number]]  # counted from its end
