"""``kscale fit``: would this manifest fit on the nodes that exist?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kscale.capacity.records import FitReport, WorkloadFit
from kscale.cli.inputs import DUMP_HELP, NamingSource, read
from kscale.cli.output import Answer, Cell, Column, Show, Table, View
from kscale.cli.words import plural, rejections

__all__ = ["EPILOG", "command", "fit_view"]

EPILOG = DUMP_HELP
_COMPLETING = ("PriorityClass", "RuntimeClass", "LimitRange")  # what completes a pod when it is created
OR = " or "  # between the reasons of different nodes
MATTER = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")


def command(
    *,
    source: NamingSource,
    pod: Annotated[
        list[str],
        typer.Option("--pod", metavar="MANIFEST", help="A file of Pods, Deployments, Jobs, ... Repeatable."),
    ],
    show: Show,
) -> Answer:
    """Would a manifest that is not in the cluster yet fit on the nodes that exist?

    Replicas are placed one after the other, as they would be.
    """
    from kscale.capacity.fit import fit_workloads, workloads_in
    from kscale.objects.pod_defaults import PodClasses
    from kscale.snapshot.loading import load_objects

    if "-" in pod and "-" in source.filename:
        raise typer.BadParameter("stdin can be read once only, and - is named by -f too", param_hint="--pod")
    workloads = workloads_in((loaded.obj for loaded in load_objects(*pod)), ", ".join(pod))
    for workload in workloads:
        workload.metadata.namespace = workload.metadata.namespace or source.namespace or ""
    cluster, snapshot = read(source, show.terminal, matter=MATTER)
    classes = PodClasses.of(item for kind in _COMPLETING for item in cluster.all(kind))
    with show.terminal.step("placing"):
        report = fit_workloads(snapshot, workloads, classes=classes, placements=show.whole)
    return Answer(report, lambda: fit_view(report), exit_code=0 if report.fit == report.replicas else 1)


def fit_view(report: FitReport) -> View:
    """One sentence for a single workload; a table of several."""
    single = len(report.workloads) == 1
    stays = report.replicas - report.fit
    columns = (
        Column("WORKLOAD"),
        Column("REPLICAS", "right"),
        Column("FIT NOW", "right"),
        Column("DO NOT", "right"),
        Column("WHY NOT MORE"),
    )
    rows: list[Sequence[Cell | str | float | None]] = [
        [
            f"{item.kind}/{item.name}",
            item.replicas,
            item.fit,
            Cell(f"{item.replicas - item.fit:,}", "bad" if item.fit < item.replicas else "", item.replicas - item.fit),
            rejections(item.rejections, OR),
        ]
        for item in report.workloads
    ]
    several = f"{len(report.workloads):,} workloads, {report.replicas:,} replicas: {report.fit:,} fit now"
    return View(
        headline=_fit_sentence(report.workloads[0]) if single else several + (f", {stays:,} do not." if stays else "."),
        tables=[Table(columns, rows, said=single)],
        footer=_fit_footer(report),
        names=_fit_names(report),
    )


def _fit_names(report: FitReport) -> list[str]:
    return [f"{item.kind.lower()}/{item.name}" for item in report.workloads if item.fit == item.replicas]


def _fit_footer(report: FitReport) -> list[str]:
    lines = [f"{item.kind}/{item.name}: {item.event}" for item in report.workloads if item.event]
    if report.unmodelled:
        lines.append(f"Not judged yet: {', '.join(report.unmodelled)}.")
    return lines


def _fit_sentence(item: WorkloadFit) -> str:
    what = f"{item.name} ({item.kind}, {item.replicas:,} {plural('replica', item.replicas)})"
    if item.kind == "Pod" and item.replicas == 1:
        what = f"{item.name} (Pod)"
    stays = item.replicas - item.fit
    if not stays:
        return f"{what}: {'fits now' if item.replicas == 1 else f'all {item.fit:,} fit now'}."
    why = ", ".join(f"{rejection.pods:,} {OR.join(rejection.reasons)}" for rejection in item.rejections)
    if item.replicas == 1:
        return f"{what}: does not fit: {why.removeprefix('1 ')}."
    return f"{what}: {item.fit:,} fit now, {stays:,} {'does' if stays == 1 else 'do'} not: {why}."
