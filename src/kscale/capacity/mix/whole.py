"""The cheapest whole bins among fillings that are known: an integer program over the columns of a dive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.greedy import fill
from kscale.capacity.mix.packing import Packed, Packing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.kinds import BinKinds
from kscale.scheduling.bounds.master import Master

__all__ = ["cheaper"]

_COLUMNS = 600  # of which a program is still solved in a moment
_NODES = 20  # of the search
_CLOSE = 5e-4  # a plan so close to the linear program is left as it is


def cheaper(kinds: BinKinds, master: Master, packed: Packed, effort: Effort) -> Packed:
    """``packed``, or whole bins of the columns of ``master`` and of ``packed`` that cost less and leave no more items
    out. ``master`` is that of ``kinds``, dived through or not; it is done with afterwards.
    """
    master.leave(kinds.count, kinds.available, kinds.least, kinds.low, kinds.high)
    master.add(packed.kind, packed.pattern)
    cost = packed.cost(kinds)
    lowest = master.solve().objective
    if effort.over or len(master.kind) > _COLUMNS or cost <= lowest * (1.0 + _CLOSE):
        return packed
    copies, nodes = master.integral(_NODES, effort.out_of_time)
    effort.spend(5_000 + nodes * len(master.kind))
    if copies is None:
        return packed
    found = _bins(kinds, master, copies, effort)
    return found if found.before(packed, kinds) else packed


def _bins(kinds: BinKinds, master: Master, copies: NDArray[np.int64], effort: Effort) -> Packed:
    """The bins: items that columns hold more often than there are any are left out of the last ones."""
    packing = Packing(kinds)
    left: list[tuple[int, NDArray[np.int64]]] = []
    for j in np.argsort(-kinds.cost[np.array(master.kind, dtype=np.intp)], kind="stable").tolist():
        kind, pattern, count = master.kind[j], master.pattern[j], int(copies[j])
        count -= packing.put(kind, pattern, count) if count and pattern.any() else 0
        left += [(kind, pattern)] * count if pattern.any() else []
    for kind, pattern in left:
        some = np.minimum(pattern, packing.rest)
        if some.any():
            cheapest = packing.cheapest(some, kind)
            packing.put(cheapest if cheapest >= 0 else kind, some, 1)
    fill(packing, np.ones(kinds.classes), effort)
    return packing.packed()
