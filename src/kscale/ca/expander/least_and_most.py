"""The expanders ``least-nodes``, ``least-waste`` and ``most-pods``.

Upstream: ``expander/leastnodes``, ``expander/waste``, ``expander/mostpods``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.expander.types import ExpanderInput, FilterResult, MinimumScore, Option, PodRun, PodRuns
from kscale.ca.go_math import divide_floats, format_fixed, wrap_int64
from kscale.objects.api.core import Node, Pod
from kscale.objects.pod_resources import CPU, MEMORY, occupancy
from kscale.objects.quantity import Quantity

__all__ = ["filter_least_nodes", "filter_least_waste", "filter_most_pods"]


def filter_least_nodes(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options with the smallest node count; options without nodes are skipped."""
    del inputs
    counted = [option for option in options if option.node_count != 0]
    best = min((option.node_count for option in counted), default=0)
    return FilterResult(
        survivors=[option for option in counted if option.node_count == best],
        scores={option.group: float(option.node_count) for option in counted},
        skipped={option.group: "no nodes" for option in options if option.node_count == 0},
    )


def filter_most_pods(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options with the largest number of pods; ``scores`` are the negated numbers."""
    del inputs
    counts = [option.pod_count for option in options]
    best = max(counts, default=0)
    return FilterResult(
        survivors=[option for option, count in zip(options, counts, strict=True) if count == best],
        scores={option.group: -float(count) for option, count in zip(options, counts, strict=True)},
    )


_ZERO_QUANTITY = Quantity.zero()


def filter_least_waste(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options with the smallest score: wasted CPU fraction plus wasted memory fraction.

    Requests are summed exactly and rounded up once; a node has its *capacity*. Nodes without capacity make the score
    infinite or NaN: no later option beats a first option that is NaN.
    """
    result = FilterResult(survivors=[])
    minimum = MinimumScore()
    known: _RequestsByPod = {}
    for option in options:
        node = inputs.nodes.get(option.group)
        if node is None:
            result.skipped[option.group] = f"No node info for: {option.group}"
            continue
        cpu, memory = _compute_waste(option, node, known)
        score = cpu + memory
        result.scores[option.group] = score
        result.notes[option.group] = (
            f"{format_fixed(cpu * 100.0, 2)}% CPU, {format_fixed(memory * 100.0, 2)}% Memory, "
            f"{format_fixed(score * 50.0, 2)}%"
        )
        minimum.offer(option, score)
    result.survivors = minimum.options
    return result


_RequestsByPod = dict[int, tuple[Pod, int, int]]
"""By ``id`` of a pod: the pod, to keep it alive, and its requests of cpu and memory, in billionths."""

_NANO = 10**9


def _compute_waste(option: Option, node: Node, known: _RequestsByPod) -> tuple[float, float]:
    capacity = node.status.capacity or {}
    cpu = wrap_int64(capacity.get(CPU, _ZERO_QUANTITY).milli_value() * option.node_count)
    memory = wrap_int64(capacity.get(MEMORY, _ZERO_QUANTITY).value() * option.node_count)
    used_cpu, used_memory = _sum_requests(option.pods, known)
    return (
        divide_floats(float(wrap_int64(cpu - used_cpu)), float(cpu)),
        divide_floats(float(wrap_int64(memory - used_memory)), float(memory)),
    )


def _sum_requests(runs: Sequence[PodRun], known: _RequestsByPod) -> tuple[int, int]:
    """Return (milli-CPU, bytes), each rounded up once after the exact sum."""
    cpu = memory = 0
    if isinstance(runs, PodRuns):
        cpu, memory = runs.requested
        runs = ()
    for run in runs:
        pod_requests = known.get(id(run.pod))
        if pod_requests is None:
            requests = occupancy(run.pod)
            amounts = [requests.get(name, _ZERO_QUANTITY).billionths() for name in (CPU, MEMORY)]
            pod_requests = known[id(run.pod)] = run.pod, amounts[0], amounts[1]
        cpu += pod_requests[1] * run.count
        memory += pod_requests[2] * run.count
    return _round_away_from_zero(cpu, _NANO // 1000), _round_away_from_zero(memory, _NANO)


def _round_away_from_zero(amount: int, unit: int) -> int:
    """Round away from zero, as quantities are read; sums beyond 64 bits wrap."""
    rounded = -(-abs(amount) // unit)
    return wrap_int64(rounded if amount >= 0 else -rounded)
