"""CEL selectors of devices as cel-go evaluates them (6.13): one function for each kind of expression.

Errors are values, as in cel-go: `||`, `&&`, macros and comparisons of lists may ignore them. Unknown syntax, functions
and texts raise a NotImplementedError (bytes, unsigned numbers, most library functions, invalid versions). Types are not
checked before an expression is evaluated: it is taken to compile.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reference.cel_parser import Tree, parse
from reference.resources import Quantity, quantity

NO_OVERLOAD = "no such overload"
NO_KEY = "no such key: "
MISSING_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) "
    "or guarding the check with has() for optional fields"
)

Variables = dict[str, Any]


class CelError(Exception):
    """A selector cannot be evaluated; the text is upstream's."""


@dataclass(frozen=True)
class Failure:
    """An error as a value."""

    text: str


@dataclass(frozen=True)
class OptionalValue:
    """A list of one value, or of none."""

    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class TypeValue:
    """A type as a value, such as the result of `type`."""

    name: str


class Version:
    """A semantic version. Build metadata is not compared."""

    def __init__(self, text: str) -> None:
        release, _, pre_release = text.partition("+")[0].partition("-")
        if not re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", release):
            raise NotImplementedError(f"version {text}")
        self.numbers = [*map(int, release.split("."))]
        self.key = (*self.numbers, not pre_release, [precedence(part) for part in pre_release.split(".")])


def precedence(identifier: str) -> tuple[bool, int, str]:
    """Return the sort key of a part of a pre-release: numbers go before words."""
    return (False, int(identifier), "") if identifier.isdigit() else (True, 0, identifier)


class Domains(dict[str, Any]):
    """Attributes or capacities by domain. An absent domain is empty."""

    def __missing__(self, domain: str) -> dict[str, Any]:
        return {}


class DeviceView(dict[str, Any]):
    """The variable `device`. Other fields do not compile."""

    def __missing__(self, field: str) -> Any:
        raise NotImplementedError(f"device.{field}")


# -- Expressions -------------------------------------------------------------------------------------------------------


def evaluate(tree: Tree, variables: Variables) -> Any:
    """Return the value of an expression, or a Failure."""
    kind, *parts = tree
    match kind:
        case "literal":
            return parts[0]
        case "name":
            return evaluate_name(parts[0], variables)
        case "choice":
            condition = evaluate(parts[0], variables)
            if not isinstance(condition, bool):
                return expect_boolean(condition)
            return evaluate(parts[1] if condition else parts[2], variables)
        case "macro":
            name, items, names, *bodies = parts
            return fold(name, evaluate(items, variables), names, bodies, variables)
        case "bind":
            name, value, body = parts
            return evaluate(body, {**variables, name: evaluate(value, variables)})
        case "operator" if parts[0] in ("_||_", "_&&_"):
            return join(parts[0], *(evaluate(each, variables) for each in parts[1:]))
        case "has":
            return has(*(evaluate(each, variables) for each in parts))
        case "or_value" | "opt_map":
            return evaluate_optional(kind, parts, variables)
        case "list":
            return build_list(parts, variables)
    operands = parts[1:] if kind in ("operator", "call") else parts
    if kind == "map":
        operands = [each for pair in parts for each in pair]
    values = [evaluate(each, variables) for each in operands]
    for value in values:
        if isinstance(value, Failure):
            return value
    match kind:
        case "map":
            if {type_of(key) for key in values[::2]} not in KEY_TYPES:
                raise NotImplementedError(f"keys {values[::2]}")
            return dict(zip(values[::2], values[1::2], strict=True))
        case "field" | "index":
            return select(*values)
        case "?field" | "?index":
            return select_optional(*values)
        case "operator":
            return operate(parts[0], *values)
        case "call":
            return call(parts[0], *values)
    raise NotImplementedError(kind)


def evaluate_name(name: str, variables: Variables) -> Any:
    if name in variables:
        return variables[name]
    if name in ("bool", "int", "double", "string", "list", "map"):
        return TypeValue(name)
    raise NotImplementedError(name)


def evaluate_optional(kind: str, parts: list[Any], variables: Variables) -> Any:
    """Return the value of `a.orValue(b)` or `a.optMap(name, body)`; the second part is evaluated only if needed."""
    optional = evaluate(parts[0], variables)
    if isinstance(optional, Failure):
        return optional
    if not isinstance(optional, OptionalValue):
        return Failure(NO_OVERLOAD if kind == "or_value" else f"{NO_OVERLOAD}: hasValue({type_of(optional)})")
    if kind == "or_value":
        return optional.values[0] if optional.values else evaluate(parts[1], variables)
    if not optional.values:
        return optional
    result = evaluate(parts[2], {**variables, parts[1]: optional.values[0]})
    return result if isinstance(result, Failure) else OptionalValue((result,))


