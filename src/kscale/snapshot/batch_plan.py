"""What pods that were read to columns come to in a table."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_table import PodTable
from kscale.snapshot.pod_uids import have_uids, uid_text

__all__ = ["BatchPlan", "plan_batch"]


class BatchPlan(NamedTuple):
    """Rows that go, rows that get another pod and which, and the pods that get new rows."""

    gone: NDArray[np.int64]
    rows: NDArray[np.int64]
    of_rows: NDArray[np.int64]
    fresh: NDArray[np.int64]


def plan_batch(
    table: PodTable, batch: PodBatch, deleted: NDArray[np.bool_] | None, row_of: NDArray[np.int64], *, anew: bool
) -> BatchPlan:
    """``row_of``: the rows of the batch's keys now, -1 = none; ``deleted``: pods that went; ``anew``: what has the
    version that is there already counts, too. Of one key all entries count, in order."""
    keys = batch.keys
    once: NDArray[np.bool_] | None = None
    repeated: dict[str, list[int]] = {}
    if len(set(keys)) < len(keys):
        once = np.fromiter(map(Counter(keys).__getitem__, keys), np.int64, len(keys)) == 1
        for i in np.flatnonzero(~once).tolist():
            repeated.setdefault(keys[i], []).append(i)
    known = row_of >= 0
    stays = np.zeros(len(keys), dtype=np.bool_)
    if not anew and known.any():
        stays = known & (batch.version >= 0) & (table.column("version")[row_of] == batch.version)
    comes = ~known
    changes = known & ~stays
    goes: list[int] = []
    if deleted is not None:
        ends = np.flatnonzero(known & deleted if once is None else known & deleted & once)
        going = row_of[ends]
        goes = going[have_uids(table, going, batch.view, batch.uid_at[ends], batch.uid_size[ends])].tolist()
        comes &= ~deleted
        changes &= ~deleted
    if once is not None:
        comes &= once
        changes &= once
    rows, of_rows, fresh = row_of[changes], np.flatnonzero(changes), np.flatnonzero(comes)
    if repeated:
        more = [_fold(table, batch, deleted, int(row_of[of[0]]), of, stays) for of in repeated.values()]
        goes += [row for row, _, _, went in more if went]
        kept = [(row, i) for row, i, at, went in more if i >= 0 and at < 0]
        late = sorted((at, i) for _, i, at, _ in more if i >= 0 and at >= 0)
        rows = np.append(rows, [row for row, _ in kept]).astype(np.int64)
        of_rows = np.append(of_rows, [i for _, i in kept]).astype(np.int64)
        at = np.append(fresh, [at for at, _ in late])
        fresh = np.append(fresh, [i for _, i in late]).astype(np.int64)[np.argsort(at, kind="stable")]
    return BatchPlan(np.array(goes, dtype=np.int64), rows, of_rows, fresh)


def _fold(
    table: PodTable,
    batch: PodBatch,
    deleted: NDArray[np.bool_] | None,
    row: int,
    of: list[int],
    stays: NDArray[np.bool_],
) -> tuple[int, int, int, bool]:
    """What several entries of one key come to: (its row, the entry that counts in the end or -1, the place of the
    entry that it gets a new row for or -1, whether its row goes)."""
    there, went, last, at = row >= 0, False, -1, -1
    for i in of:
        if deleted is None or not deleted[i]:
            if not there:
                there, at = True, i
            elif at < 0 and last < 0 and stays[i]:
                continue
            last = i
        elif there:
            held = batch.uid(last) if last >= 0 else uid_text(table, row)
            uid = batch.uid(i)
            if held == uid or not (held and uid):
                went = went or (at < 0)
                there, last, at = False, -1, -1
    return row, last, at, went
