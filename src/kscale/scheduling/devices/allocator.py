"""The structured allocator: finds devices for all requests of some claims on one node, and evaluates CEL selectors over
a device (upstream: ``structured``).

Supports exact counts, All, first-available alternatives, CEL selectors, attribute constraints, admin access, device
taints, shared counters and consumable capacity. The search backtracks in slice order, so that the first solution is
upstream's for that order. Of equivalent devices only the first is tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

import msgspec

from kscale.objects.api.core import Taint
from kscale.objects.api.resource import (
    DeviceClass,
    DeviceConstraint,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from kscale.objects.quantity import Quantity
from kscale.objects.taints import first_untolerated
from kscale.scheduling.devices.inventory import (
    Amounts,
    CapacityError,
    CounterKey,
    DeviceId,
    Hold,
    Inventory,
    Offer,
    attribute_value,
    consumption,
    counters_of,
    read_requested_capacity,
)

if TYPE_CHECKING:
    from kscale.scheduling.devices.cel import SelectorError

__all__ = [
    "MAX_DEVICES",
    "AllocatedDevice",
    "AllocationError",
    "Allocator",
    "taints_of",
]


MAX_DEVICES = 32
"""Maximum number of devices of a claim (``AllocationResultsMaxSize``)."""

_Exact = ExactDeviceRequest | DeviceSubRequest


class AllocationError(Exception):
    """An invalid class, claim or selector, which is an error and no verdict on the node."""


class AllocatedDevice(msgspec.Struct, frozen=True, eq=False):
    """A device allocated to a request; ``consumed``: the amounts used of its capacities, if it may be shared."""

    request: str
    offer: Offer
    admin: bool
    consumed: Amounts | None = None

    @property
    def hold(self) -> Hold:
        """Return the record that a claim uses the device: all of it, or a share."""
        return Hold(self.offer.identity, shared=self.offer.shareable, consumed=self.consumed)


class _Part(msgspec.Struct, eq=False):
    """One alternative of one request."""

    claim: int
    name: str
    exact: _Exact
    admin: bool
    all: list[Offer] | None  # all devices, for allocation mode All
    count: int


class _TentativeAllocation(msgspec.Struct, eq=False):
    """A device that a search has taken. ``consumed``: amounts of a shared device; None if not shared."""

    part: _Part
    offer: Offer
    consumed: Amounts | None


class Allocator(msgspec.Struct, eq=False):
    """Allocates devices of an inventory to claims. Results of selectors are cached."""

    inventory: Inventory
    classes: Mapping[str, DeviceClass]
    _selected: dict[tuple[str, int], bool | SelectorError] = {}

    def on(self, inventory: Inventory) -> Allocator:
        """Return an allocator for ``inventory``, another state of the same devices.

        Both share the cached results of selectors.
        """
        other = copy(self)
        other.inventory = inventory
        return other

    def allocate(self, claims: Sequence[ResourceClaim], offers: Sequence[Offer]) -> list[list[AllocatedDevice]] | None:
        """Return a list of devices for each claim, in order; None if the claims cannot all be satisfied together.

        ``offers``: the devices that the node can use. Raises AllocationError if a claim is invalid or requests too many
        devices, or if a selector fails.
        """
        requests = []
        for index, claim in enumerate(claims):
            minimum = 0
            for i, request in enumerate(claim.spec.devices.requests):
                requests.append(self._list_alternatives(claims, index, i, offers))
                count = min(part.count for part in requests[-1])
                if count > MAX_DEVICES - minimum:
                    raise AllocationError(
                        f"claim {claim.key}, request {request.name}: adding {count} devices exceeds the claim limit of "
                        f"{MAX_DEVICES}, with {minimum} already accounted for"
                    )
                minimum += count
        search = _Search(self, claims, offers, requests)
        if not search.find():
            return None
        results: list[list[AllocatedDevice]] = [[] for _ in claims]
        for taken in search.taken:
            part = taken.part
            results[part.claim].append(AllocatedDevice(part.name, taken.offer, part.admin, taken.consumed))
        return results

    def _list_alternatives(
        self, claims: Sequence[ResourceClaim], index: int, i: int, offers: Sequence[Offer]
    ) -> list[_Part]:
        """Return the alternatives of request number ``i`` of a claim; only one if it has no ``firstAvailable``.

        ``index``: the claim's number. Raises AllocationError if the request is invalid or a selector fails.
        """
        request = claims[index].spec.devices.requests[i]
        if request.first_available:
            return [
                self._build_part(claims, index, f"{request.name}/{e.name}", e, offers) for e in request.first_available
            ]
        return [self._build_part(claims, index, request.name, request.exactly or ExactDeviceRequest(), offers)]

    def _build_part(
        self, claims: Sequence[ResourceClaim], index: int, name: str, exact: _Exact, offers: Sequence[Offer]
    ) -> _Part:
        """Build the search's record of a request, or of one alternative of a request, of ``claims[index]``.

        If the request is for all matching devices, the record lists these. ``name``: ``request`` or
        ``request/alternative``; ``exact``: the request; ``offers``: devices that the node can use. Raises
        AllocationError if the request is invalid or a selector fails.
        """
        claim = claims[index]
        label = name.rpartition("/")[2]  # errors name an alternative without its request
        if exact.device_class_name not in self.classes:
            class_name = exact.device_class_name
            raise AllocationError(
                f"claim {claim.key}, request {label}: could not retrieve device class {class_name}: "
                f'DeviceClass "{class_name}" not found'
            )
        admin = isinstance(exact, ExactDeviceRequest) and bool(exact.admin_access)
        if exact.allocation_mode != "All":
            return _Part(index, name, exact, admin, None, exact.count or 1)
        devices = []
        for offer in offers:
            if offer.error_text:
                driver, pool, _ = offer.identity
                raise AllocationError(
                    f"claim {claim.key}, request {label}: asks for all devices, but resource pool {driver}/{pool} is "
                    f"{offer.error_text}"
                )
            # A device whose capacities others use is one of all devices, too: the request then fails.
            if (
                self.matches_selectors(claim, exact, offer)
                and self._consumption(claim, label, exact, offer) is not None
            ):
                devices.append(offer)
        return _Part(index, name, exact, admin, devices, len(devices))

    def usable(self, claim: ResourceClaim, exact: _Exact, offers: Sequence[Offer]) -> int:
        """Return how many devices among ``offers`` the request ``exact`` of the claim could have in the current state.

        Raises AllocationError if the request is invalid or a selector fails.
        """
        self._build_part([claim], 0, "", exact, ())
        return sum(
            not offer.error_text
            and offer.identity not in self.inventory.used
            and self.matches_selectors(claim, exact, offer)
            and first_untolerated(exact.tolerations, taints_of(offer)) is None
            and self.room(claim, "", exact, offer, {}) is not None
            for offer in offers
        )

    def room(self, claim: ResourceClaim, label: str, exact: _Exact, offer: Offer, others: Amounts) -> Amounts | None:
        """Return the amounts that the request ``exact`` (``label``: its name) would use of the device's capacities.

        None if they are not free, given what claims use of the device, and ``others``, which are amounts in use
        besides. Raises AllocationError if an amount is negative or out of range.
        """
        used = self.inventory.consumed.get(offer.identity, {})
        if others:
            used = {**used, **{name: used[name] + q if name in used else q for name, q in others.items()}}
        return self._consumption(claim, label, exact, offer, used)

    def _consumption(
        self, claim: ResourceClaim, label: str, exact: _Exact, offer: Offer, used: Amounts | None = None
    ) -> Amounts | None:
        """Return the amounts that the request ``exact`` uses of a device; None if the device does not have them.

        ``label``: name of the request; ``used``: amounts in use already (None: the device is free). Raises
        AllocationError for an invalid amount.
        """
        device, driver = offer.device, offer.identity[0]
        requested = read_requested_capacity(exact.capacity, driver)
        if not requested and not device.capacity:
            return {}
        try:
            return consumption(device, driver, requested, used or {})
        except CapacityError as problem:
            name = device.name if used is None else "/".join(offer.identity)
            raise AllocationError(
                f"claim {claim.key}, request {label}: checking capacity for device {name}: {problem}"
            ) from None

    def matches_selectors(self, claim: ResourceClaim, exact: _Exact, offer: Offer) -> bool:
        """Check whether all selectors of the device class and of the request ``exact`` are true for a device.

        Raises AllocationError if a selector is invalid or fails.
        """
        from kscale.scheduling.devices.cel import SelectorError, selects  # few clusters have devices

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
                    where, when = ("", "compile")
                    if verdict.compiles:
                        where, when = f" on device {'/'.join(offer.identity)}", "runtime"
                    raise AllocationError(f"{title}: selector #{i}{where}: CEL {when} error: {verdict}")
                if not verdict:
                    return False
        return True


class _TooManyDevicesError(Exception):
    """The claim would hold more than ``MAX_DEVICES``, whichever devices its requests take."""


class _Search:
    """One backtracking search; ``taken`` is the solution after ``find`` returned True."""

    def __init__(
        self, owner: Allocator, claims: Sequence[ResourceClaim], offers: Sequence[Offer], requests: list[list[_Part]]
    ) -> None:
        self.owner = owner
        self.claims = claims
        self.offers = offers
        self.requests = requests
        self.taken: list[_TentativeAllocation] = []
        self._left: dict[CounterKey, Quantity] = {}
        self._fallible = [
            (part, {offer.identity: at for at, offer in enumerate(part.all)})
            for parts in requests
            for part in parts
            if part.all and claims[part.claim].spec.devices.constraints
        ]
        """Requests for all devices that a constraint can turn into an error, with the place of each device."""

    def find(self) -> bool:
        """Find devices for all requests; return whether they were found.

        Raises AllocationError if a claim contradicts itself.
        """
        try:
            return self._request(0)
        except _TooManyDevicesError:
            return False

    def _request(self, i: int) -> bool:
        """Find devices for the requests from number ``i`` on; return whether they were found.

        Raises _TooManyDevicesError if the claim needs more devices than a claim may have, whatever is chosen, and
        AllocationError if a claim contradicts itself.
        """
        if i == len(self.requests):
            return True
        parts = self.requests[i]
        first_of_claim = i > 0 and parts[0].claim != self.requests[i - 1][0].claim
        too_many = 0
        for part in parts:
            try:
                if self._fill(i, part, 0, 0):
                    return True
            except _TooManyDevicesError:
                too_many += 1
        if too_many == len(parts) and not first_of_claim:
            raise _TooManyDevicesError  # another device for an earlier request of the claim would not help
        return False

    def _fill(self, i: int, part: _Part, allocated_count: int, start: int) -> bool:
        """Find the remaining devices of request ``i`` and those of the later requests; return whether they were found.

        ``allocated_count``: devices that ``part`` has so far; ``start``: the first offer to try. Raises
        _TooManyDevicesError if the claim would hold too many devices, and AllocationError.
        """
        if part.all is not None and not part.all:
            return False  # "all" of no devices is not satisfied
        if allocated_count >= part.count:  # the count for an extended resource may be negative
            return self._request(i + 1)
        if allocated_count == 0 and sum(t.part.claim == part.claim for t in self.taken) + part.count > MAX_DEVICES:
            raise _TooManyDevicesError
        pool = self.offers if part.all is None else part.all[allocated_count : allocated_count + 1]
        tried: set[Hashable] = set()
        for position in range(start if part.all is None else 0, len(pool)):
            offer = pool[position]
            same = self._get_search_key(offer)
            if same in tried or not self._is_free(part, offer):
                continue
            if part.all is None and not self.owner.matches_selectors(self.claims[part.claim], part.exact, offer):
                continue
            label = part.name.rpartition("/")[2]
            claim = self.claims[part.claim]
            consumed = self.owner.room(claim, label, part.exact, offer, self._get_shared_usage(offer))
            if consumed is None and part.all is None:
                continue
            tried.add(same)
            counted = self._get_needed_counters(offer)
            if not self._take_counters(counted):
                continue
            if first_untolerated(part.exact.tolerations, taints_of(offer)) is None:
                self.taken.append(_TentativeAllocation(part, offer, consumed if offer.shareable else None))
                try:
                    # With "all", upstream checks constraints before the capacity: a contradiction is an error.
                    if (
                        self._constraints_hold(part)
                        and consumed is not None
                        and self._fill(i, part, allocated_count + 1, position + 1)
                    ):
                        return True
                except _TooManyDevicesError:
                    self.taken.pop()
                    self._return_counters(counted)
                    raise
                self.taken.pop()
            self._return_counters(counted)
        return False

    def _get_search_key(self, offer: Offer) -> Hashable:
        """Return a key of the device. Of devices with equal keys only one is tried, as the others give the same result.

        The key contains where later requests for all devices would stop (:meth:`_find_stop`): such a request takes
        devices in order up to the first one in use, and may violate a constraint before that, which is an error.
        """
        pool = offer.identity[:2] if offer.device.consumes_counters else None
        stops = tuple(self._find_stop(part, places, offer) for part, places in self._fallible)
        return offer.kind, pool, offer.identity if offer.shareable else None, stops

    def _find_stop(self, part: _Part, places: Mapping[DeviceId, int], offer: Offer) -> int | None:
        """Return the device's position in ``places`` if ``part``, a request for all devices, would stop at this device.

        ``places``: position of each device of the request. None if the request stops at an earlier device, or does not
        include this one.
        """
        place = places.get(offer.identity)
        if place is None:
            return None
        blocking = (t.offer.identity for t in self.taken if not part.admin or t.part.claim == part.claim)
        return None if any(places.get(identity, place) < place for identity in blocking) else place

    def _is_free(self, part: _Part, offer: Offer) -> bool:
        """Check whether a request (``part``) may take the device: its pool is valid, and no conflicting use exists.

        Capacities and counters are not checked.
        """
        if offer.error_text:
            return False
        if offer.shareable:
            return part.admin or offer.identity not in self.owner.inventory.used
        if part.admin:  # may be in use by others, but not twice in one claim
            return all(t.offer is not offer or t.part.claim != part.claim for t in self.taken)
        return offer.identity not in self.owner.inventory.used and all(t.offer is not offer for t in self.taken)

    def _get_shared_usage(self, offer: Offer) -> Amounts:
        """Return the amounts that this search has used of a shared device."""
        amounts: Amounts = {}
        for taken in self.taken if offer.shareable else ():
            if taken.offer is offer and taken.consumed is not None:
                for name, amount in taken.consumed.items():
                    amounts[name] = amounts[name] + amount if name in amounts else amount
        return amounts

    def _get_needed_counters(self, offer: Offer) -> list[tuple[CounterKey, Quantity]]:
        """Return the shared counters that allocating a device would consume, as (counter, amount).

        Empty for a shareable device that is already allocated: its first allocation has consumed them.
        """
        if not offer.device.consumes_counters:
            return []
        if offer.shareable and (
            offer.identity in self.owner.inventory.consumed or any(t.offer is offer for t in self.taken)
        ):
            return []
        return counters_of(offer)

    def _take_counters(self, uses: list[tuple[CounterKey, Quantity]]) -> bool:
        """Subtract the amounts ``uses`` from what is left of the counters, and return True.

        Returns False, and subtracts nothing, if a counter of the pool would be overdrawn.
        """
        if not uses:
            return True
        available = self.owner.inventory.available
        pool = uses[0][0][:2]
        for key, amount in uses:
            self._left[key] = self._left.get(key, available[key]) - amount
        # No counter of the pool may be overdrawn, even one that this device does not use.
        if any(self._left.get(key, left).sign < 0 for key, left in available.items() if key[:2] == pool):
            self._return_counters(uses)
            return False
        return True

    def _return_counters(self, uses: list[tuple[CounterKey, Quantity]]) -> None:
        """Add back the amounts ``uses`` that :meth:`_take_counters` subtracted."""
        for key, amount in uses:
            self._left[key] += amount

    def _constraints_hold(self, part: _Part) -> bool:
        """Check the constraints of the claim of ``part`` over the devices taken so far.

        Raises AllocationError if a request for all devices violates one.
        """
        claim = self.claims[part.claim]
        if all(self._is_satisfied(part.claim, constraint) for constraint in claim.spec.devices.constraints):
            return True
        if part.all is not None:  # the claim contradicts itself
            device = "/".join(self.taken[-1].offer.identity)
            request = part.name.rpartition("/")[2]
            raise AllocationError(
                f"claim {claim.key}, request {request}: cannot add device {device} because a claim constraint would "
                "not be satisfied"
            )
        return False

    def _is_satisfied(self, claim: int, constraint: DeviceConstraint) -> bool:
        """Check a constraint over the devices taken for claim number ``claim``.

        matchAttribute: the devices of the named requests (none named: of all) have the same value. distinctAttribute:
        all their values differ. False if one of the devices lacks the attribute.
        """
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
    """Return (type, value) of the attribute with the full name ``key`` (``domain/name``); None if the device has none.

    An unqualified name belongs to the driver's domain.
    """
    attributes = offer.device.attributes or {}
    domain, _, name = key.rpartition("/")
    attribute = attributes.get(key) or (attributes.get(name) if domain == offer.identity[0] else None)
    return None if attribute is None else attribute_value(attribute)


def taints_of(offer: Offer) -> list[Taint]:
    """Return the taints of a device as node taints."""
    return [Taint(key=t.key, value=t.value, effect=t.effect) for t in offer.device.taints]
