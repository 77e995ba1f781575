"""Times in objects: texts that no API server would hold are found before a decision reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from kscale.errors import InputError, Problem
from kscale.objects.times import nanoseconds

__all__ = ["check_times"]

_NAMES: Final = frozenset({
    "acquireTime", "allocationTimestamp", "completionTime", "creationTimestamp", "deletionTimestamp", "eventTime",
    "firstSampleStart", "firstTimestamp", "lastHeartbeatTime", "lastProbeTime", "lastSampleStart", "lastScaleTime",
    "lastTimestamp", "lastTransitionTime", "lastUpdateTime", "referenceTimestamp", "renewTime", "startTime", "time",
    "timeAdded", "timestamp",
})  # fmt: skip
"""Fields of the API that hold a time, wherever they are."""

_Check = Callable[[Any], Iterator[tuple[str, str]]]


def check_times(obj: msgspec.Struct) -> None:
    """Raise InputError, with the field, for a time of an object that is no RFC 3339 time, as Go does on decoding."""
    check = _check_of(type(obj))
    if check is None:
        return
    for field, text in check(obj):
        try:
            nanoseconds(text)
        except ValueError as error:
            raise InputError(Problem(str(error), field=field)) from None


@cache
def _check_of(struct: type[msgspec.Struct]) -> _Check | None:
    """What yields (field, text) of each time in a struct; None if there is none."""
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return _struct_check(described, ())


def _struct_check(described: inspect.StructType, outer: tuple[type, ...]) -> _Check | None:
    if described.cls in outer:  # a type that holds itself: none of these has times
        return None
    times: list[tuple[str, str]] = []
    parts: list[tuple[str, str, _Check]] = []
    for field in described.fields:
        if field.encode_name in _NAMES and any(isinstance(each, inspect.StrType) for each in _choices(field.type)):
            times.append((field.name, field.encode_name))
        elif (check := _type_check(field.type, (*outer, described.cls))) is not None:
            parts.append((field.name, field.encode_name, check))
    if not times and not parts:
        return None

    def checked(obj: Any) -> Iterator[tuple[str, str]]:
        for name, written in times:
            if isinstance(text := getattr(obj, name), str):
                yield written, text
        for name, written, check in parts:
            if value := getattr(obj, name):
                for field, text in check(value):
                    yield f"{written}{'' if field.startswith('[') else '.'}{field}", text

    return checked


def _choices(type_: inspect.Type) -> tuple[inspect.Type, ...]:
    return type_.types if isinstance(type_, inspect.UnionType) else (type_,)


def _type_check(type_: inspect.Type, outer: tuple[type, ...]) -> _Check | None:
    for each in _choices(type_):
        if isinstance(each, inspect.StructType):
            return _struct_check(each, outer)
        if isinstance(each, inspect.ListType) and (inner := _type_check(each.item_type, outer)) is not None:
            return _list_check(inner)
    return None


def _list_check(inner: _Check) -> _Check:
    def checked(items: Any) -> Iterator[tuple[str, str]]:
        for index, item in enumerate(items):
            for field, text in inner(item):
                yield f"[{index}].{field}", text

    return checked
