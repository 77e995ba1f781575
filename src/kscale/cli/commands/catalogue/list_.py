"""``kscale catalogue list``: the catalogues that were imported."""

from __future__ import annotations

from kscale.cli.commands.catalogue.views import catalogue_table
from kscale.cli.output import Answer, Show, View
from kscale.cli.words import program

__all__ = ["command"]


def command(*, show: Show) -> Answer:  # noqa: ARG001  # every command has it: -o
    """The imported catalogues: how many types, how many with prices, where."""
    from kscale.capacity.catalogue import known_catalogues, path_of, read_catalogue
    from kscale.capacity.catalogue.records import CatalogueList, summary

    paths = {name: path_of(name) for name in known_catalogues()}
    found = [summary(name, read_catalogue(path), str(path)) for name, path in paths.items()]
    view = View(
        headline=f"{len(found):,} {'catalogue is' if len(found) == 1 else 'catalogues are'} imported.",
        tables=[catalogue_table(found)],
        footer=[] if found else [f"{program()} catalogue import FILE keeps one."],
        names=[f"catalogue/{one.name}" for one in found],
    )
    return Answer(CatalogueList(catalogues=found), lambda: view)
