"""What a pattern says, as a tree, kept within the limits of Go's parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kscale.ca.expander.re2.classes import Ranges

__all__ = [
    "MAX_HEIGHT",
    "MAX_REPEAT",
    "MAX_SIZE",
    "Node",
    "assertion",
    "chars",
    "choice",
    "group",
    "repeat",
    "sequence",
]

MAX_REPEAT = 1000
"""Of a count, and of the product of nested ones."""
MAX_HEIGHT = 1000
MAX_SIZE = (128 << 20) // 40
"""Instructions: 128 MiB of them."""


class Node(NamedTuple):
    """``op`` is ``chars`` (one of ``ranges``), an assertion's letter, ``sequence``, ``choice`` or ``repeat``.

    ``height``, ``size`` (instructions) and ``copies`` (product of nested counts) are what Go's parser limits.
    """

    op: str
    parts: tuple[Node, ...] = ()
    ranges: Ranges = ()
    low: int = 0
    high: int | None = None
    height: int = 1
    size: int = 1
    copies: int = 1


def chars(ranges: Ranges) -> Node:
    """One character of a set."""
    return Node("chars", ranges=ranges)


def assertion(kind: str) -> Node:
    """A place in the text: ``A`` ``z`` (its ends), ``^`` ``$`` (a line's), ``b`` ``B`` (a word's end or not)."""
    return Node(kind)


def _of(op: str, parts: Sequence[Node], size: int) -> Node:
    height = 1 + max((part.height for part in parts), default=0)
    copies = max((part.copies for part in parts), default=1)
    return Node(op, tuple(parts), height=height, size=max(1, size), copies=copies)


def sequence(parts: Sequence[Node]) -> Node:
    """One after the other; none: the empty text."""
    return parts[0] if len(parts) == 1 else _of("sequence", parts, sum(part.size for part in parts))


def choice(parts: Sequence[Node]) -> Node:
    """Any one of them."""
    return parts[0] if len(parts) == 1 else _of("choice", parts, sum(part.size for part in parts) + len(parts) - 1)


def group(part: Node) -> Node:
    """A capture: the same text, one deeper and two instructions longer."""
    return _of("sequence", [part], part.size + 2)


def repeat(part: Node, low: int, high: int | None, counted: bool = False) -> Node:
    """At least ``low`` times, at most ``high`` (``None``: any number); ``counted`` if written with braces."""
    if not counted:
        return _of("repeat", [part], part.size + 1)._replace(low=low, high=high)
    times = low if high is None else high
    size = times * part.size + (times - low if high is not None else 1 if low else part.size + 2)
    copies = times * part.copies if times > 0 else 1
    return _of("repeat", [part], size)._replace(low=low, high=high, copies=copies)
