"""Clusters and pods for the duel with kube-scheduler, in which all Score plug-ins have something to say."""

from __future__ import annotations

import random
from typing import Any, Final

__all__ = ["API_PATHS", "BOUND_CLAIM", "cluster", "incoming", "volume_for"]

Json = dict[str, Any]

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
BOUND_CLAIM: Final = {"pv.kubernetes.io/bind-completed": "yes"}
API_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "Service": "/api/v1/namespaces/default/services",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
}
"""Where the kinds of a cluster are."""

_MIB: Final = 1 << 20
_APPS: Final = ("web", "api", "cache", "batch")
_IMAGES: Final = {f"registry.example.com/{app}:v1": (i + 2) * 150 * _MIB for i, app in enumerate(_APPS)}
_CLASS: Final = "near"
_DRIVER: Final = "near.example.com"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def cluster(draw: random.Random, nodes: int, placed: int, claims: int) -> list[Json]:
    """Nodes of all sizes, pods on them, a service, and claims that wait, with the room for them by node."""
    result: list[Json] = [_node(draw, f"n{i:02}") for i in range(nodes)]
    result += [_pod(draw, f"placed-{i}", on=f"n{draw.randrange(nodes):02}") for i in range(placed)]
    result.append(_object("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]}))
    storage = "storage.k8s.io/v1"
    result.append(_object(storage, "CSIDriver", _DRIVER, spec={"storageCapacity": True, "attachRequired": False}))
    binding = {"provisioner": _DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}
    result.append(_object(storage, "StorageClass", _CLASS, **binding))
    for i in range(nodes):
        room = {"capacity": f"{draw.randrange(20, 400)}Gi", "nodeTopology": {"matchLabels": {HOSTNAME: f"n{i:02}"}}}
        result.append(_object(storage, "CSIStorageCapacity", f"near-n{i:02}", storageClassName=_CLASS, **room))
    for i in range(claims):
        resources = {"requests": {"storage": f"{draw.randrange(5, 60)}Gi"}}
        spec = {"storageClassName": _CLASS, "accessModes": ["ReadWriteOnce"], "resources": resources}
        result.append(_object("v1", "PersistentVolumeClaim", f"data-{i}", spec=spec))
    return result


def incoming(draw: random.Random, name: str, claim: str = "") -> Json:
    """A pod with wishes."""
    return _pod(draw, name, claim=claim)


def volume_for(claim: Json, node: str) -> Json:
    """What a provisioner makes for a claim."""
    place = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
    claim_ref = {name: claim["metadata"][name] for name in ("namespace", "name", "uid")}
    spec = {
        "capacity": claim["spec"]["resources"]["requests"],
        "accessModes": claim["spec"]["accessModes"],
        "storageClassName": _CLASS,
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim_ref},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}},
        "csi": {"driver": _DRIVER, "volumeHandle": claim_ref["name"]},
    }
    return _object("v1", "PersistentVolume", f"pv-{claim_ref['name']}", spec=spec)


def _object(version: str, kind: str, name: str, **fields: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def _node(draw: random.Random, name: str) -> Json:
    labels = {HOSTNAME: name, ZONE: draw.choice("abc"), "disk": draw.choice(["ssd", "hdd"]), "rack": draw.choice("xyz")}
    taints = [{"key": "old", "effect": "PreferNoSchedule"}] if draw.random() < 0.3 else []
    taints += [{"key": "lent", "value": "out", "effect": "PreferNoSchedule"}] if draw.random() < 0.2 else []
    taints += [{"key": "only", "effect": "NoSchedule"}] if draw.random() < 0.1 else []
    capacity = {"cpu": f"{draw.randrange(3000, 16000)}m", "memory": f"{draw.randrange(6000, 64000)}Mi", "pods": "40"}
    images = [{"names": [each], "sizeBytes": size} for each, size in _IMAGES.items() if draw.random() < 0.4]
    result = _object("v1", "Node", name, spec={"taints": taints} if taints else {})
    result["metadata"]["labels"] = labels
    return result | {"status": {"capacity": capacity, "allocatable": capacity, "images": images}}


def _pod(draw: random.Random, name: str, *, on: str = "", claim: str = "") -> Json:
    app = draw.choice(_APPS)
    requests_ = {"cpu": f"{draw.randrange(50, 1200)}m", "memory": f"{draw.randrange(64, 3000)}Mi"}
    requests: Json = draw.choice([requests_, requests_, requests_, {"cpu": requests_["cpu"]}, {}])
    container = {"name": "c", "image": f"registry.example.com/{app}:v1", "resources": {"requests": requests}}
    spec: Json = {"containers": [container], "tolerations": [], "affinity": {}, "terminationGracePeriodSeconds": 0}
    if on:
        spec["nodeName"] = on
    if claim:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    if draw.random() < 0.3:
        spec["tolerations"] = [{"key": draw.choice(["old", "lent", "only"]), "operator": "Exists"}]
    if draw.random() < 0.4:
        spec["affinity"]["nodeAffinity"] = {_PREFERRED: [_node_wish(draw) for _ in range(draw.randrange(1, 3))]}
    for kind in ("podAffinity", "podAntiAffinity"):
        if draw.random() < 0.3:
            wishes = [{"weight": draw.randrange(1, 101), "podAffinityTerm": _pod_term(draw)}]
            spec["affinity"][kind] = {_PREFERRED: wishes}
    if draw.random() < 0.1:
        term = {**_pod_term(draw), "topologyKey": HOSTNAME}
        spec["affinity"].setdefault("podAntiAffinity", {})[_REQUIRED] = [term]
    if draw.random() < 0.3:
        spec["topologySpreadConstraints"] = [
            {"maxSkew": draw.randrange(1, 4), "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"app": app}}}
            for key in draw.sample([ZONE, HOSTNAME, "rack"], draw.randrange(1, 3))
        ]  # fmt: skip
    result = _object("v1", "Pod", name, spec=spec)
    result["metadata"] |= {"namespace": "default", "labels": {"app": app}}
    return result


def _node_wish(draw: random.Random) -> Json:
    key, values = draw.choice([("disk", ["ssd"]), ("rack", ["x", "y"]), (ZONE, ["a"])])
    preference = {"matchExpressions": [{"key": key, "operator": draw.choice(["In", "NotIn"]), "values": values}]}
    return {"weight": draw.randrange(1, 101), "preference": preference}


def _pod_term(draw: random.Random) -> Json:
    selector = {"matchLabels": {"app": draw.choice(_APPS)}}
    return {"topologyKey": draw.choice([ZONE, HOSTNAME, "rack"]), "labelSelector": selector}
