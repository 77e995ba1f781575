"""Custom workloads that many clusters have: read for their scale, pod template and owner, as plain data.

OpenKruise's StatefulSet is left out: objects are held by kind, and StatefulSet is Kubernetes' own.
"""

from __future__ import annotations

from typing import Any

from kscale.objects.meta import KubeObject

__all__ = ["CloneSet", "CustomWorkload", "DeploymentConfig", "LeaderWorkerSet", "Rollout", "UnitedDeployment"]


class CustomWorkload(KubeObject):
    """A workload of a custom kind; what it says is checked where it is used."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Rollout(CustomWorkload):
    """Argo Rollouts (``argoproj.io``)."""


class CloneSet(CustomWorkload):
    """OpenKruise (``apps.kruise.io``)."""


class UnitedDeployment(CustomWorkload):
    """OpenKruise (``apps.kruise.io``)."""


class DeploymentConfig(CustomWorkload):
    """OpenShift (``apps.openshift.io``)."""


class LeaderWorkerSet(CustomWorkload):
    """``leaderworkerset.x-k8s.io``."""
