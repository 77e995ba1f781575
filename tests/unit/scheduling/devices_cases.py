"""Nodes, devices, classes and claims for the tests of DynamicResources."""

from __future__ import annotations

from typing import Any

import kscale

Json = dict[str, Any]
API = "resource.k8s.io/v1"
GPU = "gpu.example.com"
X, Y = ({"attributes": {"model": {"string": model}}} for model in "xy")


def node(name: str, **allocatable: str) -> Json:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "20"} | {k.replace("__", "/"): v for k, v in allocatable.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def device_class(name: str = GPU, expression: str = "", **spec: Any) -> Json:
    if expression:
        spec["selectors"] = [{"cel": {"expression": expression}}]
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def devices(where: str, *items: Json, **spec: Any) -> Json:
    spec = {
        "driver": GPU,
        "nodeName": where,
        "pool": {"name": where, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"dev{i}", **each} for i, each in enumerate(items)],
    } | spec
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"s-{where}"}, "spec": spec}


def exactly(name: str = "r", **exact: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": GPU, **exact}}


def claim(name: str, *requests: Json, meta: Json | None = None, status: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **(meta or {})},
        "spec": {"devices": {"requests": list(requests) or [exactly()], **spec}},
        "status": status or {},
    }


def pod(name: str = "p", *claims: str, requests: Json | None = None, **spec: Any) -> Json:
    spec["containers"] = [{"name": "c", "resources": {"requests": requests or {}}}]
    if claims:
        spec["resourceClaims"] = [{"name": f"c{i}", "resourceClaimName": each} for i, each in enumerate(claims)]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def snapshot(*objects: Json) -> Any:
    return kscale.Cluster(objects).snapshot(dra=True)


def fits(*objects: Json, **options: Any) -> bool:
    """Whether a pod with the claim `want` fits the node `n`."""
    return kscale.fit(snapshot(node("n"), *objects), [pod("p", "want")], **options).verdict("default/p", "n").ok


def allocated_status(device: str, where: str = "n") -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [where]}
    results = [{"request": "r", "driver": GPU, "pool": where, "device": device}]
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}
