"""The most valuable filling of every bin kind: hints in floating point, proofs in integers.

Prices are integers here (:class:`Values`). A kind's filling is bounded from above by the dual of its relaxation
(:func:`surrogate`), by tables over one resource in which the others are priced out (one table serves every kind), and
by a search with these tables as bounds, which also finds the fillings.

Every item has a price, and no bin of kind t holds items worth more than ``upper[t]``. If that is never more than the
bin costs, the bins of any packing cost at least what all items are worth. Otherwise all prices are lowered together.
For a kind with few bins, the surplus is paid for each of its bins instead.
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

__all__ = [
    "Proof",
    "Relaxed",
    "Tables",
    "Tier",
    "Values",
    "build_tiers",
    "prove_least_cost",
    "relax",
    "relax_around",
    "surrogate",
]


_VALUE_BITS = 51  # the kernels require sum(value * limit) below 2**52
_SUM_BITS = 60  # ... and sum(value * count) below 2**62
_PRICE_BITS = 38  # ... and the value of one unit of a resource, rarely more than a bin costs, below 2**38
_ENTRY_BITS = 30  # ... and of a table below 2**31, so that rounding leaves a little room
_WEIGHT_BITS = 24  # prices of what is priced out are multiples of 2**-24
_FACTORS = (0.0, 0.8, 1.0, 1.2)  # factors of the usual price of resources that are priced out, one table each
_CELLS = 6_000_000  # maximum number of entries of all tables of a tier
_FEW = 16  # a resource of which no bin has more is exact in the tables
_CANDIDATES = 4096  # approximate number of units that are tried
_SIZES = 2.0  # kinds whose capacities differ by at most this factor share tables
_KEEP = 50  # number of fillings that a search returns


class Values(msgspec.Struct, frozen=True):
    """Integer price of an item of each class: ``value`` int64[K], in units of ``1 / scale`` of the unit of costs."""

    value: NDArray[np.int64]
    scale: int

    @classmethod
    def of(cls, prices: NDArray[np.float64], kinds: BinKinds) -> Values:
        """Round ``prices`` (float64[K]) down to integers, with the largest scale that the kernels' range allows."""
        one_bin = float(prices @ kinds.most.max(axis=0, initial=0)) + float(kinds.cost.max(initial=1))
        worth = float(prices @ kinds.count)
        fine = _PRICE_BITS - int(np.ceil(np.log2(float(kinds.cost.max(initial=1)) + 2.0)))
        bits = min(36, fine, *(room - int(np.ceil(np.log2(total + 2.0))) for room, total in _limits(one_bin, worth)))
        return cls(np.floor(prices * 2.0**bits).astype(np.int64), 1 << bits) if bits > 0 else cls._coarse(prices, kinds)

    @classmethod
    def _coarse(cls, prices: NDArray[np.float64], kinds: BinKinds) -> Values:
        """Round prices down to integers in the unit of costs, and scale them down if the kernels' range requires it."""
        limit = kinds.most.max(axis=0, initial=0)
        sums = _limits(float(prices @ limit), float(prices @ kinds.count))
        share = min(2.0**bits / max(total, 1.0) for bits, total in sums)
        return cls(np.floor(prices * min(share, 1.0)).astype(np.int64), 1)


def _limits(one_bin: float, all_items: float) -> tuple[tuple[int, float], ...]:
    """Return (bits that the kernels allow, value) for the value ``one_bin`` of one bin, then for that of all items."""
    return (_VALUE_BITS, one_bin), (_SUM_BITS, all_items)


class Relaxed(msgspec.Struct, frozen=True):
    """Every kind's relaxation: ``upper`` float64[T], ``weight`` float64[T, R] (prices of resources), and a filling
    ``filling`` int32[T, K] worth ``worth`` float64[T], if one worth more than ``wanted`` was searched for.
    """

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
    """Return the relaxation of every bin kind at item prices ``prices`` (float64[K]), as a hint without proof.

    ``count`` int64[K]: items of each class; ``wanted`` float64[T]: a filling is computed only for kinds whose upper
    bound is more than this; ``swaps``: number of improvement passes over a filling.
    """
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
    """Return for each class its most promising kind, and a filling of that kind with an item of the class.

    The result is (kinds int32[N], fillings int32[N, K]). Classes without items (``count`` int64[K]) or price, or that
    fit no kind, are left out. ``ask`` float64[T]: cost of a bin of each kind; ``relaxed``: the relaxation of all kinds;
    ``swaps``: number of improvement passes over a filling.
    """
    with np.errstate(over="ignore"):  # bins of almost no cost come first
        worth = np.where(kinds.most > 0, (relaxed.upper / np.maximum(ask, 1e-300))[:, None], -1.0)
    best = np.argmax(worth, axis=0).astype(np.int32)
    items = np.flatnonzero((worth.max(axis=0, initial=-1.0) >= 0) & (count > 0) & (prices > 0)).astype(np.int32)
    kind = np.ascontiguousarray(best[items])
    return kind, _bin_pricing.fill_around(
        prices, kinds.demand, kinds.most, count, kinds.capacity, kind, items, swaps=swaps, threads=threads
    )


