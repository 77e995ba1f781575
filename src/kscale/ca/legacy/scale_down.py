"""Scale-down of release 1.3: which nodes are unneeded, and which are deleted now.

Upstream (``core/scale_down.go``, ``simulator/cluster.go``, ``utils/drain``) shuffles the nodes before it simulates
them. Here they keep the order of the list, which is one of upstream's possible results. Predicates are the current
scheduler's; destinations must also pass the node-condition predicate of release 1.3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from kscale._native import _engine
from kscale.ca import unremovable_reasons
from kscale.ca.errors import AutoscalerError
from kscale.ca.loop_state import LoopState, UsageTracker
from kscale.ca.nodes import SCALE_DOWN_DISABLED_KEY, is_being_deleted, is_ready
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.quota import NODES_RESOURCE, NodeResources, count_cores_and_memory
from kscale.ca.scale_down.actuation.tainting import SoftTaints
from kscale.ca.scale_down.candidates import CroppedNodes, GroupNodes, prefilter_nodes
from kscale.ca.scale_down.drainability import DrainContext, Listers, build_over_budget_status
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.inputs import ScaleDownContext, ScaleDownInputs
from kscale.ca.scale_down.moving_pods import MovingPods, get_moving_pods
from kscale.ca.scale_down.plan import NodesToDelete, ScaleDownPlan
from kscale.ca.scale_down.removal import RemovableNode, UnremovableCandidate
from kscale.ca.scale_down.unneeded import UnneededNode, UnremovableNode
from kscale.ca.scale_down.utilization import Usage, Utilization, calculate_utilization_from_usage
from kscale.ca.unremovable_reasons import BlockingPod
from kscale.effects import SECOND, Moment, duration, later
from kscale.errors import InputError, Problem
from kscale.objects.api.apps import DaemonSet, Job, ReplicaSet, StatefulSet
from kscale.objects.api.core import Node, Pod, ReplicationController
from kscale.objects.api.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.objects.pod_owners import SAFE_TO_EVICT, controller_of, is_mirror_pod, pod_annotation
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.quantity import Quantity
from kscale.objects.times import moment_in
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "LegacyRemovalSimulator",
    "PodsToDrain",
    "calculate_legacy_utilization",
    "get_pods_to_drain",
    "plan_legacy_scale_down",
    "start_cooldowns",
]


def calculate_legacy_utilization(node: Node, pods: Iterable[Pod]) -> tuple[Utilization, str | None]:
    """Return (the larger utilization of cpu and memory, error message or None).

    The utilization is the requests of containers over allocatable; with an error message it is 0.
    """
    asked = [container.resources.requests or {} for pod in pods for container in pod.spec.containers]
    used = {
        name: Quantity.sum(requests[name] for requests in asked if name in requests).milli_value()
        for name in (CPU, MEMORY)
    }
    try:
        return calculate_utilization_from_usage(node, Usage(used=used)), None
    except AutoscalerError as error:
        return Utilization(utilization=0.0, resource_name=""), error.message


_POD_DELETION_TIMEOUT: Final = 12 * 60 * SECOND
_CONTROLLER_KINDS: Final[dict[str, tuple[type[KubeObject], str]]] = {
    "ReplicationController": (ReplicationController, "replication controller for {} is not available, err: {}"),
    "DaemonSet": (DaemonSet, "daemonset for {} is not present, err: {}"),
    "Job": (Job, "job for {} is not available: err: {}"),
    "ReplicaSet": (ReplicaSet, "replication controller for {} is not available, err: {}"),
    "StatefulSet": (StatefulSet, "statefulset for {} is not available: err: {}"),
}


class PodsToDrain(msgspec.Struct, kw_only=True):
    """The pods to move, in node order; with ``blocking`` the node cannot be drained, for the reason in ``error``."""

    pods: list[Pod] = []
    blocking: BlockingPod | None = None
    error: str | None = None


class _BlockedError(Exception):
    """A pod blocks the drain of its node."""

    def __init__(self, pod: Pod, reason: str, text: str) -> None:
        self.pod, self.reason, self.text = pod, reason, text


def get_pods_to_drain(pods: Iterable[Pod], context: DrainContext, *, system: bool, storage: bool) -> PodsToDrain:
    """Return the pods that must move when a node with these pods is drained, and the first pod that blocks the drain.

    Disruption budgets are checked after all other rules. The list ends before the first blocking pod. With ``system``,
    system pods without a budget block; with ``storage``, pods with local storage block. If the context has listers, the
    pods' controllers must exist and have enough replicas; without listers (the fast mode) this is not checked.
    """
    pods_to_move: list[Pod] = []
    try:
        pods_to_move.extend(pod for pod in pods if _is_pod_to_move(pod, context, system, storage))
        _check_budgets(pods_to_move, context)
    except _BlockedError as blocked:
        blocking = BlockingPod(pod=blocked.pod.key, reason=blocked.reason)
        return PodsToDrain(pods=pods_to_move, blocking=blocking, error=blocked.text)
    return PodsToDrain(pods=pods_to_move)


def _is_pod_to_move(pod: Pod, context: DrainContext, system: bool, storage: bool) -> bool:
    """Check whether a pod must move when its node is drained. Raises _BlockedError if it blocks the drain.

    False for mirror and DaemonSet pods, and for pods whose deletion timestamp is long past. Other pods that have ended
    or are annotated as safe to evict must move without further checks. ``system``: system pods without a budget block;
    ``storage``: pods with local storage block.
    """
    deleted = pod.metadata.deletion_timestamp
    if is_mirror_pod(pod):
        return False
    if deleted is not None:
        deleted_at = moment_in(pod, deleted, "metadata.deletionTimestamp")
        if deleted_at + _POD_DELETION_TIMEOUT < context.now:
            return False
    kind = _get_controller_kind(pod, context)
    if kind == "DaemonSet":
        return False
    ended = pod.status.phase == "Failed" or (
        pod.status.phase == "Succeeded" and pod.spec.restart_policy in ("Never", "OnFailure")
    )
    if ended or pod_annotation(pod, SAFE_TO_EVICT) == "true":
        return True
    name = pod.metadata.name
    if kind is None:
        raise _BlockedError(pod, unremovable_reasons.NOT_REPLICATED, f"{pod.key} is not replicated")
    if system and pod.metadata.namespace == "kube-system" and not context.pdbs.matching(pod):
        text = f"non-daemonset, non-mirrored, non-pdb-assigned kube-system pod present: {name}"
        raise _BlockedError(pod, unremovable_reasons.UNMOVABLE_KUBE_SYSTEM_POD, text)
    if storage and any(volume.host_path is not None or volume.empty_dir is not None for volume in pod.spec.volumes):
        raise _BlockedError(pod, unremovable_reasons.LOCAL_STORAGE_REQUESTED, f"pod with local storage present: {name}")
    if pod_annotation(pod, SAFE_TO_EVICT) == "false":
        raise _BlockedError(
            pod, unremovable_reasons.NOT_SAFE_TO_EVICT_ANNOTATION, f"pod annotated as not safe to evict present: {name}"
        )
    return True


def _get_controller_kind(pod: Pod, context: DrainContext) -> str | None:
    """Return the kind of the pod's controller, None if it has none of a supported kind.

    Raises _BlockedError if the controller does not exist or has too few replicas. Without listers neither is checked.
    """
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind not in _CONTROLLER_KINDS:
        return None
    if context.listers is None:
        return owner.kind
    kind, text = _CONTROLLER_KINDS[owner.kind]
    controller = context.listers.get(kind, pod.metadata.namespace, owner.name)
    if controller is None:
        error = text.format(pod.key, Listers.not_found(kind, owner.name))
        raise _BlockedError(pod, unremovable_reasons.CONTROLLER_NOT_FOUND, error)
    if isinstance(controller, ReplicationController | ReplicaSet):
        replicas, min_replicas = controller.spec.replicas, context.options.min_replica_count
        if replicas is not None and replicas < min_replicas:
            error = f"replication controller for {pod.key} has too few replicas spec: {replicas} min: {min_replicas}"
            raise _BlockedError(pod, unremovable_reasons.MIN_REPLICAS_REACHED, error)
    return owner.kind


def _check_budgets(pods: Sequence[Pod], context: DrainContext) -> None:
    """Raise _BlockedError if a disruption budget of one of the pods allows no disruption."""
    for pdb in context.pdbs.pdbs:
        for pod in pods:
            if pdb.disruptions_allowed < 1 and pdb.matches(pod):
                status = build_over_budget_status(pod.key)
                raise _BlockedError(pod, status.blocking_reason, status.error or "")


_API_SERVER_LABEL = ("component", "kube-apiserver")


class LegacyRemovalSimulator:
    """Simulates the removal of nodes.

    ``everything`` is the cluster with expendable pods, ``snapshot`` without them. ``hints`` maps pods to their nodes in
    the last loop, ``new_hints`` to those in this loop. ``index`` maps node names to node numbers. Relations are
    registered in ``usage``.
    """

    def __init__(
        self,
        everything: Snapshot,
        snapshot: Snapshot,
        *,
        usage: UsageTracker,
        hints: Mapping[str, str],
        now: Moment,
        profile: SchedulerProfile | None = None,
    ) -> None:
        self.index: dict[str, int] = snapshot.columns.index
        self.new_hints: dict[str, str] = {}
        self._usage, self._hints, self._now = usage, hints, now
        self._names = snapshot.nodes
        self._all = get_moving_pods(everything)
        self._all_on = _group_pods_by_node(self._all, len(self._names))
        self._pods = get_moving_pods(snapshot)
        self._on = _group_pods_by_node(self._pods, len(self._names))
        classes = self._pods.classes()
        session = Session(snapshot, classes, profile=profile, moving=True)
        self._engine = session.engine
        number = np.zeros(len(snapshot.interner.classes), dtype=np.int32)
        number[[of.index for of in classes]] = session.classes_of(classes)
        self._class = number[self._pods.class_of]
        self._takes = np.array([_can_take_pods(node) for node in snapshot.columns.objects], dtype=np.uint8)

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods of a node that are not expendable."""
        return [self._pods.pod(i) for i in self._on[self.index[node]]]

    def find_empty_nodes(self, names: Iterable[str], context: DrainContext) -> list[str]:
        """Return which of the nodes have neither a pod to move nor one that blocks a drain.

        A node with expendable pods is not empty. Of ``context`` only the time and the options are used: neither budgets
        nor controllers are checked.
        """
        fast_context = DrainContext(context.now, context.options)
        empty_nodes = []
        for name in names:
            pods = [self._all.pod(i) for i in self._all_on[self.index[name]]]
            checked = get_pods_to_drain(pods, fast_context, system=True, storage=True)
            if checked.blocking is None and not checked.pods:
                empty_nodes.append(name)
        return empty_nodes

    def find_masters(self) -> set[str]:
        """Return the names of the nodes that run an API server."""
        key, value = _API_SERVER_LABEL
        nodes: set[str] = set()
        for kind in range(len(self._all.exemplars)):
            metadata = self._all.exemplars[kind].metadata
            if metadata.namespace == "kube-system" and (metadata.labels or {}).get(key) == value:
                nodes.update(self._names[n] for n in self._all.node[self._all.kind_of == kind].tolist())
        return nodes

    def find_places(self, name: str, keys: Sequence[str]) -> RemovableNode | UnremovableCandidate:
        """Find a place on other nodes for the pods ``keys`` of the node ``name``, one after the other.

        A pod goes to its hint if it fits there, else to the first node in the list that it fits. Other candidates for
        removal take pods like any other node. Returns the places, or the first pod without one. The placements are
        reverted before the return, but are recorded in ``new_hints`` and ``usage``, even if a later pod has no place.
        """
        engine, n = self._engine, self.index[name]
        here = self._on[n]
        wanted = set(keys)
        moving = [i for i in here if self._pods.names[i] in wanted]
        takes = self._takes.copy()
        takes[n] = 0
        placement: dict[str, str] = {}
        engine.fork()
        try:
            engine.vacate(n, self._class[here])
            for i in moving:
                key, pod_class = self._pods.names[i], int(self._class[i])
                target = self.index.get(self._hints.get(key, ""), -1)
                if target < 0 or not takes[target] or engine.check(pod_class, target) != _engine.FITS:
                    engine.cursor = engine.alive_nodes - 1  # the search starts at the head of the list
                    target = engine.any_node(pod_class, takes)
                if target < 0:
                    return UnremovableCandidate(
                        node=name, reason=unremovable_reasons.NO_PLACE_TO_MOVE_PODS, homeless=key
                    )
                engine.place(pod_class, target)
                placement[key] = self._names[target]
                self.new_hints[key] = self._names[target]
                self._usage.register(name, self._names[target], self._now)
        finally:
            engine.revert()
        return RemovableNode.of(name, placement)


