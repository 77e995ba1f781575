"""How many nodes an estimate may add (upstream: ``estimator/threshold_based_limiter.go`` and the thresholds)."""

from __future__ import annotations

from collections.abc import Callable

from kscale.ca.estimator.options import EstimateOptions, NodeGroupSize
from kscale.errors import InputError

__all__ = ["cluster_capacity", "limit_in_words", "node_limit", "sng_capacity", "stricter"]


def stricter(base: int, target: int) -> int:
    """The stricter of two limits: 0 = no limit, negative = nothing allowed."""
    if base < 0 or target < 0:
        return -1
    return target if target > 0 and (base == 0 or base > target) else base


def sng_capacity(options: EstimateOptions) -> int:
    """What the group and its similar groups can still grow by; no room at all allows nothing."""
    if options.no_context:
        return 0
    groups: list[NodeGroupSize] = [*options.similar_node_groups]
    if options.node_group is not None:
        groups.append(options.node_group)
    room = sum(max(0, g.max_size - (0 if g.target_size_error else g.target_size)) for g in groups if not _unknown(g))
    return room if room > 0 else -1


def _unknown(group: NodeGroupSize) -> bool:
    return group.target_size_error


def cluster_capacity(options: EstimateOptions) -> int:
    """What ``MaxNodesTotal`` leaves."""
    if options.no_context or options.cluster_max_nodes == 0:
        return 0
    if options.cluster_max_nodes < 0 or options.cluster_max_nodes <= options.current_node_count:
        return -1
    return options.cluster_max_nodes - options.current_node_count


_LIMITS: dict[str, Callable[[EstimateOptions], int]] = {
    "static": lambda options: options.max_nodes,
    "sng": sng_capacity,
    "cluster": cluster_capacity,
}


def limit_in_words(options: EstimateOptions) -> str:
    """Which threshold it is that stops an estimate; empty if none would."""
    limit, said = 0, ""
    for name in options.thresholds:
        stricter_now = stricter(limit, _LIMITS[name](options))
        if stricter_now != limit:
            limit, said = stricter_now, _WORDS[name](options)
    return said


def _room(options: EstimateOptions) -> str:
    group = options.node_group
    if group is not None and not options.similar_node_groups:
        return f"the maximum size of {group.id} is {group.max_size:,}"
    return f"similar groups have room for {max(0, sng_capacity(options)):,} nodes"


_WORDS: dict[str, Callable[[EstimateOptions], str]] = {
    "static": lambda options: f"--max-nodes-per-scaleup is {options.max_nodes:,}",
    "sng": _room,
    "cluster": lambda options: f"--max-nodes-total is {options.cluster_max_nodes:,}",
}


def node_limit(options: EstimateOptions) -> int:
    """All thresholds folded, in order: 0 = no limit, negative = nothing may be added."""
    limit = 0
    for name in options.thresholds:
        if name not in _LIMITS:
            raise InputError(f"unknown threshold {name!r}: {', '.join(_LIMITS)}")
        limit = stricter(limit, _LIMITS[name](options))
    return limit
