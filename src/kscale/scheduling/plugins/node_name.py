"""NodeName: a pod that names its node runs nowhere else (upstream: ``plugins/nodename``)."""

from __future__ import annotations

from kscale.scheduling.plugins.base import NOTHING, Judge, Plugin, PreFilter
from kscale.scheduling.profile import NAME, Context, NodeFacts
from kscale.scheduling.status import Status, unresolvable
from kscale.snapshot.classes.interner import PodClass

__all__ = ["NodeName"]


class NodeName(Plugin):
    """``spec.nodeName`` is empty, or the node's name."""

    name = "NodeName"
    checks_plain_pods = True

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        return PreFilter(nodes=frozenset({pod.node_name})) if pod.node_name else NOTHING

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        node_name = pod.node_name
        if not node_name:
            return None

        def check(node: NodeFacts) -> Status | None:
            return None if node_name == node.name else unresolvable("node(s) didn't match the requested node name")

        return Judge(node_name, frozenset({NAME}), check)
