"""``kscale compare``: the same scenario with two releases of the autoscalers, or with two provisioners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kscale.cli.commands.simulate import (
    INTERRUPTED,
    HorizonOption,
    SeedOption,
    format_time,
    interruptible,
    read_settings,
)
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns, money_cell
from kscale.cli.pictures import compared_simulation_blocks

if TYPE_CHECKING:
    from kscale.simulation import (
        ComparedDecision,
        ComparedRun,
        ProfileComparison,
        ProvisionerComparison,
        ReleaseRule,
        Scenario,
    )

__all__ = ["command", "comparison_view", "provisioner_view"]


def command(
    scenario: Path,
    *,
    horizon: HorizonOption = "",
    seed: SeedOption = None,
    provisioners: bool = False,
    show: Show,
) -> Answer:
    """Runs a scenario twice, with --profile legacy and with today's programs: what each decides, when, and why.

    --provisioners compares the Cluster Autoscaler with Karpenter instead: what each costs, and how long pods wait.

    The Cluster Autoscaler of release 1.3, the HPA controller of Kubernetes 1.20 and the VPA's updater of 2020 run
    against the same simulated cluster as today's. Each difference names the rule that changed, with upstream's sources,
    if a report or a further run proves it.

    Parameters
    ----------
    scenario : SCENARIO
        A scenario file, YAML or JSON.
    provisioners
        Run the scenario with the Cluster Autoscaler and with Karpenter. The scenario must have controllers.karpenter.

    Raises
    ------
    InputError
        If the scenario cannot be read or built.
    """
    from kscale.simulation import compare_profiles

    parsed = read_settings(scenario, horizon, seed)
    if provisioners:
        return _compare_provisioners(parsed, scenario, show)
    with show.terminal.step("simulating") as update:
        compared = compare_profiles(
            parsed,
            source=str(scenario),
            folder=scenario.parent,
            progress=lambda profile: update(f"simulating: {profile}"),
        )
    return Answer(compared, lambda: comparison_view(compared))


def _compare_provisioners(scenario: Scenario, file: Path, show: Show) -> Answer:
    """Simulate the scenario with each provisioner and return the comparison.

    After Ctrl-C the answer is of the time until then, with the exit status of an interrupt. Raises InputError if the
    scenario has no NodePools or cannot be built.
    """
    from kscale.simulation import compare_provisioners

    with show.terminal.step("simulating") as update, interruptible() as stop:
        compared, runs = compare_provisioners(
            scenario,
            source=str(file),
            folder=file.parent,
            stop=stop,
            progress=lambda name: update(f"simulating: {name}"),
        )
    names = [run.provisioner for run in compared.runs]
    return Answer(
        compared,
        lambda: provisioner_view(compared),
        exit_code=INTERRUPTED if compared.interrupted else 0,
        blocks=lambda: compared_simulation_blocks(dict(zip(names, runs, strict=True))),
    )


def provisioner_view(compared: ProvisionerComparison) -> View:
    """Build the view of two provisioners: their totals, and the machines that each used."""
    name = f"{compared.name}: " if compared.name else ""
    rows: list[Row] = [
        [
            run.provisioner,
            f"{run.node_hours:,.1f}",
            money_cell(run.cost),
            f"{run.most_nodes:,}",
            *(Cell(format_time(value), value=value) for value in (run.pending_p50, run.pending_p95, run.pending_max)),
            run.pending_at_end,
            run.added,
            run.removed,
            run.evictions,
            f"{run.over_provisioned:,.1f}",
        ]
        for run in compared.runs
    ]
    totals = make_columns(
        "NODE-HOURS", "COST", "MOST NODES", "P50 WAIT", "P95 WAIT", "LONGEST", "AT END", "ADDED", "REMOVED", "EVICTED",
        "IDLE CORE-HOURS", align="right",
    )  # fmt: skip
    groups: list[Row] = [
        [run.provisioner, each.group, each.instance_type, f"{each.node_hours:,.1f}", money_cell(each.cost)]
        for run in compared.runs
        for each in run.groups
    ]
    columns = [*make_columns("PROVISIONER", "GROUP", "TYPE"), *make_columns("NODE-HOURS", "COST", align="right")]
    ended = " Interrupted." if compared.interrupted else ""
    return View(
        headline=f"{name}{format_time(compared.seconds)} simulated with each: {compared.summary()}.{ended}",
        tables=[Table([Column("PROVISIONER"), *totals], rows), Table(columns, groups)],
        footer=[f"Not simulated with {run.provisioner}: {text}." for run in compared.runs for text in run.warnings],
        names=[run.provisioner for run in compared.runs],
    )


def comparison_view(compared: ProfileComparison) -> View:
    """Build the view of a comparison: totals of both runs, decisions side by side, and the rules that differ."""
    differ = sum(bool(each.rule) for each in compared.decisions)
    name = f"{compared.name}: " if compared.name else ""
    rows: list[Row] = [
        [
            str(number),
            _time(min(t for t in (each.legacy_at, each.current_at) if t is not None)),
            each.by,
            f"{each.action} {each.about}".strip(),
            _format_time_and_text(each.legacy_at, each.legacy),
            _format_time_and_text(each.current_at, each.current),
            _rules(each),
        ]
        for number, each in enumerate(compared.decisions, 1)
    ]
    footer = [line for rule in compared.rules for line in _format_rule(rule, compared.decisions)]
    footer += [
        f"Left out of the {run.profile} run, whose programs have no such flag or refuse the value: "
        f"{', '.join(run.left_out)}."
        for run in (compared.legacy, compared.current)
        if run.left_out
    ]
    footer += [
        f"The {program} of the legacy run has the profile {profile}."
        for program, profile in compared.legacy.profiles.items()
        if profile != "legacy"
    ]
    if not compared.legacy.profiles:
        footer.append("The scenario runs no program that has a profile: both runs are the same.")
    sums = [Column("PROFILE"), *(Column(each, "right") for each in ("NODE-HOURS", "COST", "MOST NODES", "P95 WAIT"))]
    columns = [Column("#", "right")]
    columns += [Column(each) for each in ("AT", "BY", "DECISION", "LEGACY", "TODAY", "RULE")]
    return View(
        headline=f"{name}{len(compared.decisions):,} decisions, of which {differ:,} differ.",
        tables=[Table(sums, [_run(compared.legacy), _run(compared.current)]), Table(columns, rows)],
        footer=footer,
        names=[],
    )


def _rules(decision: ComparedDecision) -> str:
    """Return the rules of a decision, or its rule and the number of the decision that it follows; ``same`` without."""
    if decision.follows:
        return f"{decision.rule} {decision.follows}"
    return ", ".join((decision.rule, *decision.also)) if decision.rule else "same"


def _format_rule(rule: ReleaseRule, decisions: Sequence[ComparedDecision]) -> list[str]:
    """Return what a rule says, and what shows it in the first decision that names it (``not-explained``: in each)."""
    numbered = [(number, each) for number, each in enumerate(decisions, 1) if each.rule == rule.id]
    if rule.id == "not-explained":
        return [f"{rule.id}: {rule.legacy}.", *(f"  row {number}  {each.evidence}" for number, each in numbered)]
    if rule.legacy == rule.current:
        return [f"{rule.id}: {rule.legacy}, because of {rule.legacy_source}."]
    lines = [
        f"{rule.id}:",
        f"  then   {rule.legacy} ({rule.legacy_source})",
        f"  today  {rule.current} ({rule.current_source})",
    ]
    if numbered and numbered[0][1].evidence:
        lines.append(f"  shown  row {numbered[0][0]}: {numbered[0][1].evidence}")
    return lines


def _run(run: ComparedRun) -> Row:
    """Return the table row of a run."""
    return [
        run.profile,
        Cell(f"{run.node_hours:,.1f}", value=run.node_hours),
        money_cell(run.cost),
        run.most_nodes,
        Cell(f"{run.pending_p95:,.0f} s", value=run.pending_p95),
    ]


def _format_time_and_text(at: float | None, what: str) -> str:
    """Format what happened at a time of the run; a dash if it did not happen."""
    return "-" if at is None else f"{what} at {_time(at)}"


def _time(seconds: float) -> str:
    """Format seconds as ``H:MM:SS``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
