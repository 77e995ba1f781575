"""The content of a result as shown to people, independent of its format: a sentence, tables, charts, expandable blocks.

Terminal output, Markdown tables and pages (:mod:`kscale.html`) are generated from the same view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

__all__ = [
    "Bars",
    "Block",
    "Cell",
    "Chart",
    "Column",
    "DrawnNode",
    "DrawnPod",
    "Folded",
    "Origin",
    "Packing",
    "Table",
    "Tone",
    "View",
    "as_cell",
]

Tone = Literal["", "good", "warn", "bad", "dim"]


class Cell(msgspec.Struct, frozen=True):
    """One cell: its text, a tone (a colour, never the only carrier of meaning), and the bare value for CSV."""

    text: str
    tone: Tone = ""
    value: Any = None


def as_cell(value: Cell | str | float | None) -> Cell:
    """Convert a value of a table to a cell; a cell is returned unchanged.

    The text of a number has thousands separators. None becomes a cell with the text ``-`` and an empty value.
    """
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell("-", value="")
    return Cell(value if isinstance(value, str) else f"{value:,}", value=value)


class Column(msgspec.Struct, frozen=True):
    """One column: its title, alignment, and whether only ``-o wide`` (and CSV) shows it.

    ``fields``: the columns of CSV, where a cell holds several values (its ``value`` is a tuple of as many).
    """

    title: str
    align: Literal["left", "right"] = "left"
    wide: bool = False
    fields: tuple[str, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """Rows under columns. A cell is a ``Cell``, a text, a number, or None (shown as ``-``).

    ``limit`` > 0 cuts what ``-o table`` shows, and the output says how many rows are left out; every other format shows
    all. ``said``: the headline has the information already, and ``-o table`` leaves the table out.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str | float | None]]
    title: str = ""
    limit: int = 0
    said: bool = False


class View(msgspec.Struct, frozen=True):
    """What a person sees: the result in one sentence, tables, closing lines; ``names`` is what ``-o name`` prints."""

    headline: str
    tables: Sequence[Table] = ()
    footer: Sequence[str] = ()
    names: Sequence[str] = ()


class DrawnPod(msgspec.Struct, frozen=True):
    """A pod on a drawn node. Pods of one ``kind`` have one colour; ``amounts``: what it uses of each resource, in the
    units of the node's ``room``.
    """

    name: str
    kind: str
    amounts: Mapping[str, float]


class DrawnNode(msgspec.Struct, frozen=True):
    """Equivalent nodes, drawn once; ``names``: the names of all. ``room``: capacity of each resource, and ``shown``:
    its text; ``note``: a description; ``pods``: those of the first node.
    """

    names: Sequence[str]
    note: str
    room: Mapping[str, float]
    shown: Mapping[str, str]
    pods: Sequence[DrawnPod]
    tone: Tone = ""


class Packing(msgspec.Struct, frozen=True):
    """Nodes with the pods on them. ``left_out``: number of nodes that are not drawn."""

    title: str
    nodes: Sequence[DrawnNode]
    left_out: int = 0


class Folded(msgspec.Struct, frozen=True):
    """Lines under summaries that open: each of ``items`` is a summary with its lines."""

    title: str
    items: Sequence[tuple[str, Sequence[str]]]


class Chart(msgspec.Struct, frozen=True):
    """Lines over time: ``x`` in seconds from the beginning; each of ``lines`` has the same length. ``steps``: a value
    holds until the next one. ``unit``: title of the axis of values. ``integral``: the values are whole numbers, and the
    axis shows no others.
    """

    title: str
    x: Sequence[float]
    lines: Mapping[str, Sequence[float]] = msgspec.field(default_factory=dict)
    steps: bool = True
    unit: str = ""
    integral: bool = False


class Origin(msgspec.Struct, frozen=True):
    """Where a result comes from: when it was made, from which inputs, with which command line and version of kscale."""

    time: str
    inputs: str
    command: str
    version: str


class Bars(msgspec.Struct, frozen=True):
    """Horizontal bars on one scale: each of ``rows`` is a name with its amount in each of ``parts``, drawn one after
    the other. ``unit`` is written before an amount. ``left_out``: number of rows that are not drawn.
    """

    title: str
    parts: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    unit: str = ""
    left_out: int = 0


Block = Packing | Folded | Chart | Bars
"""Blocks that a page shows in addition to tables."""
