"""Escaped texts and elements of HTML, and the HTML representation of results in notebooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from kscale.imports import lazy_pattern
from kscale.version import __version__

__all__ = ["COLOURS", "document", "element", "listing", "origin", "text"]

COLOURS: Final = 12
"""Number of colours of pods and lines; style.css has them."""

# Characters that HTML does not allow, and those that change the direction of the text around them.
_UNSEEN = lazy_pattern(
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


ROWS = 50
"""Maximum number of rows shown; a line tells how many are left out."""


def origin(inputs: str = "") -> str:
    """Return the line that says when a result was shown, by which version, and from which ``inputs``.

    SOURCE_DATE_EPOCH replaces the current time.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    parts = [f"kscale {__version__}", f"shown {now:%Y-%m-%d %H:%M:%S} UTC", *([f"from {inputs}"] if inputs else [])]
    return element("p", element("small", text(" · ".join(parts))))


def document(title: str, data: Mapping[str, Any], origin_line: str = "") -> str:
    """Return the HTML of a document of plain data: first its plain fields, then each list of objects as a table.

    ``origin_line``: what :func:`origin` returns, shown below the title.
    """
    lists = {name: value for name, value in data.items() if _is_list_of_objects(value)}
    plain = [
        (name, _format_value(value))
        for name, value in data.items()
        if name not in lists and value not in (None, [], {})
    ]
    tables = []
    for name, items in lists.items():
        columns = list(dict.fromkeys(key for item in items for key in item))
        tables.append(_table(name, columns, [[_format_value(item.get(key)) for key in columns] for item in items]))
    return element("div", _sentence(title), origin_line, _table("", ("field", "value"), plain), *tables)


def listing(said: str, columns: Sequence[str], rows: Sequence[Sequence[object]], origin_line: str = "") -> str:
    """Return the HTML of a sentence (``said``), the line of its origin, and one table."""
    return element("div", _sentence(said), origin_line, _table("", columns, rows))


def _sentence(said: str) -> str:
    """Return the HTML of a sentence in bold."""
    return element("p", element("strong", text(said)))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the first rows as a table, with the number of further ones; empty without rows."""
    if not rows:
        return ""
    head = element("tr", *(element("th", text(column)) for column in columns))
    body = (element("tr", *(element("td", text(cell)) for cell in row)) for row in rows[:ROWS])
    more = element("p", f"and {len(rows) - ROWS:,} more") if len(rows) > ROWS else ""
    caption = element("caption", text(title)) if title else ""
    return element("table", caption, element("thead", head), element("tbody", *body)) + more


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _format_value(value: Any) -> str:
    """Return the text of a value in a cell; for a nested value its number of items."""
    match value:
        case None:
            return ""
        case list() if all(isinstance(item, str | int | float) for item in value) and len(value) <= 5:
            return ", ".join(map(str, value))
        case list() | dict():
            return f"{len(value):,} of them" if value else ""
        case _:
            return str(value)
