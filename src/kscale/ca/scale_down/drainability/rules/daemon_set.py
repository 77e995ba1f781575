"""DaemonSet pods do not block a drain."""

from __future__ import annotations

from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import DRAIN_OK, DrainStatus
from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod

__all__ = ["check"]

_OK = DrainStatus(outcome=DRAIN_OK)
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """DrainOk for DaemonSet pods."""
    del context
    return _OK if is_daemonset_pod(pod) else _UNDEFINED