def build_list(parts: list[Any], variables: Variables) -> Any:
    items: list[Any] = []
    for kind, *rest in parts:
        value = evaluate(rest[0] if kind == "optional" else (kind, *rest), variables)
        if isinstance(value, Failure):
            return value
        if kind != "optional":
            items.append(value)
        elif isinstance(value, OptionalValue):
            items += value.values
        else:
            raise NotImplementedError(f"optional element {value}")
    return items


def expect_boolean(value: Any) -> Failure:
    return value if isinstance(value, Failure) else Failure(NO_OVERLOAD)


def join(operator: str, *sides: Any) -> Any:
    """Return the result of `||` or `&&`. One side may decide; otherwise the first that is no boolean is the error."""
    decisive = operator == "_||_"
    if any(side is decisive for side in sides):
        return decisive
    for side in sides:
        if not isinstance(side, bool):
            return expect_boolean(side)
    return not decisive


def fold(name: str, items: Any, names: list[str], bodies: list[Tree], variables: Variables) -> Any:
    """Run the loop that cel-go expands a macro to. What it accumulates may be a Failure and is still updated."""
    if isinstance(items, Failure):
        return items
    if not isinstance(items, list | dict):
        return Failure(f"got '{GO_TYPES[type_of(items)]}', expected iterable type")
    if isinstance(items, dict) and len(items) > 1:
        raise NotImplementedError(f"{name} over a map of several entries, whose order is random")
    pairs = list(enumerate(items)) if isinstance(items, list) else list(items.items())
    accumulated: Any = {"all": True, "exists": False, "exists_one": 0}.get(name, [])
    for pair in pairs:
        values = pair if len(names) == 2 else [pair[isinstance(items, list)]]
        scope = {**variables, **dict(zip(names, values, strict=True))}
        value = evaluate(bodies[0], scope)
        if name in ("all", "exists"):
            accumulated = join("_&&_" if name == "all" else "_||_", accumulated, value)
            if accumulated is (name == "exists"):
                break
        elif name == "map":
            accumulated = add(accumulated, [value], value)
        elif not isinstance(value, bool):
            accumulated = expect_boolean(value)
        elif value:
            item = values[0] if name == "filter" else evaluate(bodies[1], scope) if name == "filtered_map" else None
            accumulated = add(accumulated, 1 if name == "exists_one" else [item], item)
    return accumulated == 1 if name == "exists_one" and not isinstance(accumulated, Failure) else accumulated


def add(accumulated: Any, more: Any, value: Any) -> Any:
    """Return what was accumulated and `more`, or the older error of the two operands."""
    if isinstance(accumulated, Failure):
        return accumulated
    return value if isinstance(value, Failure) else accumulated + more


# -- Types, elements, comparisons --------------------------------------------------------------------------------------

NUMBERS = ("int", "double")
QUANTITY, SEMVER, OPTIONAL = "kubernetes.Quantity", "kubernetes.Semver", "optional_type"
IP, CIDR = "net.IP", "net.CIDR"
GO_TYPES = {
    "bool": "types.Bool", "int": "types.Int", "double": "types.Double", "string": "types.String",
    "null_type": "types.Null", "type": "*types.Type", QUANTITY: "cel.Quantity", SEMVER: "cel.Semver",
    OPTIONAL: "*types.Optional", IP: "cel.IP", CIDR: "cel.CIDR",
}  # fmt: skip
TYPES = {
    bool: "bool", int: "int", float: "double", str: "string", type(None): "null_type", TypeValue: "type",
    list: "list", dict: "map", Domains: "map", Quantity: QUANTITY, Version: SEMVER, OptionalValue: OPTIONAL,
    ipaddress.IPv4Address: IP, ipaddress.IPv6Address: IP, ipaddress.IPv4Interface: CIDR, ipaddress.IPv6Interface: CIDR,
}  # fmt: skip
KEY_TYPES = [set(), {"bool"}, {"int"}, {"string"}]
OPAQUE = (QUANTITY, SEMVER, IP, CIDR)


def type_of(value: Any) -> str:
    return TYPES[type(value)]


def format_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else f"{key:g}" if isinstance(key, float) else str(key)


