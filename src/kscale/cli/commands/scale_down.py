"""``kscale scale-down``: which nodes can be deleted, and where their pods are placed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.estimate_options import GpuLabel, LoopMemory
from kscale.cli.groups import GroupSource
from kscale.cli.inputs import DUMP_HELP, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View
from kscale.cli.pictures import scale_down_blocks
from kscale.cli.scale_down_options import LastChanges, ScaleDownFlags
from kscale.cli.terminal import plural, pods

if TYPE_CHECKING:
    from kscale.capacity.scale_down import ScaleDownNode, ScaleDownReport

__all__ = ["EPILOG", "command", "scale_down_view"]

EPILOG = DUMP_HELP
MATTER = ("PodDisruptionBudget",)
SHOWN = 40


def command(
    *,
    source: Clusters,
    group_source: GroupSource,
    memory: LoopMemory,
    gpu: GpuLabel,
    flags: ScaleDownFlags,
    last: LastChanges,
    exhaustive: bool = False,
    max_simulations: Annotated[int | None, typer.Option(min=0)] = None,
    deleting: list[str] | None = None,
    draining: list[str] | None = None,
    show: Show,
) -> Answer:
    """Which nodes can be removed, where their pods would move, and why the other nodes stay.

    Runs one loop of the Cluster Autoscaler. A node is removed only after it has been unneeded for long enough, so a
    first run mostly lists nodes that are unneeded now; --save-state and --state keep these times between runs.
    --exhaustive instead finds the nodes that could be removed together, at once.

    Parameters
    ----------
    exhaustive
        Simulate the removal of every node, without waiting times, limits per loop and budgets.
    max_simulations
        Maximum number of candidates to simulate. The others are skipped, as if the time limit had been reached.
    deleting : NODE
        An empty node that is being deleted. Repeatable.
    draining : NODE
        A node that is being drained. Repeatable.

    Raises
    ------
    InputError
        If a flag is unknown or malformed, or the input cannot be read.
    StateError
        If the file of --state is not a saved state.
    """
    from kscale.capacity.scale_down import report_scale_down

    options = flags.options()
    moment, remembered = memory.moment(), last.on(memory.load_state())
    source.check_alone(("--state", memory.state), ("--save-state", memory.save_state))
    cluster, snapshot = read(source, show.terminal, matter=MATTER)
    buffers = len(snapshot.informers.capacity_buffers)
    if buffers and not options.capacity_buffer_pod_injection_enabled:
        show.terminal.note(
            f"{buffers:,} {plural('CapacityBuffer', buffers)} in the input not honoured "
            "(--capacity-buffer-pod-injection-enabled)"
        )
    groups = group_source.groups(cluster, snapshot, show.terminal)
    with show.terminal.step("deciding"):
        report, after = report_scale_down(
            snapshot,
            groups,
            now=moment,
            options=options,
            state=remembered,
            exhaustive=exhaustive,
            deleting=deleting or (),
            draining=draining or (),
            max_simulations=max_simulations,
            threads=None if options.legacy else source.threads,
            gpu_label=gpu.key(snapshot.columns.objects, groups, show.terminal),
        )
    if report.orphans:
        show.terminal.warn(
            f"{report.orphans:,} {plural('pod', report.orphans)} of controllers that are not in the input: "
            "such pods keep their nodes (--no-skip-nodes-with-custom-controller-pods moves them)"
        )
    memory.save(after)
    return Answer(report, lambda: scale_down_view(report), blocks=lambda: scale_down_blocks(report, snapshot))


_COLUMNS = (
    Column("NODE"),
    Column("GROUP", wide=True),
    Column("UTILIZATION", "right"),
    Column("DECISION"),
    Column("REASON", wide=True),
    Column("WHY"),
)


_NO_MEMBERS = "No group has a node: say in the groups file which nodes belong to each (nodes or nodeSelector)."


def scale_down_view(report: ScaleDownReport) -> View:
    """Build the view of a scale-down report: nodes to delete, unneeded nodes, then the rest with reasons."""
    order = {"delete empty": 0, "drain": 1, "unneeded": 2, "stays": 3}
    nodes = sorted(report.nodes, key=lambda item: order[item.decision])
    going = [item for item in nodes if order[item.decision] < 2]
    homeless = bool(nodes) and all(item.group is None for item in nodes)
    return View(
        headline=_headline(report),
        tables=[Table(_COLUMNS, [_row(item) for item in nodes], limit=max(SHOWN, len(going)))],
        footer=[_NO_MEMBERS] if homeless else [],
        names=[f"node/{item.node}" for item in going],
    )


def _headline(report: ScaleDownReport) -> str:
    """Return a sentence with how many nodes can go, and what this saves."""
    going = report.empty + report.drained
    text = f"{going:,} of {len(report.nodes):,} {plural('node', len(report.nodes))} can go"
    if not going:
        waiting = report.removable
        return f"{text} now." if not waiting else f"{text} now; {waiting:,} {'is' if waiting == 1 else 'are'} unneeded."
    saved = ", ".join(f"{count:,} x {group}" for group, count in report.saves.items())
    are = "is" if report.empty == 1 else "are"
    moving = f", {report.drained:,} after moving {pods(report.moved_pods)}" if report.drained else ""
    return f"{text}: {report.empty:,} {are} empty{moving}. Saves {saved}."


def _row(item: ScaleDownNode) -> Row:
    """Return the table row of a node."""
    share = None if item.utilization is None else Cell(f"{item.utilization:.0%}", value=round(item.utilization, 4))
    return [item.node, item.group, share, item.decision, item.reason, item.why or _moves(item)]


def _moves(item: ScaleDownNode) -> str:
    """Describe to which nodes the pods move: the number of pods, and the three most frequent targets; or empty."""
    if not item.pods:
        return ""
    targets = Counter(item.pods.values()).most_common()
    shown = ", ".join(f"{name} ({count})" for name, count in targets[:3])
    more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""
    return f"{pods(len(item.pods))} -> {shown}{more}"
