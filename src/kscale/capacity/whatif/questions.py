"""Answers the question of a scenario: runs the decision (scale-up, scale-down, estimate, mix ...) on the edited
cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import msgspec

from kscale.ca.entry_points import scale_up
from kscale.ca.expander.chain import GRPC_EXPANDER, expand
from kscale.ca.expander.price import build_group_prices
from kscale.ca.loop_context import LoopInputs
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import drop_expendable_pods
from kscale.ca.scale_up.plan import ScaleUpPlan
from kscale.capacity.estimate import EXPENDABLE_CUTOFF, estimate_groups, requests_tpus
from kscale.capacity.group_templates import with_templates
from kscale.capacity.headroom import headroom
from kscale.capacity.karpenter.plan import PoolOffers, count_by_group, place_pending
from kscale.capacity.mix import ALL, MixOptions, MixPlan, bound_cost_of_nodes, mix, offers_of
from kscale.capacity.mix.offers import subjects
from kscale.capacity.records import EstimateReport
from kscale.capacity.scale_down import ScaleDownNode, ScaleDownReport, report_scale_down
from kscale.capacity.whatif.scenarios import Question
from kscale.capacity.whatif.world import Nodes, World
from kscale.effects import Moment, moment
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.nodegroup import NodeGroup
from kscale.scheduling.bounds.effort import checked_bound
from kscale.scheduling.place import place
from kscale.snapshot.cluster import Cluster

__all__ = ["Decision", "DecisionCache", "Simulate", "Simulated"]


@dataclass(frozen=True, slots=True)
class Simulated:
    """Result of a simulation.

    - ``hours`` of simulated time; ``node_hours`` of each group in them; ``nodes`` at the end
    - ``waiting``: pods that are pending at the end; ``pending_seconds``: summed over all pods
    - ``decisions``: what autoscalers did, in order, each text with its time
    - ``change``: nodes added to (or, negative, removed from) each group until the end
    """

    hours: float
    node_hours: Mapping[str, float]
    nodes: int
    waiting: frozenset[str]
    pending_seconds: float
    decisions: Sequence[str]
    change: Mapping[str, int] = field(default_factory=dict)


Simulate = Callable[[Cluster, Sequence[NodeGroup], AutoscalingOptions, Moment], Simulated]
"""From a cluster, its node groups, the options of its Cluster Autoscaler and the moment at which it begins."""


_BOUND = MixOptions(bound_effort=200_000)


class Facts(Mapping[str, tuple[str, str]]):
    """Facts by subject, in order. ``compute_rest`` returns the last of them; it is called only if they are needed."""

    def __init__(
        self, first: Mapping[str, tuple[str, str]], compute_rest: Callable[[], Mapping[str, tuple[str, str]]]
    ) -> None:
        self._first = first
        self._compute_rest = compute_rest

    @cached_property
    def _rest(self) -> Mapping[str, tuple[str, str]]:
        """Return the last facts (value, text) by subject, computed once."""
        return self._compute_rest()

    def __getitem__(self, subject: str) -> tuple[str, str]:
        return self._first[subject] if subject in self._first else self._rest[subject]

    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from self._rest

    def __len__(self) -> int:
        return len(self._first) + len(self._rest)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision in numbers.

    - ``change``: nodes added to (or, negative, removed from) each group; ``removed``: removed nodes
    - ``facts``: (value, text) by subject, in the order of the decisions
    - ``bound``: lower bound of the new nodes' $/h; None if unknown
    - ``placed``: returns the pods that have a node after the decision
    - ``upcoming``: nodes by group that are already being created and cost nothing more
    - ``rebuilt``: $/h of all nodes, for the question rebuild only; ``simulated``: for the question simulate only
    - ``remaining``: returns texts on what the decision leaves as it is and why: pods that stay pending, nodes that stay
    """

    nodes: int
    change: dict[str, int]
    removed: tuple[str, ...]
    pending: int
    homeless: int
    facts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    bound: float | None = None
    placed: Callable[[], Collection[str]] = tuple
    upcoming: Mapping[str, int] = field(default_factory=dict)
    rebuilt: float | None = None
    simulated: Simulated | None = None
    remaining: Callable[[], Sequence[str]] = tuple


