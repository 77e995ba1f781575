"""Claims that controllers create for a pod, and their binding to existing volumes.

Upstream: ``pkg/controller/resourceclaim/controller.go``, ``pkg/controller/volume/ephemeral/controller.go`` and
``pkg/controller/volume/persistentvolume`` (``FindMatchingVolume``: the smallest volume that is large enough).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from kscale.objects.api.core import Node, ObjectReference, Pod, PodResourceClaimStatus, PodSpec
from kscale.objects.api.meta import ObjectMeta, OwnerReference, ResourceList
from kscale.objects.api.resource import ResourceClaim, ResourceClaimTemplate
from kscale.objects.api.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import compile_selector
from kscale.objects.workloads import derived_uid

__all__ = [
    "AVAILABLE",
    "PodClaims",
    "bind",
    "create_claims",
    "ephemeral_claims",
    "find_volume",
    "is_bound",
    "needs_claims",
]


_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"


class PodClaims(NamedTuple):
    """A pod after its claims were created."""

    pod: Pod
    """With a UID, and with the names of its claims in its status."""
    resource_claims: list[ResourceClaim]
    """The claims from templates, without devices."""
    volume_claims: list[PersistentVolumeClaim]
    """The claims of ephemeral volumes, unbound."""


def needs_claims(spec: PodSpec) -> bool:
    """Return whether each pod of this spec gets claims of its own."""
    return any(entry.resource_claim_template_name for entry in spec.resource_claims) or any(
        volume.ephemeral is not None for volume in spec.volumes
    )


def create_claims(
    pod: Pod,
    templates: Mapping[tuple[str, str], ResourceClaimTemplate],
    default_class: str | None = None,
) -> PodClaims:
    """Create the claims of a pod as the controllers would.

    Parameters
    ----------
    pod : Pod
        A pod with a namespace. It gets a UID if it has none.
    templates : mapping
        ResourceClaimTemplates by (namespace, name). An entry whose template is missing gets no claim, and the pod
        waits for it.
    default_class : str, optional
        The storage class of ephemeral volumes that name none.
    """
    if not pod.metadata.uid:
        uid = derived_uid("Pod", pod.namespace, pod.name)
        pod = replace(pod, metadata=replace(pod.metadata, uid=uid))
    statuses = list(pod.status.resource_claim_statuses)
    existing = {status.name for status in statuses}
    created: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        template = templates.get((pod.namespace, entry.resource_claim_template_name or ""))
        if template is None or entry.name in existing:
            continue
        # Upstream draws five random characters. Here they derive from the pod's UID.
        name = f"{pod.name}-{entry.name}-{derived_uid('ResourceClaim', pod.metadata.uid, entry.name)[:5]}"
        statuses.append(PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
        created.append(_from_template(pod, template, entry.name, name))
    if created:
        pod = replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))
    volume_claims = [
        claim
        if claim.spec.storage_class_name is not None or default_class is None
        else replace(claim, spec=replace(claim.spec, storage_class_name=default_class))
        for claim in ephemeral_claims(pod)
    ]
    return PodClaims(pod, created, volume_claims)


def ephemeral_claims(pod: Pod) -> list[PersistentVolumeClaim]:
    """Return the claims that a pod has for as long as it exists, unbound."""
    return [
        PersistentVolumeClaim(
            api_version="v1",
            kind="PersistentVolumeClaim",
            metadata=ObjectMeta(
                name=f"{pod.name}-{volume.name}", namespace=pod.namespace, owner_references=[_owner_reference(pod)]
            ),
            spec=volume.ephemeral.volume_claim_template.spec,
            status=PersistentVolumeClaimStatus(phase="Pending"),
        )
        for volume in pod.spec.volumes
        if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None
    ]


def _owner_reference(pod: Pod) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True)


def _from_template(pod: Pod, template: ResourceClaimTemplate, entry: str, name: str) -> ResourceClaim:
    template_metadata = template.spec.metadata
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            name=name,
            namespace=pod.namespace,
            uid=derived_uid("ResourceClaim", pod.namespace, name),
            labels=template_metadata.labels,
            annotations={**(template_metadata.annotations or {}), _ENTRY: entry},
            owner_references=[_owner_reference(pod)],
        ),
        spec=template.spec.spec,
    )


AVAILABLE: Final = "Available"
_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_FILESYSTEM: Final = "Filesystem"
_NONE: Final = Quantity("0")


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim is bound to its volume permanently."""
    return bool(claim.spec.volume_name) and _COMPLETED in (claim.metadata.annotations or {})


def find_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], node: Node | None = None
) -> PersistentVolume | None:
    """Return the smallest volume that a claim can be bound to, or None.

    Parameters
    ----------
    claim : PersistentVolumeClaim
    volumes : iterable of PersistentVolume
        The first of several volumes of the same size wins.
    node : Node, optional
        The node of the claim's pod, from which the volume must be accessible.
    """
    candidates = [volume for volume in volumes if _can_bind(claim, volume, node)]
    return min(candidates, key=lambda volume: _storage(volume.spec.capacity), default=None)


def bind(claim: PersistentVolumeClaim, volume: PersistentVolume) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    """Return the claim and the volume bound to each other."""
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


def _can_bind(claim: PersistentVolumeClaim, volume: PersistentVolume, node: Node | None) -> bool:
    """Check whether a claim can be bound to a volume that a node reaches."""
    holder, claim_spec, volume_spec = volume.spec.claim_ref, claim.spec, volume.spec
    if claim_spec.volume_name and claim_spec.volume_name != volume.name:
        return False
    if holder is not None:
        same = (holder.namespace, holder.name) == (claim.namespace, claim.name)
        return same and holder.uid in ("", claim.metadata.uid)
    reach = volume_spec.node_affinity.required if volume_spec.node_affinity else None
    return (
        volume.status.phase == AVAILABLE
        and volume_spec.storage_class_name == (claim_spec.storage_class_name or "")
        and (volume_spec.volume_mode or _FILESYSTEM) == (claim_spec.volume_mode or _FILESYSTEM)
        and set(claim_spec.access_modes) <= set(volume_spec.access_modes)
        and (claim_spec.selector is None or compile_selector(claim_spec.selector).matches(volume.metadata.labels))
        and _storage(volume_spec.capacity) >= _storage(claim_spec.resources.requests)
        and (node is None or reach is None or compile_node_selector(reach).matches(node.metadata.labels or {}, ""))
    )
