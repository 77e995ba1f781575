"""Values by row that are copied over and over while few change: what changed of late lies on top of all the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

__all__ = ["Layers"]

_V = TypeVar("_V")
_FEW: Final = 64


class Layers(Generic[_V]):
    """A dict by row, whose copies share what they had in common for long. Values are never None."""

    __slots__ = ("_below", "_top")

    def __init__(self, values: Mapping[int, _V] | None = None) -> None:
        self._below: dict[int, _V] = {}  # never written to once there are copies
        self._top: dict[int, _V | None] = dict(values or {})  # None: it is gone

    def __bool__(self) -> bool:
        """Whether there may be values."""
        return bool(self._top or self._below)

    def __contains__(self, row: int) -> bool:
        return self.get(row) is not None

    def __setitem__(self, row: int, value: _V) -> None:
        self._top[row] = value

    def get(self, row: int) -> _V | None:
        """The value of a row, if it has one."""
        return self._top[row] if row in self._top else self._below.get(row)

    def pop(self, row: int) -> _V | None:
        """Takes the value of a row away, if it has one."""
        found = self.get(row)
        if row in self._below:
            self._top[row] = None
        else:
            self._top.pop(row, None)
        return found

    def items(self) -> Iterator[tuple[int, _V]]:
        """All there are, in no order."""
        yield from ((row, value) for row, value in self._below.items() if row not in self._top)
        yield from ((row, value) for row, value in self._top.items() if value is not None)

    def copy(self) -> Layers[_V]:
        """The same values, on their own."""
        made: Layers[_V] = Layers()
        if len(self._top) > _FEW + len(self._below) // 8:
            made._below = dict(self.items())
        else:
            made._below, made._top = self._below, dict(self._top)
        return made
