"""``kscale cost``: what a cluster costs an hour, who asked for it, and what it could cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kscale.cli.commands.mix import check_budget
from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.terminal import plural, pods

if TYPE_CHECKING:
    from kscale.capacity.cost import CostReport, CostShare

__all__ = ["EPILOG", "command", "cost_view"]

EPILOG = DUMP_HELP
SHOWN = 15


def command(
    *,
    source: Clusters,
    group_source: GroupSource,
    budget: Annotated[float, typer.Option(min=0)] = 2.0,
    show: Show,
) -> Answer:
    """What the nodes cost an hour, by namespace and workload, and how much of it nobody asked for.

    Prices are those of the node groups (-g), else of the nodes' instance types in the --catalogue. Beside it stands the
    cheapest mix of these groups, or of the --instance-type given, for the same pods.

    Parameters
    ----------
    budget : SECONDS
        Time limit of the search for the cheapest mix of nodes for the same pods; 0 leaves it out.
    """
    import time

    from kscale.capacity.cost import cost, ideal_mix, set_prices
    from kscale.capacity.mix import MixOptions

    check_budget(budget)
    cluster, snapshot = read(source, show.terminal)
    catalogue = group_source.read_catalogue(show.terminal)
    groups = set_prices(group_source.groups(cluster, snapshot, show.terminal, untyped=Untyped.PRICES), catalogue)
    with show.terminal.step("adding up"):
        report = cost(cluster, groups, catalogue)
    if report.unpriced:
        show.terminal.warn(f"{report.unpriced:,} {plural('node', report.unpriced)} without a known price, left out")
    offers = [group for group in groups if group.price is not None]
    if budget and offers and report.pods:
        end = time.monotonic() + budget
        stop = (lambda: time.monotonic() >= end - budget / 2, lambda: time.monotonic() >= end)
        options = MixOptions(bound_effort=None, plan_effort=None)
        with show.terminal.step("looking for the cheapest mix"):
            ideal = ideal_mix(cluster, offers, groups=groups, catalogue=catalogue, options=options, stop=stop)
        report = msgspec.structs.replace(report, ideal=ideal)
    return Answer(report, lambda: cost_view(report))


_NAMESPACES = (
    Column("NAMESPACE"),
    *make_columns("$/H", "SHARE", "PODS", "CPU", "MEMORY", align="right"),
    Column("DEAREST WORKLOAD"),
)
_WORKLOADS = (Column("WORKLOAD"), *_NAMESPACES[1:6])
_POOLS = (Column("NODE GROUP"), *make_columns("NODES", "$/H", "IDLE", align="right"))


def cost_view(report: CostReport) -> View:
    """Build the view of a cost report: the total, then namespaces, workloads and node groups."""
    nodes = report.node_count - report.unpriced
    split = f"${report.requested:,.2f} requested, ${report.idle:,.2f} idle"
    parts = [f"${report.cost:,.2f}/h for {nodes:,} nodes: {split}."]
    if report.ideal is not None:
        ideal = report.ideal
        parts.append(f"The cheapest mix found for the same pods: ${ideal.cost:,.2f}/h, {ideal.node_count:,} nodes")
        if ideal.bound is not None:
            parts[-1] += f" (at least ${ideal.bound:,.2f})"
        parts[-1] += (
            "."
            if not ideal.unschedulable_count
            else f", without {pods(ideal.unschedulable_count)} that fit on none of these types."
        )
    pools: list[Row] = [
        [
            line.name or "(none)",
            line.nodes,
            Cell(f"{line.cost:,.2f}", value=line.cost),
            Cell(f"{line.idle / line.cost if line.cost else 0:.0%}", value=line.idle),
        ]
        for line in report.pools
    ]
    return View(
        headline=" ".join(parts),
        tables=[
            Table(_NAMESPACES, [[*_row(line), line.biggest] for line in report.namespaces], limit=40),
            Table(_WORKLOADS, [_row(line) for line in report.workloads], title="Workloads", limit=SHOWN),
            Table(_POOLS, pools, title="Node groups"),
        ],
        names=[f"namespace/{line.name}" for line in report.namespaces],
    )


def _row(line: CostShare) -> Row:
    return [
        line.name,
        Cell(f"{line.cost:,.3f}", value=line.cost),
        Cell(f"{line.share:.1%}", value=line.share),
        line.pods,
        Cell(f"{line.cpu / 1000:,.1f}", value=line.cpu),
        Cell(f"{line.memory / 2**30:,.1f}Gi", value=line.memory),
    ]
