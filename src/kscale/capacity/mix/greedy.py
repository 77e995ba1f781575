"""What can be had without a solver: prices of resources by sums, a bound from them, and bins filled one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.packing import Packed, Packing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.kinds import BinKinds
from kscale.scheduling.bounds.pricing import Values, relax, surrogate
from kscale.scheduling.bounds.proof import Proof, least_cost

__all__ = ["best_first_fit", "fill", "packed_greedily", "resource_prices", "volume_bound"]

_STEPS = 2_000
_PROMISING = 8  # kinds that are tried alone


def resource_prices(kinds: BinKinds) -> NDArray[np.float64]:
    """float64[R]: prices such that no bin's resources are worth more than it costs, and all items together as much as
    possible.

    Resources play against kinds of bins, with multiplicative weights: S. Arora, E. Hazan, S. Kale, "The multiplicative
    weights update method", Theory of Computing 8 (2012).
    """
    total = kinds.demand.astype(np.float64).T @ kinds.count
    paid = kinds.cost > 0
    # What no bin with a cost offers has no price: only free bins hold items that ask for it.
    used = np.flatnonzero((total > 0) & kinds.capacity[paid].any(axis=0))
    if not used.size or not paid.any():
        return np.zeros(kinds.demand.shape[1])
    # What a bin offers of each resource, as a share of what is asked, for one unit of cost.
    offer = kinds.capacity[paid][:, used] / total[used] / kinds.cost[paid, None]
    offer = offer / offer.max()
    weights = np.full(len(used), 1.0 / len(used))
    best, least = weights, np.inf
    for step in range(_STEPS):
        worth = offer @ weights
        worst = int(np.argmax(worth))
        if worth[worst] < least:
            best, least = weights, float(worth[worst])
        # In units of what it is worth now: resources that are plenty everywhere lose their price at once.
        weights = weights * np.exp(-offer[worst] / worth[worst] / (1.0 + step) ** 0.5)
        weights = weights / weights.sum()
    prices = np.zeros(kinds.demand.shape[1])
    prices[used] = best / total[used]
    # Scaled so that the dearest filling of a bin is worth what the bin costs.
    worth = (kinds.capacity[paid] @ prices) / kinds.cost[paid]
    found: NDArray[np.float64] = prices / float(worth.max())
    return found


def volume_bound(kinds: BinKinds) -> Proof:
    """A proven least cost from prices of resources."""
    of_resources = resource_prices(kinds)
    prices = kinds.demand @ of_resources
    values = Values.of(prices, kinds)
    relaxed = relax(kinds, prices, kinds.count, np.full(kinds.size, np.inf))
    upper = np.minimum(
        surrogate(kinds, values, relaxed.weight),
        surrogate(kinds, values, np.repeat(of_resources[None], kinds.size, axis=0)),
    )
    return least_cost(kinds, values, upper, np.zeros(len(kinds.rows)))


def fill(
    packing: Packing, prices: NDArray[np.float64], effort: Effort, weights: NDArray[np.float64] | None = None
) -> None:
    """Put what is left into bins, one filling after the other: the one worth most for its cost, as often as it goes.

    ``weights`` float64[T]: what counts instead of the cost, such as the share of a limit that a bin takes.
    """
    kinds = packing.kinds
    weights = kinds.cost.astype(np.float64) if weights is None else weights
    prices = np.where(prices > 0, prices, 1e-6 * float(prices.max(initial=1.0)))
    while packing.rest.any():
        effort.spend(50 + kinds.size * (2 + kinds.classes / 8))
        ask = np.where(packing.open_kinds(), np.maximum(weights, 1e-9), np.inf)
        relaxed = relax(kinds, np.where(packing.rest > 0, prices, 0.0), packing.rest, np.zeros(kinds.size))
        score = relaxed.worth / ask
        kind = int(np.argmax(score))
        if score[kind] <= 0:
            return
        pattern = relaxed.filling[kind].astype(np.int64)
        better = packing.cheapest(pattern, kind)
        most = np.iinfo(np.int64).max if packing.loose else 1
        if not packing.put(better if better >= 0 else kind, pattern, most):
            return


def first_fit(packing: Packing, kind: int, effort: Effort) -> None:
    """Put what is left into bins of one kind, as first-fit decreasing does, as far as it fits there.

    The first bin of first-fit decreasing holds what fits when the items are tried in decreasing order, and the next
    bins do the same with the rest. Equal bins are filled at once. Each bin becomes the cheapest kind that holds what is
    in it.
    """
    kinds = packing.kinds
    capacity, most = kinds.capacity[kind], kinds.most[kind].astype(np.int64)
    size = (kinds.demand / np.maximum(capacity, 1)).max(axis=1)
    decreasing = np.lexsort((np.arange(kinds.classes), -size))
    order = decreasing[(most[decreasing] > 0) & (packing.rest[decreasing] > 0)].tolist()
    while order:
        free = capacity.copy()
        pattern = np.zeros(kinds.classes, dtype=np.int64)
        for k in order:
            demand = kinds.demand[k]
            used = demand > 0
            number = min(int(packing.rest[k]), int(most[k]))
            if used.any():
                number = min(number, int((free[used] // demand[used]).min()))
            pattern[k] = number
            free -= number * demand
        effort.spend(len(order))
        if not pattern.any():
            return
        cheapest = packing.cheapest(pattern, kind)
        copies = np.iinfo(np.int64).max if packing.loose else 1
        if packing.put(cheapest if cheapest >= 0 else kind, pattern, copies) <= 0:
            return
        order = [k for k in order if packing.rest[k] > 0]


def best_first_fit(packing: Packing, prices: NDArray[np.float64], effort: Effort) -> Packed:
    """Return the best packing that puts what is left into bins of one kind first, out of the most promising kinds.

    What a kind does not hold is filled by ``prices`` of items (:func:`fill`), as is everything where that is cheapest.
    Where limits may leave items out, bins that hold most for their share of a limit are tried, too.
    """
    kinds = packing.kinds
    greedy = packing.copy()
    fill(greedy, prices, effort)
    best = greedy.packed()
    for kind in _promising(packing):
        if effort.over:
            return best
        other = packing.copy()
        first_fit(other, kind, effort)
        fill(other, prices, effort)
        best = _better(best, other.packed(), kinds)
    if not best.missing.any():
        return best
    for q in np.flatnonzero(np.isfinite(kinds.high) & (kinds.rows > 0).any(axis=1)).tolist():
        other = packing.copy()
        fill(
            other, np.ones(kinds.classes), effort, np.maximum(kinds.rows[q], 0) + kinds.cost / (kinds.cost.sum() + 1.0)
        )
        best = _better(best, other.packed(), kinds)
    return best


def _better(one: Packed, other: Packed, kinds: BinKinds) -> Packed:
    return other if other.before(one, kinds) else one


def _promising(packing: Packing) -> list[int]:
    """Return the kinds that are cheapest alone and, where rows limit the bins, those that need the fewest."""
    kinds = packing.kinds
    held = (kinds.most > 0) @ packing.rest
    bins = (kinds.demand.T.astype(np.float64) @ packing.rest / np.maximum(kinds.capacity, 1)).max(axis=1)
    usable = np.flatnonzero((held > 0) & packing.open_kinds())
    share = np.maximum(held[usable], 1)
    orders = [kinds.cost[usable] * bins[usable] / share]
    if not packing.loose:
        orders.append(bins[usable] / share)
    chosen = [usable[np.argsort(order, kind="stable")[:_PROMISING]] for order in orders]
    return list(dict.fromkeys(np.concatenate(chosen).tolist()))


def packed_greedily(kinds: BinKinds, effort: Effort) -> Packed:
    """Bins without a solver. ``least`` bins that stay empty are there too."""
    return best_first_fit(Packing(kinds), kinds.demand @ resource_prices(kinds), effort)
