"""Label selectors: parse, build, match, print and index (upstream: ``apimachinery/pkg/labels``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Generic, TypeVar

import msgspec

from kscale._native import _projection
from kscale.objects.api.meta import LabelSelector
from kscale.objects.go_numbers import parse_int64
from kscale.objects.names import go_quote, label_value_errors, qualified_name_errors

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "LabelIndex",
    "Requirement",
    "Selector",
    "SelectorError",
    "SelectorIndex",
    "compile_selector",
    "from_label_map",
    "parse_selector",
    "requirement",
]


IN: Final = "in"
NOT_IN: Final = "notin"
EQUALS: Final = "="
DOUBLE_EQUALS: Final = "=="
NOT_EQUALS: Final = "!="
EXISTS: Final = "exists"
DOES_NOT_EXIST: Final = "!"
GREATER_THAN: Final = "gt"
LESS_THAN: Final = "lt"

_POSITIVE: Final = frozenset({IN, EQUALS, DOUBLE_EQUALS})
_NEGATIVE: Final = frozenset({NOT_IN, NOT_EQUALS})
_EXACT: Final = frozenset({EQUALS, DOUBLE_EQUALS, NOT_EQUALS})
_NUMERIC: Final = frozenset({GREATER_THAN, LESS_THAN})
_API_OPERATOR: Final = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST}
_PRINTED: Final = {IN: " in ", NOT_IN: " notin ", GREATER_THAN: ">", LESS_THAN: "<"}
_OPERATORS: Final = (DOES_NOT_EXIST, EQUALS, DOUBLE_EQUALS, IN, NOT_EQUALS, NOT_IN, EXISTS, GREATER_THAN, LESS_THAN)

_GO_JSON: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}  # Go's encoder escapes these

_NO_LABELS: Final[Mapping[str, str]] = {}


class SelectorError(ValueError):
    """A selector that the API machinery refuses, with upstream's text."""


class Requirement(msgspec.Struct, frozen=True):
    """One condition on labels. ``operator`` has upstream's internal spelling: in, notin, =, ==, !=, exists, !, gt,
    lt.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether the labels meet the condition."""
        value = (labels or _NO_LABELS).get(self.key)
        operator = self.operator
        if operator in _POSITIVE:
            return value is not None and value in self.values
        if operator in _NEGATIVE:
            return value is None or value not in self.values
        if operator == EXISTS:
            return value is not None
        if operator == DOES_NOT_EXIST:
            return value is None
        number = None if value is None else parse_int64(value)
        bound = parse_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if operator == GREATER_THAN else number < bound

    def __str__(self) -> str:
        if self.operator == DOES_NOT_EXIST:
            return f"!{self.key}"
        if self.operator == EXISTS:
            return self.key
        values = ",".join(sorted(self.values))
        if self.operator in (IN, NOT_IN):
            values = f"({values})"
        return f"{self.key}{_PRINTED.get(self.operator, self.operator)}{values}"


class Selector(msgspec.Struct, frozen=True):
    """A compiled selector. All requirements must hold; ``nothing`` matches no labels at all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Check whether the selector matches the labels; None means no labels."""
        if self.nothing:
            return False
        return all(item.matches(labels) for item in self.requirements)

    @property
    def empty(self) -> bool:
        """Return whether the selector matches everything (``Selector.Empty``)."""
        return not self.requirements and not self.nothing

    def exact_label(self) -> tuple[str, str] | None:
        """Return a label (key, value) that all selected objects must have; None if the selector requires none.

        Used for lookups by label.
        """
        for item in self.requirements:
            if item.operator in _POSITIVE and len(item.values) == 1:
                return item.key, item.values[0]
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(nothing=True)


def _aggregate(errors: list[str]) -> SelectorError:
    """Combine texts into one error: duplicates are dropped, and several texts are put in brackets."""
    unique = list(dict.fromkeys(errors))
    return SelectorError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")


def _format_go_json(values: Sequence[str]) -> str:
    """Format a list of texts as Go's encoding/json does: ``null`` if it is empty."""
    import json

    if not values:
        return "null"
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":")).translate(_GO_JSON)


