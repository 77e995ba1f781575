"""Usage over time: one row a value, the series it belongs to as a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem

__all__ = ["KEY_COLUMNS", "Series", "SeriesKey"]

KEY_COLUMNS = ("namespace", "pod", "container")


class SeriesKey(NamedTuple):
    """What a series is of: the ``namespace``, a ``pod``, a ``container`` of it; a part that the source does not tell is
    empty."""

    namespace: str = ""
    pod: str = ""
    container: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part) or "the series"


@dataclass(frozen=True, slots=True)
class Series:
    """``series`` int32[n] into ``keys`` (and ``labels``), ``time`` int64[n] ns since 1970, ``value`` float64[n].

    Rows keep the order of their source; within a series times ascend strictly, and no value is NaN or infinite: see
    :meth:`of`, which checks it. ``warnings``: what the source says of them, as that they are a part of the whole.
    """

    keys: tuple[SeriesKey, ...]
    series: NDArray[np.int32]
    time: NDArray[np.int64]
    value: NDArray[np.float64]
    labels: tuple[Mapping[str, str], ...] = field(default=())
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        keys: Sequence[SeriesKey],
        series: NDArray[np.int32],
        time: NDArray[np.int64],
        value: NDArray[np.float64],
        *,
        labels: Sequence[Mapping[str, str]] = (),
        source: str = "",
        first_row: int = 1,
        ordered: bool = True,
        finite: bool = True,
    ) -> Series:
        """Columns whose lengths, values (if ``finite``) and order (if ``ordered``) are checked.

        Raises ``InputError`` that names row and series; ``first_row`` is what the first one is called.
        """
        if not len(series) == len(time) == len(value):
            raise ValueError("series, time and value must be of one length")
        bad = np.flatnonzero(~np.isfinite(value))
        if finite and len(bad):
            row = int(bad[0])
            raise InputError(
                Problem(
                    f"{value[row]} is not a number", source, f"row {row + first_row} ({keys[series[row]]})", "value"
                )
            )
        if not ordered:
            return cls(tuple(keys), series, time, value, tuple(labels) or tuple({} for _ in keys))
        order = np.argsort(series, kind="stable")
        sorted_series, sorted_time = series[order], time[order]
        back = np.flatnonzero((sorted_series[1:] == sorted_series[:-1]) & (sorted_time[1:] <= sorted_time[:-1]))
        if len(back):
            row = int(order[back + 1].min())
            raise InputError(
                Problem(
                    "times must ascend within a series",
                    source,
                    f"row {row + first_row} ({keys[series[row]]})",
                    "time",
                )
            )
        return cls(tuple(keys), series, time, value, tuple(labels) or tuple({} for _ in keys))

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[tuple[SeriesKey, NDArray[np.int64], NDArray[np.float64]]]:
        """(key, times, values) of every series, in the order of their first rows."""
        order = np.argsort(self.series, kind="stable")
        bounds = np.searchsorted(self.series[order], np.arange(len(self.keys) + 1))
        for i, key in enumerate(self.keys):
            rows = order[bounds[i] : bounds[i + 1]]
            yield key, self.time[rows], self.value[rows]

    def total(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The values of all series added up by time."""
        times, positions = np.unique(self.time, return_inverse=True)
        return times, np.bincount(positions, weights=self.value, minlength=len(times)).astype(np.float64)
