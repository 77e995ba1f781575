"""Drivers: the Cluster Autoscaler, the HPA controller and the VPA programs as processes, and clients of external
servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.drivers.grpc_expander import GrpcExpander
    from kscale.drivers.work_queue import HorizontalController, Tombstone, WorkQueue

__all__ = ["GrpcExpander", "HorizontalController", "Tombstone", "WorkQueue"]


import_on_use(
    __name__,
    {
        "grpc_expander": ("GrpcExpander",),
        "work_queue": ("HorizontalController", "Tombstone", "WorkQueue"),
    },
)
