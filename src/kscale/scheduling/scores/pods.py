"""What Score plug-ins read of pods besides their class: amounts, with what containers leave out, and wishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.base import ResourceList, enc_hook
from kscale.objects.core import Pod, PreferredSchedulingTerm
from kscale.objects.requests import CPU, MEMORY, NON_ZERO, demand, non_zero_occupancy
from kscale.scheduling.scores.images import PulledImages
from kscale.snapshot.interner import PodClass
from kscale.snapshot.row_shapes import shapes_of
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ScoredPod", "non_zero_used", "scored_pod"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


@dataclass(frozen=True, slots=True)
class ScoredPod:
    """Pods that are scored alike have equal ones. Amounts go with ``columns``, in order: ``non_zero`` and ``requested``
    are what the pod asks for, ``takes_non_zero`` and ``takes`` what it takes once it is placed. ``images``: those that
    it runs, as nodes name them; none where no node has any."""

    class_of: int
    non_zero: tuple[int, ...]
    requested: tuple[int, ...]
    takes_non_zero: tuple[int, ...]
    takes: tuple[int, ...]
    wishes: bytes
    images: tuple[str, ...]


def scored_pod(
    pod: Pod, of: PodClass, columns: Sequence[str], pulled: PulledImages
) -> tuple[ScoredPod, list[PreferredSchedulingTerm]]:
    """A pending pod, and which nodes it wishes for."""
    # Upstream's scorer of NodeResourcesFit does not look at pod-level requests of the pod that it places.
    asked, filled = demand(pod), demand(pod, NON_ZERO, pod_level=False)
    affinity = pod.spec.affinity
    wishes = affinity.node_affinity.preferred if affinity is not None and affinity.node_affinity is not None else []
    cpu, memory = non_zero_occupancy(pod)
    found = ScoredPod(
        class_of=of.index,
        non_zero=tuple(_amount(filled, name) for name in columns),
        requested=tuple(_amount(asked, name) for name in columns),
        takes_non_zero=tuple(
            cpu if name == CPU else memory if name == MEMORY else of.occupancy.get(name, 0) for name in columns
        ),
        takes=tuple(of.occupancy.get(name, 0) for name in columns),
        wishes=_encode(wishes) if wishes else b"",
        images=pulled.of(pod),
    )
    return found, wishes


def _amount(amounts: ResourceList, name: str) -> int:
    found = amounts.get(name)
    return 0 if found is None else found.milli_value() if name == CPU else found.value()


class _NonZeroUsed:
    def __init__(self, snapshot: Snapshot) -> None:
        rows, added = snapshot.placed.rows, snapshot.placed.added
        shapes = shapes_of(snapshot.table, rows)
        numbers, which = np.unique(shapes, return_inverse=True)
        each = np.zeros((len(numbers) + len(added), 2), dtype=np.int64)
        for i, number in enumerate(numbers.tolist()):
            shape = snapshot.interner.shapes[number]
            assert shape is not None  # some pod has it
            each[i] = non_zero_occupancy(shape.exemplar)
        for i, record in enumerate(added, len(numbers)):
            each[i] = non_zero_occupancy(record.pod)
        of_pod = np.concatenate([which.reshape(-1), np.arange(len(numbers), len(each))])
        self.used = np.zeros((2, len(snapshot.columns)), dtype=np.int64)
        for i in range(2):
            np.add.at(self.used[i], snapshot.placed_node, each[of_pod, i])


def non_zero_used(snapshot: Snapshot) -> dict[str, NDArray[np.int64]]:
    """cpu (milli-units) and memory (bytes) of the pods on each node, as nodes are compared by: int64[nodes] each."""
    used = snapshot.memo.of(_NonZeroUsed, lambda: _NonZeroUsed(snapshot)).used
    return {CPU: used[0], MEMORY: used[1]}
