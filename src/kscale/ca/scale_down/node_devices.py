"""Devices of nodes and claims of pods, as utilisation and scale-down look them up."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.objects.core import Pod
from kscale.objects.resource import ResourceClaim, ResourceSlice
from kscale.snapshot.snapshot import Snapshot

__all__ = ["claims_of", "local_slices"]


def local_slices(snapshot: Snapshot) -> dict[str, list[ResourceSlice]]:
    """The slices of each node that has any."""
    found: dict[str, list[ResourceSlice]] = {}
    for item in snapshot.informers.resource_slices:
        if item.spec.node_name:
            found.setdefault(item.spec.node_name, []).append(item)
    return found


def claims_of(pods: Iterable[Pod], snapshot: Snapshot) -> list[ResourceClaim]:
    """The claims of these pods, each once."""
    found: dict[str, ResourceClaim] = {}
    for pod in pods:
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for use in pod.spec.resource_claims:
            name = use.resource_claim_name or made.get(use.name)
            claim = snapshot.informers.resource_claims.get((pod.metadata.namespace, name or ""))
            if claim is not None:
                found[claim.metadata.uid or claim.key] = claim
    return list(found.values())
