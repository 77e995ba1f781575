"""``kscale vpa``: what the VPA's updater and admission webhook would do on a dump, or on a live cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.inputs import DUMP_HELP, log_read_objects, parse_moment
from kscale.cli.live_inputs import Clusters
from kscale.cli.output import Answer, Column, Row, Show, Table, View, make_columns
from kscale.cli.terminal import object_name, plural
from kscale.effects import ZERO_TIME, moment
from kscale.errors import InputError, Problem

if TYPE_CHECKING:
    from kscale.capacity.vpa_round_plan import PlannedVPA, VPARoundPlan

__all__ = ["EPILOG", "command", "vpa_view"]

EPILOG = DUMP_HELP
KIND = "VerticalPodAutoscaler"
_FEW = 3


def command(
    names: list[str] | None = None,
    *,
    source: Clusters,
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "",
    now: str = "",
    min_replicas: Annotated[int, typer.Option(min=0)] = 2,
    eviction_tolerance: Annotated[float, typer.Option(min=0.0)] = 0.5,
    pod_update_threshold: Annotated[float, typer.Option(min=0.0)] = 0.1,
    show: Show,
) -> Answer:
    """Show what the VPA updater would do in its next loop, why it does not update other pods, and what new pods get.

    Uses the recommendations in the VPAs' status; kscale recommend computes new ones. Disruption budgets of the input
    count. The admission webhook is assumed to run.

    Parameters
    ----------
    names : [NAME|NS/NAME]...
        Show only the VPAs of these names, with each of their pods.
    namespace
        Only VPAs of this namespace.
    now : TIME
        Time of the decision (RFC 3339). Default: the newest time in the input.
    min_replicas
        Minimum number of live pods of a workload whose pods are updated (the updater's flag).
    eviction_tolerance
        Fraction of a workload's replicas that may be evicted at once (the updater's flag).
    pod_update_threshold
        Minimum relative change of a pod's requests that is worth an update (the updater's flag).

    Raises
    ------
    InputError
        If the input lacks a named VPA.
    """
    from kscale.capacity.vpa_round_plan import newest_time, plan_of_dump
    from kscale.vpa.options import UpdaterOptions

    terminal = show.terminal
    source.check()
    with terminal.step(f"reading {source.source_names}") as update:
        cluster = source.load_with_owners(terminal, update)
    if cluster.report is not None:
        log_read_objects(cluster.report, source.source_names, terminal)
    at = moment(parse_moment(now)) if now else newest_time(cluster)
    if at is None:
        terminal.note("the input holds no time: pods count as just started (--now)")
    options = UpdaterOptions(
        min_replicas=min_replicas, eviction_tolerance=eviction_tolerance, pod_update_threshold=pod_update_threshold
    )
    with terminal.step("deciding"):
        plan = plan_of_dump(cluster, now=ZERO_TIME if at is None else at, options=options)
    selected = [name if "/" in name else f"{namespace or 'default'}/{name}" for name in names or ()]
    existing = {f"{each.namespace}/{each.name}" for each in plan.vpas}
    if unknown := [name for name in selected if name not in existing]:
        raise InputError([Problem(f"no {KIND} {name} in the input") for name in unknown])
    shown = [
        each
        for each in plan.vpas
        if (not selected or f"{each.namespace}/{each.name}" in selected) and namespace in ("", each.namespace)
    ]
    for note in plan.notes[: None if terminal.verbose else 5]:
        terminal.note(note)
    return Answer(plan, lambda: vpa_view(plan, shown, pods=bool(selected)))


def vpa_view(plan: VPARoundPlan, vpas: Sequence[PlannedVPA], *, pods: bool = False) -> View:
    """Build the view with one row per VPA; with ``pods``, also a row per pod and container."""
    rows: list[Row] = []
    for each in vpas:
        reasons = Counter(pod.reason for pod in each.unchanged)
        left = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        rows.append(
            [
                f"{each.namespace}/{each.name}",
                each.target,
                each.mode,
                len(each.evict),
                len(each.resize),
                left or None,
                _changes(each),
            ]
        )
    columns = [
        *make_columns("VPA", "TARGET", "MODE"),
        *make_columns("EVICTED", "RESIZED", align="right"),
        *make_columns("LEFT ALONE", "NEW PODS GET"),
    ]
    tables = [Table(columns, rows, limit=200)]
    if pods:
        tables += [table for each in vpas for table in _details(each)]
    evicted, resized = (sum(len(getattr(each, name)) for each in vpas) for name in ("evict", "resize"))
    headline = f"The updater would evict {evicted:,} and resize {resized:,} {plural('pod', resized)}."
    if not vpas:
        headline = "No VerticalPodAutoscaler in the input."
    footer = []
    if (evicted or resized) and plan.event is not None:
        footer.append(f"{plan.event.message}.")
    return View(
        headline=headline,
        tables=tables,
        footer=footer,
        names=[object_name(KIND, each.namespace, each.name) for each in vpas],
    )


def _changes(vpa: PlannedVPA) -> str | None:
    """Describe the new pods' requests for the first containers; None if no request changes."""
    texts = [
        f"{each.container}: {', '.join(f'{name} {amount}' for name, amount in each.new_requests.items())}"
        for each in vpa.admission
        if each.new_requests
    ]
    more = len(texts) - _FEW
    return "; ".join([*texts[:_FEW], *([f"and {more:,} more containers"] if more > 0 else [])]) or None


def _details(vpa: PlannedVPA) -> list[Table]:
    """Build the tables of one VPA: what happens to each pod, and what admission changes in new pods."""
    name = f"{vpa.namespace}/{vpa.name}"
    rows: list[Row] = [[pod, "evicted", None] for pod in vpa.evict]
    rows += [[pod, "resized", None] for pod in vpa.resize]
    rows += [[each.pod, each.reason, each.message] for each in vpa.unchanged]
    tables = [Table([Column("POD"), Column("UPDATE"), Column("WHY")], rows, limit=200, title=f"{name}: pods")]
    if vpa.admission:
        heads = [*make_columns("CONTAINER", "RESOURCE"), *make_columns("NOW", "NEW POD", align="right")]
        lines: list[Row] = []
        for each in vpa.admission:
            for label, old, new in (
                ("request", each.requests, each.new_requests),
                ("limit", each.limits, each.new_limits),
            ):
                lines += [
                    [each.container, f"{resource} {label}", old.get(resource), new.get(resource, old.get(resource))]
                    for resource in sorted(old | new)
                ]
        tables.append(Table(heads, lines, title=f"{name}: admission"))
    return tables
