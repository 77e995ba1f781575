"""Pods so unimportant that no node is added for them, and that take no room (``core/utils/expendable.go``)."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.objects.core import Pod

__all__ = ["is_expendable", "without_expendable"]


def is_expendable(pod: Pod, cutoff: int) -> bool:
    """A priority below the cutoff. A pod without priority never is."""
    return pod.spec.priority is not None and pod.spec.priority < cutoff


def without_expendable(pods: Iterable[Pod], cutoff: int) -> list[Pod]:
    """The pods that count, in their order."""
    return [pod for pod in pods if not is_expendable(pod, cutoff)]
