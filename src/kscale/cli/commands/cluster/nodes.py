"""``kscale nodes``: how full each node is, and which pods keep it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns, share_cell
from kscale.cli.pictures import node_usage_blocks
from kscale.cli.scale_down_options import EvictionFlags, Moment
from kscale.cli.terminal import plural, pods

if TYPE_CHECKING:
    from kscale.capacity.node_usage import NodeUsage, NodeUsageReport, ResourceUse

__all__ = ["EPILOG", "Order", "command", "nodes_view"]

EPILOG = DUMP_HELP
MATTER = ("PodDisruptionBudget",)
SHOWN = 15


class Order(StrEnum):
    """What the nodes are sorted by."""

    REQUESTS = "requests"
    CPU = "cpu"
    MEMORY = "memory"
    USAGE = "usage"
    PODS = "pods"
    PRICE = "price"
    NAME = "name"


def command(
    *,
    source: Clusters,
    group_source: GroupSource,
    moment: Moment,
    flags: EvictionFlags,
    sort: Order = Order.REQUESTS,
    show: Show,
) -> Answer:
    """How full is each node by requests, limits and usage, and which pods keep it from being removed?

    Usage is shown where the dump has NodeMetrics or PodMetrics (kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes).
    Each node is judged as if no other was removed, by the drain rules of the Cluster Autoscaler, the annotation
    karpenter.sh/do-not-disrupt and the disruption budgets. kscale consolidate removes several nodes together.

    Parameters
    ----------
    sort
        The order of the nodes, highest first (names in ascending order); requests: the greater share of cpu and memory.

    Raises
    ------
    InputError
        If the input, the node groups or the catalogue cannot be read.
    """
    from kscale.capacity.cost import set_prices
    from kscale.capacity.node_usage import node_usage

    now, options = moment.moment(), flags.options()
    cluster, snapshot = read(source, show.terminal, matter=MATTER)
    catalogue = group_source.read_catalogue(show.terminal)
    groups = set_prices(group_source.groups(cluster, snapshot, show.terminal, untyped=Untyped.PRICES), catalogue)
    with show.terminal.step("checking nodes"):
        report = node_usage(cluster, groups, catalogue, now=now, options=options, threads=source.threads)
    return Answer(report, lambda: nodes_view(report, sort), blocks=lambda: node_usage_blocks(report, snapshot))


def nodes_view(report: NodeUsageReport, sort: Order = Order.REQUESTS) -> View:
    """Build the view of the nodes, in the order ``sort``, and their totals."""
    totals = report.totals
    nodes = _sort(report.nodes, sort)
    measured = totals.measured > 0
    columns = [
        Column("NODE"),
        Column("GROUP", wide=True),
        Column("PODS", "right"),
        *_COLUMNS[:2],
        *(_USED[:1] if measured else ()),
        *_COLUMNS[2:],
        *(_USED[1:] if measured else ()),
        Column("OTHERS", wide=not totals.others),
        Column("$/H", "right"),
        Column("REMOVABLE"),
        Column("WHY NOT"),
    ]
    rows: list[Row] = [
        [
            row.node,
            row.group,
            row.pods,
            *_shares(row.cpu, measured),
            *_shares(row.memory, measured),
            ", ".join(f"{name} {use.requests:,}/{use.allocatable:,}" for name, use in row.others.items()),
            None if row.price is None else Cell(f"{row.price:,.4g}", value=row.price),
            Cell("yes", "good") if row.removable else "no",
            _format_holds(row),
        ]
        for row in nodes
    ]
    footer = []
    if any(row.cpu.unlimited or row.memory.unlimited for row in nodes):
        footer.append(
            f"Limits are sums of the limits that are set: {pods(totals.cpu.unlimited)} without a limit of cpu, "
            f"{totals.memory.unlimited:,} without one of memory."
        )
    if totals.unpriced and totals.unpriced < totals.nodes:
        footer.append(f"{totals.unpriced:,} {plural('node', totals.unpriced)} without a known price.")
    if report.pending_count:
        footer.append(f"{pods(report.pending_count)} pending, on no node.")
    return View(
        headline=_headline(report),
        tables=[Table(columns, rows, limit=SHOWN)],
        footer=footer,
        names=[f"node/{row.node}" for row in nodes],
    )


_COLUMNS = make_columns("CPU", "CPU LIMIT", "MEMORY", "MEMORY LIMIT", align="right")
_USED = make_columns("CPU USED", "MEMORY USED", align="right")


def _headline(report: NodeUsageReport) -> str:
    """Return a sentence with the requested and used shares of all nodes."""
    totals = report.totals
    if not totals.nodes:
        return "The input has no nodes."
    parts = [f"{_percent(totals.cpu)} of cpu and {_percent(totals.memory)} of memory requested"]
    if totals.measured:
        of = "" if totals.measured == totals.nodes else f" of {totals.measured:,} measured nodes"
        used = f"{totals.cpu.usage or 0:,}m cpu and {(totals.memory.usage or 0) / 2**30:,.1f}Gi{of}"
        parts.append(f"{used} used")
    if totals.unpriced < totals.nodes:
        parts.append(f"${totals.price:,.2f}/h")
    nodes = f"{totals.nodes:,} {plural('node', totals.nodes)}, {pods(totals.pods)}"
    return f"{nodes}: {', '.join(parts)}. {totals.removable:,} could be removed, each alone."


def _percent(use: ResourceUse) -> str:
    """Format the requested share of a resource as a percentage; ``-`` if nothing is allocatable."""
    return f"{use.requests / use.allocatable:.0%}" if use.allocatable > 0 else "-"


def _shares(use: ResourceUse, measured: bool) -> list[Cell]:
    """Return the cells with requests, limits and (if ``measured``) usage as shares of what is allocatable."""
    amounts = [use.requests, use.limits, *([use.usage] if measured else [])]
    return [
        share_cell(None if amount is None or use.allocatable <= 0 else amount / use.allocatable) for amount in amounts
    ]


def _format_holds(row: NodeUsage) -> str:
    """Return what keeps the node, and how many more pods do."""
    more = len(row.held_by) - 1
    return row.why if more < 1 or row.why != row.held_by[0].why else f"{row.why} (and {pods(more)} more)"


def _sort(nodes: list[NodeUsage], sort: Order) -> list[NodeUsage]:
    """Return the nodes in the order that ``--sort`` names. The report is in the order of requests already."""

    def share(use: ResourceUse, amount: int | None) -> float:
        """Return the share of an amount; -1 if it is not known, 0 if nothing is allocatable."""
        return -1.0 if amount is None else amount / use.allocatable if use.allocatable > 0 else 0.0

    match sort:
        case Order.REQUESTS:
            return nodes
        case Order.NAME:
            return sorted(nodes, key=lambda row: row.node)
        case Order.CPU:
            return sorted(nodes, key=lambda row: (-share(row.cpu, row.cpu.requests), row.node))
        case Order.MEMORY:
            return sorted(nodes, key=lambda row: (-share(row.memory, row.memory.requests), row.node))
        case Order.USAGE:
            return sorted(
                nodes,
                key=lambda row: (-max(share(use, use.usage) for use in (row.cpu, row.memory)), row.node),
            )
        case Order.PODS:
            return sorted(nodes, key=lambda row: (-row.pods, row.node))
        case Order.PRICE:
            return sorted(nodes, key=lambda row: (row.price is None, -(row.price or 0.0), row.node))
