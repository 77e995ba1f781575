"""Packings under construction, and the pods that each new node gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.check import Planned
from kscale.capacity.mix.instance import Instance, Source
from kscale.capacity.mix.offers import Offer
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds

__all__ = ["Packed", "Packing", "give_out"]


@dataclass(frozen=True, slots=True)
class Packed:
    """Bins: ``kind`` int64[N], ``pattern`` int64[N, K], ``copies`` int64[N]; ``missing`` int64[K]: items in none."""

    kind: NDArray[np.int64]
    pattern: NDArray[np.int64]
    copies: NDArray[np.int64]
    missing: NDArray[np.int64]

    def cost(self, kinds: BinKinds) -> int:
        """Of all bins, exactly: the sum may be more than an int64 holds."""
        return sum(cost * n for cost, n in zip(kinds.cost[self.kind].tolist(), self.copies.tolist(), strict=True))

    def before(self, other: Packed, kinds: BinKinds) -> bool:
        """Whether it is better: fewer items in no bin, then a lower cost."""
        return (int(self.missing.sum()), self.cost(kinds)) < (int(other.missing.sum()), other.cost(kinds))

    def used(self, kinds: BinKinds) -> NDArray[np.int64]:
        """int64[T]: bins of each kind."""
        found = np.zeros(kinds.size, dtype=np.int64)
        np.add.at(found, self.kind, self.copies)
        return found


class Packing:
    """Bins settled so far. ``rest`` int64[K]: items that are not in a bin yet; ``loose``: no row limits anything."""

    def __init__(self, kinds: BinKinds) -> None:
        self.kinds = kinds
        self.rest = kinds.count.copy()
        self.used = np.zeros(kinds.size, dtype=np.int64)
        self._bins: list[tuple[int, NDArray[np.int64], int]] = []
        self._plain = (kinds.rows >= 0).all(axis=1)  # rows that more bins can only fill up
        self.loose = self._plain.all() and not np.isfinite(kinds.high).any()

    def copy(self) -> Packing:
        """Return an independent copy."""
        other = Packing(self.kinds)
        other.rest, other.used, other._bins = self.rest.copy(), self.used.copy(), list(self._bins)
        return other

    def room(self, kind: int) -> int:
        """How many more bins of a kind there may be."""
        kinds = self.kinds
        most = np.iinfo(np.int64).max
        if kinds.available[kind] != UNLIMITED:
            most = int(kinds.available[kind] - self.used[kind])
        if not self.loose:
            for q in np.flatnonzero(self._plain & (kinds.rows[:, kind] > 0) & np.isfinite(kinds.high)).tolist():
                left = int(kinds.high[q]) - int(kinds.rows[q] @ self.used)
                most = min(most, left // int(kinds.rows[q, kind]))
        return max(0, most)

    def put(self, kind: int, pattern: NDArray[np.int64], copies: int) -> int:
        """Settle so many bins, as far as there are items and bins; how many."""
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
        """The cheapest kind of which there is one more and that holds the pattern; -1 = none. ``instead_of`` a kind: it
        takes no more of any row."""
        fits = self.kinds.holds(pattern)
        if instead_of >= 0:
            rows = self.kinds.rows
            fits &= (rows <= rows[:, [instead_of]]).all(axis=0)
        order = np.flatnonzero(fits)
        for kind in order[np.argsort(self.kinds.cost[order], kind="stable")].tolist():
            if self.room(kind) > 0:
                return int(kind)
        return -1

    def left(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """What is left to do: items, bins of each kind, bins that must still come, low and high of the rows."""
        kinds = self.kinds
        there = np.where(kinds.available == UNLIMITED, UNLIMITED, kinds.available - self.used)
        done = kinds.rows @ self.used
        return self.rest, there, np.maximum(kinds.least - self.used, 0), kinds.low - done, kinds.high - done

    def open_kinds(self) -> NDArray[np.bool_]:
        """Return bool[T]: kinds of which there may be one more bin so that every row still holds."""
        kinds = self.kinds
        is_open = (kinds.available == UNLIMITED) | (self.used < kinds.available)
        if not self.loose:
            after = (kinds.rows @ self.used)[:, None] + kinds.rows
            is_open &= ~((kinds.rows > 0) & (after > kinds.high[:, None])).any(axis=0)
        return np.asarray(is_open, dtype=np.bool_)

    def _mend(self) -> None:
        """Make every balance of kinds hold, one bin after the other, the cheapest change first.

        A change is a bin of another kind with the same content, or one more bin that stays empty. What nothing can
        make up for is unpacked.
        """
        rows, cost = self.kinds.rows, self.kinds.cost
        for q in np.flatnonzero(~self._plain).tolist():
            while rows[q] @ self.used > self.kinds.high[q]:
                makes_up = [t for t in np.flatnonzero(rows[q] < 0).tolist() if self.room(t) > 0]
                changes = [(int(cost[t]) / -int(rows[q, t]), -1, t) for t in makes_up]
                for i, (kind, pattern, _) in enumerate(self._bins):
                    if rows[q, kind] <= 0:
                        continue
                    fits = self.kinds.holds(pattern) & (rows[q] <= 0)
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
                self._bins = [each for each in self._bins if each[2]]

    def packed(self) -> Packed:
        """What there is, equal bins together; bins that must be there and hold nothing too."""
        self._mend()
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


def give_out(
    instance: Instance,
    packed: list[Packed],
    cell_of: NDArray[np.int64] | None = None,
    sources: Sequence[Mapping[int, Source]] | None = None,
) -> Planned:
    """Make every bin a node and every item a pod. ``cell_of`` int64[n], ``sources``: other cells than the instance's.

    Of a kind's offers the one with the fewest nodes so far gets the next node. Minimum nodes that no bin uses come
    last, empty.
    """
    cell_of = instance.cell_of if cell_of is None else cell_of
    sources = instance.sources if sources is None else sources
    existing = len(instance.snapshot.nodes)
    offers = instance.offers
    offer_of: list[int] = []
    node = np.full(len(instance.class_of), -1, dtype=np.int64)
    minimum = [0] * len(offers)  # nodes of each offer that count for its minimum
    beyond = [0] * len(offers)
    shape = instance.shapes.of_class[instance.class_of]
    for cell, part in enumerate(packed):
        mine = np.flatnonzero(cell_of == cell)
        waiting = _by_shape(mine, shape[mine])
        free = {kind: list(source[cell].nodes) for kind, source in enumerate(sources) if cell in source}
        for kind, pattern, copies in zip(part.kind.tolist(), part.pattern, part.copies.tolist(), strict=True):
            source = sources[kind][cell]
            used = minimum if source.minimum else beyond
            for _ in range(copies):
                if source.nodes:
                    at = free[kind].pop(0)
                else:
                    offer = _next_offer(offers, source, used)
                    used[offer] += 1
                    at = existing + len(offer_of)
                    offer_of.append(offer)
                for s in np.flatnonzero(pattern).tolist():
                    taken = waiting[s][: int(pattern[s])]
                    del waiting[s][: int(pattern[s])]
                    node[taken] = at
    for i, used_of_minimum in enumerate(minimum):
        offer_of += [i] * (offers[i].least - used_of_minimum)
    return Planned(np.array(offer_of, dtype=np.int64), node)


def _next_offer(offers: Sequence[Offer], source: Source, used: Sequence[int]) -> int:
    """Return the offer that the next node of a kind is from: one that has nodes left, then the one used least."""

    def is_full(i: int) -> bool:
        offer = offers[i]
        if source.minimum:
            return used[i] >= offer.least
        return offer.most is not None and used[i] >= offer.most - offer.least

    return min(source.offers, key=lambda i: (is_full(i), used[i], i))


def _by_shape(pods: NDArray[np.int64], shape: NDArray[np.int64]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pod, s in zip(pods.tolist(), shape.tolist(), strict=True):
        found.setdefault(s, []).append(pod)
    return found
