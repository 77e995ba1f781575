"""The pod table: one row of numbers per pod, and the location of the pod's texts."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _projection
from kscale.objects.api.core import Pod
from kscale.objects.times import ZERO_TIME
from kscale.snapshot.classes.interner import Interner
from kscale.snapshot.columns import FINISHED, PENDING, REMOVED, GrowingColumns, distinct
from kscale.snapshot.pods.record import PodFacts, PodRecord
from kscale.snapshot.text.files import MappedFile, file_of
from kscale.snapshot.text.pod_reader import TEXT_COLUMNS, PodBatch

__all__ = [
    "COLUMN",
    "DEFAULTS",
    "NO_NUMBER",
    "NO_TEXT",
    "POD_COLUMNS",
    "CopiedRows",
    "Layers",
    "MovedRows",
    "PodFactCache",
    "PodTable",
    "TextStore",
    "copy_batch",
    "copy_rows",
    "have_uids",
    "refer_to_batch",
    "uid_text",
    "uids_of",
]


POD_COLUMNS: Final[dict[str, Any]] = {
    "class_of": np.int32,  # pod class
    "at": np.int32,  # number of the node's name, -1 = none
    "state": np.int8,
    "priority": np.int64,
    "controller": np.int32,  # into the interner's controllers, -1 = stands alone
    "source": np.int32,  # index of the text's buffer, or -2 - exemplar, or -1 if it is in ``records``
    "offset": np.int64,
    "size": np.int32,  # of the text, 0 = not stored
    "uid_offset": np.int32,  # from ``offset`` on
    "uid_size": np.int32,
    "shape": np.int32,  # shape of pods (:mod:`kscale.snapshot.classes.pod_shapes`), 0 = not known yet
    "stamp": np.int64,  # changes whenever a row gets another pod
    "created": np.int64,  # ``metadata.creationTimestamp``: nanoseconds since 1970, as the next three
    "started": np.int64,  # ``status.startTime``
    "deleted": np.int64,  # ``metadata.deletionTimestamp``
    "since": np.int64,  # when the condition Ready last changed
    "ready": np.int8,  # into kscale.snapshot.columns.READY
    "phase": np.int8,  # into kscale.snapshot.columns.PHASES
    "seen": np.int8,  # whether a list that is being read has the pod
    "version": np.int64,  # ``metadata.resourceVersion``, -1 = none, -2 = ``versions`` has it
    "bound": np.int8,  # whether it is bound to its node, not only nominated
    "queueing": np.int32,  # number of its queueing (:mod:`kscale.snapshot.classes.facets`), 0 if it is not pending
    "combined": np.int32,  # number of the combination of its texts, from 1; 0 = none
    "contents": np.int32,  # equal only for pods with equal labels and specs, 0 = not numbered
}
COLUMN: Final = {name: number for number, name in enumerate(POD_COLUMNS)}
"""Where each column is among them."""

NO_NUMBER: Final = -2
"""A resource version that is no number."""

DEFAULTS: Final = {
    "shape": 0, "created": ZERO_TIME, "started": ZERO_TIME, "deleted": ZERO_TIME, "since": ZERO_TIME, "version": -1,
}  # fmt: skip
"""Entries of columns that are not given; others are 0."""


_V = TypeVar("_V")
_FEW: Final = 64


class Layers(Generic[_V]):
    """A mapping from row to value, whose copies share a base layer. Values are never None."""

    __slots__ = ("_below", "_top")

    def __init__(self, values: Mapping[int, _V] | None = None) -> None:
        self._below: dict[int, _V] = {}  # not modified once there are copies
        self._top: dict[int, _V | None] = dict(values or {})  # None: removed

    def __bool__(self) -> bool:
        """Return False if there are no values; True if there may be some."""
        return bool(self._top or self._below)

    def __contains__(self, row: int) -> bool:
        return self.get(row) is not None

    def __setitem__(self, row: int, value: _V) -> None:
        self._top[row] = value

    def get(self, row: int) -> _V | None:
        """Return the value of a row, or None if it has none."""
        return self._top[row] if row in self._top else self._below.get(row)

    def get_all(self, rows: Iterable[int]) -> list[_V | None]:
        """Return the value of each row; None if it has none."""
        top, below = self._top, self._below
        return [top[row] if row in top else below.get(row) for row in rows]

    def pop(self, row: int) -> _V | None:
        """Remove and return the value of a row, or None if it has none."""
        value = self.get(row)
        if row in self._below:
            self._top[row] = None
        else:
            self._top.pop(row, None)
        return value

    def items(self) -> Iterator[tuple[int, _V]]:
        """Yield all (row, value) pairs, in no order."""
        yield from ((row, value) for row, value in self._below.items() if row not in self._top)
        yield from ((row, value) for row, value in self._top.items() if value is not None)

    def copy(self) -> Layers[_V]:
        """Return an independent copy."""
        result: Layers[_V] = Layers()
        if len(self._top) > _FEW + len(self._below) // 8:
            result._below = dict(self.items())
        else:
            result._below, result._top = self._below, dict(self._top)
        return result


_MAX_UNUSED_VALUES: Final = 256  # number of unused values that are tolerated


class PodFactCache:
    """Cached facts about pods, by stamp, shared by a table and its copies.

    ``get_numbers(what)``: int32, one entry per stamp, 0 = not known yet. ``values(what)``: what the numbers stand for,
    filled by the owner of ``what``. Write to both only while holding ``lock``.
    """

    __slots__ = ("_numbers", "_values", "lock", "stamps")

    def __init__(self, stamps: int = 0) -> None:
        self.stamps = stamps
        self.lock = Lock()
        self._numbers = GrowingColumns({})
        self._values: dict[str, dict[Any, Any]] = {}

    def get_numbers(self, what: str) -> NDArray[np.int32]:
        """Return the numbers of the fact ``what`` by stamp (0 = not known yet). Valid until the next call."""
        self._numbers.extend_to(self.stamps)
        return self._numbers.add(what, np.int32)

    def values(self, what: str) -> dict[Any, Any]:
        """Return the dict in which the owner of the fact ``what`` stores what its numbers stand for."""
        return self._values.setdefault(what, {})

    def renumber(self, stamps: NDArray[np.int64], there: NDArray[np.bool_]) -> PodFactCache:
        """Return a new cache whose stamps are 0, 1, ... for the pods that have ``stamps`` in this one.

        A fact is not copied if it has many more values than the pods in ``there`` (bool by pod) still use.
        """
        result = PodFactCache(len(stamps))
        with self.lock:
            self._numbers.extend_to(self.stamps)
            for name, column in self._numbers.arrays.items():
                numbers, values = column[stamps], self._values.get(name, {})
                if len(values) > 2 * len(distinct(numbers[there])) + _MAX_UNUSED_VALUES:
                    continue
                result.get_numbers(name)[:] = numbers
                result._values[name] = dict(values)
        return result


def uid_text(table: PodTable, row: int) -> bytes:
    """Return the UID of a row's pod; empty if it has none."""
    record = table.records.get(row)
    if record is not None:
        return b"" if record.uid == record.key else record.uid.encode()
    source, size = int(table.columns["source"][row]), int(table.columns["uid_size"][row])
    if source < 0 or size <= 0:
        return b""
    at = int(table.columns["offset"][row]) + int(table.columns["uid_offset"][row])
    return bytes(table.buffers[source][at : at + size])


