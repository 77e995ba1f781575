"""The result of one loop of scale-down, the choice of nodes to delete, and the explanation why a node stays (upstream:
``core/scaledown/planner``: NodesToDelete).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from kscale.ca import unremovable_reasons
from kscale.ca.errors import AutoscalerError
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.loop_state import LoopState
from kscale.ca.nodes import SCALE_DOWN_DISABLED_KEY, TO_BE_DELETED_TAINT
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.pod_lists import drop_uncounted_pods
from kscale.ca.quota import Quota, QuotaTracker, build_cluster_minimum_quota
from kscale.ca.scale_down.actuation.tainting import SoftTaints
from kscale.ca.scale_down.candidates import CroppedNodes, filter_atomic_groups
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.scale_down.removal import RemovableNode, UnremovableCandidate
from kscale.ca.scale_down.unneeded import UnneededNode, UnremovableNode, find_removable_nodes
from kscale.effects import Moment, duration, to_datetime
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.argument_types import typed_methods
from kscale.objects.nodegroup import Groups
from kscale.objects.times import format_duration
from kscale.records import Result, Rows
from kscale.scheduling.fit import fit
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "AloneVerdicts",
    "NodesToDelete",
    "ScaleDownPlan",
    "build_not_tried_plan",
    "choose_nodes_to_delete",
    "explain_blocking_pod",
    "explain_no_place",
    "explain_unremovable",
]


class NodesToDelete(msgspec.Struct, kw_only=True):
    """Names of empty nodes to delete and of nodes to drain, and the reasons of other unneeded nodes, in the order of
    evaluation.

    ``error``: why nothing can be deleted in this loop.
    """

    empty: list[str] = []
    drain: list[str] = []
    unremovable: dict[str, str] = {}
    error: str | None = None


def choose_nodes_to_delete(
    unneeded: Iterable[UnneededNode],
    *,
    groups: Groups,
    snapshot_nodes: Sequence[Node],
    options: AutoscalingOptions,
    now: Moment,
    limits: ResourceLimiter | None = None,
    deletions_in_progress: Mapping[str, int] | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
    left: Callable[[Quota], QuotaTracker] | None = None,
) -> NodesToDelete:
    """Choose nodes that were unneeded long enough and that break no minimum; atomic groups only as a whole.

    ``snapshot_nodes`` are all nodes of the snapshot, including upcoming ones. ``limits`` (default: the options') are
    the cluster-wide minima. ``deletions_in_progress`` counts nodes by group id. ``left`` is called with the quota of
    these minima, and returns a tracker of what they leave, for this call alone (None: it is computed here). If usage
    cannot be computed nothing is deleted, and the result has an error. A node that a later step drops from the result
    still counts against the minima.
    """
    quota = build_cluster_minimum_quota(options.resource_limiter if limits is None else limits)
    try:
        if left is None:
            minimum = QuotaTracker.minimum([quota], snapshot_nodes, groups, gpu_label=gpu_label)
        else:
            minimum = left(quota)
    except AutoscalerError as error:
        return NodesToDelete(error=error.message)
    removable = find_removable_nodes(
        unneeded, groups=groups, now=now, deletions_in_progress=deletions_in_progress, minimum=minimum
    )
    # Nodes whose pods can all go at once come first.
    ordered = [*removable.empty, *sorted(removable.drain, key=lambda item: item.risky)]
    by_name = {item.name: item for item in ordered}
    retained = filter_atomic_groups(list(by_name), groups=groups, options=options, snapshot_nodes=snapshot_nodes)
    result = NodesToDelete(unremovable={**removable.unremovable, **retained.unremovable})
    for name in retained.remaining:
        item = by_name[name]
        if item.on_completion:
            result.unremovable[name] = unremovable_reasons.BLOCKED_BY_ON_COMPLETION_POD
        else:
            (result.drain if item.drain else result.empty).append(name)
    return result


AloneVerdicts = dict[str, RemovableNode | UnremovableCandidate]


@typed_methods()
class ScaleDownPlan(Result, msgspec.Struct, kw_only=True, dict=True):
    """Result of one loop of scale-down: its observations and the nodes to delete.

    - ``result``: ``ScaleDownInCooldown``, ``ScaleDownNoCandidates``, ``ScaleDownNoNodeDeleted`` or
      ``ScaleDownNodeDeleteStarted``, as upstream reports it after executing the plan; ``ScaleDownNotTried`` if
      the loop may not scale down (:func:`kscale.ca.can_scale_down`): then nothing was evaluated.
    - ``candidates``: nodes that were evaluated, in order; ``skipped``: those that the limit on unneeded nodes left out;
      ``under_rollout``: those that were not evaluated because their machines are being replaced.
    - ``unneeded``, ``removable``: the unneeded nodes in the order found, with times, and with pods and destinations.
    - ``eligibility``: by candidate, with utilization; ``unremovable``: why nodes stay; ``unremovable_after_update``:
      the same before the choice of nodes to delete now; ``failures``: why simulated removals failed.
    - ``chosen``: before the budgets (None: no choice was made); ``delete``: what to delete now, per group.
    - ``soft_taints``: all soft taints to change (one loop changes some of them); ``pdbs``: the remaining budgets.
    - ``remember``: computes ``state`` and is then released; ``judge_alone``: only of ``exhaustive``: computes
      ``alone``.

    The legacy profile also has ``ScaleDownNoUnneeded``, ``ScaleDownNodeDeleted`` (empty nodes, whose deletion is
    awaited) and ``ScaleDownInProgress``.
    """

    result: str
    candidates: list[str]
    skipped: list[str]
    unneeded: list[UnneededNode]
    removable: dict[str, RemovableNode]
    eligibility: dict[str, Eligibility]
    unremovable_after_update: dict[str, UnremovableNode]
    unremovable: dict[str, UnremovableNode]
    failures: dict[str, UnremovableCandidate]
    chosen: NodesToDelete | None
    delete: CroppedNodes
    soft_taints: SoftTaints
    pdbs: RemainingPdbTracker
    remember: Callable[[], LoopState]
    judge_alone: Callable[[], AloneVerdicts] | None = None
    under_rollout: list[str] = []

    def __repr__(self) -> str:
        parts = [f"{len(self.unneeded)} of {len(self.candidates)} candidates unneeded"]
        parts += [f"deletes {name}" for name in self.delete_empty]
        parts += [f"drains {name}" for bucket in self.delete.drain for name in bucket.nodes]
        return f"<ScaleDownPlan: {self.result}, {', '.join(parts)}>"

    def table_rows(self) -> Rows:
        """Return one row per node that is deleted, is drained, or stays for a known reason (``unremovable``).

        Columns: the node, the decision, the number of pods that move (None: it stays), and the reason (None: it goes).
        """
        rows = [
            *((name, "deleted", 0, None) for name in self.delete_empty),
            *((name, "drained", len(pods), None) for name, pods in self.drain.items()),
            *((name, "stays", None, _format_unremovable(node)) for name, node in self.unremovable.items()),
        ]
        return Rows({"node": str, "decision": str, "movedPods": int, "reason": str}, rows)

    @cached_property
    def state(self) -> LoopState:
        """Return the state for the next loop, with the new places of all moved pods. Computed on first access."""
        state = self.remember()
        self.remember = lambda: state  # release the simulated cluster
        return state

    @cached_property
    def alone(self) -> AloneVerdicts:
        """Return by name whether each eligible node could be removed if no other was; empty without ``exhaustive``."""
        return {} if self.judge_alone is None else self.judge_alone()

    @property
    def delete_empty(self) -> list[str]:
        """List the empty nodes to delete now."""
        return [name for bucket in self.delete.empty for name in bucket.nodes]

    @property
    def drain(self) -> dict[str, dict[str, str]]:
        """Map the nodes to drain now to the pods to move and their destinations."""
        return {name: self.removable[name].placement for bucket in self.delete.drain for name in bucket.nodes}

    @property
    def nodes(self) -> list[str]:
        """List the nodes to delete now: empty ones, then those to drain."""
        return [*self.delete_empty, *self.drain]

    @property
    def placed(self) -> dict[str, str]:
        """Map the pods of the nodes to drain now to the nodes where the simulation placed them."""
        return {pod: node for pods in self.drain.values() for pod, node in pods.items()}

    def explain(self, node: str) -> str:
        """Explain in one line whether the plan deletes, drains or keeps a node, and why.

        Raises InputError if the node is not a candidate of the plan.
        """
        if node in self.delete_empty:
            return "is empty and is deleted now"
        if node in self.drain:
            return f"is drained and deleted now; {len(self.drain[node])} pods move"
        if node in self.unremovable:
            return f"stays: {_format_unremovable(self.unremovable[node])}"
        if node in self.unneeded_by_name:
            return "is unneeded, but not deleted by this loop"
        if node in self.skipped_names or node in self.under_rollout or node in self.candidates:
            return f"stays: not evaluated by this loop ({self.result})"
        raise InputError(f"no node {node!r} is among the candidates of this plan")

    @cached_property
    def unneeded_by_name(self) -> dict[str, UnneededNode]:
        """Map names to the unneeded nodes."""
        return {item.name: item for item in self.unneeded}

    @cached_property
    def skipped_names(self) -> frozenset[str]:
        """Return the names of the skipped nodes."""
        return frozenset(self.skipped)

    @property
    def unneeded_since(self) -> dict[str, Moment]:
        """Map each unneeded node to the time since when it is unneeded."""
        return {item.name: item.since for item in self.unneeded}

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "remember"}
        return _restore_plan, (fields, self.state)


def _restore_plan(fields: dict[str, Any], state: LoopState) -> ScaleDownPlan:
    """Rebuild a pickled plan from its fields and its state."""
    return ScaleDownPlan(**fields, remember=lambda: state)


def _format_unremovable(node: UnremovableNode) -> str:
    """Format the reason of a node, with the blocking pod if there is one."""
    blocking = node.blocking_pod
    return node.reason if blocking is None else f"{node.reason}: {blocking.pod} ({blocking.reason})"


def build_not_tried_plan(state: LoopState) -> ScaleDownPlan:
    """Build the plan of a loop that may not scale down: the state is unchanged."""
    return ScaleDownPlan(
        result="ScaleDownNotTried",
        candidates=[],
        skipped=[],
        unneeded=[],
        removable={},
        eligibility={},
        unremovable_after_update={},
        unremovable={},
        failures={},
        chosen=None,
        delete=CroppedNodes(empty=[], drain=[]),
        soft_taints=SoftTaints(),
        pdbs=RemainingPdbTracker(),
        remember=lambda: state,
    )


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
    """Explain why a pod of a node that would be drained fits on no other node, by the three most frequent reasons.

    ``snapshot`` is the state before the loop. As upstream, the drained node stays in the simulation without pods and
    with the taint ``ToBeDeletedByClusterAutoscaler``, so its topology domains stay as well. If the pod fits another
    node now, the text says that pods that move before it take the room.
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


def _is_alone_in_domain(snapshot: Snapshot, index: int, key: str) -> bool:
    """Check whether no other node has the same value of the label ``key`` as the node at ``index``."""
    value = (snapshot.columns.objects[index].metadata.labels or {}).get(key)
    return sum((node.metadata.labels or {}).get(key) == value for node in snapshot.columns.objects) == 1


def _explain_unneeded(plan: ScaleDownPlan) -> str:
    """Explain why the plan does not delete an unneeded node."""
    if plan.result == "ScaleDownInCooldown":
        return "unneeded; the cluster changed a short time ago and is left to settle"
    if plan.chosen is not None and plan.chosen.error is not None:
        return f"unneeded; nothing is deleted in this loop: {plan.chosen.error}"
    return "unneeded; as many nodes as are allowed at a time are being deleted"


def _explain_too_early(item: UnneededNode) -> str:
    """Explain that a node has not been unneeded long enough."""
    since = to_datetime(item.since).strftime("%Y-%m-%d %H:%M:%S")
    return f"unneeded since {since}, not yet longer than {format_duration(item.threshold)}"


def _explain_min_size(node: str, groups: Groups) -> str:
    """Return the text that the node's group would fall below its minimum size."""
    group = groups.find_group_of_node(node)
    assert group is not None
    return f"group {group.id} would fall below its minimum of {group.min_size}"


def _explain_not_candidate(node: str, groups: Groups) -> str:
    """Explain why a node was no candidate of the loop."""
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
    """Return subject and verb of a sentence about the first budget that allows no disruption of the pod."""
    exhausted = [pdb.key for pdb in pdbs.matching(pod) if pdb.disruptions_allowed < 1]
    return f"PodDisruptionBudget {exhausted[0]} allows" if exhausted else "its PodDisruptionBudget allows"
