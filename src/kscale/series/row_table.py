"""Tables with a row a value, whatever they are read from, as series: one order of questions, one shape of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, Series
from kscale.series.encode import encode_keys, parse_time, time_unit

__all__ = ["CellError", "RowTable", "Wanted", "check_columns", "parsed_numbers", "parsed_times", "series_of"]


class CellError(ValueError):
    """What is wrong with a column, or with its value in a ``row`` (from 1)."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class RowTable(Protocol):
    """A table that was read: columns by name. Each column may raise :class:`CellError`."""

    @property
    def names(self) -> Sequence[str]:
        """Of the columns, in their order."""

    @property
    def rows(self) -> int: ...

    def times(self, name: str, unit: int) -> NDArray[np.int64]:
        """Nanoseconds since 1970; a number counts in ``unit`` nanoseconds."""

    def numbers(self, name: str) -> NDArray[np.float64]: ...

    def texts(self, name: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of a table: the arguments of :func:`~kscale.series.read_csv`."""

    value: str
    time: str
    columns: Mapping[str, str] | None
    labels: Sequence[str]
    unit: str
    events: bool

    @property
    def keys(self) -> list[str]:
        """The columns that name a series, which may be missing."""
        return [(self.columns or {}).get(name, name) for name in KEY_COLUMNS]

    @property
    def needed(self) -> list[str]:
        """The columns that must be there; events without a value are counted."""
        return [self.time, *([] if self.is_counted else [self.value]), *self.labels]

    @property
    def is_counted(self) -> bool:
        return self.events and not self.value


def series_of(table: RowTable, wanted: Wanted, source: str) -> Series:
    """The rows as series. Raises ``InputError`` with row and column."""
    check_columns(table.names, wanted, source)
    unit = time_unit(wanted.unit)
    column = wanted.time
    try:
        times = table.times(column, unit)
        column = wanted.value
        values = np.ones(table.rows) if wanted.is_counted else table.numbers(column)
        texts: dict[str, list[str]] = {}
        for column in (*wanted.keys, *wanted.labels):
            if column in table.names and column not in texts:
                texts[column] = table.texts(column)
    except CellError as error:
        place = "" if error.row is None else f"row {error.row}"
        raise InputError(Problem(str(error), source, place, column)) from None
    parts, kept = ([texts.get(name, []) for name in names] for names in (wanted.keys, wanted.labels))
    keys, numbers, tags = encode_keys(parts, kept, wanted.labels, table.rows, source)
    return Series.of(keys, numbers, times, values, labels=tags, source=source, ordered=not wanted.events)


def parsed_times(texts: Sequence[str], unit: int) -> NDArray[np.int64]:
    """A column of times that are texts. Raises :class:`CellError` with the row."""
    found = np.empty(len(texts), np.int64)
    for i, text in enumerate(texts):
        try:
            found[i] = parse_time(text.strip(), unit)
        except (ValueError, OverflowError) as error:
            raise CellError(str(error), i + 1) from None
    return found


def parsed_numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    """A column of numbers that are texts. Raises :class:`CellError` with the row."""
    found = np.empty(len(texts), np.float64)
    for i, text in enumerate(texts):
        try:
            found[i] = float(text)
        except ValueError:
            raise CellError(f'"{text}" is not a number', i + 1) from None
    return found


def check_columns(names: Sequence[str], wanted: Wanted, source: str) -> None:
    """Raises ``InputError`` for columns that are not there."""
    missing = [name for name in wanted.needed if name not in names]
    if missing:
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {', '.join(names)})", source))
