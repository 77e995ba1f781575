"""The pods of an option as expanders see them, made when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from kscale.ca.estimator.result import EstimateResult
from kscale.ca.expander.types import PodRun, PodRuns

__all__ = ["EstimatedPods"]


class EstimatedPods(PodRuns):
    """The pods that an estimate found a place for, in that order. ``one_by_one``: no runs of like pods."""

    def __init__(self, estimate: EstimateResult, *, one_by_one: bool) -> None:
        self._estimate = estimate
        self._one_by_one = one_by_one

    @cached_property
    def _runs(self) -> list[PodRun]:
        if self._one_by_one:
            return [PodRun(record.pod, record=record) for record in self._estimate.scheduled_records]
        return [PodRun(record.pod, count, record) for record, count in self._estimate.runs]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[PodRun]:
        return iter(self._runs)

    def __getitem__(self, i: int) -> PodRun:  # type: ignore[override]  # by number only
        return self._runs[i]

    @property
    def pod_count(self) -> int:
        return len(self._estimate.order_numbers)

    @property
    def requested(self) -> tuple[int, int]:
        return self._estimate.requested
