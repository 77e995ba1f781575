"""``kscale hpa`` and ``kscale explain hpa``: decisions of the HorizontalPodAutoscalers of a dump or a live cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import typer

from kscale.cli.failures import convert_dump_errors
from kscale.cli.hpa_options import ControllerFlags
from kscale.cli.inputs import SHOWN, check_namespace, freeze_objects
from kscale.cli.live_inputs import AskedClusters, NamingClusters
from kscale.cli.options import option_errors
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View, make_columns
from kscale.cli.pictures import hpa_blocks
from kscale.cli.terminal import Terminal, format_counts, object_name, plural
from kscale.effects import ZERO_TIME, Moment, from_text
from kscale.errors import InputError, Problem, StateError
from kscale.files import read_input
from kscale.hpa.controller.decision import HPADecision, MetricDetail
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.dump.dump import Dump
from kscale.hpa.dump.reader import read_dump
from kscale.hpa.dump.records import split_scope
from kscale.hpa.dump.report import HPAReport, hpa_report
from kscale.hpa.options import HPAOptions
from kscale.snapshot.caches import collector_paused

if TYPE_CHECKING:
    from kscale.world.kubernetes.client import Client
    from kscale.world.kubernetes.listing import Listing

__all__ = ["answer", "decide_hpas", "explain_hpas"]


_FAIL_ON = ("rescale", "limited", "error")
_NO_FILE = ("settled", "fresh")  # values of --state
KIND = "HorizontalPodAutoscaler"


def decide_hpas(
    names: list[str] | None = None,
    *,
    source: AskedClusters,
    controller: ControllerFlags,
    show: Show,
    metrics: list[str] | None = None,
    now: str = "",
    state: str = "settled",
    changed_only: bool = False,
    fail_on: str = "",
) -> Answer:
    """Show what the HPAs would do: current and desired size, the deciding metric, and the rule that limits a change.

    Reads HPAs (v1, v2), KEDA ScaledObjects, their scale targets, pods, and metrics lists (metrics.k8s.io,
    custom.metrics.k8s.io, external.metrics.k8s.io); of a live cluster, what its API server answers now.

    Parameters
    ----------
    names : [NAME|NS/NAME]...
        Explain these HPAs: groups of pods and every step of the computation.
    metrics : [SCOPE=]FILE
        A metrics list as kubectl get --raw prints it. SCOPE says what an external list is for: a namespace, NS/HPA,
        or NS:SELECTOR with the label selector that the list was requested with. Repeatable.
    now : TIME
        Time of the decision (RFC 3339). Default: the newest time in the input.
    state : settled|fresh|FILE
        Past recommendations to start with. settled: none that restrain a change; fresh: those of a controller that has
        just started; FILE: the state in an output of -o json.
    changed_only
        Show only HPAs that would change their replicas.
    fail_on : rescale|limited|error
        Exit with status 1 if any HPA changes its replicas (rescale), is limited by its bounds or policies (limited), or
        ends with an error (error).

    Raises
    ------
    InputError
        If the input cannot be read, or lacks a named HPA.
    typer.BadParameter
        If options contradict each other.
    """
    if names and source.selector:
        raise typer.BadParameter("-l and the names of HPAs exclude each other", param_hint="-l")
    return answer(
        names or (),
        source,
        show,
        selector=source.selector,
        options=controller.options(),
        metrics=metrics or (),
        now=now,
        state=state,
        changed_only=changed_only,
        fail_on=fail_on,
    )


def answer(
    names: Sequence[str],
    source: NamingClusters | AskedClusters,
    show: Show,
    *,
    options: HPAOptions,
    selector: str = "",
    metrics: Sequence[str] = (),
    now: str = "",
    state: str = "settled",
    changed_only: bool = False,
    fail_on: str = "",
) -> Answer:
    """Read the input, decide, and list all selected HPAs or explain the named ones.

    Raises typer.BadParameter for contradictory options, an unknown ``fail_on``, and a saved ``state`` if neither
    ``now`` nor the input has a time. Raises InputError if the input is damaged or lacks a named HPA.
    """
    if fail_on and fail_on not in _FAIL_ON:
        raise typer.BadParameter(f"{fail_on!r} is not one of {', '.join(_FAIL_ON)}", param_hint="--fail-on")
    source.check()
    source.check_alone(("--state", None if state in _NO_FILE else state))
    state_read, decided_at = _state(state), _moment(now)
    names = [name if "/" in name else f"{source.namespace or 'default'}/{name}" for name in names]
    named_namespaces = {name.partition("/")[0] for name in names} or None
    dump = _read(
        source, show.terminal, metrics, ControllerState() if state == "fresh" else state_read, options, named_namespaces
    )
    show.terminal.note(f"read {source.source_names}: {format_counts(dump.read)}")
    for problem in dump.problems:
        show.terminal.warn(f"left out: {problem}")
    for text in dump.duplicates[:SHOWN]:
        show.terminal.warn(f"{text} comes twice; the last one counts")
    if len(dump.duplicates) > SHOWN:
        show.terminal.warn(f"{len(dump.duplicates) - SHOWN:,} more come twice; the last one counts")
    for text in dump.missing():
        show.terminal.note(f"missing: {text}")
    chosen = dump.select(source.namespace, selector)
    if source.namespace is not None:
        namespaces = {each.metadata.namespace for each in dump.hpas.values()} | dump.pods.namespaces
        check_namespace(source.namespace, namespaces, show.terminal)
    if names:
        if source.namespace is not None:
            other = [name for name in names if not name.startswith(f"{source.namespace}/")]
            if other:
                raise typer.BadParameter(f"{other[0]} is of another namespace", param_hint="-n")
        unknown = [name for name in names if name not in dump.hpas]
        if unknown:
            deleted = {f"{key.partition('/')[0]}/{pause.hpa}": key for key, pause in dump.paused.items()}
            raise InputError([Problem(_no_hpa(name, deleted.get(name))) for name in unknown])
        chosen = [dump.hpas[name] for name in names]
    if state_read is not None and decided_at is None and dump.newest == ZERO_TIME:
        raise typer.BadParameter("the input contains no time: a saved state needs the current time", param_hint="--now")
    with show.terminal.step("deciding"), collector_paused():
        report = hpa_report(
            dump,
            chosen,
            state=state_read,
            fresh=state == "fresh",
            now=decided_at,
            options=options,
            threads=source.threads or 1,
        )
        freeze_objects(report)
    for name in report.without_state:
        show.terminal.note(f"{name} is not in {state}: taken as if the controller had just seen it")
    failed = bool(fail_on) and any(_fails(each, fail_on) for each in report.hpas)
    view = _build_explain_view if names else _build_list_view
    shown = report
    if changed_only:
        shown = msgspec.structs.replace(report, hpas=[each for each in report.hpas if each.rescales])
    return Answer(
        shown, lambda: view(report, changed_only), exit_code=1 if failed else 0, blocks=lambda: hpa_blocks(shown)
    )


def _no_hpa(name: str, paused: str | None) -> str:
    """Return the error for an HPA that the input lacks. ``paused``: key of the paused ScaledObject that owns it."""
    if paused is not None:
        return f"ScaledObject {paused} is paused: KEDA deletes its HorizontalPodAutoscaler {name}"
    return f"no HorizontalPodAutoscaler {name} in the input"


def _read(
    source: NamingClusters | AskedClusters,
    terminal: Terminal,
    metrics: Sequence[str],
    state: ControllerState | None,
    options: HPAOptions,
    namespaces: Collection[str] | None,
) -> Dump:
    """Read the inputs of HPA decisions from files, or from a live cluster for these ``namespaces`` only (None: all).

    ``state``, ``options``: those of the decision, on which requests to the live cluster depend. Raises
    typer.BadParameter for ``metrics`` of a live cluster, and InputError if the inputs cannot be read.
    """
    with terminal.step(f"reading {source.source_names}") as update, convert_dump_errors():
        if not source.live:
            with collector_paused():
                dump = read_dump(*source.filename, metrics=_metrics(metrics), strict=not source.skip_invalid)
                freeze_objects(dump)
            return dump
        if metrics:
            raise typer.BadParameter("the metrics of a live cluster come from its API server", param_hint="--metrics")
        from kscale.drivers.live_dump import read_live_dump
        from kscale.world.clock import SystemClock

        def request(client: Client) -> Awaitable[tuple[Dump, Listing]]:
            strict, report = not source.skip_invalid, source.report_progress(update)
            return read_live_dump(
                client,
                SystemClock(),
                state=state,
                options=options,
                strict=strict,
                namespaces=namespaces,
                tell=report,
            )

        dump, listing = source.run_with_client(request)
    source.warn_refused(listing, terminal)
    return dump


def _metrics(arguments: Sequence[str]) -> list[tuple[str | None, str]]:
    """Return (scope, file) of each ``--metrics`` argument. The scope of an existing file's name is None."""
    pairs: list[tuple[str | None, str]] = []
    for text in arguments:
        split = None if Path(text).exists() else split_scope(text)
        pairs.append(split or (None, text))
    return pairs


