"""Instance types: capacity of a cloud's machines, what a managed Kubernetes leaves allocatable, and their prices; with
the result records of ``kscale catalogue``.

* ``eks``: the hypervisor takes 7.5 % of the memory (Karpenter's ``VM_MEMORY_OVERHEAD_PERCENT``) and 64 MiB on arm64;
  the kubelet reserves 255 MiB and 11 MiB for each pod of a node, and cpu by steps (bootstrap.sh of the EKS AMI).
* ``gke``: memory and cpu by steps (https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes).
* ``aks``: 20 MB for each pod and 50 MB, at most a quarter of the memory; cpu by a table
  (https://learn.microsoft.com/azure/aks/node-resource-reservations).

All three evict pods when less than 100 MiB of memory are left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import ClassVar

import msgspec

from kscale.capacity.machine_types import parse_type_name
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, NodeSpec, NodeStatus
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.records import Record

__all__ = [
    "DEFAULT_PODS",
    "Catalogue",
    "CatalogueFilter",
    "CatalogueList",
    "CatalogueSummary",
    "DamagedCatalogue",
    "InstanceType",
    "InstanceTypeList",
    "InstanceTypeRow",
    "Machine",
    "Overhead",
    "UnknownTypeError",
    "allocatable",
    "gpu_resource",
    "rows",
    "summary",
]


_MIB = 2**20
_EVICTION = 100 * _MIB


class Overhead(StrEnum):
    """The formula for the resources that a managed Kubernetes reserves on a node."""

    EKS = "eks"
    GKE = "gke"
    AKS = "aks"
    NONE = "none"


def allocatable(overhead: Overhead, cpu: int, memory: int, pods: int, arch: str) -> tuple[int, int]:
    """Return how much of a machine pods can use: (milli-cores, bytes rounded down to MiB), never negative.

    ``overhead``: the managed Kubernetes whose reservations are subtracted; for ``NONE`` the result is the capacity, not
    rounded. ``cpu`` (milli-cores), ``memory`` (bytes): capacity of the machine. ``pods``: maximum number of pods.
    ``arch``: such as ``arm64``.
    """
    match overhead:
        case Overhead.NONE:
            return cpu, memory
        case Overhead.EKS:
            usable = memory - (64 * _MIB if arch == "arm64" else 0)
            usable -= math.ceil(usable * 75 / 1000 / _MIB) * _MIB
            reserved_cpu, reserved = _steps_of_cpu(cpu), (255 + 11 * pods) * _MIB
        case Overhead.GKE:
            usable, reserved_cpu, reserved = memory, _steps_of_cpu(cpu), _steps_of_memory(memory)
        case Overhead.AKS:
            usable, reserved_cpu = memory, _table_of_cpu(cpu)
            reserved = min((20 * pods + 50) * 1_000_000, memory // 4)
    return max(0, cpu - reserved_cpu), max(0, usable - reserved - _EVICTION) // _MIB * _MIB


def _steps_of_cpu(cpu: int) -> int:
    """Return the milli-cores that EKS and GKE reserve of ``cpu`` milli-cores, rounded up.

    6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
    """
    remaining, reserved = cpu, 0
    for width, share in ((1_000, 600), (1_000, 100), (2_000, 50)):
        part = min(remaining, width)
        reserved += part * share
        remaining -= part
    return -(-(reserved + remaining * 25) // 10_000)


def _steps_of_memory(memory: int) -> int:
    """Return the bytes that GKE reserves of ``memory`` bytes.

    255 MiB below one GiB. Otherwise 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next
    112, and 2 % of the rest, rounded up.
    """
    gib = 1024 * _MIB
    if memory < gib:
        return 255 * _MIB
    remaining, reserved = memory, 0
    for width, share in ((4 * gib, 25), (4 * gib, 20), (8 * gib, 10), (112 * gib, 6)):
        part = min(remaining, width)
        reserved += part * share
        remaining -= part
    return -(-(reserved + remaining * 2) // 100)


def _table_of_cpu(cpu: int) -> int:
    """Return the milli-cores that AKS reserves on a node with ``cpu`` milli-cores.

    60, 100 and 120 with one, two and three cores; from four cores on 100 plus 10 per core. A part of a core counts as a
    core.
    """
    cores = -(-cpu // 1_000)
    return (60, 100, 120)[cores - 1] if 0 < cores < 4 else 100 + 10 * cores


DEFAULT_PODS = 110  # the kubelet's default of --max-pods


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One machine size.

    ``capacity`` and ``allocatable`` as in a node's status; ``prices`` and ``spot_prices`` per hour by region (spelled
    with ``_``); ``gpu_name`` as the provider spells it.
    """

    name: str
    arch: str
    """As ``kubernetes.io/arch`` has it."""
    capacity: Mapping[str, Quantity]
    allocatable: Mapping[str, Quantity]
    prices: Mapping[str, float] = field(default_factory=dict)
    spot_prices: Mapping[str, float] = field(default_factory=dict)
    gpu_name: str = ""

    def price(self, region: str = "", *, spot: bool = False) -> float | None:
        """Return the price per hour in a region; None if it is unknown.

        ``region`` is spelled with ``-`` or ``_``; empty: the type's first region. ``spot`` selects the spot price.
        """
        prices = self.spot_prices if spot else self.prices
        if not region:
            return next(iter(prices.values()), None)
        return prices.get(region.replace("-", "_"))

    def node(
        self, *, name: str = "", zone: str = "", region: str = "", labels: Mapping[str, str] | None = None
    ) -> Node:
        """Build a ready node of this type.

        The node has the labels that every cloud sets (those of ``zone`` and ``region`` if they are given) and
        ``labels``, which override them. Its name is ``name``, else that of the type.
        """
        node_name = name or self.name
        well_known = {
            "kubernetes.io/hostname": node_name,
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
            metadata=ObjectMeta(name=node_name, labels={**well_known, **(labels or {})}),
            spec=NodeSpec(),
            status=NodeStatus(
                capacity=dict(self.capacity),
                allocatable=dict(self.allocatable),
                conditions=[Condition(type="Ready", status="True")],
            ),
        )

    def template(self, *, zone: str = "", region: str = "", labels: Mapping[str, str] | None = None) -> NodeTemplate:
        """Build a template without pods from the node of :meth:`kscale.capacity.catalogue.InstanceType.node`."""
        return NodeTemplate(node=self.node(zone=zone, region=region, labels=labels))


