"""CEL selectors over a device (upstream: ``k8s.io/dynamic-resource-allocation/cel``), run by cel-python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kscale.errors import MissingExtraError
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.resource import Device, DeviceAttribute
from kscale.scheduling.devices.cel_text import plain

__all__ = ["SelectorError", "attribute_value", "selects"]

_NO_KEY = re.compile(r"no such member in mapping: '(.*)'")
_HINT = (
    "consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional "
    "fields"
)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class SelectorError(ValueError):
    """An expression that does not compile, fails on a device or gives no truth value. The text is upstream's;
    ``compiles``: it is the device that it fails on."""

    def __init__(self, text: str, *, compiles: bool = False) -> None:
        super().__init__(text)
        self.compiles = compiles


def attribute_value(attribute: DeviceAttribute) -> tuple[str, int | bool | str] | None:
    """(type, value) of an attribute; None if it has none."""
    if attribute.bool_ is not None:
        return "bool", attribute.bool_
    if attribute.int_ is not None:
        return "int", attribute.int_
    if attribute.string is not None:
        return "string", attribute.string
    return None if attribute.version is None else ("version", attribute.version)


def selects(expression: str, driver: str, device: Device) -> bool:
    """Whether the expression is true of a device of the driver.

    Raises SelectorError, and MissingExtraError without the library.
    """
    library = _library()
    program = library.program(expression)
    try:
        verdict = program.evaluate({"device": library.view(driver, device)})
    except (library.error, ValueError) as problem:
        text = str(problem.args[0]) if problem.args else str(problem)
        missing = _NO_KEY.fullmatch(text)
        text = f"no such key: {missing[1]}. {_HINT}" if missing else text.split(" (in activation", 1)[0]
        raise SelectorError(text, compiles=True) from None
    if not isinstance(verdict, library.bool_type):
        raise SelectorError("type conversion error: the expression is not a truth value", compiles=True)
    return bool(verdict)


@cache
def _library() -> _Library:
    return _Library()


def _version_key(text: str) -> tuple[Any, ...]:
    """Semantic versioning's order: a pre-release comes before its release, numbers before words."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a semantic version: {text}")
    words = match[4].split(".") if match[4] else []
    parts = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in words)
    return int(match[1]), int(match[2]), int(match[3]), not parts, parts


