"""Formats of catalogues: kscale's own CSV, JSON dumps of clouds' tools, and Google's price table.

kscale's format has one row per instance type. Columns: ``instance_type``, ``arch``, ``vcpu``, ``memory_mib``, ``gpu``
(a number); optional ``alloc_cpu``, ``alloc_memory``, ``alloc_pods``, ``alloc_ephemeral``, ``alloc_gpu`` (quantities
that are allocatable for pods), ``gpu_name``, ``vcpus_available`` (fewer than ``vcpu`` for a type that is sold with
some of its cores disabled), and ``ondemand_usd_per_hour_<region>``, ``spot_usd_per_hour_<region>`` for each region.
An empty cell of an optional column means unknown. Missing ``alloc_`` cells are computed by the formula of an
``Overhead``; without one, everything is allocatable, which is more than a real kubelet offers.

Dumps of clouds:

* ``aws ec2 describe-instance-types``: pods from network interfaces and their addresses, as the EKS CNI counts them.
* ``az vm list-skus --resource-type virtualMachines --all``.
* ``gcloud compute machine-types list --format json``.
* a list of Karpenter's instance types (its kwok provider's catalogue), with offerings and prices.

Only the last of these has prices: see :mod:`~kscale.capacity.catalogue.reading`.

Upstream: gce_price_info.go.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kscale.capacity.catalogue.types import (
    DEFAULT_PODS,
    Catalogue,
    CatalogueFilter,
    InstanceType,
    Machine,
    Overhead,
    allocatable,
    gpu_resource,
)
from kscale.capacity.machine_types import ARCHITECTURES
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.decode import escape, from_dict
from kscale.objects.go_numbers import parse_float, parse_int64
from kscale.objects.quantity import Quantity, QuantityError

__all__ = [
    "HEADER",
    "ON_DEMAND_PRICE",
    "SPOT_PRICE",
    "constrained_cores",
    "price_in",
    "read_dump",
    "read_google_prices",
    "read_table",
    "rows_of",
    "shape_of",
    "write_table",
]

ON_DEMAND_PRICE, SPOT_PRICE = "ondemand_usd_per_hour_", "spot_usd_per_hour_"
_REQUIRED = ("instance_type", "arch", "vcpu", "memory_mib", "gpu")
_ALLOCATABLE = {"alloc_cpu": "cpu", "alloc_memory": "memory", "alloc_ephemeral": "ephemeral-storage"}
_OPTIONAL = ("alloc_cpu", "alloc_memory", "alloc_pods", "alloc_ephemeral", "alloc_gpu", "gpu_name")
_OF_AZURE = "sku_family"  # a column that only Azure's tables have
_CONSTRAINED = lazy_pattern(r"(?:Standard|Basic)_[A-Za-z]+[0-9]+-([0-9]{1,9})(?![0-9])")
_NAMED = 20
"""Rows left out of a stored catalogue that are named; the others are counted."""


def rows_of(text: str, source: str, required: Iterable[str]) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield ("row N", cells by column) for each row of a CSV that is not blank; N is the row's last line.

    Raises InputError for malformed CSV, for missing ``required`` columns, and for columns with the same name.
    """
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
        Overrides of the overhead formula and of the table's number of pods.
    stored : bool
        Whether the table is an imported catalogue. Bad rows of an imported catalogue are left out, so that the others
        stay usable; ``left_out`` names the first 20 and counts the others. In any table of Azure, rows with memory 0
        (less than one GiB) are left out.

    Returns
    -------
    Catalogue
        The types of the table, with the number of rows that were left out.

    Raises
    ------
    InputError
        With all problems at once, by row and column (bad rows only if not ``stored``); also if no row can be read.
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
    """Return the number of skipped rows by message: a message for each of the first 20 rows, one for all others.

    ``skipped``: problems of these rows; without any, the result is empty.
    """
    by_row: dict[str, list[str]] = {}
    for problem in skipped:
        by_row.setdefault(problem.object, []).append(f"{problem.field}: {problem.message}")
    first_rows = list(by_row.items())[:_NAMED]
    counts = {f"{skipped[0].source}: {row}: {'; '.join(texts)}": 1 for row, texts in first_rows}
    return counts | ({"more rows that cannot be read": len(by_row) - _NAMED} if len(by_row) > _NAMED else {})


def constrained_cores(name: str, cores: int) -> int:
    """Return how many of its cores an Azure type can use, by its name: ``Standard_HB120-16rs_v2`` uses 16 of 120.

    ``cores``: number of all cores, which is also the result for other names.
    """
    match = _CONSTRAINED.match(name)
    return cores if match is None else min(cores, int(match[1]))


