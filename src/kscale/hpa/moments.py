"""Moments as decisions keep them: int64 nanoseconds since 1970, the lowest int64 standing for Go's zero time.

Go's zero time is the year 1, which does not fit; everything before 1678 is taken for it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from kscale.objects.times import nanoseconds

__all__ = ["SECOND", "ZERO_TIME", "Moment", "from_text", "moment", "to_text"]

SECOND: Final = 1_000_000_000
ZERO_TIME: Final = -(2**63)
_LAST: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Moment = int | str | datetime
"""What callers may give as a time: nanoseconds since 1970, an RFC 3339 text, or an aware datetime."""


def from_text(text: str | None) -> int:
    """Nanoseconds of an RFC 3339 text; absent is the zero time."""
    if not text:
        return ZERO_TIME
    value = nanoseconds(text)
    return ZERO_TIME if value < ZERO_TIME else min(value, _LAST)


def moment(value: Moment) -> int:
    """Nanoseconds of whatever callers may give as a time. A naive datetime raises ``ValueError``."""
    if isinstance(value, str):
        return from_text(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a time without time zone")
        return (value - _EPOCH) // timedelta(microseconds=1) * 1000
    return value


def to_text(time: int, *, fraction: bool = False) -> str | None:
    """RFC 3339 as the API prints it (whole seconds), or with the nanoseconds; None for the zero time."""
    if time == ZERO_TIME:
        return None
    whole, rest = divmod(time, SECOND)
    text = (_EPOCH + timedelta(seconds=whole)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z" if fraction and rest else f"{text}Z"
