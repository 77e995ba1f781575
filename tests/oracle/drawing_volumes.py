"""Classes, claims and volumes of storage, drawn from a seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from oracle.drawing import CLAIMS, CSI_DRIVER, HOSTNAME, REGION, ZONE, chance, pick, sometimes

Json = dict[str, Any]

_SIZES = ("1Gi", "5Gi", "1500M", "3Gi")
_ROOMS = ("1Gi", "2Gi", "3Gi", "5Gi", "7Gi", "7Gi", "100G")
_WAITING = ("wait", "slow")
"""Storage classes of the driver whose claims wait for a pod."""
_KINDS = ("bound", "bound", "wait", "wait", "slow", "slow", "local", "local", "now", "missing", "lost volume")
_STORAGE = "storage.k8s.io/v1"
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"


def storage(random: Random, node_names: Sequence[str]) -> list[Json]:
    """Return classes, claims that are bound, waiting, immediate or missing, volumes, and what drivers tell of nodes."""
    objects: list[Json] = []
    for name, provisioner, mode in (
        ("wait", CSI_DRIVER, "WaitForFirstConsumer"),
        ("slow", CSI_DRIVER, "WaitForFirstConsumer"),
        ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("now", CSI_DRIVER, "Immediate"),
    ):
        storage_class: Json = {"apiVersion": _STORAGE, "kind": "StorageClass", "metadata": {"name": name}}
        storage_class |= {"provisioner": provisioner, "volumeBindingMode": mode}
        if name == "wait" and chance(random, 3):
            zones = [
                {"matchLabelExpressions": [{"key": ZONE, "values": random.sample(("z1", "z2"), random.randint(1, 2))}]}
            ]
            storage_class["allowedTopologies"] = random.choice(([], zones, zones))
        if not chance(random, 15):
            objects.append(storage_class)
    waiting = chance(random, 3)  # all claims wait, and their classes have capacities: scores differ
    kinds = _WAITING if waiting else _KINDS
    for index, name in enumerate(CLAIMS):
        kind = random.choice(kinds)
        if kind != "missing":
            objects += _claim(random, name, kind, f"pv-{index}", node_names)
    for index in range(random.randint(0, 4)):
        objects.append(_volume(random, f"free-{index}", random.choice(("local", "local", "slow", "wait")), node_names))
    if chance(random, 2):
        objects += _drivers(random, node_names)
    if waiting or chance(random, 2):
        objects += _rooms(random)
    return objects


def _claim(random: Random, name: str, kind: str, volume: str, node_names: Sequence[str]) -> list[Json]:
    metadata: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    claim: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {
            "accessModes": [random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))],
            "resources": {"requests": {"storage": random.choice(_SIZES)}},
            "storageClassName": kind if kind in ("wait", "slow", "local", "now") else "wait",
        },
        "status": {"phase": "Pending"},
    }
    if kind in ("wait", "slow", "local"):
        sometimes(random, claim["spec"], "selector", lambda _: {"matchLabels": {"kind": "fast"}}, 8)
        if chance(random, 8):
            metadata["annotations"] = {"volume.kubernetes.io/selected-node": random.choice((*node_names, "absent"))}
    if kind not in ("bound", "lost volume"):
        return [claim]
    claim["spec"]["volumeName"] = volume
    metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"} if not chance(random, 15) else {}
    claim["status"]["phase"] = "Bound" if not chance(random, 20) else "Lost"
    if kind == "lost volume":
        return [claim]
    bound = _volume(random, volume, "wait", node_names) | {"status": {"phase": "Bound"}}
    bound["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
    }
    return [claim, bound]


def _volume(random: Random, name: str, storage_class: str, node_names: Sequence[str]) -> Json:
    tags: Json = {}
    sometimes(random, tags, ZONE, pick(("z1", "z2", "z1__z2", "z1__", "")), 3)
    sometimes(random, tags, REGION, pick(("r", "s")), 6)
    sometimes(random, tags, "kind", pick(("fast",)), 4)
    spec: Json = {
        "accessModes": random.choice((["ReadWriteOnce", "ReadWriteOncePod"], ["ReadWriteOnce"], ["ReadWriteMany"])),
        "capacity": {"storage": random.choice(("1Gi", "10Gi", "3Gi", "5Gi"))},
        "storageClassName": storage_class,
        "csi": {"driver": CSI_DRIVER, "volumeHandle": f"handle-{random.choice((name, name, 'same'))}"},
    }
    if chance(random, 3):
        del spec["csi"]
        spec |= random.choice(
            (
                {"awsElasticBlockStore": {"volumeID": "aws://z1/vol-1"}},
                {"awsElasticBlockStore": {"volumeID": "vol-1"}},
                {"gcePersistentDisk": {"pdName": "disk"}},
                {"hostPath": {"path": "/x"}},
                {"local": {"path": "/x"}},
            )
        )
    if chance(random, 3):
        requirement: Json = {"key": HOSTNAME, "operator": "In", "values": [random.choice(node_names)]}
        if chance(random, 2):
            requirement = {"key": ZONE, "operator": "In", "values": [random.choice(("z1", "z2"))]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    metadata = {"name": name, "labels": tags, "uid": f"uid-{name}"}
    status = {"phase": "Available"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}


def _drivers(random: Random, node_names: Sequence[str]) -> list[Json]:
    """Return CSINode objects of most nodes, CSIDriver objects and attachments."""
    objects: list[Json] = []
    for name in node_names:
        if chance(random, 6):
            continue
        drivers: list[Json] = []
        for driver in (CSI_DRIVER, "ebs.csi.aws.com", "pd.csi.storage.gke.io"):
            if chance(random, 2):
                drivers.append({"name": driver, "nodeID": name})
                sometimes(random, drivers[-1], "allocatable", lambda r: {"count": r.randint(0, 2)}, 2)
        migrated = random.choice(("", "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"))
        metadata: Json = {"name": name, "annotations": {_MIGRATED: migrated}}
        objects.append({"apiVersion": _STORAGE, "kind": "CSINode", "metadata": metadata, "spec": {"drivers": drivers}})
    if chance(random, 3):
        spec = {"preventPodSchedulingIfMissing": chance(random, 2), "storageCapacity": chance(random, 2)}
        objects.append({"apiVersion": _STORAGE, "kind": "CSIDriver", "metadata": {"name": CSI_DRIVER}, "spec": spec})
    if chance(random, 4):
        attached: Json = {
            "attacher": CSI_DRIVER,
            "nodeName": random.choice(node_names),
            "source": {"persistentVolumeName": f"pv-{random.randint(0, 3)}"},
        }
        attachment = {"apiVersion": _STORAGE, "kind": "VolumeAttachment", "metadata": {"name": "va"}, "spec": attached}
        objects.append({**attachment, "status": {"attached": True}})
    return objects


def _rooms(random: Random) -> list[Json]:
    """Return a driver that tells of its capacity, and what it tells."""
    objects: list[Json] = [
        {
            "apiVersion": _STORAGE,
            "kind": "CSIDriver",
            "metadata": {"name": CSI_DRIVER},
            "spec": {"storageCapacity": True},
        }
    ]
    classes = [name for name in _WAITING for _ in range(random.choice((0, 1, 1, 1, 2)))]
    for index, storage_class in enumerate(classes):
        room: Json = {"storageClassName": storage_class, "capacity": random.choice(_ROOMS)}
        sometimes(random, room, "maximumVolumeSize", pick(_ROOMS[:4]), 4)
        topologies: tuple[Json | None, ...] = (
            {},
            {},
            {"matchLabels": {ZONE: "z1"}},
            {"matchLabels": {ZONE: "z2"}},
            None,
        )
        topology = random.choice(topologies)
        if topology is not None:
            room["nodeTopology"] = topology
        metadata = {"name": f"room-{index}", "namespace": "default"}
        objects.append({"apiVersion": _STORAGE, "kind": "CSIStorageCapacity", "metadata": metadata, **room})
    return objects
