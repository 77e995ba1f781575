"""Where the texts of pods are: files that are mapped, and memory of their own that they are copied into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kscale.snapshot.mapped import MappedFile

__all__ = ["NO_TEXT", "TextStore"]

NO_TEXT: Final = memoryview(b"")
_SEGMENT: Final = 1 << 20  # bytes that texts share
_LARGE: Final = _SEGMENT // 4  # a block of this size is a segment by itself


class TextStore:
    """Buffers by number, and how much of each rows still use.

    What no row uses goes; a segment of which rows use less than half is told by :meth:`release`, so that its texts can
    be copied elsewhere. A frozen store has the buffers as they were: numbers that came free are given again in another
    list."""

    __slots__ = ("_fill", "_free", "_live", "_open", "_shared", "_whole", "buffers")

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []
        self._live: list[int] = []  # bytes that rows use
        self._whole: list[int] = []  # bytes that were given
        self._free: list[int] = []
        self._open = -1  # the segment that is being filled
        self._fill = 0
        self._shared = False

    def freeze(self) -> list[memoryview]:
        """The buffers as they are now."""
        self._shared = True
        return self.buffers

    def copy(self) -> TextStore:
        """Another store with the same texts, which goes its own way."""
        made = TextStore()
        made.buffers = list(self.buffers)
        made._live, made._whole = list(self._live), list(self._whole)
        made._free = list(self._free)
        return made  # what is open stays the other's

    def _number(self, buffer: memoryview) -> int:
        if not self._free:
            self.buffers.append(buffer)  # nobody who shares the list knows the number
            self._live.append(0)
            self._whole.append(0)
            return len(self.buffers) - 1
        number = self._free.pop()
        self._set(number, buffer)
        return number

    def _set(self, number: int, buffer: memoryview) -> None:
        if self._shared:
            self.buffers, self._shared = list(self.buffers), False
        self.buffers[number] = buffer

    def refer(self, view: memoryview, size: int) -> int:
        """The number of a buffer that belongs to somebody else, of which rows now use ``size`` bytes more."""
        number = len(self.buffers) - 1
        if number < 0 or self.buffers[number] is not view:
            number = self._number(view)
        self._live[number] += size
        self._whole[number] += size
        return number

    def add(self, block: bytearray) -> tuple[int, int]:
        """Take over texts: (number of the buffer, where in it they begin)."""
        size = len(block)
        if size >= _LARGE:
            number, at = self._number(memoryview(block)), 0
        else:
            if self._open < 0 or self._fill + size > _SEGMENT:
                full, self._open = self._open, -1
                if full >= 0 and not self._live[full]:
                    self._drop(full)
                self._open, self._fill = self._number(memoryview(bytearray(_SEGMENT))), 0
            number, at = self._open, self._fill
            self.buffers[number][at : at + size] = block
            self._fill += size
        self._live[number] += size
        self._whole[number] += size
        return number, at

    def release(self, numbers: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Rows do not use texts any more: buffers (below 0: none), and how many bytes. Of which of these buffers, where
        they are memory, rows now use less than half."""
        live, whole = self._live, self._whole
        for number, size in zip(numbers, sizes, strict=True):
            if number >= 0:
                live[number] -= size
        few = []
        for number in sorted(set(numbers)):
            if number < 0 or number == self._open:
                continue
            if not live[number]:
                self._drop(number)
            elif 2 * live[number] < whole[number] and not isinstance(self.buffers[number].obj, MappedFile):
                few.append(number)
        return few

    def _drop(self, number: int) -> None:
        self._set(number, NO_TEXT)
        self._whole[number] = 0
        self._free.append(number)

    @property
    def size(self) -> int:
        """Bytes of memory that texts hold, what nobody uses any more included; files do not count."""
        return sum(len(each) for each in self.buffers if not isinstance(each.obj, MappedFile))
