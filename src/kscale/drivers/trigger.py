"""When the Cluster Autoscaler's next loop begins (upstream: ``pkg/loop/trigger.go`` and the loop in ``main.go``).

Without a clock: a driver says what happened and when, and asks when it is due. That a pod waits for a node is told by
:func:`is_recent_unschedulable`, which is what a watch of unscheduled pods is held against.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kscale.effects import SECOND, ZERO_TIME, Moment, duration
from kscale.objects.conditions import changed_at
from kscale.objects.core import Pod
from kscale.objects.durations import format_duration

__all__ = ["UNSCHEDULED_PODS", "LoopTrigger", "is_recent_unschedulable"]

UNSCHEDULED_PODS: Final = "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of the pods that may begin a loop."""

_RECENT: Final = 10 * SECOND


def is_recent_unschedulable(pod: Pod, now: Moment) -> bool:
    """Whether the scheduler has said, not longer than ten seconds ago, that it has no node for the pod."""
    if pod.status.phase in ("Succeeded", "Failed") or pod.spec.node_name:
        return False
    condition = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return False
    return changed_at(pod, condition) + _RECENT >= now


class LoopTrigger:
    """When the next loop is due. One is under way from :meth:`began` to :meth:`ended`.

    ``frequent``: ``--frequent-loops-enabled``: a loop follows at once upon one that did something, or as soon as a pod
    waits for a node, and at the latest after ``scan_interval`` of waiting; else each follows upon the end of the last
    after ``scan_interval``. ``reason`` is what upstream logs when a loop begins.
    """

    __slots__ = (
        "_frequent",
        "_interval",
        "_last_run",
        "_previous_run",
        "_productive",
        "_token",
        "_waits_since",
        "reason",
    )

    def __init__(self, scan_interval: timedelta, *, frequent: bool = True, now: Moment) -> None:
        self._interval = duration(scan_interval)
        self._frequent = frequent
        self._previous_run = self._last_run = self._waits_since = now
        self._productive = ""
        self._token = False
        self.reason = ""

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        self._previous_run += by
        self._last_run += by
        self._waits_since += by

    def pod_waits(self) -> None:
        """A pod waits for a node. One such word is kept, also while a loop is under way."""
        self._token = self._frequent

    def next_due(self) -> Moment:
        """When the next loop is to begin: in the past or at this moment means now."""
        return self._waits_since if self._productive or self._token else self._waits_since + self._interval

    def began(self, now: Moment) -> int | None:
        """A loop begins. Gives for how many nanoseconds it was waited for (``function_duration``, ``loopWait``); None:
        upstream does not measure it."""
        if self._token:
            self.reason = "Autoscaler loop triggered by unschedulable pod appearing"
        elif self._productive:
            self.reason = f"Autoscaler loop triggered immediately after a {self._productive}"
        elif self._frequent:
            self.reason = f"Autoscaler loop triggered by a {format_duration(self._interval)} timer"
        self._token = False
        self._previous_run, self._last_run = self._last_run, now
        return now - self._waits_since if self._frequent else None

    def ended(
        self,
        now: Moment,
        *,
        last_scale_up: Moment = ZERO_TIME,
        last_scale_down_delete: Moment = ZERO_TIME,
        last_provisioning_request: Moment = ZERO_TIME,
    ) -> None:
        """A loop has ended. The moments are when something of the kind last happened; whatever happened since the loop
        *before* this one began calls for another at once (so that two kinds may take turns)."""
        self._waits_since = now
        happened = (
            ("scale up", last_scale_up),
            ("scale down", last_scale_down_delete),
            ("provisioning request was processed", last_provisioning_request),
        )
        found = next((name for name, at in happened if at >= self._previous_run), "")
        self._productive = found if self._frequent else ""
