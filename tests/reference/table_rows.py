"""Rows of tables, one value at a time."""

from __future__ import annotations

from typing import Any

__all__ = ["added", "changed_columns", "numbered", "released", "scattered"]


def scattered(column: list[Any], rows: list[int], values: list[Any]) -> list[Any]:
    """The column with other values in some rows."""
    out = list(column)
    for row, value in zip(rows, values, strict=True):
        out[row] = value
    return out


def changed_columns(columns: list[list[int]], rows: list[int], values: list[list[int]]) -> list[set[int]]:
    """For each row, the numbers of the columns whose entry is not the row's value (``values[column][i]``)."""
    return [
        {number for number, column in enumerate(columns) if column[row] != values[number][i]}
        for i, row in enumerate(rows)
    ]


def released(live: list[int], buffer_sizes: list[int], texts: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Subtract texts (buffer, bytes) from the bytes in use of each buffer; a negative number is no buffer.

    Texts without bytes are in no buffer either: one that is not in use any more gets other texts.
    Returns the bytes in use, and those of these buffers of which less than half of ``buffer_sizes``, or nothing, is in
    use.
    """
    out = list(live)
    texts = [(buffer, size) for buffer, size in texts if buffer >= 0 and size]
    for buffer, size in texts:
        out[buffer] -= size
    few = {buffer for buffer, _ in texts if (2 * out[buffer] < buffer_sizes[buffer] or not out[buffer])}
    return out, sorted(few)


def added(sums: list[int], amounts: list[int] | None, pods: list[tuple[int, int]], sign: int) -> list[int]:
    """Sums by node after pods (node, class) came (1) or went (-1), each with its class's amount; int64 wraps."""
    out = list(sums)
    for node, class_of in pods:
        total = out[node] + sign * (1 if amounts is None else amounts[class_of])
        out[node] = (total + 2**63) % 2**64 - 2**63
    return out


def numbered(known: list[str], texts: list[str | None]) -> list[int]:
    """The number of each text among those ``known``, which grows; -1 for none."""
    out = []
    for text in texts:
        if text is not None and text not in known:
            known.append(text)
        out.append(-1 if text is None else known.index(text))
    return out
