"""Kinds of bins that no cheapest packing needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.bounds.kinds import UNLIMITED, BinKinds

__all__ = ["candidates", "undominated"]

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
