"""What pods that were read to columns come to in a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_table import PodTable
from kscale.snapshot.pod_uids import have_uids, uid_text

__all__ = ["BatchPlan", "plan_batch"]


class BatchPlan(NamedTuple):
    """Rows that go, rows that get another pod and which, and the pods that get new rows."""

    gone: list[int]
    rows: list[int]
    of_rows: list[int]
    fresh: list[int]


def plan_batch(
    table: PodTable, batch: PodBatch, deleted: NDArray[np.bool_] | None, row_of: list[int], *, anew: bool
) -> BatchPlan:
    """``row_of``: the rows of the batch's keys now, -1 = none; ``deleted``: pods that went; ``anew``: what has the
    version that is there already counts, too. Of one key all entries count, in order."""
    plan = BatchPlan([], [], [], [])
    repeated = _repeated(batch.keys)
    if max(row_of, default=-1) < 0 and deleted is None and not repeated:
        plan.fresh.extend(range(len(batch)))
        return plan
    goes: list[bool] = [False] * len(batch) if deleted is None else deleted.tolist()
    stays = [False] * len(batch) if anew else _have_versions(table, batch, row_of)
    ends: list[int] = []
    for i, row in enumerate(row_of):
        if repeated and batch.keys[i] in repeated:
            continue
        if goes[i]:
            if row >= 0:
                ends.append(i)
        elif row < 0:
            plan.fresh.append(i)
        elif not stays[i]:
            plan.rows.append(row)
            plan.of_rows.append(i)
    if ends:
        going, of = np.array([row_of[i] for i in ends]), np.array(ends)
        same = have_uids(table, going, batch.view, batch.column("uid_at")[of], batch.column("uid_size")[of])
        plan.gone.extend(going[same].tolist())
    if repeated:
        folds = [_fold(table, batch, goes, row_of[of[0]], of, stays) for of in repeated.values()]
        plan.gone.extend(row for row, _, _, went in folds if went)
        plan.rows.extend(row for row, i, at, _ in folds if i >= 0 > at)
        plan.of_rows.extend(i for _, i, at, _ in folds if i >= 0 > at)
        late = [(at, i) for _, i, at, _ in folds if i >= 0 and at >= 0]
        plan.fresh[:] = [i for _, i in sorted([*((i, i) for i in plan.fresh), *late])]
    return plan


def _repeated(keys: list[str]) -> dict[str, list[int]]:
    """The keys that come more than once, and where."""
    if len(set(keys)) == len(keys):
        return {}
    places: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    return {key: of for key, of in places.items() if len(of) > 1}


def _have_versions(table: PodTable, batch: PodBatch, row_of: list[int]) -> list[bool]:
    """Of each pod whether the row of its key has this very version."""
    if not len(table):
        return [False] * len(row_of)
    version = batch.column("version")
    same = (table.column("version")[row_of] == version) & (version >= 0)
    return [each and row >= 0 for each, row in zip(same.tolist(), row_of, strict=True)]


def _fold(
    table: PodTable, batch: PodBatch, goes: list[bool], row: int, of: list[int], stays: list[bool]
) -> tuple[int, int, int, bool]:
    """What several entries of one key come to: (its row, the entry that counts in the end or -1, the place of the
    entry that it gets a new row for or -1, whether its row goes)."""
    there, went, last, at = row >= 0, False, -1, -1
    for i in of:
        if not goes[i]:
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
