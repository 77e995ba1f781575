"""Series from CSV. kscale's own."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.series.columns import Series
from kscale.series.row_table import Wanted, parsed_numbers, parsed_times, series_of

__all__ = ["read_csv"]


def read_csv(
    data: bytes,
    *,
    value: str = "value",
    time: str = "time",
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] = (),
    unit: str = "s",
    events: bool = False,
    source: str = "<bytes>",
) -> Series:
    """Rows of a CSV file with a header, ``data``.

    ``time`` and ``value`` name the columns that must be there; ``columns`` renames ``namespace``, ``pod`` and
    ``container``, which may be missing. ``labels`` are columns to keep with each series. A time is a number in ``unit``
    (s, ms, us, ns) or a text (RFC 3339; without a zone: UTC). ``events``: rows are events, in any order, and ``value``
    may be empty (they are counted, 1 each). Raises ``InputError`` with row and column.
    """
    return series_of(_table(data, source), Wanted(value, time, columns, labels, unit, events), source)


@dataclass(frozen=True, slots=True)
class _Table:
    names: list[str]
    body: list[list[str]]

    @property
    def rows(self) -> int:
        return len(self.body)

    def texts(self, name: str) -> list[str]:
        # Where a name comes twice the last column counts.
        at = len(self.names) - 1 - self.names[::-1].index(name)
        return [row[at] for row in self.body]

    def times(self, name: str, unit: int) -> NDArray[np.int64]:
        return parsed_times(self.texts(name), unit)

    def numbers(self, name: str) -> NDArray[np.float64]:
        return parsed_numbers(self.texts(name))


def _table(data: bytes, source: str) -> _Table:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8: {error}", source)) from None
    rows = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(rows, None)
        body = [row for row in rows if row]
    except csv.Error as error:
        raise InputError(Problem(str(error), source, f"line {rows.line_num}")) from None
    if header is None:
        raise InputError(Problem("no header", source))
    for i, row in enumerate(body):
        if len(row) != len(header):
            raise InputError(Problem(f"{len(row)} fields, the header has {len(header)}", source, f"row {i + 1}"))
    return _Table([name.strip() for name in header], body)
