"""Evaluate CEL selectors as cel-go does, where cel-python differs: operators and overloads with upstream's errors,
fields, indices, macros and ``cel.bind``.

An operator or function that has no overload for its arguments gives an error whose text depends on how cel-go
dispatches it. Upstream: ``common/stdlib/standard.go``, ``interpreter/interpretable.go`` (also ``evalFold``),
``interpreter/attributes.go``, ``common/decls/decls.go`` and ``parser/macro.go`` of cel-go, and ``pkg/cel/library`` of
k8s.io/apiserver.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kscale.scheduling.devices.cel_functions import (
    CIDR,
    DURATION,
    IP,
    NO_OVERLOAD,
    NUMBERS,
    OPTIONAL,
    QUANTITY,
    SEMVER,
    TIMESTAMP,
    TypeNames,
    convert_numbers,
    format_key,
)

__all__ = ["MACROS", "Overloads", "Selection", "evaluator_class"]

_SHORT: Final = {
    "quantity": QUANTITY, "semver": SEMVER, "optional": OPTIONAL, "duration": DURATION, "timestamp": TIMESTAMP,
    "ip": IP, "cidr": CIDR,
}  # fmt: skip


def _parse_signatures(text: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Parse lines such as ``charAt join: string int, list`` into name -> types of arguments of each overload."""
    result = {}
    for line in text.strip().splitlines():
        names, _, overloads = line.partition(":")
        read = tuple(tuple(_SHORT.get(word, word) for word in each.split()) for each in overloads.split(","))
        result.update(dict.fromkeys(names.split(), read))
    return result


_FUNCTIONS: Final = _parse_signatures("""
    bool: bool, string
    bytes: bytes, string
    double: double, int, string, uint
    duration: duration, string
    int: int, double, duration, string, timestamp, uint
    string: string, bool, bytes, double, duration, int, timestamp, uint, ip, cidr
    timestamp: timestamp, int, string
    uint: uint, double, int, string
    quantity isQuantity isIP ip__isCanonical cidr isCIDR strings__quote: string
    semver isSemver: string, string bool
    ip: string, cidr
    add sub: quantity quantity, quantity int
    sign isInteger asInteger asApproximateFloat: quantity
    major minor patch: semver
    compareTo isGreaterThan isLessThan: quantity quantity, semver semver
    family isUnspecified isLoopback isLinkLocalUnicast isLinkLocalMulticast isGlobalUnicast: ip
    containsIP: cidr string, cidr ip
    containsCIDR: cidr string, cidr cidr
    masked prefixLength: cidr
    trim lowerAscii upperAscii: string
    charAt: string int
    replace: string string string, string string string int
    split: string string, string string int
    substring: string int, string int int
    find: string string
    findAll: string string, string string int
    indexOf lastIndexOf: string string, string string int, list any
    join: list, list string
    isSorted sum min max: list
    sets__contains sets__equivalent sets__intersects: list list
    getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getMonth: timestamp, timestamp string
    getHours getMilliseconds getMinutes getSeconds: timestamp, timestamp string, duration
    hasValue value: optional
""")
"""Overloads of functions. A receiver is the first argument."""
_CONVERSIONS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_COMPARABLE: Final = frozenset({"int", "uint", "double", "bool", DURATION, TIMESTAMP, "string", "bytes"})
_ELEMENTS: Final = {
    "join": frozenset({"string"}), "sum": frozenset({"int", "uint", "double", DURATION}),
    "isSorted": _COMPARABLE, "min": _COMPARABLE, "max": _COMPARABLE,
}  # fmt: skip
"""Types of elements that functions of lists accept. cel-go looks at the first element."""

