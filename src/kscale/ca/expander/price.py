"""The ``price`` expander, and prices derived from those of node groups (upstream: ``expander/price``).

Upstream's price models belong to cloud providers; that of GCE is a price of a core and of a GiB for one hour, times
what a pod requests. Here the two prices come from the caller, are derived from the prices of the groups, or the cloud
provider is asked (:func:`filter_by_price_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import inf, isfinite
from typing import Any, Final

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.types import HOUR, ExpanderInput, FilterResult, MinimumScore, Option, PodRuns
from kscale.ca.gpu import node_has_gpu
from kscale.effects import ApiError, GetPrices, Moment, Prices, Progress, StepsOf
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.go_numbers import divide_floats, format_fixed, tanh
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_resources import CPU, MEMORY, occupancy
from kscale.objects.quantity import Quantity
from kscale.objects.times import virtual_moment

__all__ = [
    "GIB_PER_CORE",
    "GroupPrices",
    "HourlyPrices",
    "PreferredNode",
    "build_group_prices",
    "compute_node_unfitness",
    "filter_by_price",
    "filter_by_price_steps",
    "get_preferred_node",
    "suppress_unfitness",
]


GIB_PER_CORE = 7.5
"""So many GiB of memory cost as much as one core, roughly, in the price lists of the large clouds."""
_GIB = float(1 << 30)
_ZERO_QUANTITY = Quantity.zero()


class GroupPrices(msgspec.Struct, kw_only=True, frozen=True):
    """Prices per hour: ``nodes`` by name of a group's template node, pods by ``per_core`` and ``per_gib`` requested.

    ``amounts``: cached cores and GiB of pods, by identity.
    """

    nodes: dict[str, float]
    per_core: float
    per_gib: float
    amounts: dict[int, tuple[Pod, float, float]] = {}

    def node_price(self, node: Node, start: Moment, end: Moment) -> float:
        """Return the cost of a node from ``start`` to ``end``. Raises AutoscalerError if the node has no price."""
        price = self.nodes.get(node.metadata.name)
        if price is None:
            raise AutoscalerError("", f"no price for {node.metadata.name}")
        return price * _count_hours(start, end)

    def pod_price(self, pod: Pod, start: Moment, end: Moment) -> float:
        """Return the cost of the CPU and memory that a pod requests, from ``start`` to ``end``."""
        known = self.amounts.get(id(pod))
        if known is None:
            known = self.amounts[id(pod)] = (pod, *_get_cores_and_gib(occupancy(pod)))
        _, cores, gib = known
        return (cores * self.per_core + gib * self.per_gib) * _count_hours(start, end)

    def sum_pod_prices(self, pods: PodRuns, start: Moment, end: Moment) -> float:
        """Return the sum of :meth:`pod_price` of all pods, added one by one in their order."""
        return pods.sum_by_class(_Pricing(self.per_core, self.per_gib, _count_hours(start, end)))


class _Pricing(msgspec.Struct, frozen=True):
    """A function that returns the cost of the CPU and memory that a pod occupies for some hours.

    Functions for equal prices and hours are equal, so that their values can be cached.
    """

    per_core: float
    per_gib: float
    hours: float

    def __call__(self, occupied: Mapping[str, int]) -> float:
        """Return the cost of what a pod occupies, by resource."""
        cores, gib = occupied.get(CPU, 0) / 1000, occupied.get(MEMORY, 0) / _GIB
        return (cores * self.per_core + gib * self.per_gib) * self.hours


def build_group_prices(
    groups: Iterable[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    inputs: ExpanderInput,
    amounts: dict[int, tuple[Pod, float, float]] | None = None,
) -> GroupPrices:
    """Build the prices of the groups, and those of a core and a GiB.

    If ``inputs`` has no price of a core, it is the lowest of any group: the price of its node, divided by cores and
    memory (:data:`GIB_PER_CORE` GiB count as a core). So no option costs less than its pods are worth. If nothing has a
    cost, a core costs 1. A GiB costs its share of a core. A group without template gets no price and does not count.
    ``amounts`` are the cached pod amounts of earlier prices.

    Raises InputError that names each group without a price, and prices of a core and a GiB that are no amounts or both
    0.
    """
    groups = list(groups)
    problems = [
        Problem("the price expander needs a price", object=f"node group {group.id}", field="price")
        for group in groups
        if group.price is None
    ]
    rates = {"price_per_core_hour": inputs.price_per_core_hour, "price_per_gib_hour": inputs.price_per_gib_hour}
    problems += [
        Problem(f"{rate} is no price", field=name)
        for name, rate in rates.items()
        if rate is not None and not (isfinite(rate) and rate >= 0)
    ]
    if inputs.price_per_core_hour == 0 and not inputs.price_per_gib_hour:  # a GiB would get its share of that
        problems.append(Problem("a core or a GiB must cost something", field="price_per_core_hour"))
    if problems:
        raise InputError(problems)
    nodes, asked = {}, []
    for group in groups:
        template = templates.get(group.id)
        if template is None or group.price is None:
            continue
        nodes[template.node.metadata.name] = group.price
        cores, gib = _get_cores_and_gib(template.node.status.capacity or {})
        if group.price > 0 and cores + gib > 0:
            asked.append(group.price / (cores + gib / GIB_PER_CORE))
    per_core = inputs.price_per_core_hour
    if per_core is None:
        per_core = min(asked, default=1.0)
    per_gib = inputs.price_per_gib_hour
    if per_gib is None:
        per_gib = per_core / GIB_PER_CORE
    return GroupPrices(nodes=nodes, per_core=per_core, per_gib=per_gib, amounts={} if amounts is None else amounts)


def _count_hours(start: Moment, end: Moment) -> float:
    """Return the hours from ``start`` to ``end``."""
    return (end - start) / HOUR


def _get_cores_and_gib(amounts: Mapping[str, Quantity]) -> tuple[float, float]:
    """Return (cores, GiB of memory) of amounts by resource; 0 for an absent resource."""
    return amounts.get(CPU, _ZERO_QUANTITY).milli_value() / 1000, amounts.get(MEMORY, _ZERO_QUANTITY).value() / _GIB


_MIB = 1 << 20
_GPU_UNFITNESS = 1000.0
_NON_EXISTING_FACTOR = 2.0
_UNFITNESS_SUPPRESSION = 15.0

_STABILIZATION_POD_DATA: Final[dict[str, Any]] = {
    "metadata": {
        "name": "stabilize", "namespace": "default", "selfLink": "/api/v1/namespaces/default/pods/stabilize",
    },
    "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "524288k"}}}]},
}  # fmt: skip
_STABILIZATION_POD = from_dict(_STABILIZATION_POD_DATA, Pod)
"""Its price is added to both sides of the ratio, so that small options do not decide by rounding."""


class PreferredNode(msgspec.Struct, frozen=True):
    """The node size that suits a cluster: milli-CPU and bytes."""

    milli_cpu: int
    memory: int


_PREFERRED_CORES = ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16), (inf, 32))
_PREFERRED_WITHOUT_NODE_COUNT = PreferredNode(4000, 16 * 1024 * _MIB)


class HourlyPrices(msgspec.Struct, kw_only=True):
    """A price list: prices per hour of nodes and pods by name. A name that is not listed costs nothing.

    This is the content of a price file. Names in ``node_errors`` and ``pod_errors`` have an unknown price.
    """

    nodes: dict[str, float] = msgspec.field(default_factory=dict)
    pods: dict[str, float] = msgspec.field(default_factory=dict)
    node_errors: list[str] = msgspec.field(default_factory=list)
    pod_errors: list[str] = msgspec.field(default_factory=list)

    def node_price(self, node: Node, start: datetime | Moment, end: datetime | Moment) -> float:
        """Return the price of a node from ``start`` to ``end``, by its name; 0 if it is not listed.

        Raises :class:`AutoscalerError` if ``node_errors`` has the name.
        """
        return self._price(node.metadata.name or "", self.nodes, self.node_errors, start, end)

    def pod_price(self, pod: Pod, start: datetime | Moment, end: datetime | Moment) -> float:
        """Return the price of a pod from ``start`` to ``end``, by its name; 0 if it is not listed.

        Raises :class:`AutoscalerError` if ``pod_errors`` has the name.
        """
        return self._price(pod.metadata.name or "", self.pods, self.pod_errors, start, end)

    @staticmethod
    def _price(
        name: str, prices: dict[str, float], errors: list[str], start: datetime | Moment, end: datetime | Moment
    ) -> float:
        """Return the price from ``start`` to ``end``, of ``prices`` per hour by name; 0 if it is not listed.

        Raises AutoscalerError if ``errors`` has the name.
        """
        passed = virtual_moment(end, "end") - virtual_moment(start, "start")
        if name in errors:
            raise AutoscalerError("", f"no price for {name}")
        return prices.get(name, 0.0) * (passed / HOUR)


def get_preferred_node(cluster_node_count: int | None) -> PreferredNode:
    """Return the preferred node size for a cluster with this number of nodes.

    The number of cores is 1 up to 2 nodes, 2 up to 6, 4 up to 20, 8 up to 60, 16 up to 200, and 32 above, with 3,750
    MiB of memory for each core. If the number of nodes is None (unknown), the size is 4 cores and 16 GiB.
    """
    if cluster_node_count is None:
        return _PREFERRED_WITHOUT_NODE_COUNT
    cores = next(cores for limit, cores in _PREFERRED_CORES if cluster_node_count <= limit)
    return PreferredNode(cores * 1000, cores * 3750 * _MIB)


def compute_node_unfitness(preferred: PreferredNode, node: Node) -> float:
    """Return how many times larger or smaller the node's CPU capacity is than the preferred one.

    1 is ideal; a node without CPU gives infinity.
    """
    capacity = (node.status.capacity or {}).get("cpu", Quantity.zero())
    cpu, wanted = float(capacity.milli_value()), float(preferred.milli_cpu)
    return max(divide_floats(wanted, cpu), divide_floats(cpu, wanted))


def suppress_unfitness(unfitness: float, node_count: int) -> float:
    """Return the unfitness, moved towards 1 (ideal) the more nodes are added at once (``node_count``)."""
    return (unfitness - 1.0) * (1.0 - tanh((node_count - 1) / _UNFITNESS_SUPPRESSION)) + 1.0


def filter_by_price(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options with the lowest price score. Options without a node template or a price are skipped.

    If all are skipped, no option survives. Survivors are copies with the calculation in ``debug`` and without similar
    groups.
    """
    assert inputs.prices is not None  # the chain is not built without prices
    start, end = inputs.hour

    def per_hour(pod: Pod) -> float:
        return inputs.prices.pod_price(pod, start, end)  # type: ignore[union-attr]  # the assertion above excludes None

    preferred = get_preferred_node(inputs.cluster_node_count)
    try:
        stabilization = per_hour(_STABILIZATION_POD)
    except AutoscalerError:
        stabilization = 0.0
    result = FilterResult(survivors=[])
    minimum = MinimumScore()
    notes: dict[int, str] = {}  # by identity: several options may have one group
    for option in options:
        node = inputs.nodes.get(option.group)
        if node is None:
            result.skipped[option.group] = f"No node info for {option.group}"
            continue
        try:
            nodes = inputs.prices.node_price(node, start, end) * float(option.node_count)
            if isinstance(inputs.prices, GroupPrices) and isinstance(option.pods, PodRuns):
                pods = inputs.prices.sum_pod_prices(option.pods, start, end)
            else:
                pods = _get_pods_price(option, per_hour)
        except AutoscalerError as error:
            result.skipped[option.group] = f"Failed to calculate price for {option.group}: {error.message}"
            continue
        ratio = divide_floats(nodes + stabilization, pods + stabilization)
        unfitness = compute_node_unfitness(preferred, node)
        suppressed = suppress_unfitness(unfitness, option.node_count)
        if node_has_gpu(inputs.gpu_label, node):
            suppressed = _GPU_UNFITNESS
        score = suppressed * ratio
        if not option.exists:
            score *= _NON_EXISTING_FACTOR
        parts = {
            "all_nodes_price": nodes,
            "pods_price": pods,
            "stabilized_ratio": ratio,
            "unfitness": unfitness,
            "suppressed": suppressed,
            "final_score": score,
        }
        result.scores[option.group] = score
        result.parts[option.group] = parts
        result.notes[option.group] = notes[id(option)] = _format_note(option.debug, parts)
        minimum.offer(option, score)
    result.survivors = [
        msgspec.structs.replace(option, similar=[], debug=notes[id(option)]) for option in minimum.options
    ]
    return result