def _find_value_errors(operator: str, values: Sequence[str]) -> list[str]:
    """Return upstream's errors about the values of an operator; empty if they are valid."""
    if operator in (IN, NOT_IN):
        wrong = "" if values else "for 'in', 'notin' operators, values set can't be empty"
    elif operator in _EXACT:
        wrong = "" if len(values) == 1 else "exact-match compatibility requires one single value"
    elif operator in (EXISTS, DOES_NOT_EXIST):
        wrong = "values set must be empty for exists and does not exist" if values else ""
    else:
        wrong = "" if len(values) == 1 else "for 'Gt', 'Lt' operators, exactly one value is required"
    errors = [f"values: Invalid value: {_format_go_json(values)}: {wrong}"] if wrong else []
    if operator in _NUMERIC:
        errors.extend(
            f"values[{i}]: Invalid value: {go_quote(value)}: for 'Gt', 'Lt' operators, the value must be an integer"
            for i, value in enumerate(values)
            if parse_int64(value) is None
        )
    return errors


def requirement(key: str, operator: str, values: Sequence[str] = ()) -> Requirement:
    """Build a validated requirement (``labels.NewRequirement``). Raises :class:`SelectorError` with upstream's text."""
    errors = []
    if wrong := qualified_name_errors(key):
        errors.append(f"key: Invalid value: {go_quote(key)}: {'; '.join(wrong)}")
    if operator in _OPERATORS:
        errors.extend(_find_value_errors(operator, values))
    else:
        supported = ", ".join(f'"{name}"' for name in sorted(_OPERATORS))
        errors.append(f"operator: Unsupported value: {go_quote(operator)}: supported values: {supported}")
    for i, value in enumerate(values):
        if wrong := label_value_errors(value):
            errors.append(f"values[{i}][{key}]: Invalid value: {go_quote(value)}: {'; '.join(wrong)}")
    if errors:
        raise _aggregate(errors)
    return Requirement(key, operator, tuple(values))


_Key = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, tuple[str, ...]], ...]]


