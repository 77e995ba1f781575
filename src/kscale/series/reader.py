"""Read series from a file whose name selects the format, and from CSV and Parquet tables (extra ``[data]``). Not in
upstream.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.files import MAX_FILE, read_input
from kscale.imports import library
from kscale.objects.argument_types import typed
from kscale.series.columns import KEY_COLUMNS, FarTimeError, Series, encode_keys, parse_time, scaled_times, time_unit
from kscale.series.prometheus import read_prometheus

__all__ = [
    "CellError",
    "ColumnSelection",
    "RowTable",
    "check_columns",
    "content_of",
    "form_of",
    "parsed_numbers",
    "parsed_times",
    "read",
    "read_csv",
    "read_parquet",
    "series_of",
]


class CellError(ValueError):
    """A column is invalid, or its value in a ``row`` (from 1)."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class RowTable(Protocol):
    """Table with columns by name. Reading a column may raise :class:`CellError`."""

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the columns in their order."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        ...

    def times(self, name: str, unit: int) -> NDArray[np.int64]:
        """Return a column as nanoseconds since 1970; numbers are in units of ``unit`` nanoseconds."""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers."""
        ...

    def texts(self, name: str) -> list[str]:
        """Return a column as texts."""


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """Selection of columns of a table: the arguments of :func:`~kscale.series.read_csv`."""

    value: str
    time: str
    columns: Mapping[str, str] | None
    labels: Sequence[str]
    unit: str
    events: bool

    @property
    def keys(self) -> list[str]:
        """Return the table's column names for namespace, pod and container, which identify a series.

        They may be missing.
        """
        return [(self.columns or {}).get(name, name) for name in KEY_COLUMNS]

    @property
    def required_columns(self) -> list[str]:
        """Return the columns that must exist: time and labels, and the value unless rows are counted as events."""
        return [self.time, *([] if self.is_counted else [self.value]), *self.labels]

    @property
    def is_counted(self) -> bool:
        """Return whether rows are events without a value, which count 1 each."""
        return self.events and not self.value


def series_of(table: RowTable, selection: ColumnSelection, source: str) -> Series:
    """Convert the rows of a table to series.

    Raises ``InputError``, with row and column, for an invalid cell or missing column; also for an unknown unit, labels
    that change within a series, and times that do not ascend within it (unless rows are events).
    """
    check_columns(table.names, selection, source)
    unit = time_unit(selection.unit)
    column = selection.time
    try:
        times = table.times(column, unit)
        column = selection.value
        values = np.ones(table.rows) if selection.is_counted else table.numbers(column)
        texts: dict[str, list[str]] = {}
        for column in (*selection.keys, *selection.labels):
            if column in table.names and column not in texts:
                texts[column] = table.texts(column)
    except CellError as error:
        place = "" if error.row is None else f"row {error.row}"
        raise InputError(Problem(str(error), source, place, column)) from None
    parts, label_columns = ([texts.get(name, []) for name in names] for names in (selection.keys, selection.labels))
    keys, numbers, tags = encode_keys(parts, label_columns, selection.labels, table.rows, source)
    return Series.of(keys, numbers, times, values, labels=tags, source=source, ordered=not selection.events)


def parsed_times(texts: Sequence[str], unit: int) -> NDArray[np.int64]:
    """Parse a column of times in text form into nanoseconds since 1970.

    ``unit``: nanoseconds per unit of a numeric time. Raises :class:`CellError` with the row if a text is not a time.
    """
    times = np.empty(len(texts), np.int64)
    for i, text in enumerate(texts):
        try:
            times[i] = parse_time(text.strip(), unit)
        except (ValueError, OverflowError) as error:
            raise CellError(str(error), i + 1) from None
    return times


def parsed_numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    """Parse a column of numbers in text form. Raises :class:`CellError` with the row if a text is not a number."""
    numbers = np.empty(len(texts), np.float64)
    for i, text in enumerate(texts):
        try:
            numbers[i] = float(text if text.isascii() and "_" not in text else "")  # as in parse_time
        except ValueError:
            raise CellError(f'"{text}" is not a number', i + 1) from None
    return numbers


def check_columns(names: Sequence[str], selection: ColumnSelection, source: str) -> None:
    """Check that a table has the required columns. Raises ``InputError`` if a column is missing."""
    missing = [name for name in selection.required_columns if name not in names]
    if missing:
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {', '.join(names)})", source))


@typed
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
    """Read the rows of a CSV file with a header.

    Parameters
    ----------
    data : bytes
        Content of the file.
    value, time : str
        Names of the required columns. A time is a number in ``unit`` or a text (RFC 3339; without a zone: UTC).
    columns : mapping, optional
        The file's names for the columns ``namespace``, ``pod`` and ``container``, which may be missing.
    labels : sequence of str
        Columns whose values are kept as labels of each series.
    unit : str
        Unit of numeric times: s, ms, us or ns.
    events : bool, default False
        Rows are events in any order, and ``value`` may be empty: each event then counts 1.
    source : str
        Name of the source for error messages.

    Returns
    -------
    Series
        One series per namespace, pod and container.

    Raises
    ------
    InputError
        For an invalid cell or a missing column; the message has row and column. Also for an unknown unit, labels that
        change within a series, and times that do not ascend within it (unless ``events``).
    """
    return series_of(_table(data, source), ColumnSelection(value, time, columns, labels, unit, events), source)


@dataclass(frozen=True, slots=True)
class _Table:
    """Table of a CSV file, whose cells are texts. Implements :class:`RowTable`."""

    names: list[str]
    body: list[list[str]]

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.body)

    def texts(self, name: str) -> list[str]:
        """Return a column as texts; the last one if the name occurs twice."""
        # If a name occurs twice, the last column counts.
        index = len(self.names) - 1 - self.names[::-1].index(name)
        return [row[index] for row in self.body]

    def times(self, name: str, unit: int) -> NDArray[np.int64]:
        """Return a column as nanoseconds since 1970; numbers are in units of ``unit`` nanoseconds.

        Raises CellError for a text that is not a time.
        """
        return parsed_times(self.texts(name), unit)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers. Raises CellError for a text that is not a number."""
        return parsed_numbers(self.texts(name))


