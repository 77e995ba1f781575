"""The pods of an estimate, grouped: what does not depend on the template (upstream: ``core/scaleup/equivalence``)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from kscale.objects.requests import CPU, MEMORY
from kscale.scheduling.equivalence_groups import equivalence_groups
from kscale.scheduling.pods import PodsLike, pods_of
from kscale.scheduling.similar_pods import shapes_of
from kscale.snapshot.interner import PodClass
from kscale.snapshot.pod_rows import PodRows
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["GroupedPods", "group_pods"]


class GroupedPods:
    """Pods of an estimate, grouped: what does not depend on the template."""

    def __init__(self, snapshot: Snapshot, records: Sequence[PodRecord], groups: Sequence[int] | None) -> None:
        self.records = records
        if groups is None:
            self.members, self.starts = equivalence_groups(*shapes_of(records))
        else:
            self.members = np.arange(len(records), dtype=np.int32)
            self.starts = np.array(groups, dtype=np.int32)
        self.unique, of_pod = snapshot.distinct_classes(records)
        self.class_of = of_pod[self.members]
        """int32[n]: position in ``unique``, group after group."""
        self.asks = np.zeros(len(self.starts) - 1, dtype=np.intp)
        """int[groups]: what a group's first pod asks for, as a row of ``asked``; an empty group asks for nothing."""
        self.asked = np.zeros((1, 2))
        """float64[K, 2]: different amounts of cpu and memory."""
        self._sums: dict[bytes, tuple[int, int]] = {}
        self.counted: NDArray[np.int64] | None = None
        """``class_counts``, once somebody asked."""
        taken = [(pod.occupancy.get(CPU, 0), pod.occupancy.get(MEMORY, 0)) for pod in self.unique]
        some = np.flatnonzero(np.diff(self.starts) > 0)
        if len(some):
            rows: dict[tuple[int, int], int] = {(0, 0): 0}
            of_class = np.array([rows.setdefault(each, len(rows)) for each in taken], dtype=np.intp)
            self.asked = np.array(list(rows), dtype=np.float64)
            self.asks[some] = of_class[self.class_of[self.starts[some]]]

    def restricted(self, groups: NDArray[np.int64]) -> GroupedPods:
        """The same pods, some of the groups, in the order given."""
        if len(groups) == len(self.starts) - 1 and (groups == np.arange(len(groups))).all():
            return self
        part = copy(self)
        positions, part.starts = self.spread(groups)
        part.members = self.members[positions]
        part.class_of = self.class_of[positions]
        part.asks = self.asks[groups]
        part.counted = None
        return part

    def spread(self, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(positions of their pods, where each group starts there) of some groups, in the order given."""
        sizes = np.diff(self.starts)[groups]
        starts = np.append(0, np.cumsum(sizes)).astype(np.int32)
        positions = np.repeat(self.starts[:-1][groups] - starts[:-1], sizes) + np.arange(starts[-1])
        return positions.astype(np.int64), starts

    def exemplar(self, group: int) -> PodClass | None:
        """The class of a group's first pod; None for an empty group."""
        start = self.starts[group]
        return None if start == self.starts[group + 1] else self.unique[self.class_of[start]]

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """How many pods there are of each class: int64[classes]."""
        if self.counted is None:
            self.counted = np.bincount(self.class_of, minlength=len(self.unique))
        return self.counted

    def requested(self, counts: NDArray[np.int64]) -> tuple[int, int]:
        """What so many pods of each class (int64[classes]) request together: (cpu, memory) in billionths."""
        key = counts.tobytes()
        found = self._sums.get(key)
        if found is None:
            cpu = memory = 0
            for number in np.flatnonzero(counts).tolist():
                one, count = self.unique[number].requested, int(counts[number])
                cpu, memory = cpu + one[0] * count, memory + one[1] * count
            found = self._sums[key] = cpu, memory
        return found

    def keys_of_group(self, group: int) -> list[str]:
        """The pods of a group, ``namespace/name``."""
        return self.keys_of(self.members[self.starts[group] : self.starts[group + 1]])

    def keys_of(self, numbers: NDArray[np.int32]) -> list[str]:
        """Pods by number in ``records``, ``namespace/name``."""
        records = self.records
        if isinstance(records, PodRows):
            return records.keys_at(numbers)
        return [records[i].key for i in numbers.tolist()]


def group_pods(snapshot: Snapshot, pods: PodsLike) -> GroupedPods:
    """The pods of a call in equivalence groups; the pending ones are grouped once for a snapshot."""
    if pods is not None:
        return GroupedPods(snapshot, pods_of(snapshot, pods, waiting=True), None)
    return snapshot.memo.of(GroupedPods, lambda: GroupedPods(snapshot, snapshot.pending_records, None))
