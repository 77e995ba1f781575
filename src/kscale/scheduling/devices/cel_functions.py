"""Functions and comparisons that Kubernetes adds to CEL, for cel-python.

Errors for invalid texts are upstream's, without the part that Go's parser adds. Upstream: ip.go.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
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
from typing import Any, Final, cast

from kscale.objects.quantity import Quantity, QuantityError

__all__ = [
    "NOT_HAD",
    "Version",
    "address",
    "comparisons",
    "equality",
    "explain_result",
    "functions",
    "logic",
    "network_functions",
    "prefix",
    "type_of",
]


_NO_OVERLOAD: Final = "no such overload"
_ORDERS: Final = {"_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge}


def equality(types: Any, optional: type) -> Callable[[Any, Any], bool]:
    """Return a function that checks whether two values are equal.

    Numbers are compared by value; values of different types are not equal. ``types``: cel-python's types. The function
    raises TypeError if a quantity, version or address is compared with a value of another type.
    """
    numbers = types.IntType, types.UintType, types.DoubleType
    of_cel: tuple[type, ...] = (*numbers, types.BoolType, str, types.BytesType, types.ListType, types.MapType)
    of_cel += types.DurationType, types.TimestampType

    def equal(a: Any, b: Any) -> bool:
        if a is None or b is None or callable(a) or callable(b):
            return a is b
        if isinstance(a, numbers) and isinstance(b, numbers):
            return bool(operator.eq(*_convert_numbers(types, a, b)))
        if isinstance(a, optional) or isinstance(b, optional):
            return isinstance(a, optional) and isinstance(b, optional) and equal_optionals(a, b)
        if isinstance(a, types.ListType) and isinstance(b, types.ListType):
            return len(a) == len(b) and all(map(equal, a, b))
        if isinstance(a, types.MapType) and isinstance(b, types.MapType):
            return len(a) == len(b) and all(
                any(equal(key, other) and equal(value, other_value) for other, other_value in b.items())
                for key, value in a.items()
            )
        if type(a) is type(b) or (isinstance(a, str) and isinstance(b, str)):  # concatenations are plain str
            return bool(a == b)
        if not isinstance(a, of_cel):
            raise TypeError(_NO_OVERLOAD)
        return False

    def equal_optionals(a: Any, b: Any) -> bool:
        return bool(a.there == b.there and equal(a.value, b.value))

    return equal


def comparisons(types: Any, error: type[Exception], equal: Callable[[Any, Any], bool]) -> dict[str, Callable[..., Any]]:
    """Return the comparison operators by cel-python's names.

    ``types`` and ``error``: cel-python's types and error class; ``equal``: the result of :func:`equality`.
    """
    numbers = types.IntType, types.UintType, types.DoubleType
    ordered = str, types.BytesType, types.BoolType, types.DurationType, types.TimestampType

    def judged(judge: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        """Wrap a comparison to return errors instead of raising them.

        cel-python treats errors as values, which ``||`` and ``&&`` may ignore.
        """

        def answer(a: Any, b: Any) -> Any:
            for side in (a, b):
                if isinstance(side, error):
                    return side
            try:
                return types.BoolType(judge(a, b))
            except TypeError as problem:
                return error(str(problem), TypeError, problem.args)

        return answer

    def equal_surely(a: Any, b: Any) -> bool:
        try:
            return equal(a, b)
        except TypeError:
            return False

    def within(item: Any, container: Any) -> bool:
        if not isinstance(container, (types.ListType, types.MapType)):
            raise TypeError(_NO_OVERLOAD)
        return any(equal_surely(item, each) for each in container)

    def by(order: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
        def compare(a: Any, b: Any) -> bool:
            if isinstance(a, numbers) and isinstance(b, numbers):
                a, b = _convert_numbers(types, a, b)
                if a != a or b != b:
                    raise TypeError("NaN values cannot be ordered")
            elif not (type(a) is type(b) or (isinstance(a, str) and isinstance(b, str))) or not isinstance(a, ordered):
                raise TypeError(_NO_OVERLOAD)
            return bool(order(a, b))

        return compare

    orders = {name: judged(by(order)) for name, order in _ORDERS.items()}
    return orders | {
        "_==_": judged(equal),
        "_!=_": judged(lambda a, b: not equal_surely(a, b)),
        "_in_": judged(within),
    }


def logic(
    types: Any, error: type[Exception], available: dict[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Return the logical and arithmetic operators by cel-python's names, with upstream's errors.

    The first operand that is an error is the result. ``types`` and ``error``: cel-python's types and error class;
    ``available``: cel-python's own operators by name.
    """

    def first_error(*operands: Any) -> Any:
        for operand in operands:
            if isinstance(operand, error):
                return operand
            if not isinstance(operand, types.BoolType):
                return error(_NO_OVERLOAD, TypeError, ())
        return None

    def decided_by(verdict: bool) -> Callable[[Any, Any], Any]:
        """Return ``||`` or ``&&``: one operand with this value decides, whatever the other is."""

        def answer(a: Any, b: Any) -> Any:
            if any(isinstance(side, types.BoolType) and bool(side) is verdict for side in (a, b)):
                return types.BoolType(verdict)
            return first_error(a, b) or types.BoolType(not verdict)

        return answer

    def choose(condition: Any, a: Any, b: Any) -> Any:
        return first_error(condition) or (a if condition else b)

    def calculated(operator: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*operands: Any) -> Any:
            for operand in operands:
                if isinstance(operand, error):
                    return operand
            try:
                return operator(*operands)
            except TypeError as problem:
                return error(_NO_OVERLOAD, TypeError, problem.args)

        return answer

    arithmetic = {name: calculated(available[name]) for name in ("_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_")}
    return arithmetic | {"_||_": decided_by(True), "_&&_": decided_by(False), "_?_:_": choose}


