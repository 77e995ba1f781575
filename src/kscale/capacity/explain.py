"""``kscale explain``: every plug-in that rejects a pod, node by node, and the node groups that would take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from kscale.ca.pod_lists import drop_expendable_pods, is_expendable
from kscale.capacity import estimate
from kscale.capacity.estimate import EXPENDABLE_CUTOFF
from kscale.capacity.records import Explanation, GroupAnswer, Nearest, NodeVerdict, Shortage
from kscale.capacity.rejections import list_rejections, prefilter_failure
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_owners import controller_of
from kscale.objects.quantity import Quantity
from kscale.scheduling.fit import fit as fit_pods
from kscale.scheduling.place import place
from kscale.scheduling.status import fit_error
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.manifests import with_manifests
from kscale.snapshot.snapshot import Snapshot
from kscale.vpa.controllers import Controllers, TargetError, read_controllers
from kscale.vpa.target import find_topmost_owner

__all__ = ["distance", "explain", "nearest", "pod_of_workload"]

_NAMED = 5


def explain(
    snapshot: Snapshot, pod: str | Pod, groups: Iterable[NodeGroup] = (), *, expendable_cutoff: int = EXPENDABLE_CUTOFF
) -> Explanation:
    """Explain where one pod fits, or why it fits nowhere.

    Parameters
    ----------
    snapshot : Snapshot
        The cluster.
    pod : str or Pod
        ``namespace/name``, or an object that need not be in the snapshot. For a pod with scheduling gates, the result
        describes it without the gates.
    groups : iterable of NodeGroup
        Groups with templates. They are tried if no existing node takes the pod, or if other pending pods take its room.
    expendable_cutoff : int
        Running pods of a lower priority are expendable: the Cluster Autoscaler counts their room as free.
        It does not for a pod that is expendable itself.

    Returns
    -------
    Explanation
        The node on which the pod is or to which it is nominated (then nothing else is evaluated); otherwise the nodes
        that it fits, the rejections by the others, and the verdicts of tried groups.

    Raises
    ------
    InputError
        For a name that is not in the snapshot, and for a group without a template if groups are tried.
    """
    if isinstance(pod, str):
        pod = estimate.find_pod(snapshot, pod)
    name = pod.key
    nodes: Sequence[Node] = snapshot.columns.objects
    shared_fields: dict[str, Any] = {
        "expendable_cutoff": expendable_cutoff,
        "expendable": is_expendable(pod, expendable_cutoff),
    }
    if pod.spec.node_name:
        return _explanation(name, nodes, node=pod.spec.node_name, **shared_fields)
    if pod.status.nominated_node_name:
        nominated = pod.status.nominated_node_name
        return _explanation(name, nodes, node=nominated, nominated=nominated, **shared_fields)
    # An expendable pod preempts no other pod, and the autoscaler ignores it.
    counted = snapshot if shared_fields["expendable"] else drop_expendable_pods(snapshot, expendable_cutoff)
    fit = fit_pods(snapshot, pods=[pod])
    failure = prefilter_failure(fit, name, nodes)
    fits_on: list[str] = []
    verdicts: list[NodeVerdict] = []
    for node in () if failure else nodes:
        rejections = list_rejections(fit, pod, name, node)
        if rejections:
            verdicts.append(NodeVerdict(node=node.name, first=rejections[0], also=rejections[1:]))
        else:
            fits_on.append(node.name)
    after_eviction = [] if counted is snapshot else _fitting(counted, pod, [verdict.node for verdict in verdicts])
    fitting = [*fits_on, *after_eviction]
    taken_by = _list_blocking_pods(counted, name, fitting, expendable_cutoff) if fitting else []
    answered: list[GroupAnswer] = []
    unmodelled = dict.fromkeys(fit.unmodelled)
    if not fitting or taken_by:
        answered, of_groups = _group_answers(counted, pod, list(groups))
        unmodelled |= dict.fromkeys(of_groups)
    return _explanation(
        name,
        nodes,
        taken_by=taken_by,
        fits_on=fits_on,
        fits_after_eviction=after_eviction,
        verdicts=verdicts,
        event="" if fits_on else fit_error(_count_reasons(verdicts), len(nodes), failure),
        nearest=None if fitting or failure else nearest(verdicts),
        groups=answered,
        gates=[gate.name for gate in pod.spec.scheduling_gates],
        unmodelled=list(unmodelled),
        **shared_fields,
    )


def _fitting(snapshot: Snapshot, pod: Pod, nodes: Sequence[str]) -> list[str]:
    """Return the names of the ``nodes`` that would take the pod."""
    fit = fit_pods(snapshot, pods=[pod])
    return [node for node in nodes if fit.verdict(pod.key, node).ok]


def _count_reasons(verdicts: Sequence[NodeVerdict]) -> Counter[str]:
    """Return the number of nodes by reason, for the reasons of the first plug-in that rejects the pod on each node."""
    return Counter(reason for verdict in verdicts for reason in verdict.first.reasons)


def _list_blocking_pods(snapshot: Snapshot, name: str, fits_on: Sequence[str], expendable_cutoff: int) -> list[str]:
    """Return up to five pending pods that take the room of the pending pod ``name``; an empty list if it gets a node.

    The pod is placed together with all pending pods whose priority is at least ``expendable_cutoff``, by priority. If
    it gets no node, the result names pods that were placed on the nodes ``fits_on``, where it would fit alone. The list
    is also empty if ``name`` is not pending, or if no other pending pod has such a priority.
    """
    priorities = snapshot.pending_records.priorities.tolist()
    counted = [
        key
        for key, priority in zip(snapshot.pending, priorities, strict=True)
        if priority >= expendable_cutoff or key == name
    ]
    if name not in counted or len(counted) == 1:
        return []
    placed = place(snapshot, pods=counted)
    if name in placed.placed:
        return []
    fitting = set(fits_on)
    return list(islice((pod for pod, node in placed.placed.items() if node in fitting), _NAMED))


def _explanation(name: str, nodes: Sequence[Any], **parts: Any) -> Explanation:
    """Build the result for the pod ``name``. ``parts``: fields of :class:`Explanation`; omitted ones are empty."""
    blank: dict[str, Any] = {
        "node": None, "fits_on": [], "verdicts": [], "event": "", "nearest": None, "groups": [], "unmodelled": [],
        "gates": [], "taken_by": [], "fits_after_eviction": [],
    }  # fmt: skip
    parts = blank | parts
    fits = bool(parts["node"] or parts["fits_on"] or parts["fits_after_eviction"])
    return Explanation(pod=name, node_count=len(nodes), fits=fits, **parts)


def pod_of_workload(cluster: Cluster, workload: KubeObject) -> tuple[str, Cluster]:
    """Return (name of a pod that represents a workload, cluster with that pod).

    The pod is the workload's first active one without a node, else its first active one on a node, else the first that
    the workload would create. Active: neither Succeeded nor Failed. In the last case the cluster is a copy with all new
    pods of the workload (with one replica if it has 0); otherwise it is ``cluster`` itself.

    Raises
    ------
    InputError
        If the workload has no active pods and would create none, or if admission would refuse them.
    """
    controllers = read_controllers(cluster)
    pods = [pod for pod in cluster.pods() if pod.namespace == workload.namespace]
    own = [pod for pod in pods if _belongs(pod, workload, controllers)]
    active = [pod for pod in own if not pod.is_finished]
    chosen = next((pod for pod in active if not pod.spec.node_name), next(iter(active), None))
    if chosen is None:
        cluster, names = with_manifests(cluster, [_with_one_replica(workload)])
        if not names:
            raise InputError(f"{workload.kind} {workload.key} has no pods and would create none")
        return names[0], cluster
    return chosen.key, cluster


def _belongs(pod: Pod, workload: KubeObject, controllers: Controllers) -> bool:
    """Return whether a workload is the direct or the topmost controller of a pod.

    Compares kinds and names, not namespaces.
    """
    direct = controller_of(pod.metadata)
    if direct is not None and (direct.kind, direct.name) == (workload.kind, workload.name):
        return True
    try:
        topmost = find_topmost_owner(pod, controllers)
    except TargetError:
        return False
    return topmost is not None and (topmost.kind, topmost.name) == (workload.kind, workload.name)


def _with_one_replica(workload: KubeObject) -> KubeObject:
    """Return the workload with one replica if it has 0, otherwise unchanged."""
    spec: Any = getattr(workload, "spec", None)
    if getattr(spec, "replicas", None) == 0:
        return replace(workload, spec=replace(spec, replicas=1))
    return workload


def distance(verdict: NodeVerdict) -> tuple[int, float]:
    """Return how far a node is from taking the pod, as a key for sorting: the smallest is the nearest.

    The key is (number of rejections without a shortage of a resource, largest shortage divided by its request).
    """
    rejections = [verdict.first, *verdict.also]
    ratios = [_ratio(shortage) for no in rejections for shortage in no.shortages]
    return sum(not no.shortages for no in rejections), max(ratios, default=0.0)


def nearest(verdicts: Sequence[NodeVerdict]) -> Nearest | None:
    """Return the node with the smallest :func:`distance` and what is missing there; None without verdicts.

    Of several such nodes, the first.
    """
    if not verdicts:
        return None
    best = min(verdicts, key=distance)
    rejections = [best.first, *best.also]
    return Nearest(
        node=best.node,
        shortages=[shortage for no in rejections for shortage in no.shortages],
        others=[no for no in rejections if not no.shortages],
    )


def _ratio(shortage: Shortage) -> float:
    """Return the part of a request that is short, from 0 to 1; 0 if nothing is requested."""
    requested = Quantity(shortage.asked).approximate_float()
    return Quantity(shortage.short).approximate_float() / requested if requested > 0 else 0.0


def _group_answers(snapshot: Snapshot, pod: Pod, groups: Sequence[NodeGroup]) -> tuple[list[GroupAnswer], list[str]]:
    """Return (the verdict of each group on the pod, texts about the pod's features that were not evaluated)."""
    results = list(estimate.estimates(snapshot, [pod], groups))
    aware = results
    if any(result.unmodelled for result in results) and not snapshot.csi:
        aware = list(estimate.estimates(snapshot.csi_aware(), [pod], groups))
    unmodelled = list(dict.fromkeys(text for result in aware for text in result.unmodelled))
    return [_group_answer(*row) for row in zip(groups, results, aware, strict=True)], unmodelled


def _group_answer(group: NodeGroup, result: estimate.Estimated, aware: estimate.Estimated) -> GroupAnswer:
    """Build the verdict of one group on the only pod of an estimate.

    ``result``: the estimate; ``aware``: the estimate of a simulation that respects the volume limits of CSI nodes.
    ``result`` decides whether the pod fits. The reasons are those of the first estimate that rejects the pod, and the
    answer's ``csi_aware`` is set only if the two estimates differ.
    """
    allocatable = estimate.get_template(group).node.status.allocatable or {}
    no, no_if_aware = (next((no for no, _, _ in each.rejected), None) for each in (result, aware))
    rejection = no or no_if_aware
    return GroupAnswer(
        group=group.id,
        fits=no is None,
        allocatable={resource: str(quantity) for resource, quantity in allocatable.items()},
        plugin=rejection.plugin if rejection else "",
        reasons=list(rejection.reasons) if rejection else [],
        detail=rejection.detail if rejection else "",
        csi_aware=None if (no is None) == (no_if_aware is None) else no_if_aware is None,
    )
