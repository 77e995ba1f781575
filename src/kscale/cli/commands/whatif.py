"""``kscale whatif``: one row per scenario, with its changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, parse_moment, read
from kscale.cli.karpenter import Provisioner, chosen_offers
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, failing_cell, make_columns
from kscale.cli.terminal import plural

if TYPE_CHECKING:
    from kscale.capacity.whatif import Scenario, ScenarioRow, WhatIfReport
    from kscale.capacity.whatif.questions import Simulate

__all__ = [
    "EPILOG",
    "SIMULATION_HELP",
    "WAITED",
    "command",
    "format_notes",
    "grown",
    "seconds",
    "simulator",
    "whatif_view",
]

EPILOG = DUMP_HELP
SIMULATION_HELP = (
    "With the question simulate: file (kind: Simulation) with the length, the load, the machines and further "
    "autoscalers. Default: one hour with the Cluster Autoscaler."
)
MATTER = ("DaemonSet", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")


def command(
    scenarios: Path,
    *,
    source: Clusters,
    group_source: GroupSource,
    provisioner: Provisioner | None = None,
    expander: str = "least-waste",
    fail_on: list[str] | None = None,
    bound: bool = False,
    simulation: Annotated[Path | None, typer.Option(metavar="FILE", help=SIMULATION_HELP)] = None,
    now: str | None = None,
    show: Show,
) -> Answer:
    """Decide again with changed inputs, and compare each scenario with the baseline in a row of a table.

    A scenario is a list of edits (groups, flags, pods, lose, requests, prices, scheduler) and a question (scale-up,
    scale-down, estimate, mix, headroom, rebuild, simulate). A part of the decision that does not depend on an edit is
    computed once.

    Parameters
    ----------
    scenarios : SCENARIOS
        File with the scenarios, as YAML or JSON (kscale schema scenarios).
    provisioner : NAME
        Program that decides the question scale-up: karpenter (the default with NodePools) or cluster-autoscaler.
    expander
        Expander of the baseline; see kscale scale-up.
    fail_on : CONDITION
        Exit with status 1 if a scenario meets this condition, such as cost>+5%, nodes>60 or homeless>0. Values: nodes,
        cost, bound, pending, homeless, waited. With +, - or %, the change from the baseline counts. Repeatable.
    bound
        Also compute a proven lower bound of the cost, by column generation.
    now : TIME
        The time of the decisions, RFC 3339; default: now.

    Raises
    ------
    InputError
        If the input or a scenario cannot be read, or an edit names something that does not exist.
    typer.BadParameter
        If options contradict each other or have no effect.
    """
    from datetime import UTC, datetime

    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.whatif import Base, parse_condition, read_scenarios, whatif

    conditions = [parse_condition(text) for text in fail_on or []]
    parsed = read_scenarios(scenarios)
    moment = datetime.now(UTC) if now is None else parse_moment(now)
    cluster, snapshot = read(source, show.terminal, matter=MATTER)
    groups = group_source.read_groups(cluster, snapshot, show.terminal, untyped=Untyped.PRICES)
    base = Base(
        cluster,
        groups,
        moment,
        AutoscalingOptions(expander=expander),
        group_source.read_catalogue(show.terminal),
        scenarios.parent,
        bound,
        simulate=simulator(parsed, simulation),
        source=str(scenarios),
        offers=chosen_offers(group_source, provisioner),
    )
    with show.terminal.step("deciding") as update:
        report = whatif(base, parsed, conditions=conditions, on_row=lambda row: update(f"deciding: {row.name}"))
    report = replace(report, assumptions=list(group_source.assumptions))
    crossed = any(row.crossed for row in report.scenarios)
    return Answer(report, lambda: whatif_view(report), exit_code=1 if crossed else 0)


def simulator(scenarios: Iterable[Scenario], file: Path | None) -> Simulate | None:
    """Return the simulator if a scenario has the question ``simulate``; else None.

    Raises BadParameter if ``--simulation`` names a ``file`` that no scenario needs.
    """
    from kscale.capacity.whatif import Question

    if not any(each.question is Question.SIMULATE for each in scenarios):
        if file is not None:
            raise typer.BadParameter("no scenario has the question simulate", param_hint="--simulation")
        return None
    from kscale.simulation import Simulator

    return Simulator() if file is None else Simulator.of(file)


_COLUMNS = (
    *make_columns("SCENARIO", "QUESTION"),
    *make_columns("NODES", "$/H", "CHANGE", "BOUND", "PENDING", "HOMELESS", align="right"),
    *make_columns("GROUPS", "DIFFERS BECAUSE"),
)
WAITED = Column("WAITED", "right", fields=("pending_seconds",))


def whatif_view(report: WhatIfReport) -> View:
    """Build the view of a what-if report: the baselines, then the scenarios."""
    baselines = {row.question: row for row in report.baselines}
    rows = [*report.baselines, *report.scenarios]
    count = len(report.scenarios)
    crossed: dict[str, list[str]] = {}
    for row in report.scenarios:
        for text in row.crossed:
            crossed.setdefault(text, []).append(row.name)
    changed = sum(bool(row.differs) for row in report.scenarios)
    return View(
        headline=f"{changed:,} of {count:,} {plural('scenario', count)} would be decided otherwise.",
        tables=[_table(rows, baselines)],
        footer=[
            *format_notes((row.name, row) for row in report.scenarios),
            *(f"{text}: {', '.join(names)}" for text, names in crossed.items()),
            *([f"Assumed: {'; '.join(report.assumptions)}."] if report.assumptions else []),
            *_name_rule(report),
        ],
        names=[f"scenario/{row.name}" for row in report.scenarios],
    )


def _name_rule(report: WhatIfReport) -> list[str]:
    """Return a line that says which program's rule decides each question; empty unless Karpenter's decides."""
    if report.provisioner != "karpenter":
        return []
    questions = {row.question for row in report.baselines}
    others = sorted(questions & {"scale-down", "simulate"})
    own = ["scale-up is decided by Karpenter's rule"] if "scale-up" in questions else []
    parts = [*own, *(f"{name} as by the Cluster Autoscaler" for name in others)]
    return [f"NodePools: {', '.join(parts)}."] if parts else []


def _table(rows: Sequence[ScenarioRow], baselines: Mapping[str, ScenarioRow]) -> Table:
    """Build the table of scenarios, with the pods' waiting time if a scenario was simulated."""
    cells = [_row(row, baselines[row.question]) for row in rows]
    if all(row.pending_seconds is None for row in rows):
        return Table(_COLUMNS, cells)
    waited = [None if row.pending_seconds is None else seconds(row.pending_seconds) for row in rows]
    columns = (*_COLUMNS[:-2], WAITED, *_COLUMNS[-2:])
    wider = [[*cell[:-2], each, *cell[-2:]] for cell, each in zip(cells, waited, strict=True)]
    return Table(columns, wider)


