"""Types of CEL values (names upstream, equality, semantic versions) and functions that Kubernetes adds to CEL, for
cel-python.

Errors for invalid texts are upstream's, without the part that Go's parser adds. Upstream: ip.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from itertools import pairwise
from typing import Any, Final

from kscale.imports import lazy_pattern
from kscale.objects.quantity import Quantity, QuantityError

__all__ = [
    "CIDR",
    "DURATION",
    "IP",
    "NOT_HAD",
    "NO_OVERLOAD",
    "NUMBERS",
    "OPTIONAL",
    "QUANTITY",
    "SEMVER",
    "TIMESTAMP",
    "TypeNames",
    "Version",
    "convert_numbers",
    "format_key",
    "functions",
    "network_functions",
    "optional_class",
    "parse_address",
    "parse_prefix",
]

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
        """Return upstream's name of the type of ``value``; ``type`` if it is none of CEL's or Kubernetes' values."""
        return next((name for types, name in self._named if isinstance(value, types)), "type")

    def in_go(self, value: Any) -> str:
        """Return the name of a value's type in Go, or CEL's name if Go's is not known."""
        name = self.of(value)
        return _GO_TYPES.get(name, name)

    def explain_result(self, value: Any) -> str:
        """Return upstream's error for an expression whose result ``value`` is no boolean."""
        why = self._explain_conversion(value)
        return f"CEL result of type {self.of(value)} could not be converted to bool: {why}"

    def _explain_conversion(self, value: Any) -> str:
        """Return upstream's reason why a value cannot be converted to a boolean."""
        if isinstance(value, self._optional):
            return self._explain_conversion(value.value) if value.there else "optional.none() dereference"
        name = self.of(value)
        return _NOT_CONVERTED.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")

    def equal(self, a: Any, b: Any) -> bool:
        """Check whether two values are equal.

        Numbers are compared by value; values of different types are not equal. Raises TypeError if ``a`` is a
        quantity, version or address and ``b`` of another type, unless it is null.
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
        """Check whether two elements are equal; True if they cannot be compared, where cel-go ignores the error."""
        try:
            return self.equal(a, b)
        except TypeError:
            return True

    def is_surely_equal(self, a: Any, b: Any) -> bool:
        """Check whether two values are equal; False if they cannot be compared."""
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
    """Return ``(a, b)``, both as doubles if ``is_double``, else as integers."""
    convert = float if is_double else int
    return convert(a), convert(b)


def format_key(key: Any) -> str:
    """Format the key of a map or the index of a list as it is printed in errors."""
    if isinstance(key, str):
        return str(key)
    if isinstance(key, float):
        return repr(float(key)).removesuffix(".0")
    return str(int(key)) if type(key).__name__ != "BoolType" else str(bool(key)).lower()


_VERSION = lazy_pattern(
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


_Address = IPv4Address | IPv6Address
_Prefix = IPv4Interface | IPv6Interface

_BROADCAST: Final = IPv4Address("255.255.255.255")
_LINK_LOCAL_MULTICAST_4: Final = ip_network("224.0.0.0/24")
_LINK_LOCAL_MULTICAST_6: Final = [IPv6Network(f"ff{flags:x}2::/16") for flags in range(16)]
_LENGTH: Final = lazy_pattern("0|[1-9][0-9]{0,2}")
_FAILED: Final = "parse error during conversion from string"
_MAPPED: Final = 'IPv4-mapped IPv6 address "{}" is not allowed'


def parse_address(text: str) -> _Address:
    """Parse an IP address without a zone. Raises ValueError for others, and for IPv4-mapped IPv6 addresses."""
    try:
        parsed = ip_address(text)
    except ValueError:
        raise ValueError(f'IP Address "{text}" {_FAILED}') from None
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            raise ValueError(f'IP address "{text}" with zone value is not allowed')
        if parsed.ipv4_mapped is not None:
            raise ValueError(_MAPPED.format(text))
    return parsed


def parse_prefix(text: str) -> _Prefix:
    """Parse an address and prefix length; host bits are kept. Raises ValueError if invalid."""
    first, slash, length = text.rpartition("/")
    try:
        if not slash or not _LENGTH.fullmatch(length) or "%" in first:
            raise ValueError(text)
        parsed = ip_interface(text)
    except ValueError:
        raise ValueError(f"network address {_FAILED}: network address {_FAILED}") from None
    if isinstance(parsed, IPv6Interface) and parsed.ipv4_mapped is not None:
        raise ValueError(f"network address {_FAILED}: {_MAPPED.format(text)}")
    return parsed


def network_functions(types: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions on addresses and networks by name.

    Names have two underscores for the dot of a namespace. ``types``: cel-python's.
    """
    boolean, integer, text = types.BoolType, types.IntType, types.StringType

    def readable(read: Callable[[str], Any]) -> Callable[[Any], Any]:
        def answer(value: Any) -> Any:
            try:
                read(str(value))
            except ValueError:
                return boolean(False)
            return boolean(True)

        return answer

    def of_address(ask: Callable[[_Address], bool]) -> Callable[[Any], Any]:
        def answer(value: Any) -> Any:
            if not isinstance(value, _Address) or isinstance(value, _Prefix):
                raise TypeError(NO_OVERLOAD)
            return boolean(ask(value))

        return answer

    def ip(value: Any) -> Any:
        if isinstance(value, str):
            return parse_address(value)
        return value.ip if isinstance(value, _Prefix) else value

    def contains_ip(outer: Any, value: Any) -> Any:
        try:
            return boolean(ip(value) in outer.network)
        except ValueError:  # upstream's error for an invalid text in this place
            raise TypeError(NO_OVERLOAD) from None

    def contains_cidr(outer: Any, value: Any) -> Any:
        inner = parse_prefix(str(value)) if isinstance(value, str) else value
        narrower = outer.version == inner.version and outer.network.prefixlen <= inner.network.prefixlen
        return boolean(narrower and inner.ip in outer.network)

    def string(value: Any) -> Any:
        if isinstance(value, boolean):
            return text(str(bool(value)).lower())
        return text(str(value)) if isinstance(value, _Address) else text(value)

    return {
        "ip": ip,
        "isIP": readable(parse_address),
        "ip__isCanonical": lambda value: boolean(str(parse_address(str(value))) == str(value)),
        "family": lambda value: integer(value.version),
        "isUnspecified": of_address(lambda value: value.is_unspecified),
        "isLoopback": of_address(lambda value: value.is_loopback),
        "isLinkLocalUnicast": of_address(lambda value: value.is_link_local),
        "isLinkLocalMulticast": of_address(_is_link_local_multicast),
        "isGlobalUnicast": of_address(_is_global_unicast),
        "cidr": lambda value: parse_prefix(str(value)),
        "isCIDR": readable(parse_prefix),
        "containsIP": contains_ip,
        "containsCIDR": contains_cidr,
        "masked": lambda value: ip_interface(value.network.with_prefixlen),
        "prefixLength": lambda value: integer(value.network.prefixlen),
        "string": string,
    }


