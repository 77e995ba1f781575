"""Devices that each node can use, from the newest generation of every pool of resource slices, and who uses them.

Upstream: consumable_capacity.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from math import ceil
from typing import Any, Final

import msgspec

from kscale.objects.api.core import NodeSelector
from kscale.objects.api.resource import (
    AllocationResult,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourceClaim,
    ResourceSlice,
    ResourceSliceSpec,
)
from kscale.objects.decode import enc_hook
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.quantity import Quantity
from kscale.scheduling.profile import NodeFacts

__all__ = [
    "INCOMPLETE",
    "INVALID",
    "Amounts",
    "CapacityError",
    "CounterKey",
    "DeviceId",
    "Hold",
    "Inventory",
    "Offer",
    "attribute_value",
    "consumption",
    "counters_of",
    "for_node",
    "holds_of",
    "qualify_name",
    "read_requested_capacity",
]


Amounts = dict[str, Quantity]
"""Qualified capacity name -> amount."""
_MAX_INT64: Final = 2**63 - 1
_NOT_REPRESENTABLE: Final = "capacity request cannot be represented in the device's range arithmetic"


def qualify_name(name: str, driver: str) -> str:
    """Return a qualified name; a name without a domain belongs to the driver's domain."""
    return name if "/" in name else f"{driver}/{name}"


def read_requested_capacity(capacity: Mapping[str, Any] | None, driver: str) -> Amounts:
    """Return the amounts in ``requests`` of a device request's ``capacity``, by qualified name; empty if it is None.

    ``driver``: of the device, the domain of names without one.
    """
    requested = (capacity or {}).get("requests") or {}
    return {qualify_name(name, driver): Quantity(str(amount)) for name, amount in requested.items()}


def attribute_value(attribute: DeviceAttribute) -> tuple[str, int | bool | str] | None:
    """Return (type, value) of an attribute; None if it has no value.

    The type is ``bool``, ``int``, ``string`` or ``version``.
    """
    if attribute.bool_ is not None:
        return "bool", attribute.bool_
    if attribute.int_ is not None:
        return "int", attribute.int_
    if attribute.string is not None:
        return "string", attribute.string
    return None if attribute.version is None else ("version", attribute.version)


class CapacityError(Exception):
    """A request would use an amount of a capacity that is negative or out of range, which ends the allocation."""


def consumption(device: Device, driver: str, requested: Amounts, used: Amounts) -> Amounts | None:
    """Return the amounts that a request uses of every capacity of a device; None if the device does not have them.

    ``requested``, ``used``: amounts that are requested, and in use already, by qualified name. A request must respect
    the device's policies and values even if the device is not shared. Raises CapacityError for an amount that is
    negative or out of range, whatever the other capacities are.
    """
    has = {qualify_name(name, driver): (name, capacity) for name, capacity in (device.capacity or {}).items()}
    if not requested.keys() <= has.keys():
        return None
    amounts: Amounts = {}
    for qualified, (name, capacity) in has.items():
        try:
            amount = amounts[qualified] = _round_up_request(requested.get(qualified), capacity)
            if amount.sign < 0:
                raise CapacityError("capacity value is negative")
        except CapacityError as error:
            raise CapacityError(f'capacity "{name}": {error}') from None
    for qualified, (_, capacity) in has.items():
        amount = amounts[qualified]
        if _violates(amount, capacity.request_policy):
            return None
        if (used[qualified] + amount if qualified in used else amount) > capacity.value:
            return None
    return amounts


