"""NodeVolumeLimits: attachable volumes per driver (``plugins/nodevolumelimits``, the CSI one).

The engine counts handles per node and driver; which handle a volume is depends on the node's CSINode only through
migration of in-tree volumes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from kscale.scheduling.plugins.base import (
    CSI,
    NAME,
    NOTHING,
    SKIP,
    Plugin,
    PreFilter,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from kscale.scheduling.volumes import claim_names, claim_of, class_name, not_found, not_owned

if TYPE_CHECKING:
    from kscale.objects.storage import CSINode, PersistentVolumeClaim
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["TOO_MANY", "Attached", "NodeVolumeLimits", "attachments", "limits", "migrated", "resolve"]

TOO_MANY: Status = unschedulable("node(s) exceed max volume count")
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"

# Field of a volume source, its in-tree plug-in, the CSI driver it migrates to, and the field its handle is read from.
_IN_TREE = (
    ("aws_elastic_block_store", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volume_id"),
    ("gce_persistent_disk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pd_name"),
    ("azure_disk", "kubernetes.io/azure-disk", "disk.csi.azure.com", "disk_uri"),
    ("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com", "share_name"),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", "volume_id"),
    ("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "volume_path"),
    ("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com", "volume_id"),
)

Attached = tuple[str, str, int]
"""(driver, volume handle, in-tree plug-in it has to be migrated from or -1)"""


def migrated(csi_node: CSINode | None) -> int:
    """In-tree plug-ins whose volumes the node's CSI drivers serve: a bit each."""
    if csi_node is None:
        return 0
    moved = (csi_node.metadata.annotations or {}).get(_MIGRATED, "").split(",")
    return sum(1 << i for i, (_, plugin, _, _) in enumerate(_IN_TREE) if plugin in moved)


def _in_tree(source: Any) -> Attached | None:
    for i, (field, _, driver, key) in enumerate(_IN_TREE):
        part = getattr(source, field, None)
        if part is not None:
            return driver, getattr(part, key), i
    return None


def _of_claim(claim: PersistentVolumeClaim, ctx: Context) -> Attached | None:
    volume = ctx.informers.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        storage_class = ctx.informers.storage_classes.get(class_name(claim))
        driver = storage_class.provisioner if storage_class else ""
        if not driver:
            return None
        handle = f"\0{claim.namespace}/{claim.name}"
        for i, (_, plugin, csi_driver, _) in enumerate(_IN_TREE):
            if driver == plugin:
                return csi_driver, handle, i
        return driver, handle, -1
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle, -1
    return _in_tree(volume.spec)


def resolve(pod: PodClass, ctx: Context, *, incoming: bool) -> tuple[Attached, ...] | Status:
    """The pod's attachable volumes, each once, or what is wrong with one of them."""
    found: dict[Attached, None] = {}
    for volume in pod.volumes:
        inline = _in_tree(volume)
        if inline:
            found[inline] = None
    for name, ephemeral in claim_names(pod):
        claim = claim_of(pod, name, ctx)
        if claim is None:
            if incoming:
                missing = not_found("persistentvolumeclaim", name)
                return unresolvable(f"looking up PVC {pod.namespace}/{name}: {missing}")
            continue
        if ephemeral and (problem := not_owned(pod, claim)):
            return error(problem)
        attached = _of_claim(claim, ctx)
        if attached:
            found[attached] = None
    return tuple(found)


def limits(csi_node: CSINode | None) -> dict[str, int]:
    """Driver -> how many volumes the node takes; drivers without a limit are left out."""
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def attachments(ctx: Context) -> dict[str, list[tuple[str, str]]]:
    """Node name -> CSI volumes that VolumeAttachment objects say are there."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for entry in ctx.informers.attachments:
        name = entry.spec.source.persistent_volume_name
        volume = ctx.informers.volumes.get(name) if name else None
        if volume is not None and volume.spec.csi is not None:
            handle = (entry.spec.attacher, volume.spec.csi.volume_handle)
            found.setdefault(entry.spec.node_name, {})[handle] = None
    return {node: list(handles) for node, handles in found.items()}


class NodeVolumeLimits(Plugin):
    """Static part: volumes that cannot be resolved, and drivers that must be there and are not."""

    name = "NodeVolumeLimits"
    ordinal = 8

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        inline = any(getattr(volume, field) is not None for volume in pod.volumes for field, *_ in _IN_TREE)
        return NOTHING if pod.has_claims or inline else SKIP

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        return pod.index if not self.prefilter(pod, ctx).skip else None

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        return frozenset({CSI, NAME}) if ctx.broken_attachment else frozenset({CSI})

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        wanted = resolve(pod, ctx, incoming=True)
        if isinstance(wanted, Status):
            return wanted
        moved = migrated(node.csi_node)
        counted = [driver for driver, _, plugin in wanted if plugin < 0 or moved >> plugin & 1]
        drivers = {driver.name for driver in node.csi_node.spec.drivers} if node.csi_node else set()
        for driver in counted:
            csi_driver = ctx.informers.csi_drivers.get(driver)
            opted_in = csi_driver is not None and csi_driver.spec.prevent_pod_scheduling_if_missing
            if opted_in and driver not in drivers:
                return unschedulable(f"{driver} CSI driver is not installed on the node")
        if counted and limits(node.csi_node) and node.name in ctx.broken_attachment:
            return error(ctx.broken_attachment[node.name])
        return None
