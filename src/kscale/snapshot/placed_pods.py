"""The placed pods of a snapshot, made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Pod
from kscale.snapshot.columns import read_only
from kscale.snapshot.pod_table import PodTable
from kscale.snapshot.record import PodRecord

__all__ = ["PlacedPods"]


class PlacedPods(Sequence[PodRecord]):
    """Placed pods by position, in order of appearance: ``rows`` of a table, which rise, and behind them those
    ``added`` that a decision put there."""

    def __init__(self, table: PodTable, rows: NDArray[np.int64], added: tuple[PodRecord, ...]) -> None:
        self.rows = rows
        self.added = added
        self._table = table

    def __len__(self) -> int:
        return len(self.rows) + len(self.added)

    @overload
    def __getitem__(self, at: int) -> PodRecord: ...
    @overload
    def __getitem__(self, at: slice) -> list[PodRecord]: ...
    def __getitem__(self, at: int | slice) -> PodRecord | list[PodRecord]:
        positions = range(len(self))[at]
        return self._record(positions) if isinstance(positions, int) else [*map(self._record, positions)]

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self._all)

    @cached_property
    def _all(self) -> list[PodRecord]:
        """Kept, so that what was decoded of them is: whoever goes through all does so again."""
        return [*map(self._table.record, self.rows.tolist()), *self.added]

    def _record(self, at: int) -> PodRecord:
        known = len(self.rows)
        return self._table.record(int(self.rows[at])) if at < known else self.added[at - known]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """``namespace/name`` of each."""
        keys, rows = self._table.keys, self.rows
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            found = tuple(keys[int(rows[0]) : int(rows[-1]) + 1])
        else:
            found = tuple([keys[row] for row in rows.tolist()])
        return found + tuple(pod.key for pod in self.added)

    def key(self, at: int) -> str:
        """``namespace/name`` of one, without those of all others."""
        known = len(self.rows)
        return self._table.keys[int(self.rows[at])] if at < known else self.added[at - known].key

    @cached_property
    def priorities(self) -> NDArray[np.int64]:
        """Priorities, 0 for a pod without: int64[n]."""
        own = np.array([pod.priority for pod in self.added], dtype=np.int64)
        return read_only(np.concatenate([self._table.column("priority")[self.rows], own]))

    def where(self, what: str, test: Callable[[Pod], bool], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of some of the pods, by position, for which a test holds that depends on the pod alone. The test is
        made once a pod: ``what`` names it."""
        known = len(self.rows)
        rows = self.rows[positions[positions < known]]
        stamps, memo = self._table.column("stamp")[rows], self._table.memo
        with memo.lock:
            answers = memo.of(what)  # 1 = no, 2 = yes
            for i in np.flatnonzero(answers[stamps] == 0).tolist():
                answers[stamps[i]] = 1 + test(self._table.record(int(rows[i])).pod)
            yes = answers[stamps] == 2
        own = [at for at in positions[positions >= known].tolist() if test(self.added[at - known].pod)]
        return np.concatenate([positions[positions < known][yes], np.array(own, dtype=np.int64)])
