"""What placing pods does to claims: the devices are theirs (upstream: the Reserve of the plug-in)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kscale.objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kscale.objects.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kscale.scheduling.context import Context
from kscale.scheduling.devices.allocator import AllocationError, Given
from kscale.scheduling.devices.claims import ClaimError, to_allocate, wanted
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.informers import Informers
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["reserve"]


def reserve(snapshot: Snapshot, pods: Sequence[PodRecord], nodes: Sequence[int]) -> Informers:
    """The informers' objects once these pods are placed on these nodes, one after the other: their claims are allocated
    and reserved for them. A claim that cannot be allocated there stays as it is."""
    if not snapshot.dra:
        return snapshot.informers
    classes = snapshot.classify(pods)
    ctx = Context(snapshot, SchedulerProfile())
    claims = dict(snapshot.informers.resource_claims)
    ctx.informers = msgspec.structs.replace(snapshot.informers, resource_claims=claims)
    changed = False
    for record, pod, n in zip(pods, classes, nodes, strict=True):
        try:
            need = wanted(pod, ctx)
        except ClaimError:
            continue
        if need.nothing:
            continue
        node = ctx.node(n)
        asked = to_allocate(need, node, ctx.informers.device_classes)
        try:
            given = ctx.allocator.allocate(asked, ctx.devices.offers(node))
        except AllocationError:
            continue
        if given is None:
            continue
        changed = True
        for claim, devices in zip(asked, given, strict=True):
            for each in devices:
                if not each.admin:
                    ctx.devices.take(each.offer)
            _put(claims, claim, record, _allocation(devices, node.name))
        for claim in need.allocated:
            _put(claims, claim, record, claim.status.allocation)
    return ctx.informers if changed else snapshot.informers


def _put(
    claims: dict[tuple[str, str], ResourceClaim],
    claim: ResourceClaim,
    pod: PodRecord,
    allocation: AllocationResult | None,
) -> None:
    name = claim.name
    if not claim.namespace:  # it stands for extended resources
        name = f"{name} {pod.pod.metadata.name}"
        while (pod.pod.metadata.namespace, name) in claims:  # pods that are only supposed may share a name
            name += "'"
    key = claim.namespace or pod.pod.metadata.namespace, name
    current = claims.get(key, claim)
    consumer = ResourceClaimConsumerReference(resource="pods", name=pod.pod.metadata.name, uid=pod.pod.metadata.uid)
    status = msgspec.structs.replace(
        current.status, allocation=allocation, reserved_for=[*current.status.reserved_for, consumer]
    )
    claims[key] = msgspec.structs.replace(current, status=status)


def _allocation(devices: Iterable[Given], node_name: str) -> AllocationResult:
    results = []
    terms: list[NodeSelectorTerm] = []
    local = False
    for each in devices:
        driver, pool, device = each.offer.identity
        results.append(
            DeviceRequestAllocationResult(
                request=each.request, driver=driver, pool=pool, device=device, admin_access=True if each.admin else None
            )
        )
        local = local or each.offer.local
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
