"""The structured allocator: devices for all requests of some claims on one node (upstream:
``k8s.io/dynamic-resource-allocation/structured``).

Exact counts, All, first-available alternatives, CEL selectors, attribute constraints, admin access, device taints and
shared counters. The search is a backtracking one in slice order, so that the first solution is upstream's for that
order; among devices that nothing can tell apart only the first is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kscale.objects.core import Taint
from kscale.objects.quantity import Quantity
from kscale.objects.resource import (
    DeviceClass,
    DeviceConstraint,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from kscale.objects.taints import first_untolerated
from kscale.scheduling.devices.inventory import CounterKey, Inventory, Offer, counters_of
from kscale.scheduling.devices.selectors import SelectorError, attribute_value, selects

__all__ = ["AllocationError", "Allocator", "Given", "taints_of"]

_Exact = ExactDeviceRequest | DeviceSubRequest


class AllocationError(Exception):
    """A class or a selector is at fault: no verdict on the node, but an error."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A device for a request."""

    request: str
    offer: Offer
    admin: bool


@dataclass(slots=True, eq=False)
class _Part:
    """One alternative of one request."""

    claim: int
    name: str
    exact: _Exact
    admin: bool
    all: list[Offer] | None  # every device there is, for allocation mode All
    count: int


@dataclass(slots=True, eq=False)
class _Taken:
    part: _Part
    offer: Offer


class Allocator:
    """Allocates against an inventory. Verdicts of selectors are kept."""

    def __init__(self, inventory: Inventory, classes: Mapping[str, DeviceClass]) -> None:
        self.inventory = inventory
        self.classes = classes
        self._selected: dict[tuple[str, int], bool | SelectorError] = {}

    def allocate(self, claims: Sequence[ResourceClaim], offers: Sequence[Offer]) -> list[list[Given]] | None:
        """Results per claim; None if they cannot all be satisfied. Raises AllocationError."""
        requests = [
            [part for part in self._alternatives(claims, index, i, offers) if part is not None]
            for index, claim in enumerate(claims)
            for i in range(len(claim.spec.devices.requests))
        ]
        if not all(requests):
            return None
        search = _Search(self, claims, offers, requests)
        if not search.request(0):
            return None
        results: list[list[Given]] = [[] for _ in claims]
        for taken in search.taken:
            results[taken.part.claim].append(Given(taken.part.name, taken.offer, taken.part.admin))
        return results

    def _alternatives(
        self, claims: Sequence[ResourceClaim], index: int, i: int, offers: Sequence[Offer]
    ) -> list[_Part | None]:
        request = claims[index].spec.devices.requests[i]
        if request.first_available:
            return [self._part(claims, index, f"{request.name}/{e.name}", e, offers) for e in request.first_available]
        return [self._part(claims, index, request.name, request.exactly or ExactDeviceRequest(), offers)]

    def _part(
        self, claims: Sequence[ResourceClaim], index: int, name: str, exact: _Exact, offers: Sequence[Offer]
    ) -> _Part | None:
        claim = claims[index]
        if exact.device_class_name not in self.classes:
            wanted = exact.device_class_name
            raise AllocationError(
                f"claim {claim.key}, request {name}: could not retrieve device class {wanted}: "
                f'DeviceClass "{wanted}" not found'
            )
        admin = isinstance(exact, ExactDeviceRequest) and bool(exact.admin_access)
        if exact.allocation_mode != "All":
            return _Part(index, name, exact, admin, None, exact.count or 1)
        devices = [offer for offer in offers if self.selected(claim, exact, offer)]
        if not devices or not all(offer.complete for offer in devices):
            return None
        return _Part(index, name, exact, admin, devices, len(devices))

    def selected(self, claim: ResourceClaim, exact: _Exact, offer: Offer) -> bool:
        """Whether all selectors of class and request say yes. Raises AllocationError."""
        for title, selectors in (
            (f"class {exact.device_class_name}", self.classes[exact.device_class_name].spec.selectors),
            (f"claim {claim.key}", exact.selectors),
        ):
            for i, selector in enumerate(selectors):
                if selector.cel is None:
                    continue
                key = selector.cel.expression, offer.kind
                verdict = self._selected.get(key)
                if verdict is None:
                    try:
                        verdict = selects(selector.cel.expression, offer.identity[0], offer.device)
                    except SelectorError as problem:
                        verdict = problem
                    self._selected[key] = verdict
                if isinstance(verdict, SelectorError):
                    raise AllocationError(f"{title}: selector #{i}: {verdict}")
                if not verdict:
                    return False
        return True


