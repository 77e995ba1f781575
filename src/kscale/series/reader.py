"""Series from a file, by its name. kscale's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kscale.series.columns import Series
from kscale.series.csv_reader import read_csv
from kscale.series.files import content_of, form_of
from kscale.series.parquet_reader import read_parquet
from kscale.series.prometheus_reader import read_prometheus

__all__ = ["read"]

_TABLES: Final[Mapping[str, Callable[..., Series]]] = {".csv": read_csv, ".parquet": read_parquet}
"""The readers of tables with a row a value, which take the same arguments."""
_ANSWER: Final = ".json"


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
    form = form_of(path, (*_TABLES, _ANSWER), "a series")
    data, source = content_of(path), str(path)
    if form == _ANSWER:
        return read_prometheus(data, columns=columns, source=source)
    return _TABLES[form](
        data, value=value, time=time, columns=columns, labels=labels, unit=unit, events=events, source=source
    )
