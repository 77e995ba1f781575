"""The bound L2 for one resource at a time, in exact integers. kscale's own.

S. Martello and P. Toth, "Lower bounds and reduction procedures for the bin packing problem", Discrete Applied
Mathematics 28 (1990). For a threshold a <= C/2, with C the capacity: items larger than C - a share a bin with nothing
of size >= a; items in (C/2, C - a] need a bin each; the items in [a, C/2] fill what those leave and then new bins. L2
is the maximum over the thresholds; only sizes that occur (and 0) need to be tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.scheduling.bounds.instance import Bound, Instance

__all__ = ["l2", "l2_of"]


def l2(demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None) -> Bound:
    """The largest over the resources of the one-dimensional L2; never below :func:`~kscale.scheduling.bounds.volume`.

    Costs a sort of the classes for each resource. ``max_per_bin`` plays no part.
    Arrays as :meth:`kscale.scheduling.bounds.Instance.of` takes them.
    """
    return l2_of(Instance.of(demand, count, capacity, max_per_bin))


def l2_of(instance: Instance) -> Bound:
    """:func:`l2` of a checked instance."""
    best = Bound(int(instance.count.sum() > 0), "l2")
    for r, capacity in enumerate(instance.capacity.tolist()):
        size, count = instance.totals(r)
        if not size.any():
            continue
        value, threshold = _one_resource(size, count, capacity)
        if value > best.value or (value == best.value and not best.proof):
            best = Bound(value, "l2", {"resource": r, "threshold": threshold, "capacity": capacity})
    return best


def _one_resource(size: NDArray[Any], count: NDArray[Any], capacity: int) -> tuple[int, int]:
    order = np.argsort(size, kind="stable")
    sizes, counts = size[order], count[order]
    # items[i], volumes[i]: number and total size of the items before position i, ascending in size.
    zero = np.zeros(1, dtype=sizes.dtype)
    items = np.concatenate([zero, np.cumsum(counts)])
    volumes = np.concatenate([zero, np.cumsum(sizes * counts)])

    half = int(np.searchsorted(sizes, capacity // 2, side="right"))  # first position with 2 * size > capacity
    small = sizes[:half]
    thresholds = np.concatenate([zero, small[small > 0]])
    first = np.searchsorted(sizes, thresholds, side="left")  # first position with size >= threshold
    huge = np.searchsorted(
        sizes, capacity - thresholds, side="right"
    )  # first position with size > capacity - threshold

    large = items[-1] - items[half]  # items that need a bin each, the huge ones included
    middle_room = (items[huge] - items[half]) * capacity - (volumes[huge] - volumes[half])
    excess = volumes[half] - volumes[first] - middle_room
    values = large + np.maximum(0, -(-excess // capacity))
    at = int(np.argmax(values))
    return int(values[at]), int(thresholds[at])
