"""Amounts whose milli-units do not say how many whole units there are: too large for them, or rounded otherwise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kscale.objects.quantity import Quantity

__all__ = ["WholeUnits"]


class WholeUnits:
    """The exceptions among the amounts of columns, by resource and row.

    ``Quantity.Value()`` of any other amount is its milli-units by thousand, rounded away from zero.
    """

    __slots__ = ("_odd",)

    def __init__(self, odd: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._odd = {resource: dict(rows) for resource, rows in (odd or {}).items()}

    def __reduce__(self) -> tuple[object, ...]:
        return WholeUnits, (self._odd,)

    def milli(self, resource: str, row: int, used: Quantity) -> int:
        """The milli-units of an amount, which is noted if it is an exception."""
        milli, value = used.milli_value(), used.value()
        if value != (milli // 1000 if milli < 0 else -(-milli // 1000)):
            self._odd.setdefault(resource, {})[row] = value
        return milli

    @property
    def none(self) -> bool:
        """There are none."""
        return not self._odd

    def append(self, other: WholeUnits, at: int) -> None:
        """The rows of another begin at ``at``."""
        for resource, rows in other._odd.items():
            self._odd.setdefault(resource, {}).update((at + row, value) for row, value in rows.items())

    def replaced(self, other: WholeUnits, rows: Mapping[int, int]) -> WholeUnits:
        """With those of another; ``rows``: its row -> the row here that it stands for from now on."""
        gone = set(rows.values())
        found = WholeUnits(
            {resource: {row: odd[row] for row in odd.keys() - gone} for resource, odd in self._odd.items()}
        )
        for resource, odd in other._odd.items():
            found._odd.setdefault(resource, {}).update((rows[row], value) for row, value in odd.items())
        return found

    def column(self, resource: str, milli: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole units of a column of milli-units."""
        found = np.where(milli < 0, milli // 1000, -(-milli // 1000))
        for row, value in self._odd.get(resource, {}).items():
            found[row] = value
        return found
