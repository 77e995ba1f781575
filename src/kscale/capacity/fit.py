"""Whether workloads that are not in the cluster yet would fit: replicas are placed one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kscale.capacity import answers
from kscale.capacity.records import FitReport, Rejection, WorkloadFit
from kscale.errors import InputError, Problem
from kscale.objects.apps import DaemonSet, Deployment, ReplicaSet
from kscale.objects.core import Pod, ReplicationController
from kscale.objects.daemon_sets import should_run
from kscale.objects.meta import KubeObject
from kscale.objects.pod_defaults import BUILT_IN_CLASSES, PodClasses, with_defaults
from kscale.objects.storage import default_storage_class
from kscale.objects.workloads import WORKLOADS, alike, claims_of, daemonset_pod, pod_count, pods_of, spec_of
from kscale.scheduling.devices.reserve import reserve
from kscale.scheduling.fit import fit as fit_pods
from kscale.scheduling.fit_error import fit_error
from kscale.scheduling.place import place
from kscale.snapshot.pod_rows import copies_of
from kscale.snapshot.record import PodRecord, pod_record
from kscale.snapshot.snapshot import Snapshot

__all__ = ["MOST_REPLICAS", "check_count", "fit_workloads", "rejected", "workloads_in"]

MOST_REPLICAS: Final = 5_000_000
_NO_NODES = "no nodes available to schedule pods"  # kube-scheduler's words


def workloads_in(objects: Iterable[KubeObject], source: str = "") -> list[KubeObject]:
    """The objects that make pods, in order. Raises InputError if there are none."""
    found = [item for item in objects if (item.kind or type(item).__name__) in WORKLOADS]
    if not found:
        raise InputError(Problem(f"holds none of {', '.join(WORKLOADS)}", source))
    return found


def fit_workloads(
    snapshot: Snapshot,
    workloads: Iterable[KubeObject],
    *,
    classes: PodClasses = BUILT_IN_CLASSES,
    placements: bool = False,
    known: Iterable[KubeObject] = (),
) -> FitReport:
    """The report on Pods, Deployments, Jobs, ...: how many of their pods find a place now, in the order given.

    Pods are taken as the API server would store them; ``classes``: the priority classes, runtime classes and limit
    ranges of the cluster. What one workload takes is gone for the next. A DaemonSet is asked about one pod on every
    node where it should run; a StatefulSet makes its claims. ``placements`` adds node -> replicas; ``known``: objects
    of the input, so that it can be said which workloads are there already. Raises InputError for more than
    :data:`MOST_REPLICAS` of a workload.
    """
    there = set(map(_name_of, known))
    lines: list[WorkloadFit] = []
    unmodelled: dict[str, None] = {}
    for workload in workloads:
        spec, left_out = spec_of(workload), list[str]()
        unmodelled.update(dict.fromkeys(classes.unknown(spec)))
        plugin, message = classes.refusal(spec, workload.namespace or "default")
        if message:
            line = _refused(snapshot, workload, plugin, message)
        elif isinstance(workload, DaemonSet):
            line, snapshot, left_out = _daemonset(snapshot, workload, classes, placements)
        else:
            line, snapshot, left_out = _replicas(snapshot, workload, classes, placements)
        unmodelled.update(dict.fromkeys(left_out))
        lines.append(replace(line, exists=_name_of(workload) in there))
    return FitReport(
        replicas=sum(line.replicas for line in lines),
        fit=sum(line.fit for line in lines),
        workloads=lines,
        unmodelled=list(unmodelled),
    )


def check_count(workload: KubeObject) -> None:
    """Raises InputError for a workload of more than :data:`MOST_REPLICAS` pods."""
    count = pod_count(workload)
    if count > MOST_REPLICAS:
        kind = workload.kind or type(workload).__name__
        where = "spec.parallelism" if kind in ("Job", "CronJob") else "spec.replicas"
        message = f"{count:,} pods are more than the {MOST_REPLICAS:,} that are tried"
        raise InputError(Problem(message, object=f"{kind} {workload.key}", field=where))


def _pods(snapshot: Snapshot, workload: KubeObject, classes: PodClasses) -> Sequence[PodRecord]:
    """The pods that it would make."""
    if isinstance(workload, Pod):
        spec = with_defaults(workload.spec, workload.metadata.labels, classes, workload.namespace or "default")
        return [pod_record(replace(workload, spec=spec))]
    equal = alike(workload, classes=classes)
    if equal is None:
        return [pod_record(pod) for pod in pods_of(workload, classes=classes)]
    pod, count = equal
    return copies_of(pod, count, pod.key.removesuffix("-0"), snapshot.interner)


def _with_claims(snapshot: Snapshot, workload: KubeObject) -> Snapshot:
    """The snapshot with the claims that the workload makes, but for those that are there."""
    default = default_storage_class(snapshot.informers.storage_classes.values())
    made = {(claim.namespace, claim.name): claim for claim in claims_of(workload, default)}
    if not made:
        return snapshot
    informers = replace(snapshot.informers, claims={**made, **snapshot.informers.claims})
    return snapshot.with_placed([], [], informers)


def _refused(snapshot: Snapshot, workload: KubeObject, plugin: str, message: str) -> WorkloadFit:
    """No API server would take its pods."""
    if isinstance(workload, DaemonSet):
        replicas = sum(should_run(workload, node) for node in snapshot.columns.objects)
    else:
        replicas = pod_count(workload)
    first = next(pods_of(workload), None)
    rejections = [Rejection(pods=replicas, plugin=plugin, reasons=[message], example=first.key)] if first else []
    return _line(workload, replicas, 0, rejections=rejections)


def _line(workload: KubeObject, replicas: int, fit: int, **more: Any) -> WorkloadFit:
    kind = workload.kind or type(workload).__name__
    return WorkloadFit(
        name=workload.name,
        kind=kind,
        namespace=workload.namespace or "default",
        replicas=replicas,
        fit=fit,
        **more,
    )


def _name_of(workload: KubeObject) -> tuple[str, str]:
    return workload.kind or type(workload).__name__, f"{workload.namespace or 'default'}/{workload.name}"


def _one_more(snapshot: Snapshot, workload: KubeObject, classes: PodClasses) -> Sequence[PodRecord]:
    """A replica more than there are, of kinds that may have one."""
    if not isinstance(workload, (Deployment, ReplicaSet, ReplicationController)):
        return []
    equal = alike(workload, classes=classes)
    return copies_of(equal[0], 1, f"{equal[0].key}-more", snapshot.interner) if equal is not None else []


def _replicas(
    snapshot: Snapshot, workload: KubeObject, classes: PodClasses, placements: bool
) -> tuple[WorkloadFit, Snapshot, list[str]]:
    check_count(workload)
    snapshot = _with_claims(snapshot, workload)
    pods = _pods(snapshot, workload, classes)
    placed = place(snapshot, pods=pods)
    after = placed.snapshot_after
    rejections, event = rejected(after, placed.unschedulable_records)
    more = [] if rejections else _one_more(snapshot, workload, classes)
    line = _line(
        workload,
        len(pods),
        len(placed.placement),
        rejections=rejections,
        event=event,
        next_event=rejected(after, place(after, pods=more).unschedulable_records)[1] if more else "",
        placement=dict(Counter(placed.placement.values())) if placements else None,
    )
    return line, after, placed.unmodelled


def _daemonset(
    snapshot: Snapshot, workload: DaemonSet, classes: PodClasses, placements: bool
) -> tuple[WorkloadFit, Snapshot, list[str]]:
    pod = daemonset_pod(workload, classes=classes)
    nodes = [node for node in snapshot.columns.objects if should_run(workload, node)]
    fit = fit_pods(snapshot, pods=[pod], nodes=[node.name for node in nodes])
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
    placed = [pod_record(daemonset_pod(workload, name, classes=classes)) for name in names]
    line = _line(
        workload,
        len(nodes),
        len(takes),
        rejections=rejections,
        placement=dict.fromkeys(names, 1) if placements else None,
    )
    return line, snapshot.with_placed(placed, takes, reserve(snapshot, placed, takes)), fit.unmodelled


def rejected(snapshot: Snapshot, stays: Sequence[PodRecord]) -> tuple[list[Rejection], str]:
    """Pods without a place by what stops them (the reason of most nodes first), and the event of the first pod."""
    if not stays:
        return [], ""
    nodes = snapshot.columns.objects
    classes = snapshot.classify(stays)
    exemplars = {of.index: record for of, record in zip(reversed(classes), reversed(stays), strict=True)}
    fit = fit_pods(snapshot, pods=list(exemplars.values()))
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    by_class: dict[int, tuple[str, tuple[str, ...]]] = {}
    event = ""
    for record, of in zip(stays, classes, strict=True):
        if of.index not in by_class:
            one = exemplars[of.index]
            failure = answers.prefilter_failure(fit, one.key, nodes)
            noes = [] if failure else [answers.first_no(fit, one.pod, one.key, node) for node in nodes]
            counts = Counter(reason for no in noes for reason in no.reasons)
            reasons = (failure,) if failure else tuple(reason for reason, _ in counts.most_common())
            by_class[of.index] = noes[0].plugin if noes else "", reasons or (_NO_NODES,)
            event = event or fit_error(counts, len(nodes), failure)
        found.setdefault(by_class[of.index], []).append(record.key)
    rejections = [
        Rejection(pods=len(names), plugin=plugin, reasons=list(reasons), example=names[0])
        for (plugin, reasons), names in found.items()
    ]
    return sorted(rejections, key=lambda line: -line.pods), event
