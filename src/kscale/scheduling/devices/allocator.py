"""The structured allocator: devices for all requests of some claims on one node, and CEL selectors over a device
(upstream: ``structured``).

Exact counts, All, first-available alternatives, CEL selectors, attribute constraints, admin access, device taints,
shared counters and consumable capacity. The search is a backtracking one in slice order, so that the first solution is
upstream's for that order; among devices that nothing can tell apart only the first is tried.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from kscale.objects.api.core import Taint
from kscale.objects.api.resource import (
    Device,
    DeviceAttribute,
    DeviceClass,
    DeviceConstraint,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from kscale.objects.node_selectors import first_untolerated
from kscale.objects.quantity import Quantity
from kscale.scheduling.devices.inventory import (
    Amounts,
    CounterKey,
    DeviceId,
    Hold,
    Inventory,
    Offer,
    consumption,
    counters_of,
    requested,
)

if TYPE_CHECKING:
    from kscale.scheduling.devices.cel import CelLibrary

__all__ = [
    "MOST_DEVICES",
    "TOO_DEEP",
    "AllocationError",
    "Allocator",
    "Given",
    "SelectorError",
    "attribute_value",
    "selects",
    "taints_of",
]


_NO_KEY = re.compile(r"no such member in mapping: '(.*)'")
_HINT = (
    "consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional "
    "fields"
)
_OVERFLOW = "return error for overflow"
"""What cel-python says of any ValueError."""
TOO_DEEP = "compilation failed: the expression is nested too deep"


class SelectorError(ValueError):
    """An expression that does not compile, fails on a device or gives no truth value. The text is upstream's;
    ``compiles``: it is the device that it fails on."""

    def __init__(self, text: str, *, compiles: bool = False) -> None:
        super().__init__(text)
        self.compiles = compiles


def attribute_value(attribute: DeviceAttribute) -> tuple[str, int | bool | str] | None:
    """(type, value) of an attribute; None if it has none."""
    if attribute.bool_ is not None:
        return "bool", attribute.bool_
    if attribute.int_ is not None:
        return "int", attribute.int_
    if attribute.string is not None:
        return "string", attribute.string
    return None if attribute.version is None else ("version", attribute.version)


def selects(expression: str, driver: str, device: Device) -> bool:
    """Whether the expression is true of a device of the driver.

    Raises SelectorError, and MissingExtraError without the library.
    """
    library = _library()
    program = library.program(expression)
    try:
        verdict = program.evaluate({"device": library.view(driver, device)})
    except RecursionError:
        raise SelectorError(TOO_DEEP) from None
    except IndexError:  # cel-python cannot write what it found where a truth value was needed
        raise SelectorError("no such overload", compiles=True) from None
    except (library.error, ValueError) as problem:
        text = str(problem.args[0]) if problem.args else str(problem)
        if text == _OVERFLOW and problem.__cause__ is not None:
            text = str(problem.__cause__)
        missing = _NO_KEY.fullmatch(text)
        text = f"no such key: {missing[1]}. {_HINT}" if missing else text.split(" (in activation", 1)[0]
        raise SelectorError(text, compiles=True) from None
    if not isinstance(verdict, library.bool_type):
        raise SelectorError("type conversion error: the expression is not a truth value", compiles=True)
    return bool(verdict)


@cache
def _library() -> CelLibrary:
    from kscale.scheduling.devices.cel import CelLibrary  # few clusters have devices

    return CelLibrary()


MOST_DEVICES = 32
"""Devices that a claim may hold (``AllocationResultsMaxSize``)."""

_Exact = ExactDeviceRequest | DeviceSubRequest


class AllocationError(Exception):
    """A class or a selector is at fault: no verdict on the node, but an error."""


class Given(msgspec.Struct, frozen=True, eq=False):
    """A device for a request; ``consumed``: what is taken of its capacities, if it may be shared."""

    request: str
    offer: Offer
    admin: bool
    consumed: Amounts | None = None

    @property
    def hold(self) -> Hold:
        """What the claim has of the device then."""
        return Hold(self.offer.identity, shared=self.offer.shareable, consumed=self.consumed)


class _Part(msgspec.Struct, eq=False):
    """One alternative of one request."""

    claim: int
    name: str
    exact: _Exact
    admin: bool
    all: list[Offer] | None  # every device there is, for allocation mode All
    count: int


class _Taken(msgspec.Struct, eq=False):
    part: _Part
    offer: Offer
    consumed: Amounts | None


class Allocator:
    """Allocates against an inventory. Verdicts of selectors are kept."""

    def __init__(self, inventory: Inventory, classes: Mapping[str, DeviceClass]) -> None:
        self.inventory = inventory
        self.classes = classes
        self._selected: dict[tuple[str, int], bool | SelectorError] = {}

    def on(self, inventory: Inventory) -> Allocator:
        """An allocator of the same devices in another state."""
        other = copy(self)
        other.inventory = inventory
        return other

    def allocate(self, claims: Sequence[ResourceClaim], offers: Sequence[Offer]) -> list[list[Given]] | None:
        """Results per claim; None if they cannot all be satisfied. Raises AllocationError."""
        requests = []
        for index, claim in enumerate(claims):
            least = 0
            for i in range(len(claim.spec.devices.requests)):
                requests.append(self._alternatives(claims, index, i, offers))
                least += min(part.count for part in requests[-1])
            if least > MOST_DEVICES:
                raise AllocationError(
                    f"claim {claim.key}: number of requested devices {least} exceeds the claim limit of {MOST_DEVICES}"
                )
        search = _Search(self, claims, offers, requests)
        if not search.find():
            return None
        results: list[list[Given]] = [[] for _ in claims]
        for taken in search.taken:
            part = taken.part
            results[part.claim].append(Given(part.name, taken.offer, part.admin, taken.consumed))
        return results

    def _alternatives(
        self, claims: Sequence[ResourceClaim], index: int, i: int, offers: Sequence[Offer]
    ) -> list[_Part]:
        request = claims[index].spec.devices.requests[i]
        if request.first_available:
            return [self._part(claims, index, f"{request.name}/{e.name}", e, offers) for e in request.first_available]
        return [self._part(claims, index, request.name, request.exactly or ExactDeviceRequest(), offers)]

    def _part(
        self, claims: Sequence[ResourceClaim], index: int, name: str, exact: _Exact, offers: Sequence[Offer]
    ) -> _Part:
        claim = claims[index]
        label = name.rpartition("/")[2]  # errors name an alternative without its request
        if exact.device_class_name not in self.classes:
            wanted = exact.device_class_name
            raise AllocationError(
                f"claim {claim.key}, request {label}: could not retrieve device class {wanted}: "
                f'DeviceClass "{wanted}" not found'
            )
        admin = isinstance(exact, ExactDeviceRequest) and bool(exact.admin_access)
        if exact.allocation_mode != "All":
            return _Part(index, name, exact, admin, None, exact.count or 1)
        devices = []
        for offer in offers:
            if offer.trouble:
                driver, pool, _ = offer.identity
                raise AllocationError(
                    f"claim {claim.key}, request {label}: asks for all devices, but resource pool {driver}/{pool} is "
                    f"{offer.trouble}"
                )
            if self.selected(claim, exact, offer) and self.room(exact, offer, {}) is not None:
                devices.append(offer)
        return _Part(index, name, exact, admin, devices, len(devices))

    def usable(self, claim: ResourceClaim, exact: _Exact, offers: Sequence[Offer]) -> int:
        """How many of the devices a request could have as things stand. Raises AllocationError."""
        self._part([claim], 0, "", exact, ())
        return sum(
            not offer.trouble
            and offer.identity not in self.inventory.used
            and self.selected(claim, exact, offer)
            and first_untolerated(exact.tolerations, taints_of(offer)) is None
            and self.room(exact, offer, {}) is not None
            for offer in offers
        )

    def room(self, exact: _Exact, offer: Offer, others: Amounts) -> Amounts | None:
        """What the request takes of the device's capacities beside claims and ``others``; None = no room."""
        device, driver = offer.device, offer.identity[0]
        asked = requested(exact.capacity, driver)
        if not asked and not device.capacity:
            return {}
        held = self.inventory.consumed.get(offer.identity, {})
        if others:
            held = {**held, **{name: held[name] + q if name in held else q for name, q in others.items()}}
        return consumption(device, driver, asked, held)

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
                    where, when = ("", "compile")
                    if verdict.compiles:
                        where, when = f" on device {'/'.join(offer.identity)}", "runtime"
                    raise AllocationError(f"{title}: selector #{i}{where}: CEL {when} error: {verdict}")
                if not verdict:
                    return False
        return True