def look_up(value: Any, key: Any) -> tuple[bool, Any]:
    """Return whether the element exists, and the element or the Failure of its selection."""
    if isinstance(value, DeviceView):
        return True, value[key]
    if type_of(key) not in ("string", "bool", *NUMBERS):
        return False, Failure(f"invalid qualifier type: {GO_TYPES.get(type_of(key), type_of(key))}")
    if isinstance(value, list):
        if type_of(key) not in NUMBERS:
            return False, Failure(f"unsupported index type '{type_of(key)}' in list")
        if key != int(key):
            return False, Failure(f"unsupported index value {format_key(key)} in list")
        if not 0 <= key < len(value):
            return False, Failure(f"index out of bounds: {int(key)}")
        return True, value[int(key)]
    if isinstance(value, Domains):
        return True, value[key]
    if isinstance(value, dict):
        for each in value:
            if equal(each, key) is True:
                return True, value[each]
    return False, Failure(f"{NO_KEY}{format_key(key)}")


def select(value: Any, key: Any) -> Any:
    return select_optional(value, key) if isinstance(value, OptionalValue) else look_up(value, key)[1]


def select_optional(value: Any, key: Any) -> Any:
    """Return the OptionalValue of `value.?key`. Only a key of the wrong type is a Failure."""
    if isinstance(value, OptionalValue):
        return select_optional(value.values[0], key) if value.values else value
    exists, result = look_up(value, key)
    if exists:
        return OptionalValue((result,))
    return OptionalValue() if result.text.startswith((NO_KEY, "index out of bounds")) else result


def has(value: Any, key: Any) -> Any:
    if isinstance(value, Failure):
        return value
    result = select_optional(value, key)
    return bool(result.values) if isinstance(result, OptionalValue) else result


def equal(a: Any, b: Any) -> Any:
    """Compare numbers by value. Other types differ, except that opaque values only compare with their own type."""
    if type_of(a) in NUMBERS and type_of(b) in NUMBERS:
        return bool(a == b)
    if type_of(a) != type_of(b):
        return Failure(NO_OVERLOAD) if type_of(a) in OPAQUE and b is not None else False
    if isinstance(a, Quantity):
        return bool(a.nano() == b.nano())
    if isinstance(a, Version):
        return bool(a.key == b.key)
    if isinstance(a, OptionalValue):
        a, b = list(a.values), list(b.values)
    if isinstance(a, list):
        return len(a) == len(b) and all(equal(x, y) is not False for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        pairs = [(value, look_up(b, key)) for key, value in a.items()]
        return len(a) == len(b) and all(exists and equal(value, other) is not False for value, (exists, other) in pairs)
    return bool(a == b)


# -- Operators ---------------------------------------------------------------------------------------------------------

CAPABLE = {
    "_+_": ("int", "double", "string", "list"), "_-_": NUMBERS, "_*_": NUMBERS, "_/_": NUMBERS, "_%_": ("int",),
    "-_": (*NUMBERS, "bool"), "_<_": ("bool", "string", *NUMBERS), "size": ("string", "list", "map"),
    "matches": ("string",),
}  # fmt: skip
"""Types of the first operand that have the trait of an operator. A string without it is asked to receive the call."""
CAPABLE |= dict.fromkeys(("_<=_", "_>_", "_>=_"), CAPABLE["_<_"])
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": lambda a, b: bool(a < b),
    "_<=_": lambda a, b: bool(a <= b),
    "_>_": lambda a, b: bool(a > b),
    "_>=_": lambda a, b: bool(a >= b),
}


def operate(operator: str, *operands: Any) -> Any:
    first, types = operands[0], [type_of(each) for each in operands]
    if operator in ("_==_", "_!=_"):
        verdict = equal(*operands)
        return verdict if operator == "_==_" else verdict is not True
    if operator == "_in_":
        if not isinstance(operands[1], list | dict):
            return Failure(NO_OVERLOAD)
        if isinstance(operands[1], dict) and types[0] in OPAQUE:
            raise NotImplementedError(f"{types[0]} in a map")
        return any(equal(first, each) is True for each in operands[1])
    if operator == "!_":
        return not first if isinstance(first, bool) else Failure(NO_OVERLOAD)
    if types[0] not in CAPABLE[operator]:
        return lack_trait(first, operator)
    if operator == "-_":
        return Failure(NO_OVERLOAD) if isinstance(first, bool) else check_overflow(-first)
    if (operator in ORDERS and {*types} <= {*NUMBERS}) or types[0] == types[1]:
        return ORDERS[operator](*operands) if operator in ORDERS else compute(operator, *operands)
    return Failure(NO_OVERLOAD)


def lack_trait(value: Any, function: str) -> Failure:
    return Failure(NO_OVERLOAD if isinstance(value, str) else f"{NO_OVERLOAD}: {function}")


