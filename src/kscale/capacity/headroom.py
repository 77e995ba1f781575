"""``kscale headroom``: how many more pods fit, and whether everything would fit without one node or zone.

Not in upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from kscale._native import _engine
from kscale.capacity.fit import summarize_rejections, with_pod_claims, with_volume_claims
from kscale.capacity.losses import (
    Loss,
    PairLosses,
    add_repair,
    check_zone_label,
    losses,
    named_losses,
    pair_losses,
)
from kscale.objects.api.apps import CronJob, StatefulSet
from kscale.objects.api.core import Pod, PodStatus
from kscale.objects.api.meta import KubeObject
from kscale.objects.argument_types import typed
from kscale.objects.kinds import DEFAULT_NAMESPACE, with_namespace
from kscale.objects.node_selectors import ZONE
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_admission import BUILT_IN_CLASSES, PodClasses, with_defaults
from kscale.objects.workloads import needs_claims, pods_of, spec_of
from kscale.records import Record
from kscale.scheduling.place import place
from kscale.scheduling.session import Session
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.rows import copies_of
from kscale.snapshot.snapshot import Snapshot

__all__ = ["HeadroomReport", "MorePods", "count_more_pods", "headroom", "report_losses"]

_MOST = 1_000_000
_MAX_COUNT = 100_000
"""Maximum of copies whose nodes are listed."""


class MorePods(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Number of copies of one pod that fit if no other pod is added.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    more : int
        Number of copies that fit.
    kind : str
        Kind of the workload whose pod it is.
    name : str
        Name of the workload, or of the pod itself.
    placement : dict of str to int or None
        Number of copies by node. None: more than 100,000 fit.
    next_event : str
        kube-scheduler's text for one copy more, or why the API server would refuse the pod. Empty: more than 100,000
        fit.
    """

    pod: str
    more: int
    kind: str = "Pod"
    name: str = ""
    placement: dict[str, int] | None = None
    next_event: str = ""


class HeadroomReport(Record, frozen=True):
    """Number of copies of pods that fit now, and the effect of losing nodes and zones.

    Attributes
    ----------
    pod : str or None
        The requested pod, as ``namespace/name``. None: not exactly one pod was requested.
    more : int or None
        Number of copies of ``pod`` that fit. None without ``pod``.
    nodes : list of Loss
        Effect of losing each node.
    zones : list of Loss
        Effect of losing each zone.
    placement : dict of str to int or None
        Number of copies of ``pod`` by node. None without ``pod``, or if more than 100,000 fit.
    next_event : str
        kube-scheduler's text for one copy of ``pod`` more. Empty without ``pod``, or if more than 100,000 fit.
    lost : list of Loss
        Effect of the losses that were requested by name.
    pairs : PairLosses or None
        Effect of losing every pair of nodes. None: not requested.
    pods : list of MorePods
        Number of copies of each requested pod, as if no other pod was added.
    unmodelled : list of str
        Features of the pods that are not evaluated.
    """

    KIND: ClassVar[str] = "HeadroomReport"

    def summary(self) -> str:
        """Return a line: how many more pods fit, and how many losses of one node or zone leave pods without a node."""
        parts = [f"{line.more:,} more of {line.name or line.pod} fit" for line in self.pods]
        for text, every in (("nodes", self.nodes), ("zones", self.zones), ("named losses", self.lost)):
            if every:
                bad = sum(loss.homeless > 0 for loss in every)
                parts.append(f"losing {bad:,} of {len(every):,} {text} leaves pods unschedulable")
        return ", ".join(parts)

    ROWS: ClassVar[str] = "nodes"

    pod: str | None
    more: int | None
    nodes: list[Loss]
    zones: list[Loss]
    placement: dict[str, int] | None = None
    next_event: str = ""
    lost: list[Loss] = msgspec.field(default_factory=list)
    pairs: PairLosses | None = None
    pods: list[MorePods] = msgspec.field(default_factory=list)
    unmodelled: list[str] = msgspec.field(default_factory=list)


