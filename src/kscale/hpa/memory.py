"""What is remembered of many HPAs, as columns, and the states of each made of them when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.hpa.behavior import History
from kscale.hpa.state import HPAState, Recommendation, ScaleEvent

__all__ = ["CONDITION_REASONS", "CONDITION_TYPES", "ConditionColumns", "Histories", "Memory", "StatesOf"]

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

    def state(self, row: int, before: HPAState) -> HPAState:
        """The state of one HPA; what is not kept as columns is as ``before``."""
        recommendations = tuple(Recommendation(value, time) for value, time, _ in self.past.entries(row))
        return msgspec.structs.replace(
            before,
            recommendations=None if self.fresh[row] else recommendations,
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

    ``rows``: which row of the histories a key has; ``rest``: what is not kept as columns; ``others``: states of HPAs
    that have no row.
    """

    __slots__ = ("histories", "others", "rest", "rows")

    def __init__(
        self,
        rows: Mapping[str, int],
        histories: Histories,
        rest: Sequence[HPAState],
        others: Mapping[str, HPAState],
    ) -> None:
        self.rows, self.histories, self.rest, self.others = rows, histories, rest, others

    def of(self, keys: Sequence[str]) -> tuple[Histories, Sequence[HPAState]] | None:
        """(histories, the rest) of HPAs in their order; None where one of them has no row."""
        if list(self.rows) == keys:
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
