"""Usage as Arrow tables: Parquet by row group, CSV by slices of the file, and the columns of such a table."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, MissingExtraError, Problem
from kscale.series.columns import KEY_COLUMNS, SeriesKey
from kscale.series.encode import parse_time, time_unit

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtraError("reading usage from Parquet or CSV", "data") from None

__all__ = ["csv_tables", "keys", "numbers", "parquet_tables", "times"]

_MOST_ROWS: Final = 1 << 21
"""Larger row groups are read in parts."""
_SLICE: Final = 32 << 20
"""Bytes of CSV that are parsed together, in blocks of :data:`_BLOCK` by as many threads as there are."""
_BLOCK: Final = 1 << 20
_FARTHEST: Final = 1 << 62
"""Nanoseconds; the recommender's kernels take no time that is further from 1970."""
_TOO_FAR: Final = "{} is too far from 1970: is the unit right?"
_ROW = re.compile(r"Row #(\d+)")


def _check_columns(found: Iterable[str], names: Mapping[str, str], source: str) -> list[str]:
    have = list(found)
    missing = [names[key] for key in ("time", *KEY_COLUMNS) if names[key] not in have]
    if missing:
        shown = ", ".join(have)
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {shown})", source))
    if names["cpu_cores"] not in have and names["memory_bytes"] not in have:
        raise InputError(Problem(f"neither a column {names['cpu_cores']!r} nor {names['memory_bytes']!r}", source))
    return [name for name in names.values() if name in have]


def parquet_tables(path: Path, names: Mapping[str, str]) -> Iterator[Any]:
    """The row groups of a file."""
    import pyarrow.parquet as pq

    texts = {names[key] for key in (*KEY_COLUMNS, "workload")}
    try:
        known = [name for name in pq.read_schema(path).names if name in texts]
        with pq.ParquetFile(path, read_dictionary=known) as file:
            wanted = _check_columns(file.schema_arrow.names, names, str(path))
            for group in range(file.num_row_groups):
                if file.metadata.row_group(group).num_rows <= _MOST_ROWS:
                    yield file.read_row_group(group, columns=wanted)
                else:
                    for batch in file.iter_batches(_MOST_ROWS, row_groups=[group], columns=wanted):
                        yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise InputError(Problem(f"not readable as Parquet: {error}", str(path))) from None


def csv_tables(path: Path, names: Mapping[str, str]) -> Iterator[Any]:
    """The rows of a file, some at a time."""
    rows = 0
    header: list[str] = []
    try:
        for data in _slices(path):
            if not header:
                header, data = _header(data, str(path))
                wanted = _check_columns(header, names, str(path))
            if data.size:
                table = _parse(data, header, wanted, names, str(path), rows)
                rows += table.num_rows
                yield table
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(Problem(f"not readable as CSV: {error}", str(path))) from None
    if not header:
        raise InputError(Problem("no header", str(path)))


def _slices(path: Path) -> Iterator[Any]:
    """The bytes of a file, cut behind ends of lines; a file that is not compressed is mapped, not copied."""
    if path.suffix.lower() != ".gz":
        with pa.memory_map(str(path)) as file:
            data = file.read_buffer()
        at = 0
        while at < data.size:
            end = min(at + _SLICE, data.size)
            if end < data.size:
                end = at + _whole_lines(memoryview(data)[at:end])
            yield data.slice(at, end - at)
            at = end
        return
    with pa.input_stream(str(path), compression="gzip") as file:
        rest = b""
        while more := file.read(_SLICE):
            more = rest + more
            end = _whole_lines(memoryview(more))
            yield pa.py_buffer(more).slice(0, end)
            rest = more[end:]
        yield pa.py_buffer(rest)


def _whole_lines(data: memoryview) -> int:
    """Where the last whole line ends; without one, the end."""
    tail = 1 << 12
    while True:
        found = bytes(data[-tail:]).rfind(b"\n")
        if found >= 0:
            return max(len(data) - tail, 0) + found + 1
        if tail >= len(data):
            return len(data)
        tail *= 16


def _header(data: Any, source: str) -> tuple[list[str], Any]:
    length = 1 << 12
    while (end := bytes(memoryview(data)[:length]).find(b"\n")) < 0 and length < data.size:
        length *= 16
    end = data.size if end < 0 else end
    try:
        text = bytes(memoryview(data)[:end]).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8: {error}", source)) from None
    names = next(csv.reader([text]), [])
    return [name.strip() for name in names], data.slice(min(end + 1, data.size))


