"""How long a taint takes from being written to being seen (``actuation/update_latency_tracker.go``)."""

from __future__ import annotations

from typing import Final

from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint
from kscale.effects import SECOND, Get, Moment, Progress, StepsOf, Wait
from kscale.effects.moments import OtherDuration

__all__ = ["PastLatencies", "UpdateLatencyTracker"]

POLL_INTERVAL: Final[OtherDuration] = SECOND // 20
TIMEOUT: Final[OtherDuration] = 30 * SECOND
KEPT_FOR: Final[OtherDuration] = 3600 * SECOND


class UpdateLatencyTracker:
    """Follows nodes while they are tainted. :meth:`follow` is a machine that runs beside those that taint.

    ``started``: node -> when the tainting of all began: a node that waits for its turn waits in this time, too. After
    the last of them :meth:`wait_for_all` lets it go on until every taint was seen, or :meth:`stop` ends it.
    """

    __slots__ = ("_seen", "_stopped", "_waits", "started")

    def __init__(self) -> None:
        self.started: dict[str, Moment] = {}
        self._seen: dict[str, Moment] = {}
        self._waits = False
        self._stopped = False

    def wait_for_all(self) -> None:
        """All taints are written."""
        self._waits = True

    def stop(self) -> None:
        """Some could not be: there is nothing to measure."""
        self._stopped = True

    def follow(self, now: Moment) -> StepsOf[Get | Wait, int | None]:
        """The longest latency of all nodes, nanoseconds; None if it was stopped, or a taint was not seen for long."""
        p = Progress(now)
        while not self._waits:
            if self._stopped:
                return None
            yield from self._look(p)
            yield from p.wait(POLL_INTERVAL)
        until = p.now + TIMEOUT
        while len(self._seen) < len(self.started):
            if p.now > until:
                return None
            yield from p.wait(POLL_INTERVAL)
            yield from self._look(p)
        return max((self._seen[name] - began for name, began in self.started.items()), default=0)

    def _look(self, p: Progress) -> StepsOf[Get, None]:
        for name in [name for name in self.started if name not in self._seen]:
            outcome = yield from p.act(Get(kind="Node", name=name, watched=True))
            if outcome.error is None and has_taint(outcome.value, TO_BE_DELETED_TAINT):
                self._seen[name] = p.now


class PastLatencies:
    """Latencies of the last hour."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[tuple[Moment, int]] = []

    def delay_after(self, latency: int, now: Moment) -> int:
        """Adds one. Gives the time to wait: twice the longest that is kept."""
        self._found.append((now, latency))
        self._found = [(time, value) for time, value in self._found if time > now - KEPT_FOR]
        return 2 * max((value for _, value in self._found), default=0)
