"""The scale-down planner: candidates, unneeded nodes, and nodes to delete (upstream: ``core/scaledown/planner``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial

import msgspec
import numpy as np

from kscale.ca.loop_state import LoopState, ScaleDownState
from kscale.ca.nodes import DELETION_CANDIDATE_TAINT, has_taint, is_upcoming_node
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import CountedNodes, Quota, QuotaTracker
from kscale.ca.scale_down.actuation.tainting import SoftTaints, plan_soft_taints
from kscale.ca.scale_down.candidates import (
    CroppedNodes,
    DeletionsInProgress,
    assign_groups,
    build_budget_groups,
    compute_emptiness_tiers,
    crop_nodes,
    filter_out_delayed,
    filter_out_rolling_out,
    prefilter_nodes,
    sort_by_tier,
)
from kscale.ca.scale_down.drainability import DrainContext, Listers
from kscale.ca.scale_down.eligibility import Eligibility, EligibilityChecker
from kscale.ca.scale_down.inputs import ScaleDownContext
from kscale.ca.scale_down.moving_pods import DrainCodes
from kscale.ca.scale_down.pdb import RemainingPdbTracker, build_pdb_tracker
from kscale.ca.scale_down.plan import AloneVerdicts, NodesToDelete, ScaleDownPlan, choose_nodes_to_delete
from kscale.ca.scale_down.removal import RemovableNode, RemovalSimulator, UnremovableCandidate
from kscale.ca.scale_down.unneeded import NodeToRemove, UnremovableNodes, load_times_from_taints, update_unneeded
from kscale.ca.unremovable_reasons import NODE_GROUP_MIN_SIZE_REACHED
from kscale.effects import Moment, duration, later, to_text
from kscale.errors import InputError
from kscale.objects.api.apps import Job, ReplicaSet, StatefulSet
from kscale.objects.api.core import Node, Pod, ReplicationController
from kscale.objects.api.meta import OwnerReference
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod, is_static_pod
from kscale.scheduling.place import PlaceState
from kscale.snapshot.caches import IdentityCache, cached_by_identity
from kscale.snapshot.pods.record import PodRecord

__all__ = [
    "Planner",
    "compute_unneeded_nodes_limit",
    "count_missing_replicas",
    "get_max_simulations",
    "get_pods_to_inject",
    "get_shortest_interval",
    "plan_scale_down",
]


def get_shortest_interval(memory: ScaleDownState, options: AutoscalingOptions, now: Moment) -> int:
    """Return the shortest time between two loops so far, in nanoseconds; before the second loop, the unneeded time.

    Raises InputError if ``now`` is before the last loop.
    """
    shortest = memory.update_interval
    if shortest is None:
        shortest = duration(options.scale_down_unneeded_time) or 1
    if memory.last_update is None:
        return shortest
    passed = now - memory.last_update
    if passed < 0:
        raise InputError(f"now ({to_text(now)}) is before the last loop ({to_text(memory.last_update)})")
    return min(shortest, passed)


def compute_unneeded_nodes_limit(before: int, interval: int, options: AutoscalingOptions) -> int:
    """Compute the limit on unneeded nodes (``unneededNodesLimit``).

    ``before`` nodes were unneeded until now; the limit exceeds this number by at most twice the option
    ``max_scale_down_parallelism``. It is also at most this option times one more than the number of loops (at least 1)
    during the unneeded time. Loops are ``interval`` nanoseconds apart. Two loops at one moment would divide by zero in
    upstream; here an interval of 0 counts as one nanosecond.
    """
    parallelism = options.max_scale_down_parallelism
    interval = max(interval, 1)
    unneeded_time = duration(options.scale_down_unneeded_time)
    return min(before + 2 * parallelism, parallelism * (max(unneeded_time, interval) // interval) + parallelism)


def get_max_simulations(options: AutoscalingOptions, max_simulations: int | None) -> int | None:
    """Return how many candidates may be simulated: ``max_simulations``, or 0 if the timeout is not positive.

    ``max_simulations`` is the caller's substitute for the timeout (``--scale-down-simulation-timeout``); None: all.
    """
    return 0 if options.scale_down_simulation_timeout <= timedelta() else max_simulations


_CONTROLLER_KINDS = frozenset(("StatefulSet", "Job", "ReplicaSet", "ReplicationController"))


def count_missing_replicas(owner: OwnerReference, namespace: str, listers: Listers) -> int | None:
    """Return how many pods the controller ``owner`` still has to create; negative if it has too many.

    None if the controller does not exist or is no StatefulSet, ReplicaSet, ReplicationController or Job.
    """
    match owner.kind:
        case "StatefulSet":
            if (stateful_set := listers.get(StatefulSet, namespace, owner.name)) is not None:
                return _default_to_one(stateful_set.spec.replicas) - stateful_set.status.current_replicas
        case "ReplicaSet":
            if (replica_set := listers.get(ReplicaSet, namespace, owner.name)) is not None:
                return _default_to_one(replica_set.spec.replicas) - replica_set.status.replicas
        case "ReplicationController":
            if (controller := listers.get(ReplicationController, namespace, owner.name)) is not None:
                return _default_to_one(controller.spec.replicas) - controller.status.replicas
        case "Job":
            if (job := listers.get(Job, namespace, owner.name)) is not None:
                target = _default_to_one(job.spec.parallelism)
                if job.spec.completions is not None:
                    target = min(target, job.spec.completions - job.status.succeeded)
                return target - job.status.active
    return None


def _default_to_one(replicas: int | None) -> int:
    """Return the replicas, 1 if they are not set."""
    return 1 if replicas is None else replicas


def get_pods_to_inject(evicted: Iterable[Pod], listers: Listers) -> list[Pod]:
    """Return the evicted pods that would be created again: all but static, mirror and DaemonSet pods.

    Of each existing controller's pods at most as many as it lacks are returned; pods of no known controller always are.
    """
    injected: Counter[str] = Counter()
    pods = []
    for pod in evicted:
        if is_static_pod(pod) or is_mirror_pod(pod) or is_daemonset_pod(pod):
            continue
        owner = next((owner for owner in pod.metadata.owner_references or () if owner.kind in _CONTROLLER_KINDS), None)
        if owner is not None:
            missing = count_missing_replicas(owner, pod.metadata.namespace, listers)
            if missing is not None:
                if injected[owner.uid] >= missing:
                    continue
                injected[owner.uid] += 1
        pods.append(pod)
    return pods


_NO_LIMIT = 1 << 40


class Planner:
    """Plans scale-down for one loop.

    ``barred`` maps nodes that may not be removed to the reason of an earlier check.
    """

    def __init__(
        self, context: ScaleDownContext, *, exhaustive: bool = False, barred: Mapping[str, str] | None = None
    ) -> None:
        self.context, self.inputs, self.options, self.now = context, context.inputs, context.options, context.now
        self.snapshot, self.nodes, self.groups = context.snapshot, context.nodes, context.groups
        self.listers, self.pdbs = context.listers, context.pdbs
        self.before, self.memory = context.state, context.state.scale_down
        self.exhaustive, self.barred = exhaustive, barred or {}
        self.max_simulations = get_max_simulations(context.options, context.inputs.max_simulations)
        self.interval = 1 if exhaustive else get_shortest_interval(self.memory, context.options, context.now)
        self.in_progress: Counter[str] = Counter()
        self.judge_alone: partial[AloneVerdicts] | None = None
        self.injected: list[PodRecord] = []
        self.unremovable = UnremovableNodes(until={} if exhaustive else self.memory.unremovable_until)
        self.judged: dict[str, Eligibility] = {}
        self.failures: dict[str, UnremovableCandidate] = {}
        self.skipped: list[str] = []
        self.under_rollout: list[str] = []

    def run(self) -> ScaleDownPlan:
        """Find the unneeded nodes, choose those to delete, and return the plan. Charges the disruption budgets."""
        inputs = self.inputs
        deleting, draining = inputs.deleting, inputs.draining
        since = self.memory.unneeded_since
        ttl = duration(self.options.node_deletion_candidate_ttl)
        if not self.memory.started and ttl:
            since = {**load_times_from_taints(self.nodes, ttl=ttl, now=self.now), **since}
        names, present = self.snapshot.nodes, self._list_present_nodes()
        self.injected = [PodRecord(pod) for pod in get_pods_to_inject(inputs.recent_evictions, self.listers)]
        simulator, hints = self._build_simulator(self.pdbs)
        candidates = self._list_candidates(present, simulator)
        self.injected_on = set(hints.hints.values())
        leaving = {item.node for item in (*deleting, *draining)}
        self.in_progress = Counter(item.group for item in (*deleting, *draining))
        staying = [i for i in present if names[i] not in leaving] if leaving else present
        destinations = np.zeros(len(self.nodes), dtype=np.uint8)
        destinations[staying] = 1
        removable = self._categorize(
            [name for name in candidates if name not in leaving] if leaving else candidates,
            simulator,
            destinations,
            before=len(since),
        )
        unneeded = update_unneeded(
            since,
            [self._convert_removable(item) for item in removable],
            groups=self.groups,
            options=self.options,
            now=self.now,
        )
        if self.exhaustive:
            unneeded = [msgspec.structs.replace(item, threshold=0) for item in unneeded]
        after_update = dict(self.unremovable.nodes)
        chosen = None
        delete = CroppedNodes(empty=[], drain=[])
        if self._is_blocked(inputs.disabled):
            result = "ScaleDownInCooldown"
        elif not candidates:
            result = "ScaleDownNoCandidates"
        else:
            chosen = choose_nodes_to_delete(
                unneeded,
                groups=self.groups,
                snapshot_nodes=self.nodes,
                options=self.options,
                now=self.now,
                limits=inputs.limits,
                deletions_in_progress=self.in_progress,
                gpu_label=inputs.gpu_label,
                left=self._get_remaining_quota,
            )
            for name, reason in chosen.unremovable.items():
                self.unremovable.add(name, reason)
            delete = self._crop(chosen, DeletionsInProgress(empty=len(deleting), drained=len(draining)))
            result = "ScaleDownNodeDeleteStarted" if delete.empty or delete.drain else "ScaleDownNoNodeDeleted"
        unneeded_names = [item.name for item in unneeded]
        memory = msgspec.structs.replace(
            self.memory,
            unneeded_since={item.name: item.since for item in unneeded},
            unremovable_until=self.unremovable.until,
            previous_candidates=unneeded_names,
            injected_hints=hints.hints,
            update_interval=self.interval,
            last_update=self.now,
            started=True,
        )
        return ScaleDownPlan(
            result=result,
            candidates=candidates,
            skipped=self.skipped,
            under_rollout=self.under_rollout,
            unneeded=unneeded,
            removable={item.node: item for item in removable},
            eligibility=self.judged,
            unremovable_after_update=after_update,
            unremovable=self.unremovable.nodes,
            failures=self.failures,
            chosen=chosen,
            delete=delete,
            soft_taints=self._plan_soft_taints(present, unneeded_names),
            pdbs=self.pdbs,
            judge_alone=self.judge_alone,
            remember=(lambda: self.before)
            if self.exhaustive
            else partial(_build_next_state, self.before, memory, simulator.save_state()),
        )

    def _build_simulator(self, pdbs: RemainingPdbTracker) -> tuple[RemovalSimulator, PlaceState]:
        """Build a simulator with the recently evicted pods in the cluster. Returns it, and the hints of these pods."""
        simulator = RemovalSimulator(
            self.snapshot,
            now=self.now,
            options=self.options,
            listers=self.listers,
            pdbs=pdbs,
            state=PlaceState(cursor=self.before.cursor, old_hints=self.memory.hints),
            profile=self.inputs.profile,
            more=self.injected,
        )
        if not self.injected:
            return simulator, PlaceState()
        return simulator, simulator.place_more(PlaceState(old_hints=self.memory.injected_hints))

    # -- candidates --------------------------------------------------------------------------------------------------

    def _list_present_nodes(self) -> list[int]:
        """Return the positions of the nodes that are not upcoming."""
        is_upcoming = cached_by_identity(self.snapshot.interner.memo, ("upcoming nodes",), self.nodes, is_upcoming_node)
        positions = np.flatnonzero(~np.array(is_upcoming, dtype=np.bool_)).tolist()
        upcoming, names = self.inputs.upcoming, self.snapshot.nodes
        return [i for i in positions if names[i] not in upcoming] if upcoming else positions

    def _list_candidates(self, present: Sequence[int], simulator: RemovalSimulator) -> list[str]:
        """Return the candidates in the order in which they are simulated; set ``under_rollout``.

        ``present``: positions of the nodes that are not upcoming.
        """
        # The sorter ignores controllers and budgets.
        codes = DrainCodes(simulator.pods, DrainContext(self.now, self.options)).codes
        tiers = compute_emptiness_tiers(simulator.pods, codes, len(self.nodes))
        index, node_names = self.snapshot.columns.index, self.snapshot.nodes
        names = prefilter_nodes(
            node_names if len(present) == len(node_names) else [node_names[i] for i in present], self.groups
        )
        candidate_tiers = tiers if len(names) == len(node_names) else tiers[[index[name] for name in names]]
        candidates = sort_by_tier(names, candidate_tiers, self.memory.previous_candidates)
        if self.options.scale_down_delay_type_local and not self.exhaustive:
            candidates = filter_out_delayed(
                candidates, self.groups, self.memory.changes, options=self.options, now=self.now
            )
        candidates, self.under_rollout = filter_out_rolling_out(candidates, self.groups)
        return candidates

    def _categorize(
        self,
        names: Sequence[str],
        simulator: RemovalSimulator,
        destinations: np.ndarray[tuple[int], np.dtype[np.uint8]],
        *,
        before: int,
    ) -> list[RemovableNode]:
        """Return the removable nodes in the order of the search; record the reasons of the others in ``unremovable``.

        Sets ``judged`` (the eligibility of each candidate) and ``skipped`` (eligible nodes that were not simulated; an
        exhaustive plan has none, and gets ``judge_alone``).

        ``names``: the candidates; ``destinations``: uint8[nodes], 1 = may take pods; ``before``: number of nodes that
        were unneeded before this loop.
        """
        self.unremovable = self.unremovable.update(self.snapshot.columns.index.keys(), self.now)
        judge = EligibilityChecker(self.context, simulator, self.injected_on, self.inputs.gpu_label)
        self.judged = dict(zip(names, judge.judge(names, self.unremovable.until), strict=True))
        stay = {name: verdict.reason for name, verdict in self.judged.items() if verdict.reason is not None}
        self.unremovable.add_all(stay)
        eligible = [name for name in self.judged if name not in stay]
        if self.exhaustive:
            self.judge_alone = partial(self._judge_each_alone, eligible, destinations.copy())
            return self._removable_without_barred(eligible, simulator, destinations)
        limit = compute_unneeded_nodes_limit(before, self.interval, self.options)
        atomic_groups = {group.id for group in self.groups if self._is_atomic(group)}
        atomic = np.array([group in atomic_groups for group in self.groups.ids_of_nodes(eligible)], dtype=np.uint8)
        simulated = eligible if self.max_simulations is None else eligible[: self.max_simulations]
        verdicts = self._judge(simulated, simulator, destinations, limit=limit, atomic=atomic[: len(simulated)])
        self.skipped = eligible[len(verdicts) :]
        return [answer for answer in verdicts if isinstance(answer, RemovableNode)]

    def _judge_each_alone(
        self, names: Sequence[str], destinations: np.ndarray[tuple[int], np.dtype[np.uint8]]
    ) -> AloneVerdicts:
        """Return, by name, the verdict on each node as if no other node was removed.

        ``destinations``: uint8[nodes], 1 = may take pods.
        """
        simulator, _ = self._build_simulator(build_pdb_tracker(self.snapshot.informers.budgets))
        return dict(zip(names, simulator.judge_alone(names, destinations, threads=self.inputs.threads), strict=True))

    def _removable_without_barred(
        self, names: list[str], simulator: RemovalSimulator, destinations: np.ndarray[tuple[int], np.dtype[np.uint8]]
    ) -> list[RemovableNode]:
        """Return the removable nodes among ``names`` that are not in ``barred``.

        Afterwards tries the nodes that were barred because of their group's minimum size, if the group turns out to
        have more nodes than its minimum after these removals. Records the reasons of the other barred nodes in
        ``unremovable``. ``destinations``: uint8[nodes], 1 = may take pods.
        """
        for name, reason in self.barred.items():
            self.unremovable.add(name, reason)
        removable = self._removable([name for name in names if name not in self.barred], simulator, destinations)
        left = {group.id: group.size - self.in_progress[group.id] - group.min_size for group in self.groups}
        for item in removable:
            left[self._group_of(item.node)] -= 1
        for name, reason in self.barred.items():
            group = self._group_of(name)
            if reason == NODE_GROUP_MIN_SIZE_REACHED and left[group] > 0:
                del self.unremovable.nodes[name]
                more = self._removable([name], simulator, destinations)
                left[group] -= len(more)
                removable += more
        return removable

    def _group_of(self, name: str) -> str:
        """Return the id of a candidate's group."""
        group = self.groups.find_group_of_node(name)
        assert group is not None  # candidates have a group
        return group.id

    def _removable(
        self, names: list[str], simulator: RemovalSimulator, destinations: np.ndarray[tuple[int], np.dtype[np.uint8]]
    ) -> list[RemovableNode]:
        """Return nodes that can be removed together: a set to which none of the other ``names`` can be added.

        ``destinations``: uint8[nodes], 1 = may take pods.
        """
        removable: list[RemovableNode] = []
        while names:
            verdicts = self._judge(names, simulator, destinations)
            more = [verdict for verdict in verdicts if isinstance(verdict, RemovableNode)]
            removable += more
            # Moved pods can make room for pods with affinity or anti-affinity to them, so check again.
            names = [verdict.node for verdict in verdicts if isinstance(verdict, UnremovableCandidate)] if more else []
        return removable

    def _judge(
        self,
        names: Sequence[str],
        simulator: RemovalSimulator,
        destinations: np.ndarray[tuple[int], np.dtype[np.uint8]],
        *,
        limit: int | None = None,
        atomic: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None,
    ) -> list[RemovableNode | UnremovableCandidate]:
        """Simulate the removal of nodes, one after the other, and return their verdicts in order.

        Updates the recorded reasons (``failures``, ``unremovable``). ``destinations``: uint8[nodes], 1 = may take pods.
        With ``limit`` the simulation stops after this number of removable nodes, not counting those marked in
        ``atomic``; the remaining ``names`` have no verdict.
        """
        until = later(self.now, duration(self.options.unremovable_node_recheck_timeout))
        answers = simulator.judge(names, destinations, limit=limit, atomic=atomic)
        for answer in answers:
            if isinstance(answer, UnremovableCandidate):
                self.failures[answer.node] = answer
                self.unremovable.add(answer.node, answer.reason, blocking_pod=answer.blocking_pod, until=until)
            elif self.failures.pop(answer.node, None) is not None:
                del self.unremovable.nodes[answer.node]
        return answers

    # -- limits ------------------------------------------------------------------------------------------------------

    def _is_atomic(self, group: NodeGroup) -> bool:
        """Check whether the group may only have no nodes or its maximum. False if its options cannot be read."""
        try:
            return group.options_or(self.options.node_group_defaults).zero_or_max_node_scaling
        except ProviderError:
            return False

    def _is_blocked(self, disabled: bool) -> bool:
        """Check whether the loop may delete no node, because it is disabled or the cluster is in cooldown.

        With ``exhaustive`` or ``--scale-down-delay-type-local`` the cluster has no cooldown.
        """
        if disabled or self.exhaustive:
            return disabled
        return not self.options.scale_down_delay_type_local and self.context.is_in_cooldown

    def _get_remaining_quota(self, quota: Quota) -> QuotaTracker:
        """Return a tracker of how much may be removed until the minimum ``quota`` is reached; the caller may change it.

        The amount is cached as long as nodes and groups are the same objects.
        """
        snapshot, label = self.snapshot, self.inputs.gpu_label

        def left(groups: Groups) -> QuotaTracker:
            return QuotaTracker.minimum([quota], CountedNodes.of(snapshot), groups, gpu_label=label)

        def by_groups(_: object) -> IdentityCache[Groups, QuotaTracker]:
            return IdentityCache()

        [trackers] = cached_by_identity(
            self.snapshot.interner.memo, ("what a minimum leaves", quota, label), [self.nodes], by_groups
        )
        [tracker] = trackers.get([self.groups], left)
        return tracker.fork()

    # -- choice ------------------------------------------------------------------------------------------------------

    def _convert_removable(self, item: RemovableNode) -> NodeToRemove:
        """Convert a removable node into the input of :func:`update_unneeded`."""
        return NodeToRemove(
            node=self.nodes[self.snapshot.columns.index[item.node]],
            drain=item.drain,
            risky=item.risky,
            on_completion=item.waits,
        )

    def _plan_soft_taints(self, present: Sequence[int], unneeded: Sequence[str]) -> SoftTaints:
        """Plan the soft taints of the nodes at the positions ``present``. ``unneeded``: names of the unneeded nodes.

        Only nodes that are unneeded or carry the taint can change, so the others are skipped.
        """
        marked = np.array(
            cached_by_identity(self.snapshot.interner.memo, ("soft taints",), self.nodes, _is_deletion_candidate),
            dtype=np.bool_,
        )
        marked[[self.snapshot.columns.index[name] for name in unneeded]] = True
        present_mask = np.zeros(len(self.nodes), dtype=np.bool_)
        present_mask[present] = True
        return plan_soft_taints(
            [self.nodes[i] for i in np.flatnonzero(marked & present_mask).tolist()], unneeded, self.groups
        )

    def _crop(self, chosen: NodesToDelete, in_progress: DeletionsInProgress) -> CroppedNodes:
        """Limit the chosen nodes to the budgets; with ``exhaustive`` there are no limits."""
        return crop_nodes(
            assign_groups(chosen.empty, self.groups),
            assign_groups(chosen.drain, self.groups),
            build_budget_groups(self.groups, self.options, self.nodes),
            in_progress=in_progress,
            max_scale_down_parallelism=_NO_LIMIT if self.exhaustive else self.options.max_scale_down_parallelism,
            max_drain_parallelism=_NO_LIMIT if self.exhaustive else self.options.max_drain_parallelism,
        )


def _build_next_state(before: LoopState, memory: ScaleDownState, remembered: Callable[[], PlaceState]) -> LoopState:
    """Return the state ``before`` with a new scale-down state and with the cursor and the hints of removals.

    ``memory``: the scale-down state; ``remembered`` returns cursor and hints.
    """
    place_state = remembered()
    return msgspec.structs.replace(
        before, cursor=place_state.cursor, scale_down=msgspec.structs.replace(memory, hints=place_state.hints)
    )


def _is_deletion_candidate(node: Node) -> bool:
    """Check whether the node has the soft taint of deletion candidates."""
    return has_taint(node, DELETION_CANDIDATE_TAINT)


def plan_scale_down(context: ScaleDownContext, *, exhaustive: bool = False) -> ScaleDownPlan:
    """Decide one loop of scale-down by the rules of current releases.

    Arguments and errors are those of :func:`kscale.scale_down`.
    """
    barred: dict[str, str] = {}
    while True:
        plan = Planner(context, exhaustive=exhaustive, barred=barred).run()
        if not exhaustive or plan.chosen is None or not plan.chosen.unremovable:
            return plan
        # The nodes that must stay after all took part in the simulation: plan again without them.
        barred |= plan.chosen.unremovable
        context = context.restart()
