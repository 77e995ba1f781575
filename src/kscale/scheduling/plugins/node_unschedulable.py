"""NodeUnschedulable: cordoned nodes (upstream: ``plugins/nodeunschedulable``)."""

from __future__ import annotations

from kscale.objects.api.core import Taint
from kscale.objects.node_selectors import tolerates
from kscale.scheduling.plugins.base import Judge, Plugin
from kscale.scheduling.profile import CORDON, Context, NodeFacts
from kscale.scheduling.status import Status, unresolvable
from kscale.snapshot.classes.interner import PodClass

__all__ = ["NodeUnschedulable"]

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(Plugin):
    """``spec.unschedulable`` is false, or the pod tolerates the taint of that name."""

    name = "NodeUnschedulable"
    checks_plain_pods = True

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        if any(tolerates(toleration, _TAINT) for toleration in pod.tolerations):
            return None
        return _CORDONED


def _check(node: NodeFacts) -> Status | None:
    return unresolvable("node(s) were unschedulable") if node.unschedulable else None


_CORDONED = Judge(None, frozenset({CORDON}), _check)