def _type_names(types: Any) -> dict[type, str]:
    return {
        types.BoolType: "bool", types.IntType: "int", types.UintType: "uint", types.DoubleType: "double",
        str: "string", types.BytesType: "bytes", types.ListType: "list", types.MapType: "map",
        types.DurationType: "duration", types.TimestampType: "timestamp",
    }  # fmt: skip


def name_type(types: Any, value: Any) -> str:
    """Return upstream's name of a value's type; ``types``: cel-python's."""
    names: dict[type, str] = {Quantity: "kubernetes.Quantity", Version: "kubernetes.Semver", type(None): "null_type"}
    names |= _type_names(types)
    names |= {types.DurationType: "google.protobuf.Duration", types.TimestampType: "google.protobuf.Timestamp"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), type(value).__name__)


_NOT_CONVERTED: Final = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "null_type": "type conversion error from 'null_type' to 'bool'",
}


def explain_result(types: Any, value: Any) -> str:
    """Return upstream's error for an expression whose result is no boolean; ``types``: cel-python's."""
    name = name_type(types, value)
    why = _NOT_CONVERTED.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {why}"


def type_of(types: Any, named: dict[str, Callable[..., Any]]) -> Callable[[Any], Any]:
    """Return CEL's ``type`` function: it maps a value to the entry of ``named`` that represents its type.

    ``named``: functions by name, including those that represent types.
    """
    names = _type_names(types)
    optional = named["optional_type"]

    def kind(value: Any) -> Any:
        if value is None:
            return named["null_type"]
        if callable(value):
            return kind
        if type(value) is optional:
            return optional
        return next((named[name] for cls, name in names.items() if isinstance(value, cls)), type(value))

    return kind


def _convert_numbers(types: Any, a: Any, b: Any) -> tuple[float, float]:
    """Convert two numbers to doubles if either is a double, else to integers."""
    convert = float if isinstance(a, types.DoubleType) or isinstance(b, types.DoubleType) else int
    return convert(a), convert(b)


_Address = IPv4Address | IPv6Address
_Prefix = IPv4Interface | IPv6Interface

