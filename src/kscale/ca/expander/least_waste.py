"""least-waste: the options that leave the smallest part of CPU plus memory unused (``expander/waste``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from kscale.ca.expander.minimum import Minimum
from kscale.ca.expander.types import ExpanderInput, Filtered, Option, PodRun
from kscale.ca.go_math import divide, format_fixed, wrap_int64
from kscale.objects.core import Node
from kscale.objects.quantity import Quantity
from kscale.objects.requests import occupancy

__all__ = ["least_waste"]

_NOTHING = Quantity.zero()


def least_waste(options: Sequence[Option], given: ExpanderInput) -> Filtered:
    """Keeps the options with the smallest score: wasted CPU fraction plus wasted memory fraction.

    Requests are summed exactly and rounded up once; a node has its *capacity*. Nodes without capacity make the score
    infinite or not a number: a first option that is not a number is never beaten.
    """
    result = Filtered(survivors=[])
    minimum = Minimum()
    for option in options:
        node = given.nodes.get(option.group)
        if node is None:
            result.skipped[option.group] = f"No node info for: {option.group}"
            continue
        cpu, memory = _wasted(option, node)
        score = cpu + memory
        result.scores[option.group] = score
        result.notes[option.group] = (
            f"{format_fixed(cpu * 100.0, 2)}% CPU, {format_fixed(memory * 100.0, 2)}% Memory, "
            f"{format_fixed(score * 50.0, 2)}%"
        )
        minimum.offer(option, score)
    result.survivors = minimum.options
    return result


def _wasted(option: Option, node: Node) -> tuple[float, float]:
    capacity = node.status.capacity or {}
    cpu = wrap_int64(capacity.get("cpu", _NOTHING).milli_value() * option.node_count)
    memory = wrap_int64(capacity.get("memory", _NOTHING).value() * option.node_count)
    used_cpu = _total(option.pods, "cpu").milli_value()
    used_memory = _total(option.pods, "memory").value()
    return (
        divide(float(wrap_int64(cpu - used_cpu)), float(cpu)),
        divide(float(wrap_int64(memory - used_memory)), float(memory)),
    )


def _total(runs: Sequence[PodRun], resource: str) -> Quantity:
    total = _NOTHING
    for run in runs:
        request = occupancy(run.pod).get(resource)
        if request is not None:
            total = total + _times(request, run.count)
    return total


@cache
def _times(quantity: Quantity, count: int) -> Quantity:
    """``quantity`` added ``count`` times, by doubling."""
    if count < 2:
        return quantity if count else _NOTHING
    half = _times(quantity, count // 2)
    return half + half + quantity if count % 2 else half + half
