"""Packings under construction, and the assignment of pods to the bins of a packing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.check import PlannedPlacement
from kscale.capacity.mix.instance import Instance, Source
from kscale.capacity.mix.offers import Offer
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds

__all__ = ["Packed", "Packing", "assign_pods_to_nodes"]


@dataclass(frozen=True, slots=True)
class Packed:
    """A complete packing: ``kind`` int64[N], ``pattern`` int64[N, K] and ``copies`` int64[N] of its bins; ``missing``
    int64[K] counts items that are in no bin.
    """

    kind: NDArray[np.int64]
    pattern: NDArray[np.int64]
    copies: NDArray[np.int64]
    missing: NDArray[np.int64]

    def cost(self, kinds: BinKinds) -> int:
        """Return the exact cost of all bins, as an int that may exceed int64."""
        return sum(cost * n for cost, n in zip(kinds.cost[self.kind].tolist(), self.copies.tolist(), strict=True))

    def is_better_than(self, other: Packed, kinds: BinKinds) -> bool:
        """Check whether this packing is better: fewer missing items, then a lower cost."""
        return (int(self.missing.sum()), self.cost(kinds)) < (int(other.missing.sum()), other.cost(kinds))


class Packing:
    """The bins fixed so far.

    - ``rest`` int64[K]: items not in a bin yet; ``without_rows``: no row limits the bins
    - ``worth`` float64[T]: what one more bin of each kind would be worth, or None. A bin that costs nothing is worth
      much if there are few of them and they alone hold some items.
    """

    def __init__(self, kinds: BinKinds) -> None:
        self.kinds = kinds
        self.rest = kinds.count.copy()
        self.used = np.zeros(kinds.size, dtype=np.int64)
        self._bins: list[tuple[int, NDArray[np.int64], int]] = []
        self.worth: NDArray[np.float64] | None = None
        self._plain = (kinds.rows >= 0).all(axis=1)  # rows without negative weights: more bins never decrease them
        self.without_rows = self._plain.all() and not np.isfinite(kinds.high).any()

    def copy(self) -> Packing:
        """Return an independent copy."""
        other = Packing(self.kinds)
        other.rest, other.used, other._bins = self.rest.copy(), self.used.copy(), list(self._bins)
        other.worth = self.worth
        return other

    def room(self, kind: int) -> int:
        """Return how many more bins of the kind number ``kind`` are allowed; at least 0.

        Rows in which some kind has a negative weight are ignored: bins of that kind may make up for others.
        """
        kinds = self.kinds
        limit = np.iinfo(np.int64).max
        if kinds.available[kind] != UNLIMITED:
            limit = int(kinds.available[kind] - self.used[kind])
        if not self.without_rows:
            for q in np.flatnonzero(self._plain & (kinds.rows[:, kind] > 0) & np.isfinite(kinds.high)).tolist():
                remaining = int(kinds.high[q]) - int(kinds.rows[q] @ self.used)
                limit = min(limit, remaining // int(kinds.rows[q, kind]))
        return max(0, limit)

    def add_bins(self, kind: int, pattern: NDArray[np.int64], copies: int) -> int:
        """Add up to ``copies`` bins of a kind with the content ``pattern``, as items and allowed bins permit.

        Returns the number of bins added.
        """
        taken = np.flatnonzero(pattern)
        if taken.size:
            copies = min(copies, int((self.rest[taken] // pattern[taken]).min()))
        copies = min(copies, self.room(kind))
        if copies <= 0:
            return 0
        self._bins.append((kind, pattern, copies))
        self.rest = self.rest - copies * pattern
        self.used[kind] += copies
        return copies

    def cheapest(self, pattern: NDArray[np.int64], instead_of: int = -1) -> int:
        """Return the cheapest kind that holds the pattern and of which one more bin is allowed; -1 if there is none.

        ``instead_of``: a kind that the result must replace (-1: none): the result weighs no more in any row, and its
        ``worth`` is no higher.
        """
        fits = self.kinds.can_hold(pattern)
        if instead_of >= 0:
            rows = self.kinds.rows
            fits &= (rows <= rows[:, [instead_of]]).all(axis=0)
            if self.worth is not None:
                fits &= self.worth <= self.worth[instead_of] * (1.0 + 1e-9)
        order = np.flatnonzero(fits)
        for kind in order[np.argsort(self.kinds.cost[order], kind="stable")].tolist():
            if self.room(kind) > 0:
                return int(kind)
        return -1

    def get_remaining(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return what remains as (items, available bins, required bins, lower and upper bounds of the rows).

        int64[K] by class, int64[T] and int64[T] by kind, float64[Q] and float64[Q] by row.
        """
        kinds = self.kinds
        available = np.where(kinds.available == UNLIMITED, UNLIMITED, kinds.available - self.used)
        current = kinds.rows @ self.used
        return self.rest, available, np.maximum(kinds.least - self.used, 0), kinds.low - current, kinds.high - current

    def open_kinds(self) -> NDArray[np.bool_]:
        """Return bool[T]: whether one more bin of the kind is available and breaks no row."""
        kinds = self.kinds
        is_open = (kinds.available == UNLIMITED) | (self.used < kinds.available)
        if not self.without_rows:
            after = (kinds.rows @ self.used)[:, None] + kinds.rows
            is_open &= ~((kinds.rows > 0) & (after > kinds.high[:, None])).any(axis=0)
        return np.asarray(is_open, dtype=np.bool_)

    def _repair_rows(self) -> None:
        """Change bins until every row with negative weights holds, one bin at a time, the cheapest change first.

        A change is a bin of another kind with the same content, or one more bin that stays empty. If there is neither,
        a bin is unpacked. Stops if nothing can be changed.
        """
        rows, cost = self.kinds.rows, self.kinds.cost
        for q in np.flatnonzero(~self._plain).tolist():
            while rows[q] @ self.used > self.kinds.high[q]:
                makes_up = [t for t in np.flatnonzero(rows[q] < 0).tolist() if self.room(t) > 0]
                changes = [(int(cost[t]) / -int(rows[q, t]), -1, t) for t in makes_up]
                for i, (kind, pattern, _) in enumerate(self._bins):
                    if rows[q, kind] <= 0:
                        continue
                    fits = self.kinds.can_hold(pattern) & (rows[q] <= 0)
                    others = [t for t in np.flatnonzero(fits).tolist() if self.room(t) > 0]
                    other = min(others, key=lambda t: int(cost[t]), default=-1)
                    more = int(cost[other] - cost[kind]) if other >= 0 else int(cost.max()) * 1_000
                    changes.append((more / int(rows[q, kind] - min(0, rows[q, other])), i, other))
                if not changes:
                    return
                _, i, other = min(changes)
                if i < 0:
                    self._bins.append((other, np.zeros(self.kinds.classes, dtype=np.int64), 1))
                    self.used[other] += 1
                    continue
                kind, pattern, copies = self._bins[i]
                self._bins[i] = kind, pattern, copies - 1
                self.used[kind] -= 1
                if other >= 0:
                    self._bins.append((other, pattern, 1))
                    self.used[other] += 1
                else:
                    self.rest = self.rest + pattern
                self._bins = [entry for entry in self._bins if entry[2]]

    def merge_equal_bins(self) -> Packed:
        """Return the finished packing, with equal bins merged and empty bins where more are required.

        This packing is changed, too: rows are repaired, and the required bins are added.
        """
        self._repair_rows()
        nothing = np.zeros(self.kinds.classes, dtype=np.int64)
        for kind in np.flatnonzero(self.kinds.least > self.used).tolist():
            self._bins.append((kind, nothing, int(self.kinds.least[kind] - self.used[kind])))
            self.used[kind] = self.kinds.least[kind]
        merged: dict[tuple[int, bytes], int] = {}
        patterns: dict[tuple[int, bytes], NDArray[np.int64]] = {}
        for kind, pattern, copies in self._bins:
            key = kind, pattern.tobytes()
            merged[key] = merged.get(key, 0) + copies
            patterns[key] = pattern
        n = len(merged)
        return Packed(
            np.array([kind for kind, _ in merged], dtype=np.int64),
            np.array([patterns[key] for key in merged], dtype=np.int64).reshape(n, self.kinds.classes),
            np.array(list(merged.values()), dtype=np.int64),
            self.rest.copy(),
        )


