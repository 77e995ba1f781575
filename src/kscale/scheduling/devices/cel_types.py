"""Types of CEL values: their names upstream, equality, and semantic versions."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Any, Final

from kscale.objects.quantity import Quantity

__all__ = [
    "CIDR", "DURATION", "IP", "NO_OVERLOAD", "NUMBERS", "OPTIONAL", "QUANTITY", "SEMVER", "TIMESTAMP", "TypeNames",
    "Version", "convert_numbers", "format_key",
]  # fmt: skip

NO_OVERLOAD: Final = "no such overload"
NUMBERS: Final = frozenset({"int", "uint", "double"})
QUANTITY, SEMVER, OPTIONAL = "kubernetes.Quantity", "kubernetes.Semver", "optional_type"
DURATION, TIMESTAMP = "google.protobuf.Duration", "google.protobuf.Timestamp"
IP, CIDR = "net.IP", "net.CIDR"
_GO_TYPES: Final = {
    "bool": "types.Bool", "int": "types.Int", "uint": "types.Uint", "double": "types.Double",
    "string": "types.String", "bytes": "types.Bytes", "null_type": "types.Null", "type": "*types.Type",
    DURATION: "types.Duration", TIMESTAMP: "types.Timestamp", OPTIONAL: "*types.Optional",
    QUANTITY: "cel.Quantity", SEMVER: "cel.Semver", IP: "cel.IP", CIDR: "cel.CIDR",
}  # fmt: skip
"""Go's name of a value's type, as ``%T`` prints it."""


class TypeNames:
    """Names of the types of values, as upstream reports them.

    Parameters
    ----------
    types
        cel-python's module of types.
    optional
        The class of optional values.
    """

    def __init__(self, types: Any, optional: Any) -> None:
        self._optional: Any = optional
        self._named: tuple[tuple[Any, str], ...] = (
            (optional, OPTIONAL),
            (types.BoolType, "bool"),
            ((types.IntType,), "int"),
            ((types.UintType,), "uint"),
            ((types.DoubleType,), "double"),
            (str, "string"),
            (types.BytesType, "bytes"),
            (types.ListType, "list"),
            (types.MapType, "map"),
            (types.DurationType, DURATION),
            (types.TimestampType, TIMESTAMP),
            (Quantity, QUANTITY),
            (Version, SEMVER),
            ((IPv4Interface, IPv6Interface), CIDR),  # subclasses of addresses
            ((IPv4Address, IPv6Address), IP),
            (type(None), "null_type"),
        )

    def of(self, value: Any) -> str:
        """Return upstream's name of a value's type."""
        return next((name for types, name in self._named if isinstance(value, types)), "type")

    def in_go(self, value: Any) -> str:
        """Return the name of a value's type in Go."""
        name = self.of(value)
        return _GO_TYPES.get(name, name)

    def explain_result(self, value: Any) -> str:
        """Return upstream's error for an expression whose result is no boolean."""
        why = self._explain_conversion(value)
        return f"CEL result of type {self.of(value)} could not be converted to bool: {why}"

    def _explain_conversion(self, value: Any) -> str:
        if isinstance(value, self._optional):
            return self._explain_conversion(value.value) if value.there else "optional.none() dereference"
        name = self.of(value)
        return _NOT_CONVERTED.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")

    def equal(self, a: Any, b: Any) -> bool:
        """Check whether two values are equal.

        Numbers are compared by value; values of different types are not equal. Raises TypeError if a quantity, version
        or address is compared with a value of another type.
        """
        left, right = self.of(a), self.of(b)
        if left in NUMBERS and right in NUMBERS:
            x, y = convert_numbers(a, b, is_double="double" in (left, right))
            return bool(x == y)
        if left != right:
            if left in (QUANTITY, SEMVER, IP, CIDR) and right != "null_type":
                raise TypeError(NO_OVERLOAD)
            return False
        if left == OPTIONAL:
            return bool(a.there == b.there and self.equal(a.value, b.value))
        if left == "list":
            return len(a) == len(b) and all(map(self._may_be_equal, a, b))
        if left == "map":
            return len(a) == len(b) and all(
                any(
                    self.equal(key, other) and self._may_be_equal(value, other_value)
                    for other, other_value in b.items()
                )
                for key, value in a.items()
            )
        return bool(a == b)

    def _may_be_equal(self, a: Any, b: Any) -> bool:
        """Check whether two elements are equal, where cel-go ignores an error."""
        try:
            return self.equal(a, b)
        except TypeError:
            return True

    def is_surely_equal(self, a: Any, b: Any) -> bool:
        """Check whether two values are equal, where an error means that they are not."""
        try:
            return self.equal(a, b)
        except TypeError:
            return False


_NOT_CONVERTED: Final = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "null_type": "type conversion error from 'null_type' to 'bool'",
    "type": "type conversion not supported for 'type'",
}


def convert_numbers(a: Any, b: Any, *, is_double: bool) -> tuple[float, float]:
    """Convert two numbers to doubles or to integers."""
    convert = float if is_double else int
    return convert(a), convert(b)


def format_key(key: Any) -> str:
    """Format the key of a map or the index of a list as it is printed in errors."""
    if isinstance(key, str):
        return str(key)
    if isinstance(key, float):
        return repr(float(key)).removesuffix(".0")
    return str(int(key)) if type(key).__name__ != "BoolType" else str(bool(key)).lower()


_VERSION = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


class Version:
    """A semantic version. A pre-release sorts before its release, numbers before words; build metadata is ignored.

    Raises ValueError for an invalid text.
    """

    __slots__ = ("key", "text")

    def __init__(self, text: str) -> None:
        match = _VERSION.fullmatch(text)
        if match is None:
            raise ValueError(f"not a semantic version: {text}")
        words = match[4].split(".") if match[4] else []
        parts = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in words)
        self.text = text
        self.key: tuple[Any, ...] = int(match[1]), int(match[2]), int(match[3]), not parts, parts

    @classmethod
    def normal(cls, text: str) -> Version:
        """Parse a version that may begin with ``v``, lack parts or have leading zeros. Raises ValueError if invalid."""
        parts = text.removeprefix("v").split(".", 2)
        parts = [re.sub(r"^0+(?=[0-9])", "", part) for part in parts]
        if len(parts) < 3 and re.search(r"[+-]", parts[-1]):
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        return cls(".".join([*parts, "0", "0"][: max(3, len(parts))]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __gt__(self, other: Version) -> bool:
        return self.key > other.key
