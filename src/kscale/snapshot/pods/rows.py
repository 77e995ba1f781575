"""Sequences of pod records, built on access from rows of the pod table, and the classes and shapes of their pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names
from kscale.objects.api.core import Pod
from kscale.objects.pod_equivalence import Digester
from kscale.objects.times import ZERO_TIME
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.classes.pod_shapes import renumber
from kscale.snapshot.columns import PENDING, distinct, group_equal_rows, read_only
from kscale.snapshot.pods.record import PodRecord, read_moments, replica_controller
from kscale.snapshot.pods.table import PodTable, uids_of
from kscale.snapshot.text.files import file_of

__all__ = [
    "Classifier",
    "NumberedNames",
    "PlacedPods",
    "PodRows",
    "copies_of",
    "number_similar_pods",
    "shapes_of",
    "take_records",
]


class PodRows(Sequence[PodRecord]):
    """Pods of a table by position, built on access.

    ``classes`` and ``controllers`` (int32[n]), ``priorities`` and ``contents`` (int64[n]) need no pod.
    ``equivalence``: cached numbers of equivalent pods (:mod:`kscale.scheduling.equivalent_pods`), int32[n] each.
    ``distinct``: cached classes of pending pods (:meth:`Classifier.distinct`).
    """

    __slots__ = ("_rows", "distinct", "equivalence", "table")

    def __init__(self, table: PodTable, rows: NDArray[np.int64]) -> None:
        self.table = table
        self._rows = rows
        self.equivalence: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None
        self.distinct: tuple[list[PodClass], NDArray[np.int32]] | None = None

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

    def take(self, order: NDArray[np.integer[Any]]) -> PodRows:
        """Return the pods at the given positions, in that order."""
        result = PodRows(self.table, self._rows[order])
        if self.equivalence is not None:
            result.equivalence = self.equivalence[0][order], self.equivalence[1][order]
        return result

    def select(self, column: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the pods' entries of ``column``, which has one entry for each row of the table: int32[n]."""
        return column.take(self._rows)

    def digests(self, positions: NDArray[Any], digester: Digester) -> list[bytes]:
        """Return the digest of labels and spec of each pod at ``positions``, as :meth:`PodRecord.digest` does."""
        table, rows = self.table, self._rows[positions]
        sources, offsets, sizes = (table.columns[name][rows].tolist() for name in ("source", "offset", "size"))
        for source in {source for source, size in zip(sources, sizes, strict=True) if source >= 0 and size}:
            if (mapped := file_of(table.buffers[source])) is not None:
                mapped.check()
        return [
            digester.digest(table.buffers[source][offset : offset + size])
            if source >= 0 and size
            else table.record(row).digest(digester)
            for row, source, offset, size in zip(rows.tolist(), sources, offsets, sizes, strict=True)
        ]

    @property
    def keys(self) -> list[str]:
        """Return ``namespace/name`` of each pod."""
        return self.keys_at(np.arange(len(self._rows)))

    def keys_at(self, positions: NDArray[Any]) -> list[str]:
        """Return ``namespace/name`` of the pods at the given positions."""
        keys = self.table.keys
        return [keys[row] for row in self._rows[positions].tolist()]

    def uids(self) -> list[str]:
        """Return the UID of each pod, or ``namespace/name`` if it has none."""
        return uids_of(self.table, self._rows)

    @property
    def pending(self) -> bool:
        """Check whether all pods are pending."""
        return bool((self.table.columns["state"][self._rows] == PENDING).all())

    @property
    def stamps(self) -> NDArray[np.int64]:
        """Return the pods' stamps, which index ``table.memo`` (:class:`PodFactCache`): int64[n]."""
        return self.table.columns["stamp"][self._rows]

    @property
    def created(self) -> NDArray[np.int64]:
        """Return the creation times in nanoseconds since 1970: int64[n]."""
        return self.table.columns["created"][self._rows]

    @property
    def classes(self) -> NDArray[np.int32]:
        """Return the classes, by number in the interner."""
        return self.table.columns["class_of"][self._rows]

    @property
    def kinds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Group pending pods with the same class, creation time and :class:`Queueing`.

        A pod with a delay annotation is a group by itself. Returns (position of each group's first pod, ascending;
        group of each pod: int64[n]).
        """
        table, rows = self.table, self._rows
        created, queueing = table.columns["created"][rows], table.columns["queueing"][rows]
        order = distinct(created)
        by_itself = np.where(queueing < 0, np.arange(len(rows)), -1)
        return group_equal_rows(self.classes, np.searchsorted(order, created), np.abs(queueing), by_itself)

    def kind_keys(self, positions: NDArray[np.int64]) -> list[tuple[PodClass, int, int, str]]:
        """Return a key (class, creation time, queueing number, pod) for groups of :attr:`kinds`.

        ``positions``: the position of each group's first pod.

        Equal keys mean equal groups, also in later snapshots: class numbers are reused, but the keys have the class
        itself. The pod is ``namespace/name`` for a pod with a delay annotation, otherwise empty.
        """
        rows = self._rows[positions]
        classes, keys = self.table.interner.classes, self.table.keys
        class_of, created, queueing = (
            self.table.columns[name][rows].tolist() for name in ("class_of", "created", "queueing")
        )
        return [
            (classes[number], creation_time, way, keys[row] if way < 0 else "")
            for row, number, creation_time, way in zip(rows.tolist(), class_of, created, queueing, strict=True)
        ]

    @property
    def priorities(self) -> NDArray[np.int64]:
        """Return the priorities: int64[n]."""
        return self.table.columns["priority"][self._rows]

    @property
    def controllers(self) -> NDArray[np.int32]:
        """Return the controllers by number, -1 for a pod without controller."""
        return self.table.columns["controller"][self._rows]

    @property
    def contents(self) -> NDArray[np.int64]:
        """Return numbers that are equal only for pods with equal digests (:meth:`digests`): int64[n], -1 = not known.

        Pods with equal digests may still have different numbers.
        """
        columns, rows = self.table.columns, self._rows
        contents, source = 2 * columns["contents"][rows].astype(np.int64) - 1, columns["source"][rows]
        copies = (source < -1).nonzero()[0]
        contents[copies] = 2 * (-2 - source[copies].astype(np.int64))
        return contents


def take_records(records: Sequence[PodRecord], positions: NDArray[np.integer[Any]]) -> Sequence[PodRecord]:
    """Return the records at the given positions, in that order."""
    if isinstance(records, PodRows):
        return records.take(positions)
    return [records[i] for i in positions.tolist()]


class NumberedNames(Sequence[str]):
    """Names ``<prefix>-<position>``, built on access. ``prefix_of`` has the number of each name's prefix."""

    def __init__(self, prefixes: Sequence[str], prefix_of: NDArray[np.integer[Any]]) -> None:
        self._prefixes, self._prefix_of = prefixes, prefix_of

    def __len__(self) -> int:
        return len(self._prefix_of)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        positions = range(len(self))[i]
        if isinstance(positions, range):
            return [self[k] for k in positions]
        return f"{self._prefixes[self._prefix_of[positions]]}-{positions}"


