"""Packing heuristics with and without a solver: greedy filling, even filling, diving, and restricted integer programs.

Diving fills one bin after the other as well as possible, which is best where items are large. Where a bin holds many
items, even filling gives all bins nearly the same mixture, and almost no room is lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.packing import Packed, Packing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import BinKinds
from kscale.scheduling.bounds.master import Master, Solved
from kscale.scheduling.bounds.mixed_bins import Flow, Fluid
from kscale.scheduling.bounds.pricing import Proof, Values, prove_least_cost, relax, surrogate

__all__ = [
    "best_first_fit",
    "cheaper",
    "dive",
    "fill",
    "pack_evenly",
    "pack_greedily",
    "resource_prices",
    "volume_bound",
]


_STEPS = 2_000
_PROMISING = 8  # number of kinds that are tried alone
_URGENT = 3  # number of tries to place items that found no bin


def resource_prices(kinds: BinKinds) -> NDArray[np.float64]:
    """Compute prices of resources, float64[R], in cost per unit.

    The resources of a bin that is not free are worth at most its cost, and all items together are worth nearly as much
    as possible. A resource that no such bin offers, or that no item needs, has the price 0. Resources play against
    kinds of bins, with multiplicative weights: S. Arora, E. Hazan, S. Kale, "The multiplicative weights update method",
    Theory of Computing 8 (2012).
    """
    total = kinds.demand.astype(np.float64).T @ kinds.count
    paid = kinds.cost > 0
    # A resource that no bin with a cost offers has no price: only free bins hold its items.
    used = np.flatnonzero((total > 0) & kinds.capacity[paid].any(axis=0))
    if not used.size or not paid.any():
        return np.zeros(kinds.demand.shape[1])
    # What a bin offers of each resource per unit of cost, as a share of the total demand.
    offer = kinds.capacity[paid][:, used] / total[used] / kinds.cost[paid, None]
    offer = offer / offer.max()
    weights = np.full(len(used), 1.0 / len(used))
    best, lowest = weights, np.inf
    for step in range(_STEPS):
        worth = offer @ weights
        worst = int(np.argmax(worth))
        if worth[worst] < lowest:
            best, lowest = weights, float(worth[worst])
        # Relative to the current worth: resources that are abundant everywhere lose their price immediately.
        weights = weights * np.exp(-offer[worst] / worth[worst] / (1.0 + step) ** 0.5)
        weights = weights / weights.sum()
    prices = np.zeros(kinds.demand.shape[1])
    prices[used] = best / total[used]
    # Scaled so that the most valuable filling of a bin is worth the bin's cost.
    worth = (kinds.capacity[paid] @ prices) / kinds.cost[paid]
    result: NDArray[np.float64] = prices / float(worth.max())
    return result


def volume_bound(kinds: BinKinds) -> Proof:
    """Return a proven lower bound of the cost, from prices of resources."""
    per_resource = resource_prices(kinds)
    prices = kinds.demand @ per_resource
    values = Values.of(prices, kinds)
    relaxed = relax(kinds, prices, kinds.count, np.full(kinds.size, np.inf))
    upper = np.minimum(
        surrogate(kinds, values, relaxed.weight),
        surrogate(kinds, values, np.repeat(per_resource[None], kinds.size, axis=0)),
    )
    return prove_least_cost(kinds, values, upper, np.zeros(len(kinds.rows)))


def fill(
    packing: Packing, prices: NDArray[np.float64], effort: Effort, weights: NDArray[np.float64] | None = None
) -> None:
    """Put the remaining items into bins: repeatedly the filling worth most for its cost.

    A filling is used as often as possible, or once at a time if rows limit the bins. A cheaper kind that holds the
    filling replaces its kind.

    ``prices``: worth of an item of each class. ``weights`` float64[T] replaces the cost of each kind, for example by
    the share of a limit that a bin takes. The bins are added to ``packing``; items for which no bin is allowed remain.
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
        max_copies = np.iinfo(np.int64).max if packing.without_rows else 1
        if not packing.add_bins(better if better >= 0 else kind, pattern, max_copies):
            return


