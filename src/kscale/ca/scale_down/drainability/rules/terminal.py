"""Pods that have ended do not block a drain."""

from __future__ import annotations

from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DRAIN_OK, DrainStatus
from kscale.objects.core import Pod

__all__ = ["check"]

_OK = DrainStatus(outcome=DRAIN_OK)
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """DrainOk for failed pods, and for succeeded ones that will not be started again."""
    del context
    ended = pod.status.phase == "Failed" or (
        pod.status.phase == "Succeeded" and pod.spec.restart_policy in ("Never", "OnFailure")
    )
    return _OK if ended else _UNDEFINED
