"""``kscale cost``: what a cluster costs per hour, what requests it, and what it could cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kscale.capacity.cost_allocation import IdleRule
from kscale.cli.commands.mix import check_budget
from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.options import OptionGroup, option_errors
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.pictures import cost_blocks
from kscale.cli.prometheus_options import UsageFlags
from kscale.cli.recommend_options import UsageHistory
from kscale.cli.terminal import plural, pods
from kscale.objects.go_numbers import parse_float

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kscale.capacity.catalogue import Catalogue
    from kscale.capacity.cost import AllocatedCost, CostAllocation, CostReport, CostShare
    from kscale.capacity.cost_allocation import PodUsage
    from kscale.cli.terminal import Terminal
    from kscale.objects.nodegroup import NodeGroup
    from kscale.series.usage_reader import UsageBatch
    from kscale.snapshot.cluster import Cluster

__all__ = ["EPILOG", "AllocationOptions", "command", "cost_view"]

EPILOG = DUMP_HELP
SHOWN = 15
_HOUR = 3600 * 10**9


@dataclass
class AllocationOptions(OptionGroup):
    """Options for the division of the cost among teams.

    Attributes
    ----------
    by : KEY
        Divide the cost by namespace (the default), workload, controller, label:KEY or annotation:KEY.
    idle
        Cost of capacity that no pod requests: divided in proportion (proportional, the default), a line of its own
        (separate), or left out (none).
    window : DURATION
        Length of time whose cost is shown, such as 24h or 30d (default 1h). Usage is its average in this time.
    storage_price : CLASS=PRICE
        Price of a GiB of the storage class for a month of 730 hours: gp3=0.08, '*=0.1'. Repeatable.
    """

    by: str | None = None
    idle: IdleRule | None = None
    window: str | None = None
    storage_price: list[str] | None = field(default=None)

    @property
    def is_set(self) -> bool:
        """Return whether any of the options is given."""
        return any(value is not None for value in (self.by, self.idle, self.window, self.storage_price))

    def nanoseconds(self) -> int:
        """Return ``--window`` in nanoseconds, by default an hour.

        Raises typer.BadParameter if it is no duration above 0.
        """
        from kscale.series.prometheus import parse_prometheus_duration

        if self.window is None:
            return _HOUR
        with option_errors("--window"):
            length = parse_prometheus_duration(self.window)
        if length <= 0:
            raise typer.BadParameter(f"{self.window} is no length of time", param_hint="--window")
        return length

    def prices(self) -> dict[str, float] | None:
        """Return the prices by storage class; None if none are set. Raises typer.BadParameter for a bad one."""
        if self.storage_price is None:
            return None
        prices: dict[str, float] = {}
        for text in self.storage_price:
            name, equals, amount = text.rpartition("=")
            try:
                price = parse_float(amount)
            except ValueError:
                price = math.nan
            if not equals or not name or not (math.isfinite(price) and price >= 0):
                raise typer.BadParameter(f"{text!r} is not CLASS=PRICE", param_hint="--storage-price")
            prices[name] = price
        return prices


def command(
    *,
    source: Clusters,
    group_source: GroupSource,
    allocation: AllocationOptions,
    history: UsageHistory,
    prometheus: UsageFlags,
    budget: Annotated[float, typer.Option(min=0)] = 2.0,
    show: Show,
) -> Answer:
    """Report the cost of the nodes per hour, by namespace and workload, and how much of it no pod requests.

    Prices are those of the node groups (-g), else of the nodes' instance types in the --catalogue. The report also has
    the cheapest mix of these groups, or of the --instance-type given, for the same pods. --by divides the cost among
    teams, by requests and, with --history or --prometheus-url, by usage; the lines add up to the cost.

    Parameters
    ----------
    budget : SECONDS
        Time limit in seconds of the search for the cheapest mix of nodes for the same pods; 0: no search.

    Raises
    ------
    InputError
        If the input cannot be read.
    typer.BadParameter
        If options contradict each other or have no effect.
    """
    import time

    from kscale.capacity.cost import cost, ideal_mix, set_prices
    from kscale.capacity.mix import MixOptions

    check_budget(budget)
    _check_usage(history, prometheus)
    window = allocation.nanoseconds()
    storage_prices = allocation.prices()
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
    if allocation.is_set or history.history or prometheus.prometheus_url:
        usage = _read_usage(history, prometheus, allocation.window, window, source.threads or 2, show.terminal)
        with show.terminal.step("dividing"):
            divided = _allocate(cluster, groups, catalogue, allocation, window, storage_prices, usage)
        report = msgspec.structs.replace(report, allocation=divided)
    return Answer(report, lambda: cost_view(report), blocks=lambda: cost_blocks(report))


def _check_usage(history: UsageHistory, prometheus: UsageFlags) -> None:
    """Raise BadParameter for options of the history that have no effect or exclude each other."""
    history.check()
    prometheus.check()
    if prometheus.prometheus_url and history.history:
        raise typer.BadParameter("it excludes --history", param_hint="--prometheus-url")
    if history.now and not history.history and not prometheus.prometheus_url:
        raise typer.BadParameter("needs --history or --prometheus-url", param_hint="--now")


def _read_usage(
    history: UsageHistory,
    prometheus: UsageFlags,
    window: str | None,
    length: int,
    threads: int,
    terminal: Terminal,
) -> Mapping[str, PodUsage] | None:
    """Return the average usage of pods in the window, by default in the whole history; None if there is no history.

    The window ends at ``--now``, by default with the last sample. The length of the Prometheus history, if it is not
    set, is set to ``window``. Raises InputError if the history cannot be read.
    """
    from kscale.capacity.cost_allocation import average_usage

    now = history.moment()
    if prometheus.prometheus_url:
        if prometheus.history_length is None and window is not None:
            prometheus.history_length = window
        batches: Iterable[UsageBatch] = prometheus.batches((), now, terminal)
        with terminal.step("reading the usage"):
            return average_usage(batches, end=now)
    if not history.history:
        return None
    with terminal.step("reading the usage"):
        files = history.batches(threads)
        start, end = None, now
        if window is not None:
            end = now if now is not None else max((int(each.time.max()) for each in files if len(each)), default=0)
            start = end - length
        return average_usage(_report_warnings(files, terminal), start=start, end=end)


def _report_warnings(batches: Iterable[UsageBatch], terminal: Terminal) -> Iterator[UsageBatch]:
    """Yield the batches, and log each warning of their sources once."""
    reported: set[str] = set()
    for batch in batches:
        for text in batch.warnings:
            if text not in reported:
                reported.add(text)
                terminal.warn(text)
        yield batch


def _allocate(
    cluster: Cluster,
    groups: list[NodeGroup],
    catalogue: Catalogue | None,
    options: AllocationOptions,
    window: int,
    storage_prices: Mapping[str, float] | None,
    usage: Mapping[str, PodUsage] | None,
) -> CostAllocation:
    """Divide the cost of the cluster as the options say.

    ``window``: nanoseconds; ``storage_prices``: by storage class; ``usage``: average usage by pod, None to go by
    requests. Raises InputError for an unknown ``by``, and if no node has a known price.
    """
    from kscale.capacity.cost_allocation import allocate_cost

    return allocate_cost(
        cluster,
        groups,
        catalogue,
        by=options.by or "namespace",
        idle=options.idle or IdleRule.PROPORTIONAL,
        hours=window / _HOUR,
        storage_prices=storage_prices,
        usage=usage,
    )


_NAMESPACES = (
    Column("NAMESPACE"),
    *make_columns("$/H", "SHARE", "PODS", "CPU", "MEMORY", align="right"),
    Column("DEAREST WORKLOAD"),
)
_WORKLOADS = (Column("WORKLOAD"), *_NAMESPACES[1:6])
_POOLS = (Column("NODE GROUP"), *make_columns("NODES", "$/H", "IDLE", align="right"))


def cost_view(report: CostReport) -> View:
    """Build the view of a cost report: the total, its allocation if any, namespaces, workloads and node groups."""
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
    footer = []
    allocation = report.allocation
    if allocation is not None:
        footer = _notes(allocation)
    return View(
        headline=" ".join(parts),
        tables=[
            *([_allocation_table(allocation)] if allocation is not None else []),
            Table(_NAMESPACES, [[*_row(line), line.biggest] for line in report.namespaces], limit=40),
            Table(_WORKLOADS, [_row(line) for line in report.workloads], title="Workloads", limit=SHOWN),
            Table(_POOLS, pools, title="Node groups"),
        ],
        footer=footer,
        names=[f"namespace/{line.name}" for line in report.namespaces],
    )


def _allocation_table(allocation: CostAllocation) -> Table:
    """Build the table of the cost by team. Its title has the total."""
    with_usage = allocation.lines and allocation.lines[0].by_usage is not None
    time = "1 hour" if allocation.hours == 1 else f"{allocation.hours:,.6g} hours"
    columns = [
        Column(allocation.by.upper()),
        *make_columns("PODS", "REQUESTED", "IDLE", "STORAGE", align="right"),
        Column("$", "right", fields=("cost",)),
        Column("SHARE", "right"),
        Column("$ BY USAGE", "right", wide=not with_usage, fields=("by_usage",)),
    ]

    def money(amount: float | None) -> Cell | None:
        """Return a cell with the report's number of decimals; None for an amount that is not known."""
        return None if amount is None else Cell(f"{amount:,.{allocation.decimals}f}", value=amount)

    def row(name: str, pods: int, line: AllocatedCost, share: float, used: float | None) -> Row:
        amounts = [money(line.requested), money(line.idle), money(line.storage), money(line.cost)]
        return [name, pods, *amounts, Cell(f"{share:.1%}", value=share), money(used)]

    rows = [row(line.name, line.pods, line, line.share, line.by_usage) for line in allocation.lines]
    amounts = {"requested": allocation.requested, "idle": allocation.idle, "storage": allocation.storage}
    parts = ", ".join(f"${amount:,.{allocation.decimals}f} {name}" for name, amount in amounts.items() if amount)
    total = f"${allocation.cost:,.{allocation.decimals}f}" + (f" ({parts})" if parts else "")
    return Table(
        columns, rows, title=f"Cost of {time} by {allocation.by}, idle capacity {allocation.idle_rule}: {total}"
    )


def _notes(allocation: CostAllocation) -> list[str]:
    """Return notes for the table: idle capacity that nobody pays for, volumes without a price, pods without samples."""
    notes = []
    if allocation.idle_rule == IdleRule.NONE:
        notes.append("Idle capacity is charged to nobody: the lines add up to less than the cluster costs.")
    if allocation.unpriced_volumes:
        count = allocation.unpriced_volumes
        notes.append(f"{count:,} {plural('volume', count)} of storage classes without a price, left out.")
    if allocation.unmeasured_pods:
        notes.append(f"{pods(allocation.unmeasured_pods)} without samples in the history pay nothing by usage.")
    return notes


def _row(line: CostShare) -> Row:
    """Return the table row of a share of the cost."""
    return [
        line.name,
        Cell(f"{line.cost:,.3f}", value=line.cost),
        Cell(f"{line.share:.1%}", value=line.share),
        line.pods,
        Cell(f"{line.cpu / 1000:,.1f}", value=line.cpu),
        Cell(f"{line.memory / 2**30:,.1f}Gi", value=line.memory),
    ]
