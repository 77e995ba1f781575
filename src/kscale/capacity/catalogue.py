"""Node templates by instance type, from a catalogue in CSV: what a cloud's machines have, leave for pods, and cost.

Columns: ``instance_type``, ``arch``, ``vcpu``, ``memory_mib``, ``gpu`` (a number); optional ``alloc_cpu``,
``alloc_memory``, ``alloc_pods``, ``alloc_ephemeral``, ``alloc_gpu`` (quantities: what the kubelet offers to pods),
``gpu_name``, and one ``ondemand_usd_per_hour_<region>`` for each region. An empty cell of an optional column is not
known. Without ``alloc_`` columns everything is taken to be allocatable, which is more than a real kubelet offers.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kscale.errors import InputError, Problem
from kscale.objects.core import Node, NodeSpec, NodeStatus
from kscale.objects.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity, QuantityError

__all__ = ["Catalogue", "InstanceType", "read_catalogue"]

_PRICE = "ondemand_usd_per_hour_"
_REQUIRED = ("instance_type", "arch", "vcpu", "memory_mib", "gpu")
_ALLOCATABLE = {"alloc_cpu": "cpu", "alloc_memory": "memory", "alloc_ephemeral": "ephemeral-storage"}
_ARCHITECTURES = ("amd64", "arm64")
DEFAULT_PODS = 110  # the kubelet's --max-pods, where the catalogue names no other number


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One machine size. ``capacity`` and ``allocatable`` as a node's status has them; ``prices`` per hour by region."""

    name: str
    arch: str
    capacity: Mapping[str, Quantity]
    allocatable: Mapping[str, Quantity]
    prices: Mapping[str, float] = field(default_factory=dict)

    def price(self, region: str = "") -> float | None:
        """The price in a region (spelled with ``-`` or ``_``), or in the catalogue's first; None = not known."""
        if not region:
            return next(iter(self.prices.values()), None)
        return self.prices.get(region.replace("-", "_"))

    def node(
        self,
        *,
        name: str = "",
        zone: str = "",
        region: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Node:
        """A ready node of this type, with the labels that every cloud sets; ``labels`` on top."""
        own = name or self.name
        well_known = {
            "kubernetes.io/hostname": own,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": self.arch,
            "node.kubernetes.io/instance-type": self.name,
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": self.arch,
            "beta.kubernetes.io/instance-type": self.name,
        }
        for place, value in (("region", region), ("zone", zone)):
            if value:
                well_known[f"topology.kubernetes.io/{place}"] = value
                well_known[f"failure-domain.beta.kubernetes.io/{place}"] = value
        return Node(
            metadata=ObjectMeta(name=own, labels={**well_known, **(labels or {})}),
            spec=NodeSpec(),
            status=NodeStatus(
                capacity=dict(self.capacity),
                allocatable=dict(self.allocatable),
                conditions=[Condition(type="Ready", status="True")],
            ),
        )

    def template(self, *, zone: str = "", region: str = "", labels: Mapping[str, str] | None = None) -> NodeTemplate:
        """The node as a template without pods."""
        return NodeTemplate(node=self.node(zone=zone, region=region, labels=labels))


class Catalogue(Mapping[str, InstanceType]):
    """Instance types by name. An unknown name is an InputError that proposes a near one."""

    def __init__(self, types: Mapping[str, InstanceType], source: str = "") -> None:
        self._types = dict(types)
        self.source = source

    def __getitem__(self, name: str) -> InstanceType:
        try:
            return self._types[name]
        except KeyError:
            pass
        from difflib import get_close_matches

        near = get_close_matches(name, self._types, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownTypeError(Problem(f'no instance type "{name}" in the catalogue{hint}', source=self.source))

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    @property
    def regions(self) -> list[str]:
        """The regions that some type has a price in, spelled with ``-``."""
        return list(dict.fromkeys(region.replace("_", "-") for kind in self._types.values() for region in kind.prices))

    def check_region(self, region: str) -> None:
        """Raises InputError for a region without any price; empty = the first that a type has."""
        if region and region.replace("_", "-") not in self.regions:
            text = f'no prices of region "{region}": there are {", ".join(self.regions) or "none"}'
            raise InputError(Problem(text, source=self.source))

    def select(self, patterns: Iterable[str]) -> list[InstanceType]:
        """The types with these names, each once, in the order of patterns, then of the catalogue. A name with ``*``,
        ``?`` or ``[`` is a pattern; one that no type has raises InputError."""
        found: dict[str, InstanceType] = {}
        for pattern in patterns:
            if not any(sign in pattern for sign in "*?["):
                found.setdefault(pattern, self[pattern])
                continue
            names = [name for name in self._types if fnmatchcase(name, pattern)]
            if not names:
                raise UnknownTypeError(
                    Problem(f'no instance type like "{pattern}" in the catalogue', source=self.source)
                )
            for name in names:
                found.setdefault(name, self._types[name])
        return list(found.values())

    def __len__(self) -> int:
        return len(self._types)


class UnknownTypeError(InputError, KeyError):
    """An instance type that the catalogue does not hold."""

    __str__ = InputError.__str__


def read_catalogue(source: str | Path | bytes) -> Catalogue:
    """Read a catalogue: a path (``.gz`` or not) or the bytes of one.

    Raises InputError, with all problems at once, by row and column.
    """
    name, raw = ("<bytes>", source) if isinstance(source, bytes) else (str(source), _file(Path(source)))
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(Problem(f"damaged gzip file: {error}", source=name)) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8 text: {error}", source=name)) from None
    return _parse(text, name)


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source=str(path))) from None


