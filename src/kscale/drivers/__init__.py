"""What stands around the decisions: state machines that say what a loop does next (no clock; ``now`` comes in), and
clients of servers that a decision asks."""

from __future__ import annotations

from kscale.drivers.grpc_expander import GrpcExpander
from kscale.drivers.horizontal_queue import HorizontalController, Tombstone
from kscale.drivers.work_queue import WorkQueue

__all__ = ["GrpcExpander", "HorizontalController", "Tombstone", "WorkQueue"]