class _Library:
    """cel-python, with Kubernetes' functions over quantities and versions.

    Quantities and versions are opaque to CEL: only their functions and equality apply.
    """

    def __init__(self) -> None:
        try:
            import celpy
            from celpy import celtypes
        except ImportError:
            raise MissingExtraError("a CEL selector of a device class or claim", "dra") from None
        self.error: type[Exception] = celpy.CELEvalError
        self.bool_type: type = celtypes.BoolType
        self._celpy = celpy
        self._types = celtypes
        self._environment = celpy.Environment()
        self._programs: dict[str, Any] = {}

        map_type: Any = celtypes.MapType

        class Domains(map_type):  # type: ignore[misc]  # cel-python is not typed
            """A domain that the device does not have reads as empty; ``in`` still says that it is not there."""

            def __getitem__(self, key: Any) -> Any:
                return super().__getitem__(key) if key in self else map_type()

            def get(self, key: Any, default: Any = None) -> Any:
                return self[key] if key in self or default is None else default

        self._domains = Domains

    def program(self, expression: str) -> Any:
        """The compiled expression. Raises SelectorError."""
        found = self._programs.get(expression)
        if found is None:
            try:
                tree = self._environment.compile(plain(expression))
            except self._celpy.CELParseError as problem:
                raise SelectorError(f"compilation failed: {problem.args[0]}") from None
            found = self._programs[expression] = self._environment.program(tree, functions=self._functions())
        return found

    def _functions(self) -> dict[str, Callable[..., Any]]:
        boolean, integer = self._types.BoolType, self._types.IntType

        def is_quantity(text: Any) -> Any:
            try:
                Quantity(str(text))
            except QuantityError:
                return boolean(False)
            return boolean(True)

        def is_version(text: Any) -> Any:
            return boolean(_VERSION.fullmatch(str(text)) is not None)

        text, double, many = self._types.StringType, self._types.DoubleType, self._types.ListType

        def sign(a: Any, b: Any) -> Any:
            return integer((a > b) - (a < b))

        def whole(amount: Quantity) -> Any:
            found = amount.as_int64()
            if found is None:
                raise ValueError(f"cannot convert value to integer: {amount}")
            return integer(found)

        def substring(value: Any, start: Any, end: Any = None) -> Any:
            stop = len(value) if end is None else int(end)
            if not 0 <= int(start) <= stop <= len(value):
                raise ValueError(f"index out of range: {start}")
            return text(str(value)[int(start) : stop])

        return {
            "add": lambda a, b: a + (b if isinstance(b, Quantity) else Quantity(str(b))),
            "sub": lambda a, b: a - (b if isinstance(b, Quantity) else Quantity(str(b))),
            "sign": lambda a: integer(a.sign),
            "isInteger": lambda a: boolean(a.as_int64() is not None),
            "asInteger": whole,
            "asApproximateFloat": lambda a: double(a.approximate_float()),
            "major": lambda a: integer(a.key[0]),
            "minor": lambda a: integer(a.key[1]),
            "patch": lambda a: integer(a.key[2]),
            "lowerAscii": lambda a: text(_ascii(str(a), str.lower)),
            "upperAscii": lambda a: text(_ascii(str(a), str.upper)),
            "trim": lambda a: text(str(a).strip()),
            "replace": lambda a, old, new, n=-1: text(str(a).replace(str(old), str(new), int(n))),
            "split": lambda a, by: many([text(part) for part in str(a).split(str(by))]),
            "join": lambda a, by="": text(str(by).join(map(str, a))),
            "indexOf": lambda a, part: integer(str(a).find(str(part))),
            "lastIndexOf": lambda a, part: integer(str(a).rfind(str(part))),
            "substring": substring,
            "quantity": lambda text: Quantity(str(text)),
            "isQuantity": is_quantity,
            "semver": lambda text: _Version(str(text)),
            "isSemver": is_version,
            "compareTo": sign,
            "isGreaterThan": lambda a, b: boolean(a > b),
            "isLessThan": lambda a, b: boolean(a < b),
        }

    def view(self, driver: str, device: Device) -> Any:
        """``device`` as expressions see it; an unqualified name is in the driver's domain."""
        text, mapping = self._types.StringType, self._types.MapType
        return mapping(
            {
                text("driver"): text(driver),
                text("attributes"): self._by_domain(driver, device.attributes or {}, self._attribute),
                text("capacity"): self._by_domain(driver, device.capacity or {}, lambda entry: entry.value),
                text("allowMultipleAllocations"): self._types.BoolType(bool(device.allow_multiple_allocations)),
            }
        )

    def _by_domain(self, driver: str, entries: Mapping[str, Any], convert: Callable[[Any], Any]) -> Any:
        text, mapping = self._types.StringType, self._types.MapType
        domains: dict[str, Any] = {driver: mapping()}
        for key, entry in entries.items():
            domain, _, name = key.rpartition("/")
            domains.setdefault(domain or driver, mapping())[text(name)] = convert(entry)
        return self._domains({text(domain): names for domain, names in domains.items()})

    def _attribute(self, attribute: DeviceAttribute) -> Any:
        found = attribute_value(attribute)
        if found is None:
            return None
        kind, value = found
        if kind == "bool":
            return self._types.BoolType(value)
        if kind == "int":
            return self._types.IntType(value)
        return self._types.StringType(value) if kind == "string" else _Version(str(value))


def _ascii(value: str, change: Callable[[str], str]) -> str:
    return "".join(change(letter) if letter.isascii() else letter for letter in value)


class _Version:
    """A semantic version."""

    __slots__ = ("key", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.key = _version_key(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Version) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: _Version) -> bool:
        return self.key < other.key

    def __gt__(self, other: _Version) -> bool:
        return self.key > other.key
