"""Column generation over bins of several kinds, with a proven bound at every step.

:class:`Fluid` prices resources kind by kind, so that an item that only expensive kinds can hold is expensive. If items
are small compared to bins, one small linear program proves nearly all that can be proven. With integral bins it
proposes how many bins of each kind may be enough.

:class:`Generation` solves the linear program over all fillings with those known so far. Its prices tell which filling
would help. Usually a rounded relaxation finds one in microseconds. If it finds no more, tables and exact searches
follow; what they do not find is proven not to exist, which gives the bound. ``prove_least_cost`` in ``pricing.py``
computes the bound in integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.imports import library
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds, ceil_div
from kscale.scheduling.bounds.master import Master, Solved, silent_solver
from kscale.scheduling.bounds.pricing import (
    Proof,
    Relaxed,
    Tables,
    Tier,
    Values,
    build_tiers,
    prove_least_cost,
    relax,
    relax_around,
    surrogate,
)
from kscale.snapshot.columns import median

__all__ = ["Flow", "Fluid", "Generation"]


_FLOWS = 40_000  # maximum number of pairs of a class and a kind for which the program takes no noticeable time
_NODES = 50  # node limit of the search for integral bins
_CLOSE = 5e-4  # relative gap at which the search for integral bins ends
_UNPLACED_COST_FACTOR = 1000.0  # cost of an item without a bin, in multiples of the most expensive bin


class Flow(msgspec.Struct, frozen=True):
    """Result of a fluid program. ``share`` float64[T, K]: items of each class in bins of each kind; ``bins``
    int64[T].
    """

    share: NDArray[np.float64]
    bins: NDArray[np.int64]


class Fluid:
    """The fluid relaxation of an instance (extra ``[solver]``): items flow into bins that have capacity for the sum of
    their demands, and for no more items of one class than fit one bin alone.
    """

    def __init__(self, kinds: BinKinds) -> None:
        """Build the linear program. Raises MissingExtraError without the extra ``[solver]``."""
        make = silent_solver()
        highspy = library("highspy", "linear programming")

        self.kinds = kinds
        self._infinity = infinity = highspy.kHighsInf
        self._integer = highspy.HighsVarType.kInteger
        self._optimal = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty)
        positive = kinds.cost[kinds.cost > 0]
        self._scale = 1.0 / median(positive.astype(np.float64)) if len(positive) else 1.0
        self._unit = np.maximum(kinds.capacity.max(axis=0, initial=1), 1).astype(np.float64)
        self._kind, self._class = np.nonzero((kinds.most > 0) & (kinds.count > 0))
        self._highs = highs = make()
        highs.setOptionValue("mip_max_nodes", _NODES)
        highs.setOptionValue("mip_rel_gap", _CLOSE)

        # Rows: items of a class, capacity of a kind, items of a class in one bin of a kind, rows of the instance.
        flows, size, resources = len(self._kind), kinds.size, kinds.demand.shape[1]
        fitting = _count_items_per_bin(kinds)[self._kind, self._class]
        limited = np.flatnonzero(kinds.most[self._kind, self._class] < fitting)
        room = kinds.classes
        limit = room + size * resources
        extra = limit + len(limited)
        low = np.full(extra + len(kinds.rows), -infinity)
        high = np.full(len(low), infinity)
        low[:room] = kinds.count
        high[room:extra] = 0.0
        # The solver's tolerances are absolute, so rows in bytes have to be scaled.
        self._row_scale = 1.0 / np.abs(kinds.rows).max(axis=1, initial=1).astype(np.float64)
        low[extra:] = np.maximum(kinds.low * self._row_scale, -infinity)
        high[extra:] = np.minimum(kinds.high * self._row_scale, infinity)
        none = np.zeros(0, dtype=np.int32)
        highs.addRows(len(low), low, high, 0, np.zeros(len(low), dtype=np.int32), none, np.zeros(0))

        # Columns: bins of each kind, items without a bin, flows.
        first = size + kinds.classes
        kind, resource = np.indices((size, resources)).reshape(2, -1)
        flow, of_flow = np.nonzero(kinds.demand[self._class])
        row, bins = np.nonzero(kinds.rows)
        parts = [
            (kind, room + kind * resources + resource, -(kinds.capacity / self._unit).ravel()),
            (self._kind[limited], limit + np.arange(len(limited)), -kinds.most[self._kind, self._class][limited]),
            (bins, extra + row, kinds.rows[row, bins] * self._row_scale[row]),
            (size + np.arange(kinds.classes), np.arange(kinds.classes), np.ones(kinds.classes)),
            (first + np.arange(flows), self._class, np.ones(flows)),
            (
                first + flow,
                room + self._kind[flow] * resources + of_flow,
                (kinds.demand / self._unit)[self._class[flow], of_flow],
            ),
            (first + limited, limit + np.arange(len(limited)), np.ones(len(limited))),
        ]
        column, row_index, value = (np.concatenate([part[i] for part in parts]) for i in range(3))
        column, row_index, value = column[value != 0], row_index[value != 0], value[value != 0].astype(np.float64)
        order = np.lexsort((row_index, column))
        columns = first + flows
        starts = np.searchsorted(column[order], np.arange(columns)).astype(np.int32)
        cost, least, maximum = np.zeros(columns), np.zeros(columns), np.full(columns, infinity)
        cost[:size] = kinds.cost * self._scale
        cost[size:first] = _UNPLACED_COST_FACTOR * max(1.0, float(cost[:size].max(initial=0.0)))
        least[:size] = kinds.least
        maximum[:size] = np.where(kinds.available == UNLIMITED, infinity, kinds.available)
        highs.addCols(
            columns, cost, least, maximum, len(order), starts, row_index[order].astype(np.int32), value[order]
        )

    @staticmethod
    def small(kinds: BinKinds) -> bool:
        """Check whether the program of ``kinds`` is small enough to be worth solving beside the other bounds."""
        return kinds.size * kinds.classes <= _FLOWS

    def bound(self) -> Proof | None:
        """Solve the program, and return the lower bound that its dual prices prove; None without an optimum."""
        kinds = self.kinds
        self._highs.run()
        if self._highs.getModelStatus() not in self._optimal:
            return None
        duals = np.asarray(self._highs.getSolution().row_dual, dtype=np.float64) / self._scale
        shape = kinds.size, kinds.demand.shape[1]
        prices = np.maximum(duals[: kinds.classes], 0.0)
        of_room = duals[kinds.classes : kinds.classes + shape[0] * shape[1]].reshape(shape)
        weight = np.maximum(-of_room, 0.0) / self._unit
        values = Values.of(prices, kinds)
        of_rows = duals[len(duals) - len(kinds.rows) :] * self._row_scale
        return prove_least_cost(kinds, values, surrogate(kinds, values, weight), of_rows)

    def solve_integral(self, effort: Effort, count: NDArray[np.int64]) -> Flow | None:
        """Return the cheapest flow of items into integral numbers of bins; None if a short search finds none.

        ``count`` int64[K]: items of each class; at least as many flow. The program stays integral afterwards: do not
        call :meth:`bound` after it.
        """
        kinds, highs = self.kinds, self._highs
        for k, n in enumerate(count.tolist()):
            highs.changeRowBounds(k, float(n), self._infinity)
        bins = np.arange(kinds.size, dtype=np.int32)
        highs.changeColsIntegrality(kinds.size, bins, np.full(kinds.size, self._integer))
        highs.run()
        effort.spend(500 + 10 * len(self._kind))
        solution = highs.getSolution()
        if not solution.value_valid:
            return None
        values = np.asarray(solution.col_value, dtype=np.float64)
        share = np.zeros((kinds.size, kinds.classes))
        share[self._kind, self._class] = values[kinds.size + kinds.classes :]
        return Flow(share, np.rint(values[: kinds.size]).astype(np.int64))


def _count_items_per_bin(kinds: BinKinds) -> NDArray[np.int64]:
    """Return how many items of each class alone fit the capacity of a bin of each kind, at most all: int64[T, K]."""
    fitting = np.repeat(kinds.count[None], kinds.size, axis=0)
    for r in range(kinds.demand.shape[1]):
        used = kinds.demand[:, r] > 0
        fitting[:, used] = np.minimum(fitting[:, used], kinds.capacity[:, r, None] // kinds.demand[used, r])
    return fitting


_FEW_NODES = 100_000  # node limit of a search, as long as such searches find something
_MOST_NODES = 1_600_000
_HITS = 12  # number of kinds with a new filling after which the program is solved again
_SMOOTHING = 0.7  # share of the best prices so far in the prices used
_SINGLE_KIND_SMOOTHING = (
    0.7  # share of the prices asked about before in the next ones of a single kind: its program's own jump about
)
_UNITS, _UNITS_OF_ONE = 8_000, 2_500  # units of a table; what rounding loses has to be searched
_BATCH = 4  # number of searches per batch
_SWAPS = 6
_SLACK = 0.35  # share of the gap by which fillings may be too valuable without being searched for
_FEW_COLUMNS = 30  # number of new columns per round below which exact searches start
_CELLS_A_UNIT = 1_500  # table entries filled per unit of effort
_A_NODE = 0.2  # units of effort per node of a search
_FEW_FOUND = 3  # number of columns from searches below which unfinished searches get more nodes


class Generation:
    """Column generation. ``run`` until the bound is as good as the program gets, ``enough`` returns True, or the effort
    is used up.

    ``objective`` is the value of the program over the fillings found (cost, fractional bins), ``proof`` the best bound,
    ``complete`` says that they are within ``tolerance`` of each other. ``integral``: the cost of a packing is an
    integer (one kind, cost 1), and the bound is as good as it gets when rounding up makes them equal.
    """

    def __init__(
        self,
        kinds: BinKinds,
        effort: Effort,
        *,
        tolerance: float = 1e-4,
        integral: bool = False,
        enough: Callable[[float, int], bool] | None = None,
        known: tuple[NDArray[np.integer[Any]], NDArray[np.int64]] | None = None,
        prove: bool = True,
        rare: NDArray[np.bool_] | None = None,
        threads: int = 1,
    ) -> None:
        """Initialise the program with its kinds.

        ``known``: fillings to start from: kinds int64[N], contents int64[N, K]. ``prove``: False = end once the
        relaxations find nothing more, without a bound. ``rare`` bool[T]: kinds that are not searched for fillings
        before a proof needs them; every proof covers these kinds, too.
        """
        self.kinds, self.effort, self.tolerance, self.threads = kinds, effort, tolerance, threads
        self.master = Master(kinds)
        self._integral = integral
        self.proof: Proof | None = None
        self.solved: Solved | None = None
        self.rounds = 0
        self.complete = False
        self._enough = enough
        self._known, self._to_prove = known, prove
        self._best: NDArray[np.float64] | None = None  # the prices of the best bound
        self._smoothed_prices: NDArray[np.float64] | None = None  # the last prices used, with a single kind
        self._nodes = _FEW_NODES
        self._share = _SLACK
        self._tiers: list[Tier] | None = None
        self._memory: dict[bytes, NDArray[np.int32]] = {}  # memory of the tiers' tables, by their kinds
        self._least = 1e-9 * float(kinds.cost.max(initial=1))
        self._set_priced_kinds(np.ones(kinds.size, dtype=bool) if rare is None else ~rare)

    @property
    def bound(self) -> int:
        """Return the best proven lower bound of the cost so far; 0 before the first proof."""
        return self.proof.value if self.proof is not None else 0

    @property
    def objective(self) -> float:
        """Return the objective value of the restricted master program; 0 before it is first solved."""
        return self.solved.objective if self.solved is not None else 0.0

    def run(self) -> None:
        """Run column generation until one of the conditions of the class ends it. The result is in its attributes."""
        if not self.kinds.count.any() or not self.kinds.size:
            self.solved, self.complete = self._solve(), True
            return
        self._start()
        smoothing = 0.0
        while True:
            solved = self.solved = self._solve()
            added = self._search_with_smoothed_prices(solved)
            if added >= _FEW_COLUMNS and not self.effort.is_exhausted:
                continue
            prices = solved.prices
            if self._best is not None and smoothing:
                prices = smoothing * self._best + (1.0 - smoothing) * prices
            relaxed, more = self._relax_and_add(prices, solved)
            added += more
            self._smoothed_prices = prices if self._integral else None
            if not self._to_prove:
                if not added:
                    return
            elif added < min(_FEW_COLUMNS, self.kinds.size):
                new_columns, given_up = self._search_exactly(prices, relaxed, solved)
                if self._is_done():
                    break
                added += new_columns
                sharper = self._sharpen(given_up, new_columns)
                if added:
                    smoothing = _SMOOTHING
                elif smoothing:
                    smoothing = 0.0
                elif not sharper:
                    if given_up or self._integral or self._slack(prices) <= self.tolerance / 4:
                        break
                    self._share *= 0.3
            if self.effort.is_exhausted:
                break
        if self.proof is None:
            self._prove_by_relaxation()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _set_priced_kinds(self, priced: NDArray[np.bool_]) -> None:
        """Set the kinds that are searched for fillings at every step: ``priced`` bool[T]."""
        self._priced = priced
        self._numbers, self._others = np.flatnonzero(priced), np.flatnonzero(~priced)
        self._few = self.kinds if priced.all() else self.kinds.only(self._numbers)
        self._rest = self.kinds.only(self._others)

    def _start(self) -> None:
        """Add a feasible start, which packs each class alone into its cheapest kind, and the known fillings."""
        kinds = self.kinds
        limit = np.minimum(kinds.most, kinds.count)
        with np.errstate(divide="ignore"):
            per_item = np.where(limit > 0, kinds.cost[:, None] / np.maximum(limit, 1), np.inf)
        best = np.argmin(per_item, axis=0)
        classes = np.flatnonzero(kinds.count)
        alone = np.zeros((len(classes), kinds.classes), dtype=np.int64)
        alone[np.arange(len(classes)), classes] = limit[best[classes], classes]
        self.master.add(best[classes], alone)
        if self._known is not None:
            self.master.add(*self._known)

    def _solve(self) -> Solved:
        """Solve the restricted program; count the round and its effort."""
        solved = self.master.solve()
        self.rounds += 1
        self.effort.spend(300 + len(self.master.pattern) + solved.iterations * (10 + self.kinds.classes // 4))
        return solved

    def _search_with_smoothed_prices(self, solved: Solved) -> int:
        """Add columns at prices between the last ones used and those of ``solved``; return how many are new.

        Only for a single kind before the first proof; otherwise nothing is added and the result is 0.
        """
        if self._smoothed_prices is None or self._best is not None:
            return 0
        self._smoothed_prices = (
            _SINGLE_KIND_SMOOTHING * self._smoothed_prices + (1.0 - _SINGLE_KIND_SMOOTHING) * solved.prices
        )
        return self._relax_and_add(self._smoothed_prices, solved)[1]

    def _relax_and_add(self, prices: NDArray[np.float64], solved: Solved) -> tuple[Relaxed, int]:
        """Add fillings from a relaxation at the given prices.

        Returns the relaxation and the number of new columns.
        """
        relaxed = self._relax(prices, solved.ask[self._numbers], self._few)
        added = self._add_relaxed(relaxed, solved)
        if added < _FEW_COLUMNS:
            added += self._add_around(prices, relaxed, solved)
        return relaxed, added

    def _relax(self, prices: NDArray[np.float64], ask: NDArray[np.float64], kinds: BinKinds) -> Relaxed:
        """Return the relaxation of ``kinds`` at given prices of the items.

        ``ask``: cost of a bin of each of ``kinds``, including its share of the constraints' prices.
        """
        self.effort.spend(50 + kinds.size * (2 + kinds.classes / 8))
        wanted = ask * (1.0 + 0.3 * self.tolerance) + self._least
        return relax(kinds, prices, kinds.count, wanted, swaps=_SWAPS, threads=self.threads)

    def _relax_all(self, prices: NDArray[np.float64], ask: NDArray[np.float64], few: Relaxed | None = None) -> Relaxed:
        """Return the relaxation of every kind. ``prices``: of the items; ``ask``: cost of a bin of each kind.

        ``few``: relaxation of the kinds that are searched at every step; None: computed, too.
        """
        if few is None:
            few = self._relax(prices, ask[self._numbers], self._few)
        if not len(self._others):
            return few
        order = np.argsort(np.concatenate([self._numbers, self._others]))
        rest = self._relax(prices, ask[self._others], self._rest)
        parts = zip(msgspec.structs.astuple(few), msgspec.structs.astuple(rest), strict=True)
        return Relaxed(*(np.concatenate(pair)[order] for pair in parts))

    def _add_relaxed(self, relaxed: Relaxed, solved: Solved) -> int:
        """Add the relaxation's fillings that are worth more than their cost in ``solved``; return how many are new."""
        worth = relaxed.filling @ solved.prices
        better = np.flatnonzero(worth > solved.ask[self._numbers] * (1.0 + 1e-7) + self._least)
        return self.master.add(self._numbers[better], relaxed.filling[better])

    def _add_around(self, prices: NDArray[np.float64], relaxed: Relaxed, solved: Solved) -> int:
        """Add, for each class, a filling with an item of the class if it is worth more than its cost in ``solved``.

        ``prices``: of the items; ``relaxed``: the relaxation, which shows the most promising kind for each class.
        Returns how many fillings are new.
        """
        kinds = self._few
        self.effort.spend(kinds.classes * (2 + kinds.classes / 8))
        bin_cost = solved.ask[self._numbers]
        kind, fillings = relax_around(kinds, prices, kinds.count, bin_cost, relaxed, threads=self.threads)
        worth = fillings @ solved.prices
        better = np.flatnonzero(worth > bin_cost[kind] * (1.0 + 1e-7) + self._least)
        return self.master.add(self._numbers[kind[better]], fillings[better])

    def _search_exactly(self, prices: NDArray[np.float64], relaxed: Relaxed, solved: Solved) -> tuple[int, list[int]]:
        """Add fillings from exact searches, and update the proof.

        Tables bound each kind. Kinds for which the tables do not exclude a better filling are searched, the most
        promising ones first, until enough searches have found new columns. Returns (number of columns added, kinds
        whose search was not finished).
        """
        kinds = self.kinds
        relaxed = self._relax_all(prices, solved.ask, relaxed)
        values = Values.of(prices, kinds)
        upper = surrogate(kinds, values, relaxed.weight)
        bin_cost = solved.ask * values.scale + max(1.0, self._least * values.scale)
        if self._tiers is None:
            self._tiers = build_tiers(kinds, relaxed.weight, _UNITS_OF_ONE if self._integral else _UNITS)
        tier_of = np.zeros(kinds.size, dtype=np.int64)
        for number, tier in enumerate(self._tiers):
            tier_of[tier.kinds] = number
        tables: dict[int, Tables] = {}
        tried = np.zeros(kinds.size, dtype=bool)
        found_at_least = max(
            1.0 + self._slack(prices), float((relaxed.worth / (solved.ask + self._least)).max(initial=0.0))
        )
        added, hits = 0, 0
        given_up: list[int] = []
        while hits < _HITS:
            ratio = np.where(tried, 0.0, upper / bin_cost)
            worst = int(np.argmax(ratio))
            if ratio[worst] <= found_at_least * (1.0 + 1e-9):
                break
            number = int(tier_of[worst])
            if number not in tables:
                tables[number] = self._build_tables(number, values, relaxed, solved)
                tier = self._tiers[number]
                upper[tier.kinds] = np.minimum(upper[tier.kinds], tables[number].upper)
                continue
            tier = self._tiers[number]
            open_ones = np.flatnonzero(~tried[tier.kinds] & (ratio[tier.kinds] > found_at_least * (1.0 + 1e-9)))
            batch = open_ones[np.argsort(-ratio[tier.kinds[open_ones]], kind="stable")][:_BATCH]
            members = tier.kinds[batch]
            at_least = np.floor(bin_cost[members] * found_at_least).astype(np.int64)
            answers = tables[number].search(batch.tolist(), at_least, self._nodes, threads=self.threads)
            for t, least, (proven, visited, fillings) in zip(members.tolist(), at_least.tolist(), answers, strict=True):
                self.effort.spend(20 + visited * _A_NODE)
                tried[t] = True
                upper[t] = min(int(upper[t]), proven)
                best = int(fillings[-1] @ values.value) if len(fillings) else least
                if proven > best:
                    given_up.append(t)
                found_at_least = max(found_at_least, best / float(bin_cost[t]))
                helpful = fillings[fillings @ solved.prices > solved.ask[t] * (1.0 + 1e-7)]
                new = self.master.add(np.full(len(helpful), t), helpful)
                added += new
                hits += new > 0
        self._update_proof(values, upper, solved.duals, prices)
        if len(self._others):
            useful = self._priced.copy()
            useful[self.master.kind] = True
            if useful.sum() > self._priced.sum():
                self._set_priced_kinds(useful)
        return added, given_up

    def _sharpen(self, given_up: list[int], new_columns: int) -> bool:
        """Make searches finer for the kinds ``given_up``, whose search was not finished; return whether that changed.

        The kinds get tables of their own. If they have such tables already and there are few ``new_columns``, the node
        limit of all searches is raised.
        """
        assert self._tiers is not None  # set by _search_exactly
        shared = [t for t in given_up if any(t in tier.kinds and len(tier.kinds) > 1 for tier in self._tiers)]
        if shared:
            self._tiers = [part for tier in self._tiers for part in tier.without(self.kinds, shared)]
            current = {tier.kinds.tobytes() for tier in self._tiers}
            self._memory = {kinds: table for kinds, table in self._memory.items() if kinds in current}
            return True
        if not given_up or new_columns >= _FEW_FOUND or self._nodes >= _MOST_NODES:
            return False
        self._nodes *= 4
        return True

    def _build_tables(self, tier_number: int, values: Values, relaxed: Relaxed, solved: Solved) -> Tables:
        """Build the pricing tables of the tier at index ``tier_number``, which hold exact integer prices ``values``.

        Resources are priced by the median of the tier's most promising kinds. The tables are cached for the next call
        with the same kinds.
        """
        assert self._tiers is not None  # set by _search_exactly
        tier = self._tiers[tier_number]
        value_per_cost = (relaxed.upper / (solved.ask + self._least))[tier.kinds]
        nearest = tier.kinds[np.argsort(-value_per_cost, kind="stable")[:6]]
        weight = np.zeros(self.kinds.demand.shape[1])
        for r in tier.priced.tolist():
            some = relaxed.weight[nearest, r]
            some = some[some > 0]
            weight[r] = median(some) if len(some) else 0.0
        kinds = tier.kinds.tobytes()
        tables = Tables(self.kinds, tier, values, weight, memory=self._memory.get(kinds), threads=self.threads)
        self._memory[kinds] = tables.table
        self.effort.spend(50 + tables.work / _CELLS_A_UNIT)
        return tables

    def _update_proof(
        self, values: Values, upper: NDArray[np.int64], duals: NDArray[np.float64], prices: NDArray[np.float64]
    ) -> None:
        """Prove a lower bound of the cost from prices, and store proof and ``prices`` if it is the best so far.

        ``values``: the prices as integers; ``upper``: proven maximum value of one bin of each kind; ``duals``: prices
        of the constraints.
        """
        proof = prove_least_cost(self.kinds, values, upper, duals)
        if self.proof is None or proof.value > self.proof.value:
            self.proof, self._best = proof, prices.copy()

    def _prove_by_relaxation(self) -> None:
        """Store a proof by the relaxation alone, for a search that ended before its first proof."""
        solved = self.solved or self._solve()
        relaxed = self._relax_all(solved.prices, solved.ask)
        values = Values.of(solved.prices, self.kinds)
        self._update_proof(values, surrogate(self.kinds, values, relaxed.weight), solved.duals, solved.prices)

    @property
    def reachable(self) -> int:
        """Return the objective value rounded up: the highest bound that the program can prove for integral costs."""
        # The solver's tolerance decides only when to stop, never what is proven.
        return ceil_div(int(self.objective * 1e6) - 1, 1_000_000)

    def _slack(self, prices: NDArray[np.float64]) -> float:
        """Return the tolerance of the search: fillings worth up to (1 + tolerance) times their cost are ignored."""
        if not self._integral:
            gap = self.objective / self.bound - 1.0 if self.bound > 0 else 1.0
            return max(self.tolerance / 4, self._share * min(gap, 0.05))
        worth, reachable = float(self.kinds.count @ prices), self.reachable
        return max(2.0**-23, worth / (reachable - 1) * (1.0 - 1e-8) - 1.0) if reachable > 1 else 1.0

    def _is_done(self) -> bool:
        """Check whether ``enough`` returns True, or the bound is as good as it can get (which sets ``complete``)."""
        if self._enough is not None and self._enough(self.objective, self.bound):
            return True
        if self._integral:
            self.complete = self.bound >= self.reachable
        else:
            self.complete = self.objective <= self.bound * (1.0 + self.tolerance)
        return self.complete
