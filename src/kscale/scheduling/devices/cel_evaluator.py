"""Evaluate expressions as cel-go does, where cel-python differs: fields, indices, macros and ``cel.bind``.

Upstream: ``interpreter/attributes.go``, ``interpreter/interpretable.go`` (``evalFold``) and ``parser/macro.go`` of
cel-go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kscale.scheduling.devices.cel_overloads import Overloads
from kscale.scheduling.devices.cel_types import NUMBERS, format_key

__all__ = ["MACROS", "Selection", "evaluator_class"]

MACROS: Final = {"map": 2, "filter": 2, "all": 2, "exists": 2, "exists_one": 2}
"""Number of arguments of macros."""
_QUALIFIERS: Final = NUMBERS | {"bool", "string"}


class Selection:
    """Selects fields and elements of values.

    Parameters
    ----------
    types
        cel-python's module of types.
    overloads
        Operators and names of types.
    optional
        The class of optional values.
    """

    def __init__(self, types: Any, overloads: Overloads, optional: Any) -> None:
        self._types, self._overloads, self._optional = types, overloads, optional

    def select(self, value: Any, key: Any) -> Any:
        """Return the value of ``value.key`` or ``value[key]``, or an error value."""
        if (failed := self._overloads.first_error((value, key))) is not None:
            return failed
        if isinstance(value, self._optional):
            return self.select_optional(value, key)
        is_there, result = self._look_up(value, key)
        return result if is_there or result is not None else self._overloads.error(f"no such key: {format_key(key)}")

    def select_optional(self, value: Any, key: Any) -> Any:
        """Return the optional value of ``value.?key`` or ``value[?key]``, or an error value."""
        if (failed := self._overloads.first_error((value, key))) is not None:
            return failed
        if isinstance(value, self._optional):
            return self.select_optional(value.value, key) if value.there else value
        is_there, result = self._look_up(value, key)
        if is_there:
            return self._optional(result)
        is_error = result is not None and not str(result.args[0]).startswith("index out of bounds")
        return result if is_error else self._optional()

    def has(self, value: Any, key: Any) -> Any:
        """Return whether a value has a field, or an error value."""
        result = self.select_optional(value, key)
        return self._types.BoolType(result.there) if isinstance(result, self._optional) else result

    def _look_up(self, value: Any, key: Any) -> tuple[bool, Any]:
        """Return whether the value has the key, and its value; an error value or None if not."""
        names = self._overloads.names
        kind = names.of(key)
        if kind not in _QUALIFIERS:
            return False, self._overloads.error(f"invalid qualifier type: {names.in_go(key)}")
        of = names.of(value)
        if of == "list":
            if kind not in NUMBERS:
                return False, self._overloads.error(f"unsupported index type '{kind}' in list")
            if kind == "double" and not float(key).is_integer():
                return False, self._overloads.error(f"unsupported index value {format_key(key)} in list")
            index = int(key)
            if not 0 <= index < len(value):
                return False, self._overloads.error(f"index out of bounds: {index}")
            return True, value[index]
        if of != "map":
            return False, None
        if kind == "string":  # also a domain that is absent, which is an empty map
            try:
                return True, value[key]
            except KeyError:
                return False, None
        match = next((each for each in value if self._is_key(each, key, kind)), None)
        return (False, None) if match is None else (True, value[match])

    def _is_key(self, key: Any, wanted: Any, kind: str) -> bool:
        numeric = kind in NUMBERS and self._overloads.names.of(key) in NUMBERS
        return (numeric or self._overloads.names.of(key) == kind) and self._overloads.names.equal(key, wanted)


class _Loops:
    """The loops that cel-go expands macros to. An error of the body is a value of the loop."""

    def __init__(self, types: Any, overloads: Overloads) -> None:
        self._types, self._overloads = types, overloads
        self._both, self._either = overloads.functions["_&&_"], overloads.functions["_||_"]
        self._choose = overloads.functions["_?_:_"]

    def judge(self, name: str, items: Any, body: Callable[[Any], Any]) -> Any:
        """Return the result of ``all`` or ``exists``: one element may decide, whatever the others give."""
        join = self._both if name == "all" else self._either
        result = self._types.BoolType(name == "all")
        for item in items:
            result = join(result, body(item))
            if isinstance(result, self._types.BoolType) and bool(result) is (name == "exists"):
                break
        return result

    def collect(self, name: str, items: Any, body: Callable[[Any], Any]) -> Any:
        """Return the result of ``map``, ``filter`` or ``exists_one``, which evaluate every element."""
        failed: Any = None
        chosen = []
        for item in items:
            value = body(item)
            if name == "map":
                failed = self._overloads.first_error((failed, value))  # what was accumulated is evaluated first
                chosen.append(value)
                continue
            verdict = self._choose(value, True, False)
            if self._overloads.first_error((verdict,)) is not None:
                failed = verdict  # the condition is evaluated before what was accumulated
            elif verdict:
                chosen.append(item)
        if failed is not None:
            return failed
        return self._types.BoolType(len(chosen) == 1) if name == "exists_one" else self._types.ListType(chosen)


def evaluator_class(celpy: Any, overloads: Overloads, selection: Selection) -> Callable[..., Any]:
    """Return a subclass of cel-python's evaluator that follows cel-go."""
    types, error_class = celpy.celtypes, celpy.CELEvalError
    base: Any = celpy.evaluation.Evaluator
    loops = _Loops(types, overloads)

    class Evaluator(base):  # type: ignore[misc]  # cel-python is not typed
        def sub_evaluator(self, ast: Any) -> Any:
            return Evaluator(ast, activation=self.activation)

        def member_dot(self, tree: Any) -> Any:
            member, field = tree.children
            return selection.select(self.visit(member), types.StringType(field.value))

        def member_index(self, tree: Any) -> Any:
            value, key = self.visit_children(tree)
            return selection.select(value, key)

        def macro_has_eval(self, exprlist: Any) -> Any:
            member, field = _only_member(exprlist).children
            return selection.has(self.visit(member), types.StringType(field.value))

        def member_dot_arg(self, tree: Any) -> Any:
            name = tree.children[1].value
            if name == "bind" and len(tree.children) == 3:
                return self._bind(tree)
            return self._fold(name, tree) if name in MACROS else self.method_eval(*self.visit_children(tree))

        def mapinits(self, tree: Any) -> Any:
            return _build_map(types, overloads, self.visit_children(tree))

        def _body(self, variable: Any, body: Any) -> Callable[[Any], Any]:
            name = str(next(variable.scan_values(lambda token: isinstance(token, str))))
            nested = self.sub_evaluator(ast=body)

            def evaluate(value: Any) -> Any:
                nested.set_activation({name: value})
                return nested.visit(body)

            return evaluate

        def _bind(self, tree: Any) -> Any:
            variable, value, body = tree.children[2].children
            return self._body(variable, body)(self.visit(value))

        def _fold(self, name: str, tree: Any) -> Any:
            items = self.visit(tree.children[0])
            if isinstance(items, error_class):
                return items
            if overloads.names.of(items) not in ("list", "map"):
                return overloads.error(f"got '{overloads.names.in_go(items)}', expected iterable type")
            body = self._body(*tree.children[2].children)
            return loops.judge(name, items, body) if name in ("all", "exists") else loops.collect(name, items, body)

    return Evaluator


def _build_map(types: Any, overloads: Overloads, values: list[Any]) -> Any:
    """Return the map of keys and values in turn, or an error value; the last value of a key counts."""
    result = types.MapType()
    for key, value in zip(values[::2], values[1::2], strict=True):
        if (failed := overloads.first_error((key, value))) is not None:
            return failed
        result[key] = value
    return result


def _only_member(tree: Any) -> Any:
    """Return the field selection that is the only argument of ``has``."""
    while tree.data != "member_dot":
        tree = tree.children[0]
    return tree
