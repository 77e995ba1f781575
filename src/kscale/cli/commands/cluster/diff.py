"""``kscale diff``: what changed between two dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, Dump, read
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.terminal import object_name, plural, pods

if TYPE_CHECKING:
    from kscale.capacity.diff import ClusterDiff, ClusterTotals, NodeDiff

__all__ = ["EPILOG", "command", "diff_view"]

EPILOG = DUMP_HELP
SHOWN = 20


def command(
    before: Annotated[str, typer.Argument(metavar="BEFORE")],
    after: Annotated[str, typer.Argument(metavar="AFTER")],
    *,
    group_source: GroupSource,
    skip_invalid: bool = False,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    show: Show,
) -> Answer:
    """Which nodes, workloads and pods changed between two dumps, what it costs, and which pods wait for other reasons?

    Prices are those of the node groups (-g), else of the nodes' instance types in the --catalogue. Status 1 if a pod is
    pending in the second dump that was not in the first.

    Parameters
    ----------
    before : BEFORE
        The first dump: a file or a directory.
    after : AFTER
        The second dump.
    skip_invalid
        Skip objects that cannot be read, and report their number.
    threads
        Number of threads. The result does not depend on it.

    Raises
    ------
    InputError
        If a dump, the node groups or the catalogue cannot be read.
    """
    from kscale.capacity.cost import set_prices
    from kscale.capacity.diff import diff

    first, _ = read(Dump(filename=[before], skip_invalid=skip_invalid, threads=threads), show.terminal)
    second, snapshot = read(Dump(filename=[after], skip_invalid=skip_invalid, threads=threads), show.terminal)
    catalogue = group_source.read_catalogue(show.terminal)
    described = group_source.read_groups(second, snapshot, show.terminal, untyped=Untyped.PRICES)
    groups = set_prices(described, catalogue, snapshot.columns.objects)
    with show.terminal.step("comparing"):
        report = diff(first, second, groups, catalogue)
    return Answer(report, lambda: diff_view(report), exit_code=1 if report.newly_pending else 0)


_TOTALS = (Column(""), *make_columns("BEFORE", "AFTER", "CHANGE", align="right"))
_NODES = (*make_columns("NODE", "CHANGE"), *make_columns("PODS BEFORE", "AFTER", align="right"), Column("FIELDS"))
_WORKLOADS = (
    *make_columns("WORKLOAD", "CHANGE"),
    *make_columns("PODS", "PENDING", "CPU", "MEMORY", align="right"),
)
_PODS = (*make_columns("POD", "CHANGE", "NODE BEFORE", "AFTER"), *make_columns("CPU", "MEMORY", align="right"))
_VERDICTS = make_columns("PENDING POD", "BEFORE", "AFTER")


def diff_view(report: ClusterDiff) -> View:
    """Build the view of a comparison: totals, then verdicts, nodes, workloads and pods that differ."""
    workloads: list[Row] = [
        [
            row.workload,
            row.change,
            _arrow(row.pods_before, row.pods_after),
            _arrow(row.pending_before, row.pending_after),
            _arrow(_cores(row.cpu_before), _cores(row.cpu_after)),
            _arrow(_gib(row.memory_before), _gib(row.memory_after)),
        ]
        for row in report.workloads
    ]
    moved: list[Row] = [
        [
            row.pod,
            row.change,
            row.node_before,
            row.node_after,
            _arrow(_cores(row.cpu_before), _cores(row.cpu_after)),
            _arrow(_gib(row.memory_before), _gib(row.memory_after)),
        ]
        for row in report.pods
    ]
    nodes: list[Row] = [
        [row.node, row.change, row.pods_before, row.pods_after, _format_fields(row)] for row in report.nodes
    ]
    verdicts: list[Row] = [[row.pod, row.before, row.after] for row in report.verdicts]
    return View(
        headline=_headline(report),
        tables=[
            Table(_TOTALS, _list_totals(report.before, report.after)),
            Table(_VERDICTS, verdicts, title="Pending pods", limit=SHOWN),
            Table(_NODES, nodes, title="Nodes", limit=SHOWN),
            Table(_WORKLOADS, workloads, title="Workloads", limit=SHOWN),
            Table(_PODS, moved, title="Pods", limit=SHOWN),
        ],
        names=[
            *(object_name("node", None, row.node) for row in report.nodes),
            *(object_name("pod", *row.pod.split("/")) for row in report.pods),
        ],
    )


def _headline(report: ClusterDiff) -> str:
    """Return a sentence with the numbers of nodes, workloads and pods that differ."""
    if not (report.nodes or report.workloads or report.pods or report.verdicts):
        return "The dumps do not differ in nodes, pods and requests."
    counts = [
        f"{len(report.nodes):,} {plural('node', len(report.nodes))}",
        f"{len(report.workloads):,} {plural('workload', len(report.workloads))}",
        f"{len(report.pods):,} {plural('pod', len(report.pods))}",
    ]
    text = f"{', '.join(counts[:2])} and {counts[2]} differ"
    if report.newly_pending:
        text += f"; {pods(report.newly_pending)} newly pending"
    return f"{text}."


def _list_totals(before: ClusterTotals, after: ClusterTotals) -> list[Row]:
    """Return one row per total, with its value before and after; the cost only if all nodes of both have a price."""
    rows: list[Row] = [
        _total("nodes", before.nodes, after.nodes),
        _total("pods on nodes", before.pods, after.pods),
        _total("pending pods", before.pending, after.pending),
        _total("cores requested", before.cpu / 1000, after.cpu / 1000),
        _total("GiB requested", before.memory / 2**30, after.memory / 2**30),
        _total("cores allocatable", before.cpu_allocatable / 1000, after.cpu_allocatable / 1000),
        _total("GiB allocatable", before.memory_allocatable / 2**30, after.memory_allocatable / 2**30),
    ]
    if before.cost is not None and after.cost is not None and not before.unpriced and not after.unpriced:
        rows.append(_total("$/h", before.cost, after.cost, digits=3))
    return rows


def _total(name: str, before: float, after: float, *, digits: int = 1) -> Row:
    """Build the row of a total: before, after and the difference."""

    def shown(value: float, sign: str = "") -> Cell:
        return Cell(f"{value:{sign},}" if isinstance(value, int) else f"{value:{sign},.{digits}f}", value=value)

    return [name, shown(before), shown(after), shown(after - before, "+")]


def _arrow(before: object, after: object) -> str:
    """Format ``before -> after`` with ``-`` for None; a single value if both are equal."""
    if before == after:
        return str(after)
    return f"{'-' if before is None else before} -> {'-' if after is None else after}"


def _cores(amount: int | None) -> str | None:
    """Format millicores as cores; None for None."""
    return None if amount is None else f"{amount / 1000:g}"


def _gib(amount: int | None) -> str | None:
    """Format bytes as GiB; None for None."""
    return None if amount is None else f"{amount / 2**30:,.2f}Gi"


def _format_fields(row: NodeDiff) -> str:
    """Format the changed fields of a node as ``field before -> after``."""
    return ", ".join(f"{each.field} {each.before or '-'} -> {each.after or '-'}" for each in row.fields)
