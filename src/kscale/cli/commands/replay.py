"""``kscale replay hpa`` and ``kscale replay decisions``: recorded load and recorded decisions, replayed in virtual
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from kscale.cli.commands.hpa import KIND
from kscale.cli.commands.simulate import HorizonOption, SeedOption, setup_of
from kscale.cli.inputs import parse_duration_option, parse_moment
from kscale.cli.live_inputs import BeginningCluster
from kscale.cli.options import option_errors
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.prometheus_options import PrometheusFlags
from kscale.cli.terminal import object_name
from kscale.effects import moment
from kscale.errors import InputError, Problem
from kscale.hpa.dump.reader import read_dump
from kscale.hpa.options import HPAOptions
from kscale.hpa.replay import (
    SERIES_KINDS,
    Load,
    Plant,
    ReplayReport,
    build_load,
    build_recorded_replicas,
    replay_report,
)
from kscale.imports import lazy_pattern
from kscale.objects.quantity import Quantity
from kscale.series import Series, SeriesKey, bin_events, read

if TYPE_CHECKING:
    from kscale.cli.terminal import Terminal
    from kscale.simulation.records import Decision
    from kscale.simulation.running import DecisionReplay

__all__ = ["replay_decisions", "replay_hpas"]


_METRIC_QUERY = lazy_pattern(r"([^\s=!<>{}()\[\]\"']+)=(?![=~])(.+)", re.DOTALL)
_FAIL_ON = lazy_pattern(r"underprovisioned[>=](\S+)")  # = is accepted too, as the shell interprets an unquoted >


def replay_hpas(
    series: list[str],
    *,
    filename: Annotated[list[str], typer.Option("-f", "--filename")],
    show: Show,
    prometheus: PrometheusFlags,
    until: str = "",
    kind: Annotated[list[str] | None, typer.Option("--series")] = None,
    replicas: Path | None = None,
    value: str = "",
    time: str = "time",
    unit: str = "s",
    bin_: Annotated[str, typer.Option("--bin")] = "",
    startup: str = "30s",
    metrics_lag: str = "30s",
    request: list[str] | None = None,
    start: Annotated[int | None, typer.Option(min=0)] = None,
    period: str = "15s",
    plot: Path | None = None,
    fail_on: str = "",
) -> Answer:
    """Run HPAs on recorded load, and show replicas over time, pod-hours, seconds under-provisioned and rescales.

    The simulated target follows a fixed rule: usage = load / ready pods. A pod is ready --startup after its creation. A
    metric is --metrics-lag old when it is read. Metrics without a series are left out. With --prometheus-url, the load
    is the result of queries over the history of Prometheus.

    Parameters
    ----------
    series : [METRIC=]SERIES...
        The load of a metric (cpu, CONTAINER/cpu, or its name; default: each HPA's first): .csv, .parquet or
        Prometheus .json; with --prometheus-url a query.
    filename : FILE
        Manifest with HPAs. Repeatable; all HPAs are compared.
    until : TIME
        With --prometheus-url: end of the load (RFC 3339). Default: now.
    kind : [METRIC=]total|per-pod|average
        Meaning of a value in the series. (default: total)
    replicas : FILE
        File with a series of the recorded replicas. Adds the share of syncs at which the HPA decides for the recorded
        replicas.
    value
        Column of the values (default: value); with --bin: a column to add up, or count (the default).
    time
        Column of the times.
    unit : s|ms|us|ns
        Unit of times that are numbers.
    bin_ : DURATION
        Width of a bin. If set, rows are events, and the load is their number per second in a bin.
    startup
        Time from the creation of a pod to its readiness.
    metrics_lag
        Age of a metric when it is read.
    request : [RESOURCE=]QUANTITY
        Request of each pod, for utilization targets. Repeatable.
    start
        Number of replicas at the beginning. Default: the minimum of the HPA, but at least 1.
    period
        Sync period of the controller.
    plot : FILE
        Also draw the replay into this file (.png, .svg).
    fail_on : underprovisioned=DURATION
        Exit with status 1 if any HPA is in this condition for longer than the given time.

    Raises
    ------
    InputError
        If there is no HPA, or a series cannot be read.
    typer.BadParameter
        If an option has no effect, or a metric has no series or several.
    """
    limit = _limit(fail_on)
    prometheus.check()
    live = bool(prometheus.prometheus_url)
    for option, useless in (
        ("--until", until and not live),
        ("--value", value and live),
        ("--bin", bin_ and live),
        ("--time", time != "time" and live and replicas is None),
        ("--unit", unit != "s" and live and replicas is None),
    ):
        if useless:
            raise typer.BadParameter(f"has no effect with{'' if live else 'out'} --prometheus-url", param_hint=option)
    end = moment(parse_moment(until)) if until else None
    kinds = _kinds(kind or ())
    plant = Plant(
        startup=_seconds(startup, "--startup"),
        lag=_seconds(metrics_lag, "--metrics-lag"),
        request=_requests(request or ()),
        start=start,
    )
    with show.terminal.step(f"reading {', '.join(series)}"):
        dumps = [read_dump(name) for name in filename]  # separately: compared manifests may have the same name
        for dump, name in zip(dumps, filename, strict=True):
            for twice in dump.duplicates:
                show.terminal.warn(f"{name}: {twice} comes twice; the last one counts")
        hpas = [hpa for dump in dumps for hpa in dump.hpas.values()]
        if not hpas:
            raise InputError([Problem("no HorizontalPodAutoscaler", ", ".join(filename))])
        read_file = partial(_read_series, time=time, unit=unit, terminal=show.terminal)
        recorded = None if replicas is None else build_recorded_replicas(read_file(replicas, "value"))
        sources: dict[str, str] = {}
        for text in series:
            metric, source = _split_query(text) if live else _split_series(text)
            if metric in sources:
                raise typer.BadParameter(f"{metric or 'the first metric'} has two series", param_hint="SERIES")
            sources[metric] = source
        if live:
            all_series = prometheus.series(list(sources.values()), end, show.terminal)
        elif bin_:
            all_series = [_events(Path(source), value or "count", time, unit, bin_) for source in sources.values()]
        else:
            all_series = [read_file(Path(each), value or "value") for each in sources.values()]
        loads: dict[str, Load] = {}
        for (metric, source), load_series in zip(sources.items(), all_series, strict=True):
            try:
                loads[metric] = build_load(load_series, kinds.get(metric, kinds[""]), recorded)
            except InputError as error:
                raise InputError([Problem(each.message, source) for each in error.problems]) from None
    for metric in kinds:
        if metric and metric not in loads:
            raise typer.BadParameter(f"{metric} has no series", param_hint="--series")
    options = HPAOptions(horizontal_pod_autoscaler_sync_period=timedelta(seconds=_seconds(period, "--period")))
    with show.terminal.step("replaying"):
        report, runs = replay_report(hpas, loads, plant, options=options, recorded=recorded)
    if plot is not None:
        from kscale.hpa.replay import plot_replays as draw

        draw(runs, plot)
    worst = max(each.under_provisioned_seconds for each in report.summaries)
    return Answer(report, lambda: _view(report), exit_code=1 if limit is not None and worst > limit else 0)


def _read_series(path: Path, value: str, *, time: str, unit: str, terminal: Terminal) -> Series:
    """Read series from a file, and log the warnings of a Prometheus response. Raises InputError as ``read`` does."""
    series = read(path, value=value, time=time, unit=unit)
    for text in series.warnings:
        terminal.warn(f"{path}: {text}")
    return series


def _events(path: Path, value: str, time: str, unit: str, width: str) -> Series:
    """Return the rates of events in a file as one series. ``width``: of the bins, a Go duration.

    Raises InputError if the file cannot be read or has no events, or if the bins are too many.
    """
    counting = value == "count"
    rows = read(path, value="" if counting else value, time=time, unit=unit, events=True)
    length = round(_seconds(width, "--bin") * 1e9)
    try:
        begin, rate = bin_events(rows.time, length, None if counting else rows.value)
    except InputError as error:
        raise InputError([Problem(each.message, str(path)) for each in error.problems]) from None
    return Series.of([SeriesKey()], np.zeros(len(begin), np.int32), begin, rate, source=str(path))


def _seconds(text: str, option: str) -> float:
    """Parse a Go duration as seconds. Raises typer.BadParameter if it is malformed or negative."""
    return parse_duration_option(text, option) / 1e9


def _split_series(text: str) -> tuple[str, str]:
    """Split ``[METRIC=]SERIES`` into metric and file. The name of an existing file has no metric."""
    metric, equals, path = text.partition("=")
    return (metric, path) if equals and not Path(text).exists() else ("", text)


def _split_query(text: str) -> tuple[str, str]:
    """Split ``[METRIC=]QUERY`` into metric and query.

    A query has no single ``=`` outside of braces, so text before one is a metric.
    """
    match = _METRIC_QUERY.fullmatch(text)
    return (match[1], match[2]) if match else ("", text)


def _kinds(arguments: Sequence[str]) -> dict[str, str]:
    """Parse ``--series`` as kind by metric; the key of the default is empty.

    Raises typer.BadParameter for an unknown kind.
    """
    kinds = {"": SERIES_KINDS[0]}
    for text in arguments:
        metric, _, kind = text.rpartition("=")
        if kind not in SERIES_KINDS:
            raise typer.BadParameter(f"{kind!r} is not one of {', '.join(SERIES_KINDS)}", param_hint="--series")
        kinds[metric] = kind
    return kinds


def _requests(arguments: Sequence[str]) -> dict[str, Quantity] | None:
    """Parse ``--request`` as quantity by resource (empty if it names none); None without the option.

    Raises typer.BadParameter if a quantity is malformed or not above zero.
    """
    requests = {}
    for text in arguments:
        resource, _, amount = text.rpartition("=")
        with option_errors("--request"):
            requests[resource] = Quantity(amount)
        if requests[resource].sign <= 0:
            raise typer.BadParameter("a request must be greater than zero", param_hint="--request")
    return requests or None


def _limit(text: str) -> float | None:
    """Parse ``--fail-on`` as seconds; None if it is not set. Raises typer.BadParameter if it is malformed."""
    if not text:
        return None
    match = _FAIL_ON.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not underprovisioned=DURATION", param_hint="--fail-on")
    return _seconds(match[1], "--fail-on")


def _view(report: ReplayReport) -> View:
    """Build the table and headline of replayed variants."""
    best = min(report.summaries, key=lambda each: (each.under_provisioned_seconds, each.pod_hours))
    rows: list[Row] = [
        [
            each.name,
            Cell(f"{each.pod_hours:,.1f}", value=each.pod_hours),
            Cell(f"{each.under_provisioned_seconds:,.0f}", value=each.under_provisioned_seconds),
            each.rescales,
            Cell(f"{each.min_replicas}..{each.max_replicas}", value=(each.min_replicas, each.max_replicas)),
            None if each.agreement is None else Cell(f"{each.agreement:.1%}", value=each.agreement),
            ", ".join(f"{name} {count:,}" for name, count in each.decided_by.items()),
        ]
        for each in report.summaries
    ]
    columns = [
        Column("HPA"),
        *make_columns("POD-HOURS", "SECONDS UNDER-PROVISIONED", "RESCALES", align="right"),
        Column("REPLICAS", "right", fields=("min_replicas", "max_replicas")),
        Column("AGREES WITH RECORD", "right"),
        Column("SYNCS DECIDED BY", wide=True),
    ]
    plant_report = report.plant
    plant = f"usage = {plant_report.usage}, startup {plant_report.startup:g} s"
    plant += f", metrics {plant_report.metrics_lag:g} s old, over {plant_report.window:g} s"
    plant += "".join(f", request {f'{name} ' if name else ''}{each}" for name, each in plant_report.requests.items())
    short = f"{best.under_provisioned_seconds:,.0f} s under-provisioned"
    return View(
        headline=f"{best.name}: {best.pod_hours:,.1f} pod-hours, {short}, "
        f"{best.rescales:,} rescales in {report.syncs:,} syncs.",
        tables=[Table(columns, rows)],
        footer=[
            f"Plant: {plant}; the controller {plant_report.controller}.",
            *(f"Not modelled: {text}." for text in report.unmodelled),
        ],
        names=[object_name(KIND, None, each.name) for each in report.summaries],
    )


_DIFFERS = "differs"
_LONGEST = 90  # maximum length of a decision's text


def replay_decisions(
    scenario: Path,
    decisions: Path,
    *,
    source: BeginningCluster,
    horizon: HorizonOption = "",
    seed: SeedOption = None,
    fail_on: Annotated[str, typer.Option(metavar=_DIFFERS)] = "",
    show: Show,
) -> Answer:
    """Would autoscalers still decide what they did? Runs a scenario again, and shows the first decision that differs.

    The difference may be a later kscale, other flags in the scenario, or slower machines. Options that the run had (-f,
    --horizon, --seed) are needed again.

    Parameters
    ----------
    scenario : SCENARIO
        The scenario of the run, YAML or JSON.
    decisions : DECISIONS
        File of its decisions, decisions.jsonl, as `kscale simulate --to` writes it.
    fail_on
        Exit with status 1 if a decision differs.

    Raises
    ------
    InputError
        If the scenario or the decisions cannot be read, or --fail-on is unknown.
    """
    from kscale.simulation.running import read_decisions, replay_decisions

    if fail_on not in ("", _DIFFERS):
        raise InputError(Problem(f"{fail_on!r} is not {_DIFFERS}", field="--fail-on"))
    source.check()
    recorded = read_decisions(decisions)
    setup = setup_of(scenario, source, horizon, seed, show)
    with show.terminal.step("replaying") as update:
        report = replay_decisions(recorded, setup, progress=lambda done, of: update(f"replaying: {done * 100 // of} %"))
    return Answer(report, lambda: _decisions_view(report), exit_code=int(bool(fail_on) and report.differs))


def _decisions_view(report: DecisionReplay) -> View:
    """Build the table and headline of replayed decisions beside the recorded ones."""
    name = f"{report.name}: " if report.name else ""
    rows = [
        [
            each.name,
            each.recorded,
            each.replayed,
            each.same,
            _text_of(each.recorded_first, each.replayed_first),
            _text_of(each.replayed_first, each.recorded_first),
        ]
        for each in report.autoscalers
    ]
    verdict = "some differ" if report.differs else "all are the same"
    return View(
        headline=f"{name}{report.recorded:,} decisions recorded, {report.replayed:,} made now: {verdict}.",
        tables=[
            Table(
                [
                    Column("AUTOSCALER"),
                    *make_columns("RECORDED", "NOW", "SAME", align="right"),
                    *make_columns("FIRST THAT DIFFERS", "NOW"),
                ],
                rows,
            )
        ],
        names=[each.name for each in report.autoscalers if each.recorded_first or each.replayed_first],
    )


def _text_of(decision: Decision | None, other: Decision | None) -> str | None:
    """Format a decision: ``2026-05-04T00:05:30Z IncreaseSize group=general delta=2``; None for None.

    Of a long decision, values that are equal in ``other`` may be left out.
    """
    if decision is None:
        return None
    ending = f", refused: {decision.error}" if decision.error else ""
    about = " ".join(f"{name}={value}" for name, value in decision.arguments.items() if value is not False)
    text = f"{decision.at} {decision.action} {about}{ending}"
    if len(text) <= _LONGEST or other is None or other.action != decision.action:
        return text
    values, others = dict(_values(decision.arguments)), dict(_values(other.arguments))
    parts, room = [], _LONGEST
    for path, value in values.items():
        part = f"{path}={value}"
        room -= len(part)
        if room >= 0 or path not in others or others[path] != value:
            parts.append(part)
        elif parts[-1:] != ["..."]:
            parts.append("...")
    missing = [path for path in others if path not in values]
    without = f" (without {', '.join(missing)})" if missing else ""
    return f"{decision.at} {decision.action} {' '.join(parts)}{without}{ending}"


def _values(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in nested data with the path to it (``patch.spec.taints[0].key``).

    Fields of the outermost dict that are False are left out.
    """
    if isinstance(data, dict) and data:
        for name, value in data.items():
            if path or value is not False:
                yield from _values(value, f"{path}.{name}" if path else name)
    elif isinstance(data, list) and data:
        for number, value in enumerate(data):
            yield from _values(value, f"{path}[{number}]")
    else:
        yield path, data
