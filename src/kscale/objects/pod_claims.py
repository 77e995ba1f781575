"""The claims that controllers create for a pod: on devices from templates, and on generic ephemeral volumes.

Upstream: ``pkg/controller/resourceclaim/controller.go`` and ``pkg/controller/volume/ephemeral/controller.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from kscale.objects.core import Pod, PodResourceClaimStatus, PodSpec
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.resource import ResourceClaim, ResourceClaimTemplate
from kscale.objects.storage import PersistentVolumeClaim, PersistentVolumeClaimStatus
from kscale.objects.workloads import derived_uid

__all__ = ["PodClaims", "create_claims", "ephemeral_claims", "needs_claims"]

_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"


class PodClaims(NamedTuple):
    """A pod once its claims are created."""

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
    known = {status.name for status in statuses}
    created: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        template = templates.get((pod.namespace, entry.resource_claim_template_name or ""))
        if template is None or entry.name in known:
            continue
        # Upstream draws five characters; the pod's UID makes them the same each time.
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
                name=f"{pod.name}-{volume.name}", namespace=pod.namespace, owner_references=[_owner(pod)]
            ),
            spec=volume.ephemeral.volume_claim_template.spec,
            status=PersistentVolumeClaimStatus(phase="Pending"),
        )
        for volume in pod.spec.volumes
        if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None
    ]


def _owner(pod: Pod) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True)


def _from_template(pod: Pod, template: ResourceClaimTemplate, entry: str, name: str) -> ResourceClaim:
    wanted = template.spec.metadata
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            name=name,
            namespace=pod.namespace,
            uid=derived_uid("ResourceClaim", pod.namespace, name),
            labels=wanted.labels,
            annotations={**(wanted.annotations or {}), _ENTRY: entry},
            owner_references=[_owner(pod)],
        ),
        spec=template.spec.spec,
    )
