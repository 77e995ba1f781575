"""Exact resource quantities, bug for bug (upstream: ``k8s.io/apimachinery/pkg/api/resource``, Kubernetes 1.37).

A quantity is a decimal number, a multiple of 10^-9. Upstream stores it in one of two forms: *small* (a 64-bit mantissa
and a decimal exponent) or *big* (an unbounded mantissa, normally counting nanos). A few results (reading an
out-of-range value, printing) depend on the form, so this module tracks it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, total_ordering
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kscale.errors import ArgumentError, InputError, show_value
from kscale.imports import lazy_pattern
from kscale.objects.argument_types import typed_late

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "BINARY_SI",
    "BINARY_SUFFIX",
    "DECIMAL_EXPONENT",
    "DECIMAL_SI",
    "DECIMAL_SUFFIX",
    "INT64_MAX",
    "MAX_ALIGNMENT",
    "MAX_INT64_DIGITS",
    "MAX_TEXT",
    "GoJSONError",
    "Quantity",
    "QuantityError",
    "Scanned",
    "check",
    "digits_of",
    "encode_quantity_parts",
    "fits",
    "go_pow10",
    "parse",
    "read_big",
    "read_small",
    "scan",
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
    """Return the low 64 bits as a signed integer, as Go's int64 arithmetic does."""
    number &= _MASK
    return number - 2**64 if number > INT64_MAX else number


def fits(number: int) -> bool:
    """Check whether a number fits in an int64."""
    return -(2**63) <= number <= INT64_MAX


def wrap32(number: int) -> int:
    """Return the low 32 bits as a signed integer."""
    return (number + 2**31) % 2**32 - 2**31


def go_pow10(exponent: int) -> float:
    """Return 10^``exponent`` as ``math.Pow10`` does.

    Powers of ten above 10^31 and below 10^-31 are products of two table entries.
    """
    if exponent < -323:
        return 0.0
    if exponent > 308:
        return float("inf")
    if exponent < 0:
        return float(f"1e{-(-exponent // 32 * 32)}") / float(f"1e{-exponent % 32}")
    return float(f"1e{exponent // 32 * 32}") * float(f"1e{exponent % 32}")


def strip_factor(number: int, factor: int) -> tuple[int, int]:
    """Return ``number`` (not zero) divided by ``factor`` as often as possible, and the number of divisions."""
    times = 0
    while True:
        quotient, rest = divmod(number, factor)
        if rest:
            return number, times
        number, times = quotient, times + 1


def read_small(mantissa: int, exponent: int, scale: int) -> tuple[int, bool]:
    """Return mantissa * 10^(exponent - scale), rounded away from zero, and whether it fits in an int64.

    If it does not fit, the returned number is wrong as in upstream's int64 form: the low 64 bits of the product for a
    factor of 10^1, 10^2, 10^3, 10^6 or 10^9, otherwise 0.
    """
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
    # For these factors upstream keeps the wrapped product after an overflow; for others it returns 0.
    return (wrap(product) if up in (1, 2, 3, 6, 9) else 0), False


def read_big(mantissa: int, exponent: int, scale: int) -> int:
    """Return mantissa * 10^(exponent - scale) as upstream converts its big form (``inf.Dec``) to an int64.

    The fraction of a positive number is rounded up. A negative number with a fraction becomes, as in upstream, one more
    than its integer part (-1.5 becomes 0), unless more than 18 digits are cut off. Only the low 64 bits of a larger
    number are returned.
    """
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
    quotient, rest = divmod(mantissa, 10 ** min(down, MAX_ALIGNMENT))  # no parsed quantity has a larger exponent
    return wrap(quotient + (1 if rest else 0))


def digits_of(number: int) -> str:
    """Return ``str(number)`` without Python's limit on the number of digits."""
    if fits(number):
        return str(number)
    head, tail = divmod(abs(number), 10**MAX_TEXT)
    text = f"{digits_of(head)}{tail:0{MAX_TEXT}d}" if head else f"{tail}"
    return f"-{text}" if number < 0 else text


DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

_WRONG_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # upstream's text
)
_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"
_WRONG_NUMBER: Final = "unable to parse numeric part of quantity"

