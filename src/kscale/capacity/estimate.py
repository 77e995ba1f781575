"""``kscale estimate``: how many nodes of each group the pending pods need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kscale.ca.estimator import EstimateOptions, estimate_many
from kscale.ca.pod_lists import TPU_RESOURCE_PREFIX, clear_tpu_requests, drop_expendable_pods
from kscale.capacity.machine_types import arch_of, generation_of
from kscale.capacity.records import UNLIMITED, EstimateReport, GroupEstimate, Rejection
from kscale.capacity.rejections import describe_use
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_owners import is_daemonset_pod
from kscale.objects.pod_resources import PODS, demand, to_integers
from kscale.scheduling.coercion import pods_of, priorities_of, stand_in_groups
from kscale.scheduling.place import place
from kscale.scheduling.status import Verdict
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "BOUND_EFFORT",
    "EXPENDABLE_CUTOFF",
    "Estimated",
    "No",
    "estimate_groups",
    "estimates",
    "find_pod",
    "get_template",
    "rejections_of",
    "requests_tpus",
]


class No(NamedTuple):
    """Why a pod was not scheduled: the plug-in, its reasons, and the volume that prevents it."""

    plugin: str
    reasons: Sequence[str]
    detail: str = ""


class Estimated(msgspec.Struct, frozen=True):
    """Result of one group, by pod name. ``pod_groups``: lists of pods that no predicate distinguishes.

    ``rejected``: why pods were not scheduled, the number of such pods and the first one, in the order of the first
    pods; a reason may come several times. ``placed``: pods and nodes, if they were requested.
    """

    nodes: int
    placed_pods: set[str]
    rejected: Sequence[tuple[No, int, str]]
    pod_groups: Sequence[Sequence[str]]
    placed: Mapping[str, str]
    bound: int
    bound_method: str
    unmodelled: Sequence[str]

    def select_placed(self, names: Sequence[str]) -> list[str]:
        """Return the placed pods among ``names``, in the order of ``names``."""
        return [name for name in names if name in self.placed_pods]


def estimates(
    snapshot: Snapshot,
    names: Sequence[str | Pod],
    groups: Sequence[NodeGroup],
    *,
    cursor: int = 0,
    bound_effort: int = 0,
    threads: int = 1,
    placements: bool = False,
) -> Iterator[Estimated]:
    """Yield upstream's estimate of new nodes for each group, as if it were the only group and had no maximum size.

    ``names``: pods to place. ``cursor``: index of the node after which the estimate of each group starts to scan the
    nodes. ``bound_effort``, ``threads``: of the lower bound of each group, see
    :meth:`~kscale.ca.estimator.EstimateResult.bound`; the bound is 0 without placed pods. ``placements``: whether the
    result has the new node of each pod; otherwise its ``placed`` is empty. Raises InputError for a group without a
    template.
    """
    options = [EstimateOptions(max_nodes=0)] * len(groups)
    results = estimate_many(
        snapshot,
        names,
        templates=[get_template(group) for group in groups],
        options=options,
        cursor=cursor,
        fresh_cursor=True,
    )
    for result in results:
        bound = result.bound(effort=bound_effort, threads=threads) if result.placed_pods else None
        yield Estimated(
            nodes=result.node_count,
            placed_pods=set(result.placed_pods),
            rejected=[(_convert_verdict(verdict), count, pod) for verdict, count, pod in result.rejections],
            pod_groups=result.pod_groups,
            placed=result.placed if placements else {},
            bound=bound.value if bound is not None else 0,
            bound_method=bound.method if bound is not None else "",
            unmodelled=result.unmodelled,
        )


def _convert_verdict(verdict: Verdict) -> No:
    """Convert the verdict on an unscheduled pod to a record of plug-in, reasons and detail.

    If the verdict is no failure, the record says that the pod fits an empty node, but not beside the pods placed first.
    """
    if verdict.ok:
        return No("", ["would fit an empty node, but not beside the pods placed first"])
    volumes = [describe_use(number) for number in verdict.numbers if "volume" in number]
    return No(verdict.plugin, verdict.why, "; ".join(volumes))


def get_template(group: NodeGroup) -> NodeTemplate:
    """Return the group's template. Raises InputError if it has none."""
    if group.template is None:
        raise InputError(Problem("has no template node", object=f"node group {group.id}"))
    return group.template


