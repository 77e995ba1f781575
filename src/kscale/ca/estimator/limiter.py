"""Options of an estimate, and how many nodes it may add (upstream: ``estimator/threshold_based_limiter.go`` and its
thresholds).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kscale.errors import InputError
from kscale.scheduling.coercion import short

__all__ = [
    "KNOWN_THRESHOLDS",
    "NO_NODES_ALLOWED",
    "EstimateOptions",
    "NodeGroupSize",
    "coerce_estimate_options",
    "compute_node_limit",
    "describe_limit",
    "get_cluster_capacity",
    "get_sng_capacity",
    "get_stricter_limit",
]


KNOWN_THRESHOLDS = ("static", "sng", "cluster")
"""Known thresholds, in the order of upstream's production set-up."""
NO_NODES_ALLOWED = -1
"""A limit that allows no node."""


class NodeGroupSize(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a node group (``id``) for the capacity threshold: ``target_size`` of ``max_size`` nodes.

    ``target_size_error``: the provider could not return the target size.
    """

    id: str = ""
    max_size: int = 0
    target_size: int = 0
    target_size_error: bool = False


class EstimateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, and how to pack.

    ``max_nodes``: at most so many new nodes (``--max-nodes-per-scaleup``; 0 = no limit). ``thresholds``: which limits
    hold, in upstream's order of evaluation; ``static`` is ``max_nodes``, ``sng`` the room left in ``node_group`` and
    ``similar_node_groups``, ``cluster`` what ``cluster_max_nodes`` leaves above ``current_node_count``.
    ``no_context``: the estimation context is missing, as in some of upstream's callers. ``fast_path``:
    ``--fastpath-binpacking-enabled``.
    """

    max_nodes: int = 0
    thresholds: tuple[str, ...] = ("static",)
    node_group: NodeGroupSize | None = None
    similar_node_groups: tuple[NodeGroupSize, ...] = ()
    cluster_max_nodes: int = 0
    current_node_count: int = 0
    no_context: bool = False
    fast_path: bool = False


def coerce_estimate_options(options: Any, count: int) -> list[EstimateOptions]:
    """Return the options of ``count`` estimates, one per template; None stands for the defaults.

    Raises InputError if ``options`` is no list of ``count`` entries, or if an entry or one of its fields has a wrong
    type.
    """
    if options is None:
        return [EstimateOptions()] * count
    if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
        raise InputError(f"options is {short(options)}, not a list, one entry a template")
    if len(options) != count:
        raise InputError(f"options has {len(options)} entries for {count} templates")
    return [_check_estimate_options(each) for each in options]


def _check_estimate_options(options: Any) -> EstimateOptions:
    if options is None:
        return EstimateOptions()
    if not isinstance(options, EstimateOptions):
        raise InputError(f"options is {short(options)}, not EstimateOptions")
    try:
        # Struct constructors do not check types; decoding does.
        msgspec.convert(msgspec.structs.asdict(options), EstimateOptions)
    except msgspec.ValidationError as problem:
        text, _, at = str(problem).partition(" - at `$.")
        field = at.rstrip("`") or "?"
        raise InputError(f"options.{field}: {text}") from None
    return options


def get_stricter_limit(base: int, target: int) -> int:
    """Return the stricter of two limits; 0 means no limit, negative that nothing is allowed."""
    if base < 0 or target < 0:
        return -1
    return target if target > 0 and (base == 0 or base > target) else base


def get_sng_capacity(options: EstimateOptions) -> int:
    """Return by how many nodes the group and its similar groups can grow; -1 without any room, 0 without context."""
    if options.no_context:
        return 0
    groups: list[NodeGroupSize] = [*options.similar_node_groups]
    if options.node_group is not None:
        groups.append(options.node_group)
    room = sum(
        max(0, g.max_size - (0 if g.target_size_error else g.target_size)) for g in groups if not _has_unknown_size(g)
    )
    return room if room > 0 else -1


def _has_unknown_size(group: NodeGroupSize) -> bool:
    return group.target_size_error


def get_cluster_capacity(options: EstimateOptions) -> int:
    """Return how many nodes ``MaxNodesTotal`` still allows; 0 without limit or context, -1 if none."""
    if options.no_context or options.cluster_max_nodes == 0:
        return 0
    if options.cluster_max_nodes < 0 or options.cluster_max_nodes <= options.current_node_count:
        return -1
    return options.cluster_max_nodes - options.current_node_count


_THRESHOLD_LIMITS: dict[str, Callable[[EstimateOptions], int]] = {
    "static": lambda options: options.max_nodes,
    "sng": get_sng_capacity,
    "cluster": get_cluster_capacity,
}


def describe_limit(options: EstimateOptions) -> str:
    """Return a description of the threshold that limits an estimate; empty if none does."""
    limit, description = 0, ""
    for name in options.thresholds:
        stricter_now = get_stricter_limit(limit, _THRESHOLD_LIMITS[name](options))
        if stricter_now != limit:
            limit, description = stricter_now, _THRESHOLD_TEXTS[name](options)
    return description


def _describe_sng_capacity(options: EstimateOptions) -> str:
    group = options.node_group
    if group is not None and not options.similar_node_groups:
        return f"the maximum size of {group.id} is {group.max_size:,}"
    return f"similar groups have room for {max(0, get_sng_capacity(options)):,} nodes"


_THRESHOLD_TEXTS: dict[str, Callable[[EstimateOptions], str]] = {
    "static": lambda options: f"--max-nodes-per-scaleup is {options.max_nodes:,}",
    "sng": _describe_sng_capacity,
    "cluster": lambda options: f"--max-nodes-total is {options.cluster_max_nodes:,}",
}


def compute_node_limit(options: EstimateOptions) -> int:
    """Compute the strictest limit of all thresholds; 0 means no limit, negative that nothing may be added.

    Raises InputError for an unknown threshold.
    """
    limit = 0
    for name in options.thresholds:
        if name not in _THRESHOLD_LIMITS:
            raise InputError(f"unknown threshold {name!r}: {', '.join(_THRESHOLD_LIMITS)}")
        limit = get_stricter_limit(limit, _THRESHOLD_LIMITS[name](options))
    return limit
