"""The volume plug-ins (scheduler-predicates 8.9)."""

from __future__ import annotations

from typing import Any

from conformance.building import Json, expressions, need, node, pod
from conformance.rows import Row, Verdict

NO_DISK: Verdict = ("U", "node(s) had no available disk")
IN_USE: Verdict = (
    "U",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)
LIMIT: Verdict = ("U", "node(s) exceed max volume count")
NO_ZONE: Verdict = ("UAU", "node(s) had no available volume zone")
AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
MISSING_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
DRIVER = "csi.example.com"


def using(*volumes: Json, name: str = "new", on: str | None = None) -> Json:
    return pod(name, on, volumes=[{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)])


def by_claim(name: str) -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def claim(name: str, volume: str | None = None, storage_class: str | None = "wait", **more: Any) -> Json:
    """Bound to `volume` if that is given."""
    spec: Json = {"accessModes": [more.get("mode", "ReadWriteOnce")]}
    spec["resources"] = {"requests": {"storage": more.get("size", "1Gi")}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    metadata: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if volume is not None:
        spec["volumeName"] = volume
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    status = {"phase": more.get("phase", "Bound" if volume else "Pending")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status}


def volume(name: str, labels: Json | None = None, *needs: Json, **more: Any) -> Json:
    spec: Json = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": more.get("size", "1Gi")},
        "storageClassName": more.get("storage_class", "wait"),
        "csi": {"driver": more.get("driver", DRIVER), "volumeHandle": f"handle-{name}"},
    }
    if needs:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [expressions(*needs)]}}
    metadata = {"name": name, "labels": labels or {}}
    status = {"phase": "Available"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}


def storage_class(name: str, mode: str | None, provisioner: str = DRIVER) -> Json:
    result: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    result |= {"provisioner": provisioner}
    return result if mode is None else result | {"volumeBindingMode": mode}


