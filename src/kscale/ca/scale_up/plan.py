"""Plan of a scale-up. Sizes are available at once; names, texts and reasons are computed on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple, Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.capacity_buffers.injection import InjectedFakePods
from kscale.ca.errors import ErrorRecord
from kscale.ca.estimator.result import NO_NODE_PERMITTED, describe_limit
from kscale.ca.events import PodUidLookup
from kscale.ca.expander.chain import ExpanderStep
from kscale.ca.group_inputs import save_targets
from kscale.ca.loop_state import LoopState, RememberedTemplate
from kscale.ca.node_group_set import Comparator, ScaleUpInfo, find_differences
from kscale.ca.pod_lists import PendingPodList, get_record_keys
from kscale.ca.scale_up.expansion import PodGroup
from kscale.ca.scale_up.orchestrator import MinSizeScaleUpResult, OrchestratorResult
from kscale.ca.scale_up_status import (
    MAX_NODES_TOTAL_REASON,
    SCALE_UP_IN_COOLDOWN,
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
    SCALE_UP_SUCCESSFUL,
    CreatedGroupIds,
    ExpanderScore,
    GroupRejection,
    NoScaleUpInfo,
    PodCounts,
    ScaleUpChoice,
    ScaleUpPlanRecord,
    ScaleUpStatus,
    UnschedulablePods,
    format_not_triggered_reasons,
)
from kscale.effects import Event
from kscale.errors import InputError
from kscale.objects.argument_types import typed_methods
from kscale.objects.go_numbers import format_fixed
from kscale.objects.nodegroup import Groups
from kscale.records import Result, Rows
from kscale.scheduling.place import PlaceResult
from kscale.snapshot.pods.rows import take_records
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "FakePodCounts",
    "PodFilterResult",
    "ScaleUpPlan",
    "build_choices",
    "build_expander_score",
    "build_unschedulable_pods",
    "build_untried_events",
    "find_pods_beyond_limits",
]


def build_expander_score(step: ExpanderStep, group: str, *, survived: bool) -> ExpanderScore:
    """Build the record of how one expander of the chain scored a group; ``survived``: whether it kept the group."""
    filtered = step.filtered
    score = filtered.scores.get(group)
    finite = score is None or isfinite(score)
    return ExpanderScore(
        expander=step.expander,
        kept=survived,
        score=score if finite else None,
        not_finite="" if finite or score is None else format_fixed(score),
        parts={name: number for name, number in filtered.parts.get(group, {}).items() if isfinite(number)},
        note=filtered.notes.get(group) or filtered.skipped.get(group, ""),
    )


def build_choices(done: OrchestratorResult, chosen: Sequence[str], *, bound_effort: int = 0) -> list[ScaleUpChoice]:
    """Return one choice per group: groups in the provider's order, then candidates and created groups.

    ``done``: a scale-up; ``chosen``: ids of the chosen groups. ``bound_effort`` is the effort spent on the lower bound
    of one estimate, in units of about a microsecond.
    """
    options = {option.group: option for option in done.options}
    steps = done.expansion.steps if done.expansion is not None else []
    survivors_by_step = [{left.group for left in step.filtered.survivors} for step in steps]
    names = dict.fromkeys([*done.asked_groups, *(group.id for group in done.groups)])
    choices = []
    for name in names:
        option = options.get(name)
        if option is None:
            choices.append(ScaleUpChoice(group=name, skipped=list(done.skipped.get(name, []))))
            continue
        bound = option.estimate.bound(effort=bound_effort)
        scores = [
            build_expander_score(step, name, survived=name in survivors)
            for step, survivors in zip(steps, survivors_by_step, strict=True)
        ]
        choices.append(
            ScaleUpChoice(
                group=name,
                nodes=option.node_count,
                pods=option.pod_count,
                chosen=name in chosen,
                scores=scores,
                similar=list(option.similar),
                bound=bound.value,
                bound_method=bound.method,
            )
        )
    return choices


def find_pods_beyond_limits(done: OrchestratorResult) -> list[str]:
    """Return the pods of the chosen option that have no node because quotas or the node limit permit too few nodes.

    Upstream reports these pods as having triggered the scale-up, too.
    """
    best = done.best
    permitted = sum(info.new - info.current for info in done.status.scale_ups)
    if best is None or permitted >= best.node_count:
        return []
    estimate = best.estimate
    nodes = estimate.placement_numbers[estimate.order_numbers].tolist()
    new = [node for node in dict.fromkeys(nodes) if node >= len(estimate.snapshot.nodes)]
    refused = set(new[permitted:])
    return [name for name, node in zip(estimate.placed_pods, nodes, strict=True) if node in refused]


def build_unschedulable_pods(done: OrchestratorResult, left: Sequence[str], result: str) -> list[UnschedulablePods]:
    """Return the pods in ``left``, which stay pending after the last scale-up of a loop.

    Pods of one shape with the same reason share a record. ``result``: the reason of pods for which there is no other.
    """
    groups, best = done.pod_groups, done.best
    number_of = {name: number for number in range(len(groups)) for name in groups.keys_of(number)}
    unscheduled = best.estimate.reasons if best is not None else {}
    limit = describe_limit(best.limits) if best is not None else ""
    limited = f" ({limit})" if limit else ""
    cached: dict[int, tuple[PodGroup, str]] = {}
    pods_by_reason: dict[tuple[int, str], list[str]] = {}
    for name in left:
        number = number_of.get(name)
        exemplar = -1 if number is None else int(groups.exemplar_of[number])
        if number is not None and exemplar not in cached:
            cached[exemplar] = groups[number], _explain_pod_group(groups[number], done)
        group, reason = cached.get(exemplar, (None, ""))
        if group is not None and group.schedulable and best is not None and best.group not in group.verdicts:
            text = unscheduled.get(name, result)
            reason = f"{best.group} was chosen: {text}{limited if text == NO_NODE_PERMITTED else ''}"
        pods_by_reason.setdefault((exemplar, reason or result), []).append(name)
    return [
        UnschedulablePods(
            pods=names,
            why=reason,
            rejected=_build_rejections(cached[exemplar][0]) if exemplar >= 0 else {},
            taken_by=list(cached[exemplar][0].schedulable_groups) if exemplar >= 0 else [],
        )
        for (exemplar, reason), names in pods_by_reason.items()
    ]


def _explain_pod_group(group: PodGroup, done: OrchestratorResult) -> str:
    """Return why the pods of an equivalence group stay pending; empty if the reason is that of the whole scale-up."""
    best = done.best
    if not group.schedulable:
        item = NoScaleUpInfo(pod="", rejected_groups=group.errors, skipped_groups=done.skipped)
        return ", ".join(format_not_triggered_reasons(item, {*group.errors, *done.skipped})) or "no node group"
    if best is not None and best.group in group.verdicts:
        return f"{best.group} was chosen, which does not take it: {', '.join(group.verdicts[best.group].why)}"
    return ""


def _build_rejections(group: PodGroup) -> dict[str, GroupRejection]:
    """Return the verdicts of the node groups that reject the pods, by group id."""
    return {
        name: GroupRejection(plugin=verdict.plugin, reasons=list(verdict.why), numbers=list(verdict.numbers))
        for name, verdict in group.verdicts.items()
    }


@dataclass
class PodFilterResult:
    """Pods and cluster as a loop sees them before it scales up.

    - ``asked``: the pods that need nodes; None if the loop ended earlier.
    - ``observed``: the snapshot at the start of the loop.
    - ``unschedulable``, ``unprocessed``: the number of pending pods that the scheduler has given up, and has not
      processed yet.
    - ``fake_pods``: fake pods, which are not reported.
    """

    observed: Snapshot
    _: KW_ONLY
    unschedulable: int = 0
    unprocessed: int = 0
    lists: PodCounts = field(default_factory=PodCounts)
    placed: PlaceResult | None = None
    asked: PendingPodList | None = None
    young: PendingPodList | None = None
    fake_pods: InjectedFakePods = field(default_factory=InjectedFakePods)
    upcoming: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    scale_down_disabled: bool = False
    _after: Snapshot | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the pods that need nodes, without fake pods."""
        if self.asked is None:
            return []
        keys, fake_pods = self.asked.keys, self.fake_pods
        return [name for name in keys if name not in fake_pods] if fake_pods else keys

    @property
    def snapshot_after(self) -> Snapshot:
        """Return the simulated cluster, including the pods that were placed."""
        if self._after is not None:
            return self._after
        return self.placed.snapshot_after if self.placed is not None else self.observed

    @snapshot_after.setter
    def snapshot_after(self, after: Snapshot) -> None:
        """Set the simulated cluster."""
        self._after = after


