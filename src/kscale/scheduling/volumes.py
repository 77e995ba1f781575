"""What several volume plug-ins ask about claims, volumes and classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kscale.objects.storage import PersistentVolume, PersistentVolumeClaim
    from kscale.scheduling.context import Context
    from kscale.snapshot.interner import PodClass

__all__ = ["SELECTED_NODE", "claim_names", "claim_of", "class_name", "not_found", "not_owned"]

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation that names the node a claim is to be provisioned for."""

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def claim_names(pod: PodClass) -> Iterator[tuple[str, bool]]:
    """(claim name, is it a generic ephemeral volume's) in volume order."""
    for volume in pod.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.pod_name}-{volume.name}", True


def claim_of(pod: PodClass, name: str, ctx: Context) -> PersistentVolumeClaim | None:
    """The claim object of the pod's namespace."""
    return ctx.informers.claims.get((pod.namespace, name))


def class_name(entry: PersistentVolume | PersistentVolumeClaim) -> str:
    """Storage class of a claim or a volume: the old annotation, else the field."""
    annotations = entry.metadata.annotations or {}
    return annotations.get(_BETA_CLASS, entry.spec.storage_class_name or "")


def not_found(resource: str, name: str) -> str:
    """The text of upstream's listers."""
    return f'{resource} "{name}" not found'


def not_owned(pod: PodClass, claim: PersistentVolumeClaim) -> str | None:
    """Upstream's text when the claim of a generic ephemeral volume does not belong to this very pod."""
    if any(owner.controller and owner.uid == pod.pod_uid for owner in claim.metadata.owner_references):
        return None
    return (
        f"PVC {claim.namespace}/{claim.name} was not created for pod {pod.namespace}/{pod.pod_name} (pod is not owner)"
    )
