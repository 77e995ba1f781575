"""Whether workloads that are not in the cluster yet would fit: replicas are placed one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import kscale
from kscale.ca.templates import should_run
from kscale.capacity import answers
from kscale.capacity.explain import event_text
from kscale.capacity.records import FitReport, Rejection, WorkloadFit
from kscale.errors import InputError, Problem
from kscale.objects.apps import DaemonSet
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.objects.workloads import WORKLOADS, daemonset_pod, pods_of
from kscale.scheduling.devices.reserve import reserve
from kscale.snapshot.record import pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["fit_workloads", "workloads_in"]


def workloads_in(objects: Iterable[KubeObject], source: str = "") -> list[KubeObject]:
    """The objects that make pods, in order. Raises InputError if there are none."""
    found = [item for item in objects if (item.kind or type(item).__name__) in WORKLOADS]
    if not found:
        raise InputError(Problem(f"holds none of {', '.join(WORKLOADS)}", source))
    return found


def fit_workloads(snapshot: Snapshot, workloads: Iterable[KubeObject], *, placements: bool = False) -> FitReport:
    """The report on Pods, Deployments, Jobs, ...: how many of their pods find a place now, in the order given.

    What one workload takes is gone for the next. A DaemonSet is asked about one pod on every node where it should run.
    ``placements`` adds node -> replicas.
    """
    lines: list[WorkloadFit] = []
    unmodelled: dict[str, None] = {}
    for workload in workloads:
        if isinstance(workload, DaemonSet):
            line, after, left_out = _daemonset(snapshot, workload, placements)
        else:
            line, after, left_out = _replicas(snapshot, workload, placements)
        snapshot = after
        unmodelled.update(dict.fromkeys(left_out))
        lines.append(line)
    return FitReport(
        replicas=sum(line.replicas for line in lines),
        fit=sum(line.fit for line in lines),
        workloads=lines,
        unmodelled=list(unmodelled),
    )


def _line(workload: KubeObject, replicas: int, fit: int, **more: Any) -> WorkloadFit:
    kind = workload.kind or type(workload).__name__
    return WorkloadFit(
        name=workload.name, kind=kind, namespace=workload.namespace or "default", replicas=replicas, fit=fit, **more
    )


def _replicas(
    snapshot: Snapshot, workload: KubeObject, placements: bool
) -> tuple[WorkloadFit, Snapshot, Sequence[str]]:
    pods = list(pods_of(workload))
    placed = kscale.place(snapshot, pods=pods)
    after = placed.snapshot_after
    stays = [record.pod for record in placed.unschedulable_records]
    rejections, event = _reasons(after, stays)
    line = _line(
        workload,
        len(pods),
        len(placed.placement),
        rejections=rejections,
        event=event,
        placement=dict(Counter(placed.placement.values())) if placements else None,
    )
    return line, after, placed.unmodelled


def _daemonset(
    snapshot: Snapshot, workload: DaemonSet, placements: bool
) -> tuple[WorkloadFit, Snapshot, Sequence[str]]:
    pod = daemonset_pod(workload)
    nodes = [node for node in snapshot.columns.objects if should_run(workload, node)]
    fit = kscale.fit(snapshot, pods=[pod], nodes=[node.name for node in nodes])
    takes: list[int] = []
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for node in nodes:
        noes = answers.verdicts(fit, pod, pod.key, node)
        if noes:
            found.setdefault((noes[0].plugin, tuple(noes[0].reasons)), []).append(node.name)
        else:
            takes.append(snapshot.columns.index[node.name])
    rejections = [
        Rejection(pods=len(names), plugin=plugin, reasons=list(reasons), example=names[0])
        for (plugin, reasons), names in found.items()
    ]
    names = [snapshot.nodes[number] for number in takes]
    placed = [pod_record(daemonset_pod(workload, name)) for name in names]
    line = _line(
        workload,
        len(nodes),
        len(takes),
        rejections=rejections,
        placement=dict.fromkeys(names, 1) if placements else None,
    )
    return line, snapshot.with_placed(placed, takes, reserve(snapshot, placed, takes)), fit.unmodelled


def _reasons(snapshot: Snapshot, stays: Sequence[Pod]) -> tuple[list[Rejection], str]:
    """Pods without a place by what stops them (the reason of most nodes first), and the event of the first pod."""
    if not stays:
        return [], ""
    fit = kscale.fit(snapshot, pods=stays)
    nodes = snapshot.columns.objects
    found: dict[tuple[str, ...], list[str]] = {}
    plugins: dict[tuple[str, ...], str] = {}
    by_class: dict[int, tuple[str, ...]] = {}
    event = ""
    for pod, which in zip(stays, fit.class_of.tolist(), strict=True):
        if which not in by_class:
            failure = answers.prefilter_failure(fit, pod.key, nodes)
            noes = [] if failure else [answers.first_no(fit, pod, pod.key, node) for node in nodes]
            counts = Counter(reason for no in noes for reason in no.reasons)
            by_class[which] = (failure,) if failure else tuple(reason for reason, _ in counts.most_common())
            plugins.setdefault(by_class[which], noes[0].plugin if noes else "")
            event = event or event_text([no.reasons for no in noes], len(nodes), failure)
        found.setdefault(by_class[which], []).append(pod.key)
    rejections = [
        Rejection(pods=len(names), plugin=plugins[reasons], reasons=list(reasons), example=names[0])
        for reasons, names in found.items()
    ]
    return sorted(rejections, key=lambda line: -line.pods), event
