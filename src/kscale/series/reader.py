"""Series from a file, by its name."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kscale.errors import InputError, Problem
from kscale.series.columns import Series
from kscale.series.csv_reader import read_csv
from kscale.series.parquet_reader import read_parquet
from kscale.series.prometheus_reader import read_prometheus

__all__ = ["read"]


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
    """A file by its suffix: ``.csv``, ``.parquet``, ``.json`` (a Prometheus range answer), each with ``.gz`` too.

    Arguments as of :func:`~kscale.series.read_csv`. Raises ``InputError`` when the file cannot be read.
    """
    path = Path(path)
    source = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source)) from None
    name = path.name.lower()
    if name.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(Problem(f"not gzip: {error}", source)) from None
        name = name.removesuffix(".gz")
    if name.endswith(".csv"):
        return read_csv(
            data, value=value, time=time, columns=columns, labels=labels, unit=unit, events=events, source=source
        )
    if name.endswith(".parquet"):
        return read_parquet(
            data, value=value, time=time, columns=columns, labels=labels, unit=unit, events=events, source=source
        )
    if name.endswith(".json"):
        return read_prometheus(data, columns=columns, source=source)
    raise InputError(Problem("a series is read from .csv, .parquet or .json (a Prometheus range answer)", source))
