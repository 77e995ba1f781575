"""The most valuable filling of every bin kind: hints in floating point, proofs in integers.

Prices are integers here (:class:`Values`). A kind's filling is bounded from above by the dual of its relaxation
(:func:`surrogate`), by tables over one resource in which the others are priced out (one table serves every kind), and
by a search with these tables as bounds, which also finds the fillings.

Every item has a price, and no bin of kind t holds items worth more than ``upper[t]``. If that is never more than the
bin costs, the bins of any packing cost at least what all items are worth. Where it is more, all prices are lowered
together; of a kind of which there are few, the surplus is paid for each of them instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _bin_pricing
from kscale.errors import InputError
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds, ceil_div
from kscale.snapshot.columns import distinct

__all__ = ["Proof", "Relaxed", "Tables", "Tier", "Values", "least_cost", "relax", "relax_around", "surrogate", "tiers"]


_VALUE_BITS = 51  # the kernels want sum(value * limit) below 2**52
_SUM_BITS = 60  # ... and sum(value * count) below 2**62
_PRICE_BITS = 38  # ... and what one unit of a resource is worth, seldom more than a bin costs, below 2**38
_ENTRY_BITS = 30  # ... and of a table below 2**31, so that rounding leaves a little room
_WEIGHT_BITS = 24  # prices of what is priced out are multiples of 2**-24
_FACTORS = (0.0, 0.8, 1.0, 1.2)  # of the usual price of what is priced out, one table each
_CELLS = 6_000_000  # of all tables of a tier
_FEW = 16  # a resource of which no bin has more is looked at exactly
_CANDIDATES = 4096  # units that are tried, about
_SIZES = 2.0  # kinds whose capacities differ by no more share tables
_KEEP = 50  # of the fillings that a search finds


class Values(msgspec.Struct, frozen=True):
    """Prices as integers: ``value`` int64[K], multiples of ``1 / one`` of the unit that costs have."""

    value: NDArray[np.int64]
    one: int

    @classmethod
    def of(cls, prices: NDArray[np.float64], kinds: BinKinds) -> Values:
        """Rounded down, as fine as the kernels' range allows."""
        most = float(prices @ kinds.most.max(axis=0, initial=0)) + float(kinds.cost.max(initial=1))
        worth = float(prices @ kinds.count)
        fine = _PRICE_BITS - int(np.ceil(np.log2(float(kinds.cost.max(initial=1)) + 2.0)))
        bits = min(36, fine, *(room - int(np.ceil(np.log2(total + 2.0))) for room, total in _limits(most, worth)))
        return cls(np.floor(prices * 2.0**bits).astype(np.int64), 1 << bits) if bits > 0 else cls._coarse(prices, kinds)

    @classmethod
    def _coarse(cls, prices: NDArray[np.float64], kinds: BinKinds) -> Values:
        limit = kinds.most.max(axis=0, initial=0)
        sums = _limits(float(prices @ limit), float(prices @ kinds.count))
        share = min(2.0**bits / max(total, 1.0) for bits, total in sums)
        return cls(np.floor(prices * min(share, 1.0)).astype(np.int64), 1)


def _limits(one_bin: float, all_items: float) -> tuple[tuple[int, float], ...]:
    """(bits that the kernels have for it, a sum of prices)."""
    return (_VALUE_BITS, one_bin), (_SUM_BITS, all_items)


class Relaxed(msgspec.Struct, frozen=True):
    """Every kind's relaxation: ``upper`` float64[T], ``weight`` float64[T, R] (prices of resources), and a filling
    ``filling`` int32[T, K] worth ``worth`` float64[T] where one worth more than asked was looked for."""

    upper: NDArray[np.float64]
    weight: NDArray[np.float64]
    worth: NDArray[np.float64]
    filling: NDArray[np.int32]


def relax(
    kinds: BinKinds,
    prices: NDArray[np.float64],
    count: NDArray[np.int64],
    wanted: NDArray[np.float64],
    *,
    swaps: int = 6,
    threads: int = 1,
) -> Relaxed:
    """Hints for every kind; no proof."""
    return Relaxed(
        *_bin_pricing.price(
            prices, kinds.demand, kinds.most, count, kinds.capacity, wanted, swaps=swaps, threads=threads
        )
    )


