"""What an estimate may add."""

from __future__ import annotations

import msgspec

__all__ = ["THRESHOLDS", "EstimateOptions", "NodeGroupSize"]

THRESHOLDS = ("static", "sng", "cluster")
"""Known thresholds, in the order of upstream's production set-up."""


class NodeGroupSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a node group, for the capacity threshold. ``target_size_error``: the provider could not tell it."""

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
