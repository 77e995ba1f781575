"""HTML representation of results in notebooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kscale.html.markup import element, text
from kscale.version import __version__

__all__ = ["document", "listing", "origin"]

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
    """Return the HTML of a sentence, the line of its origin, and one table."""
    return element("div", _sentence(said), origin_line, _table("", columns, rows))


def _sentence(said: str) -> str:
    return element("p", element("strong", text(said)))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the first rows as a table; empty without rows."""
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
    """Return the text of a value in a cell; for a nested value its size."""
    match value:
        case None:
            return ""
        case list() if all(isinstance(item, str | int | float) for item in value) and len(value) <= 5:
            return ", ".join(map(str, value))
        case list() | dict():
            return f"{len(value):,} of them" if value else ""
        case _:
            return str(value)