def write_table(catalogue: Catalogue) -> str:
    """Format the catalogue as CSV, from which :func:`read_table` reads the same types.

    Memory capacity is rounded down to whole MiB, cpu capacity up to whole cores. The capacity of pods and of ephemeral
    storage becomes the allocatable amount. Resources other than these and the GPU of ``gpu_name`` are left out.
    """
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
        price = parse_float(text)
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
        """Add a problem with the cell of a column to ``problems``; an empty column stands for the whole row."""
        self.problems.append(Problem(message, source=self.source, object=self.name, field=column))

    def text(self, column: str) -> str:
        """Return a cell without surrounding spaces; empty if the row has no such cell."""
        cell = self.cells.get(column)
        return cell.strip() if isinstance(cell, str) else ""

    def count(self, column: str) -> int:
        """Parse a cell as a whole number. Adds a problem and returns 0 for any other text."""
        text = self.text(column)
        number = parse_int64(text) if text.isdigit() else None
        if number is None:
            self.wrong(column, f'"{text}" is not a whole number' if text else "the cell is empty")
            return 0
        return number

    def cores(self, name: str) -> int:
        """Return the usable cores: ``vcpus_available``, otherwise ``vcpu`` reduced by the name of an Azure type.

        Adds a problem if a cell is not a whole number, or if more cores are available than there are.
        """
        cores = self.count("vcpu")
        if not self.text("vcpus_available"):
            return constrained_cores(name, cores)
        available = self.count("vcpus_available")
        if available > cores:
            self.wrong("vcpus_available", f"{available} is more than the {cores} there are")
        return available

    def quantity(self, column: str) -> Quantity | None:
        """Parse a cell as a quantity; None if it is empty.

        Adds a problem and returns None if it is invalid or negative.
        """
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
        """Return the prices in the columns that begin with ``prefix``, by the rest of the column's name (the region).

        Empty cells are left out. Adds a problem for each cell that is not a price.
        """
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
        """Convert the row to an instance type.

        Returns None if the row has mistakes, which are added to ``problems``.
        """
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
        """Return the allocatable cpu and memory by the overhead formula; empty without a formula.

        The formula is the filter's; by default Azure's for a table of Azure, and none for another.
        """
        default = Overhead.AKS if _OF_AZURE in self.cells else Overhead.NONE
        formula = default if catalogue_filter.overhead is None else catalogue_filter.overhead
        if formula is Overhead.NONE:
            return {}
        cpu, memory, pods = (capacity[name].value() for name in ("cpu", "memory", "pods"))
        cpu, memory = allocatable(formula, cpu * 1000, memory, pods, arch)
        return {"cpu": Quantity(f"{cpu}m"), "memory": Quantity(f"{memory // 2**20}Mi")}


HEADER = ("table", "key", "value")
_REGION = "us_central1"
_ON_DEMAND, _SPOT = "instancePrices", "preemptiblePrices"
_NAME = lazy_pattern(r"([a-z][0-9]+[a-z]?)-(standard|highmem|highcpu)-([0-9]{1,9})(?:-[a-z]+)?")
_ARM = ("t2a", "c4a", "n4a")
_MIB_A_CORE: dict[str, dict[str, float]] = {
    "n1": {"standard": 3840, "highmem": 6656, "highcpu": 921.6},
    "n2": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
    "n2d": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
    "e2": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
    "n4": {"standard": 4096, "highmem": 8192, "highcpu": 2048},
    "c2": {"standard": 4096},
    "c2d": {"standard": 4096, "highmem": 8192, "highcpu": 2048},
    "c3": {"standard": 4096, "highmem": 8192, "highcpu": 2048},
    "c3d": {"standard": 4096, "highmem": 8192},
    "t2d": {"standard": 4096},
    "t2a": {"standard": 4096},
    "z3": {"highmem": 8192},
    "g2": {"standard": 4096},
}
_OTHERS = {"n2-highmem-128": 864 * 1024}
_L4 = {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}
_A2 = lazy_pattern(r"a2-(highgpu|megagpu|ultragpu)-([0-9]{1,9})g")


