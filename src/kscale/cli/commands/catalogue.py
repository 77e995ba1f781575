"""``kscale catalogue list``, ``kscale catalogue show`` and ``kscale catalogue import``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.capacity.catalogue.types import CatalogueSummary, DamagedCatalogue, Overhead
from kscale.cli.groups import catalogue_of, warn_of_left_out
from kscale.cli.output import Answer, Column, Show, Table, View, make_columns
from kscale.cli.terminal import program
from kscale.errors import InputError

if TYPE_CHECKING:
    from kscale.capacity.catalogue import Catalogue
    from kscale.capacity.catalogue.types import InstanceTypeList

__all__ = ["EPILOG", "catalogue_table", "damaged_table", "import_catalogue", "list_catalogues", "show_catalogue"]

_COLUMNS = (
    Column("CATALOGUE"),
    *make_columns("TYPES", "PRICED", "SPOT", align="right"),
    Column("REGIONS"),
    Column("FILE", wide=True),
)


def catalogue_table(catalogues: Sequence[CatalogueSummary]) -> Table:
    """Build a table with one row per catalogue."""
    rows: list[list[str | float]] = [
        [one.name, one.types, one.priced, one.spot, ", ".join(one.regions), one.file] for one in catalogues
    ]
    return Table(_COLUMNS, rows)


def damaged_table(damaged: Sequence[DamagedCatalogue]) -> Table:
    """Build a table with one row for each catalogue that cannot be read."""
    return Table((Column("CANNOT BE READ"), Column("BECAUSE")), [[one.name, one.problem] for one in damaged])


def list_catalogues(*, show: Show) -> Answer:
    """The imported catalogues: how many types, how many with prices, where.

    A catalogue that cannot be read is named with the reason; the others are listed.
    """
    from kscale.capacity.catalogue import list_catalogues, path_of, read_catalogue
    from kscale.capacity.catalogue.types import CatalogueList, DamagedCatalogue, summary

    summaries, damaged = [], []
    for name in list_catalogues():
        path = path_of(name)
        try:
            catalogue = read_catalogue(path)
        except InputError as error:
            damaged.append(DamagedCatalogue(name=name, file=str(path), problem=str(error.problems[0])))
            show.terminal.warn(f"catalogue {name} cannot be read: {error.problems[0]}")
            continue
        warn_of_left_out(catalogue, show.terminal)
        summaries.append(summary(name, catalogue, str(path)))
    text = f"{len(summaries):,} {'catalogue is' if len(summaries) == 1 else 'catalogues are'} imported"
    view = View(
        headline=f"{text}; {len(damaged):,} cannot be read." if damaged else f"{text}.",
        tables=[catalogue_table(summaries), damaged_table(damaged)],
        footer=[] if summaries or damaged else [f"{program()} catalogue import FILE keeps one."],
        names=[f"catalogue/{one.name}" for one in summaries],
    )
    return Answer(CatalogueList(catalogues=summaries, damaged=damaged), lambda: view)


def show_catalogue(
    catalogue: str,
    *,
    instance_type: list[str] | None = None,
    family: list[str] | None = None,
    exclude: list[str] | None = None,
    region: str = "",
    show: Show,
) -> Answer:
    """The instance types of a catalogue: capacity, amounts for pods, and prices per hour.

    Parameters
    ----------
    catalogue : NAME|FILE
        An imported catalogue, or a file.
    instance_type : NAME|GLOB
        Show only these instance types; 'm5*': all types that begin with m5. Repeatable.
    family : NAME|GLOB
        Show only instance types of this family, such as m5, Dsv5, n2-standard or 'c*'. Repeatable.
    exclude : NAME|GLOB
        Leave out instance types with this name or pattern. Repeatable.
    region
        Region whose prices are shown; the default is the first that a type has.

    Raises
    ------
    InputError
        If the catalogue cannot be read, or has no price in the region.
    """
    from kscale.capacity.catalogue.types import InstanceTypeList, rows

    types = catalogue_of(catalogue, show.terminal)
    types.check_region(region)
    chosen = types.select(instance_type or ["*"], families=family or (), exclude=exclude or ())
    report = InstanceTypeList(catalogue=types.source, region=region, types=rows(chosen, region))
    return Answer(report, lambda: _view(report))


_TYPE_COLUMNS = (
    *make_columns("TYPE", "ARCH"),
    Column("FAMILY", wide=True),
    Column("GEN", "right"),
    *make_columns("CPU", "MEMORY", "PODS", "FOR PODS: CPU", "FOR PODS: MEMORY", align="right"),
    Column("GPUS"),
    *make_columns("$/H", "SPOT $/H", align="right"),
)


def _view(report: InstanceTypeList) -> View:
    """Build the view of a catalogue: one row per instance type."""
    return View(
        headline=f"{len(report.types):,} {'type' if len(report.types) == 1 else 'types'} of {report.catalogue}.",
        tables=[
            Table(
                _TYPE_COLUMNS,
                [
                    [
                        each.name,
                        each.arch,
                        each.family or None,
                        each.generation,
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


EPILOG = """What can be read, as it is or .gz:

