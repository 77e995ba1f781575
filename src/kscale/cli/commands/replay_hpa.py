"""``kscale replay hpa``: HPAs over recorded load, in virtual time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from kscale.cli.output import Answer, Cell, Column, Show, Table, View
from kscale.errors import InputError, Problem
from kscale.hpa.dump import read_dump
from kscale.hpa.options import HPAOptions
from kscale.hpa.replay import Plant, ReplayReport, replay_report
from kscale.hpa.replay_input import SERIES_KINDS, load_of
from kscale.objects.durations import parse_duration
from kscale.objects.quantity import Quantity, QuantityError
from kscale.series import Series, SeriesKey, bin_events, read

__all__ = ["command"]

_FAIL_ON = re.compile(r"(underprovisioned)>(\S+)")


def command(
    series: Annotated[Path, typer.Argument(metavar="SERIES", help="The load: .csv, .parquet or Prometheus .json.")],
    *,
    filename: Annotated[
        list[str], typer.Option("-f", "--filename", metavar="FILE", help="HPA manifests, compared side by side.")
    ],
    show: Show,
    kind: Annotated[str, typer.Option("--series", metavar="total|per-pod|average", help="What a value is.")] = "total",
    replicas: Annotated[
        Path | None,
        typer.Option("--replicas", metavar="FILE", help="Recorded replicas, a series too: adds the open-loop check."),
    ] = None,
    value: Annotated[
        str, typer.Option("--value", help="The column of the values; with --bin: count, or a column to add up.")
    ] = "value",
    time: Annotated[str, typer.Option("--time", help="The column of the times.")] = "time",
    unit: Annotated[str, typer.Option("--unit", metavar="s|ms|us|ns", help="What a time as a number counts.")] = "s",
    bin_: Annotated[
        str, typer.Option("--bin", metavar="DURATION", help="The rows are events: their rate in bins of this width.")
    ] = "",
    startup: Annotated[str, typer.Option("--startup", help="From a pod's making to its readiness.")] = "30s",
    metrics_lag: Annotated[str, typer.Option("--metrics-lag", help="Age of a metric when it is read.")] = "30s",
    request: Annotated[str, typer.Option("--request", help="Request of a pod, for utilization targets.")] = "",
    start: Annotated[int | None, typer.Option("--start", min=0, help="Replicas at the beginning.")] = None,
    period: Annotated[str, typer.Option("--period", help="Sync period.")] = "15s",
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw it (.png, .svg).")] = None,
    fail_on: Annotated[
        str,
        typer.Option("--fail-on", metavar="underprovisioned>DURATION", help="Exit with 1 if any HPA is."),
    ] = "",
) -> Answer:
    """What would HPAs have done on recorded load? Replicas over time, pod-hours, seconds under-provisioned, rescales.

    The plant is stated, not guessed: usage = load / ready pods; a pod is ready --startup after it was made; a metric
    is --metrics-lag old when it is read. The first metric of each HPA reads the load.
    """
    limit = _limit(fail_on)
    if kind not in SERIES_KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(SERIES_KINDS)}", param_hint="--series")
    plant = Plant(
        startup=_seconds(startup, "--startup"),
        lag=_seconds(metrics_lag, "--metrics-lag"),
        request=_quantity(request),
        start=start,
    )
    with show.terminal.step(f"reading {series}"):
        hpas = list(read_dump(*filename).hpas.values())
        if not hpas:
            raise InputError([Problem("no HorizontalPodAutoscaler", ", ".join(filename))])
        load = _events(series, value, time, unit, bin_) if bin_ else read(series, value=value, time=time, unit=unit)
        recorded = None if replicas is None else read(replicas, time=time, unit=unit)
        times, total, sizes = load_of(load, kind, recorded)
    options = HPAOptions(horizontal_pod_autoscaler_sync_period=_seconds(period, "--period"))
    with show.terminal.step("replaying"):
        report, runs = replay_report(hpas, times, total, plant, options=options, recorded=sizes)
    if plot is not None:
        from kscale.hpa.plot import plot as draw

        draw(runs, plot)
    worst = max(each.under_provisioned_seconds for each in report.summaries)
    return Answer(report, lambda: _view(report), exit_code=1 if limit is not None and worst > limit else 0)


def _events(path: Path, value: str, time: str, unit: str, width: str) -> Series:
    """Rates of events, as one series."""
    counting = value in ("count", "value")
    rows = read(path, value="" if counting else value, time=time, unit=unit, events=True)
    begin, rate = bin_events(rows.time, round(_seconds(width, "--bin") * 1e9), None if counting else rows.value)
    return Series.of([SeriesKey()], np.zeros(len(begin), np.int32), begin, rate, source=str(path))


def _seconds(text: str, option: str) -> float:
    try:
        found = parse_duration(text) / 1e9
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if found < 0:
        raise typer.BadParameter("a duration must not be negative", param_hint=option)
    return found


def _quantity(text: str) -> Quantity | None:
    try:
        return Quantity(text) if text else None
    except QuantityError as error:
        raise typer.BadParameter(str(error), param_hint="--request") from None


def _limit(text: str) -> float | None:
    if not text:
        return None
    match = _FAIL_ON.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not underprovisioned>DURATION", param_hint="--fail-on")
    return _seconds(match[2], "--fail-on")


def _view(report: ReplayReport) -> View:
    best = min(report.summaries, key=lambda each: (each.under_provisioned_seconds, each.pod_hours))
    rows: list[Sequence[Cell | str | float | None]] = [
        [
            each.name,
            f"{each.pod_hours:,.1f}",
            f"{each.under_provisioned_seconds:,.0f}",
            each.rescales,
            f"{each.min_replicas}..{each.max_replicas}",
            None if each.agreement is None else f"{each.agreement:.1%}",
        ]
        for each in report.summaries
    ]
    columns = [
        Column("HPA"),
        Column("POD-HOURS", "right"),
        Column("SECONDS UNDER-PROVISIONED", "right"),
        Column("RESCALES", "right"),
        Column("REPLICAS", "right"),
        Column("AGREES WITH RECORD", "right"),
    ]
    given = report.plant
    plant = f"usage = {given.usage}, startup {given.startup:g} s, metrics {given.metrics_lag:g} s old"
    plant += f", request {given.request}" if given.request else ""
    short = f"{best.under_provisioned_seconds:,.0f} s under-provisioned"
    return View(
        headline=f"{best.name}: {best.pod_hours:,.1f} pod-hours, {short}, "
        f"{best.rescales:,} rescales in {report.syncs:,} syncs.",
        tables=[Table(columns, rows)],
        footer=[f"Plant: {plant}.", *(f"Not modelled: {text}." for text in report.unmodelled)],
        names=[each.name for each in report.summaries],
    )
