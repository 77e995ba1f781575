"""What is remembered of many HPAs, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale.hpa.behavior import History
from kscale.hpa.state import HPAState, Recommendation, ScaleEvent

__all__ = ["CONDITION_REASONS", "CONDITION_TYPES", "ConditionColumns", "Memory"]

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
class Memory:
    """What is remembered of every HPA, as columns: histories and conditions."""

    fresh: NDArray[np.uint8]
    past: History
    added: History
    removed: History
    conditions: ConditionColumns

    def state(self, row: int, before: HPAState) -> HPAState:
        """The state of one HPA; what is not kept as columns is as ``before``."""
        recommendations = tuple(Recommendation(value, time) for value, time, _ in self.past.entries(row))
        return HPAState(
            recommendations=None if self.fresh[row] else recommendations,
            scale_up_events=tuple(ScaleEvent(*entry) for entry in self.added.entries(row)),
            scale_down_events=tuple(ScaleEvent(*entry) for entry in self.removed.entries(row)),
            selector=before.selector,
            registered=before.registered,
            written=before.written,
        )