\b
aws ec2 describe-instance-types --output json
az vm list-skus --resource-type virtualMachines --location eastus --all -o json
gcloud compute machine-types list --format json
a JSON list of Karpenter's instance types, with offerings
a CSV of instance_type, arch, vcpu, memory_mib, gpu and more (docs/catalogues.md)
a CSV of Google's prices: table, key, value

Prices (--prices): a CSV of instance_type, region, usd_per_hour, spot_usd_per_hour; the JSON of Azure's retail prices;
or anything of the above that has prices."""


class LiveCloud(StrEnum):
    """Clouds whose machines can be read from a live account."""

    AWS = "aws"


def import_catalogue(
    file: str | None = None,
    *,
    live: LiveCloud | None = None,
    region: str | None = None,
    name: str | None = None,
    prices: list[str] | None = None,
    overhead: Overhead | None = None,
    max_pods: Annotated[int | None, typer.Option(min=1)] = None,
    show: Show,
) -> Answer:
    """Import the machine types of a cloud under a name, for --catalogue NAME of other commands.

    It is written to the user's data directory ($XDG_DATA_HOME/kscale, else ~/.local/share/kscale) and replaces an
    earlier one of that name. Nothing is fetched from the network, unless --live is set.

    Parameters
    ----------
    file : FILE
        The machines of a cloud, in one of the forms below.
    live
        Read the machines of a live account instead of FILE, with boto3's credentials.
    region
        Region of --live; the default is that of the environment.
    name
        Name of the imported catalogue; the default is the file's name, or that of the cloud.
    prices : FILE
        File with prices that replace those in FILE. Repeatable.
    overhead
        Formula of a managed Kubernetes for the part of each machine that pods cannot use, where FILE does not say
        it. The default is that of the cloud whose form FILE has.
    max_pods
        Maximum number of pods on each node, instead of what FILE says.

    Raises
    ------
    typer.BadParameter
        If FILE and --live are both missing or both given, or --region has no effect.
    InputError
        If the source or the prices cannot be read.
    """
    from kscale.capacity.catalogue import read_prices, store_catalogue
    from kscale.capacity.catalogue.types import CatalogueList, summary

    if (file is None) == (live is None):
        raise typer.BadParameter("either FILE or --live is needed", param_hint="FILE")
    if region is not None and live is None:
        raise typer.BadParameter("it has an effect only with --live", param_hint="--region")
    catalogue = _read(file, region, overhead, max_pods)
    for each in prices or []:
        catalogue = read_prices(each).onto(catalogue)
    path = Path(file or str(live))
    catalogue_name = name or path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    written = store_catalogue(catalogue, catalogue_name)
    imported = summary(catalogue_name, catalogue, str(written))
    warn_of_left_out(catalogue, show.terminal)
    view = View(
        headline=f"Kept {imported.types:,} types as {catalogue_name}: {imported.priced:,} have a price, "
        f"{imported.spot:,} one of spot.",
        tables=[catalogue_table([imported])],
        names=[f"catalogue/{catalogue_name}"],
    )
    return Answer(CatalogueList(catalogues=[imported]), lambda: view)


def _read(file: str | None, region: str | None, overhead: Overhead | None, max_pods: int | None) -> Catalogue:
    """Read a catalogue of instance types from ``file``, or without one from AWS; ``region`` counts only then.

    ``overhead``: resources reserved on each node; ``max_pods``: pods per node (None: as the source says). Raises
    InputError if the source cannot be read.
    """
    from kscale.capacity.catalogue import read_catalogue

    if file is not None:
        return read_catalogue(file, overhead=overhead, max_pods=max_pods)
    from kscale.capacity.catalogue.formats import read_dump
    from kscale.capacity.catalogue.types import CatalogueFilter
    from kscale.cli.aws import describe_instance_types

    data, region = describe_instance_types(region or "")
    return read_dump(data, f"aws {region}", CatalogueFilter(overhead, max_pods))