CLASSES = [
    storage_class("wait", "WaitForFirstConsumer"),
    storage_class("now", "Immediate"),
    storage_class("local", "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
    storage_class("modeless", None),
]


def disk(kind: str, read_only: bool, **fields: Any) -> Json:
    base: Json = {
        "gcePersistentDisk": {"pdName": "foo"},
        "awsElasticBlockStore": {"volumeID": "foo"},
        "iscsi": {"targetPortal": "p", "iqn": "iqn", "lun": 0},
        "rbd": {"monitors": ["a", "b"], "pool": "foo", "image": "bar"},
    }[kind]
    return {kind: {**base, **fields, "readOnly": read_only}}


def disks(number: str, new: Json, there: Json, want: Verdict) -> Row:
    objects = [using(there, name="placed", on="n")]
    return Row(f"VR-{number}", "VolumeRestrictions", using(new), [node()], {"n": want}, objects)


GCE, EBS, ISCSI, RBD = "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"
EXCLUSIVE = [claim("c", "pv", mode="ReadWriteOncePod"), volume("pv")]
TWO_NODES = [node("n"), node("m")]
RESTRICTIONS = [
    disks("1", disk(GCE, True), disk(GCE, False), NO_DISK),
    disks("2", disk(GCE, True), disk(GCE, True), None),
    disks("3", disk(GCE, False, pdName="other"), disk(GCE, False), None),
    disks("4", disk(EBS, True), disk(EBS, True), NO_DISK),
    disks("5", disk(ISCSI, False), disk(ISCSI, True), NO_DISK),
    disks("6", disk(ISCSI, True), disk(ISCSI, True), None),
    disks("7", disk(RBD, False), disk(RBD, False, monitors=["c", "b"]), NO_DISK),
    disks("8", disk(RBD, False), disk(RBD, False, image="other"), None),
    disks("9", disk(RBD, True), disk(RBD, True), None),
    disks("10", disk(RBD, False), disk(RBD, False, monitors=["c"]), None),
    Row(
        "VR-11",
        "VolumeRestrictions",
        using(by_claim("c")),
        TWO_NODES,
        {"n": IN_USE, "m": IN_USE},
        [using(by_claim("c"), name="placed", on="m"), *EXCLUSIVE],
    ),
    Row("VR-12", "VolumeRestrictions", using(by_claim("c")), [node()], {"n": None}, EXCLUSIVE, skip=True),
    Row(
        "VR-13",
        "VolumeRestrictions",
        using(by_claim("x")),
        [node()],
        fails=("UAU", 'persistentvolumeclaim "x" not found'),
    ),
]


def csi_node(limit: int | None, driver: str = DRIVER) -> Json:
    entry: Json = {"name": driver, "nodeID": "n"}
    if limit is not None:
        entry["allocatable"] = {"count": limit}
    metadata = {"name": "n"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": [entry]}}


def attachment(name: str) -> Json:
    spec = {"attacher": DRIVER, "nodeName": "n", "source": {"persistentVolumeName": name}}
    metadata = {"name": f"va-{name}"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": metadata, "spec": spec}


BOUND = [each for i in range(5) for each in (claim(f"c{i}", f"pv{i}"), volume(f"pv{i}"))]
THREE = using(by_claim("c1"), by_claim("c2"), by_claim("c3"), name="placed", on="n")
OTHER_DRIVER = [claim("o", "other"), volume("other", driver="other.example.com")]


def limits(number: str, new: Json, objects: list[Json], want: Verdict) -> Row:
    return Row(f"NVL-{number}", "NodeVolumeLimits", new, [node()], {"n": want}, [*objects, *BOUND, *CLASSES])


NEW = using(by_claim("c0"))
LIMITS = [
    limits("1", NEW, [csi_node(2), attachment("pv1"), attachment("pv2")], LIMIT),
    limits("2", NEW, [csi_node(2), attachment("pv1")], None),
    limits("3", NEW, [csi_node(4), THREE], None),
    limits("4", NEW, [csi_node(2), THREE], LIMIT),
    limits(
        "5",
        using(by_claim("pending")),
        [csi_node(1), claim("pending"), using(by_claim("pending"), name="placed", on="n")],
        None,
    ),
    limits("6", NEW, [csi_node(1), using(by_claim("o"), name="placed", on="n"), *OTHER_DRIVER], None),
    limits("7", NEW, [THREE], None),
    limits(
        "8",
        using(by_claim("x")),
        [csi_node(1)],
        ("UAU", 'looking up PVC default/x: persistentvolumeclaim "x" not found'),
    ),
    limits("9", NEW, [csi_node(1), using(by_claim("x"), name="placed", on="n")], None),
    limits("10", NEW, [csi_node(None), THREE], None),
    Row("NVL-11", "NodeVolumeLimits", pod(), [node()], {"n": None}, skip=True),
]

A, B, C = (node(name, {"kubernetes.io/hostname": name}) for name in ("node-a", "node-b", "node-c"))
ON_A, ON_B = need("kubernetes.io/hostname", "In", "node-a"), need("kubernetes.io/hostname", "In", "node-b")
PLAIN = node("n", {"foo": "barbar"})


def binding(
    number: str, new: Json, nodes: list[Json], objects: list[Json], want: dict[str, Verdict], **more: Any
) -> Row:
    return Row(f"VB-{number}", "VolumeBinding", new, nodes, want, [*objects, *CLASSES], **more)


BINDING = [
    binding("1", pod(), [A], [], {"node-a": None}, skip=True),
    binding("2", using(by_claim("c")), [A], [claim("c", "pv-a"), volume("pv-a")], {"node-a": None}),
    binding(
        "3",
        using(by_claim("c"), by_claim("d")),
        [A, B],
        [claim("c", "pv-a"), claim("d", "pv-b"), volume("pv-a", None, ON_A), volume("pv-b", None, ON_A)],
        {"node-a": None, "node-b": ("UAU", AFFINITY)},
    ),
    binding(
        "4",
        using(by_claim("pvc-a"), by_claim("pvc-b")),
        [A],
        [claim("pvc-a", "pv-a"), volume("pv-a")],
        {},
        fails=("UAU", 'persistentvolumeclaim "pvc-b" not found'),
    ),
    binding(
        "5",
        using(by_claim("c")),
        [A],
        [claim("c", None, "now")],
        {},
        fails=("UAU", "pod has unbound immediate PersistentVolumeClaims"),
    ),
    binding("6", using(by_claim("c")), [A], [claim("c", None, "local")], {"node-a": ("UAU", NO_VOLUME)}),
    binding(
        "7",
        using(by_claim("c"), by_claim("d")),
        [PLAIN],
        [claim("c", "pv-a"), volume("pv-a", None, need("foo", "In", "bar")), claim("d", None, "local")],
        {"n": ("UAU", AFFINITY, NO_VOLUME)},
    ),
    binding("8", using(by_claim("c")), [A], [claim("c", "pv-a")], {"node-a": ("UAU", MISSING_VOLUME)}),
    binding(
        "9",
        using(by_claim("pvc-a")),
        [A],
        [claim("pvc-a", "pv-a", phase="Lost")],
        {},
        fails=("UAU", 'persistentvolumeclaim "pvc-a" bound to non-existent persistentvolume "pv-a"'),
    ),
    binding(
        "10",
        using(by_claim("c")),
        [A, B, C],
        [
            claim("c", None, "local", size="50Gi"),
            volume("pv-a", None, ON_A, size="200Gi", storage_class="local"),
            volume("pv-b", None, ON_B, size="100Gi", storage_class="local"),
        ],
        {"node-a": None, "node-b": None, "node-c": ("UAU", NO_VOLUME)},
    ),
    binding(
        "11",
        using(by_claim("c")),
        [A],
        [claim("c", None, "modeless")],
        {},
        fails=("E", 'VolumeBindingMode not set for StorageClass "modeless"'),
    ),
]

BZ, BR = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
GZ, GR = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
WEST = "us-west1-a"


def zone(number: str, on_volume: Json, on_node: Json, want: Verdict) -> Row:
    objects = [claim("c", "pv"), volume("pv", on_volume)]
    return Row(f"VZ-{number}", "VolumeZone", using(by_claim("c")), [node("n", on_node)], {"n": want}, objects)


def unbound(number: str, class_name: str | None, text: str | None) -> Row:
    fails: Verdict = None if text is None else ("UAU", text)
    objects = [claim("c", None, class_name), *CLASSES]
    node_zone = [node("n", {BZ: WEST})]
    return Row(
        f"VZ-{number}", "VolumeZone", using(by_claim("c")), node_zone, {}, objects, skip=text is None, fails=fails
    )


ZONES = [
    Row("VZ-1", "VolumeZone", pod(), [node("n", {BZ: WEST})], {"n": None}, skip=True),
    zone("2", {BZ: WEST}, {}, None),
    zone("3a", {BZ: WEST}, {BZ: WEST}, None),
    zone("3b", {BZ: WEST}, {BZ: "no_us-west1-a"}, NO_ZONE),
    zone("4a", {BR: "us-west1"}, {BR: "us-west1"}, None),
    zone("4b", {BR: "us-west1"}, {BR: "no_us-west1"}, NO_ZONE),
    zone("5a", {GZ: WEST}, {GZ: WEST}, None),
    zone("5b", {GZ: WEST}, {GZ: "no_us-west1-a"}, NO_ZONE),
    zone("6", {GZ: WEST, GR: WEST}, {GZ: WEST}, NO_ZONE),
    zone("7", {GZ: WEST}, {BZ: WEST}, NO_ZONE),
    zone("8a", {BZ: WEST}, {GZ: WEST}, None),
    zone("8b", {BZ: WEST}, {GZ: "us-west1-b"}, NO_ZONE),
    zone("9a", {BZ: "us-west1-c__us-west1-a"}, {BZ: WEST}, None),
    zone("9b", {BZ: "us-west1-c__us-west1-a"}, {}, None),
    zone("10", {GZ: "us-west1-c__us-west1-a"}, {GZ: WEST}, None),
    unbound("11", None, "PersistentVolumeClaim had no pv name and storageClass name"),
    unbound("12", "unknown", 'storageclass.storage.k8s.io "unknown" not found'),
    unbound("13", "modeless", 'VolumeBindingMode not set for StorageClass "modeless"'),
    unbound("14", "wait", None),
]

ROWS = [*RESTRICTIONS, *LIMITS, *BINDING, *ZONES]
