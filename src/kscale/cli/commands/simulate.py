"""``kscale simulate``: autoscalers in a simulated cluster, in virtual time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from kscale.cli.inputs import read_cluster
from kscale.cli.karpenter import Provisioner
from kscale.cli.live_inputs import BeginningCluster
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns, money_cell
from kscale.cli.pictures import simulation_blocks
from kscale.cli.terminal import plural, pods, progress

if TYPE_CHECKING:
    from kscale.simulation import Setup, SimulationReport
    from kscale.simulation.scenario import Scenario

__all__ = [
    "INTERRUPTED",
    "HorizonOption",
    "SeedOption",
    "command",
    "format_time",
    "interruptible",
    "read_settings",
    "setup_of",
    "simulation_view",
]

INTERRUPTED = 130


HorizonOption = Annotated[
    str, typer.Option("--horizon", metavar="DURATION", help="Length of the run, instead of the scenario's.")
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Random seed of the run, instead of the scenario's.")]


def command(
    scenario: Path,
    *,
    source: BeginningCluster,
    horizon: HorizonOption = "",
    seed: SeedOption = None,
    provisioner: Provisioner | None = None,
    to: Path | None = None,
    ideal: Annotated[int, typer.Option(min=0)] = 0,
    show: Show,
) -> Answer:
    """Runs autoscalers in a simulated cluster, in virtual time: what it costs, how long pods wait, what they did.

    The cluster starts as a dump (-f) or as the current state of a live cluster (--context), with the objects of the
    scenario added; without both, as the scenario describes it. The programs are those of `kscale run`, with upstream's
    decisions. The scheduler takes the first node that fits, or the one with the best scores. The same scenario and seed
    give the same run. Ctrl-C ends the run early; the simulated part is reported.

    Parameters
    ----------
    scenario : SCENARIO
        A scenario file, YAML or JSON.
    provisioner : NAME
        The program that adds and removes nodes, instead of the scenario's: cluster-autoscaler or karpenter.
    to : DIR
        Directory to which the report, the decisions (JSON lines) and the timelines (Parquet) are written, too.
    ideal : N
        Search for the cheapest mix of nodes at N evenly spaced moments, and divide the cost of the machines into its
        causes. 0: no search.

    Raises
    ------
    InputError
        If the scenario cannot be read or has errors.
    """
    from kscale.simulation import simulate

    source.check()
    source.check_alone(("--to", to))
    setup = setup_of(scenario, source, horizon, seed, show, "" if provisioner is None else provisioner.value)
    with show.terminal.step("simulating") as update, interruptible() as stop:
        run = simulate(
            setup,
            stop=stop,
            progress=lambda done, of: update(f"simulating {progress(done * 100 // of, 100)} %"),
            ideal=ideal,
        )
    if to is not None:
        with show.terminal.step("writing"):
            files = run.write(to)
        show.terminal.note(f"wrote {', '.join(map(str, files))}")
    report = run.report
    return Answer(
        report,
        lambda: simulation_view(report),
        exit_code=INTERRUPTED if report.interrupted else 0,
        blocks=lambda: simulation_blocks(run),
    )


def read_settings(path: Path, horizon: str, seed: int | None) -> Scenario:
    """Read a scenario file and replace its horizon and seed by those of the options, if these are set.

    Raises InputError if the file cannot be read or has errors.
    """
    from kscale.simulation import read_scenario

    replaced = {"horizon": horizon or None, "seed": seed}
    return replace(read_scenario(path), **{name: value for name, value in replaced.items() if value is not None})


def setup_of(
    scenario: Path, source: BeginningCluster, horizon: str, seed: int | None, show: Show, provisioner: str = ""
) -> Setup:
    """Build a simulation from a scenario file, the initial cluster, and options that replace fields of the scenario.

    Raises InputError if the scenario or the cluster cannot be read or has errors.
    """
    from kscale.simulation import build

    settings = read_settings(scenario, horizon, seed)
    if provisioner:
        settings = replace(settings, provisioner=provisioner)
    cluster = read_cluster(source, show.terminal) if source.has_input else ()
    with show.terminal.step("building"):
        return build(settings, source=str(scenario), folder=scenario.parent, cluster=cluster)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Catch Ctrl-C; yields a function that returns whether it was pressed.

    The second Ctrl-C ends the program as usual.
    """
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        del frame
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def simulation_view(report: SimulationReport) -> View:
    """Build the view of a simulation: node groups, queues, jobs, recommendations, and what the autoscalers did."""
    pending, cores = report.pending_pods, report.cores
    cost = "" if report.cost is None else f", ${report.cost:,.2f}"
    name = f"{report.name}: " if report.name else ""
    parts = [f"{name}{format_time(report.seconds)} simulated: {report.node_hours:,.1f} node-hours{cost}"]
    if report.ungrouped_node_hours:
        parts.append(f"{report.ungrouped_node_hours:,.1f} more of nodes of no group, which have no price")
    if pending.pods:
        parts.append(f"a pod waited {format_time(pending.p50)} for its node (p95 {format_time(pending.p95)})")
    if report.jobs:
        complete = sum(each.outcome == "complete" for each in report.jobs)
        parts.append(f"{complete:,} of {len(report.jobs):,} {plural('job', len(report.jobs))} completed")
    if report.late is not None:
        parts.append(f"{report.late:.1%} of the work was late")
    groups: list[Row] = [
        [
            each.group,
            each.instance_type or None,
            Cell(f"{each.node_hours:,.1f}", value=each.node_hours),
            money_cell(each.cost),
            each.added,
            each.removed,
            each.lost,
        ]
        for each in report.groups
    ]
    queues: list[Row] = [
        [
            each.workload,
            Cell(f"{each.arrived:,.0f}", value=each.arrived),
            Cell(f"{each.late:.1%}", value=each.late),
            Cell(f"{each.left:,.0f}", value=each.left),
        ]
        for each in report.queues
    ]
    offered = f"{cores.provisioned:,.1f} offered, {cores.requested:,.1f} asked for by pods on nodes"
    offered += f", {cores.over_provisioned:,.1f} nobody asked for, {cores.under_provisioned:,.2f} missing"
    rounds = ", ".join(f"{each.name} {each.rounds:,} ({each.skipped:,} skipped)" for each in report.controllers)
    columns = [Column("QUEUE"), *make_columns("ARRIVED", "LATE", "LEFT", align="right")]
    left = f"; {pods(pending.at_end)} waiting at the end" if pending.at_end else ""
    refused = f"; refused: {_counts(report.refusals)}" if report.refusals else ""
    return View(
        headline="; ".join(parts) + "." + (" Interrupted." if report.interrupted else ""),
        tables=[
            Table(
                [
                    *make_columns("GROUP", "TYPE"),
                    *make_columns("NODE-HOURS", "COST", "ADDED", "REMOVED", align="right"),
                    Column("LOST", "right", wide=not report.interruptions),
                ],
                groups,
            ),
            Table(columns, queues),
            _jobs(report),
            _build_recommendation_table(report),
        ],
        footer=[
            *_ideal(report),
            f"Core-hours: {offered}.",
            *_job_totals(report),
            *_interruptions(report),
            *_waits(report, left),
            f"Done: {_counts(report.actions) or 'nothing'}{refused}.",
            f"Rounds: {rounds or 'none'}.",
            *(f"Not simulated: {text}." for text in report.warnings),
        ],
        names=[each.group for each in report.groups],
    )


