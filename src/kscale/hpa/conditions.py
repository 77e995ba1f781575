"""Conditions: reasons and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kscale.effects import Moment, to_text
from kscale.objects.autoscaling import HorizontalPodAutoscalerCondition

__all__ = ["LIMITS", "STABILIZED", "find", "remove", "set_condition"]

STABILIZED: Final = (
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
"""Reason and message of AbleToScale by the kernel's code of who held the size."""

LIMITS: Final = (
    ("DesiredWithinRange", "the desired count is within the acceptable range"),
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count"),
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count"),
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"),
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"),
)
"""Reason and message of ScalingLimited by the kernel's code of the limit."""


Conditions = Sequence[HorizontalPodAutoscalerCondition]


def find(conditions: Conditions | None, type_: str) -> HorizontalPodAutoscalerCondition | None:
    """The condition of a type."""
    for each in conditions or ():
        if each.type == type_:
            return each
    return None


def set_condition(
    conditions: Conditions, type_: str, status: bool, reason: str, message: str, now: Moment
) -> list[HorizontalPodAutoscalerCondition]:
    """With one condition set, in its place or at the end. Its transition time moves with its status alone."""
    text = "True" if status else "False"
    old = find(conditions, type_)
    new = HorizontalPodAutoscalerCondition(
        type=type_,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=old.last_transition_time if old is not None and old.status == text else to_text(now),
        observed_generation=None if old is None else old.observed_generation,
    )
    if old is None:
        return [*conditions, new]
    return [new if each is old else each for each in conditions]


def remove(conditions: Conditions, type_: str) -> list[HorizontalPodAutoscalerCondition]:
    """Without the condition of a type."""
    return [each for each in conditions if each.type != type_]
