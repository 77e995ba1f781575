"""The value of a quantity text, the obvious way: fractions and no internal forms."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

SUFFIXES = {
    **{suffix: Fraction(10) ** (3 * i - 9) for i, suffix in enumerate(["n", "u", "m", "", *"kMGTPE"])},
    **{suffix: Fraction(2) ** (10 * i + 10) for i, suffix in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])},
}


def value(sign: str, digits: str, suffix: str) -> Fraction:
    """``digits`` is like 12, 1.5 or .5; ``suffix`` one of SUFFIXES or like e3."""
    factor = Fraction(10) ** int(suffix[1:]) if suffix[:1] == "e" else SUFFIXES[suffix]
    nanos = ceil(Fraction(digits) * factor * 10**9)
    if suffix.endswith("i"):
        nanos = min(nanos, (2**63 - 1) * 10**9)
    return Fraction(-nanos if sign == "-" else nanos, 10**9)


def rounded(exact: Fraction, units: int = 1) -> int:
    """Up to whole 1/units, for non-negative values below 2^63."""
    return ceil(exact * units)
