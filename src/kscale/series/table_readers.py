"""Read series from CSV and Parquet tables (extra ``[data]``).

kscale's own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.libraries import library
from kscale.series.columns import KEY_COLUMNS, FarTimeError, Series, encode_keys, parse_time, scaled_times, time_unit

__all__ = [
    "CellError",
    "RowTable",
    "Wanted",
    "check_columns",
    "parsed_numbers",
    "parsed_times",
    "read_csv",
    "read_parquet",
    "series_of",
]


class CellError(ValueError):
    """What is wrong with a column, or with its value in a ``row`` (from 1)."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class RowTable(Protocol):
    """A table that was read: columns by name. Each column may raise :class:`CellError`."""

    @property
    def names(self) -> Sequence[str]:
        """Of the columns, in their order."""

    @property
    def rows(self) -> int: ...

    def times(self, name: str, unit: int) -> NDArray[np.int64]:
        """Nanoseconds since 1970; a number counts in ``unit`` nanoseconds."""

    def numbers(self, name: str) -> NDArray[np.float64]: ...

    def texts(self, name: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of a table: the arguments of :func:`~kscale.series.read_csv`."""

    value: str
    time: str
    columns: Mapping[str, str] | None
    labels: Sequence[str]
    unit: str
    events: bool

    @property
    def keys(self) -> list[str]:
        """The columns that name a series, which may be missing."""
        return [(self.columns or {}).get(name, name) for name in KEY_COLUMNS]

    @property
    def needed(self) -> list[str]:
        """The columns that must be there; events without a value are counted."""
        return [self.time, *([] if self.is_counted else [self.value]), *self.labels]

    @property
    def is_counted(self) -> bool:
        return self.events and not self.value


def series_of(table: RowTable, wanted: Wanted, source: str) -> Series:
    """The rows as series. Raises ``InputError`` with row and column."""
    check_columns(table.names, wanted, source)
    unit = time_unit(wanted.unit)
    column = wanted.time
    try:
        times = table.times(column, unit)
        column = wanted.value
        values = np.ones(table.rows) if wanted.is_counted else table.numbers(column)
        texts: dict[str, list[str]] = {}
        for column in (*wanted.keys, *wanted.labels):
            if column in table.names and column not in texts:
                texts[column] = table.texts(column)
    except CellError as error:
        place = "" if error.row is None else f"row {error.row}"
        raise InputError(Problem(str(error), source, place, column)) from None
    parts, kept = ([texts.get(name, []) for name in names] for names in (wanted.keys, wanted.labels))
    keys, numbers, tags = encode_keys(parts, kept, wanted.labels, table.rows, source)
    return Series.of(keys, numbers, times, values, labels=tags, source=source, ordered=not wanted.events)


def parsed_times(texts: Sequence[str], unit: int) -> NDArray[np.int64]:
    """A column of times that are texts. Raises :class:`CellError` with the row."""
    found = np.empty(len(texts), np.int64)
    for i, text in enumerate(texts):
        try:
            found[i] = parse_time(text.strip(), unit)
        except (ValueError, OverflowError) as error:
            raise CellError(str(error), i + 1) from None
    return found


def parsed_numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    """A column of numbers that are texts. Raises :class:`CellError` with the row."""
    found = np.empty(len(texts), np.float64)
    for i, text in enumerate(texts):
        try:
            found[i] = float(text)
        except ValueError:
            raise CellError(f'"{text}" is not a number', i + 1) from None
    return found


def check_columns(names: Sequence[str], wanted: Wanted, source: str) -> None:
    """Raises ``InputError`` for columns that are not there."""
    missing = [name for name in wanted.needed if name not in names]
    if missing:
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {', '.join(names)})", source))


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


_MOST: Final = 2**63 - 1
"""Nanoseconds; columns that hold so many are gone through row by row."""


def read_parquet(
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
    """Rows of a Parquet file, ``data``; other arguments and errors as of :func:`~kscale.series.read_csv`.

    A time may be a timestamp too (UTC).
    """
    wanted = Wanted(value, time, columns, labels, unit, events)
    return series_of(_parquet_table(data, wanted, source), wanted, source)


@dataclass(frozen=True, slots=True)
class _ParquetTable:
    """``pa``: the module pyarrow."""

    pa: Any
    table: Any

    @property
    def names(self) -> list[str]:
        names: list[str] = self.table.column_names
        return names

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def texts(self, name: str) -> list[str]:
        try:
            texts: list[str] = self._column(name).cast(self.pa.string()).to_pylist()
        except (self.pa.ArrowException, UnicodeDecodeError) as error:
            raise CellError(f"not texts: {error}") from None
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        column = self._column(name)
        try:
            found: NDArray[np.float64] = column.cast(self.pa.float64()).to_numpy()
        except self.pa.ArrowException:  # which does not say the row
            return parsed_numbers(_told(column))
        return found

    def times(self, name: str, unit: int) -> NDArray[np.int64]:
        column = self._column(name)
        if self.pa.types.is_timestamp(column.type):
            unit = time_unit(column.type.unit)
            column = column.cast(self.pa.int64())
        if self.pa.types.is_integer(column.type):
            try:
                return scaled_times(column.cast(self.pa.int64()).to_numpy(), unit, _MOST)
            except (self.pa.ArrowException, FarTimeError):
                pass  # neither says the row
        return parsed_times(_told(column), unit)

    def _column(self, name: str) -> Any:
        column = self.table.column(name)
        if column.null_count:
            raise CellError("holds a null", column.is_null().index(True).as_py() + 1)
        return column


def _told(column: Any) -> list[str]:
    """The values of a column as Python writes them."""
    try:
        return [str(each) for each in column.to_pylist()]
    except (ValueError, OverflowError) as error:  # texts that are not UTF-8, moments that Python does not have
        raise CellError(f"not texts: {error}") from None


def _parquet_table(data: bytes, wanted: Wanted, source: str) -> _ParquetTable:
    """The columns that are wanted, of those that are there."""
    pa, pq = library("pyarrow", "reading Parquet"), library("pyarrow.parquet", "reading Parquet")
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            present = file.schema_arrow.names
            check_columns(present, wanted, source)
            _check_rows(file.metadata, source)
        names = [name for name in (*wanted.needed, *wanted.keys) if name in present]
        return _ParquetTable(pa, pq.read_table(pa.BufferReader(data), columns=list(dict.fromkeys(names))))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # OSError: damaged pages
        raise InputError(Problem(f"not a Parquet file: {error}", source)) from None


def _check_rows(metadata: Any, source: str) -> None:
    """What a file says of its rows must agree: pyarrow takes memory for as many as a row group claims.

    Its columns are not looked at: what pyarrow says of damaged ones ends the process.
    """
    rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    if rows != metadata.num_rows:
        what = f"its row groups have {rows} rows, itself {metadata.num_rows}"
        raise InputError(Problem(f"not a Parquet file: {what}", source))
