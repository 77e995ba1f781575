"""VolumeRestrictions: inline disks and ReadWriteOncePod claims (``plugins/volumerestrictions``).

The engine counts disks in use per node and users of a claim anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.scheduling.plugins.base import NOTHING, SKIP, Plugin, PreFilter, Status, unresolvable, unschedulable
from kscale.scheduling.volumes import claim_names, claim_of, not_found

if TYPE_CHECKING:
    from kscale.scheduling.context import Context
    from kscale.snapshot.interner import PodClass

__all__ = ["CLAIM_IN_USE", "DISK_CONFLICT", "DiskUse", "VolumeRestrictions", "disks", "exclusive_claims"]

DISK_CONFLICT: Status = unschedulable("node(s) had no available disk")
CLAIM_IN_USE: Status = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)

DiskUse = tuple[tuple[str, ...], bool]
"""(identity, read only): two pods on a node must not share an identity unless both read only."""


def disks(pod: PodClass) -> tuple[DiskUse, ...]:
    """Inline disks; an EBS volume is never shared, an RBD image has an identity per monitor."""
    found: list[DiskUse] = []
    for volume in pod.volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            found.append((("gce", gce.pd_name), gce.read_only))
        if (aws := volume.aws_elastic_block_store) is not None:
            found.append((("aws", aws.volume_id), False))
        if (iscsi := volume.iscsi) is not None:
            found.append((("iscsi", iscsi.iqn), iscsi.read_only))
        if (rbd := volume.rbd) is not None:
            found.extend(
                (("rbd", monitor, rbd.pool, rbd.image), rbd.read_only) for monitor in dict.fromkeys(rbd.monitors)
            )
    return tuple(found)


def exclusive_claims(pod: PodClass, ctx: Context) -> tuple[str, ...]:
    """Names of the pod's claims with access mode ReadWriteOncePod, each once."""
    found = []
    for name, ephemeral in claim_names(pod):
        claim = None if ephemeral else claim_of(pod, name, ctx)
        if claim is not None and "ReadWriteOncePod" in claim.spec.access_modes:
            found.append(name)
    return tuple(dict.fromkeys(found))


class VolumeRestrictions(Plugin):
    """No disk conflict on the node, no exclusive claim in use anywhere."""

    name = "VolumeRestrictions"
    ordinal = 7

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        for name, ephemeral in claim_names(pod):
            if not ephemeral and claim_of(pod, name, ctx) is None:
                return PreFilter(failure=unresolvable(not_found("persistentvolumeclaim", name)))
        in_use = any(ctx.claim_in_use(pod.namespace, name) for name in exclusive_claims(pod, ctx))
        return NOTHING if in_use or disks(pod) or _inline(pod) else SKIP


def _inline(pod: PodClass) -> bool:
    return any(v.rbd is not None for v in pod.volumes)
