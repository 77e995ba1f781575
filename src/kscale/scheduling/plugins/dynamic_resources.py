"""DynamicResources: devices that claims ask for (``plugins/dynamicresources``)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import msgspec

from kscale.objects.base import enc_hook
from kscale.objects.node_selectors import compile_node_selector
from kscale.scheduling.devices.allocator import AllocationError
from kscale.scheduling.devices.claims import ClaimError, Wanted, to_allocate, wanted
from kscale.scheduling.plugins.base import (
    DEVICES,
    NOTHING,
    SKIP,
    Plugin,
    PreFilter,
    Status,
    error,
    unresolvable,
)
from kscale.scheduling.plugins.node_affinity import selector_columns

if TYPE_CHECKING:
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["DynamicResources"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


class DynamicResources(Plugin):
    """Claims, and extended resources that a device class stands for, can be satisfied on the node.

    The verdict is that of the pod alone against the devices that are free now. Without DRA the autoscaler's manager
    finds no claim at all.
    """

    name = "DynamicResources"
    ordinal = 13

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        if not pod.claims and not ctx.dra:
            return SKIP
        try:
            return SKIP if wanted(pod, ctx).nothing else NOTHING
        except ClaimError as problem:
            return PreFilter(failure=unresolvable(str(problem)))

    def _wanted(self, pod: PodClass, ctx: Context) -> Wanted:
        if not pod.claims and not ctx.dra:
            return Wanted()
        try:
            return wanted(pod, ctx)
        except ClaimError:  # its PreFilter fails; no node is asked
            return Wanted()

    def pod_key(self, pod: PodClass, ctx: Context) -> Hashable | None:
        need = self._wanted(pod, ctx)
        if need.nothing:
            return None
        allocations = (claim.status.allocation for claim in need.allocated)
        return (
            tuple(_encode(claim.spec) for claim in need.open),
            tuple(_encode(each.node_selector) for each in allocations if each is not None),
            need.extended,
        )

    def columns(self, pod: PodClass, ctx: Context) -> frozenset[str]:
        need = self._wanted(pod, ctx)
        columns: set[str] = set()
        for claim in need.allocated:
            if claim.status.allocation is not None:
                columns |= selector_columns(claim.status.allocation.node_selector)
        if need.open or need.extended:
            columns.add(DEVICES)
        return frozenset(columns)

    def check(self, pod: PodClass, node: NodeFacts, ctx: Context) -> Status | None:
        need = self._wanted(pod, ctx)
        claims = to_allocate(need, node, ctx.informers.device_classes)
        if claims:
            try:
                if ctx.allocator.allocate(claims, ctx.devices.offers(node)) is None:
                    return unresolvable("cannot allocate all claims")
            except AllocationError as problem:
                return error(str(problem))
        for claim in need.allocated:
            allocation = claim.status.allocation
            if allocation is None or allocation.node_selector is None:
                continue
            if not compile_node_selector(allocation.node_selector).matches(node.labels, node.name):
                return unresolvable("resourceclaim not available on the node")
        return None
