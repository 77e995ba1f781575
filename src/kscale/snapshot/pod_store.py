"""The pods of a cluster: rows that change, and the sums that follow from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names, _pod_columns
from kscale.objects.core import Pod
from kscale.objects.namespaces import with_namespace
from kscale.snapshot.batch_plan import plan_batch
from kscale.snapshot.changes import ChangedKeys
from kscale.snapshot.interner import Interner
from kscale.snapshot.known_looks import KnownLooks
from kscale.snapshot.node_numbers import NodeNumbers
from kscale.snapshot.placed_sums import PlacedSums
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_columns import COLUMN, POD_COLUMNS
from kscale.snapshot.pod_moments import COLUMNS as MOMENTS
from kscale.snapshot.pod_moments import PodMoments
from kscale.snapshot.pod_reader import PodReader
from kscale.snapshot.pod_states import FINISHED, GONE, PLACED, state_of
from kscale.snapshot.pod_table import PodTable
from kscale.snapshot.pod_uids import uid_text
from kscale.snapshot.record import PodRecord, without_managed_fields
from kscale.snapshot.row_texts import copy_batch, refer_to_batch
from kscale.snapshot.text_classes import TextClasses

__all__ = ["PodStore", "Texts"]

Texts = Literal["all", "pending"]
"""Which pods keep their text: all, or those that are not bound to a node and have not finished."""

_FEW: Final = 64  # rows that are not worth being given back
_STEP: Final = 4096  # rows that are moved at a time
_IDLE: Final = 512  # numbers that may lie idle
_OF_BATCH: Final = [_pod_columns.COLUMNS.index(name) if name in _pod_columns.COLUMNS else 0 for name in POD_COLUMNS]
"""Which column of a batch each of the table's is; some of them follow from several."""


