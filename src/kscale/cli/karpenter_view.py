"""The part of an answer that says what Karpenter would launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kscale.cli.output import Cell, Table, make_columns
from kscale.cli.terminal import pods

if TYPE_CHECKING:
    from kscale.capacity.records import KarpenterChoice

__all__ = ["karpenter_notes", "karpenter_table"]

_COLUMNS = (
    *make_columns("NODEPOOL", "TYPE", "CAPACITY", "ZONE"),
    *make_columns("NODES", "PODS", "$/NODE", "$/H", align="right"),
)


def karpenter_table(choice: KarpenterChoice | None) -> Sequence[Table]:
    """Return the table of nodes that Karpenter would launch; nothing without a choice."""
    if choice is None:
        return []
    cost = "" if choice.cost is None else f", ${choice.cost:,.3f}/h"
    title = f"What Karpenter would launch: {choice.nodes:,} nodes{cost}, for {pods(choice.on_new)}"
    rows = [
        [
            line.node_pool,
            line.type,
            line.capacity_type,
            line.zone or None,
            line.nodes,
            line.pods,
            None if line.price is None else Cell(f"{line.price:,.4g}", value=line.price),
            None if line.cost is None else Cell(f"{line.cost:,.3f}", value=line.cost),
        ]
        for line in choice.lines
    ]
    return [Table(_COLUMNS, rows, title=title)]


def karpenter_notes(choice: KarpenterChoice | None) -> list[str]:
    """Return closing lines about pods that no NodePool takes, and about what the choice ignores."""
    if choice is None:
        return []
    notes = []
    if choice.unschedulable:
        notes.append(f"No NodePool takes {pods(len(choice.unschedulable))}, {choice.unschedulable[0]} for one.")
    if choice.unmodelled:
        notes.append(f"Karpenter's choice ignores {'; '.join(choice.unmodelled)}.")
    return notes