class Catalogue(Mapping[str, InstanceType]):
    """Instance types by name. Access to an unknown name raises InputError that suggests a similar one."""

    def __init__(self, types: Mapping[str, InstanceType], source: str = "", left_out: Mapping[str, int] = {}) -> None:
        """Create a catalogue; ``left_out`` counts rows of the source that are not types, by reason."""
        self._types = dict(types)
        self.source = source
        self.left_out = dict(left_out)

    def __getitem__(self, name: str) -> InstanceType:
        """Return a type by name. Raises UnknownTypeError, which suggests a similar name, if there is none."""
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
        """Return the regions in which some type has a price, spelled with ``-``."""
        return list(
            dict.fromkeys(
                region.replace("_", "-")
                for kind in self._types.values()
                for region in (*kind.prices, *kind.spot_prices)
            )
        )

    def check_region(self, region: str) -> None:
        """Raise InputError if no type has a price in the region. An empty region is always valid."""
        if region and region.replace("_", "-") not in self.regions:
            text = f'no prices of region "{region}": there are {", ".join(self.regions) or "none"}'
            raise InputError(Problem(text, source=self.source))

    def select(
        self, patterns: Iterable[str], *, families: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> list[InstanceType]:
        """Return the chosen types, each once, in the order of patterns, then of the catalogue.

        Parameters
        ----------
        patterns : iterable of str
            Names of types. A name with ``*``, ``?`` or ``[`` is a pattern.
        families : iterable of str
            Only types of these families (:func:`~kscale.capacity.machine_types.parse_type_name`), names or patterns.
            Empty: all families.
        exclude : iterable of str
            Names or patterns of types to leave out.

        Raises
        ------
        InputError
            For a name, pattern or family that matches no type of the catalogue, and if no type is left.
        """
        selected: dict[str, InstanceType] = {}
        for pattern in patterns:
            for name in self._names_like(pattern):
                selected.setdefault(name, self._types[name])
        families = list(families)
        for family in families:
            if not any(fnmatchcase(parse_type_name(name).family, family) for name in self._types):
                raise UnknownTypeError(Problem(self._without_family(family), source=self.source))
        if families:
            selected = {
                name: kind
                for name, kind in selected.items()
                if any(fnmatchcase(parse_type_name(name).family, family) for family in families)
            }
        left_out = {name for pattern in exclude for name in self._names_like(pattern)}
        result = [kind for name, kind in selected.items() if name not in left_out]
        if selected and not result:
            raise InputError(Problem("every type is excluded", source=self.source))
        if not selected:
            raise InputError(Problem("no type has both the names and the families", source=self.source))
        return result

    def _names_like(self, pattern: str) -> list[str]:
        """Return the type names that a name or pattern matches. Raises UnknownTypeError if there is none."""
        if not any(sign in pattern for sign in "*?["):
            return [self[pattern].name]
        names = [name for name in self._types if fnmatchcase(name, pattern)]
        if not names:
            raise UnknownTypeError(Problem(f'no instance type like "{pattern}" in the catalogue', source=self.source))
        return names

    def _without_family(self, family: str) -> str:
        """Return the error message about a family that no type has; it suggests a similar one if there is one."""
        from difflib import get_close_matches

        families = sorted({parse_type_name(name).family for name in self._types} - {""})
        near = get_close_matches(family, families, n=1)
        return f'no family "{family}" in the catalogue' + (f"; did you mean {near[0]}?" if near else "")

    def __contains__(self, name: object) -> bool:
        return name in self._types  # without the search for similar names

    def __len__(self) -> int:
        return len(self._types)


class UnknownTypeError(InputError, KeyError):
    """An instance type that is not in the catalogue."""

    __str__ = InputError.__str__


@dataclass(frozen=True, slots=True)
class CatalogueFilter:
    """Overrides of a catalogue's reserved resources.

    ``overhead``: formula of the reserved resources (None = that of the provider whose format it is); ``max_pods`` of a
    node (None = as the provider says).
    """

    overhead: Overhead | None = None
    max_pods: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine in a provider's dump. ``pods``: maximum number on a node (None = the kubelet's default of 110)."""

    name: str
    arch: str
    cores: int
    memory_mib: int
    gpus: int = 0
    gpu_name: str = ""
    pods: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    spot_prices: Mapping[str, float] = field(default_factory=dict)

    def instance_type(self, catalogue_filter: CatalogueFilter, overhead: Overhead) -> InstanceType:
        """Convert the machine to an instance type.

        ``overhead``: the provider's formula of reserved resources; ``catalogue_filter`` may override it and the number
        of pods.
        """
        pods = (
            catalogue_filter.max_pods
            if catalogue_filter.max_pods is not None
            else DEFAULT_PODS
            if self.pods is None
            else self.pods
        )
        capacity = {
            "cpu": Quantity(str(self.cores)),
            "memory": Quantity(f"{self.memory_mib}Mi"),
            "pods": Quantity(str(pods)),
        }
        if self.gpus:
            capacity[gpu_resource(self.gpu_name)] = Quantity(str(self.gpus))
        formula = overhead if catalogue_filter.overhead is None else catalogue_filter.overhead
        cpu, memory = allocatable(formula, self.cores * 1000, self.memory_mib * 2**20, pods, self.arch)
        usable = {"cpu": Quantity(f"{cpu}m"), "memory": Quantity(f"{memory // 2**20}Mi")}
        return InstanceType(
            self.name,
            self.arch,
            capacity,
            capacity | usable if formula is not Overhead.NONE else capacity,
            dict(self.prices),
            dict(self.spot_prices),
            self.gpu_name,
        )


def gpu_resource(gpu_name: str) -> str:
    """Return the resource name of a GPU by the maker in its name: ``amd.com/gpu``, otherwise ``nvidia.com/gpu``."""
    return "amd.com/gpu" if gpu_name.lower().startswith(("radeon", "amd")) else "nvidia.com/gpu"


class Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Base of the parts of catalogue records."""


