"""The CEL environment of device selectors, for cel-python (upstream: ``k8s.io/dynamic-resource-allocation/cel``).

cel-python lacks some of CEL's syntax. Expressions are rewritten to equivalent ones before they are parsed:
``a.?f`` and ``a[?k]`` become ``a.optional__item(k)``,
``a.orValue(d)`` becomes a choice between the value of ``a`` and ``d``, and so on; ``[a, ?o]`` becomes a function of a
list of optional values; ``m.all(k, v, p)`` becomes the macro of one variable over the pairs of ``m``, with ``k`` and
``v`` bound to their parts; ``map(v, p, e)`` becomes ``filter(v, p).map(v, e)``; ``[a, ]`` becomes ``[a]``;
``sets.contains(a, b)`` becomes ``sets__contains(a, b)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from kscale.imports import lazy_pattern, library
from kscale.objects.api.resource import Device, DeviceAttribute
from kscale.scheduling.devices.cel_evaluator import MACROS, Overloads, Selection, evaluator_class
from kscale.scheduling.devices.cel_functions import NO_OVERLOAD, NOT_HAD, TypeNames, Version, functions, optional_class
from kscale.scheduling.devices.inventory import attribute_value

__all__ = [
    "CelLibrary",
    "SelectorError",
    "find_incomparable",
    "find_unclosed_quote",
    "locate_name",
    "result_type",
    "rewrite_expression",
    "selects",
]


_TRIPLES = "|".join(rf"{q}{{3}}(?:[^{q}\\]|\\[\s\S]|{q}{{1,2}}(?!{q}))*{q}{{3}}" for q in "\"'")
_SINGLES = "|".join(rf"{q}(?!{q}{q})(?:[^{q}\\\n]|\\.)*{q}" for q in "\"'")
_LITERAL = lazy_pattern(rf"[rRbB]{{0,2}}(?:{_TRIPLES}|{_SINGLES})")
_PASSED = lazy_pattern(rf"{_LITERAL.pattern}|//[^\n]*")
_QUOTE = lazy_pattern("[\"']")
_NAMESPACED = lazy_pattern(r"(?<![\w.])(sets|optional|strings|ip)\s*\.\s*(\w+)\s*(?=\()")
_FIELD = lazy_pattern(r"\.\s*\?\s*(\w+)")
_ITEM = lazy_pattern(r"(?<=[\w\])}\0])(?<!\bin)\s*\[\s*\?")
_INDEXED = lazy_pattern(r"[\w\])}\0](?<!\bin)\s*\Z")
_LAST_COMMA = lazy_pattern(r",(?=(?:\s|//[^\n]*\n)*[\]}])")
_MAP = lazy_pattern(r"\.\s*map\s*\(")
_CHOICE = lazy_pattern(r"\.\s*(orValue|or|optMap|optFlatMap)\s*\(")
_CHOICES = {
    "orValue": "([{0}].map({o}, optional__has({o}) ? {o}.value() : ({1}))[0])",
    "or": "([{0}].map({o}, optional__has({o}) ? {o} : ({1}))[0])",
    "optMap": "([{0}].map({o}, {o}.hasValue() ? optional__of([{o}.value()].map({1}, {2})[0]) : optional__none())[0])",
    "optFlatMap": "([{0}].map({o}, {o}.hasValue() ? [{o}.value()].map({1}, {2})[0] : optional__none())[0])",
}
_OPTIONAL = lazy_pattern(r"[\[{,]\s*\?")
_PAIRS = lazy_pattern(r"\.\s*(all|exists|existsOne|exists_one|transformList|transformMap|transformMapEntry)\s*\(")
_VARIABLE = lazy_pattern(r"[A-Za-z_]\w*")
_OPEN, _CLOSE = "([{", ")]}"


def rewrite_expression(expression: str) -> str:
    """Rewrite the syntax listed in the module to what cel-python parses; the rest of the expression is unchanged."""
    if "\0" in _LITERAL.sub("", expression):
        return expression  # not CEL; NUL is used below as a placeholder of literals
    literals: list[str] = []

    def keep(match: re.Match[str] | str) -> str:
        literals.append(match if isinstance(match, str) else match[0])
        return f"\0{len(literals) - 1}\0"

    text = _remove_trailing_commas(_NAMESPACED.sub(r"\1__\2", _LITERAL.sub(keep, expression)))
    text = _FIELD.sub(lambda match: f".optional__item({keep(repr(match[1]))})", text)
    while (match := _ITEM.search(text)) is not None:
        end = _find_closing(text, match.end())
        if end < 0:
            break
        text = f"{text[: match.start()]}.optional__item({text[match.end() : end]}){text[end + 1 :]}"
    choice_count = 0
    while (match := _CHOICE.search(text)) is not None:
        start, end = _find_operand(text, match.start()), _find_closing(text, match.end())
        parts = [text[start : match.start()], *(part.strip() for part in _split_arguments(text[match.end() : end]))]
        if end < 0 or start == match.start() or len(parts) != (3 if match[1].startswith("opt") else 2):
            break
        choice_count += 1
        text = text[:start] + _CHOICES[match[1]].format(*parts, o=f"o__{choice_count}") + text[end + 1 :]
    text = _rewrite_pair_macros(_rewrite_filters(_rewrite_optional_elements(text)))
    return re.sub(r"\0(\d+)\0", lambda match: literals[int(match[1])], text)


def _remove_trailing_commas(text: str) -> str:
    """Remove trailing commas of list and map literals.

    Trailing commas of calls and of an index after a value are invalid and stay.
    """

    def last(match: re.Match[str]) -> str:
        start = _find_opening(text, match.start())
        return "," if start < 0 or (text[start] == "[" and _INDEXED.search(text[:start])) else ""

    return _LAST_COMMA.sub(last, text)


def _rewrite_filters(text: str) -> str:
    """Rewrite ``map(v, p, e)`` to ``filter(v, p).map(v, e)``."""
    position = 0
    while (match := _MAP.search(text, position)) is not None:
        position, end = match.end(), _find_closing(text, match.end())
        parts = [part.strip() for part in _split_arguments(text[position:end])]
        if end >= 0 and len(parts) == 3 and _VARIABLE.fullmatch(parts[0]):
            name, condition, body = parts
            text = f"{text[: match.start()]}.filter({name}, {condition}).map({name}, {body}){text[end + 1 :]}"
    return text


def _rewrite_optional_elements(text: str) -> str:
    """Rewrite ``[a, ?o]`` and ``{k: a, ?l: o}`` to functions of optional values; other elements become optionals."""
    while (match := _OPTIONAL.search(text)) is not None:
        start = match.start() if text[match.start()] in _OPEN else _find_opening(text, match.start())
        end = -1 if start < 0 else _find_closing(text, start + 1)
        if end < 0 or text[start] == "(":
            break
        elements = [
            _rewrite_element(part.strip(), is_map=text[start] == "{")
            for part in _split_arguments(text[start + 1 : end])
        ]
        name = "list" if text[start] == "[" else "map"
        text = f"{text[:start]}literal__{name}([{', '.join(elements)}]){text[end + 1 :]}"
    return text


def _rewrite_element(text: str, *, is_map: bool) -> str:
    """Rewrite one element of a list or map literal to an expression of an optional value.

    ``text`` is the source of the element, without surrounding spaces. A ``?`` before it says that its value is optional
    already. Any other value is wrapped. With ``is_map`` the result is a pair with the key:

    - ``a`` -> ``optional__of(a)``
    - ``?a`` -> ``a``
    - ``k:a`` -> ``[k, optional__of(a)]``
    - ``?k:a`` -> ``[k, a]``

    Does not check the element, and raises nothing.
    """
    is_optional, text = text.startswith("?"), text.removeprefix("?")
    key, value = _split_entry(text) if is_map else ("", text)
    value = value if is_optional else f"optional__of({value})"
    return f"[{key}, {value}]" if is_map else value


def _split_entry(text: str) -> tuple[str, str]:
    """Split a map entry ``key: value`` into key and value. The value is empty if there is no such colon.

    The colon of a conditional expression (``a ? b : c``) does not count.
    """
    depth = choices = 0
    for i, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth == 0 and letter == ":" and not choices:
            return text[:i], text[i + 1 :]
        choices += depth == 0 and (letter == "?") - (letter == ":")
    return text, ""


def _rewrite_pair_macros(text: str) -> str:
    """Rewrite macros of two variables to macros of one variable over pairs of index and element, or key and value.

    ``existsOne`` of one variable becomes ``exists_one``.
    """
    position = pair_count = 0
    while (match := _PAIRS.search(text, position)) is not None:
        start, end, name = _find_operand(text, match.start()), _find_closing(text, match.end()), match[1]
        parts = [part.strip() for part in _split_arguments(text[match.end() : end])]
        makes = name.startswith("transform")
        if end >= 0 and name == "existsOne" and len(parts) == 2:
            text = f"{text[: match.start()]}.exists_one({text[match.end() :]}"
        has_two_variables = end >= 0 and len(parts) in ((3, 4) if makes else (3,)) and parts[0] != parts[1]
        if not has_two_variables or not all(map(_VARIABLE.fullmatch, parts[:2])):
            position = match.start() + 1
            continue
        pair_count += 1
        text = (
            text[:start]
            + _build_pair_macro(name, text[start : match.start()], f"p__{pair_count}", *parts)
            + text[end + 1 :]
        )
        position = start
    return text


def _build_pair_macro(name: str, of: str, pair: str, key: str, value: str, *bodies: str) -> str:
    """Build a macro of one variable over the pairs of the expression ``of``, in place of the macro ``name`` of two.

    ``pair``: name of the new variable, a pair of index and element (list) or of key and value (map); ``key``,
    ``value``: names of the two variables. Of ``bodies``, the last is the result and the others are conditions.
    """
    *conditions, body = [f"[{pair}[0]].map({key}, [{pair}[1]].map({value}, {each})[0])[0]" for each in bodies]
    pairs = f"pairs__of({of})" + "".join(f".filter({pair}, {each})" for each in conditions)
    if name == "transformList":
        return f"{pairs}.map({pair}, {body})"
    if name == "transformMap":
        return f"pairs__map({pairs}.map({pair}, [{pair}[0], {body}]))"
    if name == "transformMapEntry":
        return f"pairs__merged({pairs}.map({pair}, {body}))"
    return f"{pairs}.{'exists_one' if name == 'existsOne' else name}({pair}, {body})"


def locate_name(expression: str, name: str, *, called: bool) -> tuple[int, int]:
    """Return (line from 1, column from 0) of the first occurrence of a name, where upstream reports it undeclared.

    If the name is ``called``, the position is that of the bracket after it. The start of the text if it does not occur.
    """
    blank = _LITERAL.sub(lambda match: " " * len(match[0]), expression)
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)" + (r"\s*(?=\()" if called else ""), blank)
    position = 0 if match is None else match.end() if called else match.start()
    return _locate(expression, position)


def find_unclosed_quote(expression: str) -> tuple[int, int] | None:
    """Return (line from 1, column from 0) of a quote that begins an unterminated literal; None if there is none.

    Call this before parsing: cel-python's parser takes practically forever on such a literal with many backslashes.
    """
    match = _QUOTE.search(_PASSED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), expression))
    return None if match is None else _locate(expression, match.start())


def _locate(text: str, at: int) -> tuple[int, int]:
    """Return (line from 1, column from 0) of the position ``at``."""
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1)


def _find_closing(text: str, start: int) -> int:
    """Return the position at which the innermost bracket that is open at ``start`` closes; -1 if it does not close."""
    depth = 1
    for i in range(start, len(text)):
        depth += (text[i] in _OPEN) - (text[i] in _CLOSE)
        if depth == 0:
            return i
    return -1


def _find_opening(text: str, end: int) -> int:
    """Return the position of the innermost bracket that is still open at ``end``; -1 if none is open."""
    depth = 1
    for i in range(end - 1, -1, -1):
        depth += (text[i] in _CLOSE) - (text[i] in _OPEN)
        if depth == 0:
            return i
    return -1


def _split_arguments(text: str) -> list[str]:
    """Split a text at its top-level commas; brackets keep their commas."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _find_operand(text: str, end: int) -> int:
    """Return the index at which the operand of a member access starts that ends before index ``end``.

    The operand is a chain of names, dots and brackets, such as ``device.attributes["a"]``.
    """
    i = end
    while i > 0:
        letter = text[i - 1]
        if letter in _CLOSE:
            depth = 0
            while i > 0:
                i -= 1
                depth += (text[i] in _CLOSE) - (text[i] in _OPEN)
                if depth == 0:
                    break
        elif letter.isalnum() or letter in "_.\0":
            i -= 1
        else:
            break
    return i


