"""Pods in a loop of scale-up that nobody has made (upstream's fake pods)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from kscale.ca.capacity_buffers.buffer_events import buffer_events
from kscale.ca.event_subjects import UidOf
from kscale.ca.scale_up.status import ScaleUpStatus, status_events
from kscale.effects import Deferred, Event
from kscale.objects.capacity_buffers import CapacityBuffer

__all__ = ["MadeUpPods"]


class MadeUpPods(msgspec.Struct, kw_only=True, frozen=True):
    """Pods (``namespace/name``) that stand in a loop without being there.

    ``missing``: those that controllers have yet to make; ``buffers``: those of capacity buffers, with their buffers.
    """

    missing: frozenset[str] = frozenset()
    buffers: Mapping[str, CapacityBuffer] = {}

    def __contains__(self, pod: str) -> bool:
        return pod in self.missing or pod in self.buffers

    def __bool__(self) -> bool:
        return bool(self.missing or self.buffers)

    def without(self, status: ScaleUpStatus) -> ScaleUpStatus:
        """What is told of a scale-up: pods that nobody has made are in no list."""
        if not self:
            return status
        return replace(
            status,
            pods_triggered=Deferred(lambda: [pod for pod in status.pods_triggered if pod not in self]),
            pods_await_evaluation=Deferred(lambda: [pod for pod in status.pods_await_evaluation if pod not in self]),
            pods_remain_unschedulable=Deferred(
                lambda: [pod for pod in status.pods_remain_unschedulable if pod.pod not in self]
            ),
        )

    def events(self, status: ScaleUpStatus, uid_of: UidOf) -> list[Event]:
        """What upstream says after a scale-up: of the buffers, then of each pod that is there."""
        return [*buffer_events(status, self.buffers), *status_events(self.without(status), uid_of=uid_of)]