def _table(data: bytes, source: str) -> _Table:
    """Parse a CSV file with a header.

    Raises InputError if it is malformed or has rows of another length than the header. Empty lines are left out.
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
    for i, row in enumerate(body):
        if len(row) != len(header):
            raise InputError(Problem(f"{len(row)} fields, the header has {len(header)}", source, f"row {i + 1}"))
    return _Table([name.strip() for name in header], body)


_MOST: Final = 2**63 - 1
"""Limit in nanoseconds; a column that reaches it is checked row by row."""


@typed
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
    """Read the rows of a Parquet file.

    Parameters
    ----------
    data : bytes
        Content of the file.
    value, time, columns, labels, unit, events, source
        As in :func:`~kscale.series.read_csv`. A time may also be a timestamp (UTC).

    Returns
    -------
    Series
        One series per namespace, pod and container.

    Raises
    ------
    InputError
        If the file is damaged, and as in :func:`~kscale.series.read_csv`.
    MissingExtraError
        Without pyarrow.
    """
    selection = ColumnSelection(value, time, columns, labels, unit, events)
    return series_of(_parquet_table(data, selection, source), selection, source)


@dataclass(frozen=True, slots=True)
class _ParquetTable:
    """Table of a Parquet file. ``pa`` is the module pyarrow."""

    pa: Any
    table: Any

    @property
    def names(self) -> list[str]:
        """Return the names of the columns in their order."""
        names: list[str] = self.table.column_names
        return names

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def texts(self, name: str) -> list[str]:
        """Return a column as texts. Raises CellError if it has a null or cannot be converted."""
        try:
            texts: list[str] = self._column(name).cast(self.pa.string()).to_pylist()
        except (self.pa.ArrowException, UnicodeDecodeError) as error:
            raise CellError(f"not texts: {error}") from None
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as numbers.

        Raises CellError, with the row, for a null and for a value that is not a number.
        """
        column = self._column(name)
        try:
            values: NDArray[np.float64] = column.cast(self.pa.float64()).to_numpy()
        except self.pa.ArrowException:  # Arrow does not report the row
            return parsed_numbers(_to_texts(column))
        return values

    def times(self, name: str, unit: int) -> NDArray[np.int64]:
        """Return a column as nanoseconds since 1970.

        Numbers are in units of ``unit`` nanoseconds; a timestamp has its own unit. Raises CellError, with the row, for
        a null and for a value that is not a time.
        """
        column = self._column(name)
        if self.pa.types.is_timestamp(column.type):
            unit = time_unit(column.type.unit)
            column = column.cast(self.pa.int64())
        if self.pa.types.is_integer(column.type):
            try:
                return scaled_times(column.cast(self.pa.int64()).to_numpy(), unit, _MOST)
            except (self.pa.ArrowException, FarTimeError):
                pass  # neither reports the row
        return parsed_times(_to_texts(column), unit)

    def _column(self, name: str) -> Any:
        """Return the Arrow column of this name. Raises CellError, with the row, if it has a null."""
        column = self.table.column(name)
        if column.null_count:
            raise CellError("holds a null", column.is_null().index(True).as_py() + 1)
        return column


