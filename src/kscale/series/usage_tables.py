"""Recorded usage of containers as Arrow tables: Parquet by row group, CSV by block (extra ``[data]``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _usage_text
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern, library
from kscale.series.columns import KEY_COLUMNS, TOO_FAR, FarTimeError, parse_time, scaled_times, time_unit
from kscale.series.usage_csv import Names, Numbered, ReaderSeries, check_columns

__all__ = ["ArrowException", "NamesOfTables", "csv_table", "numbers", "parquet_parts", "times", "unreadable"]

pa = library("pyarrow", "reading usage from Parquet or CSV")
ArrowException = pa.ArrowException

_MOST_ROWS: Final = 1 << 21
"""Maximum rows of a table; larger row groups are read in parts."""
_LOOKED_AT: Final = 1 << 16
"""Bytes read at a time to check whether a column is readable."""
_BLOCK: Final = 1 << 20
"""Bytes of CSV per thread and block."""
_FARTHEST: Final = 1 << 62
"""Limit in nanoseconds from 1970 of the recommender's kernels."""
_ROW = lazy_pattern(r"Row #(\d+)")
_COLUMN = lazy_pattern(r"In CSV column #(\d+)")


def parquet_parts(path: Path, names: Mapping[str, str]) -> Iterator[Callable[[], Any]]:
    """Yield functions that read consecutive parts of a file as Arrow tables; each may run in any thread.

    ``names``: column of each field. Row groups whose times do not overlap are sorted by time, so that a file with
    shuffled groups is read in order. Raises InputError if the file cannot be read or a column is missing.
    """
    pq = library("pyarrow.parquet", "reading usage from Parquet")

    texts = {names[key] for key in (*KEY_COLUMNS, "workload")}
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
        columns = check_columns(schema.names, names, str(path))
        dictionary_columns = [
            name for name in schema.names if name in texts and not pa.types.is_nested(schema.field(name).type)
        ]

        def opened() -> Any:
            return pq.ParquetFile(path, read_dictionary=dictionary_columns, metadata=metadata)

        def read_group(group: int) -> Any:
            with opened() as file:
                return file.read_row_group(group, columns=columns)

        _check_column(pq.ParquetFile(path, metadata=metadata, buffer_size=_LOOKED_AT), names["time"])
        for group in _sort_row_groups(metadata, schema, names["time"]):
            if metadata.row_group(group).num_rows <= _MOST_ROWS:
                yield partial(read_group, group)
                continue
            with opened() as file:
                for batch in file.iter_batches(_MOST_ROWS, row_groups=[group], columns=columns):
                    yield partial(pa.Table.from_batches, [batch])
    except (pa.ArrowException, OSError) as error:
        raise unreadable(error, path) from None


def _check_column(file: Any, name: str) -> None:
    """Read the first value of column ``name`` in each row group, so that a corrupt column raises an error of Arrow.

    Requesting the statistics of a corrupt column would end the process. Closes the file.
    """
    with file:
        for group in range(file.num_row_groups):
            next(file.iter_batches(1, row_groups=[group], columns=[name], use_threads=False), None)


def _sort_row_groups(metadata: Any, schema: Any, name: str) -> list[int]:
    """Return the numbers of the row groups, sorted by time if no two overlap, else in file order.

    Also in file order if the file has nested columns or lacks the statistics of the times.

    ``name``: column of the time. Overlapping groups contain different series, or parts of one whose order must be kept.
    """
    groups = list(range(metadata.num_row_groups))
    if any(pa.types.is_nested(field.type) for field in schema):
        return groups  # nested columns have other indices in the statistics
    column = schema.names.index(name)
    statistics = [metadata.row_group(group).column(column).statistics for group in groups]
    if not all(entry is not None and entry.has_min_max for entry in statistics):
        return groups
    ranges = [(entry.min_raw, entry.max_raw) for entry in statistics]
    ordered = sorted(groups, key=ranges.__getitem__)
    is_disjoint = all(ranges[a][1] <= ranges[b][0] for a, b in pairwise(ordered))
    return ordered if is_disjoint else groups


def unreadable(error: Exception, path: Path) -> InputError:
    """Build the InputError for a Parquet file that Arrow cannot read."""
    return InputError(Problem(f"not readable as Parquet: {error}", str(path)))


def csv_table(
    data: bytes, header: list[str], columns: list[str], names: Mapping[str, str], source: str, before: int
) -> Any:
    """Parse rows of a CSV file (``data``, without header) into an Arrow table of ``columns``.

    ``header``: all columns of the file. ``names``: column of each field. ``before``: number of preceding rows of the
    file. Raises InputError if a row cannot be parsed.
    """
    arrow = library("pyarrow.csv", "reading usage from CSV")

    text = pa.dictionary(pa.int32(), pa.string())
    types = {names[key]: text for key in (*KEY_COLUMNS, "workload")}
    types |= {names[key]: pa.float64() for key in ("cpu_cores", "memory_bytes")}
    types[names["time"]] = pa.string()  # its type must not depend on the other rows of this part

    def parse(threads: bool) -> Any:
        return arrow.read_csv(
            pa.BufferReader(data),
            read_options=arrow.ReadOptions(column_names=header, use_threads=threads, block_size=_BLOCK),
            convert_options=arrow.ConvertOptions(column_types=types, include_columns=columns),
        )

    try:
        return parse(threads=True)
    except pa.ArrowInvalid as error:
        problem = error
    try:  # with one thread, Arrow reports the row of the error
        parse(threads=False)
    except pa.ArrowInvalid as error:
        problem = error
    message = _ROW.sub(lambda match: f"row {before + int(match[1])}", str(problem))
    message = _COLUMN.sub(lambda match: f"column {header[int(match[1])]!r}", message)
    raise InputError(Problem(f"not readable as CSV: {message}", source))


