"""Check of argument types against annotations, for all public functions and structs.

A wrong type raises an error before the function begins. The error names the argument, the expected and the actual type.
"""

from __future__ import annotations

import builtins
import typing
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial, wraps
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, isfunction, signature, unwrap
from itertools import islice, zip_longest
from operator import index
from types import FunctionType, GeneratorType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NewType, ParamSpec, TypeVar, Union, cast, get_args, get_origin

import msgspec

from kscale.errors import ArgumentError, InputError, KscaleError, Problem, show_value
from kscale.imports import lazy_pattern
from kscale.objects.times import moment

__all__ = ["check_fields", "typed", "typed_late", "typed_methods", "unchecked"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_LOOKED_AT: Final = 10_000
"""Maximum number of elements of a list, or values of a dict, that are checked."""
_MAX_PLANS: Final = 64
"""Maximum number of combinations of types whose remaining checks are cached, for each function or struct."""
_OWN_ERRORS: Final = ("SnapshotLike", "PodsLike", "PodLike", "TemplateLike", "ArrayLike", "Source")
"""Annotations of arguments that their functions check themselves, by value."""


_MOMENT: Final = lazy_pattern(r"\b(Moment|datetime)\b")


class _Type(msgspec.Struct, eq=False):
    """Check of a value. ``text`` names what is allowed: it completes "x is 3, not ...".

    ``classes``: their instances pass without another check. This is much faster than the check itself.
    """

    text: str
    accepts: Callable[[Any], bool]
    within: Callable[[Any], tuple[str, Any, _Type] | None] | None = None
    element: _Type | None = None
    classes: tuple[type, ...] = ()


_Within = Callable[[Any], "tuple[str, Any, _Type] | None"]
"""Finds an element that is of a wrong type: (where it is, what it is, what it may be)."""


class _Plan:
    """Checks that values of a combination of types still need: for most types, every value is allowed.

    ``by_value``: position and check of each value for which the type is not enough. A check returns None if the value
    is allowed.
    ``has_iterators``: whether elements of an iterator have a check.
    """

    __slots__ = ("by_value", "has_iterators")

    def __init__(self, checks: Iterable[_Type | None], values: Sequence[Any]) -> None:
        self.by_value: list[tuple[int, Callable[[Any], Any]]] = []
        self.has_iterators = False
        for i, (check, value) in enumerate(zip(checks, values, strict=True)):
            if check is None or issubclass(type(value), check.classes):
                continue
            if type(value) in (list, tuple, dict) and check.accepts(value):
                if check.within is not None:
                    self.by_value.append((i, check.within))
                continue
            self.by_value.append((i, partial(_find_problem, "", check=check)))
            self.has_iterators |= check.element is not None and isinstance(value, Iterator)

    def fails(self, values: Sequence[Any]) -> bool:
        """Return whether one of the values, whose types are those of the plan, fails its check."""
        return any(check(values[i]) is not None for i, check in self.by_value)


class _Late:
    """A class that is imported for type checkers only, identified by its name."""


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function raise ArgumentError for an argument whose type does not match its annotation.

    Elements of lists and dicts are checked before the call: the first one of each type among the first 10,000.
    Elements of iterators are checked when the function takes them. Arguments that are times, pods, snapshots or arrays
    are not checked: the function itself raises errors that name them.
    """
    checks: dict[str, _Type] | None = None
    names: list[str] = []
    plans: dict[tuple[Any, ...], _Plan] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal checks
        types = (*map(type, args), *kwargs, *map(type, kwargs.values()))
        plan = plans.get(types)
        if plan is None:
            if checks is None:
                names[:], checks = _list_positional(function), _get_checks(function)
            own_checks = [*map(checks.get, names[: len(args)]), *[None] * (len(args) - len(names))]
            plan = _Plan([*own_checks, *map(checks.get, kwargs)], (*args, *kwargs.values()))
            if len(plans) < _MAX_PLANS:
                plans[types] = plan
        if plan.by_value and plan.fails((*args, *kwargs.values())):
            assert checks is not None
            for name, value in (*zip(names, args, strict=False), *kwargs.items()):
                check = checks.get(name)
                if check is not None and (problem := _find_problem(name, value, check)) is not None:
                    raise _build_error(function, args, kwargs, problem)
        if plan.has_iterators:
            assert checks is not None
            lazy = tuple(_check_lazily(name, value, checks) for name, value in zip_longest(names[: len(args)], args))
            args = cast(Any, lazy)
            kwargs = cast(Any, {name: _check_lazily(name, value, checks) for name, value in kwargs.items()})
        try:
            return function(*args, **kwargs)
        except _FAILURES as error:
            _raise_late(function, args, kwargs, error)
            raise

    return call


def unchecked(function: F) -> F:
    """Return a :func:`typed` function without its checks, for callers that have checked the arguments."""
    original: F = function.__wrapped__  # type: ignore[attr-defined]  # set by functools.wraps
    return original


def _check_lazily(name: str | None, value: Any, checks: Mapping[str, _Type]) -> Any:
    """Return the argument ``value``; an iterator is wrapped so that each element is checked when it is taken.

    ``name``: the parameter; ``checks``: the check of each parameter by name.
    """
    check = checks.get(name or "")
    if check is None or check.element is None or not isinstance(value, Iterator):
        return value
    return _check_iterator(name, value, check.element)


def _check_iterator(name: str | None, values: Iterator[Any], element: _Type) -> Iterator[Any]:
    """Yield the values. Raises ArgumentError, with the position, at the first one that fails the check."""
    for number, value in enumerate(values):
        if (problem := _find_problem(f"{name}[{number}]", value, element)) is not None:
            path, wrong, expected = problem
            raise ArgumentError(path, show_value(wrong), expected, type(wrong).__name__)
        yield value


def typed_methods(*, constructor: bool = False, late: Collection[str] | bool = ()) -> Callable[[C], C]:
    """Make the public methods of a class, and its ``constructor``, check their arguments as :func:`typed` does.

    The class is changed in place. Methods without arguments stay as they are. Methods named in ``late`` (True: all)
    check their arguments only after they have failed: they are called so often that a check before each call would cost
    too much.
    """

    def decorate(class_: C) -> C:
        for name, member in list(vars(class_).items()):
            function = getattr(member, "__func__", member)
            public = not name.startswith("_") or (name == "__init__" and constructor)
            if not (public and isfunction(function) and _has_arguments(function, member)):
                continue
            is_late = late if isinstance(late, bool) else name in late
            checked = typed_late(function) if is_late else typed(function)
            setattr(class_, name, type(member)(checked) if member is not function else checked)
        return class_

    return decorate


def _has_arguments(function: FunctionType, member: object) -> bool:
    """Return whether a method takes arguments besides ``self`` or ``cls``.

    ``member``: the attribute of the class: the function itself, a classmethod or a staticmethod.
    """
    code = unwrap(function).__code__
    takes_any = code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)
    return bool(takes_any) or code.co_argcount + code.co_kwonlyargcount > (not isinstance(member, staticmethod))


def typed_late(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that checks the arguments of ``function`` only after it has failed.

    It raises ArgumentError for an argument of a wrong type, and InputError for one whose value explains the failure.
    Any other error is raised as it is.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except _FAILURES as error:
            _raise_late(function, args, kwargs, error)
            if isinstance(error, (TypeError, AttributeError)) and not isinstance(error, KscaleError):
                _refuse_iterators(function, args, kwargs, error)
            raise

    return call


def _refuse_iterators(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], error: Exception) -> None:
    """Raise ArgumentError if an argument that must be a list is an iterator.

    The elements of an iterator cannot be checked after the call, because the function has consumed them. ``error``: the
    function's error, which becomes the cause.
    """
    checks = _get_checks(function, own_errors=True)
    for name, value in {**dict(zip(_list_positional(function), args, strict=False)), **kwargs}.items():
        if name in checks and checks[name].element is not None and isinstance(value, Iterator):
            raise ArgumentError(name, show_value(value), checks[name].text, type(value).__name__) from error


_FAILURES: Final = (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, RecursionError)
"""Errors after which a function's arguments are checked again, element by element."""


def _raise_late(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], error: Exception) -> None:
    """Raise an error that names the argument for which ``function`` raised ``error``; return if no argument is wrong.

    Checks the elements of all collections, which is too slow for a check before each call. Returns as well if ``error``
    is a KscaleError, which already names what is wrong.
    """
    if isinstance(error, KscaleError):
        return
    passed = {**dict(zip(_list_positional(function), args, strict=False)), **kwargs}
    checks = _get_checks(function, own_errors=True)
    for name, value in passed.items():
        if name in checks and (problem := _find_problem(name, value, checks[name], deep=True)) is not None:
            raise _build_error(function, args, kwargs, problem) from error
    for name, value in passed.items():
        if (reason := _explain_by_value(value, error)) is not None:
            raise InputError(Problem(f"{name} is {show_value(value)}: {reason}", field=name)) from error