@lru_cache(maxsize=1 << 14)
def _compile(key: _Key) -> Selector:
    """Compile labels and expressions. Raises SelectorError for an invalid operator, key or value."""
    labels, expressions = key
    requirements = [requirement(name, EQUALS, (value,)) for name, value in labels]
    for name, operator, values in expressions:
        internal = _API_OPERATOR.get(operator)
        if internal is None:
            raise SelectorError(f"{go_quote(operator)} is not a valid label selector operator")
        requirements.append(requirement(name, internal, values))
    requirements.sort(key=lambda item: item.key)  # upstream sorts with an unstable sort; a stable one is canonical
    return Selector(tuple(requirements))


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compile an API selector (``LabelSelectorAsSelector``); None selects nothing, an empty selector everything.

    Raises :class:`SelectorError` with upstream's text. If several labels are wrong, upstream names a random one; kscale
    names the first in order of keys.
    """
    if selector is None:
        return NOTHING
    labels = selector.match_labels
    return _compile(
        (
            tuple(sorted(labels.items())) if labels else (),
            tuple((item.key, item.operator, tuple(item.values)) for item in selector.match_expressions),
        )
    )


def from_label_map(labels: Mapping[str, str] | None) -> Selector:
    """Build an equality selector without validation (``SelectorFromSet``). An empty map and None match everything."""
    if not labels:
        return EVERYTHING
    return Selector(tuple(Requirement(key, EQUALS, (value,)) for key, value in sorted(labels.items())))


_SPECIAL: Final = "=!(),><"
_BLANK: Final = " \t\r\n"
_SYMBOLS: Final = (")", ",", "!", "==", "=", ">", "<", "!=", "(")
_PRINTED_OPERATORS: Final = {"=": "=", "==": "==", "!=": "!=", ">": "gt", "<": "lt", "in": "in", "notin": "notin"}
_END: Final = "end"
_WORD: Final = "word"
_ERROR: Final = "error"

_Token = tuple[str, str]  # (kind, text); a symbol's or keyword's kind is its text


def _scan_symbol(text: str, start: int) -> tuple[_Token, int]:
    """Return the token of the longest symbol at ``start``, and the position after it, as upstream's scanner finds it.

    Without a valid symbol the token is of the kind ``_ERROR``, with a message.
    """
    symbol, end, position = "", start, start
    while position < len(text) and text[position] in _SPECIAL:
        candidate = text[start : position + 1]
        position += 1
        if candidate in _SYMBOLS:
            symbol, end = candidate, position
        elif symbol:
            break
    if not symbol:
        return (_ERROR, f"error expected: keyword found '{text[start:position]}'"), position
    return (symbol, symbol), end


def _split_tokens(text: str) -> list[_Token]:
    """Split a text into tokens (kind, text); the last one is ``_END``."""
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char in _BLANK:
            position += 1
        elif char in _SPECIAL:
            token, position = _scan_symbol(text, position)
            tokens.append(token)
        else:
            end = position
            while end < len(text) and text[end] not in _SPECIAL and text[end] not in _BLANK:
                end += 1
            word = text[position:end]
            tokens.append((word if word in ("in", "notin") else _WORD, word))
            position = end
    return [*tokens, (_END, "")]


class _Parser:
    """Parser of a selector's text (upstream: ``labels.Parse``). Methods raise SelectorError with upstream's text."""

    def __init__(self, text: str) -> None:
        self.tokens = _split_tokens(text)
        self.position = 0

    def peek(self) -> _Token:
        """Return the next token without advancing. The keywords ``in`` and ``notin`` count as words."""
        kind, text = self.tokens[min(self.position, len(self.tokens) - 1)]
        return (_WORD if kind in ("in", "notin") else kind, text)

    def take(self) -> _Token:
        """Return the next token as :meth:`peek` does, and advance past it."""
        token = self.peek()
        self.position += 1
        return token

    def selector(self) -> list[Requirement]:
        """Parse all requirements up to the end of the text. Raises SelectorError."""
        requirements: list[Requirement] = []
        while True:
            kind, text = self.peek()
            if kind == _END:
                return requirements
            if kind not in (_WORD, "!"):
                raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self.requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            kind, text = self.take()
            if kind == _END:
                return requirements
            if kind != ",":
                raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self.peek()
            if kind not in (_WORD, "!"):
                raise SelectorError(f"found '{text}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        """Parse one requirement: ``key``, ``!key``, or key, operator and values. Raises SelectorError."""
        kind, key = self.take()
        absent = kind == "!"
        if absent:
            kind, key = self.take()
        if kind != _WORD:
            raise SelectorError(f"found '{key}', expected: identifier")
        if wrong := qualified_name_errors(key):
            raise SelectorError(f"<nil>: Invalid value: {go_quote(key)}: {'; '.join(wrong)}")  # upstream names no field
        if absent:
            return requirement(key, "!")
        if self.peek()[0] in (_END, ","):
            return requirement(key, "exists")
        sign, text = self.tokens[min(self.position, len(self.tokens) - 1)]
        self.position += 1
        if sign not in _PRINTED_OPERATORS:
            raise SelectorError(f"found '{text}', expected: in, notin, =, ==, !=, gt, lt")
        values = self.values() if sign in ("in", "notin") else self.value()
        return requirement(key, _PRINTED_OPERATORS[sign], sorted(values))

    def value(self) -> set[str]:
        """Parse the value of an operator other than ``in`` and ``notin``, and return it as a set of one text.

        The text is empty if the requirement ends here. Raises SelectorError.
        """
        if self.peek()[0] in (_END, ","):
            return {""}
        kind, text = self.take()
        if kind != _WORD:
            raise SelectorError(f"found '{text}', expected: identifier")
        return {text}

    def values(self) -> set[str]:
        """Parse the values of ``in`` or ``notin`` in brackets. ``()`` is one empty text. Raises SelectorError."""
        kind, text = self.take()
        if kind != "(":
            raise SelectorError(f"found '{text}' expected: '('")
        kind, first = self.peek()
        if kind == ")":
            self.take()
            return {""}
        if kind not in (_WORD, ","):
            raise SelectorError(f"found '{first}', expected: ',', ')' or identifier")
        values = self.value_list()
        if self.take()[0] != ")":
            raise SelectorError(f"found '{first}', expected: ')'")
        return values

    def value_list(self) -> set[str]:
        """Parse the values up to the closing bracket, which stays the next token. Raises SelectorError."""
        values: set[str] = set()
        while True:
            kind, text = self.take()
            following, following_text = self.peek()
            if kind == _WORD:
                values.add(text)
                if following == ")":
                    return values
                if following != ",":
                    raise SelectorError(f"found '{following_text}', expected: ',' or ')'")
            elif kind == ",":  # nothing between two commas, or a comma and a parenthesis, is the empty value
                if not values:
                    values.add("")
                if following == ")":
                    return values | {""}
                if following == ",":
                    values.add("")
            else:
                raise SelectorError(f"found '{text}', expected: ',', or identifier")


@lru_cache(maxsize=1 << 15)
def parse_selector(text: str) -> Selector:
    """Parse a selector from its text form. Raises :class:`SelectorError` with upstream's text."""
    plain = _projection.plain_label(text)
    if plain is not None:
        return Selector((Requirement(plain[0], "=", (plain[1],)),))
    requirements = _Parser(text).selector()
    requirements.sort(key=lambda item: item.key)
    return Selector(tuple(requirements))