def _format_note(debug: str, parts: Mapping[str, float]) -> str:
    """Return upstream's description of a score: the option's ``debug`` text, then name and value of each number."""
    numbers = " ".join(f"{name}={format_fixed(number)}" for name, number in parts.items())
    return f"{debug} | price-expander: {numbers}"


def _get_pods_price(option: Option, per_hour: Callable[[Pod], float]) -> float:
    """Return the price per hour of all pods of the option, added one by one; ``per_hour`` returns that of one pod."""
    total = 0.0
    for run in option.pods:
        one = per_hour(run.pod)
        for _ in range(run.count):  # the sum depends on the order of additions
            total += one
    return total


def filter_by_price_steps(
    p: Progress, options: Sequence[Option], inputs: ExpanderInput
) -> StepsOf[GetPrices, FilterResult]:
    """Apply the price filter with ``inputs.prices``; if that is None, with prices that the cloud provider returns.

    The provider is queried for the price of each option's template, and of the first pod of each :class:`PodRun`.
    If the request fails, no option has a price, so none survives.
    """
    if inputs.prices is not None:
        return filter_by_price(options, inputs)
    nodes = {option.group: inputs.nodes[option.group] for option in options if option.group in inputs.nodes}
    pods = {run.pod.key: run for option in options for run in option.pods}
    start, end = inputs.hour
    query = GetPrices(
        nodes=(*nodes.values(),),
        pods=(_STABILIZATION_POD_DATA, *(run.data for run in pods.values())),
        start=start,
        end=end,
    )
    outcome = yield from p.act(query)
    if outcome.error is not None:
        prices = Prices(nodes=(outcome.error,) * len(nodes), pods=(outcome.error,) * len(query.pods))
    else:
        prices = outcome.value
    stabilization, *of_pods = prices.pods
    model = _CloudPrices(
        nodes={id(node): answer for node, answer in zip(nodes.values(), prices.nodes, strict=True)},
        pods=dict(zip(pods, of_pods, strict=True)),
        stabilization=stabilization,
    )
    return filter_by_price(options, replace(inputs, prices=model))


class _CloudPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices that the cloud provider returned for one period. They are used for every requested period.

    ``nodes``: by identity; ``pods``: by key.
    """

    nodes: dict[int, float | ApiError]
    pods: dict[str, float | ApiError]
    stabilization: float | ApiError

    def node_price(self, node: Node, start: Moment, end: Moment) -> float:  # noqa: ARG002  # each price model has these parameters
        """Return the provider's price of the node; the period is ignored.

        Raises AutoscalerError if the provider has no price.
        """
        return _get_price_or_raise(self.nodes[id(node)])

    def pod_price(self, pod: Pod, start: Moment, end: Moment) -> float:  # noqa: ARG002  # as above
        """Return the provider's price of the pod; the period is ignored.

        Raises AutoscalerError if the provider has no price.
        """
        return _get_price_or_raise(self.stabilization if pod is _STABILIZATION_POD else self.pods[pod.key])


def _get_price_or_raise(price: float | ApiError) -> float:
    """Return the price. Raises AutoscalerError if the provider returned an error."""
    if isinstance(price, ApiError):
        raise AutoscalerError("", price.message)
    return float(price)
