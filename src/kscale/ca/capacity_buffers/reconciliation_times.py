"""How long ago buffers were last reconciled (``capacitybuffer/metrics``: a cache, and its collector)."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.ca.metrics import observation
from kscale.effects import SECOND, Moment, Observation, from_text
from kscale.objects.capacity_buffers import CapacityBuffer

__all__ = ["ReconciliationTimes"]


class ReconciliationTimes:
    """When each buffer's status was last written, or found to be right."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Moment] = {}

    def update(self, buffers: Iterable[CapacityBuffer], at: Moment) -> None:
        """These buffers are reconciled."""
        self._by_uid.update(dict.fromkeys((buffer.metadata.uid for buffer in buffers), at))

    def prune(self, buffers: Iterable[CapacityBuffer]) -> None:
        """Forgets all but these."""
        there = {buffer.metadata.uid for buffer in buffers}
        self._by_uid = {uid: at for uid, at in self._by_uid.items() if uid in there}

    def observed(self, buffers: Iterable[CapacityBuffer], now: Moment) -> list[Observation]:
        """The oldest time among the buffers that have been reconciled, and the oldest creation among the new ones, both
        at most ``now``, in whole Unix seconds. A buffer that has conditions and was not reconciled since this process
        began counts in neither."""
        oldest = {"true": now, "false": now}
        for buffer in buffers:
            at = self._by_uid.get(buffer.metadata.uid)
            if at is not None:
                oldest["false"] = min(oldest["false"], at)
            elif not buffer.status.conditions:
                oldest["true"] = min(oldest["true"], from_text(buffer.metadata.creation_timestamp))
        name = "capacity_buffer_oldest_reconciliation_timestamp_seconds"
        return [observation(name, at // SECOND, new_buffer=is_new) for is_new, at in oldest.items()]
