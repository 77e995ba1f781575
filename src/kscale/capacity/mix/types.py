"""Few types instead of many: which ones, by adding the type that lowers the cost most, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.greedy import volume_bound
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.generation import Generation
from kscale.scheduling.bounds.kinds import BinKinds
from kscale.scheduling.bounds.master import have_solver

__all__ = ["few_types"]

_EFFORT = 10_000  # of one look at a set of types
_ALONE = 5  # types that are good by themselves
_CANDIDATES = 10


def few_types(
    kinds: BinKinds, type_of: Sequence[str | None], used: Sequence[str], must: frozenset[str], most: int, threads: int
) -> list[frozenset[str]]:
    """Sets of types, each the one before with one more, the last with ``most`` (or all that help).

    ``type_of`` each kind of bins (None = bins that exist); ``used``: types that a free choice takes, the most important
    first; ``must``: types that are there in any case.
    """
    names = np.array([name or "" for name in type_of])
    cost = _alone(kinds)
    by_type = {name: float(cost[names == name].min()) for name in dict.fromkeys(names.tolist()) if name}
    good = sorted(by_type, key=lambda name: (by_type[name], name))[:_ALONE]
    candidates = [name for name in dict.fromkeys([*used, *good]) if name not in must][:_CANDIDATES]
    chosen = must
    found = [chosen] if chosen else []
    while candidates and len(chosen) < most:
        values = [_value(kinds, _members(names, chosen | {name}), threads) for name in candidates]
        best = int(np.argmin(values))
        chosen = chosen | {candidates.pop(best)}
        found.append(chosen)
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
