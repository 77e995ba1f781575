"""The order in which Go's unstable ``slices.SortFunc`` and ``sort.Slice`` leave elements that compare equal.

They are not stable, but always the same: a pattern-defeating quicksort (Orson Peters, 2021) whose choices depend on the
comparisons and the number of elements alone. Where upstream sorts so, its order of ties is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

__all__ = ["go_sorted"]

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


def go_sorted(items: Iterable[T], less: Callable[[T, T], bool]) -> list[T]:
    """The items in ascending order as Go sorts them; ``less(a, b)``: whether ``a`` comes before ``b`` for certain."""
    found = list(items)
    _Sorting(found, less).sort(0, len(found), len(found).bit_length())
    return found


class _Sorting(Generic[T]):
    """A list being sorted; ranges are [begin, end)."""

    def __init__(self, items: list[T], less: Callable[[T, T], bool]) -> None:
        self.items = items
        self._less = less

    def less(self, i: int, j: int) -> bool:
        return self._less(self.items[i], self.items[j])

    def swap(self, i: int, j: int) -> None:
        self.items[i], self.items[j] = self.items[j], self.items[i]

    def sort(self, begin: int, end: int, bad_allowed: int) -> None:
        """``bad_allowed``: so many lopsided partitions may come before the rest is sorted by a heap."""
        balanced = partitioned = True
        while end - begin > _SHORT:
            if bad_allowed == 0:
                self.by_heap(begin, end)
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
            if balanced and partitioned and ascends and self.repaired(begin, end):
                return
            if begin > 0 and not self.less(begin - 1, pivot):  # nothing here is smaller than the pivot
                begin = self.past_equals(begin, end, pivot)
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
        self.by_insertion(begin, end)

    def sink(self, i: int, least: int) -> None:
        """Exchange with those in front while it is less."""
        while i > least and self.less(i, i - 1):
            self.swap(i, i - 1)
            i -= 1

    def by_insertion(self, begin: int, end: int) -> None:
        for i in range(begin + 1, end):
            self.sink(i, begin)

    def by_heap(self, begin: int, end: int) -> None:
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
        """Exchange three elements around the middle with others, against patterns that make bad pivots."""
        size = end - begin
        state, mask = size, (1 << size.bit_length()) - 1
        middle = begin + size // 4 * 2
        for i in range(middle - 1, middle + 2):
            for shift in (13, -7, 17):
                state ^= (state << shift if shift > 0 else state >> -shift) & _WORD
            other = state & mask
            self.swap(i, begin + (other - size if other >= size else other))

    def pivot_of(self, begin: int, end: int) -> tuple[int, int]:
        """A place for the pivot, and how many pairs were the wrong way round."""
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

    def repaired(self, begin: int, end: int) -> bool:
        """Whether a few exchanges sort the range, which then is done."""
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

    def past_equals(self, begin: int, end: int, pivot: int) -> int:
        """Bring those that equal the pivot to the front; where the greater ones begin."""
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
        """Bring those less than the pivot before it; its new place, and whether that was so already."""
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
