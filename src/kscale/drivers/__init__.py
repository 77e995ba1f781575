"""Drivers: the Cluster Autoscaler, the HPA controller and the VPA programs as processes, and clients of external
servers.
"""

from __future__ import annotations

from kscale.drivers.grpc_expander import GrpcExpander
from kscale.drivers.horizontal_queue import HorizontalController, Tombstone
from kscale.drivers.work_queue import WorkQueue

__all__ = ["GrpcExpander", "HorizontalController", "Tombstone", "WorkQueue"]
