"""Pods by row: a few numbers each, and where the rest of them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Final, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Pod
from kscale.objects.equivalence import Digester
from kscale.snapshot.columns import Growing
from kscale.snapshot.interner import Interner, PodClass
from kscale.snapshot.mapped import file_of
from kscale.snapshot.record import PodRecord, standing_controller

__all__ = [
    "FINISHED", "GATED", "GONE", "PENDING", "PLACED", "TERMINATING", "PodMemo", "PodRows", "PodTable", "copies_of",
]  # fmt: skip

# States of a pod row.
GONE, PLACED, PENDING, GATED, TERMINATING, FINISHED = -1, 0, 1, 2, 3, 4

_COLUMNS: Final[dict[str, Any]] = {
    "class_of": np.int32,  # pod class
    "at": np.int32,  # number of the node's name, -1 = none
    "state": np.int8,
    "priority": np.int64,
    "controller": np.int32,  # into ``controllers``, -1 = stands alone
    "source": np.int32,  # into ``buffers`` (text), or -2 - exemplar, or -1: ``records`` has it
    "offset": np.int64,
    "size": np.int64,
    "uid_offset": np.int64,
    "uid_size": np.int32,
    "kind_of": np.int32,  # kind of pod (:mod:`kscale.snapshot.pod_kinds`), 0 = not known yet
    "stamp": np.int64,  # another number whenever a row gets another pod
}


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


class PodTable:
    """Columns of pods, one row each; rows are appended, replaced and marked as gone.

    ``freeze()`` gives a table that never changes, in constant time: rows are copied when they are next written to.
    Either ``records[row]`` is the pod, or its JSON text is at ``offset`` in a buffer (a mapped file), or it equals an
    exemplar but for its name.
    """

    __slots__ = (
        "buffers", "classes", "columns", "controllers", "exemplars", "keys", "memo", "numbers", "records", "shared",
    )  # fmt: skip

    def __init__(self, classes: list[PodClass] | None = None) -> None:
        self.classes = classes  # what ``class_of`` numbers; None: records do not know their class
        self.columns: dict[str, Growing] = {name: Growing(dtype) for name, dtype in _COLUMNS.items()}
        self.keys: Sequence[str] = []
        self.records: dict[int, PodRecord] = {}
        self.buffers: list[memoryview] = []
        self.exemplars: list[Pod] = []
        self.controllers: list[str] = []
        self.numbers: dict[str, int] = {}
        self.memo = PodMemo()
        self.shared = False

    def __len__(self) -> int:
        return self.columns["state"].size

    def column(self, name: str) -> NDArray[Any]:
        """A column by name (a view; not to be written to)."""
        return self.columns[name].array

    # -- writing -----------------------------------------------------------------------------------------------------

    def freeze(self) -> PodTable:
        """The table as it is now."""
        frozen = PodTable.__new__(PodTable)
        frozen.classes = self.classes
        frozen.columns = {name: column.view() for name, column in self.columns.items()}
        frozen.keys, frozen.records, frozen.buffers = self.keys, self.records, self.buffers
        frozen.exemplars, frozen.controllers, frozen.numbers = self.exemplars, self.controllers, self.numbers
        frozen.memo = self.memo
        frozen.shared = self.shared = True
        return frozen

    def copy(self) -> PodTable:
        """Another table with the same rows; they share what was found out about pods."""
        made = PodTable(self.classes)
        made.columns = {name: column.copy() for name, column in self.columns.items()}
        made.keys, made.records, made.buffers = list(self.keys), dict(self.records), list(self.buffers)
        made.exemplars, made.controllers, made.numbers = (
            list(self.exemplars),
            list(self.controllers),
            dict(self.numbers),
        )
        made.memo = self.memo
        return made

    def _own(self) -> None:
        """Before a row that a frozen table may have is written to."""
        if self.shared:
            self.columns = {name: column.copy() for name, column in self.columns.items()}
            self.records = dict(self.records)
            self.shared = False

    def controller_number(self, uid: str | None) -> int:
        """The number of a controller."""
        if uid is None:
            return -1
        found = self.numbers.get(uid)
        if found is None:
            found = self.numbers[uid] = len(self.controllers)
            self.controllers.append(uid)
        return found

    def append(self, record: PodRecord, class_of: int, at: int, state: int) -> int:
        """A new row; its number."""
        row = len(self)
        for column in self.columns.values():
            column.extend_to(row + 1)
        assert isinstance(self.keys, list)
        self.keys.append(record.key)
        self._set(row, record, class_of, at, state)
        return row

    def replace(self, row: int, record: PodRecord, class_of: int, at: int, state: int) -> None:
        """Another pod under the same key."""
        self._own()
        self._set(row, record, class_of, at, state)

    def _set(self, row: int, record: PodRecord, class_of: int, at: int, state: int) -> None:
        columns = self.columns
        columns["class_of"].array[row] = class_of
        columns["at"].array[row] = at
        columns["state"].array[row] = state
        columns["priority"].array[row] = record.priority
        columns["controller"].array[row] = self.controller_number(record.controller)
        columns["source"].array[row] = -1
        columns["kind_of"].array[row] = 0
        columns["stamp"].array[row] = self._stamps(1)[0]
        self.records[row] = record

    def _stamps(self, count: int) -> NDArray[np.int64]:
        first = self.memo.stamps
        self.memo.stamps = first + count
        return np.arange(first, first + count)

    def extend(self, keys: Sequence[str], **columns: NDArray[Any]) -> NDArray[np.int64]:
        """Many new rows; their numbers."""
        first = len(self)
        for name, column in self.columns.items():
            column.extend_to(first + len(keys))
            if name in columns:
                column.array[first:] = columns[name]
        self.columns["stamp"].array[first:] = self._stamps(len(keys))
        if isinstance(self.keys, list):
            self.keys.extend(keys)
        else:
            assert not first
            self.keys = keys
        return np.arange(first, first + len(keys))

    def drop(self, row: int) -> None:
        """Mark a row as gone."""
        self._own()
        self.columns["state"].array[row] = GONE
        self.columns["source"].array[row] = -1
        self.records.pop(row, None)

    def compacted(self) -> PodTable:
        """Another table without the rows that are gone, in the same order."""
        keep = np.flatnonzero(self.column("state") != GONE)
        made = PodTable(self.classes)
        made.columns = {name: column.copy(keep) for name, column in self.columns.items()}
        made.keys = [self.keys[row] for row in keep.tolist()]
        made.records = {new: self.records[row] for new, row in enumerate(keep.tolist()) if row in self.records}
        made.buffers, made.exemplars = self.buffers, self.exemplars
        made.controllers, made.numbers = self.controllers, self.numbers
        made.memo = self.memo
        return made

    # -- reading -----------------------------------------------------------------------------------------------------

    def record(self, row: int) -> PodRecord:
        """The pod of a row."""
        found = self.records.get(row)
        if found is not None:
            return found
        source, controller = int(self.column("source")[row]), int(self.column("controller")[row])
        owner = None if controller < 0 else self.controllers[controller]
        priority, key = int(self.column("priority")[row]), self.keys[row]
        waits = self.classes is not None and self.column("state")[row] == PENDING
        known = self.classes[self.column("class_of")[row]] if waits and self.classes is not None else None
        if source < -1:
            return PodRecord.lazy(key, "", priority, owner, exemplar=self.exemplars[-2 - source], pod_class=known)
        buffer, offset = self.buffers[source], int(self.column("offset")[row])
        mapped = file_of(buffer)
        if mapped is not None:
            mapped.check()
        uid_at = int(self.column("uid_offset")[row])
        uid = bytes(buffer[uid_at : uid_at + int(self.column("uid_size")[row])]).decode()
        raw = msgspec.Raw(buffer[offset : offset + int(self.column("size")[row])])
        return PodRecord.lazy(key, uid, priority, owner, raw=raw, pod_class=known, mapped=mapped)

    def digest(self, row: int, digester: Digester) -> bytes:
        """What equivalence grouping compares of the pod of a row."""
        source = int(self.column("source")[row])
        if source < 0:
            return self.record(row).digest(digester)
        buffer, offset = self.buffers[source], int(self.column("offset")[row])
        mapped = file_of(buffer)
        if mapped is not None:
            mapped.check()
        return digester.digest(buffer[offset : offset + int(self.column("size")[row])])

    def rows(self, rows: NDArray[np.int64]) -> PodRows:
        """The pods of some rows, made one by one when asked for."""
        return PodRows(self, rows)

    # -- pickling ----------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Texts become bytes: only those of rows that are there."""
        columns = {name: column.array.copy() for name, column in self.columns.items()}
        buffers = []
        for number, buffer in enumerate(self.buffers):
            mapped = file_of(buffer)
            if mapped is not None:
                mapped.check()
            rows = np.flatnonzero((columns["source"] == number) & (columns["state"] != GONE))
            uids = [
                bytes(buffer[at : at + size])
                for at, size in zip(
                    columns["uid_offset"][rows].tolist(), columns["uid_size"][rows].tolist(), strict=True
                )
            ]
            texts = [
                bytes(buffer[at : at + size])
                for at, size in zip(columns["offset"][rows].tolist(), columns["size"][rows].tolist(), strict=True)
            ]
            sizes = np.fromiter(map(len, texts), np.int64, len(texts))
            columns["offset"][rows] = np.cumsum(sizes) - sizes
            of_uids = np.fromiter(map(len, uids), np.int64, len(uids))
            columns["uid_offset"][rows] = int(sizes.sum()) + np.cumsum(of_uids) - of_uids
            buffers.append(b"".join(texts) + b"".join(uids))
        return {
            "columns": columns,
            "keys": self.keys if not isinstance(self.keys, list) else self.keys[: len(self)],
            "records": self.records,
            "buffers": buffers,
            "exemplars": self.exemplars,
            "controllers": self.controllers,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.classes = None
        self.columns = {name: Growing.of(array) for name, array in state["columns"].items()}
        self.keys, self.records = state["keys"], state["records"]
        self.buffers = [memoryview(buffer) for buffer in state["buffers"]]
        self.exemplars, self.controllers = state["exemplars"], state["controllers"]
        self.numbers = {uid: i for i, uid in enumerate(self.controllers)}
        self.memo = PodMemo(int(self.column("stamp").max(initial=-1)) + 1)
        self.shared = False


class NumberedNames(Sequence[str]):
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
    table = PodTable(interner.classes)
    table.exemplars = [pod]
    rows = table.extend(
        NumberedNames(prefix, count),
        class_of=np.full(count, interner.classify(pod, placed=False).index, dtype=np.int32),
        at=np.full(count, -1, dtype=np.int32),
        state=np.full(count, PENDING, dtype=np.int8),
        priority=np.full(count, pod.spec.priority or 0, dtype=np.int64),
        controller=np.full(count, table.controller_number(standing_controller(pod)), dtype=np.int32),
        source=np.full(count, -2, dtype=np.int32),
    )
    return PodRows(table, rows)


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
        return self.table.digest(int(self._rows[position]), digester)

    @property
    def keys(self) -> list[str]:
        """``namespace/name`` of each."""
        return self.keys_at(np.arange(len(self._rows)))

    def keys_at(self, positions: NDArray[Any]) -> list[str]:
        """``namespace/name`` of the pods at some positions."""
        keys = self.table.keys
        return [keys[row] for row in self._rows[positions].tolist()]

    def uids(self) -> Iterator[str]:
        """The pods' UIDs, or their keys where they have none."""
        table, rows = self.table, self._rows
        records, keys, buffers = table.records, table.keys, table.buffers
        for mapped in filter(None, map(file_of, buffers)):
            mapped.check()
        sources, begins, sizes = (table.column(c)[rows].tolist() for c in ("source", "uid_offset", "uid_size"))
        for row, source, begin, size in zip(rows.tolist(), sources, begins, sizes, strict=True):
            record = records.get(row)
            if record is not None:
                yield record.uid
            else:
                text = "" if source < 0 or size <= 0 else bytes(buffers[source][begin : begin + size]).decode()
                yield text or keys[row]

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
