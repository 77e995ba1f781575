"""Solves a mix on arrays: a lower bound of the cost of bins for given items, and a packing close to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.heuristics import (
    best_first_fit,
    cheaper,
    dive,
    pack_evenly,
    pack_greedily,
    resource_prices,
    volume_bound,
)
from kscale.capacity.mix.instance import Cell
from kscale.capacity.mix.packing import Packed, Packing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds
from kscale.scheduling.bounds.master import Master, have_solver
from kscale.scheduling.bounds.mixed_bins import Fluid, Generation
from kscale.scheduling.bounds.pricing import Proof
from kscale.scheduling.bounds.whole_bins import round_to_whole_bins

__all__ = ["Budget", "Solution", "candidates", "choose_few_types", "find_undominated", "prove_least_cost", "solve"]


_BATCH = 64  # kinds that are compared at once
_TIMES = 4_096  # limit of small bins per large bin: this multiple of the highest cost fits an int64


def find_undominated(kinds: BinKinds) -> NDArray[np.intp]:
    """Return the numbers of the kinds of bins that no other kind can replace, as int64[n] in ascending order.

    A kind can replace another if it is as cheap, holds as much of everything, has equal weights in all rows and is
    available without limit. Of equal kinds the first stays, as does every required kind. Kinds that hold nothing and
    serve no row are left out. Some packing of least cost needs no other kinds, so a bound over these holds for all.
    """
    order = _order_by_cost(kinds)
    order = order[_is_useful(kinds)[order]]
    needed = kinds.least > 0
    endless = kinds.available == UNLIMITED
    limit = np.minimum(kinds.most, kinds.count)
    weights = kinds.rows.T
    useful = list[int]()
    others = np.zeros(0, dtype=np.intp)  # those of them that can replace other kinds

    def replaceable(some: NDArray[np.intp], by: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool[n]: which of ``some`` kinds one of the kinds ``by`` can replace; all of ``by`` are as cheap."""
        result = np.zeros(len(some), dtype=bool)
        for first in range(0, len(by), _BATCH):
            part, open_ones = by[first : first + _BATCH], np.flatnonzero(~result)
            these = some[open_ones]
            ok = (kinds.capacity[part] >= kinds.capacity[these][:, None]).all(axis=2)
            ok &= (weights[part] == weights[these][:, None]).all(axis=2)
            pairs = np.nonzero(ok)
            holds = (limit[part[pairs[1]]] >= limit[these[pairs[0]]]).all(axis=1)
            result[open_ones[pairs[0][holds]]] = True
        return result

    for first in range(0, len(order), _BATCH):
        batch = order[first : first + _BATCH]
        for s in batch[~replaceable(batch, others) | needed[batch]].tolist():
            new = others[np.isin(others, batch)]  # the batch was not compared with these
            if not needed[s] and len(new) and replaceable(np.array([s]), new)[0]:
                continue
            useful.append(s)
            if endless[s]:
                others = np.append(others, s)
    result: NDArray[np.intp] = np.array(sorted(useful), dtype=np.intp)
    return result


def candidates(kinds: BinKinds) -> NDArray[np.intp]:
    """Return the numbers of the undominated kinds for which no larger bin replaces several at the same or a lower cost.

    The others rarely pay. Required kinds are always part of the result. This is a hint and no proof: with fewer items
    than several bins would hold, one small bin is cheaper than one large bin, so a bound has to consider the others,
    too.
    """
    needed = kinds.least > 0
    keep = _is_useful(kinds)
    limit = kinds.most.astype(np.int64)
    count = np.minimum(kinds.count, np.iinfo(np.int32).max)
    endless = kinds.available == UNLIMITED
    order = _order_by_cost(kinds)
    rank = np.empty(kinds.size, dtype=np.int64)
    rank[order] = np.arange(kinds.size)
    for s in order.tolist():
        if not keep[s] or needed[s]:
            continue
        better = keep & endless
        better[s] = False
        better &= (kinds.rows == kinds.rows[:, [s]]).all(axis=0)
        others = np.flatnonzero(better)
        times = _count_fitting(kinds.capacity[others], kinds.capacity[s])
        if kinds.rows[:, s].any():
            times = np.minimum(times, 1)
        ok = (times >= 1) & (kinds.cost[others] <= times * kinds.cost[s])
        ok &= (kinds.cost[others] < times * kinds.cost[s]) | (rank[others] < rank[s]) | (times > 1)
        others, times = others[ok], times[ok]
        # For each class, one bin of the other kind must hold as much as several of s.
        holds = limit[others] >= np.minimum(limit[s] * times[:, None], count)
        if holds.all(axis=1).any():
            keep[s] = False
    result: NDArray[np.intp] = np.flatnonzero(keep)
    return result


