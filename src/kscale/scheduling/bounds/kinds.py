"""Bins of several kinds at several prices: the instance of a mix, checked once, in the shapes that kernels rely on."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.errors import InputError
from kscale.scheduling.bounds.instance import Instance, int64

__all__ = ["UNLIMITED", "BinKinds"]

UNLIMITED = -1
"""As many bins of a kind as are wanted."""

_MOST_CAPACITY = 1 << 60
_MOST_RESOURCES = 16


class BinKinds(msgspec.Struct, frozen=True):
    """Item classes, and the kinds of bins that may hold them.

    ``demand`` int64[K, R], ``count`` int64[K]; ``capacity`` int64[T, R], ``cost`` int64[T] of one bin in any unit;
    ``most`` int32[T, K]: how many items of a class one bin holds by itself, 0 where they do not go together;
    ``least``, ``available`` int64[T]: how many bins of a kind there must and may be (:data:`UNLIMITED`).
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
        """Check the arrays. ``allowed`` bool[K, T]: what may go where; ``max_per_bin`` int64[K]. Raises InputError."""
        counts, sizes = int64(count, "count", 1), int64(demand, "demand", 2)
        room, prices = int64(capacity, "capacity", 2), int64(cost, "cost", 1)
        k, t = len(counts), len(prices)
        if sizes.shape[0] != k or room.shape != (t, sizes.shape[1]):
            raise InputError(f"demand {sizes.shape}, count {k}, capacity {room.shape} and cost {t} do not match")
        if not 1 <= sizes.shape[1] <= _MOST_RESOURCES:
            raise InputError(f"between 1 and {_MOST_RESOURCES} resources can be looked at, not {sizes.shape[1]}")
        sizes, room = _scaled(sizes, room)
        there = np.full(t, UNLIMITED, dtype=np.int64) if available is None else _signed(available, "available", t)
        needed = np.zeros(t, dtype=np.int64) if least is None else int64(least, "least", 1)
        if needed.shape != (t,) or ((there >= 0) & (needed > there)).any():
            raise InputError("least: one number a kind, no more than there are bins of it")
        matrix = np.zeros((0, t), np.int64) if rows is None else np.ascontiguousarray(rows, dtype=np.int64)
        lows = np.full(len(matrix), -np.inf) if low is None else np.asarray(low, dtype=np.float64)
        highs = np.full(len(matrix), np.inf) if high is None else np.asarray(high, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != t or lows.shape != (len(matrix),) or highs.shape != lows.shape:
            raise InputError("rows: one row of weights for each pair of low and high")
        limit = counts if max_per_bin is None else np.minimum(int64(max_per_bin, "max_per_bin", 1), counts)
        most = _most(sizes, room, limit, allowed)
        return cls(sizes, counts, room, prices, most, needed, there, matrix, lows, highs)

    @classmethod
    def one(cls, instance: Instance, cost: int = 1) -> BinKinds:
        """A single kind of bins, as many as are wanted."""
        return cls.of(instance.demand, instance.count, instance.capacity[None], [cost], max_per_bin=instance.limit)

    @property
    def classes(self) -> int:
        """How many classes of items there are."""
        return len(self.count)

    @property
    def size(self) -> int:
        """How many kinds of bins there are."""
        return len(self.cost)

    def only(self, kinds: NDArray[np.intp]) -> BinKinds:
        """Some of the kinds of bins."""
        return msgspec.structs.replace(
            self,
            capacity=np.ascontiguousarray(self.capacity[kinds]),
            cost=self.cost[kinds],
            most=np.ascontiguousarray(self.most[kinds]),
            least=self.least[kinds],
            available=self.available[kinds],
            rows=np.ascontiguousarray(self.rows[:, kinds]),
        )

    def of_classes(self, classes: NDArray[np.intp]) -> BinKinds:
        """Some of the classes of items."""
        return msgspec.structs.replace(
            self,
            demand=np.ascontiguousarray(self.demand[classes]),
            count=self.count[classes],
            most=np.ascontiguousarray(self.most[:, classes]),
        )

    def holds(self, pattern: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[T]: which kinds of bins hold so many of each class."""
        taken = np.flatnonzero(pattern)
        within = (pattern[taken] <= self.most[:, taken]).all(axis=1)
        return np.asarray(within & (pattern @ self.demand <= self.capacity).all(axis=1), dtype=np.bool_)


def _scaled(demand: NDArray[np.int64], capacity: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same in the largest unit of each resource that changes nothing; what is still too large for the kernels is
    rounded down on both sides, which can only let more fit."""
    demand, capacity = demand.copy(), capacity.copy()
    for r in range(demand.shape[1]):
        unit = max(1, int(np.gcd.reduce(demand[:, r]))) if len(demand) else 1
        top = max(int(capacity[:, r].max(initial=0)), int(demand[:, r].max(initial=0)))
        while top // unit >= _MOST_CAPACITY:
            unit *= 2
        demand[:, r] //= unit
        capacity[:, r] //= unit
    return demand, capacity


def _most(
    demand: NDArray[np.int64], capacity: NDArray[np.int64], limit: NDArray[np.int64], allowed: ArrayLike | None
) -> NDArray[np.int32]:
    most = np.repeat(np.minimum(limit, np.iinfo(np.int32).max)[None], len(capacity), axis=0)
    for r in range(demand.shape[1]):
        size = demand[:, r]
        used = size > 0
        most[:, used] = np.minimum(most[:, used], capacity[:, r, None] // size[used])
    if allowed is not None:
        may = np.asarray(allowed, dtype=bool)
        if may.shape != (len(limit), len(capacity)):
            raise InputError(f"allowed has shape {may.shape}, {(len(limit), len(capacity))} expected")
        most[~may.T] = 0
    return np.ascontiguousarray(most, dtype=np.int32)


def _signed(values: ArrayLike, name: str, length: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.shape != (length,) or (length and array.dtype.kind not in "iu"):
        raise InputError(f"{name}: one whole number for each of {length} kinds of bins expected")
    return array.astype(np.int64)
