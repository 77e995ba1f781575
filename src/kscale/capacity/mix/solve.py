"""The least cost of nodes that hold given shapes, and a packing close to it. Arrays only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.heuristics import (
    best_first_fit,
    cheaper,
    dive,
    evenly,
    packed_greedily,
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

__all__ = ["Budget", "Solution", "candidates", "few_types", "least_cost", "solve", "undominated"]


_TIMES = 4_096  # of a small bin in a large one that are looked at: so many times the highest cost is still an int64


def undominated(kinds: BinKinds) -> NDArray[np.intp]:
    """Return the kinds that no other kind can replace, as int64[n] in ascending order.

    A kind replaces another if it is as cheap, holds as much of everything and may be had without limit. Of equal kinds
    the first stays. A packing of least cost needs no other kinds, so a bound over these holds for all.
    """
    return _kept(kinds, several=False)


def candidates(kinds: BinKinds) -> NDArray[np.intp]:
    """Return the undominated kinds of which several together cost less than one larger bin that holds as much.

    The others rarely pay. This is a hint and no proof: where there are fewer items than several bins would hold, one
    small bin is cheaper than one large bin, so a bound has to look at the others, too.
    """
    return _kept(kinds, several=True)


def _kept(kinds: BinKinds, *, several: bool) -> NDArray[np.intp]:
    needed = kinds.least > 0
    useful = kinds.most.any(axis=1) | needed | (kinds.rows < 0).any(axis=0)  # an empty bin may make up for others
    keep = useful.copy()
    limit = kinds.most.astype(np.int64)
    count = np.minimum(kinds.count, np.iinfo(np.int32).max)
    endless = kinds.available == UNLIMITED
    order = np.lexsort((np.arange(kinds.size), -kinds.capacity.sum(axis=1), kinds.cost))
    rank = np.empty(kinds.size, dtype=np.int64)
    rank[order] = np.arange(kinds.size)
    for s in order.tolist():
        if not keep[s] or needed[s]:
            continue
        better = keep & endless
        better[s] = False
        better &= (kinds.rows == kinds.rows[:, [s]]).all(axis=0)
        others = np.flatnonzero(better)
        times = _times(kinds.capacity[others], kinds.capacity[s])
        if not several or kinds.rows[:, s].any():
            times = np.minimum(times, 1)
        ok = (times >= 1) & (kinds.cost[others] <= times * kinds.cost[s])
        ok &= (kinds.cost[others] < times * kinds.cost[s]) | (rank[others] < rank[s]) | (times > 1)
        others, times = others[ok], times[ok]
        # What some of s hold must go into one of the other, class by class.
        holds = limit[others] >= np.minimum(limit[s] * times[:, None], count)
        if holds.all(axis=1).any():
            keep[s] = False
    found: NDArray[np.intp] = np.flatnonzero(keep)
    return found


def _times(large: NDArray[np.int64], small: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[n]: how many of the small bin fit into each large one, or so many as are enough to compare."""
    used = small > 0
    if not used.any():
        return np.ones(len(large), dtype=np.int64)
    found: NDArray[np.int64] = np.minimum((large[:, used] // small[used]).min(axis=1), _TIMES)
    return found


_COLUMNS = 1_500  # that a dive starts from
_HANDED_ON = 5_000  # columns, from one program to the next


@dataclass(frozen=True, slots=True)
class Budget:
    """Work for the bound and for the plan (see :class:`~kscale.scheduling.bounds.effort.Effort`), and when to end each
    by the clock. ``tolerance``: the bound is good enough."""

    bound: int | None = 1_500_000
    plan: int | None = 1_500_000
    stop_bound: Callable[[], bool] | None = None
    stop_plan: Callable[[], bool] | None = None
    tolerance: float = 2e-4
    prove: bool = True
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Solution:
    """``packed``: one packing for each cell, kinds as in the instance; ``proof`` of the least cost, by ``method``;
    ``relaxation``: the value of the linear program of the plan, 0 without a solver. ``effort``: what the bound and the
    plan took, ``stopped``: why no more."""

    packed: list[Packed]
    proof: Proof
    method: str
    relaxation: float
    effort: tuple[int, int]
    stopped: tuple[str, str]

    def proving(self, other: Solution) -> Solution:
        """Another one with this one's proof: what holds of all offers holds of fewer."""
        return replace(other, proof=self.proof, method=self.method)


def solve(kinds: BinKinds, strict: BinKinds, cells: Sequence[Cell], budget: Budget) -> Solution:
    """``kinds``: the instance of the bound, ``strict`` that of the plan (the same object where nothing differs).
    ``cells``: its parts.
    """
    bound_effort = Effort(budget.bound, budget.stop_bound)
    plan_effort = Effort(budget.plan, budget.stop_plan)
    cells = [_without_dominated(cell, strict) for cell in cells]
    parts = [cell.of(strict) for cell in cells]
    if not have_solver():
        packed = [_within(cell, packed_greedily(part, plan_effort)) for cell, part in zip(cells, parts, strict=True)]
        return Solution(packed, volume_bound(kinds), "volume", 0.0, (0, plan_effort.spent), ("", plan_effort.stopped))
    even = [evenly(part, plan_effort) for part in parts]
    simple = [best_first_fit(Packing(part), part.demand @ resource_prices(part), plan_effort) for part in parts]
    needed = undominated(strict)
    same = strict is kinds
    work = Generation(
        strict.only(needed),
        bound_effort,
        rare=_rare(strict.only(needed)),
        tolerance=budget.tolerance,
        prove=same and budget.prove,
        threads=budget.threads,
    )
    work.run()
    columns = _columns(work, needed)
    proving = _relaxed(kinds, columns, bound_effort, budget) if budget.prove and not same else work
    packed = []
    for cell, part, *others in zip(cells, parts, simple, even, strict=True):
        known = _some(columns, cell.kinds, strict.size)
        packed.append(_within(cell, _dived(part, known, [each for each in others if each], plan_effort, budget)))
    proof, method = _best_proof(kinds, proving)
    return Solution(
        packed,
        proof,
        method,
        work.objective,
        (bound_effort.spent, plan_effort.spent),
        (bound_effort.stopped, plan_effort.stopped),
    )


def least_cost(kinds: BinKinds, budget: Budget) -> Proof:
    """Return a proof of what the bins for all items cost at least, without a search for such bins."""
    if not have_solver():
        return volume_bound(kinds)
    none = np.zeros(0, dtype=np.intp), np.zeros((0, kinds.classes), dtype=np.int64)
    return _best_proof(kinds, _relaxed(kinds, none, Effort(budget.bound, budget.stop_bound), budget))[0]


def _best_proof(kinds: BinKinds, work: Generation) -> tuple[Proof, str]:
    """Return the better of what column generation and prices of resources prove, and which it is."""
    proof = work.proof
    if proof is not None and work.complete:  # no prices of resources prove more than the tolerance
        return proof, "column_generation"
    volume = _by_resources(kinds)
    return (volume, "volume") if proof is None or proof.value < volume.value else (proof, "column_generation")


def _by_resources(kinds: BinKinds) -> Proof:
    """The better of what prices of resources prove: the same for all kinds, or for each kind its own."""
    one = volume_bound(kinds)
    each = Fluid(kinds).bound() if Fluid.small(kinds) else None
    return one if each is None or each.value < one.value else each


def _columns(work: Generation, kinds: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """(kind, what it holds) of every filling that was found, the most useful first. ``kinds``: those it was about."""
    master = work.master
    if work.solved is None or not master.kind:
        return np.zeros(0, dtype=np.intp), np.zeros((0, master.kinds.classes), dtype=np.int64)
    order = master.ranked(work.solved)
    return kinds[np.array(master.kind, dtype=np.intp)[order]], np.array(master.pattern, dtype=np.int64)[order]


def _some(
    columns: tuple[NDArray[np.intp], NDArray[np.int64]], kinds: NDArray[np.intp], size: int
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The most useful columns of some of ``size`` kinds, by their position among these."""
    place = np.full(size, -1, dtype=np.intp)
    place[kinds] = np.arange(len(kinds))
    mine = np.flatnonzero(place[columns[0]] >= 0)[:_HANDED_ON]
    return place[columns[0][mine]], columns[1][mine]


def _relaxed(
    kinds: BinKinds, columns: tuple[NDArray[np.intp], NDArray[np.int64]], effort: Effort, budget: Budget
) -> Generation:
    """The bound's own program, from the fillings of the plan's on."""
    needed = undominated(kinds)
    work = Generation(
        kinds.only(needed),
        effort,
        rare=_rare(kinds.only(needed)),
        tolerance=budget.tolerance,
        known=_some(columns, needed, kinds.size),
        threads=budget.threads,
    )
    work.run()
    return work


def _without_dominated(cell: Cell, kinds: BinKinds) -> Cell:
    """Return a cell without the kinds of bins that no cheapest packing of it needs."""
    needed = undominated(cell.of(kinds))
    return replace(cell, kinds=cell.kinds[needed], available=cell.available[needed])


def _rare(kinds: BinKinds) -> NDArray[np.bool_]:
    """bool[T]: kinds that rarely pay, as a hint for the search."""
    mask = np.ones(kinds.size, dtype=bool)
    mask[candidates(kinds)] = False
    return mask


def _within(cell: Cell, packed: Packed) -> Packed:
    """What was packed into the kinds of a cell, by the numbers of all kinds."""
    return replace(packed, kind=cell.kinds[packed.kind].astype(np.int64))


def _dived(
    part: BinKinds,
    known: tuple[NDArray[np.intp], NDArray[np.int64]],
    others: Sequence[Packed],
    effort: Effort,
    budget: Budget,
) -> Packed:
    """The cheapest of a dive from the columns that are ``known``, of ``others``, and of whole bins of both."""
    if not part.count.any():
        return Packing(part).packed()
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
    master = master.reduced(_COLUMNS)
    packed = dive(part, master, effort, threads=budget.threads)
    for other in others:
        if other.before(packed, part):
            packed = other
    return cheaper(part, master, packed, effort)


_EFFORT = 10_000  # of one look at a set of types
_ALONE = 5  # types that are good by themselves
_CANDIDATES = 10
_ALTERNATIVES = 3  # sets of one size that are worth a plan of their own
_WORTH_A_PLAN = 1.15  # such a set's value at most, relative to the best value


def few_types(
    kinds: BinKinds, type_of: Sequence[str | None], used: Sequence[str], must: frozenset[str], most: int, threads: int
) -> list[list[frozenset[str]]]:
    """Return sets of types to plan with, by size, the most promising set of each size first.

    Each size is the one before with one more type, the last has ``most`` (or all that help). The values that sets are
    compared by count parts of nodes: whole nodes of another set may be cheaper, so that there are alternatives.

    ``type_of`` each kind of bins (None = bins that exist); ``used``: types that a free choice takes, the most important
    first; ``must``: types that are there in any case.
    """
    names = np.array([name or "" for name in type_of])
    cost = _alone(kinds)
    by_type = {name: float(cost[names == name].min()) for name in dict.fromkeys(names.tolist()) if name}
    good = sorted(by_type, key=lambda name: (by_type[name], name))[:_ALONE]
    candidates = [name for name in dict.fromkeys([*used, *good]) if name not in must][:_CANDIDATES]
    chosen = must
    found = [[chosen]] if chosen else []
    while candidates and len(chosen) < most:
        values = [_value(kinds, _members(names, chosen | {name}), threads) for name in candidates]
        order = np.argsort(values, kind="stable")[:_ALTERNATIVES].tolist()
        worth = [at for at in order if values[at] <= _WORTH_A_PLAN * values[order[0]]]
        found.append([chosen | {candidates[at]} for at in worth])
        chosen = chosen | {candidates.pop(order[0])}
    return found


def _alone(kinds: BinKinds) -> NDArray[np.float64]:
    """float64[T]: what bins of one kind would cost if no two classes shared one; items that do not fit are dear."""
    limit = np.minimum(kinds.most, kinds.count).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(limit > 0, kinds.cost[:, None] / limit, 1e3 * float(kinds.cost.max(initial=1)))
    found: NDArray[np.float64] = each @ kinds.count
    return found


def _members(names: NDArray[np.str_], types: frozenset[str]) -> NDArray[np.intp]:
    found: NDArray[np.intp] = np.flatnonzero(np.isin(names, ["", *types]))
    return found


def _value(kinds: BinKinds, members: NDArray[np.intp], threads: int) -> float:
    """About what the items cost in bins of these kinds; those that fit into none are dear."""
    part = kinds.only(members)
    if have_solver():
        work = Generation(part, Effort(_EFFORT), prove=False, threads=threads)
        work.run()
        return work.objective
    homeless = int(part.count[~part.most.any(axis=0)].sum()) if part.size else int(part.count.sum())
    return volume_bound(part).value + 1e3 * float(kinds.cost.max(initial=1)) * homeless
