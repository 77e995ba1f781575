"""Kinds and their structs, which kinds have a namespace, and checks of an object's kind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, TypeVar

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.api.meta import KubeObject, object_key

__all__ = [
    "DEFAULT_NAMESPACE",
    "KINDS",
    "NAMESPACED",
    "check_kind",
    "custom_kind_key",
    "find_kind",
    "group_of",
    "is_custom_group",
    "item_kind",
    "kind_of",
    "with_namespace",
]


_CORE: Final = "kscale.objects.api.core"
_APPS: Final = "kscale.objects.api.apps"
_STORAGE: Final = "kscale.objects.api.storage"
_AUTOSCALING: Final = "kscale.objects.api.autoscaling"
_CUSTOM: Final = "kscale.objects.custom_workloads"
_RESOURCE: Final = "kscale.objects.api.resource"

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
    ("batch", "Job"): "kscale.objects.api.apps:Job",
    ("batch", "CronJob"): "kscale.objects.api.apps:CronJob",
    ("", "ResourceQuota"): "kscale.objects.api.policy:ResourceQuota",
    ("policy", "PodDisruptionBudget"): "kscale.objects.api.policy:PodDisruptionBudget",
    ("coordination.k8s.io", "Lease"): "kscale.objects.api.coordination:Lease",
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
    ("metrics.k8s.io", "PodMetrics"): "kscale.objects.api.metrics:PodMetrics",
    ("metrics.k8s.io", "NodeMetrics"): "kscale.objects.api.metrics:NodeMetrics",
    **{("autoscaling.k8s.io", kind): f"kscale.objects.api.vpa:{kind}" for kind in (
        "VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint",
    )},
    ("apiextensions.k8s.io", "CustomResourceDefinition"): "kscale.objects.scale:CustomResourceDefinition",
    ("keda.sh", "ScaledObject"): "kscale.objects.custom_workloads:ScaledObject",
    ("argoproj.io", "Rollout"): f"{_CUSTOM}:Rollout",
    **{("apps.kruise.io", kind): f"{_CUSTOM}:{kind}" for kind in ("CloneSet", "UnitedDeployment")},
    ("apps.openshift.io", "DeploymentConfig"): f"{_CUSTOM}:DeploymentConfig",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): f"{_CUSTOM}:LeaderWorkerSet",
    ("scheduling.k8s.io", "PriorityClass"): "kscale.objects.api.policy:PriorityClass",
    ("node.k8s.io", "RuntimeClass"): "kscale.objects.api.policy:RuntimeClass",
    ("autoscaling.x-k8s.io", "CapacityQuota"): "kscale.objects.api.cluster_autoscaler:CapacityQuota",
    ("autoscaling.x-k8s.io", "CapacityBuffer"): "kscale.objects.api.cluster_autoscaler:CapacityBuffer",
    ("autoscaling.x-k8s.io", "ProvisioningRequest"): "kscale.objects.api.cluster_autoscaler:ProvisioningRequest",
    **{("cluster.x-k8s.io", kind): f"kscale.objects.api.cluster_infrastructure:{kind}" for kind in (
        "Machine", "MachineDeployment", "MachineSet", "MachinePool",
    )},
}  # fmt: skip
"""(API group, kind) or (API group/version, kind) -> ``module:Class``; the entry with the version goes first.

