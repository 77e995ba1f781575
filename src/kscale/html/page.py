"""A result as one self-contained HTML page: headline, sortable tables, charts, packing pictures and the record."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from math import isfinite

from kscale.views import Block, Cell, Chart, Column, DrawnNode, DrawnPod, Folded, Packing, Table, View, as_cell

__all__ = ["COLOURS", "chart", "element", "packing", "page", "text"]


# Characters that HTML does not allow, and those that change the direction of the text around them.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)


def text(value: object) -> str:
    """Return a value's text escaped for use between tags and in attributes."""
    return escape(_UNSEEN.sub(lambda match: f"\\x{ord(match[0]):02x}", str(value)), quote=True)


def element(name: str, *content: str, **attributes: object) -> str:
    """Return ``<name attributes>content</name>``.

    ``content`` is markup, attribute values are escaped. An attribute with value None is left out; a trailing ``_`` of
    an attribute's name is removed.
    """
    attribute_text = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{attribute_text}>{''.join(content)}</{name}>"


COLOURS = 12
_WIDTH = 1000
_HEIGHT = 40
_SHOWN = 200
"""Maximum number of shown pod names per node, and of names of equal nodes."""


def packing(block: Packing) -> str:
    """Return a picture of all nodes, in which the colours distinguish kinds of pods."""
    kinds: dict[str, int] = {}
    for node in block.nodes:
        for pod in node.pods:
            kinds.setdefault(pod.kind, len(kinds) % COLOURS)
    parts = [_node(node, kinds) for node in block.nodes]
    note = f"{block.left_out:,} more nodes are not drawn." if block.left_out else ""
    return element(
        "section",
        element("h2", text(block.title)),
        element("div", *parts, class_="nodes"),
        element("p", text(note), class_="dim") if note else "",
    )


def _node(node: DrawnNode, kinds: Mapping[str, int]) -> str:
    count = len(node.names)
    name = node.names[0] if count == 1 else f"{count:,} × {node.names[0]}"
    heading = element("h3", text(name), " ", element("small", text(node.note)) if node.note else "")
    bars = [_bar(resource, room, node, kinds) for resource, room in node.room.items() if room > 0]
    pods = "1 pod" if len(node.pods) == 1 else f"{len(node.pods):,} pods"
    listed = [element("li", element("i", class_=f"c{kinds[pod.kind]}"), text(pod.name)) for pod in node.pods[:_SHOWN]]
    if len(node.pods) > _SHOWN:
        listed.append(element("li", text(f"... and {len(node.pods) - _SHOWN:,} more")))
    equal_nodes = ""
    if count > 1:
        names = ", ".join(node.names[:_SHOWN]) + (f" and {count - _SHOWN:,} more" if count > _SHOWN else "")
        equal_nodes = element("p", text(f"Alike: {names}"), class_="dim")
    opened = element("details", element("summary", text(pods)), element("ul", *listed), equal_nodes)
    return element("article", heading, *bars, opened, class_=f"node {node.tone}".strip())


