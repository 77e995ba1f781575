"""cel-python as selectors of devices use it, with the functions that Kubernetes adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kscale.libraries import library
from kscale.objects.resource import Device, DeviceAttribute
from kscale.scheduling.devices.cel_comparisons import comparisons, equality, type_of
from kscale.scheduling.devices.cel_functions import NOT_HAD, Version, functions
from kscale.scheduling.devices.cel_text import plain, unclosed, where
from kscale.scheduling.devices.cel_types import result_type, unlike
from kscale.scheduling.devices.selectors import TOO_DEEP, SelectorError, attribute_value

__all__ = ["CelLibrary"]

_FAILED = "compilation failed: "
_PROGRAMS = 1024
"""Expressions that are kept compiled. A process lives for months, and claims come and go."""
_MACROS = frozenset({"map", "filter", "all", "exists", "exists_one"})


class CelLibrary:
    """cel-python, with Kubernetes' functions over quantities and versions.

    Quantities and versions are opaque to CEL: only their functions and equality apply.
    """

    def __init__(self) -> None:
        what = "a CEL selector of a device class or claim"
        celpy, celtypes = library("celpy", what), library("celpy.celtypes", what)
        self.error: type[Exception] = celpy.CELEvalError
        self.bool_type: type = celtypes.BoolType
        self._celpy = celpy
        self._types = celtypes
        self._environment = celpy.Environment()
        self.program: Callable[[str], Any] = lru_cache(_PROGRAMS)(self._compile)
        """The compiled expression. Raises SelectorError."""
        known = celpy.evaluation.base_functions | functions(celtypes)
        equal = equality(celtypes, known["optional_type"])
        self._functions = known | comparisons(celtypes, self.error, equal) | {"type": type_of(celtypes, known)}

        map_type: Any = celtypes.MapType

        class Domains(map_type):  # type: ignore[misc]  # cel-python is not typed
            """A domain that the device does not have reads as empty; ``in`` still says that it is not there."""

            def __getitem__(self, key: Any) -> Any:
                return super().__getitem__(key) if key in self else map_type()

            def get(self, key: Any, default: Any = None) -> Any:
                return self[key] if key in self or default is None else default

        self._domains = Domains

    def _compile(self, expression: str) -> Any:
        if (open_ := unclosed(expression)) is not None:
            rest = expression.splitlines()[open_[0] - 1][open_[1] :]
            raise SelectorError(_failed(expression, f"Syntax error: token recognition error at: '{rest}'", *open_))
        try:
            read = plain(expression)
            tree = self._environment.compile(read)
            self._check(expression, tree)
            for text, line, column in unlike(tree):
                raise SelectorError(
                    _failed(expression, text, line, column) if read == expression else f"{_FAILED}{text}"
                )
            if (type_ := result_type(tree)) not in (None, "bool"):
                raise SelectorError(f"must evaluate to bool or the unknown type, not {type_}")
            return self._environment.program(tree, functions=self._functions)
        except self._celpy.CELParseError as problem:
            raise SelectorError(f"compilation failed: {problem.args[0]}") from None
        except RecursionError:
            raise SelectorError(TOO_DEEP) from None

    def _check(self, expression: str, tree: Any) -> None:
        """Every name is that of something. Raises SelectorError."""
        called, named, bound = set(), set(), {"device"}
        for node in tree.iter_subtrees():
            if node.data in ("ident_arg", "dot_ident_arg"):
                called.add(str(node.children[0]))
            elif node.data == "member_dot_arg":
                name = str(node.children[1])
                called.add(name)
                if name in _MACROS and (len(node.children) < 3 or len(node.children[2].children) != 2):
                    raise SelectorError(_undeclared(expression, name, called=True))
                if name in _MACROS:
                    bound |= {str(token) for token in node.children[2].children[0].scan_values(_is_text)}
            elif node.data == "ident":
                named.add(str(node.children[0]))
        for name in sorted(called & NOT_HAD):
            raise SelectorError(f"compilation failed: kscale does not have the function '{name.replace('__', '.')}'")
        known = self._functions.keys() | {"has", "dyn"}
        for name in sorted(called - known - _MACROS):
            raise SelectorError(_undeclared(expression, name, called=True))
        for name in sorted(named - bound - known):
            raise SelectorError(_undeclared(expression, name, called=False))

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
        return self._types.StringType(value) if kind == "string" else Version(str(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _undeclared(expression: str, name: str, *, called: bool) -> str:
    shown = name.rpartition("__")[2]
    line, column = where(expression, shown, called=called)
    return _failed(expression, f"undeclared reference to '{name.replace('__', '.')}' (in container '')", line, column)


def _failed(expression: str, text: str, line: int, column: int) -> str:
    shown = f"{expression.splitlines()[line - 1]}\n | {'.' * column}^"
    return f"{_FAILED}ERROR: <input>:{line}:{column + 1}: {text}\n | {shown}"