def _group_pods_by_node(pods: MovingPods, nodes: int) -> list[list[int]]:
    """Return, for each of the ``nodes`` nodes, the positions of its pods in ``pods``."""
    pods_by_node: list[list[int]] = [[] for _ in range(nodes)]
    for i, n in enumerate(pods.node.tolist()):
        pods_by_node[n].append(i)
    return pods_by_node


def _can_take_pods(node: Node) -> bool:
    """Check whether moved pods may be placed on the node, as release 1.3 does.

    The node must be ready, have network and enough disk, and not be cordoned. A missing condition is fine.
    """
    bad = {"OutOfDisk": "True", "DiskPressure": "True", "NetworkUnavailable": "True"}
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            return False
        if bad.get(condition.type) == condition.status:
            return False
    return not node.spec.unschedulable


_UNREMOVABLE_RECHECK_TIMEOUT = 300 * SECOND


def plan_legacy_scale_down(context: ScaleDownContext) -> ScaleDownPlan:
    """Decide one loop of scale-down as release 1.3 does.

    Arguments and errors are those of :func:`kscale.scale_down`. A state without any loop counts as a process that has
    just started: cooldowns begin now, except those whose time is in the state.
    """
    context.state = start_cooldowns(context.state, context.now)
    return _LegacyScaleDown(context).run()


