"""The pods of an option as expanders see them, made when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from kscale.ca.estimator.result import EstimateResult
from kscale.ca.expander.types import PodRun, PodRuns
from kscale.snapshot.record import PodRecord

__all__ = ["EstimatedPods"]


class EstimatedPods(PodRuns):
    """The pods that an estimate found a place for, in that order.

    ``one_by_one``: all records of the estimate, shared by the options of a scale-up; no runs of like pods then.
    """

    def __init__(self, estimate: EstimateResult, *, one_by_one: Sequence[PodRecord] | None = None) -> None:
        self._estimate = estimate
        self._one_by_one = one_by_one

    @cached_property
    def _runs(self) -> list[PodRun]:
        records = self._one_by_one
        if records is not None:
            numbers = self._estimate.pod_of[self._estimate.order_numbers].tolist()
            return [PodRun(records[i].pod, record=records[i]) for i in numbers]
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
