"""Moments: int64 nanoseconds since 1970 (UTC), the form of time in all decisions and outcomes. Not in upstream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

import msgspec

from kscale.objects.argument_types import typed_late, unchecked
from kscale.objects.times import ZERO_TIME, duration, moment, moment_of

__all__ = [
    "LAST_TIME",
    "MOMENT_MARK",
    "SECOND",
    "ZERO_TIME",
    "ComparedDuration",
    "Count",
    "Moment",
    "Nanoseconds",
    "OtherDuration",
    "duration",
    "from_text",
    "later",
    "moment",
    "timedelta_of",
    "to_datetime",
    "to_text",
]

MOMENT_MARK: Final = {"time": "moment"}
"""Marks the type of a field as a moment (read with ``msgspec.inspect``)."""

Moment: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1, extra=MOMENT_MARK)]
"""Nanoseconds since 1970-01-01T00:00:00Z, within int64. The lowest int64 stands for Go's zero time."""
Nanoseconds: TypeAlias = Annotated[int, msgspec.Meta(extra={"time": "duration"})]
"""Duration in nanoseconds in a saved state."""
Count: TypeAlias = Annotated[int, msgspec.Meta(extra={"time": "none"})]
"""Integer in a saved state that is neither a moment nor a duration."""

ComparedDuration: TypeAlias = int
"""Marks a constant in nanoseconds with which a rule compares an age: when this time has passed, the rule may decide
differently."""
OtherDuration: TypeAlias = int
"""Marks a constant in nanoseconds with which no age is compared: a wait, a deadline, a unit of time."""

SECOND: Final = 10**9
LAST_TIME: Final = 2**63 - 1
"""The last moment of int64, used as never."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@typed_late
def later(time: Moment, by: int) -> Moment:
    """Return the moment ``by`` nanoseconds after ``time``; the last moment of int64 if the sum exceeds it."""
    return min(time + by, LAST_TIME)


@typed_late
def timedelta_of(nanoseconds: int) -> timedelta:
    """Return nanoseconds as a timedelta, rounded down to microseconds."""
    return timedelta(microseconds=nanoseconds // 1000)


@typed_late
def to_datetime(time: Moment) -> datetime:
    """Return ``time`` as an aware datetime in UTC, rounded down to microseconds."""
    return _EPOCH + timedelta(microseconds=time // 1000)


@typed_late
def from_text(text: str | None) -> Moment:
    """Parse an RFC 3339 time of an API object.

    Returns :data:`ZERO_TIME` for None and for times before int64's range (1678), and the last moment for times after it
    (2262). Raises ValueError if the text is not RFC 3339.
    """
    return moment_of(text)


@typed_late
def to_text(time: Moment, *, fraction: bool = False) -> str | None:
    """Format ``time`` as RFC 3339 in whole seconds, rounded down, as the API does.

    ``fraction``: append nine digits of nanoseconds unless they are 0. Returns None for :data:`ZERO_TIME`.
    """
    if time == ZERO_TIME:
        return None
    seconds, nanoseconds = divmod(time, SECOND)
    text = _seconds_text(seconds)
    return f"{text}.{nanoseconds:09d}Z" if fraction and nanoseconds else f"{text}Z"


format_moment: Final = unchecked(to_text)
""":func:`to_text` without a check of the argument, for callers that know that it is a moment."""


@lru_cache(maxsize=1024)  # objects of one loop share a few times
def _seconds_text(seconds: int) -> str:
    """Format whole seconds since 1970 as ``YYYY-MM-DDTHH:MM:SS``, without a time zone."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:-6]  # without +00:00; strftime is ten times slower