class DecisionCache:
    """Decisions for scenarios; scenarios whose inputs agree share one decision.

    ``shared`` counts decisions that were reused. Results are cached by the digest of their world until :meth:`forget`.
    ``cached`` holds results from earlier calls, by digest, and is extended.
    """

    def __init__(
        self,
        *,
        bound: bool = False,
        mix_options: MixOptions | None = None,
        simulate: Simulate | None = None,
        cached: Mapping[tuple[str, ...], dict[Any, Any]] | None = None,
    ) -> None:
        self.shared = 0
        self._simulates = simulate
        self._bound = bound
        self._mix_options = mix_options or MixOptions()
        self._cached: defaultdict[tuple[str, ...], dict[Any, Any]] = defaultdict(dict, cached or {})

    def decide(self, world: World, question: Question) -> tuple[Decision, float | None, float | None]:
        """Decide a question for a world: return (decision, $/h of the nodes after it, lower bound of that cost).

        Costs are None if unknown. Raises InputError if the world has a scheduler profile and the question ignores it,
        if its groups cannot be used for the question, or if there is no simulator.
        """
        if world.profile is not None and question is not Question.SCALE_UP:
            raise InputError(f"scheduler: has no effect on the question {question}")
        decided: Decision = self._DECIDE[question](self, world)
        nodes = self._nodes(world)
        if decided.simulated is not None:
            return decided, _cost_an_hour(decided.simulated, world, nodes), None
        if decided.rebuilt is not None:
            return decided, decided.rebuilt, decided.bound
        cost = nodes.cost(world, decided.change, decided.removed)
        return decided, cost, self._bound_of(world, question, decided, nodes, cost)

    def forget(self, digest: tuple[str, ...]) -> None:
        """Drop the results that are cached for a digest, because no later world has it."""
        self._cached.pop(digest, None)

    def _get_or_compute(self, world: World, key: Any, make: Any) -> Any:
        """Return the result cached under ``key`` for the world's digest, and count it as shared.

        If there is none, the result of ``make()`` is cached and returned.
        """
        cached = self._cached[world.digest]
        if key in cached:
            self.shared += 1
        else:
            cached[key] = make()
        return cached[key]

    def _nodes(self, world: World) -> Nodes:
        """Return the existing nodes by group; worlds with the same digest and catalogue share the result."""
        cached, key = self._cached[world.digest], ("nodes", id(world.catalogue))
        if key not in cached:
            cached[key] = world.catalogue, world.existing  # a reference, so that no other catalogue gets the same id()
        nodes: Nodes = cached[key][1]
        return nodes

    @staticmethod
    def _with_templates(world: World) -> list[NodeGroup]:
        """Return the world's groups, each with its template if one is known; templates of the world take precedence."""
        return [
            _change_group_fields(group, template=world.templates.get(group.id, group.template))
            for group in world.groups
        ]

    def _with_prices(self, world: World) -> list[NodeGroup]:
        """Return the world's groups with their templates (taken from nodes if necessary) and their current prices.

        Templates are cached by digest. Raises InputError for a group without a template and without nodes.
        """
        cached = self._cached[world.digest]
        if "templates" not in cached:
            groups = self._with_templates(world)
            described = with_templates(world.place.cluster, world.place.snapshot, groups, options=world.options)
            cached["templates"] = {group.id: group for group in described}
        templates: dict[str, NodeGroup] = cached["templates"]
        return [_change_group_fields(templates[group.id], price=group.price) for group in world.groups]

    def _bound_of(
        self, world: World, question: Question, decided: Decision, nodes: Nodes, cost: float | None
    ) -> float | None:
        """Return a lower bound of the $/h of all nodes after any decision that places the pods that ``decided`` places.

        None if it is unknown or was not requested. ``nodes``: the existing nodes. ``cost``: $/h after ``decided``, None
        = unknown.
        """
        new = decided.bound
        if question is not Question.MIX:
            if not self._bound or question in (Question.SCALE_DOWN, Question.HEADROOM):
                return None
            key = "bound", question, tuple(world.prices.items()), tuple(decided.change.items())
            new = self._get_or_compute(world, key, lambda: self._bound_cost(world, question, decided))
        current_cost = nodes.cost(world, {})
        if current_cost is None or new is None:
            return None
        bound = round(current_cost + new, 9)
        return bound if cost is None else checked_bound(bound, cost, f"the question {question}")

    def _bound_cost(self, world: World, question: Question, decided: Decision) -> float | None:
        """Return a proven lower bound of the $/h of new nodes for the pods that a decision places; None without proof.

        The result is 0 without groups. The bound ignores minimum sizes, and for an estimate also maximum sizes;
        upcoming nodes cost nothing. None if several groups grow whose nodes differ, as the autoscaler assumes equal
        nodes for similar groups, and if a pod requests TPUs.
        """
        names = list(decided.placed())
        cutoff = world.options.expendable_pods_priority_cutoff
        if question is Question.ESTIMATE:
            cutoff = EXPENDABLE_CUTOFF
        snapshot = drop_expendable_pods(world.place.snapshot, cutoff)
        described = self._with_prices(world)
        if requests_tpus(snapshot, names) or not _have_equal_nodes(described, decided.change):
            return None
        offers = [_replace(offer, least=0) for offer in offers_of(described)]
        if not offers:
            return 0.0
        if question is Question.ESTIMATE:
            offers = [_replace(offer, most=None) for offer in offers]
        free = [
            _replace(offer, name=f"{offer.name} (upcoming)", price=0.0, most=decided.upcoming[offer.name])
            for offer in offers
            if decided.upcoming.get(offer.name)
        ]
        return bound_cost_of_nodes(snapshot, [*offers, *free], names, _BOUND)

    # -- scale-up ------------------------------------------------------------------------------------------------

    def _scale_up(self, world: World) -> Decision:
        """Decide a scale-up, reusing what earlier scenarios with an equal world computed.

        The expander's options depend neither on prices nor on the kind of expander. For scenarios that differ in
        nothing else, only the expander runs again, and the plan for the option that it chooses is reused if it exists.
        """
        if world.offers is not None:
            key = "karpenter", tuple(world.prices.items())
            decision: Decision = self._get_or_compute(world, key, lambda: self._karpenter(world, world.offers))
            return decision
        names = world.options.expander_names
        if world.options.legacy or world.options.salvo_scale_up or GRPC_EXPANDER in names:
            return _build_plan_decision(world, _plan(world))
        cached = self._cached[world.digest]
        options = cached.get("options")
        if options is None:
            plan = _plan(world)
            cached["options"] = _options_of(plan)
            cached["scale-up", plan.chosen] = result = _build_plan_decision(world, plan)
            return result
        best = None
        if options[0]:
            inputs = options[1]
            if "price" in names:
                amounts: dict[int, tuple[Pod, float, float]] = cached.setdefault("amounts", {})
                inputs = replace(inputs, prices=build_group_prices(world.groups, options[2], inputs, amounts))
            chosen = expand(options[0], names, inputs).best
            best = chosen.group if chosen is not None else None
        decided: Decision = self._get_or_compute(
            world, ("scale-up", best), lambda: _build_plan_decision(world, _plan(world))
        )
        return decided

    def _karpenter(self, world: World, offers: PoolOffers) -> Decision:
        """Decide a scale-up by Karpenter's rule, for those of ``offers`` whose groups are in the world."""
        snapshot = world.place.snapshot
        groups = self._with_prices(world)
        placement, untried = place_pending(snapshot, offers.restrict(groups), groups)
        change = count_by_group(placement.claims)
        facts = {name: _build_fact(f"{count:,} new nodes of {name}") for name, count in change.items()}
        left = {*placement.unschedulable, *untried}
        decided = _build_decision(
            world, len(snapshot.nodes) + len(placement.claims), change, len(left), left, facts=facts
        )
        placed = [*placement.existing, *(pod for claim in placement.claims for pod in claim.pods)]
        return replace(decided, placed=lambda: placed)

    # -- scale-down and other decisions ----------------------------------------------------------------------------

    def _scale_down(self, world: World) -> Decision:
        """Decide an exhaustive scale-down, or reuse the decision for an equal world."""
        decided: Decision = self._get_or_compute(world, "scale-down", lambda: _scaled_down(world))
        return decided

    def _estimate(self, world: World) -> Decision:
        """Estimate each group as if it were the only one; decide for the one that takes most pods, then costs least."""
        lost = bool(world.place.lost)
        named = lost or self._bound
        report = self._get_or_compute(
            world, "estimate", lambda: estimate_groups(world.place.snapshot, self._with_prices(world), placements=named)
        )
        prices = world.prices
        taking = [line for line in report.groups if line.pods]
        best = min(
            taking,
            key=lambda line: (-line.pods, line.nodes * (prices.get(line.group) or 0.0), line.nodes),
            default=None,
        )
        existing = len(world.place.snapshot.nodes)
        placed = {**(report.placed or {}), **((best.placed if best else None) or {})}
        unplaced = set(world.place.snapshot.pending).difference(placed) if lost else set()
        if best is None:
            decided = _build_decision(world, existing, {}, report.pending_count - report.on_existing, unplaced)
            return replace(decided, placed=lambda: placed, remaining=partial(_explain_rejections, report))
        stays = report.need_new + report.unschedulable_count - best.pods
        facts = {
            line.group: _build_fact(f"{line.group} would take {_pods(line.pods)} on {line.nodes:,} nodes")
            for line in taking
        }
        first = {"best": _build_fact(f"{best.group} takes most for least: {_pods(best.pods)} on {best.nodes:,} nodes")}
        decided = _build_decision(
            world, existing + best.nodes, {best.group: best.nodes}, stays, unplaced, facts=first | facts
        )
        return replace(decided, placed=lambda: placed, remaining=partial(_explain_rejections, report))

    def _mix(self, world: World) -> Decision:
        """Decide the cheapest mix of the groups; existing nodes only, if no group is left."""
        if not world.groups:  # all groups are lost or removed
            return self._on_existing(world)
        key = "mix", tuple(world.prices.items())
        options = self._mix_options
        plan = self._get_or_compute(
            world, key, lambda: mix(world.place.snapshot, self._with_prices(world), options=options)
        )
        facts = {name: _build_fact(f"{count:,} new nodes of {name}") for name, count in plan.offers.items()}
        existing = len(world.place.snapshot.nodes)
        lost = set(plan.unschedulable)
        decided = _build_decision(
            world, existing + plan.node_count, dict(plan.offers), plan.unschedulable_count, lost, facts=facts
        )
        return replace(decided, bound=plan.bound.cost, remaining=partial(_explain_unschedulable, plan))

    def _rebuild(self, world: World) -> Decision:
        """Decide which nodes of the groups would run all pods if the cluster had no nodes yet."""
        options, cluster = self._mix_options, world.place.cluster
        if not world.groups:  # all groups are lost or removed
            unplaced = set(subjects(cluster, ALL, options)[0].pending)
            facts = {"groups": _build_fact(f"no node group is left: {_pods(len(unplaced))} stay pending")}
            return replace(_build_decision(world, 0, {}, len(unplaced), unplaced, facts=facts), rebuilt=0.0)
        key = "rebuild", tuple(world.prices.items())
        plan = self._get_or_compute(
            world, key, lambda: mix(cluster, self._with_prices(world), pods=ALL, options=options)
        )
        facts = {name: _build_fact(f"{count:,} nodes of {name}") for name, count in plan.offers.items()}
        members = self._nodes(world).members
        change = {name: plan.offers.get(name, 0) - members.get(name, 0) for name in {**members, **plan.offers}}
        decided = _build_decision(
            world, plan.node_count, change, plan.unschedulable_count, set(plan.unschedulable), facts=facts
        )
        return replace(
            decided, bound=plan.bound.cost, rebuilt=plan.cost, remaining=partial(_explain_unschedulable, plan)
        )

    def _on_existing(self, world: World) -> Decision:
        """Decide where pending pods go on existing nodes only, as no node group is left."""
        snapshot = world.place.snapshot
        unplaced = place(snapshot).unschedulable
        facts = {"groups": _build_fact(f"no node group is left: {_pods(len(unplaced))} stay pending")}
        decided = _build_decision(world, len(snapshot.nodes), {}, len(unplaced), set(unplaced), facts=facts)
        return replace(decided, bound=None if unplaced else 0.0)

    def _headroom(self, world: World) -> Decision:
        """Decide how many pods the worst loss of a node or zone leaves without a node, or reuse the decision."""
        decided: Decision = self._get_or_compute(world, "headroom", lambda: _headroom_of(world))
        return decided

    def _simulate(self, world: World) -> Decision:
        """Run the simulation, or reuse a run with the same inputs, and return its outcome as a decision.

        Only the price expander reads prices: without it, scenarios that differ in prices only share one run. Raises
        InputError without simulator, or if existing and new nodes of a group have different prices.
        """
        if self._simulates is None:
            raise InputError("there is no simulator: Base.simulate is None")
        simulate, names = self._simulates, world.options.expander_names
        for group in world.groups:
            if world.standing.get(group.id, group.price) != group.price:
                raise InputError(f"node group {group.id}: a simulation cannot distinguish nodes at two prices")
        priced = tuple(world.prices.items()) if "price" in names else ()
        decided: Decision = self._get_or_compute(
            world, ("simulate", tuple(names), priced), lambda: _simulate(world, self._with_templates(world), simulate)
        )
        return decided

    _DECIDE: ClassVar[dict[Question, Callable[[DecisionCache, World], Decision]]] = {
        Question.SCALE_UP: _scale_up,
        Question.SCALE_DOWN: _scale_down,
        Question.ESTIMATE: _estimate,
        Question.MIX: _mix,
        Question.HEADROOM: _headroom,
        Question.REBUILD: _rebuild,
        Question.SIMULATE: _simulate,
    }


