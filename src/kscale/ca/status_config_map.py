"""Write the status of a loop to its ConfigMap, as YAML (upstream: ``clusterstate/utils/status.go``)."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import lru_cache
from json import dumps
from typing import Any, Final

import msgspec

from kscale.ca.cluster_state import ClusterAutoscalerStatus
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND, Create, Get, Moment, Patch, Progress, StepsOf
from kscale.imports import lazy_pattern
from kscale.objects.api.core import ConfigMap
from kscale.objects.api.meta import ObjectMeta

__all__ = [
    "LAST_UPDATED_ANNOTATION",
    "StatusConfigMapAction",
    "format_go_time",
    "format_status",
    "format_yaml_scalar",
    "write_status_config_map",
]


_RESERVED_WORDS: Final = frozenset(
    word
    for each in ("y", "yes", "true", "on", "n", "no", "false", "off", "null")
    for word in (each, each.capitalize(), each.upper())
) | frozenset(
    {"", "~", "<<"} | {f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")}
    | {".nan", ".NaN", ".NAN"}
)  # fmt: skip
_FLOAT_PATTERN: Final = lazy_pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASE_60_PATTERN: Final = lazy_pattern(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE_PATTERN: Final = lazy_pattern(
    r"(\d{4})-(\d\d?)-(\d\d?)([Tt]\d\d?:\d\d?:\d\d?([.,]\d+)?(Z|[+-]\d\d:\d\d)| \d\d?:\d\d?:\d\d?([.,]\d+)?)?"
)
_UNPRINTABLE_PATTERN: Final = lazy_pattern("[\x00-\x09\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_ESCAPED_PATTERN: Final = lazy_pattern(f'{_UNPRINTABLE_PATTERN.pattern[:-1]}\\n\x85\u2028\u2029"\\\\]')
_ESCAPE_LETTERS: Final = dict(zip('\0\a\b\t\n\v\f\r\x1b"\\\x85\u2028\u2029', '0abtnvfre"\\NLP', strict=True))
_NOT_PLAIN_PATTERN: Final = lazy_pattern(r"""[#,\[\]{}&*!|>'"%@`]|[?:-](\s|$)|---|\.\.\.|\s""")
_ENDS_PLAIN_PATTERN: Final = lazy_pattern(r":(\s|$)|\s#|\s$|\n")


@lru_cache(1024)
def format_yaml_scalar(value: str | float | None, indent: str = "") -> str:
    """Format the scalar ``value`` as YAML; ``indent`` is the indentation of the mapping that contains it."""
    if not isinstance(value, str):
        return dumps(value)
    if _UNPRINTABLE_PATTERN.search(value) or " \n" in value or ("\n" in value and value.endswith(" ")):
        return _quote(value)
    if "\n" in value:
        return _format_block_literal(value, indent)
    if _is_non_string(value):
        return _quote(value)
    if _NOT_PLAIN_PATTERN.match(value) or _ENDS_PLAIN_PATTERN.search(value):
        return "'" + value.replace("'", "''") + "'"
    return value


def _quote(text: str) -> str:
    """Format a text as a double-quoted YAML scalar."""

    def escaped(match: re.Match[str]) -> str:
        number = ord(match[0])
        return "\\" + (_ESCAPE_LETTERS.get(match[0]) or (f"x{number:02X}" if number < 256 else f"u{number:04X}"))

    return '"' + _ESCAPED_PATTERN.sub(escaped, text) + '"'


def _is_non_string(text: str) -> bool:
    """Check whether YAML would parse the plain text as something else than a string."""
    if text in _RESERVED_WORDS or _BASE_60_PATTERN.fullmatch(text):
        return True
    if text[0] not in "0123456789+-.":
        return False
    date_match = _DATE_PATTERN.fullmatch(text)
    if date_match:
        try:
            year, month, day = map(int, date_match.groups()[:3])
            date(year, month, day)
        except ValueError:
            return False
        return True
    plain = text.replace("_", "")
    if _FLOAT_PATTERN.fullmatch(plain):
        return True
    try:
        int(re.sub(r"^([-+]?)0(?=[0-9])", r"\g<1>0o", plain), 0)
    except ValueError:
        return False
    return True


def _format_block_literal(text: str, indent: str) -> str:
    """Format a text of several lines as a YAML block literal (``|``).

    ``indent``: that of the mapping that contains it.
    """
    hint = "2" if text[0] in " \n" else ""
    if not text.endswith("\n"):
        hint += "-"
    elif text.endswith("\n\n") or text == "\n":
        hint += "+"
    lines = text.removesuffix("\n").split("\n")
    return "\n".join([f"|{hint}", *(line and f"{indent}  {line}" for line in lines)])


LAST_UPDATED_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/last-updated"
"""Annotation with the time when the status was written."""

StatusConfigMapAction = Get | Create | Patch
"""Actions that write the status ConfigMap."""


def write_status_config_map(
    p: Progress, text: str, options: AutoscalingOptions, now: Moment
) -> StepsOf[StatusConfigMapAction, str | None]:
    """Patch the status text into its ConfigMap, or create the ConfigMap if it does not exist.

    Returns the error message that upstream logs; None on success.
    """
    namespace, name = options.namespace, options.status_config_map_name
    metadata = {"annotations": {LAST_UPDATED_ANNOTATION: format_go_time(now)}}
    data = {"status": text}
    existing = yield from p.act(Get(kind="ConfigMap", namespace=namespace, name=name))
    if existing.error is None:
        changes = {"metadata": metadata, "data": data}
        error = (yield from p.act(Patch(kind="ConfigMap", namespace=namespace, name=name, patch=changes))).error
    elif existing.error.is_not_found:
        config_map = ConfigMap(
            api_version="v1",
            kind="ConfigMap",
            metadata=ObjectMeta(namespace=namespace, name=name, annotations=metadata["annotations"]),
            data=data,
        )
        error = (yield from p.act(Create(config_map))).error
    else:
        return f"Failed to retrieve status configmap for update: {existing.error.message}"
    return None if error is None else f"Failed to write status configmap: {error.message}"


def format_go_time(now: Moment) -> str:
    """Format a moment as Go prints a UTC time, without trailing zeros of the fraction."""
    seconds, rest = divmod(now, SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def format_status(status: ClusterAutoscalerStatus, now: Moment) -> str:
    """Format the status document as YAML with sorted keys, as upstream writes it."""
    lines: list[str] = []
    _write_mapping({"time": format_go_time(now), **msgspec.to_builtins(status)}, "", lines)
    return "".join(lines)


def _write_mapping(value: dict[str, Any], indent: str, lines: list[str]) -> None:
    """Append the YAML lines of the mapping ``value``, indented by ``indent``, to ``lines``.

    Its values are scalars, mappings and lists of mappings.
    """
    for key in sorted(value):
        member = value[key]
        if not member or not isinstance(member, (dict, list)):
            shown = "{}" if member == {} else "[]" if member == [] else format_yaml_scalar(member, indent)
            lines.append(f"{indent}{key}: {shown}\n")
        elif isinstance(member, dict):
            lines.append(f"{indent}{key}:\n")
            _write_mapping(member, indent + "  ", lines)
        else:
            lines.append(f"{indent}{key}:\n")
            for item in member:
                first = len(lines)
                _write_mapping(item, indent + "  ", lines)
                lines[first] = f"{indent}- {lines[first].lstrip(' ')}"
