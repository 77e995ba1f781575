"""Rules that rank scale-up options for another autoscaler (:class:`kscale.effects.RankOptions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kscale.ca.expander.least_and_most import filter_least_waste as waste_filter
from kscale.ca.expander.price import build_group_prices
from kscale.ca.expander.types import ExpanderInput, Option, PodRun
from kscale.effects import SECOND, RankOption, RankOptions
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_resources import CPU, PODS, occupancy
from kscale.objects.quantity import Quantity
from kscale.scheduling.bounds import best_bound

__all__ = ["RankedOption", "best_of", "least_cost", "least_waste", "needed_nodes"]

_HOUR = 3600 * SECOND
_NOTHING = Quantity.zero()


class RankedOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option with its score: the smaller, the better. ``note``: what it was made of. ``score`` None: it cannot be
    ranked, and ``note`` says why."""

    group: str
    score: tuple[float, ...] | None
    note: str


def least_cost(question: RankOptions, prices: Mapping[str, float]) -> list[RankedOption]:
    """What the new nodes of an option cost, divided by what its pods are worth.

    ``prices``: of a node of each group, for an hour. A core is worth the least that any group asks for one
    (:func:`kscale.ca.expander.price.build_group_prices`), so that no option costs less than its pods are worth.
    """
    known = [option for option in question.options if option.group in prices and option.group in question.nodes]
    templates = {option.group: NodeTemplate(node=question.nodes[option.group]) for option in known}
    groups = [NodeGroup(id=option.group, price=prices[option.group]) for option in known]
    rates = build_group_prices(groups, templates, ExpanderInput())
    found = []
    for option in question.options:
        if option.group not in templates:
            what = "price" if option.group not in prices else "node"
            found.append(RankedOption(group=option.group, score=None, note=f"its {what} is not known"))
            continue
        cost = prices[option.group] * option.node_count
        worth = sum(rates.pod_price(run.pod, 0, _HOUR) * run.count for run in option.pods)
        score = cost / worth if worth > 0 else cost and float("inf")
        note = f"{option.node_count} nodes cost {cost:.4f} an hour for pods worth {worth:.4f}"
        found.append(RankedOption(group=option.group, score=(score,), note=note))
    return found


def least_waste(question: RankOptions) -> list[RankedOption]:
    """The part of CPU and memory that would lie idle, as upstream's least-waste has it; between equals the option that
    has the fewest nodes above the proven least that its pods need (:func:`needed_nodes`)."""
    options = [
        Option(group=each.group, node_count=each.node_count, pods=[PodRun(run.pod, run.count) for run in each.pods])
        for each in question.options
    ]
    waste = waste_filter(options, ExpanderInput(nodes=question.nodes))
    found = []
    for option in question.options:
        if option.group in waste.skipped:
            found.append(RankedOption(group=option.group, score=None, note=waste.skipped[option.group]))
            continue
        try:
            least = needed_nodes(option, question.nodes[option.group])
        except InputError as error:
            found.append(RankedOption(group=option.group, score=None, note=str(error)))
            continue
        above = option.node_count - least
        note = f"{waste.notes[option.group]} wasted; {option.node_count} nodes, {least} are proven to be needed"
        found.append(RankedOption(group=option.group, score=(waste.scores[option.group], float(above)), note=note))
    return found


def needed_nodes(option: RankOption, node: Node) -> int:
    """How many such nodes, empty, the pods of an option need at least: no packing has fewer."""
    amounts = node.status.allocatable or node.status.capacity or {}
    demands: dict[tuple[int, ...], int] = {}
    asked = [(occupancy(run.pod), run.count) for run in option.pods]
    names = sorted({name for requests, _ in asked for name in requests if name in amounts} - {PODS})
    for requests, count in asked:
        demand = tuple(_amount(name, requests.get(name, _NOTHING)) for name in names)
        demands[demand] = demands.get(demand, 0) + count
    if not demands:
        return 0
    capacity = [_amount(name, amounts[name]) for name in names]
    if any(wanted > offered for demand in demands for wanted, offered in zip(demand, capacity, strict=True)):
        raise InputError(f"node group {option.group}: a pod does not fit into an empty node")
    room = amounts.get(PODS)
    rows = [[*demand, 1] for demand in demands]
    return best_bound(
        rows,
        list(demands.values()),
        [*capacity, sum(demands.values()) if room is None else room.value()],
        upper=option.node_count,
    ).value


def _amount(name: str, quantity: Quantity) -> int:
    return quantity.milli_value() if name == CPU else quantity.value()


def best_of(ranked: Sequence[RankedOption]) -> list[str]:
    """The groups with the best score, in the order of the question. Raises InputError if none has a score."""
    scores = [each.score for each in ranked if each.score is not None]
    if not scores:
        raise InputError("; ".join(f"{each.group}: {each.note}" for each in ranked) or "there is no option")
    best = min(scores)
    return [each.group for each in ranked if each.score == best]
