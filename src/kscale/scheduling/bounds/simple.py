"""The two bounds that need one division each: total demand, and one class on its own. kscale's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kscale.scheduling.bounds.instance import Bound, Instance, ceil_div

__all__ = ["per_class", "per_class_of", "volume", "volume_of"]


def volume(demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None) -> Bound:
    """The largest over the resources of total demand / capacity, rounded up. ``max_per_bin`` plays no part.

    Arrays as :meth:`kscale.scheduling.bounds.Instance.of` takes them.
    """
    return volume_of(Instance.of(demand, count, capacity, max_per_bin))


def volume_of(instance: Instance) -> Bound:
    """:func:`volume` of a checked instance."""
    best = Bound(int(instance.count.sum() > 0), "volume")
    for r, capacity in enumerate(instance.capacity.tolist()):
        size, count = instance.totals(r)
        total = int(size @ count) if size.size else 0
        value = ceil_div(total, capacity) if total else 0
        if value > best.value or (value and value == best.value and not best.proof):
            best = Bound(value, "volume", {"resource": r, "total": total, "capacity": capacity})
    return best


def per_class(demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None) -> Bound:
    """The largest over the classes of the bins that its items need when they have every bin to themselves.

    Arrays as :meth:`kscale.scheduling.bounds.Instance.of` takes them.
    """
    return per_class_of(Instance.of(demand, count, capacity, max_per_bin))


def per_class_of(instance: Instance) -> Bound:
    """:func:`per_class` of a checked instance."""
    used = np.flatnonzero(instance.count)
    if not used.size:
        return Bound(0, "per_class")
    bins = -(-instance.count[used] // instance.limit[used])
    k = int(used[int(np.argmax(bins))])
    proof = {"class": k, "count": int(instance.count[k]), "per_bin": int(instance.limit[k])}
    return Bound(int(bins.max()), "per_class", proof)
