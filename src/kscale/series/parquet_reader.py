"""Series from Parquet (extra ``[data]``). kscale's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.libraries import library
from kscale.series.columns import Series
from kscale.series.encode import FarTimeError, scaled_times, time_unit
from kscale.series.row_table import CellError, Wanted, check_columns, parsed_numbers, parsed_times, series_of

__all__ = ["read_parquet"]

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
    return series_of(_table(data, wanted, source), wanted, source)


@dataclass(frozen=True, slots=True)
class _Table:
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


def _table(data: bytes, wanted: Wanted, source: str) -> _Table:
    """The columns that are wanted, of those that are there."""
    pa, pq = library("pyarrow", "reading Parquet"), library("pyarrow.parquet", "reading Parquet")
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            present = file.schema_arrow.names
            check_columns(present, wanted, source)
            _check_rows(file.metadata, source)
        names = [name for name in (*wanted.needed, *wanted.keys) if name in present]
        return _Table(pa, pq.read_table(pa.BufferReader(data), columns=list(dict.fromkeys(names))))
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
