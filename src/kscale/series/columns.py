"""Usage over time as columns, encoding of series keys, and binning of events. Not in upstream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale._native import _usage_text
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed
from kscale.objects.times import nanoseconds

__all__ = [
    "KEY_COLUMNS",
    "TIME_UNITS",
    "TOO_FAR",
    "FarTimeError",
    "Series",
    "SeriesKey",
    "bin_events",
    "encode_keys",
    "parse_time",
    "scaled_times",
    "time_unit",
]


KEY_COLUMNS = ("namespace", "pod", "container")


class SeriesKey(NamedTuple):
    """Key of a series: ``namespace``, ``pod`` and ``container``, empty where the source does not name them."""

    namespace: str = ""
    pod: str = ""
    container: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part) or "the series"


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of several time series as columns.

    ``series`` int32[n] indexes ``keys`` (and ``labels``), ``time`` int64[n] is in nanoseconds since 1970, ``value`` is
    float64[n]. Rows keep the order of their source. Within a series times ascend strictly, and no value is NaN or
    infinite; :meth:`of` checks this. ``warnings``: warnings of the source, such as that the data is incomplete.
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
        """Build series from columns after checking lengths, values (if ``finite``) and order (if ``ordered``).

        Parameters
        ----------
        keys : sequence of SeriesKey
            Key of each series.
        series : int32[n]
            Series of each row, as an index into ``keys``.
        time : int64[n]
            Nanoseconds since 1970.
        value : float64[n]
            Value of each row.
        labels : sequence of mapping, optional
            Labels of each series. Default: none.
        source : str, optional
            Name of the source for error messages.
        first_row : int, default 1
            Number of the first row in error messages.
        ordered : bool, default True
            Require strictly ascending times within a series.
        finite : bool, default True
            Reject NaN and infinite values.

        Returns
        -------
        Series
            The columns, not copied.

        Raises
        ------
        InputError
            For an invalid value or order; the message names row and series.
        ValueError
            If the columns differ in length.
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
        """Yield (key, times, values) of every series, in the order of ``keys``."""
        order = np.argsort(self.series, kind="stable")
        bounds = np.searchsorted(self.series[order], np.arange(len(self.keys) + 1))
        for i, key in enumerate(self.keys):
            rows = order[bounds[i] : bounds[i + 1]]
            yield key, self.time[rows], self.value[rows]

    def total(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return (times, sums): each distinct time, ascending, and the sum of the values of all series at it."""
        times, positions = np.unique(self.time, return_inverse=True)
        return times, np.bincount(positions, weights=self.value, minlength=len(times)).astype(np.float64)


TIME_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
TOO_FAR: Final = "{} is too far from 1970: is the unit right?"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FarTimeError(ValueError):
    """A number is a time outside the range of int64 nanoseconds since 1970."""


def time_unit(unit: str) -> int:
    """Return how many nanoseconds ``s``, ``ms``, ``us`` or ``ns`` has. Raises InputError for any other unit."""
    try:
        return TIME_UNITS[unit]
    except KeyError:
        raise InputError(f'"{unit}" is not a unit of time; one of {", ".join(TIME_UNITS)}') from None


def scaled_times(numbers: NDArray[np.int64], unit: int, limit: int) -> NDArray[np.int64]:
    """Convert integers of ``unit`` nanoseconds to nanoseconds.

    Raises ``FarTimeError`` if the absolute value of a time is ``limit`` nanoseconds or more.
    """
    nanoseconds_of_rows = np.empty(len(numbers), np.int64)
    far = _usage_text.scaled(np.ascontiguousarray(numbers), unit, limit, nanoseconds_of_rows)
    if far is not None:
        raise FarTimeError(TOO_FAR.format(far))
    return nanoseconds_of_rows


def parse_time(text: str, unit: int) -> int:
    """Parse a number of ``unit`` nanoseconds, an RFC 3339 time, or another ISO 8601 time (without zone: UTC).

    Returns nanoseconds since 1970; fractions of a nanosecond are cut off. Raises ValueError for any other text, and
    FarTimeError if a number does not fit 64 bits.
    """
    try:
        number = Decimal(text if text.isascii() and "_" not in text else "")  # which Python takes, and nobody else
    except InvalidOperation:
        pass
    else:
        if not number.is_finite():
            raise ValueError(f'"{text}" is not a time')
        # Decimal arithmetic overflows, too, so numbers with more digits than 2**63 are not computed.
        if number and (number.adjusted() >= 19 or abs(number) * unit >= 2**63):
            raise FarTimeError(f'"{text}" is not a time: nanoseconds since 1970 must fit 64 bits')
        return int(number * unit)
    try:
        return nanoseconds(text)
    except ValueError:
        pass
    try:
        head, _, fraction = text.partition(".")
        moment = datetime.fromisoformat(head)
        if fraction and not (fraction.isascii() and fraction.isdigit()):
            raise ValueError("not a fraction")
        digits = int(fraction[:9].ljust(9, "0")) if fraction else 0
    except ValueError:
        raise ValueError(f'"{text}" is not a time') from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + digits


def encode_keys(
    columns: Sequence[Sequence[str]], labels: Sequence[Sequence[str]], names: Sequence[str], rows: int, source: str
) -> tuple[list[SeriesKey], NDArray[np.int32], list[dict[str, str]]]:
    """Return (keys of the series in a table, number of each row's series, labels of each key).

    ``columns``: the columns of namespace, pod and container, each empty if absent. ``labels``: the columns of the
    labels ``names``. ``rows``: number of rows. Raises InputError if labels differ between rows of the same key; the
    message has ``source``.
    """
    keys: dict[SeriesKey, int] = {}
    tags: list[tuple[str, ...]] = []
    numbers = np.empty(rows, np.int32)
    blank = ("",) * rows
    filled = [column or blank for column in columns]
    marks = zip(*labels, strict=True) if labels else iter([()] * rows)
    for row, (parts, tag) in enumerate(zip(zip(*filled, strict=True), marks, strict=True)):
        key = SeriesKey(*parts)
        number = keys.setdefault(key, len(keys))
        if number == len(tags):
            tags.append(tag)
        elif tags[number] != tag:
            raise InputError(
                Problem(
                    f"labels change from {tags[number]} to {tag}", source, f"row {row + 1} ({key})", ", ".join(names)
                )
            )
        numbers[row] = number
    return list(keys), numbers, [dict(zip(names, tag, strict=True)) for tag in tags]


_MOST_BINS: Final = 10_000_000


@typed
def bin_events(
    time: NDArray[np.int64], width: int, value: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Count events in time bins.

    Parameters
    ----------
    time : int64[n]
        Time of each event in nanoseconds, in any order.
    width : int
        Width of a bin in nanoseconds.
    value : float64[n], optional
        Weight of each event. Default: 1.

    Returns
    -------
    tuple of int64[bins], float64[bins]
        Begin of each bin, and events (or ``value``) per second in it. The first bin begins with the first event; no
        bin is left out.

    Raises
    ------
    InputError
        Without events, for a width below 1, for more than 10 million bins, and if ``value`` has another length than
        ``time``.
    """
    if width <= 0:
        raise InputError("the width of a bin must be greater than zero")
    if not len(time):
        raise InputError("no events")
    if value is not None and len(value) != len(time):
        raise InputError(f"value has {len(value):,} elements, time has {len(time):,}")
    first = int(time.min())
    bins = (int(time.max()) - first) // width + 1
    if bins > _MOST_BINS:
        raise InputError(f"{bins:,} bins of {width / 1e9:g} s: at most {_MOST_BINS:,}; bins must be wider")
    # A difference of two times may need 64 bits without a sign.
    position = ((time - first).view(np.uint64) // np.uint64(width)).astype(np.int64)
    total = np.bincount(position, weights=value).astype(np.float64)
    return first + np.arange(len(total), dtype=np.int64) * width, total / (width / 1e9)
