"""Fields that a type does not have: what an API server's strict decoding refuses, and drops otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

__all__ = ["unknown_fields"]

_MOST = 100


def unknown_fields(data: Mapping[str, Any], type_: type[msgspec.Struct], path: str = "") -> list[str]:
    """Return the paths of the fields of plain ``data`` that a struct does not have, the first 100."""
    paths = []
    for found in _unknown(data, msgspec.inspect.type_info(type_), path):
        paths.append(found)
        if len(paths) == _MOST:
            break
    return paths


def _unknown(value: Any, type_: msgspec.inspect.Type, path: str) -> Iterator[str]:
    if isinstance(type_, msgspec.inspect.UnionType):
        type_ = next(each for each in type_.types if not isinstance(each, msgspec.inspect.NoneType))
    if isinstance(type_, msgspec.inspect.StructType) and isinstance(value, Mapping):
        fields = _fields(type_.cls)
        for name, each in value.items():
            place = f"{path}.{name}" if path else str(name)
            if name in fields:
                yield from _unknown(each, fields[name], place)
            else:
                yield place
    elif isinstance(type_, msgspec.inspect.ListType) and isinstance(value, list):
        for i, each in enumerate(value):
            yield from _unknown(each, type_.item_type, f"{path}[{i}]")
    elif isinstance(type_, msgspec.inspect.DictType) and isinstance(value, Mapping):
        for name, each in value.items():
            yield from _unknown(each, type_.value_type, f"{path}[{name}]")


@cache
def _fields(struct: type) -> dict[str, msgspec.inspect.Type]:
    shape = msgspec.inspect.type_info(struct)
    assert isinstance(shape, msgspec.inspect.StructType)
    return {field.encode_name: field.type for field in shape.fields}