def reject_unsupported_inputs(
    inputs: ScaleDownInputs, options: AutoscalingOptions, *, exhaustive: bool = False
) -> None:
    """Raise InputError for inputs and options that release 1.3 did not have; ``exhaustive`` is one of them."""
    unsupported = {
        "exhaustive": exhaustive,
        "recent_evictions": bool(inputs.recent_evictions),
        "upcoming": bool(inputs.upcoming),
        "max_simulations": inputs.max_simulations is not None,
        "threads": inputs.threads is not None,
        "capacity_buffer_pod_injection_enabled": options.capacity_buffer_pod_injection_enabled,
    }
    what = "the planner of release 1.3 does not know it"
    problems = [Problem(what, field=name) for name, is_set in unsupported.items() if is_set]
    if problems:
        raise InputError(problems)


def start_cooldowns(state: LoopState, now: Moment) -> LoopState:
    """Return the state of a process that started at ``now``: its cooldowns begin then.

    A state that has been through a loop is returned unchanged.
    """
    memory = state.scale_down
    if memory.started:
        return state
    memory = replace(
        memory,
        last_scale_up=memory.last_scale_up or now,
        last_scale_down=memory.last_scale_down or now,
        last_failure=memory.last_failure or now,
        started=True,
    )
    return replace(state, scale_down=memory)


