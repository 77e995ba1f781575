"""TaintToleration (upstream: ``plugins/tainttoleration``)."""

from __future__ import annotations

from kscale.objects.taints import first_untolerated
from kscale.scheduling.context import Context
from kscale.scheduling.facts import TAINTS, NodeFacts
from kscale.scheduling.plugins.base import Judge, Plugin
from kscale.scheduling.status import Status, unresolvable
from kscale.snapshot.interner import PodClass

__all__ = ["TaintToleration"]

_COLUMNS = frozenset({TAINTS})


class TaintToleration(Plugin):
    """Every NoSchedule and NoExecute taint of the node is tolerated."""

    name = "TaintToleration"

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        def check(node: NodeFacts) -> Status | None:
            if first_untolerated(pod.tolerations, node.taints) is None:
                return None
            return unresolvable("node(s) had untolerated taint(s)")

        return Judge(pod.tolerations_id, _COLUMNS, check)