class FakePodCounts(NamedTuple):
    """Numbers of pods that do not exist: of capacity buffers (``buffers``), or not created yet by controllers
    (``missing``).

    ``asked`` need nodes, of which ``helped`` get some; ``existing`` fit on existing or upcoming nodes.
    """

    asked: int
    helped: int
    existing: int
    buffers: bool
    missing: bool


_NOT_TRIED_TEXTS = {
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL: MAX_NODES_TOTAL_REASON,
    SCALE_UP_IN_COOLDOWN: "this loop does not scale up: the pods are too new, or it is reserved for scale-down",
}


@typed_methods()
class ScaleUpPlan(Result):
    """One loop of scale-up as if everything succeeded (or with the outcomes that the actions had).

    ``result``, ``error``, ``scale_ups``, ``min_sizes``, ``lists``, ``groups`` and ``warnings`` are available at once;
    the rest is computed on request. ``rounds`` holds every scale-up of the loop: more than one in a salvo, none if the
    loop ended earlier. ``groups`` holds the node groups with their target sizes after the plan; pass them to the next
    call together with ``state``. ``record()`` returns the complete result as a document, which describes its fields.

    ``pending`` = ``triggered`` + ``unschedulable`` + ``placed`` + ``young`` + ``not_tried``: the pods in question,
    those that get new nodes, those that stay without a node, those that fit without new nodes, and those that this
    loop does not consider.
    """

    def __init__(
        self,
        *,
        result: str,
        before: PodFilterResult,
        rounds: Sequence[OrchestratorResult] = (),
        minimum: MinSizeScaleUpResult | None = None,
        state: LoopState,
        groups: Groups,
        examples: Callable[[], dict[str, RememberedTemplate]] | None = None,
        requests: Mapping[str, tuple[str, str]] | None = None,
        comparator: Comparator | None = None,
    ) -> None:
        self.rounds = rounds
        self.groups = groups
        self.bound_effort = 0
        self._state = state
        self._examples = examples
        self._before = before
        self._minimum = minimum
        self._requests = requests or {}
        self._comparator = comparator
        self._events: Sequence[Event] = ()
        self.result = result
        self.lists = before.lists
        self.upcoming = before.upcoming
        asked = [done.expansion for done in rounds if done.expansion is not None]
        self.warnings = [*before.warnings, *(text for expansion in asked for text in expansion.warnings)]
        self.scale_down_disabled = before.scale_down_disabled
        self.error: ErrorRecord | None = rounds[-1].status.error if rounds else None
        self.scale_ups: list[ScaleUpInfo] = [info for done in rounds for info in done.status.scale_ups]
        self.min_sizes: list[ScaleUpInfo] = list(minimum.status.scale_ups) if minimum is not None else []

    def __repr__(self) -> str:
        parts = [*map(str, (*self.scale_ups, *self.min_sizes))]
        parts.append(
            f"{self.triggered_count} pods helped, {self.unschedulable_count} not, {self.lists.on_existing} fit already"
        )
        return f"<ScaleUpPlan: {self.result}, {', '.join(parts)}>"

    def table_rows(self) -> Rows:
        """Return one row per node group that grows for pods: its name, its size now, and its new size."""
        rows = [(info.group, info.current, info.new) for info in self.scale_ups]
        return Rows({"group": str, "current": int, "new": int}, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the complete plan as plain data, as :meth:`record` has it."""
        return self.record().to_dict()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle, with the example templates instead of the function that builds them."""
        return {**vars(self), "_state": self.state, "_examples": None}

    @cached_property
    def requests(self) -> dict[str, str]:
        """Map pods to their ProvisioningRequest (``namespace/name`` both), for pods that belong to a request."""
        return {pod: key for pod, (key, _) in self._requests.items()}

    @cached_property
    def fake_pods(self) -> FakePodCounts:
        """Count the fake pods. Fake pods are in no list of names, but they count in ``lists`` and in the options."""
        before = self._before
        asked = 0 if before.asked is None else len(before.asked) - len(before.names)
        placed = {} if before.placed is None or not before.fake_pods else before.placed.placed
        return FakePodCounts(
            asked=asked,
            helped=self.triggered_count - len(self.triggered) if asked else 0,
            existing=sum(pod in before.fake_pods for pod in placed),
            buffers=bool(before.fake_pods.buffers),
            missing=bool(before.fake_pods.missing),
        )

    @property
    def schedulable(self) -> list[str]:
        """List the pending pods that fit on existing or upcoming nodes, fake pods included."""
        return [] if self._before.placed is None else list(self._before.placed.placed)

    # -- numbers -----------------------------------------------------------------------------------------------------

    @property
    def new_node_count(self) -> int:
        """Count the nodes that are added for pods."""
        return sum(info.new - info.current for info in self.scale_ups)

    @property
    def triggered_count(self) -> int:
        """Count the pods that triggered the scale-up, fake pods included."""
        return sum(done.best.pod_count for done in self._resized_rounds if done.best is not None)

    @property
    def unschedulable_count(self) -> int:
        """Count the pods that stay pending, fake pods and those that wait for their turn included."""
        return self.lists.asked - self.triggered_count - sum(len(done.existing) for done in self.rounds)

    @property
    def chosen(self) -> str | None:
        """Return the id of the group that was chosen first, None if none was."""
        return next(iter(self._chosen), None)

    @property
    def _resized_rounds(self) -> list[OrchestratorResult]:
        """Return the scale-ups that resized groups."""
        return [done for done in self.rounds if done.status.scale_ups]

    @property
    def _chosen(self) -> list[str]:
        """Return the ids of the groups that were chosen, by round."""
        return [done.best.group for done in self._resized_rounds if done.best is not None]

    @property
    def created_groups(self) -> list[CreatedGroupIds]:
        """List the groups that would be created."""
        return [groups for done in self.rounds for groups in done.status.created_groups]

    @property
    def snapshot_after(self) -> Snapshot:
        """Return the simulated cluster after the loop, which scale-down uses in the same loop.

        Pods that fit on existing or upcoming nodes run there; nodes that have not started are left out. After a salvo
        the cluster includes the new nodes of all rounds but the last.
        """
        return self._before.snapshot_after

    # -- names and texts ---------------------------------------------------------------------------------------------

    @cached_property
    def state(self) -> LoopState:
        """Return the state for the next loop."""
        return self._state if self._examples is None else replace(self._state, templates=self._examples())

    @cached_property
    def options(self) -> list[ScaleUpChoice]:
        """List every group as a way to scale up, as the first scale-up saw it; empty if there was none."""
        return build_choices(self.rounds[0], self._chosen, bound_effort=self.bound_effort) if self.rounds else []

    @cached_property
    def not_similar(self) -> dict[str, list[str]]:
        """Return why other groups that take the pods do not share the new nodes of the group chosen first.

        Maps a group to the labels or resources that differ, the chosen group's values first. Empty unless similar
        groups are balanced.
        """
        if self._comparator is None or not self._resized_rounds or self._resized_rounds[0].best is None:
            return {}
        done, best = self._resized_rounds[0], self._resized_rounds[0].best
        differences: dict[str, list[str]] = {}
        for option in done.options:
            if option.group == best.group or option.group in best.similar or option.group not in done.templates:
                continue
            details = find_differences(done.templates[best.group], done.templates[option.group], self._comparator)
            if details:
                differences[option.group] = details
        return differences

    @cached_property
    def triggered(self) -> list[str]:
        """List the pods that triggered the scale-up."""
        return list(chain.from_iterable(done.status.pods_triggered for done in self._resized_rounds))

    @cached_property
    def beyond_limits(self) -> list[str]:
        """List the triggering pods for which the limits leave no node, as they permit too few nodes."""
        names = [name for done in self._resized_rounds for name in find_pods_beyond_limits(done)]
        return [name for name in names if name not in self._before.fake_pods]

    @cached_property
    def _left(self) -> list[str]:
        """List the pods that stay pending, except those that wait for their turn."""
        positions = self._find_left_positions()
        if positions is not None and self._before.asked is not None:
            return get_record_keys(take_records(self._before.asked.records, positions))
        names = self._before.names
        if not self.rounds:
            return names
        waiting_turn = self.rounds[-1].waiting_turn
        helped = {*self.triggered, *waiting_turn, *(name for done in self.rounds for name in done.existing)}
        return [name for name in names if name not in helped]

    def _find_left_positions(self) -> NDArray[np.int64] | None:
        """Return the positions of the pods of :attr:`_left` among the pods that need nodes: int64[n].

        Only computed if the loop ran exactly one scale-up, which succeeded, for all these pods, and if no pod is fake.
        Otherwise None: the pods must then be looked up by name.
        """
        if (
            self._before.asked is None
            or self._before.fake_pods
            or not len(self.rounds) == len(self._resized_rounds) == 1
        ):
            return None
        done, records = self.rounds[0], self._before.asked.records
        best = done.best
        if done.status.result != SCALE_UP_SUCCESSFUL or done.existing or done.waiting_turn or best is None:
            return None
        if best.estimate.records is not records:
            return None
        stays = np.ones(len(records), dtype=np.bool_)
        stays[best.estimate.pod_of[best.estimate.order_numbers]] = False
        return np.flatnonzero(stays)

    @property
    def without_node(self) -> set[str]:
        """Return the pods that stay pending, those that wait for their turn included.

        Faster than ``remain_unschedulable``, which has the reasons.
        """
        return {*self._left, *(self.rounds[-1].waiting_turn if self.rounds else ())}

    @cached_property
    def remain_unschedulable(self) -> list[UnschedulablePods]:
        """List the pods that stay pending with the reasons; pods of one shape with the same reason share a record."""
        left = self._left
        if not self.rounds:
            return [UnschedulablePods(pods=left, why=_NOT_TRIED_TEXTS.get(self.result, self.result))] if left else []
        last = self.rounds[-1]
        other_pods = [name for name in left if name not in self._requests]
        pending = build_unschedulable_pods(last, other_pods, self.result)
        pending += self._unschedulable_of_requests(last, [name for name in left if name in self._requests])
        if last.waiting_turn:
            reason = "provisioning requests and other pods take turns: this loop was for the others"
            pending.append(UnschedulablePods(pods=list(last.waiting_turn), why=reason))
        return pending

    def _unschedulable_of_requests(self, last: OrchestratorResult, left: Sequence[str]) -> list[UnschedulablePods]:
        """Return the pending pods of unprovisioned requests, with the name and the message of the request.

        ``last``: the last scale-up; ``left``: the pods, which all belong to a request.
        """
        pending = []
        for key in dict.fromkeys(self.requests[name] for name in left):
            request_pods = [name for name in left if self.requests[name] == key]
            message = self._requests[request_pods[0]][1]
            for item in build_unschedulable_pods(last, request_pods, ""):
                parts = [part.rstrip(".") for part in (message, item.why) if part]
                reason = f"ProvisioningRequest {key}: {'; '.join(parts) or self.result}"
                pending.append(
                    UnschedulablePods(pods=item.pods, why=reason, rejected=item.rejected, taken_by=item.taken_by)
                )
        return pending

    @cached_property
    def placed(self) -> dict[str, str]:
        """Map pods that fit without new nodes to their nodes."""
        if self._before.placed is None:
            return {}
        placement, fake_pods = self._before.placed.placed, self._before.fake_pods
        for done in self.rounds:
            if done.existing:
                placement = {**placement, **done.existing}
        return {pod: node for pod, node in placement.items() if pod not in fake_pods} if fake_pods else placement

    @cached_property
    def unschedulable(self) -> list[str]:
        """List the pods that stay without a node. :meth:`explain` returns the reason of each."""
        return [name for pods in self.remain_unschedulable for name in pods.pods]

    @cached_property
    def pending(self) -> list[str]:
        """List the pods in question, each once: placed, triggered, unschedulable, too young, and not tried."""
        return list(dict.fromkeys([*self.placed, *self.triggered, *self.unschedulable, *self.young, *self.not_tried]))

    @cached_property
    def cost(self) -> float | None:
        """Return the price of the new nodes per hour; None if the price of a group that grows is not known.

        Nodes of groups that grow to their minimum size count, too. 0 without new nodes.
        """
        prices = {group.id: group.price for group in self.groups}
        costs = [
            None if (price := prices.get(info.group)) is None else price * (info.new - info.current)
            for info in (*self.scale_ups, *self.min_sizes)
        ]
        known = [each for each in costs if each is not None]
        return sum(known) + 0.0 if len(known) == len(costs) else None

    def explain(self, pod: str) -> str:
        """Return what the loop does for a pod, or why it does nothing, in one line.

        ``pod``: ``namespace/name``. Raises InputError if the pod is not part of this plan.
        """
        if pod in self.placed:
            return f"fits {self.placed[pod]} without new nodes"
        if pod in self.triggered:
            beyond = "; limits leave no node for it" if pod in self.beyond_limits else ""
            return f"triggered scale-up of {', '.join(map(str, self.scale_ups))}{beyond}"
        for pods in self.remain_unschedulable:
            if pod in pods.pods:
                rejected = [f"{group}: {', '.join(no.reasons) or no.plugin}" for group, no in pods.rejected.items()]
                return "; ".join([pods.why, *rejected])
        if pod in self.young:
            return "too new for this loop"
        if pod in self.not_tried:
            return "not tried: time ran out"
        raise InputError(f"pod {pod!r} is not part of this plan")

    @cached_property
    def young(self) -> list[str]:
        """List the pods that are too young to trigger a scale-up."""
        return self._before.young.keys if self._before.young is not None else []

    @cached_property
    def not_tried(self) -> list[str]:
        """List the pods that were not tried because time ran out."""
        return self._before.placed.not_tried if self._before.placed is not None else []

    @property
    def events(self) -> list[Event]:
        """List upstream's events in order, for a plan of a dry run.

        A caller who runs the steps gets the events as actions instead.
        """
        return list(self._events)

    def remembering(self, described: Mapping[str, int | None]) -> Self:
        """Add the target sizes of groups to the state, until their nodes have registered; return this plan.

        ``described``: target sizes in the caller's descriptions, by group id (:func:`save_targets`).
        """
        self._state = save_targets(self._state, described, self.groups)
        self.__dict__.pop("state", None)
        return self

    def with_events(self, events: Sequence[Event]) -> Self:
        """Set the events of the dry run, in order, and return this plan."""
        self._events = events
        return self

    @cached_property
    def unmodelled(self) -> list[str]:
        """List the features that pods use and that kscale does not model."""
        features = dict.fromkeys(self._before.placed.unmodelled if self._before.placed is not None else ())
        for done in self.rounds:
            features |= dict.fromkeys(done.unmodelled)
        return list(features)

    def record(self) -> ScaleUpPlanRecord:
        """Return the complete result as a record."""
        return ScaleUpPlanRecord(**{name: getattr(self, name) for name in ScaleUpPlanRecord.__struct_fields__})


def build_untried_events(before: PodFilterResult, result: str, uid_of: PodUidLookup) -> list[Event]:
    """Build the events of pods for which no scale-up was tried because the cluster has its maximum number of nodes.

    ``before``: the pods; ``result``: upstream's name of the loop's result, which says whether this is the case. The
    list is empty for other results. ``uid_of`` returns a pod's UID.
    """
    if result != SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL or before.asked is None:
        return []
    left = [NoScaleUpInfo(pod=name) for name in before.asked.keys]
    return before.fake_pods.events(ScaleUpStatus(result=result, pods_remain_unschedulable=left), uid_of)