_RECEIVERS: Final = frozenset({"string", DURATION, TIMESTAMP})
"""Types with a ``Receive`` method. cel-go calls it for an operator or function whose trait the type lacks."""
_SIZED: Final = frozenset({"string", "bytes", "list", "map"})
_OPERATORS: Final = _parse_signatures("""
    _+_: int int, uint uint, double double, string string, bytes bytes, list list, \
duration duration, duration timestamp, timestamp duration
    _-_: int int, uint uint, double double, duration duration, timestamp duration, timestamp timestamp
    _*_ _/_: int int, uint uint, double double
    _%_: int int, uint uint
    -_: int, double, duration
    !_: bool
""")
_ORDERS: Final = {"_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge}
_DIVISIONS: Final = {"_/_": "division by zero", "_%_": "modulus by zero"}
_OVERFLOWS: Final = {
    "int": "integer overflow", "uint": "unsigned integer overflow", DURATION: "duration overflow",
    TIMESTAMP: "timestamp overflow",
}  # fmt: skip


class Overloads:
    """Operators and functions of CEL that give upstream's errors for arguments that they do not accept.

    Errors are values, which ``||``, ``&&`` and macros may ignore. The first argument that is an error is the result.

    Parameters
    ----------
    types
        cel-python's module of types.
    error
        cel-python's class of errors.
    available
        Operators and functions by cel-python's names.
    names
        Names of types.
    """

    def __init__(
        self, types: Any, names: TypeNames, error: Callable[..., Any], available: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.names = names
        self._types = types
        self._error_class: Any = error
        self._available = dict(available)
        self.functions = self._wrap_all()
        """All operators and functions by name, with checked arguments."""

    def _wrap_all(self) -> dict[str, Callable[..., Any]]:
        """Return all operators and functions by name, wrapped to check their arguments."""
        functions = {
            name: self._wrap_overloads(name, function, _FUNCTIONS[name])
            if name in _FUNCTIONS
            else self._wrap_strict(function)
            for name, function in self._available.items()
            if not isinstance(function, type) or name in _FUNCTIONS
        }
        special: dict[str, Callable[..., Any]] = {
            "size": self._size,
            "matches": self._matches,
            "type": self.type_of,
            **{
                name: self._wrap_string_function(self._available[name])
                for name in ("contains", "startsWith", "endsWith")
            },
            **{name: self._wrap_arithmetic(name, overloads) for name, overloads in _OPERATORS.items()},
            **{name: self._wrap_order(name, order) for name, order in _ORDERS.items()},
            "_==_": self._wrap_comparison(self.names.equal),
            "_!=_": self._wrap_comparison(lambda a, b: not self.names.is_surely_equal(a, b)),
            "_in_": self._wrap_comparison(self._is_within),
            "_||_": self._build_logical_operator(verdict=True),
            "_&&_": self._build_logical_operator(verdict=False),
            "_?_:_": self._choose,
        }
        return self._available | functions | special

    def error(self, text: str) -> Any:
        """Return an error value (it is not raised)."""
        return self._error_class(text, TypeError, ())

    def first_error(self, values: Sequence[Any]) -> Any:
        """Return the first value that is an error; None if there is none."""
        return next((value for value in values if isinstance(value, self._error_class)), None)

    # -- functions -----------------------------------------------------------------------------------------------------

    def _wrap_strict(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function to return the first argument that is an error, without a call of the function."""

        def answer(*args: Any) -> Any:
            return failed if (failed := self.first_error(args)) is not None else function(*args)

        return answer

    def _wrap_overloads(
        self, name: str, function: Callable[..., Any], overloads: tuple[tuple[str, ...], ...]
    ) -> Callable[..., Any]:
        """Wrap the function ``name``: arguments that no overload accepts give an error value.

        ``overloads``: types of the arguments of each overload.
        """
        shown, elements = name.replace("__", "."), _ELEMENTS.get(name)

        def answer(*args: Any) -> Any:
            if (failed := self.first_error(args)) is not None:
                return failed
            type_names = tuple(map(self.names.of, args))
            fits = any(
                len(overload) == len(type_names)
                and all(want in (type_, "any") for want, type_ in zip(overload, type_names, strict=True))
                for overload in overloads
            )
            if fits and elements is not None and args[0]:
                fits = self.names.of(args[0][0]) in elements
            if not fits:
                return self.error(f"{NO_OVERLOAD}: {shown}({', '.join(type_names)})")
            if name not in _CONVERSIONS:
                return function(*args)
            try:
                return function(*args)
            except (ValueError, OverflowError):
                text = f"type conversion error from 'string' to '{_SHORT.get(name, name)}'"
                return self.error(text if type_names == ("string",) else _OVERFLOWS.get(name, "overflow"))

        return answer

    def _size(self, *args: Any) -> Any:
        """Return CEL's ``size`` of a value, or an error value."""
        failed = self.first_error(args)
        if failed is not None or (name := self.names.of(args[0])) in _SIZED:
            return self._available["size"](*args) if failed is None else failed
        return self._without_trait(name, "size")

    def _matches(self, *args: Any) -> Any:
        """Return whether a string matches a pattern (CEL's ``matches``), or an error value."""
        if (failed := self.first_error(args)) is not None:
            return failed
        text, pattern = map(self.names.of, args)
        if text != "string":
            return self._without_trait(text, "matches")
        return self._available["matches"](*args) if pattern == "string" else self.error(NO_OVERLOAD)

    def _wrap_string_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of strings to return an error value for other arguments."""

        def answer(*args: Any) -> Any:
            if (failed := self.first_error(args)) is not None:
                return failed
            return function(*args) if all(isinstance(each, str) for each in args) else self.error(NO_OVERLOAD)

        return answer

    def _without_trait(self, type_name: str, function: str) -> Any:
        """Return the error value for a first argument of the type ``type_name``, which ``function`` does not take."""
        return self.error(NO_OVERLOAD if type_name in _RECEIVERS else f"{NO_OVERLOAD}: {function}")

    def type_of(self, value: Any) -> Any:
        """Return the function that represents the type of a value; the Python class of the value if there is none.

        An error value is returned as it is.
        """
        if isinstance(value, self._error_class):
            return value
        name = self.names.of(value).removeprefix("google.protobuf.").lower()
        return self.functions.get(name, type(value))

    # -- operators -----------------------------------------------------------------------------------------------------

    def _wrap_arithmetic(self, name: str, overloads: tuple[tuple[str, ...], ...]) -> Callable[..., Any]:
        """Build the arithmetic operator ``name`` with error values: no such overload, division by zero, overflow.

        ``overloads``: types of the operands of each overload.
        """
        operate = self._available[name]
        lefts = {overload[0] for overload in overloads}

        def answer(*operands: Any) -> Any:
            if (failed := self.first_error(operands)) is not None:
                return failed
            type_names = tuple(map(self.names.of, operands))
            if type_names not in overloads:
                # cel-go can negate a boolean by its traits, yet declares no overload for it.
                is_bound = type_names[0] in lefts or name == "!_" or (name, type_names[0]) == ("-_", "bool")
                return self.error(NO_OVERLOAD) if is_bound else self._without_trait(type_names[0], name)
            if type_names == ("bool",):
                return self._types.BoolType(not operands[0])
            try:
                return self._convert_result(operate(*operands), type_names)
            except ZeroDivisionError:
                return self.error(_DIVISIONS[name])
            except (ValueError, OverflowError):
                return self.error(_OVERFLOWS.get(type_names[0], "overflow"))

        return answer

    def _convert_result(self, value: Any, type_names: tuple[str, ...]) -> Any:
        """Return the result ``value`` of an operator as a value of CEL; cel-python may return a value of Python.

        ``type_names``: types of the operands.
        """
        types = self._types
        of = {
            "double": types.DoubleType, "string": types.StringType, "bytes": types.BytesType, "list": types.ListType,
            DURATION: types.DurationType, TIMESTAMP: types.DurationType,
        }  # fmt: skip
        is_time = {TIMESTAMP, DURATION} == set(type_names)
        return value if is_time or type_names[0] not in of else of[type_names[0]](value)

    def _wrap_order(self, name: str, order: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Wrap ``order``, the operator ``name`` (``<`` and others), to return a boolean or an error value.

        An error value stands for types that cannot be ordered, and for NaN.
        """

        def answer(a: Any, b: Any) -> Any:
            if (failed := self.first_error((a, b))) is not None:
                return failed
            left, right = self.names.of(a), self.names.of(b)
            if left not in _COMPARABLE:
                return self._without_trait(left, name)
            if left in NUMBERS and right in NUMBERS:
                a, b = convert_numbers(a, b, is_double="double" in (left, right))
                if a != a or b != b:
                    return self.error("NaN values cannot be ordered")
            elif left != right:
                return self.error(NO_OVERLOAD)
            return self._types.BoolType(bool(order(a, b)))

        return answer

    def _wrap_comparison(self, judge: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        """Wrap ``judge``, a comparison of two values, to return a CEL boolean, or an error value for a TypeError."""

        def answer(a: Any, b: Any) -> Any:
            if (failed := self.first_error((a, b))) is not None:
                return failed
            try:
                return self._types.BoolType(judge(a, b))
            except TypeError as problem:
                return self.error(str(problem))

        return answer

    def _is_within(self, item: Any, container: Any) -> bool:
        """Return whether a list has the item or a map has the key. Raises TypeError for another container."""
        if self.names.of(container) not in ("list", "map"):
            raise TypeError(NO_OVERLOAD)
        return any(self.names.is_surely_equal(item, each) for each in container)

    def _first_no_boolean(self, *operands: Any) -> Any:
        """Return the first operand that is an error, or an error for one that is no boolean; None if all are."""
        for operand in operands:
            if isinstance(operand, self._error_class):
                return operand
            if not isinstance(operand, self._types.BoolType):
                return self.error(NO_OVERLOAD)
        return None

    def _build_logical_operator(self, *, verdict: bool) -> Callable[[Any, Any], Any]:
        """Build ``||`` (``verdict`` True) or ``&&`` (False): one operand with this value decides."""

        def answer(a: Any, b: Any) -> Any:
            if any(isinstance(side, self._types.BoolType) and bool(side) is verdict for side in (a, b)):
                return self._types.BoolType(verdict)
            failed = self._first_no_boolean(a, b)
            return self._types.BoolType(not verdict) if failed is None else failed

        return answer

    def _choose(self, condition: Any, a: Any, b: Any) -> Any:
        """Evaluate CEL's conditional operator: ``a``, ``b``, or an error value if the condition is no boolean."""
        failed = self._first_no_boolean(condition)
        return (a if condition else b) if failed is None else failed


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
        """Return the optional value of ``value.?key`` or ``value[?key]``, empty if it is absent; or an error value."""
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
        """Return whether ``value`` has the field or map key ``key`` as a CEL boolean, or an error value."""
        result = self.select_optional(value, key)
        return self._types.BoolType(result.there) if isinstance(result, self._optional) else result

    def _look_up(self, value: Any, key: Any) -> tuple[bool, Any]:
        """Return (True, value) if the value has the key.

        Otherwise (False, error value), or (False, None) for a missing key without another error.
        """
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
        """Check whether ``key`` (of a map) equals ``wanted``, whose type is ``kind``. Numbers compare by value."""
        numeric = kind in NUMBERS and self._overloads.names.of(key) in NUMBERS
        return (numeric or self._overloads.names.of(key) == kind) and self._overloads.names.equal(key, wanted)


class _Loops:
    """The loops that cel-go expands macros to. An error of the body is a value of the loop."""

    def __init__(self, types: Any, overloads: Overloads) -> None:
        self._types, self._overloads = types, overloads
        self._both, self._either = overloads.functions["_&&_"], overloads.functions["_||_"]
        self._choose = overloads.functions["_?_:_"]

    def judge(self, name: str, items: Any, body: Callable[[Any], Any]) -> Any:
        """Return the result of ``all`` or ``exists`` over ``items``, as cel-go does.

        ``name`` is the macro. ``body(item)`` returns the verdict on an element: a boolean, or an error value.

        - An element that is false decides ``all``; one that is true decides ``exists``. The errors of other elements do
          not matter.
        - If no element decides, the result is the first error. A verdict that is no boolean is an error.
        - Otherwise ``all`` is true and ``exists`` is false, also without elements.

        Errors are returned as values, never raised.
        """
        join = self._both if name == "all" else self._either
        result = self._types.BoolType(name == "all")
        for item in items:
            result = join(result, body(item))
            if isinstance(result, self._types.BoolType) and bool(result) is (name == "exists"):
                break
        return result

    def collect(self, name: str, items: Any, body: Callable[[Any], Any]) -> Any:
        """Return the result of the macro ``name``: ``map``, ``filter`` or ``exists_one``.

        ``body`` is called with every element of ``items``, even after an error; an error becomes the result (of
        several errors the first for ``map``, else the last).
        """
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
    """Return a subclass of cel-python's evaluator that follows cel-go.

    ``celpy``: the module; ``overloads`` and ``selection``: the operators, and how fields and elements are looked up.
    """
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
    """Return a CEL map of ``values``, which has keys and values in turn; the last value of a key counts.

    Returns the first error value among them instead, if there is one.
    """
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
