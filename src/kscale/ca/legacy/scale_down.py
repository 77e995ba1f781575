"""One loop of scale-down of release 1.3 (``core/scale_down.go``): what is unneeded, and what to delete now.

Where upstream shuffles the nodes before it looks for a place, the order here is that of the list (one of the outcomes
upstream can have). Predicates are those of the current scheduler; destinations must also have the conditions that the
predicate of that time on node conditions wanted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kscale.ca.errors import AutoscalerError
from kscale.ca.legacy.pod_checks import pods_to_drain
from kscale.ca.legacy.removal import LegacySimulator
from kscale.ca.legacy.usage_tracker import UsageTracker
from kscale.ca.legacy.utilization import legacy_utilization
from kscale.ca.nodes import SCALE_DOWN_DISABLED_ANNOTATION, is_being_deleted, is_ready
from kscale.ca.options import ResourceLimiter
from kscale.ca.quota import NODES, NodeResources
from kscale.ca.scale_down import reasons
from kscale.ca.scale_down.budgets import CroppedNodes, GroupNodes
from kscale.ca.scale_down.candidates import prefilter
from kscale.ca.scale_down.drainability.context import DrainContext
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.inputs import ScaleDownInputs
from kscale.ca.scale_down.nodes_to_delete import NodesToDelete
from kscale.ca.scale_down.plan import ScaleDownPlan
from kscale.ca.scale_down.planner_input import PlannerInput
from kscale.ca.scale_down.removal_answers import RemovableNode, UnremovableCandidate
from kscale.ca.scale_down.soft_taints import SoftTaints
from kscale.ca.scale_down.unneeded import UnneededNode
from kscale.ca.scale_down.unremovable import UnremovableNode
from kscale.ca.state import LoopState
from kscale.effects import SECOND, Moment, duration, later
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup, ProviderError

__all__ = ["legacy_scale_down", "started_1_3"]

_RECHECK = 300 * SECOND


def legacy_scale_down(given: PlannerInput, inputs: ScaleDownInputs) -> ScaleDownPlan:
    """Decide one loop as release 1.3 does. Arguments and errors as :func:`kscale.scale_down`.

    A state that knows no loop yet counts as a process that has just started: cooldowns begin now,
    but for those whose time the state has.
    """
    given.before = started_1_3(given.before, given.now)
    return _Loop(given, inputs).run(inputs.limits, inputs.disabled)


def started_1_3(state: LoopState, now: Moment) -> LoopState:
    """Return the state of a process that started at ``now``: its cooldowns begin then.

    A state that has a loop behind it is returned as it is.
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


