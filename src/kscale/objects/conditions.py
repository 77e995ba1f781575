"""Conditions in a status."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.objects.core import Node, Pod
from kscale.objects.meta import Condition

__all__ = ["find", "is_true", "node_ready_condition", "pod_ready", "resize_infeasible"]


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The first condition of a type."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the first condition of a type has status ``True``."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"


def pod_ready(pod: Pod) -> bool:
    """``IsPodReady``: condition Ready is True."""
    return is_true(pod.status.conditions, "Ready")


def node_ready_condition(node: Node) -> Condition | None:
    """The node's Ready condition."""
    return find(node.status.conditions, "Ready")


def resize_infeasible(pod: Pod) -> bool:
    """Whether the kubelet has refused a resize for good: type and reason count, the condition's status does not."""
    condition = find(pod.status.conditions, "PodResizePending")
    return condition is not None and condition.reason == "Infeasible"
