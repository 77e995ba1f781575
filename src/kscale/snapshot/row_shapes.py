"""Shapes of the pods of rows (:mod:`kscale.snapshot.pod_shapes`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.objects.times import ZERO_TIME
from kscale.snapshot.pod_shapes import numbered
from kscale.snapshot.pod_table import PodTable

__all__ = ["alike", "shapes_of"]


def shapes_of(table: PodTable, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Shapes of the pods of some rows: int32[n]. Those of structs are numbered now, once in the life of a row."""
    column = table.column("shape")
    unknown = rows[column[rows] == 0]
    if len(unknown):
        source, of_exemplar, numbers = table.column("source"), dict[int, int](), []
        for row, at, class_of in zip(
            unknown.tolist(), source[unknown].tolist(), table.column("class_of")[unknown].tolist(), strict=True
        ):
            number = of_exemplar.get(at)
            if number is None:
                number = table.interner.shape_of(table.record(row).pod, class_of)
                if at < -1:
                    of_exemplar[at] = number
            numbers.append(number)
        table.learn_shapes(unknown, numbers)
    shapes: NDArray[np.int32] = column[rows]
    return shapes


def alike(table: PodTable, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """int32[n]: equal numbers for pods of one shape that were told to stop at the same moment, or not at all."""
    found = shapes_of(table, rows)
    deleted = table.column("deleted")[rows]
    told = np.flatnonzero(deleted != ZERO_TIME)
    if not len(told):
        return found
    found, _ = numbered(found)
    _, pairs = np.unique(np.stack([found[told], deleted[told]]), axis=1, return_inverse=True)
    found = found.copy()
    found[told] = len(rows) + pairs.reshape(-1)
    return found
