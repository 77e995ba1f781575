"""Pods that say themselves that they may be evicted."""

from __future__ import annotations

from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DRAIN_OK, DrainStatus
from kscale.objects.core import Pod
from kscale.objects.pod_annotations import SAFE_TO_EVICT, pod_annotation

__all__ = ["check"]

_OK = DrainStatus(outcome=DRAIN_OK)
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """DrainOk for the annotation value ``true``."""
    del context
    return _OK if pod_annotation(pod, SAFE_TO_EVICT) == "true" else _UNDEFINED
