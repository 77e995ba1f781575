"""The token bucket of Go's ``golang.org/x/time/rate``, without its clock."""

from __future__ import annotations

import struct
from typing import Final

from kscale.effects import Moment

__all__ = ["TokenBucket"]

_SECOND: Final = 1e9


class TokenBucket:
    """``burst`` tokens at first, then ``qps`` a second, never more than ``burst``. Moments are nanoseconds.

    ``qps`` is rounded as client-go does (``float32``). Single owner.
    """

    __slots__ = ("_burst", "_last", "_qps", "_tokens")

    def __init__(self, qps: float, burst: int) -> None:
        self._qps: float = struct.unpack("f", struct.pack("f", qps))[0]
        self._burst = burst
        self._tokens = float(burst)
        self._last: Moment | None = None

    def try_accept(self, now: Moment) -> bool:
        """Takes a token if there is one."""
        tokens = self._at(now) - 1.0
        if self._burst < 1 or self._wait(tokens) > 0:
            return False
        self._last, self._tokens = now, tokens
        return True

    def reserve(self, now: Moment) -> int:
        """Takes a token, or the next that there will be: for how many nanoseconds the caller has to wait."""
        tokens = self._at(now) - 1.0
        self._last, self._tokens = now, tokens
        return self._wait(tokens)

    def _at(self, now: Moment) -> float:
        if self._last is None:
            return float(self._burst)
        elapsed = max(now - self._last, 0)
        return min(self._tokens + elapsed / _SECOND * self._qps, float(self._burst))

    def _wait(self, tokens: float) -> int:
        return int(-tokens / self._qps * _SECOND) if tokens < 0 else 0
