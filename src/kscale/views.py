"""Presentation of a result independent of its output format: a headline, tables, pictures and folded parts.

The terminal, Markdown tables and HTML pages (:mod:`kscale.html`) are rendered from the same view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

__all__ = [
    "Block",
    "Cell",
    "Chart",
    "Column",
    "DrawnNode",
    "DrawnPod",
    "Folded",
    "Packing",
    "Table",
    "Tone",
    "View",
    "as_cell",
]

Tone = Literal["", "good", "warn", "bad", "dim"]


class Cell(NamedTuple):
    """Cell of a table: its text, a tone (colour, never the only carrier of meaning), and the plain value for CSV."""

    text: str
    tone: Tone = ""
    value: Any = None


def as_cell(value: Cell | str | float | None) -> Cell:
    """Return a value as a table cell: numbers with thousands separators, None as a dash."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell("-", value="")
    return Cell(value if isinstance(value, str) else f"{value:,}", value=value)


class Column(NamedTuple):
    """Column of a table: title, alignment, and whether it is shown only by ``-o wide`` (and CSV).

    ``fields``: CSV columns for a cell with several values (its ``value`` is a tuple of the same length).
    """

    title: str
    align: Literal["left", "right"] = "left"
    wide: bool = False
    fields: tuple[str, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """Rows under columns. A cell is a ``Cell``, a text, a number, or None (shown as ``-``).

    ``limit`` > 0 limits the rows of ``-o table``, which then reports how many are left out; other formats show all.
    ``said``: the headline contains the information, and ``-o table`` omits the table.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str | float | None]]
    title: str = ""
    limit: int = 0
    said: bool = False


class View(msgspec.Struct, frozen=True):
    """Presentation of a result: headline, tables and closing lines; ``names`` is printed by ``-o name``."""

    headline: str
    tables: Sequence[Table] = ()
    footer: Sequence[str] = ()
    names: Sequence[str] = ()


class DrawnPod(NamedTuple):
    """Pod on a drawn node. Pods of one ``kind`` have the same colour.

    ``amounts``: its use of each resource, in the units of the node's ``room``.
    """

    name: str
    kind: str
    amounts: Mapping[str, float]


class DrawnNode(msgspec.Struct, frozen=True):
    """Equal nodes that are drawn once.

    ``names``: names of all. ``room``: capacity of each resource, and ``shown`` its text. ``note``: description.
    ``pods``: pods of the first node.
    """

    names: Sequence[str]
    note: str
    room: Mapping[str, float]
    shown: Mapping[str, str]
    pods: Sequence[DrawnPod]
    tone: Tone = ""


class Packing(msgspec.Struct, frozen=True):
    """Nodes with their pods. ``left_out``: number of nodes that are not drawn."""

    title: str
    nodes: Sequence[DrawnNode]
    left_out: int = 0


class Folded(msgspec.Struct, frozen=True):
    """Lines that are folded under summaries; each of ``items`` is a summary with its lines."""

    title: str
    items: Sequence[tuple[str, Sequence[str]]]


class Chart(msgspec.Struct, frozen=True):
    """Lines over time: ``x`` in seconds from the beginning, and values of the same length in ``lines``.

    ``steps``: a value is constant until the next.
    """

    title: str
    x: Sequence[float]
    lines: Mapping[str, Sequence[float]] = msgspec.field(default_factory=dict)
    steps: bool = True


Block = Packing | Folded | Chart
"""Parts of a page other than tables."""
