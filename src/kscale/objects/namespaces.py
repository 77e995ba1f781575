"""Where an object lives that does not say it."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from kscale.objects.kinds import kind_of
from kscale.objects.meta import KubeObject

__all__ = ["DEFAULT_NAMESPACE", "NAMESPACED", "with_namespace"]

DEFAULT_NAMESPACE: Final = "default"

NAMESPACED: Final = frozenset(
    {
        "CapacityBuffer", "CloneSet", "ConfigMap", "CronJob", "CSIStorageCapacity", "DaemonSet", "Deployment",
        "DeploymentConfig", "Event", "HorizontalPodAutoscaler", "Job", "LeaderWorkerSet", "Lease", "LimitRange",
        "MachineDeployment", "MachinePool",
        "MachineSet", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PodMetrics", "PodTemplate",
        "ProvisioningRequest", "ReplicaSet", "ReplicationController", "ResourceClaim", "ResourceClaimTemplate",
        "ResourceQuota", "Rollout", "ScaledObject", "Service", "StatefulSet", "UnitedDeployment",
        "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
    }
)  # fmt: skip
"""Kinds whose objects are in a namespace, of those that are modelled."""

K = TypeVar("K", bound=KubeObject)


def with_namespace(item: K, namespace: str = DEFAULT_NAMESPACE) -> K:
    """An object as an API server would hold it: one that is to be in a namespace and names none is in ``namespace``."""
    if item.metadata.namespace:
        return item
    kind = item.kind or (kind_of(type(item)) or ("", ""))[1]
    if kind not in NAMESPACED:
        return item
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace=namespace))