def seconds(value: float) -> Cell:
    """Return a cell for a number of seconds."""
    return Cell(f"{value:,.0f} s", value=value)


def _row(row: ScenarioRow, baseline: ScenarioRow) -> Row:
    """Return the table row of a scenario, with its differences from the baseline."""
    nodes = row.nodes - baseline.nodes
    change = None
    if row.cost is not None and baseline.cost:
        share = row.cost / baseline.cost - 1.0
        change = Cell(f"{share:+.1%}" if row is not baseline else "", value=round(share, 6))
    first = row is baseline
    return [
        row.name,
        row.question,
        Cell(f"{row.nodes:,}" if first or not nodes else f"{row.nodes:,} ({nodes:+,})", value=row.nodes),
        None if row.cost is None else Cell(f"{row.cost:,.2f}", value=row.cost),
        change,
        None if row.bound is None else Cell(f"{row.bound:,.2f}", value=row.bound),
        row.pending,
        failing_cell(row.homeless),
        grown(row),
        row.differs,
    ]


def format_notes(rows: Iterable[tuple[str, ScenarioRow]], limit: int = 5) -> list[str]:
    """Format the notes of scenarios (what an edit leaves unchanged): one line each for the first ``limit`` of them.

    Two more lines may follow: the number of the other scenarios with notes, and a hint about ``rebuild``. Empty if no
    scenario has notes. ``rows``: (name of the scenario, row).
    """
    noted = [(name, row.notes) for name, row in rows if row.notes]
    texts = [f"{name}: {'; '.join(notes)}." for name, notes in noted[:limit]]
    more = len(noted) - limit
    hint = ["The question rebuild asks what all pods would cost on new nodes."] if noted else []
    return [*texts, *([f"The same in {more:,} more {plural('scenario', more)}."] if more > 0 else []), *hint]


def grown(row: ScenarioRow) -> str:
    """Describe which node groups grow or shrink, and by how many nodes."""
    return ", ".join(f"{name} {count:+,}" for name, count in row.groups.items())