def shape_of(name: str) -> tuple[int, int, int, str] | None:
    """Return (cores, MiB, GPUs, GPU name) of a Google machine type by its name; None if no rule covers the name."""
    if match := _A2.fullmatch(name):
        gpus = int(match[2])
        if match[1] == "megagpu":
            return 96, 1360 * 1024, gpus, "nvidia-tesla-a100"
        gib, gpu = (85, "nvidia-tesla-a100") if match[1] == "highgpu" else (170, "nvidia-a100-80gb")
        return 12 * gpus, gib * 1024 * gpus, gpus, gpu
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    family, kind, cores = match[1], match[2], int(match[3])
    mib_per_core = _MIB_A_CORE.get(family, {}).get(kind)
    if mib_per_core is None or (family == "g2" and cores not in _L4):
        return None
    memory = _OTHERS.get(name, int(cores * mib_per_core))
    return (cores, memory, _L4[cores], "nvidia-l4") if family == "g2" else (cores, memory, 0, "")


def read_google_prices(text: str, source: str, catalogue_filter: CatalogueFilter) -> Catalogue:
    """Read the machine types in Google's price table.

    Types whose shape does not follow from their name are left out and counted. Prices of other things than machines are
    ignored. All prices count as those of ``us_central1``. Raises InputError for malformed CSV, for missing columns, and
    for bad prices (all of them in one error).
    """
    prices: dict[str, dict[str, float]] = {_ON_DEMAND: {}, _SPOT: {}}
    problems: list[Problem] = []
    for place, cells in rows_of(text, source, HEADER):
        table, key, value = (cells.get(column) for column in HEADER)
        if table not in prices:
            continue  # prices of disks, GPUs and single cores
        price = price_in(value) if isinstance(value, str) else None
        if not key or price is None:
            problems.append(Problem(f'"{value}" is not a price', source, place, "value"))
        else:
            prices[table][key] = price
    if problems:
        raise InputError(problems)
    machines = list(_machines(prices[_ON_DEMAND], prices[_SPOT]))
    left_out = Counter("the name does not say what it has" for machine in machines if isinstance(machine, str))
    types = [
        machine.instance_type(catalogue_filter, Overhead.GKE) for machine in machines if isinstance(machine, Machine)
    ]
    return Catalogue({machine.name: machine for machine in types}, source, left_out)


def _machines(on_demand: dict[str, float], spot: dict[str, float]) -> Iterable[Machine | str]:
    """Yield the machine of each name with its prices ($/h), or the name alone if its shape is unknown."""
    for name in dict.fromkeys((*on_demand, *spot)):
        shape = shape_of(name)
        if shape is None:
            yield name
            continue
        cores, memory, gpus, gpu_name = shape
        yield Machine(
            name,
            "arm64" if name.partition("-")[0] in _ARM else "amd64",
            cores,
            memory,
            gpus,
            gpu_name,
            prices={_REGION: on_demand[name]} if name in on_demand else {},
            spot_prices={_REGION: spot[name]} if name in spot else {},
        )


_ARCH = {"x86_64": "amd64", "x64": "amd64", "amd64": "amd64", "arm64": "arm64"}


class _Pascal(msgspec.Struct, rename="pascal"):
    """Base of the structs of AWS's JSON."""


class _Cores(_Pascal):
    default_v_cpus: int = msgspec.field(name="DefaultVCpus")


class _Memory(_Pascal):
    size_in_mib: int = msgspec.field(name="SizeInMiB")


class _Processor(_Pascal):
    supported_architectures: list[str]


class _Gpu(_Pascal):
    count: int
    name: str = ""
    manufacturer: str = ""


class _Gpus(_Pascal):
    gpus: list[_Gpu] = []


class _Network(_Pascal):
    maximum_network_interfaces: int
    ipv4_addresses_per_interface: int


class _Ec2Type(_Pascal):
    instance_type: str
    v_cpu_info: _Cores = msgspec.field(name="VCpuInfo")
    memory_info: _Memory
    processor_info: _Processor
    network_info: _Network
    gpu_info: _Gpus | None = None


class _Capability(msgspec.Struct):
    name: str
    value: str


class _AzureSku(msgspec.Struct, rename="camel"):
    name: str
    capabilities: list[_Capability] = []


class _Accelerator(msgspec.Struct, rename="camel"):
    guest_accelerator_type: str
    guest_accelerator_count: int


class _GceType(msgspec.Struct, rename="camel"):
    name: str
    guest_cpus: int
    memory_mb: int
    architecture: str = "X86_64"
    accelerators: list[_Accelerator] = []


class _Requirement(msgspec.Struct):
    key: str
    operator: str
    values: list[str] = []


