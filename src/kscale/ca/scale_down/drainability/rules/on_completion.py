"""Pods that want to finish first."""

from __future__ import annotations

from kscale.ca.pods import annotation
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.rules.safe_to_evict import SAFE_TO_EVICT
from kscale.ca.scale_down.drainability.status import WAIT_FOR_COMPLETION, DrainStatus
from kscale.objects.core import Pod

__all__ = ["check"]

_WAIT = DrainStatus(outcome=WAIT_FOR_COMPLETION)
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """WaitForCompletion for the safe-to-evict value ``on-completion``."""
    del context
    return _WAIT if annotation(pod, SAFE_TO_EVICT) == "on-completion" else _UNDEFINED
