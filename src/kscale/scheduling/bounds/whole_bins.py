"""Lower bounds of the cost of whole bins. kscale's own: not in upstream.

A linear program may buy a third of a bin, but bins are whole, and items that are tied to one zone cannot share a bin
with items of another zone. With few bins this makes a large difference: four items of which three fit one bin need two
bins, where the linear program needs one and a third.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds, ceil_div
from kscale.scheduling.bounds.pricing import Proof

__all__ = ["Choice", "bound_cover", "round_to_whole_bins"]

_PAIRS = 2_000_000  # pairs of a class and a kind: larger instances have many bins, so rounding gains little
_BINS = 100  # number of bins of a part above which rounding gains at most a hundredth
_NODES = 2_000  # search nodes of a part
_ALL_NODES = 20_000  # search nodes of all parts together


class Choice(NamedTuple):
    """A kind of bins that can be bought: the cost and the value of one bin, and the maximum number of bins."""

    cost: int
    value: int
    limit: int


def round_to_whole_bins(kinds: BinKinds, proof: Proof) -> Proof:
    """Return the proof, with a higher ``value`` if the prices prove more for whole bins than for fractions of bins.

    The instance is split into parts that share no kind of bins. The bins of a part must be worth at least as much as
    its items, by the proof's prices. The least cost of such bins (:func:`bound_cover`), summed over all parts, is a
    lower bound. The constraints ``kinds.rows`` are ignored, because they could only increase the cost.

    ``kinds``: the instance of the proof. With more than two million pairs of a class and a kind, the proof is returned
    as it is.
    """
    if kinds.size * kinds.classes > _PAIRS:
        return proof
    class_part, kind_part = _split(kinds)
    worth = dict.fromkeys(class_part.tolist(), 0)
    for part, amount in zip(class_part.tolist(), (kinds.count * proof.prices).tolist(), strict=True):
        worth[part] += amount
    members: dict[int, list[int]] = {}
    for t, part in enumerate(kind_part.tolist()):
        members.setdefault(part, []).append(t)
    cost, upper, least = (numbers.tolist() for numbers in (kinds.cost, proof.upper, kinds.least))
    available = np.where(kinds.available == UNLIMITED, np.iinfo(np.int64).max, kinds.available).tolist()
    total = sum(price * number for price, number in zip(cost, least, strict=True))
    nodes = _ALL_NODES
    known: dict[tuple[int, tuple[Choice, ...]], int] = {}
    for part, missing in worth.items():
        usable = members.get(part, ())
        missing -= sum(upper[t] * (least[t] if cost[t] else available[t]) for t in usable)  # paid already, or free
        choices = _find_useful(
            (Choice(cost[t], upper[t], available[t] - least[t]) for t in usable if cost[t] and upper[t]), missing
        )
        if (missing, choices) not in known:
            known[missing, choices], visited = bound_cover(missing, choices, min(nodes, _NODES))
            nodes -= visited
        total += known[missing, choices]
    return msgspec.structs.replace(proof, value=total) if total > proof.value else proof


def _split(kinds: BinKinds) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split the instance into parts: no kind of bins may hold items of two parts.

    Returns (part of each class intp[K], part of each kind intp[T]). A part is named by the number of its first class;
    a class without items is a part of its own, and a kind that holds no items has the part -1.
    """
    holds = (kinds.most > 0) & (kinds.count > 0)
    part = np.arange(kinds.classes)
    while True:
        of_kind = np.where(holds, part, kinds.classes).min(axis=1, initial=kinds.classes)
        joined = np.minimum(part, np.where(holds, of_kind[:, None], kinds.classes).min(axis=0, initial=kinds.classes))
        if (joined == part).all():
            return part, np.where(of_kind < kinds.classes, of_kind, -1)
        part = joined


def _find_useful(choices: Iterable[Choice], missing: int) -> tuple[Choice, ...]:
    """Return the choices sorted by cost, without those that an earlier unlimited choice matches or exceeds in value.

    Values are reduced to at most ``missing``, and limits to the number of bins that reach ``missing``. A choice with
    such a limit counts as unlimited.
    """
    result: list[Choice] = []
    best = 0  # highest value of an unlimited choice so far
    for cost, value, limit in sorted(choices, key=lambda choice: (choice.cost, -choice.value)):
        value = min(value, missing)
        if value <= best or limit <= 0:
            continue
        enough = ceil_div(missing, value)
        result.append(Choice(cost, value, min(limit, enough)))
        if limit >= enough:
            best = value
    return tuple(result)


def bound_cover(missing: int, choices: Iterable[Choice], nodes: int) -> tuple[int, int]:
    """Compute the least cost of bins with a total value of at least ``missing``.

    ``choices``: kinds of bins with a positive cost and value. ``nodes``: maximum number of nodes of the search, which
    visits the nodes with the lowest bound first.

    Returns (cost, number of visited nodes). If the search ends early, the cost is a lower bound of the least cost. It
    is 0 if nothing is missing, without choices, and if all bins together are not enough.
    """
    bins = sorted(choices, key=lambda choice: Fraction(choice.cost, choice.value))
    if missing <= 0 or not bins:
        return 0, 0
    cheapest = [choice.cost for choice in bins]
    for i in range(len(bins) - 2, -1, -1):
        cheapest[i] = min(cheapest[i], cheapest[i + 1])

    def bound(rest: int, first: int) -> int:
        """Return a lower bound of the cost of bins, of the kinds from ``first`` on, that are worth ``rest``."""
        return max(ceil_div(rest * bins[first].cost, bins[first].value), cheapest[first]) if rest > 0 else 0

    if missing > _BINS * max(choice.value for choice in bins):
        return bound(missing, 0), 0
    # Of a node: lower bound, value that is missing, first kind to use, bins of this kind so far, cost so far.
    queue = [(bound(missing, 0), missing, 0, 0, 0)]
    for visited in range(nodes):
        if not queue:
            return 0, visited
        _, rest, first, number, spent = heapq.heappop(queue)
        if rest <= 0:
            return spent, visited
        cost, value, limit = bins[first]
        if number < limit:
            left = rest - value
            heapq.heappush(queue, (spent + cost + bound(left, first), left, first, number + 1, spent + cost))
        if first + 1 < len(bins):
            heapq.heappush(queue, (spent + bound(rest, first + 1), rest, first + 1, 0, spent))
    return (queue[0][0] if queue else 0), nodes