def _round_up_request(requested: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    """Return the requested amount of a capacity, rounded up by its policy.

    If nothing is requested (None), return the policy's default or the full capacity. Raises CapacityError if an amount
    has more than 64 bits.
    """
    policy = capacity.request_policy or {}
    if requested is None:
        default = policy.get("default")
        return capacity.value if default is None else Quantity(str(default))
    span = _read_range(policy)
    if span is not None and span.get("min") is not None:
        minimum = span["min"]
        if requested < minimum:
            return minimum
        step = span.get("step")
        if step is None or step.sign <= 0:
            return requested
        return _round_up_to_step(requested, minimum, step, milli=_uses_milli_units(span))
    for value in policy.get("validValues") or ():
        if requested <= Quantity(str(value)):
            return Quantity(str(value))
    return requested


def _round_up_to_step(requested: Quantity, minimum: Quantity, step: Quantity, *, milli: bool) -> Quantity:
    """Return the first of ``minimum``, ``minimum + step``, ... that is not below the request.

    ``milli``: compute in thousandths instead of integers. Raises CapacityError if the request or the result has more
    than 64 bits, as upstream.
    """
    per, bounds = (1000, "the milli-value range") if milli else (1, "MaxInt64")
    if milli and not _is_milli_value(requested):
        raise CapacityError(f"{_NOT_REPRESENTABLE}: request {requested} is not a representable milli value")
    if not milli and requested > Quantity(str(_MAX_INT64)):
        raise CapacityError(f"{_NOT_REPRESENTABLE}: request {requested} exceeds MaxInt64")
    start, width = _to_units(minimum, per), _to_units(step, per)
    steps = -(-(_to_units(requested, per) - start) // width)
    if (milli or start >= 0) and steps > (_MAX_INT64 - start) // width:
        raise CapacityError(f"{_NOT_REPRESENTABLE}: rounding request {requested} up to the next step passes {bounds}")
    rounded = start + steps * width
    return Quantity(f"{rounded}m" if milli else str(rounded))


def _violates(amount: Quantity, policy: Mapping[str, Any] | None) -> bool:
    """Return whether an amount is none of those that the policy allows; False without a policy."""
    if not policy:
        return False
    if policy.get("default") is not None and amount == Quantity(str(policy["default"])):
        return False
    span = _read_range(policy)
    if span is not None:
        maximum, step = span.get("max"), span.get("step")
        if maximum is not None and amount > maximum:
            return True
        if step is None or step.sign <= 0:
            return False
        milli = _uses_milli_units(span)
        if milli and not _is_milli_value(amount):
            return True
        per = 1000 if milli else 1
        return (_to_units(amount, per) - _to_units(span.get("min") or Quantity.zero(), per)) % _to_units(step, per) != 0
    values = policy.get("validValues") or ()
    return bool(values) and all(amount != Quantity(str(value)) for value in values)


def _read_range(policy: Mapping[str, Any]) -> dict[str, Quantity] | None:
    """Return the policy's ``validRange`` as amounts by field (``min``, ``max``, ``step``); None if there is none."""
    span = policy.get("validRange")
    if span is None:
        return None
    return {name: Quantity(str(amount)) for name, amount in span.items() if amount is not None}


def _uses_milli_units(span: Mapping[str, Quantity]) -> bool:
    """Check whether all amounts of a range are multiples of 1/1000; otherwise it is computed in rounded integers."""
    return all(map(_is_milli_value, span.values()))


def _is_milli_value(amount: Quantity) -> bool:
    """Check whether an amount is a multiple of 1/1000 within 64 bits."""
    thousandths = amount.as_fraction() * 1000
    return thousandths.denominator == 1 and abs(thousandths) < 2**63


def _to_units(amount: Quantity, per: int) -> int:
    """Return an amount in units of 1/``per``, rounded up."""
    return ceil(amount.as_fraction() * per)


INCOMPLETE = "currently being updated"
"""The error of a pool with missing slices."""

INVALID = "currently invalid"
"""The error of a pool with two devices of one name, or with a device that uses counters that do not exist."""

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""

CounterKey = tuple[str, str, str, str]
"""(driver, pool, counter set, counter)."""

_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


class Offer(msgspec.Struct, eq=False):
    """A device that a node can use. ``error_text``: why the pool's devices cannot be allocated (empty: they can);
    ``kind``: equal for devices of one driver that differ only in name and pool; ``local``: only one node can use the
    device, else ``selector`` selects nodes (None: all).
    """

    identity: DeviceId
    device: Device
    error_text: str
    kind: int
    local: bool
    selector: NodeSelector | None = None

    @property
    def complete(self) -> bool:
        """Return whether the device's pool is complete and valid."""
        return not self.error_text

    @property
    def shareable(self) -> bool:
        """Return whether several claims may use the device at the same time."""
        return bool(self.device.allow_multiple_allocations)


class Hold(msgspec.Struct, frozen=True):
    """A claim's hold on a device: all of it, or (``shared``) a share that uses these amounts of its capacities."""

    identity: DeviceId
    shared: bool = False
    consumed: Amounts | None = None


def counters_of(offer: Offer) -> list[tuple[CounterKey, Quantity]]:
    """Return what the device uses of its pool's shared counters, as (counter, amount)."""
    return _counters(offer.identity[:2], offer.device)


def _counters(pool: tuple[str, str], device: Device) -> list[tuple[CounterKey, Quantity]]:
    """Return what a device uses of its pool's shared counters, as (counter, amount)."""
    return [
        ((*pool, use.counter_set, name), counter.value)
        for use in device.consumes_counters
        for name, counter in (use.counters or {}).items()
    ]


def holds_of(allocation: AllocationResult) -> list[Hold]:
    """Return a record for each device, or share of a device, that a claim's allocation uses."""
    return [
        Hold((result.driver, result.pool, result.device))
        if result.share_id is None
        else Hold(
            (result.driver, result.pool, result.device),
            shared=True,
            consumed=None
            if result.consumed_capacity is None
            else {qualify_name(name, result.driver): q for name, q in result.consumed_capacity.items()},
        )
        for result in allocation.devices.results
    ]


def _has_binding_conditions(spec: ResourceSliceSpec) -> bool:
    """Return whether a device of the slice has binding conditions."""
    return any(device.binding_conditions for device in spec.devices)


def for_node(slices: Iterable[ResourceSlice], node_name: str, suffix: str) -> list[ResourceSlice]:
    """Copy the slices for the node ``node_name``; ``suffix`` is appended to the names of slices and pools.

    Upstream: ``SanitizedNodeResourceSlices``.
    """
    copies = []
    for each in slices:
        pool = msgspec.structs.replace(each.spec.pool, name=f"{each.spec.pool.name}-{suffix}")
        spec = msgspec.structs.replace(each.spec, pool=pool, node_name=node_name, node_selector=None, all_nodes=None)
        metadata = msgspec.structs.replace(each.metadata, name=f"{each.metadata.name}-{suffix}", uid="")
        copies.append(msgspec.structs.replace(each, metadata=metadata, spec=spec))
    return copies


class Inventory:
    """Devices of a set of slices, and the claims' use of them.

    ``used``: how often each device is allocated. Admin access counts: the autoscaler's snapshot considers every
    allocated device used, the scheduler's does not. ``consumed``: amounts that shares use of a shared device;
    ``available``: what is left of the shared counters that pools have ``published``; ``selectors``: those of slices
    that are not local to a node; ``shareable``: some device may be allocated to several claims.
    """

    def __init__(self, slices: Sequence[ResourceSlice], claims: Iterable[ResourceClaim] = ()) -> None:
        self._kinds: dict[Any, int] = {}
        self._own: dict[str, list[tuple[int, Offer]]] = {}
        self._wide: list[tuple[int, ResourceSliceSpec | Device, Offer]] = []
        self._rank = 0
        self.selectors: list[NodeSelector] = []
        self.available: dict[CounterKey, Quantity] = {}
        self.published: dict[CounterKey, Quantity] = {}
        self.shareable = False
        self.used: dict[DeviceId, int] = {}
        self.shares: dict[DeviceId, int] = {}
        self.consumed: dict[DeviceId, Amounts] = {}
        self._counted: dict[DeviceId, Offer] = {}
        self.add(slices)
        for claim in claims:
            if claim.status.allocation is not None:
                for hold in holds_of(claim.status.allocation):
                    self.allocate(hold)

    def with_slices(self, slices: Sequence[ResourceSlice]) -> Inventory:
        """Return a copy that also has these slices, which must belong to other pools."""
        other = copy(self)
        vars(other).update(
            _own={name: list(offers) for name, offers in self._own.items()},
            _wide=list(self._wide),
            selectors=list(self.selectors),
            available=dict(self.available),
            published=dict(self.published),
            used=dict(self.used),
            shares=dict(self.shares),
            consumed=dict(self.consumed),
            _counted=dict(self._counted),
        )
        other.add(slices)
        return other

    def add(self, slices: Sequence[ResourceSlice]) -> None:
        """Add the devices and counters of ``slices``, whose pools the inventory does not have yet.

        Only slices of a pool's newest generation count. Devices of an incomplete or invalid pool get an error text.
        """
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
                    self.published[(*pool, counters.name, name)] = counter.value
        # Slices with devices that wait for conditions before they can be used come last.
        waiting = {(s.driver, s.pool.name) for s in current if _has_binding_conditions(s)}
        current.sort(key=lambda s: ((s.driver, s.pool.name) in waiting, _has_binding_conditions(s)))
        names: dict[tuple[str, str], set[str]] = {}
        error_text: dict[tuple[str, str], str] = {}
        for spec in current:
            pool = spec.driver, spec.pool.name
            for device in spec.devices:
                device_names = names.setdefault(pool, set())
                if device.name in device_names or not all(key in self.available for key, _ in _counters(pool, device)):
                    error_text[pool] = INVALID
                device_names.add(device.name)
            if count[pool] != (spec.pool.resource_slice_count or 1):
                error_text[pool] = INCOMPLETE
        for spec in current:
            self._offer(spec, error_text.get((spec.driver, spec.pool.name), ""))

    def _offer(self, spec: ResourceSliceSpec, error_text: str) -> None:
        """Add the devices of a slice (``spec``). ``error_text``: why they cannot be allocated, or empty."""
        pool = spec.driver, spec.pool.name
        for device in spec.devices:
            self._rank += 1
            holder = device if spec.per_device_node_selection else spec
            local = bool(holder.node_name)
            selector = None if local or holder.all_nodes else holder.node_selector
            kind = self._kind(spec.driver, device)
            offer = Offer((*pool, device.name), device, error_text, kind, local, selector)
            self.shareable = self.shareable or offer.shareable
            if device.consumes_counters:
                self._counted[offer.identity] = offer
            if holder.node_name:
                self._own.setdefault(holder.node_name, []).append((self._rank, offer))
                continue
            self._wide.append((self._rank, holder, offer))
            if selector is not None and selector not in self.selectors:
                self.selectors.append(selector)

    def _kind(self, driver: str, device: Device) -> int:
        """Return the number assigned to the device's kind; devices of one kind differ only in their names."""
        properties = device.attributes, device.taints, device.allow_multiple_allocations
        capacity = {
            name: (entry.value, _encode(entry.request_policy)) for name, entry in (device.capacity or {}).items()
        }
        counters = tuple(
            (use.counter_set, frozenset((name, counter.value) for name, counter in (use.counters or {}).items()))
            for use in device.consumes_counters
        )
        return self._kinds.setdefault(
            (driver, _encode(properties), frozenset(capacity.items()), counters), len(self._kinds)
        )

    def allocate(self, hold: Hold) -> None:
        """Mark a device, or a share of it, as used by one more claim."""
        first = not self._is_allocated(hold.identity)
        counts = self.shares if hold.shared else self.used
        counts[hold.identity] = counts.get(hold.identity, 0) + 1
        if hold.consumed is not None:
            before = self.consumed.get(hold.identity, {})
            more = {name: before[name] + q if name in before else q for name, q in hold.consumed.items()}
            self.consumed[hold.identity] = {**before, **more}
        if first:
            self._count_counters(hold.identity, taken=True)

    def release(self, hold: Hold) -> None:
        """Undo :meth:`allocate` for a device, or a share of it."""
        counts = self.shares if hold.shared else self.used
        counts[hold.identity] -= 1
        if not counts[hold.identity]:
            del counts[hold.identity]
        if hold.consumed is not None:
            if hold.identity in self.shares:
                before = self.consumed[hold.identity]
                self.consumed[hold.identity] = {
                    name: q - hold.consumed[name] if name in hold.consumed else q for name, q in before.items()
                }
            else:
                self.consumed.pop(hold.identity, None)
        if not self._is_allocated(hold.identity):
            self._count_counters(hold.identity, taken=False)

    @property
    def own(self) -> dict[str, list[Offer]]:
        """Return the devices that only one node can use, by the name of that node."""
        return {name: [offer for _, offer in offers] for name, offers in self._own.items()}

    def counts(self, identity: DeviceId) -> bool:
        """Return whether a device uses shared counters."""
        return identity in self._counted

    def replace(self, node_name: str, slices: Sequence[ResourceSlice]) -> None:
        """Replace the node-local slices of a node."""
        self._own.pop(node_name, None)
        self.add(slices)

    def is_monotonic(self, claims: Sequence[ResourceClaim]) -> bool:
        """Check whether allocating devices to these claims can only reduce what other pods can get.

        False if counters are shared, as an overdrawn counter blocks its pool. With shareable devices also False if a
        claim requests "all" devices, as it gets fewer devices once the capacity of some is used up.
        """
        if self._counted or not self.shareable:
            return not self._counted
        parts = (
            each
            for claim in claims
            for request in claim.spec.devices.requests
            for each in (request.exactly, *request.first_available)
        )
        return not any(each is not None and each.allocation_mode == "All" for each in parts)

    def _is_allocated(self, identity: DeviceId) -> bool:
        """Return whether a claim holds the device or a share of it."""
        return identity in self.used or identity in self.shares

    def _count_counters(self, identity: DeviceId, *, taken: bool) -> None:
        """Update the shared counters: subtract what a device consumes (``taken``), or add it back."""
        offer = self._counted.get(identity)
        for key, amount in counters_of(offer) if offer is not None else ():
            if key in self.available:
                left = self.available[key]
                self.available[key] = left - amount if taken else left + amount

    def offers(self, node: NodeFacts) -> list[Offer]:
        """Return the devices that the node can use, in slice order, including those in use."""
        ranked = list(self._own.get(node.name, ()))
        for rank, holder, offer in self._wide:
            if holder.all_nodes or (
                holder.node_selector is not None
                and compile_node_selector(holder.node_selector).matches(node.labels, node.name)
            ):
                ranked.append((rank, offer))
        if self._wide:
            ranked.sort(key=lambda entry: entry[0])
        return [offer for _, offer in ranked]

    def content(self, offers: Iterable[Offer]) -> Hashable:
        """Return a key of what verdicts depend on: nodes with equal keys get equal verdicts.

        ``offers``: the node's devices.
        """
        pools: dict[tuple[str, str], int] = {}
        states = []
        for offer in offers:
            pool = pools.setdefault(offer.identity[:2], len(pools))
            counters = tuple((key[2:], str(self.available.get(key))) for key, _ in counters_of(offer))
            used_amounts = frozenset((name, str(q)) for name, q in self.consumed.get(offer.identity, {}).items())
            state = offer.identity in self.used, offer.identity in self.shares, used_amounts
            states.append((offer.kind, pool if counters else -1, offer.error_text, state, counters))
        return tuple(states)
