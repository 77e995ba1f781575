"""The ``priority`` expander and its configuration, with Go's regular expressions (upstream: ``expander/priority``).

Patterns are matched by RE2 (extra ``[regex]``) in linear time. Where RE2 and Go differ, Go's rules and error texts
are used. The classes ``ASCII``, ``Assigned`` and ``LC`` of Go 1.25, and counts above 1000 that a count of zero
cancels, are rejected. Upstream converts YAML 1.1 to JSON first (``sigs.k8s.io/yaml``): keys may be quoted, and
numbers in a list become patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf, isfinite, isnan, nan
from typing import Any, Final

import numpy as np

from kscale.ca.expander.types import ExpanderInput, FilterResult, Option
from kscale.effects import Event
from kscale.imports import lazy_pattern, library
from kscale.objects.api.core import ObjectReference
from kscale.objects.go_numbers import parse_int64

__all__ = [
    "PRIORITY_CONFIG_MAP_NAME",
    "GoPattern",
    "GoPatternError",
    "PriorityConfigError",
    "filter_by_priority",
    "parse_priorities",
]


_MAX_MEMORY = 64 << 20
"""RE2's bound on a compiled pattern, in bytes; Go's are counts of repetitions, which RE2 has too."""
_SURROGATE_PATTERN = lazy_pattern("[\ud800-\udfff]")
_TOKEN_PATTERN = lazy_pattern(
    r"\\Q.*?(?:\\E|\Z)"  # literal text
    r"|\[\^?\]?(?:\\.|\[:\^?\w*:\]|[^\]\\])*\]"  # a class
    r"|(?P<escape>\\.)"
    r"|(?P<group>\(\?P?<(?P<name>[^>=!]*)>)"
    r"|(?P<open>\((?!\?)|\(\?[^():<]*:)"
    r"|(?P<close>\))",
    re.DOTALL,
)
_MAX_DEPTH = 1000
"""Go's limit on the height of an expression; each group that captures is one."""
_GROUP_NAME_PATTERN = lazy_pattern(r"[A-Za-z0-9_]+")
_NOT_CLOSED_ERROR = "missing )"
_TOO_LARGE_ERROR = "pattern too large - compile failed"
_GO_ERROR_KINDS = {
    "missing ]": "missing closing ]",
    _NOT_CLOSED_ERROR: "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    _TOO_LARGE_ERROR: "expression too large",
}


class GoPatternError(ValueError):
    """A pattern that Go refuses, with Go's text."""