def _explain_by_value(value: Any, error: Exception) -> str | None:
    """Return why an argument of the right type raised ``error``; None if its value does not explain the error.

    Explained are lone surrogates (UnicodeError), null characters (ValueError), integers beyond 64 bits (OverflowError)
    and deep nesting (RecursionError), also inside of lists, tuples and sets.
    """
    if isinstance(value, (list, tuple, set, frozenset)):
        try:
            reasons = (_explain_by_value(element, error) for element in value)
            return next((reason for reason in reasons if reason is not None), None)
        except RecursionError:
            return "nested too deep"
    if isinstance(value, str):
        if isinstance(error, UnicodeError) and any("\ud800" <= each <= "\udfff" for each in value):
            return "a text with half a surrogate pair cannot be encoded"
        if type(error) is ValueError and "\0" in value and "embedded null" in str(error):
            return "a text with a null character names no file"
    if isinstance(value, int) and isinstance(error, OverflowError) and not -(2**63) <= value < 2**63:
        return "more than 64 bits hold"
    if isinstance(error, RecursionError) and isinstance(value, Mapping):
        return "nested too deep"
    return None


def check_fields(item: msgspec.Struct) -> None:
    """Raise ArgumentError for the first field of a struct whose value does not match its annotation.

    Elements are checked as by :func:`typed`; those of iterators are not checked.
    """
    checks, plans = _get_field_checks(type(item))
    values = msgspec.structs.astuple(item)
    types = tuple(map(type, values))
    plan = plans.get(types)
    if plan is None:
        plan = _Plan(checks.values(), values)
        if len(plans) < _MAX_PLANS:
            plans[types] = plan
    if not (plan.by_value and plan.fails(values)):
        return
    for (name, check), field in zip(checks.items(), values, strict=True):
        if check is not None and (problem := _find_problem(name, field, check)) is not None:
            path, value, expected = problem
            raise ArgumentError(f"{type(item).__name__}.{path}", show_value(value), expected, type(value).__name__)


