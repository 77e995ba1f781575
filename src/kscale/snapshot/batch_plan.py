"""What pods that were read to columns come to in a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale._native import _names
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_table import PodTable
from kscale.snapshot.pod_uids import have_uids, uid_text

__all__ = ["BatchPlan", "plan_batch"]


class BatchPlan(NamedTuple):
    """Rows that go, rows that get another pod and which, and the pods that get new rows; ``row_of``: the rows of the
    batch's keys before, -1 = none."""

    gone: NDArray[np.int64]
    rows: NDArray[np.int64]
    of_rows: NDArray[np.int64]
    fresh: NDArray[np.int64]
    row_of: NDArray[np.int64]


def plan_batch(
    index: _names.RowIndex, table: PodTable, batch: PodBatch, deleted: NDArray[np.bool_] | None, *, anew: bool
) -> BatchPlan:
    """``index``: the rows of pods that are there; ``deleted``: pods that went; ``anew``: what has the version that is
    there already counts, too. Of one key all entries count, in order."""
    version = batch.column("version")
    row_of, fresh, changed, ended, repeated = index.plan(
        batch.keys, table.names, version, table.column("version"), deleted, anew
    )
    gone = row_of[ended]
    if len(ended):
        gone = gone[have_uids(table, gone, batch.view, batch.column("uid_at")[ended], batch.column("uid_size")[ended])]
    plan = BatchPlan(gone, row_of[changed], changed, fresh, row_of)
    return _folded(plan, table, batch, deleted, repeated, anew=anew) if len(repeated) else plan


def _folded(
    plan: BatchPlan,
    table: PodTable,
    batch: PodBatch,
    deleted: NDArray[np.bool_] | None,
    repeated: NDArray[np.int64],
    *,
    anew: bool,
) -> BatchPlan:
    """The plan with the entries of keys that come more than once."""
    places: dict[str, list[int]] = {}
    for i in repeated.tolist():
        places.setdefault(batch.keys[i], []).append(i)
    folds = [_fold(table, batch, deleted, int(plan.row_of[of[0]]), of, anew=anew) for of in places.values()]
    kept = [(row, i) for row, i, at, _ in folds if i >= 0 > at]
    fresh = plan.fresh.tolist()
    late = [(at, i) for _, i, at, _ in folds if i >= 0 and at >= 0]
    return BatchPlan(
        np.append(plan.gone, [row for row, _, _, went in folds if went]).astype(np.int64),
        np.append(plan.rows, [row for row, _ in kept]).astype(np.int64),
        np.append(plan.of_rows, [i for _, i in kept]).astype(np.int64),
        np.array([i for _, i in sorted([*zip(fresh, fresh, strict=True), *late])], dtype=np.int64),
        plan.row_of,
    )


def _fold(
    table: PodTable, batch: PodBatch, deleted: NDArray[np.bool_] | None, row: int, of: list[int], *, anew: bool
) -> tuple[int, int, int, bool]:
    """What several entries of one key come to: (its row, the entry that counts in the end or -1, the place of the
    entry that it gets a new row for or -1, whether its row goes)."""
    there, went, last, at = row >= 0, False, -1, -1
    version = batch.column("version")
    held_version = int(table.column("version")[row]) if there and not anew else -1
    for i in of:
        if deleted is None or not deleted[i]:
            if not there:
                there, at = True, i
            elif at < 0 and last < 0 and held_version == version[i] >= 0:
                continue
            last = i
        elif there:
            held = batch.uid(last) if last >= 0 else uid_text(table, row)
            uid = batch.uid(i)
            if held == uid or not (held and uid):
                went = went or (at < 0)
                there, last, at = False, -1, -1
    return row, last, at, went
