"""Lower bounds for identical bins: total demand, one class, L2 of Martello and Toth, patterns of Gilmore and Gomory,
and the best of them. kscale's own: not in upstream.

S. Martello and P. Toth, "Lower bounds and reduction procedures for the bin packing problem", Discrete Applied
Mathematics 28 (1990). For a threshold a <= C/2, with C the capacity: items larger than C - a share a bin with nothing
of size >= a; items in (C/2, C - a] need a bin each; the items in [a, C/2] fill what those leave and then new bins. L2
is the maximum over the thresholds; only sizes that occur (and 0) need to be tried.

P. C. Gilmore and R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 9
(1961): minimise the number of bins over all *patterns* (what one bin may hold), fractionally. Its dual gives every
class a price y >= 0 such that no pattern is worth more than 1; the sum of count * y is then a lower bound. Patterns are
generated when they are needed (:mod:`~kscale.scheduling.bounds.mixed_bins`).

The floating-point solver only proposes prices. The proof uses integers only (:mod:`~kscale.scheduling.bounds.pricing`):
prices are scaled and rounded to integers Y, no pattern is worth more than Z, hence ceil(sum(count * Y) / Z) bins are
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.errors import InputError, MissingExtraError
from kscale.objects.argument_types import typed
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import BinKinds, Bound, Instance, ceil_div, int64
from kscale.scheduling.bounds.master import have_solver

__all__ = [
    "METHODS",
    "best_bound",
    "best_bound_of",
    "column_generation",
    "column_generation_of",
    "l2",
    "l2_of",
    "per_class",
    "per_class_of",
    "volume",
    "volume_of",
]


@typed
def volume(demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None) -> Bound:
    """Return the bound by total demand: the maximum over the resources of total demand / capacity, rounded up.

    Parameters
    ----------
    demand, count, capacity, max_per_bin : array_like of int
        As :meth:`kscale.scheduling.bounds.Instance.of` takes them. ``max_per_bin`` has no effect on the bound.

    Returns
    -------
    Bound
        ``proof``: the resource, its total demand and its capacity; empty if no item uses a resource.

    Raises
    ------
    InputError
        If an array is invalid, or an item fits no empty bin.
    """
    return volume_of(Instance.of(demand, count, capacity, max_per_bin))


def volume_of(instance: Instance) -> Bound:
    """Return the :func:`volume` bound of a checked instance."""
    best = Bound(int(instance.count.sum() > 0), "volume")
    for r, capacity in enumerate(instance.capacity.tolist()):
        size, count = instance.totals(r)
        total = int(size @ count) if size.size else 0
        value = ceil_div(total, capacity) if total else 0
        if value > best.value or (value and value == best.value and not best.proof):
            best = Bound(value, "volume", {"resource": r, "total": total, "capacity": capacity})
    return best


@typed
def per_class(demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None) -> Bound:
    """Return the bound by single classes: the maximum number of bins that one class alone needs.

    Parameters
    ----------
    demand, count, capacity, max_per_bin : array_like of int
        As :meth:`kscale.scheduling.bounds.Instance.of` takes them.

    Returns
    -------
    Bound
        ``proof``: the class, its count and how many items one bin holds; empty without items.

    Raises
    ------
    InputError
        If an array is invalid, or an item fits no empty bin.
    """
    return per_class_of(Instance.of(demand, count, capacity, max_per_bin))


def per_class_of(instance: Instance) -> Bound:
    """Return the :func:`per_class` bound of a checked instance."""
    used = np.flatnonzero(instance.count)
    if not used.size:
        return Bound(0, "per_class")
    bins = -(-instance.count[used] // instance.limit[used])
    k = int(used[int(np.argmax(bins))])
    proof = {"class": k, "count": int(instance.count[k]), "per_bin": int(instance.limit[k])}
    return Bound(int(bins.max()), "per_class", proof)


@typed
def l2(demand: ArrayLike, count: ArrayLike, capacity: ArrayLike, max_per_bin: ArrayLike | None = None) -> Bound:
    """Return the maximum over the resources of the one-dimensional L2 bound.

    Never below :func:`~kscale.scheduling.bounds.volume`. Sorts the classes once per resource.

    Parameters
    ----------
    demand, count, capacity, max_per_bin : array_like of int
        As :meth:`kscale.scheduling.bounds.Instance.of` takes them. ``max_per_bin`` has no effect on the bound.

    Returns
    -------
    Bound
        ``proof``: the resource, the threshold and the capacity; empty if no item uses a resource.

    Raises
    ------
    InputError
        If an array is invalid, or an item fits no empty bin.
    """
    return l2_of(Instance.of(demand, count, capacity, max_per_bin))


def l2_of(instance: Instance) -> Bound:
    """Return the :func:`l2` bound of a checked instance."""
    best = Bound(int(instance.count.sum() > 0), "l2")
    for r, capacity in enumerate(instance.capacity.tolist()):
        size, count = instance.totals(r)
        if not size.any():
            continue
        value, threshold = _one_resource(size, count, capacity)
        if value > best.value or (value == best.value and not best.proof):
            best = Bound(value, "l2", {"resource": r, "threshold": threshold, "capacity": capacity})
    return best


def _one_resource(size: NDArray[Any], count: NDArray[Any], capacity: int) -> tuple[int, int]:
    """Return (L2 bound of one resource, the item size that is the threshold at which the bound is reached).

    ``size``, ``count``: demand and number of items of each class; ``capacity``: of one bin.
    """
    order = np.argsort(size, kind="stable")
    sizes, counts = size[order], count[order]
    # items[i], volumes[i]: number and total size of the items before position i, ascending in size.
    zero = np.zeros(1, dtype=sizes.dtype)
    items = np.concatenate([zero, np.cumsum(counts)])
    volumes = np.concatenate([zero, np.cumsum(sizes * counts)])

    half = int(np.searchsorted(sizes, capacity // 2, side="right"))  # first position with 2 * size > capacity
    small = sizes[:half]
    thresholds = np.concatenate([zero, small[small > 0]])
    first = np.searchsorted(sizes, thresholds, side="left")  # first position with size >= threshold
    huge = np.searchsorted(
        sizes, capacity - thresholds, side="right"
    )  # first position with size > capacity - threshold

    large = items[-1] - items[half]  # items that need a bin each, the huge ones included
    middle_room = (items[huge] - items[half]) * capacity - (volumes[huge] - volumes[half])
    excess = volumes[half] - volumes[first] - middle_room
    values = large + np.maximum(0, -(-excess // capacity))
    position = int(np.argmax(values))
    return int(values[position]), int(thresholds[position])


@typed
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
    """Return the Gilmore-Gomory bound (extra ``[solver]``), the strongest one: usually the optimum or one below it.

    Parameters
    ----------
    demand, count, capacity, max_per_bin : array_like of int
        As :meth:`kscale.scheduling.bounds.Instance.of` takes them.
    lower : int
        A known lower bound. Once the search cannot exceed it, the search ends with the bound proven so far.
    upper : int, optional
        Number of bins of a known packing. The search ends once the bound reaches it.
    effort : int, optional
        Limit of work, in units of about a microsecond.
    stop : callable, optional
        Polled regularly; the search ends if it returns True.
    patterns : array_like of int, optional
        Contents of bins to start from, int64[N, K].

    Returns
    -------
    Bound
        The bound is proven even if a limit ends the search. Its ``proof`` has ``prices`` int[K] and ``pattern_value``
        Z, with value = ceil(sum(count * prices) / Z). ``proof["optimal"]``: whether the linear program can give no
        better bound.

    Raises
    ------
    InputError
        If an array is invalid, or an item fits no empty bin.
    MissingExtraError
        If the extra ``[solver]`` is not installed.
    """
    instance = Instance.of(demand, count, capacity, max_per_bin)
    start_patterns = None if patterns is None else int64(patterns, "patterns", 2)
    return column_generation_of(
        instance, lower=lower, upper=upper, effort=Effort(effort, stop), patterns=start_patterns
    )


def column_generation_of(
    instance: Instance,
    *,
    lower: int = 0,
    upper: int | None = None,
    effort: Effort | None = None,
    patterns: NDArray[np.int64] | None = None,
    threads: int = 1,
) -> Bound:
    """Return the :func:`column_generation` bound of a checked ``instance``.

    ``effort``: limit of work and time, in which the work is counted. ``threads``: number of threads. Other parameters
    as for :func:`column_generation`. Raises InputError for ``patterns`` of another shape or that fit no bin, and
    MissingExtraError without the extra ``[solver]``.
    """
    classes = np.flatnonzero(instance.count)
    if not classes.size:
        return Bound(0, "column_generation", {"prices": [0] * len(instance.count), "pattern_value": 1, "optimal": True})
    if not have_solver():
        raise MissingExtraError("the bound by column generation", "solver")
    kinds = BinKinds.one(instance).select_classes(classes)

    def enough(objective: float, bound: int) -> bool:
        """Check whether the bound reaches ``upper``, or cannot surpass ``lower``."""
        return (upper is not None and bound >= upper) or (lower > 0 and objective <= lower + 1e-6)

    from kscale.scheduling.bounds.mixed_bins import Generation  # most calls do not need it

    start = None
    if patterns is not None:
        chosen = patterns[:, classes]
        fits = (chosen <= kinds.most[0]).all() and (chosen @ kinds.demand <= kinds.capacity[0]).all()
        if patterns.shape[1] != len(instance.count) or not fits:
            raise InputError(
                "patterns: one row per known bin expected, with the number of items of each class that fit it together"
            )
        start = np.zeros(len(chosen), dtype=np.int64), chosen
    work = Generation(kinds, effort or Effort(), integral=True, enough=enough, known=start, threads=threads)
    work.run()
    proof = work.proof
    assert proof is not None  # every run ends with a proof
    prices = np.zeros(len(instance.count), dtype=np.int64)
    prices[classes] = proof.prices
    details: dict[str, Any] = {
        "prices": prices.tolist(),
        "pattern_value": max(int(proof.upper[0]), proof.scale),
        "optimal": work.bound >= work.reachable,
        "linear_program": work.objective,
        "rounds": work.rounds,
        "patterns": len(work.master.pattern),
        "effort": work.effort.spent,
    }
    return Bound(max(work.bound, 1), "column_generation", details)


_METHODS: dict[str, Callable[[Instance, int, int | None], Bound]] = {
    "volume": lambda instance, _lower, _upper: volume_of(instance),
    "per_class": lambda instance, _lower, _upper: per_class_of(instance),
    "l2": lambda instance, _lower, _upper: l2_of(instance),
    "column_generation": lambda instance, lower, upper: column_generation_of(instance, lower=lower, upper=upper),
}

METHODS: tuple[str, ...] = tuple(_METHODS)
"""The names of the methods, cheapest first. The last needs the extra [solver]."""


@typed
def best_bound(
    demand: ArrayLike,
    count: ArrayLike,
    capacity: ArrayLike,
    max_per_bin: ArrayLike | None = None,
    *,
    methods: Sequence[str] = ("volume", "per_class", "l2"),
    upper: int | None = None,
) -> Bound:
    """Return the highest bound of several methods; on a tie that of the earlier method.

    Parameters
    ----------
    demand, count, capacity, max_per_bin : array_like of int
        As :meth:`kscale.scheduling.bounds.Instance.of` takes them.
    methods : sequence of str
        Methods in the order in which they are tried; see ``METHODS``.
    upper : int, optional
        Number of bins of a known packing. Once a bound reaches it, the remaining methods are skipped.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        If an array or a method is invalid, or an item fits no empty bin.
    MissingExtraError
        If ``column_generation`` is tried without the extra ``[solver]``.
    """
    return best_bound_of(Instance.of(demand, count, capacity, max_per_bin), methods=methods, upper=upper)


def best_bound_of(instance: Instance, *, methods: Sequence[str], upper: int | None = None) -> Bound:
    """Return the :func:`best_bound` of a checked ``instance``.

    Raises InputError for an unknown method or without any, and MissingExtraError for ``column_generation`` without the
    extra ``[solver]``.
    """
    unknown = [name for name in methods if name not in _METHODS]
    if unknown or not methods:
        raise InputError(f"bound methods are {', '.join(METHODS)}; not {', '.join(unknown) or 'an empty list'}")
    best: Bound | None = None
    for name in methods:
        bound = _METHODS[name](instance, 0 if best is None else best.value, upper)
        if best is None or bound.value > best.value:
            best = bound
        if upper is not None and best.value >= upper:
            break
    assert best is not None  # methods is not empty
    return best
