"""NodeVolumeLimits (6.8)."""

from __future__ import annotations

from typing import Any

from reference.cluster import (
    SKIPPED,
    Cluster,
    Json,
    NodeState,
    PreFiltered,
    Status,
    error,
    namespace_of,
    unresolvable,
    unschedulable,
)
from reference.volumes import annotations, claim_names, claim_of, class_name, missing, not_owned

NAME = "NodeVolumeLimits"
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
# Inline and persistent volume field, in-tree plug-in, CSI driver, and how its handle reads.
IN_TREE = (
    ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID"),
    ("gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName"),
    ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI"),
    ("azureFile", "kubernetes.io/azure-file", "file.csi.azure.com", "shareName"),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", "volumeID"),
    ("vsphereVolume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "volumePath"),
    ("portworxVolume", "kubernetes.io/portworx-volume", "pxd.portworx.com", "volumeID"),
)


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    for volume in pod["spec"].get("volumes") or []:
        if volume.get("persistentVolumeClaim") is not None or volume.get("ephemeral") is not None:
            return PreFiltered()
        if any(volume.get(field) is not None for field, *_ in IN_TREE):
            return PreFiltered()
    return PreFiltered(SKIPPED)


def is_migrated(plugin: str, csi_node: Json | None) -> bool:
    return csi_node is not None and plugin in annotations(csi_node).get(MIGRATED, "").split(",")


def in_tree(source: Json, csi_node: Json | None) -> tuple[str, str] | None:
    """(driver, handle) of an in-tree volume source that this node's CSINode says is migrated."""
    for field, plugin, driver, key in IN_TREE:
        if source.get(field) is not None and is_migrated(plugin, csi_node):
            return driver, str(source[field].get(key))
    return None


class MissingError(Exception):
    """The claim of a volume does not exist."""


class ForeignError(Exception):
    """The claim of a generic ephemeral volume belongs to something else."""


def resolve(pod: Json, csi_node: Json | None, cluster: Cluster, *, incoming: bool) -> dict[tuple[str, str], str]:
    """Unique volumes of a pod that count against a driver: (driver, handle) -> driver."""
    found: dict[tuple[str, str], str] = {}
    for volume in pod["spec"].get("volumes") or []:
        inline = in_tree(volume, csi_node)
        if inline:
            found[inline] = inline[0]
    for name, ephemeral in claim_names(pod):
        claim = claim_of(pod, name, cluster)
        if claim is None:
            if incoming:
                raise MissingError(
                    f"looking up PVC {namespace_of(pod)}/{name}: {missing('persistentvolumeclaim', name)}"
                )
            continue
        if ephemeral and (problem := not_owned(pod, claim)):
            raise ForeignError(problem)
        key = driver_and_handle(claim, csi_node, cluster)
        if key:
            found[key] = key[0]
    return found


def driver_and_handle(claim: Json, csi_node: Json | None, cluster: Cluster) -> tuple[str, str] | None:
    volume_name = claim["spec"].get("volumeName")
    volume = cluster.get("PersistentVolume", volume_name) if volume_name else None
    if volume is None:
        storage_class = cluster.get("StorageClass", class_name(claim))
        driver = (storage_class or {}).get("provisioner")
        for _, plugin, csi_driver, _ in IN_TREE:
            if driver == plugin:
                driver = csi_driver if is_migrated(plugin, csi_node) else None
        if not driver:
            return None
        return driver, f"pending {namespace_of(claim)}/{claim['metadata']['name']}"
    if volume["spec"].get("csi") is not None:
        return volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]
    return in_tree(volume["spec"], csi_node)


def check(state: Any, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    csi_node = cluster.csi_node_of(node)
    drivers = {entry["name"]: entry for entry in ((csi_node or {}).get("spec") or {}).get("drivers") or []}
    limits = {
        name: entry["allocatable"]["count"]
        for name, entry in drivers.items()
        if (entry.get("allocatable") or {}).get("count") is not None
    }
    try:
        new = resolve(pod, csi_node, cluster, incoming=True)
    except MissingError as problem:
        return unresolvable(str(problem))
    except ForeignError as problem:
        return error(str(problem))
    for driver in new.values():
        opted_in = ((cluster.get("CSIDriver", driver) or {}).get("spec") or {}).get("preventPodSchedulingIfMissing")
        if opted_in and driver not in drivers:
            return unschedulable(f"{driver} CSI driver is not installed on the node")
    if not new or not limits:
        return None
    attached: dict[tuple[str, str], str] = {}
    try:
        for placed in node.pods:
            attached.update(resolve(placed, csi_node, cluster, incoming=False))
    except ForeignError as problem:
        return error(str(problem))
    counts = list(attached.values())
    for attachment, driver in attachments(node.name, cluster).items():
        if attachment not in attached:
            counts.append(driver)
    wanted = [driver for key, driver in new.items() if key not in attached]
    for driver in set(wanted):
        if driver in limits and counts.count(driver) + wanted.count(driver) > limits[driver]:
            return unschedulable("node(s) exceed max volume count")
    return None


def attachments(node_name: str, cluster: Cluster) -> dict[tuple[str, str], str]:
    """CSI volumes that VolumeAttachment objects say are on the node."""
    found = {}
    for entry in cluster.all("VolumeAttachment"):
        name = (entry["spec"].get("source") or {}).get("persistentVolumeName")
        volume = cluster.get("PersistentVolume", name) if name and entry["spec"].get("nodeName") == node_name else None
        if volume is not None and volume["spec"].get("csi") is not None:
            driver = entry["spec"]["attacher"]
            found[driver, volume["spec"]["csi"]["volumeHandle"]] = driver
    return found