def _moment(text: str) -> Moment | None:
    """Parse ``--now``; None if it is not set. Raises typer.BadParameter if it is malformed."""
    with option_errors("--now"):
        return from_text(text) if text else None


def _state(text: str) -> ControllerState | None:
    """Return the state in the file of ``--state``; None for ``settled`` and ``fresh``.

    Raises InputError if the file cannot be read or is not a state, and typer.BadParameter for an empty text.
    """
    if text in _NO_FILE:
        return None
    if not text:
        raise typer.BadParameter("settled, fresh or a file is needed", param_hint="--state")
    data = read_input(text)
    try:
        return ControllerState.from_json(data)
    except StateError as error:
        raise InputError(Problem(str(error), text)) from None


def _fails(decision: HPADecision, what: str) -> bool:
    """Check whether a decision meets the condition ``what`` of ``--fail-on``: rescale, limited or error."""
    return {"rescale": decision.rescales, "limited": bool(decision.limited), "error": decision.error is not None}.get(
        what, False
    )


_SHOWN = 20
"""Names of pods of one group."""

_MODES = {
    "settled": "The past is taken as settled: no earlier recommendation holds a size back (--state).",
    "fresh": "The controller is taken to have just started (--state).",
    "given": "The past was given (--state).",
}


def _build_list_view(report: HPAReport, changed_only: bool = False) -> View:
    """Build the view with one row per HPA; with ``changed_only``, only HPAs that rescale. The headline counts all."""
    rows: list[Row] = []
    shown = [each for each in report.hpas if each.rescales or not changed_only]
    for each in shown:
        conditions = ", ".join(f"{c.type}={c.status}/{c.reason}" for c in each.conditions)
        rows.append(
            [
                f"{each.namespace}/{each.name}",
                each.target,
                _sizes(each),
                each.decided_by,
                each.held_back_by or None,
                conditions,
            ]
        )
    rescaling = sum(each.rescales for each in report.hpas)
    errors = [f"{each.namespace}/{each.name}" in report.assumed for each in report.hpas if each.error is not None]
    unjudged = sum(errors)
    failing = len(errors) - unjudged
    count = len(report.hpas)
    headline = f"{rescaling:,} of {count:,} {plural('HPA', count)} would rescale" if count else "No HPA to decide"
    headline += f", {failing:,} would report an error" if failing else ""
    if unjudged:
        verb, whose = ("is", "its target") if unjudged == 1 else ("are", "their targets")
        headline += f", {unjudged:,} {verb} not judged (the input does not hold the scale of {whose})"
    paused = len(report.paused)
    if paused:
        headline += f", {paused:,} {plural('ScaledObject', paused)} {'is' if paused == 1 else 'are'} paused"
    columns = [
        *make_columns("HPA", "TARGET"),
        Column("CURRENT -> DESIRED", "right", fields=("current", "desired")),
        *make_columns("DECIDED BY", "HELD BACK BY"),
        Column("CONDITIONS", wide=True),
    ]
    return View(
        headline=f"{headline}.",
        tables=[Table(columns, rows, limit=200)],
        footer=[*_warnings(report, shown), *_format_paused(report), *_footer(report)],
        names=[object_name(KIND, each.namespace, each.name) for each in shown],
    )


