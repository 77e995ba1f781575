"""Drivers: the Cluster Autoscaler, the HPA controller and the VPA programs as processes, and clients of external
servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.lazy import import_on_use

if TYPE_CHECKING:
    from kscale.drivers.grpc_expander import GrpcExpander
    from kscale.drivers.horizontal_queue import HorizontalController, Tombstone
    from kscale.drivers.work_queue import WorkQueue

__all__ = ["GrpcExpander", "HorizontalController", "Tombstone", "WorkQueue"]


import_on_use(
    __name__,
    {
        "grpc_expander": ("GrpcExpander",),
        "horizontal_queue": ("HorizontalController", "Tombstone"),
        "work_queue": ("WorkQueue",),
    },
)
