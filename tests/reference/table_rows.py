"""Rows of tables, one value at a time."""

from __future__ import annotations

from typing import Any

__all__ = ["added", "numbered", "scattered"]


def scattered(column: list[Any], rows: list[int], values: list[Any]) -> list[Any]:
    """The column with other values in some rows."""
    out = list(column)
    for row, value in zip(rows, values, strict=True):
        out[row] = value
    return out


def added(sums: list[int], amounts: list[int] | None, pods: list[tuple[int, int]], sign: int) -> list[int]:
    """Sums by node after pods (node, class) came (1) or went (-1), each with its class's amount; int64 wraps."""
    out = list(sums)
    for node, class_of in pods:
        total = out[node] + sign * (1 if amounts is None else amounts[class_of])
        out[node] = (total + 2**63) % 2**64 - 2**63
    return out


def numbered(seen: list[str], texts: list[str | None]) -> list[int]:
    """The number of each text among those ``seen``, which grows; -1 for none."""
    out = []
    for text in texts:
        if text is not None and text not in seen:
            seen.append(text)
        out.append(-1 if text is None else seen.index(text))
    return out
