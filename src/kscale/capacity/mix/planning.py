"""``kscale.mix``: computes a plan of new nodes for pods, checks it exactly, and bounds its cost.

Not in upstream.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.capacity.group_templates import with_templates
from kscale.capacity.machine_types import arch_of, parse_type_name
from kscale.capacity.mix.check import CheckedPlacement, PlannedPlacement, RemainingNodes, check
from kscale.capacity.mix.exact import SmallMix
from kscale.capacity.mix.instance import MONEY, Instance
from kscale.capacity.mix.offers import ALL, MixOptions, Offer, offers_of, subjects
from kscale.capacity.mix.packing import assign_pods_to_nodes
from kscale.capacity.mix.records import Bound, MixLine, MixPlan, PlannedNode, Repairs, TypesPoint
from kscale.capacity.mix.solve import Budget, Solution, choose_few_types, prove_least_cost, solve
from kscale.capacity.mix.start import SingleTypes, StartPlan, build_placement, plan_by_claims
from kscale.capacity.records import round_money
from kscale.errors import InputError, show_value
from kscale.objects.argument_types import typed
from kscale.objects.node_selectors import HOSTNAME, REGION, ZONE
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_resources import CPU, MEMORY, PODS
from kscale.objects.selectors import SelectorError
from kscale.scheduling.bounds.effort import Effort, checked_bound
from kscale.scheduling.plugins.pod_topology_spread import hard_constraints
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = ["bound_cost_of_nodes", "mix", "plan_of"]


def plan_of(
    instance: Instance,
    solution: Solution,
    planned: PlannedPlacement,
    checked: CheckedPlacement,
    *,
    placements: bool,
    comparable: bool,
) -> MixPlan:
    """Build the record of a plan: ``planned`` before the check by the predicates, ``checked`` after it.

    ``placements``: whether the record has the node of each pod. ``comparable``: the proof is about the same pods, so
    that the bound applies to this plan.
    """
    existing = len(instance.snapshot.nodes)
    offers = instance.offers
    used = checked.node
    cost = sum(offers[node.offer].price for node in checked.nodes)
    before = sum(offers[offer].price for offer in planned.offer.tolist())
    bound = (solution.proof.value + instance.minimum_cost) / MONEY
    proven = comparable and not checked.left
    if proven:
        checked_bound(bound, cost, "mix")
    lost = [instance.asked[i].key for i in instance.nowhere.tolist()]
    lost += [instance.records[i].key for i in checked.left]
    lines = _lines(instance, checked)
    added = checked.nodes[len(planned.offer) :]
    return MixPlan(
        pods=len(instance.asked),
        on_existing=int(((used >= 0) & (used < existing)).sum()),
        on_new=int((used >= existing).sum()),
        unschedulable_count=len(lost),
        node_count=len(checked.nodes),
        types=len({line.type for line in lines}),
        cost=round_money(cost),
        planned=round_money(before),
        bound=Bound(
            cost=round_money(bound) if proven else None,
            method=solution.method,
            gap=_gap(cost, bound) if proven else None,
            relaxed=list_relaxed_constraints(instance),
        ),
        lines=lines,
        repairs=Repairs(
            moved=int(checked.moved),
            added=checked.added,
            cost=round_money(sum(offers[node.offer].price for node in added)),
        ),
        curve=[],
        unschedulable=lost,
        limits_reached=_list_reached_limits(instance, checked),
        unmodelled=checked.unmodelled,
        effort=list(solution.effort),
        stopped=list(solution.stopped),
        offers=_count_names(offers[node.offer].name for node in checked.nodes),
        nodes=_planned_nodes(instance, checked) if placements else None,
        placed=_placed(instance, checked) if placements else None,
    )


def _gap(cost: float, bound: float) -> float:
    """Return the relative distance of a cost from its bound (0.05: 5 % above), at six decimals; 0 without a bound."""
    return round(cost / bound - 1.0, 6) + 0.0 if bound > 0 else 0.0  # avoids a negative zero


def _lines(instance: Instance, checked: CheckedPlacement) -> list[MixLine]:
    """Build a line for each type and capacity type of the new nodes, the highest cost first."""
    existing = len(instance.snapshot.nodes)
    offers = instance.offers
    total = sum(offers[node.offer].price for node in checked.nodes)
    pods_on = np.bincount(checked.node[checked.node >= existing] - existing, minlength=len(checked.nodes))
    rooms = {offer: instance.allocatable_of_offer(offer) for offer in {node.offer for node in checked.nodes}}
    taken = _sum_requests(instance, checked, rooms)
    groups: dict[tuple[str, str], list[int]] = {}
    for i, node in enumerate(checked.nodes):
        offer = offers[node.offer]
        groups.setdefault((offer.type, offer.capacity_type), []).append(i)
    lines = []
    for (type_, capacity_type), members in groups.items():
        cost = sum(offers[checked.nodes[i].offer].price for i in members)
        room = np.sum([rooms[checked.nodes[i].offer] for i in members], axis=0)
        use = taken[members].sum(axis=0)
        shares = {
            name: round(float(use[r] / room[r]), 4)
            for r, name in enumerate((CPU, MEMORY, PODS))
            if room[r] > 0 and use[r] > 0
        }
        lines.append(
            MixLine(
                type=type_,
                capacity_type=capacity_type,
                nodes=len(members),
                pods=int(pods_on[members].sum()),
                utilization=shares,
                price=round_money(cost / len(members)),
                cost=round_money(cost),
                share=round(cost / total, 6) if total else 0.0,
                zones=_count_names(offers[checked.nodes[i].offer].zone for i in members),
                groups=_count_names(offers[checked.nodes[i].offer].group for i in members),
                arch=arch_of(offers[checked.nodes[members[0]].offer].template.node),
                generation=parse_type_name(type_).generation,
            )
        )
    return sorted(lines, key=lambda line: (-line.cost, line.type, line.capacity_type))


def _count_names(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name occurs, sorted by name; empty names are left out."""
    return dict(sorted(Counter(name for name in names if name).items()))


