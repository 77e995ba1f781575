"""The priority expander's configuration: YAML from priority to a list of patterns, read as upstream reads it.

Upstream turns YAML 1.1 into JSON first (``sigs.k8s.io/yaml``): keys may be quoted, numbers in a list become patterns.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kscale.ca.expander.go_regexp import Pattern, PatternError
from kscale.libraries import library

__all__ = ["PriorityConfigError", "parse_priorities"]

_EXPANDER: Final = "the priority expander"

Priorities = dict[int, list[Pattern]]

_UNMARSHAL = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal"
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_DECIMAL = re.compile(r"[+-]?(0|[1-9][0-9]*)\Z")
_OCTAL = re.compile(r"([+-]?)0[oO]?([0-7]+)\Z")
_OTHER_BASE = re.compile(r"([+-]?)0(?:[xX]([0-9a-fA-F]+)|[bB]([01]+))\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_KEY = re.compile(r"[+-]?[0-9]+\Z")


class PriorityConfigError(ValueError):
    """A configuration that upstream refuses, with its text (the tail of YAML and pattern errors may differ)."""


def _scalar(node: Any) -> str | int | float | bool | None:
    """The value of a scalar as YAML 1.1 resolves it (plain ones only; a quoted one is a string)."""
    text: str = node.value
    if node.style is not None or node.tag == "tag:yaml.org,2002:str!":
        return text
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    digits = text.replace("_", "")
    if _DECIMAL.match(digits):
        return int(digits)
    if match := _OCTAL.match(digits):
        return int(match[1] + match[2], 8)
    if match := _OTHER_BASE.match(digits):
        return int(match[1] + (match[2] or match[3]), 16 if match[2] else 2)
    if _FLOAT.match(digits):
        return float(digits)
    return text


def _go_float(number: float) -> str:
    """``strconv.FormatFloat(number, 'g', -1, 64)``."""
    text = repr(number)
    text = text.removesuffix(".0")
    mantissa, exponent, power = text.partition("e")
    if exponent:
        return f"{mantissa}e{power[0]}{power[1:].zfill(2)}" if power[0] in "+-" else f"{mantissa}e+{power.zfill(2)}"
    digits = text.lstrip("-")
    if "." not in digits and len(digits) > 21:
        stripped = digits.rstrip("0")
        point = f"{stripped[0]}.{stripped[1:]}" if len(stripped) > 1 else stripped
        return f"{'-' if number < 0 else ''}{point}e+{len(digits) - 1:02d}"
    return text


def _text(value: str | float | bool | None) -> str:
    """A scalar where a string is wanted."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _go_float(value) if isinstance(value, float) else str(value)


def _compose(text: str) -> Any:
    yaml = library("yaml", _EXPANDER)
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


def _kind(node: Any) -> str:
    yaml = library("yaml", _EXPANDER)
    if isinstance(node, yaml.MappingNode):
        return "object"
    if isinstance(node, yaml.SequenceNode):
        return "array"
    value = _scalar(node)
    if value is None:
        return "null"
    return "bool" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "string"


def _patterns(node: Any) -> list[str]:
    kind = _kind(node)
    if kind == "null":
        return []
    if kind != "array":
        raise PriorityConfigError(f"{_UNMARSHAL} {kind} into Go value of type []string")
    for item in node.value:
        if _kind(item) in ("object", "array"):
            raise PriorityConfigError(f"{_UNMARSHAL} {_kind(item)} into Go value of type string")
    return [_text(_scalar(item)) for item in node.value]


def _compile(priority: int, pattern: str) -> Pattern:
    try:
        return Pattern(pattern)
    except PatternError as error:
        text = f"Can't compile regexp rule for priority {priority} and rule {pattern}: {error}"
        raise PriorityConfigError(text) from None


def parse_priorities(text: str) -> Priorities:
    """Priority -> patterns. Raises :class:`PriorityConfigError` with what stands between upstream's prefix and suffix.

    Blank text, ``null`` and ``{}`` are valid and empty; the empty string itself is not.
    """
    if text == "":
        raise PriorityConfigError(
            "priority configuration in cluster-autoscaler-priority-expander configmap is empty; "
            "please provide valid configuration"
        )
    try:
        texts = _parse(text)
    except PriorityConfigError as error:
        raise PriorityConfigError(f"Can't parse YAML with priorities in the configmap: {error}") from None
    return {priority: [_compile(priority, pattern) for pattern in patterns] for priority, patterns in texts.items()}


def _parse(text: str) -> dict[int, list[str]]:
    root = _compose(text)
    kind = "null" if root is None else _kind(root)
    if kind == "null":
        return {}
    if kind != "object":
        raise PriorityConfigError(f"{_UNMARSHAL} {kind} into Go value of type map[int][]string")
    found: dict[int, list[str]] = {}
    for key_node, value_node in root.value:
        if _kind(key_node) in ("object", "array", "null"):
            raise PriorityConfigError("error converting YAML to JSON: unsupported map key")
        key = _text(_scalar(key_node))
        if not _KEY.match(key) or not -(2**63) <= int(key) < 2**63:
            raise PriorityConfigError(f"{_UNMARSHAL} number {key} into Go value of type int")
        found[int(key)] = _patterns(value_node)
    return found
