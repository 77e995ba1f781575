"""Column generation over bins of several kinds, with a proven bound at every step.

The linear program over all fillings is solved over those known so far; its prices tell which filling would help. Most
of the time a relaxation, rounded, finds one in microseconds. When it finds no more, tables and searches do, exactly,
and what they cannot find they prove not to be there: that is the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import ceil_div
from kscale.scheduling.bounds.kinds import BinKinds
from kscale.scheduling.bounds.master import Master, Solved
from kscale.scheduling.bounds.pricing import Relaxed, Tables, Tier, Values, relax, relax_around, surrogate, tiers
from kscale.scheduling.bounds.proof import Proof, least_cost
from kscale.snapshot.columns import median

__all__ = ["Generation"]

_FEW_NODES = 100_000  # of a search, as long as searches of so many find something
_MOST_NODES = 1_600_000
_HITS = 12  # kinds with a new filling after which the program is solved again
_SMOOTHING = 0.7  # share of the best prices so far in those that are asked about
_CALMING = 0.7  # share of the prices asked about before in the next ones of a single kind: its program's own jump about
_UNITS, _UNITS_OF_ONE = 8_000, 2_500  # of a table: what is lost by rounding has to be searched
_BATCH = 4  # searches at a time
_SWAPS = 6
_SLACK = 0.35  # share of the gap that fillings may be worth too much without being looked for
_FEW_COLUMNS = 30  # new ones of a round, below which it looks harder
_CELLS_A_UNIT = 1_500  # of tables: filled in the time of a unit
_A_NODE = 0.2  # of a search: units
_FEW_FOUND = 3  # new ones of searches, below which those that were given up get more nodes


class Generation:
    """``run`` until the bound is as good as the program gets, ``enough`` says so, or the effort is over.

    ``objective`` is the value of the program over the fillings found (cost, fractional bins), ``proof`` the best bound,
    ``complete`` says that they are within ``tolerance`` of each other. ``integral``: the cost of a packing is a whole
    number (one kind, cost 1), and the bound is as good as it gets when rounding up makes them equal.
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
        """``known``: fillings to start from: kinds int64[N], what they hold int64[N, K]. ``prove``: False = end once
        the relaxations find nothing more, without a bound. ``rare`` bool[T]: kinds that are not searched for fillings
        before a proof needs them; every proof is about these kinds, too."""
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
        self._calm: NDArray[np.float64] | None = None  # those asked about last, of a single kind
        self._nodes = _FEW_NODES
        self._share = _SLACK
        self._tiers: list[Tier] | None = None
        self._memory: dict[bytes, NDArray[np.int32]] = {}  # of the tiers' tables, by their kinds
        self._least = 1e-9 * float(kinds.cost.max(initial=1))
        self._choose(np.ones(kinds.size, dtype=bool) if rare is None else ~rare)

    @property
    def bound(self) -> int:
        """The best proven least cost so far."""
        return self.proof.value if self.proof is not None else 0

    @property
    def objective(self) -> float:
        """The value of the restricted program."""
        return self.solved.objective if self.solved is not None else 0.0

    def run(self) -> None:
        """To the end, see the class."""
        if not self.kinds.count.any() or not self.kinds.size:
            self.solved, self.complete = self._solve(), True
            return
        self._start()
        smoothing = 0.0
        while True:
            solved = self.solved = self._solve()
            added = self._look_calmly(solved)
            if added >= _FEW_COLUMNS and not self.effort.over:
                continue
            prices = solved.prices
            if self._best is not None and smoothing:
                prices = smoothing * self._best + (1.0 - smoothing) * prices
            relaxed, more = self._look(prices, solved)
            added += more
            self._calm = prices if self._integral else None
            if not self._to_prove:
                if not added:
                    return
            elif added < min(_FEW_COLUMNS, self.kinds.size):
                found, given_up = self._exact(prices, relaxed, solved)
                if self._done():
                    break
                added += found
                sharper = self._sharpen(given_up, found)
                if added:
                    smoothing = _SMOOTHING
                elif smoothing:
                    smoothing = 0.0
                elif not sharper:
                    if given_up or self._integral or self._slack(prices) <= self.tolerance / 4:
                        break
                    self._share *= 0.3
            if self.effort.over:
                break
        if self.proof is None:
            self._prove_by_relaxation()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _choose(self, priced: NDArray[np.bool_]) -> None:
        """Set which kinds are searched for fillings at every step."""
        self._priced = priced
        self._numbers, self._others = np.flatnonzero(priced), np.flatnonzero(~priced)
        self._few = self.kinds if priced.all() else self.kinds.only(self._numbers)
        self._rest = self.kinds.only(self._others)

    def _start(self) -> None:
        """Each class by itself, where that is cheapest: a feasible start."""
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
        solved = self.master.solve()
        self.rounds += 1
        self.effort.spend(300 + len(self.master.pattern) + solved.iterations * (10 + self.kinds.classes // 4))
        return solved

    def _look_calmly(self, solved: Solved) -> int:
        """New columns at prices between those asked about last and the program's own, as long as there is no bound."""
        if self._calm is None or self._best is not None:
            return 0
        self._calm = _CALMING * self._calm + (1.0 - _CALMING) * solved.prices
        return self._look(self._calm, solved)[1]

    def _look(self, prices: NDArray[np.float64], solved: Solved) -> tuple[Relaxed, int]:
        """(hints at some prices, how many new columns they gave)."""
        relaxed = self._relax(prices, solved.ask[self._numbers], self._few)
        added = self._add_relaxed(relaxed, solved)
        if added < _FEW_COLUMNS:
            added += self._add_around(prices, relaxed, solved)
        return relaxed, added

    def _relax(self, prices: NDArray[np.float64], ask: NDArray[np.float64], kinds: BinKinds) -> Relaxed:
        """Return the relaxation of some kinds; ``ask`` is theirs."""
        self.effort.spend(50 + kinds.size * (2 + kinds.classes / 8))
        wanted = ask * (1.0 + 0.3 * self.tolerance) + self._least
        return relax(kinds, prices, kinds.count, wanted, swaps=_SWAPS, threads=self.threads)

    def _relax_all(self, prices: NDArray[np.float64], ask: NDArray[np.float64], few: Relaxed | None = None) -> Relaxed:
        """Return the relaxation of every kind. ``few``: that of the kinds searched at every step, if it is known."""
        if few is None:
            few = self._relax(prices, ask[self._numbers], self._few)
        if not len(self._others):
            return few
        order = np.argsort(np.concatenate([self._numbers, self._others]))
        rest = self._relax(prices, ask[self._others], self._rest)
        parts = zip(msgspec.structs.astuple(few), msgspec.structs.astuple(rest), strict=True)
        return Relaxed(*(np.concatenate(pair)[order] for pair in parts))

    def _add_relaxed(self, relaxed: Relaxed, solved: Solved) -> int:
        """New columns of those fillings that help at the program's own prices."""
        worth = relaxed.filling @ solved.prices
        better = np.flatnonzero(worth > solved.ask[self._numbers] * (1.0 + 1e-7) + self._least)
        return self.master.add(self._numbers[better], relaxed.filling[better])

    def _add_around(self, prices: NDArray[np.float64], relaxed: Relaxed, solved: Solved) -> int:
        """The same of fillings that hold a certain class each."""
        kinds = self._few
        self.effort.spend(kinds.classes * (2 + kinds.classes / 8))
        ask = solved.ask[self._numbers]
        kind, fillings = relax_around(kinds, prices, kinds.count, ask, relaxed, threads=self.threads)
        worth = fillings @ solved.prices
        better = np.flatnonzero(worth > ask[kind] * (1.0 + 1e-7) + self._least)
        return self.master.add(self._numbers[kind[better]], fillings[better])

    def _exact(self, prices: NDArray[np.float64], relaxed: Relaxed, solved: Solved) -> tuple[int, list[int]]:
        """Tables, then searches where they leave something open; (columns added, kinds whose search was given up)."""
        kinds = self.kinds
        relaxed = self._relax_all(prices, solved.ask, relaxed)
        values = Values.of(prices, kinds)
        upper = surrogate(kinds, values, relaxed.weight)
        ask = solved.ask * values.one + max(1.0, self._least * values.one)
        if self._tiers is None:
            self._tiers = tiers(kinds, relaxed.weight, _UNITS_OF_ONE if self._integral else _UNITS)
        tier_of = np.zeros(kinds.size, dtype=np.int64)
        for number, tier in enumerate(self._tiers):
            tier_of[tier.kinds] = number
        made: dict[int, Tables] = {}
        tried = np.zeros(kinds.size, dtype=bool)
        found_at_least = max(
            1.0 + self._slack(prices), float((relaxed.worth / (solved.ask + self._least)).max(initial=0.0))
        )
        added, hits = 0, 0
        given_up: list[int] = []
        while hits < _HITS:
            ratio = np.where(tried, 0.0, upper / ask)
            worst = int(np.argmax(ratio))
            if ratio[worst] <= found_at_least * (1.0 + 1e-9):
                break
            number = int(tier_of[worst])
            if number not in made:
                made[number] = self._tables(number, values, relaxed, solved)
                tier = self._tiers[number]
                upper[tier.kinds] = np.minimum(upper[tier.kinds], made[number].upper)
                continue
            tier = self._tiers[number]
            open_ones = np.flatnonzero(~tried[tier.kinds] & (ratio[tier.kinds] > found_at_least * (1.0 + 1e-9)))
            batch = open_ones[np.argsort(-ratio[tier.kinds[open_ones]], kind="stable")][:_BATCH]
            members = tier.kinds[batch]
            at_least = np.floor(ask[members] * found_at_least).astype(np.int64)
            answers = made[number].search(batch.tolist(), at_least, self._nodes, threads=self.threads)
            for t, least, (most, visited, fillings) in zip(members.tolist(), at_least.tolist(), answers, strict=True):
                self.effort.spend(20 + visited * _A_NODE)
                tried[t] = True
                upper[t] = min(int(upper[t]), most)
                best = int(fillings[-1] @ values.value) if len(fillings) else least
                if most > best:
                    given_up.append(t)
                found_at_least = max(found_at_least, best / float(ask[t]))
                helpful = fillings[fillings @ solved.prices > solved.ask[t] * (1.0 + 1e-7)]
                new = self.master.add(np.full(len(helpful), t), helpful)
                added += new
                hits += new > 0
        self._prove(values, upper, solved.duals, prices)
        if len(self._others):
            useful = self._priced.copy()
            useful[self.master.kind] = True
            if useful.sum() > self._priced.sum():
                self._choose(useful)
        return added, given_up

    def _sharpen(self, given_up: list[int], found: int) -> bool:
        """Better means for kinds whose search was given up: finer tables of their own and, where searches ``found``
        few columns, more nodes; whether there were any."""
        assert self._tiers is not None  # made before
        shared = [t for t in given_up if any(t in tier.kinds and len(tier.kinds) > 1 for tier in self._tiers)]
        if shared:
            self._tiers = [part for tier in self._tiers for part in tier.without(self.kinds, shared)]
            kept = {tier.kinds.tobytes() for tier in self._tiers}
            self._memory = {kinds: table for kinds, table in self._memory.items() if kinds in kept}
            return True
        if not given_up or found >= _FEW_FOUND or self._nodes >= _MOST_NODES:
            return False
        self._nodes *= 4
        return True

    def _tables(self, number: int, values: Values, relaxed: Relaxed, solved: Solved) -> Tables:
        """The tables of a tier, around what its most promising kinds would pay for what is priced out."""
        assert self._tiers is not None  # made before
        tier = self._tiers[number]
        promise = (relaxed.upper / (solved.ask + self._least))[tier.kinds]
        near = tier.kinds[np.argsort(-promise, kind="stable")[:6]]
        weight = np.zeros(self.kinds.demand.shape[1])
        for r in tier.priced.tolist():
            some = relaxed.weight[near, r]
            some = some[some > 0]
            weight[r] = median(some) if len(some) else 0.0
        kinds = tier.kinds.tobytes()
        tables = Tables(self.kinds, tier, values, weight, memory=self._memory.get(kinds), threads=self.threads)
        self._memory[kinds] = tables.table
        self.effort.spend(50 + tables.work / _CELLS_A_UNIT)
        return tables

    def _prove(
        self, values: Values, upper: NDArray[np.int64], duals: NDArray[np.float64], prices: NDArray[np.float64]
    ) -> None:
        proof = least_cost(self.kinds, values, upper, duals)
        if self.proof is None or proof.value > self.proof.value:
            self.proof, self._best = proof, prices.copy()

    def _prove_by_relaxation(self) -> None:
        """A bound where there was no time for a better one."""
        solved = self.solved or self._solve()
        relaxed = self._relax_all(solved.prices, solved.ask)
        values = Values.of(solved.prices, self.kinds)
        self._prove(values, surrogate(self.kinds, values, relaxed.weight), solved.duals, solved.prices)

    @property
    def reachable(self) -> int:
        """Of an integral program: nothing beyond this can be proven."""
        # The solver's tolerance decides only when to stop, never what is proven.
        return ceil_div(int(self.objective * 1e6) - 1, 1_000_000)

    def _slack(self, prices: NDArray[np.float64]) -> float:
        """By how much a filling may be worth more than its bin costs without being looked for."""
        if not self._integral:
            gap = self.objective / self.bound - 1.0 if self.bound > 0 else 1.0
            return max(self.tolerance / 4, self._share * min(gap, 0.05))
        worth, reachable = float(self.kinds.count @ prices), self.reachable
        return max(2.0**-23, worth / (reachable - 1) * (1.0 - 1e-8) - 1.0) if reachable > 1 else 1.0

    def _done(self) -> bool:
        if self._enough is not None and self._enough(self.objective, self.bound):
            return True
        if self._integral:
            self.complete = self.bound >= self.reachable
        else:
            self.complete = self.objective <= self.bound * (1.0 + self.tolerance)
        return self.complete
