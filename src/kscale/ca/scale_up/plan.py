"""The plan of a scale-up: sizes at once; names, texts and reasons on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from kscale.ca.capacity_buffers.injection import InjectedFakePods
from kscale.ca.errors import ErrorRecord
from kscale.ca.estimator.limiter import describe_limit
from kscale.ca.estimator.result import NO_NODE_PERMITTED
from kscale.ca.events import PodUidLookup
from kscale.ca.expander.chain import ExpanderStep
from kscale.ca.go_math import format_fixed
from kscale.ca.group_inputs import save_targets
from kscale.ca.node_group_set import Comparator, ScaleUpInfo, find_differences
from kscale.ca.pod_lists.lists import PendingPodList
from kscale.ca.scale_up.equivalence_groups import PodGroup
from kscale.ca.scale_up.min_size import MinSizeScaleUpResult
from kscale.ca.scale_up.orchestrator import OrchestratorResult
from kscale.ca.scale_up.records import (
    ExpanderScore,
    GroupRejection,
    PendingPods,
    PodCounts,
    ScaleUpChoice,
    ScaleUpPlanRecord,
)
from kscale.ca.scale_up_status import (
    MAX_NODES_TOTAL_REASON,
    SCALE_UP_IN_COOLDOWN,
    SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL,
    MadeGroups,
    NoScaleUpInfo,
    ScaleUpStatus,
    format_not_triggered_reasons,
)
from kscale.ca.state import LoopState, RememberedTemplate
from kscale.effects import Event
from kscale.objects.nodegroups import Groups
from kscale.scheduling.place import PlaceResult
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "FakePodCounts",
    "PodFilterResult",
    "ScaleUpPlan",
    "build_choices",
    "build_expander_score",
    "build_pending_pods",
    "build_untried_events",
    "find_pods_beyond_limits",
]


def build_expander_score(step: ExpanderStep, group: str, *, kept: bool) -> ExpanderScore:
    """What an expander of the chain made of a group."""
    filtered = step.filtered
    score = filtered.scores.get(group)
    finite = score is None or isfinite(score)
    return ExpanderScore(
        expander=step.expander,
        kept=kept,
        score=score if finite else None,
        not_finite="" if finite or score is None else format_fixed(score),
        parts={name: number for name, number in filtered.parts.get(group, {}).items() if isfinite(number)},
        note=filtered.notes.get(group) or filtered.skipped.get(group, ""),
    )


def build_choices(done: OrchestratorResult, chosen: Sequence[str], *, bound_effort: int = 0) -> list[ScaleUpChoice]:
    """Every group, in the provider's order, then those that could be made or were. ``bound_effort``: of one bound."""
    options = {option.group: option for option in done.options}
    steps = done.expansion.steps if done.expansion is not None else []
    kept = [{left.group for left in step.filtered.survivors} for step in steps]
    names = dict.fromkeys([*done.asked_groups, *(group.id for group in done.groups)])
    found = []
    for name in names:
        option = options.get(name)
        if option is None:
            found.append(ScaleUpChoice(group=name, skipped=list(done.skipped.get(name, []))))
            continue
        bound = option.estimate.bound(effort=bound_effort)
        scores = [
            build_expander_score(step, name, kept=name in survivors)
            for step, survivors in zip(steps, kept, strict=True)
        ]
        found.append(
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
    return found


def find_pods_beyond_limits(done: OrchestratorResult) -> list[str]:
    """Pods of the chosen option that its estimate puts on nodes that quotas or the limit on nodes did not permit.

    Upstream says of them, too, that they triggered the scale-up.
    """
    best = done.best
    permitted = sum(info.new - info.current for info in done.status.scale_ups)
    if best is None or permitted >= best.node_count:
        return []
    estimate = best.estimate
    nodes = estimate.placement_numbers[estimate.order_numbers].tolist()
    new = [node for node in dict.fromkeys(nodes) if node >= len(estimate.snapshot.nodes)]
    refused = set(new[permitted:])
    return [name for name, node in zip(estimate.scheduled, nodes, strict=True) if node in refused]


def build_pending_pods(done: OrchestratorResult, left: Sequence[str], result: str) -> list[PendingPods]:
    """Pods that stay after the last scale-up of a loop: those of which everything said is the same together."""
    groups, best = done.pod_groups, done.best
    number_of = {name: number for number in range(len(groups)) for name in groups.keys_of(number)}
    unscheduled = best.estimate.unscheduled if best is not None else {}
    limit = describe_limit(best.limits) if best is not None else ""
    limited = f" ({limit})" if limit else ""
    known: dict[int, tuple[PodGroup, str]] = {}
    found: dict[tuple[int, str], list[str]] = {}
    for name in left:
        number = number_of.get(name)
        exemplar = -1 if number is None else int(groups.exemplar_of[number])
        if number is not None and exemplar not in known:
            known[exemplar] = groups[number], _explain_pod_group(groups[number], done)
        group, why = known.get(exemplar, (None, ""))
        if group is not None and group.schedulable and best is not None and best.group not in group.verdicts:
            text = unscheduled.get(name, result)
            why = f"{best.group} was chosen: {text}{limited if text == NO_NODE_PERMITTED else ''}"
        found.setdefault((exemplar, why or result), []).append(name)
    return [
        PendingPods(
            pods=names,
            why=why,
            rejected=_build_rejections(known[exemplar][0]) if exemplar >= 0 else {},
            taken_by=list(known[exemplar][0].schedulable_groups) if exemplar >= 0 else [],
        )
        for (exemplar, why), names in found.items()
    ]


def _explain_pod_group(group: PodGroup, done: OrchestratorResult) -> str:
    """Why pods of an equivalence group stay; empty where it is the same for all pods of the scale-up."""
    best = done.best
    if not group.schedulable:
        item = NoScaleUpInfo(pod="", rejected_groups=group.errors, skipped_groups=done.skipped)
        return ", ".join(format_not_triggered_reasons(item, {*group.errors, *done.skipped})) or "no node group"
    if best is not None and best.group in group.verdicts:
        return f"{best.group} was chosen, which does not take it: {', '.join(group.verdicts[best.group].why)}"
    return ""


def _build_rejections(group: PodGroup) -> dict[str, GroupRejection]:
    return {
        name: GroupRejection(plugin=verdict.plugin, reasons=list(verdict.why), numbers=list(verdict.numbers))
        for name, verdict in group.verdicts.items()
    }


@dataclass
class PodFilterResult:
    """What a loop knows before it scales up. ``asked``: the pods that need nodes; None: the loop ended before.

    ``found``: the snapshot that it began with; ``unschedulable``, ``unprocessed``: how many pending pods the scheduler
    has given up, and has not looked at; ``made_up``: pods that nobody has made, of which nothing is told.
    """

    found: Snapshot
    _: KW_ONLY
    unschedulable: int = 0
    unprocessed: int = 0
    lists: PodCounts = field(default_factory=PodCounts)
    placed: PlaceResult | None = None
    asked: PendingPodList | None = None
    young: PendingPodList | None = None
    made_up: InjectedFakePods = field(default_factory=InjectedFakePods)
    upcoming: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    scale_down_disabled: bool = False
    _after: Snapshot | None = None

    @property
    def names(self) -> list[str]:
        """The pods that need nodes, as far as somebody has made them."""
        return [] if self.asked is None else [name for name in self.asked.keys if name not in self.made_up]

    @property
    def snapshot_after(self) -> Snapshot:
        """The simulated cluster with what found a place in it."""
        if self._after is not None:
            return self._after
        return self.placed.snapshot_after if self.placed is not None else self.found

    @snapshot_after.setter
    def snapshot_after(self, after: Snapshot) -> None:
        self._after = after


class FakePodCounts(NamedTuple):
    """Pods that nobody has made: of capacity buffers (``buffers``), or that controllers have yet to make (``missing``).

    ``asked`` need nodes, of which ``helped`` get some; ``existing`` fit on nodes that exist or are coming.
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


class ScaleUpPlan:
    """One loop of scale-up as if everything succeeded (or as its outcomes were).

    ``result``, ``error``, ``scale_ups``, ``min_sizes``, ``lists``, ``groups`` and ``warnings`` are there at once, the
    rest is made when it is asked for. ``rounds``: every scale-up of the loop, more than one in a salvo, none if the
    loop ended before. ``groups``: the node groups with their target sizes after the plan; pass them to the next call,
    with ``state``. ``record()`` is the whole answer as a document; it says what the fields are.
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
        said = [*map(str, (*self.scale_ups, *self.min_sizes))]
        said.append(
            f"{self.triggered_count} pods helped, {self.pending_count} not, {self.lists.on_existing} fit already"
        )
        return f"ScaleUpPlan({self.result}: {', '.join(said)})"

    def _repr_html_(self) -> str:
        """For a notebook."""
        from kscale.html import notebook

        rows = [(info.group, info.current, info.new) for info in self.scale_ups]
        return notebook.listing(repr(self), ("group", "size", "new size"), rows)

    def __getstate__(self) -> dict[str, Any]:
        """With the examples to remember instead of what makes them."""
        return {**vars(self), "_state": self.state, "_examples": None}

    @cached_property
    def requests(self) -> dict[str, str]:
        """Pod -> ProvisioningRequest (``namespace/name`` both), for pods that stand for a request."""
        return {pod: key for pod, (key, _) in self._requests.items()}

    @cached_property
    def fake_pods(self) -> FakePodCounts:
        """How many of the pods are fake: in no list of names, but in ``lists`` and in the options."""
        before = self._before
        asked = 0 if before.asked is None else len(before.asked) - len(before.names)
        placed = {} if before.placed is None or not before.made_up else before.placed.placement
        return FakePodCounts(
            asked=asked,
            helped=self.triggered_count - len(self.triggered) if asked else 0,
            existing=sum(pod in before.made_up for pod in placed),
            buffers=bool(before.made_up.buffers),
            missing=bool(before.made_up.missing),
        )

    @property
    def schedulable(self) -> list[str]:
        """Pods that wait although there is a place for them, on nodes that are there or on their way."""
        return [] if self._before.placed is None else list(self._before.placed.placement)

    # -- numbers -----------------------------------------------------------------------------------------------------

    @property
    def new_nodes(self) -> int:
        """How many nodes are added for pods."""
        return sum(info.new - info.current for info in self.scale_ups)

    @property
    def triggered_count(self) -> int:
        """How many pods are helped."""
        return sum(done.best.pod_count for done in self._good if done.best is not None)

    @property
    def pending_count(self) -> int:
        """How many pods stay without a place."""
        return self.lists.asked - self.triggered_count - sum(len(done.existing) for done in self.rounds)

    @property
    def chosen(self) -> str | None:
        """The group that was chosen (first)."""
        return next(iter(self._chosen), None)

    @property
    def _good(self) -> list[OrchestratorResult]:
        return [done for done in self.rounds if done.status.scale_ups]

    @property
    def _chosen(self) -> list[str]:
        return [done.best.group for done in self._good if done.best is not None]

    @property
    def created_groups(self) -> list[MadeGroups]:
        """Groups that would be made."""
        return [made for done in self.rounds for made in done.status.created_groups]

    @property
    def snapshot_after(self) -> Snapshot:
        """The simulated cluster after the loop: pods that fit on nodes that exist or are coming run there, nodes that
        have not started are left out. What scale-down is to go by in the same loop. Of a salvo the nodes of all rounds
        but the last are in it."""
        return self._before.snapshot_after

    # -- names and texts ---------------------------------------------------------------------------------------------

    @cached_property
    def state(self) -> LoopState:
        """For the next loop."""
        return self._state if self._examples is None else replace(self._state, templates=self._examples())

    @cached_property
    def options(self) -> list[ScaleUpChoice]:
        """Every group as a way to scale up."""
        return build_choices(self.rounds[0], self._chosen, bound_effort=self.bound_effort) if self.rounds else []

    @cached_property
    def not_similar(self) -> dict[str, list[str]]:
        """Why groups that would take pods, too, do not share the new nodes of the group chosen first: the labels or
        resources that differ, its own values first. Empty unless similar groups are balanced."""
        if self._comparator is None or not self._good or self._good[0].best is None:
            return {}
        done, best = self._good[0], self._good[0].best
        found: dict[str, list[str]] = {}
        for option in done.options:
            if option.group == best.group or option.group in best.similar or option.group not in done.templates:
                continue
            details = find_differences(done.templates[best.group], done.templates[option.group], self._comparator)
            if details:
                found[option.group] = details
        return found

    @cached_property
    def triggered(self) -> list[str]:
        """The pods that are helped."""
        return list(chain.from_iterable(done.status.pods_triggered for done in self._good))

    @cached_property
    def beyond_limits(self) -> list[str]:
        """Those of the pods that are helped for which the limits leave no node: fewer were permitted than they need."""
        names = [name for done in self._good for name in find_pods_beyond_limits(done)]
        return [name for name in names if name not in self._before.made_up]

    @cached_property
    def pending(self) -> list[PendingPods]:
        """The pods that are not, like ones together, and why."""
        names = self._before.names
        if not self.rounds:
            return [PendingPods(pods=names, why=_NOT_TRIED_TEXTS.get(self.result, self.result))] if names else []
        last = self.rounds[-1]
        helped = {*self.triggered, *last.waiting_turn, *(name for done in self.rounds for name in done.existing)}
        left = [name for name in names if name not in helped]
        of_others = [name for name in left if name not in self._requests]
        found = build_pending_pods(last, of_others, self.result)
        found += self._pending_of_requests(last, [name for name in left if name in self._requests])
        if last.waiting_turn:
            why = "provisioning requests and other pods take turns: this loop was for the others"
            found.append(PendingPods(pods=list(last.waiting_turn), why=why))
        return found

    def _pending_of_requests(self, last: OrchestratorResult, left: Sequence[str]) -> list[PendingPods]:
        """The pods of requests that were not provided: the request by name, and what became of it."""
        found = []
        for key in dict.fromkeys(self.requests[name] for name in left):
            of_request = [name for name in left if self.requests[name] == key]
            message = self._requests[of_request[0]][1]
            for item in build_pending_pods(last, of_request, ""):
                parts = [part.rstrip(".") for part in (message, item.why) if part]
                why = f"ProvisioningRequest {key}: {'; '.join(parts) or self.result}"
                found.append(PendingPods(pods=item.pods, why=why, rejected=item.rejected, taken_by=item.taken_by))
        return found

    @cached_property
    def existing(self) -> dict[str, str]:
        """Pod -> node, for pods that fit without new nodes."""
        if self._before.placed is None:
            return {}
        found, made_up = self._before.placed.placement, self._before.made_up
        for done in self.rounds:
            if done.existing:
                found = {**found, **done.existing}
        return {pod: node for pod, node in found.items() if pod not in made_up} if made_up else found

    @cached_property
    def young(self) -> list[str]:
        """Pods that are given some more time."""
        return self._before.young.keys if self._before.young is not None else []

    @cached_property
    def not_tried(self) -> list[str]:
        """Pods that nobody had time for."""
        return self._before.placed.not_tried if self._before.placed is not None else []

    @property
    def events(self) -> list[Event]:
        """Upstream's events, in order, of a plan that was made as if everything succeeded. Whoever runs the steps gets
        them as actions instead."""
        return list(self._events)

    def remembering(self, described: Mapping[str, int | None]) -> Self:
        """Return the same plan, whose state keeps the target sizes of groups (``described``: as the caller said them)
        until their nodes have come."""
        self._state = save_targets(self._state, described, self.groups)
        self.__dict__.pop("state", None)
        return self

    def with_events(self, events: Sequence[Event]) -> Self:
        """The same plan, and what was said on the way (``events``, in order)."""
        self._events = events
        return self

    @cached_property
    def unmodelled(self) -> list[str]:
        """What pods use that no rule here looks at."""
        found = dict.fromkeys(self._before.placed.unmodelled if self._before.placed is not None else ())
        for done in self.rounds:
            found |= dict.fromkeys(done.unmodelled)
        return list(found)

    def record(self) -> ScaleUpPlanRecord:
        """The whole answer."""
        return ScaleUpPlanRecord(
            result=self.result,
            error=self.error,
            chosen=self.chosen,
            scale_ups=self.scale_ups,
            options=self.options,
            triggered=self.triggered,
            beyond_limits=self.beyond_limits,
            pending=self.pending,
            existing=self.existing,
            young=self.young,
            lists=self.lists,
            not_tried=self.not_tried,
            scale_down_disabled=self.scale_down_disabled,
            upcoming=self.upcoming,
            created_groups=self.created_groups,
            min_sizes=self.min_sizes,
            not_similar=self.not_similar,
            events=self.events,
            warnings=self.warnings,
            unmodelled=self.unmodelled,
            state=self.state,
        )


def build_untried_events(before: PodFilterResult, result: str, uid_of: PodUidLookup) -> list[Event]:
    """What is told of pods for which no scale-up was tried: that the cluster has all the nodes it may have."""
    if result != SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL or before.asked is None:
        return []
    left = [NoScaleUpInfo(pod=name) for name in before.asked.keys]
    return before.made_up.events(ScaleUpStatus(result=result, pods_remain_unschedulable=left), uid_of)
