"""A result as one self-contained HTML page: headline, sortable tables, charts, packing pictures and the record."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import count
from math import isfinite
from typing import Final

from kscale.html.markup import COLOURS, element, text
from kscale.views import (
    Bars,
    Block,
    Cell,
    Chart,
    Column,
    DrawnNode,
    DrawnPod,
    Folded,
    Origin,
    Packing,
    Table,
    View,
    as_cell,
)

__all__ = ["bars", "chart", "packing", "page"]

_WIDTH: Final = 1000
_HEIGHT: Final = 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 12, 44
"""Margins of the plot, with the labels of the axes."""
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_MOST: Final = 2_000
"""Maximum number of points of a line; beyond it, each interval shows its maximum."""
_MAX_TICKS: Final = 6
_UNITS: Final = (("s", 1), ("min", 60), ("h", 3600), ("d", 86400))
_TIME_STEPS: Final = (1, 2, 5, 10, 15, 30)
_DAY_HOURS: Final = (1, 2, 3, 6, 12)


def chart(block: Chart) -> str:
    """Return the HTML of a line chart, scaled from zero, with minimum, maximum and last value of each line in words."""
    longest = max(block.x, default=0.0) or 1.0
    highest = max((max(line, default=0.0) for line in block.lines.values()), default=0.0) or 1.0
    step = _find_value_step(highest, integral=block.integral)
    ticks = [number * step for number in range(int(-(-highest // step)) + 1)]
    top = ticks[-1]
    lines, legend = [], []
    for number, (name, values) in enumerate(block.lines.items()):
        path = _path([each / longest for each in block.x], [each / top for each in values], steps=block.steps)
        lines.append(element("path", element("title", text(name)), d=path, class_=f"l{number % COLOURS}"))
        ends = f"{min(values):,.6g} to {max(values):,.6g}, at the end {values[-1]:,.6g}" if len(values) else "nothing"
        legend.append(element("li", element("i", class_=f"c{number % COLOURS}"), text(f"{name}: {ends}")))
    drawing = element(
        "svg",
        *_draw_value_axis(ticks, block.unit),
        *_draw_time_axis(longest),
        *lines,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="chart",
        role="img",
        aria_label=block.title,
    )
    return element(
        "section",
        element("h2", text(block.title)),
        element("div", drawing, class_="scrolled"),
        element("ul", *legend, class_="legend"),
    )


def _find_value_step(highest: float, *, integral: bool) -> float:
    """Return the smallest step (1, 2 or 5 times a power of ten) with at most 6 ticks from 0 to ``highest``.

    It is never below 1 if the values are whole numbers (``integral``). ``highest`` must be above 0.
    """
    scale = 1.0
    while highest / scale < 1:
        scale /= 10
    while True:
        for factor in (0.2, 0.5, 1.0, 2.0, 5.0):
            if highest / (factor * scale) <= _MAX_TICKS - 1:
                return max(factor * scale, 1.0) if integral else factor * scale
        scale *= 10


def _find_time_step(longest: float) -> tuple[float, str, int]:
    """Return (seconds between two ticks, name of the unit of the labels, seconds of that unit).

    ``longest``: seconds that the axis covers. The step is the smallest round one that divides them into at most six.
    """
    for name, length in _UNITS[:-1]:
        for step in _DAY_HOURS if name == "h" else _TIME_STEPS:
            if longest / (step * length) <= _MAX_TICKS:
                return step * length, name, length
    name, length = _UNITS[-1]
    step = next(
        factor * 10**power
        for power in count()
        for factor in (1, 2, 5)
        if longest / (factor * 10**power * length) <= _MAX_TICKS
    )
    return step * length, name, length


def _draw_value_axis(ticks: Sequence[float], unit: str) -> Iterator[str]:
    """Yield the SVG elements of the vertical axis: a line and a label for each tick, and the unit."""
    for tick in ticks:
        y = f"{_TOP + (1 - tick / ticks[-1]) * _PLOT_HEIGHT:.1f}"
        yield element("line", class_="grid", x1=_LEFT, x2=_LEFT + _PLOT_WIDTH, y1=y, y2=y)
        yield element("text", text(f"{tick:,.6g}"), x=_LEFT - 8, y=y, text_anchor="end", dominant_baseline="middle")
    if unit:
        middle = _TOP + _PLOT_HEIGHT / 2
        yield element("text", text(unit), x=14, y=middle, text_anchor="middle", transform=f"rotate(-90 14 {middle})")


def _draw_time_axis(longest: float) -> Iterator[str]:
    """Yield the SVG elements of the horizontal axis, which covers ``longest`` seconds."""
    bottom = _TOP + _PLOT_HEIGHT
    step, name, length = _find_time_step(longest)
    for number in range(int(longest // step) + 1):
        x = f"{_LEFT + number * step / longest * _PLOT_WIDTH:.1f}"
        yield element("line", class_="grid", x1=x, x2=x, y1=bottom, y2=bottom + 5)
        label = f"{number * step / length:,.6g} {name}"
        yield element("text", text(label), x=x, y=bottom + 19, text_anchor="middle")
    middle = _LEFT + _PLOT_WIDTH / 2
    yield element("text", "time since the start", x=middle, y=_HEIGHT - 6, text_anchor="middle")


def _path(x: Sequence[float], y: Sequence[float], *, steps: bool) -> str:
    """Return the ``d`` attribute of an SVG path. ``x``, ``y``: shares of the chart's width and height, from 0 to 1.

    ``steps``: whether each value holds until the next one. Otherwise points are joined by straight lines. Too many
    points are reduced by :func:`_thin_points`.
    """
    at, value = _thin_points(x, y)
    parts = []
    for i, (left, height) in enumerate(zip(at, value, strict=True)):
        horizontal = f"{_LEFT + left * _PLOT_WIDTH:.1f}"
        vertical = f"{_TOP + (1 - height) * _PLOT_HEIGHT:.1f}"
        if not i:
            parts.append(f"M{horizontal} {vertical}")
        elif steps:
            parts.append(f"H{horizontal}V{vertical}")
        else:
            parts.append(f"L{horizontal} {vertical}")
    return "".join(parts)


def _thin_points(x: Sequence[float], y: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Return (x, y) of at most :data:`_MOST` points.

    If there are more, each few neighbouring points become one with the first ``x`` and the highest ``y``.
    """
    size = -(-len(x) // _MOST)
    if size <= 1:
        return x, y
    starts = range(0, len(x), size)
    return [x[i] for i in starts], [max(y[i : i + size]) for i in starts]


_BAR_WIDTH: Final = 1000
_BAR_HEIGHT: Final = 40


def bars(block: Bars) -> str:
    """Return the HTML of horizontal stacked bars on one scale, each with its name and total in words."""
    longest = max((sum(amounts) for _, amounts in block.rows), default=0.0) or 1.0
    parts = [_bar_of(name, amounts, longest, block) for name, amounts in block.rows]
    legend = [
        element("li", element("i", class_=f"c{number % COLOURS}"), text(part))
        for number, part in enumerate(block.parts)
    ]
    note = f"{block.left_out:,} more are not drawn." if block.left_out else ""
    return element(
        "section",
        element("h2", text(block.title)),
        element("ul", *legend, class_="legend"),
        *parts,
        element("p", text(note), class_="dim") if note else "",
    )


def _bar_of(name: str, amounts: Sequence[float], longest: float, block: Bars) -> str:
    """Return the HTML of one stacked bar with its name and total. ``longest``: the amount that fills the width."""
    pieces, start = [], 0.0
    for number, (part, amount) in enumerate(zip(block.parts, amounts, strict=True)):
        if amount > 0:
            pieces.append(
                element(
                    "rect",
                    element("title", text(f"{part}: {block.unit}{amount:,.4g}")),
                    class_=f"c{number % COLOURS}",
                    x=f"{start / longest * _BAR_WIDTH:.1f}",
                    width=f"{amount / longest * _BAR_WIDTH:.1f}",
                    height=_BAR_HEIGHT,
                )
            )
            start += amount
    label = f"{name} {block.unit}{sum(amounts):,.2f}"
    drawing = element(
        "svg",
        *pieces,
        viewBox=f"0 0 {_BAR_WIDTH} {_BAR_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return element("div", element("span", text(label)), drawing, class_="bar")


_LONG = 30
"""Characters of a text of several words from which on it may wrap in its cell."""
_SHOWN = 200
"""Maximum number of shown pod names per node, and of names of equal nodes."""


def packing(block: Packing) -> str:
    """Return the HTML of a picture of all nodes, in which colours distinguish kinds of pods."""
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
    """Return the HTML of a group of equal nodes: a bar for each resource, and the list of the first node's pods.

    Resources without capacity have no bar; at most 200 pods and 200 node names are listed. ``kinds``: number of the
    colour of each kind of pods.
    """
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
    """Return the HTML of a node's bar for one resource: a piece for each pod that requests it.

    ``room``: the node's capacity, in the unit of the pods' amounts. ``kinds``: number of the colour of each kind of
    pods.
    """
    used, pieces = 0.0, []
    for pod in node.pods:
        share = pod.amounts.get(resource, 0) / room
        if share > 0:
            pieces.append(_piece(used, share, pod, kinds[pod.kind]))
            used += share
    label = f"{resource} {used:.0%} of {node.shown.get(resource, '')}".rstrip()
    drawing = element(
        "svg",
        element("rect", class_="room", width=_BAR_WIDTH, height=_BAR_HEIGHT),
        *pieces,
        viewBox=f"0 0 {_BAR_WIDTH} {_BAR_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return element("div", element("span", text(label)), drawing, class_="bar")


def _piece(start: float, share: float, pod: DrawnPod, colour: int) -> str:
    """Return the SVG rectangle of one pod in a bar.

    ``start``, ``share``: where it begins and how wide it is, as shares of the bar's width; ``colour``: number of the
    colour. The rectangle is cut off at the end of the bar, but stays wide enough to be seen.
    """
    left, right = min(start, 1.0) * _BAR_WIDTH, min(start + share, 1.0) * _BAR_WIDTH
    return element(
        "rect",
        element("title", text(f"{pod.name} ({share:.1%})")),
        class_=f"c{colour}",
        x=f"{left:.1f}",
        width=f"{max(right - left, 0.5):.1f}",
        height=_BAR_HEIGHT,
    )


@cache
def _asset(name: str) -> str:
    """Return the text of a file of this package (``style.css``, ``script.js``)."""
    return files("kscale.html").joinpath(name).read_text(encoding="utf-8")


def page(
    title: str, view: View, blocks: Sequence[Block] = (), *, record: bytes = b"", origin: Origin | None = None
) -> str:
    """Build the HTML document of a result.

    Parameters
    ----------
    title : str
        Title of the page.
    view : View
        Headline, tables (those without rows are left out) and footer.
    blocks : sequence of Block
        Charts, pictures and folded parts below the tables.
    record : bytes, optional
        JSON of the result, embedded for programs.
    origin : Origin, optional
        When, from what input, and with which command and version the result was made.

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
    headline = element("h1", text(view.headline or title))
    body = element(
        "body",
        element("header", element("p", text(title), class_="dim"), headline, _describe_origin(origin)),
        element("main", *tables, *(_block(part) for part in blocks)),
        *([element("footer", *footer)] if footer else []),
        _embed_record(record) if record else "",
        f"<script>{script}</script>",
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _describe_origin(origin: Origin | None) -> str:
    """Return the HTML lines about the result's origin for the header; empty if ``origin`` is None."""
    if origin is None:
        return ""
    inputs = f" from {origin.inputs}" if origin.inputs else ""
    origin_line = element("p", text(f"Made {origin.time}{inputs} with kscale {origin.version}."), class_="dim")
    command = element("p", element("code", text(origin.command)), class_="dim") if origin.command else ""
    return origin_line + command


def _embed_record(record: bytes) -> str:
    """Return the record in a script element of type JSON, with ``<`` escaped so that it cannot end the element."""
    escaped = record.decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="record">{escaped}</script>'


def _table(table: Table) -> str:
    """Return the HTML of a table, with its title as a heading."""
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
    """Return the HTML of a table cell.

    The script sorts cells by ``data-sort``: the cell's value, or the first of several, if it is a finite number.
    """
    cell = as_cell(cell)
    value = cell.value[0] if isinstance(cell.value, tuple) and cell.value else cell.value
    sort = value if isinstance(value, int | float) and isfinite(value) else None
    form = "right" if column.align == "right" else "sentence" if len(cell.text) > _LONG and " " in cell.text else "name"
    classes = " ".join(filter(None, (form, cell.tone)))
    return element("td", text(cell.text), class_=classes or None, data_sort=sort)


def _block(block: Block) -> str:
    """Return the HTML of a block below the tables: a picture, a chart, bars or folded lines."""
    match block:
        case Packing():
            return packing(block)
        case Chart():
            return chart(block)
        case Bars():
            return bars(block)
        case Folded():
            return _render_folded(block)


def _render_folded(block: Folded) -> str:
    """Return the HTML of lists of lines, each hidden under a summary until the reader opens it."""
    items = [
        element(
            "details", element("summary", text(summary)), element("ul", *(element("li", text(line)) for line in lines))
        )
        for summary, lines in block.items
    ]
    return element("section", element("h2", text(block.title)), *items)
