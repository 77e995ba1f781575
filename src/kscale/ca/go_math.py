"""Go's float64 and int64 arithmetic and number formats, where Python's differ."""

from __future__ import annotations

import math

__all__ = ["divide_floats", "divide_truncated", "format_fixed", "format_shortest", "tanh", "wrap_int32", "wrap_int64"]


def wrap_int32(number: int) -> int:
    """Return the low 32 bits of a number as a signed integer, as int32 arithmetic wraps around."""
    return (number + 2**31) % 2**32 - 2**31


def divide_truncated(numerator: int, denominator: int) -> int:
    """Return the integer quotient rounded toward zero."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def wrap_int64(number: int) -> int:
    """Return the low 64 bits of a number as a signed integer, as int64 arithmetic wraps around."""
    if -(2**63) <= number < 2**63:  # Fast path for almost every number.
        return number
    return (number + 2**63) % 2**64 - 2**63


def divide_floats(numerator: float, denominator: float) -> float:
    """Return the IEEE 754 quotient; a zero denominator gives an infinity or NaN instead of an error."""
    if denominator == 0.0:
        if numerator == 0.0 or math.isnan(numerator):
            return math.nan
        return math.copysign(math.inf, numerator) * math.copysign(1.0, denominator)
    return numerator / denominator


def format_fixed(number: float, places: int = 6) -> str:
    """Format a float as Go's ``%.<places>f``, with ``NaN``, ``+Inf`` and ``-Inf``."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return f"{number:.{places}f}"


def format_shortest(number: float) -> str:
    """Format a float64 as Go's ``%v``, with the fewest digits that parse back to the same number."""
    if math.isnan(number) or math.isinf(number):
        return format_fixed(number)
    text = repr(float(number)).removesuffix(".0")
    return f"{int(number)}" if "e+" in text and abs(number) < 1e21 else text


def tanh(x: float) -> float:
    """Compute ``math.Tanh`` as Go does, by the rational approximation of the Cephes library."""
    magnitude = abs(x)
    if magnitude > 44.014845965556527:
        return math.copysign(1.0, x)
    if magnitude >= 0.625:
        return math.copysign(1 - 2 / (_exp(2 * magnitude) + 1), x)
    if x == 0:
        return x
    s = x * x
    top = (-9.64399179425052238628e-1 * s - 9.92877231001918586564e1) * s - 1.61468768441708447952e3
    bottom = ((s + 1.12811678491632931402e2) * s + 2.23548839060100448583e3) * s + 4.84406305325125486048e3
    return x + x * s * top / bottom


_LN2_HIGH, _LN2_LOW = 0.69314718055966295651160180568695068359375, 0.28235290563031577122588448175013436025525412068e-12
_TAYLOR = tuple(1 / math.factorial(n) for n in range(8, 0, -1))  # coefficients of (e^r - 1) / r


def _exp(x: float) -> float:
    """Compute ``math.Exp`` for 1 to 100 as Go's amd64 assembly does (Shibata's method of 2010).

    y = e^((x - k ln 2) / 16) - 1; then (y + 1)^2 - 1 = y (y + 2) is applied four times. For the arguments that node
    counts give, the result is the same with and without FMA. No C library is involved.
    """
    k = round(1.4426950408889634073599246810018920 * x)
    r = ((x - k * _LN2_HIGH) - k * _LN2_LOW) / 16
    series = 0.0
    for coefficient in _TAYLOR:
        series = series * r + coefficient
    y = r * series
    for _ in range(4):
        y *= y + 2
    return math.ldexp(y + 1, k)