_BROADCAST: Final = IPv4Address("255.255.255.255")
_LINK_LOCAL_MULTICAST_4: Final = ip_network("224.0.0.0/24")
_LINK_LOCAL_MULTICAST_6: Final = [IPv6Network(f"ff{flags:x}2::/16") for flags in range(16)]
_LENGTH: Final = re.compile("0|[1-9][0-9]{0,2}")
_FAILED: Final = "parse error during conversion from string"
_MAPPED: Final = 'IPv4-mapped IPv6 address "{}" is not allowed'


def address(text: str) -> _Address:
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


def prefix(text: str) -> _Prefix:
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
                raise TypeError("no such overload")
            return boolean(ask(value))

        return answer

    def ip(value: Any) -> Any:
        if isinstance(value, str):
            return address(value)
        return value.ip if isinstance(value, _Prefix) else value

    def contains_ip(outer: Any, value: Any) -> Any:
        try:
            return boolean(ip(value) in outer.network)
        except ValueError:  # upstream's error for an invalid text in this place
            raise TypeError("no such overload") from None

    def contains_cidr(outer: Any, value: Any) -> Any:
        inner = prefix(str(value)) if isinstance(value, str) else value
        narrower = outer.version == inner.version and outer.network.prefixlen <= inner.network.prefixlen
        return boolean(narrower and inner.ip in outer.network)

    def string(value: Any) -> Any:
        if isinstance(value, boolean):
            return text(str(bool(value)).lower())
        return text(str(value)) if isinstance(value, _Address) else text(value)

    return {
        "ip": ip,
        "isIP": readable(address),
        "ip__isCanonical": lambda given: boolean(str(address(str(given))) == str(given)),
        "family": lambda given: integer(given.version),
        "isUnspecified": of_address(lambda given: given.is_unspecified),
        "isLoopback": of_address(lambda given: given.is_loopback),
        "isLinkLocalUnicast": of_address(lambda given: given.is_link_local),
        "isLinkLocalMulticast": of_address(_is_link_local_multicast),
        "isGlobalUnicast": of_address(_is_global_unicast),
        "cidr": lambda given: prefix(str(given)),
        "isCIDR": readable(prefix),
        "containsIP": contains_ip,
        "containsCIDR": contains_cidr,
        "masked": lambda given: ip_interface(given.network.with_prefixlen),
        "prefixLength": lambda given: integer(given.network.prefixlen),
        "string": string,
    }


def _is_link_local_multicast(value: _Address) -> bool:
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


def functions(types: Any) -> dict[str, Callable[..., Any]]:
    """Return all functions by name, with two underscores for the dot of a namespace; ``types``: cel-python's."""
    parts = _numbers, _strings, _pairs, _optionals, network_functions
    result = {name: function for part in parts for name, function in part(types).items()}
    return result | _lists(types, result)


def _numbers(types: Any) -> dict[str, Callable[..., Any]]:
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

    def checked(name: str, function: Callable[..., Any], *overloads: tuple[type, ...]) -> Callable[..., Any]:
        """Wrap a function to raise upstream's error for arguments that no overload takes."""

        def answer(*args: Any) -> Any:
            if any(len(overload) == len(args) and all(map(isinstance, args, overload)) for overload in overloads):
                return function(*args)
            # As a ValueError, since cel-python replaces the text of a TypeError.
            raise ValueError(f"{_NO_OVERLOAD}: {name}({', '.join(name_type(types, each) for each in args)})")

        return answer

    of_quantity, of_version = (Quantity,), (Version,)
    two_quantities, two_versions, with_number = (Quantity, Quantity), (Version, Version), (Quantity, types.IntType)
    typed: dict[str, tuple[Callable[..., Any], tuple[tuple[type, ...], ...]]] = {
        "add": (lambda a, b: a + (b if isinstance(b, Quantity) else quantity(b)), (two_quantities, with_number)),
        "sub": (lambda a, b: a - (b if isinstance(b, Quantity) else quantity(b)), (two_quantities, with_number)),
        "sign": (lambda a: integer(a.sign), (of_quantity,)),
        "isInteger": (lambda a: boolean(a.as_int64() is not None), (of_quantity,)),
        "asInteger": (as_integer, (of_quantity,)),
        "asApproximateFloat": (lambda a: types.DoubleType(a.approximate_float()), (of_quantity,)),
        "major": (lambda a: integer(a.key[0]), (of_version,)),
        "minor": (lambda a: integer(a.key[1]), (of_version,)),
        "patch": (lambda a: integer(a.key[2]), (of_version,)),
        "compareTo": (lambda a, b: integer((a > b) - (a < b)), (two_quantities, two_versions)),
        "isGreaterThan": (lambda a, b: boolean(a > b), (two_quantities, two_versions)),
        "isLessThan": (lambda a, b: boolean(a < b), (two_quantities, two_versions)),
    }
    return {name: checked(name, function, *overloads) for name, (function, overloads) in typed.items()} | {
        "quantity": quantity,
        "isQuantity": readable(quantity),
        "semver": version,
        "isSemver": readable(version),
    }