class _LegacyScaleDown:
    """One scale-down pass of release 1.3 (:func:`plan_legacy_scale_down`)."""

    def __init__(self, context: ScaleDownContext) -> None:
        self.context, self.options, self.now = context, context.options, context.now
        self.nodes, self.groups, self.listers, self.pdbs = context.nodes, context.groups, context.listers, context.pdbs
        self.before, self.memory = context.state, context.state.scale_down
        memory = self.memory
        inputs = context.inputs
        self.in_progress = {item.node for item in (*inputs.deleting, *inputs.draining)}
        self.gpu_label = inputs.gpu_label
        self.usage: UsageTracker = memory.usage.copy()
        self.simulator = LegacyRemovalSimulator(
            context.observed,
            context.snapshot,
            usage=self.usage,
            hints=memory.hints,
            now=self.now,
            profile=inputs.profile,
        )
        self.unremovable_until: dict[str, Moment] = {}
        self.unremovable: dict[str, UnremovableNode] = {}
        self.failures: dict[str, UnremovableCandidate] = {}
        self.judged: dict[str, Eligibility] = {}
        self.removable: dict[str, RemovableNode] = {}

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> ScaleDownPlan:
        """Decide which nodes are unneeded and which of them to delete, and return the plan.

        No node is chosen if scale-down is disabled or in cooldown, or while an earlier deletion is in progress.
        """
        inputs = self.context.inputs
        self.usage.clean_up(self.now - duration(self.options.scale_down_unneeded_time))
        candidates = prefilter_nodes([node.metadata.name for node in self.nodes], self.groups)
        since = self._update_unneeded(candidates)
        after_update = dict(self.unremovable)
        unneeded = [self._build_unneeded_node(name, time) for name, time in since.items()]
        chosen: NodesToDelete | None = None
        if inputs.disabled or self.context.is_in_cooldown:
            result = "ScaleDownInCooldown"
        elif self.in_progress:
            result = "ScaleDownInProgress"
        else:
            result, chosen = self._choose(since, inputs.limits or self.options.resource_limiter)
            for name, reason in chosen.unremovable.items():
                self.unremovable[name] = UnremovableNode(reason=reason)
            for name in (*chosen.empty, *chosen.drain):
                for removed_node in self.usage.remove(name, since):
                    del since[removed_node]
        state = replace(
            self.before,
            scale_down=replace(
                self.memory,
                unneeded_since=since,
                unremovable_until=self.unremovable_until,
                hints=self.simulator.new_hints,
                last_update=self.now,
                usage=self.usage,
            ),
        )
        return ScaleDownPlan(
            result=result,
            candidates=candidates,
            skipped=[],
            unneeded=unneeded,
            removable=self.removable,
            eligibility=self.judged,
            unremovable_after_update=after_update,
            unremovable=self.unremovable,
            failures=self.failures,
            chosen=chosen,
            delete=self._group_chosen_nodes(chosen),
            soft_taints=SoftTaints(),
            pdbs=self.pdbs,
            remember=lambda: state,
        )

    def _group_chosen_nodes(self, chosen: NodesToDelete | None) -> CroppedNodes:
        """Group the chosen nodes by the id of their node group (empty: no group). None: no nodes."""

        def buckets(names: Iterable[str]) -> list[GroupNodes]:
            nodes_by_group: dict[str, list[str]] = {}
            for name in names:
                group = self._find_group(name)
                nodes_by_group.setdefault("" if group is None else group.id, []).append(name)
            return [GroupNodes(group=group, nodes=nodes) for group, nodes in nodes_by_group.items()]

        return CroppedNodes(
            empty=buckets(chosen.empty if chosen else ()), drain=buckets(chosen.drain if chosen else ())
        )

    # -- unneeded nodes ----------------------------------------------------------------------------------------------

    def _update_unneeded(self, candidates: Sequence[str]) -> dict[str, Moment]:
        """Find the unneeded nodes among the candidates, and return the time since when each is unneeded, by name.

        Nodes whose removal was simulated come first, then empty nodes. Also updates ``judged``, ``removable``,
        ``unremovable``, ``failures`` and ``unremovable_until``.
        """
        index, options = self.simulator.index, self.options
        self.unremovable_until = {
            name: time for name, time in self.memory.unremovable_until.items() if name in index and time > self.now
        }
        low = [name for name in candidates if self._is_low(name)]
        empty_nodes = self.simulator.find_empty_nodes(low, self._build_drain_context())
        empty = self._take_above_minimum(empty_nodes, len(low), None)
        unneeded_since = self.memory.unneeded_since
        others = [name for name in low if name not in set(empty)]
        if options.scale_down_non_empty_candidates_count > 0:
            first = [name for name in others if name in unneeded_since]
            others = [name for name in others if name not in unneeded_since]
        else:
            first, others = others, []
        removable_names = self._find_removable_nodes(first, len(first))
        max_more = min(options.scale_down_non_empty_candidates_count - len(removable_names), len(others))
        pool = math.ceil(len(self.nodes) * options.scale_down_candidates_pool_ratio)
        pool = min(max(pool, options.scale_down_candidates_pool_min_count), len(others))
        if max_more > 0:
            removable_names += self._find_removable_nodes(others[:pool], max_more)
        for name in empty:
            self.removable[name] = RemovableNode.of(name, {})
        return {name: unneeded_since.get(name, self.now) for name in [*removable_names, *empty]}

    def _is_low(self, name: str) -> bool:
        """Check whether a node's utilization is low, and nothing else excludes a simulation of its removal.

        Records the verdict in ``judged``, and the reason of a node that stays in ``unremovable``.
        """
        node = self.nodes[self.simulator.index[name]]
        reason = None
        if name in self.unremovable_until:
            reason = unremovable_reasons.RECENTLY_UNREMOVABLE
        elif is_being_deleted(node, self.now):
            reason = unremovable_reasons.CURRENTLY_BEING_DELETED
        elif (node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED_KEY) == "true":
            reason = unremovable_reasons.SCALE_DOWN_DISABLED_ANNOTATION
        if reason is not None:
            self.judged[name] = Eligibility(reason=reason)
        else:
            used, error = calculate_legacy_utilization(node, self.simulator.pods_on(name))
            threshold = self.options.scale_down_utilization_threshold
            needed = used.utilization >= threshold
            reason = unremovable_reasons.NOT_UNDERUTILIZED if needed else None
            self.judged[name] = Eligibility(reason=reason, utilization=used, threshold=threshold, error=error)
        if reason is not None:
            self.unremovable[name] = UnremovableNode(reason=reason)
        return reason is None

    def _find_removable_nodes(self, names: Iterable[str], max_count: int) -> list[str]:
        """Return the first ``max_count`` of the nodes whose pods fit on other nodes.

        Each removal is simulated as if no other node was removed. Stores the places of the pods in ``removable``, and
        records why other nodes cannot be removed.
        """
        removable_names: list[str] = []
        for name in names:
            if len(removable_names) >= max_count:
                break
            answer = self._simulate(name, self._build_drain_context())
            if isinstance(answer, RemovableNode):
                self.removable[name] = answer
                removable_names.append(name)
            else:
                self._record_failure(answer)
        return removable_names

    def _simulate(self, name: str, context: DrainContext) -> RemovableNode | UnremovableCandidate:
        """Simulate the removal of a node: return the places of its pods, or why it cannot be removed."""
        checked = get_pods_to_drain(
            self.simulator.pods_on(name),
            context,
            system=self.options.skip_nodes_with_system_pods,
            storage=self.options.skip_nodes_with_local_storage,
        )
        if checked.blocking is not None:
            return UnremovableCandidate(
                node=name, reason=unremovable_reasons.BLOCKED_BY_POD, blocking_pod=checked.blocking, error=checked.error
            )
        return self.simulator.find_places(name, [pod.key for pod in checked.pods])

    def _record_failure(self, answer: UnremovableCandidate) -> None:
        """Record why a node cannot be removed, and skip it until the recheck timeout is over."""
        self.failures[answer.node] = answer
        self.unremovable[answer.node] = UnremovableNode(reason=answer.reason, blocking_pod=answer.blocking_pod)
        self.unremovable_until[answer.node] = later(self.now, _UNREMOVABLE_RECHECK_TIMEOUT)

    def _build_drain_context(self, *, detailed: bool = False) -> DrainContext:
        """Build the inputs of the drain rules. With ``detailed``, the rules look up the controllers of pods."""
        return DrainContext(self.now, self.options, self.listers if detailed else None, self.pdbs)

    def _build_unneeded_node(self, name: str, since: Moment) -> UnneededNode:
        """Build the record of a node that has been unneeded since ``since``."""
        node = self.nodes[self.simulator.index[name]]
        ready = is_ready(node)
        threshold = self.options.scale_down_unneeded_time if ready else self.options.scale_down_unready_time
        return UnneededNode(node=node, drain=self.removable[name].drain, since=since, threshold=duration(threshold))

    # -- nodes to delete ---------------------------------------------------------------------------------------------

    def _choose(self, since: Mapping[str, Moment], limits: ResourceLimiter) -> tuple[str, NodesToDelete]:
        """Choose the nodes to delete: several empty ones, otherwise the first one that can be drained.

        Nodes that run an API server are never chosen. ``since``: unneeded nodes, each with the time since when it is
        unneeded; ``limits``: minima of resources. Returns upstream's name of the scale-down result, and the nodes with
        the reasons of the others. If no empty node is chosen, the simulations update ``removable``, ``failures`` and
        ``unremovable``.
        """
        chosen = NodesToDelete()
        masters = self.simulator.find_masters()
        left = self._get_headroom(limits)
        candidates = []
        for node in self.nodes:
            name = node.metadata.name
            if name not in since or name in masters:
                continue
            reason = self._explain_wait(node, since[name], left)
            if reason is None:
                candidates.append(name)
            else:
                chosen.unremovable[name] = reason
        if not candidates:
            return "ScaleDownNoUnneeded", chosen
        empty = self.simulator.find_empty_nodes(candidates, self._build_drain_context())
        chosen.empty = self._take_above_minimum(empty, self.options.max_empty_bulk_delete, left)
        if chosen.empty:
            return "ScaleDownNodeDeleted", chosen
        for name in candidates:
            answer = self._simulate(name, self._build_drain_context(detailed=True))
            if isinstance(answer, RemovableNode):
                self.removable[name] = answer
                chosen.drain = [name]
                return "ScaleDownNodeDeleteStarted", chosen
            self.failures[name] = answer
            self.unremovable[name] = UnremovableNode(reason=answer.reason, blocking_pod=answer.blocking_pod)
        return "ScaleDownNoNodeDeleted", chosen

    def _explain_wait(self, node: Node, since: Moment, left: Mapping[str, int | None]) -> str | None:
        """Return the reason why an unneeded node stays for now; None if it may be removed.

        ``left``: how much of each limited resource may be removed (:meth:`_get_headroom`).
        """
        name = node.metadata.name
        if (node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED_KEY) == "true":
            return unremovable_reasons.SCALE_DOWN_DISABLED_ANNOTATION
        if is_ready(node):
            if not self.now - since > duration(self.options.scale_down_unneeded_time):
                return unremovable_reasons.NOT_UNNEEDED_LONG_ENOUGH
        elif not self.now - since > duration(self.options.scale_down_unready_time):
            return unremovable_reasons.NOT_UNREADY_LONG_ENOUGH
        group = self._find_group(name)
        if group is None:
            return unremovable_reasons.NOT_AUTOSCALED
        if group.target_size_error is not None:
            return unremovable_reasons.UNEXPECTED_ERROR
        if group.size <= group.min_size:
            return unremovable_reasons.NODE_GROUP_MIN_SIZE_REACHED
        return (
            unremovable_reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED if self._exceeds_headroom(node, group, left) else None
        )

    def _get_headroom(self, limits: ResourceLimiter) -> dict[str, int | None]:
        """Return how much of each limited resource may be removed, by resource; None for an amount that is unknown.

        This is what the nodes that are not being deleted have above the minimum.
        """
        total: Counter[str] = Counter()
        unknown = False
        for node in self.nodes:
            if is_being_deleted(node, self.now):
                continue
            try:
                total.update(self._resources(node, self._find_group(node.metadata.name), limits.min))
            except AutoscalerError:
                unknown = True
                total.update(count_cores_and_memory(node))
        return {
            name: None if unknown and name not in ("cpu", "memory") else max(0, total[name] - minimum)
            for name, minimum in limits.min.items()
        }

    def _exceeds_headroom(self, node: Node, group: NodeGroup, left: Mapping[str, int | None]) -> bool:
        """Check whether the node, of ``group``, has more of a resource than may be removed (``left``, by resource).

        True if an amount in ``left`` or of the node is unknown. A resource that is not in ``left`` is not limited.
        """
        try:
            amounts = self._resources(node, group, left)
        except AutoscalerError:
            return True
        for name, amount in amounts.items():
            room = left.get(name, 0)
            if name in left and name != NODES_RESOURCE and (room is None or amount > room):
                return True
        return False

    def _take_above_minimum(
        self, names: Iterable[str], max_count: int, left: dict[str, int | None] | None
    ) -> list[str]:
        """Return the first ``max_count`` nodes that can be removed together without going below a minimum.

        Minima are those of the node groups and, unless ``left`` is None, of the resources: removed resources are
        subtracted from ``left`` (:meth:`_get_headroom`). Nodes without a group or whose group's size is unknown are
        left out.
        """
        spare: dict[str, int] = {}
        accepted: list[str] = []
        for name in names:
            group = self._find_group(name)
            if group is None or group.target_size_error is not None:
                continue
            room = spare.setdefault(group.id, max(0, group.size - group.min_size))
            node = self.nodes[self.simulator.index[name]]
            if not room or len(accepted) >= max_count:
                continue
            if left is not None:
                if self._exceeds_headroom(node, group, left):
                    continue
                for resource, amount in self._resources(node, group, left).items():
                    remaining = left.get(resource)
                    if remaining is not None:
                        left[resource] = remaining - amount
            spare[group.id] -= 1
            accepted.append(name)
        return accepted

    def _resources(self, node: Node, group: NodeGroup | None, limited: Iterable[str]) -> dict[str, int]:
        """Return the resources of this node by name; current releases count those of the group's first node instead.

        Only cores and memory are counted, unless ``limited`` names another resource. Raises AutoscalerError if the
        number of GPUs is needed and unknown.
        """
        if all(name in (CPU, MEMORY) for name in limited):
            return count_cores_and_memory(node)
        return NodeResources(self.gpu_label).get(node, group)

    def _find_group(self, name: str) -> NodeGroup | None:
        """Return the group of a node; None if there is none or if the provider cannot determine it."""
        try:
            return self.groups.find_group_of_node(name)
        except ProviderError:
            return None
