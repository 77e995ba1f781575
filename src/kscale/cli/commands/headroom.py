"""``kscale headroom``: how many more of a pod fit, and what losing a node or a zone would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.inputs import DUMP_HELP, Dump, manifests, read
from kscale.cli.output import Answer, Column, Show, Table, View
from kscale.cli.words import object_name, on_nodes, pods

if TYPE_CHECKING:
    from kscale.capacity.headroom import HeadroomReport, Loss

__all__ = ["EPILOG", "command", "headroom_view"]

EPILOG = DUMP_HELP
MATTER = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")


def command(
    *,
    source: Dump,
    pod: Annotated[
        str | None, typer.Option("--pod", metavar="MANIFEST", help="A file whose first Pod, Deployment, ... is asked.")
    ] = None,
    zone_label: Annotated[
        str, typer.Option("--zone-label", metavar="KEY", help="The node label that names the zone.")
    ] = "topology.kubernetes.io/zone",
    show: Show,
) -> Answer:
    """How many more of a pod fit, and does everything still fit without any one node, or any one zone?

    The pods of what is lost look for a place on the other nodes, highest priority first; nothing is evicted for them.
    Status 1 if some loss would leave a pod without a place.
    """
    from kscale.capacity.headroom import headroom
    from kscale.objects.workloads import pods_of

    asked = None if pod is None else next(iter(pods_of(manifests([pod], source)[0])), None)
    _, snapshot = read(source, show.terminal, matter=MATTER)
    with show.terminal.step("placing"):
        report = headroom(snapshot, asked, zone_label=zone_label)
    homeless = any(loss.homeless for loss in (*report.nodes, *report.zones))
    return Answer(report, lambda: headroom_view(report), exit_code=1 if homeless else 0)


def headroom_view(report: HeadroomReport) -> View:
    """Losses that leave pods without a place, the worst first."""
    bad_nodes = [loss for loss in report.nodes if loss.homeless]
    parts = [] if report.more is None else [f"{report.more:,} more fit."]
    parts.append(f"Losing any one node: {_sentence(bad_nodes, report.nodes)}.")
    if report.zones:
        parts.append(f"Losing any one zone: {_sentence([z for z in report.zones if z.homeless], report.zones)}.")
    tables = [
        Table(_COLUMNS, [[kind, item.name, item.pods, item.homeless, ", ".join(item.first)] for item in bad], limit=20)
        for kind, losses in (("zone", report.zones), ("node", report.nodes))
        if (bad := sorted((loss for loss in losses if loss.homeless), key=lambda loss: -loss.homeless))
    ]
    footer = []
    if report.placement:
        footer.append(f"They land on {on_nodes(report.placement)}.")
    if report.next_event:
        footer.append(f"The next one does not fit: {report.next_event}")
    return View(
        headline=" ".join(parts),
        tables=tables,
        footer=footer,
        names=[object_name("node", None, loss.name) for loss in bad_nodes],
    )


_COLUMNS = (
    Column("LOSS OF"),
    Column("NAME"),
    Column("PODS", "right"),
    Column("HOMELESS", "right"),
    Column("AMONG THEM"),
)


def _sentence(bad: list[Loss], every: list[Loss]) -> str:
    if not bad:
        return "all fit again"
    if len(bad) == 1:
        return f"all fit again except with {bad[0].name} ({pods(bad[0].homeless)} homeless)"
    return f"{len(bad):,} of {len(every):,} leave pods homeless"
