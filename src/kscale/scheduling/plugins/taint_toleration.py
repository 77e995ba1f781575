"""TaintToleration (upstream: ``plugins/tainttoleration``)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kscale.objects.taints import first_untolerated
from kscale.scheduling.plugins.base import TAINTS, Plugin, Status, unresolvable

if TYPE_CHECKING:
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["TaintToleration"]


class TaintToleration(Plugin):
    """Every NoSchedule and NoExecute taint of the node is tolerated."""

    name = "TaintToleration"
    ordinal = 3

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        return pod.tolerations_id

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        return frozenset({TAINTS})

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        if first_untolerated(pod.tolerations, node.taints) is None:
            return None
        return unresolvable("node(s) had untolerated taint(s)")
