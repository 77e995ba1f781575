"""Recorded usage of containers: names of columns, series of containers, and CSV files without Arrow."""

from __future__ import annotations

import csv
import gzip
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _usage_text
from kscale.errors import InputError, Problem
from kscale.series.columns import KEY_COLUMNS, SeriesKey, time_unit

__all__ = [
    "CPU",
    "MEMORY",
    "CsvFile",
    "Names",
    "Numbered",
    "ReaderSeries",
    "SeriesTable",
    "Slice",
    "check_columns",
    "check_quotes",
    "column_names",
]


CPU: Final = "cpu_cores"
MEMORY: Final = "memory_bytes"


def column_names(renamed: Mapping[str, str] | None) -> dict[str, str]:
    """Return the file's column name of each usage field (``time``, ``pod``, ``cpu_cores``, ...), by field.

    ``renamed`` replaces default names, which are the names of the fields.
    """
    return {key: (renamed or {}).get(key, key) for key in ("time", *KEY_COLUMNS, CPU, MEMORY, "workload")}


def check_columns(header: Iterable[str], names: Mapping[str, str], source: str) -> list[str]:
    """Return the columns of a file that are read. Raises ``InputError`` for missing or duplicate ones.

    ``header``: columns of the file. ``names``: column of each field. ``source``: name of the file in messages.
    """
    have = list(header)
    missing = [names[key] for key in ("time", *KEY_COLUMNS) if names[key] not in have]
    if missing:
        shown = ", ".join(have)
        raise InputError(Problem(f"no column {', '.join(map(repr, missing))} (columns: {shown})", source))
    if names[CPU] not in have and names[MEMORY] not in have:
        raise InputError(Problem(f"neither a column {names['cpu_cores']!r} nor {names['memory_bytes']!r}", source))
    twice = sorted({name for name in names.values() if have.count(name) > 1})
    if twice:
        raise InputError(Problem(f"the column {twice[0]!r} comes twice", source))
    return [name for name in names.values() if name in have]


Names = tuple[str, str, str, str]
"""Namespace, pod, container, workload."""


@dataclass(slots=True)
class ReaderSeries:
    """Numbers of one reader's series in the table. Changed only by the thread that takes the reader's rows in order."""

    numbers: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(frozen=True, slots=True)
class Numbered:
    """Series of rows, numbered by the reader.

    ``fresh``: names of series that are new to the reader, in the order of their first rows.
    """

    series: NDArray[np.int32]
    fresh: Sequence[Names]
    reader: ReaderSeries


@dataclass(slots=True)
class SeriesTable:
    """Table of series that only grows: ``keys`` and ``workloads`` by number, in the order of first appearance."""

    keys: list[SeriesKey] = field(default_factory=list)
    workloads: list[str] = field(default_factory=list)
    _numbers: dict[Names, int] = field(default_factory=dict)

    def number(self, names: Names) -> int:
        """Return the index of the series (namespace, pod, container, workload). A new series is added first."""
        index = self._numbers.setdefault(names, len(self.keys))
        if index == len(self.keys):
            self.keys.append(SeriesKey(*names[:3]))
            self.workloads.append(names[3])
        return index

    def take(self, rows: Numbered) -> NDArray[np.int32]:
        """Return the index in this table of each row's series.

        Adds the series in ``rows.fresh`` to this table, and appends their indices to ``rows.reader.numbers``. Rows of a
        reader must be passed once and in their order.
        """
        reader = rows.reader
        if len(rows.fresh):
            fresh = np.array([self.number(names) for names in rows.fresh], np.int32)
            reader.numbers = np.concatenate([reader.numbers, fresh])
        return reader.numbers[rows.series]


