"""Which existing volume a claim gets, and what both look like once they are bound.

Upstream: ``pkg/controller/volume/persistentvolume`` (``FindMatchingVolume``: the smallest that is large enough).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kscale.objects.base import ResourceList
from kscale.objects.core import Node, ObjectReference
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import compile_selector
from kscale.objects.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus

__all__ = ["AVAILABLE", "bind", "find_volume", "is_bound"]

AVAILABLE: Final = "Available"
_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_FILESYSTEM: Final = "Filesystem"
_NONE: Final = Quantity("0")


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim has its volume for good."""
    return bool(claim.spec.volume_name) and _COMPLETED in (claim.metadata.annotations or {})


def find_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], node: Node | None = None
) -> PersistentVolume | None:
    """Return the smallest volume that a claim may have (of a pod on ``node``), the first of equals; None without."""
    candidates = [volume for volume in volumes if _may_have(claim, volume, node)]
    return min(candidates, key=lambda volume: _storage(volume.spec.capacity), default=None)


def bind(claim: PersistentVolumeClaim, volume: PersistentVolume) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    """Return the claim and the volume as they are once they are bound to each other."""
    owner = claim.metadata
    holder = ObjectReference(
        kind=claim.kind or "PersistentVolumeClaim",
        namespace=owner.namespace,
        name=owner.name,
        uid=owner.uid,
        api_version="v1",
    )
    bound_volume = replace(
        volume, spec=replace(volume.spec, claim_ref=holder), status=replace(volume.status, phase="Bound")
    )
    annotations = {**(owner.annotations or {}), _COMPLETED: "yes"}
    status = PersistentVolumeClaimStatus(
        phase="Bound", access_modes=volume.spec.access_modes, capacity=volume.spec.capacity
    )
    spec = replace(claim.spec, volume_name=volume.name)
    return replace(claim, metadata=replace(owner, annotations=annotations), spec=spec, status=status), bound_volume


def _storage(amounts: ResourceList | None) -> Quantity:
    return (amounts or {}).get("storage", _NONE)


def _may_have(claim: PersistentVolumeClaim, volume: PersistentVolume, node: Node | None) -> bool:
    holder, wanted, offered = volume.spec.claim_ref, claim.spec, volume.spec
    if wanted.volume_name and wanted.volume_name != volume.name:
        return False
    if holder is not None:
        same = (holder.namespace, holder.name) == (claim.namespace, claim.name)
        return same and holder.uid in ("", claim.metadata.uid)
    reach = offered.node_affinity.required if offered.node_affinity else None
    return (
        volume.status.phase == AVAILABLE
        and offered.storage_class_name == (wanted.storage_class_name or "")
        and (offered.volume_mode or _FILESYSTEM) == (wanted.volume_mode or _FILESYSTEM)
        and set(wanted.access_modes) <= set(offered.access_modes)
        and (wanted.selector is None or compile_selector(wanted.selector).matches(volume.metadata.labels))
        and _storage(offered.capacity) >= _storage(wanted.resources.requests)
        and (node is None or reach is None or compile_node_selector(reach).matches(node.metadata.labels or {}, ""))
    )