class _Offering(msgspec.Struct):
    price: float = msgspec.field(name="Price")
    available: bool = msgspec.field(name="Available", default=True)
    requirements: list[_Requirement] = msgspec.field(name="Requirements", default_factory=list)


class _KarpenterType(msgspec.Struct, rename="camel"):
    name: str
    resources: dict[str, Quantity]
    architecture: str = "amd64"
    operating_systems: tuple[str, ...] = ("linux",)
    offerings: list[_Offering] = []


_Found = InstanceType | str  # a type, or the reason why it is left out


def read_dump(data: Any, source: str, catalogue_filter: CatalogueFilter) -> Catalogue:
    """Read the catalogue in a provider's dump (decoded JSON).

    The first entry decides the format. Some entries are left out and only counted in ``left_out``, by reason: those
    that are no machines, have an architecture that nodes do not support, have TPUs, do not run Linux, have no cpu or
    memory, or repeat a type. Raises InputError for an unknown format, for a dump without entries, and for entries that
    cannot be read (all of them in one error).
    """
    prefix, items = _items(data, source)
    first = items[0] if items else {}
    format_: tuple[type[Any], Callable[[Any, CatalogueFilter], _Found]]
    if "InstanceType" in first:
        format_ = _Ec2Type, _read_aws_type
    elif "guestCpus" in first:
        format_ = _GceType, _read_gce_type
    elif "offerings" in first:
        format_ = _KarpenterType, _read_karpenter_type
    elif "capabilities" in first or "resourceType" in first:
        format_ = _AzureSku, _read_azure_sku
    else:
        text = "a list of instance types expected: of aws ec2 describe-instance-types, az vm list-skus, gcloud compute "
        raise InputError(Problem(f"{text}machine-types list, or of Karpenter", source))
    kind, make = format_
    problems: list[Problem] = []
    types: dict[str, InstanceType] = {}
    left_out: Counter[str] = Counter()
    for number, item in enumerate(items):
        name = item.get("InstanceType", item.get("name")) if isinstance(item, Mapping) else None
        if isinstance(item, Mapping) and item.get("resourceType", "virtualMachines") != "virtualMachines":
            left_out["not a machine"] += 1
            continue
        place = f"{prefix}[{number}]" + (f" ({escape(name)})" if isinstance(name, str) else "")
        try:
            result = make(from_dict(item, kind, source=source, object_path=place), catalogue_filter)
        except InputError as error:
            problems += error.problems
            continue
        except ValueError as error:
            problems.append(Problem(str(error), source, place))
            continue
        if isinstance(result, str):
            left_out[result] += 1
        elif missing := [amount for amount in ("cpu", "memory") if result.capacity[amount].sign <= 0]:
            left_out[f"{place}: {missing[0]} is {result.capacity[missing[0]]}"] += 1
        elif result.name in types:
            left_out["the same type in another place"] += 1
        else:
            types[result.name] = result
    if problems:
        raise InputError(problems, total=len(items))
    return Catalogue(types, source, left_out)


def _items(data: Any, source: str) -> tuple[str, list[Any]]:
    """Return (field of the dump that holds the entries, or ""; the entries).

    Raises InputError if there is no list, or if its first entry is not an object.
    """
    prefix = ""
    if isinstance(data, Mapping) and "InstanceTypes" in data:
        prefix, data = "InstanceTypes", data["InstanceTypes"]
    elif isinstance(data, Mapping) and "value" in data:
        prefix, data = "value", data["value"]
    if not isinstance(data, list) or not all(isinstance(item, Mapping) for item in data[:1]):
        raise InputError(Problem(f"a list of instance types expected, got {type(data).__name__}", source))
    return prefix, data


def _arch(names: Iterable[str]) -> str:
    """Return Kubernetes' name of the first architecture in ``names`` that nodes support; empty if there is none."""
    return next((_ARCH[name.lower()] for name in names if name.lower() in _ARCH), "")


def _read_aws_type(item: _Ec2Type, catalogue_filter: CatalogueFilter) -> _Found:
    """Convert an entry of AWS's dump to an instance type, or return a text that says why it is left out."""
    arch = _arch(item.processor_info.supported_architectures)
    if not arch:
        return "of another architecture"
    gpus = item.gpu_info.gpus if item.gpu_info is not None else []
    name = f"{gpus[0].manufacturer} {gpus[0].name}".strip() if gpus else ""
    network = item.network_info
    return Machine(
        item.instance_type,
        arch,
        item.v_cpu_info.default_v_cpus,
        item.memory_info.size_in_mib,
        sum(gpu.count for gpu in gpus),
        name,
        network.maximum_network_interfaces * (network.ipv4_addresses_per_interface - 1) + 2,
    ).instance_type(catalogue_filter, Overhead.EKS)


