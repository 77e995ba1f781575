"""Series from CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np

from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, Series
from kscale.series.encode import encode_keys, parse_time, time_unit

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
    """Rows of a CSV file with a header.

    ``time`` and ``value`` name the columns that must be there; ``columns`` renames ``namespace``, ``pod`` and
    ``container``, which may be missing. ``labels`` are columns to keep with each series. A time is a number in ``unit``
    (s, ms, us, ns) or a text (RFC 3339; without a zone: UTC). ``events``: rows are events, in any order, and ``value``
    may be empty (they are counted, 1 each). Raises ``InputError`` with row and column.
    """
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
    position = {name.strip(): i for i, name in enumerate(header)}
    counted = events and not value
    missing = [name for name in (time, *([] if counted else [value]), *labels) if name not in position]
    if missing:
        found = ", ".join(position)
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {found})", source))
    for i, row in enumerate(body):
        if len(row) != len(header):
            raise InputError(Problem(f"{len(row)} fields, the header has {len(header)}", source, f"row {i + 1}"))
    scale = time_unit(unit)
    times = np.empty(len(body), np.int64)
    values = np.empty(len(body), np.float64)
    at_time, at_value = position[time], position[time if counted else value]
    for i, row in enumerate(body):
        try:
            times[i] = parse_time(row[at_time].strip(), scale)
        except (ValueError, OverflowError) as error:
            raise InputError(Problem(str(error), source, f"row {i + 1}", time)) from None
        if counted:
            values[i] = 1.0
            continue
        try:
            values[i] = float(row[at_value])
        except ValueError:
            raise InputError(Problem(f'"{row[at_value]}" is not a number', source, f"row {i + 1}", value)) from None
    names = [(columns or {}).get(name, name) for name in KEY_COLUMNS]
    parts = [[row[position[name]] for row in body] if name in position else [] for name in names]
    kept = [[row[position[name]] for row in body] for name in labels]
    keys, numbers, tags = encode_keys(parts, kept, labels, len(body), source)
    return Series.of(keys, numbers, times, values, labels=tags, source=source, ordered=not events)
