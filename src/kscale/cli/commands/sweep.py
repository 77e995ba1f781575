"""``kscale sweep``: scenarios by the thousand, on all cores, a Dask or a Ray cluster; a fleet of dumps in one table."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from kscale.cli.aws import GROUPS_PREFIX
from kscale.cli.commands.whatif import SIMULATION_HELP, WAITED, format_notes, grown, seconds, simulator
from kscale.cli.groups import GroupSource, Untyped
from kscale.cli.inputs import DUMP_HELP, parse_moment, read
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.terminal import plural, progress
from kscale.errors import InputError, KscaleError
from kscale.imports import library

if TYPE_CHECKING:
    from kscale.capacity.sweep import CompletedTask
    from kscale.capacity.whatif.running import SweepReport, SweepRow

__all__ = ["EPILOG", "command", "sweep_view", "workers_of"]

EPILOG = DUMP_HELP
INTERRUPTED = 130


def command(
    scenarios: Path | None = None,
    *,
    source: Clusters,
    group_source: GroupSource,
    vary: list[str] | None = None,
    expander: str = "least-waste",
    jobs: Annotated[int | None, typer.Option(min=1)] = None,
    executor: str | None = None,
    simulation: Annotated[Path | None, typer.Option(metavar="FILE", help=SIMULATION_HELP)] = None,
    now: str | None = None,
    show: Show,
) -> Answer:
    """Decide each of many scenarios, on all cores. Ctrl-C ends the sweep and keeps finished results.

    A quoted pattern ('dumps/*.json') for -f is a fleet: every dump is a cluster of its own, in one table.

    Parameters
    ----------
    scenarios : [SCENARIOS]
        File with the scenarios, as for kscale whatif (YAML or JSON).
    vary : PATH=VALUES
        Values to vary: flags.expander=price,least-waste; groups.spot.price=0.1..0.4:7 (seven values);
        pods.NS/KIND/NAME=x1,x2; pods.*=x1.4. Repeatable: every combination, on top of each scenario.
    expander
        Expander of the baseline; see kscale scale-up.
    jobs : N
        Number of processes; the default is one for each core.
    executor : URL
        Run on other workers: dask://HOST:PORT, a Dask scheduler (extra [dask]); ray://HOST:PORT, a Ray cluster by
        its client server (extra [ray]).
    now : TIME
        The time of the decisions, RFC 3339; default: now.

    Raises
    ------
    typer.BadParameter
        If options contradict each other.

    Returns
    -------
    Answer
        The exit status is that of an interrupt after Ctrl-C, else 2 if a scenario ended with an error.
    """
    from datetime import UTC, datetime

    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.sweep import sweep
    from kscale.capacity.whatif import Base, Scenario, read_scenarios
    from kscale.capacity.whatif.running import Fleet, SweepReport, rows_of_base, rows_of_fleet
    from kscale.capacity.whatif.scenarios import combine_variations

    source.check()
    if jobs is not None and executor is not None:
        raise typer.BadParameter("--jobs and --executor exclude each other", param_hint="--jobs")
    all_scenarios = read_scenarios(scenarios) if scenarios is not None else []
    all_scenarios = combine_variations(vary, all_scenarios) if vary else all_scenarios or [Scenario(name="as-it-is")]
    moment = datetime.now(UTC) if now is None else parse_moment(now)
    options = AutoscalingOptions(expander=expander)
    catalogue = group_source.read_catalogue(show.terminal)
    simulate = simulator(all_scenarios, simulation)
    dumps = _fleet(source)
    with workers_of(executor, jobs) as (pool, count, share):
        if dumps is None:
            cluster, snapshot = read(source, show.terminal)
            groups = group_source.read_groups(cluster, snapshot, show.terminal, untyped=Untyped.PRICES)
            folder = scenarios.parent if scenarios is not None else "."
            base = Base(cluster, groups, moment, options, catalogue, folder, simulate=simulate)
            answers: Iterator[CompletedTask[Any]] = sweep(
                rows_of_base, all_scenarios, base=base, executor=pool, workers=count, share=share
            )
            names = [("", [each.name]) for each in all_scenarios]
        else:
            if group_source.node is not None or group_source.instance_type:
                raise typer.BadParameter("a fleet takes -g, or groups recognised in the labels", param_hint="-f")
            if (group_source.groups_file or "").startswith(GROUPS_PREFIX):
                raise typer.BadParameter("groups of a live account are of one cluster", param_hint="-g")
            fleet = Fleet(group_source.groups_file, catalogue, moment, options, simulate)
            tasks = [(dump, all_scenarios) for dump in dumps]
            answers = sweep(rows_of_fleet, tasks, base=fleet, executor=pool, workers=count, chunk=1, share=share)
            names = [(dump, [each.name for each in all_scenarios]) for dump in dumps]
        rows, interrupted = _collect_rows(answers, names, show)
    all_rows = [row for each in rows for row in each or ()]
    undecided = sum(len(expected) for each, (_, expected) in zip(rows, names, strict=True) if each is None)
    if interrupted:
        show.terminal.warn(f"interrupted: {undecided:,} {plural('scenario', undecided)} not decided")
    failed = any(row.error for row in all_rows)
    return Answer(
        SweepReport(rows=all_rows, unfinished=undecided),
        lambda: sweep_view(SweepReport(rows=all_rows, unfinished=undecided)),
        exit_code=INTERRUPTED if interrupted else 2 if failed else 0,
    )


def _fleet(source: Clusters) -> list[str] | None:
    """Return the dumps that ``-f`` names and its patterns match, each once; None if no name is a pattern.

    Raises InputError if a pattern matches no file.
    """
    if not any(glob.has_magic(name) for name in source.filename):
        return None
    files: dict[str, None] = {}
    for name in source.filename:
        dumps = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else [name]
        if not dumps:
            raise InputError(f"{name}: no such file")
        files.update(dict.fromkeys(dumps))
    return list(files)


@contextmanager
def workers_of(executor: str | None, jobs: int | None) -> Iterator[_Workers]:
    """Yield (executor for ``sweep``, number of workers, function that shares data with them or None).

    The executor is a number of local processes, None for this process, or that of a Dask or Ray cluster. Raises
    KscaleError if workers end repeatedly without a result.
    """
    try:
        with _workers(executor, jobs) as workers:
            yield workers
    except BrokenExecutor as error:
        text = f"workers ended repeatedly without a result (out of memory?): {error}"
        raise KscaleError(text) from None


@contextmanager
def _workers(executor: str | None, jobs: int | None) -> Iterator[_Workers]:
    """Yield what :func:`workers_of` yields. Raises typer.BadParameter for a malformed URL."""
    if executor is None:
        count = jobs or os.cpu_count() or 1
        yield (None if count == 1 else count), count, None
        return
    try:
        address = urlsplit(executor)
        complete = bool(address.hostname and address.port)
    except ValueError:  # no number, or brackets that do not close
        complete = False
    if not complete or address.scheme not in _CLUSTERS:
        raise typer.BadParameter(
            f"{executor!r} is neither dask://HOST:PORT nor ray://HOST:PORT", param_hint="--executor"
        )
    with _CLUSTERS[address.scheme](address.netloc) as workers:
        yield workers


_Workers = tuple[Executor | int | None, int, Callable[[Any], Any] | None]


@contextmanager
def _open_dask(address: str) -> Iterator[_Workers]:
    """Connect to a Dask scheduler (``HOST:PORT``); yield as :func:`workers_of`.

    Raises InputError if it cannot be reached, and BrokenExecutor if its workers end repeatedly.
    """
    import numpy as np

    from kscale.capacity.sweep import pickle_in_parts, unpickle_parts

    distributed = library("distributed", "--executor dask://")
    dask = library("dask", "--executor dask://")
    try:
        client = distributed.Client(f"tcp://{address}", timeout=10)
    except (OSError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler at {address}: {error}") from None
    with client, client.get_executor() as pool:
        count = max(1, sum(client.nthreads().values()))

        def share(base: Any) -> Any:
            """Send data to the cluster once; return what tasks use in its place."""
            # A task instead of scattered data: Dask repeats a task after its worker is lost, but cannot restore
            # scattered data. `pure=False`: deriving the key from the content takes Dask longer than sending it.
            # Arrays instead of bytes: Dask sends them without copies.
            parts = [np.frombuffer(part, dtype=np.uint8) for part in pickle_in_parts(base)]
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": sys.maxsize}):
                return client.submit(unpickle_parts, *parts, pure=False)

        try:
            yield pool, count, share
        except distributed.KilledWorker as error:
            raise BrokenExecutor(str(error)) from None


@contextmanager
def _open_ray(address: str) -> Iterator[_Workers]:
    """Connect to a Ray cluster (``HOST:PORT``); yield as :func:`workers_of`."""
    from kscale.capacity.sweep import RayExecutor

    with RayExecutor(f"ray://{address}") as pool:
        yield pool, pool.workers, pool.share


_CLUSTERS: dict[str, Callable[[str], AbstractContextManager[_Workers]]] = {"dask": _open_dask, "ray": _open_ray}


def _collect_rows(
    answers: Iterator[CompletedTask[Any]], names: list[tuple[str, list[str]]], show: Show
) -> tuple[list[list[SweepRow] | None], bool]:
    """Return the rows of each scenario or dump, and whether Ctrl-C ended the run.

    ``names``: (cluster, scenarios) of each. The rows are None if it was not decided; after an InputError each of its
    scenarios has a row with the error.
    Raises other errors of workers.
    """
    from kscale.capacity.whatif.running import SweepRow

    rows: list[list[SweepRow] | None] = [None] * len(names)
    done = 0
    with show.terminal.step("deciding") as update:
        try:
            for answer in answers:
                cluster, scenarios = names[answer.index]
                if answer.error is not None:
                    if not isinstance(answer.error, InputError):
                        raise answer.error
                    text = str(answer.error)
                    rows[answer.index] = [SweepRow(cluster=cluster, scenario=name, error=text) for name in scenarios]
                elif isinstance(answer.value, SweepRow):
                    rows[answer.index] = [answer.value]
                else:
                    rows[answer.index] = answer.value
                done += 1
                update(f"deciding {progress(done, len(names))}")
        except KeyboardInterrupt:
            return rows, True
    return rows, False


_COLUMNS = (
    Column("SCENARIO"),
    *make_columns("NODES", "$/H", "CHANGE", "PENDING", "HOMELESS", align="right"),
    Column("GROUPS", wide=True),
    Column("DIFFERS BECAUSE"),
)


def sweep_view(report: SweepReport) -> View:
    """Build the view of a sweep with one row per scenario. The headline names the cheapest, except for a fleet."""
    fleet = any(row.cluster for row in report.rows)
    waited = any(row.row is not None and row.row.pending_seconds is not None for row in report.rows)
    columns = (*([Column("CLUSTER")] if fleet else []), *_COLUMNS[:-1], *([WAITED] if waited else []), _COLUMNS[-1])
    decided = [(row, row.row) for row in report.rows if row.row is not None]
    failed = len(report.rows) - len(decided)
    count = len(report.rows) + report.unfinished
    text = f"{len(decided):,} of {count:,} {plural('scenario', count)} decided"
    priced = [(row.row.cost, row) for row in report.rows if row.row is not None and row.row.cost is not None]
    if priced and not fleet:
        cost, best = min(priced, key=lambda pair: pair[0])
        text += f"; the cheapest is {best.scenario}, ${cost:,.2f}/h"
    if failed:
        text += f"; {failed:,} ended with an error"
    return View(
        headline=f"{text}.",
        tables=[Table(columns, [_row(row, fleet, waited) for row in report.rows])],
        footer=format_notes((row.scenario, row.row) for row in report.rows if row.row is not None),
        names=[f"scenario/{row.scenario}" for row in report.rows],
    )


def _row(row: SweepRow, fleet: bool, waited: bool) -> Row:
    """Return the table row of a scenario. ``fleet``: with the cluster; ``waited``: with the pods' waiting time."""
    first: Row = [row.cluster] if fleet else []
    if row.row is None or row.baseline is None:
        return [*first, row.scenario, *[None] * (7 if waited else 6), Cell(row.error, "bad")]
    now, before = row.row, row.baseline
    change = None
    if now.cost is not None and before.cost:
        share = now.cost / before.cost - 1.0
        change = Cell(f"{share:+.1%}", value=round(share, 6))
    return [
        *first,
        row.scenario,
        now.nodes,
        None if now.cost is None else Cell(f"{now.cost:,.2f}", value=now.cost),
        change,
        now.pending,
        now.homeless,
        grown(now),
        *([None if now.pending_seconds is None else seconds(now.pending_seconds)] if waited else []),
        now.differs,
    ]
