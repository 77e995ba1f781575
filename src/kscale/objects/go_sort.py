"""The order in which Go's unstable ``slices.SortFunc`` and ``sort.Slice`` leave elements that compare equal.

These sorts are deterministic: a pattern-defeating quicksort (Orson Peters, 2021) whose choices depend only on the
comparisons and the number of elements. This module gives ties the order that upstream gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

__all__ = ["sort_as_go"]

T = TypeVar("T")

_SHORT: Final = 12
"""Up to so many elements are sorted by insertion, hence in a stable way."""
_MEDIAN_FROM: Final = 8
"""From so many elements on the pivot is a median of three."""
_NINTHER_FROM: Final = 50
"""From so many on it is a median of three medians, and a nearly sorted range is worth repairing."""
_ALL_SWAPPED: Final = 12
"""Swaps of a ninther when every comparison was the wrong way round: the range probably descends."""
_REPAIRS: Final = 5
_WORD: Final = (1 << 64) - 1


def sort_as_go(items: Iterable[T], less: Callable[[T, T], bool]) -> list[T]:
    """Sort items in ascending order as Go does; ``less(a, b)`` is whether ``a`` comes strictly before ``b``."""
    result = list(items)
    _Sorting(result, less).sort(0, len(result), len(result).bit_length())
    return result


class _Sorting(Generic[T]):
    """State of sorting a list; ranges are [begin, end)."""

    def __init__(self, items: list[T], less: Callable[[T, T], bool]) -> None:
        self.items = items
        self._less = less

    def less(self, i: int, j: int) -> bool:
        return self._less(self.items[i], self.items[j])

    def swap(self, i: int, j: int) -> None:
        self.items[i], self.items[j] = self.items[j], self.items[i]

    def sort(self, begin: int, end: int, bad_allowed: int) -> None:
        """Sort a range; after ``bad_allowed`` unbalanced partitions, use a heap for the rest."""
        balanced = partitioned = True
        while end - begin > _SHORT:
            if bad_allowed == 0:
                self.sort_by_heap(begin, end)
                return
            if not balanced:
                self.shuffle(begin, end)
                bad_allowed -= 1
            pivot, swaps = self.pivot_of(begin, end)
            ascends = swaps == 0
            if swaps == _ALL_SWAPPED:
                self.items[begin:end] = self.items[begin:end][::-1]
                pivot = begin + end - 1 - pivot
                balanced = partitioned = ascends = True
            if balanced and partitioned and ascends and self.try_repair(begin, end):
                return
            if begin > 0 and not self.less(begin - 1, pivot):  # nothing here is smaller than the pivot
                begin = self.partition_equal(begin, end, pivot)
                continue
            middle, partitioned = self.partition(begin, end, pivot)
            left, right = middle - begin, end - middle
            balanced = min(left, right) >= (end - begin) // 8
            if left < right:
                self.sort(begin, middle, bad_allowed)
                begin = middle + 1
            else:
                self.sort(middle + 1, end, bad_allowed)
                end = middle
        self.sort_by_insertion(begin, end)

    def sink(self, i: int, least: int) -> None:
        """Move an element towards ``least`` while it is less than its predecessor."""
        while i > least and self.less(i, i - 1):
            self.swap(i, i - 1)
            i -= 1

    def sort_by_insertion(self, begin: int, end: int) -> None:
        for i in range(begin + 1, end):
            self.sink(i, begin)

    def sort_by_heap(self, begin: int, end: int) -> None:
        size = end - begin
        for root in range((size - 1) // 2, -1, -1):
            self.sift(begin, root, size)
        for last in range(size - 1, -1, -1):
            self.swap(begin, begin + last)
            self.sift(begin, 0, last)

    def sift(self, begin: int, root: int, size: int) -> None:
        while (child := 2 * root + 1) < size:
            if child + 1 < size and self.less(begin + child, begin + child + 1):
                child += 1
            if not self.less(begin + root, begin + child):
                return
            self.swap(begin + root, begin + child)
            root = child

    def shuffle(self, begin: int, end: int) -> None:
        """Swap three elements around the middle with others, to break patterns that cause bad pivots."""
        size = end - begin
        state, mask = size, (1 << size.bit_length()) - 1
        middle = begin + size // 4 * 2
        for i in range(middle - 1, middle + 2):
            for shift in (13, -7, 17):
                state ^= (state << shift if shift > 0 else state >> -shift) & _WORD
            other = state & mask
            self.swap(i, begin + (other - size if other >= size else other))

    def pivot_of(self, begin: int, end: int) -> tuple[int, int]:
        """Return the pivot's index, and how many compared pairs were in the wrong order."""
        size = end - begin
        swaps = 0

        def median(i: int, j: int, k: int) -> int:
            nonlocal swaps
            if self.less(j, i):
                i, j, swaps = j, i, swaps + 1
            if self.less(k, j):
                j, swaps = k, swaps + 1
            if self.less(j, i):
                j, swaps = i, swaps + 1
            return j

        places = [begin + size // 4 * part for part in (1, 2, 3)]
        if size >= _NINTHER_FROM:
            places = [median(i - 1, i, i + 1) for i in places]
        if size >= _MEDIAN_FROM:
            places[1] = median(*places)
        return places[1], swaps

    def try_repair(self, begin: int, end: int) -> bool:
        """Try to sort the range by a few swaps; return whether it is sorted now."""
        i = begin + 1
        for _ in range(_REPAIRS):
            while i < end and not self.less(i, i - 1):
                i += 1
            if i == end:
                return True
            if end - begin < _NINTHER_FROM:
                return False
            self.swap(i, i - 1)
            if i - begin >= 2:
                self.sink(i - 1, 0)
            if end - i >= 2:
                for j in range(i + 1, end):
                    if not self.less(j, j - 1):
                        break
                    self.swap(j, j - 1)
        return False

    def partition_equal(self, begin: int, end: int, pivot: int) -> int:
        """Move elements equal to the pivot to the front; return where the greater ones begin."""
        self.swap(begin, pivot)
        i, j = begin + 1, end - 1
        while True:
            while i <= j and not self.less(begin, i):
                i += 1
            while i <= j and self.less(begin, j):
                j -= 1
            if i > j:
                return i
            self.swap(i, j)
            i, j = i + 1, j - 1

    def partition(self, begin: int, end: int, pivot: int) -> tuple[int, bool]:
        """Move elements less than the pivot before it; return its new index, and whether the range was partitioned
        already.
        """
        self.swap(begin, pivot)
        i, j = begin + 1, end - 1
        already = True
        while True:
            while i <= j and self.less(i, begin):
                i += 1
            while i <= j and not self.less(j, begin):
                j -= 1
            if i > j:
                self.swap(j, begin)
                return j, already
            self.swap(i, j)
            i, j, already = i + 1, j - 1, False
