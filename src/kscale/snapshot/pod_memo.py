"""What was found out about the pods of a table."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.columns import Growing, distinct

__all__ = ["PodMemo"]

_FEW: Final = 256  # values that nobody has


class PodMemo:
    """What was found out about pods, by stamp: a table and those made from it share it.

    ``of(what)``: int32, one entry a stamp, 0 = not known yet; ``values(what)`` is what numbers stand for, however the
    owner of ``what`` fills it. Both are written to with ``lock`` held.
    """

    __slots__ = ("_numbers", "_values", "lock", "stamps")

    def __init__(self, stamps: int = 0) -> None:
        self.stamps = stamps
        self.lock = Lock()
        self._numbers: dict[str, Growing] = {}
        self._values: dict[str, dict[Any, Any]] = {}

    def of(self, what: str) -> NDArray[np.int32]:
        """Numbers by stamp (valid until the next call)."""
        column = self._numbers.setdefault(what, Growing(np.int32))
        column.extend_to(self.stamps)
        return column.array

    def values(self, what: str) -> dict[Any, Any]:
        """What the numbers of ``what`` stand for."""
        return self._values.setdefault(what, {})

    def renewed(self, stamps: NDArray[np.int64], there: NDArray[np.bool_]) -> PodMemo:
        """Another memo whose stamps are 0, 1, ... for pods that have these now; what most pods that it tells of are
        gone from is found out anew. ``there``: which of them count."""
        made = PodMemo(len(stamps))
        with self.lock:
            for what in list(self._numbers):
                numbers = self.of(what)[stamps]
                values = self._values.get(what, {})
                if len(values) > 2 * len(distinct(numbers[there])) + _FEW:
                    continue
                made._numbers[what] = Growing.of(numbers)
                made._values[what] = dict(values)
        return made
