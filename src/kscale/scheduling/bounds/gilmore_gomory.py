"""The bound of the pattern formulation, by column generation, proven in integers.

P. C. Gilmore and R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 9
(1961): minimise the number of bins over all *patterns* (what one bin may hold), fractionally. Its dual gives every
class a price y >= 0 such that no pattern is worth more than 1; the sum of count * y is then a lower bound. Patterns are
made when they are needed: the most valuable one at given prices is a bounded vector knapsack (native kernel).

The floating-point solver only proposes prices. The proof is made of integers (A. A. Farley, "A note on bounding a class
of linear programming problems", Operations Research 38 (1990)): prices are scaled and rounded to integers Y, the exact
knapsack says that no pattern is worth more than Z, hence ceil(sum(count * Y) / Z) bins are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale._native import _knapsack
from kscale.errors import MissingExtraError, NativeError
from kscale.scheduling.bounds.instance import Bound, Instance, ceil_div

__all__ = ["column_generation", "column_generation_of"]

_KEPT_PATTERNS = 8
_VALUE_BITS = 51  # the kernel wants sum(value * limit) below 2**52
_MOST_SCALE_BITS = 36
_TOLERANCE_BITS = 23  # patterns worth 1 + 2**-23 are what the solver's tolerance of 1e-7 lets pass
_PATIENCE = 10_000  # nodes after which a pricing that has found a pattern stops looking for a better one


def column_generation(
    demand: ArrayLike,
    count: ArrayLike,
    capacity: ArrayLike,
    max_per_bin: ArrayLike | None = None,
    *,
    lower: int = 0,
    upper: int | None = None,
    max_rounds: int = 10_000,
    pricing_nodes: int = 5_000_000,
) -> Bound:
    """The Gilmore-Gomory bound (extra ``[solver]``): the strongest here, and usually the optimum or one below it.

    ``upper``: the bins of a packing that is known; the search ends once the bound reaches it. ``lower``: a bound that
    is known; the search ends, with what it has, once that cannot be surpassed. ``max_rounds`` and ``pricing_nodes``
    (nodes of the branch and bound, all rounds together) limit the work. The bound is proven whatever they are, and
    ``proof["optimal"]`` says whether it is all that the linear program can give.
    ``proof``: ``prices`` int[K] and ``pattern_value`` Z, so that value = ceil(sum(count * prices) / Z).
    """
    instance = Instance.of(demand, count, capacity, max_per_bin)
    return column_generation_of(instance, lower=lower, upper=upper, max_rounds=max_rounds, pricing_nodes=pricing_nodes)


def column_generation_of(
    instance: Instance,
    *,
    lower: int = 0,
    upper: int | None = None,
    max_rounds: int = 10_000,
    pricing_nodes: int = 5_000_000,
) -> Bound:
    """:func:`column_generation` of a checked instance."""
    try:
        import highspy
    except ImportError:
        raise MissingExtraError("the bound by column generation", "solver") from None

    classes = np.flatnonzero(instance.count)
    if not classes.size:
        return Bound(0, "column_generation", {"prices": [0] * len(instance.count), "pattern_value": 1, "optimal": True})
    pricing = _Pricing.of(instance, classes)
    master = _Master(highspy, pricing.count)
    for k, most in enumerate(pricing.limit.tolist()):  # each class on its own: a feasible start
        master.add(np.eye(1, len(classes), k, dtype=np.int64)[0] * most)
    master.add(pricing.greedy())

    best = (-1, np.zeros(len(classes), dtype=np.int64), 1)
    rounds, nodes, reachable, objective = 0, 0, 0, 0.0
    while rounds < max_rounds:
        rounds += 1
        objective, prices = master.solve()
        scaled, one = pricing.scaled(prices)
        numerator = sum(n * y for n, y in zip(pricing.count.tolist(), scaled.tolist(), strict=True))
        # The restricted program's value bounds the full one from above: nothing beyond `reachable` can be proven. The
        # tolerance decides only when to stop, never what is proven.
        reachable = ceil_div(int(objective * 1e6) - 1, 1_000_000)
        if reachable <= max(lower, best[0]):
            break
        # Patterns worth so little that they leave `reachable` proven are not looked for.
        at_least = max(one + (one >> _TOLERANCE_BITS), (numerator - 1) // (reachable - 1) if reachable > 1 else 0)
        found = pricing.solve(scaled, at_least, max(pricing_nodes - nodes, 0))
        nodes += found.nodes
        if (value := ceil_div(numerator, found.upper)) > best[0]:
            best = (value, scaled, found.upper)
        if best[0] >= reachable or (upper is not None and best[0] >= upper):
            break
        if not sum(master.add(pattern) for pattern in found.patterns):
            break
    value, scaled, pattern_value = best
    all_prices = np.zeros(len(instance.count), dtype=np.int64)
    all_prices[classes] = scaled
    proof: dict[str, Any] = {
        "prices": all_prices.tolist(),
        "pattern_value": pattern_value,
        "optimal": value >= reachable > 0,
        "linear_program": objective,
        "rounds": rounds,
        "patterns": master.columns,
        "pricing_nodes": nodes,
    }
    return Bound(max(value, 1), "column_generation", proof)


@dataclass(frozen=True, slots=True)
class _Priced:
    upper: int
    nodes: int
    patterns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Pricing:
    """The knapsack of one bin over the classes that have items."""

    demand: NDArray[np.int64]
    count: NDArray[np.int64]
    capacity: NDArray[np.int64]
    limit: NDArray[np.int64]

    @classmethod
    def of(cls, instance: Instance, classes: NDArray[np.intp]) -> _Pricing:
        sizes, limit = instance.demand[classes], instance.limit[classes]
        # A resource that a bin cannot run out of constrains nothing.
        needed = (sizes.astype(object) * limit[:, None].astype(object)).sum(axis=0) > instance.capacity
        binding = np.flatnonzero(needed) if needed.any() else np.array([0])
        return cls(np.ascontiguousarray(sizes[:, binding]), instance.count[classes], instance.capacity[binding], limit)

    def scaled(self, prices: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
        """The prices as integers, and what price 1 is: as fine as the kernel's range allows."""
        clipped = np.clip(prices, 0.0, 1.0)
        total = float(clipped @ self.limit)
        bits = min(_MOST_SCALE_BITS, _VALUE_BITS - max(0, int(np.ceil(np.log2(total + 1.0)))))
        return np.floor(clipped * 2.0**bits).astype(np.int64), 1 << bits

    def solve(self, value: NDArray[np.int64], at_least: int, node_limit: int) -> _Priced:
        """Patterns worth more than ``at_least``, if there are any."""
        _, upper, nodes, patterns = _knapsack.solve(
            value,
            self.demand,
            self.limit,
            self.capacity,
            self._multipliers(value),
            at_least=at_least,
            node_limit=node_limit,
            patience=_PATIENCE,
            keep=_KEPT_PATTERNS,
        )
        return _Priced(upper, nodes, patterns)

    def greedy(self) -> NDArray[np.int64]:
        """A full bin: the classes in order, as many of each as fit."""
        rest = self.capacity.copy()
        pattern = np.zeros(len(self.count), dtype=np.int64)
        for k, size in enumerate(self.demand):
            used = size > 0
            most = int(min(self.limit[k], np.min(rest[used] // size[used], initial=self.limit[k])))
            pattern[k] = most
            rest -= most * size
        return pattern

    def _multipliers(self, value: NDArray[np.int64]) -> NDArray[np.float64]:
        """Surrogate constraints for the branch and bound: the dual of the continuous knapsack, then each resource."""
        share = self.demand / np.maximum(self.capacity, 1)
        weights = np.full(len(self.capacity), 1.0 / len(self.capacity))
        # Multiplicative weights: forty greedy answers, each resource gaining weight by how much it is overrun.
        best, least = weights, np.inf
        for step in range(1, 41):
            surrogate = np.maximum(share @ weights, 1e-12)
            order = np.argsort(-value / surrogate, kind="stable")
            all_of_it = (surrogate * self.limit)[order]
            before = np.cumsum(all_of_it) - all_of_it
            taken = np.zeros(len(value))
            taken[order] = np.clip((1.0 - before) / all_of_it, 0.0, 1.0) * self.limit[order]
            objective = float(value @ taken)
            if objective < least:
                best, least = weights, objective
            overrun = np.clip(taken @ share - 1.0, -1.0, 10.0)
            weights = weights * np.exp(overrun / (1.0 + step**0.5))
            weights = weights / weights.sum()
        rows = np.vstack([best, np.eye(len(self.capacity))])
        return np.ascontiguousarray(rows / np.maximum(self.capacity, 1))


class _Master:
    """The restricted linear program: minimise the bins, every class covered by the patterns known so far."""

    def __init__(self, highspy: Any, count: NDArray[np.int64]) -> None:
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        # Simplex: a vertex has integral prices more often, and the next solve starts from it. The number of threads is
        # left alone: HiGHS has one pool for the process and refuses another number.
        self._highs.setOptionValue("solver", "simplex")
        self._optimal = highspy.HighsModelStatus.kOptimal
        self._infinity = highspy.kHighsInf
        for n in count.tolist():
            self._highs.addRow(float(n), self._infinity, 0, [], [])
        self._known: set[bytes] = set()

    @property
    def columns(self) -> int:
        return len(self._known)

    def add(self, pattern: NDArray[np.int64]) -> bool:
        """Add a pattern; False if it is empty or known."""
        key = pattern.tobytes()
        rows = np.flatnonzero(pattern)
        if key in self._known or not rows.size:
            return False
        self._known.add(key)
        self._highs.addCol(1.0, 0.0, self._infinity, len(rows), rows.astype(np.int32), pattern[rows].astype(np.float64))
        return True

    def solve(self) -> tuple[float, NDArray[np.float64]]:
        """The value of the restricted program and its prices."""
        self._highs.run()
        if self._highs.getModelStatus() != self._optimal:
            raise NativeError(f"HiGHS gave up: {self._highs.modelStatusToString(self._highs.getModelStatus())}")
        objective = float(self._highs.getInfo().objective_function_value)
        return objective, np.asarray(self._highs.getSolution().row_dual, dtype=np.float64)
