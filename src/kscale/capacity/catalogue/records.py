"""What ``kscale catalogue`` answers with."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kscale.capacity.catalogue.types import Catalogue, InstanceType
from kscale.records import Record

__all__ = [
    "CatalogueList",
    "CatalogueSummary",
    "DamagedCatalogue",
    "InstanceTypeList",
    "InstanceTypeRow",
    "rows",
    "summary",
]


class Part(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Base of what the records consist of."""


class CatalogueSummary(Part, frozen=True):
    """One catalogue: how many ``types``, how many of them have a price on demand and as spot, in which regions.
    ``leftOut``: entries of the source that are no types, by the reason. Of an imported catalogue these are the rows of
    its file that cannot be read."""

    name: str
    types: int
    priced: int
    spot: int
    regions: list[str]
    file: str
    left_out: dict[str, int] = {}


class DamagedCatalogue(Part, frozen=True):
    """An imported catalogue of which nothing can be read; ``problem``: the first reason."""

    name: str
    file: str
    problem: str


class CatalogueList(Record, frozen=True):
    """The imported catalogues, by name; ``damaged``: those that cannot be read."""

    KIND: ClassVar[str] = "CatalogueList"
    catalogues: list[CatalogueSummary]
    damaged: list[DamagedCatalogue] = msgspec.field(default_factory=list)


class InstanceTypeRow(Part, frozen=True):
    """A machine: ``capacity`` and ``allocatable`` as quantities, ``price`` and ``spotPrice`` of an hour."""

    name: str
    arch: str
    capacity: dict[str, str]
    allocatable: dict[str, str]
    gpu_name: str
    price: float | None
    spot_price: float | None


class InstanceTypeList(Record, frozen=True):
    """Types of a catalogue; prices are those of ``region`` (empty: the first that a type has)."""

    KIND: ClassVar[str] = "InstanceTypeList"
    catalogue: str
    region: str
    types: list[InstanceTypeRow]


def summary(name: str, catalogue: Catalogue, file: str) -> CatalogueSummary:
    """The catalogue in numbers."""
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
    """The types as rows, with prices of a region."""
    return [
        InstanceTypeRow(
            name=kind.name,
            arch=kind.arch,
            capacity={name: str(amount) for name, amount in kind.capacity.items()},
            allocatable={name: str(amount) for name, amount in kind.allocatable.items()},
            gpu_name=kind.gpu_name,
            price=kind.price(region),
            spot_price=kind.price(region, spot=True),
        )
        for kind in kinds
    ]