def _build_fact(text: str) -> tuple[str, str]:
    """Return (value, description) of a fact: both are the text."""
    return text, text


def _pods(count: int) -> str:
    """Format a number of pods: ``1 pod``, ``2 pods``."""
    return "1 pod" if count == 1 else f"{count:,} pods"


_replace = msgspec.structs.replace


def _change_group_fields(group: NodeGroup, **changes: Any) -> NodeGroup:
    """Return a copy of the group in which the fields ``changes`` have these values."""
    return msgspec.structs.replace(group, **changes)


def _plan(world: World) -> ScaleUpPlan:
    """Decide a scale-up of the world by the Cluster Autoscaler's loop."""
    return scale_up(
        world.place.for_loop(world.options),
        world.groups,
        now=world.now,
        options=world.options,
        inputs=LoopInputs(templates=world.templates, profile=world.profile, pod_classes=world.place.pod_classes),
    )


def _options_of(plan: ScaleUpPlan) -> tuple[Sequence[Any], Any, Any]:
    """Return what the expander read in the first round: (options, expander input, templates).

    ((), None, None) if the expander did not run.
    """
    first_round = plan.rounds[0] if plan.rounds else None
    if first_round is None or first_round.expander_input is None:
        return (), None, None
    return first_round.expander_options, first_round.expander_input, first_round.templates