class _TooManyDevicesError(Exception):
    """The claim would hold more than ``MOST_DEVICES``, whichever devices its requests take."""


class _Search:
    """One backtracking search; ``taken`` is the solution once ``find`` returned True."""

    def __init__(
        self, owner: Allocator, claims: Sequence[ResourceClaim], offers: Sequence[Offer], requests: list[list[_Part]]
    ) -> None:
        self.owner = owner
        self.claims = claims
        self.offers = offers
        self.requests = requests
        self.taken: list[_Taken] = []
        self._left: dict[CounterKey, Quantity] = {}
        self._fallible = [
            (part, {offer.identity: at for at, offer in enumerate(part.all)})
            for parts in requests
            for part in parts
            if part.all and claims[part.claim].spec.devices.constraints
        ]
        """Requests for all devices that a constraint can turn into an error, with the place of each device."""

    def find(self) -> bool:
        """Find devices for all requests. Raises AllocationError if a claim contradicts itself."""
        try:
            return self._request(0)
        except _TooManyDevicesError:
            return False

    def _request(self, i: int) -> bool:
        """Find devices for the requests from number ``i`` on."""
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
            raise _TooManyDevicesError  # no other device of an earlier request of the claim mends it
        return False

    def _fill(self, i: int, part: _Part, given: int, start: int) -> bool:
        if part.all is not None and not part.all:
            return False  # of nothing there is no "all"
        if given == part.count:
            return self._request(i + 1)
        if given == 0 and sum(t.part.claim == part.claim for t in self.taken) + part.count > MOST_DEVICES:
            raise _TooManyDevicesError
        pool = self.offers if part.all is None else part.all[given : given + 1]
        tried: set[Hashable] = set()
        for at in range(start if part.all is None else 0, len(pool)):
            offer = pool[at]
            same = self._sameness(offer)
            if same in tried or not self._free(part, offer):
                continue
            if part.all is None and not self.owner.selected(self.claims[part.claim], part.exact, offer):
                continue
            consumed = self.owner.room(part.exact, offer, self._shared(offer))
            if consumed is None and part.all is None:
                continue
            tried.add(same)
            counted = self._counters(offer)
            if not self._take_counters(counted):
                continue
            if first_untolerated(part.exact.tolerations, taints_of(offer)) is None:
                self.taken.append(_Taken(part, offer, consumed if offer.shareable else None))
                try:
                    # With "all", upstream checks constraints before the capacity: a contradiction is an error.
                    if self._constraints_hold(part) and consumed is not None and self._fill(i, part, given + 1, at + 1):
                        return True
                except _TooManyDevicesError:
                    self.taken.pop()
                    self._return_counters(counted)
                    raise
                self.taken.pop()
            self._return_counters(counted)
        return False

    def _sameness(self, offer: Offer) -> Hashable:
        """Return what is equal for devices that nothing can tell apart: if one does not lead to a solution, none does.

        A request for all devices takes them in order up to the first that is in use. Where a constraint can make it an
        error before that, a device that moves this place is like no other.
        """
        pool = offer.identity[:2] if offer.device.consumes_counters else None
        stops = tuple(self._stop(part, places, offer) for part, places in self._fallible)
        return offer.kind, pool, offer.identity if offer.shareable else None, stops

    def _stop(self, part: _Part, places: Mapping[DeviceId, int], offer: Offer) -> int | None:
        """Return where a request for all devices would stop at the device; None if it does not, or stops before."""
        place = places.get(offer.identity)
        if place is None:
            return None
        blocking = (t.offer.identity for t in self.taken if not part.admin or t.part.claim == part.claim)
        return None if any(places.get(identity, place) < place for identity in blocking) else place

    def _free(self, part: _Part, offer: Offer) -> bool:
        if offer.trouble:
            return False
        if offer.shareable:
            return part.admin or offer.identity not in self.owner.inventory.used
        if part.admin:  # may be in use, but not twice in one claim
            return all(t.offer is not offer or t.part.claim != part.claim for t in self.taken)
        return offer.identity not in self.owner.inventory.used and all(t.offer is not offer for t in self.taken)

    def _shared(self, offer: Offer) -> Amounts:
        """What this search takes of a shared device so far."""
        found: Amounts = {}
        for taken in self.taken if offer.shareable else ():
            if taken.offer is offer and taken.consumed is not None:
                for name, amount in taken.consumed.items():
                    found[name] = found[name] + amount if name in found else amount
        return found

    def _counters(self, offer: Offer) -> list[tuple[CounterKey, Quantity]]:
        """A shared device that is in use has taken its counters already."""
        if not offer.device.consumes_counters:
            return []
        if offer.shareable and (
            offer.identity in self.owner.inventory.consumed or any(t.offer is offer for t in self.taken)
        ):
            return []
        return counters_of(offer)

    def _take_counters(self, uses: list[tuple[CounterKey, Quantity]]) -> bool:
        if not uses:
            return True
        available = self.owner.inventory.available
        pool = uses[0][0][:2]
        for key, amount in uses:
            self._left[key] = self._left.get(key, available[key]) - amount
        # No counter of the pool may be overdrawn, be it one of this device or not.
        if any(self._left.get(key, left).sign < 0 for key, left in available.items() if key[:2] == pool):
            self._return_counters(uses)
            return False
        return True

    def _return_counters(self, uses: list[tuple[CounterKey, Quantity]]) -> None:
        for key, amount in uses:
            self._left[key] += amount

    def _constraints_hold(self, part: _Part) -> bool:
        claim = self.claims[part.claim]
        if all(self._holds(part.claim, constraint) for constraint in claim.spec.devices.constraints):
            return True
        if part.all is not None:  # the claim contradicts itself
            device = "/".join(self.taken[-1].offer.identity)
            request = part.name.rpartition("/")[2]
            raise AllocationError(
                f"claim {claim.key}, request {request}: cannot add device {device} because a claim constraint would "
                "not be satisfied"
            )
        return False

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
