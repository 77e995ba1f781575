"""Times: what upstream's decisions compare, as integers of nanoseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from kscale.objects.times import nanoseconds

__all__ = ["GO_ZERO", "SECOND", "duration_ns", "moment_ns", "text_ns"]

SECOND: Final = 10**9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

GO_ZERO: Final = -62_135_596_800 * SECOND
"""Go's zero time (year 1): what an absent timestamp is."""


def moment_ns(moment: datetime) -> int:
    """An aware datetime. Raises TypeError for a naive one."""
    return (moment - _EPOCH) // _MICROSECOND * 1000


def duration_ns(duration: timedelta) -> int:
    return duration // _MICROSECOND * 1000


def text_ns(text: str | None) -> int:
    """An RFC 3339 text of an object; absent = Go's zero time."""
    return GO_ZERO if text is None else nanoseconds(text)
