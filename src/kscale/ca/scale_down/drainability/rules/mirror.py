"""Mirror pods stay with their kubelet: they are left alone."""

from __future__ import annotations

from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import SKIP_DRAIN, DrainStatus
from kscale.objects.core import Pod
from kscale.objects.owners import is_mirror_pod

__all__ = ["check"]

_SKIP = DrainStatus(outcome=SKIP_DRAIN)
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """SkipDrain for mirror pods."""
    del context
    return _SKIP if is_mirror_pod(pod) else _UNDEFINED
