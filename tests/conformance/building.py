"""Short ways to write nodes and pods as JSON."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def node(name: str = "n", labels: Json | None = None, **fields: Any) -> Json:
    """A roomy, ready node; `allocatable` replaces, `taints`, `unschedulable` go to the spec."""
    room = fields.pop("allocatable", {"cpu": "100", "memory": "1Ti", "pods": "1000", "ephemeral-storage": "1Ti"})
    status: Json = {"allocatable": room, "capacity": fields.pop("capacity", room)}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": fields, "status": status}


def pod(name: str = "p", on: str | None = None, **fields: Any) -> Json:
    """A pod of one empty container; what is given goes to the metadata, the status or the spec."""
    namespace = fields.pop("namespace", "default")
    metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    for key in ("labels", "annotations", "deletionTimestamp", "ownerReferences"):
        if key in fields:
            metadata[key] = fields.pop(key)
    status = fields.pop("status", {})
    spec = {"containers": [container()], **fields}
    if on is not None:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def container(name: str = "c", **requests: Any) -> Json:
    """A container with these requests (`cpu="1m"`); names that are no identifiers go in `more`."""
    amounts = {**requests.pop("more", {}), **requests}
    return {"name": name, "image": "i", **({"resources": {"requests": amounts}} if amounts else {})}


def owned(each: Json, controller: str, kind: str = "ReplicationController") -> Json:
    reference = {"apiVersion": "v1", "kind": kind, "name": controller, "uid": f"uid-{controller}", "controller": True}
    each["metadata"]["ownerReferences"] = [reference]
    return each


def namespace(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def need(key: str, operator: str, *values: str) -> Json:
    """One selector requirement."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def expressions(*needs: Json) -> Json:
    return {"matchExpressions": list(needs)}
