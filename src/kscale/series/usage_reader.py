"""CPU and memory of containers over time, read in batches: Parquet by row group, CSV by block, Prometheus JSON whole.

Columns: ``time``, ``namespace``, ``pod``, ``container``, ``cpu_cores`` and ``memory_bytes`` (one of the two may be
missing), and optionally ``workload``. Rows may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, MissingExtraError, Problem
from kscale.series.columns import KEY_COLUMNS, SeriesKey
from kscale.series.encode import parse_time, time_unit
from kscale.series.prometheus_reader import read_prometheus

__all__ = ["UsageBatch", "read_usage"]

CPU: Final = "cpu_cores"
MEMORY: Final = "memory_bytes"
_BLOCK: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """``keys[series[i]]`` used ``cpu[i]`` cores and ``memory[i]`` bytes at ``time[i]`` (ns since 1970); NaN: no value.

    ``cpu`` or ``memory`` is None where the source does not have it. ``workloads[k]`` is the workload that the source
    names for ``keys[k]``, or an empty text.
    """

    keys: Sequence[SeriesKey]
    workloads: Sequence[str]
    series: NDArray[np.int32]
    time: NDArray[np.int64]
    cpu: NDArray[np.float64] | None
    memory: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.time)


def read_usage(path: Path | str, *, columns: Mapping[str, str] | None = None, unit: str = "s") -> Iterator[UsageBatch]:
    """The batches of a file, by its suffix: ``.parquet``, ``.csv`` (``.gz`` too), ``.json``.

    ``columns`` renames columns (Prometheus: labels). Raises ``InputError`` when the file cannot be read.
    """
    path = Path(path)
    name = path.name.lower().removesuffix(".gz")
    names = {key: (columns or {}).get(key, key) for key in ("time", *KEY_COLUMNS, CPU, MEMORY, "workload")}
    if not path.is_file():
        raise InputError(Problem("no such file", str(path)))
    if name.endswith(".parquet"):
        yield from _arrow(_parquet_batches(path, names), names, unit, str(path))
    elif name.endswith(".csv"):
        yield from _arrow(_csv_batches(path, names), names, unit, str(path))
    elif name.endswith(".json"):
        yield _prometheus(path, columns)
    else:
        raise InputError(Problem("usage is read from .parquet, .csv or .json (a Prometheus range answer)", str(path)))


# -- Arrow -----------------------------------------------------------------------------------------------------


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(what, "data") from None
    return pa


def _check_columns(found: Iterable[str], names: Mapping[str, str], source: str) -> list[str]:
    have = list(found)
    missing = [names[key] for key in ("time", *KEY_COLUMNS) if names[key] not in have]
    if missing:
        shown = ", ".join(have)
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {shown})", source))
    if names[CPU] not in have and names[MEMORY] not in have:
        raise InputError(Problem(f"neither a column {names[CPU]!r} nor {names[MEMORY]!r}", source))
    return [name for name in names.values() if name in have]


def _parquet_batches(path: Path, names: Mapping[str, str]) -> Iterator[Any]:
    pa = _pyarrow("reading Parquet")
    import pyarrow.parquet as pq

    keys = {names[key] for key in (*KEY_COLUMNS, "workload")}
    try:
        texts = [name for name in pq.read_schema(path).names if name in keys]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            wanted = _check_columns(file.schema_arrow.names, names, str(path))
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=wanted)
    except (pa.ArrowException, OSError) as error:
        raise InputError(Problem(f"not readable as Parquet: {error}", str(path))) from None


def _csv_batches(path: Path, names: Mapping[str, str]) -> Iterator[Any]:
    pa = _pyarrow("reading usage from CSV")
    from pyarrow import csv

    text = pa.dictionary(pa.int32(), pa.string())
    types = {names[key]: text for key in (*KEY_COLUMNS, "workload")}
    types |= {names[CPU]: pa.float64(), names[MEMORY]: pa.float64()}
    try:
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(block_size=_BLOCK),
            convert_options=csv.ConvertOptions(column_types=types),
        ) as file:
            _check_columns(file.schema.names, names, str(path))
            for batch in file:
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise InputError(Problem(f"not readable as CSV: {error}", str(path))) from None


def _arrow(tables: Iterable[Any], names: Mapping[str, str], unit: str, source: str) -> Iterator[UsageBatch]:
    pa = _pyarrow("reading usage")
    for table in tables:
        if table.num_rows == 0:
            continue
        keys, workloads, series = _keys(pa, table, names)
        yield UsageBatch(
            keys,
            workloads,
            series,
            _times(pa, table.column(names["time"]), unit, source),
            _numbers(pa, table, names[CPU], source),
            _numbers(pa, table, names[MEMORY], source),
        )


def _codes(pa: Any, column: Any) -> tuple[NDArray[np.int64], list[str]]:
    """Numbers and the texts that they stand for."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    texts = ["" if text is None else str(text) for text in array.dictionary.to_pylist()]
    if len(codes) and codes.min() < 0:
        codes[codes < 0] = len(texts)
        texts.append("")
    return codes, texts


