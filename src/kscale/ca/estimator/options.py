"""What an estimate may add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kscale.errors import InputError
from kscale.scheduling.arguments import short

__all__ = ["NOTHING", "THRESHOLDS", "EstimateOptions", "NodeGroupSize", "options_of"]

THRESHOLDS = ("static", "sng", "cluster")
"""Known thresholds, in the order of upstream's production set-up."""
NOTHING = -1
"""A limit that allows no node."""


class NodeGroupSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a node group (``id``), for the capacity threshold: ``target_size`` of ``max_size`` nodes.
    ``target_size_error``: the provider could not tell it."""

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


def options_of(options: Any, count: int) -> list[EstimateOptions]:
    """The options of ``count`` estimates: None, or one a template, each of them None or options.

    Raises InputError for anything else, and for options whose fields are of another type than they say.
    """
    if options is None:
        return [EstimateOptions()] * count
    if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
        raise InputError(f"options is {short(options)}, not a list, one entry a template")
    if len(options) != count:
        raise InputError(f"options has {len(options)} entries for {count} templates")
    return [_checked(each) for each in options]


def _checked(options: Any) -> EstimateOptions:
    if options is None:
        return EstimateOptions()
    if not isinstance(options, EstimateOptions):
        raise InputError(f"options is {short(options)}, not EstimateOptions")
    try:
        # A struct takes what it is given; reading it again checks what the types say.
        msgspec.convert(msgspec.structs.asdict(options), EstimateOptions)
    except msgspec.ValidationError as problem:
        text, _, at = str(problem).partition(" - at `$.")
        field = at.rstrip("`") or "?"
        raise InputError(f"options.{field}: {text}") from None
    return options
