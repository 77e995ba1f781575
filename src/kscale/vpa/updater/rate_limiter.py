"""A token bucket as a pure state machine (upstream: ``golang.org/x/time/rate``)."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from kscale.errors import KscaleError

__all__ = ["RateLimitError", "RateLimiter"]

_INT64_MAX: Final = 2**63 - 1
_SECOND: Final = 1e9


class RateLimitError(KscaleError):
    """Waiting is not possible, with upstream's text."""


class RateLimiter(msgspec.Struct):
    """``limit`` tokens a second, ``burst`` at most; infinite when ``limit`` is not positive.

    Times are nanoseconds; ``last`` None = never used, which gives the full burst.
    """

    limit: float
    burst: int
    tokens: float = 0.0
    last: int | None = None
    last_event: int | None = None

    @classmethod
    def of(cls, limit: float, burst: int) -> RateLimiter:
        """From the flags: a limit that is not positive switches the limiter off."""
        return cls(math.inf, 0) if limit <= 0 else cls(limit, burst, float(burst))

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: tokens come as they would have."""
        if self.last is not None:
            self.last += by
        if self.last_event is not None:
            self.last_event += by

    def _advanced(self, now: int) -> float:
        if self.last is None:
            return float(self.burst)
        elapsed = max(0, now - self.last)
        return min(self.tokens + float(elapsed) / _SECOND * self.limit, float(self.burst))

    def wait(self, now: int, deadline: int | None = None, n: int = 1) -> int:
        """Take ``n`` tokens: nanoseconds to wait for them. Raises :class:`RateLimitError`; nothing changes then."""
        if n > self.burst and not math.isinf(self.limit):
            raise RateLimitError(f"rate: Wait(n={n}) exceeds limiter's burst {self.burst}")
        if deadline is not None and now >= deadline:
            raise RateLimitError("context deadline exceeded")
        if math.isinf(self.limit):
            return 0
        tokens = self._advanced(now) - n
        delay = 0
        if tokens < 0:
            seconds = -tokens / self.limit * _SECOND
            delay = _INT64_MAX if seconds >= _INT64_MAX else int(seconds)
        if deadline is not None and delay > deadline - now:
            raise RateLimitError(f"rate: Wait(n={n}) would exceed context deadline")
        self.last, self.tokens, self.last_event = now, tokens, now + delay
        return delay

    def cancel(self, event: int, now: int, n: int = 1) -> None:
        """Give back the tokens of a wait that was to end at ``event``."""
        if math.isinf(self.limit) or n == 0 or event < now or self.last_event is None:
            return
        restore = n - self.limit * (float(self.last_event - event) / _SECOND)
        if restore <= 0:
            return
        self.tokens = min(self._advanced(now) + restore, float(self.burst))
        self.last = now
        if event == self.last_event:
            previous = event - int(n / self.limit * _SECOND)
            if previous >= now:
                self.last_event = previous
