"""Go's parsers of numbers, float64 and int64 arithmetic and number formats, where Python's differ."""

from __future__ import annotations

import math
from typing import Final

from kscale.imports import lazy_pattern

__all__ = [
    "FALSE_TEXTS",
    "OUT_OF_RANGE",
    "TRUE_TEXTS",
    "divide_floats",
    "divide_truncated",
    "format_fixed",
    "format_shortest",
    "parse_bool",
    "parse_float",
    "parse_int64",
    "parse_int_literal",
    "tanh",
    "wrap_int32",
    "wrap_int64",
]

_DECIMAL = lazy_pattern(r"[+-]?[0-9]+")
_MOST_DIGITS: Final = 19
_INTEGER = lazy_pattern(
    r"([+-]?)(?:0[xX]((?:_?[0-9a-fA-F])+)|0[bB]((?:_?[01])+)|0[oO]?((?:_?[0-7])+)|(0|[1-9](?:_?[0-9])*))"
)
_BASES: Final = (16, 2, 8, 10)
_DIGITS: Final = "[0-9](?:_?[0-9])*"
_HEX_DIGITS: Final = "[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_FLOAT = lazy_pattern(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEX_FLOAT = lazy_pattern(rf"[+-]?0[xX](?:_?{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}")
_NAMED_FLOATS: Final = frozenset({"nan", *(sign + name for sign in ("", "+", "-") for name in ("inf", "infinity"))})
OUT_OF_RANGE: Final = "value out of range"
"""Text of the ValueError for a number that is well-formed, but does not fit."""
TRUE_TEXTS: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
"""Texts that ``strconv.ParseBool`` reads as true."""
FALSE_TEXTS: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""Texts that ``strconv.ParseBool`` reads as false."""


def parse_int64(text: str) -> int | None:
    """Parse an int64 as ``strconv.ParseInt(text, 10, 64)`` does, with sign and leading zeros.

    None for any other text, or out of range.
    """
    if _DECIMAL.fullmatch(text) is None:
        return None
    if len(text) > _MOST_DIGITS:  # Python refuses to convert very long numbers
        digits = text.lstrip("+-").lstrip("0") or "0"
        if len(digits) > _MOST_DIGITS:
            return None
        text = f"-{digits}" if text[0] == "-" else digits
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def parse_int_literal(text: str) -> int:
    """Parse an int64 as ``strconv.ParseInt(text, 0, 64)`` does: the base is that of the prefix, as in Go's literals.

    ``0x10`` is hexadecimal, ``010`` and ``0o10`` are octal, ``0b10`` is binary; ``1_000`` is 1000.

    Raises ValueError for any other text, and for a number out of range.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError("invalid syntax")
    index, digits = next((i, each) for i, each in enumerate(match.groups()[1:]) if each is not None)
    digits = digits.replace("_", "").lstrip("0") or "0"
    number = int(match[1] + digits, _BASES[index]) if len(digits) <= 64 else 2**64
    if not -(2**63) <= number < 2**63:
        raise ValueError(OUT_OF_RANGE)
    return number


def parse_float(text: str) -> float:
    """Parse a number as ``strconv.ParseFloat(text, 64)`` does, with ``inf``, ``nan``, ``0x1p-2`` and ``1_000``.

    Raises ValueError for any other text, and for a number that overflows.
    """
    if _FLOAT.fullmatch(text) is not None:
        number = float(text.replace("_", ""))
    elif text.lower() in _NAMED_FLOATS:
        return float(text)
    elif _HEX_FLOAT.fullmatch(text) is not None:
        try:
            number = float.fromhex(text.replace("_", ""))
        except OverflowError:
            number = math.inf
    else:
        raise ValueError("invalid syntax")
    if math.isinf(number):
        raise ValueError(OUT_OF_RANGE)
    return number


def parse_bool(text: str) -> bool:
    """Parse a boolean as ``strconv.ParseBool`` does (``1``, ``t``, ``True``, ...).

    Raises ValueError for any other text.
    """
    if text not in TRUE_TEXTS and text not in FALSE_TEXTS:
        raise ValueError("invalid syntax")
    return text in TRUE_TEXTS


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