# What upstream's scanner accepts; its own error text shows a stricter pattern (missing digits count as zero).
_TEXT = lazy_pattern(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = lazy_pattern(r"[eE]([+-]?[0-9]+)")
DECIMAL_SUFFIX: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_SUFFIX: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

_NANO: Final = -9


class QuantityError(InputError):
    """A text that is not a quantity (with upstream's message), or numbers too far apart to be added."""


class Scanned(NamedTuple):
    """The number mantissa * 10^exponent. ``big``: upstream keeps it as an ``inf.Dec``, otherwise as an int64.

    ``text``: the canonical text if the parsed text is canonical, otherwise empty.
    """

    mantissa: int
    exponent: int
    big: bool
    format: str
    text: str = ""


def _parse_suffix(suffix: str) -> tuple[int, int, str]:
    """Return (base, exponent, format) of a suffix. Raises QuantityError for an unknown one."""
    if suffix in DECIMAL_SUFFIX:
        return 10, DECIMAL_SUFFIX[suffix], DECIMAL_SI
    if suffix in BINARY_SUFFIX:
        return 2, BINARY_SUFFIX[suffix], BINARY_SI
    match = _EXPONENT.fullmatch(suffix)
    if match is None or not fits(int(match[1])):
        raise QuantityError(_WRONG_SUFFIX)
    return 10, wrap32(int(match[1])), DECIMAL_EXPONENT


def scan(text: str) -> Scanned:
    """Parse a text into its parts. Raises QuantityError if the text is no quantity."""
    match = _TEXT.fullmatch(text)
    if len(text) > MAX_TEXT:
        raise QuantityError(_WRONG_NUMBER)
    if match is None or not text:
        raise QuantityError(_WRONG_FORMAT)
    sign, integer, fraction, suffix = match.groups()
    fraction = fraction or ""
    base, exponent, format = _parse_suffix(suffix)
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


def _scan_small(text: str, sign: str, digits: str, places: int, base: int, exponent: int, format: str) -> Scanned:
    """Return the parts of a number in the small form, with ``text`` as canonical text where upstream caches it.

    ``digits``: all digits; ``places``: how many of them are decimals; ``base``, ``exponent``: of the suffix.
    """
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


def _scan_big(sign: str, digits: int, places: int, base: int, exponent: int, format: str) -> Scanned:
    """Return the parts of a number in the big form. Raises QuantityError if it is too large.

    Fractions finer than 10^-9 are rounded away from zero. ``digits``: all digits, as a number; ``places``: how many of
    them are decimals; ``base``, ``exponent``: of the suffix.
    """
    scale = (exponent if base == 10 else 0) - places
    number = digits << exponent if base == 2 else digits
    if number:
        # Rounded to nanos, away from zero: a positive request must not become zero.
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
            format = DECIMAL_SI
    return Scanned(-number if sign == "-" else number, scale, True, format)


_BLANK: Final = " \t\r\n"
_NUMBER = lazy_pattern(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_END: Final = "unexpected end of JSON input"
_ESCAPES: Final = 'bfnrt\\/"'


class GoJSONError(ValueError):
    """A text that is not JSON, in the words of Go's decoder."""


def _quote(char: str) -> str:
    """Format a character as Go's decoder shows it."""
    special = {"'": r"'\''", '"': "'\"'"}
    if char in special:
        return special[char]
    escapes = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\", "\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"}
    if char in escapes:
        return f"'{escapes[char]}'"
    code = ord(char)
    return f"'{char}'" if 32 <= code < 127 or code > 160 else f"'\\x{code:02x}'"


def _build_invalid(char: str, context: str) -> GoJSONError:
    """Build the error for a character that Go's decoder does not accept. ``context``: where, in the decoder's words."""
    return GoJSONError(f"invalid character {_quote(char)} {context}")


def check(raw: bytes) -> str:
    """Return the one JSON value in ``raw`` without surrounding blanks, still as JSON text.

    Scalars are checked in Go's order and rejected with Go's messages. Objects and arrays are rejected when Go rejects
    them, with other messages. Raises GoJSONError.
    """
    # Go's scanner reads bytes and shows a byte as the character of that code.
    text = raw.decode("latin-1").lstrip(_BLANK)
    if not text:
        raise GoJSONError(_END)
    if text[0] in "{[":
        import json

        try:
            json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise GoJSONError(f"invalid JSON: {error}") from None
        return raw.decode("utf-8", "replace").strip(_BLANK)
    end = _find_scalar_end(text)
    rest = text[end:].lstrip(_BLANK)
    if rest:
        raise _build_invalid(rest[0], "after top-level value")
    return raw.decode("utf-8", "replace").strip(_BLANK)


def _find_scalar_end(text: str) -> int:
    """Return the position after the scalar with which a text begins. Raises GoJSONError if it is malformed."""
    first = text[0]
    if first == '"':
        return _find_string_end(text)
    for literal in ("true", "false", "null"):
        if first == literal[0]:
            return _find_literal_end(text, literal)
    if first == "-" or first.isdigit():
        return _find_number_end(text)
    raise _build_invalid(first, "looking for beginning of value")


def _get_character(text: str, position: int) -> str:
    """Return a character; a blank after the end of the text, as for Go's scanner."""
    return text[position] if position < len(text) else " "


def _find_literal_end(text: str, literal: str) -> int:
    """Return the position after the ``literal`` with which a text begins.

    The first character is not checked. Raises GoJSONError if another one differs.
    """
    for position in range(1, len(literal)):
        if text[position : position + 1] != literal[position]:
            raise _build_invalid(
                _get_character(text, position), f"in literal {literal} (expecting {_quote(literal[position])})"
            )
    return len(literal)


def _find_number_end(text: str) -> int:
    """Return the position after the number with which a text begins. Raises GoJSONError if it is malformed."""
    match = _NUMBER.match(text)
    end = match.end() if match else 1
    # What the pattern left over may be the start of a fraction or an exponent that then breaks off.
    for pattern, context in (
        (r"-", "in numeric literal"),
        (r"-?(?:0|[1-9][0-9]*)\.", "after decimal point in numeric literal"),
        (r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?[eE][+-]?", "in exponent of numeric literal"),
    ):
        broken = re.match(pattern, text)
        if broken and broken.end() > end - (match is None):
            raise _build_invalid(_get_character(text, broken.end()), context)
    return end


def _find_string_end(text: str) -> int:
    """Return the position after the string with which a text begins. Raises GoJSONError if it is malformed."""
    position = 1
    while position < len(text):
        char = text[position]
        if char == '"':
            return position + 1
        if char == "\\":
            position = _find_escape_end(text, position + 1)
            continue
        if ord(char) < 0x20:
            raise _build_invalid(char, "in string literal")
        position += 1
    raise GoJSONError(_END)


def _find_escape_end(text: str, position: int) -> int:
    """Return the position after the escape whose letter is at ``position``. Raises GoJSONError if it is malformed."""
    letter = _get_character(text, position)
    if letter in _ESCAPES:
        return position + 1
    if letter != "u":
        raise _build_invalid(letter, "in string escape code")
    for offset in range(1, 5):
        digit = _get_character(text, position + offset)
        if digit not in "0123456789abcdefABCDEF":
            raise _build_invalid(digit, "in \\u hexadecimal character escape")
    return position + 5


_PRINT_DECIMAL: Final = {exponent: suffix for suffix, exponent in DECIMAL_SUFFIX.items()}
_PRINT_BINARY: Final = ("", *BINARY_SUFFIX)


class _QuantityFields:
    """Fields of a quantity, which can be set until :func:`_create` makes the object a quantity."""

    __slots__ = ("_approximate", "_big", "_exponent", "_hash", "_mantissa", "_milli", "_text", "_value", "format")

    _mantissa: int
    _exponent: int
    _big: bool
    _text: str
    _value: int | None
    _milli: int | None
    _approximate: float | None
    _hash: int | None
    format: str

    def __init__(self, mantissa: int, exponent: int, big: bool, format: str, text: str) -> None:
        self._mantissa, self._exponent, self._big, self.format, self._text = mantissa, exponent, big, format, text
        self._value = self._milli = self._approximate = self._hash = None


@total_ordering
class Quantity(_QuantityFields):
    """An immutable resource quantity such as ``Quantity("1500m")``; raises :class:`QuantityError`.

    Equality, order and hash go by value (``Quantity("1") == Quantity("1000m")``); ``str`` prints the canonical form.
    ``format`` is ``DecimalSI``, ``BinarySI`` or ``DecimalExponent`` (or empty: a zero that was never parsed).
    Instances parsed from the same text are shared.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Quantity:  # noqa: PYI034  # there are no subclasses: equal texts share one instance
        if not isinstance(text, str):
            raise QuantityError(f'a quantity is a text, as "500m" or "1Gi": {text!r} is a {type(text).__name__}')
        return parse(text)

    def __init__(self, text: str) -> None:
        """Do nothing: ``__new__`` returns a complete quantity."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Quantity cannot be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return _create, (self._mantissa, self._exponent, self._big, self.format, self._text)

    def __copy__(self) -> Quantity:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Quantity:
        return self

    # -- constructors ------------------------------------------------------------------------------------------

    @staticmethod
    def zero(format: str = "") -> Quantity:
        """Return zero in a format, by default Go's ``Quantity{}``. Adding to zero gives the format of the addend."""
        return _create(0, 0, False, format)

    @staticmethod
    @typed_late
    def from_int(value: int, format: str = DECIMAL_SI, scale: int = 0) -> Quantity:
        """Return ``value`` * 10^``scale`` (``NewQuantity``; ``NewMilliQuantity`` with scale -3).

        Raises :class:`QuantityError` if ``value`` does not fit in an int64, and InputError for a ``scale`` that is no
        int or a ``format`` that is no text.
        """
        if not (isinstance(scale, int) and isinstance(format, str)):  # type: ignore[redundant-expr]  # callers may have no type checker
            raise InputError(f"scale is {show_value(scale)} and format {show_value(format)}: give an int and a string")
        if not fits(value):
            raise QuantityError(f"{value} does not fit in 64 bits")
        return _create(value, scale, False, format)

    @staticmethod
    def from_json(raw: str | bytes) -> Quantity:
        """Return a quantity from raw JSON text: a string, a bare number (parsed as written), or ``null`` (zero).

        Raises :class:`QuantityError` with the text of Go's JSON decoder or of the quantity parser, and ArgumentError if
        ``raw`` is neither a string nor bytes.
        """
        try:
            token = check(raw.encode() if isinstance(raw, str) else raw)
        except (GoJSONError, UnicodeEncodeError) as error:
            raise QuantityError(str(error)) from None
        except AttributeError:
            raise ArgumentError("raw", show_value(raw), "a string or bytes", type(raw).__name__) from None
        if token == "null":
            return Quantity.zero()
        if len(token) >= 2 and token[0] == token[-1] == '"':
            token = token[1:-1]  # upstream does not decode escapes here
        return parse(token.strip(" \t\n\v\f\r\x85\xa0"))

    @staticmethod
    @typed_late
    def sum(items: Iterable[Quantity]) -> Quantity:
        """Return the sum of all items, added in order to an empty quantity.

        Raises ArgumentError if an item is not a Quantity.
        """
        total = _ZERO
        for item in items:
            if not isinstance(item, Quantity):
                raise ArgumentError("items", show_value(item), "a Quantity", type(item).__name__)
            total = total + item
        return total

    # -- reading -----------------------------------------------------------------------------------------------

    def value(self) -> int:
        """Return ``Value()``, rounded away from zero to an integer; an int64 with upstream's wrap-around.

        Negative fractions of quantities in the big form are rounded as :func:`read_big` does.
        """
        if self._value is None:
            object.__setattr__(self, "_value", self._convert_to_units(0))
        return self._value  # type: ignore[return-value]  # not None: set just above

    def milli_value(self) -> int:
        """Return the value in thousandths, as Go's ``MilliValue``: rounded and wrapped as :meth:`value` does."""
        if self._milli is None:
            object.__setattr__(self, "_milli", self._convert_to_units(-3))
        return self._milli  # type: ignore[return-value]  # not None: set just above

    @typed_late
    def scaled_value(self, scale: int) -> int:
        """Return the quantity in units of 10^``scale``, as Go's ``ScaledValue``.

        It is rounded and wrapped as :meth:`value` does.
        """
        return self._convert_to_units(scale)

    def _convert_to_units(self, scale: int) -> int:
        """Return :meth:`scaled_value`, whose argument is known to be an integer."""
        if self._big:
            return read_big(self._mantissa, self._exponent, scale)
        return read_small(self._mantissa, self._exponent, scale)[0]

    @typed_late
    def is_whole(self, scale: int = 0) -> bool:
        """Return whether the quantity is a whole number of units of 10^``scale``."""
        down = scale - self._exponent
        return down <= 0 or self._mantissa == 0 or (down <= MAX_ALIGNMENT and self._mantissa % 10**down == 0)

    def as_int64(self) -> int | None:
        """Return ``AsInt64()``, the exact integer.

        None where upstream has no fast conversion: for the big form, a negative exponent (also in ``1000m``) or an
        overflow.
        """
        if self._big or self._exponent < 0:
            return None
        value, exact = read_small(self._mantissa, self._exponent, 0)
        return value if exact else None

    def approximate_float(self) -> float:
        """Return ``AsApproximateFloat64()``, which may be infinite.

        It rounds the mantissa once and the product once.
        """
        if self._approximate is None:
            object.__setattr__(self, "_approximate", self._compute_float())
        return self._approximate  # type: ignore[return-value]  # not None: set just above

    def _compute_float(self) -> float:
        """Compute what :meth:`approximate_float` returns."""
        try:
            base = float(self._mantissa)
        except OverflowError:
            base = float("inf") if self._mantissa > 0 else float("-inf")
        return base if self._exponent == 0 else base * go_pow10(self._exponent)

    def as_fraction(self) -> Fraction:
        """Return the exact value. Raises QuantityError if it has too many digits to be written out."""
        if abs(self._exponent) > MAX_ALIGNMENT:
            raise QuantityError(f"{self} is too large or too small to be written out")
        from fractions import Fraction

        return Fraction(self._mantissa) * Fraction(10) ** self._exponent

    def billionths(self) -> int:
        """Return the exact value times 10^9; every quantity is a multiple of 10^-9.

        Raises QuantityError if the quantity is too large to be written out.
        """
        exponent = self._exponent + 9
        if 0 <= exponent <= 9:
            return self._mantissa * _TENS[exponent]
        if exponent > MAX_ALIGNMENT:
            raise QuantityError(f"{self} is too large or too small to be written out")
        total: int = self._mantissa * 10**exponent if exponent >= 0 else self._mantissa // 10**-exponent
        return total

    @property
    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return (self._mantissa > 0) - (self._mantissa < 0)

    @property
    def is_zero(self) -> bool:
        """Return whether the value is zero."""
        return self._mantissa == 0

    # -- arithmetic --------------------------------------------------------------------------------------------

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        format = other.format if self._mantissa == 0 else self.format
        if self._big or other._big:
            return self._add_big(other._mantissa, other._exponent, format)
        return self._add_small(other._mantissa, other._exponent, format)

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        format = other.format if self._mantissa == 0 else self.format
        if self._big or other._big or other._mantissa == -(2**63):
            return self._add_big(-other._mantissa, other._exponent, format)
        return self._add_small(-other._mantissa, other._exponent, format)

    def _add_small(self, mantissa: int, exponent: int, format: str) -> Quantity:
        """Add a small-form number to a small-form quantity; the sum is big if it overflows 64 bits."""
        if mantissa == 0:
            return _create(self._mantissa, self._exponent, False, format)
        if self._mantissa == 0:
            return _create(mantissa, exponent, False, format)
        scale = min(self._exponent, exponent)
        left, left_fits = read_small(self._mantissa, self._exponent, scale)
        right, right_fits = read_small(mantissa, exponent, scale)
        if left_fits and right_fits and fits(left + right):
            return _create(left + right, scale, False, format)
        return self._add_big(mantissa, exponent, format)

    def _add_big(self, mantissa: int, exponent: int, format: str) -> Quantity:
        """Add a number; the sum has the big form. Raises QuantityError if the exponents are too far apart."""
        scale = min(self._exponent, exponent)
        if max(self._exponent, exponent) - scale > MAX_ALIGNMENT:
            raise QuantityError(f"{self} and a number with exponent {exponent} are too far apart to be added")
        total = self._mantissa * 10 ** (self._exponent - scale) + mantissa * 10 ** (exponent - scale)
        return _create(total, scale, True, format)

    def __neg__(self) -> Quantity:
        mantissa = -self._mantissa if self._big else wrap(-self._mantissa)
        return _create(mantissa, self._exponent, self._big, self.format)

    def __bool__(self) -> bool:
        return self._mantissa != 0

    # -- comparison --------------------------------------------------------------------------------------------

    @typed_late
    def cmp(self, other: Quantity) -> int:
        """Compare exact values; return -1, 0 or 1 if this one is less than, equal to or more than ``other``."""
        return self._compare(other)

    def _compare(self, other: Quantity) -> int:
        """Return :meth:`cmp`, whose argument is known to be a quantity."""
        if self.sign != other.sign:
            return 1 if self.sign > other.sign else -1
        left, right = self._mantissa, other._mantissa
        if self._exponent != other._exponent and left:
            lowest, highest = self._get_exponent_bounds()
            other_lowest, other_highest = other._get_exponent_bounds()
            if lowest > other_highest:  # the leading digit decides, without writing out the zeros
                return self.sign
            if highest < other_lowest:
                return -self.sign
            exponent = min(self._exponent, other._exponent)
            left *= 10 ** (self._exponent - exponent)
            right *= 10 ** (other._exponent - exponent)
        return (left > right) - (left < right)

    @typed_late
    def at_least(self, other: Quantity) -> Quantity:
        """Return the maximum of this quantity and ``other``.

        If ``other`` is greater and this quantity has the big form, the result has the big form too, as in upstream's
        ``maxResourceList``.
        """
        if self._compare(other) >= 0:
            return self
        if self._big and not other._big:
            return _create(other._mantissa, other._exponent, True, other.format, other._text)
        return other

    def _get_exponent_bounds(self) -> tuple[int, int]:
        """Return (lowest, highest) possible exponent of the leading digit, derived cheaply from the number of bits."""
        bits = self._mantissa.bit_length()
        return bits // 4 + self._exponent, bits // 3 + 1 + self._exponent

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Quantity):
            return False
        if self._exponent == other._exponent:
            return self._mantissa == other._mantissa
        return self._compare(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._compare(other) < 0

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", self._hash_of_value())
        return self._hash  # type: ignore[return-value]  # not None: set just above

    def _hash_of_value(self) -> int:
        """Return a hash that is equal for equal values in any form."""
        if self._mantissa == 0:
            return 0
        digits, zeros = strip_factor(self._mantissa, 10)
        return hash((digits, self._exponent + zeros))

    # -- printing ----------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", self._format_canonical())
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def _format_canonical(self) -> str:
        """Return the canonical text, as Go's ``String``."""
        if self._mantissa == 0:
            return "0"
        if self.format == BINARY_SI:
            text = self._format_canonical_binary()
            if text is not None:
                return text
        digits, zeros = strip_factor(self._mantissa, 10)
        exponent = self._exponent + zeros
        while exponent % 3:
            digits, exponent = digits * 10, exponent - 1
        if self.format in (DECIMAL_SI, BINARY_SI):
            return f"{digits_of(digits)}{_PRINT_DECIMAL.get(exponent, '')}"  # no suffix above E: an upstream oddity
        return f"{digits_of(digits)}e{exponent}" if exponent else digits_of(digits)

    def _format_canonical_binary(self) -> str | None:
        """Return the text with a binary suffix; None if upstream prints a decimal one (below 1024, or no integer)."""
        if abs(self._exponent) > MAX_ALIGNMENT:
            return None
        integer, rest = divmod(self._mantissa * 10 ** max(self._exponent, 0), 10 ** max(-self._exponent, 0))
        if rest or abs(integer) < 1024:
            return None
        digits, times = strip_factor(integer, 1024)
        return f"{digits_of(digits)}{_PRINT_BINARY[times] if times < len(_PRINT_BINARY) else ''}"


def _create(mantissa: int, exponent: int, big: bool, format: str, text: str = "") -> Quantity:
    """Build the quantity mantissa * 10^exponent.

    ``big``: upstream keeps it as an ``inf.Dec``, otherwise as an int64. ``text``: the canonical text, or empty to
    format it on first use.
    """
    quantity: Any = _QuantityFields(mantissa, exponent, big, format, text)
    quantity.__class__ = Quantity  # together less than half the time of object.__setattr__ for each field
    return quantity  # type: ignore[no-any-return]  # its class has been set just above


def encode_quantity_parts(value: object) -> object:
    """Return (mantissa, exponent, whether it has the big form, format) of a quantity, for msgspec.

    Raises NotImplementedError for a value of any other type.
    """
    if isinstance(value, Quantity):
        return value.__reduce__()[1][:4]
    raise NotImplementedError(f"{type(value)} cannot be encoded")


_TENS: Final[tuple[int, ...]] = tuple(10**exponent for exponent in range(10))


@lru_cache(maxsize=1 << 12)
def parse(text: str) -> Quantity:
    """Parse a quantity. Raises QuantityError if the text is none."""
    return _create(*scan(text))


_ZERO: Final = _create(0, 0, False, "")
