"""What placed pods take of their nodes: running sums by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale._native import _rows
from kscale.snapshot.columns import FIXED_RESOURCES, Growing, distinct
from kscale.snapshot.interner import Interner, PodClass

__all__ = ["NOWHERE", "Placed", "PlacedSums"]


class Placed(NamedTuple):
    """Pods by the numbers of their classes and of their nodes: int32[n] each."""

    class_of: NDArray[np.int32]
    at: NDArray[np.int32]


NOWHERE: Final = Placed(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32))
"""No pods."""


class PlacedSums:
    """By number of the node's name, whether the node is known or not: ``count`` of pods, ``used[resource]``; int64, and
    sums wrap, as upstream's do."""

    __slots__ = ("count", "used")

    def __init__(self) -> None:
        self.count = Growing(np.int64)
        self.used: dict[str, Growing] = {}

    def copy(self) -> PlacedSums:
        """The same sums, on their own."""
        made = PlacedSums()
        made.count, made.used = self.count.copy(), {name: column.copy() for name, column in self.used.items()}
        return made

    def of(self, nodes: NDArray[np.bool_]) -> PlacedSums:
        """The sums of some nodes, numbered anew; a resource of which nothing is taken goes."""
        made = PlacedSums()
        made.count = Growing.of(self.count.array[nodes])
        made.used = {
            name: Growing.of(column.array[nodes]) for name, column in self.used.items() if column.array[nodes].any()
        }
        return made

    def extend_to(self, size: int) -> None:
        """Make room for so many nodes."""
        self.count.extend_to(size)
        for column in self.used.values():
            column.extend_to(size)

    def _column(self, resource: str) -> NDArray[Any]:
        column = self.used.get(resource)
        if column is None:
            column = self.used[resource] = Growing(np.int64)
            column.extend_to(self.count.size)
        return column.array

    def change(self, interner: Interner, went: Placed, came: Placed) -> None:
        """Pods go from their nodes, others come to theirs."""
        class_of, at = (np.concatenate(both) for both in zip(went, came, strict=True))
        if not len(class_of):
            return
        sign = np.ones(len(class_of), dtype=np.int8)
        sign[: len(went.at)] = -1
        amounts = interner.memo.of(_Amounts, _Amounts)
        amounts.learn(interner.classes, class_of)
        sums: list[NDArray[np.int64]] = [self.count.array]
        taken: list[NDArray[np.int64] | None] = [None]
        for name, column in zip(FIXED_RESOURCES, amounts.fixed, strict=True):
            if name in self.used or column.array[class_of].any():
                sums.append(self._column(name))
                taken.append(column.array)
        _rows.add_amounts(sums, taken, at, class_of, sign)
        more = np.flatnonzero(amounts.more.array[class_of])
        if len(more):
            self._add_more(interner.classes, class_of[more], at[more], sign[more])

    def _add_more(
        self,
        classes: Sequence[PodClass],
        class_of: NDArray[np.int32],
        at: NDArray[np.int32],
        sign: NDArray[np.int8],
    ) -> None:
        """What pods take besides the fixed resources."""
        numbers, position = np.unique(class_of, return_inverse=True)
        taken = [classes[number].occupancy for number in numbers.tolist()]
        for name in dict.fromkeys(name for amounts in taken for name in amounts if name not in FIXED_RESOURCES):
            amount = np.array([amounts.get(name, 0) for amounts in taken], dtype=np.int64)
            np.add.at(self._column(name), at, amount[position] * sign)


class _Amounts:
    """What classes take, by number: ``fixed``, a column each of :data:`FIXED_RESOURCES`; whether they take ``more``."""

    __slots__ = ("_known", "fixed", "more")

    def __init__(self) -> None:
        self.fixed = tuple(Growing(np.int64) for _ in FIXED_RESOURCES)
        self.more = Growing(np.bool_)
        self._known = Growing(np.bool_)

    def learn(self, classes: Sequence[PodClass], numbers: NDArray[np.int32]) -> None:
        """Take in classes of these numbers that are new."""
        if self._known.size < len(classes):
            for column in (*self.fixed, self.more, self._known):
                column.extend_to(len(classes))
        known = self._known.array[numbers]
        if known.all():
            return
        fresh = distinct(numbers[~known])
        taken = [classes[number].occupancy for number in fresh.tolist()]
        for name, column in zip(FIXED_RESOURCES, self.fixed, strict=True):
            column.array[fresh] = [amounts.get(name, 0) for amounts in taken]
        self.more.array[fresh] = [any(name not in FIXED_RESOURCES for name in amounts) for amounts in taken]
        self._known.array[fresh] = True