def _to_texts(column: Any) -> list[str]:
    """Return the values of an Arrow column in Python's text form.

    Raises CellError if they cannot be converted to Python.
    """
    try:
        return [str(value) for value in column.to_pylist()]
    except (ValueError, OverflowError) as error:  # texts that are not UTF-8, times outside Python's range
        raise CellError(f"not texts: {error}") from None


def _parquet_table(data: bytes, selection: ColumnSelection, source: str) -> _ParquetTable:
    """Read the selected columns that the file has.

    Raises InputError if the file is no readable Parquet file or lacks a required column, and MissingExtraError without
    pyarrow.
    """
    pa, pq = library("pyarrow", "reading Parquet"), library("pyarrow.parquet", "reading Parquet")
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            present = file.schema_arrow.names
            check_columns(present, selection, source)
            _check_rows(file.metadata, source)
        names = [name for name in (*selection.required_columns, *selection.keys) if name in present]
        return _ParquetTable(pa, pq.read_table(pa.BufferReader(data), columns=list(dict.fromkeys(names))))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # OSError: damaged pages
        raise InputError(Problem(f"not a Parquet file: {error}", source)) from None


def _check_rows(metadata: Any, source: str) -> None:
    """Check that the row counts of a file are consistent, because pyarrow allocates memory for what a row group claims.

    Columns are not checked: pyarrow's checks of corrupt ones can end the process. Raises InputError if the counts
    differ.
    """
    rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    if rows != metadata.num_rows:
        problem = f"its row groups have {rows} rows, itself {metadata.num_rows}"
        raise InputError(Problem(f"not a Parquet file: {problem}", source))


def form_of(path: Path, forms: Collection[str], what: str) -> str:
    """Return which suffix of ``forms`` a file name has; a further suffix ``.gz`` is ignored.

    Raises ``InputError`` for a name with none of them; ``what`` describes the content in the message.
    """
    name = path.name.lower().removesuffix(".gz")
    for form in forms:
        if name.endswith(form):
            return form
    *others, last = forms
    raise InputError(
        Problem(f"{what} is read from {', '.join(others)} or {last} (a Prometheus range answer)", str(path))
    )


def content_of(path: Path) -> bytes:
    """Return the content of a file, decompressed if its suffix is ``.gz``.

    Raises ``InputError`` if it cannot be read or has more than ``MAX_FILE`` bytes, also decompressed.
    """
    data = read_input(path)
    if path.suffix.lower() != ".gz":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(MAX_FILE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(Problem(f"not gzip: {error}", str(path))) from None
    if len(content) > MAX_FILE:
        raise InputError(Problem(f"longer than the {MAX_FILE:,} bytes that are read, when decompressed", str(path)))
    return content


_TABLES: Final[Mapping[str, Callable[..., Series]]] = {".csv": read_csv, ".parquet": read_parquet}
"""Readers of tables with one row per value, by suffix; all take the same arguments."""
_ANSWER: Final = ".json"


@typed
def read(
    path: Path | str,
    *,
    value: str = "value",
    time: str = "time",
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] = (),
    unit: str = "s",
    events: bool = False,
) -> Series:
    """Read series from a file by its suffix: ``.csv``, ``.parquet`` or ``.json`` (a Prometheus range response).

    Each suffix may be followed by ``.gz``.

    Parameters
    ----------
    path : Path or str
        The file.
    value, time, columns, labels, unit, events
        As in :func:`~kscale.series.read_csv`. Of a Prometheus response only ``columns`` is used.

    Returns
    -------
    Series
        The content of the file.

    Raises
    ------
    InputError
        If the file cannot be read.

    MissingExtraError
        For a ``.parquet`` file without pyarrow.
    """
    path = Path(path)
    form = form_of(path, (*_TABLES, _ANSWER), "a series")
    data, source = content_of(path), str(path)
    if form == _ANSWER:
        return read_prometheus(data, columns=columns, source=source)
    return _TABLES[form](
        data, value=value, time=time, columns=columns, labels=labels, unit=unit, events=events, source=source
    )
