"""Several methods, the best answer. kscale's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numpy.typing import ArrayLike

from kscale.errors import InputError
from kscale.scheduling.bounds.gilmore_gomory import column_generation_of
from kscale.scheduling.bounds.instance import Bound, Instance
from kscale.scheduling.bounds.martello_toth import l2_of
from kscale.scheduling.bounds.simple import per_class_of, volume_of

__all__ = ["METHODS", "best_bound", "best_bound_of"]

_METHODS: dict[str, Callable[[Instance, int, int | None], Bound]] = {
    "volume": lambda instance, _lower, _upper: volume_of(instance),
    "per_class": lambda instance, _lower, _upper: per_class_of(instance),
    "l2": lambda instance, _lower, _upper: l2_of(instance),
    "column_generation": lambda instance, lower, upper: column_generation_of(instance, lower=lower, upper=upper),
}

METHODS: tuple[str, ...] = tuple(_METHODS)
"""The names of the methods, cheapest first. The last needs the extra [solver]."""


def best_bound(
    demand: ArrayLike,
    count: ArrayLike,
    capacity: ArrayLike,
    max_per_bin: ArrayLike | None = None,
    *,
    methods: Sequence[str] = ("volume", "per_class", "l2"),
    upper: int | None = None,
) -> Bound:
    """The highest bound of ``methods``, tried in the order given; on a tie the earlier method has proved it.

    ``upper``: the bins of a packing that is known. Once a bound reaches it nothing better exists: the rest is skipped.
    Arrays as :meth:`kscale.scheduling.bounds.Instance.of` takes them.
    """
    return best_bound_of(Instance.of(demand, count, capacity, max_per_bin), methods=methods, upper=upper)


def best_bound_of(instance: Instance, *, methods: Sequence[str], upper: int | None = None) -> Bound:
    """:func:`best_bound` of a checked ``instance``. Raises InputError for a method that there is not."""
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
