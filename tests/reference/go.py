"""Go's integers and conversions in plain Python, as amd64 makes them."""

from __future__ import annotations

import math


def i64(x: int) -> int:
    return (x + 2**63) % 2**64 - 2**63


def i32(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def quotient(a: int, b: int) -> int:
    """a / b toward zero, wrapped to 64 bits."""
    q = abs(a) // abs(b)
    return i64(q if (a < 0) == (b < 0) else -q)


def to_int64(x: float) -> int:
    if math.isnan(x) or not -(2.0**63) <= x < 2.0**63:
        return -(2**63)
    return int(x)


def to_int32(x: float) -> int:
    if math.isnan(x) or not -(2.0**31) - 1 < x < 2.0**31:
        return -(2**31)
    return int(x)


def divide(a: float, b: float) -> float:
    """IEEE division."""
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def ceil(x: float) -> float:
    """``math.Ceil``: a float, also of what is not finite."""
    return float(math.ceil(x)) if math.isfinite(x) else x
