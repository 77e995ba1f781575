"""NodePorts: host ports, one user each (upstream: ``plugins/nodeports``). The engine keeps the ports in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.scheduling.plugins.base import NOTHING, SKIP, Plugin, PreFilter, Status, unschedulable

if TYPE_CHECKING:
    from kscale.scheduling.context import Context
    from kscale.snapshot.interner import PodClass

__all__ = ["PORT_TAKEN", "NodePorts"]

PORT_TAKEN: Status = unschedulable("node(s) didn't have free ports for the requested pod ports")


class NodePorts(Plugin):
    """No host port of the pod is in use: 0.0.0.0 collides with every address, other addresses as plain text."""

    name = "NodePorts"
    ordinal = 5

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        return NOTHING if pod.ports else SKIP