_LITERALS: Final = {
    "BOOL_LIT": "bool", "INT_LIT": "int", "UINT_LIT": "uint", "FLOAT_LIT": "double", "STRING_LIT": "string",
    "MLSTRING_LIT": "string", "BYTES_LIT": "bytes", "NULL_LIT": "null_type",
}  # fmt: skip
_QUANTITY, _SEMVER = "kubernetes.Quantity", "kubernetes.Semver"
_FUNCTIONS: Final = {"quantity": _QUANTITY, "add": _QUANTITY, "sub": _QUANTITY, "semver": _SEMVER} | {
    name: type_
    for type_, names in {
        "int": "size int compareTo indexOf lastIndexOf sign asInteger major minor patch family prefixLength",
        "double": "double asApproximateFloat",
        "string": "string lowerAscii upperAscii trim replace substring charAt join find",
    }.items()
    for name in names.split()
}
"""Functions whose result type does not depend on their arguments."""
_NUMBERS: Final = frozenset({"int", "uint", "double"})
_ORDERED: Final = _NUMBERS | {"string", "bytes", "bool"}
_EQUALITIES: Final = {"relation_eq": "==", "relation_ne": "!="}
_RELATIONS: Final = _EQUALITIES | {
    "relation_lt": "<", "relation_le": "<=", "relation_gt": ">", "relation_ge": ">=", "relation_in": "in",
}  # fmt: skip
_JUDGING: Final = frozenset({"conditionalor", "conditionaland", "relation"})
_ARITHMETIC: Final = frozenset({"addition", "multiplication"})