def surrogate(kinds: BinKinds, values: Values, weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a proven upper bound of the value that one bin of each kind can hold: int64[T].

    ``values``: integer prices of the items. ``weight`` float64[T, R]: prices of resources, from the relaxation.
    """
    return _bin_pricing.surrogate_bounds(
        values.value, kinds.demand, kinds.most, kinds.count, kinds.capacity, weight * float(values.scale)
    )


class Tier(msgspec.Struct, frozen=True):
    """Kinds of bins of similar size that share tables.

    Exact in ``main`` (in units of ``unit``, about ``most_units`` in the largest bin) and in ``few`` (-1 = none;
    ``all_parts``: amount of it in the bin that has most), with the resources of ``priced`` priced out. ``order``: the
    classes, those that use ``few`` first, then the largest.
    """

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
        """Build the tier of the kinds ``members`` (positions), exact in the resource ``main``.

        ``most_units``: maximum number of units in the largest bin.
        """
        per_bin = np.minimum(kinds.most[members].max(axis=0), kinds.count)
        used = np.flatnonzero(per_bin)
        capacity = kinds.capacity[members]
        few = _find_scarcest_resource(kinds, capacity, used, main)
        takes = kinds.demand[used, few] if few >= 0 else np.zeros(len(used), dtype=np.int64)
        largest_first = np.lexsort((np.arange(len(used)), -kinds.demand[used, main], takes == 0))
        order, parts = used[largest_first], takes[largest_first]
        have = capacity[:, few] if few >= 0 else np.zeros(len(members), dtype=np.int64)
        tables, all_parts = len(_FACTORS), int(have.max(initial=0))
        rows = len(order) + 1 + int((parts > 0).sum()) * all_parts  # one row for all classes that use no parts
        units = max(16, min(most_units, _CELLS // (tables * rows)))
        top = int(capacity[:, main].max(initial=0))
        unit = _choose_unit(kinds.demand[order, main], kinds.count[order], top, units)
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
            limit=per_bin[order].astype(np.int64),
            all_parts=all_parts,
            shape=(tables, rows, top // unit + 1),
            bin_units=capacity[:, main] // unit,
            bin_parts=have.astype(np.int64),
        )

    def without(self, kinds: BinKinds, some: Sequence[int]) -> list[Tier]:
        """Return the tier split up: one tier for each of the kinds ``some``, and one for all other kinds.

        A tier of fewer kinds can have finer tables.
        """
        separated = np.isin(self.kinds, some)
        if not separated.any():
            return [self]
        parts = [*self.kinds[separated, None], self.kinds[~separated]]
        return [Tier.of(kinds, members, self.main, self.most_units) for members in parts if len(members)]


def _find_scarcest_resource(kinds: BinKinds, capacity: NDArray[np.int64], order: NDArray[np.intp], main: int) -> int:
    """Return the scarcest resource, other than ``main``, that every bin has little of and some class uses; -1 = none.

    ``capacity``: of each kind; ``order``: the classes.
    """
    largest = capacity.max(axis=0, initial=0)
    candidates = [
        (int(largest[r]), r)
        for r in range(len(largest))
        if r != main and 0 < largest[r] <= _FEW and kinds.demand[order, r].any()
    ]
    return min(candidates)[1] if candidates else -1


def _choose_unit(demand: NDArray[np.int64], count: NDArray[np.int64], top: int, units: int) -> int:
    """Return an amount of a resource as unit, so that little is lost when demands are rounded down to whole units.

    ``demand``, ``count``: of each class; ``top``: size of the largest bin, which gets at most ``units`` units.
    """
    least = max(1, -(-top // units))
    used = demand > 0
    exact = int(np.gcd.reduce(demand[used])) if used.any() else 1
    if exact >= least:
        return exact
    sizes, weights = demand[used], count[used].astype(np.float64)
    step = max(1, 7 * least // _CANDIDATES)  # there are many units in bytes: try a sample
    candidates = np.arange(least, 8 * least + 1, step, dtype=np.int64)
    best, unit = np.inf, least
    losses = ((sizes[:, None] % candidates) * weights[:, None]).sum(axis=0)  # by row: same on every machine
    for candidate, lost in zip(candidates.tolist(), losses.tolist(), strict=True):
        if lost < best * 0.95:
            best, unit = lost, candidate
    return unit


def build_tiers(kinds: BinKinds, weight: NDArray[np.float64], units: int) -> list[Tier]:
    """Assign every kind to one tier, by its most valuable resource (``weight`` float64[T, R]) and by size.

    ``units``: maximum number of units in the largest bin of a tier.
    """
    worth = weight * kinds.capacity
    abundant = kinds.capacity.max(axis=0) > _FEW
    main = (
        np.argmax(np.where(abundant, worth, -1.0), axis=1) if abundant.any() else np.zeros(kinds.size, dtype=np.int64)
    )
    result = []
    for r in distinct(main).tolist():
        members = np.flatnonzero(main == r)
        size = kinds.capacity[members, r].astype(np.float64)
        level = np.floor(np.log(np.maximum(size.max(initial=1.0), 1.0) / np.maximum(size, 1.0)) / np.log(_SIZES) + 1e-9)
        result += [Tier.of(kinds, members[level == n], r, units) for n in distinct(level)]
    return result


class Tables:
    """Tables of a tier at given prices: proven bounds for its kinds, and a search of single bins."""

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
        """Compute the tables. ``weight`` float64[R]: usual prices of the resources that are priced out.

        ``memory`` of shape ``tier.shape`` is reused.
        """
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
            scaled = weight[tier.priced] * factor * values.scale * 2.0**_WEIGHT_BITS
            weights[tier.priced] = np.minimum(scaled, 2.0**52).astype(np.int64)
            self._weight[m] = weights / 2.0**_WEIGHT_BITS
            left = np.maximum(
                values.value[tier.order] - _multiply_rounded(kinds.demand[tier.order], weights, up=False), 0
            )
            value[m], shift[m] = _shift_to_int32(left, tier)
            rests.append(_multiply_rounded(kinds.capacity[tier.kinds], weights, up=True))
        _bin_pricing.fill_tables(
            value, tier.units, tier.parts, tier.limit, self.table, all_parts=tier.all_parts, threads=threads
        )
        first = tier.bin_parts if tier.parts.any() else 0  # the row of all items
        for m, rest in enumerate(rests):
            upper = np.minimum(upper, (self.table[m, first, tier.bin_units].astype(np.int64) << shift[m]) + rest)
        self._worth = np.ldexp(1.0, shift)
        self.upper: NDArray[np.int64] = upper
        """int64: proven upper bounds of the tier's kinds."""

    @property
    def work(self) -> int:
        """Return the number of table entries, which measures the work."""
        return int(np.prod(self.tier.shape))

    def search(
        self, which: Sequence[int], at_least: NDArray[np.int64], nodes: int, *, threads: int = 1
    ) -> list[tuple[int, int, NDArray[np.int64]]]:
        """Search the most valuable fillings of the given kinds. ``which``: their positions in the tier.

        ``at_least``: value that fillings of each of these kinds must exceed; ``nodes``: maximum number of nodes to
        visit per kind. Returns for each kind (proven upper bound, number of nodes visited, fillings int64[S, K] worth
        more, at most 50, the best last).
        """
        tier, kinds = self.tier, self.kinds
        chosen = np.asarray(which, dtype=np.intp)
        members = tier.kinds[chosen]
        limit = np.minimum(kinds.most[members], kinds.count)[:, tier.order]
        results = _bin_pricing.search(
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
        for _, upper, visited, fillings in results:
            dense = np.zeros((len(fillings), kinds.classes), dtype=np.int64)
            dense[:, tier.order] = fillings
            answers.append((upper, visited, dense))
        return answers


def _shift_to_int32(value: NDArray[np.int64], tier: Tier) -> tuple[NDArray[np.int32], int]:
    """Shift the values right, rounded up, until the sums in the int32 tables fit. Returns (values, number of bits).

    Raises InputError if a bin can hold 2**30 items or more.
    """
    shift = max(0, int(value.max(initial=0)).bit_length() - _ENTRY_BITS)
    while True:
        narrow = (-(-value >> shift)).astype(np.int32)
        largest = _bin_pricing.most_of_tables(
            narrow, tier.units, tier.parts, tier.limit, all_units=tier.shape[2] - 1, all_parts=tier.all_parts
        )
        if largest < 2.0**_ENTRY_BITS:
            return narrow, shift
        if not value.max(initial=0) >> shift:
            raise InputError("a bin holds 2**30 items or more: no bound is computed")
        shift += max(1, int(np.log2(largest)) - _ENTRY_BITS)


def _multiply_rounded(amounts: NDArray[np.int64], weights: NDArray[np.int64], *, up: bool) -> NDArray[np.int64]:
    """Return ``amounts @ weights``, exactly rounded to integers but at most 2**61: int64[n].

    ``amounts`` int64[n, R]; ``weights`` int64[R] in units of 2**-24; ``up``: round up, otherwise down.
    """
    used = np.flatnonzero(weights)
    rounding = (1 << _WEIGHT_BITS) - 1 if up else 0
    largest = sum(float(amounts[:, r].max(initial=0)) * float(weights[r]) for r in used)
    if largest < 2.0**61:
        products: NDArray[np.int64] = (amounts[:, used] @ weights[used] + rounding) >> _WEIGHT_BITS
        return products
    exact = amounts[:, used].astype(object) @ weights[used].astype(object)
    capped = [min((int(n) + rounding) >> _WEIGHT_BITS, 1 << 61) for n in exact]
    return np.array(capped, dtype=np.int64)


class Proof(msgspec.Struct, frozen=True):
    """Proof that no packing costs less than ``value`` (in the unit of the kinds' costs).

    ``prices`` int64[K]: price of an item of each class, in units of ``1 / scale`` of the unit of costs; ``upper``
    int64[T]: maximum value of the items in one bin of a kind; ``duals``: price of each constraint in ``kinds.rows``.
    ``upper`` and ``duals`` have the unit of ``prices``. :func:`prove_least_cost` computes ``value`` from them, and
    :func:`~kscale.scheduling.bounds.whole_bins.round_to_whole_bins` may compute a higher one.
    """

    value: int
    prices: NDArray[np.int64]
    scale: int
    upper: NDArray[np.int64]
    duals: tuple[int, ...]


def prove_least_cost(kinds: BinKinds, values: Values, upper: NDArray[np.int64], duals: NDArray[np.float64]) -> Proof:
    """Compute the least cost that the prices prove, and return it with its proof.

    ``values``: integer prices of the items. ``upper`` int64[T]: proven maximum value of one bin of each kind. ``duals``
    float64[Q]: prices of the constraints in ``kinds.rows``, in the unit of costs. Any duals are valid, but bad ones
    prove little. They are rounded to integers, and replaced by 0 if a kind with unlimited bins would cost less than the
    constraints pay for it.
    """
    row_prices, fixed = _round_duals(kinds, duals, values.scale)
    value = _value(kinds, values, upper, row_prices, fixed)
    if value is None:  # the rows would pay for unlimited bins: ignore them
        row_prices, fixed = (0,) * len(duals), 0
        value = _value(kinds, values, upper, row_prices, fixed)
    return Proof(value or 0, values.value, values.scale, upper, row_prices)


def _round_duals(kinds: BinKinds, duals: NDArray[np.float64], scale: int) -> tuple[tuple[int, ...], int]:
    """Round the duals of the constraints ``kinds.rows`` to integer prices.

    ``duals`` float64[Q]: in the unit of costs; ``scale``: integer price of one unit of costs. Returns (one price per
    constraint, sum of price times limit), where the limit is ``low`` for a positive price and ``high`` for another.
    A constraint whose limit is infinite gets price 0. The sum is what the constraints add to the lower bound.
    """
    row_prices, fixed = [], 0
    for dual, low, high in zip(duals.tolist(), kinds.low.tolist(), kinds.high.tolist(), strict=True):
        price = round(dual * scale)
        limit = low if price > 0 else high
        if not np.isfinite(limit):
            price, limit = 0, 0
        row_prices.append(price)
        fixed += price * int(limit)
    return tuple(row_prices), fixed


def _value(kinds: BinKinds, values: Values, upper: NDArray[np.int64], rows: tuple[int, ...], fixed: int) -> int | None:
    """Return the least cost that the prices prove, in the unit of costs, rounded up.

    ``values``: integer prices of the items; ``upper``: maximum value of one bin of each kind; ``rows``, ``fixed``:
    prices of the constraints and what they add to the bound (:func:`_round_duals`). None if a kind with unlimited bins
    costs less than the constraints pay for it.
    """
    numerator = sum(n * y for n, y in zip(kinds.count.tolist(), values.value.tolist(), strict=True))
    asks = [cost * values.scale for cost in kinds.cost.tolist()]
    for price, weights in zip(rows, kinds.rows.tolist(), strict=True):
        asks = [ask - price * weight for ask, weight in zip(asks, weights, strict=True)]
    limits = upper.tolist()
    share = Fraction(1)
    endless = np.flatnonzero(kinds.available == UNLIMITED).tolist()
    for t in endless:
        if asks[t] < 0:
            return None
        if limits[t] * share.numerator > asks[t] * share.denominator:
            share = Fraction(asks[t], limits[t])
    total = share * numerator + fixed
    for t in np.flatnonzero((kinds.available != UNLIMITED) | (kinds.least > 0)).tolist():
        surplus = asks[t] - share * limits[t]
        bins = int(kinds.least[t]) if surplus >= 0 else int(kinds.available[t])
        total += surplus * bins
    return max(0, ceil_div(total.numerator, total.denominator * values.scale))
