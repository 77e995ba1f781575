"""One loop of scale-down: which nodes are unneeded, and which of them to delete now (``core/scaledown/planner``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec
import numpy as np

from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.pod_lists.degradation import may_scale_down
from kscale.ca.scale_down.atomic import is_upcoming
from kscale.ca.scale_down.budgets import CroppedNodes, DeletionsInProgress, NodeInGroup, budget_groups, crop, in_groups
from kscale.ca.scale_down.candidates import EMPTY, EMPTY_BUT_WAITING, NOT_EMPTY, filter_delayed, prefilter, sort_by_tier
from kscale.ca.scale_down.drain_codes import BLOCKS, MOVES, MOVES_UNLESS_PDB, WAITS, DrainCodes
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.node_judge import NodeJudge
from kscale.ca.scale_down.nodes_to_delete import NodesToDelete, nodes_to_delete
from kscale.ca.scale_down.pdb import RemainingPdbTracker, tracker_of
from kscale.ca.scale_down.plan import Alone, ScaleDownPlan, not_tried
from kscale.ca.scale_down.planner_input import PlannerInput
from kscale.ca.scale_down.reasons import NODE_GROUP_MIN_SIZE_REACHED
from kscale.ca.scale_down.recent_evictions import pods_to_inject
from kscale.ca.scale_down.removal import RemovableNode, RemovalSimulator, UnremovableCandidate
from kscale.ca.scale_down.soft_taints import soft_taints
from kscale.ca.scale_down.unneeded import NodeToRemove, load_from_taints, update_unneeded
from kscale.ca.scale_down.unneeded_limit import shortest_interval, simulations_in_time, unneeded_limit
from kscale.ca.scale_down.unremovable import UnremovableNodes
from kscale.ca.simulated import snapshot_of
from kscale.ca.state import LoopState
from kscale.effects import Moment, duration, later, moment
from kscale.errors import InputError, Problem
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.objects.nodegroups import Groups
from kscale.scheduling.place import PlaceState
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["scale_down"]

_NO_LIMIT = 1 << 40


def scale_down(
    cluster: Cluster | Snapshot,
    groups: Groups | Iterable[NodeGroup],
    *,
    now: datetime | Moment,
    options: AutoscalingOptions | None = None,
    state: LoopState | None = None,
    limits: ResourceLimiter | None = None,
    deleting: Sequence[NodeInGroup] = (),
    draining: Sequence[NodeInGroup] = (),
    recent_evictions: Iterable[Pod] = (),
    upcoming: Collection[str] = (),
    disabled: bool = False,
    exhaustive: bool = False,
    max_simulations: int | None = None,
    threads: int | None = None,
    gpu_label: str = DEFAULT_GPU_LABEL,
    profile: SchedulerProfile | None = None,
) -> ScaleDownPlan:
    """Decide one loop of scale-down. Nothing is deleted: the caller acts, and says next time what happened.

    ``deleting`` and ``draining`` are nodes whose deletion is under way. ``upcoming``: nodes of the snapshot that do not
    exist yet (besides those annotated so): they take no pods. ``disabled``: nodes are judged, none is chosen.
    ``limits`` are the cluster-wide minima (default: what the options say).

    ``max_simulations`` stands for upstream's timer on simulations (``--scale-down-simulation-timeout``), which a pure
    function cannot have: after so many candidates the time is up, and the others are skipped; without any time, all.

    ``exhaustive`` answers another question than upstream's loop, outside exact mode: which nodes could go together, if
    all of them were judged, none had to wait, and nothing but minimum sizes and resources limited their number.
    Candidates that failed are asked again until none more can go, with the pods that moved where they are now; another
    order of candidates may give another set. A node that turns out to be held by a minimum, by its group, or by pods
    that are to finish first is left out, and the others are judged without it. Besides,
    ``plan.alone`` judges every eligible node as if no other went, when it is first read: on ``threads`` (None: as many
    as there are CPUs) with the same answers for any number of them. The state comes back as it was.

    A loop that may not scale down at all (``scale_down_enabled``, graceful degradation) judges nothing.

    With the ``legacy`` profile in the options the planner of release 1.3 decides (:mod:`kscale.ca.legacy.scale_down`).

    Raises InputError for a disruption budget with a broken selector, for a ``now`` that is no moment or is before the
    last loop's, and for what the legacy profile does not know: ``exhaustive``, ``recent_evictions``, ``upcoming``,
    ``max_simulations`` and ``threads``.
    """
    options = options or AutoscalingOptions()
    before = state or LoopState()
    at = moment(now)
    snapshot = snapshot_of(cluster, options, at)
    evicted = list(recent_evictions)
    if options.legacy:
        _refuse_in_legacy(
            exhaustive=exhaustive,
            recent_evictions=bool(evicted),
            upcoming=bool(upcoming),
            max_simulations=max_simulations is not None,
            threads=threads is not None,
        )
    if not exhaustive and not may_scale_down(before.scale_up.degraded_loops, options):
        return not_tried(before)
    given = PlannerInput(snapshot, groups, at, options, before)
    if options.legacy:
        from kscale.ca.legacy.scale_down import legacy_scale_down

        return legacy_scale_down(
            given,
            limits=limits,
            in_progress=[*deleting, *draining],
            disabled=disabled,
            gpu_label=gpu_label,
            profile=profile,
        )
    barred: dict[str, str] = {}
    while True:
        loop = _Loop(given, profile, exhaustive, max_simulations, threads, barred)
        plan = loop.run(limits, deleting, draining, evicted, upcoming, disabled, gpu_label)
        if not exhaustive or plan.chosen is None or not plan.chosen.unremovable:
            return plan
        # Nodes that may not go after all have taken room, and given some: once more without them.
        barred |= plan.chosen.unremovable
        given = PlannerInput(snapshot, given.groups, given.now, options, before)


def _refuse_in_legacy(**given: bool) -> None:
    what = "the planner of release 1.3 does not know it"
    problems = [Problem(what, field=name) for name, is_given in given.items() if is_given]
    if problems:
        raise InputError(problems)


class _Loop:
    """One loop under way."""

    def __init__(
        self,
        given: PlannerInput,
        profile: SchedulerProfile | None,
        exhaustive: bool,
        max_simulations: int | None,
        threads: int | None,
        barred: Mapping[str, str],
    ) -> None:
        self.given = given
        self.barred = barred
        self.in_progress: Counter[str] = Counter()
        self.options = given.options
        self.max_simulations = simulations_in_time(given.options, max_simulations)
        self.threads = threads
        self.judge_alone: partial[Alone] | None = None
        self.injected: list[PodRecord] = []
        self.snapshot = given.snapshot
        self.exhaustive = exhaustive
        self.nodes = given.nodes
        self.groups = given.groups
        self.now = given.now
        self.before = given.before
        self.memory = given.before.scale_down
        self.profile = profile
        self.interval = 1 if exhaustive else shortest_interval(self.memory, given.options, given.now)
        self.listers = given.listers
        self.pdbs = given.pdbs
        self.unremovable = UnremovableNodes(until={} if exhaustive else self.memory.unremovable_until)
        self.judged: dict[str, Eligibility] = {}
        self.failures: dict[str, UnremovableCandidate] = {}
        self.skipped: list[str] = []

    def run(
        self,
        limits: ResourceLimiter | None,
        deleting: Sequence[NodeInGroup],
        draining: Sequence[NodeInGroup],
        recent_evictions: Iterable[Pod],
        upcoming: Collection[str],
        disabled: bool,
        gpu_label: str,
    ) -> ScaleDownPlan:
        since = self.memory.unneeded_since
        ttl = duration(self.options.node_deletion_candidate_ttl)
        if not self.memory.started and ttl:
            since = {**load_from_taints(self.nodes, ttl=ttl, now=self.now), **since}
        present = [node for node in self.nodes if node.metadata.name not in upcoming and not is_upcoming(node)]
        self.injected = [PodRecord(pod) for pod in pods_to_inject(recent_evictions, self.listers)]
        simulator, hints = self._simulator(self.pdbs)
        candidates = self._candidates(present, simulator)
        self.injected_on = set(hints.hints.values())
        going = {item.node for item in (*deleting, *draining)}
        self.in_progress = Counter(item.group for item in (*deleting, *draining))
        removable = self._categorize(
            [name for name in candidates if name not in going],
            simulator,
            simulator.mask(node.metadata.name for node in present if node.metadata.name not in going),
            before=len(since),
            gpu_label=gpu_label,
        )
        unneeded = update_unneeded(
            since,
            [self._to_remove(item) for item in removable],
            groups=self.groups,
            options=self.options,
            now=self.now,
        )
        if self.exhaustive:
            unneeded = [msgspec.structs.replace(item, threshold=0) for item in unneeded]
        after_update = dict(self.unremovable.nodes)
        chosen = None
        delete = CroppedNodes(empty=[], drain=[])
        if self._cooldown(disabled):
            result = "ScaleDownInCooldown"
        elif not candidates:
            result = "ScaleDownNoCandidates"
        else:
            chosen = nodes_to_delete(
                unneeded,
                groups=self.groups,
                snapshot_nodes=self.nodes,
                options=self.options,
                now=self.now,
                limits=limits,
                deletions_in_progress=self.in_progress,
                gpu_label=gpu_label,
            )
            for name, reason in chosen.unremovable.items():
                self.unremovable.add(name, reason)
            delete = self._crop(chosen, DeletionsInProgress(empty=len(deleting), drained=len(draining)))
            result = "ScaleDownNodeDeleteStarted" if delete.empty or delete.drain else "ScaleDownNoNodeDeleted"
        names = [item.name for item in unneeded]
        return ScaleDownPlan(
            result=result,
            candidates=candidates,
            skipped=self.skipped,
            unneeded=unneeded,
            removable={item.node: item for item in removable},
            eligibility=self.judged,
            unremovable_after_update=after_update,
            unremovable=self.unremovable.nodes,
            failures=self.failures,
            chosen=chosen,
            delete=delete,
            soft_taints=soft_taints(present, names, self.groups),
            pdbs=self.pdbs,
            judge_alone=self.judge_alone,
            state=self.before
            if self.exhaustive
            else msgspec.structs.replace(
                self.before,
                cursor=simulator.engine.cursor,
                scale_down=msgspec.structs.replace(
                    self.memory,
                    unneeded_since={item.name: item.since for item in unneeded},
                    unremovable_until=self.unremovable.until,
                    previous_candidates=names,
                    hints=simulator.state.hints,
                    injected_hints=hints.hints,
                    update_interval=self.interval,
                    last_update=self.now,
                    started=True,
                ),
            ),
        )

    def _simulator(self, pdbs: RemainingPdbTracker) -> tuple[RemovalSimulator, PlaceState]:
        """The cluster with the pods that were evicted a moment ago in it, and the hints of these."""
        simulator = RemovalSimulator(
            self.snapshot,
            now=self.now,
            options=self.options,
            listers=self.listers,
            pdbs=pdbs,
            state=PlaceState(cursor=self.before.cursor, old_hints=self.memory.hints),
            profile=self.profile,
            more=self.injected,
        )
        if not self.injected:
            return simulator, PlaceState()
        return simulator, simulator.place_more(PlaceState(old_hints=self.memory.injected_hints))

    # -- candidates --------------------------------------------------------------------------------------------------

    def _candidates(self, present: Iterable[Node], simulator: RemovalSimulator) -> list[str]:
        # The sorter asks without controllers and budgets.
        pods = simulator.pods
        codes = DrainCodes(pods, DrainContext(self.now, self.options)).codes
        tiers = np.full(len(self.nodes), EMPTY)
        placed = pods.node >= 0
        tiers[pods.node[placed & (codes == WAITS)]] = EMPTY_BUT_WAITING
        tiers[pods.node[placed & np.isin(codes, (BLOCKS, MOVES, MOVES_UNLESS_PDB))]] = NOT_EMPTY
        tier = tiers.tolist()
        index = self.snapshot.columns.index
        names = prefilter((node.metadata.name for node in present), self.groups)
        found = sort_by_tier(names, lambda name: tier[index[name]], self.memory.previous_candidates)
        if self.options.scale_down_delay_type_local and not self.exhaustive:
            found = filter_delayed(found, self.groups, self.memory.changes, options=self.options, now=self.now)
        return found

    def _categorize(
        self,
        names: Sequence[str],
        simulator: RemovalSimulator,
        destinations: np.ndarray[tuple[int], np.dtype[np.uint8]],
        *,
        before: int,
        gpu_label: str,
    ) -> list[RemovableNode]:
        """The removable nodes, in the order found; reasons for the others go to ``unremovable``."""
        self.unremovable = self.unremovable.update(self.snapshot.columns.index.keys(), self.now)
        eligible = []
        judge = NodeJudge(self.given, simulator, self.injected_on, gpu_label)
        for name in names:
            recent = self.unremovable.is_recent(name)
            judged = self.judged[name] = judge.judge(name, recently_unremovable=recent)
            if judged.reason is None:
                eligible.append(name)
            else:
                self.unremovable.add(name, judged.reason)
        if self.exhaustive:
            self.judge_alone = partial(self._alone, eligible, destinations.copy())
            return self._removable_without_barred(eligible, simulator, destinations)
        limit = unneeded_limit(before, self.interval, self.options)
        atomic = np.fromiter(map(self._is_atomic, eligible), np.uint8)
        looked = eligible if self.max_simulations is None else eligible[: self.max_simulations]
        found = self._judge(looked, simulator, destinations, limit=limit, atomic=atomic[: len(looked)])
        self.skipped = eligible[len(found) :]
        return [answer for answer in found if isinstance(answer, RemovableNode)]

    def _alone(self, names: Sequence[str], destinations: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Alone:
        """What would become of each node if no other went: in a cluster that no removal has changed."""
        simulator, _ = self._simulator(tracker_of(self.snapshot.informers.budgets))
        return dict(zip(names, simulator.judge_alone(names, destinations, threads=self.threads), strict=True))

    def _removable_without_barred(
        self, names: list[str], simulator: RemovalSimulator, destinations: np.ndarray[tuple[int], np.dtype[np.uint8]]
    ) -> list[RemovableNode]:
        """The same without the nodes that were held before, but for those whose group has room again."""
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
        group = self.groups.of_node(name)
        assert group is not None  # or it were no candidate
        return group.id

    def _removable(
        self, names: list[str], simulator: RemovalSimulator, destinations: np.ndarray[tuple[int], np.dtype[np.uint8]]
    ) -> list[RemovableNode]:
        """Nodes that can go together, such that no other can go as well."""
        removable: list[RemovableNode] = []
        while names:
            found = self._judge(names, simulator, destinations)
            more = [answer for answer in found if isinstance(answer, RemovableNode)]
            removable += more
            # Pods that moved can make room for pods that want to be near or far from them: ask again.
            names = [answer.node for answer in found if isinstance(answer, UnremovableCandidate)] if more else []
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

    def _is_atomic(self, name: str) -> bool:
        try:
            group = self.groups.of_node(name)
            return group is not None and group.options_or(self.options.node_group_defaults).zero_or_max_node_scaling
        except ProviderError:
            return False

    def _cooldown(self, disabled: bool) -> bool:
        if disabled or self.exhaustive:
            return disabled
        return not self.options.scale_down_delay_type_local and self.given.settles

    # -- choice ------------------------------------------------------------------------------------------------------

    def _to_remove(self, item: RemovableNode) -> NodeToRemove:
        return NodeToRemove(
            node=self.nodes[self.snapshot.columns.index[item.node]],
            drain=item.drain,
            risky=item.risky,
            on_completion=item.waits,
        )

    def _crop(self, chosen: NodesToDelete, in_progress: DeletionsInProgress) -> CroppedNodes:
        return crop(
            in_groups(chosen.empty, self.groups),
            in_groups(chosen.drain, self.groups),
            budget_groups(self.groups, self.options, self.nodes),
            in_progress=in_progress,
            max_scale_down_parallelism=_NO_LIMIT if self.exhaustive else self.options.max_scale_down_parallelism,
            max_drain_parallelism=_NO_LIMIT if self.exhaustive else self.options.max_drain_parallelism,
        )
