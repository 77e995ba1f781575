"""``kscale whatif``: what each scenario changes, in a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.groups import GroupSource
from kscale.cli.inputs import DUMP_HELP, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.moments import parse_moment
from kscale.cli.output import Answer, Cell, Column, Show, Table, View
from kscale.cli.words import plural

if TYPE_CHECKING:
    from kscale.capacity.whatif import Scenario, ScenarioRow, WhatIfReport
    from kscale.capacity.whatif.simulated import Simulate

__all__ = ["EPILOG", "SIMULATION_HELP", "WAITED", "command", "seconds", "simulator", "whatif_view"]

EPILOG = DUMP_HELP
SIMULATION_HELP = (
    "With the question simulate: for how long, load, machines, other autoscalers (kind: Simulation; default: an hour "
    "of the Cluster Autoscaler)."
)
MATTER = ("DaemonSet", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")


def command(
    scenarios: Annotated[Path, typer.Argument(metavar="SCENARIOS", help="The scenarios, as YAML or JSON.")],
    *,
    source: Clusters,
    group_source: GroupSource,
    expander: Annotated[
        str, typer.Option("--expander", help="Expander of the baseline; see kscale scale-up.")
    ] = "least-waste",
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="CONDITION",
            help="Exit with status 1 if a scenario meets this condition: cost>+5%, nodes>60, "
            "homeless>0, of nodes, cost, bound, pending, homeless, waited; with + or - or % the "
            "change from the baseline. Repeatable.",
        ),
    ] = None,
    bound: Annotated[
        bool, typer.Option("--bound", help="Also prove what the nodes must cost at least, by column generation.")
    ] = False,
    simulation: Annotated[
        Path | None,
        typer.Option("--simulation", metavar="FILE", help=SIMULATION_HELP),
    ] = None,
    now: Annotated[
        str | None, typer.Option("--now", metavar="TIME", help="The time of the decisions, RFC 3339; default: now.")
    ] = None,
    show: Show,
) -> Answer:
    """What would be decided if things were other than they are: a row for each scenario, beside the baseline.

    A scenario is a list of edits (groups, flags, pods, lose, requests, prices, scheduler) and a question (scale-up,
    scale-down, estimate, mix, headroom, simulate). What does not depend on an edit is decided once.
    """
    from datetime import UTC, datetime

    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.catalogue import read_catalogue
    from kscale.capacity.whatif import Base, parse_condition, read_scenarios, whatif

    conditions = [parse_condition(text) for text in fail_on or []]
    asked = read_scenarios(scenarios)
    moment = datetime.now(UTC) if now is None else parse_moment(now)
    cluster, snapshot = read(source, show.terminal, matter=MATTER)
    groups = group_source.described(cluster, snapshot, show.terminal)
    base = Base(
        cluster,
        groups,
        moment,
        AutoscalingOptions(expander=expander),
        None if group_source.catalogue is None else read_catalogue(group_source.catalogue),
        scenarios.parent,
        bound,
        simulate=simulator(asked, simulation),
        source=str(scenarios),
    )
    with show.terminal.step("deciding") as tell:
        report = whatif(base, asked, conditions=conditions, told=lambda row: tell(f"deciding: {row.name}"))
    crossed = any(row.crossed for row in report.scenarios)
    return Answer(report, lambda: whatif_view(report), exit_code=1 if crossed else 0)


def simulator(asked: Iterable[Scenario], file: Path | None) -> Simulate | None:
    """Who simulates, where some scenario asks for it; ``file``: ``--simulation``. Raises BadParameter where nothing
    would read it."""
    from kscale.capacity.whatif import Question

    if not any(each.question is Question.SIMULATE for each in asked):
        if file is not None:
            raise typer.BadParameter("no scenario has the question simulate", param_hint="--simulation")
        return None
    from kscale.simulation import Simulator

    return Simulator() if file is None else Simulator.of(file)


_COLUMNS = (
    Column("SCENARIO"),
    Column("QUESTION"),
    Column("NODES", "right"),
    Column("$/H", "right"),
    Column("CHANGE", "right"),
    Column("BOUND", "right"),
    Column("PENDING", "right"),
    Column("HOMELESS", "right"),
    Column("DIFFERS BECAUSE"),
)
WAITED = Column("WAITED", "right", fields=("pending_seconds",))


def whatif_view(report: WhatIfReport) -> View:
    """The baselines, then the scenarios."""
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
        footer=[f"{text}: {', '.join(names)}" for text, names in crossed.items()],
        names=[f"scenario/{row.name}" for row in report.scenarios],
    )


def _table(rows: Sequence[ScenarioRow], baselines: Mapping[str, ScenarioRow]) -> Table:
    """With how long pods waited, where something was simulated."""
    cells = [_row(row, baselines[row.question]) for row in rows]
    if all(row.pending_seconds is None for row in rows):
        return Table(_COLUMNS, cells)
    waited = [None if row.pending_seconds is None else seconds(row.pending_seconds) for row in rows]
    columns = (*_COLUMNS[:-1], WAITED, _COLUMNS[-1])
    return Table(columns, [[*first, each, last] for (*first, last), each in zip(cells, waited, strict=True)])


def seconds(value: float) -> Cell:
    """A sum of times in a table."""
    return Cell(f"{value:,.0f} s", value=value)


def _row(row: ScenarioRow, baseline: ScenarioRow) -> list[Cell | str | float | None]:
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
        row.homeless,
        row.differs,
    ]
