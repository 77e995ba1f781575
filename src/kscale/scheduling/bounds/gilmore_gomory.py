"""The bound of the pattern formulation, by column generation, proven in integers. kscale's own.

P. C. Gilmore and R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 9
(1961): minimise the number of bins over all *patterns* (what one bin may hold), fractionally. Its dual gives every
class a price y >= 0 such that no pattern is worth more than 1; the sum of count * y is then a lower bound. Patterns are
made when they are needed (:mod:`~kscale.scheduling.bounds.generation`).

The floating-point solver only proposes prices. The proof is made of integers (:mod:`~kscale.scheduling.bounds.proof`):
prices are scaled and rounded to integers Y, no pattern is worth more than Z, hence ceil(sum(count * Y) / Z) bins are
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.errors import InputError, MissingExtraError
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import Bound, Instance, int64
from kscale.scheduling.bounds.kinds import BinKinds
from kscale.scheduling.bounds.master import have_solver

__all__ = ["column_generation", "column_generation_of"]


def column_generation(
    demand: ArrayLike,
    count: ArrayLike,
    capacity: ArrayLike,
    max_per_bin: ArrayLike | None = None,
    *,
    lower: int = 0,
    upper: int | None = None,
    effort: int | None = None,
    stop: Callable[[], bool] | None = None,
    patterns: ArrayLike | None = None,
) -> Bound:
    """The Gilmore-Gomory bound (extra ``[solver]``): the strongest here, and usually the optimum or one below it.

    ``upper``: the bins of a packing that is known; the search ends once the bound reaches it. ``lower``: a bound that
    is known; the search ends, with what it has, once that cannot be surpassed. ``effort`` (units of about a
    microsecond) and ``stop`` (asked now and then, true = time is up) limit the work. The bound is proven whatever they
    are, and ``proof["optimal"]`` says whether it is all that the linear program can give.
    ``patterns`` int[N, K]: what bins of a packing hold, to start from.
    ``proof``: ``prices`` int[K] and ``pattern_value`` Z, so that value = ceil(sum(count * prices) / Z).
    Arrays as :meth:`kscale.scheduling.bounds.Instance.of` takes them.
    """
    instance = Instance.of(demand, count, capacity, max_per_bin)
    known = None if patterns is None else int64(patterns, "patterns", 2)
    return column_generation_of(instance, lower=lower, upper=upper, effort=Effort(effort, stop), patterns=known)


def column_generation_of(
    instance: Instance,
    *,
    lower: int = 0,
    upper: int | None = None,
    effort: Effort | None = None,
    patterns: NDArray[np.int64] | None = None,
    threads: int = 1,
) -> Bound:
    """:func:`column_generation` of a checked ``instance``. Raises InputError for ``patterns`` of another shape or that
    no bin holds, and MissingExtraError without the extra ``[solver]``."""
    classes = np.flatnonzero(instance.count)
    if not classes.size:
        return Bound(0, "column_generation", {"prices": [0] * len(instance.count), "pattern_value": 1, "optimal": True})
    if not have_solver():
        raise MissingExtraError("the bound by column generation", "solver")
    kinds = BinKinds.one(instance).of_classes(classes)

    def enough(objective: float, bound: int) -> bool:
        return (upper is not None and bound >= upper) or (lower > 0 and objective <= lower + 1e-6)

    from kscale.scheduling.bounds.generation import Generation  # most bounds are met without it

    known = None
    if patterns is not None:
        chosen = patterns[:, classes]
        held = (chosen <= kinds.most[0]).all() and (chosen @ kinds.demand <= kinds.capacity[0]).all()
        if patterns.shape[1] != len(instance.count) or not held:
            raise InputError("patterns: one row for each bin that is known, of as many of each class as fit it")
        known = np.zeros(len(chosen), dtype=np.int64), chosen
    work = Generation(kinds, effort or Effort(), integral=True, enough=enough, known=known, threads=threads)
    work.run()
    proof = work.proof
    assert proof is not None  # a run ends with one
    prices = np.zeros(len(instance.count), dtype=np.int64)
    prices[classes] = proof.prices
    details: dict[str, Any] = {
        "prices": prices.tolist(),
        "pattern_value": max(int(proof.upper[0]), proof.one),
        "optimal": work.bound >= work.reachable,
        "linear_program": work.objective,
        "rounds": work.rounds,
        "patterns": len(work.master.pattern),
        "effort": work.effort.spent,
    }
    return Bound(max(work.bound, 1), "column_generation", details)