T = TypeVar("T", bound=Hashable)
_Label = tuple[str, str]
_Labels = Mapping[str, str]


class LabelIndex(Generic[T]):
    """Labelled items by namespace and label, in insertion order."""

    __slots__ = ("_all", "_by_label")

    def __init__(self) -> None:
        self._all: dict[str, dict[T, _Labels]] = {}
        self._by_label: dict[tuple[str, _Label], dict[T, _Labels]] = {}

    def add(self, namespace: str, labels: _Labels, item: T) -> None:
        """Add an item with its labels. To change its labels, remove it first."""
        self._all.setdefault(namespace, {})[item] = labels
        for label in labels.items():
            self._by_label.setdefault((namespace, label), {})[item] = labels

    def remove(self, namespace: str, labels: _Labels, item: T) -> None:
        """Remove an item. ``labels`` must be those with which the item was added.

        Raises KeyError if the item is not there.
        """
        _drop(self._all, namespace, item)
        for label in labels.items():
            _drop(self._by_label, (namespace, label), item)

    def matching(self, namespace: str, selector: Selector) -> Iterator[T]:
        """Return an iterator over the items of a namespace whose labels the selector matches."""
        label = selector.exact_label()
        candidates = self._all.get(namespace, {}) if label is None else self._by_label.get((namespace, label), {})
        return (item for item, labels in list(candidates.items()) if selector.matches(labels))


class SelectorIndex(Generic[T]):
    """Items with a selector each, by namespace and a label that the selector requires (None if it requires none)."""

    __slots__ = ("_namespaces",)

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[_Label | None, dict[T, Selector]]] = {}

    def __contains__(self, namespace: str) -> bool:
        """Return whether the namespace has items."""
        return namespace in self._namespaces

    def add(self, namespace: str, selector: Selector, item: T) -> None:
        """Add an item with its selector."""
        by_label = self._namespaces.setdefault(namespace, {})
        by_label.setdefault(selector.exact_label(), {})[item] = selector

    def remove(self, namespace: str, selector: Selector, item: T) -> None:
        """Remove an item. ``selector`` must be the one with which the item was added.

        Raises KeyError if the item is not there.
        """
        by_label = self._namespaces[namespace]
        _drop(by_label, selector.exact_label(), item)
        if not by_label:
            del self._namespaces[namespace]

    def matching(self, namespace: str, labels: _Labels) -> Iterator[T]:
        """Yield the items of a namespace whose selector matches the labels; first those without an exact label."""
        by_label = self._namespaces.get(namespace)
        if by_label is None:
            return
        for label in (None, *labels.items()):
            for item, selector in list(by_label.get(label, {}).items()):
                if selector.matches(labels):
                    yield item


_Place = TypeVar("_Place", bound=Hashable)
_Kept = TypeVar("_Kept", _Labels, Selector)


def _drop(by_label: dict[_Place, dict[T, _Kept]], place: _Place, item: T) -> None:
    """Remove an item from the entries of ``place``, and the place if it becomes empty."""
    entries = by_label[place]
    del entries[item]
    if not entries:
        del by_label[place]
