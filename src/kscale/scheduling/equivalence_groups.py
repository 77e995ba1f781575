"""Groups of pods that a scale-up takes for the same (``core/scaleup/equivalence``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.snapshot.pod_shapes import numbered

__all__ = ["MOST_SHAPES", "equivalence_groups"]

MOST_SHAPES = 10
"""Shapes that upstream remembers per controller; from the next one on every pod stands alone."""


def equivalence_groups(
    controller: NDArray[np.int32], shape: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Upstream's pod equivalence groups (``core/scaleup/equivalence``): (pods group after group, group starts).

    Groups come in the order of their first pod. The first ten shapes of a controller are remembered; every pod of a
    further shape stands alone.
    """
    n = len(controller)
    leader = np.arange(n, dtype=np.int64)
    owned = np.flatnonzero(controller >= 0)
    if len(owned):
        inverse, first = numbered(shape[owned])
        first_pod = owned[first]
        of_controller = controller[first_pod]
        by_controller = np.lexsort((first_pod, of_controller))
        sorted_controllers = of_controller[by_controller]
        starts = np.flatnonzero(np.r_[True, sorted_controllers[1:] != sorted_controllers[:-1]])
        rank_sorted = np.arange(len(first)) - np.repeat(starts, np.diff(np.r_[starts, len(first)]))
        rank = np.empty(len(first), dtype=np.int64)
        rank[by_controller] = rank_sorted
        remembered = rank[inverse] < MOST_SHAPES
        leader[owned[remembered]] = first_pod[inverse[remembered]]
    order = np.argsort(leader, kind="stable").astype(np.int32)
    leaders = leader[order]
    begins = np.flatnonzero(np.r_[True, leaders[1:] != leaders[:-1]]) if n else np.zeros(0, dtype=np.int64)
    return order, np.append(begins, n).astype(np.int32)
