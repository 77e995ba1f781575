"""What a pod's life span means to the autoscaler (``utils/drain``)."""

from __future__ import annotations

from typing import Final

from kscale.ca.go_math import wrap_int64
from kscale.effects import SECOND
from kscale.effects.moments import ComparedDuration
from kscale.objects.core import Pod
from kscale.objects.times import nanoseconds

__all__ = ["is_long_terminating"]

DEFAULT_GRACE: Final[ComparedDuration] = 30 * SECOND
EXTRA_GRACE: Final[ComparedDuration] = 30 * SECOND


def is_long_terminating(pod: Pod, now_ns: int) -> bool:
    """Told to stop so long ago that its grace period and half a minute are over."""
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return False
    grace = pod.spec.termination_grace_period_seconds
    grace_ns = wrap_int64(DEFAULT_GRACE if grace is None else grace * SECOND)
    return nanoseconds(deleted) + grace_ns + EXTRA_GRACE < now_ns
