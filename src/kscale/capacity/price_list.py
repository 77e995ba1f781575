"""Prices of a customer that replace a catalogue's on-demand prices: discounts, own prices, and reserved machines.

Not in upstream.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from kscale.capacity.catalogue.types import Catalogue, InstanceType
from kscale.capacity.groups.groups_file import read_plain_file
from kscale.capacity.machine_types import parse_type_name
from kscale.errors import InputError, Problem
from kscale.objects.api.meta import ApiStruct
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.records import components_of

__all__ = ["PriceRule", "apply_prices", "price_list_from", "prices_schema_text", "read_price_list", "reservations_of"]

_DECIMALS = 9  # costs are counted in billionths


class PriceRule(ApiStruct, forbid_unknown_fields=True):
    """The price of some instance types. Exactly one of ``instance_type`` and ``family`` selects the types, and exactly
    one of ``discount`` and ``price`` sets the price of one machine.

    Attributes
    ----------
    instance_type : str or None
        Name of an instance type, or a pattern with ``*``. With ``reserved`` it must be a name.
    family : str or None
        Family of instance types such as ``m5``, or a pattern with ``*``.
    discount : float or None
        Percent off the on-demand price, from 0 to 100.
    price : float or None
        Price of one machine per hour.
    region : str
        Region whose prices the rule changes. Empty: all regions.
    reserved : int or None
        Number of reserved machines. The rule applies to this number of machines of the type only. None: it applies to
        all of them.
    zone : str
        With ``reserved``: zone of the machines. Empty: the only zone; with several zones, an error.
    """

    instance_type: str | None = None
    family: str | None = None
    discount: float | None = None
    price: float | None = None
    region: str = ""
    reserved: int | None = None
    zone: str = ""

    def matches(self, kind: InstanceType) -> bool:
        """Return whether the rule selects a type by its name or family. The region is not compared."""
        if self.instance_type is not None:
            return fnmatchcase(kind.name, self.instance_type)
        return self.family is not None and fnmatchcase(parse_type_name(kind.name).family, self.family)

    def apply(self, price: float | None) -> float | None:
        """Return the price per hour under this rule; None if it is unknown.

        ``price``: the on-demand price, None if it is unknown. A rule with a price of its own does not need it. The
        result is rounded to nine decimals if a discount is applied.
        """
        if self.price is not None:
            return self.price
        if price is None or self.discount is None:
            return price
        return round(price * (100.0 - self.discount) / 100.0, _DECIMALS)


@typed
def read_price_list(path: str | os.PathLike[str]) -> list[PriceRule]:
    """Read the rules of a price list (YAML or JSON), in the order of the file.

    Raises
    ------
    InputError
        If the file cannot be read, or if a rule is invalid; the error has the problems of all rules.
    """
    return price_list_from(read_plain_file(path, "price"), source=str(path))


@typed
def price_list_from(data: Any, *, source: str = "") -> list[PriceRule]:
    """Decode the rules of a price list from plain data.

    Parameters
    ----------
    data : list of dict
        The rules.
    source : str
        Name of the data in problems.

    Returns
    -------
    list of PriceRule
        The rules, in the order of ``data``.

    Raises
    ------
    InputError
        If ``data`` is not a list or is empty, or if a rule is invalid; the error has the problems of all rules.
    """
    if not isinstance(data, list) or not data:
        raise InputError(Problem("a list of at least one price expected", source))
    rules: list[PriceRule] = []
    problems: list[Problem] = []
    for index, item in enumerate(data):
        place = f"[{index}]"
        try:
            rule = from_dict(item, PriceRule, source=source, object_path=place)
        except InputError as error:
            problems += error.problems
            continue
        problems += [Problem(message, source, place, field) for field, message in _find_errors(rule)]
        rules.append(rule)
    if problems:
        raise InputError(problems, total=len(data))
    return rules


def _find_errors(rule: PriceRule) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for each mistake of a rule whose fields have the right types."""
    if (rule.instance_type is None) == (rule.family is None):
        yield "instanceType", "give either instanceType or family"
    if (rule.discount is None) == (rule.price is None):
        yield "price", "give either discount or price"
    if rule.discount is not None and not 0 <= rule.discount <= 100:
        yield "discount", f"{rule.discount:g} is not a number of percent between 0 and 100"
    if rule.price is not None and not (math.isfinite(rule.price) and rule.price >= 0):
        yield "price", f"{rule.price} is not a price"
    if rule.reserved is None:
        if rule.zone:
            yield "zone", "has an effect only with reserved"
        return
    if rule.reserved < 1:
        yield "reserved", f"{rule.reserved} is not a number of machines"
    if rule.instance_type is None or any(sign in rule.instance_type for sign in "*?["):
        yield "instanceType", "reserved machines are of one instance type: give its name"


