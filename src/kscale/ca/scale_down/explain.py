"""Explain why a node stays, in one sentence for each reason."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from kscale.ca import unremovable_reasons
from kscale.ca.nodes import SCALE_DOWN_DISABLED_KEY, TO_BE_DELETED_TAINT
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import drop_uncounted_pods
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.effects import duration, to_datetime
from kscale.objects.api.core import Pod, Taint
from kscale.objects.nodegroup import Groups
from kscale.objects.times import format_duration
from kscale.scheduling.fit import fit
from kscale.snapshot.snapshot import Snapshot

__all__ = ["explain_blocking_pod", "explain_no_place", "explain_unremovable"]

_REASON_TEXTS = {
    unremovable_reasons.SCALE_DOWN_DISABLED_ANNOTATION: f"annotated {SCALE_DOWN_DISABLED_KEY}=true",
    unremovable_reasons.SCALE_DOWN_UNREADY_DISABLED: "not ready, and nodes that are not ready are to stay",
    unremovable_reasons.NOT_AUTOSCALED: "belongs to no node group",
    unremovable_reasons.ATOMIC_SCALE_DOWN_FAILED: "its group goes as a whole, and not all of its nodes can go",
    unremovable_reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED: "the cluster would fall below its minimum of some resource",
    unremovable_reasons.CURRENTLY_BEING_DELETED: "is being deleted already",
    unremovable_reasons.RECENTLY_UNREMOVABLE: "could not be removed a short time ago; it is tried again later",
    unremovable_reasons.NO_NODE_INFO: "is not in the snapshot",
    unremovable_reasons.BLOCKED_BY_ON_COMPLETION_POD: "has pods that are to finish first",
}


def explain_unremovable(
    node: str, plan: ScaleDownPlan, groups: Groups, options: AutoscalingOptions, snapshot: Snapshot
) -> str:
    """Explain in one sentence why a node is not deleted; upstream's reason is in ``plan.unremovable``."""
    if plan.result == "ScaleDownNotTried":
        return "not looked at: this loop may not scale down"
    if node in plan.skipped_names:
        return "not looked at: enough nodes are unneeded already, or the time was up"
    unremovable = plan.unremovable.get(node)
    if unremovable is None:
        return _explain_unneeded(plan) if node in plan.unneeded_by_name else _explain_not_candidate(node, groups)
    if unremovable.blocking_pod is not None:
        return explain_blocking_pod(
            unremovable.blocking_pod.pod, unremovable.blocking_pod.reason, plan.pdbs, options, snapshot
        )
    judged = plan.eligibility.get(node)
    match unremovable.reason:
        case unremovable_reasons.NOT_UNDERUTILIZED if judged and judged.utilization and judged.threshold is not None:
            used = judged.utilization
            # The planner of release 1.3 requires less than the threshold.
            over = "as much as" if used.utilization == judged.threshold else "more than"
            return f"{used.utilization:.0%} of its {used.resource_name} is requested, {over} {judged.threshold:.0%}"
        case unremovable_reasons.NO_PLACE_TO_MOVE_PODS:
            failure = plan.failures.get(node)
            if failure is None or failure.homeless is None:
                return "a pod fits on no other node that stays"
            return f"{failure.homeless} fits on no other node that stays"
        case unremovable_reasons.NOT_UNNEEDED_LONG_ENOUGH | unremovable_reasons.NOT_UNREADY_LONG_ENOUGH:
            return _explain_too_early(plan.unneeded_by_name[node])
        case unremovable_reasons.NODE_GROUP_MIN_SIZE_REACHED:
            return _explain_min_size(node, groups)
        case unremovable_reasons.UNEXPECTED_ERROR:
            return (judged and judged.error) or "the node group did not answer"
    return _REASON_TEXTS.get(unremovable.reason, unremovable.reason)


def explain_no_place(node: str, pod: str, snapshot: Snapshot, options: AutoscalingOptions) -> str:
    """Explain why a pod of a node that would be drained fits on no other node, by the most frequent reasons.

    ``snapshot`` is the state before the loop. As upstream, the drained node stays in the simulation without pods and
    with the taint ``ToBeDeletedByClusterAutoscaler``, so its topology domains stay as well.
    """
    counted = drop_uncounted_pods(snapshot, options)
    index = counted.columns.index[node]
    on_node = counted.placed_node == index
    drained = counted.columns.objects[index]
    mark = Taint(key=TO_BE_DELETED_TAINT, effect="NoSchedule")
    drained = replace(drained, spec=replace(drained.spec, taints=[*drained.spec.taints, mark]))
    moving = counted.pod(pod)
    moving = replace(moving, spec=replace(moving.spec, node_name=""))
    empty = counted.keeping(~on_node).with_nodes(replaced=[drained])
    result = fit(empty, pods=[moving])
    verdicts = {name: result.verdict(pod, name) for name in empty.nodes if name != node}
    if not verdicts:
        return "there is no other node"
    if any(verdict.ok for verdict in verdicts.values()):
        return "pods that move before it take the room"
    counts = Counter(reason for verdict in verdicts.values() for reason in verdict.why)
    texts = [f"{count:,} {reason}" for reason, count in counts.most_common(3)]
    hosts = drained.metadata.labels or {}
    for verdict in verdicts.values():
        for number in verdict.numbers:
            key = number.get("topologyKey")
            if (
                "minimum" in number
                and number["minimum"] == 0
                and key in hosts
                and _is_alone_in_domain(counted, index, key)
            ):
                texts.append(f"{node} counts as an empty domain of {key} while it is drained")
                return "; ".join(texts)
    return "; ".join(texts)