def assign_pods_to_nodes(
    instance: Instance,
    packed: list[Packed],
    cell_of: NDArray[np.int64] | None = None,
    sources: Sequence[Mapping[int, Source]] | None = None,
) -> PlannedPlacement:
    """Turn every bin into a node and every item into a pod. ``packed``: the packing of each cell.

    ``cell_of`` int64[n] and ``sources`` override the instance's cells. Of a kind's offers, the one with the fewest
    nodes so far gets the next node. Minimum nodes that no bin uses come last, empty.
    """
    cell_of = instance.cell_of if cell_of is None else cell_of
    sources = instance.sources if sources is None else sources
    existing = len(instance.snapshot.nodes)
    offers = instance.offers
    offer_of: list[int] = []
    node = np.full(len(instance.class_of), -1, dtype=np.int64)
    minimum = [0] * len(offers)  # nodes of each offer that count towards its minimum
    beyond = [0] * len(offers)
    shape = instance.shapes.of_class[instance.class_of]
    for cell, part in enumerate(packed):
        cell_pods = np.flatnonzero(cell_of == cell)
        waiting = _group_by_shape(cell_pods, shape[cell_pods])
        free = {kind: list(source[cell].nodes) for kind, source in enumerate(sources) if cell in source}
        for kind, pattern, copies in zip(part.kind.tolist(), part.pattern, part.copies.tolist(), strict=True):
            source = sources[kind][cell]
            used = minimum if source.minimum else beyond
            for _ in range(copies):
                if source.nodes:
                    node_index = free[kind].pop(0)
                else:
                    offer = _next_offer(offers, source, used)
                    used[offer] += 1
                    node_index = existing + len(offer_of)
                    offer_of.append(offer)
                for s in np.flatnonzero(pattern).tolist():
                    taken = waiting[s][: int(pattern[s])]
                    del waiting[s][: int(pattern[s])]
                    node[taken] = node_index
    for i, used_of_minimum in enumerate(minimum):
        offer_of += [i] * (offers[i].least - used_of_minimum)
    return PlannedPlacement(np.array(offer_of, dtype=np.int64), node)


def _next_offer(offers: Sequence[Offer], source: Source, used: Sequence[int]) -> int:
    """Return the index of the offer for a kind's next node: of those with nodes left, the one with the fewest so far.

    ``used``: number of nodes of each offer so far.
    """

    def is_full(i: int) -> bool:
        """Check whether an offer has no more nodes for this source."""
        offer = offers[i]
        if source.minimum:
            return used[i] >= offer.least
        return offer.most is not None and used[i] >= offer.most - offer.least

    return min(source.offers, key=lambda i: (is_full(i), used[i], i))


def _group_by_shape(pods: NDArray[np.int64], shape: NDArray[np.int64]) -> dict[int, list[int]]:
    """Return the pods (positions) by the number of their shape; ``shape`` has that of each pod."""
    pods_by_shape: dict[int, list[int]] = {}
    for pod, s in zip(pods.tolist(), shape.tolist(), strict=True):
        pods_by_shape.setdefault(s, []).append(pod)
    return pods_by_shape
