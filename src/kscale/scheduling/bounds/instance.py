"""Packing instances, checked once: identical bins, and bins of several kinds at several prices. kscale's own: not in
upstream.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.errors import InputError, Problem

__all__ = ["UNLIMITED", "BinKinds", "Bound", "Instance", "ceil_div", "int64"]


# Sums below this fit an int64 with a margin; larger ones use Python integers.
_SAFE_SUM = 2.0**61


class Bound(msgspec.Struct, frozen=True):
    """At least ``value`` bins are needed, by ``method``; ``proof`` has the resource, class or dual solution that proves
    it.
    """

    value: int
    method: str
    proof: dict[str, Any] = msgspec.field(default_factory=dict)


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the quotient of two integers, rounded up."""
    return -(-numerator // denominator)


class Instance(msgspec.Struct, frozen=True):
    """Item classes and a bin. ``limit`` int64[K]: number of items of a class that fit one empty bin.

    Classes without items are kept, because proofs refer to positions. If an item of a class fits no empty bin there is
    no packing: an :class:`~kscale.errors.InputError` that names the class.
    """

    demand: NDArray[np.int64]
    """int64[K, R]: amount of each resource that one item of each class uses."""
    count: NDArray[np.int64]
    """int64[K]: number of items of each class."""
    capacity: NDArray[np.int64]
    """int64[R]: capacity of one empty bin."""
    limit: NDArray[np.int64]

    @classmethod
    def of(
        cls, demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None
    ) -> Instance:
        """Build an instance from checked arrays.

        Parameters
        ----------
        demand : array_like of int
            int64[K, R]: amount of each resource that one item of each class uses.
        count : array_like of int
            int64[K]: number of items of each class.
        capacity : array_like of int
            int64[R]: capacity of one empty bin.
        max_per_bin : array_like of int, optional
            int64[K]: maximum number of items of a class in one bin.

        Returns
        -------
        Instance

        Raises
        ------
        InputError
            If shapes do not agree, a value is not an integer from 0 to the maximum of int64, or an item fits no bin.
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
                [Problem("no item fits an empty bin", object=f"class {int(k)}", field="demand") for k in stuck]
            )
        return cls(sizes, counts, room, limit)

    def totals(self, r: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return, by class, the demand of one item for resource number ``r``, and the number of items.

        The dtype of both arrays is int64, or object if the sum of the demands of all items might overflow int64.
        """
        size, count = self.demand[:, r], self.count
        if float(np.max(size, initial=0)) * float(np.sum(count, dtype=np.float64)) < _SAFE_SUM:
            return size, count
        return size.astype(object), count.astype(object)


def int64(values: ArrayLike, name: str, dimensions: int) -> NDArray[np.int64]:
    """Return ``values`` as a contiguous int64 array.

    Raises InputError, with the array's ``name``, unless they are integers >= 0 within int64 in an array with this
    number of ``dimensions``.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise InputError(f"{name} must be a {dimensions}-dimensional array of integers") from None
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


UNLIMITED = -1
"""The number of bins of a kind is not limited."""

_MOST_CAPACITY = 1 << 60
_MOST_RESOURCES = 16


class BinKinds(msgspec.Struct, frozen=True):
    """Item classes, and the kinds of bins that may hold them.

    ``demand`` int64[K, R], ``count`` int64[K]; ``capacity`` int64[T, R], ``cost`` int64[T] of one bin in any unit;
    ``most`` int32[T, K]: how many items of a class alone fit one bin, 0 if the class may not use the kind;
    ``least``, ``available`` int64[T]: minimum and maximum number of bins of a kind (:data:`UNLIMITED`).
    ``rows`` int64[Q, T], ``low``, ``high`` float64[Q] (integers or infinite): low <= rows @ bins <= high.
    """

    demand: NDArray[np.int64]
    count: NDArray[np.int64]
    capacity: NDArray[np.int64]
    cost: NDArray[np.int64]
    most: NDArray[np.int32]
    least: NDArray[np.int64]
    available: NDArray[np.int64]
    rows: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        demand: ArrayLike,
        count: ArrayLike,
        capacity: ArrayLike,
        cost: ArrayLike,
        *,
        allowed: ArrayLike | None = None,
        max_per_bin: ArrayLike | None = None,
        least: ArrayLike | None = None,
        available: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> BinKinds:
        """Build an instance from checked arrays.

        With K classes, R resources, T kinds and Q constraints: ``demand`` int64[K, R] of one item, ``count`` int64[K]
        items, ``capacity`` int64[T, R] and ``cost`` int64[T] of one bin; ``allowed`` bool[K, T]: which classes may use
        which kinds (default: all); ``max_per_bin`` int64[K]: maximum number of items of a class in one bin; ``least``,
        ``available`` int64[T]: minimum and maximum number of bins of a kind (default: 0 and unlimited); ``rows``
        int64[Q, T], ``low``, ``high`` float64[Q]: constraints ``low <= rows @ bins <= high``. Demand and capacity of
        each resource are divided by a common unit. Raises InputError if an array is invalid.
        """
        counts, sizes = int64(count, "count", 1), int64(demand, "demand", 2)
        room, prices = int64(capacity, "capacity", 2), int64(cost, "cost", 1)
        k, t = len(counts), len(prices)
        if sizes.shape[0] != k or room.shape != (t, sizes.shape[1]):
            raise InputError(f"demand {sizes.shape}, count {k}, capacity {room.shape} and cost {t} do not match")
        if not 1 <= sizes.shape[1] <= _MOST_RESOURCES:
            raise InputError(f"between 1 and {_MOST_RESOURCES} resources are supported, not {sizes.shape[1]}")
        sizes, room = _scale_to_largest_unit(sizes, room)
        maximum = (
            np.full(t, UNLIMITED, dtype=np.int64) if available is None else _check_integers(available, "available", t)
        )
        needed = np.zeros(t, dtype=np.int64) if least is None else int64(least, "least", 1)
        if needed.shape != (t,) or ((maximum != UNLIMITED) & (needed > maximum)).any():
            raise InputError("least: one number per kind expected, at most the number of available bins")
        matrix, lows, highs = _check_rows(rows, low, high, t)
        limit = counts if max_per_bin is None else int64(max_per_bin, "max_per_bin", 1)
        if limit.shape != counts.shape:
            raise InputError(f"max_per_bin has {len(limit)} entries for {k} classes")
        limit = np.minimum(limit, counts)
        per_bin = _compute_max_per_bin(sizes, room, limit, allowed)
        return cls(sizes, counts, room, prices, per_bin, needed, maximum, matrix, lows, highs)

    @classmethod
    def one(cls, instance: Instance, cost: int = 1) -> BinKinds:
        """Build an instance with a single kind of bins, unlimited in number; ``cost``: of one bin."""
        return cls.of(instance.demand, instance.count, instance.capacity[None], [cost], max_per_bin=instance.limit)

    @property
    def classes(self) -> int:
        """Return the number of item classes."""
        return len(self.count)

    @property
    def size(self) -> int:
        """Return the number of bin kinds."""
        return len(self.cost)

    def only(self, kinds: NDArray[np.intp]) -> BinKinds:
        """Return the instance with only the kinds of bins at the given positions: ``kinds`` int[N]."""
        return msgspec.structs.replace(
            self,
            capacity=np.ascontiguousarray(self.capacity[kinds]),
            cost=self.cost[kinds],
            most=np.ascontiguousarray(self.most[kinds]),
            least=self.least[kinds],
            available=self.available[kinds],
            rows=np.ascontiguousarray(self.rows[:, kinds]),
        )

    def select_classes(self, classes: NDArray[np.intp]) -> BinKinds:
        """Return the instance with only the classes of items at the given positions: ``classes`` int[N]."""
        return msgspec.structs.replace(
            self,
            demand=np.ascontiguousarray(self.demand[classes]),
            count=self.count[classes],
            most=np.ascontiguousarray(self.most[:, classes]),
        )

    def can_hold(self, pattern: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which kinds of bins can hold ``pattern`` int64[K], the number of items of each class: bool[T]."""
        taken = np.flatnonzero(pattern)
        within = (pattern[taken] <= self.most[:, taken]).all(axis=1)
        return np.asarray(within & (pattern @ self.demand <= self.capacity).all(axis=1), dtype=np.bool_)


def _scale_to_largest_unit(
    demand: NDArray[np.int64], capacity: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (demand, capacity) as copies, each resource in the largest unit that changes nothing.

    Values that are still too large for the kernels are rounded down on both sides, which can only let more items fit.
    """
    demand, capacity = demand.copy(), capacity.copy()
    for r in range(demand.shape[1]):
        unit = max(1, int(np.gcd.reduce(demand[:, r]))) if len(demand) else 1
        top = max(int(capacity[:, r].max(initial=0)), int(demand[:, r].max(initial=0)))
        while top // unit >= _MOST_CAPACITY:
            unit *= 2
        demand[:, r] //= unit
        capacity[:, r] //= unit
    return demand, capacity


def _compute_max_per_bin(
    demand: NDArray[np.int64], capacity: NDArray[np.int64], limit: NDArray[np.int64], allowed: ArrayLike | None
) -> NDArray[np.int32]:
    """Return how many items of a class alone fit one bin of each kind: int32[T, K].

    ``limit`` int64[K]: upper bound for every kind; ``allowed`` bool[K, T]: classes that may not use a kind get 0.
    Raises InputError if ``allowed`` has another shape.
    """
    per_bin = np.repeat(np.minimum(limit, np.iinfo(np.int32).max)[None], len(capacity), axis=0)
    for r in range(demand.shape[1]):
        size = demand[:, r]
        used = size > 0
        per_bin[:, used] = np.minimum(per_bin[:, used], capacity[:, r, None] // size[used])
    if allowed is not None:
        may = np.asarray(allowed, dtype=bool)
        if may.shape != (len(limit), len(capacity)):
            raise InputError(f"allowed has shape {may.shape}, {(len(limit), len(capacity))} expected")
        per_bin[~may.T] = 0
    return np.ascontiguousarray(per_bin, dtype=np.int32)


def _check_integers(values: ArrayLike, name: str, length: int) -> NDArray[np.int64]:
    """Return ``values`` as int64[length]. Raises InputError, with the array's ``name``, for another dtype or shape."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RecursionError):
        array = np.empty((), dtype=object)
    if array.shape != (length,) or (length and array.dtype.kind not in "iu"):
        raise InputError(f"{name}: one whole number for each of {length} kinds of bins expected")
    return array.astype(np.int64)


def _check_rows(
    rows: ArrayLike | None, low: ArrayLike | None, high: ArrayLike | None, size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the constraints as arrays, without bounds where there are none: int64[Q, size], float64[Q], float64[Q].

    Raises InputError for other dtypes and shapes, and for bounds that are NaN.
    """
    try:
        matrix = np.zeros((0, size), np.int64) if rows is None else np.asarray(rows)
        lows = np.full(len(matrix), -np.inf) if low is None else np.asarray(low, dtype=np.float64)
        highs = np.full(len(matrix), np.inf) if high is None else np.asarray(high, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise InputError("rows: arrays of numbers expected for rows, low and high") from None
    if matrix.size and matrix.dtype.kind not in "iu":
        raise InputError("rows: weights are whole numbers")
    weights = np.ascontiguousarray(matrix, dtype=np.int64)
    if weights.ndim != 2 or weights.shape[1] != size or lows.shape != (len(weights),) or highs.shape != lows.shape:
        raise InputError("rows: one row of weights for each pair of low and high")
    if np.isnan(lows).any() or np.isnan(highs).any():
        raise InputError("rows: low or high is not a number")
    return weights, lows, highs