class CatalogueSummary(Part, frozen=True):
    """One imported catalogue.

    Attributes
    ----------
    name : str
        Name of the catalogue.
    types : int
        Number of instance types.
    priced : int
        Number of types with an on-demand price.
    spot : int
        Number of types with a spot price.
    regions : list of str
        Regions of the prices.
    file : str
        File of the catalogue.
    left_out : dict of str to int
        Number of entries of the source that are not types, by reason. For an imported catalogue: rows of its file that
        cannot be read.
    """

    name: str
    types: int
    priced: int
    spot: int
    regions: list[str]
    file: str
    left_out: dict[str, int] = {}


class DamagedCatalogue(Part, frozen=True):
    """An imported catalogue that cannot be read.

    Attributes
    ----------
    name : str
        Name of the catalogue.
    file : str
        File of the catalogue.
    problem : str
        The first reason why it cannot be read.
    """

    name: str
    file: str
    problem: str


class CatalogueList(Record, frozen=True):
    """The imported catalogues, by name.

    Attributes
    ----------
    catalogues : list of CatalogueSummary
        Catalogues that can be read.
    damaged : list of DamagedCatalogue
        Catalogues that cannot be read.
    """

    KIND: ClassVar[str] = "CatalogueList"
    ROWS: ClassVar[str] = "catalogues"
    catalogues: list[CatalogueSummary]
    damaged: list[DamagedCatalogue] = msgspec.field(default_factory=list)