_OUTCOMES: Final = ("failed", "deleted", "suspended", "running", "complete")
_JOBS_SHOWN: Final = 40


def _jobs(report: SimulationReport) -> Table:
    """Build the table of jobs by outcome, those that did not complete first."""
    columns = (
        *make_columns("JOB", "OUTCOME"),
        *make_columns("COMPLETED", "FAILED", "RESTARTS", "MAKESPAN", align="right"),
        Column("WORK", "right", wide=True),
        Column("LOST WORK", "right"),
    )
    jobs = sorted(report.jobs, key=lambda each: _OUTCOMES.index(each.outcome))
    rows: list[Row] = [
        [
            each.job,
            Cell(each.outcome, "bad") if each.outcome in ("failed", "deleted") else each.outcome,
            each.completed,
            each.failed,
            each.restarts,
            None if each.makespan is None else Cell(format_time(each.makespan), value=each.makespan),
            Cell(format_time(each.work), value=each.work),
            Cell(format_time(each.lost_work), value=each.lost_work),
        ]
        for each in jobs
    ]
    return Table(columns, rows, limit=_JOBS_SHOWN)


def _waits(report: SimulationReport, left: str) -> list[str]:
    """Return lines on how long pods waited for a node, and how many at once.

    ``left``: text after the longest wait, about the pods that still wait.
    """
    pending, length = report.pending_pods, report.pending_pods.length
    if not pending.pods:
        return ["Pods: 0 looked for a node."]
    times = ", ".join(f"{name} {format_time(getattr(pending, name))}" for name in ("p50", "p90", "p99"))
    at_once = f"{length.mean:,.1f} pods on average, p90 {length.p90:,}, p99 {length.p99:,}, at most {length.max:,}"
    return [
        f"Pods: {pending.pods:,} looked for a node: {times}, longest {format_time(pending.max)}{left}.",
        f"Waiting at once: {at_once}.",
    ]