# -- columns ---------------------------------------------------------------------------------------------------


def _codes(column: Any) -> tuple[NDArray[np.int32], list[str]]:
    """Return (codes, texts) of an Arrow column: the text of row i is ``texts[codes[i]]``; null is an empty text."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if column.num_chunks != 1:
        column = column.unify_dictionaries().combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    texts = ["" if text is None else text for text in array.dictionary.cast(pa.string()).to_pylist()]
    indices = array.indices
    if indices.null_count:
        indices = indices.fill_null(len(texts))
        texts.append("")
    return indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), texts


class NamesOfTables:
    """Series of the tables that one thread reads: texts and series keep their numbers from table to table."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._names: list[str] = [""]
        self._series = _usage_text.SeriesNumbers()
        self._reader_series = ReaderSeries()

    def number(self, table: Any, names: Mapping[str, str], source: str) -> Numbered:
        """Return the number of each row's series (namespace, pod, container, workload), and remember new series.

        ``names``: column of each field. Raises InputError if names are not texts.
        """
        columns: list[tuple[NDArray[np.int32], NDArray[np.int32]] | None] = []
        for name in (*KEY_COLUMNS, "workload"):
            if names[name] not in table.column_names:
                columns.append(None)
                continue
            try:
                codes, texts = _codes(table.column(names[name]))
            except pa.ArrowException as error:
                raise InputError(Problem(f"names that are not texts: {error}", source)) from None
            columns.append((codes, np.array([self._number_of(text) for text in texts], np.int32)))
        series = np.empty(table.num_rows, np.int32)
        new_series = self._series.number(columns, series)
        fresh: list[Names] = [
            (self._names[a], self._names[b], self._names[c], self._names[d]) for a, b, c, d in new_series
        ]
        return Numbered(series, fresh, self._reader_series)

    def _number_of(self, text: str) -> int:
        """Return the number of a name, which is added if it is new."""
        number = self._texts.setdefault(text, len(self._names))
        if number == len(self._names):
            self._names.append(text)
        return number


def times(column: Any, unit: str, source: str, before: int = 0) -> NDArray[np.int64]:
    """Return an Arrow column as nanoseconds since 1970. ``before`` is the number of preceding rows of the file.

    ``unit``: of numbers (s, ms, us or ns); floats are rounded to a thousandth of it, but to no less than a nanosecond.
    Raises InputError for missing or invalid times and for times outside the years 1823 to 2116.
    """
    if column.null_count:
        raise InputError(Problem(f"{column.null_count} rows without time", source, field="time"))
    kind = column.type
    scale = time_unit(kind.unit if pa.types.is_timestamp(kind) else unit)
    try:
        if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
            return scaled_times(column.cast(pa.int64()).to_numpy(), scale, _FARTHEST)
        if pa.types.is_floating(kind):
            fractions = np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
            far = ~(np.abs(fractions) < _FARTHEST / scale)  # NaN too
            if far.any():
                raise ValueError(TOO_FAR.format(fractions[far][0]))
            if scale < 1000:
                return np.rint(fractions * scale).astype(np.int64)
            return np.rint(fractions * 1e3).astype(np.int64) * (scale // 1000)
        encoded = _concatenate_chunks(column.cast(pa.string())).dictionary_encode()
        codes: NDArray[np.int32] = encoded.indices.to_numpy()
        moments = np.empty(len(encoded.dictionary), np.int64)
        for i, text in enumerate(encoded.dictionary.to_pylist()):
            problem = ""
            try:
                moments[i] = parse_time(text, scale)
            except (FarTimeError, OverflowError):
                problem = TOO_FAR.format(text)
            except ValueError as error:
                problem = str(error) if text else "a row without time"
            if problem or abs(int(moments[i])) >= _FARTHEST:
                row = f"row {before + int(np.argmax(codes == i)) + 1}"
                raise InputError(Problem(problem or TOO_FAR.format(text), source, row, "time"))
        nanoseconds: NDArray[np.int64] = moments[codes]
        return nanoseconds
    except InputError:
        raise
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise InputError(Problem(str(error), source, field="time")) from None


def _concatenate_chunks(column: Any) -> Any:
    """Return an Arrow column as a single array."""
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def numbers(table: Any, name: str, source: str) -> NDArray[np.float64] | None:
    """Return a column of an Arrow table as numbers (null: NaN); None if the table lacks it.

    Raises InputError for values that are not numbers.
    """
    if name not in table.column_names:
        return None
    try:
        column = table.column(name).cast(pa.float64())
    except pa.ArrowException as error:
        raise InputError(Problem(str(error), source, field=name)) from None
    return np.ascontiguousarray(column.to_numpy(), np.float64)
