"""Numbers of nodes' names, whether the nodes are known or not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.columns import Growing, distinct

__all__ = ["NodeNumbers"]


class NodeNumbers:
    """Names of nodes numbered in order of first appearance; ``names``: by number, a list that grows here."""

    __slots__ = ("_batch", "_number", "names")

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._number = {name: number for number, name in enumerate(names)}
        self._batch: tuple[list[str], Growing] | None = None

    def __reduce__(self) -> tuple[type[NodeNumbers], tuple[list[str]]]:
        """What follows from the names is left out."""
        return NodeNumbers, (self.names,)

    def __len__(self) -> int:
        """How many names have numbers."""
        return len(self.names)

    def number(self, name: str) -> int:
        """The number of a name, which may be new."""
        found = self._number.get(name)
        if found is None:
            found = self._number[name] = len(self.names)
            self.names.append(name)
        return found

    def find(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of names: int64[n], -1 = it has none."""
        return np.fromiter(map(self._number.get, names, repeat(-1)), np.int64, len(names))

    def of_batch(self, names: list[str], which: NDArray[np.int64]) -> NDArray[np.int32]:
        """The numbers of some of a batch's names, of which there may be more the next time; -1 stays -1."""
        if self._batch is None or self._batch[0] is not names:
            self._batch = names, Growing(np.int32)
        column = self._batch[1]
        if column.size <= len(names):
            known = max(column.size - 1, 0)
            column.extend_to(len(names) + 1)  # what is no node takes the last
            column.array[known:] = -1
        numbers = column.array
        found: NDArray[np.int32] = numbers[which]
        if (found < 0).any() and len(fresh := which[(found < 0) & (which >= 0)]):
            for i in distinct(fresh).tolist():
                numbers[i] = self.number(names[i])
            found = numbers[which]
        return found
