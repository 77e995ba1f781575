"""Consumable capacity: what a request takes of a device that several claims may share (upstream:
``structured``, ``consumable_capacity.go``; on by default since 1.36)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from kscale.objects.quantity import Quantity
from kscale.objects.resource import Device, DeviceCapacity

__all__ = ["Amounts", "consumption", "qualified", "requested"]

Amounts = dict[str, Quantity]
"""Qualified capacity name -> amount."""


def qualified(name: str, driver: str) -> str:
    """A name without a domain belongs to the driver's."""
    return name if "/" in name else f"{driver}/{name}"


def requested(capacity: Mapping[str, Any] | None, driver: str) -> Amounts:
    """The amounts of a request (``capacity.requests``), for devices of a driver."""
    asked = (capacity or {}).get("requests") or {}
    return {qualified(name, driver): Quantity(str(amount)) for name, amount in asked.items()}


def consumption(device: Device, driver: str, asked: Amounts, held: Amounts) -> Amounts | None:
    """What a request takes of every capacity of a device; None if the device does not have it.

    ``held``: what others have already. Also without sharing a request must be within the device's policies and values.
    """
    has = {qualified(name, driver): capacity for name, capacity in (device.capacity or {}).items()}
    if not asked.keys() <= has.keys():
        return None
    taken: Amounts = {}
    for name, capacity in has.items():
        amount = _rounded(asked.get(name), capacity)
        if _violates(amount, capacity.request_policy):
            return None
        if (held[name] + amount if name in held else amount) > capacity.value:
            return None
        taken[name] = amount
    return taken


def _rounded(asked: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    """A request as the policy rounds it up; without one, the default, or everything."""
    policy = capacity.request_policy or {}
    if asked is None:
        default = policy.get("default")
        return capacity.value if default is None else Quantity(str(default))
    span = _range(policy)
    if span is not None and span.get("min") is not None:
        least = span["min"]
        if asked < least:
            return least
        step = span.get("step")
        if step is None or step.sign <= 0:
            return asked
        per = 1000 if _by_thousandths(span, asked) else 1
        start, width = _in(least, per), _in(step, per)
        steps = -(-(_in(asked, per) - start) // width)
        rounded = start + steps * width
        return Quantity(f"{rounded}m" if per == 1000 else str(rounded))
    for value in policy.get("validValues") or ():
        if asked <= Quantity(str(value)):
            return Quantity(str(value))
    return asked


def _violates(amount: Quantity, policy: Mapping[str, Any] | None) -> bool:
    if not policy:
        return False
    if policy.get("default") is not None and amount == Quantity(str(policy["default"])):
        return False
    span = _range(policy)
    if span is not None:
        most, step = span.get("max"), span.get("step")
        if most is not None and amount > most:
            return True
        if step is None or step.sign <= 0:
            return False
        per = 1000 if _by_thousandths(span, amount) else 1
        return (_in(amount, per) - _in(span.get("min") or Quantity.zero(), per)) % _in(step, per) != 0
    values = policy.get("validValues") or ()
    return bool(values) and all(amount != Quantity(str(value)) for value in values)


def _range(policy: Mapping[str, Any]) -> dict[str, Quantity] | None:
    span = policy.get("validRange")
    if span is None:
        return None
    return {name: Quantity(str(amount)) for name, amount in span.items() if amount is not None}


def _by_thousandths(span: Mapping[str, Quantity], amount: Quantity) -> bool:
    """Whether thousandths, in 64 bits, say all of these amounts exactly; else whole numbers count, rounded up."""
    found = [q.as_fraction() * 1000 for q in (*span.values(), amount)]
    return all(f.denominator == 1 and abs(f) < 2**63 for f in found)


def _in(amount: Quantity, per: int) -> int:
    """In units of one ``per``-th, rounded up."""
    return ceil(amount.as_fraction() * per)
