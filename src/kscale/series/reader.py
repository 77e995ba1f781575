"""Reading of series from a file whose name selects the format. Not in upstream."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.argument_types import typed
from kscale.series.columns import Series
from kscale.series.prometheus import read_prometheus
from kscale.series.table_readers import read_csv, read_parquet

__all__ = ["content_of", "form_of", "read"]


def form_of(path: Path, forms: Collection[str], what: str) -> str:
    """Return which of ``forms`` (suffixes) a file name has, with or without ``.gz``.

    Raises ``InputError`` for any other; ``what`` describes the content in the message.
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
    """Return the content of a file, decompressed. Raises ``InputError`` if it cannot be read."""
    try:
        data = read_file(path)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), str(path))) from None
    if path.suffix.lower() != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(Problem(f"not gzip: {error}", str(path))) from None


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
    """
    path = Path(path)
    form = form_of(path, (*_TABLES, _ANSWER), "a series")
    data, source = content_of(path), str(path)
    if form == _ANSWER:
        return read_prometheus(data, columns=columns, source=source)
    return _TABLES[form](
        data, value=value, time=time, columns=columns, labels=labels, unit=unit, events=events, source=source
    )
