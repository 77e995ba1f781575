"""Reads a catalogue or a price list; the format is detected from the content.

The CSV of prices has the columns ``instance_type``, ``region``, ``usd_per_hour`` and optionally ``spot_usd_per_hour``.
Azure's is the JSON of ``https://prices.azure.com/api/retail/prices``: one page, a list of all pages, or of items.

Not in upstream.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from kscale.capacity.catalogue.formats import (
    HEADER,
    price_in,
    read_dump,
    read_google_prices,
    read_table,
    rows_of,
    write_table,
)
from kscale.capacity.catalogue.types import Catalogue, CatalogueFilter, Overhead
from kscale.errors import InputError, Problem
from kscale.files import read_file, replace_file
from kscale.imports import lazy_pattern
from kscale.objects.argument_types import typed
from kscale.objects.decode import escape, from_dict, syntax_problem

__all__ = [
    "Prices",
    "data_directory",
    "is_stored",
    "list_catalogues",
    "path_of",
    "prices_of",
    "read_catalogue",
    "read_price_csv",
    "read_prices",
    "read_retail_prices",
    "retail_pages",
    "store_catalogue",
]


@dataclass(slots=True)
class Prices:
    """Prices in $/h by type, then by region (spelled with ``_``): ``on_demand`` and ``spot``."""

    on_demand: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    spot: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def onto(self, catalogue: Catalogue) -> Catalogue:
        """Return a copy of the catalogue in which these prices are added to its own or replace them.

        Prices of types that the catalogue lacks are ignored; ``left_out`` counts these types.
        """
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
    """Return the on-demand and spot prices of a catalogue; types without prices are left out."""
    result = Prices()
    for name, kind in catalogue.items():
        for of_type, prices in ((kind.prices, result.on_demand), (kind.spot_prices, result.spot)):
            if of_type:
                prices[name].update(of_type)
    return result


def read_price_csv(text: str, source: str) -> Prices:
    """Read a CSV with the columns instance_type, region, usd_per_hour and, optionally, spot_usd_per_hour.

    Empty price cells are ignored. Raises InputError for malformed CSV or a missing column, and with all bad rows at
    once.
    """
    result = Prices()
    problems: list[Problem] = []
    for place, cells in rows_of(text, source, ("instance_type", "region", "usd_per_hour")):
        name, region = cells.get("instance_type"), cells.get("region")
        if not name or not region:
            problems.append(Problem("the cell is empty", source, place, "region" if name else "instance_type"))
            continue
        for column, prices in (("usd_per_hour", result.on_demand), ("spot_usd_per_hour", result.spot)):
            cell = (cells.get(column) or "").strip()
            price = price_in(cell) if cell else None
            if price is not None:
                prices[name][region.replace("-", "_")] = price
            elif cell:
                problems.append(Problem(f'"{cell}" is not a price', source, place, column))
    if problems:
        raise InputError(problems)
    return result


class _Retail(msgspec.Struct, rename="camel"):
    retail_price: float
    arm_region_name: str
    arm_sku_name: str
    product_name: str = ""
    sku_name: str = ""
    type: str = "Consumption"
    unit_of_measure: str = "1 Hour"


def retail_pages(data: Any) -> list[dict[str, Any]] | None:
    """Return the pages of Azure's retail price list in plain data; None if the data is something else.

    Accepts one page, a list of pages, or the bare items. Only the first item of the first page is checked. The result
    is also None if there is no item.
    """
    if isinstance(data, dict) and "Items" in data:
        pages = [data]
    elif isinstance(data, list) and data and all(isinstance(page, dict) and "Items" in page for page in data):
        pages = data
    else:
        pages = [{"Items": data}]
    items = pages[0]["Items"]
    is_price_list = isinstance(items, list) and items and isinstance(items[0], dict) and "retailPrice" in items[0]
    return pages if is_price_list else None


def read_retail_prices(pages: list[dict[str, Any]], source: str) -> Prices:
    """Read the hourly on-demand and spot prices of Linux machines in Azure's price list; other items are ignored.

    Of several prices of a machine in a region, the last counts. Raises InputError with all items that cannot be read,
    or if the last page refers to a next page.
    """
    if link := pages[-1].get("NextPageLink"):
        raise InputError(Problem(f"the list continues at {link}: pass all pages", source))
    result = Prices()
    problems: list[Problem] = []
    for page, content in enumerate(pages):
        start = f"[{page}].Items" if len(pages) > 1 else "Items"
        if not isinstance(content["Items"], list):
            problems.append(Problem("a list expected", source, start))
            continue
        for number, item in enumerate(content["Items"]):
            place = f"{start}[{number}]"
            try:
                price = from_dict(item, _Retail, source=source, object_path=place)
            except InputError as error:
                problems += error.problems
                continue
            if not (math.isfinite(price.retail_price) and price.retail_price >= 0):
                problems.append(Problem(f"{price.retail_price} is not a price", source, place, "retailPrice"))
                continue
            is_other = price.type != "Consumption" or price.unit_of_measure != "1 Hour" or not price.arm_sku_name
            if is_other or "Windows" in price.product_name or "Low Priority" in price.sku_name:
                continue
            prices = result.spot if price.sku_name.endswith(" Spot") else result.on_demand
            prices[price.arm_sku_name][price.arm_region_name] = price.retail_price
    if problems:
        raise InputError(problems)
    return result


_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def data_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return kscale's folder for data of the user, which need not exist.

    It is ``kscale`` in ``$XDG_DATA_HOME``, else in ``%LOCALAPPDATA%`` on Windows, else in ``~/.local/share``.
    """
    if named := environ.get("XDG_DATA_HOME"):
        return Path(named) / "kscale"
    if sys.platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "kscale"
    return Path.home() / ".local" / "share" / "kscale"


