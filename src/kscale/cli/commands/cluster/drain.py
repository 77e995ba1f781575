"""``kscale drain``: what draining nodes would do to their pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.inputs import DUMP_HELP, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Column, Row, Show, Table, View, make_columns
from kscale.cli.pictures import drain_blocks
from kscale.cli.scale_down_options import EvictionFlags, Moment
from kscale.cli.terminal import object_name, plural, pods

if TYPE_CHECKING:
    from kscale.capacity.drain import DrainReport

__all__ = ["EPILOG", "command", "drain_view"]

EPILOG = DUMP_HELP
MATTER = ("PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")
SHOWN = 60


def command(
    node: Annotated[list[str], typer.Argument(metavar="NODE...")],
    *,
    source: Clusters,
    moment: Moment,
    flags: EvictionFlags,
    show: Show,
) -> Answer:
    """Show which pods a drain of these nodes would evict, what blocks the drain, and where the pods land.

    Nothing is evicted. The nodes are cordoned first. Evictions that the disruption budgets allow at once are one wave.
    The pods land where kube-scheduler would put them. Status 1 if a pod is blocked or finds no node.

    Parameters
    ----------
    node : NODE...
        The nodes to drain.

    Raises
    ------
    InputError
        If the input cannot be read, or a node is not in it.
    """
    from kscale.capacity.drain import drain

    now, options = moment.moment(), flags.options()
    _, snapshot = read(source, show.terminal, matter=MATTER)
    with show.terminal.step("draining"):
        report = drain(snapshot, node, now=now, options=options)
    return Answer(
        report,
        lambda: drain_view(report),
        exit_code=0 if report.complete else 1,
        blocks=lambda: drain_blocks(report, snapshot),
    )


_COLUMNS = (
    *make_columns("POD", "NODE", "FATE"),
    Column("WAVE", "right"),
    *make_columns("LANDS ON", "WHY"),
    Column("RULE", wide=True),
    Column("REASON", wide=True),
)


def drain_view(report: DrainReport) -> View:
    """Build the view of a drain: one row per pod, in the order of the report."""
    rows: list[Row] = [
        [pod.pod, pod.node, pod.fate, pod.wave, pod.to, pod.why, pod.rule, pod.reason] for pod in report.pods
    ]
    return View(
        headline=_headline(report),
        tables=[Table(_COLUMNS, rows, limit=SHOWN)],
        names=[object_name("pod", *pod.pod.split("/")) for pod in report.pods if pod.wave is not None],
    )


def _headline(report: DrainReport) -> str:
    """Return a sentence with the numbers of evicted, pending and blocked pods."""
    named = ", ".join(report.nodes[:3]) + (f" and {len(report.nodes) - 3:,} more" if len(report.nodes) > 3 else "")
    moved = report.evicted + report.pending_count
    parts = (
        [f"{pods(moved)} evicted in {report.waves:,} {plural('wave', report.waves)}"] if moved else ["no pod evicted"]
    )
    if report.pending_count:
        parts.append(f"{report.pending_count:,} of them {'finds' if report.pending_count == 1 else 'find'} no node")
    if report.blocked:
        parts.append(f"{report.blocked:,} blocked")
    if report.ending:
        parts.append(f"{report.ending:,} {'ends' if report.ending == 1 else 'end'} with the node")
    verdict = "can be drained" if report.complete else "cannot be drained completely"
    return f"{named} {verdict}: {', '.join(parts)}."
