"""One object from JSON or from plain data; errors name the source, the object and the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from kscale.errors import InputError, Problem, UnreadableObjectError
from kscale.objects.base import dec_hook, enc_hook
from kscale.objects.object_head import deep_field

__all__ = [
    "decoder",
    "describe",
    "escaped",
    "from_dict",
    "from_json",
    "from_kept_json",
    "syntax_problem",
    "to_dict",
    "to_json",
]

T = TypeVar("T")

_TOO_DEEP = "nested too deeply"

_PATH = re.compile(r"^(?P<message>.*) - at `(?P<key>key` in `)?\$(?P<path>.*)`$", re.DOTALL)
_POSITION = re.compile(r"\(byte (\d+)\)")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
# Maps in which a null value is something: the empty text, or zero.
_TEXT_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "data", "selector"})
_QUANTITY_MAPS = frozenset({
    "requests", "limits", "capacity", "allocatable", "overhead", "allocatedResources", "resources", "max", "min",
    "default", "defaultRequest", "maxLimitRequestRatio",
})  # fmt: skip

_OF_RESOURCES = frozenset({"requests", "limits", "claims"})
"""Members of ``resources`` where that is no map of quantities."""

# The few texts of very many quantities, without a call of Python for each. What cannot be looked up (a list, a map)
# is no quantity either: who decodes says so after a second, slow look.
_known_hook = lru_cache(maxsize=1 << 14, typed=True)(dec_hook)

_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """The JSON decoder of a struct, made once."""
    found = _DECODERS.get(type_)
    if found is None:
        found = _DECODERS[type_] = msgspec.json.Decoder(type_, dec_hook=_known_hook)
    return found


def from_json(
    raw: bytes | bytearray | memoryview | msgspec.Raw | str, type_: type[T], *, source: str = "", object_path: str = ""
) -> T:
    """One object from its JSON text; raises InputError."""
    try:
        try:
            return decoder(type_).decode(raw)
        except msgspec.ValidationError:
            # Where Go takes a null for nothing, msgspec does not: once more, slowly, without nulls.
            data = msgspec.json.decode(raw)
    except RecursionError:
        field = deep_field(raw.encode() if isinstance(raw, str) else memoryview(raw))
        raise InputError(Problem(_TOO_DEEP, source, object_path, field)) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8: {error}", source, object_path)) from None
    except msgspec.DecodeError as error:
        text = raw.encode() if isinstance(raw, str) else bytes(raw)
        raise InputError(syntax_problem(error, text, source, object_path)) from None
    return from_dict(data, type_, source=source, object_path=object_path)


def from_kept_json(raw: bytes | msgspec.Raw, type_: type[T], *, object_path: str = "") -> T:
    """One object from text that was taken by what decisions read of it; raises UnreadableObjectError."""
    try:
        return from_json(raw, type_, object_path=object_path)
    except InputError as error:
        raise UnreadableObjectError(error.problems) from None


def from_dict(data: Any, type_: type[T], *, source: str = "", object_path: str = "") -> T:
    """One object from plain data (dicts, lists, texts, numbers); raises InputError."""
    try:
        return _from_dict(data, type_, source, object_path)
    except RecursionError:
        raise InputError(Problem(_TOO_DEEP, source, object_path)) from None


def _from_dict(data: Any, type_: type[T], source: str, object_path: str) -> T:
    try:
        return msgspec.convert(data, type_, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        first = error
    if isinstance(data, Mapping):
        data = _without_nulls(data, "")
        try:
            return msgspec.convert(data, type_, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            first = error
    raise InputError(_problem(first, data, type_, source, object_path)) from None


def to_dict(value: Any) -> Any:
    """An object as plain data, camelCase, without what is absent."""
    return msgspec.to_builtins(value, enc_hook=enc_hook)


def to_json(value: Any) -> bytes:
    """An object as JSON text."""
    return msgspec.json.encode(value, enc_hook=enc_hook)


def describe(prefix: str, kind: str, data: Any) -> str:
    """How an object is named in a message: ``items[17] (Pod team-a/web-3)``."""
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    name = ""
    if isinstance(metadata, Mapping):
        namespace, own = metadata.get("namespace"), metadata.get("name")
        name = escaped("/".join(part for part in (namespace, own) if isinstance(part, str) and part))
    label = " ".join(part for part in (kind, name) if part)
    if prefix and label:
        return f"{prefix} ({label})"
    return prefix or label


def escaped(text: str) -> str:
    """A name that may hold anything, on one line: what is not printable is written as an escape."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def syntax_problem(error: msgspec.DecodeError, text: bytes, source: str, object_path: str = "") -> Problem:
    """A JSON syntax error with line and column."""
    message = str(error)
    match = _POSITION.search(message)
    if match is None:  # the input ends too early
        line = text.count(b"\n") + 1
        return Problem(f"line {line}: {_lower(message)}", source, object_path)
    offset = int(match[1])
    line = text.count(b"\n", 0, offset) + 1
    column = offset - (text.rfind(b"\n", 0, offset) + 1) + 1
    message = message.replace(match[0], "").strip().removeprefix("JSON is malformed: ")
    return Problem(f"line {line}, column {column}: malformed JSON: {message}", source, object_path)


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def _without_nulls(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        if key in _TEXT_MAPS:
            return {name: "" if item is None else item for name, item in value.items()}
        if key in _QUANTITY_MAPS:
            return {
                name: _without_nulls(item, str(name))
                for name, item in value.items()
                if item is not None or name not in _OF_RESOURCES
            }
        return {name: _without_nulls(item, str(name)) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item, "") for item in value]
    return value


def _problem(error: msgspec.ValidationError, data: Any, type_: type, source: str, object_path: str) -> Problem:
    match = _PATH.match(str(error))
    message, path = (match["message"], match["path"]) if match else (str(error), "")
    if match and match["key"]:
        return Problem(f"a key: {_lower(message)}", source, object_path, _field_path(message, path, data, type_))
    return Problem(_lower(message), source, object_path, _field_path(message, path, data, type_))


def _field_path(message: str, path: str, data: Any, type_: type) -> str:
    """msgspec's path as the API writes it; the key of a map, which msgspec does not name, is searched for."""
    steps: list[str | int] = []
    for match in _STEP.finditer(path):
        name, index = match.groups()
        if name is not None:
            steps.append(name)
        elif index == "...":
            steps.append(_guilty_key(message, steps, data, type_))
        else:
            steps.append(int(index))
    text = "".join(f"[{step}]" if isinstance(step, int) or "." in step or "/" in step else f".{step}" for step in steps)
    return text.removeprefix(".")


def _guilty_key(message: str, steps: list[str | int], data: Any, type_: type) -> str:
    """The key of the map at ``steps`` whose value alone still gives the same message."""
    here = data
    for step in steps:
        here = here[step]
    for key, value in here.items():
        try:
            msgspec.convert(_replaced(data, steps, {key: value}), type_, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            if str(error).startswith(message):
                return str(key)
    return "..."


def _replaced(data: Any, steps: list[str | int], value: Any) -> Any:
    if not steps:
        return value
    copy = list(data) if isinstance(data, list) else dict(data)
    copy[steps[0]] = _replaced(data[steps[0]], steps[1:], value)  # type: ignore[index]  # a list has int steps
    return copy
