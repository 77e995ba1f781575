"""RFC 3339 times and Go durations as integer nanoseconds. Not in upstream."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Protocol

from kscale.errors import ArgumentError, InputError, Problem, show_value
from kscale.imports import lazy_pattern

__all__ = [
    "created_at",
    "duration",
    "format_duration",
    "format_time",
    "micro_time",
    "moment",
    "moment_in",
    "nanoseconds",
    "parse_duration",
    "seconds",
    "to_datetime",
    "virtual_moment",
]


_RFC3339 = lazy_pattern(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_SECOND: Final = 10**9

ZERO_TIME: Final = -(2**63)
"""Go's zero time (the year 1, which int64 nanoseconds do not reach): what an absent timestamp is."""

_LAST: Final = 2**63 - 1
_FIRST: Final = 10**17
"""1973 in nanoseconds. Times in seconds, milliseconds or microseconds since 1970 are smaller for 3,000 years."""
_UNITS: Final = {"seconds": _SECOND, "milliseconds": 10**6, "microseconds": 10**3}
_YEARS: Final = range(2000, 2101)
_MICROSECOND: Final = timedelta(microseconds=1)


@lru_cache(maxsize=1 << 14)
def nanoseconds(text: str) -> int:
    """Parse an RFC 3339 time into nanoseconds since 1970 (UTC); finer fractions are truncated.

    Raises ValueError for any other text.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is not an RFC 3339 time')
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hours, offset_minutes = match.groups()[6:]
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f'"{text}" is not an RFC 3339 time: {error}') from None
    seconds_since_epoch = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _RESOLUTION
    if sign:
        offset = int(offset_hours) * 3600 + int(offset_minutes) * 60
        seconds_since_epoch -= -offset if sign == "-" else offset
    return seconds_since_epoch * _SECOND + int((fraction or "0")[:9].ljust(9, "0"))


def moment_of(text: str | None) -> int:
    """Parse an RFC 3339 time into nanoseconds since 1970 (UTC), clamped to int64.

    Returns :data:`ZERO_TIME` for None, an empty text and times before 1678. Raises ValueError for any other text.
    """
    return min(max(nanoseconds(text), ZERO_TIME), _LAST) if text else ZERO_TIME


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


class _Created(_Keyed, Protocol):
    @property
    def metadata(self) -> Any: ...


def moment_in(obj: _Keyed, text: str | None, field: str) -> int:
    """Convert the time in a ``field`` of an object to nanoseconds, as :func:`moment_of` does (``text`` may be None).

    Raises InputError, which names the object and the field, if ``text`` is not a time.
    """
    try:
        return moment_of(text)
    except ValueError as error:
        raise InputError(Problem(str(error), "", f"{type(obj).__name__} {obj.key}", field)) from None


def created_at(obj: _Created) -> int:
    """Return the time at which an object was created in nanoseconds since 1970; :data:`ZERO_TIME` if it has none.

    Raises InputError, which names the object, if the text is not a time.
    """
    return moment_in(obj, obj.metadata.creation_timestamp, "metadata.creationTimestamp")


_RESOLUTION: Final = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)


def duration(value: timedelta) -> int:
    """Return a timedelta (``value``) in nanoseconds. Timedeltas have microsecond resolution.

    Raises ArgumentError if ``value`` is not a timedelta.
    """
    try:
        return value // _MICROSECOND * 1000
    except TypeError:
        raise ArgumentError("value", show_value(value), "a timedelta", type(value).__name__) from None


def moment(value: datetime | int, name: str = "now") -> int:
    """Convert a time argument of a caller to nanoseconds since 1970.

    Parameters
    ----------
    value : datetime or int
        An aware datetime, or nanoseconds since 1970 as ``time.time_ns()`` returns them. Of integers, 0 and
        :data:`ZERO_TIME` stand for no particular time; all others have to be in 1973 or later.
    name : str
        The argument's name, for the error.

    Raises
    ------
    InputError
        For a naive datetime, a text, a float, a bool, an int that is no int64, and an int before 1973: that is a time
        in seconds, milliseconds or microseconds.
    """
    if type(value) is int and (_FIRST <= value <= _LAST or value in (0, ZERO_TIME)):
        return value
    time = virtual_moment(value, name)
    if not isinstance(value, datetime) and time < _FIRST and time not in (0, ZERO_TIME):
        raise _build_error(name, _describe_early_time(time))
    return time


def virtual_moment(value: datetime | int, name: str = "now") -> int:
    """Convert a time of a virtual clock, which may begin anywhere, to nanoseconds since 1970.

    Differs from :func:`moment` only for integers before 1973, which are returned as they are. Raises InputError for a
    naive datetime, for any other type, and for a time that 64 bits cannot hold.
    """
    if type(value) is int and ZERO_TIME <= value <= _LAST:
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise _build_error(name, f"{value.isoformat()} has no time zone: give datetime(..., tzinfo=UTC)")
        time = duration(value - datetime(1970, 1, 1, tzinfo=UTC))
        if not ZERO_TIME <= time <= _LAST:
            raise _build_error(
                name, f"{value.isoformat()} is no moment: nanoseconds in 64 bits reach from 1678 to 2262"
            )
        return time
    if isinstance(value, bool) or not isinstance(value, int):
        description = f"{show_value(value)} is a {type(value).__name__}"
        raise _build_error(name, f"{description}: a moment is an aware datetime, or an int of nanoseconds since 1970")
    if not ZERO_TIME <= value <= _LAST:
        raise _build_error(name, f"{value} nanoseconds are more than 64 bits hold")
    return int(value)


def _describe_early_time(value: int) -> str:
    """Return an error message that names the unit which an integer before 1973 seems to have."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for unit, size in _UNITS.items():
        if (days := value * size // (86400 * _SECOND)) < 10**6 and (epoch + timedelta(days)).year in _YEARS:
            date = printed_time(value * size)
            seems = f"it seems to be {unit} ({date}): multiply it by {size:,}, or give time.time_ns()"
            break
    else:
        seems = "give time.time_ns()"
    return f"{value} nanoseconds since 1970 are before 1973; {seems} or an aware datetime"


def _build_error(name: str, text: str) -> InputError:
    """Build the error for an argument that is no time."""
    return InputError(Problem(text, field=name))


def seconds(text: str) -> float:
    """Parse an RFC 3339 time into seconds since 1970, with the fraction. Raises ValueError for any other text."""
    return nanoseconds(text) / _SECOND


def to_datetime(text: str) -> datetime:
    """Parse an RFC 3339 time into an aware datetime in UTC, truncated to microseconds.

    Raises ValueError for any other text.
    """
    total_seconds, rest = divmod(nanoseconds(text), _SECOND)
    return datetime.fromtimestamp(total_seconds, UTC).replace(microsecond=rest // 1000)


def printed_time(moment: int) -> str:
    """Format a moment (nanoseconds since 1970) as the API does, in UTC and truncated to seconds."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=moment // _SECOND)).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_time(moment: datetime) -> str:
    """Format a ``metav1.Time`` as the API does, in UTC and truncated to seconds.

    Raises ValueError for a naive datetime.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without time zone")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(nanoseconds: int) -> str:
    """Format nanoseconds since 1970 as the API prints a ``metav1.MicroTime``, truncated to microseconds."""
    total_seconds, rest = divmod(nanoseconds, _SECOND)
    return f"{datetime.fromtimestamp(total_seconds, UTC).isoformat()[:19]}.{rest // 1000:06d}Z"


_DURATION_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = lazy_pattern(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")


@lru_cache(maxsize=1 << 12)
def parse_duration(text: str) -> int:
    """Parse a Go duration (``time.ParseDuration``) and return nanoseconds.

    A fraction is multiplied as a float64 and truncated, as in Go: ``0.3333333333333333333h`` is 20 minutes.

    Raises ``ValueError`` with Go's text.
    """
    invalid = ValueError(f'time: invalid duration "{text}"')
    start = text[:1] in {"+", "-"}
    if text[start:] == "0":
        return 0
    total, position = 0, int(start)
    while position < len(text) or position == start:
        part = _PART.match(text, position)
        if part is None:
            raise invalid
        digits, fraction, unit = part[1].lstrip("0") or "0", part[2] or "", part[3]
        number = int(digits) if len(digits) <= 19 else 2**64  # Python refuses to convert very long numbers
        if number > 2**63:
            raise invalid
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in _DURATION_UNITS:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        nanoseconds = number * _DURATION_UNITS[unit] + _truncate_fraction(fraction, _DURATION_UNITS[unit])
        total = (total + nanoseconds) % 2**64  # Go's uint64
        if nanoseconds > 2**63 or total > 2**63:
            raise invalid
        position = part.end()
    if text[0] == "-":
        return -total
    if total == 2**63:
        raise invalid
    return total


def _truncate_fraction(digits: str, unit: int) -> int:
    """Return the nanoseconds of the ``digits`` after the point of a number. ``unit``: nanoseconds of its unit.

    Digits that do not fit in an int64 are ignored.
    """
    numerator, scale = 0, 1.0
    for digit in digits:
        longer = numerator * 10 + int(digit)
        if numerator > (2**63 - 1) // 10 or longer > 2**63:
            break
        numerator, scale = longer, scale * 10
    return int(numerator * (unit / scale))


def format_duration(nanoseconds: int) -> str:
    """Format a ``time.Duration`` as Go prints it: ``3m0s``, ``1h0m0.5s``, ``1.5ms``, ``20ns``, ``0s``."""
    sign, total = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if total == 0:
        return "0s"
    if total < _DURATION_UNITS["s"]:
        unit = next(unit for unit in ("ms", "µs", "ns") if total >= _DURATION_UNITS[unit])
        return f"{sign}{_format_decimal(total, _DURATION_UNITS[unit])}{unit}"
    minutes, rest = divmod(total, _DURATION_UNITS["m"])
    text = f"{_format_decimal(rest, _DURATION_UNITS['s'])}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _format_decimal(value: int, unit: int) -> str:
    """Format ``value`` / ``unit`` without trailing zeros. ``unit``: a power of ten."""
    integer, rest = divmod(value, unit)
    fraction = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{integer}.{fraction}" if fraction else str(integer)