An empty target is a version that is not read although others of its kind are.
"""


def group_of(api_version: str) -> str:
    """Return the API group of an ``apiVersion``: ``apps`` for ``apps/v1``, empty for the core group."""
    return api_version.rpartition("/")[0]


def custom_kind_key(group: str, kind: str) -> str:
    """Return the name under which a cluster holds objects of a custom kind that no struct is made for."""
    return f"{kind}.{group}"


def is_custom_group(group: str) -> bool:
    """Return whether an API group does not belong to Kubernetes itself."""
    return "." in group and (not group.endswith(".k8s.io") or group.endswith(".x-k8s.io"))


@lru_cache(1024)  # the keys come from input files
def find_kind(api_version: str, kind: str) -> type[KubeObject] | None:
    """Return the struct of a kind, or None if kscale does not read the kind."""
    target = KINDS.get((api_version, kind), KINDS.get((group_of(api_version), kind)))
    if not target:
        return None
    module, _, name = target.partition(":")
    struct: type[KubeObject] = getattr(import_module(module), name)
    return struct


@cache
def _names() -> dict[str, tuple[str, str]]:
    return {target: key for key, target in reversed(KINDS.items())}


@cache
def kind_of(type_: type) -> tuple[str, str] | None:
    """Return (API group, kind) of a struct for objects created without ``kind``; None for other types."""
    return _names().get(f"{type_.__module__}:{type_.__name__}")


def item_kind(list_kind: str) -> str:
    """Return the kind of a list's items: ``Pod`` for ``PodList``; empty for ``List`` and for other kinds."""
    return list_kind.removesuffix("List") if list_kind.endswith("List") else ""


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
    """Return the object with ``namespace`` set if its kind is namespaced and it has no namespace."""
    if item.metadata.namespace:
        return item
    kind = item.kind or (kind_of(type(item)) or ("", ""))[1]
    if kind not in NAMESPACED:
        return item
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace=namespace))


_TEMPLATES = frozenset({"template", "jobTemplate"})  # what workloads have in their spec, and pods do not


def check_kind(value: KubeObject | Mapping[str, Any], type_: type[KubeObject], field: str = "") -> None:
    """Check the kind of an object that a caller passes as a ``type_``.

    Parameters
    ----------
    value : KubeObject or mapping
        A struct, or API data. Data without ``kind`` passes.
    type_ : type of KubeObject
        The struct that the caller is about to read, for example ``Pod``.
    field : str
        The object's field, for the error.

    Raises
    ------
    InputError
        If the object is of another kind. The message names the kind and says what to pass instead.
    """
    _, expected = kind_of(type_) or ("", type_.__name__)
    kind: Any
    version: Any
    if isinstance(value, KubeObject):
        _, own = kind_of(type(value)) or ("", type(value).__name__)
        kind, version = value.kind or own, value.api_version
        key = value.key
    else:
        kind, version = value.get("kind") or expected, value.get("apiVersion") or ""
        key = _key_of(value.get("metadata"))
        spec = value.get("spec")
        if (
            not value.get("kind")
            and expected == "Pod"
            and isinstance(spec, Mapping)
            and not _TEMPLATES.isdisjoint(spec)
        ):
            text = f"an object without kind, {key} with a pod template, is not a Pod{_advice('Deployment', expected)}"
            raise InputError(Problem(text, field=field))
    if not (isinstance(kind, str) and isinstance(version, str)):
        return  # decoding reports it
    if kind == expected and (not version or find_kind(version, kind) is type_):
        return
    label = kind if kind != expected else f"{version} {kind}"
    message = f"{label} {key}".rstrip() + f" is not a {expected}{_advice(kind, expected)}"
    raise InputError(Problem(message, field=field))


def _has_template(spec: Any) -> bool:
    return isinstance(spec, Mapping) and not _TEMPLATES.isdisjoint(spec)


def _key_of(metadata: Any) -> str:
    if not isinstance(metadata, Mapping):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return object_key(str(namespace or ""), str(name or ""))


def _advice(kind: str, expected: str) -> str:
    """Return the part of the message that says what to pass instead of an object of another kind."""
    if item_kind(kind) or kind == "List":
        return ": pass the objects of the list one by one"
    if expected != "Pod" or kind == expected:
        return ""
    from kscale.objects.workloads import WORKLOADS

    if kind not in WORKLOADS:
        return ": pass pods, or the names of pods in the snapshot"
    return (
        ": a workload needs a Cluster instead of a snapshot, or pass the pods that it would create, as "
        "kscale.objects.workloads.pods_of(workload) returns them"
    )
