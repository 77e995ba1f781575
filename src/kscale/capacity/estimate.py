"""How many nodes of each group the pending pods need: first the nodes that exist, then each group on its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kscale.ca.pod_lists.expendable import snapshot_without_expendable
from kscale.ca.pod_lists.tpu import TPU_PREFIX, clear_tpu_requests
from kscale.capacity import answers
from kscale.capacity.architectures import arch_of
from kscale.capacity.records import UNLIMITED, EstimateReport, GroupEstimate, Rejection
from kscale.objects.core import Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.owners import is_daemonset_pod
from kscale.objects.requests import PODS, demand, to_integers
from kscale.scheduling.place import place
from kscale.scheduling.pods import priorities_of, stand_in_groups
from kscale.snapshot.snapshot import Snapshot

__all__ = ["BOUND_EFFORT", "EXPENDABLE_CUTOFF", "asks_for_tpus", "estimate_groups", "rejections_of"]

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
    """The report on the pending pods (or on ``pods``, names of pending pods), one line per group.

    ``groups`` carry their template. ``ignore_existing`` leaves out the nodes that exist; ``placements`` adds where each
    pod goes. ``bound_effort`` (:data:`BOUND_EFFORT` is a lot): how hard each bound is looked for.
    Pods of a priority below ``expendable_cutoff`` are left out, as upstream does. Raises ``InputError`` for
    a group without a template.
    """
    counts = snapshot.counts
    snapshot = snapshot_without_expendable(snapshot, expendable_cutoff)
    expendable_running = counts["placed"] - snapshot.counts["placed"]
    asked = list(snapshot.pending if pods is None else pods)
    priorities = priorities_of(snapshot.records(asked)).tolist()
    pending = [name for name, priority in zip(asked, priorities, strict=True) if priority >= expendable_cutoff]
    cleared = _without_tpus(snapshot, pending)
    existing: Mapping[str, str] = {}
    unmodelled: dict[str, None] = {}
    rest, cursor = pending, 0
    if not ignore_existing:
        placed = place(snapshot, pods=[cleared.get(name, name) for name in pending])
        existing, rest = placed.placement, [*placed.unschedulable, *placed.not_tried]  # in the order tried: by priority
        snapshot, cursor = placed.snapshot_after, placed.state.cursor
        unmodelled.update(dict.fromkeys(placed.unmodelled))
    # A new node brings its own DaemonSet pods; those that wait belong to nodes that exist (FilterOutDaemonSets).
    records = snapshot.records(rest)
    left = [
        name
        for i, (name, owned) in enumerate(zip(rest, stand_in_groups(records).tolist(), strict=True))
        if owned or not is_daemonset_pod(records[i].pod)
    ]
    homeless = set(left)
    wanted = [cleared.get(name, name) for name in left]
    lines: list[GroupEstimate] = []
    groups = list(groups)
    results = answers.estimates(snapshot, wanted, groups, cursor=cursor, bound_effort=bound_effort, threads=threads)
    for group, result in zip(groups, results, strict=True):
        homeless.difference_update(result.scheduled)
        unmodelled.update(dict.fromkeys(result.unmodelled))
        lines.append(_line(snapshot, group, result, placements))
    nowhere = [name for name in left if name in homeless]
    return EstimateReport(
        pending=len(pending),
        gated=counts["gated"],
        expendable=len(asked) - len(pending),
        terminating=counts["terminating"],
        on_unknown_nodes=counts["on unknown nodes"],
        on_existing=len(existing),
        need_new=len(left) - len(nowhere),
        nowhere=len(nowhere),
        daemon_set=len(rest) - len(left),
        ignored_existing=ignore_existing,
        groups=lines,
        nowhere_pods=nowhere,
        unmodelled=list(unmodelled),
        expendable_running=expendable_running,
        expendable_cutoff=expendable_cutoff,
        existing=dict(existing) if placements else None,
    )


def asks_for_tpus(snapshot: Snapshot, names: Sequence[str]) -> bool:
    """Check whether some of the pods ask for cloud TPUs, which the autoscaler clears (ClearTPURequests)."""
    return bool(_without_tpus(snapshot, names))


def _without_tpus(snapshot: Snapshot, names: Sequence[str]) -> dict[str, Pod]:
    """Those of the pods that ask for cloud TPUs, without that (ClearTPURequests)."""
    records = snapshot.records(names)
    classes = snapshot.classify(records)
    asks = {of.index: any(resource.startswith(TPU_PREFIX) for resource in of.demand) for of in classes}
    if not any(asks.values()):
        return {}
    chosen = [record for record, of in zip(records, classes, strict=True) if asks[of.index]]
    return {
        record.key: pod for record, pod in zip(chosen, clear_tpu_requests([each.pod for each in chosen]), strict=True)
    }


def _line(snapshot: Snapshot, group: NodeGroup, result: answers.Estimated, placements: bool) -> GroupEstimate:
    classes = [
        (demand(answers.find_pod(snapshot, names[0])), len(names))
        for names in (result.scheduled_of(names) for names in result.groups)
        if names
    ]
    template = answers.template(group)
    shares = _utilization(classes, template, result.nodes)
    return GroupEstimate(
        group=group.id,
        nodes=result.nodes,
        bound=result.bound,
        bound_method=result.bound_method,
        pods=len(result.scheduled),
        utilization=shares,
        limited_by=max(shares, key=lambda name: shares[name], default=None),
        rejections=rejections_of(result.unscheduled),
        current=group.target_size if group.target_size is not None else len(group.nodes),
        maximum=group.max_size if group.max_size < UNLIMITED else None,
        price=None if group.price is None else group.price * result.nodes,
        placement=dict(result.placement) if placements else None,
        arch=arch_of(template.node),
    )


def _utilization(
    classes: Collection[tuple[Mapping[str, Any], int]], template: NodeTemplate, nodes: int
) -> dict[str, float]:
    """Requests over allocatable of the new nodes, DaemonSet pods included; the pod count is one resource more."""
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


def rejections_of(unscheduled: Mapping[str, answers.No]) -> list[Rejection]:
    """Pods by what stopped them, the most pods first, then in the order met."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, no in unscheduled.items():
        found.setdefault((no.plugin, tuple(no.reasons)), []).append(name)
    lines = [
        Rejection(pods=len(names), plugin=plugin, reasons=list(reasons), example=names[0])
        for (plugin, reasons), names in found.items()
    ]
    return sorted(lines, key=lambda line: -line.pods)