def _keys(pa: Any, table: Any, names: Mapping[str, str]) -> tuple[list[SeriesKey], list[str], NDArray[np.int32]]:
    parts = [_codes(pa, table.column(names[key])) for key in KEY_COLUMNS]
    if names["workload"] in table.column_names:
        parts.append(_codes(pa, table.column(names["workload"])))
    else:
        parts.append((np.zeros(1, np.int64), [""]))
    combined = parts[0][0].copy()
    for codes, texts in parts[1:]:
        combined *= len(texts)
        combined += codes
    # Rows of one series mostly stand together: look at each run once.
    starts = np.flatnonzero(np.concatenate(([True], combined[1:] != combined[:-1])))
    found, of_run = np.unique(combined[starts], return_inverse=True)
    series = np.repeat(of_run.astype(np.int32), np.diff(np.append(starts, len(combined))))
    keys, workloads = [], []
    for number in found.tolist():
        texts = []
        for _, dictionary in reversed(parts):
            number, position = divmod(number, len(dictionary))
            texts.append(dictionary[position])
        workload, container, pod, namespace = texts
        keys.append(SeriesKey(namespace, pod, container))
        workloads.append(workload)
    return keys, workloads, series


def _times(pa: Any, column: Any, unit: str, source: str) -> NDArray[np.int64]:
    if column.null_count:
        raise InputError(Problem(f"{column.null_count} rows without time", source, field="time"))
    kind = column.type
    if pa.types.is_timestamp(kind):
        return np.asarray(column.cast(pa.timestamp("ns", kind.tz)).cast(pa.int64()).to_numpy(), np.int64)
    scale = time_unit(unit)
    if pa.types.is_integer(kind):
        return np.asarray(column.to_numpy(), np.int64) * scale
    if pa.types.is_floating(kind):
        return np.rint(np.asarray(column.to_numpy(), np.float64) * 1e3).astype(np.int64) * (scale // 1000)
    texts = column.cast(pa.string()).to_pylist()
    times = np.empty(len(texts), np.int64)
    for i, text in enumerate(texts):
        try:
            times[i] = parse_time(text, scale)
        except (ValueError, OverflowError) as error:
            raise InputError(Problem(str(error), source, f"row {i + 1} of its block", "time")) from None
    return times


def _numbers(pa: Any, table: Any, name: str, source: str) -> NDArray[np.float64] | None:
    if name not in table.column_names:
        return None
    try:
        column = table.column(name).cast(pa.float64())
    except pa.ArrowException as error:
        raise InputError(Problem(str(error), source, field=name)) from None
    return np.ascontiguousarray(column.to_numpy(), np.float64)


# -- Prometheus ------------------------------------------------------------------------------------------------


def _prometheus(path: Path, columns: Mapping[str, str] | None) -> UsageBatch:
    """One matrix; its metric's name, or the label ``resource``, says whether it is CPU (cores) or memory (bytes)."""
    try:
        series = read_prometheus(path.read_bytes(), columns=columns, source=str(path))
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), str(path))) from None
    is_memory = np.array(
        ["memory" in f"{labels.get('__name__', '')} {labels.get('resource', '')}" for labels in series.labels], bool
    )
    if not any("__name__" in labels or "resource" in labels for labels in series.labels):
        is_memory[:] = "mem" in path.name.lower()
    rows = is_memory[series.series] if len(series) else np.zeros(0, bool)
    nothing = np.float64("nan")
    return UsageBatch(
        series.keys,
        [labels.get((columns or {}).get("workload", "workload"), "") for labels in series.labels],
        series.series,
        series.time,
        np.where(rows, nothing, series.value) if not rows.all() else None,
        np.where(rows, series.value, nothing) if rows.any() else None,
    )
