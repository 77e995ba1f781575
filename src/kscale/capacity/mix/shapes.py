"""From classes of pods and offers to a packing instance: classes that nothing in it tells apart become one *shape*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.mix.rules import Rule
from kscale.scheduling.bounds.kinds import BinKinds

__all__ = ["Limits", "Shapes", "shapes_of"]

_MOST_RESOURCES = 14  # of an instance; rules beyond these are kept class by class only


@dataclass(frozen=True, slots=True)
class Limits:
    """On numbers of bins, as in :class:`~kscale.scheduling.bounds.kinds.BinKinds`."""

    available: NDArray[np.int64]
    rows: NDArray[np.int64]
    high: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shapes:
    """``demand`` int64[S, R] with a column for each kept rule behind the resources; ``limit``: of one node, for a
    bound, ``strict_limit``: for a plan; ``allowed`` bool[S, T]; ``of_class`` int64[C]: which shape; ``count`` int64[S].
    ``rule_most`` int64: what a node has of each rule; ``strict`` bool[R]: columns that a bound leaves out."""

    demand: NDArray[np.int64]
    count: NDArray[np.int64]
    limit: NDArray[np.int64]
    strict_limit: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    of_class: NDArray[np.int64]
    rule_most: NDArray[np.int64]
    strict: NDArray[np.bool_]

    @property
    def differs(self) -> bool:
        """Whether a plan has to obey more than a bound."""
        return bool(self.strict.any() or (self.strict_limit < np.minimum(self.limit, self.count)).any())

    def kinds(
        self,
        capacity: NDArray[np.int64],
        cost: NDArray[np.int64],
        limits: Limits,
        *,
        strict: bool,
    ) -> BinKinds:
        """The instance of a plan (``strict``) or of a bound. ``capacity`` int64[T, resources]: without the rules."""
        rules = np.repeat(self.rule_most[None], len(capacity), axis=0)
        room = np.hstack([capacity, rules])
        columns = np.ones(room.shape[1], dtype=bool) if strict else ~self.strict
        return BinKinds.of(
            np.ascontiguousarray(self.demand[:, columns]),
            self.count,
            np.ascontiguousarray(room[:, columns]),
            cost,
            allowed=self.allowed,
            max_per_bin=self.strict_limit if strict else self.limit,
            available=limits.available,
            rows=limits.rows,
            high=limits.high,
        )


def shapes_of(
    demand: NDArray[np.int64], counts: NDArray[np.int64], allowed: NDArray[np.bool_], rules: Sequence[Rule]
) -> Shapes:
    """``demand`` int64[C, R], ``counts`` int64[C], ``allowed`` bool[C, T] of the classes; rules refer to classes."""
    part: list[list[tuple[int, int]]] = [[] for _ in counts]
    for number, rule in enumerate(rules):
        for c, weight in rule.weights.items():
            part[c].append((number, weight))
    numbers: dict[tuple[bytes, bytes, tuple[tuple[int, int], ...]], int] = {}
    of_class = np.empty(len(counts), dtype=np.int64)
    first: list[int] = []
    for c in range(len(counts)):
        key = demand[c].tobytes(), allowed[c].tobytes(), tuple(part[c])
        of_class[c] = numbers.setdefault(key, len(numbers))
        if of_class[c] == len(first):
            first.append(c)
    count = np.bincount(of_class, weights=counts, minlength=len(first)).astype(np.int64)
    limit = np.full(len(first), np.iinfo(np.int32).max, dtype=np.int64)
    strict_limit = limit.copy()
    columns: list[tuple[int, int, dict[int, int], bool]] = []  # (pods, most, shape -> weight, strict)
    for rule in rules:
        members = {int(of_class[c]): weight for c, weight in rule.weights.items()}
        for s, weight in members.items():
            strict_limit[s] = min(strict_limit[s], rule.most // weight)
            if not rule.strict:
                limit[s] = min(limit[s], rule.most // weight)
        if len(members) > 1:
            columns.append((int(count[list(members)].sum()), rule.most, members, rule.strict))
    columns.sort(key=lambda column: -column[0])
    columns = columns[: max(0, _MOST_RESOURCES - demand.shape[1])]
    extra = np.zeros((len(first), len(columns)), dtype=np.int64)
    for r, (_, _, members, _) in enumerate(columns):
        for s, weight in members.items():
            extra[s, r] = weight
    return Shapes(
        demand=np.hstack([demand[first], extra]),
        count=count,
        limit=limit,
        strict_limit=strict_limit,
        allowed=allowed[first],
        of_class=of_class,
        rule_most=np.array([most for _, most, _, _ in columns], dtype=np.int64),
        strict=np.array([False] * demand.shape[1] + [strict for *_, strict in columns], dtype=bool),
    )
