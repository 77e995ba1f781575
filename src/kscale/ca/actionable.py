"""Whether a loop can do anything with the cluster (``processors/actionablecluster``: EmptyClusterProcessor)."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, duration
from kscale.effects.moments import ComparedDuration

__all__ = ["NotActionable", "not_actionable"]

STARTING: Final[ComparedDuration] = 600 * SECOND
"""For so long after the process began nobody is told that no node is ready."""


class NotActionable(msgspec.Struct, kw_only=True, frozen=True):
    """Why the loop ends before it began; ``tell``: whether an event says so."""

    message: str
    tell: bool = True


def not_actionable(
    nodes: int, ready_nodes: int, options: AutoscalingOptions, process_age: timedelta | None = None
) -> NotActionable | None:
    """With ``--scale-up-from-zero=false`` a cluster without (ready) nodes is left alone; None: go on.

    ``process_age``: how long the autoscaler has been running (None: long enough).
    """
    if options.scale_up_from_zero:
        return None
    if nodes == 0:
        return NotActionable(message="Cluster has no nodes.")
    if ready_nodes == 0:
        is_old = process_age is None or duration(process_age) > STARTING
        return NotActionable(message="Cluster has no ready nodes.", tell=is_old)
    return None
