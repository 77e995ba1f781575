"""What one reconcile knows so far, and what its parts do to it: conditions, events, the status that will be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kscale.effects import Emit, Event, Moment, Progress, StepsOf, WriteStatus, to_text
from kscale.hpa.conditions import find, remove, set_condition
from kscale.hpa.options import HPAOptions
from kscale.hpa.state import HPAState, Written, is_older
from kscale.hpa.v1_conversion import to_v1
from kscale.objects.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
)
from kscale.objects.core import ObjectReference

__all__ = ["Pass"]


@dataclass(slots=True)
class Pass:
    """One reconcile under way. ``now`` is the moment it decides at; ``progress.now`` moves on with every outcome."""

    hpa: HorizontalPodAutoscaler
    state: HPAState
    status: HorizontalPodAutoscalerStatus
    now: Moment
    options: HPAOptions
    progress: Progress
    status_written: bool = False

    # -- what is remembered and said -------------------------------------------------------------------------------

    def remember(self, **changes: object) -> None:
        """Changes parts of the next state."""
        self.state = msgspec.structs.replace(self.state, **changes)

    def warn(self, reason: str, message: str) -> StepsOf[Emit, None]:
        """A warning about the HPA."""
        yield from self._emit("Warning", reason, message)

    def tell(self, reason: str, message: str) -> StepsOf[Emit, None]:
        """An event about the HPA."""
        yield from self._emit("Normal", reason, message)

    def _emit(self, type_: str, reason: str, message: str) -> StepsOf[Emit, None]:
        of = self.hpa.metadata
        regarding = ObjectReference(
            api_version=self.hpa.api_version, kind=self.hpa.kind, namespace=of.namespace, name=of.name, uid=of.uid
        )
        yield from self.progress.emit(Event(regarding=regarding, type=type_, reason=reason, message=message))

    # -- the status ------------------------------------------------------------------------------------------------

    def set(self, type_: str, status: bool, reason: str, message: str) -> None:
        """Sets a condition; nothing happens where it stands there already."""
        old = find(self.status.conditions, type_)
        text = "True" if status else "False"
        if old is not None and (old.status, old.reason, old.message) == (text, reason, message):
            return
        set_condition(self._conditions(), type_, status, reason, message, self.now)

    def drop(self, type_: str) -> None:
        """Removes a condition."""
        remove(self._conditions(), type_)

    def _conditions(self) -> list[HorizontalPodAutoscalerCondition]:
        """Those of the new status, which change in place until it is written."""
        before, conditions = self.hpa.status.conditions, self.status.conditions
        if conditions is None or conditions is before:
            conditions = list(before or ())
            self.status = msgspec.structs.replace(self.status, conditions=conditions)
        return conditions

    def set_sizes(
        self, current: int, desired: int, statuses: Sequence[MetricStatus], *, rescaled: bool = False
    ) -> None:
        """Says how many replicas there are and shall be, and what was measured."""
        generation = self.hpa.metadata.generation or 0
        self.status = HorizontalPodAutoscalerStatus(
            observed_generation=generation if self.options.enabled("HPAGeneration") else None,
            last_scale_time=to_text(self.now) if rescaled else self.status.last_scale_time,
            current_replicas=current,
            desired_replicas=desired,
            current_metrics=list(statuses) or None,
            conditions=self.status.conditions,
        )

    def has_news(self) -> bool:
        """Whether the status says anything new."""
        return _normal(self.status) != _normal(self.hpa.status)

    def write_status(self) -> StepsOf[WriteStatus | Emit, str]:
        """Writes the status if it says anything new; the error's text if that fails."""
        return (yield from self.write_news()) if self.has_news() else ""

    def write_news(self) -> StepsOf[WriteStatus | Emit, str]:
        """Writes the status, which says something new; the error's text if that fails."""
        written = msgspec.structs.replace(self.hpa, status=self.status)
        outcome = yield from self.progress.act(WriteStatus(to_v1(written) if self.options.legacy else written))
        if outcome.error is not None:
            yield from self.warn("FailedUpdateStatus", outcome.error.message)
            return outcome.error.message
        self.status_written = True
        if outcome.value is not None and self.options.enabled("StaleControllerConsistencyHPA"):
            self._record_write(outcome.value)
        return ""

    def _record_write(self, version: str) -> None:
        uid, old = self.hpa.metadata.uid, self.state.written
        if old is None or old.uid != uid or is_older(old.resource_version, version):
            self.remember(written=Written(uid, version))


def _normal(status: HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus:
    """Absent and empty lists are the same to upstream's comparison."""
    if status.current_metrics == [] or status.conditions == []:
        return msgspec.structs.replace(
            status, current_metrics=status.current_metrics or None, conditions=status.conditions or None
        )
    return status