def result_type(tree: Any) -> str | None:
    """Return upstream's name of an expression's type; None if it is not known before evaluation.

    ``tree``: a tree of cel-python's parser. The types of device attributes are not known.
    """
    kind, children = tree.data, tree.children
    if kind == "literal":
        return _LITERALS.get(children[0].type)
    if kind == "ident_arg":
        return _FUNCTIONS.get(str(children[0]))
    if kind == "member_dot_arg":
        return _FUNCTIONS.get(str(children[1]))
    if kind == "member_dot":
        return "string" if str(children[1]) == "driver" and _is_ident(children[0], "device") else None
    if kind == "list_lit":
        types = {result_type(element) for element in children[0].children} if children else {None}
        element = types.pop()
        return f"list({element})" if not types and element is not None else None
    if kind in ("member", "primary", "paren_expr") or len(children) == 1:
        return result_type(children[0]) if len(children) == 1 and hasattr(children[0], "data") else None
    if kind in _JUDGING:
        return "bool"
    if kind == "expr":  # a conditional expression
        return _common_type(children[1], children[2])
    if kind == "unary":
        return "bool" if children[0].data == "unary_not" else result_type(children[1])
    return _common_type(children[0].children[0], children[1]) if kind in _ARITHMETIC else None


def find_incomparable(tree: Any) -> Iterator[tuple[str, int, int]]:
    """Yield (error text, line, column) for each comparison in an expression of types that cannot be compared.

    Lines count from 1, columns from 0. ``tree``: a tree of cel-python's parser.
    """
    for node in tree.iter_subtrees_topdown():
        if node.data != "relation" or len(node.children) != 2:
            continue
        relation, right = node.children
        types = result_type(relation.children[0]), result_type(right)
        if not _are_comparable(str(relation.data), *types):
            sign = _RELATIONS[relation.data]
            shown = ", ".join({None: "dyn", "null_type": "null"}.get(type_) or str(type_) for type_ in types)
            text = f"found no matching overload for '{'@in' if sign == 'in' else f'_{sign}_'}' applied to '({shown})'"
            yield text, relation.meta.end_line, relation.meta.end_column - len(sign) - 1