@typed
def path_of(name: str) -> Path:
    """Return the path of the imported catalogue ``name``, which need not exist.

    Raises InputError for an invalid name.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f'"{name}" is not a valid name of a catalogue: letters, digits, dots, dashes and underscores')
    return _folder() / f"{name}.csv"


def _folder() -> Path:
    """Return the folder of imported catalogues, which need not exist."""
    return data_directory() / "catalogues"


def is_stored(source: str | os.PathLike[str]) -> bool:
    """Check whether a source is the file or the name of an imported catalogue.

    False for a name if there is a local file with this name, which is read instead.
    """
    path = Path(source)
    return path.parent == _folder() or (not path.exists() and path.name in list_catalogues())


def list_catalogues() -> list[str]:
    """Return the names of imported catalogues, sorted; empty if their folder cannot be read."""
    try:
        return sorted(path.stem for path in _folder().glob("*.csv"))
    except OSError:
        return []


@typed
def store_catalogue(catalogue: Catalogue, name: str) -> Path:
    """Store a catalogue as the imported catalogue ``name``, which may exist and is replaced; return the file's path.

    Raises InputError, and writes nothing, for an invalid name, if the file cannot be written, and for types that could
    not be read back.
    """
    path = path_of(name)
    text = write_table(catalogue)
    try:
        read_table(text, str(path), CatalogueFilter())
    except InputError as error:
        types = dict(enumerate(catalogue, start=2))  # the header is row 1
        problems = []
        for problem in error.problems:
            row = problem.object.removeprefix("row ")
            kind = types.get(int(row)) if row.isdecimal() else None
            label = problem.object if kind is None else f"type {escape(kind)}"
            problems.append(replace(problem, source=catalogue.source, object=label))
        raise InputError(problems) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    return path


_NOTHING = ("", "null")  # this is also the output of a JSON filter without matches


@typed
def read_catalogue(
    source: str | os.PathLike[str] | bytes, *, overhead: Overhead | None = None, max_pods: int | None = None
) -> Catalogue:
    """Read a catalogue of instance types.

    Parameters
    ----------
    source : path, str or bytes
        A path (``.gz`` or not), the name of an imported catalogue, or the content of one: a CSV table
        (:mod:`~kscale.capacity.catalogue.formats`), a provider's dump (:mod:`~kscale.capacity.catalogue.formats`) or
        Google's price table.
    overhead : Overhead, optional
        Formula for allocatable resources that the source does not state. Default: that of the provider whose format the
        source has; none for Karpenter's dump and for a CSV that is not Azure's.
    max_pods : int, optional
        Maximum of pods per node, instead of the source's.

    Returns
    -------
    Catalogue
        Instance types by name. Unreadable rows of an imported catalogue are skipped; ``left_out`` names the first 20
        and counts the others.

    Raises
    ------
    InputError
        With all problems at once, by row and column or by path. For sources that are not imported, this includes
        unreadable rows.
    """
    name, text = _text(source)
    overrides = CatalogueFilter(overhead, max_pods)
    if text.lstrip()[:1] in ("[", "{"):
        return read_dump(_json(text, name), name, overrides)
    if _header(text)[:3] == list(HEADER):
        return read_google_prices(text, name, overrides)
    return read_table(text, name, overrides, stored=not isinstance(source, bytes) and is_stored(source))


@typed
def read_prices(source: str | os.PathLike[str] | bytes) -> Prices:
    """Read prices: a CSV of type, region and price, Azure's retail list, or any catalogue that contains prices.

    Parameters
    ----------
    source : path, str or bytes
        A path, the name of an imported catalogue, or the content.

    Returns
    -------
    Prices
        On-demand and spot prices in $/h by type and region.

    Raises
    ------
    InputError
        If the source cannot be read, also for a single unreadable row of an imported catalogue.
    """
    name, text = _text(source)
    if text.lstrip()[:1] in ("[", "{"):
        data = _json(text, name)
        pages = retail_pages(data)
        if pages is not None:
            return read_retail_prices(pages, name)
        return prices_of(read_dump(data, name, CatalogueFilter()))
    header = _header(text)
    if "usd_per_hour" in header:
        return read_price_csv(text, name)
    if header[:3] == list(HEADER):
        return prices_of(read_google_prices(text, name, CatalogueFilter()))
    return prices_of(read_table(text, name, CatalogueFilter()))


def _text(source: str | os.PathLike[str] | bytes) -> tuple[str, str]:
    """Return (name for problems, decompressed text) of a source: the content, a path, or an imported catalogue's name.

    Raises InputError if it cannot be read, is empty, or is not UTF-8 text.
    """
    name, raw = ("<bytes>", source) if isinstance(source, bytes) else (str(source), _file(Path(source)))
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(Problem(f"damaged gzip file: {error}", source=name)) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8 text: {error}", source=name)) from None
    if text.strip() in _NOTHING:
        raise InputError(Problem("there is nothing in it", source=name))
    return name, text


def _file(path: Path) -> bytes:
    """Read a file, or the imported catalogue of that name if there is no such file.

    Raises InputError if there is neither, or if the file cannot be read.
    """
    try:
        return read_file(path)
    except FileNotFoundError:
        imported = list_catalogues()
        if path.name in imported:
            return _file(path_of(path.name))
        hint = f"; imported are {', '.join(imported)}" if imported else "; no catalogue is imported"
        text = f"No such file or directory{hint if not path.suffix else ''}"
        raise InputError(Problem(text, source=str(path))) from None
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source=str(path))) from None


def _header(text: str) -> list[str]:
    """Return the cells of the first line; an empty list if the line is malformed CSV."""
    try:
        return next(csv.reader(text.splitlines()[:1]), [])
    except csv.Error:
        return []


def _json(text: str, source: str) -> Any:
    """Decode JSON. Raises InputError for a syntax error, and for values that are nested too deeply."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise InputError(Problem("nested too deeply to be read", source)) from None
    except msgspec.DecodeError as error:
        raise InputError(syntax_problem(error, text.encode(), source)) from None
