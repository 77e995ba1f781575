"""What several volume plug-ins ask about claims, volumes and classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.cluster import Cluster, Json, namespace_of

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def claim_names(pod: Json) -> Iterator[tuple[str, bool]]:
    """(name, is it generic ephemeral) of every claim of the pod, in volume order."""
    for volume in pod["spec"].get("volumes") or []:
        if volume.get("persistentVolumeClaim") is not None:
            yield volume["persistentVolumeClaim"].get("claimName") or "", False
        elif volume.get("ephemeral") is not None:
            yield f"{pod['metadata']['name']}-{volume['name']}", True


def claim_of(pod: Json, name: str, cluster: Cluster) -> Json | None:
    return cluster.get("PersistentVolumeClaim", name, namespace_of(pod))


def not_owned(pod: Json, claim: Json) -> str | None:
    """Upstream's text when a generic ephemeral claim does not belong to this very pod."""
    uid = pod["metadata"].get("uid") or ""
    for owner in claim["metadata"].get("ownerReferences") or []:
        if owner.get("controller") and (owner.get("uid") or "") == uid:
            return None
    where = namespace_of(claim)
    names = claim["metadata"]["name"], namespace_of(pod), pod["metadata"]["name"]
    return f"PVC {where}/{names[0]} was not created for pod {names[1]}/{names[2]} (pod is not owner)"


def class_name(entry: Json) -> str:
    """Of a claim or of a volume: the old annotation, else the field."""
    annotations = entry["metadata"].get("annotations") or {}
    if BETA_CLASS in annotations:
        return annotations[BETA_CLASS]
    return entry["spec"].get("storageClassName") or ""


def missing(resource: str, name: str) -> str:
    return f'{resource} "{name}" not found'


def annotations(entry: Json) -> dict[str, Any]:
    return entry["metadata"].get("annotations") or {}
