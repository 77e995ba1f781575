"""NodeUnschedulable: cordoned nodes (upstream: ``plugins/nodeunschedulable``)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kscale.objects.core import Taint
from kscale.objects.taints import tolerates
from kscale.scheduling.plugins.base import CORDON, Plugin, Status, unresolvable

if TYPE_CHECKING:
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["NodeUnschedulable"]

CORDON_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(Plugin):
    """``spec.unschedulable`` unless the pod tolerates the taint of that name."""

    name = "NodeUnschedulable"
    ordinal = 2

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        return pod.tolerations_id

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        return frozenset({CORDON})

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        if not node.unschedulable or any(tolerates(toleration, CORDON_TAINT) for toleration in pod.tolerations):
            return None
        return unresolvable("node(s) were unschedulable")