def _are_comparable(relation: str, left: str | None, right: str | None) -> bool:
    """Check whether CEL declares the relation for the types of its sides; None: a type known only at evaluation."""
    if left is None or right is None:
        is_order = relation not in _EQUALITIES and relation != "relation_in"
        return not (is_order and {left, right} & {_QUANTITY, _SEMVER})
    if relation == "relation_in":
        return right == f"list({left})"
    if relation in _EQUALITIES:
        return left == right
    return (left == right and left in _ORDERED) or {left, right} <= _NUMBERS or left == right == "null_type"


def _common_type(left: Any, right: Any) -> str | None:
    """Return the type that both expression trees have; None if they differ or one type is unknown."""
    left_type = result_type(left)
    return left_type if left_type == result_type(right) else None


def _unwrap(tree: Any) -> Any:
    """Return the tree at the end of the chain of only children that begins with ``tree``."""
    while len(tree.children) == 1 and hasattr(tree.children[0], "data"):
        tree = tree.children[0]
    return tree


def _is_ident(tree: Any, name: str) -> bool:
    """Return whether the tree is just this name."""
    tree = _unwrap(tree)
    return bool(tree.data == "ident" and str(tree.children[0]) == name)


def _read_variable(expression: str, tree: Any, *, is_bind: bool) -> str:
    """Return the name of a macro's variable. Raises SelectorError if the tree is no simple name.

    ``is_bind``: the macro is ``cel.bind``, whose error has another text.
    """
    variable = _unwrap(tree)
    if variable.data != "ident":
        text = "cel.bind() variable names must be simple identifiers" if is_bind else "argument must be a simple name"
        raise SelectorError(_format_at(expression, text, tree))
    return str(variable.children[0])


