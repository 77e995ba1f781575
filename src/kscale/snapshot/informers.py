"""What upstream's informers hold: every object besides nodes and pods that a predicate reads."""

from __future__ import annotations

from typing import Any

import msgspec

from kscale.objects.core import Namespace, ReplicationController, Service
from kscale.objects.meta import KubeObject
from kscale.objects.policy import PodDisruptionBudget
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
        "ResourceClaim", "ResourceSlice", "DeviceClass", "DaemonSet", "Job", "PodDisruptionBudget",
    }
)  # fmt: skip

_WORKLOADS = ("ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class Informers(msgspec.Struct, frozen=True, eq=False):
    """Indexed read-only views; made once per snapshot from the cluster's objects, in their order."""

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
    resource_slices: list[ResourceSlice]
    device_classes: dict[str, DeviceClass]
    workloads: list[KubeObject]
    budgets: list[PodDisruptionBudget]

    @classmethod
    def of(cls, objects: dict[str, dict[str, Any]]) -> Informers:
        """From ``kind -> key -> object``."""

        def all_of(kind: str) -> list[Any]:
            return list(objects.get(kind, {}).values())

        services: dict[str, list[Service]] = {}
        for service in all_of("Service"):
            services.setdefault(service.namespace, []).append(service)
        namespaces: list[Namespace] = all_of("Namespace")
        replication: list[ReplicationController] = all_of("ReplicationController")
        return cls(
            namespaces={each.name: each.metadata.labels for each in namespaces},
            services=services,
            controllers={
                (kind, each.namespace, each.name): each
                for kind, found in (
                    ("ReplicationController", replication),
                    ("ReplicaSet", all_of("ReplicaSet")),
                    ("StatefulSet", all_of("StatefulSet")),
                )
                for each in found
            },
            volumes={each.name: each for each in all_of("PersistentVolume")},
            claims={(each.namespace, each.name): each for each in all_of("PersistentVolumeClaim")},
            storage_classes={each.name: each for each in all_of("StorageClass")},
            csi_nodes={each.name: each for each in all_of("CSINode")},
            csi_drivers={each.name: each for each in all_of("CSIDriver")},
            capacities=all_of("CSIStorageCapacity"),
            attachments=all_of("VolumeAttachment"),
            resource_claims={(each.namespace, each.name): each for each in all_of("ResourceClaim")},
            resource_slices=all_of("ResourceSlice"),
            device_classes={each.name: each for each in all_of("DeviceClass")},
            workloads=[each for kind in _WORKLOADS for each in all_of(kind)],
            budgets=all_of("PodDisruptionBudget"),
        )
