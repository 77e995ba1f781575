"""Rules that rank scale-up options for another autoscaler (:class:`kscale.effects.RankOptions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kscale.ca.expander.chain import filter_least_waste as waste_filter
from kscale.ca.expander.price import build_group_prices
from kscale.ca.expander.types import ExpanderInput, Option, PodRun
from kscale.effects import SECOND, RankOption, RankOptions
from kscale.effects.moments import OtherDuration
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_resources import CPU, PODS, occupancy
from kscale.objects.quantity import Quantity
from kscale.scheduling.bounds import best_bound

__all__ = ["RankedOption", "best_of", "least_cost", "least_waste", "needed_nodes"]

_HOUR: Final[OtherDuration] = 3600 * SECOND
_NOTHING = Quantity.zero()


class RankedOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option with its score: the smaller, the better.

    ``note`` explains the score. If ``score`` is None, the option cannot be ranked, and ``note`` says why.
    """

    group: str
    score: tuple[float, ...] | None
    note: str


def least_cost(question: RankOptions, prices: Mapping[str, float]) -> list[RankedOption]:
    """Score options by the cost of their new nodes divided by the value of their pods: the smaller, the better.

    ``question``: the options with their pods, and a node of each group. ``prices``: $/h of a node by group. The result
    has one entry per option, in the order of the options.

    Pods are worth what they request at the lowest price of a core that any group has
    (:func:`kscale.ca.expander.price.build_group_prices`), so no option costs less than its pods are worth. If the pods
    are worth nothing, the score is infinite for nodes with a cost, and 0 for free nodes. Options without known price or
    node have no score.
    """
    rankable = [option for option in question.options if option.group in prices and option.group in question.nodes]
    templates = {option.group: NodeTemplate(node=question.nodes[option.group]) for option in rankable}
    groups = [NodeGroup(id=option.group, price=prices[option.group]) for option in rankable]
    rates = build_group_prices(groups, templates, ExpanderInput())
    ranked = []
    for option in question.options:
        if option.group not in templates:
            missing = "price" if option.group not in prices else "node"
            ranked.append(RankedOption(group=option.group, score=None, note=f"its {missing} is not known"))
            continue
        cost = prices[option.group] * option.node_count
        worth = sum(rates.pod_price(run.pod, 0, _HOUR) * run.count for run in option.pods)
        score = cost / worth if worth > 0 else cost and float("inf")
        note = f"{option.node_count} nodes cost {cost:.4f} an hour for pods worth {worth:.4f}"
        ranked.append(RankedOption(group=option.group, score=(score,), note=note))
    return ranked


def least_waste(question: RankOptions) -> list[RankedOption]:
    """Score options by the part of CPU and memory that would be idle, as upstream's least-waste expander does.

    ``question``: the options with their pods, and a node of each group. The result has one entry per option, in the
    order of the options; the smaller score is better. Options without a node, or with a pod that does not fit an empty
    node, have no score. Ties are broken by the number of nodes above the proven minimum that the pods need
    (:func:`needed_nodes`).
    """
    options = [
        Option(group=entry.group, node_count=entry.node_count, pods=[PodRun(run.pod, run.count) for run in entry.pods])
        for entry in question.options
    ]
    waste = waste_filter(options, ExpanderInput(nodes=question.nodes))
    ranked = []
    for option in question.options:
        if option.group in waste.skipped:
            ranked.append(RankedOption(group=option.group, score=None, note=waste.skipped[option.group]))
            continue
        try:
            minimum = needed_nodes(option, question.nodes[option.group])
        except InputError as error:
            ranked.append(RankedOption(group=option.group, score=None, note=str(error)))
            continue
        excess = option.node_count - minimum
        note = f"{waste.notes[option.group]} wasted; {option.node_count} nodes, {minimum} are proven to be needed"
        ranked.append(RankedOption(group=option.group, score=(waste.scores[option.group], float(excess)), note=note))
    return ranked


def needed_nodes(option: RankOption, node: Node) -> int:
    """Return a lower bound of the number of empty nodes like ``node`` that the pods of an option need.

    Resources that the node's allocatable (without one: its capacity) does not list are ignored. Raises InputError if a
    pod does not fit an empty node.
    """
    amounts = node.status.allocatable or node.status.capacity or {}
    demands: dict[tuple[int, ...], int] = {}
    requested = [(occupancy(run.pod), run.count) for run in option.pods]
    names = sorted({name for requests, _ in requested for name in requests if name in amounts} - {PODS})
    for requests, count in requested:
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
    """Return the amount of a resource: in milli-units for cpu, in units otherwise."""
    return quantity.milli_value() if name == CPU else quantity.value()


def best_of(ranked: Sequence[RankedOption]) -> list[str]:
    """Return the groups with the best score, in the order of the options. Raises InputError if none has a score."""
    scores = [option.score for option in ranked if option.score is not None]
    if not scores:
        raise InputError("; ".join(f"{option.group}: {option.note}" for option in ranked) or "there is no option")
    best = min(scores)
    return [option.group for option in ranked if option.score == best]