def _is_useful(kinds: BinKinds) -> NDArray[np.bool_]:
    """Return bool[T]: whether the kind holds items, is required, or balances a row even if it stays empty."""
    balances = (kinds.rows < 0) & np.isfinite(kinds.high)[:, None] | (kinds.rows > 0) & np.isfinite(kinds.low)[:, None]
    useful: NDArray[np.bool_] = kinds.most.any(axis=1) | (kinds.least > 0) | balances.any(axis=0)
    return useful


def _order_by_cost(kinds: BinKinds) -> NDArray[np.intp]:
    """Return the numbers of the kinds, the cheapest first, and of equal cost the largest first."""
    return np.lexsort((np.arange(kinds.size), -kinds.capacity.sum(axis=1), kinds.cost))


def _count_fitting(large: NDArray[np.int64], small: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[n]: how often the bin ``small`` fits into each bin of ``large``, at most :data:`_TIMES`.

    1 if the small bin has no capacity.
    """
    used = small > 0
    if not used.any():
        return np.ones(len(large), dtype=np.int64)
    result: NDArray[np.int64] = np.minimum((large[:, used] // small[used]).min(axis=1), _TIMES)
    return result


_COLUMNS = 1_500  # columns that a dive starts with
_HANDED_ON = 5_000  # columns passed on to the next program


@dataclass(frozen=True, slots=True)
class Budget:
    """Effort for the bound and for the plan (see :class:`~kscale.scheduling.bounds.effort.Effort`), and functions that
    stop each of them by the clock.

    ``tolerance``: relative gap at which the bound is good enough.
    """

    bound: int | None = 1_500_000
    plan: int | None = 1_500_000
    stop_bound: Callable[[], bool] | None = None
    stop_plan: Callable[[], bool] | None = None
    tolerance: float = 2e-4
    prove: bool = True
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of :func:`solve`.

    - ``packed``: one packing per cell, with the kinds of the instance
    - ``proof``: lower bound of the cost, by ``method``
    - ``relaxation``: value of the plan's linear program, 0 without a solver
    - ``effort``: effort spent on (bound, plan); ``stopped``: why each of them stopped
    """

    packed: list[Packed]
    proof: Proof
    method: str
    relaxation: float
    effort: tuple[int, int]
    stopped: tuple[str, str]

    def proving(self, other: Solution) -> Solution:
        """Return ``other`` with this solution's proof, which also holds for a subset of the offers."""
        return replace(other, proof=self.proof, method=self.method)


def solve(kinds: BinKinds, strict: BinKinds, cells: Sequence[Cell], budget: Budget) -> Solution:
    """Compute a packing for each cell and a lower bound of the cost.

    ``kinds``: the instance of the bound. ``strict``: the instance of the plan; one object if they do not differ.
    ``cells``: parts that are packed separately. Without a solver, packs greedily and uses the weaker volume bound.
    """
    bound_effort = Effort(budget.bound, budget.stop_bound)
    plan_effort = Effort(budget.plan, budget.stop_plan)
    cells = [_without_dominated(cell, strict) for cell in cells]
    parts = [cell.restrict(strict) for cell in cells]
    if not have_solver():
        packed = [
            _renumber_kinds(cell, pack_greedily(part, plan_effort)) for cell, part in zip(cells, parts, strict=True)
        ]
        proof = round_to_whole_bins(kinds, volume_bound(kinds))
        return Solution(packed, proof, "volume", 0.0, (0, plan_effort.spent), ("", plan_effort.stopped))
    even = [pack_evenly(part, plan_effort) for part in parts]
    simple = [best_first_fit(Packing(part), part.demand @ resource_prices(part), plan_effort) for part in parts]
    kept_kinds = find_undominated(strict)
    same = strict is kinds
    work = Generation(
        strict.only(kept_kinds),
        bound_effort,
        rare=_find_rare_kinds(strict.only(kept_kinds)),
        tolerance=budget.tolerance,
        prove=same and budget.prove,
        threads=budget.threads,
    )
    work.run()
    columns = _columns(work, kept_kinds)
    proving = _generate_columns(kinds, columns, bound_effort, budget) if budget.prove and not same else work
    packed = []
    for cell, part, *others in zip(cells, parts, simple, even, strict=True):
        known_columns = _select_columns(columns, cell.kinds, strict.size)
        packed.append(
            _renumber_kinds(cell, _dive(part, known_columns, [item for item in others if item], plan_effort, budget))
        )
    proof, method = _best_proof(kinds, proving)
    return Solution(
        packed,
        proof,
        method,
        work.objective,
        (bound_effort.spent, plan_effort.spent),
        (bound_effort.stopped, plan_effort.stopped),
    )


def prove_least_cost(kinds: BinKinds, budget: Budget) -> Proof:
    """Return a proof of the minimum cost of bins for all items, without searching for a packing."""
    if not have_solver():
        return round_to_whole_bins(kinds, volume_bound(kinds))
    none = np.zeros(0, dtype=np.intp), np.zeros((0, kinds.classes), dtype=np.int64)
    return _best_proof(kinds, _generate_columns(kinds, none, Effort(budget.bound, budget.stop_bound), budget))[0]


def _best_proof(kinds: BinKinds, work: Generation) -> tuple[Proof, str]:
    """Return the better proof of column generation and of resource prices, with the name of its method."""
    proof = work.proof and round_to_whole_bins(work.kinds, work.proof)
    if proof is not None and work.complete:  # resource prices rarely prove more than the tolerance
        return proof, "column_generation"
    volume = round_to_whole_bins(kinds, _bound_by_resources(kinds))
    return (volume, "volume") if proof is None or proof.value < volume.value else (proof, "column_generation")


def _bound_by_resources(kinds: BinKinds) -> Proof:
    """Return the better bound by resource prices: the same prices for all kinds, or separate prices per kind."""
    shared = volume_bound(kinds)
    per_kind = Fluid(kinds).bound() if Fluid.small(kinds) else None
    return shared if per_kind is None or per_kind.value < shared.value else per_kind


def _columns(work: Generation, kinds: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return (kind int64[n], content int64[n, K]) of every generated filling, the most useful first.

    ``kinds``: the number among all kinds of each kind of ``work``.
    """
    master = work.master
    if work.solved is None or not master.kind:
        return np.zeros(0, dtype=np.intp), np.zeros((0, master.kinds.classes), dtype=np.int64)
    order = master.rank_columns(work.solved)
    return kinds[np.array(master.kind, dtype=np.intp)[order]], np.array(master.pattern, dtype=np.int64)[order]


def _select_columns(
    columns: tuple[NDArray[np.intp], NDArray[np.int64]], kinds: NDArray[np.intp], size: int
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the first of ``columns`` (kind, content), sorted by use, whose kind is in ``kinds``.

    At most :data:`_HANDED_ON` columns are returned. ``size`` is the number of all kinds. The kinds of the result are
    positions in ``kinds``.
    """
    place = np.full(size, -1, dtype=np.intp)
    place[kinds] = np.arange(len(kinds))
    selected = np.flatnonzero(place[columns[0]] >= 0)[:_HANDED_ON]
    return place[columns[0][selected]], columns[1][selected]


def _generate_columns(
    kinds: BinKinds, columns: tuple[NDArray[np.intp], NDArray[np.int64]], effort: Effort, budget: Budget
) -> Generation:
    """Run column generation for the bound's instance, starting with ``columns`` (kind, content) of the plan."""
    needed = find_undominated(kinds)
    work = Generation(
        kinds.only(needed),
        effort,
        rare=_find_rare_kinds(kinds.only(needed)),
        tolerance=budget.tolerance,
        known=_select_columns(columns, needed, kinds.size),
        threads=budget.threads,
    )
    work.run()
    return work


def _without_dominated(cell: Cell, kinds: BinKinds) -> Cell:
    """Return a cell without the kinds of bins that no cheapest packing of the cell needs."""
    needed = find_undominated(cell.restrict(kinds))
    return replace(cell, kinds=cell.kinds[needed], available=cell.available[needed])


def _find_rare_kinds(kinds: BinKinds) -> NDArray[np.bool_]:
    """Return bool[T]: whether the kind rarely pays, as a hint for the search. True for all but :func:`candidates`."""
    mask = np.ones(kinds.size, dtype=bool)
    mask[candidates(kinds)] = False
    return mask


def _renumber_kinds(cell: Cell, packed: Packed) -> Packed:
    """Return a cell's packing with the numbers that its kinds have in the whole instance."""
    return replace(packed, kind=cell.kinds[packed.kind].astype(np.int64))


def _dive(
    part: BinKinds,
    known: tuple[NDArray[np.intp], NDArray[np.int64]],
    others: Sequence[Packed],
    effort: Effort,
    budget: Budget,
) -> Packed:
    """Return the best of a dive from the columns ``known``, of ``others``, and of an integer program over them."""
    if not part.count.any():
        return Packing(part).merge_equal_bins()
    master = Master(part)
    limit = np.minimum(part.most, part.count)
    with np.errstate(divide="ignore"):
        per_item = np.where(limit > 0, part.cost[:, None] / np.maximum(limit, 1), np.inf)
    best = np.argmin(per_item, axis=0)
    classes = np.flatnonzero(part.count)
    alone = np.zeros((len(classes), part.classes), dtype=np.int64)
    alone[np.arange(len(classes)), classes] = limit[best[classes], classes]
    master.add(best[classes], alone)
    master.add(*known)
    master = master.reduce_columns(_COLUMNS)
    packed = dive(part, master, effort, threads=budget.threads)
    for other in others:
        if other.is_better_than(packed, part):
            packed = other
    return cheaper(part, master, packed, effort)


_EFFORT = 10_000  # effort for the evaluation of one set of types
_ALONE = 5  # number of types considered because they are cheap alone
_CANDIDATES = 10
_ALTERNATIVES = 3  # sets of one size that are worth a plan of their own
_WORTH_A_PLAN = 1.15  # such a set's value at most, relative to the best value


def choose_few_types(
    kinds: BinKinds, type_of: Sequence[str | None], used: Sequence[str], must: frozenset[str], most: int, threads: int
) -> list[list[frozenset[str]]]:
    """Choose sets of types to plan with: a list for each size, with the most promising set first.

    Each size adds one of at most ten candidates to the best set of the size before, up to ``most`` types. Sets are
    compared by a cost that counts fractions of nodes. A list therefore has alternatives, which may cost less in
    integral numbers of nodes. The lists are in ascending order of size.

    ``type_of``: type of each kind of bins (None = existing nodes); ``used``: types of an unrestricted plan, the most
    important first; ``must``: types that are in every set.
    """
    names = np.array([name or "" for name in type_of])
    cost = _estimate_costs_alone(kinds)
    by_type = {name: float(cost[names == name].min()) for name in dict.fromkeys(names.tolist()) if name}
    good = sorted(by_type, key=lambda name: (by_type[name], name))[:_ALONE]
    candidates = [name for name in dict.fromkeys([*used, *good]) if name not in must][:_CANDIDATES]
    chosen = must
    sets = [[chosen]] if chosen else []
    while candidates and len(chosen) < most:
        values = [_estimate_cost(kinds, _select_kinds(names, chosen | {name}), threads) for name in candidates]
        order = np.argsort(values, kind="stable")[:_ALTERNATIVES].tolist()
        worth = [at for at in order if values[at] <= _WORTH_A_PLAN * values[order[0]]]
        sets.append([chosen | {candidates[at]} for at in worth])
        chosen = chosen | {candidates.pop(order[0])}
    return sets


def _estimate_costs_alone(kinds: BinKinds) -> NDArray[np.float64]:
    """Return float64[T]: the cost if all bins had one kind and no class shared a bin.

    A class that the kind does not hold adds a high cost.
    """
    limit = np.minimum(kinds.most, kinds.count).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_item = np.where(limit > 0, kinds.cost[:, None] / limit, 1e3 * float(kinds.cost.max(initial=1)))
    total: NDArray[np.float64] = per_item @ kinds.count
    return total


def _select_kinds(names: NDArray[np.str_], types: frozenset[str]) -> NDArray[np.intp]:
    """Return the numbers of the kinds of these types, and of existing nodes.

    ``names``: type of each kind, empty: existing.
    """
    result: NDArray[np.intp] = np.flatnonzero(np.isin(names, ["", *types]))
    return result


def _estimate_cost(kinds: BinKinds, members: NDArray[np.intp], threads: int) -> float:
    """Estimate the cost of all items in bins of the kinds ``members``; each item that fits none adds a high cost."""
    part = kinds.only(members)
    if have_solver():
        work = Generation(part, Effort(_EFFORT), prove=False, threads=threads)
        work.run()
        return work.objective
    unplaceable = int(part.count[~part.most.any(axis=0)].sum()) if part.size else int(part.count.sum())
    return volume_bound(part).value + 1e3 * float(kinds.cost.max(initial=1)) * unplaceable
