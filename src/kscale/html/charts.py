"""Lines over time."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.html.markup import element, text
from kscale.html.packing import COLOURS
from kscale.views import Chart

__all__ = ["chart"]

_WIDTH, _HEIGHT = 1000, 240
_MOST = 2_000
"""Points of a line; of more, each part of the time shows its highest."""


def chart(block: Chart) -> str:
    """The lines in one picture from zero on, with the least and the greatest said in words."""
    longest = max(block.x, default=0.0) or 1.0
    highest = max((max(line, default=0.0) for line in block.lines.values()), default=0.0) or 1.0
    lines, legend = [], []
    for number, (name, values) in enumerate(block.lines.items()):
        colour = f"l{number % COLOURS}"
        path = _path([each / longest for each in block.x], [each / highest for each in values], steps=block.steps)
        lines.append(element("path", element("title", text(name)), d=path, class_=colour))
        ends = f"{min(values):,.6g} to {max(values):,.6g}, at the end {values[-1]:,.6g}" if len(values) else "nothing"
        legend.append(element("li", element("i", class_=f"c{number % COLOURS}"), text(f"{name}: {ends}")))
    drawing = element(
        "svg",
        *lines,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        class_="chart",
        role="img",
        aria_label=block.title,
    )
    scale = element("p", text(f"0 to {highest:,.6g} over {_duration(longest)}"), class_="dim")
    return element("section", element("h2", text(block.title)), drawing, scale, element("ul", *legend, class_="legend"))


def _path(x: Sequence[float], y: Sequence[float], *, steps: bool) -> str:
    at, value = _thinned(x, y)
    parts = []
    for i, (left, height) in enumerate(zip(at, value, strict=True)):
        place = f"{left * _WIDTH:.1f} {(1 - height) * (_HEIGHT - 4) + 2:.1f}"
        if not i:
            parts.append(f"M{place}")
        elif steps:
            parts.append(f"H{left * _WIDTH:.1f}V{place.partition(' ')[2]}")
        else:
            parts.append(f"L{place}")
    return "".join(parts)


def _thinned(x: Sequence[float], y: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    size = -(-len(x) // _MOST)
    if size <= 1:
        return x, y
    starts = range(0, len(x), size)
    return [x[i] for i in starts], [max(y[i : i + size]) for i in starts]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
