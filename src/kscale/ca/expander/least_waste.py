"""least-waste: the options that leave the smallest part of CPU plus memory unused (``expander/waste``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kscale.ca.expander.minimum import Minimum
from kscale.ca.expander.types import ExpanderInput, Filtered, Option, PodRun
from kscale.ca.go_math import divide, format_fixed, wrap_int64
from kscale.objects.core import Node, Pod
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, MEMORY, occupancy

__all__ = ["least_waste"]

_NOTHING = Quantity.zero()


def least_waste(options: Sequence[Option], given: ExpanderInput) -> Filtered:
    """Keeps the options with the smallest score: wasted CPU fraction plus wasted memory fraction.

    Requests are summed exactly and rounded up once; a node has its *capacity*. Nodes without capacity make the score
    infinite or not a number: a first option that is not a number is never beaten.
    """
    result = Filtered(survivors=[])
    minimum = Minimum()
    known: _Requests = {}
    for option in options:
        node = given.nodes.get(option.group)
        if node is None:
            result.skipped[option.group] = f"No node info for: {option.group}"
            continue
        cpu, memory = _wasted(option, node, known)
        score = cpu + memory
        result.scores[option.group] = score
        result.notes[option.group] = (
            f"{format_fixed(cpu * 100.0, 2)}% CPU, {format_fixed(memory * 100.0, 2)}% Memory, "
            f"{format_fixed(score * 50.0, 2)}%"
        )
        minimum.offer(option, score)
    result.survivors = minimum.options
    return result


_Requests = dict[int, tuple[Pod, Quantity, Quantity]]
"""By identity of a pod (kept alive here): its requests of cpu and memory."""


def _wasted(option: Option, node: Node, known: _Requests) -> tuple[float, float]:
    capacity = node.status.capacity or {}
    cpu = wrap_int64(capacity.get(CPU, _NOTHING).milli_value() * option.node_count)
    memory = wrap_int64(capacity.get(MEMORY, _NOTHING).value() * option.node_count)
    used_cpu = used_memory = _NOTHING
    # Adding is exact, so that equal requests may be counted first.
    for (pod_cpu, pod_memory), count in _by_requests(option.pods, known).items():
        used_cpu = used_cpu + _times(pod_cpu, count)
        used_memory = used_memory + _times(pod_memory, count)
    return (
        divide(float(wrap_int64(cpu - used_cpu.milli_value())), float(cpu)),
        divide(float(wrap_int64(memory - used_memory.value())), float(memory)),
    )


def _by_requests(runs: Sequence[PodRun], known: _Requests) -> dict[tuple[Quantity, Quantity], int]:
    counts: dict[int, int] = {}
    for run in runs:
        identity = id(run.pod)
        if identity not in known:
            requests = occupancy(run.pod)
            known[identity] = run.pod, requests.get(CPU, _NOTHING), requests.get(MEMORY, _NOTHING)
        counts[identity] = counts.get(identity, 0) + run.count
    found: dict[tuple[Quantity, Quantity], int] = {}
    for identity, count in counts.items():
        key = known[identity][1:]
        found[key] = found.get(key, 0) + count
    return found


@lru_cache(maxsize=1 << 14)
def _times(quantity: Quantity, count: int) -> Quantity:
    """``quantity`` added ``count`` times, by doubling."""
    if count < 2:
        return quantity if count else _NOTHING
    half = _times(quantity, count // 2)
    return half + half + quantity if count % 2 else half + half
