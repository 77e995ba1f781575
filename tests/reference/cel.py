"""CEL selectors of devices as cel-go evaluates them (6.13): a parser of its own, and one function per kind of expression.

Errors are values, as in cel-go: `||`, `&&`, macros and comparisons of lists may ignore them. What the reference does not
read (bytes, unsigned numbers, optional values, macros of two variables, most library functions) is a NotImplementedError.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from reference.resources import Quantity, quantity

NO_OVERLOAD = "no such overload"
MISSING_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
)
TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?)"""
    r"""|(?P<int>\d+)(?![\w.])|(?P<name>[A-Za-z_]\w*)|(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}]))"""
)
LEVELS = [["||"], ["&&"], ["==", "!=", "<", "<=", ">", ">=", "in"], ["+", "-"], ["*", "/", "%"]]
MACROS = ("all", "exists", "exists_one", "map", "filter")

Tree = tuple[Any, ...]
Variables = dict[str, Any]


class CelError(Exception):
    """A selector cannot be evaluated; the text is upstream's."""


@dataclass(frozen=True)
class Failure:
    """An error as a value."""

    text: str


class Version:
    """A semantic version; what is built from is not compared."""

    def __init__(self, text: str) -> None:
        numbers, _, release = text.partition("+")[0].partition("-")
        self.key = (*map(int, numbers.split(".")), not release, [precedence(part) for part in release.split(".")])


def precedence(identifier: str) -> tuple[bool, int, str]:
    """Numbers go before words."""
    return (False, int(identifier), "") if identifier.isdigit() else (True, 0, identifier)


class Domains(dict[str, Any]):
    """Attributes or capacities by domain; a domain that is not there has none."""

    def __missing__(self, domain: str) -> dict[str, Any]:
        return {}


# -- Reading -----------------------------------------------------------------------------------------------------------


class Parser:
    def __init__(self, text: str) -> None:
        self.tokens = list(tokens_of(text))

    def peek(self) -> str:
        return self.tokens[0][1] if self.tokens and self.tokens[0][0] in ("mark", "name") else ""

    def take(self, *marks: str) -> str:
        """The next token if it is one of these, or nothing."""
        return self.tokens.pop(0)[1] if self.peek() in marks else ""

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise NotImplementedError(f"{mark} expected before {self.tokens}")

    def expression(self) -> Tree:
        condition = self.binary(0)
        if not self.take("?"):
            return condition
        yes = self.binary(0)
        self.expect(":")
        return "choice", condition, yes, self.expression()

    def binary(self, level: int) -> Tree:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while mark := self.take(*LEVELS[level]):
            left = "operator", f"_{mark}_", left, self.binary(level + 1)
        return left

    def unary(self) -> Tree:
        mark = self.take("-", "!")
        return ("operator", f"{mark}_", self.unary()) if mark else self.member()

    def member(self) -> Tree:
        tree = self.primary()
        while mark := self.take(".", "["):
            if mark == "[":
                tree = "element", tree, self.expression()
                self.expect("]")
                continue
            name = self.tokens.pop(0)[1]
            if not self.take("("):
                tree = "element", tree, ("literal", name)
            elif name in MACROS:
                variable, *body = self.listed(")")
                if len(body) != 1:
                    raise NotImplementedError(f"{name} of {len(body)} parts")
                tree = "macro", name, tree, variable, *body
            elif (name, tree) == ("bind", ("name", "cel")):
                tree = "bind", *self.listed(")")
            else:
                tree = "call", name, tree, *self.listed(")")
        return tree

    def primary(self) -> Tree:
        if self.take("("):
            tree = self.expression()
            self.expect(")")
            return tree
        if self.take("["):
            return "list", *self.listed("]")
        if self.take("{"):
            return "map", *self.listed("}", pairs=True)
        kind, text = self.tokens.pop(0)
        if kind == "name":
            if text in ("true", "false", "null"):
                return "literal", {"true": True, "false": False, "null": None}[text]
            return ("call", text, *self.listed(")")) if self.take("(") else ("name", text)
        if kind == "mark":
            raise NotImplementedError(f"{text} begins no expression")
        return "literal", {"string": ast.literal_eval, "int": int, "double": float}[kind](text)

    def listed(self, end: str, *, pairs: bool = False) -> list[Tree]:
        parts = []
        while not self.take(end):
            part = self.expression()
            if pairs:
                self.expect(":")
                part = part, self.expression()
            parts.append(part)
            if self.peek() != end:
                self.expect(",")
        return parts