_NO_KEY = "no such key: "
_HINT = (
    "consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional "
    "fields"
)
_OVERFLOW = "return error for overflow"
"""cel-python's text for any ValueError."""
_TOO_DEEP = "compilation failed: the expression is nested too deep"


class SelectorError(ValueError):
    """An expression that does not compile, fails on a device or gives no boolean. The text is upstream's; ``compiles``:
    the expression compiles, but fails on a device.
    """

    def __init__(self, text: str, *, compiles: bool = False) -> None:
        super().__init__(text)
        self.compiles = compiles


def selects(expression: str, driver: str, device: Device) -> bool:
    """Check whether a CEL expression is true for a device of a driver.

    Raises SelectorError if the expression is invalid or fails, and MissingExtraError if cel-python is not installed.
    """
    library = _library()
    program = library.program(expression)
    try:
        verdict = program.evaluate({"device": library.view(driver, device)})
    except RecursionError:
        raise SelectorError(_TOO_DEEP) from None
    except IndexError:  # cel-python fails to format a value that is no boolean
        raise SelectorError(NO_OVERLOAD, compiles=True) from None
    except (library.error, ValueError) as problem:
        text = str(problem.args[0]) if problem.args else str(problem)
        if text == _OVERFLOW and problem.__cause__ is not None:
            text = str(problem.__cause__)
        text = f"{text}. {_HINT}" if text.startswith(_NO_KEY) else text.split(" (in activation", 1)[0]
        raise SelectorError(text, compiles=True) from None
    value = verdict.value if isinstance(verdict, library.optional_type) else verdict
    if not isinstance(value, library.bool_type):
        raise SelectorError(library.names.explain_result(verdict), compiles=True)
    return bool(value)


_FAILED = "compilation failed: "
_PROGRAMS = 1024
"""Number of compiled expressions to cache. The limit matters because a process may run for months."""