def _parse(text: str, source: str) -> Catalogue:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    problems: list[Problem] = []
    types: dict[str, InstanceType] = {}
    try:
        header = reader.fieldnames or []
        missing = [column for column in _REQUIRED if column not in header]
        if missing:
            raise InputError(
                [Problem("the column is missing", source=source, object="row 1", field=column) for column in missing]
            )
        if twice := [column for column in dict.fromkeys(header) if column and header.count(column) > 1]:
            raise InputError(
                [Problem("the column comes twice", source=source, object="row 1", field=column) for column in twice]
            )
        for cells in reader:
            row = _Row(cells, f"row {reader.line_num}", source, problems)
            found = row.instance_type()
            if found is None:
                continue
            if found.name in types:
                row.wrong("instance_type", f'"{found.name}" occurs twice')
            types[found.name] = found
    except csv.Error as error:
        problems.append(Problem(f"malformed CSV: {error}", source=source, object=f"row {reader.line_num}"))
    if problems:
        raise InputError(problems, total=len(types))
    return Catalogue(types, source)


@dataclass(slots=True)
class _Row:
    """One line of the file; what is wrong with it goes to ``problems``."""

    cells: Mapping[Any, Any]  # None is the key of surplus cells and the value of missing ones
    name: str
    source: str
    problems: list[Problem]

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

    def prices(self) -> dict[str, float]:
        found = {}
        for column in self.cells:
            if not isinstance(column, str) or not column.startswith(_PRICE):
                continue
            text = self.text(column)
            if not text:
                continue
            try:
                price = float(text)
            except ValueError:
                price = math.nan
            if not math.isfinite(price) or price < 0:
                self.wrong(column, f'"{text}" is not a price')
                continue
            found[column.removeprefix(_PRICE)] = price
        return found

    def instance_type(self) -> InstanceType | None:
        before = len(self.problems)
        if None in self.cells or None in self.cells.values():
            self.wrong("", f"{'more' if None in self.cells else 'fewer'} cells than the header has columns")
            return None
        name, arch = self.text("instance_type"), self.text("arch")
        if not name:
            self.wrong("instance_type", "the cell is empty")
        if arch not in _ARCHITECTURES:
            self.wrong("arch", f'"{arch}" is not one of {", ".join(_ARCHITECTURES)}')
        pods = self.quantity("alloc_pods")
        capacity = {
            "cpu": Quantity(str(self.count("vcpu"))),
            "memory": Quantity(f"{self.count('memory_mib')}Mi"),
            "pods": Quantity(str(DEFAULT_PODS)) if pods is None else pods,
        }
        gpus = self.count("gpu")
        gpu_resource = "amd.com/gpu" if self.text("gpu_name").startswith("radeon") else "nvidia.com/gpu"
        if gpus:
            capacity[gpu_resource] = Quantity(str(gpus))
        if len(self.problems) > before:
            return None
        allocatable = dict(capacity)
        for column, resource in _ALLOCATABLE.items():
            amount = self.quantity(column)
            if amount is None:
                continue
            if resource in capacity and amount > capacity[resource]:
                self.wrong(column, f"{amount} is more than the {capacity[resource]} there is")
            allocatable[resource] = amount
            capacity.setdefault(resource, amount)
        usable = self.quantity("alloc_gpu")
        if gpus and usable is not None:
            allocatable[gpu_resource] = usable
        prices = self.prices()
        if len(self.problems) > before:
            return None
        return InstanceType(name, arch, capacity, allocatable, prices)
