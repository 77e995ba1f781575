"""The series of a file of usage: numbered once, however often and by however many threads its rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kscale.series.columns import SeriesKey

__all__ = ["Names", "Numbered", "ReaderSeries", "SeriesTable"]

Names = tuple[str, str, str, str]
"""Namespace, pod, container, workload."""


@dataclass(slots=True)
class ReaderSeries:
    """What one reader's numbers are in the table. Only the taker of its rows, which come in order, changes it."""

    numbers: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(frozen=True, slots=True)
class Numbered:
    """Rows' series by the numbers of the reader that found them; ``fresh``: the names of those it had not met before,
    in the order of their first rows."""

    series: NDArray[np.int32]
    fresh: Sequence[Names]
    reader: ReaderSeries


@dataclass(slots=True)
class SeriesTable:
    """``keys`` and ``workloads`` by number, in the order of first appearance. They grow, and nothing else changes."""

    keys: list[SeriesKey] = field(default_factory=list)
    workloads: list[str] = field(default_factory=list)
    _numbers: dict[Names, int] = field(default_factory=dict)

    def number(self, names: Names) -> int:
        """The number of one series."""
        found = self._numbers.setdefault(names, len(self.keys))
        if found == len(self.keys):
            self.keys.append(SeriesKey(*names[:3]))
            self.workloads.append(names[3])
        return found

    def take(self, rows: Numbered) -> NDArray[np.int32]:
        """The series of rows by the table's numbers."""
        reader = rows.reader
        if len(rows.fresh):
            fresh = np.array([self.number(names) for names in rows.fresh], np.int32)
            reader.numbers = np.concatenate([reader.numbers, fresh])
        return reader.numbers[rows.series]