def _is_link_local_multicast(value: _Address) -> bool:
    """Check whether an address is link-local multicast (``224.0.0.0/24``, or IPv6 of that scope)."""
    if isinstance(value, IPv4Address):
        return value in _LINK_LOCAL_MULTICAST_4
    return any(value in network for network in _LINK_LOCAL_MULTICAST_6)


def _is_global_unicast(value: _Address) -> bool:
    """Check whether an address is global unicast. Private addresses are, as in Go."""
    special = value.is_unspecified or value.is_loopback or value.is_multicast or value.is_link_local
    return not special and value != _BROADCAST


NOT_HAD: Final = frozenset(
    {
        "format", "url", "isURL", "image", "isImage", "authorizer",
    }
)  # fmt: skip
"""Upstream's functions that kscale does not have."""


def functions(types: Any, names: TypeNames, optional: Any) -> dict[str, Callable[..., Any]]:
    """Return all functions that expressions may call, by name, with two underscores for the dot of a namespace.

    ``types``: cel-python's types; ``names``: names of types; ``optional``: the class of optional values.
    """
    parts = _numbers, _strings, network_functions
    result = {name: function for part in parts for name, function in part(types).items()}
    return result | _lists(types, names, result) | _pairs(types, names) | _optionals(types, optional)


def _numbers(types: Any) -> dict[str, Callable[..., Any]]:
    """Return CEL's functions on quantities, on versions and for conversions, by name. ``types``: cel-python's types."""
    boolean, integer = types.BoolType, types.IntType

    def readable(read: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*args: Any) -> Any:
            try:
                read(*args)
            except (ValueError, QuantityError):
                return boolean(False)
            return boolean(True)

        return answer

    def quantity(text: Any) -> Quantity:
        return Quantity(str(text))

    def version(text: Any, normalize: Any = False) -> Version:
        return Version.normal(str(text)) if normalize else Version(str(text))

    def as_integer(amount: Quantity) -> Any:
        number = amount.as_int64()
        if number is None:
            raise ValueError("cannot convert value to integer")
        return integer(number)

    def to_integer(value: Any) -> Any:
        return integer(value // timedelta(microseconds=1) * 1000 if isinstance(value, timedelta) else value)

    def to_timestamp(value: Any) -> Any:
        is_epoch = isinstance(value, integer)
        return types.TimestampType(datetime.fromtimestamp(value, UTC) if is_epoch else value)

    def other(amount: Any) -> Quantity:
        return amount if isinstance(amount, Quantity) else quantity(amount)

    return {
        "int": to_integer,
        "timestamp": to_timestamp,
        "quantity": quantity,
        "isQuantity": readable(quantity),
        "semver": version,
        "isSemver": readable(version),
        "add": lambda a, b: a + other(b),
        "sub": lambda a, b: a - other(b),
        "sign": lambda a: integer(a.sign),
        "isInteger": lambda a: boolean(a.as_int64() is not None),
        "asInteger": as_integer,
        "asApproximateFloat": lambda a: types.DoubleType(a.approximate_float()),
        "major": lambda a: integer(a.key[0]),
        "minor": lambda a: integer(a.key[1]),
        "patch": lambda a: integer(a.key[2]),
        "compareTo": lambda a, b: integer((a > b) - (a < b)),
        "isGreaterThan": lambda a, b: boolean(a > b),
        "isLessThan": lambda a, b: boolean(a < b),
    }


def _strings(types: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions on strings by name."""
    text, many = types.StringType, types.ListType

    def within(value: Any, at: Any) -> int:
        if not 0 <= int(at) <= len(value):
            raise ValueError(f"index out of range: {at}")
        return int(at)

    def substring(value: Any, start: Any, end: Any = None) -> Any:
        stop = len(value) if end is None else int(end)
        if end is not None and int(start) > stop:
            raise ValueError(f"invalid substring range. start: {start}, end: {end}")
        return text(str(value)[within(value, start) : within(value, stop)])

    def split(value: Any, by: Any, most: Any = -1) -> Any:
        if most == 0:
            return many([])
        if by:
            parts = str(value).split(str(by), -1 if most < 0 else int(most) - 1)
        else:
            cut = len(value) if most < 0 else int(most) - 1
            parts = [*str(value)[:cut], *filter(None, [str(value)[cut:]])]
        return many([text(part) for part in parts])

    def last_index(value: Any, part: Any, before: int) -> Any:
        return types.IntType(str(value).rfind(str(part), 0, before + len(part)))

    def find_all(value: Any, pattern: Any, most: Any = -1) -> Any:
        matches = [text(match[0]) for match in re.finditer(str(pattern), str(value))]
        return many(matches if most < 0 else matches[: int(most)])

    def find_first(value: Any, pattern: Any) -> Any:
        match = re.search(str(pattern), str(value))
        return text(match[0] if match else "")

    return {
        "charAt": lambda a, at: text(str(a)[within(a, at) : int(at) + 1]),
        "lowerAscii": lambda a: text(_ascii(str(a), str.lower)),
        "upperAscii": lambda a: text(_ascii(str(a), str.upper)),
        "trim": lambda a: text(str(a).strip(_WHITE_SPACE)),
        "replace": lambda a, old, new, n=-1: text(str(a).replace(str(old), str(new), int(n))),
        "split": split,
        "join": lambda a, by="": text(str(by).join(map(str, a))),
        "substring": substring,
        "find": find_first,
        "findAll": find_all,
        "strings__quote": lambda a: text('"' + str(a).translate(_ESCAPES) + '"'),
        "indexOf": lambda a, part, at=0: types.IntType(str(a).find(str(part), within(a, at))),
        "lastIndexOf": lambda a, part, at=None: last_index(a, part, len(a) if at is None else within(a, at)),
    }


_WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""White space of Unicode. Python also strips the separators U+001C to U+001F."""
_ESCAPES: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)


def _lists(types: Any, names: TypeNames, others: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the functions on lists by name.

    ``others`` has functions on strings; those of the same name are called if the first argument is no list.
    """
    boolean, equal = types.BoolType, names.is_surely_equal

    def index(name: str, at: int) -> Callable[..., Any]:
        def answer(of: Any, wanted: Any, *rest: Any) -> Any:
            if not isinstance(of, list):
                return others[name](of, wanted, *rest)
            positions = [i for i, item in enumerate(of) if equal(item, wanted)]
            return types.IntType(positions[at] if positions else -1)

        return answer

    def extreme(choose: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        def chosen(items: Any) -> Any:
            if not items:
                raise ValueError(f"{name} called on empty list")
            return choose(items)

        return chosen

    def total(items: Any) -> Any:
        first = items[0] if items else types.IntType(0)
        for item in items[1:]:
            first = first + item
        return first

    def contains(items: Any, wanted: Any) -> Any:
        return boolean(all(any(equal(item, each) for each in items) for item in wanted))

    return {
        "isSorted": lambda items: boolean(not any(b < a for a, b in pairwise(items))),
        "sum": total,
        "min": extreme(min, "min"),
        "max": extreme(max, "max"),
        "sets__contains": contains,
        "sets__equivalent": lambda a, b: boolean(contains(a, b) and contains(b, a)),
        "sets__intersects": lambda a, b: boolean(any(equal(item, each) for item in a for each in b)),
        "indexOf": index("indexOf", 0),
        "lastIndexOf": index("lastIndexOf", -1),
    }


def _pairs(types: Any, names: TypeNames) -> dict[str, Callable[..., Any]]:
    """Return the functions that macros of two variables are rewritten to; see :mod:`~kscale.scheduling.devices.cel`."""
    many, mapping = types.ListType, types.MapType

    def pairs(of: Any) -> Any:
        if isinstance(of, list):
            return many([many([types.IntType(i), item]) for i, item in enumerate(of)])
        if not isinstance(of, dict):
            raise TypeError(NO_OVERLOAD)
        return many([many([key, value]) for key, value in of.items()])

    def merged(maps: Any) -> Any:
        out = mapping()
        for each in maps:
            if not isinstance(each, dict):
                raise ValueError(f"{NO_OVERLOAD}: cel.@mapInsert(map, {names.of(each)})")
            for key, value in each.items():
                if key in out:
                    raise ValueError(f"insert failed: key {format_key(key)} already exists")
                out[key] = value
        return out

    return {
        "pairs__of": pairs,
        "pairs__map": lambda entries: mapping(dict(entries)),
        "pairs__merged": merged,
    }


def optional_class() -> Any:
    """Return the class of CEL's optional values."""

    class Optional:
        """An optional value: it has a value or not."""

        __slots__ = ("there", "value")

        def __init__(self, *value: Any) -> None:
            self.there = bool(value)
            self.value = value[0] if value else None

    return Optional


def _optionals(types: Any, optional: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions on optional values by name; ``optional``: their class."""

    def value(of: Any) -> Any:
        if not of.there:
            raise ValueError("optional.none() dereference")
        return of.value

    def there(of: Any) -> bool:
        if not isinstance(of, optional):
            raise TypeError(NO_OVERLOAD)
        return bool(of.there)

    return {
        "literal__list": lambda items: types.ListType([each.value for each in items if there(each)]),
        "literal__map": lambda entries: types.MapType({key: each.value for key, each in entries if there(each)}),
        "optional_type": optional,
        "optional__of": optional,
        "optional__none": optional,
        "optional__ofNonZeroValue": lambda value: optional(value) if value else optional(),
        "optional__has": lambda of: types.BoolType(there(of)),
        "hasValue": lambda of: types.BoolType(of.there),
        "value": value,
    }


def _ascii(value: str, change: Callable[[str], str]) -> str:
    """Return a text with ``change`` applied to each ASCII letter; other letters stay."""
    return "".join(change(letter) if letter.isascii() else letter for letter in value)
