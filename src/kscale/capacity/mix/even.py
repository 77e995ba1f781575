"""Bins that are filled evenly: so many of each kind as items would need if they could flow, then every item where it
weighs least.

Diving fills one bin after the other as well as it goes, which is best where items are large. Where a bin holds many,
all bins may come to hold nearly the same mixture, and then next to nothing is lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.greedy import fill
from kscale.capacity.mix.packing import Packed, Packing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.fluid import Flow, Fluid
from kscale.scheduling.bounds.kinds import BinKinds

__all__ = ["evenly"]

_FLOWS = 5  # numbers of bins that are looked at
_TRIES = 4  # orders of placing for each
_POWER = 4  # of the load of a resource: the higher, the more the fullest counts
_COPIES = 4  # times the mean of a class on one bin are looked at together
_TIGHT = 0.5  # share of the places for a class above which it goes first
_KINDS = 12  # with more there are too many numbers of bins to choose from
_PAIRS = 4_000  # of a class and a kind
_PLACES = 20_000_000  # items times bins


def evenly(kinds: BinKinds, effort: Effort) -> Packed | None:
    """The cheapest of a few such packings; None where the instance is too large for it, or nothing was found."""
    if kinds.size > _KINDS or kinds.size * kinds.classes > _PAIRS or not kinds.count.any() or effort.over:
        return None
    fluid = Fluid(kinds)
    count = kinds.count.copy()
    found = None
    for _ in range(_FLOWS):
        flow = fluid.whole(effort, count)
        if flow is None or int(flow.bins.sum()) * int(kinds.count.sum()) > _PLACES:
            break
        trouble = np.zeros(kinds.classes, dtype=np.int64)
        fewest = kinds.count
        for _ in range(_TRIES):
            packed, left = _packed(kinds, flow, trouble, effort)
            if found is None or packed.before(found, kinds):
                found = packed
            if left.sum() < fewest.sum():
                fewest = left
            if not left.any() or effort.over:
                return found
            trouble += left > 0
        # Twice as many more as the last time, of those that found no place.
        count = count + np.maximum(fewest, count - kinds.count) * (fewest > 0)
    return found


def _packed(
    kinds: BinKinds, flow: Flow, trouble: NDArray[np.int64], effort: Effort
) -> tuple[Packed, NDArray[np.int64]]:
    """(the packing, int64[K]: items that needed other bins). ``trouble`` int64[K]: what goes first."""
    bins = _Bins(kinds, np.repeat(np.arange(kinds.size), flow.bins))
    for k in _order(kinds, flow.bins, trouble).tolist():
        left = int(kinds.count[k])
        for t, n in _whole(flow.share[:, k], left):
            left -= bins.put(k, n, bins.kind == t)
        bins.put(k, left, np.ones(len(bins.kind), dtype=bool))
    effort.spend(kinds.classes * (50 + len(bins.kind) / 4))
    packing = Packing(kinds)
    for kind, pattern in zip(bins.kind.tolist(), bins.pattern, strict=True):
        if pattern.any():
            cheapest = packing.cheapest(pattern, kind) if kinds.cost[kind] else kind
            packing.put(cheapest if cheapest >= 0 else kind, pattern, 1)
    left_out = packing.rest.copy()
    fill(packing, kinds.demand @ (1.0 / np.maximum(kinds.capacity.max(axis=0), 1)), effort)
    return packing.packed(), left_out


def _order(kinds: BinKinds, bins: NDArray[np.int64], trouble: NDArray[np.int64]) -> NDArray[np.intp]:
    """The classes in the order of placing: those that found no place before, those with few places, the largest."""
    there = np.flatnonzero(bins)
    room = np.maximum(kinds.capacity[there], 1)
    size = np.array([float((row / room).max(axis=1).min(initial=np.inf)) for row in kinds.demand])
    places = bins[there] @ kinds.most[there].astype(np.int64)
    roomy = kinds.count <= _TIGHT * places
    order = np.lexsort((np.arange(kinds.classes), -size, roomy, -trouble))
    return order[kinds.count[order] > 0]


def _whole(share: NDArray[np.float64], count: int) -> list[tuple[int, int]]:
    """How many of ``count`` items go into which kinds of bins: shares, rounded, the largest parts up."""
    total = float(share.sum())
    if total <= 0:
        return []
    exact = share * (count / total)
    whole = np.floor(exact + 1e-9).astype(np.int64)
    up = np.argsort(whole - exact, kind="stable")[: max(0, count - int(whole.sum()))]
    whole[up] += 1
    return [(int(t), int(whole[t])) for t in np.flatnonzero(whole)]


class _Bins:
    """``kind`` int64[N], ``pattern`` int64[N, K]: what they hold by now."""

    def __init__(self, kinds: BinKinds, kind: NDArray[np.int64]) -> None:
        self.kinds, self.kind = kinds, kind
        self.pattern = np.zeros((len(kind), kinds.classes), dtype=np.int64)
        self._free = kinds.capacity[kind]
        self._room = np.maximum(kinds.capacity[kind], 1).astype(np.float64)

    def put(self, k: int, count: int, where: NDArray[np.bool_]) -> int:
        """Up to ``count`` items of a class into some of the bins, each where it weighs least; how many."""
        done = 0
        demand = self.kinds.demand[k]
        used = np.flatnonzero(demand)
        while done < count:
            fits = self.kinds.most[self.kind, k] - self.pattern[:, k]
            if len(used):
                fits = np.minimum(fits, (self._free[:, used] // demand[used]).min(axis=1))
            open_ones = np.flatnonzero(where & (fits > 0))
            if not len(open_ones):
                break
            copies = 1 + _COPIES * -(-(count - done) // len(open_ones))
            step = np.arange(1, copies + 1)
            room = self._room[open_ones][:, used]
            load = 1.0 - self._free[open_ones][:, used] / room
            weight = demand[used] / room
            after = ((load[:, None] + step[:, None] * weight[:, None]) ** _POWER).sum(axis=2)
            before = ((load[:, None] + (step - 1)[:, None] * weight[:, None]) ** _POWER).sum(axis=2)
            burden = np.where(step <= fits[open_ones, None], after - before, np.inf)
            # Column by column: of equal ones the emptier bin, and no bin its second before its first.
            order = np.argsort(burden.T, axis=None, kind="stable")[: count - done]
            order = order[np.isfinite(burden.T.ravel()[order])]
            put = np.bincount(order % len(open_ones), minlength=len(open_ones))
            self.pattern[open_ones, k] += put
            self._free[open_ones] -= put[:, None] * demand
            done += int(put.sum())
        return done
