"""NodeVolumeLimits (6.8)."""

from __future__ import annotations

from typing import Any

from reference import in_tree
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
from reference.volumes import claim_names, claim_of, class_name, missing, not_owned

NAME = "NodeVolumeLimits"
IN_TREE = (
    "awsElasticBlockStore",
    "gcePersistentDisk",
    "azureDisk",
    "azureFile",
    "cinder",
    "vsphereVolume",
    "portworxVolume",
)


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    for volume in pod["spec"].get("volumes") or []:
        if volume.get("persistentVolumeClaim") is not None or volume.get("ephemeral") is not None:
            return PreFiltered()
        if any(volume.get(field) is not None for field in IN_TREE):
            return PreFiltered()
    return PreFiltered(SKIPPED)


class MissingError(Exception):
    """The claim of a volume does not exist."""


class ForeignError(Exception):
    """The claim of a generic ephemeral volume belongs to something else."""


def resolve(pod: Json, csi_node: Json | None, cluster: Cluster, *, incoming: bool) -> dict[tuple[str, str], str]:
    """Unique volumes of a pod that count against a driver: (driver, handle) -> driver."""
    result: dict[tuple[str, str], str] = {}
    for volume in pod["spec"].get("volumes") or []:
        inline = in_tree.handle_of(volume, {}, csi_node)
        if inline:
            result[inline] = inline[0]
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
            result[key] = key[0]
    return result


def driver_and_handle(claim: Json, csi_node: Json | None, cluster: Cluster) -> tuple[str, str] | None:
    volume_name = claim["spec"].get("volumeName")
    volume = cluster.get("PersistentVolume", volume_name) if volume_name else None
    if volume is None:
        storage_class = cluster.get("StorageClass", class_name(claim))
        driver = (storage_class or {}).get("provisioner")
        for _, plugin, csi_driver, _ in in_tree.SERVED:
            if driver == plugin:
                driver = None if csi_node is None else csi_driver
        if not driver:
            return None
        return driver, f"pending {namespace_of(claim)}/{claim['metadata']['name']}"
    if volume["spec"].get("csi") is not None:
        return volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]
    return in_tree.handle_of(volume["spec"], volume["metadata"].get("labels") or {}, csi_node)


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
    new_drivers = [driver for key, driver in new.items() if key not in attached]
    for driver in set(new_drivers):
        if driver in limits and counts.count(driver) + new_drivers.count(driver) > limits[driver]:
            return unschedulable("node(s) exceed max volume count")
    return None


def attachments(node_name: str, cluster: Cluster) -> dict[tuple[str, str], str]:
    """CSI volumes that VolumeAttachment objects say are on the node."""
    result = {}
    for entry in cluster.all("VolumeAttachment"):
        name = (entry["spec"].get("source") or {}).get("persistentVolumeName")
        volume = cluster.get("PersistentVolume", name) if name and entry["spec"].get("nodeName") == node_name else None
        if volume is not None and volume["spec"].get("csi") is not None:
            driver = entry["spec"]["attacher"]
            result[driver, volume["spec"]["csi"]["volumeHandle"]] = driver
    return result