def _build_error(
    function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], problem: tuple[str, Any, str]
) -> Exception:
    """Return the error for a wrong argument. ``problem``: (path, actual value, expected type).

    Raises InputError instead if an argument of the call is an invalid time.
    """
    parameters = signature(function).parameters
    for name, value in {**dict(zip(_list_positional(function), args, strict=False)), **kwargs}.items():
        if value is not None and name in parameters and _MOMENT.search(str(parameters[name].annotation)):
            moment(value, name)
    path, value, expected = problem
    return ArgumentError(path, show_value(value), expected, type(value).__name__)


def _list_positional(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters for positional arguments, without ``*args``."""
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in signature(function).parameters.items() if each.kind in by_position]


def _find_problem(path: str, value: Any, check: _Type, deep: bool = False) -> tuple[str, Any, str] | None:
    """Return (path, actual value, expected type) of the first wrong value: ``value`` or an element; None without one.

    ``path``: path of ``value``. ``deep``: check the elements of collections of any type, not only those of lists,
    tuples and dicts.
    """
    if not check.accepts(value):
        return path, value, check.text
    if check.within is None:
        return None
    inner = check.within(_to_list(value) if deep else value)
    if inner is None:
        return None
    step, item, expected = inner
    return _find_problem(f"{path}{step}", item, expected, deep)


def _to_list(value: Any) -> Any:
    """Return the first 10,000 elements of a collection as a list.

    Returns lists, tuples, iterators, mappings, texts and values that cannot be iterated as they are.
    """
    if isinstance(value, (list, tuple, Mapping, str, bytes, Iterator)):
        return value
    try:
        return list(islice(iter(value), _LOOKED_AT))
    except Exception:  # noqa: BLE001  # iterating over a caller's type may raise anything
        return value


def _get_checks(function: Callable[..., Any], *, own_errors: bool = False) -> dict[str, _Type]:
    """Return the check of each parameter, by name.

    ``own_errors``: include parameters that the function checks itself, such as times and pods.
    """
    checks = {}
    for name, parameter in signature(function).parameters.items():
        if (
            parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
            or parameter.annotation is Parameter.empty
        ):
            continue
        annotation = parameter.annotation
        if isinstance(annotation, str):
            if not own_errors and any(alias in annotation for alias in _OWN_ERRORS):
                continue
            annotation = eval(annotation, function.__globals__, _Names(function.__globals__))
        check = _build_check(annotation)
        if check is not None:
            checks[name] = check
    return checks


@lru_cache(maxsize=256)
def _get_field_checks(type_: type[msgspec.Struct]) -> tuple[dict[str, _Type | None], dict[tuple[type, ...], _Plan]]:
    """Return the check of each field of a struct (None: any value), and a cache of plans by types of the values."""
    hints = typing.get_type_hints(type_)
    return {name: _build_check(hints[name]) for name in type_.__struct_fields__}, {}


class _Names(dict[str, Any]):
    """Placeholders for names that a module imports for type checkers only."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, name: str) -> Any:
        """Return a placeholder class for an unknown name.

        Raises KeyError for names that ``eval`` finds elsewhere: those of the module and the built-in ones.
        """
        if name in self._known or hasattr(builtins, name):
            raise KeyError(name)
        return type(name, (_Late,), {})


def _build_check(hint: Any) -> _Type | None:
    """Return the check for values of an annotation; None if any value is allowed."""
    if hint is Any or hint is object or isinstance(hint, (TypeVar, ParamSpec, str, typing.ForwardRef)):
        return None
    if hint is None or hint is NoneType:
        return _Type("None", lambda value: value is None, classes=(NoneType,))
    if isinstance(hint, NewType):
        return _build_check(hint.__supertype__)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _build_check(args[0])
    if origin in (Union, UnionType):
        return _build_union_check(args)
    if origin is Literal:
        return _Type(" or ".join(map(repr, args)), lambda value: isinstance(value, str) and value in args)
    kind = origin if origin is not None else hint
    if kind is Callable or (isinstance(kind, type) and issubclass(kind, cast(type, Callable))):
        return _Type(
            "a function", callable, _build_function_check(args[0]) if args and isinstance(args[0], list) else None
        )
    return _build_class_check(kind, args) if isinstance(kind, type) else None


def _build_function_check(types: list[Any]) -> _Within:
    """Return the check of a function: it can be called with as many arguments as ``types``, those of its annotation."""
    count = len(types)
    text = f"a function of {count or 'no'} argument{'' if count == 1 else 's'}"
    one = _Type(text, lambda function: _can_take(function, count))
    return lambda function: None if _can_take(function, count) else ("", function, one)


def _can_take(function: Any, count: int) -> bool:
    """Check whether a function can be called with ``count`` positional arguments."""
    called, positional = function, count
    if not isfunction(function):
        called, positional = getattr(type(function), "__call__", None), count + 1  # noqa: B004  # the method itself is needed, to count its parameters
    if isfunction(called) and not vars(called):  # whose signature no decorator has changed
        code, defaults = called.__code__, called.__defaults__ or ()
        if not code.co_kwonlyargcount and code.co_argcount - len(defaults) <= positional <= code.co_argcount:
            return True
    try:
        parameters = signature(function)
    except (TypeError, ValueError):  # of many built-in functions nothing is known
        return True
    try:
        parameters.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _build_union_check(args: tuple[Any, ...]) -> _Type | None:
    """Return the check for a union; None if it allows any value, or a time, which functions check themselves."""
    if datetime in args:
        return None  # a moment
    types = [_build_check(arg) for arg in args]
    if any(each is None for each in types):
        return None
    checks = [each for each in types if each is not None]
    texts = [each.text for each in checks if each.text != "None"]
    text = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}" if texts else "None"

    def find_inner(value: Any) -> tuple[str, Any, _Type] | None:
        inner = None
        for each in checks:
            if each.accepts(value):
                inner = each.within(value) if each.within is not None else None
                if inner is None:
                    return None
        return inner

    elements = [each.element for each in checks if each.element is not None]
    element = elements[0] if len(elements) == 1 else None
    classes = tuple(class_ for each in checks for class_ in each.classes)
    within = find_inner if any(each.within is not None for each in checks) else None
    return _Type(text, lambda value: any(each.accepts(value) for each in checks), within, element, classes)