def find_pod(snapshot: Snapshot, name: str) -> Pod:
    """Return a pod by ``namespace/name``.

    Raises InputError if it is neither pending nor placed; the message says where it is, or has similar names.
    """
    try:
        pod: Pod = snapshot.pod(name)
    except KeyError:
        if location := snapshot.describe_location(name):
            raise InputError(Problem(f"is neither pending nor placed: it {location}", object=f"Pod {name}")) from None
        from difflib import get_close_matches

        near = get_close_matches(name, snapshot.pending, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(Problem(f"no such pod in the input{hint}", object=f"Pod {name}")) from None
    return pod


BOUND_EFFORT = 120_000
"""Work that a strong bound may cost: some 50 milliseconds."""

EXPENDABLE_CUTOFF = -10  # upstream's --expendable-pods-priority-cutoff


def estimate_groups(
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    *,
    pods: Sequence[str] | None = None,
    ignore_existing: bool = False,
    expendable_cutoff: int = EXPENDABLE_CUTOFF,
    placements: bool = False,
    bound_effort: int = 0,
    threads: int = 1,
) -> EstimateReport:
    """Estimate how many nodes of each group the pending pods need.

    Parameters
    ----------
    snapshot : Snapshot
        State of the cluster.
    groups : iterable of NodeGroup
        Node groups with templates.
    pods : sequence of str, optional
        Names of pending pods to place. Default: all pending pods.
    ignore_existing : bool
        Whether to leave out the existing nodes.
    expendable_cutoff : int
        Pods with a lower priority are left out, as upstream does.
    placements : bool
        Whether to report the node of each pod.
    bound_effort : int
        Effort for each lower bound (:data:`BOUND_EFFORT` is a lot).
    threads : int
        Threads for the lower bounds.

    Returns
    -------
    EstimateReport
        Counts of pods, and one line per group, each as if no other group got nodes. Pending DaemonSet pods are not
        tried on new nodes.

    Raises
    ------
    InputError
        If a group has no template, or if a name in ``pods`` occurs twice or is not in the snapshot.
    """
    counts = snapshot.counts
    snapshot = drop_expendable_pods(snapshot, expendable_cutoff)
    expendable_running = counts["placed"] - snapshot.counts["placed"]
    requested = list(snapshot.pending if pods is None else pods)
    priorities = priorities_of(pods_of(snapshot, requested)).tolist()
    pending = [name for name, priority in zip(requested, priorities, strict=True) if priority >= expendable_cutoff]
    cleared = _without_tpus(snapshot, pending)
    existing: Mapping[str, str] = {}
    unmodelled: dict[str, None] = {}
    rest, cursor = pending, 0
    if not ignore_existing:
        placed = place(snapshot, pods=[cleared.get(name, name) for name in pending])
        existing, rest = placed.placed, [*placed.unschedulable, *placed.not_tried]  # in the order tried: by priority
        snapshot, cursor = placed.snapshot_after, placed.state.cursor
        unmodelled.update(dict.fromkeys(placed.unmodelled))
    # New nodes have their own DaemonSet pods; pending ones belong to existing nodes (FilterOutDaemonSets).
    records = snapshot.records(rest)
    candidates = [
        name
        for i, (name, owned) in enumerate(zip(rest, stand_in_groups(records).tolist(), strict=True))
        if owned or not is_daemonset_pod(records[i].pod)
    ]
    unplaced = set(candidates)
    pods_to_place = [cleared.get(name, name) for name in candidates]
    lines: list[GroupEstimate] = []
    groups = list(groups)
    results = estimates(
        snapshot,
        pods_to_place,
        groups,
        cursor=cursor,
        bound_effort=bound_effort,
        threads=threads,
        placements=placements,
    )
    for group, result in zip(groups, results, strict=True):
        unplaced.difference_update(result.placed_pods)
        unmodelled.update(dict.fromkeys(result.unmodelled))
        lines.append(_line(snapshot, group, result, placements))
    unschedulable = [name for name in candidates if name in unplaced]
    return EstimateReport(
        pending_count=len(pending),
        gated=counts["gated"],
        expendable=len(requested) - len(pending),
        terminating=counts["terminating"],
        on_unknown_nodes=counts["on unknown nodes"],
        on_existing=len(existing),
        need_new=len(candidates) - len(unschedulable),
        unschedulable_count=len(unschedulable),
        daemon_set=len(rest) - len(candidates),
        ignored_existing=ignore_existing,
        groups=lines,
        unschedulable=unschedulable,
        unmodelled=list(unmodelled),
        expendable_running=expendable_running,
        expendable_cutoff=expendable_cutoff,
        placed=dict(existing) if placements else None,
    )


def requests_tpus(snapshot: Snapshot, names: Sequence[str]) -> bool:
    """Return whether any of the pods requests cloud TPUs; the autoscaler ignores these requests (ClearTPURequests)."""
    return bool(_without_tpus(snapshot, names))


def _without_tpus(snapshot: Snapshot, names: Sequence[str]) -> dict[str, Pod]:
    """Return copies of the pods that request cloud TPUs, without these requests (ClearTPURequests), by name.

    Pods that request none are left out.
    """
    records = snapshot.records(names)
    classes = snapshot.classify(records)
    uses_tpus = {
        number: any(resource.startswith(TPU_RESOURCE_PREFIX) for resource in kind.demand)
        for number, kind in {kind.index: kind for kind in classes}.items()
    }
    if not any(uses_tpus.values()):
        return {}
    chosen = [record for record, kind in zip(records, classes, strict=True) if uses_tpus[kind.index]]
    return {
        record.key: pod for record, pod in zip(chosen, clear_tpu_requests([item.pod for item in chosen]), strict=True)
    }


def _line(snapshot: Snapshot, group: NodeGroup, result: Estimated, placements: bool) -> GroupEstimate:
    """Build the report's line of one group. ``placements``: whether the line has the new node of each pod."""
    classes = [
        (demand(find_pod(snapshot, names[0])), len(names))
        for names in (result.select_placed(names) for names in result.pod_groups)
        if names
    ]
    template = get_template(group)
    shares = _utilization(classes, template, result.nodes)
    return GroupEstimate(
        group=group.id,
        nodes=result.nodes,
        bound=result.bound,
        bound_method=result.bound_method,
        pods=len(result.placed_pods),
        utilization=shares,
        limited_by=max(shares, key=lambda name: shares[name], default=None),
        rejections=rejections_of(result.rejected),
        current=group.target_size if group.target_size is not None else len(group.nodes),
        maximum=group.max_size if group.max_size < UNLIMITED else None,
        price=None if group.price is None else group.price * result.nodes,
        placed=dict(result.placed) if placements else None,
        arch=arch_of(template.node),
        generation=generation_of(template.node),
    )


def _utilization(
    classes: Collection[tuple[Mapping[str, Any], int]], template: NodeTemplate, nodes: int
) -> dict[str, float]:
    """Return the requests on the new nodes divided by what the nodes offer, by resource; empty without nodes.

    ``classes``: (requests of a pod, number of such pods). DaemonSet pods of the template count on each of the ``nodes``
    new nodes. The number of pods counts as one more resource. Resources that are not requested, or not offered, are
    left out.
    """
    if not nodes:
        return {}
    used: dict[str, int] = {PODS: sum(count for _, count in classes) + nodes * len(template.pods)}
    for requests, count in [*classes, *((demand(pod), nodes) for pod in template.pods)]:
        for name, amount in to_integers(requests, floor=True).items():
            used[name] = used.get(name, 0) + amount * count
    allocatable = template.node.status.allocatable or {}
    room = to_integers(allocatable)
    if PODS in allocatable:
        room[PODS] = allocatable[PODS].value()
    return {name: used[name] / (nodes * room[name]) for name in sorted(used) if room.get(name, 0) > 0 and used[name]}


def rejections_of(rejected: Iterable[tuple[No, int, str]]) -> list[Rejection]:
    """Group unscheduled pods by plug-in and reasons: the largest groups first, then in order of occurrence.

    ``rejected``: (reason, number of pods, name of the first one); a reason may come several times.
    """
    lines: dict[tuple[str, tuple[str, ...]], tuple[int, str]] = {}
    for no, count, pod in rejected:
        reason = no.plugin, tuple(no.reasons)
        pods, example = lines.get(reason, (0, pod))
        lines[reason] = pods + count, example
    result = [
        Rejection(pods=pods, plugin=plugin, reasons=list(reasons), example=example)
        for (plugin, reasons), (pods, example) in lines.items()
    ]
    return sorted(result, key=lambda line: -line.pods)
