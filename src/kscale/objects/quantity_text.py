"""The text of a quantity, read as upstream's scanner does (``resource.ParseQuantity``)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kscale.objects.quantity_numbers import INT64_MAX, MAX_ALIGNMENT, MAX_INT64_DIGITS, MAX_TEXT, fits, wrap32

__all__ = [
    "BINARY_SI",
    "BINARY_SUFFIX",
    "DECIMAL_EXPONENT",
    "DECIMAL_SI",
    "DECIMAL_SUFFIX",
    "QuantityError",
    "Scanned",
    "scan",
]

DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

_WRONG_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # upstream's text
)
_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"
_WRONG_NUMBER: Final = "unable to parse numeric part of quantity"

# What upstream's scanner accepts; its own error text shows a stricter pattern (missing digits count as zero).
_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
DECIMAL_SUFFIX: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_SUFFIX: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

_NANO: Final = -9


class QuantityError(ValueError):
    """A text that is not a quantity (with upstream's message), or numbers too far apart to be added."""


class Scanned(NamedTuple):
    """mantissa * 10^exponent in the small or the ``big`` form; ``text`` where it is the canonical one already."""

    mantissa: int
    exponent: int
    big: bool
    format: str
    text: str = ""


def _suffix(suffix: str) -> tuple[int, int, str]:
    """(base, exponent, format) of a suffix."""
    if suffix in DECIMAL_SUFFIX:
        return 10, DECIMAL_SUFFIX[suffix], DECIMAL_SI
    if suffix in BINARY_SUFFIX:
        return 2, BINARY_SUFFIX[suffix], BINARY_SI
    match = _EXPONENT.fullmatch(suffix)
    if match is None or not fits(int(match[1])):
        raise QuantityError(_WRONG_SUFFIX)
    return 10, wrap32(int(match[1])), DECIMAL_EXPONENT


def scan(text: str) -> Scanned:
    """What a text says. Raises QuantityError."""
    match = _TEXT.fullmatch(text)
    if len(text) > MAX_TEXT:
        raise QuantityError(_WRONG_NUMBER)
    if match is None or not text:
        raise QuantityError(_WRONG_FORMAT)
    sign, integer, fraction, suffix = match.groups()
    fraction = fraction or ""
    base, exponent, format = _suffix(suffix)  # noqa: A001  (the field's own name)
    integer = integer.lstrip("0") or "0"
    if base == 10:
        room = MAX_INT64_DIGITS - len(integer) - len(fraction)
        small = room >= 0 and exponent - len(fraction) >= _NANO
    else:
        small = not fraction and 15 - len(integer) - exponent * 3 // 10 - 1 >= 0
    if small:
        return _scan_small(text, sign, integer + fraction, len(fraction), base, exponent, format)
    if not any("0" <= char <= "9" for char in match[2] + fraction):
        raise QuantityError(_WRONG_NUMBER)
    return _scan_big(sign, int(integer + fraction), len(fraction), base, exponent, format)


def _scan_small(text: str, sign: str, digits: str, places: int, base: int, exponent: int, format: str) -> Scanned:  # noqa: A002
    number = int(digits)
    if base == 2:
        keep = number % 8 != 0
        mantissa, scale = number << exponent, 0
    else:
        mantissa, scale = number, exponent - places
        keep = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    if text == "0":
        keep = True
    return Scanned(-mantissa if sign == "-" else mantissa, scale, False, format, str(text) if keep else "")


def _scan_big(sign: str, digits: int, places: int, base: int, exponent: int, format: str) -> Scanned:  # noqa: A002
    scale = (exponent if base == 10 else 0) - places
    number = digits << exponent if base == 2 else digits
    if number:
        # Rounded to nanos, away from zero: who asks for something gets something.
        if scale < _NANO:
            number = -(-number // 10 ** (_NANO - scale)) if _NANO - scale <= len(str(number)) else 1
        elif scale - _NANO > MAX_ALIGNMENT:
            raise QuantityError("quantity is too large")
        else:
            number *= 10 ** (scale - _NANO)
        scale = _NANO
    if base == 2:
        if number > INT64_MAX * 10**9:
            number, scale = INT64_MAX, 0
        elif 0 < number < 10**9:
            format = DECIMAL_SI  # noqa: A001  (the field's own name)
    return Scanned(-number if sign == "-" else number, scale, True, format)
