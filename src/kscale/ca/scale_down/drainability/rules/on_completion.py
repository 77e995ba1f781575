"""Pods that want to finish first."""

from __future__ import annotations

from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import WAIT_FOR_COMPLETION, DrainStatus
from kscale.objects.core import Pod
from kscale.objects.pod_annotations import SAFE_TO_EVICT, pod_annotation

__all__ = ["check"]

_WAIT = DrainStatus(outcome=WAIT_FOR_COMPLETION)
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """WaitForCompletion for the safe-to-evict value ``on-completion``."""
    del context
    return _WAIT if pod_annotation(pod, SAFE_TO_EVICT) == "on-completion" else _UNDEFINED
