"""Prices that come apart from the machines: a CSV of type, region and price, or what Azure's retail API gives.

The CSV has the columns ``instance_type``, ``region``, ``usd_per_hour`` and, where there is spot, ``spot_usd_per_hour``.
Azure's is the JSON of ``https://prices.azure.com/api/retail/prices``: one page, a list of all pages, or of items.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kscale.capacity.catalogue.table import price_in, rows_of
from kscale.capacity.catalogue.types import Catalogue
from kscale.errors import InputError, Problem
from kscale.objects.decode import from_dict

__all__ = ["Prices", "prices_of", "read_price_csv", "read_retail_prices", "retail_pages"]


@dataclass(slots=True)
class Prices:
    """Type -> region (spelled with ``_``) -> $ an hour: ``on_demand``, and ``spot`` of what may be taken away."""

    on_demand: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    spot: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def onto(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with these prices on top of its own; prices of types that it lacks are left out and counted."""
        types = {
            name: replace(
                kind,
                prices={**kind.prices, **self.on_demand.get(name, {})},
                spot_prices={**kind.spot_prices, **self.spot.get(name, {})},
            )
            for name, kind in catalogue.items()
        }
        unknown = len({*self.on_demand, *self.spot} - set(catalogue))
        left_out = {**catalogue.left_out, **({"a price, but no machine of that name": unknown} if unknown else {})}
        return Catalogue(types, catalogue.source, left_out)


def prices_of(catalogue: Catalogue) -> Prices:
    """Those of another catalogue."""
    found = Prices()
    for name, kind in catalogue.items():
        found.on_demand[name].update(kind.prices)
        found.spot[name].update(kind.spot_prices)
    return found


def read_price_csv(text: str, source: str) -> Prices:
    """Raises InputError with all bad rows at once."""
    found = Prices()
    problems: list[Problem] = []
    for place, cells in rows_of(text, source, ("instance_type", "region", "usd_per_hour")):
        name, region = cells.get("instance_type"), cells.get("region")
        if not name or not region:
            problems.append(Problem("the cell is empty", source, place, "region" if name else "instance_type"))
            continue
        for column, prices in (("usd_per_hour", found.on_demand), ("spot_usd_per_hour", found.spot)):
            cell = (cells.get(column) or "").strip()
            price = price_in(cell) if cell else None
            if price is not None:
                prices[name][region.replace("-", "_")] = price
            elif cell:
                problems.append(Problem(f'"{cell}" is not a price', source, place, column))
    if problems:
        raise InputError(problems)
    return found


class _Retail(msgspec.Struct, rename="camel"):
    retail_price: float
    arm_region_name: str
    arm_sku_name: str
    product_name: str = ""
    sku_name: str = ""
    type: str = "Consumption"
    unit_of_measure: str = "1 Hour"


def retail_pages(data: Any) -> list[dict[str, Any]] | None:
    """The pages of Azure's list in plain data: one page, several in a list, or the bare items of all; None if it is
    something else."""
    if isinstance(data, dict) and "Items" in data:
        pages = [data]
    elif isinstance(data, list) and data and all(isinstance(each, dict) and "Items" in each for each in data):
        pages = data
    else:
        pages = [{"Items": data}]
    items = pages[0]["Items"]
    known = isinstance(items, list) and items and isinstance(items[0], dict) and "retailPrice" in items[0]
    return pages if known else None


def read_retail_prices(pages: list[dict[str, Any]], source: str) -> Prices:
    """On-demand and spot prices of Linux machines by the hour; everything else in the list is passed over. Raises
    InputError for a list whose last page names a next one, with all items that cannot be read."""
    if link := pages[-1].get("NextPageLink"):
        raise InputError(Problem(f"the list goes on at {link}: a list of all pages is read, too", source))
    found = Prices()
    problems: list[Problem] = []
    for page, each in enumerate(pages):
        start = f"[{page}].Items" if len(pages) > 1 else "Items"
        if not isinstance(each["Items"], list):
            problems.append(Problem("a list expected", source, start))
            continue
        for number, item in enumerate(each["Items"]):
            place = f"{start}[{number}]"
            try:
                price = from_dict(item, _Retail, source=source, object_path=place)
            except InputError as error:
                problems += error.problems
                continue
            if not (math.isfinite(price.retail_price) and price.retail_price >= 0):
                problems.append(Problem(f"{price.retail_price} is not a price", source, place, "retailPrice"))
                continue
            other = price.type != "Consumption" or price.unit_of_measure != "1 Hour" or not price.arm_sku_name
            if other or "Windows" in price.product_name or "Low Priority" in price.sku_name:
                continue
            prices = found.spot if price.sku_name.endswith(" Spot") else found.on_demand
            prices[price.arm_sku_name][price.arm_region_name] = price.retail_price
    if problems:
        raise InputError(problems)
    return found