def _job_totals(report: SimulationReport) -> list[str]:
    """Return a line on all jobs; empty without jobs."""
    totals = report.job_totals
    if totals is None:
        return []
    names = ("complete", "failed", "deleted", "suspended", "running")
    counts = ", ".join(f"{count:,} {name}" for name in names if (count := getattr(totals, name)))
    parts = [counts]
    if (makespan := totals.makespan) is not None:
        times = ", ".join(f"{name} {format_time(getattr(makespan, name))}" for name in ("p50", "p90", "p99"))
        parts.append(f"makespan {times}, longest {format_time(makespan.max)}")
    if totals.restarts or totals.lost_work:
        lost, total = totals.lost_work, totals.lost_work + totals.work
        share = f" ({lost / total:.0%} of all work)" if total else ""
        parts.append(
            f"{totals.restarts:,} {plural('restart', totals.restarts)}, {format_time(lost)} of work lost{share}"
        )
    if totals.cost_per_completed_job is not None:
        parts.append(f"{totals.cost_per_completed_job:,.2f} for machines per completed job")
    return [f"Jobs: {'; '.join(parts)}."]


def _interruptions(report: SimulationReport) -> list[str]:
    """Return lines about lost machines and outages of zones; empty if there are none."""
    lines = [
        f"Outage of zone {each.zone} at {each.at}, for {format_time(each.seconds)}: {each.machines:,} "
        f"{plural('machine', each.machines)} and {pods(each.pods)} lost."
        for each in report.outages
    ]
    if not report.interruptions and not report.interrupted_pods:
        return lines
    count = report.interruptions
    lost = f"{pods(report.interrupted_pods)} with them" if report.interrupted_pods else "no pods with them"
    return [f"Interruptions: {count:,} {plural('machine', count)} lost, {lost}.", *lines]


def _build_recommendation_table(report: SimulationReport) -> Table:
    """Build the table of the VPAs' recommendations at the end."""
    names = ("cpu", "memory")
    rows: list[Row] = [
        [each.vpa, each.container, *(each.target.get(name) for name in names)] for each in report.recommendations
    ]
    return Table([Column("VPA"), Column("CONTAINER"), *(Column(name.upper(), "right") for name in names)], rows)


def _ideal(report: SimulationReport) -> list[str]:
    """Return a line that splits the cost into its causes; empty if the report has no ideal cost."""
    ideal = report.ideal
    if ideal is None:
        return []
    proof = f" by {' and '.join(ideal.methods)}" if ideal.methods else ""
    lost = f" (without {ideal.unplaced:,} pods that it had no place for: nodes as paid)" if ideal.unplaced else ""
    text = (
        f"Paid ${ideal.paid:,.2f} = ${ideal.ideal:,.2f} cheapest mix found for the load{lost} "
        f"(at least ${ideal.bound:,.2f}{proof}) + ${ideal.hpa:,.2f} pods beyond it (HPA) "
        f"+ ${ideal.packing:,.2f} packing + ${ideal.ca:,.2f} nodes without pods (CA) + ${ideal.boot:,.2f} booting."
    )
    return [text]


def _counts(counts: dict[str, int]) -> str:
    """Format counts by name: ``a 2, b 1``."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def format_time(seconds: float) -> str:
    """Format a duration in seconds (below two minutes), minutes (below two hours) or hours with one decimal."""
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
