"""Persistent storage: volumes, claims, storage classes and CSI objects (upstream: ``k8s.io/api/core/v1``,
``k8s.io/api/storage/v1``).
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kscale.objects.api.core import NodeSelector, ObjectReference
from kscale.objects.api.meta import ApiStruct, Int32, KubeObject, LabelSelector, ResourceList
from kscale.objects.api.volumes import (
    ISCSI,
    RBD,
    AWSElasticBlockStore,
    AzureDisk,
    AzureFile,
    Cinder,
    GCEPersistentDisk,
    PersistentVolumeClaimSpec,
    PortworxVolume,
    VsphereVolume,
)
from kscale.objects.quantity import Quantity

__all__ = [
    "CSIDriver",
    "CSIDriverSpec",
    "CSINode",
    "CSINodeDriver",
    "CSINodeSpec",
    "CSIPersistentVolumeSource",
    "CSIStorageCapacity",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimStatus",
    "PersistentVolumeSpec",
    "PersistentVolumeStatus",
    "StorageClass",
    "TopologySelectorLabelRequirement",
    "TopologySelectorTerm",
    "VolumeAttachment",
    "VolumeAttachmentSource",
    "VolumeAttachmentSpec",
    "VolumeAttachmentStatus",
    "VolumeNodeAffinity",
    "VolumeNodeResources",
    "default_storage_class",
]

_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


class PersistentVolumeClaimStatus(ApiStruct):
    """Status of a claim."""

    phase: str = ""
    access_modes: list[str] = []
    capacity: ResourceList | None = None


class PersistentVolumeClaim(KubeObject):
    """A claim of storage."""

    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class VolumeNodeAffinity(ApiStruct):
    """Nodes that can access a volume."""

    required: NodeSelector | None = None


class CSIPersistentVolumeSource(ApiStruct):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    volume_attributes: dict[str, str] | None = None


class PersistentVolumeSpec(ApiStruct):
    """Spec of a volume: its size, claim and location. Sources that no decision reads are plain JSON data."""

    capacity: ResourceList | None = None
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: CSIPersistentVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    rbd: RBD | None = None
    iscsi: ISCSI | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None
    vsphere_volume: VsphereVolume | None = None
    local: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None


class PersistentVolumeStatus(ApiStruct):
    """Status of a volume: ``Available``, ``Bound``, ``Released`` and so on."""

    phase: str = ""


class PersistentVolume(KubeObject):
    """A persistent volume."""

    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)


class TopologySelectorLabelRequirement(ApiStruct):
    """A node label and its allowed values."""

    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(ApiStruct):
    """All requirements of a term must hold."""

    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(KubeObject):
    """How volumes of a class are provisioned and bound."""

    provisioner: str = ""
    parameters: dict[str, str] | None = None
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []
    allow_volume_expansion: bool | None = None


def default_storage_class(classes: Iterable[StorageClass]) -> str | None:
    """Return the name of the default class, for claims that name no class; None without a default class.

    If several are annotated as the default, the newest wins, then the first by name.
    """
    defaults = [each for each in classes if (each.metadata.annotations or {}).get(_IS_DEFAULT) == "true"]
    defaults.sort(key=lambda each: each.name)
    defaults.sort(key=lambda each: each.metadata.creation_timestamp or "", reverse=True)
    return defaults[0].name if defaults else None


class VolumeNodeResources(ApiStruct):
    """Maximum number of a driver's volumes on a node. Absent means unlimited."""

    count: Int32 | None = None


class CSINodeDriver(ApiStruct):
    """A CSI driver on a node."""

    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: list[str] = []
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiStruct):
    """The CSI drivers of a node."""

    drivers: list[CSINodeDriver] = []


class CSINode(KubeObject):
    """CSI information about the node of the same name."""

    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class CSIDriverSpec(ApiStruct):
    """Options of a CSI driver."""

    attach_required: bool | None = None
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(KubeObject):
    """A CSI driver."""

    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(KubeObject):
    """Free capacity of a storage class in a topology segment."""

    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(ApiStruct):
    """The volume to attach."""

    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(ApiStruct):
    """The volume, the attacher and the node."""

    attacher: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)
    node_name: str = ""


class VolumeAttachmentStatus(ApiStruct):
    """Whether the volume is attached."""

    attached: bool = False


class VolumeAttachment(KubeObject):
    """A volume that is, or will be, attached to a node."""

    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)
    status: VolumeAttachmentStatus = msgspec.field(default_factory=VolumeAttachmentStatus)
