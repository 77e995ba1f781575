"""least-nodes: the options that need the fewest nodes (``expander/leastnodes``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.expander.types import ExpanderInput, Filtered, Option

__all__ = ["least_nodes"]


def least_nodes(options: Sequence[Option], given: ExpanderInput) -> Filtered:
    """Keeps the options with the smallest node count; options of no nodes are not looked at."""
    del given
    counted = [option for option in options if option.node_count != 0]
    best = min((option.node_count for option in counted), default=0)
    return Filtered(
        survivors=[option for option in counted if option.node_count == best],
        scores={option.group: float(option.node_count) for option in counted},
        skipped={option.group: "no nodes" for option in options if option.node_count == 0},
    )
