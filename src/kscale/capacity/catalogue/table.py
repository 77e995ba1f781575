"""Reads and writes the kscale catalogue format: a CSV with one row per instance type.

Columns: ``instance_type``, ``arch``, ``vcpu``, ``memory_mib``, ``gpu`` (a number); optional ``alloc_cpu``,
``alloc_memory``, ``alloc_pods``, ``alloc_ephemeral``, ``alloc_gpu`` (quantities that are allocatable for pods),
``gpu_name``, ``vcpus_available`` (fewer than ``vcpu`` for a type that is sold with some of its cores disabled), and
``ondemand_usd_per_hour_<region>``, ``spot_usd_per_hour_<region>`` for each region. An empty cell of an optional column
means unknown. Missing ``alloc_`` cells are computed by the formula of an ``Overhead``; without one, everything is
allocatable, which is more than a real kubelet offers.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kscale.capacity.architectures import ARCHITECTURES
from kscale.capacity.catalogue.types import (
    DEFAULT_PODS,
    Catalogue,
    CatalogueFilter,
    InstanceType,
    Overhead,
    allocatable,
    gpu_resource,
)
from kscale.errors import InputError, Problem
from kscale.objects.decode import escape
from kscale.objects.quantity import Quantity, QuantityError

__all__ = ["ON_DEMAND_PRICE", "SPOT_PRICE", "constrained_cores", "price_in", "read_table", "rows_of", "write_table"]

ON_DEMAND_PRICE, SPOT_PRICE = "ondemand_usd_per_hour_", "spot_usd_per_hour_"
_REQUIRED = ("instance_type", "arch", "vcpu", "memory_mib", "gpu")
_ALLOCATABLE = {"alloc_cpu": "cpu", "alloc_memory": "memory", "alloc_ephemeral": "ephemeral-storage"}
_OPTIONAL = ("alloc_cpu", "alloc_memory", "alloc_pods", "alloc_ephemeral", "alloc_gpu", "gpu_name")
_OF_AZURE = "sku_family"  # a column that only Azure's tables have
_CONSTRAINED = re.compile(r"(?:Standard|Basic)_[A-Za-z]+\d+-(\d+)")
_NAMED = 20
"""Rows left out of a stored catalogue that are named; the others are counted."""


def rows_of(text: str, source: str, required: Iterable[str]) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield ("row N", cells by column). Raises InputError for malformed CSV, and for missing or duplicate columns."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = reader.fieldnames or []
        missing = [column for column in required if column not in header]
        if missing:
            raise InputError(
                [Problem("the column is missing", source=source, object="row 1", field=column) for column in missing]
            )
        if repeated := [column for column in dict.fromkeys(header) if column and header.count(column) > 1]:
            raise InputError(
                [Problem("the column comes twice", source=source, object="row 1", field=column) for column in repeated]
            )
        for cells in reader:
            yield f"row {reader.line_num}", cells
    except csv.Error as error:
        raise InputError(Problem(f"malformed CSV: {error}", source=source, object=f"row {reader.line_num}")) from None


def read_table(text: str, source: str, catalogue_filter: CatalogueFilter, *, stored: bool = False) -> Catalogue:
    """Read the catalogue in a CSV.

    Parameters
    ----------
    text, source : str
        The CSV, and its name in problems.
    catalogue_filter : CatalogueFilter
        The overhead formula and the number of pods that override the table's.
    stored : bool
        Whether the table is an imported catalogue. Its bad rows are left out, each named in ``left_out``, so that one
        bad row does not make the others unusable. A table of Azure has rows without memory (less than one GiB, counted
        in whole GiB), which are left out in either case.

    Raises
    ------
    InputError
        With all problems at once, by row and column; also if no row can be read.
    """
    problems: list[Problem] = []
    skipped: list[Problem] = []
    types: dict[str, InstanceType] = {}
    try:
        for name, cells in rows_of(text, source, _REQUIRED):
            row = _Row(cells, name, source)
            kind = row.instance_type(catalogue_filter)
            if kind is not None and kind.name in types:
                row.wrong("instance_type", f'"{kind.name}" occurs twice')
            elif kind is not None:
                types[kind.name] = kind
            if stored or row.is_tiny:
                label = f"{name} ({escape(row.text('instance_type'))})"
                skipped += [replace(problem, object=label) for problem in row.problems]
            else:
                problems += row.problems
    except InputError as error:
        problems += error.problems
    if not types and not problems:
        problems = skipped or [Problem("no instance type in it", source)]
    if problems:
        raise InputError(problems, total=len(types))
    return Catalogue(types, source, _count_skipped(skipped))


def _count_skipped(skipped: list[Problem]) -> dict[str, int]:
    """Return the rows left out as texts with counts: the first ones by name, the others as one number."""
    by_row: dict[str, list[str]] = {}
    for problem in skipped:
        by_row.setdefault(problem.object, []).append(f"{problem.field}: {problem.message}")
    first_rows = list(by_row.items())[:_NAMED]
    counts = {f"{skipped[0].source}: {row}: {'; '.join(texts)}": 1 for row, texts in first_rows}
    return counts | ({"more rows that cannot be read": len(by_row) - _NAMED} if len(by_row) > _NAMED else {})


def constrained_cores(name: str, cores: int) -> int:
    """Return the cores of an Azure type by its name: ``Standard_HB120-16rs_v2`` uses 16 of its 120 cores."""
    match = _CONSTRAINED.match(name)
    return cores if match is None else min(cores, int(match[1]))


def write_table(catalogue: Catalogue) -> str:
    """Format the catalogue as CSV, from which :func:`read_table` reads the same types."""
    regions = list(dict.fromkeys(region for kind in catalogue.values() for region in kind.prices))
    spot = list(dict.fromkeys(region for kind in catalogue.values() for region in kind.spot_prices))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    prices = [*(ON_DEMAND_PRICE + region for region in regions), *(SPOT_PRICE + region for region in spot)]
    writer.writerow([*_REQUIRED, *_OPTIONAL, *prices])
    for kind in catalogue.values():
        gpu = gpu_resource(kind.gpu_name)
        room = kind.allocatable
        usable = [room.get(name) for name in ("cpu", "memory", "pods", "ephemeral-storage", gpu)]
        writer.writerow(
            [
                kind.name,
                kind.arch,
                kind.capacity["cpu"].value(),
                kind.capacity["memory"].value() // 2**20,
                kind.capacity[gpu].value() if gpu in kind.capacity else 0,
                *("" if amount is None else str(amount) for amount in usable),
                kind.gpu_name,
                *(repr(kind.prices[region]) if region in kind.prices else "" for region in regions),
                *(repr(kind.spot_prices[region]) if region in kind.spot_prices else "" for region in spot),
            ]
        )
    return text.getvalue()


def price_in(text: str) -> float | None:
    """Parse a price in a cell; None if it is not a non-negative number."""
    try:
        price = float(text)
    except ValueError:
        return None
    return price if math.isfinite(price) and price >= 0 else None


@dataclass(slots=True)
class _Row:
    """One row of the file; its mistakes are added to ``problems``. ``is_tiny``: a type of Azure without memory."""

    cells: Mapping[Any, Any]  # csv.DictReader: None is the key of surplus cells and the value of missing ones
    name: str
    source: str
    problems: list[Problem] = field(default_factory=list)
    is_tiny: bool = False

    def wrong(self, column: str, message: str) -> None:
        self.problems.append(Problem(message, source=self.source, object=self.name, field=column))

    def text(self, column: str) -> str:
        cell = self.cells.get(column)
        return cell.strip() if isinstance(cell, str) else ""

    def count(self, column: str) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdigit()):
            self.wrong(column, f'"{text}" is not a whole number' if text else "the cell is empty")
            return 0
        return int(text)

    def cores(self, name: str) -> int:
        """Return the number of usable cores: ``vcpus_available``, else by the name of an Azure type."""
        cores = self.count("vcpu")
        if not self.text("vcpus_available"):
            return constrained_cores(name, cores)
        available = self.count("vcpus_available")
        if available > cores:
            self.wrong("vcpus_available", f"{available} is more than the {cores} there are")
        return available

    def quantity(self, column: str) -> Quantity | None:
        text = self.text(column)
        if not text:
            return None
        try:
            amount = Quantity(text)
        except QuantityError:
            self.wrong(column, f'"{text}" is not a quantity')
            return None
        if amount.sign < 0:
            self.wrong(column, f'"{text}" is negative')
            return None
        return amount

    def prices(self, prefix: str) -> dict[str, float]:
        prices = {}
        for column in self.cells:
            if not isinstance(column, str) or not column.startswith(prefix):
                continue
            text = self.text(column)
            if not text:
                continue
            price = price_in(text)
            if price is None:
                self.wrong(column, f'"{text}" is not a price')
                continue
            prices[column.removeprefix(prefix)] = price
        return prices

    def instance_type(self, catalogue_filter: CatalogueFilter) -> InstanceType | None:
        if None in self.cells or None in self.cells.values():
            self.wrong("", f"{'more' if None in self.cells else 'fewer'} cells than the header has columns")
            return None
        name, arch = self.text("instance_type"), self.text("arch")
        if not name:
            self.wrong("instance_type", "the cell is empty")
        if arch not in ARCHITECTURES:
            self.wrong("arch", f'"{arch}" is not one of {", ".join(ARCHITECTURES)}')
        pods = self.quantity("alloc_pods")
        if catalogue_filter.max_pods is not None:
            pods = Quantity(str(catalogue_filter.max_pods))
        capacity = {
            "cpu": Quantity(str(self.cores(name))),
            "memory": Quantity(f"{self.count('memory_mib')}Mi"),
            "pods": Quantity(str(DEFAULT_PODS)) if pods is None else pods,
        }
        for column, resource in (("vcpu", "cpu"), ("memory_mib", "memory")):
            if not self.problems and not capacity[resource].value():
                self.is_tiny = column == "memory_mib" and _OF_AZURE in self.cells
                self.wrong(column, "0: a node has some")
        gpus = self.count("gpu")
        gpu = gpu_resource(self.text("gpu_name"))
        if gpus:
            capacity[gpu] = Quantity(str(gpus))
        if self.problems:
            return None
        room = capacity | self.get_allocatable(catalogue_filter, capacity, arch)
        for column, resource in _ALLOCATABLE.items():
            amount = self.quantity(column)
            if amount is None:
                continue
            if resource in capacity and amount > capacity[resource]:
                self.wrong(column, f"{amount} is more than the {capacity[resource]} there is")
            room[resource] = amount
            capacity.setdefault(resource, amount)
        usable = self.quantity("alloc_gpu")
        if gpus and usable is not None:
            room[gpu] = usable
        prices, spot = self.prices(ON_DEMAND_PRICE), self.prices(SPOT_PRICE)
        if self.problems:
            return None
        return InstanceType(name, arch, capacity, room, prices, spot, self.text("gpu_name"))

    def get_allocatable(
        self, catalogue_filter: CatalogueFilter, capacity: Mapping[str, Quantity], arch: str
    ) -> dict[str, Quantity]:
        """Return the allocatable cpu and memory by the overhead formula (Azure's for its tables); empty without one."""
        default = Overhead.AKS if _OF_AZURE in self.cells else Overhead.NONE
        formula = default if catalogue_filter.overhead is None else catalogue_filter.overhead
        if formula is Overhead.NONE:
            return {}
        cpu, memory, pods = (capacity[name].value() for name in ("cpu", "memory", "pods"))
        cpu, memory = allocatable(formula, cpu * 1000, memory, pods, arch)
        return {"cpu": Quantity(f"{cpu}m"), "memory": Quantity(f"{memory // 2**20}Mi")}
