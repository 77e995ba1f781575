"""Which pods usage is of, where that is plain: each item has a pod of its own, and the labels of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names
from kscale.hpa.batch_pods import BatchPods
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.runs import runs_of

__all__ = ["PlacedUsage"]

_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class PlacedUsage:
    """The pods of usage that was joined of ``parts``.

    ``begins``: where the items of each part begin, and where those of the last end; ``rows`` int64[n]: the number of
    the pod of each item, none of them twice; ``stamps`` int64[n]: of these pods, as ``stamped_by`` has them
    (:meth:`~kscale.hpa.batch_pods.BatchPods.stamps`).
    """

    parts: Sequence[PodUsage]
    begins: list[int]
    rows: NDArray[np.int64]
    stamps: NDArray[np.int64]
    stamped_by: object

    @classmethod
    def of(cls, usage: PodUsage, pods: BatchPods, rows: NDArray[np.int64]) -> PlacedUsage | None:
        """Of items of which it is known; None: it would not be known again."""
        stamped_by, stamps = pods.stamps()
        if stamped_by is None or usage.seams is None:
            return None
        return cls(usage.parts, usage.seams[0].tolist(), rows, stamps[rows], stamped_by)

    def again(self, usage: PodUsage, pods: BatchPods) -> PlacedUsage | None:
        """The pods of other usage: where its parts and their pods are the same they are not looked for again. None: it
        is not plain."""
        stamped_by, stamps = pods.stamps()
        if stamped_by is not self.stamped_by or usage.seams is None:
            return None
        begins: list[int] = usage.seams[0].tolist()
        rows = self._kept(usage.parts, begins, stamps)
        fresh = np.flatnonzero(rows < 0)
        kept = rows[rows >= 0]
        taken = np.zeros(len(stamps), np.bool_)
        taken[kept] = True
        left = pods.rows[~taken[pods.rows]]
        keys = pods.keys
        item = _names.NameTable([usage.keys[row] for row in fresh.tolist()]).rows([keys[row] for row in left.tolist()])
        found = np.flatnonzero(item >= 0)
        if len(found) != len(fresh) or np.count_nonzero(taken) != len(kept):
            return None
        rows[fresh[item[found]]] = left[found]
        if not pods.have_labels(rows[fresh], usage.labels[fresh], usage.label_sets).all():
            return None
        return PlacedUsage(usage.parts, begins, rows, stamps[rows], stamped_by)

    def _kept(self, parts: Sequence[PodUsage], begins: list[int], stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pods of the items of ``parts``; -1: it is another part, or the pod is not there as it was."""
        pieces, expected = [_NONE], [_NONE]
        for run in runs_of(parts, self.parts):
            if run.before < 0:
                pieces.append(np.full(begins[run.end] - begins[run.first], -1))
                expected.append(pieces[-1])
            else:
                where = slice(self.begins[run.before], self.begins[run.before + run.end - run.first])
                pieces.append(self.rows[where])
                expected.append(self.stamps[where])
        rows = np.concatenate(pieces)
        there = (rows >= 0) & (rows < len(stamps))
        there[there] = stamps[rows[there]] == np.concatenate(expected)[there]
        rows[~there] = -1
        return rows
