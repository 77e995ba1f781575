"""Go's durations (``1m30s``, ``15.1s``) as nanoseconds."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

__all__ = ["parse_duration"]

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION = re.compile(rf"([+-]?)(?:0|((?:{_PART.pattern})+))")


def parse_duration(text: str) -> int:
    """``time.ParseDuration``: nanoseconds, what is finer is cut. Raises ``ValueError`` with Go's text."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f'time: invalid duration "{text}"')
    parts = _PART.findall(match[2] or "")
    total = sum(int(Fraction(number if number[-1] != "." else number[:-1]) * _UNITS[unit]) for number, unit in parts)
    if total > 2**63 - 1:
        raise ValueError(f'time: invalid duration "{text}"')
    return -total if match[1] == "-" else total