def compute(operator: str, a: Any, b: Any) -> Any:
    match operator:
        case "_+_":
            return check_overflow(a + b)
        case "_-_":
            return check_overflow(a - b)
        case "_*_":
            return check_overflow(a * b)
    if isinstance(a, float):
        return a / b if b else a * float("inf")
    if b == 0:
        return Failure("division by zero" if operator == "_/_" else "modulus by zero")
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return check_overflow(quotient) if operator == "_/_" else a - quotient * b


def check_overflow(value: Any) -> Any:
    overflows = isinstance(value, int) and not -(2**63) <= value < 2**63
    return Failure("integer overflow") if overflows else value


# -- Functions ---------------------------------------------------------------------------------------------------------

TRUE, FALSE = ("1", "t", "T", "true", "True", "TRUE"), ("0", "f", "F", "false", "False", "FALSE")


def convert(name: str, value: Any) -> Any:
    """Return the value of `int(value)`, `double(value)` or `bool(value)`."""
    failure = Failure(f"type conversion error from 'string' to '{name}'")
    if not isinstance(value, str):
        return check_overflow({"int": int, "double": float, "bool": bool}[name](value))
    if name == "bool":
        return value in TRUE if value in TRUE + FALSE else failure
    if re.fullmatch("[+-]?[0-9]+", value):
        if name == "double":
            return float(value)
        return int(value) if -(2**63) <= int(value) < 2**63 else failure
    if name == "double" and re.search("[0-9]|inf|nan", value.lower()):
        raise NotImplementedError(f"double({value!r})")
    return failure


def matches(text: str, pattern: str) -> bool:
    if "\n" in text or not re.fullmatch(r"[\w^$.*+?|()\[\]-]*", pattern):
        raise NotImplementedError(f"{pattern!r} in {text!r}")
    return re.search(pattern, text) is not None


def substring(text: str, start: int, end: int | None = None) -> Any:
    stop = len(text) if end is None else end
    if end is not None and start > end:
        return Failure(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, stop):
        if not 0 <= index <= len(text):
            return Failure(f"index out of range: {index}")
    return text[start:stop]


def split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else [*text]


def join_texts(items: list[Any], *separator: str) -> Any:
    are_texts = [isinstance(item, str) for item in items]
    if all(are_texts):
        return "".join(separator).join(items)
    if any(are_texts):
        raise NotImplementedError(f"join of {items}")
    return Failure(f"{NO_OVERLOAD}: join({', '.join(['list', *(type_of(each) for each in separator)])})")


def trim(text: str) -> str:
    if not text.isascii() or re.search("[\x1c-\x1f]", text):
        raise NotImplementedError(f"trim of {text!r}")
    return text.strip()


def upper_ascii(text: str) -> str:
    return "".join(letter.upper() if letter.isascii() else letter for letter in text)


def lower_ascii(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def add_quantities(a: Quantity, b: Any) -> Quantity:
    return a + (b if isinstance(b, Quantity) else Quantity(b, 0, False))


def as_integer(amount: Quantity) -> Any:
    number = amount.as_int64()
    return Failure("cannot convert value to integer") if number is None else number


def normal_version(text: str) -> Version:
    """Read a version that may begin with `v` and may lack numbers."""
    numbers = text.removeprefix("v").split(".")
    if not all(re.fullmatch("[0-9]+", each) for each in numbers) or len(numbers) > 3:
        raise NotImplementedError(f"version {text}")
    return Version(".".join(str(int(each)) for each in [*numbers, "0", "0"][:3]))


def semver(text: str, normalize: bool = False) -> Version:
    return normal_version(text) if normalize else Version(text)


def parse_address(text: str) -> Any:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text):
        raise NotImplementedError(f"address {text}")
    return ipaddress.ip_address(text)


def parse_cidr(text: str) -> Any:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+){3}/[0-9]+", text):
        raise NotImplementedError(f"network {text}")
    return ipaddress.ip_interface(text)


def contains_ip(network: Any, address: Any) -> bool:
    return (parse_address(address) if isinstance(address, str) else address) in network.network


def compare(a: Any, b: Any) -> int:
    x, y = (a.nano(), b.nano()) if isinstance(a, Quantity) else (a.key, b.key)
    return int(x > y) - int(x < y)


