"""VolumeRestrictions (6.7)."""

from __future__ import annotations

from reference.cluster import (
    SKIPPED,
    Cluster,
    Json,
    NodeState,
    PreFiltered,
    Status,
    namespace_of,
    unresolvable,
    unschedulable,
)
from reference.volumes import claim_names, claim_of, missing

NAME = "VolumeRestrictions"
INLINE = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi")


def disks_conflict(incoming: Json, placed: Json) -> bool:
    """Whether two volumes are the same disk in a way that forbids one node for both pods."""

    def both(kind: str) -> tuple[Json, Json] | None:
        first, second = incoming.get(kind), placed.get(kind)
        return (first, second) if first is not None and second is not None else None

    def read_only(pair: tuple[Json, Json]) -> bool:
        return all(disk.get("readOnly") for disk in pair)

    if pair := both("gcePersistentDisk"):
        return pair[0].get("pdName") == pair[1].get("pdName") and not read_only(pair)
    if pair := both("awsElasticBlockStore"):
        return pair[0].get("volumeID") == pair[1].get("volumeID")
    if pair := both("iscsi"):
        return pair[0].get("iqn") == pair[1].get("iqn") and not read_only(pair)
    if pair := both("rbd"):
        shared = set(pair[0].get("monitors") or []) & set(pair[1].get("monitors") or [])
        same = all((pair[0].get(part) or default) == (pair[1].get(part) or default) for part, default in RBD_PARTS)
        return bool(shared) and same and not read_only(pair)
    return False


RBD_PARTS = (("pool", ""), ("image", ""))


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    exclusive = set()
    for name, ephemeral in claim_names(pod):
        if ephemeral:
            continue
        claim = claim_of(pod, name, cluster)
        if claim is None:
            return PreFiltered(unresolvable(missing("persistentvolumeclaim", name)))
        if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or []):
            exclusive.add(name)
    in_use = sum(
        any(name in used_claims(placed, pod) for node in cluster.nodes for placed in node.pods) for name in exclusive
    )
    inline = any(volume.get(kind) is not None for volume in pod["spec"].get("volumes") or [] for kind in INLINE)
    if not inline and not in_use:
        return PreFiltered(SKIPPED)
    return PreFiltered(state=in_use)


def used_claims(placed: Json, pod: Json) -> set[str]:
    """The claims a placed pod names directly, if it lives in the incoming pod's namespace."""
    if namespace_of(placed) != namespace_of(pod):
        return set()
    return {name for name, ephemeral in claim_names(placed) if not ephemeral}


def check(state: int, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    for volume in pod["spec"].get("volumes") or []:
        for placed in node.pods:
            if any(disks_conflict(volume, other) for other in placed["spec"].get("volumes") or []):
                return unschedulable("node(s) had no available disk")
    if state > 0:
        return unschedulable(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
            "already in-use by another pod"
        )
    return None
