"""What a loop around the decisions does next, as state machines: no clock, no I/O; ``now`` comes in."""

from __future__ import annotations

from kscale.drivers.horizontal import HorizontalController, Tombstone
from kscale.drivers.work_queue import WorkQueue

__all__ = ["HorizontalController", "Tombstone", "WorkQueue"]
