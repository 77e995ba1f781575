"""What placed pods take of their nodes: running sums by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kscale._native import _rows
from kscale.snapshot.columns import FIXED_RESOURCES, Growing, distinct
from kscale.snapshot.interner import Interner, PodClass
from kscale.snapshot.pod_states import PLACED

if TYPE_CHECKING:
    from kscale.snapshot.pod_table import PodTable

__all__ = ["PlacedSums"]


class PlacedSums:
    """By number of the node's name, whether the node is known or not: ``count`` of pods, ``used[resource]``; int64, and
    sums wrap, as upstream's do."""

    __slots__ = ("_amounts", "count", "used")

    def __init__(self) -> None:
        self.count = Growing(np.int64)
        self.used: dict[str, Growing] = {}
        self._amounts = _Amounts()

    def copy(self) -> PlacedSums:
        """The same sums, on their own."""
        made = PlacedSums()
        made.count, made.used = self.count.copy(), {name: column.copy() for name, column in self.used.items()}
        made._amounts = self._amounts.copy()
        return made

    def __getstate__(self) -> tuple[Growing, dict[str, Growing]]:
        """What follows from the classes is left out."""
        return self.count, self.used

    def __setstate__(self, state: tuple[Growing, dict[str, Growing]]) -> None:
        self.count, self.used = state
        self._amounts = _Amounts()

    def forget(self, classes: NDArray[np.bool_]) -> None:
        """Classes went: their numbers (bool by number) are given again."""
        self._amounts.forget(classes)

    def of(self, nodes: NDArray[np.bool_]) -> PlacedSums:
        """The sums of some nodes, numbered anew; a resource of which nothing is taken goes."""
        made = PlacedSums()
        made._amounts = self._amounts
        made.count = Growing.of(self.count.array[nodes])
        made.used = {
            name: Growing.of(column.array[nodes]) for name, column in self.used.items() if column.array[nodes].any()
        }
        return made

    def extend_to(self, size: int) -> None:
        """Make room for so many nodes."""
        if size <= self.count.size:
            return
        self.count.extend_to(size)
        for column in self.used.values():
            column.extend_to(size)

    def _column(self, resource: str) -> NDArray[Any]:
        column = self.used.get(resource)
        if column is None:
            column = self.used[resource] = Growing(np.int64)
            column.extend_to(self.count.size)
        return column.array

    def change(self, interner: Interner, table: PodTable, rows: NDArray[np.int64], sign: int) -> None:
        """The placed ones among the pods of some rows come to their nodes (1), or go (-1)."""
        amounts = self._amounts
        more = self._add(amounts, table, rows, sign)
        if more is None:
            placed = rows[table.column("state")[rows] == PLACED]
            class_of = table.column("class_of")[placed]
            amounts.learn(interner.classes, class_of)
            for name, column in zip(FIXED_RESOURCES, amounts.fixed, strict=True):
                if column.array[class_of].any():
                    self._column(name)
            more = self._add(amounts, table, rows, sign)
            assert more is not None  # all that they take is known by now
        for row in more:
            at = table.column("at")[row]
            for name, amount in interner.classes[table.column("class_of")[row]].occupancy.items():
                if name not in FIXED_RESOURCES:
                    self._column(name)[at] += sign * amount

    def _add(self, amounts: _Amounts, table: PodTable, rows: NDArray[np.int64], sign: int) -> list[int] | None:
        return _rows.add_placed(
            rows, table.column("state"), PLACED, table.column("class_of"), table.column("at"), sign,
            amounts.known.array, self.count.array,
            [None if name not in self.used else self.used[name].array for name in FIXED_RESOURCES],
            [column.array for column in amounts.fixed],
        )  # fmt: skip


class _Amounts:
    """What classes take, by number: ``fixed``, a column each of :data:`FIXED_RESOURCES`; ``known``: 0 = not yet, 1 =
    that is all, 2 = they take other resources, too."""

    __slots__ = ("fixed", "known")

    def __init__(self) -> None:
        self.fixed = tuple(Growing(np.int64) for _ in FIXED_RESOURCES)
        self.known = Growing(np.uint8)

    def copy(self) -> _Amounts:
        """The same, on their own."""
        made = _Amounts()
        made.fixed, made.known = tuple(column.copy() for column in self.fixed), self.known.copy()
        return made

    def forget(self, classes: NDArray[np.bool_]) -> None:
        """Classes went (bool by number)."""
        self.known.array[classes[: self.known.size]] = 0

    def learn(self, classes: Sequence[PodClass], numbers: NDArray[np.int32]) -> None:
        """Take in classes of these numbers that are new."""
        for column in (*self.fixed, self.known):
            column.extend_to(len(classes))
        fresh = distinct(numbers[self.known.array[numbers] == 0])
        taken = [classes[number].occupancy for number in fresh.tolist()]
        for name, column in zip(FIXED_RESOURCES, self.fixed, strict=True):
            column.array[fresh] = [amounts.get(name, 0) for amounts in taken]
        self.known.array[fresh] = [1 + any(name not in FIXED_RESOURCES for name in amounts) for amounts in taken]