def _build_class_check(kind: type, args: tuple[Any, ...]) -> _Type:
    """Return the check for instances of a class. ``args``: type arguments of a generic class."""
    if kind.__name__ == "ndarray":
        return _Type("an array", lambda value: hasattr(value, "__array__") or isinstance(value, (list, tuple)))
    if issubclass(kind, _Late):
        name = kind.__name__
        return _Type(_name(kind), lambda value: any(each.__name__ == name for each in type(value).__mro__))
    if kind is bool:
        return _Type("True or False", lambda value: type(value).__name__ in ("bool", "bool_"), classes=(bool,))
    if kind is int:
        return _Type("a whole number", _is_whole_number, classes=(int,))
    if kind is float:
        return _Type("a number", _is_number, classes=(int, float))
    if kind is str:
        return _Type("a string", lambda value: isinstance(value, str), classes=(str,))
    if issubclass(kind, Mapping):
        value_type = _build_check(args[1]) if len(args) == 2 else None
        return _Type("a mapping", lambda value: isinstance(value, Mapping), _build_dict_check(value_type))
    if kind is Container and args:
        texts = (str, bytes, bytearray)
        return _Type("a collection", lambda value: isinstance(value, Container) and not isinstance(value, texts))
    if issubclass(kind, Generator):
        return _Type("a step machine", lambda value: hasattr(value, "send"), classes=(GeneratorType,))
    if kind is tuple:
        return _Type("a tuple", lambda value: isinstance(value, (tuple, list)))
    if issubclass(kind, Iterable) and (issubclass(kind, (Collection, Iterator)) or kind is Iterable) and args:
        return _build_iterable_check(args[0])
    if getattr(kind, "_is_protocol", False):
        methods = [name for name in vars(kind) if not name.startswith("_") or name == "__call__"]
        return _Type(_name(kind), lambda value: all(hasattr(value, name) for name in methods))
    return _Type(_name(kind), lambda value: isinstance(value, kind), classes=(kind,))


