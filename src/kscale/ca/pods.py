"""What a pod's life span means to the autoscaler (``utils/drain``)."""

from __future__ import annotations

from kscale.ca.go_math import wrap_int64
from kscale.effects import SECOND
from kscale.objects.core import Pod
from kscale.objects.times import nanoseconds

__all__ = ["is_long_terminating"]

_DEFAULT_GRACE_SECONDS = 30
_EXTRA_GRACE = 30 * SECOND


def is_long_terminating(pod: Pod, now_ns: int) -> bool:
    """Told to stop so long ago that its grace period and half a minute are over."""
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return False
    grace = pod.spec.termination_grace_period_seconds
    grace_ns = wrap_int64((_DEFAULT_GRACE_SECONDS if grace is None else grace) * SECOND)
    return nanoseconds(deleted) + grace_ns + _EXTRA_GRACE < now_ns