class CelLibrary:
    """cel-python with Kubernetes' functions for quantities and versions.

    Quantities and versions are opaque to CEL: only their functions and equality apply.
    """

    def __init__(self) -> None:
        purpose = "a CEL selector of a device class or claim"
        celpy, celtypes = library("celpy", purpose), library("celpy.celtypes", purpose)
        self.error: type[Exception] = celpy.CELEvalError
        self.bool_type: type = celtypes.BoolType
        self._celpy = celpy
        self._types = celtypes
        base: Any = celpy.InterpretedRunner

        class Runner(base):  # type: ignore[misc]  # cel-python is not typed
            def evaluate(runner, context: Any) -> Any:  # noqa: N805  # ``self`` is the CEL library here
                return self._evaluator(ast=runner.ast, activation=runner.new_activation()).evaluate(context)

        self._environment = celpy.Environment(runner_class=Runner)
        self.program: Callable[[str], Any] = lru_cache(_PROGRAMS)(self._compile)
        """The compiled expression. Raises SelectorError."""
        self.optional_type: Any = optional_class()
        self.names = TypeNames(celtypes, self.optional_type)
        available = celpy.evaluation.base_functions | functions(celtypes, self.names, self.optional_type)
        overloads = Overloads(celtypes, self.names, celpy.CELEvalError, available)
        selection = Selection(celtypes, overloads, self.optional_type)
        self._functions = overloads.functions | {"optional__item": selection.select_optional}
        self._evaluator = evaluator_class(celpy, overloads, selection)

        map_type: Any = celtypes.MapType

        class Domains(map_type):  # type: ignore[misc]  # cel-python is not typed
            """A map in which a domain that the device does not have reads as empty; ``in`` still reports it as
            absent.
            """

            def __getitem__(self, key: Any) -> Any:
                return super().__getitem__(key) if key in self else map_type()

            def get(self, key: Any, default: Any = None) -> Any:
                return self[key] if key in self or default is None else default

        self._domains = Domains

    def _compile(self, expression: str) -> Any:
        """Compile an expression to cel-python's program. Raises SelectorError with upstream's text if it is invalid."""
        if (open_ := find_unclosed_quote(expression)) is not None:
            rest = expression.splitlines()[open_[0] - 1][open_[1] :]
            raise SelectorError(
                _format_error(expression, f"Syntax error: token recognition error at: '{rest}'", *open_)
            )
        try:
            read = rewrite_expression(expression)
            tree = self._environment.compile(read)
            self._check(expression, tree)
            for text, line, column in find_incomparable(tree):
                raise SelectorError(
                    _format_error(expression, text, line, column) if read == expression else f"{_FAILED}{text}"
                )
            if (type_ := result_type(tree)) not in (None, "bool"):
                raise SelectorError(f"must evaluate to bool or the unknown type, not {type_}")
            return self._environment.program(tree, functions=self._functions)
        except self._celpy.CELParseError as problem:
            raise SelectorError(f"compilation failed: {problem.args[0]}") from None
        except RecursionError:
            raise SelectorError(_TOO_DEEP) from None

    def _check(self, expression: str, tree: Any) -> None:
        """Check that every name is declared.

        Raises SelectorError for an unknown function or variable, for a function that kscale does not have, and for a
        macro with wrong arguments.
        """
        called, named, bound, namespaces = set(), [], {"device"}, set()
        for node in tree.iter_subtrees():
            if node.data in ("ident_arg", "dot_ident_arg"):
                called.add(str(node.children[0]))
                if str(node.children[0]) == "has":
                    self._check_has(expression, node)
            elif node.data == "member_dot_arg":
                name, receiver = str(node.children[1]), _unwrap(node.children[0])
                arguments = node.children[2].children if len(node.children) == 3 else []
                is_bind = name == "bind" and _is_ident(receiver, "cel")
                count = 3 if is_bind else MACROS.get(name)
                if count is None:
                    called.add(name)
                elif len(arguments) != count:
                    raise SelectorError(_format_undeclared(expression, name, called=True))
                else:
                    bound.add(_read_variable(expression, arguments[0], is_bind=is_bind))
                    namespaces |= {id(receiver)} if is_bind else set()
            elif node.data == "ident":
                named.append(node)
        for name in sorted(called & NOT_HAD):
            raise SelectorError(f"compilation failed: kscale does not have the function '{name.replace('__', '.')}'")
        declared = self._functions.keys() | {"has", "dyn"}
        for name in sorted(called - declared):
            raise SelectorError(_format_undeclared(expression, name, called=True))
        names = {str(node.children[0]) for node in named if id(node) not in namespaces}
        for name in sorted(names - bound - declared):
            raise SelectorError(_format_undeclared(expression, name, called=False))

    def _check_has(self, expression: str, node: Any) -> None:
        """Check the call of ``has``. Raises SelectorError unless it has exactly one argument that selects a field."""
        arguments = node.children[1].children if len(node.children) == 2 else []
        if len(arguments) != 1:
            raise SelectorError(_format_undeclared(expression, "has", called=True))
        if _unwrap(arguments[0]).data != "member_dot":
            raise SelectorError(_format_at(expression, "invalid argument to has() macro", arguments[0]))

    def view(self, driver: str, device: Device) -> Any:
        """Return the map ``device`` that expressions read: driver, attributes, capacity, allowMultipleAllocations.

        Attributes and capacities without a domain are in the driver's. Raises ValueError for an attribute with an
        invalid version.
        """
        text, mapping = self._types.StringType, self._types.MapType
        return mapping(
            {
                text("driver"): text(driver),
                text("attributes"): self._group_by_domain(driver, device.attributes or {}, self._attribute),
                text("capacity"): self._group_by_domain(driver, device.capacity or {}, lambda entry: entry.value),
                text("allowMultipleAllocations"): self._types.BoolType(bool(device.allow_multiple_allocations)),
            }
        )

    def _group_by_domain(self, driver: str, entries: Mapping[str, Any], convert: Callable[[Any], Any]) -> Any:
        """Return a map of domain -> name -> converted entry; unqualified names are in the driver's domain.

        ``entries``: by name; ``convert`` is called for each of them.
        """
        text, mapping = self._types.StringType, self._types.MapType
        domains: dict[str, Any] = {driver: mapping()}
        for key, entry in entries.items():
            domain, _, name = key.rpartition("/")
            domains.setdefault(domain or driver, mapping())[text(name)] = convert(entry)
        return self._domains({text(domain): names for domain, names in domains.items()})

    def _attribute(self, attribute: DeviceAttribute) -> Any:
        """Return the value of an attribute as a value of CEL; None if the attribute has no value.

        Raises ValueError for an invalid version.
        """
        typed_value = attribute_value(attribute)
        if typed_value is None:
            return None
        kind, value = typed_value
        if kind == "bool":
            return self._types.BoolType(value)
        if kind == "int":
            return self._types.IntType(value)
        return self._types.StringType(value) if kind == "string" else Version(str(value))


def _format_undeclared(expression: str, name: str, *, called: bool) -> str:
    """Return upstream's error for a name that is not declared. ``called``: the name is called as a function."""
    shown = name.rpartition("__")[2]
    line, column = locate_name(expression, shown, called=called)
    return _format_error(
        expression, f"undeclared reference to '{name.replace('__', '.')}' (in container '')", line, column
    )


def _format_at(expression: str, text: str, tree: Any) -> str:
    """Return the error message ``text``, with the position of ``tree`` unless the expression was rewritten."""
    if rewrite_expression(expression) != expression:
        return f"{_FAILED}{text}"
    return _format_error(expression, text, tree.meta.line, tree.meta.column - 1)


def _format_error(expression: str, text: str, line: int, column: int) -> str:
    """Return upstream's compile error, with the source line. ``line`` counts from 1, ``column`` from 0."""
    shown = f"{expression.splitlines()[line - 1]}\n | {'.' * column}^"
    return f"{_FAILED}ERROR: <input>:{line}:{column + 1}: {text}\n | {shown}"


@cache
def _library() -> CelLibrary:
    """Return the library, created once. Raises MissingExtraError if cel-python is not installed."""
    return CelLibrary()