@typed
def headroom(
    snapshot: Snapshot,
    pod: Pod | KubeObject | Sequence[KubeObject] | None = None,
    *,
    zone_label: str = ZONE,
    classes: PodClasses = BUILT_IN_CLASSES,
) -> HeadroomReport:
    """Compute how many more of each pod fit, and the effect of losing any one node or any one zone.

    Parameters
    ----------
    snapshot : Snapshot
        The cluster.
    pod : Pod, workload or sequence of them, optional
        Each is evaluated by itself. A workload (Deployment, StatefulSet, ...) stands for its first pod.
    zone_label : str
        The node label that names the zone.
    classes : PodClasses
        The cluster's priority classes, runtime classes, limit ranges and claim templates, which complete pods.

    Returns
    -------
    HeadroomReport
        The number of further copies of each pod, and one loss per node and per zone.

    Raises
    ------
    InputError
        If no node has a ``zone_label`` other than the default one.
    """
    check_zone_label(snapshot, zone_label)
    zone_of = snapshot.columns.label(zone_label)
    zones: dict[str, list[int]] = {}
    for n, value in enumerate(zone_of.ids.tolist()):
        if value >= 0:
            zones.setdefault(zone_of.values[value], []).append(n)
    requested = [] if pod is None else [pod] if isinstance(pod, KubeObject) else list(pod)
    unmodelled: dict[str, None] = {}
    pods: list[MorePods] = []
    for workload in requested:
        more, left_out = _count_more_pods(snapshot, workload, classes)
        unmodelled.update(dict.fromkeys(left_out))
        pods.append(more)
    single = pods[0] if len(pods) == 1 else None
    return HeadroomReport(
        pod=None if single is None else single.pod,
        more=None if single is None else single.more,
        placement=None if single is None else single.placement,
        next_event="" if single is None else single.next_event,
        pods=pods,
        unmodelled=list(unmodelled),
        nodes=losses(snapshot, [(name, [n]) for n, name in enumerate(snapshot.nodes)]),
        zones=losses(snapshot, zones.items()),
    )


@typed
def report_losses(
    cluster: Cluster,
    texts: Sequence[str],
    groups: Sequence[NodeGroup] = (),
    *,
    repair: bool = False,
    zone_label: str = ZONE,
) -> HeadroomReport:
    """Simulate named losses only.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    texts : sequence of str
        ``node=A,B`` (together), ``zone=A``, ``pool=GROUP``, or ``pairs`` (every pair of nodes).
    groups : sequence of NodeGroup
        Groups for ``pool`` and, with templates and prices, for repairs.
    repair : bool
        Whether to compute, for each named loss and each of the worst pairs, the cheapest new nodes on which its
        homeless pods fit.
    zone_label : str
        The label with the zone of a node.

    Returns
    -------
    HeadroomReport
        With ``lost`` and, if requested, ``pairs``. Its other parts are empty.

    Raises
    ------
    InputError
        For another form of text, for nodes, zones and groups that do not exist, if no node has a ``zone_label`` other
        than the default one, and, for repairs, if a group cannot be bought as it has no template or no price.
    """
    snapshot = cluster.snapshot(dra=True)
    check_zone_label(snapshot, zone_label)
    named = named_losses(snapshot, [text for text in texts if text != "pairs"], groups, zone_label=zone_label)
    results = losses(snapshot, named)
    pairs = pair_losses(snapshot) if "pairs" in texts else None
    if repair:
        results = [
            add_repair(cluster, loss, nodes, groups, zone_label=zone_label)
            for loss, (_, nodes) in zip(results, named, strict=True)
        ]
        if pairs is not None:
            index = snapshot.columns.index
            worst = [
                add_repair(
                    cluster, loss, [index[name] for name in loss.name.split(" and ")], groups, zone_label=zone_label
                )
                for loss in pairs.worst
            ]
            pairs = msgspec.structs.replace(pairs, worst=worst)
    return HeadroomReport(pod=None, more=None, nodes=[], zones=[], lost=results, pairs=pairs)


