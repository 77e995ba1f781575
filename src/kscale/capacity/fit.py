"""``kscale fit``: whether workloads that are not in the cluster yet would fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from kscale.capacity.records import FitReport, Rejection, WorkloadFit
from kscale.capacity.rejections import find_first_rejection, list_rejections, prefilter_failure
from kscale.errors import InputError, Problem
from kscale.objects.api.apps import DaemonSet, Deployment, ReplicaSet, StatefulSet
from kscale.objects.api.core import Pod, ReplicationController
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.resource import ResourceClaim
from kscale.objects.api.storage import PersistentVolumeClaim, default_storage_class
from kscale.objects.argument_types import typed
from kscale.objects.kinds import DEFAULT_NAMESPACE, with_namespace
from kscale.objects.pod_admission import BUILT_IN_CLASSES, PodClasses, with_defaults
from kscale.objects.workloads import (
    WORKLOADS,
    claims_of,
    create_claims,
    daemonset_pod,
    expand_if_equal,
    needs_claims,
    pod_count,
    pods_of,
    replica_set_of,
    should_run,
    spec_of,
)
from kscale.scheduling.devices.ledger import reserve
from kscale.scheduling.fit import fit as fit_pods
from kscale.scheduling.place import PlaceState, place
from kscale.scheduling.scores.options import ScoreOptions
from kscale.scheduling.status import fit_error
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.manifests import (
    check_count,
    completing_classes,
    find_object,
    read_manifests,
    with_objects,
)
from kscale.snapshot.pods.record import PodRecord, pod_record
from kscale.snapshot.pods.rows import copies_of
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "fit_manifests",
    "fit_workloads",
    "summarize_rejections",
    "with_pod_claims",
    "with_volume_claims",
    "workloads_in",
]

_NO_NODES = "no nodes available to schedule pods"  # kube-scheduler's text


def workloads_in(objects: Iterable[KubeObject], source: str = "") -> list[KubeObject]:
    """Return the objects that create pods, in order. Raises InputError, which names ``source``, if there are none."""
    workloads = [item for item in objects if (item.kind or type(item).__name__) in WORKLOADS]
    if not workloads:
        raise InputError(Problem(f"holds none of {', '.join(WORKLOADS)}", source))
    return workloads


def fit_workloads(
    snapshot: Snapshot,
    workloads: Iterable[KubeObject],
    *,
    classes: PodClasses = BUILT_IN_CLASSES,
    placements: bool = False,
    known: Iterable[KubeObject] = (),
    scores: ScoreOptions | None = None,
) -> FitReport:
    """Report how many pods of Pods, Deployments, Jobs, ... can be placed now, workload after workload.

    What one workload takes is not available to the next. Pods are taken as the API server would store them, with the
    claims that controllers would create for them. For a DaemonSet, one pod is tried on every node where it should run.
    Workloads whose pods admission would refuse are reported with no replica placed.

    Parameters
    ----------
    snapshot : Snapshot
        The cluster, with the objects of the manifests that are not workloads.
    workloads : iterable of KubeObject
        The workloads, in the order in which they are placed.
    classes : PodClasses
        The cluster's priority classes, runtime classes, limit ranges and claim templates.
    placements : bool
        Whether the report has the number of replicas per node.
    known : iterable of KubeObject
        Objects of the input, to report which workloads exist already.
    scores : ScoreOptions, optional
        Place each replica on the node that kube-scheduler's Score plug-ins prefer. By default a replica goes to the
        first node that takes it, round robin, as in the Cluster Autoscaler's simulator.

    Returns
    -------
    FitReport
        One entry per workload.

    Raises
    ------
    InputError
        For a workload of more than :data:`MAX_REPLICAS` pods.
    """
    state = PlaceState()
    existing = set(map(_name_of, known))
    lines: list[WorkloadFit] = []
    unmodelled: dict[str, None] = {}
    for workload in workloads:
        spec, left_out = spec_of(workload), list[str]()
        unmodelled.update(dict.fromkeys(classes.unknown(spec)))
        plugin, message = classes.refusal(spec, workload.namespace or "default")
        if message:
            line = _build_refused_fit(snapshot, workload, plugin, message)
        elif isinstance(workload, DaemonSet):
            line, snapshot, left_out = _daemonset(snapshot, workload, classes, placements)
        else:
            line, snapshot, left_out, state = _replicas(snapshot, workload, classes, placements, scores, state)
        unmodelled.update(dict.fromkeys(left_out))
        lines.append(replace(line, exists=_name_of(workload) in existing))
    return FitReport(
        replicas=sum(line.replicas for line in lines),
        fit=sum(line.fit for line in lines),
        workloads=lines,
        unmodelled=list(unmodelled),
    )


def _pods(snapshot: Snapshot, workload: KubeObject, classes: PodClasses) -> tuple[Sequence[PodRecord], Snapshot]:
    """Return (records of the pods that the workload would create, snapshot with the claims created for them)."""
    if isinstance(workload, Pod):
        spec = with_defaults(workload.spec, workload.metadata.labels, classes, workload.namespace or "default")
        pods: Iterable[Pod] = [with_namespace(replace(workload, spec=spec))]
    else:
        own_claims = needs_claims(spec_of(workload))
        equal = None if own_claims else expand_if_equal(workload, classes=classes)
        if equal is not None:
            pod, count = equal
            return copies_of(pod, count, pod.key.removesuffix("-0"), snapshot.interner), snapshot
        pods = pods_of(workload, classes=classes)
    return with_pod_claims(snapshot, pods, classes)


def with_pod_claims(snapshot: Snapshot, pods: Iterable[Pod], classes: PodClasses) -> tuple[list[PodRecord], Snapshot]:
    """Return (records of the pods with the claims that controllers create for each, snapshot with these claims).

    Claims that exist already are kept.
    """
    default = default_storage_class(snapshot.informers.storage_classes.values())
    devices: dict[tuple[str, str], ResourceClaim] = {}
    volumes: dict[tuple[str, str], PersistentVolumeClaim] = {}
    records: list[PodRecord] = []
    for pod in pods:
        if needs_claims(pod.spec):
            created = create_claims(pod, classes.claim_templates, default)
            pod = created.pod
            devices.update(((claim.namespace, claim.name), claim) for claim in created.resource_claims)
            volumes.update(((claim.namespace, claim.name), claim) for claim in created.volume_claims)
        records.append(pod_record(pod))
    if not devices and not volumes:
        return records, snapshot
    informers = snapshot.informers.replace(
        claims={**volumes, **snapshot.informers.claims},
        resource_claims={**devices, **snapshot.informers.resource_claims},
    )
    return records, snapshot.with_placed([], [], informers)


def with_volume_claims(snapshot: Snapshot, workload: KubeObject) -> Snapshot:
    """Return the snapshot with the claims that a StatefulSet creates from its templates. Existing claims are kept.

    For other workloads the snapshot is unchanged.
    """
    default = default_storage_class(snapshot.informers.storage_classes.values())
    claims = {(claim.namespace, claim.name): claim for claim in claims_of(workload, default)}
    if not claims:
        return snapshot
    informers = snapshot.informers.replace(claims={**claims, **snapshot.informers.claims})
    return snapshot.with_placed([], [], informers)


def _build_refused_fit(snapshot: Snapshot, workload: KubeObject, plugin: str, message: str) -> WorkloadFit:
    """Build the result of a workload whose pods the API server would refuse: none of its replicas is placed.

    ``plugin``, ``message``: the admission plug-in that refuses them, and why. The rejections are empty if the workload
    would create no pod.
    """
    if isinstance(workload, DaemonSet):
        replicas = sum(should_run(workload, node) for node in snapshot.columns.objects)
    else:
        replicas = pod_count(workload)
    first = next(pods_of(workload), None)
    rejections = [Rejection(pods=replicas, plugin=plugin, reasons=[message], example=first.key)] if first else []
    return _line(workload, replicas, 0, rejections=rejections)


def _line(workload: KubeObject, replicas: int, fit: int, **more: Any) -> WorkloadFit:
    """Build the result of a workload: ``fit`` of its ``replicas`` can be placed.

    ``more``: further fields of WorkloadFit.
    """
    kind = workload.kind or type(workload).__name__
    return WorkloadFit(
        name=workload.name, kind=kind, namespace=workload.namespace or "default", replicas=replicas, fit=fit, **more
    )


def _name_of(workload: KubeObject) -> tuple[str, str]:
    """Return (kind, ``namespace/name``) of a workload."""
    return workload.kind or type(workload).__name__, f"{workload.namespace or 'default'}/{workload.name}"


def _build_extra_replica(
    snapshot: Snapshot, workload: KubeObject, classes: PodClasses
) -> tuple[Sequence[PodRecord], Snapshot]:
    """Return (records of one more replica of a workload, snapshot with its claims).

    The list is empty for kinds without scalable replicas, and if the replicas are not equal.
    """
    if not isinstance(workload, (Deployment, ReplicaSet, ReplicationController)):
        return [], snapshot
    equal = expand_if_equal(workload, classes=classes)
    if equal is None:
        return [], snapshot
    pod = equal[0]
    if needs_claims(pod.spec):
        return with_pod_claims(snapshot, [next(pods_of(pod, 1, classes=classes))], classes)
    return copies_of(pod, 1, f"{pod.key}-more", snapshot.interner), snapshot


def _replicas(
    snapshot: Snapshot,
    workload: KubeObject,
    classes: PodClasses,
    placements: bool,
    scores: ScoreOptions | None,
    state: PlaceState,
) -> tuple[WorkloadFit, Snapshot, list[str], PlaceState]:
    """Place the pods of a workload one after the other.

    Returns (its result, snapshot with the placed pods, features that were not evaluated, state for the next workload).
    ``state``: where the scan of nodes starts; it has no effect without ``scores``. Raises InputError for too many pods.
    """
    check_count(workload)
    pods, snapshot = _pods(with_volume_claims(snapshot, workload), workload, classes)
    if scores is None:
        placed = place(snapshot, pods=pods)
    else:
        snapshot = _with_controller(snapshot, workload)
        placed = place(snapshot, pods=pods, scores=scores, state=state)
    after = placed.snapshot_after
    rejections, event = summarize_rejections(after, placed.unschedulable_records)
    next_event = ""
    if not rejections:
        more, following = _build_extra_replica(after, workload, classes)
        if more:
            next_event = summarize_rejections(following, place(following, pods=more).unschedulable_records)[1]
    line = _line(
        workload,
        len(pods),
        len(placed.placed),
        rejections=rejections,
        event=event,
        next_event=next_event,
        placement=dict(Counter(placed.placed.values())) if placements else None,
    )
    return line, after, placed.unmodelled, placed.state


def _with_controller(snapshot: Snapshot, workload: KubeObject) -> Snapshot:
    """Return the snapshot with the pods' controller, whose selector the default spread constraints read.

    Workloads of kinds without such a controller change nothing.
    """
    controller = replica_set_of(workload) if isinstance(workload, Deployment) else workload
    if not isinstance(controller, (ReplicaSet, ReplicationController, StatefulSet)):
        return snapshot
    key = (controller.kind or type(controller).__name__, controller.namespace or "default", controller.name)
    informers = snapshot.informers.replace(controllers={**snapshot.informers.controllers, key: controller})
    return snapshot.with_placed([], [], informers)


def _daemonset(
    snapshot: Snapshot, workload: DaemonSet, classes: PodClasses, placements: bool
) -> tuple[WorkloadFit, Snapshot, list[str]]:
    """Try a DaemonSet's pod on every node where it should run.

    Returns (its result, snapshot with the placed pods, features that were not evaluated).
    """
    nodes = [node for node in snapshot.columns.objects if should_run(workload, node)]
    (record,), snapshot_with_claims = with_pod_claims(snapshot, [daemonset_pod(workload, classes=classes)], classes)
    fit = fit_pods(snapshot_with_claims, pods=[record], nodes=[node.name for node in nodes])
    fitting: list[int] = []
    rejected_nodes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for node in nodes:
        verdicts = list_rejections(fit, record.pod, record.key, node)
        if verdicts:
            rejected_nodes.setdefault((verdicts[0].plugin, tuple(verdicts[0].reasons)), []).append(node.name)
        else:
            fitting.append(snapshot.columns.index[node.name])
    rejections = [
        Rejection(pods=len(names), plugin=plugin, reasons=list(reasons), example=names[0])
        for (plugin, reasons), names in rejected_nodes.items()
    ]
    names = [snapshot.nodes[number] for number in fitting]
    placed, snapshot = with_pod_claims(
        snapshot, (daemonset_pod(workload, name, classes=classes) for name in names), classes
    )
    line = _line(
        workload,
        len(nodes),
        len(fitting),
        rejections=rejections,
        placement=dict.fromkeys(names, 1) if placements else None,
    )
    return line, snapshot.with_placed(placed, fitting, reserve(snapshot, placed, fitting)), fit.unmodelled


def summarize_rejections(snapshot: Snapshot, stays: Sequence[PodRecord]) -> tuple[list[Rejection], str]:
    """Group unplaced pods (``stays``) by plug-in and reasons, the largest groups first.

    Returns (rejections, kube-scheduler's event about the first pod); both are empty without pods. The plug-in is the
    one that rejects on the first node, empty if a PreFilter plug-in rejects or there are no nodes.
    """
    if not stays:
        return [], ""
    nodes = snapshot.columns.objects
    classes = snapshot.classify(stays)
    exemplars = {pod_class.index: record for pod_class, record in zip(reversed(classes), reversed(stays), strict=True)}
    fit = fit_pods(snapshot, pods=list(exemplars.values()))
    pods_by_reason: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    by_class: dict[int, tuple[str, tuple[str, ...]]] = {}
    event = ""
    for record, pod_class in zip(stays, classes, strict=True):
        if pod_class.index not in by_class:
            exemplar = exemplars[pod_class.index]
            failure = prefilter_failure(fit, exemplar.key, nodes)
            verdicts = (
                [] if failure else [find_first_rejection(fit, exemplar.pod, exemplar.key, node) for node in nodes]
            )
            counts = Counter(reason for no in verdicts for reason in no.reasons)
            reasons = (failure,) if failure else tuple(reason for reason, _ in counts.most_common())
            by_class[pod_class.index] = verdicts[0].plugin if verdicts else "", reasons or (_NO_NODES,)
            event = event or fit_error(counts, len(nodes), failure)
        pods_by_reason.setdefault(by_class[pod_class.index], []).append(record.key)
    rejections = [
        Rejection(pods=len(names), plugin=plugin, reasons=list(reasons), example=names[0])
        for (plugin, reasons), names in pods_by_reason.items()
    ]
    return sorted(rejections, key=lambda line: -line.pods), event


@typed
def fit_manifests(
    cluster: Cluster,
    *sources: Any,
    namespace: str = DEFAULT_NAMESPACE,
    placements: bool = False,
    scores: ScoreOptions | None = None,
) -> FitReport:
    """Report how many replicas of each workload of manifests fit on the existing nodes now, and why not more.

    Not in upstream; the order of nodes is that of upstream's ``HintingSimulator``.

    Parameters
    ----------
    cluster : Cluster
    *sources : path, bytes or data
        What :func:`kscale.load` takes.
    namespace : str
        The namespace of objects that name none.
    placements : bool
        Whether the report contains the number of replicas per node.
    scores : ScoreOptions, optional
        Place each replica on the node that kube-scheduler's scores prefer, instead of on the first node that takes it.

    Returns
    -------
    FitReport
        One entry per workload.

    Raises
    ------
    InputError
        If a source cannot be read or contains no workload, and for a workload of too many pods.
    """
    manifests = read_manifests(*sources, namespace=namespace)
    changed = with_objects(cluster, manifests.objects)
    report = fit_workloads(
        changed.snapshot(dra=True),
        manifests.workloads,
        classes=completing_classes(changed),
        placements=placements,
        known=[existing for item in manifests.workloads if (existing := find_object(changed, item)) is not None],
        scores=scores,
    )
    return replace(report, unmodelled=[*report.unmodelled, *manifests.list_unmodelled(changed)])
