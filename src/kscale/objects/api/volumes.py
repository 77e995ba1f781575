"""Volumes of a pod. Sources that predicates read have fields; the other kinds are only known to be present."""

# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.

from typing import Any

import msgspec

from kscale.objects.api.meta import ApiStruct, Int32, LabelSelector, ObjectMeta, ResourceList

__all__ = [
    "ISCSI",
    "RBD",
    "AWSElasticBlockStore",
    "AzureDisk",
    "AzureFile",
    "Cinder",
    "ClaimTemplate",
    "EphemeralVolumeSource",
    "GCEPersistentDisk",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimVolumeSource",
    "PortworxVolume",
    "TypedObjectReference",
    "Volume",
    "VolumeResourceRequirements",
    "VsphereVolume",
]


class VolumeResourceRequirements(ApiStruct):
    """Requests of a claim. Only ``requests["storage"]`` has a meaning."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class TypedObjectReference(ApiStruct):
    """A reference to an object of any group."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class PersistentVolumeClaimSpec(ApiStruct):
    """Spec of a claim and, once it is bound, its volume."""

    access_modes: list[str] = []
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = msgspec.field(default_factory=VolumeResourceRequirements)
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimVolumeSource(ApiStruct):
    """A claim in the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class ClaimTemplate(ApiStruct):
    """The template of the claim for a generic ephemeral volume."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)


class EphemeralVolumeSource(ApiStruct):
    """A generic ephemeral volume: a claim named ``<pod>-<volume>`` owned by the pod."""

    volume_claim_template: ClaimTemplate | None = None


class GCEPersistentDisk(ApiStruct):
    """An inline GCE disk."""

    pd_name: str = ""
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False


class AWSElasticBlockStore(ApiStruct):
    """An inline EBS volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False


class RBD(ApiStruct):
    """An inline Ceph block device; ``pool`` defaults to ``rbd`` in the API server."""

    monitors: list[str] = []
    image: str = ""
    pool: str = ""
    read_only: bool = False


class ISCSI(ApiStruct):
    """An inline iSCSI disk."""

    iqn: str = ""
    lun: Int32 = 0
    target_portal: str = ""
    read_only: bool = False


class AzureDisk(ApiStruct):
    """An inline Azure disk."""

    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None
    read_only: bool | None = None


class AzureFile(ApiStruct):
    """An inline Azure file share."""

    secret_name: str = ""
    share_name: str = ""
    read_only: bool = False


class Cinder(ApiStruct):
    """An inline OpenStack disk."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class PortworxVolume(ApiStruct):
    """An inline Portworx volume."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class VsphereVolume(ApiStruct):
    """An inline vSphere disk."""

    volume_path: str = ""
    storage_policy_name: str = ""


class Volume(ApiStruct):
    """One volume of a pod: a name and exactly one source.

    Sources that no decision looks into are kept as plain JSON data.
    """

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    rbd: RBD | None = None
    iscsi: ISCSI | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None
    vsphere_volume: VsphereVolume | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    projected: dict[str, Any] | None = None
    config_map: dict[str, Any] | None = None
    secret: dict[str, Any] | None = None
    downward_api: dict[str, Any] | None = msgspec.field(default=None, name="downwardAPI")
    csi: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    git_repo: dict[str, Any] | None = None
    glusterfs: dict[str, Any] | None = None
    cephfs: dict[str, Any] | None = None
    fc: dict[str, Any] | None = None
    flex_volume: dict[str, Any] | None = None
    flocker: dict[str, Any] | None = None
    quobyte: dict[str, Any] | None = None
    scale_io: dict[str, Any] | None = msgspec.field(default=None, name="scaleIO")
    storageos: dict[str, Any] | None = None