def _warnings(report: HPAReport, decisions: Sequence[HPADecision]) -> list[str]:
    """Return a line for each warning or assumption about the decisions: the first ones, and how many are left out."""
    lines = []
    for each in decisions:
        key = f"{each.namespace}/{each.name}"
        assumed = [report.assumed[key]] if key in report.assumed else []
        lines += [f"Warning: {key}: {text}." for text in (*assumed, *each.warnings)]
    hidden = len(lines) - SHOWN
    return lines if hidden <= 0 else [*lines[:SHOWN], f"{hidden:,} more warnings are in -o json."]


def _format_paused(report: HPAReport) -> list[str]:
    """Return a line for each paused ScaledObject: what KEDA does to its HPA and target."""
    lines = []
    for each in report.paused:
        does = (
            f"sets {each.target} to {each.replicas:,} replicas"
            if each.replicas is not None
            else (each.error or f"leaves {each.target} at its size")
        )
        lines.append(f"ScaledObject {each.namespace}/{each.name} is paused: KEDA deletes {each.hpa} and {does}.")
    return lines


def _footer(report: HPAReport) -> list[str]:
    """Return the last lines: whether the time is unknown, the state that the run began with, what is not modelled."""
    unknown_time = [] if report.now is not None else ["The input contains no time; --now sets one."]
    left_out = [f"Not modelled: {name}: {'; '.join(texts)}." for name, texts in report.unmodelled.items()]
    return [*unknown_time, _MODES[report.state_mode], *left_out]


def _sizes(decision: HPADecision) -> Cell:
    """Return the cell ``CURRENT -> DESIRED``, with ``?`` for an unknown size."""
    current = "?" if decision.current_replicas is None else str(decision.current_replicas)
    sizes = decision.current_replicas, decision.desired_replicas
    if decision.desired_replicas is None:
        return Cell(f"{current} -> ?", "bad", sizes)
    return Cell(f"{current} -> {decision.desired_replicas}", "warn" if decision.rescales else "", sizes)


