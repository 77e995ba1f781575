"""Elements as text. All that comes from outside passes through :func:`text`: names in a dump are hostile input."""

from __future__ import annotations

import re
from html import escape

__all__ = ["element", "text"]

# Characters that HTML has no place for, and those that turn the order of what is written around them.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)


def text(value: object) -> str:
    """As it can stand between tags and in an attribute."""
    return escape(_UNSEEN.sub(lambda found: f"\\x{ord(found[0]):02x}", str(value)), quote=True)


def element(name: str, *content: str, **attributes: object) -> str:
    """``<name attributes>content</name>``; ``content`` is markup already, attributes are not. An attribute that is None
    is left out; a ``_`` at the end of its name, too."""
    given = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"
