"""What upstream's informers hold: every object besides nodes and pods that a predicate reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.core import PodTemplate, Service
from kscale.objects.meta import KubeObject
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.policy import PodDisruptionBudget
from kscale.objects.provisioning_requests import ProvisioningRequest
from kscale.objects.quota import CapacityQuota
from kscale.objects.resource import DeviceClass, ResourceClaim, ResourceSlice
from kscale.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

__all__ = ["INFORMED_KINDS", "Informers"]

INFORMED_KINDS = frozenset(
    {
        "Namespace", "Service", "ReplicationController", "ReplicaSet", "StatefulSet", "PersistentVolume",
        "PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment",
        "ResourceClaim", "ResourceSlice", "DeviceClass", "DaemonSet", "Job", "PodDisruptionBudget", "CapacityQuota",
        "CapacityBuffer", "ProvisioningRequest", "PodTemplate",
    }
)  # fmt: skip

_EXTENDED_RESOURCES = "resource.kubernetes.io/extended-resource-claim"
_WORKLOADS = ("ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class Informers(msgspec.Struct, frozen=True, eq=False):
    """Indexed read-only views; made once per snapshot from the cluster's objects, in their order.

    ``leftovers``: claims that a scheduler made for the extended resources of a pod, by the pod's UID. ``binding``: some
    claim was given devices that wait for conditions, at a moment that it tells. ``pod_templates``: by
    ``namespace/name``.
    """

    namespaces: dict[str, dict[str, str] | None]
    services: dict[str, list[Service]]
    controllers: dict[tuple[str, str, str], Any]
    volumes: dict[str, PersistentVolume]
    claims: dict[tuple[str, str], PersistentVolumeClaim]
    storage_classes: dict[str, StorageClass]
    csi_nodes: dict[str, CSINode]
    csi_drivers: dict[str, CSIDriver]
    capacities: list[CSIStorageCapacity]
    attachments: list[VolumeAttachment]
    resource_claims: dict[tuple[str, str], ResourceClaim]
    leftovers: dict[str, ResourceClaim]
    binding: bool
    resource_slices: list[ResourceSlice]
    device_classes: dict[str, DeviceClass]
    workloads: list[KubeObject]
    budgets: list[PodDisruptionBudget]
    quotas: list[CapacityQuota]
    capacity_buffers: list[CapacityBuffer]
    provisioning_requests: list[ProvisioningRequest]
    pod_templates: dict[str, PodTemplate]

    @classmethod
    def of(cls, objects: dict[str, dict[str, Any]]) -> Informers:
        """From ``kind -> key -> object``."""
        return cls(**{field: make(objects) for field, (_, make) in _FIELDS.items()})

    def changed(self, objects: dict[str, dict[str, Any]], kinds: Collection[str]) -> Informers:
        """The same for kinds that did not change."""
        fresh = {field: make(objects) for field, (of, make) in _FIELDS.items() if not of.isdisjoint(kinds)}
        return msgspec.structs.replace(self, **fresh)

    def with_devices(self, nodes: Sequence[NodeTemplate]) -> Informers:
        """What they hold once more nodes are there: these bring their CSINodes and ResourceSlices with them."""
        csi_nodes = {each.csi_node.name: each.csi_node for each in nodes if each.csi_node is not None}
        slices = [found for each in nodes for found in each.resource_slices]
        if not csi_nodes and not slices:
            return self
        return msgspec.structs.replace(
            self,
            csi_nodes={**self.csi_nodes, **csi_nodes},
            resource_slices=[*self.resource_slices, *slices],
        )


_Objects = dict[str, dict[str, Any]]


def _all(objects: _Objects, kind: str) -> Iterable[Any]:
    return objects.get(kind, {}).values()


def _services(objects: _Objects) -> dict[str, list[Service]]:
    services: dict[str, list[Service]] = {}
    for service in _all(objects, "Service"):
        services.setdefault(service.namespace, []).append(service)
    return services


def _controllers(objects: _Objects) -> dict[tuple[str, str, str], Any]:
    kinds = ("ReplicationController", "ReplicaSet", "StatefulSet")
    return {(kind, each.namespace, each.name): each for kind in kinds for each in _all(objects, kind)}


def _leftovers(objects: _Objects) -> dict[str, ResourceClaim]:
    found: dict[str, ResourceClaim] = {}
    for claim in _all(objects, "ResourceClaim"):
        if (claim.metadata.annotations or {}).get(_EXTENDED_RESOURCES) == "true":
            for owner in claim.metadata.owner_references:
                if owner.controller:
                    found.setdefault(owner.uid, claim)
    return found


def _binds(claim: ResourceClaim) -> bool:
    given = claim.status.allocation
    return given is not None and bool(
        given.allocation_timestamp and any(result.binding_conditions for result in given.devices.results)
    )


def _by_name(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    return frozenset({kind}), lambda objects: {each.name: each for each in _all(objects, kind)}


def _by_key(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    return frozenset({kind}), lambda objects: {(each.namespace, each.name): each for each in _all(objects, kind)}


def _listed(kind: str) -> tuple[frozenset[str], Callable[[_Objects], Any]]:
    return frozenset({kind}), lambda objects: list(_all(objects, kind))


_FIELDS: dict[str, tuple[frozenset[str], Callable[[_Objects], Any]]] = {
    "namespaces": (
        frozenset({"Namespace"}),
        lambda objects: {each.name: each.metadata.labels for each in _all(objects, "Namespace")},
    ),
    "services": (frozenset({"Service"}), _services),
    "controllers": (frozenset({"ReplicationController", "ReplicaSet", "StatefulSet"}), _controllers),
    "volumes": _by_name("PersistentVolume"),
    "claims": _by_key("PersistentVolumeClaim"),
    "storage_classes": _by_name("StorageClass"),
    "csi_nodes": _by_name("CSINode"),
    "csi_drivers": _by_name("CSIDriver"),
    "capacities": _listed("CSIStorageCapacity"),
    "attachments": _listed("VolumeAttachment"),
    "resource_claims": _by_key("ResourceClaim"),
    "leftovers": (frozenset({"ResourceClaim"}), _leftovers),
    "binding": (frozenset({"ResourceClaim"}), lambda objects: any(map(_binds, _all(objects, "ResourceClaim")))),
    "resource_slices": _listed("ResourceSlice"),
    "device_classes": _by_name("DeviceClass"),
    "workloads": (frozenset(_WORKLOADS), lambda objects: [each for kind in _WORKLOADS for each in _all(objects, kind)]),
    "budgets": _listed("PodDisruptionBudget"),
    "quotas": _listed("CapacityQuota"),
    "capacity_buffers": _listed("CapacityBuffer"),
    "provisioning_requests": _listed("ProvisioningRequest"),
    "pod_templates": (
        frozenset({"PodTemplate"}),
        lambda objects: {each.key: each for each in _all(objects, "PodTemplate")},
    ),
}
"""Field -> (the kinds it is made of, how)."""