def _parse(data: Any, header: list[str], wanted: list[str], names: Mapping[str, str], source: str, before: int) -> Any:
    from pyarrow import csv as arrow

    text = pa.dictionary(pa.int32(), pa.string())
    types = {names[key]: text for key in (*KEY_COLUMNS, "workload")}
    types |= {names[key]: pa.float64() for key in ("cpu_cores", "memory_bytes")}

    def parse(threads: bool) -> Any:
        return arrow.read_csv(
            pa.BufferReader(data),
            read_options=arrow.ReadOptions(column_names=header, use_threads=threads, block_size=_BLOCK),
            convert_options=arrow.ConvertOptions(column_types=types, include_columns=wanted),
        )

    try:
        return parse(threads=True)
    except pa.ArrowInvalid as error:
        problem = error
    try:  # with one thread, the row of what is wrong is known
        parse(threads=False)
    except pa.ArrowInvalid as error:
        problem = error
    told = _ROW.sub(lambda found: f"row {before + int(found[1])}", str(problem))
    raise InputError(Problem(f"not readable as CSV: {told}", source))


# -- columns ---------------------------------------------------------------------------------------------------


def _codes(column: Any) -> tuple[NDArray[np.int32], list[str]]:
    """Numbers and the texts that they stand for; no text at all is an empty one."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if column.num_chunks != 1:
        column = column.unify_dictionaries().combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    texts = ["" if text is None else str(text) for text in array.dictionary.to_pylist()]
    indices = array.indices
    if indices.null_count:
        indices = indices.fill_null(len(texts))
        texts.append("")
    return indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), texts


def keys(table: Any, names: Mapping[str, str], source: str) -> tuple[list[SeriesKey], list[str], NDArray[np.int32]]:
    """(what the series are of, their workloads, the number of the series of each row)."""
    present = [name for name in (*KEY_COLUMNS, "workload") if names[name] in table.column_names]
    try:
        parts = {name: _codes(table.column(names[name])) for name in present}
    except pa.ArrowException as error:
        raise InputError(Problem(f"names that are not texts: {error}", source)) from None
    # Rows of one series mostly stand together: look at each run once.
    changes = np.zeros(table.num_rows, np.bool_)
    changes[0] = True
    for codes, texts in parts.values():
        if len(texts) > 1:
            changes[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(changes)
    combined = np.zeros(len(starts), np.int64)
    for codes, texts in parts.values():
        combined = combined * len(texts) + codes[starts]
    found, of_run = np.unique(combined, return_inverse=True)
    series = np.repeat(of_run.astype(np.int32), np.diff(np.append(starts, table.num_rows)))
    made: list[SeriesKey] = []
    workloads: list[str] = []
    for number in found.tolist():
        row: dict[str, str] = {}
        for name in reversed(present):
            number, position = divmod(number, len(parts[name][1]))
            row[name] = parts[name][1][position]
        workloads.append(row.pop("workload", ""))
        made.append(SeriesKey(**row))
    return made, workloads, series


def times(column: Any, unit: str, source: str) -> NDArray[np.int64]:
    """Nanoseconds since 1970, between the years 1823 and 2116."""
    if column.null_count:
        raise InputError(Problem(f"{column.null_count} rows without time", source, field="time"))
    kind = column.type
    scale = time_unit(kind.unit if pa.types.is_timestamp(kind) else unit)
    try:
        if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
            return _scaled(column.cast(pa.int64()).to_numpy(), scale)
        if pa.types.is_floating(kind):
            fractions = np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
            far = ~(np.abs(fractions) < _FARTHEST / scale)  # NaN too
            if far.any():
                raise ValueError(_TOO_FAR.format(fractions[far][0]))
            if scale < 1000:
                return np.rint(fractions * scale).astype(np.int64)
            return np.rint(fractions * 1e3).astype(np.int64) * (scale // 1000)
        return _scaled(
            np.array([parse_time(text, scale) for text in column.cast(pa.string()).to_pylist()], np.int64), 1
        )
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise InputError(Problem(str(error), source, field="time")) from None


def _scaled(numbers: NDArray[np.int64], scale: int) -> NDArray[np.int64]:
    for most in (int(numbers.min(initial=0)), int(numbers.max(initial=0))):
        if abs(most) * scale >= _FARTHEST:
            raise ValueError(_TOO_FAR.format(most))
    return numbers if scale == 1 else numbers * scale


def numbers(table: Any, name: str, source: str) -> NDArray[np.float64] | None:
    """A column of numbers, None where the table does not have it."""
    if name not in table.column_names:
        return None
    try:
        column = table.column(name).cast(pa.float64())
    except pa.ArrowException as error:
        raise InputError(Problem(str(error), source, field=name)) from None
    return np.ascontiguousarray(column.to_numpy(), np.float64)
