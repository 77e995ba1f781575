"""``kscale preempt``: whom kube-scheduler would evict for a pending pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.inputs import DUMP_HELP, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.pictures import preemption_blocks
from kscale.cli.terminal import object_name, plural, pods

if TYPE_CHECKING:
    from kscale.capacity.preemption import PreemptionReport
    from kscale.views import Tone

__all__ = ["EPILOG", "command", "preemption_view"]

EPILOG = DUMP_HELP
MATTER = ("PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")
SHOWN = 8


def command(
    pod: Annotated[str, typer.Argument(metavar="POD")],
    *,
    source: Clusters,
    min_candidate_nodes_percentage: Annotated[int, typer.Option(min=0, max=100)] = 10,
    min_candidate_nodes_absolute: Annotated[int, typer.Option(min=0)] = 100,
    show: Show,
) -> Answer:
    """Whom would kube-scheduler evict for this pending pod, on which node, and why there; or why it evicts nobody?

    The rules are those of DefaultPreemption. kube-scheduler starts with a random node, kscale with the first one.
    Status 1 if the pod stays pending.

    Parameters
    ----------
    pod : POD
        The pending pod, NAMESPACE/NAME.
    min_candidate_nodes_percentage : PERCENT
        Percentage of the nodes that is enough as candidates (kube-scheduler's minCandidateNodesPercentage).
    min_candidate_nodes_absolute : N
        Minimum number of candidates, whatever the percentage (kube-scheduler's minCandidateNodesAbsolute).

    Raises
    ------
    InputError
        If the input cannot be read, or the pod is not a pending one.
    """
    from kscale.capacity.preemption import preempt

    _, snapshot = read(source, show.terminal, matter=MATTER)
    with show.terminal.step("preempting"):
        report = preempt(
            snapshot,
            pod if "/" in pod else f"default/{pod}",
            least_percentage=min_candidate_nodes_percentage,
            least_candidates=min_candidate_nodes_absolute,
        )
    return Answer(
        report,
        lambda: preemption_view(report),
        exit_code=0 if report.result in ("preempts", "fits") else 1,
        blocks=lambda: preemption_blocks(report, snapshot),
    )


_VICTIMS = (Column("VICTIM"), Column("PRIORITY", "right"), *make_columns("STARTED", "BUDGET"))
_NODES = (
    *make_columns("NODE", "OUTCOME"),
    *make_columns("VICTIMS", "VIOLATIONS", "HIGHEST", "SUM", align="right"),
    *make_columns("LATEST START", "WHY NOT"),
)
_TONES: dict[str, Tone] = {"chosen": "good", "fits": "good", "candidate": "warn"}


def preemption_view(report: PreemptionReport) -> View:
    """Build the view of a preemption: the victims, then the nodes."""
    victims: list[Row] = [
        [each.pod, each.priority, each.started, Cell("violated", "bad") if each.violates else "kept"]
        for each in report.victims
    ]
    nodes: list[Row] = [
        [
            row.node,
            Cell(row.outcome, _TONES.get(row.outcome, "")),
            len(row.victims) if row.violations is not None else None,
            row.violations,
            row.highest_priority,
            row.priority_sum,
            row.latest_start,
            ", ".join(row.causes or row.reasons),
        ]
        for row in report.nodes
    ]
    return View(
        headline=_headline(report),
        tables=[Table(_VICTIMS, victims), Table(_NODES, nodes, title="Nodes", limit=SHOWN)],
        footer=[report.message] if report.message else [],
        names=[object_name("pod", *each.pod.split("/")) for each in report.victims],
    )


def _headline(report: PreemptionReport) -> str:
    """Return a sentence with the result: how many pods are evicted on which node, or why none is evicted."""
    subject = f"{report.pod} (priority {report.priority:,})"
    match report.result:
        case "fits":
            return f"{subject} fits without evictions."
        case "never":
            return f"{subject} evicts nobody: its preemptionPolicy is Never."
        case "does-not-help":
            return f"{subject} stays pending: preemption does not help on any node."
    text = f"{subject} takes the place of {pods(len(report.victims))} on {report.node}"
    if report.criterion:
        text += f", chosen by the {report.criterion}"
    if report.violations:
        text += f"; {report.violations:,} {plural('violation', report.violations)} of disruption budgets"
    return f"{text}."
