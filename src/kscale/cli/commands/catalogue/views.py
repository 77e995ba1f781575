"""Tables of catalogues."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.capacity.catalogue.records import CatalogueSummary, DamagedCatalogue
from kscale.cli.output import Column, Table

__all__ = ["catalogue_table", "damaged_table"]

_COLUMNS = (
    Column("CATALOGUE"),
    Column("TYPES", "right"),
    Column("PRICED", "right"),
    Column("SPOT", "right"),
    Column("REGIONS"),
    Column("FILE", wide=True),
)


def catalogue_table(catalogues: Sequence[CatalogueSummary]) -> Table:
    """A row for each."""
    rows: list[list[str | float]] = [
        [one.name, one.types, one.priced, one.spot, ", ".join(one.regions), one.file] for one in catalogues
    ]
    return Table(_COLUMNS, rows)


def damaged_table(damaged: Sequence[DamagedCatalogue]) -> Table:
    """Build a row for each catalogue that cannot be read."""
    return Table((Column("CANNOT BE READ"), Column("BECAUSE")), [[one.name, one.problem] for one in damaged])
