"""Rows of key columns to series numbers, and time columns to nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _usage_text
from kscale.errors import InputError, Problem
from kscale.objects.times import nanoseconds
from kscale.series.columns import SeriesKey

__all__ = ["TIME_UNITS", "TOO_FAR", "FarTimeError", "encode_keys", "parse_time", "scaled_times", "time_unit"]

TIME_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
TOO_FAR: Final = "{} is too far from 1970: is the unit right?"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FarTimeError(ValueError):
    """A number that is a time further from 1970 than nanoseconds reach."""


def time_unit(unit: str) -> int:
    """Nanoseconds of a unit: s, ms, us or ns."""
    try:
        return TIME_UNITS[unit]
    except KeyError:
        raise InputError(f'"{unit}" is not a unit of time; one of {", ".join(TIME_UNITS)}') from None


def scaled_times(numbers: NDArray[np.int64], unit: int, most: int) -> NDArray[np.int64]:
    """Nanoseconds of whole numbers of ``unit`` nanoseconds. Raises ``FarTimeError`` for ``most`` or more."""
    found = np.empty(len(numbers), np.int64)
    far = _usage_text.scaled(np.ascontiguousarray(numbers), unit, most, found)
    if far is not None:
        raise FarTimeError(TOO_FAR.format(far))
    return found


def parse_time(text: str, unit: int) -> int:
    """Nanoseconds of a number (in ``unit`` nanoseconds), an RFC 3339 time, or one without zone, taken as UTC.

    Raises ``ValueError``.
    """
    try:
        number = Decimal(text if text.isascii() and "_" not in text else "")  # which Python takes, and nobody else
    except InvalidOperation:
        pass
    else:
        if not number.is_finite():
            raise ValueError(f'"{text}" is not a time')
        # Arithmetic of decimals overflows, too: of what has more digits than 2**63, nothing is worked out.
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
        digits = int(fraction[:9].ljust(9, "0")) if fraction else 0
    except ValueError:
        raise ValueError(f'"{text}" is not a time') from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + digits


def encode_keys(
    columns: Sequence[Sequence[str]], labels: Sequence[Sequence[str]], names: Sequence[str], rows: int, source: str
) -> tuple[list[SeriesKey], NDArray[np.int32], list[dict[str, str]]]:
    """(keys, series number of every row, labels by key); labels must be the same in all rows of a key."""
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
