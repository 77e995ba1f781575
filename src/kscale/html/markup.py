"""Escaped texts and elements of HTML."""

from __future__ import annotations

import re
from html import escape
from typing import Final

__all__ = ["COLOURS", "element", "text"]

COLOURS: Final = 12
"""Number of colours of pods and lines; style.css has them."""

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
