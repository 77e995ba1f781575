"""In-tree volumes, and what CSI drivers make of them where they were migrated (upstream: ``csi-translation-lib``)."""

from __future__ import annotations

from typing import Any, Final

from kscale.objects.storage import CSINode

__all__ = ["IN_TREE", "InTree", "migrated", "provisioned_by", "translated"]

_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"

IN_TREE: Final = (
    ("aws_elastic_block_store", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volume_id"),
    ("gce_persistent_disk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pd_name"),
    ("azure_disk", "kubernetes.io/azure-disk", "disk.csi.azure.com", "disk_uri"),
    ("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com", "share_name"),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", "volume_id"),
    ("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "volume_path"),
    ("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com", "volume_id"),
)
"""Field of a volume source, its plug-in, the CSI driver it migrates to, and the field its handle is read from."""

InTree = tuple[str, str, int]
"""(driver, handle, place in ``IN_TREE``)."""


def migrated(csi_node: CSINode | None) -> int:
    """In-tree plug-ins whose volumes the node's CSI drivers serve: a bit each."""
    if csi_node is None:
        return 0
    moved = (csi_node.metadata.annotations or {}).get(_MIGRATED, "").split(",")
    return sum(1 << i for i, (_, plugin, _, _) in enumerate(IN_TREE) if plugin in moved)


def translated(source: Any) -> InTree | None:
    """What the volume source of a pod or a volume is to its CSI driver; None = it is not in-tree."""
    for i, (field, _, driver, key) in enumerate(IN_TREE):
        part = getattr(source, field, None)
        if part is not None:
            return driver, getattr(part, key), i
    return None


def provisioned_by(provisioner: str) -> tuple[str, int]:
    """(CSI driver, place in ``IN_TREE`` or -1) of what a provisioner makes."""
    for i, (_, plugin, driver, _) in enumerate(IN_TREE):
        if provisioner == plugin:
            return driver, i
    return provisioner, -1
