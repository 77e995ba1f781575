"""Counting devices while pods are placed: a column of free devices for every kind of request.

The verdict of DynamicResources on one pod is static. Several pods compete for devices; as long as the sets of devices
that the kinds of requests can use are, node by node, equal or disjoint, how many are left decides, and the packing
engine counts them like any other resource. Everything else is the ledger's (:mod:`kscale.scheduling.devices.ledger`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.base import enc_hook
from kscale.objects.resource import ExactDeviceRequest, ResourceClaim
from kscale.objects.taints import first_untolerated
from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.context import Context
from kscale.scheduling.devices.allocator import AllocationError, taints_of
from kscale.scheduling.devices.claims import Claims, Wanted, device_class_of, extended_claim
from kscale.scheduling.devices.devices import Devices
from kscale.scheduling.devices.inventory import DeviceId
from kscale.scheduling.facts import DEVICES, NodeFacts
from kscale.snapshot.interner import PodClass

__all__ = ["PLENTY", "DeviceCounting"]

PLENTY = 1 << 62
"""Stands in a column of what is free where the column does not matter."""

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


class _Kind(msgspec.Struct, eq=False):
    """Requests for devices of one class, with the same selectors and tolerations. ``resource``: the extended resource
    that is asked for, if it is one."""

    claim: ResourceClaim
    exact: ExactDeviceRequest
    resource: str
    column: int


class DeviceCounting:
    """``columns``: names of the columns; ``exact``: whether they say all there is to say."""

    def __init__(self, ctx: Context, pods: Iterable[PodClass], nodes: NodeClasses) -> None:
        self.ctx = ctx
        self._devices = Devices.of(ctx)
        self.exact = not self._devices.inventory.shareable
        self._kinds: dict[Hashable, _Kind] = {}
        self._requests: dict[int, list[tuple[_Kind, int]]] = {}
        self.columns: tuple[str, ...] = ()
        self._free = np.zeros((0, nodes.size), dtype=np.int64)
        for pod in pods:
            need = Claims.of(ctx).settled(pod)
            # A claim that is given by name may be shared, or allocated and full.
            self.exact = self.exact and not any(given is not None for _, given, _ in pod.claims)
            asked = list(self._asked(need))
            if asked:
                self._requests[pod.index] = asked
        if self._kinds and self.exact:
            self._count(nodes)

    def demand(self, pod: PodClass) -> dict[str, int]:
        """Column -> devices that a pod has to find free."""
        found: dict[str, int] = {}
        for kind, count in self._requests.get(pod.index, ()):
            name = self.columns[kind.column]
            found[name] = found.get(name, 0) + count
        return found

    def taken(self, pod: PodClass) -> dict[str, int]:
        """Column -> devices that a pod takes: none without claims, also if it asks for extended resources (the
        autoscaler runs Reserve for pods that list claims; ``PredicateSnapshot.SchedulePod``)."""
        return self.demand(pod) if pod.claims else {}

    def free(self, column: str) -> NDArray[np.int64]:
        """int64[nodes, the extra ones included]: free devices of a column."""
        found: NDArray[np.int64] = self._free[self.columns.index(column)]
        return found

    # -- requests ----------------------------------------------------------------------------------------------------

    def _asked(self, need: Wanted) -> Iterable[tuple[_Kind, int]]:
        classes = self.ctx.informers.device_classes
        for claim in need.open:
            devices = claim.spec.devices
            if devices.constraints:
                self.exact = False
            for request in devices.requests:
                exact = request.exactly
                if exact is None or exact.admin_access or exact.capacity or exact.allocation_mode == "All":
                    self.exact = False
                elif exact.device_class_name in classes:
                    yield self._kind(claim, exact, ""), exact.count or 1
        for name, amount in need.extended:
            if device_class_of(name, classes) is not None:
                claim = extended_claim(((name, amount),), classes)
                exact = claim.spec.devices.requests[0].exactly
                assert exact is not None
                yield self._kind(claim, exact, name), amount

    def _kind(self, claim: ResourceClaim, exact: ExactDeviceRequest, resource: str) -> _Kind:
        key = exact.device_class_name, _encode(exact.selectors), _encode(exact.tolerations), resource
        return self._kinds.setdefault(key, _Kind(claim, exact, resource, len(self._kinds)))

    # -- devices -----------------------------------------------------------------------------------------------------

    def _count(self, nodes: NodeClasses) -> None:
        kinds = list(self._kinds.values())
        codes = nodes.codes(DEVICES)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        sets = [[self._usable(kind, nodes.facts(int(i))) for kind in kinds] for i in first]
        self._merge(kinds, sets)
        free = np.zeros((len(self.columns), len(first)), dtype=np.int64)
        for i, found in enumerate(sets):
            for kind, devices in zip(kinds, found, strict=True):
                free[kind.column, i] = PLENTY if devices is None else len(devices)
            for kind, devices in zip(kinds, found, strict=True):  # the same column may matter to another kind
                if devices is not None and free[kind.column, i] == PLENTY:
                    free[kind.column, i] = len(devices)
        self._free = free[:, inverse]

    def _usable(self, kind: _Kind, node: NodeFacts) -> frozenset[DeviceId] | None:
        """The free devices that requests of the kind can have; None = the node has the resource itself."""
        if kind.resource and kind.resource in node.offered:
            return None
        found = set()
        inventory, allocator = self._devices.inventory, self._devices.allocator
        for offer in inventory.offers(node):
            if not offer.complete or offer.identity in inventory.used:
                continue
            try:
                if not allocator.selected(kind.claim, kind.exact, offer):
                    continue
            except AllocationError:  # the search ends here with an error once the devices before are taken
                self.exact = False
                break
            if first_untolerated(kind.exact.tolerations, taints_of(offer)) is None:
                self.exact = self.exact and offer.local and not offer.device.consumes_counters
                found.add(offer.identity)
        return frozenset(found)

    def _merge(self, kinds: Sequence[_Kind], sets: Sequence[Sequence[frozenset[DeviceId] | None]]) -> None:
        """One column for kinds that have the same devices; anything between that and nothing in common is inexact."""
        distinct = set(map(tuple, sets))
        for b, kind in enumerate(kinds):
            for a in range(b):
                if any(found[a] and found[a] == found[b] for found in distinct):
                    kind.column = kinds[a].column
                    break
        used = {column: i for i, column in enumerate(dict.fromkeys(kind.column for kind in kinds))}
        for kind in kinds:
            kind.column = used[kind.column]
        self.columns = tuple(f"\0devices:{i}" for i in range(len(used)))
        for found in distinct:
            for b, kind in enumerate(kinds):
                for a in range(b):
                    one, other = found[a], found[b]
                    if kinds[a].column == kind.column:
                        fits = one == other
                    else:
                        fits = one is None or other is None or not one & other
                    self.exact = self.exact and fits
