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
    conditions: list[HorizontalPodAutoscalerCondition],
    type_: str,
    status: bool,
    reason: str,
    message: str,
    now: Moment,
) -> None:
    """Sets a condition in its place or at the end. Its transition time moves with its status alone."""
    text = "True" if status else "False"
    old = find(conditions, type_)
    if old is None:
        since, generation = to_text(now), None
    else:
        since = old.last_transition_time if old.status == text else to_text(now)
        generation = old.observed_generation
    new = HorizontalPodAutoscalerCondition(
        type=type_,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if old is None:
        conditions.append(new)
    else:
        conditions[:] = [new if each is old else each for each in conditions]


def remove(conditions: list[HorizontalPodAutoscalerCondition], type_: str) -> None:
    """Removes the condition of a type."""
    conditions[:] = [each for each in conditions if each.type != type_]
