"""Sequences of pod records, built on access from rows of the pod table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from kscale.objects.api.core import Pod
from kscale.objects.pod_equivalence import Digester
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.columns import alike, distinct, read_only
from kscale.snapshot.pods.record import PENDING, PodMoments, PodRecord, standing_controller
from kscale.snapshot.pods.table import PodTable, uids_of
from kscale.snapshot.text.files import file_of

__all__ = ["PlacedPods", "PodRows", "copies_of"]


class PodRows(Sequence[PodRecord]):
    """Pods of a table by position, made when asked for. ``classes``, ``controllers`` and ``exemplars``:
    int32[n], ``priorities``: int64[n], without making any."""

    __slots__ = ("_rows", "table")

    def __init__(self, table: PodTable, rows: NDArray[np.int64]) -> None:
        self.table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, i: int) -> PodRecord: ...
    @overload
    def __getitem__(self, i: slice) -> PodRows: ...
    def __getitem__(self, i: int | slice) -> PodRecord | PodRows:
        if isinstance(i, slice):
            return PodRows(self.table, self._rows[i])
        return self.table.record(int(self._rows[i]))

    def __iter__(self) -> Iterator[PodRecord]:
        return map(self.table.record, self._rows.tolist())

    def take(self, order: NDArray[np.int64]) -> PodRows:
        """Some of these pods, by position, in that order."""
        return PodRows(self.table, self._rows[order])

    def digest(self, position: int, digester: Digester) -> bytes:
        """What equivalence grouping compares of one of them."""
        table, row = self.table, int(self._rows[position])
        source, size = int(table.column("source")[row]), int(table.column("size")[row])
        if source < 0 or not size:
            return table.record(row).digest(digester)
        buffer, offset = table.buffers[source], int(table.column("offset")[row])
        mapped = file_of(buffer)
        if mapped is not None:
            mapped.check()
        return digester.digest(buffer[offset : offset + size])

    @property
    def keys(self) -> list[str]:
        """``namespace/name`` of each."""
        return self.keys_at(np.arange(len(self._rows)))

    def keys_at(self, positions: NDArray[Any]) -> list[str]:
        """``namespace/name`` of the pods at some positions."""
        keys = self.table.keys
        return [keys[row] for row in self._rows[positions].tolist()]

    def uids(self) -> list[str]:
        """The pods' UIDs, or their keys where they have none."""
        return uids_of(self.table, self._rows)

    @property
    def pending(self) -> bool:
        """Whether every one of them waits for a node: then ``classes`` are what they are when they are placed."""
        return bool((self.table.column("state")[self._rows] == PENDING).all())

    @property
    def stamps(self) -> NDArray[np.int64]:
        """What the table's memo knows them by: int64[n]."""
        return self.table.column("stamp")[self._rows]

    @property
    def classes(self) -> NDArray[np.int32]:
        """Classes by number in the interner."""
        return self.table.column("class_of")[self._rows]

    @property
    def kinds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(positions of the first of each kind, in order; int64[n]: which kind): waiting pods of one kind agree in
        class, in the time they were made, and in how they wait."""
        table, rows = self.table, self._rows
        made, queueing = table.column("created")[rows], table.column("queueing")[rows]
        order = distinct(made)
        by_itself = np.where(queueing < 0, np.arange(len(rows)), -1)
        return alike(self.classes, np.searchsorted(order, made), np.abs(queueing), by_itself)

    def kind_keys(self, positions: NDArray[np.int64]) -> list[tuple[PodClass, int, int, str]]:
        """What waiting pods of the kind of each agree in, whenever they are looked at: numbers of classes are given
        again, classes are not; where the way a pod waits names it, so does this."""
        rows = self._rows[positions]
        classes, keys = self.table.interner.classes, self.table.keys
        class_of, created, queueing = (
            self.table.column(name)[rows].tolist() for name in ("class_of", "created", "queueing")
        )
        return [
            (classes[number], made, way, keys[row] if way < 0 else "")
            for row, number, made, way in zip(rows.tolist(), class_of, created, queueing, strict=True)
        ]

    @property
    def priorities(self) -> NDArray[np.int64]:
        """Priorities: int64[n]."""
        return self.table.column("priority")[self._rows]

    @property
    def controllers(self) -> NDArray[np.int32]:
        """Controllers by number, -1 = stands alone."""
        return self.table.column("controller")[self._rows]

    @property
    def exemplars(self) -> NDArray[np.int32]:
        """Which exemplar a pod equals but for its name, -1 = none."""
        exemplars: NDArray[np.int32] = np.maximum(-2 - self.table.column("source")[self._rows], -1)
        return exemplars


class _NumberedNames(Sequence[str]):
    """``<prefix>-0``, ``<prefix>-1`` ..., made when asked for."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix, self._count = prefix, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [f"{self._prefix}-{k}" for k in range(*i.indices(self._count))]
        return f"{self._prefix}-{range(self._count)[i]}"


def copies_of(pod: Pod, count: int, prefix: str, interner: Interner) -> PodRows:
    """``count`` pods like this one that wait for a node, named ``<prefix>-0``, ``<prefix>-1`` ..."""
    table = PodTable(interner)
    table.exemplars = [pod]
    rows = table.extend(
        _NumberedNames(prefix, count),
        class_of=interner.classify(pod, placed=False).index,
        at=-1,
        state=PENDING,
        priority=pod.spec.priority or 0,
        controller=interner.controller(standing_controller(pod)),
        source=-2,
        created=PodMoments.of(pod).created,
        queueing=interner.queueings.of(pod),
    )
    return PodRows(table, rows)


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
