"""A claim as it stands while pods are placed: who uses it, and which devices it has."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kscale.objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kscale.objects.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kscale.scheduling.devices.allocator import Given
from kscale.scheduling.devices.inventory import Hold, holds_of

__all__ = ["ClaimKey", "HeldClaim", "allocation"]

ClaimKey = tuple[str, str]
"""(namespace, name)."""


class HeldClaim(msgspec.Struct, frozen=True, eq=False):
    """``claim``: as it was observed; ``consumers``, ``allocation``, ``holds``: as it stands. Without ``allocation`` it
    holds nothing."""

    claim: ResourceClaim
    consumers: tuple[ResourceClaimConsumerReference, ...]
    allocation: AllocationResult | None
    holds: tuple[Hold, ...] = ()

    @classmethod
    def of(cls, claim: ResourceClaim) -> HeldClaim:
        """A claim as it was observed."""
        found = claim.status.allocation
        return cls(claim, tuple(claim.status.reserved_for), found, () if found is None else tuple(holds_of(found)))

    @property
    def replaced(self) -> ResourceClaim:
        """The claim with its status as it stands."""
        status = msgspec.structs.replace(
            self.claim.status, allocation=self.allocation, reserved_for=list(self.consumers)
        )
        return msgspec.structs.replace(self.claim, status=status)


def allocation(claim: ResourceClaim, devices: Iterable[Given], node_name: str) -> AllocationResult:
    """What the allocator found, as a claim's status says it."""
    results = []
    terms: list[NodeSelectorTerm] = []
    local = False
    for i, each in enumerate(devices):
        driver, pool, device = each.offer.identity
        results.append(
            DeviceRequestAllocationResult(
                request=each.request,
                driver=driver,
                pool=pool,
                device=device,
                admin_access=True if each.admin else None,
                # Upstream draws a random one.
                share_id=f"{claim.metadata.uid or claim.key}-{i}" if each.offer.shareable else None,
                consumed_capacity=each.consumed,
                binding_conditions=each.offer.device.binding_conditions,
                binding_failure_conditions=each.offer.device.binding_failure_conditions,
            )
        )
        local = local or each.offer.local or bool(each.offer.device.binds_to_node)
        if each.offer.selector is not None:
            terms += [term for term in each.offer.selector.node_selector_terms if term not in terms]
    if local:
        field = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
        terms = [NodeSelectorTerm(match_fields=[field])]
    elif len(terms) > 1:  # the API allows a slice one term, and all of them must hold
        expressions = [expression for term in terms for expression in term.match_expressions]
        fields = [expression for term in terms for expression in term.match_fields]
        terms = [NodeSelectorTerm(match_expressions=expressions, match_fields=fields)]
    selector = NodeSelector(node_selector_terms=terms) if terms else None
    return AllocationResult(devices=DeviceAllocationResult(results=results), node_selector=selector)
