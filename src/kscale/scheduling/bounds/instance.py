"""The packing instance that all bounds share: checked once, in the shapes and dtypes that they rely on.
kscale's own."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.errors import InputError, Problem

__all__ = ["Bound", "Instance", "ceil_div", "int64"]

# Sums below this fit an int64 with room to spare; larger ones are done with Python integers.
_SAFE_SUM = 2.0**61


class Bound(msgspec.Struct, frozen=True):
    """``value`` bins at least, by ``method``; ``proof`` says which resource, class or dual solution proves it."""

    value: int
    method: str
    proof: dict[str, Any] = msgspec.field(default_factory=dict)


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient of two integers, rounded up."""
    return -(-numerator // denominator)


class Instance(msgspec.Struct, frozen=True):
    """Item classes and a bin. ``limit`` int64[K] is the number of copies of a class that one empty bin holds.

    Classes without items are kept (their position is what a proof refers to). A class with items of which not even one
    fits an empty bin has no packing at all: an :class:`~kscale.errors.InputError` that names the class.
    """

    demand: NDArray[np.int64]
    """int64[K, R]: what one item of each class takes of each resource."""
    count: NDArray[np.int64]
    """int64[K]: the items of each class."""
    capacity: NDArray[np.int64]
    """int64[R]: what one empty bin offers."""
    limit: NDArray[np.int64]

    @classmethod
    def of(
        cls, demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None
    ) -> Instance:
        """Checks the arrays, and works out ``limit``.

        ``demand`` int64[K, R]: what one item of each class takes of each resource; ``count`` int64[K]: how many items
        of each class there are; ``capacity`` int64[R]: what one empty bin offers; ``max_per_bin`` int64[K]: at most so
        many of a class in one bin. Raises InputError for other shapes, and for an item that no bin can hold.
        """
        counts = int64(count, "count", 1)
        room = int64(capacity, "capacity", 1)
        sizes = int64(demand, "demand", 2)
        if sizes.shape != (len(counts), len(room)):
            raise InputError(f"demand has shape {sizes.shape}, count and capacity say {(len(counts), len(room))}")
        limit = counts.copy() if max_per_bin is None else np.minimum(int64(max_per_bin, "max_per_bin", 1), counts)
        if limit.shape != counts.shape:
            raise InputError(f"max_per_bin has {len(limit)} entries for {len(counts)} classes")
        for r in range(len(room)):
            used = sizes[:, r] > 0
            limit[used] = np.minimum(limit[used], room[r] // sizes[used, r])
        stuck = np.flatnonzero((counts > 0) & (limit == 0))
        if stuck.size:
            raise InputError(
                [Problem("not one item fits an empty bin", object=f"class {int(k)}", field="demand") for k in stuck]
            )
        return cls(sizes, counts, room, limit)

    def totals(self, r: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """``(demand, count)`` of one resource (by its number ``r``) in a dtype in which no sum over items overflows."""
        size, count = self.demand[:, r], self.count
        if float(np.max(size, initial=0)) * float(np.sum(count, dtype=np.float64)) < _SAFE_SUM:
            return size, count
        return size.astype(object), count.astype(object)


def int64(values: ArrayLike, name: str, dimensions: int) -> NDArray[np.int64]:
    """An array of integers >= 0, contiguous. Raises InputError for anything else, by name."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != dimensions:
        raise InputError(f"{name} must be a {dimensions}-dimensional array of integers")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{name} exceeds int64")
    array = np.ascontiguousarray(array, dtype=np.int64)
    if array.size and int(array.min()) < 0:
        raise InputError(f"{name} holds a negative number")
    return array
