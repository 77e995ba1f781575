"""The pods of a snapshot as scale-down sees them: by kind, with an exemplar of each, and the rest when asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.objects.core import Pod
from kscale.snapshot.interner import PodClass
from kscale.snapshot.memo import Memo
from kscale.snapshot.pod_shapes import numbered, shape_key
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["MovingPods", "moving_pods"]


class MovingPods:
    """Placed pods of a snapshot, in order, and pods ``more`` behind them.

    ``kind_of``: int32[n] into ``exemplars``; ``class_of``: int32[n], classes by number in the interner; ``priority``:
    int64[n]; ``node``: int32[n], -1 for those behind; ``names``: ``namespace/name``. ``memo``: what is worked out of
    these pods and nothing that changes without them.
    """

    __slots__ = (
        "_more",
        "_rows",
        "_snapshot",
        "_uids",
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
        self._rows, added = snapshot.placed_parts
        self._more = (*added, *more)
        self._uids: list[str] | None = None
        interner, table = snapshot.interner, snapshot.table
        classes = snapshot.placed_class
        if more:
            behind = [interner.classify(record.pod, placed=True, moves=True).index for record in more]
            classes = np.append(classes, np.array(behind, dtype=np.int32))
        kinds = table.alike(self._rows)
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
        self.names: list[str] = [*snapshot.pods, *(record.key for record in more)] if more else snapshot.pods
        self.exemplars: list[Pod] = [self.pod(i) for i in first.tolist()]

    def __len__(self) -> int:
        return len(self.kind_of)

    def record(self, i: int) -> PodRecord:
        """One pod."""
        rows = self._rows
        return self._snapshot.table.record(int(rows[i])) if i < len(rows) else self._more[i - len(rows)]

    def pod(self, i: int) -> Pod:
        """One pod, decoded."""
        return self.record(i).pod

    def classes(self) -> list[PodClass]:
        """The classes that occur."""
        classes = self._snapshot.interner.classes
        return [classes[i] for i in np.unique(self.class_of).tolist()]

    def uid(self, i: int) -> str:
        """What hints of one pod go by."""
        return self.record(i).uid

    @property
    def uids(self) -> list[str]:
        """What hints go by: the UID, or the name of a pod without one."""
        if self._uids is None:
            self._uids = self._read_uids()
        return self._uids

    def _read_uids(self) -> list[str]:
        rows = self._rows
        found = [*self._snapshot.table.uids(rows), *self.names[len(rows) :]]
        for i, record in enumerate(self._more, len(rows)):
            found[i] = record.uid
        return found


def moving_pods(snapshot: Snapshot) -> MovingPods:
    """The placed pods, worked out once for a snapshot."""
    return snapshot.memo.of(MovingPods, lambda: MovingPods(snapshot))
