"""Which devices each node can use: the newest generation of every pool of resource slices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kscale.objects.base import enc_hook
from kscale.objects.core import NodeSelector
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.objects.resource import Device, ResourceClaim, ResourceSlice, ResourceSliceSpec

if TYPE_CHECKING:
    from kscale.scheduling.context import NodeFacts

__all__ = ["CounterKey", "DeviceId", "Inventory", "Offer", "counters_of", "for_node"]

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""

CounterKey = tuple[str, str, str, str]
"""(driver, pool, counter set, counter)."""

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


@dataclass(slots=True, eq=False)
class Offer:
    """A device that a node can use. ``kind``: equal for devices of one driver that differ in name and place only;
    ``local``: one node alone can use it, else ``selector`` (None: all can)."""

    identity: DeviceId
    device: Device
    complete: bool
    kind: int
    local: bool
    selector: NodeSelector | None = None


def counters_of(offer: Offer) -> list[tuple[CounterKey, Quantity]]:
    """What the device takes of its pool's shared counters."""
    driver, pool, _ = offer.identity
    return [
        ((driver, pool, use.counter_set, name), counter.value)
        for use in offer.device.consumes_counters
        for name, counter in (use.counters or {}).items()
    ]


def for_node(slices: Iterable[ResourceSlice], node_name: str, suffix: str) -> list[ResourceSlice]:
    """Node-local slices for another node: name and pool get the suffix (upstream: ``SanitizedNodeResourceSlices``)."""
    made = []
    for each in slices:
        pool = msgspec.structs.replace(each.spec.pool, name=f"{each.spec.pool.name}-{suffix}")
        spec = msgspec.structs.replace(each.spec, pool=pool, node_name=node_name, node_selector=None, all_nodes=None)
        metadata = msgspec.structs.replace(each.metadata, name=f"{each.metadata.name}-{suffix}", uid="")
        made.append(msgspec.structs.replace(each, metadata=metadata, spec=spec))
    return made


class Inventory:
    """The devices of a set of slices, and which of them claims hold.

    ``used``: devices that are given away (admin access gives nothing away); ``available``: what is left of the pools'
    shared counters; ``selectors``: those of slices that are not local to a node; ``shareable``: some device may be
    given to several claims.
    """

    def __init__(self, slices: Sequence[ResourceSlice], claims: Iterable[ResourceClaim] = ()) -> None:
        self._kinds: dict[Any, int] = {}
        self._own: dict[str, list[tuple[int, Offer]]] = {}
        self._wide: list[tuple[int, ResourceSliceSpec | Device, Offer]] = []
        self._rank = 0
        self.selectors: list[NodeSelector] = []
        self.available: dict[CounterKey, Quantity] = {}
        self.shareable = False
        self.used: set[DeviceId] = set()
        self.add(slices)
        for claim in claims:
            if claim.status.allocation is not None:
                self.used.update(
                    (result.driver, result.pool, result.device)
                    for result in claim.status.allocation.devices.results
                    if not result.admin_access
                )
        if self.available:
            self._subtract_used()

    def with_slices(self, slices: Sequence[ResourceSlice]) -> Inventory:
        """Another inventory that has these slices, of pools of their own, too."""
        other = copy(self)
        vars(other).update(
            _own={name: list(offers) for name, offers in self._own.items()},
            _wide=list(self._wide),
            selectors=list(self.selectors),
            available=dict(self.available),
            used=set(self.used),
        )
        other.add(slices)
        return other

    def add(self, slices: Sequence[ResourceSlice]) -> None:
        """Add pools that are not there yet."""
        newest: dict[tuple[str, str], int] = {}
        for each in slices:
            pool = each.spec.driver, each.spec.pool.name
            newest[pool] = max(each.spec.pool.generation, newest.get(pool, each.spec.pool.generation))
        current = [s.spec for s in slices if s.spec.pool.generation == newest[s.spec.driver, s.spec.pool.name]]
        count: dict[tuple[str, str], int] = {}
        for spec in current:
            pool = spec.driver, spec.pool.name
            count[pool] = count.get(pool, 0) + 1
            for counters in spec.shared_counters:
                for name, counter in (counters.counters or {}).items():
                    self.available[(*pool, counters.name, name)] = counter.value
        for spec in current:
            self._offer(spec, count[spec.driver, spec.pool.name] == (spec.pool.resource_slice_count or 1))

    def _offer(self, spec: ResourceSliceSpec, complete: bool) -> None:
        pool = spec.driver, spec.pool.name
        for device in spec.devices:
            self._rank += 1
            holder = device if spec.per_device_node_selection else spec
            local = bool(holder.node_name)
            selector = None if local or holder.all_nodes else holder.node_selector
            kind = self._kind(spec.driver, device)
            offer = Offer((*pool, device.name), device, complete, kind, local, selector)
            self.shareable = self.shareable or bool(device.allow_multiple_allocations)
            if holder.node_name:
                self._own.setdefault(holder.node_name, []).append((self._rank, offer))
                continue
            self._wide.append((self._rank, holder, offer))
            if selector is not None and selector not in self.selectors:
                self.selectors.append(selector)

    def _kind(self, driver: str, device: Device) -> int:
        what = device.attributes, device.taints, device.allow_multiple_allocations
        capacity = {name: entry.value for name, entry in (device.capacity or {}).items()}
        counters = tuple(
            (use.counter_set, frozenset((name, counter.value) for name, counter in (use.counters or {}).items()))
            for use in device.consumes_counters
        )
        return self._kinds.setdefault((driver, _encode(what), frozenset(capacity.items()), counters), len(self._kinds))

    def _subtract_used(self) -> None:
        own = [offer for offers in self._own.values() for _, offer in offers]
        for offer in (*own, *(offer for _, _, offer in self._wide)):
            if offer.identity in self.used:
                self.take(offer)

    def take(self, offer: Offer) -> None:
        """Give a device away."""
        self.used.add(offer.identity)
        for key, amount in counters_of(offer):
            if key in self.available:
                self.available[key] -= amount

    def offers(self, node: NodeFacts) -> list[Offer]:
        """The devices that the node can use, in slice order."""
        found = list(self._own.get(node.name, ()))
        for rank, holder, offer in self._wide:
            if holder.all_nodes or (
                holder.node_selector is not None
                and compile_node_selector(holder.node_selector).matches(node.labels, node.name)
            ):
                found.append((rank, offer))
        if self._wide:
            found.sort(key=lambda entry: entry[0])
        return [offer for _, offer in found]

    def content(self, offers: Iterable[Offer]) -> Hashable:
        """What verdicts depend on: nodes with equal content get equal verdicts."""
        pools: dict[tuple[str, str], int] = {}
        found = []
        for offer in offers:
            pool = pools.setdefault(offer.identity[:2], len(pools))
            counters = tuple((key[2:], str(self.available.get(key))) for key, _ in counters_of(offer))
            found.append((offer.kind, pool if counters else -1, offer.complete, offer.identity in self.used, counters))
        return tuple(found)
