"""Charts as SVG: lines over time with axes, and horizontal bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from kscale.html.markup import COLOURS, element, text
from kscale.views import Bars, Chart

__all__ = ["bars", "chart"]

_WIDTH, _HEIGHT = 1000, 280
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
    """Return a chart of all lines, scaled from zero, with minimum, maximum and last value of each line in words."""
    longest = max(block.x, default=0.0) or 1.0
    highest = max((max(line, default=0.0) for line in block.lines.values()), default=0.0) or 1.0
    step = _find_value_step(highest)
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


def _find_value_step(highest: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... or 0.5, 0.2, 0.1, ... that needs few ticks up to ``highest``."""
    scale = 1.0
    while highest / scale < 1:
        scale /= 10
    while True:
        for factor in (0.2, 0.5, 1.0, 2.0, 5.0):
            if highest / (factor * scale) <= _MAX_TICKS - 1:
                return factor * scale
        scale *= 10


def _find_time_step(longest: float) -> tuple[float, str, int]:
    """Return the seconds between two ticks that needs few ticks up to ``longest``, and the unit of their labels."""
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
    for tick in ticks:
        y = f"{_TOP + (1 - tick / ticks[-1]) * _PLOT_HEIGHT:.1f}"
        yield element("line", class_="grid", x1=_LEFT, x2=_LEFT + _PLOT_WIDTH, y1=y, y2=y)
        yield element("text", text(f"{tick:,.6g}"), x=_LEFT - 8, y=y, text_anchor="end", dominant_baseline="middle")
    if unit:
        middle = _TOP + _PLOT_HEIGHT / 2
        yield element("text", text(unit), x=14, y=middle, text_anchor="middle", transform=f"rotate(-90 14 {middle})")


def _draw_time_axis(longest: float) -> Iterator[str]:
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
    size = -(-len(x) // _MOST)
    if size <= 1:
        return x, y
    starts = range(0, len(x), size)
    return [x[i] for i in starts], [max(y[i : i + size]) for i in starts]


_BAR_WIDTH, _BAR_HEIGHT = 1000, 40


def bars(block: Bars) -> str:
    """Return horizontal stacked bars on one scale, each with its name and amounts in words."""
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