def _is_alone_in_domain(snapshot: Snapshot, at: int, key: str) -> bool:
    """Check whether no other node is in the node's topology domain."""
    value = (snapshot.columns.objects[at].metadata.labels or {}).get(key)
    return sum((node.metadata.labels or {}).get(key) == value for node in snapshot.columns.objects) == 1


def _explain_unneeded(plan: ScaleDownPlan) -> str:
    if plan.result == "ScaleDownInCooldown":
        return "unneeded; the cluster changed a short time ago and is left to settle"
    if plan.chosen is not None and plan.chosen.error is not None:
        return f"unneeded; nothing is deleted in this loop: {plan.chosen.error}"
    return "unneeded; as many nodes as are allowed at a time are being deleted"


def _explain_too_early(item: UnneededNode) -> str:
    since = to_datetime(item.since).strftime("%Y-%m-%d %H:%M:%S")
    return f"unneeded since {since}, not yet longer than {format_duration(item.threshold)}"


def _explain_min_size(node: str, groups: Groups) -> str:
    group = groups.find_group_of_node(node)
    assert group is not None
    return f"group {group.id} would fall below its minimum of {group.min_size}"


def _explain_not_candidate(node: str, groups: Groups) -> str:
    if node in groups.node_errors:
        return f"its node group could not be asked: {groups.node_errors[node]}"
    group = groups.find_group_of_node(node)
    if group is None:
        return _REASON_TEXTS[unremovable_reasons.NOT_AUTOSCALED]
    if group.target_size_error is not None:
        return f"the size of group {group.id} is not known: {group.target_size_error}"
    if group.size <= group.min_size:
        if group.size < group.min_size:
            return f"group {group.id} has {group.size} nodes, fewer than its minimum of {group.min_size}"
        return f"group {group.id} is at its minimum of {group.min_size}"
    if group.rolling_out_error is not None:
        return f"whether the machines of group {group.id} are being replaced is not known: {group.rolling_out_error}"
    if group.rolling_out:
        return f"the machines of group {group.id} are being replaced (it is currently under rollout)"
    return "is on its way in or out, or its group changed a short time ago"


def explain_blocking_pod(
    pod: str, reason: str, pdbs: RemainingPdbTracker, options: AutoscalingOptions, snapshot: Snapshot
) -> str:
    """Explain in one sentence why a pod keeps its node.

    ``reason``: a blocking reason of :mod:`kscale.ca.unremovable_reasons`; ``pdbs``: the remaining budgets.
    """
    match reason:
        case unremovable_reasons.NOT_ENOUGH_PDB:
            return f"{pod}: {_describe_exhausted_pdb(snapshot.pod(pod), pdbs)} no more evictions now"
        case unremovable_reasons.UNMOVABLE_KUBE_SYSTEM_POD:
            limit = format_duration(duration(options.blocking_system_pod_distruption_timeout))
            return f"{pod} is a kube-system pod without PodDisruptionBudget and not known to be older than {limit}"
        case unremovable_reasons.NOT_REPLICATED:
            return f"{pod} has no controller that would create it again"
        case unremovable_reasons.LOCAL_STORAGE_REQUESTED:
            return f"{pod} keeps data on the node (hostPath or emptyDir)"
        case unremovable_reasons.NOT_SAFE_TO_EVICT_ANNOTATION:
            return f"{pod} is annotated as not safe to evict"
        case unremovable_reasons.CONTROLLER_NOT_FOUND:
            return f"the controller of {pod} does not exist"
        case unremovable_reasons.MIN_REPLICAS_REACHED:
            return f"the controller of {pod} has too few replicas"
    return f"{pod}: {reason}"


def _describe_exhausted_pdb(pod: Pod, pdbs: RemainingPdbTracker) -> str:
    exhausted = [pdb.key for pdb in pdbs.matching(pod) if pdb.disruptions_allowed < 1]
    return f"PodDisruptionBudget {exhausted[0]} allows" if exhausted else "its PodDisruptionBudget allows"
