"""``kscale top``: nodes, pending pods, and what the Cluster Autoscaler would do next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.estimate_options import GpuLabel
from kscale.cli.groups import GroupSource
from kscale.cli.inputs import DUMP_HELP, parse_duration_option, parse_moment, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Format, Row, Show, Table, View
from kscale.cli.terminal import Terminal, plural, pods
from kscale.views import Tone

if TYPE_CHECKING:
    from kscale.ca.loop_state import LoopState
    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.overview import ClusterOverview, Outlook, OverviewNode, PendingSummary
    from kscale.objects.nodegroup import NodeGroup
    from kscale.snapshot.cluster import Cluster
    from kscale.snapshot.snapshot import Snapshot

__all__ = ["EPILOG", "command", "overview_view"]

EPILOG = DUMP_HELP
_MIN_INTERVAL = 100_000_000  # nanoseconds


def command(
    *,
    source: Clusters,
    group_source: GroupSource,
    gpu: GpuLabel,
    once: bool = False,
    interval: str = "2s",
    flags: Annotated[list[str] | None, typer.Option("--flag")] = None,
    now: str | None = None,
    show: Show,
) -> Answer | None:
    """Nodes, pending pods with the reason, and what the Cluster Autoscaler would do next.

    On a terminal, a live cluster is watched and the view follows it until q or Ctrl-C; space pauses it. With --once,
    --now or -o, in a pipe, for a dump and for several contexts, the view is printed once, with status 1 if a pod stays
    pending. Nothing is written to the cluster. Scale-down counts since when nodes are unneeded from the start of the
    command.

    Parameters
    ----------
    once
        Print one view and exit.
    interval : DURATION
        Time between two views.
    flags : NAME=VALUE
        A flag of the Cluster Autoscaler, e.g. scale-down-unneeded-time=5m. Repeatable.
    now : TIME
        The time of the decision, RFC 3339; default: now.

    Returns
    -------
    Answer or None
        None if the view has followed a live cluster until a key ended it.

    Raises
    ------
    InputError
        If the cluster cannot be read, or a flag is unknown or malformed.
    typer.BadParameter
        If --interval is below 100 ms.
    """
    from kscale.ca.flag_parsing import parse_flags
    from kscale.ca.options import AutoscalingOptions
    from kscale.errors import InputError

    nanoseconds = parse_duration_option(interval, "--interval")
    if nanoseconds < _MIN_INTERVAL:
        raise typer.BadParameter("at least 100ms is expected", param_hint="--interval")
    parsed = parse_flags(flags or ())
    for name, why in parsed.idle.items():
        show.terminal.warn(f"--flag {name} has no effect here: {why}")
    options = AutoscalingOptions(**parsed.values)
    if problems := options.problems():
        raise InputError(problems)
    outlooks = _Outlooks(group_source, gpu, options)
    follows = source.live and not source.several and not once and now is None and show.output is Format.TABLE
    if follows and show.terminal.stdout.isatty():
        from kscale.cli.commands.cluster.live_view import follow_cluster

        follow_cluster(source, show.terminal, nanoseconds / 1e9, outlooks.view)
        return None
    moment = datetime.now(UTC) if now is None else parse_moment(now)
    cluster, snapshot = read(source, show.terminal)
    with show.terminal.step("deciding"):
        outlook = outlooks.report(cluster, snapshot, moment, show.terminal)
    return Answer(
        outlook.overview,
        lambda: overview_view(outlook),
        exit_code=1 if any(item.prospect == "stays pending" for item in outlook.overview.pending_summaries) else 0,
    )


class _Outlooks:
    """Makes the outlooks of a cluster that changes, with the state of scale-down from one to the next."""

    def __init__(self, group_source: GroupSource, gpu: GpuLabel, options: AutoscalingOptions) -> None:
        self._group_source, self._gpu, self._options = group_source, gpu, options
        self._described: list[NodeGroup] | None = None
        self._state: LoopState | None = None

    def report(self, cluster: Cluster, snapshot: Snapshot, now: datetime, terminal: Terminal) -> Outlook:
        """Return the outlook at time ``now``, and keep its scale-down state for the next one.

        Raises InputError or typer.BadParameter if the groups cannot be read.
        """
        from kscale.capacity.overview import report_overview

        groups = self._described
        if groups is None:
            groups = self._group_source.read_groups(cluster, snapshot, terminal)
            if self._group_source.words():  # those that the labels show change with the nodes
                self._described = groups
        outlook = report_overview(
            cluster,
            snapshot,
            groups,
            now=now,
            options=self._options,
            state=self._state,
            gpu_label=self._gpu.key(snapshot.columns.objects, groups, terminal),
        )
        self._state = outlook.state
        return outlook

    def view(self, cluster: Cluster) -> View:
        """Return the view of a cluster as it is now."""
        quiet = Terminal(quiet=True)
        return overview_view(self.report(cluster, cluster.snapshot(dra=True), datetime.now(UTC), quiet))


_NODE_COLUMNS = (
    Column("NODE"),
    Column("GROUP"),
    Column("PODS", "right"),
    Column("CPU CORES", "right", fields=("cpu_milli", "allocatable_cpu_milli")),
    Column("MEMORY", "right", fields=("memory_bytes", "allocatable_memory_bytes")),
    Column("STATE"),
    Column("SCALE-DOWN", fields=("scale_down", "why")),
)
_PENDING_COLUMNS = (
    Column("PODS", "right"),
    Column("AGE", "right", fields=("since",)),
    Column("PENDING"),
    Column("PROSPECT"),
    Column("WHY"),
)
_SHOWN = 20
_TONES: dict[str, Tone] = {"stays pending": "bad", "not counted": "warn", "new node": "good", "fits": "good"}


def overview_view(outlook: Outlook) -> View:
    """Build the view of an outlook: a summary with the next loop, the nodes, the fullest first, and pending pods."""
    from kscale.cli.commands.scale_down import scale_down_view
    from kscale.cli.scale_up_view import scale_up_view

    overview = outlook.overview
    nodes = sorted(overview.nodes, key=lambda node: (-max(_share(node)), node.name))
    pending = [_pending_row(item, overview.time) for item in overview.pending_summaries]
    up = scale_up_view(outlook.scale_up, "", all_groups=False).headline
    down = scale_down_view(outlook.scale_down).headline
    return View(
        headline=f"{_summary(overview)}\nNext: {up}\nNext: {down}",
        tables=[
            Table(_NODE_COLUMNS, [_node_row(node) for node in nodes], "Nodes", limit=_SHOWN),
            Table(_PENDING_COLUMNS, pending, "Pending pods"),
        ],
        names=[f"node/{node.name}" for node in overview.nodes],
    )


def _summary(overview: ClusterOverview) -> str:
    """Return the line with the totals of the cluster."""
    nodes = overview.nodes
    unready = f" ({overview.unready:,} not ready)" if overview.unready else ""
    count = f"{len(nodes):,} {plural('node', len(nodes))}{unready}, {pods(sum(node.pods for node in nodes))} on them"
    cpu, room = sum(node.cpu for node in nodes), sum(node.allocatable_cpu for node in nodes)
    memory, memory_room = sum(node.memory for node in nodes), sum(node.allocatable_memory for node in nodes)
    used = f"CPU {_percent(cpu, room)} of {_cores(room)} cores, memory {_percent(memory, memory_room)} of "
    pending = sum(item.pods for item in overview.pending_summaries)
    return f"{count}: requested {used}{_gib(memory_room)}; {pods(pending)} pending."


def _share(node: OverviewNode) -> tuple[float, float]:
    """Return the requested shares of the node's CPU and memory as fractions; 0 if nothing is allocatable."""
    cpu = node.cpu / node.allocatable_cpu if node.allocatable_cpu else 0.0
    return cpu, node.memory / node.allocatable_memory if node.allocatable_memory else 0.0


