"""``kscale fit``: would this manifest fit on the nodes that exist?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kscale.capacity.records import FitReport, WorkloadFit
from kscale.cli.inputs import DUMP_HELP, check_namespace, manifests, namespaces_of, read
from kscale.cli.live_inputs import NamingClusters
from kscale.cli.output import Answer, Column, Row, Show, Table, View, failing_cell, make_columns
from kscale.cli.terminal import object_name, on_nodes, plural, rejections

if TYPE_CHECKING:
    from kscale.objects.api.meta import KubeObject
    from kscale.scheduling.scores.options import ScoreOptions
    from kscale.snapshot.cluster import Cluster

__all__ = ["EPILOG", "command", "fit_view"]

EPILOG = DUMP_HELP
OR = " or "  # between the reasons of different nodes
MATTER = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")


def command(
    *,
    source: NamingClusters,
    pod: list[str],
    scheduler_scores: bool = False,
    show: Show,
) -> Answer:
    """Would a manifest that is not in the cluster yet fit on the nodes that exist?

    Replicas are placed one after the other, each on the first node that takes it, as the Cluster Autoscaler's simulator
    does. kube-scheduler scores nodes, and may fill others first; --scheduler-scores places replicas as it would.

    Parameters
    ----------
    pod : FILE|DIR
        Manifests: Pods, Deployments, Jobs, ..., and the claims, classes and other objects that they need.
        Repeatable.
    scheduler_scores
        Place each replica on the node that kube-scheduler's default profile scores highest, instead of on the first
        node that takes it.

    Returns
    -------
    Answer
        The exit status is 1 unless all replicas fit.

    Raises
    ------
    InputError
        If the input or a manifest cannot be read.
    """
    from kscale.capacity.fit import fit_workloads
    from kscale.snapshot.manifests import completing_classes

    read_manifests = manifests(pod, source, show.terminal, source.namespace)
    workloads = read_manifests.workloads
    cluster, snapshot = read(source, show.terminal, matter=MATTER, manifests=read_manifests)
    if source.namespace is not None:
        check_namespace(source.namespace, namespaces_of(cluster, snapshot), show.terminal)
    classes = completing_classes(cluster)
    with show.terminal.step("placing"):
        similar_objects = _find_workloads(cluster, workloads)
        report = fit_workloads(
            snapshot,
            workloads,
            classes=classes,
            placements=True,
            known=similar_objects,
            scores=_scores(scheduler_scores),
        )
        report = replace(report, unmodelled=[*report.unmodelled, *read_manifests.list_unmodelled(cluster)])
    return Answer(report, lambda: fit_view(report), exit_code=0 if report.fit == report.replicas else 1)


def _scores(enabled: bool) -> ScoreOptions | None:
    """Return kube-scheduler's default scores if they are enabled; otherwise None: the first node that fits wins."""
    if not enabled:
        return None
    from kscale.scheduling.scores.options import ScoreOptions

    return ScoreOptions()


def _find_workloads(cluster: Cluster, workloads: Sequence[KubeObject]) -> Iterator[KubeObject]:
    """Yield the cluster's objects of the kinds of ``workloads``; of pods, only those with a name in ``workloads``."""
    kinds = {item.kind for item in workloads}
    for kind in kinds - {"Pod"}:
        yield from cluster.all(kind)
    for item in workloads:
        if item.kind == "Pod":
            with suppress(KeyError):
                yield cluster.pod(f"{item.namespace or 'default'}/{item.name}")


def fit_view(report: FitReport) -> View:
    """Build the view of a fit report: a sentence for one workload, a table for several."""
    single = len(report.workloads) == 1
    stays = report.replicas - report.fit
    columns = (
        Column("WORKLOAD"),
        *make_columns("REPLICAS", "FIT NOW", "DO NOT", align="right"),
        Column("WHY NOT MORE"),
    )
    rows: list[Row] = [
        [
            _name_of(item),
            item.replicas,
            item.fit,
            failing_cell(item.replicas - item.fit),
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
    """Return the lines of ``-o name``: workloads all of whose replicas fit."""
    return [object_name(item.kind, item.namespace, item.name) for item in report.workloads if item.fit == item.replicas]


def _fit_footer(report: FitReport) -> list[str]:
    """Return the lines below the table: placements and the scheduler's events, by workload."""
    lines: list[str] = []
    for item in report.workloads:
        workload = _name_of(item)
        if item.placement:
            lines.append(f"{workload} lands on {on_nodes(item.placement)}.")
        if item.event:
            lines.append(f"{workload}: {item.event}")
        if item.next_event:
            lines.append(f"{workload}: one replica more would not fit: {item.next_event}")
        if item.exists:
            lines.append(f"{workload} is in the input already: its replicas are asked about on top of its pods there.")
    if report.unmodelled:
        lines.append(f"Not judged yet: {', '.join(report.unmodelled)}.")
    return lines


def _name_of(item: WorkloadFit) -> str:
    """Return ``kind/namespace/name``."""
    return f"{item.kind}/{item.namespace}/{item.name}"


def _fit_sentence(item: WorkloadFit) -> str:
    """Return a sentence that says how many replicas of the workload fit, and why the others do not."""
    subject = f"{item.namespace}/{item.name} ({item.kind}, {item.replicas:,} {plural('replica', item.replicas)})"
    if item.kind == "Pod" and item.replicas == 1:
        subject = f"{item.namespace}/{item.name} (Pod)"
    stays = item.replicas - item.fit
    if not stays:
        return f"{subject}: {'fits now' if item.replicas == 1 else f'all {item.fit:,} fit now'}."
    why = ", ".join(f"{rejection.pods:,} {OR.join(rejection.reasons)}" for rejection in item.rejections)
    if item.replicas == 1:
        return f"{subject}: does not fit: {why.removeprefix('1 ')}."
    return f"{subject}: {item.fit:,} fit now, {stays:,} {'does' if stays == 1 else 'do'} not: {why}."
