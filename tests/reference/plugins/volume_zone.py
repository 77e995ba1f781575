"""VolumeZone (6.10)."""

from __future__ import annotations

from reference.cluster import SKIPPED, Cluster, Json, NodeState, PreFiltered, Status, labels_of, unresolvable
from reference.volumes import claim_names, claim_of, class_name, missing

NAME = "VolumeZone"
BETA = "failure-domain.beta.kubernetes.io/"
STABLE = "topology.kubernetes.io/"
KEYS = (BETA + "zone", BETA + "region", STABLE + "zone", STABLE + "region")


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    requirements: list[tuple[str, set[str]]] = []
    for name, ephemeral in claim_names(pod):
        if ephemeral:
            continue
        if not name:
            return PreFiltered(unresolvable("PersistentVolumeClaim had no name"))
        claim = claim_of(pod, name, cluster)
        if claim is None:
            return PreFiltered(unresolvable(missing("persistentvolumeclaim", name)))
        volume_name = claim["spec"].get("volumeName")
        if not volume_name:
            problem = unbound_problem(claim, cluster)
            if problem:
                return PreFiltered(unresolvable(problem))
            continue
        volume = cluster.get("PersistentVolume", volume_name)
        if volume is None:
            return PreFiltered(unresolvable(missing("persistentvolume", volume_name)))
        for key in KEYS:
            if key in labels_of(volume):
                values = labels_of(volume)[key].split("__")
                if all(values):
                    requirements.append((key, set(values)))
    return PreFiltered(state=requirements) if requirements else PreFiltered(SKIPPED)


def unbound_problem(claim: Json, cluster: Cluster) -> str | None:
    name = class_name(claim)
    if not name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = cluster.get("StorageClass", name)
    if storage_class is None:
        return missing("storageclass.storage.k8s.io", name)
    mode = storage_class.get("volumeBindingMode")
    if not mode:
        return f'VolumeBindingMode not set for StorageClass "{name}"'
    return None if mode == "WaitForFirstConsumer" else "PersistentVolume had no name"


def check(state: list[tuple[str, set[str]]], pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    if not any(key in node.labels for key in KEYS):
        return None
    for key, values in state:
        have = node.labels.get(key)
        if have is None and key.startswith(BETA):
            have = node.labels.get(STABLE + key.removeprefix(BETA))
        if have not in values:
            return unresolvable("node(s) had no available volume zone")
    return None