def _bar(resource: str, room: float, node: DrawnNode, kinds: Mapping[str, int]) -> str:
    used, pieces = 0.0, []
    for pod in node.pods:
        share = pod.amounts.get(resource, 0) / room
        if share > 0:
            pieces.append(_piece(used, share, pod, kinds[pod.kind]))
            used += share
    label = f"{resource} {used:.0%} of {node.shown.get(resource, '')}".rstrip()
    drawing = element(
        "svg",
        element("rect", class_="room", width=_WIDTH, height=_HEIGHT),
        *pieces,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return element("div", element("span", text(label)), drawing, class_="bar")


def _piece(start: float, share: float, pod: DrawnPod, colour: int) -> str:
    left, right = min(start, 1.0) * _WIDTH, min(start + share, 1.0) * _WIDTH
    return element(
        "rect",
        element("title", text(f"{pod.name} ({share:.1%})")),
        class_=f"c{colour}",
        x=f"{left:.1f}",
        width=f"{max(right - left, 0.5):.1f}",
        height=_HEIGHT,
    )


_CHART_WIDTH, _CHART_HEIGHT = 1000, 240
_MOST = 2_000
"""Maximum number of points of a line; beyond it, each interval shows its maximum."""


def chart(block: Chart) -> str:
    """Return a chart of all lines, scaled from zero, with minimum, maximum and last value of each line in words."""
    longest = max(block.x, default=0.0) or 1.0
    highest = max((max(line, default=0.0) for line in block.lines.values()), default=0.0) or 1.0
    lines, legend = [], []
    for number, (name, values) in enumerate(block.lines.items()):
        colour = f"l{number % COLOURS}"
        path = _path(
            [sample / longest for sample in block.x], [sample / highest for sample in values], steps=block.steps
        )
        lines.append(element("path", element("title", text(name)), d=path, class_=colour))
        ends = f"{min(values):,.6g} to {max(values):,.6g}, at the end {values[-1]:,.6g}" if len(values) else "nothing"
        legend.append(element("li", element("i", class_=f"c{number % COLOURS}"), text(f"{name}: {ends}")))
    drawing = element(
        "svg",
        *lines,
        viewBox=f"0 0 {_CHART_WIDTH} {_CHART_HEIGHT}",
        preserveAspectRatio="none",
        class_="chart",
        role="img",
        aria_label=block.title,
    )
    scale = element("p", text(f"0 to {highest:,.6g} over {_duration(longest)}"), class_="dim")
    return element("section", element("h2", text(block.title)), drawing, scale, element("ul", *legend, class_="legend"))


def _path(x: Sequence[float], y: Sequence[float], *, steps: bool) -> str:
    at, value = _thin_points(x, y)
    parts = []
    for i, (left, height) in enumerate(zip(at, value, strict=True)):
        place = f"{left * _CHART_WIDTH:.1f} {(1 - height) * (_CHART_HEIGHT - 4) + 2:.1f}"
        if not i:
            parts.append(f"M{place}")
        elif steps:
            parts.append(f"H{left * _CHART_WIDTH:.1f}V{place.partition(' ')[2]}")
        else:
            parts.append(f"L{place}")
    return "".join(parts)


def _thin_points(x: Sequence[float], y: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    size = -(-len(x) // _MOST)
    if size <= 1:
        return x, y
    starts = range(0, len(x), size)
    return [x[i] for i in starts], [max(y[i : i + size]) for i in starts]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


@cache
def _asset(name: str) -> str:
    return files("kscale.html").joinpath(name).read_text(encoding="utf-8")


def page(title: str, view: View, blocks: Sequence[Block] = (), *, record: bytes = b"") -> str:
    """Build the HTML document of a result.

    Parameters
    ----------
    title : str
        Title of the page.
    view : View
        Headline, tables and footer.
    blocks : sequence of Block
        Charts, pictures and folded parts below the tables.
    record : bytes, optional
        JSON of the result, embedded for programs.

    Returns
    -------
    str
        HTML. The page loads nothing: its content security policy allows only its own script, by hash.
    """
    script = _asset("script.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = element(
        "head",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        element("title", text(f"{title} - kscale")),
        element("style", _asset("style.css")),
    )
    tables = [_table(part) for part in view.tables if part.rows]
    footer = [element("p", text(line)) for line in view.footer]
    body = element(
        "body",
        element("header", element("p", text(title), class_="dim"), element("h1", text(view.headline or title))),
        element("main", *tables, *(_block(part) for part in blocks)),
        *([element("footer", *footer)] if footer else []),
        _embed_record(record) if record else "",
        f"<script>{script}</script>",
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _embed_record(record: bytes) -> str:
    """Return the record in a script element of type JSON, with ``<`` escaped so that it cannot end the element."""
    escaped = record.decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="record">{escaped}</script>'


def _table(table: Table) -> str:
    heads = [
        element("th", text(column.title), scope="col", class_="right" if column.align == "right" else None)
        for column in table.columns
    ]
    rows = [
        element("tr", *(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)))
        for row in table.rows
    ]
    return element(
        "section",
        element("h2", text(table.title)) if table.title else "",
        element(
            "div",
            element("table", element("thead", element("tr", *heads)), element("tbody", *rows)),
            class_="scrolled",
        ),
    )


def _cell(cell: Cell | str | float | None, column: Column) -> str:
    """Return a table cell, with its sort value if that differs from the text."""
    cell = as_cell(cell)
    value = cell.value[0] if isinstance(cell.value, tuple) and cell.value else cell.value
    sort = value if isinstance(value, int | float) and isfinite(value) else None
    classes = " ".join(filter(None, ("right" if column.align == "right" else "", cell.tone)))
    return element("td", text(cell.text), class_=classes or None, data_sort=sort)


def _block(block: Block) -> str:
    match block:
        case Packing():
            return packing(block)
        case Chart():
            return chart(block)
        case Folded():
            return _render_folded(block)


def _render_folded(block: Folded) -> str:
    items = [
        element(
            "details", element("summary", text(summary)), element("ul", *(element("li", text(line)) for line in lines))
        )
        for summary, lines in block.items
    ]
    return element("section", element("h2", text(block.title)), *items)
