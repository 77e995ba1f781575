"""Prices of nodes by their group, and of pods by what they request: a price model for those who have no cloud to ask.

Upstream's price models belong to its cloud providers. That of GCE has the same shape: a price of a core and of a GiB
for one hour, times what a pod requests. Here the two come from the groups themselves unless they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.types import HOUR, ExpanderInput
from kscale.effects import Moment
from kscale.errors import InputError, Problem
from kscale.objects.core import Node, Pod
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY, occupancy

__all__ = ["GIB_PER_CORE", "GroupPrices", "group_prices"]

GIB_PER_CORE = 7.5
"""So many GiB of memory cost as much as one core, roughly, in the price lists of the large clouds."""
_GIB = float(1 << 30)
_NONE = Quantity.zero()


class GroupPrices(msgspec.Struct, kw_only=True, frozen=True):
    """Per hour: ``nodes`` by the name of a group's template node, pods by ``per_core`` and ``per_gib`` requested.

    ``amounts``: pods by identity, with the cores and GiB that they request, of those that were asked about.
    """

    nodes: dict[str, float]
    per_core: float
    per_gib: float
    amounts: dict[int, tuple[Pod, float, float]] = {}

    def node_price(self, node: Node, start: Moment, end: Moment) -> float:
        price = self.nodes.get(node.metadata.name)
        if price is None:
            raise AutoscalerError("", f"no price for {node.metadata.name}")
        return price * _hours(start, end)

    def pod_price(self, pod: Pod, start: Moment, end: Moment) -> float:
        known = self.amounts.get(id(pod))
        if known is None:
            known = self.amounts[id(pod)] = (pod, *_cores_and_gib(occupancy(pod)))
        _, cores, gib = known
        return (cores * self.per_core + gib * self.per_gib) * _hours(start, end)


def group_prices(
    groups: Iterable[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    given: ExpanderInput,
    amounts: dict[int, tuple[Pod, float, float]] | None = None,
) -> GroupPrices:
    """The prices that the groups say, and those of a core and a GiB.

    Where ``given`` does not say what a core costs, it is the least that any group asks for one: the price of its node,
    divided by cores and memory (:data:`GIB_PER_CORE` GiB count as a core). So no option costs less than its pods are
    worth. Where nothing costs anything a core costs 1. A GiB costs its part of a core. ``amounts``: of the prices of
    another time, whose pods need not be looked at again.

    Raises InputError that names each group without a price, and prices of a core and a GiB that are no
    amounts or both 0.
    """
    groups = list(groups)
    problems = [
        Problem("the price expander needs a price", object=f"node group {group.id}", field="price")
        for group in groups
        if group.price is None
    ]
    rates = {"price_per_core_hour": given.price_per_core_hour, "price_per_gib_hour": given.price_per_gib_hour}
    problems += [
        Problem(f"{rate} is no price", field=name)
        for name, rate in rates.items()
        if rate is not None and not (isfinite(rate) and rate >= 0)
    ]
    if not any(rate is None or rate for rate in rates.values()):
        problems.append(Problem("a core or a GiB must cost something", field="price_per_core_hour"))
    if problems:
        raise InputError(problems)
    nodes, asked = {}, []
    for group in groups:
        template = templates.get(group.id)
        if template is None or group.price is None:
            continue
        nodes[template.node.metadata.name] = group.price
        cores, gib = _cores_and_gib(template.node.status.capacity or {})
        if group.price > 0 and cores + gib > 0:
            asked.append(group.price / (cores + gib / GIB_PER_CORE))
    per_core = given.price_per_core_hour
    if per_core is None:
        per_core = min(asked, default=1.0)
    per_gib = given.price_per_gib_hour
    if per_gib is None:
        per_gib = per_core / GIB_PER_CORE
    return GroupPrices(nodes=nodes, per_core=per_core, per_gib=per_gib, amounts={} if amounts is None else amounts)


def _hours(start: Moment, end: Moment) -> float:
    return (end - start) / HOUR


def _cores_and_gib(amounts: Mapping[str, Quantity]) -> tuple[float, float]:
    return amounts.get(CPU, _NONE).milli_value() / 1000, amounts.get(MEMORY, _NONE).value() / _GIB
