"""The page: a sentence, tables that sort and filter, pictures, what opens, and the record itself."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import isfinite

from kscale.html.charts import chart
from kscale.html.markup import element, text
from kscale.html.packing import packing
from kscale.views import Block, Cell, Chart, Column, Folded, Packing, Table, View, as_cell

__all__ = ["page"]


@cache
def _asset(name: str) -> str:
    return files("kscale.html").joinpath(name).read_text(encoding="utf-8")


def page(title: str, view: View, blocks: Sequence[Block] = (), *, record: bytes = b"") -> str:
    """One document. ``record``: the answer's JSON, which the page holds for programs.

    It loads nothing and lets nothing load: its policy names the hash of its only script.
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
    tables = [_table(each) for each in view.tables if each.rows]
    footer = [element("p", text(line)) for line in view.footer]
    body = element(
        "body",
        element("header", element("p", text(title), class_="dim"), element("h1", text(view.headline or title))),
        element("main", *tables, *(_block(each) for each in blocks)),
        *([element("footer", *footer)] if footer else []),
        _held(record) if record else "",
        f"<script>{script}</script>",
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _held(record: bytes) -> str:
    """The record where a browser does not run it; no ``<`` of it can end the element."""
    held = record.decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="record">{held}</script>'


def _table(table: Table) -> str:
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
    """With what it is sorted by, where that is not its text."""
    cell = as_cell(cell)
    value = cell.value[0] if isinstance(cell.value, tuple) and cell.value else cell.value
    sort = value if isinstance(value, int | float) and isfinite(value) else None
    classes = " ".join(filter(None, ("right" if column.align == "right" else "", cell.tone)))
    return element("td", text(cell.text), class_=classes or None, data_sort=sort)


def _block(block: Block) -> str:
    match block:
        case Packing():
            return packing(block)
        case Chart():
            return chart(block)
        case Folded():
            return _folded(block)


def _folded(block: Folded) -> str:
    items = [
        element(
            "details", element("summary", text(summary)), element("ul", *(element("li", text(line)) for line in lines))
        )
        for summary, lines in block.items
    ]
    return element("section", element("h2", text(block.title)), *items)
