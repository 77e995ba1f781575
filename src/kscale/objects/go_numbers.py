"""How Go prints numbers."""

from __future__ import annotations

import math

__all__ = ["format_float"]


def format_float(x: float) -> str:
    """``%v`` of a float64: the shortest text that reads back, with an exponent below 1e-4 and from 1e21 on."""
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "+Inf" if x > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, x) < 0 else ""
    digits, _, exponent = repr(abs(x)).partition("e")
    whole, _, fraction = digits.partition(".")
    power = int(exponent or 0) + len(whole)  # the decimal point stands after this many digits
    number = (whole + fraction).lstrip("0")
    power -= len(whole + fraction) - len(number)
    number = number.rstrip("0")
    if not number:
        return f"{sign}0"
    if -4 <= power - 1 < 21:
        if power <= 0:
            return f"{sign}0.{'0' * -power}{number}"
        if len(number) <= power:
            return f"{sign}{number.ljust(power, '0')}"
        return f"{sign}{number[:power]}.{number[power:]}"
    mantissa = number[0] + (f".{number[1:]}" if len(number) > 1 else "")
    return f"{sign}{mantissa}e{power - 1:+03d}"