def _build_explain_view(report: HPAReport, changed_only: bool = False) -> View:
    """Build the view with metrics, steps, conditions and events of each HPA.

    With ``changed_only`` HPAs that do not rescale have no tables.
    """
    tables: list[Table] = []
    for each in report.hpas:
        if changed_only and not each.rescales:
            continue
        name = f"{each.namespace}/{each.name}"
        tables.append(
            Table(_METRIC_COLUMNS, [_metric_row(metric) for metric in each.metrics], title=f"{name}: metrics")
        )
        left = [
            [metric.name, group, metric.group_counts[group], ", ".join(metric.groups[group][:_SHOWN])]
            for metric in each.metrics
            for group in ("unready", "missing", "ignored")
            if metric.group_counts.get(group)
        ]
        if left:
            heads = [*make_columns("METRIC", "GROUP"), Column("COUNT", "right"), Column("PODS")]
            tables.append(Table(heads, left, title=f"{name}: pods that are not ready, not measured or not counted"))
        steps: list[Row] = [
            ["current size", each.current_replicas],
            ["largest proposal", each.proposal],
            ["after stabilisation", each.stabilized],
            ["after limits", each.desired_replicas],
        ]
        tables.append(Table([Column("STEP"), Column("REPLICAS", "right")], steps, title=f"{name}: size"))
        conditions = [[c.type, c.status, c.reason, c.message] for c in each.conditions]
        heads = make_columns("CONDITION", "STATUS", "REASON", "MESSAGE")
        tables.append(Table(heads, conditions, title=f"{name}: conditions"))
        events = [[event.type, event.reason, event.message] for event in each.events]
        tables.append(Table([Column("EVENT"), Column("REASON"), Column("MESSAGE")], events, title=f"{name}: events"))
    first = report.hpas[0] if len(report.hpas) == 1 else None
    headline = f"{len(report.hpas):,} HPAs explained."
    if first is not None:
        limited_by = f", held back by {first.held_back_by}" if first.held_back_by else ""
        headline = f"{first.namespace}/{first.name} {_sizes(first).text}: {first.decided_by}{limited_by}."
    return View(
        headline=headline,
        tables=tables,
        footer=[*_warnings(report, report.hpas), *_footer(report)],
        names=[object_name(KIND, each.namespace, each.name) for each in report.hpas],
    )


_METRIC_COLUMNS = (
    Column("METRIC"),
    *make_columns(
        "CURRENT", "TARGET", "RATIO", "FILLED IN", "READY", "UNREADY", "MISSING", "IGNORED", "PROPOSAL", align="right"
    ),
    Column("WHY"),
)

_PATH_TEXTS: Final = {
    "hold_first_pass": "within tolerance",
    "second_pass": "corrected for unready and unmeasured pods",
    "hold_second_pass": "within tolerance when corrected",
    "hold_count_direction": "the corrected count goes the other way, so the size stays",
}
"""Text of each step in ``MetricDetail.path``."""


def _metric_row(metric: MetricDetail) -> Row:
    """Return the table row of a metric."""
    counts = [metric.group_counts.get(group) for group in ("ready", "unready", "missing", "ignored")]
    ratio = None if metric.ratio is None or metric.error else f"{metric.ratio:.4g}"
    second = f"{metric.second_ratio:.4g}" if metric.second_ratio and not metric.error else None
    why = metric.error or ", ".join(_PATH_TEXTS[step] for step in metric.path)
    if metric.tolerated and not why:
        why = "within tolerance"
    if metric.note:
        why = f"{why}; {metric.note}" if why else metric.note
    return [
        metric.name,
        "?" if metric.overflows else metric.current or None,
        metric.target or None,
        ratio,
        second,
        *counts,
        metric.proposal,
        why or None,
    ]


def explain_hpas(
    names: list[str],
    *,
    source: NamingClusters,
    controller: ControllerFlags,
    show: Show,
    metrics: list[str] | None = None,
    now: str = "",
    state: str = "settled",
) -> Answer:
    """How an HPA comes to its size: the pods by group, the ratio of usage to target, the proposal, and its limits.

    Parameters
    ----------
    names : [NS/]NAME...
        The HPAs to explain; without a namespace, -n or default.
    metrics : [SCOPE=]FILE
        A metrics list as kubectl get --raw prints it. SCOPE says what an external list is for: a namespace, NS/HPA,
        or NS:SELECTOR with the label selector that the list was requested with. Repeatable.
    now : TIME
        Time of the decision (RFC 3339). Default: the newest time in the input.
    state : settled|fresh|FILE
        Past recommendations to start with. settled: none that restrain a change; fresh: those of a controller that has
        just started; FILE: the state in an output of -o json.

    Raises
    ------
    InputError
        If the input cannot be read, or lacks a named HPA.
    """
    return answer(names, source, show, options=controller.options(), metrics=metrics or (), now=now, state=state)
