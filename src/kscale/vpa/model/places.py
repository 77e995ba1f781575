"""Where the containers are that usage was told of before: which slot is theirs, and which aggregate they feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from kscale.objects.joined_lists import JoinedLists
from kscale.objects.runs import runs_of
from kscale.vpa.model.aggregates import Aggregate
from kscale.vpa.model.usage import ContainerName

__all__ = ["Places"]

_NUMBER: Final = 32  # bits
_FEW: Final = 1024
_Names = Sequence[ContainerName]
_Found = npt.NDArray[np.int64]
_NOTHING: Final = np.empty(0, np.int64)


class Places:
    """Of containers by name, until they may be elsewhere. ``aggregates``: those that one of them feeds, or fed before,
    by number.

    Lists that were joined are remembered: of those that are asked for again, only what has moved is looked up.
    """

    __slots__ = ("_known", "_last", "_moved", "_numbers", "aggregates")

    def __init__(self) -> None:
        self._known: dict[ContainerName, int] = {}  # the slot in the upper half, the number in the lower
        self._last: tuple[JoinedLists[ContainerName], _Found] = JoinedLists([]), _NOTHING  # what was joined and asked
        self._moved: list[int] = []  # slots of those that were forgotten since
        self._numbers: dict[int, int] = {}
        self.aggregates: list[Aggregate] = []

    def look_up(self, names: _Names) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The slot of each, and the number of its aggregate, int32 each; -1: it is not known."""
        found = self._joined(names) if isinstance(names, JoinedLists) else self._look_up(names)
        return (found >> _NUMBER).astype(np.int32), found.astype(np.int32)

    def _look_up(self, names: _Names) -> _Found:
        return np.fromiter(map(self._known.get, names, repeat(-1)), np.int64, len(names))

    def _joined(self, names: JoinedLists[ContainerName]) -> _Found:
        """The same of lists that were joined."""
        before, then = self._last
        pieces = [_NOTHING]
        for run in runs_of(names.parts, before.parts):
            if run.before < 0:
                pieces += map(self._look_up, names.parts[run.first : run.end])
            else:
                last = run.before + run.end - run.first - 1
                pieces.append(then[before.ends[run.before] - len(before.parts[run.before]) : before.ends[last]])
        found = np.concatenate(pieces)
        doubtful = found < 0
        if self._moved:
            doubtful |= np.isin(found >> _NUMBER, self._moved)
        for i in np.flatnonzero(doubtful).tolist():
            found[i] = self._known.get(names[i], -1)
        self._last, self._moved = (names, found), []
        return found

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
            held = self._known.pop(name, None)
            if held is not None and len(self._last[1]):
                self._moved.append(held >> _NUMBER)
        if len(self._moved) > _FEW + len(self._known):  # nobody asks for these lists any more
            self._last, self._moved = (JoinedLists([]), _NOTHING), []

    def forget_all(self) -> None:
        """All may feed other aggregates."""
        self._known, self._numbers, self.aggregates = {}, {}, []
        self._last, self._moved = (JoinedLists([]), _NOTHING), []
