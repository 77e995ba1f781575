"""TaintToleration: taints that the pod has to tolerate (upstream: ``plugins/tainttoleration``)."""

from __future__ import annotations

from kscale.objects.node_selectors import first_untolerated
from kscale.scheduling.plugins.base import Judge, Plugin
from kscale.scheduling.profile import TAINTS, Context, NodeFacts
from kscale.scheduling.status import Status, unresolvable
from kscale.snapshot.classes.interner import PodClass

__all__ = ["TaintToleration"]

_COLUMNS = frozenset({TAINTS})


class TaintToleration(Plugin):
    """Every NoSchedule and NoExecute taint of the node is tolerated."""

    name = "TaintToleration"
    checks_plain_pods = True

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        def check(node: NodeFacts) -> Status | None:
            if first_untolerated(pod.tolerations, node.taints) is None:
                return None
            return unresolvable("node(s) had untolerated taint(s)")

        return Judge(pod.tolerations_id, _COLUMNS, check)
