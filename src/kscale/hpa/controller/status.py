"""The status that one reconcile builds: conditions with upstream's reasons and texts, replica counts, events, and the
write (upstream: ``setStatus``, ``setCondition``, ``updateStatus`` in ``horizontal.go``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from kscale.effects import Emit, Event, Moment, Progress, StepsOf, WriteStatus
from kscale.effects.moments import format_moment
from kscale.hpa.api.v1_conversion import to_v1
from kscale.hpa.controller.state import HPAState, WrittenVersion
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
)
from kscale.objects.api.core import ObjectReference
from kscale.objects.api.meta import is_older_version

__all__ = [
    "CONDITION_MESSAGES",
    "SCALING_LIMITED_CONDITIONS",
    "STABILIZED_CONDITIONS",
    "ReconcileContext",
    "find_condition",
    "put_condition",
]


STABILIZED_CONDITIONS: Final = (
    ("ReadyForNewScale", "recommended size matches current size"),
    (
        "ScaleUpStabilized",
        "recent recommendations were lower than current one, applying the lowest recent recommendation",
    ),
    (
        "ScaleDownStabilized",
        "recent recommendations were higher than current one, applying the highest recent recommendation",
    ),
)
"""Reason and message of AbleToScale by the kernel's code of the stabilization."""

SCALING_LIMITED_CONDITIONS: Final = (
    ("DesiredWithinRange", "the desired count is within the acceptable range"),
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count"),
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count"),
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"),
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"),
)
"""Reason and message of ScalingLimited by the kernel's code of the limit."""

CONDITION_MESSAGES: Final[Mapping[str, str]] = {
    **dict(STABILIZED_CONDITIONS),
    **dict(SCALING_LIMITED_CONDITIONS),
    "SucceededRescale": "the HPA controller was able to update the target scale to {desired}",
    "ValidMetricFound": "the HPA was able to successfully calculate a replica count from {metric}",
    "ScaledToZero": "the HPA controller scaled the workload to zero",
    "NotScaledToZero": "the HPA controller did not scale the workload to zero",
}
"""Messages by reason, of the conditions after a decision by metrics.

``desired``: the new replicas; ``metric``: the name of the metric with the largest proposal.
"""


Conditions = Sequence[HorizontalPodAutoscalerCondition]


def find_condition(conditions: Conditions | None, type_: str) -> HorizontalPodAutoscalerCondition | None:
    """Return the condition of a type; None if there is none."""
    for each in conditions or ():
        if each.type == type_:
            return each
    return None


def put_condition(
    conditions: list[HorizontalPodAutoscalerCondition], type_: str, status: bool, reason: str, message: str, now: Moment
) -> None:
    """Set a condition in a list. Its time becomes ``now`` if it is new or its status changes."""
    old, text = find_condition(conditions, type_), "True" if status else "False"
    is_same = old is not None and old.status == text
    new = HorizontalPodAutoscalerCondition(
        type=type_,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=old.last_transition_time if old is not None and is_same else _format_time(now),
        observed_generation=None if old is None else old.observed_generation,
    )
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new


_format_time = lru_cache(maxsize=1 << 4)(format_moment)
"""Formats a moment as the status states it. Cached, as the HPAs of a round have the same time."""


