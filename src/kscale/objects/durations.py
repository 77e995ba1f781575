"""Go's durations (``1m30s``, ``15.1s``) as nanoseconds."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["format_duration", "parse_duration"]

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


@lru_cache(maxsize=1 << 12)
def parse_duration(text: str) -> int:
    """``time.ParseDuration``: nanoseconds, what is finer is cut. Raises ``ValueError`` with Go's text."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f'time: invalid duration "{text}"')
    from fractions import Fraction

    parts = _PART.findall(match[2] or "")
    total = sum(int(Fraction(number if number[-1] != "." else number[:-1]) * _UNITS[unit]) for number, unit in parts)
    if total > 2**63 - 1:
        raise ValueError(f'time: invalid duration "{text}"')
    return -total if match[1] == "-" else total


def format_duration(nanoseconds: int) -> str:
    """``time.Duration`` as Go prints it: ``3m0s``, ``1h0m0.5s``, ``1.5ms``, ``20ns``, ``0s``."""
    sign, total = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if total == 0:
        return "0s"
    if total < _UNITS["s"]:
        unit = next(unit for unit in ("ms", "µs", "ns") if total >= _UNITS[unit])
        return f"{sign}{_decimal(total, _UNITS[unit])}{unit}"
    minutes, rest = divmod(total, _UNITS["m"])
    text = f"{_decimal(rest, _UNITS['s'])}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    fraction = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