def _sum_requests(
    instance: Instance, checked: CheckedPlacement, rooms: Mapping[int, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return float64[new nodes, (cpu, memory, pods)] requested on each, including the node's own DaemonSet pods.

    ``rooms``: allocatable amounts of each offer's node.
    """
    existing = len(instance.snapshot.nodes)
    amounts = np.array(
        [[pod.occupancy.get(CPU, 0), pod.occupancy.get(MEMORY, 0), 1] for pod in instance.classes], dtype=np.float64
    ).reshape(-1, 3)
    amounts_by_node = np.zeros((len(checked.nodes), 3))
    on_new = np.flatnonzero(checked.node >= existing)
    np.add.at(amounts_by_node, checked.node[on_new] - existing, amounts[instance.class_of[on_new]])
    own = {offer: room - instance.free_of_offer(offer) for offer, room in rooms.items()}
    for i, node in enumerate(checked.nodes):
        amounts_by_node[i] += own[node.offer]
    return amounts_by_node


def _list_reached_limits(instance: Instance, checked: CheckedPlacement) -> list[str]:
    """Return the names of the offers with a maximum above 0 that the plan's number of nodes reaches."""
    used = Counter(node.offer for node in checked.nodes)
    return [
        offer.name
        for i, offer in enumerate(instance.offers)
        if offer.most is not None and offer.most and used[i] >= offer.most
    ]


def list_relaxed_constraints(instance: Instance) -> list[str]:
    """Return the constraints of pods that the bound ignores, as texts with the number of pods."""
    counts: Counter[str] = Counter()
    by_class = np.bincount(instance.class_of, minlength=len(instance.classes)).tolist()
    for pod, count in zip(instance.classes, by_class, strict=True):
        if not count:
            continue
        try:
            keys = {constraint.row.key for constraint in hard_constraints(pod, instance.ctx)}
        except SelectorError:
            keys = set()
        for key in sorted(keys):
            counts[f"spread over {_name_key(key)}"] += count
        for key in sorted({term.topology_key for term in pod.affinity}):
            counts[f"affinity within {_name_key(key)}"] += count
        for key in sorted({term.topology_key for term in pod.anti_affinity} - {HOSTNAME}):
            counts[f"anti-affinity within {_name_key(key)}"] += count
        if pod.has_claims:
            counts["volumes (limits of nodes, zones of unbound claims)"] += count
        if pod.claims:
            counts["devices (dynamic resource allocation)"] += count
    return [f"{label}: {count:,} pods" for label, count in counts.items()]


def _name_key(key: str) -> str:
    """Return the word for a topology key: ``zone``, ``region``, ``node``, otherwise the key."""
    return {ZONE: "zone", REGION: "region", HOSTNAME: "node"}.get(key, key)


def _planned_nodes(instance: Instance, checked: CheckedPlacement) -> list[PlannedNode]:
    """Return the record of each new node, with the pods on it."""
    existing = len(instance.snapshot.nodes)
    pods: list[list[str]] = [[] for _ in checked.nodes]
    for i, node_index in enumerate(checked.node.tolist()):
        if node_index >= existing:
            pods[node_index - existing].append(instance.records[i].key)
    return [
        PlannedNode(
            name=node.name,
            offer=instance.offers[node.offer].name,
            type=instance.offers[node.offer].type,
            zone=instance.offers[node.offer].zone,
            price=instance.offers[node.offer].price,
            pods=on,
        )
        for node, on in zip(checked.nodes, pods, strict=True)
    ]


def _placed(instance: Instance, checked: CheckedPlacement) -> dict[str, str]:
    """Return the name of each placed pod's node, by ``namespace/name`` of the pod."""
    names = [*instance.snapshot.nodes, *(node.name for node in checked.nodes)]
    return {instance.records[i].key: names[node] for i, node in enumerate(checked.node.tolist()) if node >= 0}


_CURVE = (1, 2, 3, 5)
_CHECKS = 3  # maximum of checks for a plan to which the check added nodes
_POINT = 400_000  # effort per point of the curve if only the clock limits the search
_SHARE = 4  # each point of the curve gets this fraction of the plan's effort


@typed
def mix(
    cluster: Cluster | Snapshot,
    offers: Iterable[Offer | NodeGroup],
    *,
    pods: Sequence[str] | str | None = None,
    options: MixOptions | None = None,
    stop: Sequence[Callable[[], bool] | None] = (None, None),
    placements: bool = False,
    start: Sequence[StartPlan] = (),
) -> MixPlan:
    """Find the cheapest nodes for pods, with a lower bound of the cost.

    With the extra ``[solver]`` uses column generation and diving; without it a greedy packing and a weaker bound. With
    any effort the plan costs at most as much as the best single type by :func:`kscale.estimate`, and as the nodes that
    Karpenter's rule would create, if limits allow these nodes. Single types are not compared if pods must be spread
    over nodes or offers.

    Parameters
    ----------
    cluster : Cluster or Snapshot
        Existing nodes and pods.
    offers : iterable of Offer or NodeGroup
        Nodes that can be bought, see :class:`Offer`; node groups need a price. A group without a template is modelled
        on its nodes in the Cluster; with a Snapshot it needs a template.
    pods : sequence of str, "all" or None
        None: pending pods. A list: names of pending pods. ``"all"``: every running or pending pod, on new nodes only,
        as if the cluster were rebuilt (needs a Cluster).
    options : MixOptions, optional
        Limits and effort.
    stop : sequence of callables
        Two or three functions, or None for some of them. Polled while the bound, while the plan, and (third, default:
        the second) while plans of fewer types are computed. If one returns True, that search ends with its current
        result.
    placements : bool
        Whether the result contains the node of each pod.
    start : sequence of StartPlan
        Plans of other rules. If one of them keeps to the limits and places every pod, the result costs at most as much.

    Returns
    -------
    MixPlan
        The plan after the exact check, its cost per hour, and the bound.

    Raises
    ------
    InputError
        For invalid or no offers, for invalid options, for a pod that is unknown or not pending, and if no plan
        satisfies the limits.

    Notes
    -----
    The result depends on the input and on the effort, never on the number of threads, and on the clock only through
    ``stop``.
    """
    options = options or MixOptions()
    options.check()
    stops = [*stop]
    if not (2 <= len(stops) <= 3 and all(each is None or callable(each) for each in stops)):
        raise InputError(f"stop is {show_value(stop)}: give two or three functions, for the bound and for the plans")
    stop_bound, stop_plan, stop_few_types = (*stops, stops[-1])[:3]
    chosen = offers_of(_complete(cluster, offers), anew=pods == ALL)
    if not chosen:
        raise InputError("no offers: no node may be added")
    snapshot, names, options = subjects(cluster, pods, options)
    budget = Budget(
        options.bound_effort, options.plan_effort, stop_bound, stop_plan, options.tolerance, threads=options.threads
    )
    instance = Instance(snapshot, names, chosen, options)
    starts = _StartPlans(instance, start)
    unrestricted = _build_plan(instance, budget)
    unrestricted = _best([unrestricted, *starts.check(unrestricted)])
    small_mix = SmallMix(unrestricted.instance)
    unrestricted = _best([unrestricted, *_solve_exactly(unrestricted, small_mix, budget)])
    limited = dataclasses.replace(budget, stop_bound=stop_few_types, stop_plan=stop_few_types)
    unrestricted, points, best = _with_few_types(unrestricted, small_mix, starts, snapshot, names, options, limited)
    if best.breaks_limits:
        fields = [f"limits[{name}]" for name in options.limits]
        fields += [shared.name for shared in options.shared_limits]
        if options.spot_share is not None:
            fields.insert(0, "spot_share")
        raise InputError(f"{', '.join(fields)}: no plan was found that meets this and the minima of the offers")
    if not unrestricted.instance.nowhere.size:
        for point in points:
            if not point.unschedulable_count:
                checked_bound(unrestricted.bound, point.cost, f"a mix of {point.types or 'any number of'} types")
    best = dataclasses.replace(best, solution=unrestricted.solution.proving(best.solution))
    comparable = len(best.instance.nowhere) == len(unrestricted.instance.nowhere)
    plan = plan_of(
        best.instance, best.solution, best.planned, best.checked, placements=placements, comparable=comparable
    )
    return msgspec.structs.replace(plan, curve=points if options.curve else []).with_offers(chosen)


def _complete(cluster: Cluster | Snapshot, offers: Iterable[Offer | NodeGroup]) -> list[Offer | NodeGroup]:
    """Return the offers; node groups without a template get one from the cluster's nodes.

    With a Snapshot, they are unchanged. Raises InputError for a group without nodes.
    """
    offers = list(offers)
    incomplete = [offer for offer in offers if isinstance(offer, NodeGroup) and offer.template is None]
    if not incomplete or isinstance(cluster, Snapshot):
        return offers
    completed = {group.id: group for group in with_templates(cluster, cluster.snapshot(dra=True), incomplete)}
    return [completed.get(offer.id, offer) if isinstance(offer, NodeGroup) else offer for offer in offers]


@typed
def bound_cost_of_nodes(
    snapshot: Snapshot, offers: Iterable[Offer | NodeGroup], pods: Sequence[str], options: MixOptions
) -> float:
    """Return a proven lower bound of the $/h of the new nodes of any decision that places all the pods.

    Parameters
    ----------
    snapshot : Snapshot
        The existing nodes and the pods on them.
    offers : iterable of Offer or NodeGroup
        Nodes that can be bought.
    pods : sequence of str
        Names of pending pods. Those of DaemonSets are left out, as are pods that no offer and no node can hold.
    options : MixOptions
        ``bound_effort``, ``tolerance``, ``threads``, ``existing``, ``limits``, ``shared_limits`` and ``spot_share`` are
        used.

    Raises
    ------
    InputError
        For invalid offers and options, for a pod that is unknown or not pending, and if minima and existing nodes
        exceed a limit, or the minima the share of spot.
    """
    options.check()
    snapshot, names, options = subjects(snapshot, pods, options)
    instance = Instance(snapshot, names, offers_of(offers), options)
    budget = Budget(options.bound_effort, tolerance=options.tolerance, threads=options.threads)
    return (prove_least_cost(instance.bound, budget).value + instance.minimum_cost) / MONEY


@dataclass(frozen=True, slots=True)
class _Result:
    """A plan before and after the exact check."""

    instance: Instance
    solution: Solution
    planned: PlannedPlacement
    checked: CheckedPlacement

    @property
    def nodes(self) -> list[Offer]:
        """Return the offer of each new node."""
        return [self.instance.offers[node.offer] for node in self.checked.nodes]

    @property
    def cost(self) -> float:
        """Return the price of all new nodes ($/h)."""
        return sum(offer.price for offer in self.nodes)

    @property
    def bound(self) -> float:
        """Return the proven lower bound of the cost ($/h) of any nodes for these pods."""
        return (self.solution.proof.value + self.instance.minimum_cost) / MONEY

    @property
    def types(self) -> list[str]:
        """Return the types of the new nodes, those with the highest total price first."""
        cost: dict[str, float] = {}
        for offer in self.nodes:
            cost[offer.type] = cost.get(offer.type, 0.0) + offer.price
        return sorted(cost, key=lambda name: (-cost[name], name))

    @property
    def homeless(self) -> int:
        """Return the number of pods that have no node."""
        return len(self.checked.left) + len(self.instance.nowhere)

    @property
    def breaks_limits(self) -> bool:
        """Check whether the nodes exceed a limit or the share of spot."""
        counts = np.bincount([node.offer for node in self.checked.nodes], minlength=len(self.instance.offers))
        return bool((self.instance.offer_rows @ counts > self.instance.high).any())


def _best(results: Sequence[_Result]) -> _Result:
    """Return the best result: within the limits, then with the fewest unplaced pods, then the cheapest.

    The first of equal results.
    """
    return min(results, key=lambda result: (result.breaks_limits, result.homeless, round(result.cost, 9)))


def _build_plan(instance: Instance, budget: Budget) -> _Result:
    """Compute the plan of an instance heuristically with its bound, and check the plan."""
    parts = [instance.cell(number) for number in range(max(1, len(instance.cells)))]
    solution = solve(instance.bound, instance.plan, parts, budget)
    planned = assign_pods_to_nodes(instance, solution.packed)
    return _Result(instance, solution, planned, _check_plan(instance, planned))


def _solve_exactly(result: _Result, small: SmallMix, budget: Budget, max_types: int | None = None) -> list[_Result]:
    """Return the cheapest plan of a small instance as the only item, with the proof of ``result``.

    The list is empty if the instance is not small, or if the effort is spent. ``max_types``: maximum number of types.
    """
    spent = result.solution.effort
    limit = budget.plan
    if max_types is None:  # continue the same search
        if result.solution.stopped[1]:
            return []
        limit = None if limit is None else max(0, limit - spent[1])
    effort = Effort(limit, budget.stop_plan)
    planned = small.plan(effort, max_types)
    if planned is None:
        return []
    solution = dataclasses.replace(result.solution, effort=(spent[0], spent[1] + effort.spent))
    checked = _check_plan(result.instance, planned, only_planned_types=max_types is not None)
    return [_Result(result.instance, solution, planned, checked)]


class _StartPlans:
    """Plans of simple rules, in the numbers of an instance; each is checked when it may be the cheapest."""

    def __init__(self, instance: Instance, start: Sequence[StartPlan]) -> None:
        self._instance = instance
        self._plans = [plan for each in start if (plan := build_placement(instance, each)) is not None]
        self._single = SingleTypes(instance)
        self._checked: dict[tuple[int, bool], _Result] = {}  # by identity of the plan

    @cached_property
    def _claims(self) -> PlannedPlacement:
        """Return the plan that places pods one by one, as Karpenter's scheduler does."""
        return plan_by_claims(self._instance)

    def check(self, best: _Result, max_types: int | None = None) -> list[_Result]:
        """Check the start plans that cost less than ``best`` and have at most ``max_types`` types, and return them.

        Their cost before the check counts; if ``best`` leaves pods out or exceeds limits, any cost is low enough. Empty
        if ``best`` is proven to be the cheapest and ``max_types`` is None.
        """
        is_complete = not best.homeless and not best.breaks_limits
        if max_types is None and is_complete and best.cost <= best.bound:
            return []
        below = best.cost if is_complete else math.inf
        plans = [*self._plans, self._claims]
        single = self._single.cheapest(below)
        results = []
        offers = self._instance.offers
        for plan in plans if single is None else [*plans, single]:
            numbers = plan.offer.tolist()
            if max_types is not None and len({offers[n].type for n in numbers}) > max_types:
                continue
            if sum(offers[n].price for n in numbers) >= below:
                continue
            key = id(plan), max_types is not None
            if key not in self._checked:
                checked = _check_plan(self._instance, plan, only_planned_types=max_types is not None)
                self._checked[key] = _Result(self._instance, best.solution, plan, checked)
            results.append(self._checked[key])
        return results


def _with_few_types(
    unrestricted: _Result,
    small: SmallMix,
    starts: _StartPlans,
    snapshot: Snapshot,
    names: list[str] | None,
    options: MixOptions,
    budget: Budget,
) -> tuple[_Result, list[TypesPoint], _Result]:
    """Return (best plan with any number of types, points of the curve, best plan within ``options.max_types``).

    The curve is the cost by maximum number of types. No point costs more than a point with fewer types, because a plan
    with fewer types counts for both. ``small``, ``starts``: sources of further plans. Raises InputError if more than
    ``max_types`` types have a minimum.
    """
    max_types, free = options.max_types, unrestricted.types
    offers = unrestricted.instance.offers
    required_types = frozenset(offer.type for offer in offers if offer.least)
    if max_types is not None and len(required_types) > max_types:
        raise InputError(f"max_types: {len(required_types)} types have a minimum, and at most {max_types} are allowed")
    numbers = {k for k in _CURVE if len(required_types) <= k < len(free)} if options.curve else set()
    if max_types is not None and max_types < len(free):
        numbers.add(max_types)
    results: dict[int, _Result] = {}
    if numbers:
        type_of = [None if offer is None else offer.type for offer in unrestricted.instance.offer_of_kind]
        sets = choose_few_types(
            unrestricted.instance.plan, type_of, free, required_types, max(numbers), options.threads
        )
        before: list[_Result] = []
        for number in sorted(numbers):
            alternatives = [item for item in sets if len(item[0]) <= number][-1]
            limited = dataclasses.replace(budget, prove=False)
            if number != max_types:
                limited = dataclasses.replace(
                    limited, bound=_get_point_effort(limited.bound), plan=_get_point_effort(limited.plan)
                )
            candidates = _solve_exactly(unrestricted, small, limited, number)
            if not candidates:
                candidates = []
                for types in alternatives:
                    if candidates and limited.stop_plan is not None and limited.stop_plan():
                        break
                    chosen = [item for item in offers if item.type in types]
                    candidates.append(_build_plan(Instance(snapshot, names, chosen, options), limited))
            few = _best([*before, *candidates])
            before = [_best([few, *starts.check(few, number)])]
            results[number] = before[0]
        unrestricted = _best([unrestricted, *before])
    points = [_point(number, result) for number, result in results.items()]
    if max_types is not None and max_types in results:
        return unrestricted, points, results[max_types]
    return unrestricted, [*points, _point(None, unrestricted)], unrestricted


def _get_point_effort(effort: int | None) -> int:
    """Return the effort for one point of the curve (cost by number of types).

    ``effort``: the effort of the whole plan, None = unlimited.
    """
    return _POINT if effort is None else effort // _SHARE


def _point(number: int | None, result: _Result) -> TypesPoint:
    """Build a point of the curve. ``number``: maximum number of types, None = no limit."""
    return TypesPoint(
        types=number, cost=round_money(result.cost), chosen=result.types, unschedulable_count=result.homeless
    )


def _check_plan(instance: Instance, planned: PlannedPlacement, *, only_planned_types: bool = False) -> CheckedPlacement:
    """Check a plan with the exact predicates, with all its nodes present before the first pod is placed.

    A node that the check adds may be the first of its zone, which spread then counts; the check is repeated with it.
    ``only_planned_types``: the check adds no node of another type.
    """
    offers = instance.offers
    types = {offer.type for offer in offers}
    if only_planned_types:
        types = {offers[i].type for i in planned.offer.tolist()}
    limits = [offer.most if offer.type in types else 0 for offer in offers]
    checked = _check_once(instance, planned, limits)
    if not any(instance.classes[c].spread for c in np.unique(instance.class_of).tolist()):
        return checked
    planned_count = len(planned.offer)
    for _ in range(_CHECKS):
        if len(checked.nodes) == planned_count:
            break
        planned_count = len(checked.nodes)
        offer = np.array([node.offer for node in checked.nodes], dtype=np.int64)
        checked = _check_once(instance, PlannedPlacement(offer, checked.node), limits)
    checked.added = len(checked.nodes) - len(planned.offer)
    checked.moved = int(((planned.node >= 0) & (checked.node >= 0) & (planned.node != checked.node)).sum())
    return checked


def _check_once(instance: Instance, planned: PlannedPlacement, most: Sequence[int | None]) -> CheckedPlacement:
    """Check a plan once with the exact predicates.

    ``most``: maximum number of nodes of each offer, None = no limit.
    """
    offers = instance.offers
    room = RemainingNodes(most, instance.offer_rows, instance.high)
    for offer in planned.offer.tolist():
        room.add_node(offer)
    return check(
        instance.snapshot,
        instance.records,
        instance.class_of,
        offers,
        planned,
        room,
        existing=instance.options.existing,
    )
