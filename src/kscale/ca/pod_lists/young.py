"""Pods that are given some time before nodes are added for them (``--new-pod-scale-up-delay``)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kscale.effects import Moment, from_text
from kscale.objects.core import Pod
from kscale.objects.durations import format_duration, parse_duration
from kscale.objects.names import go_quote
from kscale.objects.pod_annotations import SCALE_UP_DELAY, pod_annotation

__all__ = ["OldPods", "without_young"]


class OldPods(msgspec.Struct, kw_only=True):
    """Pods that are old enough, those that are not, and what was logged about annotations."""

    pods: list[Pod] = []
    young: list[Pod] = []
    warnings: list[str] = []


def without_young(pods: Iterable[Pod], now: Moment, delay: int = 0) -> OldPods:
    """Keeps a pod if more than its delay (nanoseconds) has passed since it was made: with 0, one made just now waits.

    A pod's annotation may lengthen the delay; one that cannot be read or is shorter does not count.
    """
    found = OldPods()
    for pod in pods:
        own = _delay_of(pod, delay, found.warnings)
        old = now - from_text(pod.metadata.creation_timestamp) > own
        (found.pods if old else found.young).append(pod)
    return found


def _delay_of(pod: Pod, common: int, warnings: list[str]) -> int:
    text = pod_annotation(pod, SCALE_UP_DELAY)
    if text is None:
        return common
    name = go_quote(pod.metadata.name or "")
    try:
        own = parse_duration(text)
    except ValueError as error:
        warnings.append(f"Failed to parse pod {name} annotation {SCALE_UP_DELAY}: {error}")
        return common
    if own < common:
        warnings.append(
            f"Failed to set pod scale up delay for {name} through annotation {SCALE_UP_DELAY}: {text} is less than "
            f"{format_duration(common)}"
        )
        return common
    return own
