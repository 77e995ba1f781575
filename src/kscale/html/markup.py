"""Escaped texts and elements of HTML, and the HTML representation of results in notebooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from kscale.imports import lazy_pattern
from kscale.version import __version__

__all__ = ["COLOURS", "document", "element", "listing", "origin", "text", "time_of_document"]

COLOURS: Final = 12
"""Number of colours of pods and lines; style.css has them."""
_MOST_DIGITS: Final = 11
"""Digits up to which every number of seconds since 1970 is a time before the year 10000."""

# Characters that HTML does not allow, and those that change the direction of the text around them.
_UNSEEN = lazy_pattern(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)


def text(value: object) -> str:
    r"""Return the text of a value, escaped for use between tags and in attributes.

    Characters that change the direction of text, and control characters other than tab and line feed, are replaced by
    their codes (``\x..``).
    """
    return escape(_UNSEEN.sub(lambda match: f"\\x{ord(match[0]):02x}", str(value)), quote=True)


def element(name: str, *content: str, **attributes: object) -> str:
    """Return ``<name attributes>content</name>``.

    ``content`` is markup, attribute values are escaped. An attribute with value None is left out. In the name of an
    attribute a trailing ``_`` is removed, and every other ``_`` becomes a hyphen.
    """
    attribute_text = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{attribute_text}>{''.join(content)}</{name}>"


ROWS = 50
"""Maximum number of rows shown; a line tells how many are left out."""


def time_of_document() -> datetime:
    """Return the time to show in a document: now, or SOURCE_DATE_EPOCH (seconds since 1970) if that is a valid time."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    is_time = epoch.isascii() and epoch.isdecimal() and len(epoch) <= _MOST_DIGITS
    return datetime.fromtimestamp(int(epoch), UTC) if is_time else datetime.now(UTC)


def origin(inputs: str = "") -> str:
    """Return a paragraph with the version of kscale, the time of :func:`time_of_document`, and ``inputs``.

    ``inputs``: description of what the result was computed from; empty: left out.
    """
    now = time_of_document()
    parts = [f"kscale {__version__}", f"shown {now:%Y-%m-%d %H:%M:%S} UTC", *([f"from {inputs}"] if inputs else [])]
    return element("p", element("small", text(" · ".join(parts))))


def document(title: str, data: Mapping[str, Any], origin_line: str = "") -> str:
    """Return the HTML of ``data``: the title, its plain fields as one table, then a table for each list of objects.

    Fields with None, an empty list or an empty dict are left out. ``origin_line``: what :func:`origin` returns, shown
    below the title.
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


def listing(sentence: str, columns: Sequence[str], rows: Sequence[Sequence[object]], origin_line: str = "") -> str:
    """Return the HTML of a sentence, ``origin_line`` (what :func:`origin` returns), and one table."""
    return element("div", _sentence(sentence), origin_line, _table("", columns, rows))


def _sentence(sentence: str) -> str:
    """Return the HTML of a sentence in bold."""
    return element("p", element("strong", text(sentence)))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the first :data:`ROWS` rows as a table, and below it how many rows are left out; empty without rows."""
    if not rows:
        return ""
    head = element("tr", *(element("th", text(column)) for column in columns))
    body = (element("tr", *(element("td", text(cell)) for cell in row)) for row in rows[:ROWS])
    more = element("p", f"and {len(rows) - ROWS:,} more") if len(rows) > ROWS else ""
    caption = element("caption", text(title)) if title else ""
    return element("table", caption, element("thead", head), element("tbody", *body)) + more


def _is_list_of_objects(value: Any) -> bool:
    """Return whether the value is a list of dicts and not empty."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _format_value(value: Any) -> str:
    """Return the text of a value in a table cell; empty for None, an empty list and an empty dict.

    A list of at most five texts or numbers is written out. For other lists and dicts the text is the number of items.
    """
    match value:
        case None:
            return ""
        case list() if all(isinstance(item, str | int | float) for item in value) and len(value) <= 5:
            return ", ".join(map(str, value))
        case list() | dict():
            return f"{len(value):,} of them" if value else ""
        case _:
            return str(value)