@typed
def apply_prices(catalogue: Catalogue, rules: Sequence[PriceRule], discount: float = 0.0) -> Catalogue:
    """Return the catalogue with the prices of a price list in place of its on-demand prices.

    Parameters
    ----------
    catalogue : Catalogue
        The catalogue. Spot prices stay as they are.
    rules : sequence of PriceRule
        The first rule that matches a type and region counts. Rules with ``reserved`` change nothing here.
    discount : float
        Percent off the on-demand price where no rule matches.

    Raises
    ------
    InputError
        If the discount is not between 0 and 100, if a rule matches no type, or if a rule without a price of its own
        names a region without prices.
    """
    if not 0 <= discount <= 100:
        raise InputError(f"a discount of {discount:g} %: it is a number between 0 and 100")
    for rule in rules:
        if not any(rule.matches(kind) for kind in catalogue.values()):
            named = f"family {rule.family}" if rule.instance_type is None else rule.instance_type
            raise InputError(Problem(f"the price list names {named}: there is no such type", source=catalogue.source))
        if rule.region and rule.price is None:
            catalogue.check_region(rule.region)
    general = [rule for rule in rules if rule.reserved is None]
    default = PriceRule(instance_type="*", discount=discount)
    regions = [region.replace("-", "_") for region in catalogue.regions] or [""]
    types = {}
    for name, kind in catalogue.items():
        matching = [*(rule for rule in general if rule.matches(kind)), default]
        types[name] = replace(kind, prices=_prices_of(kind, matching, regions))
    return Catalogue(types, catalogue.source, catalogue.left_out)


def _prices_of(kind: InstanceType, rules: Sequence[PriceRule], regions: Sequence[str]) -> dict[str, float]:
    """Return a type's prices by region, each by the first rule for the region. Regions without a price are left out.

    ``rules`` match the type. ``regions``: regions to consider besides those of the type and the rules. A rule with a
    price of its own also applies to regions where the catalogue has no price for the type.
    """
    named = [region for rule in rules if (region := rule.region.replace("-", "_"))]
    result: dict[str, float] = {}
    for region in dict.fromkeys([*kind.prices, *regions, *named]):
        rule = next(rule for rule in rules if rule.region.replace("-", "_") in ("", region))
        price = rule.apply(kind.prices.get(region))
        if price is not None:
            result[region] = price
    return result


@typed
def reservations_of(
    rules: Iterable[PriceRule], kinds: Sequence[InstanceType], zones: Sequence[str], region: str = ""
) -> list[tuple[PriceRule, InstanceType, str]]:
    """Return the reserved machines that may be used.

    Parameters
    ----------
    rules : iterable of PriceRule
        A price list. Rules without ``reserved``, and rules for types and zones that are not offered, are ignored.
    kinds : sequence of InstanceType
        The types that are offered.
    zones : sequence of str
        The zones of new nodes; ``[""]`` if they have none.
    region : str
        Rules for another region are ignored; empty = any.

    Returns
    -------
    list of (PriceRule, InstanceType, str)
        Each rule with its type and zone.

    Raises
    ------
    InputError
        If there are several zones and a reservation that is not ignored names none.
    """
    by_name = {kind.name: kind for kind in kinds}
    result = []
    for rule in rules:
        other_region = region and rule.region and rule.region.replace("_", "-") != region.replace("_", "-")
        if rule.reserved is None or rule.instance_type not in by_name or other_region:
            continue
        if rule.zone and zones != [""] and rule.zone not in zones:
            continue
        if not rule.zone and len(zones) > 1:
            raise InputError(f"reserved {rule.instance_type}: there are several zones, so name that of the machines")
        result.append((rule, by_name[rule.instance_type], rule.zone or zones[0]))
    return result


def prices_schema_text() -> str:
    """Return the JSON Schema (2020-12) of a price list as published: indented, with a final line feed."""
    name, components = components_of(PriceRule)
    rule = components.pop(name)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "prices",
        "description": "Prices of instance types (--price-list): discounts, own prices, reserved machines.",
        "type": "array",
        "minItems": 1,
        "items": rule
        | {
            "allOf": [
                {"oneOf": [_requires("instanceType"), _requires("family")]},
                {"oneOf": [_requires("discount"), _requires("price")]},
            ]
        },
        **({"$defs": components} if components else {}),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _requires(name: str) -> dict[str, Any]:
    """Return a JSON Schema that requires the field ``name`` with a value other than null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
