"""When there is no time for every pod (``core/podlistprocessor``, ``core/static_autoscaler.go``).

With ``--enable-graceful-degradation`` a loop looks at pending pods for ``--pending-pods-batching-timeout`` only. Loops
in a row that were too short are counted, in :class:`kscale.ca.state.ScaleUpState`; while they are, one loop of four is
for scale-down and the others are not. Which pods fit meanwhile, :func:`kscale.ca.filter_out_schedulable` says.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kscale.ca.event_subjects import status_event
from kscale.ca.options import AutoscalingOptions
from kscale.effects import Event
from kscale.objects.argument_types import typed

__all__ = ["count_degradation", "is_reserved_for_scale_down", "looks_in_time", "may_scale_down"]

_STARTED: Final = (
    "Autoscaler is unable to handle the large amount of unschedulable pods. Consider reducing the rate of adding new "
    "pods, so autoscaler could auto recover."
)
_STOPPED: Final = "Autoscaler exited from GracefulDegradationMode and works normally."
_RESERVED: Final = 4
"""Of so many degraded loops one belongs to scale-down."""


def looks_in_time(options: AutoscalingOptions, max_looks: int | None) -> int | None:
    """How many looks at pods there is time for (None: for all); none if the time-out is over before it begins.

    ``max_looks`` is what the caller says there is time for: it counts where there is a time-out.
    """
    if not options.enable_graceful_degradation:
        return None
    return 0 if options.pending_pods_batching_timeout <= timedelta() else max_looks


def count_degradation(counter: int, unprocessed: int, options: AutoscalingOptions) -> tuple[int, list[Event]]:
    """The counter of loops that ran out of time, and the event of the first such loop and of the first good one.

    Only asked where graceful degradation is enabled; ``unprocessed`` is how many pods were not looked at.
    """
    if unprocessed > 0:
        said = status_event(options, "Warning", "GracefulDegradationStarted", _STARTED)
        return counter + 1, [said] if counter == 0 else []
    said = status_event(options, "Normal", "GracefulDegradationStopped", _STOPPED)
    return 0, [said] if counter > 0 else []


def is_reserved_for_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Whether a loop that may be degraded leaves scale-up out."""
    return options.enable_graceful_degradation and counter > 0 and counter % _RESERVED == 0


@typed
def may_scale_down(counter: int, options: AutoscalingOptions) -> bool:
    """Whether a loop may scale down: always, but while loops are degraded only in one of four.

    ``counter`` is the one *after* the pods of the loop were looked at: ``plan.state.scale_up.degraded_loops``.
    """
    if not options.scale_down_enabled:
        return False
    return not (options.enable_graceful_degradation and counter > 0 and counter % _RESERVED != 0)