def copies_of(pod: Pod, count: int, prefix: str, interner: Interner) -> PodRows:
    """Return ``count`` pending copies of a pod, named ``<prefix>-0``, ``<prefix>-1`` ..."""
    table = PodTable(interner)
    table.exemplars = [pod]
    rows = table.extend(
        NumberedNames([prefix], np.zeros(count, np.uint8)),
        class_of=interner.classify(pod, placed=False).index,
        at=-1,
        state=PENDING,
        priority=pod.spec.priority or 0,
        controller=interner.controller(replica_controller(pod)),
        source=-2,
        created=read_moments(pod)["created"],
        queueing=interner.queueings.get(pod),
    )
    return PodRows(table, rows)


class PlacedPods(Sequence[PodRecord]):
    """Placed pods by position, in order of appearance.

    First those of a table (``rows``, ascending), then those that a decision ``added``.
    """

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
        """Return all records, cached so that they are decoded once."""
        return [*map(self._table.record, self.rows.tolist()), *self.added]

    def _record(self, at: int) -> PodRecord:
        """Return the record of the pod at a position: from the table, or one of the added pods."""
        table_count = len(self.rows)
        return self._table.record(int(self.rows[at])) if at < table_count else self.added[at - table_count]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Return ``namespace/name`` of each pod."""
        keys, rows = self._table.keys, self.rows
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            table_keys = tuple(keys[int(rows[0]) : int(rows[-1]) + 1])
        else:
            table_keys = tuple([keys[row] for row in rows.tolist()])
        return table_keys + tuple(pod.key for pod in self.added)

    def key(self, at: int) -> str:
        """Return ``namespace/name`` of the pod at position ``at``, without building those of all others."""
        table_count = len(self.rows)
        return self._table.keys[int(self.rows[at])] if at < table_count else self.added[at - table_count].key

    @cached_property
    def priorities(self) -> NDArray[np.int64]:
        """Return the priorities, 0 for a pod without: int64[n]."""
        priorities = self._table.columns["priority"][self.rows]
        if self.added:
            priorities = np.append(priorities, np.array([pod.priority for pod in self.added], dtype=np.int64))
        return read_only(priorities)

    def where(self, what: str, test: Callable[[Pod], bool], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the subset of ``positions`` whose pods satisfy ``test``, which must depend on the pod alone.

        ``what`` is a unique name of the test: results for pods of the table are cached under it, in all snapshots.
        """
        table_count = len(self.rows)
        rows = self.rows[positions[positions < table_count]]
        stamps, memo = self._table.columns["stamp"][rows], self._table.memo
        with memo.lock:
            answers = memo.get_numbers(what)  # 1 = no, 2 = yes
            for i in np.flatnonzero(answers[stamps] == 0).tolist():
                answers[stamps[i]] = 1 + test(self._table.record(int(rows[i])).pod)
            yes = answers[stamps] == 2
        own = [at for at in positions[positions >= table_count].tolist() if test(self.added[at - table_count].pod)]
        return np.concatenate([positions[positions < table_count][yes], np.array(own, dtype=np.int64)])


