"""Exact resource quantities, bug for bug (upstream: ``k8s.io/apimachinery/pkg/api/resource``, Kubernetes 1.37).

A quantity is a decimal number, a multiple of 10^-9. Upstream keeps it in one of two forms, and a few answers (reading
an out-of-range value, printing) depend on the form, so it is kept here too: *small* (a 64-bit mantissa and a decimal
exponent) and *big* (an unbounded mantissa, normally counting nanos).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, total_ordering
from typing import TYPE_CHECKING, Any, Final

from kscale.objects import go_json
from kscale.objects.quantity_numbers import (
    MAX_ALIGNMENT,
    digits_of,
    fits,
    go_pow10,
    read_big,
    read_small,
    strip_factor,
    wrap,
)
from kscale.objects.quantity_text import (
    BINARY_SI,
    BINARY_SUFFIX,
    DECIMAL_EXPONENT,
    DECIMAL_SI,
    DECIMAL_SUFFIX,
    QuantityError,
    scan,
)

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["BINARY_SI", "DECIMAL_EXPONENT", "DECIMAL_SI", "Quantity", "QuantityError", "parse"]

_PRINT_DECIMAL: Final = {exponent: suffix for suffix, exponent in DECIMAL_SUFFIX.items()}
_PRINT_BINARY: Final = ("", *BINARY_SUFFIX)


@total_ordering
class Quantity:
    """An immutable resource quantity such as ``Quantity("1500m")``; raises :class:`QuantityError`.

    Equality, order and hash go by value (``Quantity("1") == Quantity("1000m")``); ``str`` prints the canonical form.
    ``format`` is ``DecimalSI``, ``BinarySI`` or ``DecimalExponent`` (or empty: a zero that was never parsed).
    Instances parsed from the same text are shared.
    """

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

    def __new__(cls, text: str) -> Quantity:  # noqa: PYI034  (instances of one text are shared; no subclasses)
        if not isinstance(text, str):
            raise QuantityError(f'a quantity is a text, as "500m" or "1Gi": {text!r} is a {type(text).__name__}')
        return parse(text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Quantity cannot be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._mantissa, self._exponent, self._big, self.format, self._text)

    def __copy__(self) -> Quantity:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Quantity:
        return self

    # -- making ------------------------------------------------------------------------------------------------

    @staticmethod
    def zero(format: str = "") -> Quantity:  # noqa: A002  (the field's own name)
        """The zero that Go's ``Quantity{}`` is; adding into it takes over the addend's format."""
        return _make(0, 0, False, format)

    @staticmethod
    def from_int(value: int, format: str = DECIMAL_SI, scale: int = 0) -> Quantity:  # noqa: A002
        """``value`` * 10^``scale`` (``NewQuantity``, ``NewMilliQuantity`` with scale -3). ``value`` is an int64."""
        if not fits(value):
            raise QuantityError(f"{value} does not fit in 64 bits")
        return _make(value, scale, False, format)

    @staticmethod
    def from_json(raw: str | bytes) -> Quantity:
        """A quantity from raw JSON text: a string, a bare number (its token is parsed as written), or ``null`` (zero).

        Raises :class:`QuantityError` with the text of Go's JSON decoder or of the quantity parser.
        """
        try:
            token = go_json.check(raw.encode() if isinstance(raw, str) else raw)
        except go_json.GoJSONError as error:
            raise QuantityError(str(error)) from None
        if token == "null":
            return Quantity.zero()
        if len(token) >= 2 and token[0] == token[-1] == '"':
            token = token[1:-1]  # upstream does not decode escapes here
        return parse(token.strip(" \t\n\v\f\r\x85\xa0"))

    @staticmethod
    def sum(items: Iterable[Quantity]) -> Quantity:
        """All items added into an empty quantity, one after the other."""
        total = _ZERO
        for item in items:
            total = total + item
        return total

    # -- reading -----------------------------------------------------------------------------------------------

    def value(self) -> int:
        """``Value()``: rounded up (away from zero) to an integer; int64 with upstream's wrap-around."""
        if self._value is None:
            object.__setattr__(self, "_value", self.scaled_value(0))
        return self._value  # type: ignore[return-value]  # set just above

    def milli_value(self) -> int:
        """``MilliValue()``: the same, in thousandths."""
        if self._milli is None:
            object.__setattr__(self, "_milli", self.scaled_value(-3))
        return self._milli  # type: ignore[return-value]  # set just above

    def scaled_value(self, scale: int) -> int:
        """``ScaledValue(scale)``: the quantity in units of 10^``scale``."""
        if self._big:
            return read_big(self._mantissa, self._exponent, scale)
        return read_small(self._mantissa, self._exponent, scale)[0]

    def is_whole(self, scale: int = 0) -> bool:
        """Whether the quantity is a whole number of units of 10^``scale``."""
        down = scale - self._exponent
        return down <= 0 or self._mantissa == 0 or (down <= MAX_ALIGNMENT and self._mantissa % 10**down == 0)

    def as_int64(self) -> int | None:
        """``AsInt64()``: the exact integer; None where upstream has no fast answer (big form, fraction, overflow)."""
        if self._big or self._exponent < 0:
            return None
        value, exact = read_small(self._mantissa, self._exponent, 0)
        return value if exact else None

    def approximate_float(self) -> float:
        """``AsApproximateFloat64()``: one rounding of the mantissa, one of the product; may be infinite."""
        if self._approximate is None:
            object.__setattr__(self, "_approximate", self._rounded_float())
        return self._approximate  # type: ignore[return-value]  # set just above

    def _rounded_float(self) -> float:
        try:
            base = float(self._mantissa)
        except OverflowError:
            base = float("inf") if self._mantissa > 0 else float("-inf")
        return base if self._exponent == 0 else base * go_pow10(self._exponent)

    def as_fraction(self) -> Fraction:
        """The exact value."""
        if abs(self._exponent) > MAX_ALIGNMENT:
            raise QuantityError(f"{self} is too large or too small to be written out")
        from fractions import Fraction

        return Fraction(self._mantissa) * Fraction(10) ** self._exponent

    def billionths(self) -> int:
        """The exact value times 10^9: every quantity is a whole number of billionths. Raises QuantityError for one that
        is too large to be written out."""
        exponent = self._exponent + 9
        if 0 <= exponent <= 9:
            return self._mantissa * _TENS[exponent]
        if exponent > MAX_ALIGNMENT:
            raise QuantityError(f"{self} is too large or too small to be written out")
        found: int = self._mantissa * 10**exponent if exponent >= 0 else self._mantissa // 10**-exponent
        return found

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self._mantissa > 0) - (self._mantissa < 0)

    @property
    def is_zero(self) -> bool:
        """Whether the value is zero."""
        return self._mantissa == 0

    # -- arithmetic --------------------------------------------------------------------------------------------

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        format = other.format if self._mantissa == 0 else self.format  # noqa: A001  (the field's own name)
        if self._big or other._big:
            return self._plus_big(other._mantissa, other._exponent, format)
        return self._plus_small(other._mantissa, other._exponent, format)

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        format = other.format if self._mantissa == 0 else self.format  # noqa: A001  (the field's own name)
        if self._big or other._big or other._mantissa == -(2**63):
            return self._plus_big(-other._mantissa, other._exponent, format)
        return self._plus_small(-other._mantissa, other._exponent, format)

    def _plus_small(self, mantissa: int, exponent: int, format: str) -> Quantity:  # noqa: A002
        """Both operands small; spills into the big form where 64 bits do not do."""
        if mantissa == 0:
            return _make(self._mantissa, self._exponent, False, format)
        if self._mantissa == 0:
            return _make(mantissa, exponent, False, format)
        scale = min(self._exponent, exponent)
        left, left_fits = read_small(self._mantissa, self._exponent, scale)
        right, right_fits = read_small(mantissa, exponent, scale)
        if left_fits and right_fits and fits(left + right):
            return _make(left + right, scale, False, format)
        return self._plus_big(mantissa, exponent, format)

    def _plus_big(self, mantissa: int, exponent: int, format: str) -> Quantity:  # noqa: A002
        scale = min(self._exponent, exponent)
        if max(self._exponent, exponent) - scale > MAX_ALIGNMENT:
            raise QuantityError(f"{self} and a number with exponent {exponent} are too far apart to be added")
        total = self._mantissa * 10 ** (self._exponent - scale) + mantissa * 10 ** (exponent - scale)
        return _make(total, scale, True, format)

    def __neg__(self) -> Quantity:
        mantissa = -self._mantissa if self._big else wrap(-self._mantissa)
        return _make(mantissa, self._exponent, self._big, self.format)

    def __bool__(self) -> bool:
        return self._mantissa != 0

    # -- comparison --------------------------------------------------------------------------------------------

    def cmp(self, other: Quantity) -> int:
        """-1, 0 or 1, as it is less than, equal to or more than ``other``: exact comparison by value."""
        if self.sign != other.sign:
            return 1 if self.sign > other.sign else -1
        left, right = self._mantissa, other._mantissa
        if self._exponent != other._exponent and left:
            lowest, highest = self._size()
            other_lowest, other_highest = other._size()
            if lowest > other_highest:  # the leading digit decides, without writing out the zeros
                return self.sign
            if highest < other_lowest:
                return -self.sign
            exponent = min(self._exponent, other._exponent)
            left *= 10 ** (self._exponent - exponent)
            right *= 10 ** (other._exponent - exponent)
        return (left > right) - (left < right)

    def _size(self) -> tuple[int, int]:
        """Bounds of the exponent of the leading digit (cheap: from the number of bits)."""
        bits = self._mantissa.bit_length()
        return bits // 4 + self._exponent, bits // 3 + 1 + self._exponent

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Quantity) and self.cmp(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self.cmp(other) < 0

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", self._hash_of_value())
        return self._hash  # type: ignore[return-value]  # set just above

    def _hash_of_value(self) -> int:
        if self._mantissa == 0:
            return 0
        digits, zeros = strip_factor(self._mantissa, 10)
        return hash((digits, self._exponent + zeros))

    # -- printing ----------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", self._canonical())
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def _canonical(self) -> str:
        if self._mantissa == 0:
            return "0"
        if self.format == BINARY_SI:
            text = self._canonical_binary()
            if text is not None:
                return text
        digits, zeros = strip_factor(self._mantissa, 10)
        exponent = self._exponent + zeros
        while exponent % 3:
            digits, exponent = digits * 10, exponent - 1
        if self.format in (DECIMAL_SI, BINARY_SI):
            return f"{digits_of(digits)}{_PRINT_DECIMAL.get(exponent, '')}"  # no suffix above E: an upstream oddity
        return f"{digits_of(digits)}e{exponent}" if exponent else digits_of(digits)

    def _canonical_binary(self) -> str | None:
        """The binary form, or None where upstream falls back to decimal: below 1024, or not an integer."""
        if abs(self._exponent) > MAX_ALIGNMENT:
            return None
        integer, rest = divmod(self._mantissa * 10 ** max(self._exponent, 0), 10 ** max(-self._exponent, 0))
        if rest or abs(integer) < 1024:
            return None
        digits, times = strip_factor(integer, 1024)
        return f"{digits_of(digits)}{_PRINT_BINARY[times] if times < len(_PRINT_BINARY) else ''}"


def _make(mantissa: int, exponent: int, big: bool, format: str, text: str = "") -> Quantity:  # noqa: A002
    quantity = object.__new__(Quantity)
    store = object.__setattr__
    store(quantity, "_mantissa", mantissa)
    store(quantity, "_exponent", exponent)
    store(quantity, "_big", big)
    store(quantity, "format", format)
    store(quantity, "_text", text)
    store(quantity, "_value", None)
    store(quantity, "_milli", None)
    store(quantity, "_approximate", None)
    store(quantity, "_hash", None)
    return quantity


_TENS: Final[tuple[int, ...]] = tuple(10**exponent for exponent in range(10))


@lru_cache(maxsize=1 << 16)
def parse(text: str) -> Quantity:
    """The quantity of a text. Raises QuantityError."""
    return _make(*scan(text))


_ZERO: Final = _make(0, 0, False, "")