class _Search:
    """One backtracking search; ``taken`` is the solution once ``request(0)`` said yes."""

    def __init__(
        self, owner: Allocator, claims: Sequence[ResourceClaim], offers: Sequence[Offer], requests: list[list[_Part]]
    ) -> None:
        self.owner = owner
        self.claims = claims
        self.offers = offers
        self.requests = requests
        self.taken: list[_Taken] = []
        self._left: dict[CounterKey, Quantity] = {}

    def request(self, i: int) -> bool:
        """Devices for the requests from number ``i`` on."""
        return i == len(self.requests) or any(self._fill(i, part, 0, 0) for part in self.requests[i])

    def _fill(self, i: int, part: _Part, given: int, start: int) -> bool:
        if given == part.count:
            return self.request(i + 1)
        pool = self.offers if part.all is None else part.all[given : given + 1]
        tried: set[tuple[int, tuple[str, str] | None]] = set()
        for at in range(start if part.all is None else 0, len(pool)):
            offer = pool[at]
            same = offer.kind, offer.identity[:2] if offer.device.consumes_counters else None
            if same in tried or not self._free(part, offer):
                continue
            if part.all is None and not self.owner.selected(self.claims[part.claim], part.exact, offer):
                continue
            if first_untolerated(part.exact.tolerations, taints_of(offer)) is not None:
                continue
            tried.add(same)
            if not self._take_counters(part, offer):
                continue
            self.taken.append(_Taken(part, offer))
            if self._constraints_hold(part.claim) and self._fill(i, part, given + 1, at + 1):
                return True
            self.taken.pop()
            self._return_counters(part, offer)
        return False

    def _free(self, part: _Part, offer: Offer) -> bool:
        if not offer.complete:
            return False
        if part.admin:  # may be in use, but not twice in one claim
            return all(t.offer is not offer or t.part.claim != part.claim for t in self.taken)
        return offer.identity not in self.owner.inventory.used and all(t.offer is not offer for t in self.taken)

    def _take_counters(self, part: _Part, offer: Offer) -> bool:
        uses = [] if part.admin else counters_of(offer)
        available = self.owner.inventory.available
        for key, amount in uses:
            left = self._left.get(key, available.get(key))
            if left is None or left < amount:
                return False
        for key, amount in uses:
            self._left[key] = self._left.get(key, available[key]) - amount
        return True

    def _return_counters(self, part: _Part, offer: Offer) -> None:
        for key, amount in [] if part.admin else counters_of(offer):
            self._left[key] += amount

    def _constraints_hold(self, claim: int) -> bool:
        return all(self._holds(claim, constraint) for constraint in self.claims[claim].spec.devices.constraints)

    def _holds(self, claim: int, constraint: DeviceConstraint) -> bool:
        """matchAttribute: one value for all devices of the named requests; distinctAttribute: all different."""
        key = constraint.match_attribute or constraint.distinct_attribute or ""
        names = constraint.requests
        values = [
            _attribute(t.offer, key)
            for t in self.taken
            if t.part.claim == claim and (not names or t.part.name in names or t.part.name.partition("/")[0] in names)
        ]
        if None in values:
            return False
        different = len(set(values))
        return different <= 1 if constraint.match_attribute else different == len(values)


def _attribute(offer: Offer, key: str) -> tuple[str, int | bool | str] | None:
    """By its full name; an unqualified name belongs to the driver's domain."""
    found = offer.device.attributes or {}
    domain, _, name = key.rpartition("/")
    attribute = found.get(key) or (found.get(name) if domain == offer.identity[0] else None)
    return None if attribute is None else attribute_value(attribute)


def taints_of(offer: Offer) -> list[Taint]:
    """The taints of a device, as taints of nodes are written."""
    return [Taint(key=t.key, value=t.value, effect=t.effect) for t in offer.device.taints]