def have_uids(
    table: PodTable, rows: NDArray[np.int64], view: memoryview, at: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Check for each row whether its pod has the UID that is in ``view`` at ``at``, ``size`` bytes long: bool[n].

    True also if the row's pod has no UID, or ``size`` is 0.
    """
    columns = table.columns
    fits = _names.have_uids(
        rows, table.buffers, columns["source"], columns["offset"], columns["uid_offset"], columns["uid_size"], view,
        at, size,
    )  # fmt: skip
    for i in np.flatnonzero(fits == _IN_NO_BUFFER).tolist() if table.records else ():
        uid = uid_text(table, int(rows[i]))
        fits[i] = not uid or uid == bytes(view[int(at[i]) : int(at[i] + size[i])])
    have: NDArray[np.bool_] = fits != 0
    return have


_MAX_STORED: Final = 1 << 9  # of so many rows the records are tried first


def uids_of(table: PodTable, rows: NDArray[np.int64]) -> list[str]:
    """Return the UIDs of the pods in the given rows, or the keys of pods without UID."""
    if len(rows) <= _MAX_STORED:
        records = table.records.get_all(rows.tolist())
        if None not in records:
            return [record.uid for record in records if record is not None]
    uid_array = np.empty(len(rows), dtype=np.object_)
    source, size = table.columns["source"][rows], table.columns["uid_size"][rows].astype(np.int64)
    at = table.columns["offset"][rows] + table.columns["uid_offset"][rows]
    written = (source >= 0) & (size > 0)
    for number in distinct(source[source >= 0]).tolist():
        mapped = file_of(table.buffers[number])
        if mapped is not None:
            mapped.check()
        which = np.flatnonzero(written & (source == number))
        uid_array[which] = _projection.strings(table.buffers[number], at[which], size[which])
    others = np.flatnonzero(~written)
    stored, keys = table.records.get, table.keys
    columns = (others.tolist(), rows[others].tolist(), source[others].tolist())
    for i, row, where in zip(*columns, strict=True):
        record = stored(row) if where == -1 else None
        uid_array[i] = keys[row] if record is None else record.uid
    uids: list[str] = uid_array.tolist()
    return uids


_IN_NO_BUFFER: Final = 2  # from have_uids of kscale._native._names
NO_TEXT: Final = memoryview(b"")
_SEGMENT: Final = 1 << 20  # size in bytes of a buffer for several texts; more in a large store
_LARGEST_SEGMENT: Final = 1 << 21  # for 4 MiB NumPy requests huge pages, which take long if memory is fragmented


class TextStore:
    """Buffers by number, and how many bytes of each are in use by rows.

    Unused buffers are dropped. :meth:`release_unused` returns segments of which rows use less than half, so that their
    texts can be copied elsewhere. A frozen store's list of buffers does not change: numbers that became free are reused
    in another list.
    """

    __slots__ = ("_fill", "_free", "_live", "_open", "_reserved", "_shared", "_whole", "buffers")

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []
        self._live = array("q")  # bytes in use by rows
        self._whole = array("q")  # bytes that were ever in use, in the current buffer of a number
        self._free: list[int] = []
        self._open = -1  # the segment that is being filled
        self._fill = 0
        self._reserved = -1, 0  # buffer and position that texts are being written to
        self._shared = False

    def freeze(self) -> list[memoryview]:
        """Return the list of current buffers. It is not modified from now on: the store copies it before a change."""
        self._shared = True
        return self.buffers

    def copy(self) -> TextStore:
        """Return an independent copy with the same texts."""
        result = TextStore()
        result.buffers = list(self.buffers)
        result._live, result._whole = self._live[:], self._whole[:]
        result._free = list(self._free)
        return result  # only the original continues to fill the open segment

    def _add_buffer(self, buffer: memoryview) -> int:
        """Add a buffer and return its number."""
        if not self._free:
            self.buffers.append(buffer)  # no sharer of the list uses this number
            self._live.append(0)
            self._whole.append(0)
            return len(self.buffers) - 1
        number = self._free.pop()
        self._set(number, buffer)
        return number

    def _set(self, number: int, buffer: memoryview) -> None:
        """Set the buffer of a number, in a list that no frozen table shares."""
        if self._shared:
            self.buffers, self._shared = list(self.buffers), False
        self.buffers[number] = buffer

    def refer(self, view: memoryview, size: int) -> int:
        """Count ``size`` more bytes of an external buffer as used, and return the buffer's number.

        The buffer is added, without a copy, unless it was the last that was added.
        """
        number = len(self.buffers) - 1
        if number < 0 or self.buffers[number] is not view:
            number = self._add_buffer(view)
        self._use(number, size)
        return number

    def _use(self, number: int, size: int) -> None:
        """Count ``size`` more bytes of a buffer as used."""
        self._live[number] += size
        self._whole[number] += size

    def reserve(self, size: int) -> memoryview:
        """Return ``size`` bytes of memory to write texts into. Call :meth:`fill` afterwards."""
        if self._open < 0 or self._fill + size > len(self.buffers[self._open]):
            segment = max(_SEGMENT, min(sum(self._live) // 8, _LARGEST_SEGMENT))
            if size >= segment // 4:  # such a block is a segment by itself
                self._reserved = self._add_buffer(np.empty(size, dtype=np.uint8).data), 0
                return self.buffers[self._reserved[0]]
            full, self._open = self._open, -1
            if full >= 0 and not self._live[full]:
                self._release_buffer(full)
            self._open, self._fill = self._add_buffer(np.empty(segment, dtype=np.uint8).data), 0
        self._reserved = self._open, self._fill
        return self.buffers[self._open][self._fill : self._fill + size]

    def fill(self, size: int) -> tuple[int, int]:
        """Count ``size`` bytes as used that were written to the memory that :meth:`reserve` returned.

        Returns the number of the buffer, and the position of that memory in it.
        """
        number, begin = self._reserved
        if number == self._open:
            self._fill += size
        self._use(number, size)
        return number, begin

    @property
    def usage(self) -> tuple[array[int], array[int]]:
        """Return by buffer the bytes that rows use, which native code may reduce, and the bytes that were ever used."""
        return self._live, self._whole

    def release_one(self, number: int, size: int) -> list[int]:
        """Count ``size`` bytes of a buffer as no longer used, and release the buffer if rows use none of it.

        Returns the buffer's number in a list if rows use less than half of it and it is in memory; otherwise an empty
        list. Does nothing for a negative number.
        """
        if number < 0 or not size:
            return []
        self._live[number] -= size
        return self.release_unused([number] if 2 * self._live[number] < max(self._whole[number], 1) else [])

    def release_unused(self, numbers: list[int]) -> list[int]:
        """Release the buffers that rows do not use, and return the numbers of the others that are in memory.

        ``numbers``: buffers of which rows use less than half, ascending. The buffer that is being filled is ignored.
        """
        few = []
        for number in numbers:
            if number == self._open:
                continue
            if not self._live[number]:
                self._release_buffer(number)
            elif not isinstance(self.buffers[number].obj, MappedFile):
                few.append(number)
        return few

    def _release_buffer(self, number: int) -> None:
        """Release a buffer and make its number free."""
        self._set(number, NO_TEXT)
        self._whole[number] = 0
        self._free.append(number)

    @property
    def size(self) -> int:
        """Return the bytes of memory of all buffers, including unused bytes, without mapped files."""
        return sum(len(each) for each in self.buffers if not isinstance(each.obj, MappedFile))


class CopiedRows(msgspec.Struct, frozen=True):
    """Concatenated texts of rows.

    ``offset`` is the position of each row's text, ``uid_offset`` that of the UID in it, and ``used`` the number of
    bytes of all of them.
    """

    offset: NDArray[np.int64]
    uid_offset: NDArray[np.int64]
    used: int


def copy_rows(
    buffer: memoryview, columns: Mapping[str, NDArray[Any]], rows: NDArray[np.int64], room: Callable[[int], Any]
) -> CopiedRows:
    """Copy the texts of rows from a buffer into the memory that ``room(size)`` returns.

    Of a row without a text, only the UID is copied. ``columns``: the table's columns, which are not changed.
    """
    size, uid_size = columns["size"][rows].astype(np.int64), columns["uid_size"][rows].astype(np.int64)
    at = np.where((size > 0) | (uid_size > 0), columns["offset"][rows], 0)  # of no bytes, the buffer may be a new one
    uid_at = np.where(uid_size > 0, at + columns["uid_offset"][rows], at)
    none = np.full(len(rows), -1, dtype=np.int64)
    used, (offset, _, mark) = _projection.copy_texts(
        buffer, np.stack([at, size, at, none, uid_at, uid_size]), (size > 0).view(np.uint8), room
    )
    return CopiedRows(offset, mark - offset, used)


def refer_to_batch(texts: TextStore, batch: PodBatch, to: NDArray[np.int64]) -> None:
    """Set the text columns of a batch's rows to the positions of its texts, which are not copied.

    ``to``: values of the rows by column; it is changed.
    """
    begin, size = batch.column("begin"), batch.column("size")
    to[COLUMN["source"]] = texts.refer(batch.view, int(size.sum()))
    to[COLUMN["offset"]] = begin
    to[COLUMN["size"]] = size
    to[COLUMN["uid_offset"]] = batch.column("uid_at") - begin


def copy_batch(texts: TextStore, batch: PodBatch, keep: NDArray[np.uint8]) -> tuple[int, int, NDArray[np.int64]]:
    """Copy the texts of a batch, or only the UID where ``keep`` is 0.

    Returns the number of the buffer, the position of the texts in it, and from there on int64[3, n]: position and size
    of each text, and position of its UID.
    """
    used, places = _projection.copy_texts(batch.view, batch.columns[TEXT_COLUMNS], keep, texts.reserve)
    return (*texts.fill(used), places)


def _append_zeros(block: bytearray, size: int) -> bytearray:
    """Append ``size`` zeros to a bytearray and return it."""
    block.extend(bytes(size))
    return block


class MovedRows(NamedTuple):
    """Moved pods by key, and their rows before, in ascending order.

    ``first`` is the new row of the first one; the others follow it.
    """

    keys: list[str]
    before: NDArray[np.int64]
    first: int


class EquivalenceNumbers:
    """Numbers of the controllers and shapes of pods that tables with the same rows share.

    ``rows``: int64[n], the pods that can be pending in one of these tables. ``by_row``: the two numbers of each row of
    the tables, int32[rows] each; they are only valid for ``rows``. None until the owner of the numbers
    (:mod:`kscale.scheduling.equivalent_pods`) has computed them.
    """

    __slots__ = ("by_row", "rows")

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self.rows = rows
        self.by_row: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None


class PodTable:
    """Columns of pods, one row each; rows are appended, replaced and marked as deleted.

    ``freeze()`` returns an immutable table in constant time: columns are copied when they are next written to. A row's
    pod is one of:

    - ``records[row]``
    - a JSON text at ``offset`` in a buffer (a mapped file, or memory of the text store)
    - an exemplar (its shape's, if its text is not stored), except for its name and what the columns contain
    """

    __slots__ = (
        "_frozen", "_hole", "_keys_shared", "_records_shared", "_shared", "buffers", "columns", "dropped",
        "equivalence", "exemplars", "growing", "interner", "keys", "memo", "nodes", "population", "records", "texts",
        "versions",
    )  # fmt: skip

    def __init__(self, interner: Interner) -> None:
        self.interner = interner
        self.set_columns(GrowingColumns(POD_COLUMNS))
        self.keys: Sequence[str] = []
        self.records: Layers[PodRecord] = Layers()
        self.versions: dict[int, str] = {}  # resource versions that are not numbers
        self.nodes: list[str] = []  # names of nodes by number
        self.texts = TextStore()
        self.buffers: list[memoryview] = self.texts.buffers
        self.exemplars: list[Pod] = []
        self.memo = PodFactCache()
        self.equivalence: EquivalenceNumbers | None = None
        self.population = object()  # replaced whenever pods come, go or change class
        self.dropped = 0  # rows marked as removed since the last compaction
        self._hole: tuple[int, int] | None = None
        self._shared: set[str] = set()  # columns shared with a frozen table
        self._records_shared = self._keys_shared = False
        self._frozen: PodTable | None = None

    def __len__(self) -> int:
        return self.growing.size

    def set_columns(self, growing: GrowingColumns) -> None:
        """Use the columns ``growing``, and set ``columns`` to its arrays. Only this class may write to them."""
        self.growing = growing
        self.columns = growing.arrays

    # -- writing -----------------------------------------------------------------------------------------------------

    def freeze(self) -> PodTable:
        """Return an immutable table of the current rows. Returns the previous one if nothing was written since."""
        if self._frozen is None:
            self.buffers = self.texts.freeze()
            self._shared, self._records_shared, self._keys_shared = set(self.columns), True, True
            self._frozen = self._view()
        return self._frozen

    @property
    def frozen(self) -> bool:
        """Check whether nothing was written since the last :meth:`freeze`; False before the first."""
        return self._frozen is not None

    def _view(self) -> PodTable:
        """Return a table with the current rows that shares columns and records with this one."""
        frozen = PodTable.__new__(PodTable)
        frozen.interner = self.interner
        frozen.set_columns(self.growing.view())
        frozen.keys, frozen.records, frozen.versions = self.keys, self.records, self.versions
        frozen.buffers, frozen.nodes, frozen.exemplars = self.buffers, self.nodes, self.exemplars
        frozen.memo, frozen.population, frozen.equivalence = self.memo, self.population, None
        return frozen

    def with_records(self, rows: NDArray[np.int64]) -> PodTable:
        """Return an immutable copy of this frozen table that stores the records of ``rows``, each decoded once."""
        result = self._view()
        result.records = Layers(
            {**dict(self.records.items()), **{row: self.record(row) for row in rows.tolist()}}
        ).copy()
        return result

    def with_spare_rows(self, records: Sequence[PodRecord], values: NDArray[np.int64]) -> PodTable:
        """Return an immutable copy of this frozen table with more rows, whose pods do not exist yet.

        ``values``: the column values of the pods in ``records``, int64[columns, n], with numbers of this table.
        :meth:`exchanging` creates the pods of these rows.
        """
        result, size = self._view(), len(self)
        columns = {}
        for (name, column), added in zip(self.columns.items(), values, strict=True):
            columns[name] = longer = np.empty(size + len(records), column.dtype)
            longer[:size], longer[size:] = column, added
        columns["state"][size:] = REMOVED
        waiting = np.append(np.flatnonzero(self.columns["state"] == PENDING), np.arange(size, size + len(records)))
        result.equivalence = EquivalenceNumbers(waiting)
        result.set_columns(GrowingColumns.of(columns))
        result.keys = [*self.keys, *(record.key for record in records)]
        result.records, result.versions, result.population = self.records.copy(), dict(self.versions), object()
        result.store_records(range(size, size + len(records)), records, values[COLUMN["version"]].tolist())
        return result

    def exchanging(self, removed: NDArray[np.int64], created: NDArray[np.int64], states: NDArray[np.int8]) -> PodTable:
        """Return an immutable copy of this frozen table without the pods of some rows and with those of spare rows.

        ``removed``: rows whose pods are removed; ``created``: spare rows (:meth:`with_spare_rows`); ``states``: states
        of their pods.
        """
        result = self._view()
        columns = {**self.columns, "state": self.columns["state"].copy(), "source": self.columns["source"].copy()}
        columns["state"][removed], columns["source"][removed] = REMOVED, -1
        columns["state"][created] = states
        result.set_columns(GrowingColumns.of(columns))
        result.population, result.equivalence = object(), self.equivalence
        return result

    def copy(self) -> PodTable:
        """Return another table with the same rows, which shares the cached facts about pods."""
        result = PodTable(self.interner)
        result.set_columns(self.growing.copy())
        result.keys, result.records, result.versions = list(self.keys), self.records.copy(), dict(self.versions)
        result.texts, result.nodes, result.exemplars = self.texts.copy(), list(self.nodes), list(self.exemplars)
        result.buffers = result.texts.buffers
        result.memo, result._hole, result.dropped = self.memo, self._hole, self.dropped
        return result

    def own(self) -> None:
        """Copy all columns that a frozen table shares; call this before writing to them."""
        self._own(self.columns)

    def _own(self, names: Iterable[str]) -> None:
        """Copy some shared columns, and the records, before they are written to."""
        self._frozen = None
        self.growing.own(self._shared.intersection(names))
        self._shared.difference_update(names)
        if self._records_shared:
            self.records, self.versions, self._records_shared = self.records.copy(), dict(self.versions), False

    def _own_what_changes(self, count: int, changed: int) -> None:
        """Copy the shared columns that change in ``count`` rows: bit ``COLUMN[name]`` of ``changed`` is 1.

        ``shape`` and ``stamp`` are always copied: facts about the old pods may still be learned.
        """
        if 8 * count > len(self):
            self.own()
        else:
            self._own(["shape", "stamp", *(name for name in self._shared if changed >> COLUMN[name] & 1)])

    def append(self, key: str, values: list[int]) -> int:
        """Add a row with values in the order of the columns, and return its number."""
        row = int(self._grow([key])[0])
        self._write(row, values, ())  # no frozen table has this row
        return row

    def replace(self, row: int, values: list[int]) -> None:
        """Replace a row's pod by another pod with the same key."""
        columns, shared = self.columns, self._shared
        if shared:
            changes = (name for name in shared if columns[name][row] != values[COLUMN[name]])
            self._own(["shape", "stamp", *changes])
        self._release_row(row)
        if columns["class_of"][row] != values[COLUMN["class_of"]]:
            self.population = object()
        self._write(row, values, shared)

    def _write(self, row: int, values: list[int], unchanged: Collection[str]) -> None:
        """Fill a row with values in the order of the columns, and a new stamp, except for ``unchanged`` columns."""
        values[COLUMN["stamp"]] = self.reserve_stamps(1)
        for (name, column), value in zip(self.columns.items(), values, strict=True):
            if name not in unchanged:
                column[row] = value

    def store_records(self, rows: Sequence[int], records: Sequence[PodRecord], versions: Sequence[int]) -> None:
        """Store the records of rows that were just written with these resource versions."""
        for row, record, version in zip(rows, records, versions, strict=True):
            self.records[row] = record
            if version == NO_NUMBER:
                self.versions[row] = record.pod.metadata.resource_version

    def next_stamps(self, count: int) -> NDArray[np.int64]:
        """Return ``count`` unused stamps: int64[count]."""
        first = self.reserve_stamps(count)
        return np.arange(first, first + count)

    def reserve_stamps(self, count: int) -> int:
        """Return the first of ``count`` consecutive unused stamps."""
        first = self.memo.stamps
        self.memo.stamps = first + count
        return first

    def extend(self, keys: Sequence[str], **columns: NDArray[Any] | int) -> NDArray[np.int64]:
        """Add one row for each key, with values from ``columns`` or else the default, and return the rows."""
        first, rows = len(self), self._grow(keys)
        for name, column in self.columns.items():
            if (values := columns.get(name, DEFAULTS.get(name))) is not None:
                column[first:] = values
        self.columns["stamp"][first:] = self.next_stamps(len(rows))
        return rows

    def _grow(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Add rows of zeros and return their numbers."""
        first, size = len(self), len(self) + len(keys)
        self.population = object()
        self._frozen = None
        self.growing.extend_to(size)
        if isinstance(self.keys, list):
            self.keys.extend(keys)
        else:
            assert not first
            self.keys = keys
        return np.arange(first, size)

    def prepare(
        self, rows: NDArray[np.int64], keys: Sequence[str], values: NDArray[np.int64], removed: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], int]:
        """Prepare the columns for :func:`kscale._native._names.put_rows`; call :meth:`finish` after it.

        Parameters
        ----------
        rows : int64[k]
            Existing rows whose pods are replaced.
        keys : sequence of str
            Keys of new rows.
        values : int64[columns, n]
            Values of :data:`POD_COLUMNS` for ``rows`` and then the new rows, with stamps from :meth:`next_stamps`.
        removed : int64[r]
            Existing rows whose pods are removed, none of ``rows``.

        Returns
        -------
        rows : int64[n]
            ``rows``, and then the new rows, which are zeros.
        unchanged : int
            One bit per column (bit ``COLUMN[name]``), 1 if the column is shared with a frozen table and must not be
            written: its ``values`` for ``rows`` equal what it has already.
        """
        if len(rows) and self._shared:
            changes = _names.changes(rows, [*self.columns.values()], values)
            self._own_what_changes(len(rows), int(np.bitwise_or.reduce(changes)))
        if len(removed):
            self._own(("state", "source"))
            self.dropped += len(removed)
        if self.records or self.versions:
            for row in (*rows.tolist(), *removed.tolist()):
                self.records.pop(row)
                self.versions.pop(row, None)
        unchanged = sum(1 << COLUMN[name] for name in self._shared)
        return np.concatenate([rows, self._grow(keys)]) if len(keys) else rows, unchanged

    def finish(self, sparse: list[int], changed: bool) -> None:
        """Finish a change by :func:`kscale._native._names.put_rows`.

        ``sparse``: numbers of text buffers of which rows use less than half; ``changed``: whether pods were removed or
        changed their class.
        """
        if changed:
            self.population = object()
        self._move_texts(self.texts.release_unused(sparse))

    def _release_row(self, row: int) -> None:
        """Release what the table stores, outside its columns, about one pod that is being replaced or deleted.

        Drops the record and the resource version of the row, and subtracts the bytes of its JSON text from the buffer.
        """
        if self.records or self.versions:
            self.records.pop(row)
            self.versions.pop(row, None)
        columns = self.columns
        used = int(columns["size"][row]) or int(columns["uid_size"][row])
        self._move_texts(self.texts.release_one(int(columns["source"][row]), used), row)

    def _move_texts(self, numbers: list[int], going: int | None = None) -> None:
        """Copy the texts of the buffers with these ``numbers`` elsewhere, except that of the row ``going``."""
        for number in numbers:
            self._own(("source", "offset", "uid_offset"))
            columns = self.columns
            using = columns["source"] == number
            if going is not None:
                using[going] = False
            rows = np.flatnonzero(using)
            copied = copy_rows(self.texts.buffers[number], columns, rows, self.texts.reserve)
            into, begin = self.texts.fill(copied.used)
            columns["source"][rows] = into
            columns["offset"][rows] = copied.offset + begin
            columns["uid_offset"][rows] = copied.uid_offset
            self.texts.release_one(number, copied.used)
        self.buffers = self.texts.buffers

    def see(self, rows: int | slice | NDArray[np.int64], seen: bool) -> None:
        """Mark whether rows were seen. Frozen tables do not use these marks."""
        self.columns["seen"][rows] = seen

    def learn_shapes(self, rows: NDArray[np.int64], shapes: Sequence[int]) -> None:
        """Store the shape numbers of rows, also in frozen tables, which share the column.

        Frozen tables have the same pods in these rows, hence the same shapes.
        """
        self.columns["shape"][rows] = shapes

    def replace_interner(self, interner: Interner) -> None:
        """Use another interner, in which the numbers that rows have are unchanged.

        Frozen tables keep the old interner and no longer share what is learned about their rows.
        """
        self.own()
        self.interner = interner

    def forget_combinations(self) -> None:
        """Set the column ``combined`` (numbers of text combinations) to 0: the next reader assigns new numbers."""
        self.own()
        self.columns["combined"][:] = 0

    def renew_stamps(self) -> None:
        """Set each row's stamp to its row number, and renumber the cached facts."""
        self.own()
        exists = self.columns["state"] != REMOVED
        self.memo = self.memo.renumber(self.columns["stamp"], exists)
        self.columns["stamp"][:] = np.arange(len(self))

    def keep_nodes(self, there: NDArray[np.bool_]) -> None:
        """Remove nodes that are not in ``there`` and renumber the others."""
        self.own()
        number = np.append(np.cumsum(there) - 1, -1).astype(np.int32)
        at = self.columns["at"]
        at[:] = np.where(at < 0, np.int32(-1), number[at])
        at[self.columns["state"] == REMOVED] = -1
        self.nodes = [self.nodes[i] for i in np.flatnonzero(there).tolist()]

    # Compaction moves rows over removed ones. Rows before ``_hole[0]`` are compact, those from there to ``_hole[1]``
    # are removed, and the rest is not processed yet.

    @property
    def closing(self) -> bool:
        """Check whether compaction of the rows is in progress."""
        return self._hole is not None

    def close_up(self, count: int) -> MovedRows:
        """Run one step of compaction: move the pods of the next ``count`` rows to removed rows before them.

        Returns the moved rows. The step that reaches the end of the table cuts off the removed rows there.
        """
        self.own()
        self.population = object()
        self.dropped = 0
        state = self.columns["state"]
        first = self._first_removed_row() if self._hole is None else 0
        to, begin = self._hole or (first, first)
        end = min(begin + count, len(self))
        rows = begin + np.flatnonzero(state[begin:end] != REMOVED)
        into = slice(to, to + len(rows))
        moved = MovedRows([], rows[:0], to)
        if len(rows) and rows[0] != to:
            if self._keys_shared:
                self.keys, self._keys_shared = list(self.keys), False
            assert isinstance(self.keys, list)
            names = [self.keys[row] for row in rows.tolist()]
            self.keys[into] = names
            for column in self.columns.values():
                column[into] = column[rows]
            if self.records or self.versions:
                for new, row in enumerate(rows.tolist(), to):
                    record = self.records.pop(row)
                    if record is not None:
                        self.records[new] = record
                    if row in self.versions:
                        self.versions[new] = self.versions.pop(row)
            moved = MovedRows(names, rows, to)
        state[to + len(rows) : end] = REMOVED
        self.columns["source"][to + len(rows) : end] = -1
        if end < len(self):
            self._hole = to + len(rows), end
            return moved
        self._hole = None
        self.growing.truncate(to + len(rows))
        self.keys, self._keys_shared = list(self.keys[: to + len(rows)]), False
        return moved

    def _first_removed_row(self) -> int:
        """Return the first removed row; the number of rows if there is none."""
        is_deleted = self.columns["state"] == REMOVED
        return int(np.argmax(is_deleted)) if is_deleted.any() else len(self)

    # -- reading -----------------------------------------------------------------------------------------------------

    def record(self, row: int) -> PodRecord:
        """Return the record of a row's pod, built from the columns unless it is stored."""
        stored = self.records.get(row)
        if stored is not None:
            return stored
        interner = self.interner
        source, controller = int(self.columns["source"][row]), int(self.columns["controller"][row])
        owner = None if controller < 0 else interner.controllers[controller]
        priority, key, state = int(self.columns["priority"][row]), self.keys[row], self.columns["state"][row]
        pod_class = interner.classes[self.columns["class_of"][row]] if state == PENDING else None
        if source < -1:
            return PodRecord.lazy(key, "", priority, owner, exemplar=self.exemplars[-2 - source], pod_class=pod_class)
        buffer, size = self.buffers[source], int(self.columns["size"][row])
        mapped = file_of(buffer)
        if mapped is not None:
            mapped.check()
        uid = uid_text(self, row).decode()
        if not size:
            shape = interner.shapes[int(self.columns["shape"][row])]
            assert shape is not None  # shapes of pods read from texts are known immediately
            return PodRecord.lazy(key, uid, priority, owner, exemplar=shape.exemplar, facts=self._facts(row))
        offset = int(self.columns["offset"][row])
        raw = msgspec.Raw(buffer[offset : offset + size])
        return PodRecord.lazy(key, uid, priority, owner, raw=raw, pod_class=pod_class, mapped=mapped)

    def _facts(self, row: int) -> PodFacts:
        """Return the fields of a row's pod that its shape does not have."""
        at = int(self.columns["at"][row])
        moments = (int(self.columns[name][row]) for name in ("created", "started", "deleted", "ready", "since"))
        return PodFacts("" if at < 0 else self.nodes[at], self.version(row), *moments)

    def version(self, row: int) -> str:
        """Return the resource version of a row's pod; empty if it has none."""
        number = int(self.columns["version"][row])
        return str(number) if number >= 0 else self.versions.get(row, "")

    # -- pickling ----------------------------------------------------------------------------------------------------

    def with_waiting_texts(self) -> PodTable:
        """Return a copy of this frozen table without the texts of bound and finished pods."""
        result = self._view()
        result.growing.own(["size"])
        settled = (self.columns["bound"] != 0) | (self.columns["state"] == FINISHED)
        result.columns["size"][settled & (self.columns["source"] >= 0) & (self.columns["shape"] > 0)] = 0
        return result

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the texts of existing rows.

        Each text buffer may be transferred out of band by pickle protocol 5.
        """
        columns = {name: column.copy() for name, column in self.columns.items()}
        buffers = []
        for number, buffer in enumerate(self.buffers):
            mapped = file_of(buffer)
            if mapped is not None:
                mapped.check()
            rows = np.flatnonzero((columns["source"] == number) & (columns["state"] != REMOVED))
            block = bytearray()
            copied = copy_rows(buffer, columns, rows, partial(_append_zeros, block))
            columns["offset"][rows] = copied.offset
            columns["uid_offset"][rows] = copied.uid_offset
            buffers.append(np.frombuffer(block, dtype=np.uint8)[: copied.used])
        return {
            "interner": self.interner,
            "columns": columns,
            "keys": self.keys if not isinstance(self.keys, list) else self.keys[: len(self)],
            "records": dict(self.records.items()),
            "versions": self.versions,
            "nodes": self.nodes,
            "buffers": buffers,
            "exemplars": self.exemplars,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.interner = state["interner"]
        self.set_columns(GrowingColumns.of(state["columns"]))
        self.keys, self.records, self.versions = state["keys"], Layers(state["records"]), state["versions"]
        self.nodes, self.exemplars = state["nodes"], state["exemplars"]
        self.texts = TextStore()
        for number, buffer in enumerate(state["buffers"]):
            rows = self.columns["source"] == number
            size, of_uid = self.columns["size"][rows], self.columns["uid_size"][rows]
            self.texts.refer(memoryview(buffer), int(np.where(size > 0, size, of_uid).sum()))
        self.buffers = self.texts.buffers
        self.memo = PodFactCache(int(self.columns["stamp"].max(initial=-1)) + 1)
        self.population, self.equivalence = object(), None
        self.dropped, self._hole, self._frozen = 0, None, None
        self._shared, self._records_shared, self._keys_shared = set(), False, False
