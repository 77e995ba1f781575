"""Which group the fast path takes (upstream: ``estimator/binpacking_estimator.go``, ``bestFastpath``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.scheduling.facts import HOSTNAME
from kscale.snapshot.interner import PodClass

__all__ = ["best_fast_path"]


def _ceil_div(total: float, capacity: float) -> int:
    if capacity == 0:
        return 0 if total == 0 or math.isnan(total) else (1 << 63) - 1
    return math.ceil(total / capacity)


def _matches_itself(pod: PodClass) -> bool:
    """A required anti-affinity term with the hostname key that means the pod itself; namespaces are not looked at."""
    for term in pod.anti_affinity:
        if term.topology_key != HOSTNAME or term.label_selector is None:
            continue
        try:
            if compile_selector(term.label_selector).matches(pod.labels):
                return True
        except SelectorError:
            continue
    return False


def _eligible(pod: PodClass) -> bool:
    return pod.spread is None and all(term.topology_key == HOSTNAME for term in pod.anti_affinity)


def best_fast_path(groups: Sequence[tuple[PodClass | None, int]], template: NodeTemplate) -> int:
    """Position of the group with the most simulated placements to save, or -1. ``groups``: (exemplar, number of pods);
    of equals the later. Amounts are doubles over the template's *capacity*, as upstream computes them."""
    capacity = template.node.status.capacity or {}
    best, most = -1, 0
    for i, (pod, count) in enumerate(groups):
        if pod is None or count == 0:
            continue
        nodes = count if _matches_itself(pod) else 0
        if pod.first_request is not None:
            for name, request in zip(("cpu", "memory"), pod.first_request, strict=True):
                have = capacity[name].approximate_float() if name in capacity else 0.0
                nodes = max(nodes, _ceil_div(float(count) * request, have))
        saved = count - count // nodes if nodes > 0 else 0
        if saved >= most and _eligible(pod):
            best, most = i, saved
    return best