ORDERED = [f"{QUANTITY} {QUANTITY}", f"{SEMVER} {SEMVER}"]
DISPATCHED: dict[str, tuple[list[str], Callable[..., Any]]] = {
    "int": (["int", "double", "string"], lambda value: convert("int", value)),
    "double": (["double", "int", "string"], lambda value: convert("double", value)),
    "bool": (["bool", "string"], lambda value: convert("bool", value)),
    "string": (["string", "int", "bool"], format_key),
    "trim": (["string"], trim),
    "upperAscii": (["string"], upper_ascii),
    "lowerAscii": (["string"], lower_ascii),
    "split": (["string string"], split),
    "substring": (["string int", "string int int"], substring),
    "indexOf": (["string string"], lambda text, part: text.find(part)),
    "join": (["list", "list string"], join_texts),
    "quantity": (["string"], quantity),
    "add": ([f"{QUANTITY} {QUANTITY}", f"{QUANTITY} int"], add_quantities),
    "asInteger": ([QUANTITY], as_integer),
    "isInteger": ([QUANTITY], lambda amount: amount.as_int64() is not None),
    "semver": (["string", "string bool"], semver),
    "major": ([SEMVER], lambda version: version.numbers[0]),
    "minor": ([SEMVER], lambda version: version.numbers[1]),
    "patch": ([SEMVER], lambda version: version.numbers[2]),
    "compareTo": (ORDERED, compare),
    "isGreaterThan": (ORDERED, lambda a, b: compare(a, b) > 0),
    "isLessThan": (ORDERED, lambda a, b: compare(a, b) < 0),
    "ip": (["string"], parse_address),
    "family": ([IP], lambda address: address.version),
    "cidr": (["string"], parse_cidr),
    "containsIP": ([f"{CIDR} string", f"{CIDR} {IP}"], contains_ip),
    "hasValue": ([OPTIONAL], lambda optional: bool(optional.values)),
    "value": (
        [OPTIONAL],
        lambda optional: optional.values[0] if optional.values else Failure("optional.none() dereference"),
    ),
}
"""Functions that cel-go dispatches by the types of all arguments: those types, and the function."""
UNKNOWN_OVERLOADS = (
    "string double", f"string {IP}", f"string {CIDR}", "split string string int", "indexOf string string int",
    f"ip {CIDR}",
)  # fmt: skip
"""Overloads that upstream has and the reference lacks. ``indexOf`` of lists is another."""
OF_STRINGS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
}


def call(name: str, *values: Any) -> Any:
    types = [type_of(each) for each in values]
    if name == "type":
        return TypeValue(types[0])
    if name in OF_STRINGS:
        return OF_STRINGS[name](*values) if {*types} == {"string"} else Failure(NO_OVERLOAD)
    if name in ("size", "matches"):
        if types[0] not in CAPABLE[name]:
            return lack_trait(values[0], name)
        if name == "size":
            return len(values[0])
        return matches(*values) if types[1] == "string" else Failure(NO_OVERLOAD)
    if (
        name not in DISPATCHED
        or " ".join([name, *types]) in UNKNOWN_OVERLOADS
        or (name, types[0]) == ("indexOf", "list")
    ):
        raise NotImplementedError(f"{name}({types})")
    overloads, function = DISPATCHED[name]
    if " ".join(types) not in overloads:
        return Failure(f"{NO_OVERLOAD}: {name}({', '.join(types)})")
    return function(*values)


# -- Devices -----------------------------------------------------------------------------------------------------------

NOT_CONVERTED = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    SEMVER: "type conversion error from 'Semver' to 'bool'",
}


def selects(expression: str, driver: str, device: dict[str, Any]) -> bool:
    """Return whether the expression is true for a device. Raises CelError."""

    def by_domain(entries: dict[str, Any], convert_entry: Callable[[dict[str, Any]], Any]) -> Domains:
        domains = Domains()
        for key, raw in entries.items():
            domain, _, name = key.rpartition("/")
            domains.setdefault(domain or driver, {})[name] = convert_entry(raw)
        return domains

    def attribute(raw: dict[str, Any]) -> Any:
        kind, value = next(iter(raw.items()))
        return Version(value) if kind == "version" else value

    view = DeviceView(
        driver=driver,
        attributes=by_domain(device.get("attributes") or {}, attribute),
        capacity=by_domain(device.get("capacity") or {}, lambda raw: quantity(raw["value"])),
        allowMultipleAllocations=bool(device.get("allowMultipleAllocations")),
    )
    value = evaluate(parse(expression), {"device": view})
    if isinstance(value, Failure):
        raise CelError(value.text + (MISSING_HINT if value.text.startswith(NO_KEY) else ""))
    if not isinstance(value, bool):
        if type_of(value) not in NOT_CONVERTED:
            raise NotImplementedError(f"{expression} is {value}")
        why = NOT_CONVERTED[type_of(value)]
        raise CelError(f"CEL result of type {type_of(value)} could not be converted to bool: {why}")
    return value
