"""The pods of a cluster as mutable rows, with the sums per node that follow from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _projection
from kscale.objects.api.core import Pod, PodSpec
from kscale.objects.kinds import with_namespace
from kscale.objects.pod_owners import controller_of
from kscale.objects.pod_resources import resize_infeasible
from kscale.objects.quantity import encode_quantity_parts, wrap
from kscale.snapshot.changes import ChangedKeys
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.columns import (
    FINISHED,
    FIXED_RESOURCES,
    PENDING,
    PLACED,
    REMOVED,
    GrowingColumns,
    distinct,
    state_of,
)
from kscale.snapshot.pods.record import PodRecord, read_moments, version_number, without_managed_fields
from kscale.snapshot.pods.table import (
    COLUMN,
    POD_COLUMNS,
    PodFactCache,
    PodTable,
    copy_batch,
    have_uids,
    refer_to_batch,
    uid_text,
)
from kscale.snapshot.text.pod_reader import PodBatch, PodReader
from kscale.snapshot.text.text_classes import TextClasses

__all__ = [
    "BatchPlan",
    "DescribedPods",
    "NodeNumbers",
    "PlacedSums",
    "PodClassCache",
    "PodStore",
    "Texts",
    "plan_batch",
]


_MAX_CACHED_CLASSES: Final = 1 << 12
_MAX_CACHED_BYTES: Final = 1 << 22
_NOT_ENCODED: Final = (msgspec.MsgspecError, NotImplementedError, TypeError, ValueError, OverflowError, RecursionError)
_SPEC: Final = attrgetter(*(name for name in PodSpec.__struct_fields__ if name != "node_name"))
_STATUS: Final = attrgetter(
    "container_statuses", "init_container_statuses", "resource_claim_statuses", "allocated_resources", "resources"
)
"""Fields of a status that pod classes read, besides a refused resize."""


class PodClassCache:
    """Cache of an interner's classes, by what they follow from. Not safe for concurrent use.

    It also numbers the contents of pods, their labels and specs: from ``first`` on, 0 = not numbered.
    """

    def __init__(self, interner: Interner, first: int) -> None:
        self.interner = interner
        self._next = first
        self._known: dict[tuple[Any, ...], tuple[int, int, Pod | None]] = {}
        self._size = 0  # bytes of the texts in ``_known``

    def numbers_of(self, pod: Pod, raw: object = None, *, placed: bool, immutable: bool) -> tuple[int, int]:
        """Return (number of the pod's class, number of its contents). The class is that of :meth:`Interner.classify`.

        Pods with equal numbers of contents have equal digests; 0 means that the contents have no number.

        ``raw``: the API data that the pod was decoded from. ``placed``: the pod has a node or has finished.
        ``immutable``: nobody modifies the pod from now on, so its parts are compared by identity.
        """
        text = b""
        if immutable:
            contents: Any = (*map(id, _SPEC(pod.spec)), *(id(part) if part else None for part in _STATUS(pod.status)))
        else:
            contents = text = _encode_contents(pod, raw, placed)
        key = (*_get_frame_key(pod, placed), contents)
        cached = self._known.get(key) if contents else None
        if cached is not None and cached[0] >= 0:
            return cached[:2]
        pod_class = self.interner.classify(pod, placed=placed, stored=True)
        if cached is not None:
            return pod_class.index, cached[1]
        number = 0
        if contents and not pod.spec.node_name and not isinstance(raw, msgspec.Raw):
            number, self._next = self._next, self._next + 1
        if contents:
            self._size += len(text)
            if len(self._known) == _MAX_CACHED_CLASSES or self._size > _MAX_CACHED_BYTES:
                self._known.clear()
                self._size = len(text)
            class_of = -1 if pod_class.pod_name or pod_class.pod_uid else pod_class.index
            # An immutable pod is stored to keep its parts alive, so that no other object gets their id.
            self._known[key] = class_of, number, pod if immutable else None
        return pod_class.index, number


def _get_frame_key(pod: Pod, placed: bool) -> tuple[Any, ...]:
    """Return the part of a cache key for all that determines a pod's class besides its spec and :data:`_STATUS`.

    The key depends on the order of the labels.
    """
    metadata = pod.metadata
    owner = controller_of(metadata)
    return (
        placed,
        metadata.namespace,
        metadata.deletion_timestamp is not None,
        None if metadata.labels is None else tuple(metadata.labels.items()),
        None if owner is None else (owner.api_version, owner.kind, owner.name),
        resize_infeasible(pod),
    )


_ENCODER: Final = msgspec.json.Encoder(enc_hook=encode_quantity_parts)


def _encode_contents(pod: Pod, raw: object, placed: bool) -> bytes:
    """Return labels, spec and :data:`_STATUS` as text, without the node's name if ``placed``.

    Empty if a value cannot be encoded.
    """
    labels: object = pod.metadata.labels
    spec: object = pod.spec
    if isinstance(raw, dict):  # fields that kscale does not model count in digests
        labels, spec = (raw.get("metadata") or {}).get("labels"), raw.get("spec")
        if placed and isinstance(spec, dict):
            spec = {name: value for name, value in spec.items() if name != "nodeName"}
    elif placed:
        spec = msgspec.structs.replace(pod.spec, node_name="")
    status = _STATUS(pod.status)
    try:
        return _ENCODER.encode((labels, spec, status if any(status) else None))
    except _NOT_ENCODED:
        return b""


_NOT_NUMBERED: Final = -2  # of a name
_NO_NUMBERS: Final = np.full(1, -1, np.int32)


class NodeNumbers:
    """Node names, numbered in order of first appearance in the growing list ``names``."""

    __slots__ = ("_batch", "_found", "_number", "names")

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._number = {name: number for number, name in enumerate(names)}
        self._batch: tuple[list[str], NDArray[np.int32]] | None = None
        self._found: tuple[Sequence[str], int, NDArray[np.int64]] | None = None  # the last names, how many have numbers

    def __reduce__(self) -> tuple[type[NodeNumbers], tuple[list[str]]]:
        """Return the names only; the rest is derived from them."""
        return NodeNumbers, (self.names,)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.names)

    def number(self, name: str) -> int:
        """Return the number assigned to a name, adding the name if it is new."""
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self.names)
            self.names.append(name)
        return number

    def find(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of each name, -1 for a name without one: int64[n]. Adds no names.

        Do not modify the result: it is cached, and returned again for the same tuple of names.
        """
        found, count = self._found, len(self.names)
        if found is not None and found[0] is names and found[1] == count:
            return found[2]
        numbers = np.fromiter(map(self._number.get, names, repeat(-1)), np.int64, len(names))
        self._found = (names, count, numbers) if isinstance(names, tuple) else None
        return numbers

    def get_batch_numbers(self, names: list[str], which: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the number of ``names[i]`` for each index ``i`` in ``which``; -1 for the index -1: int32[n].

        ``names``: the node names of a batch. New names get new numbers. The numbers are cached for the next call with
        the same list, which may have grown by then.
        """
        numbers = self._batch[1] if self._batch is not None and self._batch[0] is names else _NO_NUMBERS
        if len(numbers) <= len(names):
            longer = np.full(len(names) + 1, _NOT_NUMBERED, np.int32)
            longer[: len(numbers) - 1], longer[-1] = numbers[:-1], -1  # -1 (no node) indexes the last entry
            numbers = longer
            self._batch = names, numbers
        result: NDArray[np.int32] = numbers[which]
        if len(result) and result.min() == _NOT_NUMBERED:
            for i in distinct(which[result == _NOT_NUMBERED]).tolist():
                numbers[i] = self.number(names[i])
            result = numbers[which]
        return result


_CLASS_AMOUNTS: Final = {**dict.fromkeys(FIXED_RESOURCES, np.int64), "known": np.uint8}
"""Columns of amounts by class number. ``known``: 0 = unknown class, 1 = only fixed resources, 2 = others too."""


class PlacedSums:
    """Sums over placed pods, by number of the node's name, whether the node exists or not.

    ``count`` of pods and ``used[resource]``: int64; sums wrap as upstream's do.
    """

    __slots__ = ("_amounts", "_counts", "_used")

    def __init__(self) -> None:
        self._counts = GrowingColumns({"pods": np.int64})
        self._used = GrowingColumns({})
        self._amounts = GrowingColumns(_CLASS_AMOUNTS)

    @property
    def count(self) -> NDArray[np.int64]:
        """Return the number of placed pods by node."""
        return self._counts.arrays["pods"]

    @property
    def used(self) -> dict[str, NDArray[np.int64]]:
        """Return the sums by resource, each by node."""
        return self._used.arrays

    def copy(self) -> PlacedSums:
        """Return an independent copy."""
        result = PlacedSums()
        result._counts, result._used, result._amounts = self._counts.copy(), self._used.copy(), self._amounts.copy()
        return result

    def __getstate__(self) -> tuple[GrowingColumns, GrowingColumns]:
        """Return the sums without what is derived from classes."""
        return self._counts, self._used

    def __setstate__(self, state: tuple[GrowingColumns, GrowingColumns]) -> None:
        self._counts, self._used = state
        self._amounts = GrowingColumns(_CLASS_AMOUNTS)

    def forget(self, classes: NDArray[np.bool_]) -> None:
        """Forget the amounts of removed classes (bool by number), whose numbers are reused."""
        known = self._amounts.arrays["known"]
        known[classes[: len(known)]] = 0

    def select_nodes(self, nodes: NDArray[np.bool_]) -> PlacedSums:
        """Return the sums of the given nodes, renumbered, without resources whose sums are all zero."""
        result = PlacedSums()
        result._amounts = self._amounts
        result._counts = GrowingColumns.of({"pods": self.count[nodes]})
        selected = {name: column[nodes] for name, column in self.used.items()}
        result._used = GrowingColumns.of({name: column for name, column in selected.items() if column.any()})
        return result

    def extend_to(self, size: int) -> None:
        """Make room for ``size`` nodes."""
        for columns in (self._counts, self._used):
            if columns.size < size:
                columns.extend_to(size)

    def change(self, table: PodTable, rows: NDArray[np.int64], sign: int) -> None:
        """Add the placed pods in the given rows to the sums of their nodes (``sign`` 1), or subtract them (-1)."""
        if not len(rows):
            return
        self.extend_to(len(table.nodes))
        classes, columns = table.interner.classes, table.columns
        more = self._add(table, rows, sign)
        if more is None:
            self.learn(classes, columns["class_of"][rows[columns["state"][rows] == PLACED]])
            more = self._add(table, rows, sign)
            assert more is not None  # all amounts have been added before
        self.add_others(classes, [(int(columns["at"][row]), int(columns["class_of"][row]), sign) for row in more])

    def add_others(self, classes: Sequence[PodClass], pods: Iterable[tuple[int, int, int]]) -> None:
        """Add what pods use of resources other than :data:`FIXED_RESOURCES` to the sums of their nodes.

        ``pods``: (node number, class number, sign) of each pod; the sign -1 subtracts.
        """
        for at, class_of, sign in pods:
            for name, amount in classes[class_of].occupancy.items():
                if name not in FIXED_RESOURCES:
                    sums = self._used.add(name, np.int64)
                    sums[at] = wrap(int(sums[at]) + sign * amount)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return sums and amounts of classes as trailing arguments of native functions, which change the sums.

        The functions are ``add_placed`` and ``put_rows`` in :mod:`kscale._native._names`.
        """
        amounts = self._amounts.arrays
        return (
            amounts["known"], self.count, [self.used.get(name) for name in FIXED_RESOURCES],
            [amounts[name] for name in FIXED_RESOURCES],
        )  # fmt: skip

    def _add(self, table: PodTable, rows: NDArray[np.int64], sign: int) -> list[int] | None:
        """Add the amounts of the pods in ``rows`` to the sums of their nodes, times ``sign``.

        Returns the rows whose pods use resources other than :data:`FIXED_RESOURCES`, which are not added. Returns None,
        and adds nothing, if the amounts of a class are unknown.
        """
        columns = table.columns
        return _names.add_placed(
            rows, columns["state"], PLACED, columns["class_of"], columns["at"], sign, *self.arguments
        )

    def learn(self, classes: Sequence[PodClass], numbers: NDArray[np.int32]) -> None:
        """Store the amounts of the classes with these numbers, if not yet stored, and add sums for their resources."""
        self._amounts.extend_to(len(classes))
        amounts = self._amounts.arrays
        for number in {*numbers[amounts["known"][numbers] == 0].tolist()}:
            taken = classes[number].occupancy
            for name in FIXED_RESOURCES:
                amounts[name][number] = taken.get(name, 0)
            amounts["known"][number] = 1 + any(name not in FIXED_RESOURCES for name in taken)
        for name in FIXED_RESOURCES:
            if name not in self.used and amounts[name][numbers].any():
                self._used.add(name, np.int64)


class BatchPlan(msgspec.Struct, frozen=True):
    """Changes of rows by a batch.

    ``removed``: removed rows; ``rows`` and ``of_rows``: rows that get another pod, and its index in the batch;
    ``fresh``: indices of pods that get new rows; ``row_of``: rows of the batch's keys before, -1 if new.
    """

    removed: NDArray[np.int64]
    rows: NDArray[np.int64]
    of_rows: NDArray[np.int64]
    fresh: NDArray[np.int64]
    row_of: NDArray[np.int64]


def plan_batch(
    index: _names.RowIndex, table: PodTable, batch: PodBatch, deleted: NDArray[np.bool_] | None, *, anew: bool
) -> BatchPlan:
    """Plan which rows a batch deletes, replaces and adds.

    ``index`` has the rows of existing pods; ``deleted`` marks entries that delete their pod (None: no entry does).
    Entries with the resource version that the row already has are ignored, unless ``anew``. All entries of a repeated
    key count, in order.
    """
    version = batch.column("version")
    row_of, fresh, changed, ended, repeated = index.plan(
        batch.keys, table.keys, version, table.columns["version"], deleted, anew
    )
    deleted_rows = row_of[ended]
    if len(ended):
        deleted_rows = deleted_rows[
            have_uids(table, deleted_rows, batch.view, batch.column("uid_at")[ended], batch.column("uid_size")[ended])
        ]
    plan = BatchPlan(deleted_rows, row_of[changed], changed, fresh, row_of)
    return _fold_repeated(plan, table, batch, deleted, repeated, anew=anew) if len(repeated) else plan


def _fold_repeated(
    plan: BatchPlan,
    table: PodTable,
    batch: PodBatch,
    deleted: NDArray[np.bool_] | None,
    repeated: NDArray[np.int64],
    *,
    anew: bool,
) -> BatchPlan:
    """Add the entries of repeated keys to a plan that lacks them, and return the new plan.

    ``repeated``: positions of these entries in the batch; ``deleted``, ``anew``: as in :func:`plan_batch`.
    """
    places: dict[str, list[int]] = {}
    for i in repeated.tolist():
        places.setdefault(batch.keys[i], []).append(i)
    folds = [_fold(table, batch, deleted, int(plan.row_of[of[0]]), of, anew=anew) for of in places.values()]
    removed = [row for row, _, _, went in folds if went]
    replaced = [(row, i) for row, i, at, _ in folds if i >= 0 > at]
    appended = [(at, i) for _, i, at, _ in folds if i >= 0 and at >= 0]
    fresh = plan.fresh
    if appended:
        order = sorted([*zip(fresh.tolist(), fresh.tolist(), strict=True), *appended])
        fresh = np.array([i for _, i in order], dtype=np.int64)
    return BatchPlan(
        _extended(plan.removed, removed),
        _extended(plan.rows, [row for row, _ in replaced]),
        _extended(plan.of_rows, [i for _, i in replaced]),
        fresh,
        plan.row_of,
    )


def _extended(numbers: NDArray[np.int64], more: list[int]) -> NDArray[np.int64]:
    """Return the array with ``more`` appended."""
    return np.concatenate([numbers, np.array(more, dtype=np.int64)]) if more else numbers


def _fold(
    table: PodTable, batch: PodBatch, deleted: NDArray[np.bool_] | None, row: int, of: list[int], *, anew: bool
) -> tuple[int, int, int, bool]:
    """Combine the entries of one key, at the positions ``of`` in the batch, to one change of its row.

    ``row``: the existing row of the key, or -1; ``deleted``, ``anew``: as in :func:`plan_batch`.

    Returns (row, position of the entry that counts in the end or -1, position of the entry that gets a new row or -1,
    whether the existing row is deleted).
    """
    exists, is_removed, last, at = row >= 0, False, -1, -1
    version = batch.column("version")
    held_version = int(table.columns["version"][row]) if exists and not anew else -1
    for i in of:
        if deleted is None or not deleted[i]:
            if not exists:
                exists, at = True, i
            elif at < 0 and last < 0 and held_version == version[i] >= 0:
                continue
            last = i
        elif exists:
            current_uid = batch.uid(last) if last >= 0 else uid_text(table, row)
            uid = batch.uid(i)
            if current_uid == uid or not (current_uid and uid):
                is_removed = is_removed or (at < 0)
                exists, last, at = False, -1, -1
    return row, last, at, is_removed


Texts = Literal["all", "pending"]
"""Which pods keep their text: all, or those that are not bound to a node and have not finished."""

_UNUSED_ROWS_ALLOWED: Final = 64  # number of unused rows that are tolerated
_ROWS_PER_STEP: Final = 4096  # number of rows moved at a time
_UNUSED_NUMBERS_ALLOWED: Final = 512  # number of unused numbers that are tolerated
_SOURCES: Final = np.array(
    [_projection.POD_COLUMNS.index(name) if name in _projection.POD_COLUMNS else -1 for name in POD_COLUMNS], np.int32
)
"""Column of a batch for each column of the table, -1 for one computed from several."""
_OF_BATCH: Final = np.maximum(_SOURCES, 0).tolist()
_TABLE_COLUMNS: Final = tuple(COLUMN[name] for name in _projection.TABLE_COLUMNS)
_ROW_COLUMNS: Final = tuple(COLUMN[name] for name in _names.ROW_COLUMNS)
_NO_ROWS: Final = np.zeros(0, dtype=np.int64)
_NO_VALUES: Final = np.zeros((len(POD_COLUMNS), 0), dtype=np.int64)

_NODE_OF: Final = _projection.POD_COLUMNS.index("node_of")
_KEEP: Final = np.ones(1, dtype=np.uint8)

_COUNTED: Final = ("state", "class_of", "at")
"""Columns that the sums of nodes follow from."""

_NEW_ROW: Final = dict.fromkeys(POD_COLUMNS, 0)


class DescribedPods(msgspec.Struct, frozen=True):
    """Pods and their rows in the order of the table's columns: int64[columns, n].

    ``interner`` and ``memo``: those whose numbers the rows have.
    """

    records: list[PodRecord]
    values: NDArray[np.int64]
    interner: Interner
    memo: PodFactCache

    @classmethod
    def concatenate(cls, parts: Sequence[DescribedPods], order: NDArray[np.int64]) -> DescribedPods:
        """Return the pods of several parts, all described by one store, in another order.

        ``order``: index of each pod in the concatenation of the parts.
        """
        records = [record for part in parts for record in part.records]
        values = np.concatenate([part.values for part in parts], axis=1)[:, order]
        return cls([records[i] for i in order.tolist()], values, parts[0].interner, parts[0].memo)


class PodStore:
    """Rows of pods by key, and running sums of what placed pods use. Not safe for concurrent use."""

    def __init__(self, *, finished: bool = False, texts: Texts = "all", threads: int = 1) -> None:
        self.finished = finished
        self.texts: Texts = texts
        self.table = PodTable(Interner())
        self.nodes = NodeNumbers(self.table.nodes)
        self.sums = PlacedSums()
        self._threads = threads
        self._reader: PodReader | None = None
        self._class_cache: PodClassCache | None = None
        self._index = _names.RowIndex()
        self._listing = False
        self._max_entries = self._max_nodes = self._max_texts = _UNUSED_NUMBERS_ALLOWED

    def copy(self) -> PodStore:
        """Return an independent copy with the same pods."""
        result = PodStore(finished=self.finished, texts=self.texts, threads=self._threads)
        result.table, result.sums = self.table.copy(), self.sums.copy()
        result._index, result.nodes = self._index.copy(), NodeNumbers(result.table.nodes)
        result._max_entries, result._max_nodes = self._max_entries, self._max_nodes
        result._class_cache = self.class_cache
        return result

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without derived attributes."""
        return {
            **vars(self),
            "_listing": False,
            "_reader": None,
            "_class_cache": None,
            "_index": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _index=_names.RowIndex())
        rows = self.rows()
        self._index.add([self.table.keys[row] for row in rows.tolist()], rows)

    @property
    def interner(self) -> Interner:
        """Return the interner that numbers classes, shapes and controllers now."""
        return self.table.interner

    @property
    def reader(self) -> PodReader:
        """Return the reader of texts for this store."""
        if self._reader is None:
            self._reader = PodReader(self.interner, finished=self.finished, threads=self._threads)
            self.table.forget_combinations()
        return self._reader

    # -- one pod -----------------------------------------------------------------------------------------------------

    def put(self, pod: Pod, raw: msgspec.Raw | dict[str, Any] | None) -> str:
        """Add a pod, or replace the one under its key in place, and return the key.

        ``raw`` is the API data that the pod was decoded from. Raises InputError for an invalid time.
        """
        state = state_of(pod, finished=self.finished)
        keep_text = self.texts == "all" or not (pod.spec.node_name or state == FINISHED)
        pod = with_namespace(pod)
        record = PodRecord(pod, without_managed_fields(raw) if keep_text else None)
        placed = state in (PLACED, FINISHED)
        class_of, contents = self.class_cache.numbers_of(pod, raw, placed=placed, immutable=False)
        if state == PENDING:
            record.pod_class = self.interner.classes[class_of]
        values = self._row_values(record, pod, state, class_of, contents)
        row = self._write_row(self._row(record.key), record.key, values)
        self.table.store_records([row], [record], [values[COLUMN["version"]]])
        return record.key

    def put_all(self, pods: Iterable[Pod]) -> None:
        """Add or replace many pods that are not modified from now on.

        Parts that several pods share are classified once. The last pod of a repeated key counts. Raises InputError for
        an invalid time; then no pod was put.
        """
        self._put_described(self.describe(pods))

    def describe(self, pods: Iterable[Pod]) -> DescribedPods:
        """Classify pods and compute their rows for :meth:`put_described`, without adding the pods.

        The pods must not be modified from now on: pods that share all parts except node and version are classified
        once. Of several pods with one key the last counts. Raises InputError for an invalid time.
        """
        by_key: dict[str, Pod] = {}
        for pod in pods:
            metadata = pod.metadata
            if metadata.namespace:
                by_key[f"{metadata.namespace}/{metadata.name}"] = pod
            else:
                named = with_namespace(pod)
                by_key[named.key] = named
        numbers: dict[tuple[Any, ...], int] = {}
        spec_of_fields: dict[tuple[int, ...], int] = {}
        spec_numbers: dict[int, int] = {}  # by identity of the spec; equal for specs that share all parts but the node
        first_of_kind: list[PodRecord] = []
        values_of_kind: list[list[int]] = []
        records: list[PodRecord] = []
        kinds: list[int] = []
        at: list[int] = []
        at_column = COLUMN["at"]
        for key, pod in by_key.items():
            metadata, spec, status = pod.metadata, pod.spec, pod.status
            number = spec_numbers.get(id(spec))
            if number is None:
                fields = (bool(spec.node_name), *map(id, _SPEC(spec)))
                number = spec_numbers[id(spec)] = spec_of_fields.setdefault(fields, len(spec_of_fields))
            parts_and_texts = (
                number, id(metadata.labels), id(metadata.annotations), id(metadata.owner_references), id(status),
                metadata.namespace, metadata.creation_timestamp, metadata.deletion_timestamp,
            )  # fmt: skip
            kind = numbers.get(parts_and_texts)
            if kind is None:
                kind, record = len(first_of_kind), PodRecord(pod)
                values = self._describe_pod(record)
                pod_class = self.interner.classes[values[COLUMN["class_of"]]]
                if not (pod_class.pod_name or pod_class.pod_uid):
                    numbers[parts_and_texts] = kind
                first_of_kind.append(record)
                values_of_kind.append(values)
            else:
                record, values = first_of_kind[kind].copy_for(pod, key), values_of_kind[kind]
            has_node = values[at_column] >= 0
            at.append(self.nodes.number(spec.node_name or status.nominated_node_name) if has_node else -1)
            kinds.append(kind)
            records.append(record)
        self.sums.extend_to(len(self.nodes))  # the pods may name nodes that no pod has named
        columns = np.array(values_of_kind, dtype=np.int64).reshape(-1, len(POD_COLUMNS)).T[:, np.array(kinds, np.int64)]
        columns[at_column] = at
        columns[COLUMN["version"]] = [version_number(pod.metadata.resource_version) for pod in by_key.values()]
        columns[COLUMN["stamp"]] = self.table.next_stamps(len(records))
        return DescribedPods(records, columns, self.interner, self.table.memo)

    def _describe_pod(self, record: PodRecord) -> list[int]:
        """Return the column values of a pod's row, and set the pod's class in ``record`` if the pod is pending.

        The pod must not be modified from now on.
        """
        pod = record.pod
        state = state_of(pod, finished=self.finished)
        placed = state in (PLACED, FINISHED)
        class_of, contents = self.class_cache.numbers_of(pod, placed=placed, immutable=True)
        if state == PENDING:
            record.pod_class = self.interner.classes[class_of]
        return self._row_values(record, pod, state, class_of, contents)

    def put_described(self, pods: DescribedPods) -> None:
        """Add or replace pods that :meth:`describe` of this store, or of the store that it is a copy of, has returned.

        If the numbers in their rows are no longer valid here, the pods are described again.
        """
        is_valid = pods.interner is self.interner and pods.memo is self.table.memo and not self._listing
        if is_valid and (pods.values[COLUMN["at"]] < 0).all():
            self._put_described(pods)
        else:
            self.put_all(record.pod for record in pods.records)

    def _put_described(self, pods: DescribedPods) -> None:
        """Replace the pods whose keys have rows, then append the others in order. The rows' numbers must be valid."""
        keys = [record.key for record in pods.records]
        rows = np.array([self._row(key) for key in keys], dtype=np.int64)
        order = np.argsort(rows < 0, kind="stable")
        count = int(np.count_nonzero(rows >= 0))
        fresh = [keys[i] for i in order[count:].tolist()]
        values = np.ascontiguousarray(pods.values[:, order])
        rows = self._write_rows(rows[order[:count]], fresh, values)
        records = [pods.records[i] for i in order.tolist()]
        self.table.store_records(rows.tolist(), records, values[COLUMN["version"]].tolist())

    @property
    def class_cache(self) -> PodClassCache:
        """Return the cache of classes, which copies of this store share."""
        if self._class_cache is None or self._class_cache.interner is not self.interner:
            last = int(self.table.columns["contents"].max(initial=0))
            self._class_cache = PodClassCache(self.interner, last + 1)
        return self._class_cache

    def _row_values(self, record: PodRecord, pod: Pod, state: int, class_of: int, contents: int) -> list[int]:
        """Return the values of a pod's columns, in the order of :data:`POD_COLUMNS`; a new node name gets a number.

        ``state``: as of :func:`state_of`; ``class_of``, ``contents``: as of :meth:`PodClassCache.numbers_of`.
        """
        interner, node = self.interner, pod.spec.node_name
        if state == PLACED and not node:
            node = pod.status.nominated_node_name
        row = {
            **_NEW_ROW,
            "class_of": class_of,
            "at": self.nodes.number(node) if node and state in (PLACED, FINISHED) else -1,
            "state": state,
            "priority": record.priority,
            "controller": -1 if record.controller is None else interner.controller(record.controller),
            "source": -1,
            "seen": int(self._listing),
            "bound": int(bool(pod.spec.node_name)),
            "queueing": interner.queueings.get(pod) if state == PENDING else 0,
            "contents": contents,
            **read_moments(pod),
        }
        return list(row.values())

    def _write_row(self, row: int, key: str, values: list[int]) -> int:
        """Write one pod into its row, or a new one if ``row`` is -1, and return the row.

        Faster than :meth:`_write_rows` for a single pod.
        """
        table = self.table
        if row < 0:
            row = table.append(key, values)
            self._index.add([key], np.array([row]))
        elif any(table.columns[name][row] != values[COLUMN[name]] for name in _COUNTED):
            self.sums.change(self.table, np.array([row]), -1)
            table.replace(row, values)
        else:
            table.replace(row, values)
            return row
        self.sums.change(self.table, np.array([row]), 1)
        return row

    def _write_rows(
        self,
        rows: NDArray[np.int64],
        keys: list[str],
        values: NDArray[np.int64],
        removed: NDArray[np.int64] = _NO_ROWS,
    ) -> NDArray[np.int64]:
        """Remove the pods of the rows ``removed``, replace those of ``rows``, and add new rows for ``keys``.

        ``values``: the column values for ``rows``, then for ``keys``, as in :meth:`PodTable.prepare`. Also updates the
        sums and the index. Returns ``rows``, followed by the new rows.
        """
        table, sums = self.table, self.sums
        if len(removed):
            names = table.keys
            self._index.remove([names[row] for row in removed.tolist()], removed)
        sums.extend_to(len(table.nodes))
        put, unchanged = table.prepare(rows, keys, values, removed)

        def write() -> tuple[list[int], list[tuple[int, int, int]], bool] | None:
            """Change the columns and the sums; None if the amounts of a class are unknown."""
            return _names.put_rows(
                removed, put, len(rows), [*table.columns.values()], values, unchanged, _ROW_COLUMNS, REMOVED, PLACED,
                *table.texts.usage, *sums.arguments,
            )  # fmt: skip

        result = write()
        if result is None:
            class_of, state, before = table.columns["class_of"], table.columns["state"], np.append(rows, removed)
            now = values[COLUMN["class_of"]][values[COLUMN["state"]] == PLACED]
            classes = np.append(class_of[before[state[before] == PLACED]], now.astype(np.int32))
            sums.learn(self.interner.classes, classes)
            result = write()
            assert result is not None  # all amounts have been added before
        sparse, others, reclassified = result
        sums.add_others(self.interner.classes, others)
        table.finish(sparse, reclassified or len(removed) > 0)
        if keys:
            self._index.add(keys, put[len(rows) :])
        return put

    def remove(self, key: str, uid: str = "") -> bool:
        """Remove a pod; return False if its key does not exist or both UIDs are set and differ."""
        row = self._row(key)
        return row >= 0 and self._remove_row(row, uid.encode())

    def _remove_row(self, row: int, uid: bytes) -> bool:
        """Remove the pod of a row and return True; return False and keep it if both UIDs are set and differ."""
        current_uid = uid_text(self.table, row)
        if current_uid and uid and current_uid != uid:
            return False
        self._remove_rows(np.array([row]))
        return True

    def has_version(self, key: str, version: str) -> bool:
        """Check whether the pod of a key exists and has this resource version."""
        row = self._row(key)
        return row >= 0 and bool(version) and self.table.version(row) == version

    # -- relists -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start recording which pods are seen. Raises RuntimeError if a listing is in progress."""
        if self._listing:
            raise RuntimeError("Pod is being listed already")
        self.table.see(slice(None), False)
        self._listing = True

    def see(self, key: str) -> None:
        """Mark a pod as seen, if it exists and a listing is in progress (:meth:`begin`)."""
        row = self._row(key)
        if row >= 0:
            self.table.see(row, self._listing)

    def end(self) -> list[str]:
        """Stop recording which pods are seen, and return the keys of those that were not."""
        self._listing = False
        rows = self.rows()
        keys = self.table.keys
        return [keys[row] for row in rows[self.table.columns["seen"][rows] == 0].tolist()]

    def drop(self, keys: Iterable[str]) -> None:
        """Remove the pods with the given keys; ignore keys that do not exist."""
        rows = [row for row in map(self._row, dict.fromkeys(keys)) if row >= 0]
        if rows:
            self._remove_rows(np.array(rows))

    # -- many pods ---------------------------------------------------------------------------------------------------

    def put_batch(
        self, batch: PodBatch, deleted: NDArray[np.bool_] | None = None, *, refer: bool = False, anew: bool = False
    ) -> ChangedKeys:
        """Add or replace the pods of a batch that this store's reader has read, and remove those marked ``deleted``.

        Returns the changed keys, in order. With ``refer``, the store refers to the batch's texts instead of copying
        them. Pods whose resource version is stored already are ignored, unless ``anew``.
        """
        if len(batch) == 1 and not refer:
            return self.put_one(batch, removes=deleted is not None and bool(deleted[0]), anew=anew)
        plan = plan_batch(self._index, self.table, batch, deleted, anew=anew)
        keys, names = batch.keys, self.table.keys
        all_fresh = len(plan.fresh) == len(batch)
        change = ChangedKeys(
            added=keys if all_fresh else [keys[i] for i in plan.fresh.tolist()],
            modified=[keys[i] for i in plan.of_rows.tolist()],
            removed=[names[row] for row in plan.removed.tolist()],
        )
        if self._listing:
            exists = plan.row_of >= 0
            self.table.see(plan.row_of[exists if deleted is None else exists & ~deleted], True)
        if change:
            which = plan.fresh if all_fresh else np.concatenate([plan.of_rows, plan.fresh])
            values = self._values(batch, which, refer=refer)
            self._write_rows(plan.rows, change.added, values, plan.removed)
        return change

    def put_one(self, batch: PodBatch, *, removes: bool, anew: bool = False) -> ChangedKeys:
        """Do what :meth:`put_batch` does for a batch of one pod: remove the pod if ``removes``, otherwise put it."""
        key, table = batch.keys[0], self.table
        row = self._row(key)
        if removes:
            removed = row >= 0 and self._remove_row(row, batch.uid(0))
            return ChangedKeys(removed=[key]) if removed else ChangedKeys()
        of_batch = batch.columns[:, 0].tolist()
        values = [of_batch[number] for number in _OF_BATCH]
        if row >= 0:
            if self._listing:
                table.see(row, True)
            version = values[COLUMN["version"]]
            if not anew and version >= 0 and table.columns["version"][row] == version:
                return ChangedKeys()
        node = of_batch[_NODE_OF]
        values[COLUMN["at"]] = self.nodes.number(batch.nodes[node]) if node >= 0 else -1
        values[COLUMN["seen"]] = int(self._listing)
        values[COLUMN["contents"]] = 0
        if self.texts == "pending" and (values[COLUMN["bound"]] or values[COLUMN["state"]] == FINISHED):
            uid = batch.uid(0)
            table.texts.reserve(len(uid))[:] = uid
            source, begin = table.texts.fill(len(uid))
            offset = size = mark = 0
        else:
            source, begin, places = copy_batch(table.texts, batch, _KEEP)
            offset, size, mark = places[:, 0].tolist()
        values[COLUMN["source"]], values[COLUMN["offset"]] = source, offset + begin
        values[COLUMN["size"]], values[COLUMN["uid_offset"]] = size, mark - offset
        table.buffers = table.texts.buffers
        self._write_row(row, key, values)
        return ChangedKeys(modified=[key]) if row >= 0 else ChangedKeys(added=[key])

    def _values(self, batch: PodBatch, which: NDArray[np.int64], *, refer: bool) -> NDArray[np.int64]:
        """Store the texts of the pods at the positions ``which`` of a batch, and return their column values.

        With ``refer``, the store refers to the texts, if it keeps all texts (``texts`` is ``all``); otherwise it copies
        the texts that it keeps.
        """
        table = self.table
        refer = refer and self.texts == "all"
        values = _projection.table_values(
            batch.view, batch.columns, which, _SOURCES, _TABLE_COLUMNS,
            self.nodes.get_batch_numbers(batch.nodes, batch.column("node_of")), table.reserve_stamps(len(which)),
            self._listing, None if refer else table.texts, self.texts == "all", FINISHED,
        )  # fmt: skip
        if refer:
            refer_to_batch(table.texts, batch.pick(which), values)
        table.buffers = table.texts.buffers
        return values

    def _remove_rows(self, rows: NDArray[np.int64]) -> None:
        """Remove the pods in the given rows."""
        self._write_rows(_NO_ROWS, [], _NO_VALUES, rows)

    # -- lifetimes ---------------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Remove unused rows, classes, texts, stamps and node names, once many have accumulated.

        Unused rows are removed in small steps, a step per call. Do not call this between reading a batch and putting
        it: the classes of its pods would count as unused.
        """
        table = self.table
        rows = len(table)
        if rows - len(self._index) > _UNUSED_ROWS_ALLOWED + rows // 4 or table.closing:
            self._index.move(*table.close_up(max(_ROWS_PER_STEP, 8 * table.dropped)))
            rows = len(table)
        if table.interner.made > self._max_entries:
            self._sweep()
        if self._reader is not None and len(self._reader.classes) > self._max_texts:
            self._forget_texts(self._reader.classes)
        if table.memo.stamps > 2 * rows + _UNUSED_NUMBERS_ALLOWED:
            table.renew_stamps()
        if len(self.nodes) > self._max_nodes:
            self._renumber_nodes()

    def _sweep(self) -> None:
        """Remove classes, shapes and controllers that no pod has."""
        table, interner = self.table, self.interner
        table.own()  # from here on, frozen tables learn shapes separately
        exists = table.columns["state"] != REMOVED

        def unused(name: str, size: int) -> NDArray[np.bool_]:
            """Return the numbers in a column that no existing row has: bool[size]."""
            numbers = table.columns[name][exists]
            is_unused: NDArray[np.bool_] = np.bincount(numbers[numbers >= 0], minlength=size) == 0
            return is_unused

        classes, shapes, controllers = (
            unused(name, len(values))
            for name, values in (
                ("class_of", interner.classes), ("shape", interner.shapes), ("controller", interner.controllers),
            )
        )  # fmt: skip
        shapes[0] = False
        new_interner, classes = interner.without(classes, shapes, controllers)
        table.replace_interner(new_interner)
        self.sums.forget(classes)
        live = int((~classes).sum() + (~shapes).sum() + (~controllers).sum())
        self._max_entries = _UNUSED_NUMBERS_ALLOWED + live // 4
        if self._reader is not None:
            self._reader.classes.replace_interner(new_interner, classes, shapes, controllers)

    def _forget_texts(self, known: TextClasses) -> None:
        """Remove from ``known`` the cached texts that no existing pod was read from."""
        table = self.table
        in_use = np.bincount(table.columns["combined"][table.columns["state"] != REMOVED], minlength=known.size + 1)
        known.retain(in_use[1:] > 0)
        self._max_texts = _UNUSED_NUMBERS_ALLOWED + 5 * len(known) // 4

    def _renumber_nodes(self) -> None:
        """Remove node names that no pod refers to, and renumber the others."""
        table = self.table
        at = table.columns["at"][table.columns["state"] != REMOVED]
        in_use = np.bincount(at[at >= 0], minlength=len(table.nodes)) > 0
        table.keep_nodes(in_use)
        self.nodes = NodeNumbers(table.nodes)
        self.sums = self.sums.select_nodes(in_use)
        if self._reader is not None:
            self._reader.forget_nodes()
        self._max_nodes = _UNUSED_NUMBERS_ALLOWED + 2 * len(self.nodes)

    # -- queries -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._row(key) >= 0

    def _row(self, key: str) -> int:
        """Return the row of a key, or -1 if there is no such pod."""
        return self._index.row(key, self.table.keys)

    def _existing_row(self, key: str) -> int:
        """Return the row of a key. Raises KeyError if there is no such pod."""
        row = self._row(key)
        if row < 0:
            raise KeyError(key)
        return row

    def record(self, key: str) -> PodRecord:
        """Return a pod's record by key. Raises KeyError."""
        return self.table.record(self._existing_row(key))

    def version(self, key: str) -> str:
        """Return the resource version of a pod, empty if it has none. Raises KeyError."""
        return self.table.version(self._existing_row(key))

    def keys(self) -> list[str]:
        """Return all keys, in order of first appearance."""
        return [self.table.keys[row] for row in self.rows().tolist()]

    def rows(self) -> NDArray[np.int64]:
        """Return the rows of all pods, in order of first appearance."""
        return np.flatnonzero(self.table.columns["state"] != REMOVED)

    def pods_on(self, nodes: Collection[str]) -> Iterator[Pod]:
        """Yield the pods that are bound to the given nodes, in order of first appearance; no other nodes' pods are
        decoded.
        """
        return (self.table.record(row).pod for row in self._rows_on(nodes))

    def keys_on(self, nodes: Collection[str]) -> list[str]:
        """Return the keys of the pods that are bound to the given nodes, in order of first appearance."""
        return [self.table.keys[row] for row in self._rows_on(nodes)]

    def _rows_on(self, nodes: Collection[str]) -> list[int]:
        """Return the rows of the pods that are bound, not only nominated, to the given nodes."""
        columns, numbers = self.table.columns, self.nodes.find(list(nodes))
        there = np.isin(columns["at"], numbers[numbers >= 0]) & (columns["state"] != REMOVED) & (columns["bound"] != 0)
        rows: list[int] = np.flatnonzero(there).tolist()
        return rows

    def pods(self) -> Iterator[Pod]:
        """Yield all pods, in order of first appearance."""
        return (self.table.record(row).pod for row in self.rows().tolist())
