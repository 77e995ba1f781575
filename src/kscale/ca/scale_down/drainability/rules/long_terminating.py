"""Pods that should long be gone do not hold a node."""

from __future__ import annotations

from kscale.ca.pods import is_long_terminating
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.drainability.status import SKIP_DRAIN, DrainStatus
from kscale.objects.core import Pod

__all__ = ["check"]

_SKIP = DrainStatus(outcome=SKIP_DRAIN)
_UNDEFINED = DrainStatus()


def check(pod: Pod, context: DrainContext) -> DrainStatus:
    """SkipDrain for pods that overstayed their grace period."""
    return _SKIP if is_long_terminating(pod, context.now) else _UNDEFINED