def relax_around(
    kinds: BinKinds,
    prices: NDArray[np.float64],
    count: NDArray[np.int64],
    ask: NDArray[np.float64],
    relaxed: Relaxed,
    *,
    swaps: int = 2,
    threads: int = 1,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(int32[N], int32[N, K]): for each class that some kind takes, the most promising of these kinds, and a filling of
    it with an item of the class."""
    with np.errstate(over="ignore"):  # bins that cost next to nothing come first
        worth = np.where(kinds.most > 0, (relaxed.upper / np.maximum(ask, 1e-300))[:, None], -1.0)
    best = np.argmax(worth, axis=0).astype(np.int32)
    items = np.flatnonzero((worth.max(axis=0, initial=-1.0) >= 0) & (count > 0) & (prices > 0)).astype(np.int32)
    kind = np.ascontiguousarray(best[items])
    return kind, _bin_pricing.fill_around(
        prices, kinds.demand, kinds.most, count, kinds.capacity, kind, items, swaps=swaps, threads=threads
    )


def surrogate(kinds: BinKinds, values: Values, weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64[T]: proven upper bounds from the weights of the relaxation."""
    return _bin_pricing.surrogate_bounds(
        values.value, kinds.demand, kinds.most, kinds.count, kinds.capacity, weight * float(values.one)
    )


class Tier(msgspec.Struct, frozen=True):
    """Kinds of bins of like size that share tables: exact in ``main`` (in units of ``unit``, about ``most_units`` in
    the largest bin at most) and in ``few`` (-1 = none; ``all_parts``: of it in the bin that has most), the resources of
    ``priced`` priced out. ``order``: the classes, those that take of ``few`` first, then the largest."""

    kinds: NDArray[np.intp]
    main: int
    most_units: int
    few: int
    priced: NDArray[np.intp]
    order: NDArray[np.intp]
    unit: int
    units: NDArray[np.int32]
    parts: NDArray[np.int32]
    limit: NDArray[np.int64]
    all_parts: int
    shape: tuple[int, int, int]
    bin_units: NDArray[np.int64]
    bin_parts: NDArray[np.int64]

    @classmethod
    def of(cls, kinds: BinKinds, members: NDArray[np.intp], main: int, most_units: int) -> Tier:
        """The tier of some kinds, exact in the resource ``main``, of which the largest has ``most_units`` units."""
        most = np.minimum(kinds.most[members].max(axis=0), kinds.count)
        used = np.flatnonzero(most)
        capacity = kinds.capacity[members]
        few = _few(kinds, capacity, used, main)
        takes = kinds.demand[used, few] if few >= 0 else np.zeros(len(used), dtype=np.int64)
        largest_first = np.lexsort((np.arange(len(used)), -kinds.demand[used, main], takes == 0))
        order, parts = used[largest_first], takes[largest_first]
        have = capacity[:, few] if few >= 0 else np.zeros(len(members), dtype=np.int64)
        tables, all_parts = len(_FACTORS), int(have.max(initial=0))
        rows = len(order) + 1 + int((parts > 0).sum()) * all_parts  # one serves all that take no parts
        units = max(16, min(most_units, _CELLS // (tables * rows)))
        top = int(capacity[:, main].max(initial=0))
        unit = _unit(kinds.demand[order, main], kinds.count[order], top, units)
        priced = [r for r in range(kinds.demand.shape[1]) if r not in (main, few)]
        return cls(
            kinds=members,
            main=main,
            most_units=most_units,
            few=few,
            priced=np.array(priced, dtype=np.intp),
            order=order,
            unit=unit,
            units=(kinds.demand[order, main] // unit).astype(np.int32),
            parts=parts.astype(np.int32),
            limit=most[order].astype(np.int64),
            all_parts=all_parts,
            shape=(tables, rows, top // unit + 1),
            bin_units=capacity[:, main] // unit,
            bin_parts=have.astype(np.int64),
        )

    def without(self, kinds: BinKinds, some: Sequence[int]) -> list[Tier]:
        """Some of its kinds in tiers of their own, whose tables can be finer, and the tier of the others."""
        apart = np.isin(self.kinds, some)
        if not apart.any():
            return [self]
        parts = [*self.kinds[apart, None], self.kinds[~apart]]
        return [Tier.of(kinds, members, self.main, self.most_units) for members in parts if len(members)]


def _few(kinds: BinKinds, capacity: NDArray[np.int64], order: NDArray[np.intp], main: int) -> int:
    """The resource of which there is least, among those of which every bin has few and some class takes some."""
    most = capacity.max(axis=0, initial=0)
    found = [
        (int(most[r]), r)
        for r in range(len(most))
        if r != main and 0 < most[r] <= _FEW and kinds.demand[order, r].any()
    ]
    return min(found)[1] if found else -1


def _unit(demand: NDArray[np.int64], count: NDArray[np.int64], top: int, units: int) -> int:
    """The unit that loses least by rounding the demands down, so that the largest bin has no more than ``units``."""
    least = max(1, -(-top // units))
    used = demand > 0
    exact = int(np.gcd.reduce(demand[used])) if used.any() else 1
    if exact >= least:
        return exact
    sizes, weights = demand[used], count[used].astype(np.float64)
    step = max(1, 7 * least // _CANDIDATES)  # units in bytes are many: a sample of them
    candidates = np.arange(least, 8 * least + 1, step, dtype=np.int64)
    best, unit = np.inf, least
    losses = ((sizes[:, None] % candidates) * weights[:, None]).sum(axis=0)  # row by row: the same on every machine
    for candidate, lost in zip(candidates.tolist(), losses.tolist(), strict=True):
        if lost < best * 0.95:
            best, unit = lost, candidate
    return unit


def tiers(kinds: BinKinds, weight: NDArray[np.float64], units: int) -> list[Tier]:
    """Every kind in one tier, by the resource that is worth most in it (``weight`` float64[T, R]) and by size.
    ``units``: at most so many in the largest bin of a tier."""
    worth = weight * kinds.capacity
    plenty = kinds.capacity.max(axis=0) > _FEW
    main = np.argmax(np.where(plenty, worth, -1.0), axis=1) if plenty.any() else np.zeros(kinds.size, dtype=np.int64)
    found = []
    for r in distinct(main).tolist():
        members = np.flatnonzero(main == r)
        size = kinds.capacity[members, r].astype(np.float64)
        level = np.floor(np.log(np.maximum(size.max(initial=1.0), 1.0) / np.maximum(size, 1.0)) / np.log(_SIZES) + 1e-9)
        found += [Tier.of(kinds, members[level == n], r, units) for n in distinct(level)]
    return found


class Tables:
    """The tables of a tier at some prices: proven bounds for its kinds, and a search of single bins."""

    def __init__(
        self,
        kinds: BinKinds,
        tier: Tier,
        values: Values,
        weight: NDArray[np.float64],
        *,
        memory: NDArray[np.int32] | None = None,
        threads: int = 1,
    ) -> None:
        """``weight`` float64[R]: the usual price of what is priced out; ``memory`` of ``tier.shape`` is used again."""
        self.kinds, self.tier, self.values = kinds, tier, values
        self.table = np.empty(tier.shape, dtype=np.int32) if memory is None else memory
        resources = kinds.demand.shape[1]
        self._weight = np.zeros((len(_FACTORS), resources))
        value = np.empty((len(_FACTORS), len(tier.order)), dtype=np.int32)
        shift = np.zeros(len(_FACTORS), dtype=np.int64)
        upper = np.full(len(tier.kinds), np.iinfo(np.int64).max)
        rests = []
        for m, factor in enumerate(_FACTORS):
            weights = np.zeros(resources, dtype=np.int64)
            scaled = weight[tier.priced] * factor * values.one * 2.0**_WEIGHT_BITS
            weights[tier.priced] = np.minimum(scaled, 2.0**52).astype(np.int64)
            self._weight[m] = weights / 2.0**_WEIGHT_BITS
            left = np.maximum(values.value[tier.order] - _times(kinds.demand[tier.order], weights, up=False), 0)
            value[m], shift[m] = _narrow(left, tier)
            rests.append(_times(kinds.capacity[tier.kinds], weights, up=True))
        _bin_pricing.fill_tables(
            value, tier.units, tier.parts, tier.limit, self.table, all_parts=tier.all_parts, threads=threads
        )
        first = tier.bin_parts if tier.parts.any() else 0  # the row of all items
        for m, rest in enumerate(rests):
            upper = np.minimum(upper, (self.table[m, first, tier.bin_units].astype(np.int64) << shift[m]) + rest)
        self._worth = np.ldexp(1.0, shift)
        self.upper: NDArray[np.int64] = upper
        """int64: proven, of the kinds of the tier."""

    @property
    def work(self) -> int:
        """Entries computed."""
        return int(np.prod(self.tier.shape))

    def search(
        self, which: Sequence[int], at_least: NDArray[np.int64], nodes: int, *, threads: int = 1
    ) -> list[tuple[int, int, NDArray[np.int64]]]:
        """Of some kinds of the tier, by position in it: (proven upper bound, nodes, fillings worth more than
        ``at_least``, int64[S, K], best last)."""
        tier, kinds = self.tier, self.kinds
        chosen = np.asarray(which, dtype=np.intp)
        members = tier.kinds[chosen]
        limit = np.minimum(kinds.most[members], kinds.count)[:, tier.order]
        found = _bin_pricing.search(
            np.ascontiguousarray(self.values.value[tier.order]),
            tier.units,
            tier.parts,
            np.ascontiguousarray(kinds.demand[tier.order]),
            self._weight,
            self.table,
            self._worth,
            all_parts=tier.all_parts,
            limit=np.ascontiguousarray(limit, dtype=np.int64),
            capacity=np.ascontiguousarray(kinds.capacity[members]),
            bin_units=tier.bin_units[chosen],
            bin_parts=tier.bin_parts[chosen],
            at_least=at_least,
            node_limit=nodes,
            keep=_KEEP,
            threads=threads,
        )
        answers = []
        for _, upper, visited, fillings in found:
            whole = np.zeros((len(fillings), kinds.classes), dtype=np.int64)
            whole[:, tier.order] = fillings
            answers.append((upper, visited, whole))
        return answers


def _narrow(value: NDArray[np.int64], tier: Tier) -> tuple[NDArray[np.int32], int]:
    """(values that tables hold, rounded up; by how many bits they are shifted)."""
    shift = max(0, int(value.max(initial=0)).bit_length() - _ENTRY_BITS)
    while True:
        found = (-(-value >> shift)).astype(np.int32)
        most = _bin_pricing.most_of_tables(
            found, tier.units, tier.parts, tier.limit, all_units=tier.shape[2] - 1, all_parts=tier.all_parts
        )
        if most < 2.0**_ENTRY_BITS:
            return found, shift
        if not value.max(initial=0) >> shift:
            raise InputError("a bin holds 2**30 items and more: no bound is looked for")
        shift += max(1, int(np.log2(most)) - _ENTRY_BITS)


def _times(amounts: NDArray[np.int64], weights: NDArray[np.int64], *, up: bool) -> NDArray[np.int64]:
    """int64[n]: ``amounts`` int64[n, R] times weights in units of 2**-24, rounded down or up, exactly."""
    used = np.flatnonzero(weights)
    rounding = (1 << _WEIGHT_BITS) - 1 if up else 0
    most = sum(float(amounts[:, r].max(initial=0)) * float(weights[r]) for r in used)
    if most < 2.0**61:
        found: NDArray[np.int64] = (amounts[:, used] @ weights[used] + rounding) >> _WEIGHT_BITS
        return found
    exact = amounts[:, used].astype(object) @ weights[used].astype(object)
    capped = [min((int(n) + rounding) >> _WEIGHT_BITS, 1 << 61) for n in exact]
    return np.array(capped, dtype=np.int64)


class Proof(msgspec.Struct, frozen=True):
    """No packing costs less than ``value`` (in the unit of the kinds' costs).

    ``prices`` int64[K] in multiples of ``1 / one``; ``upper`` int64[T]: what the items in one bin may be worth at most;
    ``duals``: prices of the rows, integers in the same unit. ``value`` follows from these (:func:`least_cost`).
    """

    value: int
    prices: NDArray[np.int64]
    one: int
    upper: NDArray[np.int64]
    duals: tuple[int, ...]


def least_cost(kinds: BinKinds, values: Values, upper: NDArray[np.int64], duals: NDArray[np.float64]) -> Proof:
    """The proof that prices give. ``duals`` float64[Q]: any numbers; they are rounded to integers."""
    whole, fixed = _row_prices(kinds, duals, values.one)
    value = _value(kinds, values, upper, whole, fixed)
    if value is None:  # the rows would pay for bins without limit: leave them out
        whole, fixed = (0,) * len(duals), 0
        value = _value(kinds, values, upper, whole, fixed)
    return Proof(value or 0, values.value, values.one, upper, whole)


def _row_prices(kinds: BinKinds, duals: NDArray[np.float64], one: int) -> tuple[tuple[int, ...], int]:
    """(integer prices of the rows, what they are worth together)."""
    whole, fixed = [], 0
    for dual, low, high in zip(duals.tolist(), kinds.low.tolist(), kinds.high.tolist(), strict=True):
        price = round(dual * one)
        limit = low if price > 0 else high
        if not np.isfinite(limit):
            price, limit = 0, 0
        whole.append(price)
        fixed += price * int(limit)
    return tuple(whole), fixed


def _value(kinds: BinKinds, values: Values, upper: NDArray[np.int64], rows: tuple[int, ...], fixed: int) -> int | None:
    numerator = sum(n * y for n, y in zip(kinds.count.tolist(), values.value.tolist(), strict=True))
    asks = [cost * values.one for cost in kinds.cost.tolist()]
    for price, weights in zip(rows, kinds.rows.tolist(), strict=True):
        asks = [ask - price * weight for ask, weight in zip(asks, weights, strict=True)]
    most = upper.tolist()
    share = Fraction(1)
    endless = np.flatnonzero(kinds.available == UNLIMITED).tolist()
    for t in endless:
        if asks[t] < 0:
            return None
        if most[t] * share.numerator > asks[t] * share.denominator:
            share = Fraction(asks[t], most[t])
    total = share * numerator + fixed
    for t in np.flatnonzero((kinds.available != UNLIMITED) | (kinds.least > 0)).tolist():
        surplus = asks[t] - share * most[t]
        bins = int(kinds.least[t]) if surplus >= 0 else int(kinds.available[t])
        total += surplus * bins
    return max(0, ceil_div(total.numerator, total.denominator * values.one))
