"""price: the options that cost least for what they run, on nodes that suit the cluster's size (``expander/price``).

Prices come from a model that the caller has, or the cloud is asked (:func:`price_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Any, Final

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.minimum import Minimum
from kscale.ca.expander.types import HOUR, ExpanderInput, Filtered, Option, PriceModel
from kscale.ca.go_math import divide, format_fixed, tanh
from kscale.ca.gpu import node_has_gpu
from kscale.effects import ApiError, GetPrices, Moment, Prices, Progress, StepsOf
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.objects.times import virtual_moment

__all__ = [
    "HourlyPrices",
    "PreferredNode",
    "node_unfitness",
    "preferred_node",
    "price",
    "price_steps",
    "suppressed_unfitness",
]

_MIB = 1 << 20
_GPU_UNFITNESS = 1000.0
_NON_EXISTING_FACTOR = 2.0
_SUPPRESSION = 15.0

_STABILIZATION: Final[dict[str, Any]] = {
    "metadata": {
        "name": "stabilize", "namespace": "default", "selfLink": "/api/v1/namespaces/default/pods/stabilize",
    },
    "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "524288k"}}}]},
}  # fmt: skip
_STABILIZATION_POD = from_dict(_STABILIZATION, Pod)
"""Its price is added to both sides of the ratio, so that small options do not decide by rounding."""


class PreferredNode(msgspec.Struct, frozen=True):
    """The node size that suits a cluster: milli-CPU and bytes."""

    milli_cpu: int
    memory: int


_PREFERRED = ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16), (inf, 32))
_WITHOUT_CLUSTER = PreferredNode(4000, 16 * 1024 * _MIB)


class HourlyPrices(msgspec.Struct, kw_only=True):
    """A price list: per hour, nodes and pods by name; what is not listed costs nothing.

    It is what a price file says. Names in ``node_errors`` and ``pod_errors`` have no price that can be told.
    """

    nodes: dict[str, float] = msgspec.field(default_factory=dict)
    pods: dict[str, float] = msgspec.field(default_factory=dict)
    node_errors: list[str] = msgspec.field(default_factory=list)
    pod_errors: list[str] = msgspec.field(default_factory=list)

    def node_price(self, node: Node, start: datetime | Moment, end: datetime | Moment) -> float:
        """What a node costs from ``start`` to ``end``, by its name; one without a price costs nothing.

        Raises :class:`AutoscalerError` where ``node_errors`` names it.
        """
        return self._price(node.metadata.name or "", self.nodes, self.node_errors, start, end)

    def pod_price(self, pod: Pod, start: datetime | Moment, end: datetime | Moment) -> float:
        """What a pod costs from ``start`` to ``end``, by its name; one without a price costs nothing.

        Raises :class:`AutoscalerError` where ``pod_errors`` names it.
        """
        return self._price(pod.metadata.name or "", self.pods, self.pod_errors, start, end)

    @staticmethod
    def _price(
        name: str, prices: dict[str, float], errors: list[str], start: datetime | Moment, end: datetime | Moment
    ) -> float:
        passed = virtual_moment(end, "end") - virtual_moment(start, "start")
        if name in errors:
            raise AutoscalerError("", f"no price for {name}")
        return prices.get(name, 0.0) * (passed / HOUR)


def preferred_node(cluster_node_count: int | None) -> PreferredNode:
    """The preferred node for a cluster of that many nodes; None: nobody knows how many."""
    if cluster_node_count is None:
        return _WITHOUT_CLUSTER
    cores = next(cores for limit, cores in _PREFERRED if cluster_node_count <= limit)
    return PreferredNode(cores * 1000, cores * 3750 * _MIB)


def node_unfitness(preferred: PreferredNode, node: Node) -> float:
    """How many times larger or smaller the node's CPU capacity is than the preferred one (1 = just right)."""
    capacity = (node.status.capacity or {}).get("cpu", Quantity.zero())
    cpu, wanted = float(capacity.milli_value()), float(preferred.milli_cpu)
    return max(divide(wanted, cpu), divide(cpu, wanted))


def suppressed_unfitness(unfitness: float, node_count: int) -> float:
    """Unfitness matters less the more nodes are added at once."""
    return (unfitness - 1.0) * (1.0 - tanh((node_count - 1) / _SUPPRESSION)) + 1.0


