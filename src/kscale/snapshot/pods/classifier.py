"""Classes and shapes of pods outside a snapshot or not placed in it, and of rows of the pod table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.objects.times import ZERO_TIME
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.classes.pod_shapes import renumber
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.pods.table import PodTable

__all__ = ["Classifier", "number_similar_pods", "shapes_of"]


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
        """Return the pods' distinct classes in order of appearance, and int32[n] the index of each pod's class."""
        indices = self._numbers(pods)
        if indices is None:
            indices = np.fromiter((self._class_of(record).index for record in pods), np.int32, len(pods))
        inverse, first = renumber(indices)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return [self._interner.classes[number] for number in indices[first[order]].tolist()], rank[inverse]

    def _numbers(self, pods: Iterable[PodRecord]) -> NDArray[np.int32] | None:
        """Return the existing class numbers of pending pods of a table with this interner; None for other pods."""
        if self._leftovers or not isinstance(pods, PodRows) or pods.table.interner is not self._interner:
            return None
        return pods.classes if pods.pending else None

    def _class_of(self, record: PodRecord) -> PodClass:
        """Return the class of a pending pod."""
        if self._leftovers and record.pod.metadata.uid in self._leftovers:
            return self._interner.classify(record.pod, placed=False, named=True)
        pod_class, classes = record.pod_class, self._interner.classes
        if pod_class is not None and pod_class.index < len(classes) and classes[pod_class.index] is pod_class:
            return pod_class  # of this interner
        return self._interner.classify(record.pod, placed=False)


def shapes_of(table: PodTable, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the shape numbers of the given rows: int32[n].

    Shapes of pods given as structs are numbered on the first call for a row.
    """
    column = table.columns["shape"]
    unknown = rows[column[rows] == 0]
    if len(unknown):
        source, of_exemplar, numbers = table.columns["source"], dict[int, int](), []
        for row, at, class_of in zip(
            unknown.tolist(), source[unknown].tolist(), table.columns["class_of"][unknown].tolist(), strict=True
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
