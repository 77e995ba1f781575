"""Whether a process is alive, as its ``/health-check`` says, without a clock: every ``now`` is given.

Moments should come from a clock that is never set (:class:`kscale.world.clock.SteadyClock`), as Go's are.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import msgspec

from kscale.effects import Moment, duration
from kscale.objects.durations import format_duration

__all__ = ["ActivityCheck", "HealthCheck", "HealthCheckOptions", "Healthy"]


class Healthy(Protocol):
    """What an endpoint asks."""

    def check(self, now: Moment) -> str:
        """Why the process is not healthy, in upstream's words; empty: it is."""
        ...


class HealthCheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags ``--max-inactivity``, ``--max-failing-time`` and ``--max-startup-time``.

    Until the first loop has succeeded, the last of them counts for both others, and it is never less than they are.
    None: the first loop has no longer than the others, as in release 1.3.
    """

    max_inactivity: timedelta = timedelta(minutes=10)
    max_failing_time: timedelta = timedelta(minutes=15)
    max_startup_time: timedelta | None = timedelta(minutes=20)

    @property
    def startup(self) -> timedelta:
        """Limit for the first loop, if it has its own."""
        return max(self.max_startup_time or timedelta(), self.max_inactivity, self.max_failing_time)


class HealthCheck:
    """Health of the Cluster Autoscaler (upstream: ``pkg/metrics/liveness.go``)."""

    __slots__ = ("_activity", "_failing", "_initialised", "_monitoring", "_startup", "last_activity", "last_success")

    def __init__(self, options: HealthCheckOptions, now: Moment) -> None:
        self._activity = duration(options.max_inactivity)
        self._failing = duration(options.max_failing_time)
        self._startup = duration(options.startup)
        self.last_activity = self.last_success = now
        self._monitoring = False
        self._initialised = options.max_startup_time is None

    def start_monitoring(self, now: Moment) -> None:
        """From here on the process has to act."""
        self._monitoring = True
        self.last_activity = max(self.last_activity, now)
        self.last_success = max(self.last_success, now)

    def update_last_activity(self, at: Moment) -> None:
        """A loop began at this moment."""
        self.last_activity = max(self.last_activity, at)

    def update_last_success(self, at: Moment) -> None:
        """A loop ended well at this moment; which is activity, too."""
        self.last_success = max(self.last_success, at)
        self.last_activity = max(self.last_activity, at)
        self._initialised = True

    def check(self, now: Moment) -> str:
        """Why the process is not healthy, in upstream's words; empty: it is."""
        activity, failing = (self._activity, self._failing) if self._initialised else (self._startup, self._startup)
        late = now > self.last_activity + activity or now > self.last_success + failing
        if not (self._monitoring and late):
            return ""
        idle, failed = format_duration(now - self.last_activity), format_duration(now - self.last_success)
        return f"Error: last activity more {idle} ago, last success more than {failed} ago"


class ActivityCheck:
    """Health of the VPA's programs (upstream: ``vertical-pod-autoscaler/pkg/utils/metrics/healthcheck.go``)."""

    __slots__ = ("_monitoring", "_timeout", "last_activity")

    def __init__(self, timeout: timedelta, now: Moment) -> None:
        self._timeout = duration(timeout)
        self._monitoring = False
        self.last_activity = now

    def start_monitoring(self, now: Moment) -> None:
        """From here on the process has to act."""
        self._monitoring = True
        self.last_activity = now

    def update_last_activity(self, at: Moment) -> None:
        """A round ended at this moment."""
        self.last_activity = at

    def check(self, now: Moment) -> str:
        """Why the process is not healthy, in upstream's words; empty: it is."""
        if not self._monitoring or now <= self.last_activity + self._timeout:
            return ""
        return f"Error: last activity more than {format_duration(now - self.last_activity)} ago"
