"""Classes of pods that are not in a snapshot, or not placed in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.interner import Interner, PodClass
from kscale.snapshot.pod_rows import PodRows
from kscale.snapshot.pod_shapes import numbered
from kscale.snapshot.record import PodRecord

__all__ = ["Classifier"]


class Classifier:
    """``leftovers``: UIDs of pods that may be unlike others of their class, for a claim that names them."""

    def __init__(self, interner: Interner, leftovers: Collection[str]) -> None:
        self._interner = interner
        self._leftovers = leftovers

    def classes(self, pods: Iterable[PodRecord]) -> list[PodClass]:
        """The class of each."""
        numbers = self._numbers(pods)
        if numbers is not None:
            return [self._interner.classes[number] for number in numbers.tolist()]
        return [self._class_of(record) for record in pods]

    def distinct(self, pods: Sequence[PodRecord]) -> tuple[list[PodClass], NDArray[np.int32]]:
        """(the classes of pods, each once in order of appearance; int32[n]: which)."""
        indices = self._numbers(pods)
        if indices is None:
            indices = np.fromiter((self._class_of(record).index for record in pods), np.int32, len(pods))
        inverse, first = numbered(indices)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return [self._interner.classes[number] for number in indices[first[order]].tolist()], rank[inverse]

    def _numbers(self, pods: Iterable[PodRecord]) -> NDArray[np.int32] | None:
        """The numbers that waiting pods of a table with this interner have already."""
        if self._leftovers or not isinstance(pods, PodRows) or pods.table.interner is not self._interner:
            return None
        return pods.classes if pods.pending else None

    def _class_of(self, record: PodRecord) -> PodClass:
        if self._leftovers and record.pod.metadata.uid in self._leftovers:
            return self._interner.classify(record.pod, placed=False, named=True)
        known, classes = record.pod_class, self._interner.classes
        if known is not None and known.index < len(classes) and classes[known.index] is known:
            return known  # of this interner
        return self._interner.classify(record.pod, placed=False)