def _is_whole_number(value: Any) -> bool:
    """Return whether a value is an integer: of any type with a working ``__index__``."""
    try:
        index(value)
    except TypeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    """Return whether a value is a number: of any type that converts to float and has no ``__len__``."""
    if isinstance(value, (int, float)):
        return True
    kind = type(value)
    if not (hasattr(kind, "__float__") or hasattr(kind, "__index__")) or hasattr(kind, "__len__"):
        return False
    try:
        float(value)
    except TypeError:  # NumPy's times have the method, but no number
        return False
    except (ValueError, OverflowError):
        pass
    return True


def _build_iterable_check(element: Any) -> _Type:
    """Return the check of a sequence or other iterable. ``element``: annotation of the elements.

    The check refuses text and bytes, although they can be iterated. It accepts a mapping only if the elements may be
    texts, because the keys count then. Only elements of lists, tuples and dicts are checked: the first one of each type
    among the first 10,000.
    """
    one = _build_check(element)
    suffix = "" if one is None else f" of {_to_plural(one.text)}"
    of_texts = one is not None and one.accepts("")
    known_good: set[type] = set()
    any_literal = get_origin(element) is Literal or any(get_origin(arg) is Literal for arg in get_args(element))

    def accepts(value: Any) -> bool:
        if type(value) in (list, tuple):
            return True
        if isinstance(value, (str, bytes, bytearray)) or (isinstance(value, Mapping) and not of_texts):
            return False
        return hasattr(value, "__iter__") or (hasattr(value, "__len__") and hasattr(value, "__getitem__"))

    def within(value: Any) -> tuple[str, Any, _Type] | None:
        if of_texts and type(value) is dict:
            value = list(islice(value, _LOOKED_AT))
        if one is None or type(value) not in (list, tuple):
            return None
        items = value if len(value) <= _LOOKED_AT else value[:_LOOKED_AT]
        if one.within is None and known_good.issuperset(map(type, items)):
            return None
        examples: dict[type, int] = {}
        for i, item in enumerate(items):
            if type(item) not in examples:
                examples[type(item)] = i
        for i in examples.values():
            if _find_problem("", value[i], one) is not None:
                return f"[{i}]", value[i], one
        if len(known_good) < 64 and not any_literal:
            known_good.update(examples)
        return None

    return _Type(f"a list{suffix}", accepts, within, one)


def _build_dict_check(value_check: _Type | None) -> _Within | None:
    """Return a function that finds a value of a dict that fails ``value_check``; None if ``value_check`` is None.

    The function returns (the key as ``[key]``, value, ``value_check``), or None if no value fails.
    """
    if value_check is None:
        return None

    def within(value: Any) -> tuple[str, Any, _Type] | None:
        if type(value) is not dict:
            return None
        seen: set[type] = set()
        for number, (key, item) in enumerate(value.items()):
            if number >= _LOOKED_AT:
                break
            if type(item) not in seen:
                seen.add(type(item))
                if _find_problem("", item, value_check) is not None:
                    return f"[{key!r}]", item, value_check
        return None

    return within


def _name(kind: type) -> str:
    """Return the name of a class for messages, with an article unless the name is a plural."""
    name = kind.__name__
    if name.endswith(("Options", "Inputs", "Groups", "Metrics", "Scores")):
        return name
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _to_plural(text: str) -> str:
    """Return a type's text without an article, in the plural for the basic types."""
    return {"a string": "strings", "a whole number": "whole numbers", "a number": "numbers"}.get(
        text, text.removeprefix("a ").removeprefix("an ")
    )
