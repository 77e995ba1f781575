"""Pods that say themselves that they must not be evicted."""

from __future__ import annotations

from kscale.ca.scale_down.drainability import blocking_pod_reason
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DrainStatus, blocked
from kscale.objects.core import Pod
from kscale.objects.pod_annotations import SAFE_TO_EVICT, pod_annotation

__all__ = ["check"]

_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """BlockDrain for the safe-to-evict value ``false``."""
    del context
    if pod_annotation(pod, SAFE_TO_EVICT) != "false":
        return _UNDEFINED
    error = f"pod annotated as not safe to evict present: {pod.metadata.name}"
    return blocked(blocking_pod_reason.NOT_SAFE_TO_EVICT_ANNOTATION, error)
