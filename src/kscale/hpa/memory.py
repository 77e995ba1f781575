"""What is remembered of many HPAs, as columns, and the states of each made of them when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.hpa.behavior import History
from kscale.hpa.state import HPAState, ScaleEvent

__all__ = [
    "CONDITION_REASONS",
    "CONDITION_TYPES",
    "ConditionColumns",
    "Histories",
    "KeptStates",
    "Memory",
    "StatesOf",
]

CONDITION_TYPES: Final = ("AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero")
CONDITION_REASONS: Final = (
    "",
    "FailedGetScale",
    "SucceededGetScale",
    "ReadyForNewScale",
    "ScaleUpStabilized",
    "ScaleDownStabilized",
    "SucceededRescale",
    "ScalingDisabled",
    "InvalidSelector",
    "AmbiguousSelector",
    "MetricFailed",
    "ValidMetricFound",
    "DesiredWithinRange",
    "TooFewReplicas",
    "TooManyReplicas",
    "ScaleUpLimit",
    "ScaleDownLimit",
    "ScaledToZero",
    "NotScaledToZero",
    "FailedUpdateScale",
)
"""Reasons by code. ``MetricFailed`` stands for the reason of the first failing metric (``FailedGet...Metric``)."""


@dataclass(frozen=True, slots=True)
class ConditionColumns:
    """[n, 4] by ``CONDITION_TYPES``: ``status`` 0 absent, 1 True, 2 False, 3 else; ``reason``; ``time``."""

    status: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    time: NDArray[np.int64]

    def copy(self) -> ConditionColumns:
        """A copy that may be written to."""
        return ConditionColumns(self.status.copy(), self.reason.copy(), self.time.copy())


@dataclass(frozen=True, slots=True)
class Histories:
    """What a :class:`~kscale.hpa.ControllerState` holds of every HPA: ``fresh`` uint8[n]: never reconciled."""

    fresh: NDArray[np.uint8]
    past: History
    added: History
    removed: History

    @classmethod
    def of(cls, states: Sequence[HPAState]) -> Histories:
        """Of states in their order."""
        return cls(
            np.array([each.recommendations is None for each in states], np.uint8),
            History.recommendations([each.recommendations or () for each in states]),
            History.events([each.scale_up_events for each in states]),
            History.events([each.scale_down_events for each in states]),
        )

    def take(self, rows: NDArray[np.int64]) -> Histories:
        """Some rows."""
        return Histories(self.fresh[rows], self.past.take(rows), self.added.take(rows), self.removed.take(rows))

    def joined(self, other: Histories) -> Histories:
        """The rows of this one, then those of another."""
        return Histories(
            np.concatenate([self.fresh, other.fresh]),
            self.past.joined(other.past),
            self.added.joined(other.added),
            self.removed.joined(other.removed),
        )

    def with_rows(self, rows: NDArray[np.int64], others: Histories) -> Histories:
        """With some rows exchanged for those of another, in their order."""
        which = np.arange(len(self.fresh))
        which[rows] = len(which) + np.arange(len(rows))
        return self.joined(others).take(which)

    def state(self, row: int, before: HPAState) -> HPAState:
        """The state of one HPA; what is not kept as columns is as ``before``."""
        return msgspec.structs.replace(
            before,
            recommendations=None if self.fresh[row] else self.past.recommended(row),
            scale_up_events=tuple(ScaleEvent(*entry) for entry in self.added.entries(row)),
            scale_down_events=tuple(ScaleEvent(*entry) for entry in self.removed.entries(row)),
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What the kernel remembers of every HPA: histories, and the conditions of its status."""

    histories: Histories
    conditions: ConditionColumns


class StatesOf(Mapping[str, HPAState]):
    """States of HPAs by key, made when asked for; compares and pickles as a dictionary of them.

    ``keys_in_order`` of those that have a row, ``rows``: which; ``rest``: what is not kept as columns; ``others``:
    states of HPAs that have no row.
    """

    __slots__ = ("histories", "keys_in_order", "others", "rest", "rows")

    def __init__(
        self,
        keys: Sequence[str],
        histories: Histories,
        rest: Sequence[HPAState],
        others: Mapping[str, HPAState],
        rows: Mapping[str, int],
    ) -> None:
        self.keys_in_order, self.rows = keys, rows
        self.histories, self.rest, self.others = histories, rest, others

    def of(self, keys: Sequence[str]) -> tuple[Histories, Sequence[HPAState]] | None:
        """(histories, the rest) of HPAs in their order; None where one of them has no row."""
        if self.keys_in_order is keys or self.keys_in_order == keys:
            return self.histories, self.rest
        found = [self.rows.get(key, -1) for key in keys]
        if min(found, default=-1) < 0:
            return None
        return self.histories.take(np.array(found, np.int64)), [self.rest[row] for row in found]

    def __getitem__(self, key: str) -> HPAState:
        row = self.rows.get(key)
        return self.others[key] if row is None else self.histories.state(row, self.rest[row])

    def __iter__(self) -> Iterator[str]:
        yield from self.rows
        yield from (key for key in self.others if key not in self.rows)

    def __len__(self) -> int:
        return len(self.rows) + sum(key not in self.rows for key in self.others)

    def __repr__(self) -> str:
        return f"<states of {len(self):,} HPAs>"

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self.items()),)


