"""Flags of the Cluster Autoscaler as text: ``name=value`` to a field of the options.

Their names and defaults are the fields of :class:`~kscale.ca.options.AutoscalingOptions`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from math import isinf
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from kscale.ca.idle_flags import IDLE, NOT_HERE
from kscale.ca.options import AutoscalingOptions, GpuLimits, ResourceRange, fits_int64, parse_gpu_limits, parse_range
from kscale.errors import InputError, Problem
from kscale.objects.durations import parse_duration

__all__ = ["ParsedFlags", "parse_flags"]

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_COUNTS = ("max_nodes_total", "max_nodes_per_scaleup", "max_autoprovisioned_node_group_count", "max_empty_bulk_delete")
"""How many at most. Upstream takes a negative number for no limit or for none; typed, it is a slip of the pen."""
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


class ParsedFlags(msgspec.Struct, kw_only=True):
    """``values`` by field of :class:`~kscale.ca.AutoscalingOptions`; ``idle``: flags that change no answer, and why."""

    values: dict[str, Any] = {}
    idle: dict[str, str] = {}


@cache
def _hints() -> dict[str, Any]:
    """The types of the options by field."""
    return get_type_hints(AutoscalingOptions)


def parse_flags(texts: Iterable[str]) -> ParsedFlags:
    """Reads ``name=value`` texts; a name is the flag's or the field's, ``--`` before it does not matter.

    A switch needs no value. A flag that may be given several times collects; of any other the last one counts. Raises
    InputError for names that upstream does not know either, and for values that cannot be read.
    """
    hints = _hints()
    found = ParsedFlags()
    problems = []
    for text in texts:
        name, given, value = text.removeprefix("--").partition("=")
        field = name.replace("-", "_")
        if field in IDLE:
            found.idle[name] = IDLE[field]
            if field not in hints:
                continue
        if field in NOT_HERE:
            problems.append(Problem(f"flag {name} is not taken here: {NOT_HERE[field]}", field=field))
            continue
        kind = hints.get(field)
        if kind is None or field == "profile":
            others = [other for other in hints if other != "profile"]
            problems.append(Problem(f"there is no flag {name!r}{_meant(field, others)}", field=field))
            continue
        try:
            if get_origin(kind) is list:
                found.values.setdefault(field, []).append(_value(get_args(kind)[0], value))
            else:
                found.values[field] = True if kind is bool and not given else _value(kind, value)
            if field in _COUNTS and found.values[field] < 0:
                problems.append(Problem(f"{value} is negative", field=field))
        except (ValueError, InputError) as error:
            problems.append(Problem(f"{value!r} is no value of flag {name}: {error}", field=field))
    if problems:
        raise InputError(problems)
    return found


def _meant(field: str, hints: Iterable[str]) -> str:
    close = get_close_matches(field, [*hints, *IDLE], n=1)
    return f"; is {close[0].replace('_', '-')!r} meant?" if close else ""


def _value(kind: Any, text: str) -> Any:
    if kind is bool:
        if text not in (*_TRUE, *_FALSE):
            raise ValueError("neither true nor false")
        return text in _TRUE
    if kind is timedelta:
        return timedelta(microseconds=parse_duration(text) / 1000)
    if kind is ResourceRange:
        return parse_range(text)
    if kind is GpuLimits:
        return parse_gpu_limits(text)
    try:
        number = kind(text)
    except ValueError:
        raise ValueError("not a number" if kind is float else "not a whole number") from None
    if isinstance(number, int) and not fits_int64(number):
        raise ValueError("value out of range: more than 64 bits hold")
    if isinstance(number, float) and isinf(number) and any(letter.isdigit() for letter in text):
        raise ValueError("value out of range")
    return number
