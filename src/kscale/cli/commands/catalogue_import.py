"""``kscale catalogue import``: store a catalogue under a name."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.capacity.catalogue.types import Overhead
from kscale.cli.commands.catalogue import catalogue_table
from kscale.cli.groups import warn_of_left_out
from kscale.cli.output import Answer, Show, View

if TYPE_CHECKING:
    from kscale.capacity.catalogue import Catalogue

__all__ = ["EPILOG", "import_catalogue"]

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
    """Keep the machines of a cloud under a name: --catalogue NAME means them from now on.

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
    """
    from kscale.capacity.catalogue import read_prices, store_catalogue
    from kscale.capacity.catalogue.types import CatalogueList, summary

    if (file is None) == (live is None):
        raise typer.BadParameter("either FILE or --live is needed", param_hint="FILE")
    if region is not None and live is None:
        raise typer.BadParameter("it is of use with --live only", param_hint="--region")
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
    """Read a catalogue from a file, or from a live account without one. Raises InputError."""
    from kscale.capacity.catalogue import read_catalogue

    if file is not None:
        return read_catalogue(file, overhead=overhead, max_pods=max_pods)
    from kscale.capacity.catalogue.formats import read_dump
    from kscale.capacity.catalogue.types import CatalogueFilter
    from kscale.cli.aws import describe_instance_types

    data, region = describe_instance_types(region or "")
    return read_dump(data, f"aws {region}", CatalogueFilter(overhead, max_pods))
