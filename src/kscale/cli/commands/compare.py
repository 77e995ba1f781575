"""``kscale compare``: the same scenario with the autoscalers of 2018 to 2020 and with today's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from kscale.cli.commands.simulate import HorizonOption, SeedOption
from kscale.cli.output import Answer, Cell, Column, Show, Table, View

if TYPE_CHECKING:
    from kscale.simulation import ComparedRun, ProfileComparison, ReleaseRule

__all__ = ["command", "comparison_view"]


def command(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file, YAML or JSON.")],
    *,
    horizon: HorizonOption = "",
    seed: SeedOption = None,
    show: Show,
) -> Answer:
    """Runs a scenario twice, with --profile legacy and with today's programs: what each decides, when, and why.

    The Cluster Autoscaler of release 1.3, the HPA controller of Kubernetes 1.20 and the VPA's updater of 2020 run
    against the same simulated cluster as today's. Each difference names the rule that changed, with both sources.
    """
    from kscale.simulation import compare_profiles, read_scenario

    found = read_scenario(scenario)
    if horizon:
        found = replace(found, horizon=horizon)
    if seed is not None:
        found = replace(found, seed=seed)
    with show.terminal.step("simulating") as tell:
        compared = compare_profiles(
            found,
            source=str(scenario),
            folder=scenario.parent,
            progress=lambda profile: tell(f"simulating: {profile}"),
        )
    return Answer(compared, lambda: comparison_view(compared))


def comparison_view(compared: ProfileComparison) -> View:
    """Both runs, the decisions side by side, and the rules."""
    differ = sum(bool(each.rule) for each in compared.decisions)
    name = f"{compared.name}: " if compared.name else ""
    rows: list[Sequence[Cell | str | float | None]] = [
        [
            _time(min(t for t in (each.legacy_at, each.current_at) if t is not None)),
            each.by,
            f"{each.action} {each.about}".strip(),
            _told(each.legacy_at, each.legacy),
            _told(each.current_at, each.current),
            each.rule or "same",
        ]
        for each in compared.decisions
    ]
    footer = [line for rule in compared.rules for line in _explained(rule)]
    footer += [
        f"Left out of the {run.profile} run, whose programs have no such flag: {', '.join(run.left_out)}."
        for run in (compared.legacy, compared.current)
        if run.left_out
    ]
    sums = [Column("PROFILE"), *(Column(each, "right") for each in ("NODE-HOURS", "COST", "MOST NODES", "P95 WAIT"))]
    columns = [Column(each) for each in ("AT", "BY", "DECISION", "LEGACY", "TODAY", "RULE")]
    return View(
        headline=f"{name}{len(compared.decisions):,} decisions, of which {differ:,} differ.",
        tables=[Table(sums, [_run(compared.legacy), _run(compared.current)]), Table(columns, rows)],
        footer=footer,
        names=[],
    )


def _explained(rule: ReleaseRule) -> list[str]:
    if rule.legacy == rule.current:
        return [f"{rule.id}: {rule.legacy}, because of {rule.legacy_source}."]
    return [
        f"{rule.id}:",
        f"  then   {rule.legacy} ({rule.legacy_source})",
        f"  today  {rule.current} ({rule.current_source})",
    ]


def _run(run: ComparedRun) -> list[Cell | str | float | None]:
    cost = None if run.cost is None else f"{run.cost:,.2f}"
    return [run.profile, f"{run.node_hours:,.1f}", cost, f"{run.most_nodes:,}", f"{run.pending_p95:,.0f} s"]


def _told(at: float | None, what: str) -> str:
    return "-" if at is None else f"{what} at {_time(at)}"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