def _count_more_pods(snapshot: Snapshot, workload: KubeObject, classes: PodClasses) -> tuple[MorePods, list[str]]:
    """Return (record of how many more copies of a workload's pod fit, features of the pod that are not evaluated).

    If admission would refuse the pod, the number is 0 and ``next_event`` says why.
    """
    spec = spec_of(workload)
    namespace = workload.namespace or DEFAULT_NAMESPACE
    left_out = classes.unknown(spec)
    pod = _first_pod(workload, classes)
    answer = MorePods(pod=pod.key, more=0, kind=workload.kind or type(workload).__name__, name=workload.name)
    plugin, message = classes.refusal(spec, namespace)
    if message:
        return replace(answer, next_event=f"{plugin} would refuse the pod: {message}"), left_out
    if needs_claims(pod.spec) or (isinstance(workload, StatefulSet) and workload.spec.volume_claim_templates):
        more, placement, event = _count_more_with_claims(snapshot, workload, pod, classes)
        return replace(answer, more=more, placement=placement, next_event=event), left_out
    more = count_more_pods(snapshot, pod)
    placement, event = (None, "") if more > _MAX_COUNT else _place_more_pods(snapshot, pod, more)
    return replace(answer, more=more, placement=placement, next_event=event), left_out


def _first_pod(workload: KubeObject, classes: PodClasses) -> Pod:
    """Return the workload's first pod, whatever its number of replicas, as the API server would store it."""
    if isinstance(workload, CronJob):
        workload = replace(workload, spec=replace(workload.spec, suspend=False))
    pod = next(pods_of(workload, None if isinstance(workload, Pod) else 1, classes=classes))
    if isinstance(workload, Pod):
        namespace = workload.namespace or DEFAULT_NAMESPACE
        pod = with_namespace(replace(pod, spec=with_defaults(pod.spec, pod.metadata.labels, classes, namespace)))
    return pod


def _count_more_with_claims(
    snapshot: Snapshot, workload: KubeObject, pod: Pod, classes: PodClasses
) -> tuple[int, dict[str, int] | None, str]:
    """Return, for a pod with its own claims: (how many more fit, number by node, why the next one does not fit).

    If 100,000 or more fit, the count is 100,000, the number by node None, and the text empty.
    """
    example: KubeObject = replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus())
    if isinstance(workload, StatefulSet):
        # Uses another name, as claims of this name may exist and be bound.
        example = replace(workload, metadata=replace(workload.metadata, name=f"{workload.name}-more"))
    count = 64
    while True:
        extended = snapshot
        if isinstance(example, StatefulSet):
            example = replace(example, spec=replace(example.spec, replicas=count))
            extended = with_volume_claims(snapshot, example)
        records, extended = with_pod_claims(extended, pods_of(example, count, classes=classes), classes)
        placed = place(extended, pods=records)
        if placed.placed_count < count:
            event = summarize_rejections(placed.snapshot_after, placed.unschedulable_records[:1])[1]
            return placed.placed_count, dict(Counter(placed.placed.values())), event
        if count >= _MAX_COUNT:
            return count, None, ""
        count = min(4 * count, _MAX_COUNT)


def _place_more_pods(snapshot: Snapshot, pod: Pod, more: int) -> tuple[dict[str, int], str]:
    """Place ``more`` copies of the pod; return (their number by node, kube-scheduler's message on one more)."""
    unassigned = replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus())
    placed = place(snapshot, pods=copies_of(unassigned, more + 1, f"{pod.key}-more", snapshot.interner))
    return dict(Counter(placed.placed.values())), summarize_rejections(
        placed.snapshot_after, placed.unschedulable_records
    )[1]


@typed
def count_more_pods(snapshot: Snapshot, pod: Pod) -> int:
    """Return how many more pods like this one fit on existing nodes, placed one after the other (at most a million).

    0 if a PreFilter plug-in rejects the pod.
    """
    # The node of a running pod does not restrict where equal pods may go.
    session = Session(snapshot, [snapshot.interner.classify(pod, placed=True)], exchangeable=True)
    engine = session.engine
    if session.fails_prefilter(0):
        return 0
    if engine.is_local(0):
        return _engine.more_of(engine, 0, _MOST)
    count = 0
    while count < _MOST and (node := engine.any_node(0)) >= 0:
        engine.place(0, node)
        count += 1
    return count
