"""Counter rows: pods per topology domain, for plug-ins that consider where other pods run.

Whether a row counts a pod depends only on the pod's namespace, labels and whether it is being deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.selectors import Selector
from kscale.scheduling.profile import NodeFacts
from kscale.snapshot.classes.interner import PodClass

__all__ = ["Eligibility", "Row", "Rows"]

Label = tuple[str, str]


class Eligibility(msgspec.Struct, frozen=True, eq=False):
    """Which nodes a row counts pods on; it depends on ``columns`` of the node."""

    columns: frozenset[str]
    counts: Callable[[NodeFacts], bool]


class Row(msgspec.Struct, frozen=True, eq=False):
    """A counter row. ``key``: the topology key; ``meant``: whether a pod counts, None = only pods that refer to the row
    themselves; ``selector``: a selector that counted pods match in any case; ``group``: affinity group whose total the
    row contributes to, -1 = none; ``eligibility``: None = every node counts.
    """

    key: str
    meant: Callable[[PodClass], bool] | None
    selector: Selector | None = None
    group: int = -1
    eligibility: Eligibility | None = None


class _Counted(NamedTuple):
    """Rows that count pods of an identity: those with eligibility, the others; ``upto``: number of rows considered so
    far.
    """

    upto: int
    spread: list[int]
    rows: list[int]


class Rows:
    """All counter rows of an engine, numbered in the order they are added. ``keys``: topology keys; ``eligibilities``:
    what decides which nodes count, in order of first use; ``groups``: number of affinity groups.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.keys: dict[str, int] = {}
        self.groups = 0
        self.eligibilities: dict[Eligibility, int] = {}
        self._by_label: dict[Label, list[int]] = {}
        self._anywhere: list[int] = []
        self._counted: dict[int, _Counted] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def add_group(self) -> int:
        """Add an affinity group and return its number."""
        self.groups += 1
        return self.groups - 1

    def add(self, row: Row) -> int:
        """Add a row and return its number."""
        number = len(self.rows)
        self.rows.append(row)
        self.keys.setdefault(row.key, len(self.keys))
        if row.eligibility is not None:
            self.eligibilities.setdefault(row.eligibility, len(self.eligibilities))
        if row.meant is not None:
            labels = _get_required_labels(row.selector)
            for label in labels or ():
                self._by_label.setdefault(label, []).append(number)
            if labels is None:
                self._anywhere.append(number)
        return number

    def get_counting_rows(self, pod: PodClass) -> tuple[list[int], list[int]]:
        """Return the rows that count pods of this class, as (rows with eligibility, other rows).

        Rows that the class itself refers to are not included.
        """
        if not self._anywhere and (pod.labels is None or self._by_label.keys().isdisjoint(pod.labels.items())):
            return _NONE, _NONE
        cached = self._counted.get(pod.identity_id)
        if cached is None or cached.upto < len(self.rows):
            cached = self._counted[pod.identity_id] = self._count(pod)
        return cached.spread, cached.rows

    def _count(self, pod: PodClass) -> _Counted:
        by_label = self._by_label
        candidates = list(self._anywhere)
        if by_label and pod.labels:
            for label in pod.labels.items():
                if label in by_label:
                    candidates += by_label[label]
        spread: list[int] = []
        rows: list[int] = []
        for number in sorted(set(candidates)):
            row = self.rows[number]
            if row.meant is not None and row.meant(pod):
                (rows if row.eligibility is None else spread).append(number)
        return _Counted(len(self.rows), spread, rows)

    def columns(self) -> frozenset[str]:
        """Return the names of the node columns that determine which nodes are counted in a row."""
        return frozenset().union(*(each.columns for each in self.eligibilities))

    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return the key, group and eligibility of each row: int32[n] each, -1 = none."""
        rows, count = self.rows, len(self.rows)
        eligible = (-1 if row.eligibility is None else self.eligibilities[row.eligibility] for row in rows)
        return (
            np.fromiter((self.keys[row.key] for row in rows), np.int32, count),
            np.fromiter((row.group for row in rows), np.int32, count),
            np.fromiter(eligible, np.int32, count),
        )


_NONE: Final[list[int]] = []
"""The empty list of rows, shared by all classes that no row counts."""


def _get_required_labels(selector: Selector | None) -> list[Label] | None:
    """Return labels of which a pod must have at least one to match; None if the selector requires no such label.

    Empty if the selector matches nothing.
    """
    if selector is None:
        return None
    if selector.nothing:
        return []
    pinned = next((r for r in selector.requirements if r.operator in ("in", "=", "==")), None)
    return None if pinned is None else [(pinned.key, value) for value in dict.fromkeys(pinned.values)]