_NEW: Final = HPAState()


@dataclass(slots=True)
class _Shelf:
    """What a batch left."""

    histories: Histories
    rest: Sequence[HPAState]


class KeptStates(MutableMapping[str, HPAState]):
    """The states of HPAs between batches, each as its last batch left it: columns stay columns.

    What is not known is the state of an HPA that was never reconciled.
    """

    __slots__ = ("_last", "_single", "_where")

    def __init__(self, states: Mapping[str, HPAState] | None = None) -> None:
        self._single: dict[str, HPAState] = dict(states or {})
        self._where: dict[str, tuple[_Shelf, int]] = {}
        self._last: tuple[Sequence[str], _Shelf] | None = None  # the last that was put, if all of it is there yet

    def put(self, keys: Sequence[str], histories: Histories, rest: Sequence[HPAState]) -> None:
        """What a batch leaves of these: ``histories`` as columns, ``rest`` what is not kept so, each in the order of
        the keys."""
        if self._last is not None and self._last[0] is keys:
            shelf = self._last[1]
            shelf.histories, shelf.rest = histories, rest
            return
        shelf = _Shelf(histories, rest)
        self._last = keys, shelf
        self._where.update((key, (shelf, row)) for row, key in enumerate(keys))
        if self._single:
            for key in keys:
                self._single.pop(key, None)

    def of(self, keys: Sequence[str]) -> tuple[Histories, Sequence[HPAState]]:
        """(histories, what is not kept as columns) of HPAs in their order."""
        if self._last is not None and (self._last[0] is keys or self._last[0] == keys):
            return self._last[1].histories, self._last[1].rest
        shelves: dict[int, tuple[_Shelf, int]] = {}
        single: list[HPAState] = []
        places: list[tuple[int, int]] = []
        end = 0
        for key in keys:
            found = self._where.get(key)
            if found is None:
                places.append((-1, len(single)))
                single.append(self._single.get(key, _NEW))
                continue
            shelf, row = found
            if id(shelf) not in shelves:
                shelves[id(shelf)] = shelf, end
                end += len(shelf.rest)
            places.append((shelves[id(shelf)][1], row))
        if len(shelves) == 1 and not single:
            only = next(iter(shelves.values()))[0]
            histories, rest = only.histories, only.rest
            rows = [row for _, row in places]
            if rows == list(range(len(rest))):
                return histories, rest
            return histories.take(np.array(rows, np.int64)), [rest[row] for row in rows]
        parts = [*((shelf.histories, shelf.rest) for shelf, _ in shelves.values()), (Histories.of(single), single)]
        whole, all_rest = parts[0][0], list(parts[0][1])
        for histories, rest in parts[1:]:
            whole, all_rest = whole.joined(histories), [*all_rest, *rest]
        rows = [(end if at < 0 else at) + row for at, row in places]
        return whole.take(np.array(rows, np.int64)), [all_rest[row] for row in rows]

    def rest(self, key: str) -> HPAState | None:
        """What is not kept as columns of one; None: nothing is known of it."""
        found = self._where.get(key)
        return self._single.get(key) if found is None else found[0].rest[found[1]]

    def __getitem__(self, key: str) -> HPAState:
        found = self._where.get(key)
        if found is None:
            return self._single[key]
        shelf, row = found
        return shelf.histories.state(row, shelf.rest[row])

    def __setitem__(self, key: str, state: HPAState) -> None:
        if self._where.pop(key, None) is not None:
            self._last = None
        self._single[key] = state

    def __delitem__(self, key: str) -> None:
        if self._where.pop(key, None) is None:
            del self._single[key]
        else:
            self._last = None

    def __iter__(self) -> Iterator[str]:
        yield from self._where
        yield from self._single

    def __len__(self) -> int:
        return len(self._where) + len(self._single)

    def __repr__(self) -> str:
        return f"<states of {len(self):,} HPAs>"
