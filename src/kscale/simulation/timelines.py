"""How a run went, row by row: columns that can be written as Parquet."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale.effects import Moment, moment
from kscale.files import replacing
from kscale.libraries import library

__all__ = ["Timeline"]

_CORES = "_cores"
Column = NDArray[np.int64] | NDArray[np.float64] | list[str]


def _column(name: str, values: list[Any]) -> Column:
    if values and isinstance(values[0], str):
        return values
    return np.array(values, np.float64) if name.endswith(_CORES) else np.array(values, np.int64)


class Timeline:
    """Rows as they come, by named columns: counts (int64), amounts of cores (float64) or texts.

    Times are nanoseconds since 1970. Columns whose name ends with ``_cores`` are in cores.
    """

    def __init__(self, *names: str) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in ("time", *names)}

    def __len__(self) -> int:
        return len(self._rows["time"])

    def add(self, time: datetime | Moment, *values: Any) -> None:
        """Another row: its ``time``, and ``values`` in the order of the columns."""
        for column, value in zip(self._rows.values(), (moment(time, "time"), *values), strict=True):
            column.append(value)

    def columns(self) -> dict[str, Column]:
        """All of it."""
        return {name: _column(name, values) for name, values in self._rows.items()}

    def write(self, path: Path) -> None:
        """As a Parquet file; times are timestamps in UTC. Raises :class:`~kscale.errors.MissingExtraError` without the
        extra ``[data]``."""
        pa, pq = library("pyarrow", "Parquet"), library("pyarrow.parquet", "Parquet")
        columns = {name: pa.array(values) for name, values in self.columns().items()}
        columns["time"] = columns["time"].cast(pa.timestamp("ns", tz="UTC"))
        with replacing(path) as file:
            pq.write_table(pa.table(columns), file)
