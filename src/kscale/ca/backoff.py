"""Back-off of node groups that failed to scale up (upstream: ``utils/backoff/exponential_backoff.go``)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kscale.effects import Moment, later
from kscale.effects.moments import Nanoseconds

__all__ = ["Backoff", "ScaleUpError", "get_active_backoff", "record_failure", "remove_stale_backoffs"]


class ScaleUpError(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Reason of a failed scale-up. ``class_``: OutOfResource or Other; ``code``: the cloud's code, or an error type."""

    class_: str = msgspec.field(name="class")
    code: str
    message: str


class Backoff(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Until when a group is left alone (that instant included), for how long this time (nanoseconds), and why."""

    duration: Nanoseconds
    until: Moment
    last_failed: Moment
    error: ScaleUpError


def record_failure(
    backoffs: Mapping[str, Backoff],
    group: str,
    error: ScaleUpError,
    now: Moment,
    *,
    initial: int,
    maximum: int,
) -> dict[str, Backoff]:
    """Return the back-offs after one more failure of a group.

    A failure after the end of the last period doubles the period, up to ``maximum``. A failure within the period
    restarts it. Success never ends a back-off. ``initial`` and ``maximum`` are in nanoseconds.
    """
    last = backoffs.get(group)
    if last is None:
        duration = initial
    elif last.until < now:
        duration = min(2 * last.duration, maximum)
    else:
        duration = last.duration
    entry = Backoff(duration=duration, until=later(now, duration), last_failed=now, error=error)
    return {**backoffs, group: entry}


def get_active_backoff(backoffs: Mapping[str, Backoff], group: str, now: Moment) -> Backoff | None:
    """Return the active back-off of a group, or None."""
    entry = backoffs.get(group)
    return None if entry is None or entry.until < now else entry


def remove_stale_backoffs(backoffs: Mapping[str, Backoff], now: Moment, reset: int) -> dict[str, Backoff]:
    """Return the back-offs of the groups whose last failure is at most ``reset`` nanoseconds ago."""
    return {group: entry for group, entry in backoffs.items() if not now - entry.last_failed > reset}