def _percent(amount: int, room: int) -> str:
    """Format ``amount`` as a whole percentage of ``room``; ``-`` if there is none."""
    return f"{amount / room:.0%}" if room else "-"


def _cores(milli: int) -> str:
    """Format millicores as cores."""
    return _rounded(milli / 1000)


def _gib(size: int) -> str:
    """Format bytes as GiB."""
    return f"{_rounded(size / 2**30)} GiB"


def _rounded(number: float) -> str:
    """Format a number with one decimal, without a trailing ``.0``."""
    return f"{number:,.1f}".removesuffix(".0")


def _node_row(node: OverviewNode) -> Row:
    """Return the table row of a node."""
    cpu = f"{_percent(node.cpu, node.allocatable_cpu)} of {_cores(node.allocatable_cpu)}"
    memory = f"{_percent(node.memory, node.allocatable_memory)} of {_gib(node.allocatable_memory)}"
    state = "ready" if node.ready else "not ready"
    if node.unschedulable:
        state += ", cordoned"
    decision = f"{node.decision}: {node.why}" if node.why else node.decision
    going = node.decision in ("delete empty", "drain")
    return [
        node.name,
        node.group,
        node.pods,
        Cell(cpu, value=(node.cpu, node.allocatable_cpu)),
        Cell(memory, value=(node.memory, node.allocatable_memory)),
        Cell(state, "bad" if not node.ready else "warn" if node.unschedulable else ""),
        Cell(decision, "good" if going else "warn" if node.decision == "unneeded" else "", (node.decision, node.why)),
    ]


def _pending_row(item: PendingSummary, now: str) -> Row:
    """Return the table row of equal pending pods. ``now``: RFC 3339."""
    age = "-" if item.since is None else _age((parse_moment(now) - parse_moment(item.since)).total_seconds())
    prospect = Cell(item.prospect, _TONES.get(item.prospect, ""))
    return [item.pods, Cell(age, value=item.since), item.pod, prospect, item.why]


def _age(seconds: float) -> str:
    """Format seconds as kubectl shows an age: the largest unit only."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length):,}{unit}"
    return f"{max(int(seconds), 0)}s"