def _build_plan_decision(world: World, plan: ScaleUpPlan) -> Decision:
    """Build the decision of a scale-up plan, with facts to compare it with other decisions."""
    change: dict[str, int] = {}
    for info in (*plan.scale_ups, *plan.min_sizes):
        change[info.group] = change.get(info.group, 0) + info.new - info.current
    node_count = len(world.place.snapshot.nodes) + sum(plan.upcoming.values())
    facts = {"fit": _build_fact(f"{_pods(plan.lists.on_existing)} fit on nodes that exist")}
    if change:
        grown = " and ".join(f"{name} by {count:,}" for name, count in change.items())
        facts["grow"] = _build_fact(f"{grown} for {_pods(plan.triggered_count)}")
    else:
        facts["grow"] = _build_fact("no group grows")
    later = plan.lists.young + plan.lists.out_of_time
    stay = plan.unschedulable_count + later
    facts["pending"] = _build_fact(f"{_pods(stay)} stay pending" + (f", {later:,} for a later loop" if later else ""))
    unplaced: set[str] = set()
    if world.place.lost:
        unplaced = {*plan.young, *plan.not_tried, *plan.without_node}
    decided = _build_decision(world, node_count + sum(change.values()), change, stay, unplaced)
    return replace(
        decided,
        facts=Facts(facts, partial(_build_facts_of_pending_pods, plan)) if world.place.lost else facts,
        placed=partial(_list_placed_pods, plan),
        upcoming=plan.upcoming,
        remaining=partial(_explain_pending, plan),
    )