class _Loop:
    def __init__(self, given: PlannerInput, inputs: ScaleDownInputs) -> None:
        self.given = given
        self.now = given.now
        self.options = given.options
        self.nodes = given.nodes
        self.groups = given.groups
        self.before = given.before
        self.memory = memory = given.before.scale_down
        self.in_progress = {item.node for item in (*inputs.deleting, *inputs.draining)}
        self.gpu_label = inputs.gpu_label
        self.pdbs = given.pdbs
        self.listers = given.listers
        self.usage: UsageTracker = memory.usage.copy()
        self.simulator = LegacySimulator(
            given.whole, given.snapshot, usage=self.usage, hints=memory.hints, now=given.now, profile=inputs.profile
        )
        self.unremovable_until: dict[str, Moment] = {}
        self.unremovable: dict[str, UnremovableNode] = {}
        self.failures: dict[str, UnremovableCandidate] = {}
        self.judged: dict[str, Eligibility] = {}
        self.removable: dict[str, RemovableNode] = {}

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self, limits: ResourceLimiter | None, disabled: bool) -> ScaleDownPlan:
        self.usage.clean_up(self.now - duration(self.options.scale_down_unneeded_time))
        candidates = prefilter([node.metadata.name for node in self.nodes], self.groups)
        since = self._update_unneeded(candidates)
        after_update = dict(self.unremovable)
        unneeded = [self._unneeded(name, time) for name, time in since.items()]
        chosen: NodesToDelete | None = None
        if disabled or self.given.settles:
            result = "ScaleDownInCooldown"
        elif self.in_progress:
            result = "ScaleDownInProgress"
        else:
            result, chosen = self._choose(since, limits or self.options.resource_limiter)
            for name, reason in chosen.unremovable.items():
                self.unremovable[name] = UnremovableNode(reason=reason)
            for name in (*chosen.empty, *chosen.drain):
                for gone in self.usage.remove(name, since):
                    del since[gone]
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
            delete=self._delete(chosen),
            soft_taints=SoftTaints(),
            pdbs=self.pdbs,
            remember=lambda: state,
        )

    def _delete(self, chosen: NodesToDelete | None) -> CroppedNodes:
        def buckets(names: Iterable[str]) -> list[GroupNodes]:
            found: dict[str, list[str]] = {}
            for name in names:
                group = self._group(name)
                found.setdefault("" if group is None else group.id, []).append(name)
            return [GroupNodes(group=group, nodes=nodes) for group, nodes in found.items()]

        return CroppedNodes(
            empty=buckets(chosen.empty if chosen else ()), drain=buckets(chosen.drain if chosen else ())
        )

    # -- what is unneeded --------------------------------------------------------------------------------------------

    def _update_unneeded(self, candidates: Sequence[str]) -> dict[str, Moment]:
        """Name -> since when, empty nodes behind those that simulation found."""
        index, options = self.simulator.index, self.options
        self.unremovable_until = {
            name: time for name, time in self.memory.unremovable_until.items() if name in index and time > self.now
        }
        low = [name for name in candidates if self._is_low(name)]
        empty = self._within_minimum(self.simulator.empty(low, self._context()), len(low), None)
        known = self.memory.unneeded_since
        others = [name for name in low if name not in set(empty)]
        if options.scale_down_non_empty_candidates_count > 0:
            first = [name for name in others if name in known]
            others = [name for name in others if name not in known]
        else:
            first, others = others, []
        found = self._find(first, len(first))
        most = min(options.scale_down_non_empty_candidates_count - len(found), len(others))
        pool = math.ceil(len(self.nodes) * options.scale_down_candidates_pool_ratio)
        pool = min(max(pool, options.scale_down_candidates_pool_min_count), len(others))
        if most > 0:
            found += self._find(others[:pool], most)
        for name in empty:
            self.removable[name] = RemovableNode.of(name, {})
        return {name: known.get(name, self.now) for name in [*found, *empty]}

    def _is_low(self, name: str) -> bool:
        """Whether a node is used so little that it is worth a simulation."""
        node = self.nodes[self.simulator.index[name]]
        reason = None
        if name in self.unremovable_until:
            reason = reasons.RECENTLY_UNREMOVABLE
        elif is_being_deleted(node, self.now):
            reason = reasons.CURRENTLY_BEING_DELETED
        elif (node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED_ANNOTATION) == "true":
            reason = reasons.SCALE_DOWN_DISABLED_ANNOTATION
        if reason is not None:
            self.judged[name] = Eligibility(reason=reason)
        else:
            used, error = legacy_utilization(node, self.simulator.pods_on(name))
            threshold = self.options.scale_down_utilization_threshold
            needed = used.utilization >= threshold
            reason = reasons.NOT_UNDERUTILIZED if needed else None
            self.judged[name] = Eligibility(reason=reason, utilization=used, threshold=threshold, error=error)
        if reason is not None:
            self.unremovable[name] = UnremovableNode(reason=reason)
        return reason is None

    def _find(self, names: Iterable[str], most: int) -> list[str]:
        """Up to ``most`` nodes whose pods fit elsewhere, each judged on the whole cluster."""
        found: list[str] = []
        for name in names:
            if len(found) >= most:
                break
            answer = self._simulate(name, self._context())
            if isinstance(answer, RemovableNode):
                self.removable[name] = answer
                found.append(name)
            else:
                self._failed(answer)
        return found

    def _simulate(self, name: str, context: DrainContext) -> RemovableNode | UnremovableCandidate:
        checked = pods_to_drain(
            self.simulator.pods_on(name),
            context,
            system=self.options.skip_nodes_with_system_pods,
            storage=self.options.skip_nodes_with_local_storage,
        )
        if checked.blocking is not None:
            return UnremovableCandidate(
                node=name, reason=reasons.BLOCKED_BY_POD, blocking_pod=checked.blocking, error=checked.error
            )
        return self.simulator.find_places(name, [pod.key for pod in checked.pods])

    def _failed(self, answer: UnremovableCandidate) -> None:
        self.failures[answer.node] = answer
        self.unremovable[answer.node] = UnremovableNode(reason=answer.reason, blocking_pod=answer.blocking_pod)
        self.unremovable_until[answer.node] = later(self.now, _RECHECK)

    def _context(self, *, detailed: bool = False) -> DrainContext:
        return DrainContext(self.now, self.options, self.listers if detailed else None, self.pdbs)

    def _unneeded(self, name: str, since: Moment) -> UnneededNode:
        node = self.nodes[self.simulator.index[name]]
        ready = is_ready(node)
        threshold = self.options.scale_down_unneeded_time if ready else self.options.scale_down_unready_time
        return UnneededNode(node=node, drain=self.removable[name].drain, since=since, threshold=duration(threshold))

    # -- what to delete ----------------------------------------------------------------------------------------------

    def _choose(self, since: Mapping[str, Moment], limits: ResourceLimiter) -> tuple[str, NodesToDelete]:
        chosen = NodesToDelete()
        masters = self.simulator.masters()
        left = self._headroom(limits)
        candidates = []
        for node in self.nodes:
            name = node.metadata.name
            if name not in since or name in masters:
                continue
            reason = self._why_not_yet(node, since[name], left)
            if reason is None:
                candidates.append(name)
            else:
                chosen.unremovable[name] = reason
        if not candidates:
            return "ScaleDownNoUnneeded", chosen
        empty = self.simulator.empty(candidates, self._context())
        chosen.empty = self._within_minimum(empty, self.options.max_empty_bulk_delete, left)
        if chosen.empty:
            return "ScaleDownNodeDeleted", chosen
        for name in candidates:
            answer = self._simulate(name, self._context(detailed=True))
            if isinstance(answer, RemovableNode):
                self.removable[name] = answer
                chosen.drain = [name]
                return "ScaleDownNodeDeleteStarted", chosen
            self.failures[name] = answer
            self.unremovable[name] = UnremovableNode(reason=answer.reason, blocking_pod=answer.blocking_pod)
        return "ScaleDownNoNodeDeleted", chosen

    def _why_not_yet(self, node: Node, since: Moment, left: Mapping[str, int | None]) -> str | None:
        name = node.metadata.name
        if (node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED_ANNOTATION) == "true":
            return reasons.SCALE_DOWN_DISABLED_ANNOTATION
        if is_ready(node):
            if not self.now - since > duration(self.options.scale_down_unneeded_time):
                return reasons.NOT_UNNEEDED_LONG_ENOUGH
        elif not self.now - since > duration(self.options.scale_down_unready_time):
            return reasons.NOT_UNREADY_LONG_ENOUGH
        group = self._group(name)
        if group is None:
            return reasons.NOT_AUTOSCALED
        if group.target_size_error is not None:
            return reasons.UNEXPECTED_ERROR
        if group.size <= group.min_size:
            return reasons.NODE_GROUP_MIN_SIZE_REACHED
        return reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED if self._exceeds(node, group, left) else None

    def _headroom(self, limits: ResourceLimiter) -> dict[str, int | None]:
        """What may still go of each limited resource: what nodes that stay have above the minimum; None = unknown."""
        total: Counter[str] = Counter()
        unknown = False
        for node in self.nodes:
            if is_being_deleted(node, self.now):
                continue
            try:
                total.update(self._resources(node, self._group(node.metadata.name)))
            except AutoscalerError:
                unknown = True
        return {
            name: None if unknown and name not in ("cpu", "memory") else max(0, total[name] - least)
            for name, least in limits.min.items()
        }

    def _exceeds(self, node: Node, group: NodeGroup, left: Mapping[str, int | None]) -> bool:
        try:
            amounts = self._resources(node, group)
        except AutoscalerError:
            return True
        for name, amount in amounts.items():
            room = left.get(name, 0)
            if name in left and name != NODES and (room is None or amount > room):
                return True
        return False

    def _within_minimum(self, names: Iterable[str], most: int, left: dict[str, int | None] | None) -> list[str]:
        """The first ``most`` nodes that their groups' minima, and what is ``left`` of resources (consumed), let go."""
        spare: dict[str, int] = {}
        found: list[str] = []
        for name in names:
            group = self._group(name)
            if group is None or group.target_size_error is not None:
                continue
            room = spare.setdefault(group.id, max(0, group.size - group.min_size))
            node = self.nodes[self.simulator.index[name]]
            if not room or len(found) >= most:
                continue
            if left is not None:
                if self._exceeds(node, group, left):
                    continue
                for resource, amount in self._resources(node, group).items():
                    rest = left.get(resource)
                    if rest is not None:
                        left[resource] = rest - amount
            spare[group.id] -= 1
            found.append(name)
        return found

    def _resources(self, node: Node, group: NodeGroup | None) -> dict[str, int]:
        """What a node counts for. At that time every node counted for what it has itself."""
        return NodeResources(self.gpu_label).of(node, group)

    def _group(self, name: str) -> NodeGroup | None:
        try:
            return self.groups.of_node(name)
        except ProviderError:
            return None
