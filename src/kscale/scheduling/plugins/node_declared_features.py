"""NodeDeclaredFeatures: features that the pod's spec implies and the node must declare (Kubernetes 1.36 and later).

``inferred_features`` in ``snapshot/classes/facets.py`` lists them.
"""

from __future__ import annotations

from kscale.scheduling.plugins.base import Judge, Plugin
from kscale.scheduling.profile import FEATURES, Context, NodeFacts
from kscale.scheduling.status import Status, unresolvable
from kscale.snapshot.classes.interner import PodClass

__all__ = ["NodeDeclaredFeatures"]


class NodeDeclaredFeatures(Plugin):
    """Every inferred feature is in ``status.declaredFeatures``."""

    name = "NodeDeclaredFeatures"
    checks_plain_pods = True

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        return not pod.features

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        required = pod.features
        if not required:
            return None

        def check(node: NodeFacts) -> Status | None:
            return None if required <= node.features else unresolvable("node(s) didn't match Pod's required features")

        return Judge(required, frozenset({FEATURES}), check)