class Classifier:
    """Assigns classes to pods.

    ``leftovers`` has the UIDs of pods that may differ from others of their class, as a claim names them.
    """

    def __init__(self, interner: Interner, leftovers: Collection[str]) -> None:
        self._interner = interner
        self._leftovers = leftovers

    def classes(self, pods: Iterable[PodRecord]) -> list[PodClass]:
        """Return the class of each pod, in the order of ``pods``."""
        numbers = self._numbers(pods)
        if numbers is not None:
            return [self._interner.classes[number] for number in numbers.tolist()]
        return [self._class_of(record) for record in pods]

    def distinct(self, pods: Sequence[PodRecord]) -> tuple[list[PodClass], NDArray[np.int32]]:
        """Return (the pods' distinct classes in order of appearance, index of each pod's class into them: int32[n])."""
        cached = pods.distinct if isinstance(pods, PodRows) else None
        if cached is not None and self._reads(pods):
            return [*cached[0]], cached[1]
        indices = known = self._numbers(pods)
        if indices is None:
            indices = np.fromiter((self._class_of(record).index for record in pods), np.int32, len(pods))
        class_of, first = _names.number_values(indices)
        result = [self._interner.classes[number] for number in indices[first].tolist()], class_of
        if known is not None and isinstance(pods, PodRows):
            pods.distinct = [*result[0]], read_only(result[1])
        return result

    def _numbers(self, pods: Iterable[PodRecord]) -> NDArray[np.int32] | None:
        """Return the class numbers in the table's column if they can be used as they are; otherwise None.

        They can if all pods are pending and :meth:`_reads` is true.
        """
        return pods.classes if isinstance(pods, PodRows) and self._reads(pods) and pods.pending else None

    def _reads(self, pods: Sequence[PodRecord]) -> bool:
        """Check whether ``pods`` are PodRows whose class numbers equal what this classifier would assign."""
        return not self._leftovers and isinstance(pods, PodRows) and pods.table.interner is self._interner

    def _class_of(self, record: PodRecord) -> PodClass:
        """Return the class of a pending pod."""
        if self._leftovers and record.pod.metadata.uid in self._leftovers:
            return self._interner.classify(record.pod, placed=False, named=True)
        pod_class, classes = record.pod_class, self._interner.classes
        if pod_class is not None and pod_class.index < len(classes) and classes[pod_class.index] is pod_class:
            return pod_class  # of this interner
        return self._interner.classify(record.pod, placed=False)


_SHAPE_PARTS: Final = attrgetter(
    *("metadata.annotations", "status", "spec.containers", "spec.init_containers", "spec.volumes", "spec.overhead"),
    *("spec.resources", "spec.restart_policy", "spec.priority", "spec.termination_grace_period_seconds"),
)
"""The parts of a pod that :func:`~kscale.snapshot.classes.pod_shapes.shape_key` reads."""


def shapes_of(table: PodTable, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the shape numbers of the given rows: int32[n].

    Pods that were added as structs get their shape numbers on the first call; the numbers are stored in the table.
    """
    column = table.columns["shape"]
    unknown = rows[column[rows] == 0]
    if len(unknown):
        source, of_exemplar, of_parts, numbers = (
            table.columns["source"],
            dict[int, int](),
            dict[Any, tuple[int, Pod]](),
            [],
        )
        for row, at, class_of in zip(
            unknown.tolist(), source[unknown].tolist(), table.columns["class_of"][unknown].tolist(), strict=True
        ):
            number = of_exemplar.get(at)
            if number is None:
                pod = table.record(row).pod
                # A pod with the same parts is kept alive meanwhile, so that their ids are not reused.
                parts = (class_of, *map(id, _SHAPE_PARTS(pod))) if at == -1 else None
                number, _ = of_parts.get(parts, (None, pod))
                if number is None:
                    number = table.interner.shape_of(pod, class_of)
                    if parts is not None:
                        of_parts[parts] = number, pod
                if at < -1:
                    of_exemplar[at] = number
            numbers.append(number)
        table.learn_shapes(unknown, numbers)
    shapes: NDArray[np.int32] = column[rows]
    return shapes


def number_similar_pods(table: PodTable, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return int32[n] with equal numbers for pods that have the same shape and the same deletion time (or none)."""
    numbers = shapes_of(table, rows)
    deleted = table.columns["deleted"][rows]
    terminating = np.flatnonzero(deleted != ZERO_TIME)
    if not len(terminating):
        return numbers
    numbers, _ = renumber(numbers)
    _, pairs = np.unique(np.stack([numbers[terminating], deleted[terminating]]), axis=1, return_inverse=True)
    numbers = numbers.copy()
    numbers[terminating] = len(rows) + pairs.reshape(-1)
    return numbers