def first_fit(packing: Packing, kind: int, effort: Effort) -> None:
    """Add bins of one kind to ``packing`` for the remaining items that fit it, as first-fit decreasing does.

    Each bin is filled with the items that fit when they are tried in decreasing order, and the next bin with the items
    that are left. Equal bins are filled at once. Each bin becomes the cheapest kind that holds its content.
    """
    kinds = packing.kinds
    capacity, per_bin = kinds.capacity[kind], kinds.most[kind].astype(np.int64)
    size = (kinds.demand / np.maximum(capacity, 1)).max(axis=1)
    decreasing = np.lexsort((np.arange(kinds.classes), -size))
    order = decreasing[(per_bin[decreasing] > 0) & (packing.rest[decreasing] > 0)].tolist()
    while order:
        free = capacity.copy()
        pattern = np.zeros(kinds.classes, dtype=np.int64)
        for k in order:
            demand = kinds.demand[k]
            used = demand > 0
            number = min(int(packing.rest[k]), int(per_bin[k]))
            if used.any():
                number = min(number, int((free[used] // demand[used]).min()))
            pattern[k] = number
            free -= number * demand
        effort.spend(len(order))
        if not pattern.any():
            return
        cheapest = packing.cheapest(pattern, kind)
        copies = np.iinfo(np.int64).max if packing.without_rows else 1
        if packing.add_bins(cheapest if cheapest >= 0 else kind, pattern, copies) <= 0:
            return
        order = [k for k in order if packing.rest[k] > 0]


def best_first_fit(packing: Packing, prices: NDArray[np.float64], effort: Effort) -> Packed:
    """Return the best of several completions of ``packing``: each first fills bins of one promising kind.

    Items that the kind does not hold are placed by ``prices`` of items (:func:`fill`); filling everything that way is
    tried, too. If limits may leave items out, bins that hold most for their share of a limit are also tried.
    ``packing`` is unchanged.
    """
    kinds = packing.kinds
    greedy = packing.copy()
    fill(greedy, prices, effort)
    best = latest = greedy.merge_equal_bins()
    urgent = prices.astype(np.float64)
    for _ in range(_URGENT):
        if not latest.missing.any():
            break
        # Items that found no bin go first: others may have taken bins that only these could use.
        urgent = np.where(latest.missing > 0, 2.0 * max(float(urgent.max()), 1e-9), urgent)
        other = packing.copy()
        fill(other, urgent, effort)
        latest = other.merge_equal_bins()
        best = _choose_better(best, latest, kinds)
    for kind in _list_promising_kinds(packing):
        if effort.is_exhausted:
            return best
        other = packing.copy()
        first_fit(other, kind, effort)
        fill(other, prices, effort)
        best = _choose_better(best, other.merge_equal_bins(), kinds)
    if not best.missing.any():
        return best
    for q in np.flatnonzero(np.isfinite(kinds.high) & (kinds.rows > 0).any(axis=1)).tolist():
        other = packing.copy()
        fill(
            other, np.ones(kinds.classes), effort, np.maximum(kinds.rows[q], 0) + kinds.cost / (kinds.cost.sum() + 1.0)
        )
        best = _choose_better(best, other.merge_equal_bins(), kinds)
    return best


def _choose_better(one: Packed, second: Packed, kinds: BinKinds) -> Packed:
    """Return the better packing; ``one`` if neither is better."""
    return second if second.is_better_than(one, kinds) else one


def _list_promising_kinds(packing: Packing) -> list[int]:
    """Return the numbers of the kinds with which the remaining items promise to cost least.

    If rows limit the bins, also those that promise the fewest bins.
    """
    kinds = packing.kinds
    holdable = (kinds.most > 0) @ packing.rest
    bins = (kinds.demand.T.astype(np.float64) @ packing.rest / np.maximum(kinds.capacity, 1)).max(axis=1)
    usable = np.flatnonzero((holdable > 0) & packing.open_kinds())
    share = np.maximum(holdable[usable], 1)
    orders = [kinds.cost[usable] * bins[usable] / share]
    if not packing.without_rows:
        orders.append(bins[usable] / share)
    chosen = [usable[np.argsort(order, kind="stable")[:_PROMISING]] for order in orders]
    return list(dict.fromkeys(np.concatenate(chosen).tolist()))


def pack_greedily(kinds: BinKinds, effort: Effort) -> Packed:
    """Pack the items by heuristics alone. The required ``least`` bins are included even if they stay empty."""
    return best_first_fit(Packing(kinds), kinds.demand @ resource_prices(kinds), effort)


_FLOWS = 5  # number of bin counts to try
_TRIES = 4  # orders of placing to try for each
_POWER = 4  # exponent of a resource's load: the higher, the more the fullest resource counts
_COPIES = 4  # consider up to this multiple of a class's mean per bin at once
_TIGHT = 0.5  # classes that need more than this share of their places go first
_KINDS = 12  # with more kinds there are too many combinations of bin counts
_PAIRS = 4_000  # maximum of classes times kinds
_PLACES = 20_000_000  # maximum of items times bins


def pack_evenly(kinds: BinKinds, effort: Effort) -> Packed | None:
    """Return the best of a few packings that fill bins evenly: with the fewest missing items, then the cheapest.

    None if the instance is too large or has no items, if the effort is spent, or if no packing was found.
    """
    if kinds.size > _KINDS or kinds.size * kinds.classes > _PAIRS or not kinds.count.any() or effort.is_exhausted:
        return None
    fluid = Fluid(kinds)
    count = kinds.count.copy()
    best = None
    for _ in range(_FLOWS):
        flow = fluid.solve_integral(effort, count)
        if flow is None or int(flow.bins.sum()) * int(kinds.count.sum()) > _PLACES:
            break
        failures = np.zeros(kinds.classes, dtype=np.int64)
        fewest = kinds.count
        for _ in range(_TRIES):
            packed, unplaced = _pack_by_flow(kinds, flow, failures, effort)
            if best is None or packed.is_better_than(best, kinds):
                best = packed
            if unplaced.sum() < fewest.sum():
                fewest = unplaced
            if not unplaced.any() or effort.is_exhausted:
                return best
            failures += unplaced > 0
        # Double the surplus of the classes that were not placed.
        count = count + np.maximum(fewest, count - kinds.count) * (fewest > 0)
    return best


def _pack_by_flow(
    kinds: BinKinds, flow: Flow, failures: NDArray[np.int64], effort: Effort
) -> tuple[Packed, NDArray[np.int64]]:
    """Pack items into the numbers of bins of a flow; return (packing, int64[K] items that needed other bins).

    ``failures`` int64[K] counts earlier failures of each class; classes with more failures are placed first.
    """
    bins = _Bins(kinds, np.repeat(np.arange(kinds.size), flow.bins))
    for k in _order(kinds, flow.bins, failures).tolist():
        remaining = int(kinds.count[k])
        for t, n in _divide_by_share(flow.share[:, k], remaining):
            remaining -= bins.place(k, n, bins.kind == t)
        bins.place(k, remaining, np.ones(len(bins.kind), dtype=bool))
    effort.spend(kinds.classes * (50 + len(bins.kind) / 4))
    packing = Packing(kinds)
    for kind, pattern in zip(bins.kind.tolist(), bins.pattern, strict=True):
        if pattern.any():
            cheapest = packing.cheapest(pattern, kind) if kinds.cost[kind] else kind
            packing.add_bins(cheapest if cheapest >= 0 else kind, pattern, 1)
    left_out = packing.rest.copy()
    fill(packing, kinds.demand @ (1.0 / np.maximum(kinds.capacity.max(axis=0), 1)), effort)
    return packing.merge_equal_bins(), left_out


def _order(kinds: BinKinds, bins: NDArray[np.int64], failures: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the numbers of the classes with items, in the order of placing.

    First those that failed before (``failures``), then those with few possible places, then the largest. ``bins``:
    number of bins of each kind.
    """
    present = np.flatnonzero(bins)
    room = np.maximum(kinds.capacity[present], 1)
    size = np.array([float((row / room).max(axis=1).min(initial=np.inf)) for row in kinds.demand])
    places = bins[present] @ kinds.most[present].astype(np.int64)
    roomy = kinds.count <= _TIGHT * places
    order = np.lexsort((np.arange(kinds.classes), -size, roomy, -failures))
    return order[kinds.count[order] > 0]


def _divide_by_share(share: NDArray[np.float64], count: int) -> list[tuple[int, int]]:
    """Divide ``count`` items among kinds of bins in proportion to ``share``: (kind, number of items) of each.

    Shares are rounded so that the numbers add up to ``count``; the largest fractions are rounded up. Empty if no kind
    has a share.
    """
    total = float(share.sum())
    if total <= 0:
        return []
    exact = share * (count / total)
    counts = np.floor(exact + 1e-9).astype(np.int64)
    up = np.argsort(counts - exact, kind="stable")[: max(0, count - int(counts.sum()))]
    counts[up] += 1
    return [(int(t), int(counts[t])) for t in np.flatnonzero(counts)]


class _Bins:
    """Bins being filled: ``kind`` int64[N], ``pattern`` int64[N, K] (their content)."""

    def __init__(self, kinds: BinKinds, kind: NDArray[np.int64]) -> None:
        self.kinds, self.kind = kinds, kind
        self.pattern = np.zeros((len(kind), kinds.classes), dtype=np.int64)
        self._free = kinds.capacity[kind]
        self._room = np.maximum(kinds.capacity[kind], 1).astype(np.float64)

    def place(self, k: int, count: int, where: NDArray[np.bool_]) -> int:
        """Put up to ``count`` items of class ``k`` into the bins that ``where`` (bool[N]) selects.

        Each item goes into the bin whose weighted load grows least. Returns the number of items placed.
        """
        placed = 0
        demand = self.kinds.demand[k]
        used = np.flatnonzero(demand)
        while placed < count:
            fits = self.kinds.most[self.kind, k] - self.pattern[:, k]
            if len(used):
                fits = np.minimum(fits, (self._free[:, used] // demand[used]).min(axis=1))
            open_ones = np.flatnonzero(where & (fits > 0))
            if not len(open_ones):
                break
            copies = 1 + _COPIES * -(-(count - placed) // len(open_ones))
            step = np.arange(1, copies + 1)
            room = self._room[open_ones][:, used]
            load = 1.0 - self._free[open_ones][:, used] / room
            weight = demand[used] / room
            after = ((load[:, None] + step[:, None] * weight[:, None]) ** _POWER).sum(axis=2)
            before = ((load[:, None] + (step - 1)[:, None] * weight[:, None]) ** _POWER).sum(axis=2)
            burden = np.where(step <= fits[open_ones, None], after - before, np.inf)
            # Column by column: ties go to the emptier bin, and no bin gets its second item before its first.
            order = np.argsort(burden.T, axis=None, kind="stable")[: count - placed]
            order = order[np.isfinite(burden.T.ravel()[order])]
            put = np.bincount(order % len(open_ones), minlength=len(open_ones))
            self.pattern[open_ones, k] += put
            self._free[open_ones] -= put[:, None] * demand
            placed += int(put.sum())
        return placed


_ROUNDS = 4  # rounds of pricing after each step
_CANDIDATES = 30
_NEARLY = 0.8
_MAX_PRICED_KINDS = 60  # kinds that are priced again


def dive(kinds: BinKinds, master: Master, effort: Effort, *, threads: int = 1) -> Packed:
    """Build an integer packing by diving: round the linear program, fix some bins, solve again.

    The columns of ``master`` must be those of ``kinds``. The program is restricted and gets more columns; do not use it
    for the whole instance afterwards. A bin that is not free becomes the cheapest kind that holds its content. When the
    effort is spent or no further bin can be fixed, the remaining items are packed greedily. Items are left out only if
    the limits allow no further bin that holds them.
    """
    packing = Packing(kinds)
    solved = master.solve()
    chosen = _select_promising_kinds(master, solved)
    few = kinds.only(chosen)
    while packing.rest.any():
        packing.worth = solved.ask
        if not _fix_integer_parts(packing, master, solved) and not _fix_best_bin(packing, master, solved):
            break
        if not packing.rest.any():
            break
        if effort.is_exhausted:
            break
        master.restrict(*packing.get_remaining())
        solved = _price_again(packing, master, chosen, few, effort, threads)
    packing.worth = solved.ask
    return best_first_fit(packing, solved.prices, effort)


def _select_promising_kinds(master: Master, solved: Solved) -> NDArray[np.intp]:
    """Return the numbers of up to 60 kinds whose columns are in use or nearest to it, in ascending order."""
    kind = np.array(master.kind, dtype=np.intp)
    worth = np.array(master.pattern) @ solved.prices / np.maximum(solved.ask[kind], 1e-300)
    best = np.full(master.kinds.size, -1.0)
    np.maximum.at(best, kind, np.where(solved.values > 0, 2.0, worth))
    kinds: NDArray[np.intp] = np.sort(np.argsort(-best, kind="stable")[:_MAX_PRICED_KINDS])
    return kinds


def _fix_integer_parts(packing: Packing, master: Master, solved: Solved) -> bool:
    """Add the integer parts of the solution to ``packing``, the largest first; return whether any bin was added."""
    any_fixed = False
    for j in np.argsort(-solved.values, kind="stable").tolist():
        copies = int(solved.values[j] + 1e-9)
        if copies < 1:
            break
        pattern = master.pattern[j]
        column_kind = master.kind[j]
        kind = packing.cheapest(pattern, column_kind) if packing.kinds.cost[column_kind] else column_kind
        any_fixed |= kind >= 0 and packing.add_bins(kind, pattern, copies) > 0
    return any_fixed


def _fix_best_bin(packing: Packing, master: Master, solved: Solved) -> bool:
    """Add to ``packing`` the bin of a used column that is worth most for its cost; return whether a bin was added.

    Bins of other columns with a value close to 1 are added with it.
    """
    scored: list[tuple[float, int, float, NDArray[np.int64]]] = []
    for j in np.argsort(-solved.values, kind="stable")[:_CANDIDATES].tolist():
        if solved.values[j] < 1e-7:
            break
        pattern = np.minimum(master.pattern[j], packing.rest)
        if not pattern.any():
            continue
        kind = packing.cheapest(pattern, master.kind[j])
        if kind < 0:
            continue
        cost = max(float(packing.kinds.cost[kind]), 1e-9)
        score = float(pattern @ solved.prices) / cost * (0.5 + 0.5 * solved.values[j])
        scored.append((score, kind, solved.values[j], pattern))
    scored.sort(key=lambda each: -each[0])
    fixed = 0
    for i, (_, kind, value, pattern) in enumerate(scored):
        if i == 0 or value >= _NEARLY:
            fixed += packing.add_bins(kind, pattern, 1)
    return fixed > 0


def _price_again(
    packing: Packing, master: Master, chosen: NDArray[np.intp], few: BinKinds, effort: Effort, threads: int
) -> Solved:
    """Add columns of the ``chosen`` kinds for the remaining items to ``master``, and return its last solution.

    ``few``: the instance with only the chosen kinds.
    """
    kinds = packing.kinds
    for _ in range(_ROUNDS):
        solved = master.solve()
        effort.spend(300 + len(master.pattern) + solved.iterations * (10 + kinds.classes // 4))
        effort.spend(50 + len(chosen) * (2 + kinds.classes / 8))
        wanted = solved.ask[chosen] * (1.0 + 1e-3)
        relaxed = relax(few, solved.prices, packing.rest, wanted, threads=threads)
        better = np.flatnonzero(relaxed.filling @ solved.prices > wanted)
        if not master.add(chosen[better], relaxed.filling[better]):
            break
    solved = master.solve()
    effort.spend(300 + len(master.pattern) + solved.iterations * (10 + kinds.classes // 4))
    return solved


_COLUMNS = 600  # maximum of columns for a program that is solved quickly
_NODES = 20  # nodes of the search
_CLOSE = 5e-4  # plans this close to the linear program are not improved


def cheaper(kinds: BinKinds, master: Master, packed: Packed, effort: Effort) -> Packed:
    """Return the better of ``packed`` and of a packing by an integer program over the columns of both arguments.

    ``packed`` is also returned if it is nearly optimal, if the program is too large, or if the effort is spent.
    ``master`` must belong to ``kinds``; do not use it afterwards.
    """
    master.restrict(kinds.count, kinds.available, kinds.least, kinds.low, kinds.high)
    master.add(packed.kind, packed.pattern)
    cost = packed.cost(kinds)
    lowest = master.solve().objective
    if effort.is_exhausted or len(master.kind) > _COLUMNS or cost <= lowest * (1.0 + _CLOSE):
        return packed
    copies, nodes = master.integral(_NODES, effort.out_of_time)
    effort.spend(5_000 + nodes * len(master.kind))
    if copies is None:
        return packed
    candidate = _build_packing(kinds, master, copies, effort)
    return candidate if candidate.is_better_than(packed, kinds) else packed


def _build_packing(kinds: BinKinds, master: Master, copies: NDArray[np.int64], effort: Effort) -> Packed:
    """Build the packing of an integer solution. ``copies``: how often each column of ``master`` is used.

    If the columns contain more items of a class than there are, the last bins hold fewer. Missing items are added
    greedily.
    """
    packing = Packing(kinds)
    remaining_bins: list[tuple[int, NDArray[np.int64]]] = []
    for j in np.argsort(-kinds.cost[np.array(master.kind, dtype=np.intp)], kind="stable").tolist():
        kind, pattern, count = master.kind[j], master.pattern[j], int(copies[j])
        count -= packing.add_bins(kind, pattern, count) if count and pattern.any() else 0
        remaining_bins += [(kind, pattern)] * count if pattern.any() else []
    for kind, pattern in remaining_bins:
        remaining = np.minimum(pattern, packing.rest)
        if remaining.any():
            cheapest = packing.cheapest(remaining, kind)
            packing.add_bins(cheapest if cheapest >= 0 else kind, remaining, 1)
    fill(packing, np.ones(kinds.classes), effort)
    return packing.merge_equal_bins()
