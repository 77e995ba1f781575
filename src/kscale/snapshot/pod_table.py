"""Pods by row: a few numbers each, and where the rest of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _projection, _rows
from kscale.objects.core import Pod
from kscale.objects.equivalence import Digester
from kscale.objects.times import ZERO_TIME
from kscale.snapshot.columns import Growing
from kscale.snapshot.interner import Interner
from kscale.snapshot.mapped import file_of
from kscale.snapshot.pod_memo import PodMemo
from kscale.snapshot.pod_moments import COLUMNS as MOMENTS
from kscale.snapshot.pod_moments import PodMoments
from kscale.snapshot.pod_shapes import numbered
from kscale.snapshot.record import PodFacts, PodRecord
from kscale.snapshot.texts import TextStore

__all__ = ["FINISHED", "GATED", "GONE", "PENDING", "PLACED", "TERMINATING", "PodTable"]

# States of a pod row.
GONE, PLACED, PENDING, GATED, TERMINATING, FINISHED = -1, 0, 1, 2, 3, 4

_COLUMNS: Final[dict[str, Any]] = {
    "class_of": np.int32,  # pod class
    "at": np.int32,  # number of the node's name, -1 = none
    "state": np.int8,
    "priority": np.int64,
    "controller": np.int32,  # into the interner's controllers, -1 = stands alone
    "source": np.int32,  # into the buffers of texts, or -2 - exemplar, or -1: ``records`` has it
    "offset": np.int64,
    "size": np.int32,  # of the text, 0 = it is not kept
    "uid_offset": np.int32,  # from ``offset`` on
    "uid_size": np.int32,
    "shape": np.int32,  # shape of pods (:mod:`kscale.snapshot.pod_shapes`), 0 = not known yet
    "stamp": np.int64,  # another number whenever a row gets another pod
    "started": np.int64,  # ``status.startTime``: nanoseconds since 1970, as the next two
    "deleted": np.int64,  # ``metadata.deletionTimestamp``
    "since": np.int64,  # when the condition Ready last changed
    "ready": np.int8,  # into kscale.snapshot.record.READY
    "phase": np.int8,  # into kscale.snapshot.pod_moments.PHASES
    "seen": np.int8,  # whether a list that is being read has the pod
    "version": np.int64,  # ``metadata.resourceVersion``, -1 = none, -2 = ``versions`` has it
    "bound": np.int8,  # whether it is bound to its node, not only nominated
    "combined": np.int32,  # number of the combination of texts that it was read as, from 1; 0 = none
}
_NO_NUMBER: Final = -2
_OF_COPY: Final = {"shape": 0, "started": ZERO_TIME, "deleted": ZERO_TIME, "since": ZERO_TIME, "version": -1}


class PodTable:
    """Columns of pods, one row each; rows are appended, replaced and marked as gone.

    ``freeze()`` gives a table that never changes, in constant time: rows are copied when they are next written to.
    Either ``records[row]`` is the pod, or its JSON text is at ``offset`` in a buffer (a mapped file, or memory of the
    store of texts), or it equals an exemplar (its shape's, if its text is not kept) but for its name and what the
    columns say.
    """

    __slots__ = (
        "_frozen", "_hole", "_keys_shared", "_shared", "buffers", "columns", "dropped", "exemplars", "interner", "keys",
        "memo", "nodes", "population", "records", "texts", "versions",
    )  # fmt: skip

    def __init__(self, interner: Interner) -> None:
        self.interner = interner
        self.columns: dict[str, Growing] = {name: Growing(dtype) for name, dtype in _COLUMNS.items()}
        self.keys: Sequence[str] = []
        self.records: dict[int, PodRecord] = {}
        self.versions: dict[int, str] = {}  # those that are no numbers
        self.nodes: list[str] = []  # names of nodes by number
        self.texts = TextStore()
        self.buffers: list[memoryview] = self.texts.buffers
        self.exemplars: list[Pod] = []
        self.memo = PodMemo()
        self.population = object()  # another one whenever pods come, go or change class
        self.dropped = 0  # rows, since some were closed up
        self._hole: tuple[int, int] | None = None
        self._shared = self._keys_shared = False
        self._frozen: PodTable | None = None

    def __len__(self) -> int:
        return self.columns["state"].size

    def column(self, name: str) -> NDArray[Any]:
        """A column by name (a view; not to be written to)."""
        return self.columns[name].array

    # -- writing -----------------------------------------------------------------------------------------------------

    def freeze(self) -> PodTable:
        """The table as it is now: the very same as before if nothing was written since."""
        if self._frozen is None:
            self.buffers = self.texts.freeze()
            self._shared = self._keys_shared = True
            self._frozen = self._view()
        return self._frozen

    @property
    def frozen(self) -> bool:
        """Whether nothing was written since :meth:`freeze`."""
        return self._frozen is not None

    def _view(self) -> PodTable:
        frozen = PodTable.__new__(PodTable)
        frozen.interner = self.interner
        frozen.columns = {name: column.view() for name, column in self.columns.items()}
        frozen.keys, frozen.records, frozen.versions = self.keys, self.records, self.versions
        frozen.buffers, frozen.nodes, frozen.exemplars = self.buffers, self.nodes, self.exemplars
        frozen.memo, frozen.population = self.memo, self.population
        return frozen

    def copy(self) -> PodTable:
        """Another table with the same rows; they share what was found out about pods."""
        made = PodTable(self.interner)
        made.columns = {name: column.copy() for name, column in self.columns.items()}
        made.keys, made.records, made.versions = list(self.keys), dict(self.records), dict(self.versions)
        made.texts, made.nodes, made.exemplars = self.texts.copy(), list(self.nodes), list(self.exemplars)
        made.buffers = made.texts.buffers
        made.memo, made._hole, made.dropped = self.memo, self._hole, self.dropped
        return made

    def own(self) -> None:
        """Before a row that a frozen table may have is written to."""
        self._frozen = None
        if self._shared:
            self.columns = {name: column.copy() for name, column in self.columns.items()}
            self.records, self.versions = dict(self.records), dict(self.versions)
            self._shared = False

    def append(self, record: PodRecord, class_of: int, at: int, state: int, moments: PodMoments) -> int:
        """A new row; its number."""
        row = len(self)
        self.population = object()
        self._frozen = None
        for column in self.columns.values():
            column.extend_to(row + 1)
        assert isinstance(self.keys, list)
        self.keys.append(record.key)
        self._set(row, record, class_of, at, state, moments)
        return row

    def replace(self, row: int, record: PodRecord, class_of: int, at: int, state: int, moments: PodMoments) -> None:
        """Another pod under the same key."""
        self.own()
        self._let_go(np.array([row]))
        if self.column("class_of")[row] != class_of:
            self.population = object()
        self._set(row, record, class_of, at, state, moments)

    def _set(self, row: int, record: PodRecord, class_of: int, at: int, state: int, moments: PodMoments) -> None:
        columns = self.columns
        columns["class_of"].array[row] = class_of
        columns["at"].array[row] = at
        columns["state"].array[row] = state
        columns["priority"].array[row] = record.priority
        columns["controller"].array[row] = self.interner.controller(record.controller)
        columns["source"].array[row] = -1
        columns["size"].array[row] = columns["uid_size"].array[row] = 0
        columns["shape"].array[row] = columns["combined"].array[row] = 0
        columns["bound"].array[row] = bool(record.pod.spec.node_name)
        columns["stamp"].array[row] = self._stamps(1)[0]
        for name in MOMENTS:
            columns[name].array[row] = getattr(moments, name)
        self.hold([row], [record], [moments])

    def hold(self, rows: Sequence[int], records: Sequence[PodRecord], moments: Sequence[PodMoments]) -> None:
        """The structs behind rows that were just written."""
        for row, record, each in zip(rows, records, moments, strict=True):
            self.records[row] = record
            if each.version == _NO_NUMBER:
                self.versions[row] = each.version_text

    def _stamps(self, count: int) -> NDArray[np.int64]:
        first = self.memo.stamps
        self.memo.stamps = first + count
        return np.arange(first, first + count)

    def extend(self, keys: Sequence[str], **columns: NDArray[Any] | int) -> NDArray[np.int64]:
        """Many new rows; their numbers."""
        first = len(self)
        self.population = object()
        self._frozen = None
        for name, column in self.columns.items():
            column.extend_to(first + len(keys))
            if (values := columns.get(name, _OF_COPY.get(name))) is not None:
                column.array[first:] = values
        self.columns["stamp"].array[first:] = self._stamps(len(keys))
        if isinstance(self.keys, list):
            self.keys.extend(keys)
        else:
            assert not first
            self.keys = keys
        return np.arange(first, first + len(keys))

    def put(self, rows: NDArray[np.int64], **columns: NDArray[Any]) -> None:
        """Other pods under the same keys: what :meth:`extend` takes."""
        self.own()
        self._let_go(rows)
        if (self.column("class_of")[rows] != columns["class_of"]).any():
            self.population = object()
        columns["stamp"] = self._stamps(len(rows))
        to = [self.columns[name].array for name in columns]
        values = [
            np.ascontiguousarray(each, dtype=column.dtype) for each, column in zip(columns.values(), to, strict=True)
        ]
        _rows.scatter(rows, to, values)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Mark rows as gone."""
        self.own()
        self._let_go(rows)
        self.population = object()
        self.columns["state"].array[rows] = GONE
        self.columns["source"].array[rows] = -1
        self.dropped += len(rows)

    def _let_go(self, rows: NDArray[np.int64]) -> None:
        """Rows get other pods, or none."""
        numbers, (size, of_uid) = self.column("source")[rows], (self.column(c)[rows] for c in ("size", "uid_size"))
        if self.records or self.versions:
            for row in rows.tolist():
                self.records.pop(row, None)
                self.versions.pop(row, None)
        if (numbers >= 0).any():
            self.texts.release(numbers, np.where(size > 0, size, of_uid).astype(np.int64))
            self.buffers = self.texts.buffers
            for number in self.texts.sparse(numbers[numbers >= 0]):
                self._move_texts(number, rows)

    def _move_texts(self, number: int, going: NDArray[np.int64]) -> None:
        """Copy the texts of a buffer of which little is used, but for those of rows that are ``going``."""
        using = self.column("source") == number
        using[going] = False
        rows = np.flatnonzero(using)
        at, size = self.column("offset")[rows], self.column("size")[rows].astype(np.int64)
        uid_at, uid_size = at + self.column("uid_offset")[rows], self.column("uid_size")[rows].astype(np.int64)
        none = np.full(len(rows), -1, dtype=np.int64)
        block, new_at, _, mark = _projection.copy_texts(
            self.buffers[number], at, size, at, none, uid_at, uid_size, (size > 0).view(np.uint8)
        )
        into, begin = self.texts.add(block)
        columns = self.columns
        columns["source"].array[rows] = into
        columns["offset"].array[rows] = new_at + begin
        columns["uid_offset"].array[rows] = mark - new_at
        self.texts.release(np.full(len(rows), number, dtype=np.int32), np.where(size > 0, size, uid_size))
        self.buffers = self.texts.buffers

    def see(self, rows: int | slice | NDArray[np.int64], seen: bool) -> None:
        """Note whether rows were seen; frozen tables do not ask."""
        self.columns["seen"].array[rows] = seen

    def learn_shapes(self, rows: NDArray[np.int64], shapes: Sequence[int]) -> None:
        """Rows are shared with tables that were frozen earlier: the same pods there, so the same answer."""
        self.columns["shape"].array[rows] = shapes

    def go_on_with(self, interner: Interner) -> None:
        """Another interner, in which what the rows have keeps its number. Tables that were frozen keep theirs: what is
        learnt of their rows is not said here any more."""
        self.own()
        self.interner = interner

    def forget_combinations(self) -> None:
        """What reads texts from now on has numbers of its own."""
        self.own()
        self.columns["combined"].array[:] = 0

    def renew_stamps(self) -> None:
        """Number what the memo knows anew: by row."""
        self.own()
        there = self.column("state") != GONE
        self.memo = self.memo.renewed(self.column("stamp"), there)
        self.columns["stamp"].array[:] = np.arange(len(self))

    def keep_nodes(self, there: NDArray[np.bool_]) -> dict[str, int]:
        """Number nodes anew, without those that no row has; their numbers by name."""
        self.own()
        number = np.append(np.cumsum(there) - 1, -1).astype(np.int32)
        at = self.columns["at"].array
        at[:] = np.where(at < 0, np.int32(-1), number[at])
        at[self.column("state") == GONE] = -1
        self.nodes = [self.nodes[i] for i in np.flatnonzero(there).tolist()]
        return {name: i for i, name in enumerate(self.nodes)}

    # Rows that are gone are closed up by moving the rows behind them: those before ``_hole[0]`` have been, those from
    # there up to ``_hole[1]`` are all gone, and the others are yet to be looked at.

    @property
    def closing(self) -> bool:
        """Whether the rows are being closed up."""
        return self._hole is not None

    def close_up(self, count: int) -> list[tuple[str, int]]:
        """Look at so many rows more: the keys of pods that were moved, and their rows now."""
        self.own()
        self.population = object()
        self.dropped = 0
        state = self.columns["state"].array
        first = self._first_gone() if self._hole is None else 0
        to, begin = self._hole or (first, first)
        end = min(begin + count, len(self))
        rows = begin + np.flatnonzero(state[begin:end] != GONE)
        into = slice(to, to + len(rows))
        moved: list[tuple[str, int]] = []
        if len(rows) and rows[0] != to:
            if self._keys_shared:
                self.keys, self._keys_shared = list(self.keys), False
            assert isinstance(self.keys, list)
            names = [self.keys[row] for row in rows.tolist()]
            self.keys[into] = names
            for column in self.columns.values():
                column.array[into] = column.array[rows]
            if self.records or self.versions:
                for new, row in enumerate(rows.tolist(), to):
                    if row in self.records:
                        self.records[new] = self.records.pop(row)
                    if row in self.versions:
                        self.versions[new] = self.versions.pop(row)
            moved = list(zip(names, range(to, to + len(rows)), strict=True))
        state[to + len(rows) : end] = GONE
        self.columns["source"].array[to + len(rows) : end] = -1
        if end < len(self):
            self._hole = to + len(rows), end
            return moved
        self._hole = None
        for column in self.columns.values():
            column.truncate(to + len(rows))
        self.keys, self._keys_shared = list(self.keys[: to + len(rows)]), False
        return moved

    def _first_gone(self) -> int:
        gone = self.column("state") == GONE
        return int(np.argmax(gone)) if gone.any() else len(self)

    # -- reading -----------------------------------------------------------------------------------------------------

    def record(self, row: int) -> PodRecord:
        """The pod of a row."""
        found = self.records.get(row)
        if found is not None:
            return found
        interner = self.interner
        source, controller = int(self.column("source")[row]), int(self.column("controller")[row])
        owner = None if controller < 0 else interner.controllers[controller]
        priority, key, state = int(self.column("priority")[row]), self.keys[row], self.column("state")[row]
        known = interner.classes[self.column("class_of")[row]] if state == PENDING else None
        if source < -1:
            return PodRecord.lazy(key, "", priority, owner, exemplar=self.exemplars[-2 - source], pod_class=known)
        buffer, size = self.buffers[source], int(self.column("size")[row])
        mapped = file_of(buffer)
        if mapped is not None:
            mapped.check()
        uid = self.uid_text(row).decode()
        if not size:
            shape = interner.shapes[int(self.column("shape")[row])]
            assert shape is not None  # of what is read from texts it is known at once
            return PodRecord.lazy(key, uid, priority, owner, exemplar=shape.exemplar, facts=self._facts(row))
        offset = int(self.column("offset")[row])
        raw = msgspec.Raw(buffer[offset : offset + size])
        return PodRecord.lazy(key, uid, priority, owner, raw=raw, pod_class=known, mapped=mapped)

    def _facts(self, row: int) -> PodFacts:
        at = int(self.column("at")[row])
        moments = (int(self.column(name)[row]) for name in ("started", "deleted", "ready", "since"))
        return PodFacts("" if at < 0 else self.nodes[at], self.version(row), *moments)

    def uid_text(self, row: int) -> bytes:
        """The UID of the pod of a row; empty if it has none."""
        found = self.records.get(row)
        if found is not None:
            return b"" if found.uid == found.key else found.uid.encode()
        source, size = int(self.column("source")[row]), int(self.column("uid_size")[row])
        if source < 0 or size <= 0:
            return b""
        at = int(self.column("offset")[row]) + int(self.column("uid_offset")[row])
        return bytes(self.buffers[source][at : at + size])

    def have_uids(
        self, rows: NDArray[np.int64], view: memoryview, at: NDArray[np.int64], size: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """bool[n]: whether the pod of each row has the UID at a place of a text, or one of the two has none."""
        source, held = self.column("source")[rows], self.column("uid_size")[rows].astype(np.int64)
        begin = self.column("offset")[rows] + self.column("uid_offset")[rows]
        inside = source >= 0
        fits = (size <= 0) | (inside & (held <= 0))
        which = np.flatnonzero(inside & ~fits)
        fits[which] = _rows.same_texts(
            self.buffers, source[which], begin[which], held[which], view, at[which], size[which]
        )
        for i in np.flatnonzero(~inside & ~fits).tolist():
            uid = self.uid_text(int(rows[i]))
            fits[i] = not uid or uid == bytes(view[int(at[i]) : int(at[i] + size[i])])
        return fits

    def uids(self, rows: NDArray[np.int64]) -> list[str]:
        """UIDs of the pods of some rows, or their keys where they have none."""
        keys = self.keys
        found = [keys[row] for row in rows.tolist()]
        source, size = self.column("source")[rows], self.column("uid_size")[rows].astype(np.int64)
        at = self.column("offset")[rows] + self.column("uid_offset")[rows]
        for number in np.unique(source[source >= 0]).tolist():
            mapped = file_of(self.buffers[number])
            if mapped is not None:
                mapped.check()
            which = np.flatnonzero(source == number)
            for i, uid in zip(
                which.tolist(), _projection.strings(self.buffers[number], at[which], size[which]), strict=True
            ):
                found[i] = uid or found[i]
        for i in np.flatnonzero(source == -1).tolist():
            found[i] = self.record(int(rows[i])).uid
        return found

    def version(self, row: int) -> str:
        """The resource version of the pod of a row; empty if it has none."""
        number = int(self.column("version")[row])
        return str(number) if number >= 0 else self.versions.get(row, "")

    def digest(self, row: int, digester: Digester) -> bytes:
        """What equivalence grouping compares of the pod of a row."""
        source, size = int(self.column("source")[row]), int(self.column("size")[row])
        if source < 0 or not size:
            return self.record(row).digest(digester)
        buffer, offset = self.buffers[source], int(self.column("offset")[row])
        mapped = file_of(buffer)
        if mapped is not None:
            mapped.check()
        return digester.digest(buffer[offset : offset + size])

    def shapes(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Shapes of the pods of some rows: int32[n]. Those of structs are numbered now, once in the life of a row."""
        column = self.column("shape")
        unknown = rows[column[rows] == 0]
        if len(unknown):
            source, of_exemplar, numbers = self.column("source"), dict[int, int](), []
            for row, at, class_of in zip(
                unknown.tolist(), source[unknown].tolist(), self.column("class_of")[unknown].tolist(), strict=True
            ):
                number = of_exemplar.get(at)
                if number is None:
                    number = self.interner.shape_of(self.record(row).pod, class_of)
                    if at < -1:
                        of_exemplar[at] = number
                numbers.append(number)
            self.learn_shapes(unknown, numbers)
        shapes: NDArray[np.int32] = column[rows]
        return shapes

    def alike(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """int32[n]: equal numbers for pods of one shape that were told to stop at the same moment, or not at all."""
        found, _ = numbered(self.shapes(rows))
        deleted = self.column("deleted")[rows]
        told = np.flatnonzero(deleted != ZERO_TIME)
        if not len(told):
            return found
        _, pairs = np.unique(np.stack([found[told], deleted[told]]), axis=1, return_inverse=True)
        found = found.copy()
        found[told] = len(rows) + pairs.reshape(-1)
        return found

    # -- pickling ----------------------------------------------------------------------------------------------------

    def with_waiting_texts(self) -> PodTable:
        """This table, if it is frozen, in which pods that are bound or have finished keep no text."""
        made = self._view()
        size = self.columns["size"].copy()
        settled = (self.column("bound") != 0) | (self.column("state") == FINISHED)
        size.array[settled & (self.column("source") >= 0) & (self.column("shape") > 0)] = 0
        made.columns["size"] = size
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Texts of rows that are there, a buffer each that pickle's protocol 5 may take out of band."""
        columns = {name: column.array.copy() for name, column in self.columns.items()}
        buffers = []
        for number, buffer in enumerate(self.buffers):
            mapped = file_of(buffer)
            if mapped is not None:
                mapped.check()
            rows = np.flatnonzero((columns["source"] == number) & (columns["state"] != GONE))
            at, size = columns["offset"][rows], columns["size"][rows].astype(np.int64)
            uid_at, uid_size = at + columns["uid_offset"][rows], columns["uid_size"][rows].astype(np.int64)
            none = np.full(len(rows), -1, dtype=np.int64)
            block, new_at, _, mark = _projection.copy_texts(
                buffer, at, size, at, none, uid_at, uid_size, (size > 0).view(np.uint8)
            )
            columns["offset"][rows] = new_at
            columns["uid_offset"][rows] = mark - new_at
            buffers.append(np.frombuffer(block, dtype=np.uint8))
        return {
            "interner": self.interner,
            "columns": columns,
            "keys": self.keys if not isinstance(self.keys, list) else self.keys[: len(self)],
            "records": self.records,
            "versions": self.versions,
            "nodes": self.nodes,
            "buffers": buffers,
            "exemplars": self.exemplars,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.interner = state["interner"]
        self.columns = {name: Growing.of(array) for name, array in state["columns"].items()}
        self.keys, self.records, self.versions = state["keys"], state["records"], state["versions"]
        self.nodes, self.exemplars = state["nodes"], state["exemplars"]
        self.texts = TextStore()
        for number, buffer in enumerate(state["buffers"]):
            rows = self.column("source") == number
            size, of_uid = self.column("size")[rows], self.column("uid_size")[rows]
            self.texts.refer(memoryview(buffer), int(np.where(size > 0, size, of_uid).sum()))
        self.buffers = self.texts.buffers
        self.memo = PodMemo(int(self.column("stamp").max(initial=-1)) + 1)
        self.population = object()
        self.dropped = 0
        self._hole = None
        self._shared = self._keys_shared = False
        self._frozen = None