def _build_facts_of_pending_pods(plan: ScaleUpPlan) -> dict[str, tuple[str, str]]:
    """Return a fact (value, text) for each reason for which pods stay pending, by an example of these pods."""
    return {
        f"pods like {item.pods[0]}": _build_fact(f"{_pods(len(item.pods))} stay: {item.why}")
        for item in plan.remain_unschedulable
    }


def _explain_pending(plan: ScaleUpPlan) -> list[str]:
    """Return texts on the pods that stay pending after a scale-up: one per reason, the most frequent reason first.

    For pods that the groups reject, the reason contains that of each group. Last come pods beyond the limits on new
    nodes, too young pods, and pods that were not tried for lack of time. Empty if no pod stays pending.
    """
    pods_by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for item in plan.remain_unschedulable:
        groups_by_reason: defaultdict[str, list[str]] = defaultdict(list)
        for group, rejection in item.rejected.items():
            groups_by_reason[", ".join(rejection.reasons) or rejection.plugin].append(group)
        rejections = [f"{', '.join(groups)}: {reason}" for reason, groups in groups_by_reason.items()]
        if item.taken_by or not rejections:  # a group that was not chosen would take them
            rejections.insert(0, item.why)
        pods_by_reason[" | ".join(rejections)] += item.pods
    texts = [
        f"{f'{_pods(len(pods))} like ' if len(pods) > 1 else ''}{pods[0]} pending: {reason}"
        for reason, pods in sorted(pods_by_reason.items(), key=lambda each: -len(each[1]))
    ]
    if plan.beyond_limits:
        texts.append(f"{_pods(len(plan.beyond_limits))} pending: limits permit too few new nodes")
    for names, reason in ((plan.young, "too new for this loop"), (plan.not_tried, "not tried: time ran out")):
        if names:
            texts.append(f"{_pods(len(names))} pending: {reason}")
    return texts