_SLICE: Final = 8 << 20
"""Bytes per slice."""
_NAMES: Final = (*KEY_COLUMNS, "workload")


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of a file: their series with ``columns`` (time, cpu, memory), or the text if they need the full parser."""

    series: Numbered | None = None
    columns: tuple[Any, ...] = ()
    text: bytes = b""


@dataclass(slots=True)
class CsvFile:
    """CSV file with a header. ``names`` maps fields to its columns."""

    path: Path
    names: Mapping[str, str]
    unit: str
    header: list[str] = field(default_factory=list)
    required_columns: list[str] = field(default_factory=list)
    _roles: list[int] = field(default_factory=list)
    _own: threading.local = field(default_factory=threading.local)
    """Each thread's buffer and table of series."""

    def parts(self) -> Iterator[Callable[[], Slice]]:
        """Yield functions that parse consecutive slices of the file when they are called; each may run in any thread.

        Stores the header's columns first. Raises InputError if the file cannot be read or its header is unusable. The
        functions raise InputError if the file cannot be read.
        """
        try:
            if self.path.suffix.lower() == ".gz":
                yield from self._read_compressed()
            else:
                with self.path.open("rb", buffering=0) as file:
                    yield from self._slices(file)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(Problem(f"not readable as CSV: {error}", str(self.path))) from None

    def _slices(self, file: BinaryIO) -> Iterator[Callable[[], Slice]]:
        """Yield functions that read and parse consecutive slices of an open, uncompressed file.

        Raises InputError for an unusable header.
        """
        start = self._header(file)
        size = file.seek(0, os.SEEK_END)
        for at in range(start, size, _SLICE):
            # A line belongs to the slice in which it begins; the first slice begins with a line.
            yield partial(self._read, at, min(at + _SLICE, size), at > start)

    def _read_compressed(self) -> Iterator[Callable[[], Slice]]:
        """Yield functions that parse consecutive slices of a gzip file. The generator itself decompresses them.

        Raises InputError for an unusable header, and OSError, EOFError or zlib.error if the file cannot be read.
        """
        with gzip.open(self.path, "rb") as file:
            start = self._header(file)
            file.seek(start)
            incomplete = b""
            while data := file.read(_SLICE):
                data = incomplete + data
                end = data.rfind(b"\n") + 1
                if end:
                    yield partial(self._read_plain, memoryview(data)[:end])
                incomplete = data[end:]
            if incomplete:
                yield partial(self._read_plain, memoryview(incomplete))

    def _header(self, file: Any) -> int:
        """Read the header, store the names and roles of its columns, and return the offset of the first row in bytes.

        Raises InputError if there is no readable header or a column is missing or duplicate.
        """
        line = b""
        while b"\n" not in line and (data := file.read(1 << 16)):
            line += data
        line, end, _ = line.partition(b"\n")
        if not line.strip():
            raise InputError(Problem("no header", str(self.path)))
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(Problem(f"not UTF-8: {error}", str(self.path))) from None
        try:
            self.header = [name.strip() for name in next(csv.reader([text]), [])]
        except csv.Error as error:
            raise InputError(Problem(f"a header that is not CSV: {error}", str(self.path))) from None
        self.required_columns = check_columns(self.header, self.names, str(self.path))
        self._roles = _roles(self.header, self.names)
        return len(line) + len(end)

    def _read(self, at: int, end: int, is_inside: bool) -> Slice:
        """Read and parse the lines that begin at the byte offsets [at, end).

        Raises InputError if the file cannot be read. ``is_inside``: ``at`` may be inside a line, which belongs to the
        slice before.
        """
        try:
            with self.path.open("rb", buffering=0) as file:
                return self._lines(file, at, end, is_inside)
        except OSError as error:
            raise InputError(Problem(f"not readable as CSV: {error}", str(self.path))) from None

    def _lines(self, file: BinaryIO, at: int, end: int, is_inside: bool) -> Slice:
        """Read and parse the lines that begin at the byte offsets [at, end), including the end of the last one.

        ``is_inside``: ``at`` may be inside a line, which belongs to the slice before. The slice is empty if no line
        begins in it.
        """
        begin = at - 1 if is_inside else at
        buffer: bytearray = getattr(self._own, "buffer", None) or bytearray(_SLICE + (1 << 16))
        file.seek(begin)
        filled = _fill(file, buffer, 0, end - begin)
        while filled and buffer[filled - 1] != 10:  # read to the end of the last line
            if len(buffer) - filled < 1 << 12:
                buffer.extend(bytes(len(buffer)))
            count = _fill(file, buffer, filled, 1 << 12)
            newline = buffer.find(b"\n", filled, filled + count)
            filled = newline + 1 if newline >= 0 else filled + count
            if not count:
                break
        self._own.buffer = buffer
        first = buffer.find(b"\n", 0, filled) + 1 if is_inside else 0
        if is_inside and (first == 0 or begin + first > end):
            return Slice()  # the slice is inside one long line
        with memoryview(buffer) as view, view[first:filled] as text:
            return self._read_plain(text)

    def _read_plain(self, text: memoryview) -> Slice:
        """Parse complete lines with the native parser.

        If it cannot parse all of them, they are returned as ``Slice.text``.
        """
        if not text:
            return Slice()
        if not self._roles:
            return Slice(text=bytes(text))
        if not hasattr(self._own, "rows"):
            self._own.rows = _usage_text.CsvRows(self._roles, time_unit(self.unit))
            self._own.series = ReaderSeries()
        try:
            columns = self._own.rows.read(text)
        except UnicodeDecodeError:
            columns = None  # Arrow reports the position
        if columns is None:
            return Slice(text=bytes(text))
        time, cpu, memory, series, fresh = columns
        return Slice(Numbered(series, fresh, self._own.series), (time, cpu, memory))


def check_quotes(text: bytes, path: Path) -> None:
    """Check that no quoted field spans lines or is left open. Raises ``InputError`` with the line.

    Only if a line of ``text`` has an odd number of quotes, the file ``path`` is read to find the number of that line.
    Slices of a file are read concurrently, so the begin of a line must be certain wherever a slice begins.
    """
    if not any(line.count(b'"') % 2 for line in text.split(b"\n")):
        return
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.count(b'"') % 2:
                    raise InputError(Problem("quotes that the line does not close", str(path), f"line {number}"))
    except (OSError, EOFError, zlib.error) as error:  # the file was readable before
        raise InputError(Problem(f"not readable as CSV: {error}", str(path))) from None


def _fill(file: Any, buffer: bytearray, at: int, size: int) -> int:
    """Read up to ``size`` bytes into ``buffer[at:]``. Return how many were read: fewer only at the end of the file."""
    filled = 0
    with memoryview(buffer) as view:
        while filled < size:
            with view[at + filled : at + size] as free:
                count = file.readinto(free)
            if not count:
                break
            filled += count
    return filled


def _roles(header: Sequence[str], names: Mapping[str, str]) -> list[int]:
    """Return the native parser's role of each column (time, CPU, memory, a name, skipped).

    The list is empty if one column has two roles.
    """
    roles = {names["time"]: _usage_text.TIME, names[CPU]: _usage_text.CPU, names[MEMORY]: _usage_text.MEMORY}
    roles |= {names[name]: _usage_text.NAME + i for i, name in enumerate(_NAMES)}
    if len(roles) < 3 + len(_NAMES):
        return []
    return [roles.get(name, _usage_text.SKIPPED) for name in header]
