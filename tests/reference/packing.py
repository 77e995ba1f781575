"""Slow and obvious answers about packing: optimum by exhaustive search, knapsack by enumeration, L2 by its text."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import product
from operator import mul

__all__ = ["cheapest", "cover", "knapsack", "l2", "optimum", "patterns"]


def patterns(
    demand: Sequence[Sequence[int]], limit: Sequence[int], capacity: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Every content of one bin: how many of each class."""
    if not demand:
        yield ()
        return
    for take in range(limit[0] + 1):
        rest = [room - take * size for room, size in zip(capacity, demand[0], strict=True)]
        if min(rest) < 0:
            return
        for tail in patterns(demand[1:], limit[1:], rest):
            yield (take, *tail)


def knapsack(
    value: Sequence[int], demand: Sequence[Sequence[int]], limit: Sequence[int], capacity: Sequence[int]
) -> int:
    """The value of the most valuable bin."""
    return max(
        sum(v * take for v, take in zip(value, pattern, strict=True)) for pattern in patterns(demand, limit, capacity)
    )


def optimum(
    demand: Sequence[Sequence[int]], count: Sequence[int], capacity: Sequence[int], limit: Sequence[int]
) -> int:
    """The least number of bins, by breadth-first search over what is left to pack."""
    contents = [pattern for pattern in patterns(demand, limit, capacity) if any(pattern)]
    frontier, bins = {tuple(count)}, 0
    while not any(not any(remaining) for remaining in frontier):
        frontier = {
            tuple(max(0, n - take) for n, take in zip(remaining, pattern, strict=True))
            for remaining in frontier
            for pattern in contents
        }
        bins += 1
    return bins


def cheapest(
    demand: Sequence[Sequence[int]],
    count: Sequence[int],
    capacity: Sequence[Sequence[int]],
    cost: Sequence[int],
    limit: Sequence[Sequence[int]],
    available: Sequence[int],
    least: Sequence[int],
    rows: Sequence[tuple[Sequence[int], float]] = (),
) -> int | None:
    """The least cost of bins of several kinds that hold everything, by best-first search; None if there are none.

    ``limit[t][k]``, ``available[t]`` (-1 = without limit), ``least[t]``; ``rows``: weights of the kinds and the most
    that they may sum up to.
    """
    contents = [list(patterns(demand, limit[t], capacity[t])) for t in range(len(cost))]
    start = tuple(count), (0,) * len(cost)
    queue, visited = [(0, start)], set()
    while queue:
        paid, state = heapq.heappop(queue)
        if state in visited:
            continue
        visited.add(state)
        remaining, used = state
        enough = all(n >= m for n, m in zip(used, least, strict=True))
        if not any(remaining) and enough and all(sum(map(mul, row, used)) <= most for row, most in rows):
            return paid
        for t, price in enumerate(cost):
            if used[t] == available[t] or sum(used) > sum(count) + sum(least):
                continue
            more = tuple(n + (t == i) for i, n in enumerate(used))
            for pattern in contents[t]:
                rest = tuple(max(0, n - take) for n, take in zip(remaining, pattern, strict=True))
                if rest != remaining or used[t] < least[t]:
                    heapq.heappush(queue, (paid + price, (rest, more)))
    return None


def cover(missing: int, choices: Sequence[tuple[int, int, int]]) -> int | None:
    """The least cost of bins worth ``missing`` in all, over all combinations; None if all bins are not enough.

    ``choices``: cost, value and number of the bins of each kind.
    """
    numbers = product(*(range(limit + 1) for _, _, limit in choices))
    bought = [list(zip(choices, combination, strict=True)) for combination in numbers]
    costs = [
        sum(cost * n for (cost, _, _), n in bins)
        for bins in bought
        if sum(value * n for (_, value, _), n in bins) >= missing
    ]
    return min(costs, default=None)


def l2(sizes: Sequence[int], capacity: int) -> int:
    """Martello and Toth's L2 over every threshold up to half the capacity, item by item."""
    best = 0
    for a in range(capacity // 2 + 1):
        huge = [w for w in sizes if w > capacity - a]
        large = [w for w in sizes if capacity - a >= w and 2 * w > capacity]
        small = [w for w in sizes if 2 * w <= capacity and w >= a]
        excess = sum(small) - (len(large) * capacity - sum(large))
        best = max(best, len(huge) + len(large) + max(0, -(-excess // capacity)))
    return best
