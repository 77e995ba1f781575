"""Label selectors: building, matching, printing (upstream: ``apimachinery/pkg/labels`` and ``meta/v1/helpers.go``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from kscale.objects.meta import LabelSelector
from kscale.objects.names import go_quote, label_value_errors, qualified_name_errors

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "Requirement",
    "Selector",
    "SelectorError",
    "compile_selector",
    "from_label_map",
    "parse_int64",
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

_INT64 = re.compile(r"[+-]?[0-9]+")
_NO_LABELS: Final[Mapping[str, str]] = {}


class SelectorError(ValueError):
    """A selector that the API machinery refuses, with its text."""


def parse_int64(text: str) -> int | None:
    """``strconv.ParseInt(text, 10, 64)``: sign and leading zeros allowed; None for anything else or out of range."""
    if len(text) > 40 or _INT64.fullmatch(text) is None:
        return _parse_long_int64(text)
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _parse_long_int64(text: str) -> int | None:
    """Zeros in front of a number may be many."""
    if _INT64.fullmatch(text) is None:
        return None
    sign = "-" if text[0] == "-" else ""
    digits = text.lstrip("+-").lstrip("0") or "0"
    return parse_int64(sign + digits) if len(digits) <= 19 else None


class Requirement(msgspec.Struct, frozen=True):
    """One condition on labels. ``operator`` as upstream spells it inside: in, notin, =, ==, !=, exists, !, gt, lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether the labels meet the condition."""
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
    """A compiled selector: all requirements must hold; ``nothing`` matches no labels at all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether the labels are selected."""
        if self.nothing:
            return False
        return all(item.matches(labels) for item in self.requirements)

    @property
    def empty(self) -> bool:
        """Whether it matches everything without looking (``Selector.Empty``)."""
        return not self.requirements and not self.nothing

    def exact_label(self) -> tuple[str, str] | None:
        """A label (key, value) that everything selected has, if the selector demands one: for looking up by label."""
        for item in self.requirements:
            if item.operator in _POSITIVE and len(item.values) == 1:
                return item.key, item.values[0]
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(nothing=True)


def _aggregate(errors: list[str]) -> SelectorError:
    unique = list(dict.fromkeys(errors))
    return SelectorError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")


def _go_json(values: Sequence[str]) -> str:
    import json

    if not values:
        return "null"
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":")).translate(_GO_JSON)


def _value_errors(operator: str, values: Sequence[str]) -> list[str]:
    if operator in (IN, NOT_IN):
        wrong = "" if values else "for 'in', 'notin' operators, values set can't be empty"
    elif operator in _EXACT:
        wrong = "" if len(values) == 1 else "exact-match compatibility requires one single value"
    elif operator in (EXISTS, DOES_NOT_EXIST):
        wrong = "values set must be empty for exists and does not exist" if values else ""
    else:
        wrong = "" if len(values) == 1 else "for 'Gt', 'Lt' operators, exactly one value is required"
    errors = [f"values: Invalid value: {_go_json(values)}: {wrong}"] if wrong else []
    if operator in _NUMERIC:
        errors.extend(
            f"values[{i}]: Invalid value: {go_quote(value)}: for 'Gt', 'Lt' operators, the value must be an integer"
            for i, value in enumerate(values)
            if parse_int64(value) is None
        )
    return errors


def requirement(key: str, operator: str, values: Sequence[str] = ()) -> Requirement:
    """A checked requirement (``labels.NewRequirement``). Raises :class:`SelectorError` with upstream's text."""
    errors = []
    if wrong := qualified_name_errors(key):
        errors.append(f"key: Invalid value: {go_quote(key)}: {'; '.join(wrong)}")
    if operator in _OPERATORS:
        errors.extend(_value_errors(operator, values))
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
    """``LabelSelectorAsSelector``: None selects nothing, an empty selector everything.

    Raises :class:`SelectorError` with upstream's text. Of several wrong labels upstream names a random one; here it is
    the first by name.
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
    """``SelectorFromSet``: exact equality without validation; an empty map matches everything."""
    if not labels:
        return EVERYTHING
    return Selector(tuple(Requirement(key, EQUALS, (value,)) for key, value in sorted(labels.items())))