@dataclass(slots=True)
class ReconcileContext:
    """Context of one reconcile. ``now`` is the time of the decision; ``progress.now`` advances with every outcome."""

    hpa: HorizontalPodAutoscaler
    state: HPAState
    status: HorizontalPodAutoscalerStatus
    now: Moment
    options: HPAOptions
    progress: Progress
    status_written: bool = False

    # -- state and events --------------------------------------------------------------------------------------------

    def remember(self, **changes: object) -> None:
        """Set fields of the state that the next reconcile gets."""
        self.state = msgspec.structs.replace(self.state, **changes)

    def warn(self, reason: str, message: str) -> StepsOf[Emit, None]:
        """Emit a Warning event about the HPA."""
        yield from self._emit("Warning", reason, message)

    def emit_event(self, reason: str, message: str) -> StepsOf[Emit, None]:
        """Emit a Normal event about the HPA."""
        yield from self._emit("Normal", reason, message)

    def _emit(self, type_: str, reason: str, message: str) -> StepsOf[Emit, None]:
        """Emit an event about the HPA. ``type_``: ``Normal`` or ``Warning``."""
        metadata = self.hpa.metadata
        regarding = ObjectReference(
            api_version=self.hpa.api_version,
            kind=self.hpa.kind,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
        )
        yield from self.progress.emit(Event(regarding=regarding, type=type_, reason=reason, message=message))

    # -- the status ------------------------------------------------------------------------------------------------

    def set(self, type_: str, status: bool, reason: str, message: str) -> None:
        """Set a condition of the HPA status that this reconcile builds. Its time changes only if its status does.

        Does nothing if the condition already has this status, reason and message.
        """
        old = find_condition(self.status.conditions, type_)
        if old is None or (old.status, old.reason, old.message) != ("True" if status else "False", reason, message):
            put_condition(self._conditions(), type_, status, reason, message, self.now)

    def drop(self, type_: str) -> None:
        """Remove a condition from the HPA status that this reconcile builds."""
        conditions = self._conditions()
        conditions[:] = [each for each in conditions if each.type != type_]

    def _conditions(self) -> list[HorizontalPodAutoscalerCondition]:
        """Return the list of conditions of the new status, to be changed in place until the status is written."""
        before, conditions = self.hpa.status.conditions, self.status.conditions
        if conditions is None or conditions is before:
            conditions = list(before or ())
            self.status = msgspec.structs.replace(self.status, conditions=conditions)
        return conditions

    def set_sizes(
        self, current: int, desired: int, statuses: Sequence[MetricStatus], *, rescaled: bool = False
    ) -> None:
        """Set current and desired replicas and the metric statuses of the new status. The conditions stay.

        ``rescaled``: also set the time of the last scaling to now; otherwise that time stays.
        """
        generation = self.hpa.metadata.generation or 0
        self.status = HorizontalPodAutoscalerStatus(
            observed_generation=generation if self.options.gates["HPAGeneration"] else None,
            last_scale_time=_format_time(self.now) if rescaled else self.status.last_scale_time,
            current_replicas=current,
            desired_replicas=desired,
            current_metrics=list(statuses) or None,
            conditions=self.status.conditions,
        )

    def has_news(self) -> bool:
        """Check whether the new status differs from the object's."""
        return _normalize_status(self.status) != _normalize_status(self.hpa.status)

    def write_status(self) -> StepsOf[WriteStatus | Emit, str]:
        """Write the status if it changed. Returns the error message; empty on success or if nothing changed.

        A failure is also a Warning event.
        """
        if not self.has_news():
            return ""
        written = msgspec.structs.replace(self.hpa, status=self.status)
        outcome = yield from self.progress.act(WriteStatus(to_v1(written) if self.options.legacy else written))
        if outcome.error is not None:
            yield from self.warn("FailedUpdateStatus", outcome.error.message)
            return outcome.error.message
        self.status_written = True
        if outcome.value is not None and self.options.gates["StaleControllerConsistencyHPA"]:
            self._record_write(outcome.value)
        return ""

    def _record_write(self, version: str) -> None:
        """Store the version of the object that was written, unless a newer one is stored."""
        uid, old = self.hpa.metadata.uid, self.state.written
        if old is None or old.uid != uid or is_older_version(old.resource_version, version):
            self.remember(written=WrittenVersion(uid, version))


def _normalize_status(status: HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus:
    """Return the status with empty lists as None, as upstream's comparison treats both equally."""
    if status.current_metrics == [] or status.conditions == []:
        return msgspec.structs.replace(
            status, current_metrics=status.current_metrics or None, conditions=status.conditions or None
        )
    return status
