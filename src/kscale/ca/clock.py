"""Times: what upstream's decisions compare, as integers of nanoseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec

from kscale.objects import durations
from kscale.objects.times import nanoseconds

__all__ = ["GO_ZERO", "SECOND", "Moment", "duration_ns", "format_duration", "moment_ns", "text_ns"]

SECOND: Final = 10**9

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time that is kept: one without time zone is refused when it is read."""

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


def format_duration(duration: timedelta) -> str:
    """A duration as Go prints it: ``3m0s``, ``1h0m0.5s``, ``1.5ms``, ``0s``."""
    return durations.format_duration(duration_ns(duration))
