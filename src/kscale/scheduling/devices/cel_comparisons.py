"""How CEL compares values whose types are known only when it runs, for cel-python (upstream: cel-go's
``types.Equal`` and its comparisons with ``CrossTypeNumericComparisons``, which Kubernetes sets)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

__all__ = ["comparisons", "equality", "type_of"]

_NO_OVERLOAD: Final = "no such overload"
_ORDERS: Final = {"_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge}


def equality(types: Any, optional: type) -> Callable[[Any, Any], bool]:
    """Whether two values are equal: numbers by value, those of unlike types never; ``types``: cel-python's.

    What it gives raises TypeError where a quantity, version or address is asked about something else.
    """
    numbers = types.IntType, types.UintType, types.DoubleType
    of_cel: tuple[type, ...] = (*numbers, types.BoolType, str, types.BytesType, types.ListType, types.MapType)
    of_cel += types.DurationType, types.TimestampType

    def equal(a: Any, b: Any) -> bool:
        if a is None or b is None or callable(a) or callable(b):
            return a is b
        if isinstance(a, numbers) and isinstance(b, numbers):
            return bool(operator.eq(*_same(types, a, b)))
        if isinstance(a, optional) or isinstance(b, optional):
            return isinstance(a, optional) and isinstance(b, optional) and equal_optionals(a, b)
        if isinstance(a, types.ListType) and isinstance(b, types.ListType):
            return len(a) == len(b) and all(map(equal, a, b))
        if isinstance(a, types.MapType) and isinstance(b, types.MapType):
            return len(a) == len(b) and all(
                any(equal(key, other) and equal(value, found) for other, found in b.items()) for key, value in a.items()
            )
        if type(a) is type(b) or (isinstance(a, str) and isinstance(b, str)):  # added texts are str to cel-python
            return bool(a == b)
        if not isinstance(a, of_cel):
            raise TypeError(_NO_OVERLOAD)
        return False

    def equal_optionals(a: Any, b: Any) -> bool:
        return bool(a.there == b.there and equal(a.value, b.value))

    return equal


def comparisons(types: Any, error: type[Exception], equal: Callable[[Any, Any], bool]) -> dict[str, Callable[..., Any]]:
    """The operators that compare, by cel-python's name; ``types`` and ``error``: cel-python's."""
    numbers = types.IntType, types.UintType, types.DoubleType
    ordered = str, types.BytesType, types.BoolType, types.DurationType, types.TimestampType

    def judged(judge: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        """Errors are values to cel-python: ``||`` and ``&&`` may do without them."""

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
                a, b = _same(types, a, b)
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


def type_of(types: Any, named: dict[str, Callable[..., Any]]) -> Callable[[Any], Any]:
    """``type``: of a value what the name of its type stands for in ``named``, which has functions by name."""
    kinds = {
        types.BoolType: "bool", types.IntType: "int", types.UintType: "uint", types.DoubleType: "double",
        str: "string", types.BytesType: "bytes", types.ListType: "list", types.MapType: "map",
        types.DurationType: "duration", types.TimestampType: "timestamp",
    }  # fmt: skip
    optional = named["optional_type"]

    def kind(value: Any) -> Any:
        if value is None:
            return named["null_type"]
        if callable(value):
            return kind
        if type(value) is optional:
            return optional
        return next((named[name] for cls, name in kinds.items() if isinstance(value, cls)), type(value))

    return kind


def _same(types: Any, a: Any, b: Any) -> tuple[float, float]:
    """Two numbers as whole ones or, if either is a double, as doubles."""
    convert = float if isinstance(a, types.DoubleType) or isinstance(b, types.DoubleType) else int
    return convert(a), convert(b)
