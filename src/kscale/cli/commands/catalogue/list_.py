"""``kscale catalogue list``: the catalogues that were imported."""

from __future__ import annotations

from kscale.cli.catalogues import warn_of_left_out
from kscale.cli.commands.catalogue.views import catalogue_table, damaged_table
from kscale.cli.output import Answer, Show, View
from kscale.cli.words import program
from kscale.errors import InputError

__all__ = ["command"]


def command(*, show: Show) -> Answer:
    """The imported catalogues: how many types, how many with prices, where.

    A catalogue that cannot be read is named with the reason; the others are listed.
    """
    from kscale.capacity.catalogue import known_catalogues, path_of, read_catalogue
    from kscale.capacity.catalogue.records import CatalogueList, DamagedCatalogue, summary

    found, damaged = [], []
    for name in known_catalogues():
        path = path_of(name)
        try:
            catalogue = read_catalogue(path)
        except InputError as error:
            damaged.append(DamagedCatalogue(name=name, file=str(path), problem=str(error.problems[0])))
            show.terminal.warn(f"catalogue {name} cannot be read: {error.problems[0]}")
            continue
        warn_of_left_out(catalogue, show.terminal)
        found.append(summary(name, catalogue, str(path)))
    text = f"{len(found):,} {'catalogue is' if len(found) == 1 else 'catalogues are'} imported"
    view = View(
        headline=f"{text}; {len(damaged):,} cannot be read." if damaged else f"{text}.",
        tables=[catalogue_table(found), damaged_table(damaged)],
        footer=[] if found or damaged else [f"{program()} catalogue import FILE keeps one."],
        names=[f"catalogue/{one.name}" for one in found],
    )
    return Answer(CatalogueList(catalogues=found, damaged=damaged), lambda: view)
