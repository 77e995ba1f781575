"""Where the containers are that usage was told of before: which slot is theirs, and which aggregate they feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.vpa.model.aggregates import Aggregate
from kscale.vpa.model.usage import ContainerName

__all__ = ["Places"]

_NUMBER: Final = 32  # bits


class Places:
    """Of containers by name, until they may be elsewhere. ``aggregates``: those that one of them feeds, or fed before,
    by number."""

    __slots__ = ("_known", "_numbers", "aggregates")

    def __init__(self) -> None:
        self._known: dict[ContainerName, int] = {}  # the slot in the upper half, the number in the lower
        self._numbers: dict[int, int] = {}
        self.aggregates: list[Aggregate] = []

    def look_up(self, names: Sequence[ContainerName]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The slot of each, and the number of its aggregate, int32 each; -1: it is not known."""
        found = np.fromiter(map(self._known.get, names, repeat(-1)), np.int64, len(names))
        return (found >> _NUMBER).astype(np.int32), found.astype(np.int32)

    def keep(self, name: ContainerName, slot: int, aggregate: Aggregate) -> int:
        """Notes where a container is; the number of its aggregate."""
        number = self._numbers.setdefault(id(aggregate), len(self.aggregates))
        if number == len(self.aggregates):
            self.aggregates.append(aggregate)
        self._known[name] = slot << _NUMBER | number
        return number

    def forget(self, names: Iterable[ContainerName]) -> None:
        """Some containers may be elsewhere."""
        for name in names:
            self._known.pop(name, None)

    def forget_all(self) -> None:
        """All may feed other aggregates."""
        self._known, self._numbers, self.aggregates = {}, {}, []