def _explain_rejections(report: EstimateReport) -> list[str]:
    """Return texts on the pods that each node group rejects, by reason."""
    return [
        f"{line.group} rejects {_pods(item.pods)}: {', '.join(item.reasons)}"
        for line in report.groups
        for item in line.rejections
    ]


def _explain_unschedulable(plan: MixPlan) -> list[str]:
    """Return one text on the pods without a node in a plan; an empty list if there are none."""
    if not plan.unschedulable_count:
        return []
    limits = f"; limits reached: {', '.join(plan.limits_reached)}" if plan.limits_reached else ""
    return [f"{_pods(plan.unschedulable_count)} pending: no node group and no existing node takes them{limits}"]


def _list_placed_pods(plan: ScaleUpPlan) -> list[str]:
    """Return the pods that have a node after a scale-up: an existing, an upcoming or a new one."""
    unplaced = set(plan.beyond_limits)
    return list(dict.fromkeys([*plan.placed, *(name for name in plan.triggered if name not in unplaced)]))


def _have_equal_nodes(groups: Sequence[NodeGroup], change: Mapping[str, int]) -> bool:
    """Check whether the new nodes of all groups that grow have equal allocatable resources.

    ``change``: nodes added to each group.
    """
    grown = [group.template for group in groups if change.get(group.id, 0) > 0]
    rooms = [None if template is None else template.node.status.allocatable for template in grown]
    return all(room == rooms[0] for room in rooms)


def _scaled_down(world: World) -> Decision:
    """Decide which nodes an exhaustive scale-down removes: it evaluates all nodes, as if none had to wait."""
    report, _ = report_scale_down(
        world.place.snapshot, world.groups, now=world.now, options=world.options, exhaustive=True
    )
    removed = [row for row in report.nodes if row.decision in ("delete empty", "drain")]
    change: dict[str, int] = {}
    for row in removed:
        if row.group is not None:
            change[row.group] = change.get(row.group, 0) - 1
    facts = {
        row.node: (
            row.decision,
            f"{row.node}: {row.decision}" + (f", {row.why}" if row.why else ""),
        )
        for row in report.nodes
    }
    existing = len(world.place.snapshot.nodes)
    pending = len(world.place.snapshot.pending)
    unplaced = set(world.place.snapshot.pending) if world.place.lost else set()
    decided = _build_decision(
        world,
        existing - len(removed),
        change,
        pending,
        unplaced,
        removed=tuple(row.node for row in removed),
        facts=facts,
    )
    return replace(decided, remaining=partial(_explain_nodes_that_stay, report))


