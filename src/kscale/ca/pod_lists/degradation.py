"""When there is no time for every pod (``core/podlistprocessor/filter_out_schedulable.go``).

Which pods fit on nodes that exist, :func:`kscale.ca.filter_out_schedulable` says.
"""

from __future__ import annotations

from typing import Final

from kscale.ca.events import Event

__all__ = ["count_degradation"]

_STARTED: Final = (
    "Autoscaler is unable to handle the large amount of unschedulable pods. Consider reducing the rate of adding new "
    "pods, so autoscaler could auto recover."
)
_STOPPED: Final = "Autoscaler exited from GracefulDegradationMode and works normally."


def count_degradation(counter: int, unprocessed: int, config_map: str) -> tuple[int, list[Event]]:
    """The counter of loops that ran out of time, and the event of the first such loop and of the first good one.

    Only asked where graceful degradation is enabled; ``unprocessed`` is how many pods were not looked at,
    ``config_map`` the status map's ``namespace/name``.
    """

    def say(kind: str, reason: str, message: str) -> list[Event]:
        return [Event(object=f"ConfigMap/{config_map}", type=kind, reason=reason, message=message)]

    if unprocessed > 0:
        return counter + 1, say("Warning", "GracefulDegradationStarted", _STARTED) if counter == 0 else []
    return 0, say("Normal", "GracefulDegradationStopped", _STOPPED) if counter > 0 else []