def tokens_of(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise NotImplementedError(text[position:])
        yield match.lastgroup, match[match.lastgroup]
        position = match.end()


@cache
def parse(text: str) -> Tree:
    parser = Parser(text)
    tree = parser.expression()
    if parser.tokens:
        raise NotImplementedError(f"{parser.tokens} follows the expression")
    return tree


# -- Evaluating --------------------------------------------------------------------------------------------------------


def evaluate(tree: Tree, variables: Variables) -> Any:
    """The value of an expression, or a Failure."""
    kind, *parts = tree
    match kind:
        case "literal":
            return parts[0]
        case "name":
            if parts[0] not in variables:
                raise NotImplementedError(parts[0])
            return variables[parts[0]]
        case "choice":
            condition = evaluate(parts[0], variables)
            if not isinstance(condition, bool):
                return no_boolean(condition)
            return evaluate(parts[1] if condition else parts[2], variables)
        case "macro":
            name, items, variable, body = parts
            return fold(name, evaluate(items, variables), variable[1], body, variables)
        case "bind":
            (_, name), value, body = parts
            return evaluate(body, {**variables, name: evaluate(value, variables)})
        case "operator" if parts[0] in ("_||_", "_&&_"):
            return join(parts[0], *(evaluate(each, variables) for each in parts[1:]))
        case "call" if parts[0] == "has":
            _, of, key = parts[1]
            return is_there(evaluate(of, variables), evaluate(key, variables))
    operands = parts[1:] if kind in ("operator", "call") else parts
    if kind == "map":
        operands = [each for pair in parts for each in pair]
    values = [evaluate(each, variables) for each in operands]
    for value in values:
        if isinstance(value, Failure):
            return value
    match kind:
        case "list":
            return values
        case "map":
            return dict(zip(values[::2], values[1::2], strict=True))
        case "element":
            return element(*values)
        case "operator":
            return operate(parts[0], *values)
        case _:
            return call(parts[0], *values)


def no_boolean(value: Any) -> Failure:
    return value if isinstance(value, Failure) else Failure(NO_OVERLOAD)


def join(operator: str, *sides: Any) -> Any:
    """One side may decide; otherwise the first that is no boolean is the error."""
    decisive = operator == "_||_"
    if any(side is decisive for side in sides):
        return decisive
    for side in sides:
        if not isinstance(side, bool):
            return no_boolean(side)
    return not decisive


def fold(name: str, items: Any, variable: str, body: Tree, variables: Variables) -> Any:
    """The loop that cel-go makes of a macro: every element changes what was accumulated, which may be a Failure."""
    if isinstance(items, Failure):
        return items
    if not isinstance(items, list | dict):
        return Failure(f"got '{GO_TYPES[type_of(items)]}', expected iterable type")
    accumulated: Any = {"all": True, "exists": False, "exists_one": 0, "map": [], "filter": []}[name]
    for item in items:
        value = evaluate(body, {**variables, variable: item})
        if name in ("all", "exists"):
            if accumulated is (name == "exists"):
                break
            accumulated = join("_&&_" if name == "all" else "_||_", accumulated, value)
        elif name == "map":
            accumulated = add(accumulated, [value], value)
        elif not isinstance(value, bool):
            accumulated = no_boolean(value)
        elif value:
            accumulated = add(accumulated, 1 if name == "exists_one" else [item], item)
    return accumulated == 1 if name == "exists_one" and not isinstance(accumulated, Failure) else accumulated


def add(accumulated: Any, more: Any, value: Any) -> Any:
    """What was accumulated and one more; the older error is the one that counts."""
    if isinstance(accumulated, Failure):
        return accumulated
    return value if isinstance(value, Failure) else accumulated + more


# -- Types, elements, comparisons --------------------------------------------------------------------------------------

NUMBERS = ("int", "double")
GO_TYPES = {
    "bool": "types.Bool", "int": "types.Int", "double": "types.Double", "string": "types.String",
    "null_type": "types.Null", "kubernetes.Quantity": "cel.Quantity", "kubernetes.Semver": "cel.Semver",
}  # fmt: skip


def type_of(value: Any) -> str:
    names = {
        bool: "bool", int: "int", float: "double", str: "string", list: "list", dict: "map", Domains: "map",
        Quantity: "kubernetes.Quantity", Version: "kubernetes.Semver", type(None): "null_type",
    }  # fmt: skip
    return names[type(value)]


def shown(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else f"{key:g}" if isinstance(key, float) else str(key)


def look_up(value: Any, key: Any) -> tuple[bool, Any]:
    """(is it there, the element); without it what a selection of it fails with."""
    if type_of(key) not in ("string", "bool", *NUMBERS):
        return False, Failure(f"invalid qualifier type: {GO_TYPES.get(type_of(key), type_of(key))}")
    if isinstance(value, list):
        if type_of(key) not in NUMBERS:
            return False, Failure(f"unsupported index type '{type_of(key)}' in list")
        if key != int(key):
            return False, Failure(f"unsupported index value {shown(key)} in list")
        if not 0 <= key < len(value):
            return False, Failure(f"index out of bounds: {int(key)}")
        return True, value[int(key)]
    if isinstance(value, Domains):
        return True, value[key]
    if isinstance(value, dict):
        for each in value:
            if equal(each, key) is True:
                return True, value[each]
    return False, Failure(f"no such key: {shown(key)}")


def element(value: Any, key: Any) -> Any:
    return look_up(value, key)[1]


def is_there(value: Any, key: Any) -> Any:
    if isinstance(value, Failure):
        return value
    there, result = look_up(value, key)
    failed = isinstance(value, list) and not result.text.startswith("index out of bounds") if not there else False
    return result if failed else there


def equal(a: Any, b: Any) -> Any:
    """Numbers by value; other types differ, except that quantities and versions only compare with their like."""
    if type_of(a) in NUMBERS and type_of(b) in NUMBERS:
        return bool(a == b)
    if type_of(a) != type_of(b):
        return Failure(NO_OVERLOAD) if isinstance(a, Quantity | Version) and b is not None else False
    if isinstance(a, Quantity):
        return bool(a.nano() == b.nano())
    if isinstance(a, Version):
        return bool(a.key == b.key)
    if isinstance(a, list):
        return len(a) == len(b) and all(equal(x, y) is not False for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        pairs = [(value, look_up(b, key)) for key, value in a.items()]
        return len(a) == len(b) and all(there and equal(value, other) is not False for value, (there, other) in pairs)
    return bool(a == b)


# -- Operators ---------------------------------------------------------------------------------------------------------

# What the type of the left operand must be able to do. A string is asked for the rest itself, and has nothing.
ABLE = {
    "_+_": ("int", "double", "string", "list"), "_-_": NUMBERS, "_*_": NUMBERS, "_/_": NUMBERS, "_%_": ("int",),
    "-_": (*NUMBERS, "bool"), "_<_": ("bool", "string", *NUMBERS), "size": ("string", "list", "map"),
    "matches": ("string",),
}  # fmt: skip
ABLE |= dict.fromkeys(("_<=_", "_>_", "_>=_"), ABLE["_<_"])


def operate(operator: str, *operands: Any) -> Any:
    first, types = operands[0], [type_of(each) for each in operands]
    if operator in ("_==_", "_!=_"):
        verdict = equal(*operands)
        return verdict if operator == "_==_" else verdict is not True
    if operator == "_in_":
        if not isinstance(operands[1], list | dict):
            return Failure(NO_OVERLOAD)
        return any(equal(first, each) is True for each in operands[1])
    if operator == "!_":
        return not first if isinstance(first, bool) else Failure(NO_OVERLOAD)
    if types[0] not in ABLE[operator]:
        return unable(first, operator)
    if operator == "-_":
        return Failure(NO_OVERLOAD) if isinstance(first, bool) else whole(-first)
    if operator in ORDERS and {*types} <= {*NUMBERS} or types[0] == types[1]:
        return ORDERS[operator](*operands) if operator in ORDERS else compute(operator, *operands)
    return Failure(NO_OVERLOAD)


def unable(value: Any, function: str) -> Failure:
    return Failure(NO_OVERLOAD if isinstance(value, str) else f"{NO_OVERLOAD}: {function}")


ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": lambda a, b: bool(a < b),
    "_<=_": lambda a, b: bool(a <= b),
    "_>_": lambda a, b: bool(a > b),
    "_>=_": lambda a, b: bool(a >= b),
}


def compute(operator: str, a: Any, b: Any) -> Any:
    match operator:
        case "_+_":
            return whole(a + b)
        case "_-_":
            return whole(a - b)
        case "_*_":
            return whole(a * b)
    if isinstance(a, float):
        return a / b if b else a * float("inf")
    if b == 0:
        return Failure("division by zero" if operator == "_/_" else "modulus by zero")
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return whole(quotient) if operator == "_/_" else a - quotient * b


def whole(value: Any) -> Any:
    overflows = isinstance(value, int) and not -(2**63) <= value < 2**63
    return Failure("integer overflow") if overflows else value


# -- Functions ---------------------------------------------------------------------------------------------------------


def read_int(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch("[+-]?[0-9]+", value):
        raise ValueError(value)
    return whole(int(value))


def read_bool(value: Any) -> bool:
    texts = {"1": True, "t": True, "T": True, "true": True, "True": True, "TRUE": True}
    texts |= {"0": False, "f": False, "F": False, "false": False, "False": False, "FALSE": False}
    if value not in texts and not isinstance(value, bool):
        raise ValueError(value)
    return value if isinstance(value, bool) else texts[value]


def compared(a: Any, b: Any) -> int:
    x, y = (a.nano(), b.nano()) if isinstance(a, Quantity) else (a.key, b.key)
    return int(x > y) - int(x < y)


ORDERED = ["kubernetes.Quantity kubernetes.Quantity", "kubernetes.Semver kubernetes.Semver"]
# Functions that find an overload by the types of all arguments, and those types.
DISPATCHED: dict[str, tuple[list[str], Callable[..., Any]]] = {
    "int": (["int", "double", "string"], read_int),
    "double": (["double", "int", "string"], float),
    "bool": (["bool", "string"], read_bool),
    "string": (["string", "int", "bool"], shown),
    "split": (["string string"], lambda text, mark: text.split(mark)),
    "quantity": (["string"], quantity),
    "semver": (["string"], Version),
    "compareTo": (ORDERED, compared),
    "isGreaterThan": (ORDERED, lambda a, b: compared(a, b) > 0),
    "isLessThan": (ORDERED, lambda a, b: compared(a, b) < 0),
}
NOT_READ = (("string", "double"), ("semver", "string", "bool"), ("split", "string", "string", "int"))
OF_STRINGS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
}


def call(name: str, *values: Any) -> Any:
    types = [type_of(each) for each in values]
    if name in OF_STRINGS:
        return OF_STRINGS[name](*values) if {*types} == {"string"} else Failure(NO_OVERLOAD)
    if name in ("size", "matches"):
        if types[0] not in ABLE[name]:
            return unable(values[0], name)
        if name == "size":
            return len(values[0])
        return re.search(values[1], values[0]) is not None if types[1] == "string" else Failure(NO_OVERLOAD)
    if name not in DISPATCHED:
        raise NotImplementedError(name)
    overloads, function = DISPATCHED[name]
    if (name, *types) in NOT_READ:
        raise NotImplementedError(f"{name}({types})")
    if " ".join(types) not in overloads:
        return Failure(f"{NO_OVERLOAD}: {name}({', '.join(types)})")
    if name not in ("int", "double", "bool"):
        return function(*values)
    try:
        return function(*values)
    except ValueError:
        return Failure(f"type conversion error from 'string' to '{name}'")


# -- Devices -----------------------------------------------------------------------------------------------------------


def selects(expression: str, driver: str, device: dict[str, Any]) -> bool:
    """Whether the expression is true for a device. Raises CelError."""

    def by_domain(entries: dict[str, Any], convert: Callable[[dict[str, Any]], Any]) -> Domains:
        domains = Domains()
        for key, raw in entries.items():
            domain, _, name = key.rpartition("/")
            domains.setdefault(domain or driver, {})[name] = convert(raw)
        return domains

    def attribute(raw: dict[str, Any]) -> Any:
        kind, value = next(iter(raw.items()))
        return Version(value) if kind == "version" else value

    view = {
        "driver": driver,
        "attributes": by_domain(device.get("attributes") or {}, attribute),
        "capacity": by_domain(device.get("capacity") or {}, lambda raw: quantity(raw["value"])),
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
    }
    value = evaluate(parse(expression), {"device": view})
    if isinstance(value, Failure):
        raise CelError(value.text + (MISSING_HINT if value.text.startswith("no such key") else ""))
    if not isinstance(value, bool):
        raise NotImplementedError(f"{expression} is {value!r}")
    return value