class InstanceTypeRow(Part, frozen=True):
    """An instance type.

    Attributes
    ----------
    name : str
        Name of the type.
    arch : str
        CPU architecture, as in the label ``kubernetes.io/arch``.
    capacity : dict of str to str
        Capacity of a machine by resource, as quantities.
    allocatable : dict of str to str
        Amounts that pods can use by resource, as quantities: the capacity without what the managed Kubernetes reserves.
    gpu_name : str
        Name of the GPU, as the provider spells it. Empty: no GPU, or unknown.
    price : float or None
        On-demand price of a machine per hour. None: unknown.
    spot_price : float or None
        Spot price of a machine per hour. None: unknown.
    family : str
        Family according to the type's name, such as ``m5``. Empty: the name does not say.
    generation : int or None
        Generation according to the type's name, such as 5. None: the name does not say.
    """

    name: str
    arch: str
    capacity: dict[str, str]
    allocatable: dict[str, str]
    gpu_name: str
    price: float | None
    spot_price: float | None
    family: str = ""
    generation: int | None = None


class InstanceTypeList(Record, frozen=True):
    """Instance types of a catalogue.

    Attributes
    ----------
    catalogue : str
        Name or file of the catalogue.
    region : str
        Region of the prices. Empty: the first region of each type.
    types : list of InstanceTypeRow
        The types.
    """

    KIND: ClassVar[str] = "InstanceTypeList"
    ROWS: ClassVar[str] = "types"
    catalogue: str
    region: str
    types: list[InstanceTypeRow]


def summary(name: str, catalogue: Catalogue, file: str) -> CatalogueSummary:
    """Return numbers of types and prices, regions, and rows left out of a catalogue.

    ``name``, ``file``: of the catalogue.
    """
    return CatalogueSummary(
        name=name,
        types=len(catalogue),
        priced=sum(bool(kind.prices) for kind in catalogue.values()),
        spot=sum(bool(kind.spot_prices) for kind in catalogue.values()),
        regions=catalogue.regions,
        file=file,
        left_out=catalogue.left_out,
    )


def rows(kinds: list[InstanceType], region: str) -> list[InstanceTypeRow]:
    """Convert types to rows with their prices in ``region``; empty: in each type's first region."""
    return [
        InstanceTypeRow(
            name=kind.name,
            arch=kind.arch,
            capacity={name: str(amount) for name, amount in kind.capacity.items()},
            allocatable={name: str(amount) for name, amount in kind.allocatable.items()},
            gpu_name=kind.gpu_name,
            price=kind.price(region),
            spot_price=kind.price(region, spot=True),
            family=parse_type_name(kind.name).family,
            generation=parse_type_name(kind.name).generation,
        )
        for kind in kinds
    ]