class PodStore:
    """Rows of pods by key, and running sums of what placed ones take. A single owner at a time."""

    def __init__(self, *, finished: bool = False, texts: Texts = "all", threads: int = 1) -> None:
        self.finished = finished
        self.texts: Texts = texts
        self.table = PodTable(Interner())
        self.nodes = NodeNumbers(self.table.nodes)
        self.sums = PlacedSums()
        self._threads = threads
        self._reader: PodReader | None = None
        self._looks: KnownLooks | None = None
        self._index = _names.RowIndex()
        self._listing = False
        self._made_at_most = self._nodes_at_most = self._texts_at_most = _IDLE

    def copy(self) -> PodStore:
        """Another store with the same pods, which goes its own way."""
        made = PodStore(finished=self.finished, texts=self.texts, threads=self._threads)
        made.table, made.sums = self.table.copy(), self.sums.copy()
        made._index, made.nodes = self._index.copy(), NodeNumbers(made.table.nodes)
        made._made_at_most, made._nodes_at_most = self._made_at_most, self._nodes_at_most
        return made

    def __getstate__(self) -> dict[str, Any]:
        """What is derived is left out."""
        return {**vars(self), "_listing": False, "_reader": None, "_looks": None, "_index": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _index=_names.RowIndex())
        rows = self.rows()
        self._index.add([self.table.keys[row] for row in rows.tolist()], rows)

    @property
    def interner(self) -> Interner:
        """What numbers classes, shapes and controllers now."""
        return self.table.interner

    @property
    def reader(self) -> PodReader:
        """What reads texts for this store."""
        if self._reader is None:
            self._reader = PodReader(self.interner, finished=self.finished, threads=self._threads)
            self.table.forget_combinations()
        return self._reader

    # -- one pod -----------------------------------------------------------------------------------------------------

    def put(self, pod: Pod, raw: msgspec.Raw | dict[str, Any] | None) -> None:
        """Add a pod, or replace the one under its key in place; ``raw``: the API data that it came from."""
        state = state_of(pod, finished=self.finished)
        kept = self.texts == "all" or not (pod.spec.node_name or state == FINISHED)
        record = PodRecord(with_namespace(pod), without_managed_fields(raw) if kept else None)
        moments = PodMoments.of(record.pod)
        class_of = self.interner.classify(record.pod, placed=state in (PLACED, FINISHED), held=True).index
        at = self._node_at(record, state)
        row = self._row(record.key)
        if row < 0:
            row = self.table.append(record, class_of, at, state, moments)
            self._index.add([record.key], np.array([row]))
        else:
            self._count(np.array([row]), -1)
            self.table.replace(row, record, class_of, at, state, moments)
        self._count(np.array([row]), 1)
        self.table.see(row, self._listing)

    def put_all(self, pods: Iterable[Pod]) -> None:
        """:meth:`put` for each of many that nobody writes to from now on: parts that several have are looked into
        once. Of one key the last counts."""
        if self._looks is None or self._looks.interner is not self.interner:
            self._looks = KnownLooks(self.interner)
        records = {record.key: record for record in map(PodRecord, map(with_namespace, pods))}
        self._put_records(list(records.values()), self._looks)

    def _put_records(self, records: Sequence[PodRecord], looks: KnownLooks) -> None:
        """Add or replace pods of different keys, all columns at once."""
        moments = [PodMoments.of(record.pod) for record in records]
        states = [state_of(record.pod, finished=self.finished) for record in records]
        classes = [
            looks.class_of(record.pod, placed=state in (PLACED, FINISHED))
            for record, state in zip(records, states, strict=True)
        ]
        values = np.zeros((len(POD_COLUMNS), len(records)), dtype=np.int64)
        values[COLUMN["class_of"]] = classes
        values[COLUMN["state"]] = states
        values[COLUMN["at"]] = list(map(self._node_at, records, states))
        values[COLUMN["priority"]] = [record.priority for record in records]
        values[COLUMN["controller"]] = [self.interner.controller(each.controller) for each in records]
        values[COLUMN["bound"]] = [bool(record.pod.spec.node_name) for record in records]
        values[COLUMN["queueing"]] = list(map(self.table.queueing_of, records, states))
        values[COLUMN["seen"]] = self._listing
        values[COLUMN["source"]] = -1
        for name, column in zip(MOMENTS, zip(*moments, strict=True), strict=False):
            values[COLUMN[name]] = column
        row_of = [self._row(record.key) for record in records]
        known, fresh = ([i for i, row in enumerate(row_of) if (row >= 0) == there] for there in (True, False))
        order = [*known, *fresh]
        rows = self._put(
            np.array([row_of[i] for i in known], dtype=np.int64),
            [records[i].key for i in fresh],
            np.ascontiguousarray(values[:, order]),
        )
        self.table.hold(rows.tolist(), [records[i] for i in order], [moments[i] for i in order])

    def _put(self, rows: NDArray[np.int64], keys: list[str], values: NDArray[np.int64]) -> NDArray[np.int64]:
        """As :meth:`PodTable.put`, and the sums follow."""
        self._count(rows, -1)
        there = len(rows)
        rows = self.table.put(rows, keys, values)
        self._index.add(keys, rows[there:])
        self._count(rows, 1)
        return rows

    def _node_at(self, record: PodRecord, state: int) -> int:
        pod = record.pod
        node = pod.spec.node_name or (pod.status.nominated_node_name if state == PLACED else "")
        return self.nodes.number(node) if node and state in (PLACED, FINISHED) else -1

    def remove(self, key: str, uid: str = "") -> bool:
        """Remove a pod; False if there is none of this key, or only one with another UID (where both have one)."""
        row = self._row(key)
        if row < 0:
            return False
        held, given = uid_text(self.table, row), uid.encode()
        if held and given and held != given:
            return False
        self._drop(np.array([row]))
        return True

    def has_version(self, key: str, version: str) -> bool:
        """Whether the pod of a key is there as it was at this version."""
        row = self._row(key)
        return row >= 0 and bool(version) and self.table.version(row) == version

    # -- listed anew -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """From now on note which pods are seen. Raises RuntimeError if that goes on already."""
        if self._listing:
            raise RuntimeError("Pod is being listed already")
        self.table.see(slice(None), False)
        self._listing = True

    def see(self, key: str) -> None:
        """A pod is there, whatever it looks like."""
        row = self._row(key)
        if row >= 0:
            self.table.see(row, self._listing)

    def end(self) -> list[str]:
        """Note it no longer; keys of those that were not seen."""
        self._listing = False
        rows = self.rows()
        keys = self.table.keys
        return [keys[row] for row in rows[self.table.column("seen")[rows] == 0].tolist()]

    def drop(self, keys: Iterable[str]) -> None:
        """Remove those of some pods that are there."""
        rows = [row for row in map(self._row, dict.fromkeys(keys)) if row >= 0]
        if rows:
            self._drop(np.array(rows))

    # -- many pods ---------------------------------------------------------------------------------------------------

    def put_batch(
        self, batch: PodBatch, deleted: NDArray[np.bool_] | None = None, *, refer: bool = False, anew: bool = False
    ) -> ChangedKeys:
        """:meth:`put` for each of the pods that were read to columns with this store's interner, or :meth:`remove` for
        those ``deleted``: what changed in the end, in order.

        ``refer``: texts stay where they are; ``anew``: what has the version that is there already counts, too.
        """
        plan = plan_batch(self._index, self.table, batch, deleted, anew=anew)
        keys, names = batch.keys, self.table.keys
        whole = len(plan.fresh) == len(batch)
        change = ChangedKeys(
            added=keys if whole else [keys[i] for i in plan.fresh.tolist()],
            modified=[keys[i] for i in plan.of_rows.tolist()],
            removed=[names[row] for row in plan.gone.tolist()],
        )
        if self._listing:
            there = plan.row_of >= 0
            self.table.see(plan.row_of[there if deleted is None else there & ~deleted], True)
        if len(plan.gone):
            self._drop(plan.gone)
        if len(plan.rows) or len(plan.fresh):
            part = batch if whole else batch.pick(np.concatenate([plan.of_rows, plan.fresh]))
            values = self._values(part, refer=refer)
            self._put(plan.rows, part.keys[len(plan.rows) :], values)
        return change

    def _values(self, batch: PodBatch, *, refer: bool) -> NDArray[np.int64]:
        """The columns of the table of pods for a batch, whose texts are kept."""
        values = batch.columns[_OF_BATCH]
        values[COLUMN["at"]] = self.nodes.of_batch(batch.nodes, batch.column("node_of"))
        values[COLUMN["seen"]] = self._listing
        texts = self.table.texts
        if self.texts == "all" and refer:
            refer_to_batch(texts, batch, values)
        else:
            settled = (batch.column("bound") != 0) | (batch.column("state") == FINISHED)
            copy_batch(texts, batch, ~settled if self.texts == "pending" else np.ones_like(settled), values)
        self.table.buffers = texts.buffers
        return values

    def _drop(self, rows: NDArray[np.int64]) -> None:
        names = self.table.keys
        self._index.remove([names[row] for row in rows.tolist()], rows)
        self._count(rows, -1)
        self.table.drop(rows)

    # -- lifetimes ---------------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Give back what no pod uses any more, if that is worth it: a little at a time. Not while pods that were read
        to columns wait to be put: their classes are in use, too."""
        table = self.table
        if len(table) - len(self._index) > _FEW + len(table) // 4 or table.closing:
            self._index.move(*table.close_up(max(_STEP, 8 * table.dropped)))
        if self.interner.made > self._made_at_most:
            self._sweep()
        if self._reader is not None and len(self._reader.known) > self._texts_at_most:
            self._forget_texts(self._reader.known)
        if table.memo.stamps > 2 * len(table) + _IDLE:
            table.renew_stamps()
        if len(self.nodes) > self._nodes_at_most:
            self._renumber_nodes()

    def _sweep(self) -> None:
        """Classes, shapes and controllers that no pod has go."""
        table, interner = self.table, self.interner
        table.own()  # from here on tables that were frozen learn shapes for themselves
        there = table.column("state") != GONE

        def unused(name: str, size: int) -> NDArray[np.bool_]:
            numbers = table.column(name)[there]
            found: NDArray[np.bool_] = np.bincount(numbers[numbers >= 0], minlength=size) == 0
            return found

        classes, shapes, controllers = (
            unused(name, len(values))
            for name, values in (
                ("class_of", interner.classes), ("shape", interner.shapes), ("controller", interner.controllers),
            )
        )  # fmt: skip
        shapes[0] = False
        made, classes = interner.without(classes, shapes, controllers)
        table.go_on_with(made)
        self.sums.forget(classes)
        live = int((~classes).sum() + (~shapes).sum() + (~controllers).sum())
        self._made_at_most = _IDLE + live // 4
        if self._reader is not None:
            self._reader.known.go_on_with(made, classes, shapes, controllers)

    def _forget_texts(self, known: TextClasses) -> None:
        """Texts go that no pod was read from."""
        table = self.table
        there = np.bincount(table.column("combined")[table.column("state") != GONE], minlength=known.size + 1)
        known.retain(there[1:] > 0)
        self._texts_at_most = _IDLE + 5 * len(known) // 4

    def _renumber_nodes(self) -> None:
        """Names of nodes that no pod is on lose their numbers."""
        table = self.table
        at = table.column("at")[table.column("state") != GONE]
        there = np.bincount(at[at >= 0], minlength=len(table.nodes)) > 0
        table.keep_nodes(there)
        self.nodes = NodeNumbers(table.nodes)
        self.sums = self.sums.of(there)
        if self._reader is not None:
            self._reader.forget_nodes()
        self._nodes_at_most = _IDLE + 2 * len(self.nodes)

    # -- sums --------------------------------------------------------------------------------------------------------

    def _count(self, rows: NDArray[np.int64], sign: int) -> None:
        """Pods of some rows come to the nodes where they are (1), or go (-1)."""
        if len(rows):
            self.sums.extend_to(len(self.nodes))
            self.sums.change(self.interner, self.table, rows, sign)

    # -- looking -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._row(key) >= 0

    def _row(self, key: str) -> int:
        """The row of a key, -1 = there is no such pod."""
        return self._index.row(key, self.table.names)

    def _row_there(self, key: str) -> int:
        row = self._row(key)
        if row < 0:
            raise KeyError(key)
        return row

    def record(self, key: str) -> PodRecord:
        """A pod by key. Raises KeyError."""
        return self.table.record(self._row_there(key))

    def version(self, key: str) -> str:
        """The resource version of a pod, empty if it has none. Raises KeyError."""
        return self.table.version(self._row_there(key))

    def keys(self) -> list[str]:
        """All keys, in order of first appearance."""
        return [self.table.keys[row] for row in self.rows().tolist()]

    def rows(self) -> NDArray[np.int64]:
        """The rows of all pods, in order of first appearance."""
        return np.flatnonzero(self.table.column("state") != GONE)

    def pods_on(self, nodes: Collection[str]) -> Iterator[Pod]:
        """The pods that are bound to some nodes, in order of first appearance; no others are read."""
        at = self.table.column("at")
        numbers = self.nodes.find(list(nodes))
        rows = np.flatnonzero(np.isin(at, numbers[numbers >= 0]) & (self.table.column("state") != GONE))
        pods = (self.table.record(row).pod for row in rows.tolist())
        return (pod for pod in pods if pod.spec.node_name in nodes)  # others are nominated to them

    def pods(self) -> Iterator[Pod]:
        """All pods, in order of first appearance."""
        return (self.table.record(row).pod for row in self.rows().tolist())
