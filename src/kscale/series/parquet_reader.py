"""Series from Parquet (extra ``[data]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, MissingExtraError, Problem
from kscale.series.columns import KEY_COLUMNS, Series
from kscale.series.encode import encode_keys, parse_time, time_unit

__all__ = ["read_parquet"]


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
    """Rows of a Parquet file; arguments as of :func:`~kscale.series.read_csv`. A time may be a timestamp too (UTC)."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("reading Parquet", "data") from None
    counted = events and not value
    names = [(columns or {}).get(name, name) for name in KEY_COLUMNS]
    try:
        present = set(pq.read_schema(pa.BufferReader(data)).names)
        missing = [name for name in (time, *([] if counted else [value]), *labels) if name not in present]
        if missing:
            found = ", ".join(sorted(present))
            raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {found})", source))
        wanted = [time, *([] if counted else [value]), *labels, *(name for name in names if name in present)]
        table = pq.read_table(pa.BufferReader(data), columns=list(dict.fromkeys(wanted)))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # OSError: damaged pages
        raise InputError(Problem(f"not a Parquet file: {error}", source)) from None
    for name in table.column_names:
        if table.column(name).null_count:
            raise InputError(Problem("holds a null", source, field=name))
    try:
        values = np.ones(table.num_rows) if counted else table.column(value).cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        raise InputError(Problem(f"not numbers: {error}", source, field=value)) from None
    times = _times(pa, table.column(time), unit, source, time)
    parts = [_texts(pa, table, name, source) if name in present else [] for name in names]
    kept = [_texts(pa, table, name, source) for name in labels]
    keys, numbers, tags = encode_keys(parts, kept, labels, table.num_rows, source)
    return Series.of(keys, numbers, times, values, labels=tags, source=source, ordered=not events)


def _texts(pa: Any, table: Any, name: str, source: str) -> list[str]:
    try:
        texts: list[str] = table.column(name).cast(pa.string()).to_pylist()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(Problem(f"not texts: {error}", source, field=name)) from None
    return texts


def _times(pa: Any, column: Any, unit: str, source: str, name: str) -> NDArray[np.int64]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        whole: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        return whole * time_unit(kind.unit)
    if pa.types.is_integer(kind):
        numbers: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        return numbers * time_unit(unit)
    try:
        return np.array([parse_time(str(each), time_unit(unit)) for each in column.to_pylist()], np.int64)
    except (ValueError, OverflowError) as error:
        raise InputError(Problem(str(error), source, field=name)) from None
