"""What a scale-up decides: sizes at once; names, texts and reasons when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.errors import ErrorRecord
from kscale.ca.event_subjects import UidOf
from kscale.ca.pod_lists.made_up import MadeUpPods
from kscale.ca.pod_lists.waiting import WaitingPods
from kscale.ca.remembered_targets import remember_targets
from kscale.ca.scale_up.explaining import beyond_limits, choices, pending_pods
from kscale.ca.scale_up.min_size import MinSizeScaleUp
from kscale.ca.scale_up.orchestration import Orchestration
from kscale.ca.scale_up.records import PendingPods, PodCounts, ScaleUpChoice, ScaleUpPlanRecord
from kscale.ca.scale_up.status import (
    IN_COOLDOWN,
    LIMITED_BY_MAX_NODES_TOTAL,
    MAX_NODES_REACHED,
    MadeGroups,
    RemainingPod,
    ScaleUpStatus,
)
from kscale.ca.similarity import Comparator, similar
from kscale.ca.state import LoopState, RememberedTemplate
from kscale.effects import Event
from kscale.objects.nodegroups import Groups
from kscale.scheduling.place import PlaceResult
from kscale.snapshot.snapshot import Snapshot

__all__ = ["FakePods", "Preparation", "ScaleUpPlan", "events_of_untried"]


@dataclass
class Preparation:
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
    asked: WaitingPods | None = None
    young: WaitingPods | None = None
    made_up: MadeUpPods = field(default_factory=MadeUpPods)
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


class FakePods(NamedTuple):
    """Pods that nobody has made: of capacity buffers (``buffers``), or that controllers have yet to make (``missing``).

    ``asked`` need nodes, of which ``helped`` get some; ``existing`` fit on nodes that exist or are coming.
    """

    asked: int
    helped: int
    existing: int
    buffers: bool
    missing: bool


_WHY_NOT_ASKED = {
    LIMITED_BY_MAX_NODES_TOTAL: MAX_NODES_REACHED,
    IN_COOLDOWN: "this loop does not scale up: the pods are too new, or it is reserved for scale-down",
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
        before: Preparation,
        rounds: Sequence[Orchestration] = (),
        minimum: MinSizeScaleUp | None = None,
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
    def fake_pods(self) -> FakePods:
        """How many of the pods are fake: in no list of names, but in ``lists`` and in the options."""
        before = self._before
        asked = 0 if before.asked is None else len(before.asked) - len(before.names)
        placed = {} if before.placed is None or not before.made_up else before.placed.placement
        return FakePods(
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
    def _good(self) -> list[Orchestration]:
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
        return choices(self.rounds[0], self._chosen, bound_effort=self.bound_effort) if self.rounds else []

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
            verdict = similar(done.templates[best.group], done.templates[option.group], self._comparator)
            if not verdict.similar:
                found[option.group] = verdict.details
        return found

    @cached_property
    def triggered(self) -> list[str]:
        """The pods that are helped."""
        return list(chain.from_iterable(done.status.pods_triggered for done in self._good))

    @cached_property
    def beyond_limits(self) -> list[str]:
        """Those of the pods that are helped for which the limits leave no node: fewer were permitted than they need."""
        names = [name for done in self._good for name in beyond_limits(done)]
        return [name for name in names if name not in self._before.made_up]

    @cached_property
    def pending(self) -> list[PendingPods]:
        """The pods that are not, like ones together, and why."""
        names = self._before.names
        if not self.rounds:
            return [PendingPods(pods=names, why=_WHY_NOT_ASKED.get(self.result, self.result))] if names else []
        last = self.rounds[-1]
        helped = {*self.triggered, *last.waiting_turn, *(name for done in self.rounds for name in done.existing)}
        left = [name for name in names if name not in helped]
        of_others = [name for name in left if name not in self._requests]
        found = pending_pods(last, of_others, self.result)
        found += self._pending_of_requests(last, [name for name in left if name in self._requests])
        if last.waiting_turn:
            why = "provisioning requests and other pods take turns: this loop was for the others"
            found.append(PendingPods(pods=list(last.waiting_turn), why=why))
        return found

    def _pending_of_requests(self, last: Orchestration, left: Sequence[str]) -> list[PendingPods]:
        """The pods of requests that were not provided: the request by name, and what became of it."""
        found = []
        for key in dict.fromkeys(self.requests[name] for name in left):
            of_request = [name for name in left if self.requests[name] == key]
            message = self._requests[of_request[0]][1]
            for item in pending_pods(last, of_request, ""):
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
        self._state = remember_targets(self._state, described, self.groups)
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


def events_of_untried(before: Preparation, result: str, uid_of: UidOf) -> list[Event]:
    """What is told of pods for which no scale-up was tried: that the cluster has all the nodes it may have."""
    if result != LIMITED_BY_MAX_NODES_TOTAL or before.asked is None:
        return []
    left = [RemainingPod(pod=name) for name in before.asked.keys]
    return before.made_up.events(ScaleUpStatus(result=result, pods_remain_unschedulable=left), uid_of)
