"""DynamicResources: devices that claims request (``plugins/dynamicresources``).

This module decides on a pod alone, with the devices that are free at the start. While pods are placed, the engine
counts devices or asks a ledger (:mod:`kscale.scheduling.devices`; ``engine/dynamic_resources.hpp``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from kscale.objects.decode import enc_hook
from kscale.scheduling.devices.allocator import AllocationError
from kscale.scheduling.devices.claims import (
    EXTENDED_CLAIM,
    ClaimError,
    Claims,
    Devices,
    available,
    binding_failed,
    skips_operations,
    to_allocate,
)
from kscale.scheduling.plugins.base import NOTHING, ExplainContext, NodeFilter, Numbers, Plugin, PreFilter
from kscale.scheduling.profile import DEVICES, FEATURES, Context, NodeFacts, selector_columns
from kscale.scheduling.status import ERROR, Status, error, unresolvable
from kscale.snapshot.classes.interner import PodClass

__all__ = ["DynamicResources"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


class DynamicResources(Plugin):
    """Claims, and extended resources that a device class provides, can be satisfied on the node.

    Without DRA the autoscaler's manager finds no claims.
    """

    name = "DynamicResources"

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Return a failure if a claim of the pod cannot be used."""
        if not pod.claims and not ctx.dra:
            return NOTHING
        try:
            Claims.of(ctx).get_requests(pod)
        except ClaimError as problem:
            return PreFilter(failure=unresolvable(str(problem)))
        return NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether the pod requests no devices, or its PreFilter fails."""
        return Claims.of(ctx).get_checked_requests(pod).is_empty

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...] | None:
        """Return what verdicts on a pod depend on; None (never cached) if the pod requests devices.

        A pod requests devices if it has claims, or if a device class provides one of its extended resources. If no
        class does, the result has the device classes. It is empty for a pod without claims and extended resources, and
        without dynamic resource allocation for any pod without claims.
        """
        if pod.claims:
            return None
        if not ctx.dra or not pod.extended:
            return ()
        return None if Claims.of(ctx).get_extended_requests(pod) else (ctx.informers.device_classes,)

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return the index of device classes."""
        return (ctx.informers.device_classes,)

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check whether a node's devices satisfy the pod's claims and extended resources.

        None if the pod requests no devices, or if its PreFilter fails.
        """
        if not pod.claims and not ctx.dra:
            return None
        need = Claims.of(ctx).get_checked_requests(pod)
        if need.is_empty:
            return None
        devices, classes = Devices.of(ctx), ctx.informers.device_classes
        allocations = [claim.status.allocation for claim in need.allocated if claim.status.allocation is not None]
        columns = frozenset().union(*(selector_columns(allocation.node_selector) for allocation in allocations))
        optional = any(map(skips_operations, need.allocated))
        if optional:
            columns |= {FEATURES}
        if need.open or need.extended:
            columns |= {DEVICES}
        now, timeout = ctx.now, ctx.profile.device_binding_timeout

        def check(node: NodeFacts) -> Status | None:
            if need.stale:
                return unresolvable("cannot schedule extended resource claim")
            claims = to_allocate(need, node, classes)
            if claims:
                try:
                    if devices.allocator.allocate(claims, devices.inventory.offers(node)) is None:
                        return unresolvable("cannot allocate all claims")
                except AllocationError as problem:
                    return error(str(problem))
            if not all(available(claim, node, now, timeout) for claim in need.allocated):
                return unresolvable("resourceclaim not available on the node")
            return None

        key = (
            tuple(_encode(claim.spec) for claim in need.open),
            tuple(_encode(allocation.node_selector) for allocation in allocations),
            need.extended,
            need.namespace if need.extended else "",  # error messages contain the namespace
            need.stale,
            optional,
            any(binding_failed(claim, now, timeout) for claim in need.allocated),
        )
        return NodeFilter(key, columns, check)

    def explain(
        self, pod: PodClass, class_number: int, node: int, context: ExplainContext
    ) -> tuple[Status | None, Numbers]:
        """Return the status (None: the pod fits) and, if the pod does not fit, its requests for devices.

        One dict per request and alternative: ``claim``, ``request``, ``deviceClass``, and the numbers of devices
        ``wanted`` (None: all), ``free`` and, on the node, ``devices``. Tainted devices of the node and those in use are
        not free. Empty if the pod fits or the Filter cannot decide.
        """
        node_filter = self.get_node_filter(pod, context.ctx)
        facts = context.facts(node)
        status = None if node_filter is None else node_filter.check(facts)
        if status is None or status.code == ERROR:
            return status, ()
        return status, tuple(self._requests(pod, facts, context.ctx))

    def _requests(self, pod: PodClass, facts: NodeFacts, ctx: Context) -> list[dict[str, Any]]:
        """Return the dicts of :meth:`explain` for the claims that would be allocated on a node.

        Requests with an invalid selector are left out.
        """
        devices, classes, requests = Devices.of(ctx), ctx.informers.device_classes, []
        offers = devices.inventory.offers(facts)
        for claim in to_allocate(Claims.of(ctx).get_requests(pod), facts, classes):
            for request in claim.spec.devices.requests:
                for exact in (request.exactly, *request.first_available):
                    if exact is None:
                        continue
                    try:
                        free = devices.allocator.usable(claim, exact, offers)
                    except AllocationError:
                        continue
                    requests.append(
                        {
                            "claim": "extended resources" if claim.name == EXTENDED_CLAIM else claim.key,
                            "request": request.name,
                            "deviceClass": exact.device_class_name,
                            "wanted": None if exact.allocation_mode == "All" else exact.count or 1,
                            "free": free,
                            "devices": len(offers),
                        }
                    )
        return requests