def _explain_nodes_that_stay(report: ScaleDownReport) -> list[str]:
    """Return texts on the nodes that a scale-down keeps, by reason, the most frequent first."""
    rows_by_reason: defaultdict[str | None, list[ScaleDownNode]] = defaultdict(list)
    for row in report.nodes:
        if row.decision not in ("delete empty", "drain"):
            rows_by_reason[row.reason].append(row)
    return [
        f"{f'{len(rows):,} nodes stay, such as' if len(rows) > 1 else '1 node stays:'} {rows[0].node}"
        f"{f' ({rows[0].why})' if rows[0].why else ''}"
        for rows in sorted(rows_by_reason.values(), key=lambda each: -len(each))
    ]


def _simulate(world: World, groups: Sequence[NodeGroup], simulate: Simulate) -> Decision:
    """Run a simulation of the world with ``simulate``, and build the decision from its result."""
    result = simulate(world.place.cluster, groups, world.options, moment(world.now))
    facts = {f"decision {number}": _build_fact(text) for number, text in enumerate(result.decisions)}
    facts["waiting"] = _build_fact(
        f"{_pods(len(result.waiting))} wait at the end, {result.pending_seconds:,.0f} s all together"
    )
    decided = _build_decision(
        world, result.nodes, dict(result.change), len(result.waiting), set(result.waiting), facts=facts
    )
    return replace(decided, simulated=result)


def _cost_an_hour(simulated: Simulated, world: World, nodes: Nodes) -> float | None:
    """Return the average $/h of all nodes in a simulation; None if the price of some node is unknown.

    ``nodes``: those at the start.
    """
    beside, prices = nodes.beside(world), world.prices
    used = {name: hours for name, hours in simulated.node_hours.items() if hours}
    if beside is None or any(prices[name] is None for name in used):
        return None
    return round(beside + sum(hours * (prices[name] or 0.0) for name, hours in used.items()) / simulated.hours, 9)


def _headroom_of(world: World) -> Decision:
    """Decide headroom: how many pods the worst loss of one more node or zone leaves unschedulable.

    Pods of nodes that are already lost are placed first, as the room they take is not available for the next loss.
    """
    current = world.place.snapshot
    lost_pods = [name for name in current.pending if name in world.place.lost]
    snapshot = place(current, lost_pods).snapshot_after if lost_pods else current
    report = headroom(snapshot)
    losses = [*(("zone", loss) for loss in report.zones), *(("node", loss) for loss in report.nodes)]
    facts = {
        f"{kind} {loss.name}": (
            str(loss.homeless),
            f"without {kind} {loss.name} {loss.homeless:,} of {_pods(loss.pods)} find no place",
        )
        for kind, loss in losses
    }
    worst = max((loss.homeless for _, loss in losses), default=0)
    pending = len(snapshot.pending)
    return Decision(nodes=len(snapshot.nodes), change={}, removed=(), pending=pending, homeless=worst, facts=facts)


def _build_decision(
    world: World,
    nodes: int,
    change: dict[str, int],
    pending: int,
    left: set[str],
    *,
    removed: tuple[str, ...] = (),
    facts: dict[str, tuple[str, str]] | None = None,
) -> Decision:
    """Build a decision. ``nodes``, ``pending``: numbers of nodes and pending pods after it.

    ``change``: nodes added to (or, negative, removed from) each group. ``left``: names of the pods that stay
    unscheduled, as far as the question counts them; lost ones among them are homeless. ``facts``: (value, text) by
    subject.
    """
    return Decision(
        nodes=nodes,
        change=change,
        removed=removed,
        pending=pending,
        homeless=len(left & world.place.lost),
        facts=facts or {},
    )
