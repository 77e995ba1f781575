"""Which struct stands for which kind. Kinds that are not listed are read past and counted, never an error."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from typing import Final

from kscale.objects.meta import KubeObject

__all__ = ["KINDS", "find_kind", "group_of", "item_kind", "kind_of"]

_CORE: Final = "kscale.objects.core"
_APPS: Final = "kscale.objects.apps"
_STORAGE: Final = "kscale.objects.storage"
_AUTOSCALING: Final = "kscale.objects.autoscaling"
_CUSTOM: Final = "kscale.objects.custom_workloads"
_RESOURCE: Final = "kscale.objects.resource"

KINDS: Final[dict[tuple[str, str], str]] = {
    ("", "Pod"): f"{_CORE}:Pod",
    ("", "PodTemplate"): f"{_CORE}:PodTemplate",
    ("", "Node"): f"{_CORE}:Node",
    **{("", kind): f"{_CORE}:{kind}" for kind in (
        "Namespace", "Service", "ReplicationController", "LimitRange", "ConfigMap",
    )},
    ("", "Event"): f"{_CORE}:Event",
    ("events.k8s.io", "Event"): f"{_CORE}:Event",
    ("", "PersistentVolume"): f"{_STORAGE}:PersistentVolume",
    ("", "PersistentVolumeClaim"): f"{_STORAGE}:PersistentVolumeClaim",
    **{("apps", kind): f"{_APPS}:{kind}" for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")},
    **{("extensions", kind): f"{_APPS}:{kind}" for kind in ("Deployment", "ReplicaSet", "DaemonSet")},
    ("batch", "Job"): "kscale.objects.batch:Job",
    ("batch", "CronJob"): "kscale.objects.batch:CronJob",
    ("", "ResourceQuota"): "kscale.objects.resource_quotas:ResourceQuota",
    ("policy", "PodDisruptionBudget"): "kscale.objects.policy:PodDisruptionBudget",
    ("coordination.k8s.io", "Lease"): "kscale.objects.leases:Lease",
    **{("storage.k8s.io", kind): f"{_STORAGE}:{kind}" for kind in (
        "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment",
    )},
    **{("resource.k8s.io", kind): f"{_RESOURCE}:{kind}" for kind in (
        "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass",
    )},
    ("autoscaling", "HorizontalPodAutoscaler"): f"{_AUTOSCALING}:HorizontalPodAutoscaler",
    ("autoscaling/v1", "HorizontalPodAutoscaler"): f"{_AUTOSCALING}:HorizontalPodAutoscalerV1",
    ("autoscaling/v2beta1", "HorizontalPodAutoscaler"): "",
    ("autoscaling", "Scale"): f"{_AUTOSCALING}:Scale",
    ("metrics.k8s.io", "PodMetrics"): "kscale.objects.metrics:PodMetrics",
    ("metrics.k8s.io", "NodeMetrics"): "kscale.objects.metrics:NodeMetrics",
    **{("autoscaling.k8s.io", kind): f"kscale.objects.vpa:{kind}" for kind in (
        "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
    )},
    ("apiextensions.k8s.io", "CustomResourceDefinition"): "kscale.objects.scale:CustomResourceDefinition",
    ("keda.sh", "ScaledObject"): "kscale.objects.keda:ScaledObject",
    ("argoproj.io", "Rollout"): f"{_CUSTOM}:Rollout",
    **{("apps.kruise.io", kind): f"{_CUSTOM}:{kind}" for kind in ("CloneSet", "UnitedDeployment")},
    ("apps.openshift.io", "DeploymentConfig"): f"{_CUSTOM}:DeploymentConfig",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): f"{_CUSTOM}:LeaderWorkerSet",
    ("scheduling.k8s.io", "PriorityClass"): "kscale.objects.classes:PriorityClass",
    ("node.k8s.io", "RuntimeClass"): "kscale.objects.classes:RuntimeClass",
    ("autoscaling.x-k8s.io", "CapacityQuota"): "kscale.objects.quota:CapacityQuota",
    ("autoscaling.x-k8s.io", "CapacityBuffer"): "kscale.objects.capacity_buffers:CapacityBuffer",
    ("autoscaling.x-k8s.io", "ProvisioningRequest"): "kscale.objects.provisioning_requests:ProvisioningRequest",
    **{("cluster.x-k8s.io", kind): f"kscale.objects.cluster_api:{kind}" for kind in (
        "Machine", "MachineDeployment", "MachineSet", "MachinePool",
    )},
}  # fmt: skip
"""(API group, kind) or (API group/version, kind) -> ``module:Class``; the entry with the version goes first.

An empty target is a version that is not read although others of its kind are.
"""


def group_of(api_version: str) -> str:
    """``apps`` of ``apps/v1``; empty for the core group."""
    return api_version.rpartition("/")[0]


@lru_cache(1024)  # what is asked for comes from outside
def find_kind(api_version: str, kind: str) -> type[KubeObject] | None:
    """The struct of a kind, or None for a kind that is not read."""
    target = KINDS.get((api_version, kind), KINDS.get((group_of(api_version), kind)))
    if not target:
        return None
    module, _, name = target.partition(":")
    found: type[KubeObject] = getattr(import_module(module), name)
    return found


@cache
def _names() -> dict[str, tuple[str, str]]:
    return {target: key for key, target in reversed(KINDS.items())}


@cache
def kind_of(type_: type) -> tuple[str, str] | None:
    """(API group, kind) of a struct: what an object made in Python, without ``kind``, is."""
    return _names().get(f"{type_.__module__}:{type_.__name__}")


def item_kind(list_kind: str) -> str:
    """``Pod`` of ``PodList``; empty for a plain ``List`` and for kinds that are no lists."""
    return list_kind.removesuffix("List") if list_kind.endswith("List") else ""