def price(options: Sequence[Option], given: ExpanderInput) -> Filtered:
    """Keeps the options with the smallest score.

    Survivors are new options: they carry the arithmetic in ``debug`` and have no similar groups any more.
    """
    assert given.prices is not None  # the chain is not built without prices
    start, end = given.hour

    def per_hour(pod: Pod) -> float:
        return given.prices.pod_price(pod, start, end)  # type: ignore[union-attr]  # asserted above

    preferred = preferred_node(given.cluster_node_count)
    try:
        stabilization = per_hour(_STABILIZATION_POD)
    except AutoscalerError:
        stabilization = 0.0
    result = Filtered(survivors=[])
    minimum = Minimum()
    for option in options:
        node = given.nodes.get(option.group)
        if node is None:
            result.skipped[option.group] = f"No node info for {option.group}"
            continue
        try:
            nodes = _nodes_price(given.prices, node, option.node_count, start, end)
            pods = _pods_price(option, per_hour)
        except AutoscalerError as error:
            result.skipped[option.group] = f"Failed to calculate price for {option.group}: {error.message}"
            continue
        ratio = divide(nodes + stabilization, pods + stabilization)
        unfitness = node_unfitness(preferred, node)
        suppressed = suppressed_unfitness(unfitness, option.node_count)
        if node_has_gpu(given.gpu_label, node):
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
        debug = f"{option.debug} | price-expander: " + " ".join(
            f"{name}={format_fixed(number)}" for name, number in parts.items()
        )
        result.scores[option.group] = score
        result.notes[option.group] = debug
        result.parts[option.group] = parts
        minimum.offer(msgspec.structs.replace(option, similar=[], debug=debug), score)
    result.survivors = minimum.options
    return result


def _nodes_price(prices: PriceModel, node: Node, count: int, start: Moment, end: Moment) -> float:
    return prices.node_price(node, start, end) * float(count)


def _pods_price(option: Option, per_hour: Callable[[Pod], float]) -> float:
    total = 0.0
    for run in option.pods:
        one = per_hour(run.pod)
        for _ in range(run.count):  # a sum of doubles depends on its steps
            total += one
    return total


def price_steps(p: Progress, options: Sequence[Option], given: ExpanderInput) -> StepsOf[GetPrices, Filtered]:
    """The same with ``given.prices``, or where there are none with those that the cloud tells when it is asked: of the
    template of each option's group, and of one pod of each run; a scale-up lists pods one by one for that."""
    if given.prices is not None:
        return price(options, given)
    nodes = {option.group: given.nodes[option.group] for option in options if option.group in given.nodes}
    pods = {run.pod.key: run for option in options for run in option.pods}
    start, end = given.hour
    question = GetPrices(
        nodes=(*nodes.values(),),
        pods=(_STABILIZATION, *(run.data for run in pods.values())),
        start=start,
        end=end,
    )
    outcome = yield from p.act(question)
    if outcome.error is not None:
        told = Prices(nodes=(outcome.error,) * len(nodes), pods=(outcome.error,) * len(question.pods))
    else:
        told = outcome.value
    stabilization, *of_pods = told.pods
    model = _Told(
        nodes={id(node): answer for node, answer in zip(nodes.values(), told.nodes, strict=True)},
        pods=dict(zip(pods, of_pods, strict=True)),
        stabilization=stabilization,
    )
    return price(options, replace(given, prices=model))


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """Prices for the time that was asked about, whatever is asked now. ``nodes``: by identity; ``pods``: by their
    keys."""

    nodes: dict[int, float | ApiError]
    pods: dict[str, float | ApiError]
    stabilization: float | ApiError

    def node_price(self, node: Node, start: Moment, end: Moment) -> float:  # noqa: ARG002  # as every model has them
        return _amount(self.nodes[id(node)])

    def pod_price(self, pod: Pod, start: Moment, end: Moment) -> float:  # noqa: ARG002  # the same
        return _amount(self.stabilization if pod is _STABILIZATION_POD else self.pods[pod.key])


def _amount(told: float | ApiError) -> float:
    if isinstance(told, ApiError):
        raise AutoscalerError("", told.message)
    return float(told)
