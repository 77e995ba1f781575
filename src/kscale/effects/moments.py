"""Moments: int64 nanoseconds since 1970, UTC. The only form of time in decisions and outcomes.

kscale's own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

import msgspec

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
"""By which a field's type is known to be a moment (``msgspec.inspect``)."""

Moment: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1, extra=MOMENT_MARK)]
"""Nanoseconds since 1970-01-01T00:00:00Z, within int64. The lowest int64 stands for Go's zero time."""
Nanoseconds: TypeAlias = Annotated[int, msgspec.Meta(extra={"time": "duration"})]
"""A duration in a state."""
Count: TypeAlias = Annotated[int, msgspec.Meta(extra={"time": "none"})]
"""A number in a state that is neither a moment nor a duration."""

ComparedDuration: TypeAlias = int
"""Annotates a constant in nanoseconds that a rule compares the age of something with: as soon as so much time has
passed, the rule may decide otherwise."""
OtherDuration: TypeAlias = int
"""Annotates a constant in nanoseconds that no age is compared with: a wait, a deadline, a unit of time."""

SECOND: Final = 10**9
LAST_TIME: Final = 2**63 - 1
"""The last moment that there is: as good as never."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def later(time: Moment, by: int) -> Moment:
    """The moment ``by`` nanoseconds after ``time``; of what is beyond int64 the last one there is."""
    return min(time + by, LAST_TIME)


def timedelta_of(nanoseconds: int) -> timedelta:
    """The duration of so many nanoseconds; what is finer than a microsecond is cut off."""
    return timedelta(microseconds=nanoseconds // 1000)


def to_datetime(time: Moment) -> datetime:
    """``time`` as an aware datetime in UTC; what is finer than a microsecond is cut off."""
    return _EPOCH + timedelta(microseconds=time // 1000)


def from_text(text: str | None) -> Moment:
    """What an object of the API says as RFC 3339 ``text``: absent, and before what int64 holds (1678), is
    :data:`ZERO_TIME`; after what it holds (2262), the last moment. Raises ValueError for what is no RFC 3339."""
    return moment_of(text)


def to_text(time: Moment, *, fraction: bool = False) -> str | None:
    """``time`` in RFC 3339 as the API prints it (whole seconds), or with the nanoseconds (``fraction``); None for
    :data:`ZERO_TIME`."""
    if time == ZERO_TIME:
        return None
    whole, rest = divmod(time, SECOND)
    text = _seconds_text(whole)
    return f"{text}.{rest:09d}Z" if fraction and rest else f"{text}Z"


@lru_cache(maxsize=1024)  # the objects of one round share a few moments
def _seconds_text(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:-6]  # without +00:00; strftime takes ten times as long
