"""Nodes as bars, one for each resource, with a piece for each pod."""

from __future__ import annotations

from collections.abc import Mapping

from kscale.html.markup import element, text
from kscale.views import DrawnNode, DrawnPod, Packing

__all__ = ["COLOURS", "packing"]

COLOURS = 12
_WIDTH = 1000
_HEIGHT = 40
_SHOWN = 200
"""Names of pods of a node, and names of nodes that are alike."""


def packing(block: Packing) -> str:
    """All nodes, and what the colours mean."""
    kinds: dict[str, int] = {}
    for node in block.nodes:
        for pod in node.pods:
            kinds.setdefault(pod.kind, len(kinds) % COLOURS)
    parts = [_node(node, kinds) for node in block.nodes]
    more = f"{block.left_out:,} more nodes are not drawn." if block.left_out else ""
    return element(
        "section",
        element("h2", text(block.title)),
        element("div", *parts, class_="nodes"),
        element("p", text(more), class_="dim") if more else "",
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
    alike = ""
    if count > 1:
        names = ", ".join(node.names[:_SHOWN]) + (f" and {count - _SHOWN:,} more" if count > _SHOWN else "")
        alike = element("p", text(f"Alike: {names}"), class_="dim")
    opened = element("details", element("summary", text(pods)), element("ul", *listed), alike)
    return element("article", heading, *bars, opened, class_=f"node {node.tone}".strip())


def _bar(resource: str, room: float, node: DrawnNode, kinds: Mapping[str, int]) -> str:
    used, pieces = 0.0, []
    for pod in node.pods:
        share = pod.amounts.get(resource, 0) / room
        if share > 0:
            pieces.append(_piece(used, share, pod, kinds[pod.kind]))
            used += share
    said = f"{resource} {used:.0%} of {node.shown.get(resource, '')}".rstrip()
    drawing = element(
        "svg",
        element("rect", class_="room", width=_WIDTH, height=_HEIGHT),
        *pieces,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=said,
    )
    return element("div", element("span", text(said)), drawing, class_="bar")


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
