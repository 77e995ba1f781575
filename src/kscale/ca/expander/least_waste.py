"""least-waste: the options that leave the smallest part of CPU plus memory unused (``expander/waste``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.expander.minimum import Minimum
from kscale.ca.expander.types import ExpanderInput, Filtered, Option, PodRun, PodRuns
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


_Requests = dict[int, tuple[Pod, int, int]]
"""By identity of a pod (kept alive here): what it requests of cpu and memory, in billionths."""

_NANO = 10**9


def _wasted(option: Option, node: Node, known: _Requests) -> tuple[float, float]:
    capacity = node.status.capacity or {}
    cpu = wrap_int64(capacity.get(CPU, _NOTHING).milli_value() * option.node_count)
    memory = wrap_int64(capacity.get(MEMORY, _NOTHING).value() * option.node_count)
    used_cpu, used_memory = _used(option.pods, known)
    return (
        divide(float(wrap_int64(cpu - used_cpu)), float(cpu)),
        divide(float(wrap_int64(memory - used_memory)), float(memory)),
    )


def _used(runs: Sequence[PodRun], known: _Requests) -> tuple[int, int]:
    """(milli-CPU, bytes), each rounded up once after the exact sum."""
    cpu = memory = 0
    if isinstance(runs, PodRuns):
        cpu, memory = runs.requested
        runs = ()
    for run in runs:
        found = known.get(id(run.pod))
        if found is None:
            requests = occupancy(run.pod)
            amounts = [requests.get(name, _NOTHING).billionths() for name in (CPU, MEMORY)]
            found = known[id(run.pod)] = run.pod, amounts[0], amounts[1]
        cpu += found[1] * run.count
        memory += found[2] * run.count
    return _rounded(cpu, _NANO // 1000), _rounded(memory, _NANO)


def _rounded(amount: int, unit: int) -> int:
    """Away from zero, as a quantity is read; sums beyond 64 bits wrap."""
    whole = -(-abs(amount) // unit)
    return wrap_int64(whole if amount >= 0 else -whole)
