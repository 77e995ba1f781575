"""The pods of an option as expanders see them, made when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from kscale.ca.estimator.result import EstimateResult
from kscale.ca.expander.types import PodRun, PodRuns
from kscale.snapshot.record import PodRecord

__all__ = ["EstimatedPods", "RecordsOnce"]


class RecordsOnce(Sequence[PodRecord]):
    """Records by their position, each made when it is first asked for: what decodes one decodes it for all."""

    def __init__(self, records: Sequence[PodRecord]) -> None:
        self._records = records
        self._made: dict[int, PodRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, i: int) -> PodRecord:  # type: ignore[override]  # by number only
        found = self._made.get(i)
        if found is None:
            found = self._made[i] = self._records[i]
        return found


class EstimatedPods(PodRuns):
    """The pods that an estimate found a place for, in that order.

    ``records``: those of the estimate, shared by the options of a scale-up. ``one_by_one``: no runs of like pods.
    """

    def __init__(self, estimate: EstimateResult, records: RecordsOnce, *, one_by_one: bool) -> None:
        self._estimate = estimate
        self._records = records
        self._one_by_one = one_by_one

    @cached_property
    def _runs(self) -> list[PodRun]:
        estimate, records = self._estimate, self._records
        if self._one_by_one:
            numbers = estimate.pod_of[estimate.order_numbers].tolist()
            return [PodRun(records[i].pod, record=records[i]) for i in numbers]
        return [PodRun(records[first].pod, count, records[first]) for first, count in estimate.runs]

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
