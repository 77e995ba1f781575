"""From a fractional mix to whole bins: settle what is whole, price again for what is left, and so on (diving)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.greedy import best_first_fit
from kscale.capacity.mix.packing import Packed, Packing
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.kinds import BinKinds
from kscale.scheduling.bounds.master import Master, Solved
from kscale.scheduling.bounds.pricing import relax

__all__ = ["dive"]

_ROUNDS = 4  # of new fillings after each step
_CANDIDATES = 30
_NEARLY = 0.8
_KINDS = 60  # of which new fillings are looked for


def dive(kinds: BinKinds, master: Master, effort: Effort, *, threads: int = 1) -> Packed:
    """Whole bins for all items that the limits allow a bin for; the columns of ``master`` are those of ``kinds``.

    Every bin becomes the cheapest kind that holds what is in it. When the effort is over, what is left is packed
    greedily.
    """
    packing = Packing(kinds)
    solved = master.solve()
    chosen = _promising(master, solved)
    few = kinds.only(chosen)
    while packing.rest.any():
        if not _whole(packing, master, solved) and not _best(packing, master, solved):
            break
        if not packing.rest.any():
            break
        if effort.over:
            break
        master.leave(*packing.left())
        solved = _priced_again(packing, master, chosen, few, effort, threads)
    return best_first_fit(packing, solved.prices, effort)


def _promising(master: Master, solved: Solved) -> NDArray[np.intp]:
    """The kinds with the columns that are in use or nearest to it."""
    kind = np.array(master.kind, dtype=np.intp)
    worth = np.array(master.pattern) @ solved.prices / np.maximum(solved.ask[kind], 1e-300)
    best = np.full(master.kinds.size, -1.0)
    np.maximum.at(best, kind, np.where(solved.values > 0, 2.0, worth))
    found: NDArray[np.intp] = np.sort(np.argsort(-best, kind="stable")[:_KINDS])
    return found


def _whole(packing: Packing, master: Master, solved: Solved) -> bool:
    """Settle the whole parts, the largest first."""
    some = False
    for j in np.argsort(-solved.values, kind="stable").tolist():
        whole = int(solved.values[j] + 1e-9)
        if whole < 1:
            break
        pattern = master.pattern[j]
        own = master.kind[j]
        kind = packing.cheapest(pattern, own) if packing.kinds.cost[own] else own
        some |= kind >= 0 and packing.put(kind, pattern, whole) > 0
    return some


def _best(packing: Packing, master: Master, solved: Solved) -> bool:
    """Settle one bin: the one that is worth most for what it costs, among those of which the program wants some; and
    with it others of which it wants nearly all."""
    scored: list[tuple[float, int, float, NDArray[np.int64]]] = []
    for j in np.argsort(-solved.values, kind="stable")[:_CANDIDATES].tolist():
        if solved.values[j] < 1e-7:
            break
        pattern = np.minimum(master.pattern[j], packing.rest)
        if not pattern.any():
            continue
        kind = packing.cheapest(pattern, master.kind[j])
        if kind < 0:
            continue
        cost = max(float(packing.kinds.cost[kind]), 1e-9)
        score = float(pattern @ solved.prices) / cost * (0.5 + 0.5 * solved.values[j])
        scored.append((score, kind, solved.values[j], pattern))
    scored.sort(key=lambda each: -each[0])
    settled = 0
    for i, (_, kind, value, pattern) in enumerate(scored):
        if i == 0 or value >= _NEARLY:
            settled += packing.put(kind, pattern, 1)
    return settled > 0


def _priced_again(
    packing: Packing, master: Master, chosen: NDArray[np.intp], few: BinKinds, effort: Effort, threads: int
) -> Solved:
    kinds = packing.kinds
    for _ in range(_ROUNDS):
        solved = master.solve()
        effort.spend(300 + len(master.pattern) + solved.iterations * (10 + kinds.classes // 4))
        effort.spend(50 + len(chosen) * (2 + kinds.classes / 8))
        wanted = solved.ask[chosen] * (1.0 + 1e-3)
        relaxed = relax(few, solved.prices, packing.rest, wanted, threads=threads)
        better = np.flatnonzero(relaxed.filling @ solved.prices > wanted)
        if not master.add(chosen[better], relaxed.filling[better]):
            break
    solved = master.solve()
    effort.spend(300 + len(master.pattern) + solved.iterations * (10 + kinds.classes // 4))
    return solved
