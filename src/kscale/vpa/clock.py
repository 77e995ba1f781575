"""Times of the VPA: nanoseconds since 1970 inside, RFC 3339 outside, and Go's year 1 for "never"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from kscale.objects.times import nanoseconds
from kscale.vpa.histogram import UNSET

__all__ = ["UNSET", "from_text", "go_text", "to_text"]

_SECOND: Final = 10**9
_YEAR_ONE: Final = -62135596800 * _SECOND


def from_text(text: str | None) -> int:
    """An API time; absent, and the year 1, are :data:`UNSET`. Raises ValueError for a text that is no time."""
    if text is None:
        return UNSET
    time = nanoseconds(text)
    return UNSET if time == _YEAR_ONE else time


def to_text(time: int) -> str | None:
    """As ``metav1.Time`` is printed: UTC, whole seconds, cut off; None for :data:`UNSET`."""
    if time == UNSET:
        return None
    return datetime.fromtimestamp(time // _SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def go_text(time: int) -> str:
    """Go's ``%v`` of a UTC time."""
    if time == UNSET:
        return "0001-01-01 00:00:00 +0000 UTC"
    whole, rest = divmod(time, _SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"
