"""NodeName: a pod that names its node runs nowhere else (upstream: ``plugins/nodename``)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kscale.scheduling.plugins.base import NAME, NOTHING, Plugin, PreFilter, Status, unresolvable

if TYPE_CHECKING:
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["NodeName"]


class NodeName(Plugin):
    """``spec.nodeName`` empty, or the node's name."""

    name = "NodeName"
    ordinal = 1

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        return PreFilter(nodes=frozenset({pod.node_name})) if pod.node_name else NOTHING

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        return pod.node_name or None

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        return frozenset({NAME})

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        if pod.node_name in ("", node.name):
            return None
        return unresolvable("node(s) didn't match the requested node name")