def _strings(types: Any) -> dict[str, Callable[..., Any]]:
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
        "trim": lambda a: text(str(a).strip()),
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


_ESCAPES: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)


def _lists(types: Any, others: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the functions on lists by name; ``others`` has functions on strings that may have the same name."""
    boolean = types.BoolType
    equal = equality(types, cast(type, others["optional_type"]))

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


def _pairs(types: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions that macros of two variables are rewritten to; see :mod:`~kscale.scheduling.devices.cel`."""
    many, mapping = types.ListType, types.MapType

    def pairs(of: Any) -> Any:
        if isinstance(of, list):
            return many([many([types.IntType(i), item]) for i, item in enumerate(of)])
        if not isinstance(of, dict):
            raise TypeError("no such overload")
        return many([many([key, value]) for key, value in of.items()])

    def merged(maps: Any) -> Any:
        out = mapping()
        for each in maps:
            for key, value in each.items():
                if key in out:
                    raise ValueError(f"insert failed: key '{key}' already exists")
                out[key] = value
        return out

    return {
        "pairs__of": pairs,
        "pairs__map": lambda entries: mapping(dict(entries)),
        "pairs__merged": merged,
    }


def _optionals(types: Any) -> dict[str, Callable[..., Any]]:
    map_type: Any = types.MapType

    class Optional(map_type):  # type: ignore[misc]  # cel-python is not typed
        """An optional value. Its fields and items are optional, too. It is a map, because cel-python indexes only
        those.
        """

        def __init__(self, *value: Any) -> None:
            super().__init__()
            self.there = bool(value)
            self.value = value[0] if value else None

        def __getitem__(self, key: Any) -> Any:
            return item(self.value, key) if self.there else self

    def item(of: Any, key: Any) -> Any:
        """Return the optional value of ``of.?key`` or ``of[?key]``."""
        if isinstance(of, Optional):
            return of[key]
        if isinstance(of, list):
            index = int(key)
            return Optional(of[index]) if 0 <= index < len(of) else Optional()
        if not isinstance(of, dict):
            raise TypeError("no such overload")
        try:
            return Optional(of[key])
        except KeyError:
            return Optional()

    def value(of: Any) -> Any:
        if not of.there:
            raise ValueError("optional.none() dereference")
        return of.value

    def there(of: Any) -> bool:
        if not isinstance(of, Optional):
            raise TypeError("no such overload")
        return of.there

    return {
        "literal__list": lambda items: types.ListType([each.value for each in items if there(each)]),
        "literal__map": lambda entries: map_type({key: each.value for key, each in entries if there(each)}),
        "optional_type": Optional,
        "optional__of": Optional,
        "optional__none": Optional,
        "optional__ofNonZeroValue": lambda given: Optional(given) if given else Optional(),
        "optional__item": item,
        "hasValue": lambda of: types.BoolType(of.there),
        "value": value,
    }


def _ascii(value: str, change: Callable[[str], str]) -> str:
    return "".join(change(letter) if letter.isascii() else letter for letter in value)
