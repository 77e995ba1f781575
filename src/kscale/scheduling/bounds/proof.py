"""From prices to a proven least cost, in integers (A. A. Farley, "A note on bounding a class of linear programming
problems", Operations Research 38 (1990); with limits on bins and further rows it is the Lagrangian bound).

Every item has a price, and no bin of kind t holds items worth more than ``upper[t]``. If that is never more than the
bin costs, the bins of any packing cost at least what all items are worth. Where it is more, all prices are lowered
together; of a kind of which there are few, the surplus is paid for each of them instead.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.bounds.instance import ceil_div
from kscale.scheduling.bounds.kinds import UNLIMITED, BinKinds
from kscale.scheduling.bounds.pricing import Values

__all__ = ["Proof", "least_cost"]


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
