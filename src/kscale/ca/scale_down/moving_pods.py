"""The pods of a snapshot as scale-down sees them: by kind, with an exemplar of each, and the rest when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kscale.ca.by_identity import kept_with
from kscale.objects.core import Pod
from kscale.objects.times import ZERO_TIME
from kscale.snapshot.interner import PodClass
from kscale.snapshot.memo import Memo
from kscale.snapshot.pod_shapes import numbered, shape_key
from kscale.snapshot.pod_uids import uids_of
from kscale.snapshot.record import PodRecord
from kscale.snapshot.row_shapes import alike, shapes_of
from kscale.snapshot.snapshot import Snapshot

__all__ = ["MovingPods", "moving_pods"]


_UIDS = "UIDs of pods"

V = TypeVar("V")


class _Names(Sequence[str]):
    """``namespace/name`` of pods, each looked up when it is asked for; pickled as a tuple."""

    __slots__ = ("_keys", "_more", "_rows")

    def __init__(self, keys: Sequence[str], rows: NDArray[np.int64], more: Sequence[PodRecord]) -> None:
        self._keys, self._rows, self._more = keys, rows, more

    def __len__(self) -> int:
        return len(self._rows) + len(self._more)

    def __getitem__(self, i: int) -> str:  # type: ignore[override]  # by number only
        known = len(self._rows)
        return self._keys[self._rows[i]] if i < known else self._more[i - known].key

    def __reduce__(self) -> tuple[type[tuple[str, ...]], tuple[list[str]]]:
        return tuple, (list(self),)


class MovingPods:
    """Placed pods of a snapshot, in order, and pods ``more`` behind them.

    ``kind_of``: int32[n] into ``exemplars``; ``class_of``: int32[n], classes by number in the interner; ``priority``:
    int64[n]; ``node``: int32[n], -1 for those behind; ``names``: ``namespace/name``. ``memo``: what is worked out of
    these pods and nothing that changes without them.
    """

    __slots__ = (
        "_more",
        "_numbers",
        "_rows",
        "_snapshot",
        "class_of",
        "exemplars",
        "kind_of",
        "memo",
        "names",
        "node",
        "priority",
    )

    def __init__(self, snapshot: Snapshot, more: Sequence[PodRecord] = ()) -> None:
        self._snapshot = snapshot
        self.memo = Memo()
        self._numbers: tuple[NDArray[np.int32], dict[str, int]] | None = None
        self._rows, added = snapshot.placed.rows, snapshot.placed.added
        self._more = (*added, *more)
        interner, table = snapshot.interner, snapshot.table
        classes = snapshot.placed_class
        if more:
            behind = [interner.classify(record.pod, placed=True, moves=True).index for record in more]
            classes = np.append(classes, np.array(behind, dtype=np.int32))
        kinds = alike(table, self._rows)
        priority = table.column("priority")[self._rows]
        if self._more:
            own = classes[len(self._rows) :].tolist()
            others = int(kinds.max(initial=-1)) + 1
            known: dict[tuple[object, ...], int] = {}
            numbers = [
                known.setdefault(
                    (*shape_key(record.pod, c), record.pod.metadata.deletion_timestamp), others + len(known)
                )
                for record, c in zip(self._more, own, strict=True)
            ]
            kinds = np.append(kinds, np.array(numbers, dtype=np.int32))
            priority = np.append(priority, np.array([record.priority for record in self._more], dtype=np.int64))
        self.class_of: NDArray[np.int32] = classes
        self.kind_of, first = numbered(kinds)
        self.priority: NDArray[np.int64] = priority
        self.node: NDArray[np.int32] = np.append(snapshot.placed_node, np.full(len(more), -1, np.int32)).astype(
            np.int32
        )
        self.names: Sequence[str] = _Names(table.keys, self._rows, self._more)
        self.exemplars: list[Pod] = self._exemplars(first)

    def _exemplars(self, first: NDArray[np.int64]) -> list[Pod]:
        """Of kinds by the first pod of each: the exemplar of its shape, which is the same object from snapshot to
        snapshot; the pod itself if it, or the exemplar, was told to stop."""
        table, shapes = self._snapshot.table, self._snapshot.interner.shapes
        listed = first[first < len(self._rows)]
        rows = self._rows[listed]
        told = table.column("deleted")[rows] != ZERO_TIME
        found = []
        for i, number in enumerate(shapes_of(table, rows).tolist()):
            shape = shapes[number]
            assert shape is not None  # some pod has it
            found.append(shape.exemplar)
            if shape.stops:
                told[i] = True
        for i in np.flatnonzero(told).tolist():
            found[i] = self.pod(int(listed[i]))
        return found + [self.pod(i) for i in first[len(listed) :].tolist()]

    def __len__(self) -> int:
        return len(self.kind_of)

    def record(self, i: int) -> PodRecord:
        """One pod."""
        rows = self._rows
        return self._snapshot.table.record(int(rows[i])) if i < len(rows) else self._more[i - len(rows)]

    def pod(self, i: int) -> Pod:
        """One pod, decoded."""
        return self.record(i).pod

    def of_kinds(self, what: tuple[Any, ...], make: Callable[[Pod], V]) -> list[V]:
        """What is worked out of exemplars, kept from snapshot to snapshot (:func:`kscale.ca.by_identity.kept_with`)."""
        return kept_with(self._snapshot, what, self.exemplars, make)

    def classes(self) -> list[PodClass]:
        """The classes that occur."""
        if len(self.class_of) == len(self._snapshot.placed_class):
            return self._snapshot.placed_classes
        classes = self._snapshot.interner.classes
        return [classes[i] for i in np.unique(self.class_of).tolist()]

    def uids_of(self, which: NDArray[np.int32]) -> list[str]:
        """What hints of some pods go by: the UID, or the name of a pod without one."""
        known = len(self._rows)
        found = uids_of(self._snapshot.table, self._rows[which[which < known]])
        for at in np.flatnonzero(which >= known).tolist():  # in order, so that each comes to stand where it belongs
            found.insert(at, self._more[which[at] - known].uid)
        return found

    @property
    def uid_numbers(self) -> tuple[NDArray[np.int32], dict[str, int]]:
        """(int32[n], what hints go by -> number from 1): read once in the life of a pod."""
        if self._numbers is None:
            table, rows = self._snapshot.table, self._rows
            stamps, memo = table.column("stamp")[rows], table.memo
            with memo.lock:
                known, numbers = memo.of(_UIDS), memo.values(_UIDS)
                missing = np.flatnonzero(known[stamps] == 0)
                for stamp, uid in zip(stamps[missing].tolist(), uids_of(table, rows[missing]), strict=True):
                    known[stamp] = numbers.setdefault(uid, len(numbers) + 1)
                more = [numbers.setdefault(record.uid, len(numbers) + 1) for record in self._more]
                self._numbers = np.append(known[stamps], np.array(more, dtype=np.int32)), numbers
        return self._numbers


def moving_pods(snapshot: Snapshot) -> MovingPods:
    """The placed pods, worked out once for a snapshot."""
    return snapshot.memo.of(MovingPods, lambda: MovingPods(snapshot))
