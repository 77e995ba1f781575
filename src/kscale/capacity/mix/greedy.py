"""What can be had without a solver: prices of resources by sums, a bound from them, and bins filled one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.packing import Packed, Packing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.kinds import BinKinds
from kscale.scheduling.bounds.pricing import Values, relax, surrogate
from kscale.scheduling.bounds.proof import Proof, least_cost

__all__ = ["fill", "resource_prices", "volume_bound"]

_STEPS = 2_000


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


def fill(packing: Packing, prices: NDArray[np.float64], effort: Effort) -> None:
    """What is left goes into bins, one filling after the other: the one that is worth most for its cost, as often as it
    goes."""
    kinds = packing.kinds
    prices = np.where(prices > 0, prices, 1e-6 * float(prices.max(initial=1.0)))
    while packing.rest.any():
        effort.spend(50 + kinds.size * (2 + kinds.classes / 8))
        room = np.array([packing.room(t) > 0 and packing.balanced(t) for t in range(kinds.size)])
        ask = np.where(room, np.maximum(kinds.cost.astype(np.float64), 1e-9), np.inf)
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


def packed_greedily(kinds: BinKinds, effort: Effort) -> Packed:
    """Bins without a solver. ``least`` bins that stay empty are there too."""
    packing = Packing(kinds)
    fill(packing, kinds.demand @ resource_prices(kinds), effort)
    return packing.packed()