def _count(text: str) -> int:
    """Parse the value of an Azure capability as an integer. Raises ValueError for any other text."""
    number = parse_int64(text)
    if number is None:
        raise ValueError(f"{text!r} is no integer")
    return number


def _read_azure_sku(item: _AzureSku, catalogue_filter: CatalogueFilter) -> _Found:
    """Convert an entry of Azure's dump to an instance type, or return a text that says why it is left out.

    Raises ValueError if a capability is missing or is not a number.
    """
    has = {capability.name: capability.value for capability in item.capabilities}
    arch = _arch([has.get("CpuArchitectureType", "x64")])
    if not arch:
        return "of another architecture"
    if "vCPUs" not in has or "MemoryGB" not in has:
        raise ValueError("the capabilities have no vCPUs and MemoryGB")
    try:
        cores, memory = constrained_cores(item.name, _count(has["vCPUs"])), round(parse_float(has["MemoryGB"]) * 1024)
        cores = _count(has["vCPUsAvailable"]) if "vCPUsAvailable" in has else cores
        gpus = _count(has.get("GPUs", "0"))
    except (ValueError, OverflowError):
        raise ValueError("a capability of vCPUs, vCPUsAvailable, MemoryGB, GPUs is no number") from None
    return Machine(item.name, arch, cores, memory, gpus).instance_type(catalogue_filter, Overhead.AKS)


def _read_gce_type(item: _GceType, catalogue_filter: CatalogueFilter) -> _Found:
    """Convert an entry of Google's dump to an instance type, or return a text that says why it is left out."""
    arch = _arch([item.architecture])
    if not arch:
        return "of another architecture"
    gpus = [accelerator for accelerator in item.accelerators if "tpu" not in accelerator.guest_accelerator_type]
    if len(gpus) < len(item.accelerators):
        return "with TPUs"
    name = gpus[0].guest_accelerator_type if gpus else ""
    count = sum(accelerator.guest_accelerator_count for accelerator in gpus)
    return Machine(item.name, arch, item.guest_cpus, item.memory_mb, count, name).instance_type(
        catalogue_filter, Overhead.GKE
    )


def _read_karpenter_type(item: _KarpenterType, catalogue_filter: CatalogueFilter) -> _Found:
    """Convert an entry of Karpenter's dump to an instance type, or return a text that says why it is left out.

    A region has the lowest price of its zones; offerings that are not available, have a negative price, or are neither
    on-demand nor spot are ignored. Other resources of amount 0 are left out. Raises ValueError if cpu or memory is
    missing.
    """
    if "linux" not in item.operating_systems:
        return "not for Linux"
    if item.architecture not in ARCHITECTURES:
        return "of another architecture"
    if missing := [name for name in ("cpu", "memory") if name not in item.resources]:
        raise ValueError(f"the resources have no {missing[0]}")
    prices: dict[str, dict[str, float]] = {"on-demand": {}, "spot": {}}
    for offering in item.offerings:
        if offering.available and offering.price >= 0:
            values = {requirement.key: requirement.values for requirement in offering.requirements}
            for capacity_type in values.get("karpenter.sh/capacity-type", ["on-demand"]):
                for zone in values.get("topology.kubernetes.io/zone", [""]):
                    prices_by_region, region = prices.setdefault(capacity_type, {}), _region(zone)
                    prices_by_region[region] = min(prices_by_region.get(region, offering.price), offering.price)
    machine = Machine(
        item.name,
        item.architecture,
        item.resources["cpu"].value(),
        item.resources["memory"].value() // 2**20,
        pods=item.resources["pods"].value() if "pods" in item.resources else None,
        prices=prices["on-demand"],
        spot_prices=prices["spot"],
    )
    base = machine.instance_type(catalogue_filter, Overhead.NONE)
    others = {name: amount for name, amount in item.resources.items() if name not in base.capacity and amount.sign}
    return InstanceType(
        base.name,
        base.arch,
        {**base.capacity, **others},
        {**base.allocatable, **others},
        base.prices,
        base.spot_prices,
        base.gpu_name,
    )


def _region(zone: str) -> str:
    """Return the region in the name of a zone, spelled with ``_``: ``us_east_1`` of ``us-east-1a``.

    An empty name becomes ``any``.
    """
    return (re.sub(r"-?[a-z]$", "", zone) or "any").replace("-", "_")