class GoPattern:
    """One compiled pattern. Raises :class:`GoPatternError`, and MissingExtraError without the library."""

    __slots__ = ("_compiled",)

    def __init__(self, pattern: str) -> None:
        pattern = _SURROGATE_PATTERN.sub("\ufffd", pattern)
        go_error = _find_go_only_error(pattern)
        if go_error is not None:  # an earlier error takes precedence
            error = _compile_re2(pattern[: go_error[0]])[1]
            if error is None or error[0] == _NOT_CLOSED_ERROR:
                raise GoPatternError(f"error parsing regexp: {go_error[1]}")
            raise GoPatternError(_format_go_error(*error, pattern))
        self._compiled, error = _compile_re2(pattern)
        if error is not None:
            raise GoPatternError(_format_go_error(*error, pattern))

    def search(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text (``MatchString``)."""
        return self._compiled.search(_SURROGATE_PATTERN.sub("\ufffd", text)) is not None


def _find_go_only_error(pattern: str) -> tuple[int, str] | None:
    """Find the first construct in the regular expression that RE2 accepts and Go rejects.

    Returns its position and Go's error, or None if there is none. For too deep nesting the position is the end of the
    pattern, so that any other error comes first.
    """
    opened: list[bool] = []
    depth = 0
    for token in _TOKEN_PATTERN.finditer(pattern):
        if token["escape"] == r"\C":
            return token.start(), r"invalid escape sequence: `\C`"
        if token["group"] and not _GROUP_NAME_PATTERN.fullmatch(token["name"]):
            return token.start(), f"invalid named capture: `{token['group']}`"
        if token["group"] or token["open"]:
            opened.append(token["open"] in (None, "("))
            depth += opened[-1]
            if depth >= _MAX_DEPTH:
                return len(pattern), f"expression nests too deeply: `{pattern}`"
        elif token["close"] and opened:
            depth -= opened.pop()
    return None


def _compile_re2(pattern: str) -> tuple[Any, tuple[str, str] | None]:
    """Compile the pattern. Raises MissingExtraError without RE2.

    Returns (pattern, None), or (None, RE2's error): its kind and the wrong part of the pattern.
    """
    re2 = library("re2", "the priority expander")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options), None
    except re2.error as error:
        text = error.args[0]
        kind, _, part = (text.decode() if isinstance(text, bytes) else text).partition(": ")
        return None, (kind, part)


def _format_go_error(kind: str, part: str, pattern: str) -> str:
    """Translate RE2's error, ``kind`` and the wrong ``part`` of the pattern, into Go's message."""
    if kind == "trailing \\":
        kind, part = "trailing backslash at end of expression", ""
    elif kind == _TOO_LARGE_ERROR:
        part = pattern
    elif part in ("(?<=", "(?<!"):  # Go parses this as the beginning of a group name
        rest = pattern[pattern.find(part) :]
        kind, part = "invalid named capture", rest[: rest.find(">") + 1] or rest
    return f"error parsing regexp: {_GO_ERROR_KINDS.get(kind, kind)}: `{part}`"


_EXPANDER_NAME: Final = "the priority expander"

Priorities = dict[int, list[GoPattern]]

_UNMARSHAL_ERROR = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal"
_NULL_TEXTS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL_TEXTS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_INFINITIES = {
    **dict.fromkeys((sign + name for sign in ("", "+") for name in (".inf", ".Inf", ".INF")), inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), nan),
}
_MERGE_TAG = "tag:yaml.org,2002:merge"
_KEYS_OF_INFINITIES = {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}
_DECIMAL_PATTERN = lazy_pattern(r"[+-]?(0|[1-9][0-9]*)\Z")
_OCTAL_PATTERN = lazy_pattern(r"([+-]?)0[oO]?([0-7]+)\Z")
_OTHER_BASE_PATTERN = lazy_pattern(r"([+-]?)0(?:[xX]([0-9a-fA-F]+)|[bB]([01]+))\Z")
_FLOAT_PATTERN = lazy_pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_MAX_DIGITS = 25
"""Longest text of a decimal integer that is parsed as one; longer ones do not fit 64 bits."""
_PRIORITY_PATTERN = lazy_pattern(r"[+-]?[0-9]+\Z")


class PriorityConfigError(ValueError):
    """A configuration that upstream refuses, with its text (the tail of YAML and pattern errors may differ)."""


def _resolve_scalar(node: Any) -> str | int | float | bool | None:
    """Return the value of a YAML scalar as YAML 1.1 resolves it, None for null; a quoted scalar is a string."""
    text: str = node.value
    if node.style is not None or node.tag == "tag:yaml.org,2002:str!":
        return text
    if text in _NULL_TEXTS:
        return None
    if text in _BOOL_TEXTS:
        return _BOOL_TEXTS[text]
    if text in _INFINITIES:
        return _INFINITIES[text]
    digits = text.replace("_", "")
    number = None
    if _DECIMAL_PATTERN.match(digits):
        number = int(digits) if len(digits) <= _MAX_DIGITS else None
    elif match := _OCTAL_PATTERN.match(digits):
        number = int(match[1] + match[2], 8)
    elif match := _OTHER_BASE_PATTERN.match(digits):
        number = int(match[1] + (match[2] or match[3]), 16 if match[2] else 2)
    if number is not None and -(2**63) <= number < 2**64:
        return number
    if _FLOAT_PATTERN.match(digits) and isfinite(float(digits)):
        return float(digits)
    return text


def _format_go_float(number: float) -> str:
    """Format like ``strconv.FormatFloat(number, 'g', -1, 32)``, which upstream applies to 64-bit numbers as well."""
    if isnan(number):
        return "NaN"
    with np.errstate(over="ignore"):
        single = np.float32(number)
    if np.isinf(single):
        return "+Inf" if number > 0 else "-Inf"
    text = np.format_float_scientific(single, trim="-", exp_digits=2)
    return text if not -4 <= int(text.partition("e")[2]) < 6 else np.format_float_positional(single, trim="-")


def _format_scalar(value: str | float | bool | None) -> str:
    """Format the value of a YAML scalar as a text, where a string is expected."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _format_go_float(value) if isinstance(value, float) else str(value)


def _compose_yaml(text: str) -> Any:
    """Parse YAML into nodes of PyYAML; None for an empty text.

    Raises PriorityConfigError if it is malformed, and MissingExtraError without PyYAML.
    """
    yaml = library("yaml", _EXPANDER_NAME)
    try:
        loader = yaml.SafeLoader(text)
        try:
            return loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise PriorityConfigError(f"error converting YAML to JSON: yaml: {error}".replace("\n", " ")) from None
    except RecursionError:
        raise PriorityConfigError("error converting YAML to JSON: yaml: nested too deeply") from None


def _get_json_kind(node: Any) -> str:
    """Return the JSON type of a YAML node in Go's words: object, array, string, number, bool or null."""
    yaml = library("yaml", _EXPANDER_NAME)
    if isinstance(node, yaml.MappingNode):
        return "object"
    if isinstance(node, yaml.SequenceNode):
        return "array"
    value = _resolve_scalar(node)
    if value is None:
        return "null"
    return "bool" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "string"


def _merge_pairs(mapping: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the key and value nodes of a YAML mapping; those of mappings that it merges (``<<``) in place of the merge.

    Raises PriorityConfigError if anything but mappings is merged, and RecursionError if an anchor contains itself.
    """
    for key, value in mapping.value:
        if key.tag != _MERGE_TAG or key.style is not None:
            yield key, value
            continue
        merged = value.value[::-1] if _get_json_kind(value) == "array" else [value]  # an earlier mapping wins
        for each in merged:
            if _get_json_kind(each) != "object":
                text = "map merge requires map or sequence of maps as the value"
                raise PriorityConfigError(f"error converting YAML to JSON: yaml: {text}")
            yield from _merge_pairs(each)


def _read_patterns(node: Any) -> list[str]:
    """Return the patterns in a YAML list; none for null.

    Raises PriorityConfigError for any other node or nested lists.
    """
    kind = _get_json_kind(node)
    if kind == "null":
        return []
    if kind != "array":
        raise PriorityConfigError(f"{_UNMARSHAL_ERROR} {kind} into Go value of type []string")
    for item in node.value:
        if _get_json_kind(item) in ("object", "array"):
            raise PriorityConfigError(f"{_UNMARSHAL_ERROR} {_get_json_kind(item)} into Go value of type string")
    return [_format_scalar(_resolve_scalar(item)) for item in node.value]


def _compile_pattern(priority: int, pattern: str) -> GoPattern:
    """Compile one pattern. Raises PriorityConfigError, which names priority and pattern, if Go rejects it."""
    try:
        return GoPattern(pattern)
    except GoPatternError as error:
        text = f"Can't compile regexp rule for priority {priority} and rule {pattern}: {error}"
        raise PriorityConfigError(text) from None


def parse_priorities(text: str) -> Priorities:
    """Parse the configuration into patterns by priority.

    Blank text, ``null`` and ``{}`` are valid and empty; the empty string itself is not. Raises
    :class:`PriorityConfigError`, whose message is upstream's without its prefix and suffix.
    """
    if text == "":
        raise PriorityConfigError(
            "priority configuration in cluster-autoscaler-priority-expander configmap is empty; "
            "please provide valid configuration"
        )
    try:
        texts = _parse_config(text)
    except PriorityConfigError as error:
        raise PriorityConfigError(f"Can't parse YAML with priorities in the configmap: {error}") from None
    return {
        priority: [_compile_pattern(priority, pattern) for pattern in patterns] for priority, patterns in texts.items()
    }


def _parse_config(text: str) -> dict[int, list[str]]:
    """Parse the configuration into the texts of patterns by priority. Raises PriorityConfigError if it is malformed."""
    root = _compose_yaml(text)
    kind = "null" if root is None else _get_json_kind(root)
    if kind == "null":
        return {}
    if kind != "object":
        raise PriorityConfigError(f"{_UNMARSHAL_ERROR} {kind} into Go value of type map[int][]string")
    patterns_by_priority: dict[int, list[str]] = {}
    try:
        pairs = list(_merge_pairs(root))
    except RecursionError:
        raise PriorityConfigError("error converting YAML to JSON: yaml: an anchor contains itself") from None
    for key_node, value_node in pairs:
        if _get_json_kind(key_node) in ("object", "array", "null"):
            raise PriorityConfigError("error converting YAML to JSON: unsupported map key")
        key = _format_scalar(_resolve_scalar(key_node))
        key = _KEYS_OF_INFINITIES.get(key, key) if _get_json_kind(key_node) == "number" else key
        priority = parse_int64(key)
        if priority is None:
            raise PriorityConfigError(f"{_UNMARSHAL_ERROR} number {key} into Go value of type int")
        patterns_by_priority[priority] = _read_patterns(value_node)
    return patterns_by_priority


PRIORITY_CONFIG_MAP_NAME = "cluster-autoscaler-priority-expander"
_PRIORITIES_KEY = "priorities"
_MIN_PRIORITY = -1
"""Priorities below this can never win."""


def filter_by_priority(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options of the highest priority that any pattern matches; ``scores`` are the negated priorities.

    All options are kept in three cases: there is no ConfigMap (``inputs.priorities`` is None), it cannot be read, or no
    option has a priority of at least -1. The last two cases emit a warning event, as does each group that no pattern
    matches. Raises MissingExtraError if RE2 or PyYAML is needed and not installed.
    """
    result = FilterResult(survivors=list(options))
    if not options or inputs.priorities is None:
        return result
    where = ObjectReference(
        api_version="v1", kind="ConfigMap", namespace=inputs.namespace, name=PRIORITY_CONFIG_MAP_NAME
    )

    def warn(reason: str, message: str) -> None:
        result.events.append(Event(regarding=where, type="Warning", reason=reason, message=message))

    text = inputs.priorities.get(_PRIORITIES_KEY)
    if text is None:
        warn(
            "PriorityConfigMapInvalid",
            "Wrong configmap for priority expander, doesn't contain priorities key. Ignoring update.",
        )
        return result
    try:
        priorities = parse_priorities(text)
    except PriorityConfigError as error:
        warn("PriorityConfigMapInvalid", f"Wrong configuration for priority expander: {error}. Ignoring update.")
        return result

    best = _MIN_PRIORITY
    winners: list[Option] = []
    for option in options:
        matching = [rank for rank, patterns in priorities.items() if any(p.search(option.group) for p in patterns)]
        if not matching:
            result.skipped[option.group] = "not found in priority expander configuration"
            warn(
                "PriorityConfigMapNotMatchedGroup",
                f"Priority expander: node group {option.group} not found in priority expander configuration. "
                "The group won't be used.",
            )
            continue
        highest = max(matching)
        result.scores[option.group] = -float(highest)
        if highest > best:
            best, winners = highest, []
        if highest == best:
            winners.append(option)
    if winners:
        result.survivors = winners
    else:
        warn(
            "PriorityConfigMapNoGroupMatched",
            "Priority expander: no priorities info found for any of the expansion options. No options filtered.",
        )
    return result
