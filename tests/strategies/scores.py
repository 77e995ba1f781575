"""What Score plug-ins look at: taints that are better avoided, wishes of pods, and soft constraints."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from strategies import clusters, pieces
from strategies.pieces import chance, set_sometimes

Json = dict[str, Any]
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
FEATURES = ("plain", "affinity", "spread")

SOFT_TAINTS = st.lists(
    st.sampled_from(
        [{"key": "old", "effect": "PreferNoSchedule"}, {"key": "slow", "value": "x", "effect": "PreferNoSchedule"}]
    ),
    min_size=1,
    max_size=2,
    unique_by=str,
)
SOFT_TOLERATIONS = st.sampled_from(
    [
        {"key": "old", "operator": "Exists"},
        {"key": "slow", "value": "x", "effect": "PreferNoSchedule"},
        {"operator": "Exists"},
    ]
)


MIB = 2**20
IMAGES = ["web", "web:v1", "registry:5000/team/big", "big:v2"]
PULLED = st.lists(
    st.fixed_dictionaries(
        {
            "names": st.lists(st.sampled_from([*IMAGES, "web:latest", "registry:5000/team/big:latest"]), max_size=2),
            "sizeBytes": st.sampled_from([MIB, 30 * MIB, 700 * MIB, 5000 * MIB + 1]),
        }
    ),
    max_size=3,
)


@st.composite
def node_wishes(draw: st.DrawFn) -> list[Json]:
    places = [{"key": pieces.ZONE, "operator": "In", "values": ["z1"]}, {"key": "rack", "operator": "Exists"}]
    terms = [{"matchExpressions": [place]} for place in places] + [{}]
    result = draw(st.lists(st.sampled_from(terms), min_size=1, max_size=2))
    return [{"weight": draw(st.integers(1, 100)), "preference": term} for term in result]


@st.composite
def pod_wishes(draw: st.DrawFn) -> list[Json]:
    result = draw(st.lists(pieces.affinity_terms(), min_size=1, max_size=2))
    return [{"weight": draw(st.integers(1, 100)), "podAffinityTerm": term} for term in result]


@st.composite
def soft_constraints(draw: st.DrawFn) -> list[Json]:
    result = []
    for key in draw(st.lists(pieces.TOPOLOGY_KEYS, min_size=1, max_size=2, unique=True)):
        one: Json = {"maxSkew": draw(st.integers(1, 3)), "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
        one["labelSelector"] = {"matchLabels": {"app": draw(st.sampled_from(["a", "b"]))}}
        set_sometimes(draw, one, "nodeAffinityPolicy", st.sampled_from(["Honor", "Ignore"]), 3)
        set_sometimes(draw, one, "nodeTaintsPolicy", st.sampled_from(["Honor", "Ignore"]), 3)
        result.append(one)
    return result


CLAIMS = ("data", "logs", "more")
NAMESPACED = ("PersistentVolumeClaim", "CSIStorageCapacity")
STORAGE_CLASSES = {"tells": "tells.example.com", "quiet": "quiet.example.com", "local": "kubernetes.io/no-provisioner"}
SIZES = st.sampled_from(["1Gi", "3Gi", "7Gi", "1500M"])
ROOM = st.sampled_from(["2Gi", "7Gi", "10Gi", "100G"])


@st.composite
def storage(draw: st.DrawFn) -> list[Json]:
    """Claims that wait, volumes for some of them, and what a driver publishes of its room."""
    objects: list[Json] = []

    def add(kind: str, name: str, api: str = "storage.k8s.io/v1", **fields: Any) -> None:
        metadata = {"name": name} | ({"namespace": "default"} if kind in NAMESPACED else {})
        objects.append({"apiVersion": api, "kind": kind, "metadata": metadata, **fields})

    for name, provisioner in STORAGE_CLASSES.items():
        add("StorageClass", name, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer")
    add("CSIDriver", "tells.example.com", spec={"storageCapacity": True})
    for name in CLAIMS:
        claim_spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": draw(SIZES)}},
            "storageClassName": draw(st.sampled_from(["tells", "tells", "quiet", "local"])),
        }
        add("PersistentVolumeClaim", name, "v1", spec=claim_spec, status={"phase": "Pending"})
    for i in range(draw(st.integers(0, 3))):
        volume = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": draw(ROOM)},
            "storageClassName": draw(st.sampled_from(["local", "quiet"])),
            "csi": {"driver": "quiet.example.com", "volumeHandle": f"handle-{i}"},
        }
        add("PersistentVolume", f"pv-{i}", "v1", spec=volume, status={"phase": "Available"})
    for i in range(draw(st.integers(0, 4))):
        room: Json = {"storageClassName": "tells", "capacity": draw(ROOM)}
        set_sometimes(draw, room, "maximumVolumeSize", ROOM, 4)
        where = draw(st.sampled_from([{}, {"matchLabels": {pieces.ZONE: "z1"}}, {"matchLabels": {pieces.ZONE: "z2"}}]))
        add("CSIStorageCapacity", f"c-{i}", **room, nodeTopology=where)
    return objects


@st.composite
def wishful(draw: st.DrawFn, pod: Json) -> Json:
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    affinity = spec.setdefault("affinity", {})
    if draw(chance(3)):
        affinity.setdefault("nodeAffinity", {})[PREFERRED] = draw(node_wishes())
    for kind in ("podAffinity", "podAntiAffinity"):
        if draw(chance(3)):
            affinity.setdefault(kind, {})[PREFERRED] = draw(pod_wishes())
    if draw(chance(3)):
        spec["topologySpreadConstraints"] = spec.get("topologySpreadConstraints", []) + draw(soft_constraints())
    if draw(chance(3)):
        spec["tolerations"] = [*(spec.get("tolerations") or []), draw(SOFT_TOLERATIONS)]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        set_sometimes(draw, container, "image", st.sampled_from(IMAGES), 2)
    if draw(chance(4)):
        volume = {"name": "data", "image": {"reference": draw(st.sampled_from(IMAGES))}}
        spec["volumes"] = [*spec.get("volumes", ()), volume]
    if draw(chance(3)):
        names = draw(st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3, unique=True))
        volumes = [{"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}} for name in names]
        spec["volumes"] = [*spec.get("volumes", ()), *volumes]
    return pod


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    """(objects, pending pods)."""
    objects = []
    for each in draw(clusters.clusters(FEATURES, max_nodes=5))["objects"]:
        each = copy.deepcopy(each)
        if each["kind"] == "Node" and draw(chance(2)):
            each.setdefault("spec", {}).setdefault("taints", [])
            each["spec"]["taints"] = [*(each["spec"]["taints"] or []), *draw(SOFT_TAINTS)]
        if each["kind"] == "Node" and draw(chance(2)):
            each.setdefault("status", {})["images"] = draw(PULLED)
        if each["kind"] == "Pod":
            each = draw(wishful(each))
            each["status"] = {}
        objects.append(each)
    if draw(chance(2)):
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"}}
        objects.append({**service, "spec": {"selector": {"app": "a"}}})
    objects += draw(storage())
    pods = [draw(wishful(draw(clusters.pods(f"new{i}", FEATURES)))) for i in range(draw(st.integers(1, 3)))]
    return objects, pods
