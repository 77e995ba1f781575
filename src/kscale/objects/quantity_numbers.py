"""The numbers of a quantity as Go keeps them: 64-bit integers that wrap, and the two forms a value is read from."""

from __future__ import annotations

from typing import Final

__all__ = [
    "INT64_MAX",
    "MAX_ALIGNMENT",
    "MAX_INT64_DIGITS",
    "MAX_TEXT",
    "digits_of",
    "fits",
    "go_pow10",
    "read_big",
    "read_small",
    "strip_factor",
    "wrap",
    "wrap32",
]

INT64_MAX: Final = 2**63 - 1
MAX_INT64_DIGITS: Final = 18
_MASK: Final = 2**64 - 1
# Aligning two exponents further apart than this would take unbounded memory; no API object means it.
MAX_ALIGNMENT: Final = 100_000
MAX_TEXT: Final = 4_000
"""So many digits: Python refuses to convert more at once."""


def wrap(number: int) -> int:
    """The low 64 bits as a signed integer: what Go's int64 arithmetic leaves."""
    number &= _MASK
    return number - 2**64 if number > INT64_MAX else number


def fits(number: int) -> bool:
    """Whether a number is an int64."""
    return -(2**63) <= number <= INT64_MAX


def wrap32(number: int) -> int:
    """The low 32 bits as a signed integer."""
    return (number + 2**31) % 2**32 - 2**31


def go_pow10(exponent: int) -> float:
    """``math.Pow10``: powers of ten above 10^31 and below 10^-31 are products of two table entries."""
    if exponent < -323:
        return 0.0
    if exponent > 308:
        return float("inf")
    if exponent < 0:
        return float(f"1e{-(-exponent // 32 * 32)}") / float(f"1e{-exponent % 32}")
    return float(f"1e{exponent // 32 * 32}") * float(f"1e{exponent % 32}")


def strip_factor(number: int, factor: int) -> tuple[int, int]:
    """``number`` without its factors ``factor``, and how many there were. ``number`` is not zero."""
    times = 0
    while True:
        quotient, rest = divmod(number, factor)
        if rest:
            return number, times
        number, times = quotient, times + 1


def read_small(mantissa: int, exponent: int, scale: int) -> tuple[int, bool]:
    """mantissa * 10^(exponent - scale) as upstream's small form reads it; False where 64 bits overflowed."""
    up = exponent - scale
    if mantissa == 0 or up == 0:
        return mantissa, True
    if up < 0:
        if up < -20:
            return (1 if mantissa > 0 else -1), True
        quotient = -(-abs(mantissa) // 10**-up)
        return (quotient if mantissa > 0 else -quotient), True
    if up > 20:
        return 0, False
    product = mantissa * 10**up
    if fits(product):
        return product, True
    # Upstream has unrolled multiplications for these factors, whose wrapped result leaks.
    return (wrap(product) if up in (1, 2, 3, 6, 9) else 0), False


def read_big(mantissa: int, exponent: int, scale: int) -> int:
    """mantissa * 10^(exponent - scale) as upstream's big form reads it."""
    down = scale - exponent
    if down == 0 or mantissa == 0:
        return wrap(mantissa)
    if down < 0:
        # int64(math.Pow10(n)) saturates to the most negative number on amd64.
        factor: int = 10**-down if -down <= MAX_INT64_DIGITS else -(2**63)
        return wrap(wrap(mantissa) * factor)
    if mantissa < INT64_MAX and down <= MAX_INT64_DIGITS:
        low = wrap(mantissa)
        divisor: int = 10**down
        quotient, rest = divmod(abs(low), divisor)
        return (quotient if low >= 0 else -quotient) + (1 if rest else 0)
    quotient, rest = divmod(mantissa, 10 ** min(down, MAX_ALIGNMENT))  # an upper bound on what parsing lets through
    return wrap(quotient + (1 if rest else 0))


def digits_of(number: int) -> str:
    """``str`` without Python's limit on the number of digits."""
    if fits(number):
        return str(number)
    head, tail = divmod(abs(number), 10**MAX_TEXT)
    text = f"{digits_of(head)}{tail:0{MAX_TEXT}d}" if head else f"{tail}"
    return f"-{text}" if number < 0 else text
