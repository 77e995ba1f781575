"""``kscale catalogue show``: the types of a catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.catalogues import catalogue_of
from kscale.cli.output import Answer, Column, Show, Table, View

if TYPE_CHECKING:
    from kscale.capacity.catalogue.records import InstanceTypeList

__all__ = ["command"]


def command(
    catalogue: Annotated[str, typer.Argument(metavar="NAME|FILE", help="An imported catalogue, or a file.")],
    *,
    instance_type: Annotated[
        list[str] | None,
        typer.Option(
            "--instance-type",
            metavar="NAME|GLOB",
            help="Show only these instance types: 'm5*' is all that begin so. Repeatable.",
        ),
    ] = None,
    region: Annotated[
        str, typer.Option("--region", help="Region whose prices are shown; the default is the first that a type has.")
    ] = "",
    show: Show,
) -> Answer:
    """The types of a catalogue: what each has, what it leaves for pods, and what an hour costs."""
    from kscale.capacity.catalogue.records import InstanceTypeList, rows

    types = catalogue_of(catalogue, show.terminal)
    types.check_region(region)
    chosen = types.select(instance_type) if instance_type else list(types.values())
    report = InstanceTypeList(catalogue=types.source, region=region, types=rows(chosen, region))
    return Answer(report, lambda: _view(report))


_COLUMNS = (
    Column("TYPE"),
    Column("ARCH"),
    Column("CPU", "right"),
    Column("MEMORY", "right"),
    Column("PODS", "right"),
    Column("FOR PODS: CPU", "right"),
    Column("FOR PODS: MEMORY", "right"),
    Column("GPUS"),
    Column("$/H", "right"),
    Column("SPOT $/H", "right"),
)


def _view(report: InstanceTypeList) -> View:
    return View(
        headline=f"{len(report.types):,} {'type' if len(report.types) == 1 else 'types'} of {report.catalogue}.",
        tables=[
            Table(
                _COLUMNS,
                [
                    [
                        each.name,
                        each.arch,
                        each.capacity["cpu"],
                        each.capacity["memory"],
                        each.allocatable["pods"],
                        each.allocatable["cpu"],
                        each.allocatable["memory"],
                        ", ".join(
                            f"{amount} {each.gpu_name or name}"
                            for name, amount in each.capacity.items()
                            if name.endswith("/gpu")
                        ),
                        None if each.price is None else f"{each.price:.4g}",
                        None if each.spot_price is None else f"{each.spot_price:.4g}",
                    ]
                    for each in report.types
                ],
                limit=40,
            )
        ],
        names=[f"instancetype/{each.name}" for each in report.types],
    )
