"""NodeDeclaredFeatures: features that the pod's spec implies and the node must declare (Kubernetes 1.36 and later)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kscale.scheduling.plugins.base import FEATURES, NOTHING, SKIP, Plugin, PreFilter, Status, unresolvable

if TYPE_CHECKING:
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["NodeDeclaredFeatures"]


class NodeDeclaredFeatures(Plugin):
    """Every inferred feature is in ``status.declaredFeatures``."""

    name = "NodeDeclaredFeatures"
    ordinal = 14

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        return NOTHING if pod.features else SKIP

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        return pod.features or None

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        return frozenset({FEATURES})

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        return None if pod.features <= node.features else unresolvable("node(s) didn't match Pod's required features")
