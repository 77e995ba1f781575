"""Decode one object from JSON or plain data, and encode it. Errors name the source, the object and the field."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from kscale._native import _projection
from kscale.errors import InputError, Problem, UnreadableObjectError
from kscale.imports import lazy_pattern
from kscale.objects.api.meta import shorten
from kscale.objects.quantity import Quantity, QuantityError, parse

__all__ = [
    "NumberText",
    "ObjectHead",
    "dec_hook",
    "decode_plain",
    "decoder",
    "describe",
    "enc_hook",
    "encoding_error",
    "escape",
    "find_deepest_path",
    "from_dict",
    "from_json",
    "from_stored_json",
    "json_members",
    "object_head",
    "refuse_depth",
    "syntax_problem",
    "to_dict",
    "to_json",
    "with_changes",
]


_STEPS: Final = 8
_DEEPEST: Final = 500
_TEXT: Final = msgspec.json.Decoder(str)


def dec_hook(type_: type, value: Any) -> Any:
    """Decode a quantity for msgspec, from text or a number (as its shortest decimal text); null is zero.

    Raises ValueError if the value is not a quantity, and NotImplementedError for any other type.
    """
    if type_ is not Quantity:
        raise NotImplementedError(f"{type_} cannot be decoded")
    if isinstance(value, str):
        try:
            return parse(value)
        except QuantityError:
            return _parse_between_spaces(value)
    if isinstance(value, Quantity):
        return value
    if value is None:
        return Quantity.zero()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return Quantity(repr(value))
        except QuantityError:
            pass
    # JSON has no text for these values: the message would show a null that the caller did not write.
    odd = isinstance(value, float) and not math.isfinite(value)
    raise ValueError(f"{value if odd else msgspec.json.encode(value).decode()} is not a quantity")


def _parse_between_spaces(text: str) -> Quantity:
    """Parse a quantity between blanks. Raises ValueError if the text is none."""
    try:
        return parse(text.strip(" \t\n\v\f\r"))
    except QuantityError:
        raise ValueError(f'"{shorten(text)}" is not a quantity') from None


def enc_hook(value: Any) -> Any:
    """Encode a quantity as its canonical text. Raises NotImplementedError for any other type."""
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"{type(value)} cannot be encoded")


class ObjectHead(msgspec.Struct, frozen=True):
    """Kind and metadata of an object. Fields that could not be read are empty."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def label(self) -> str:
        """Return a label such as ``ResourceClaim team-a/gpu``, as far as the parts are known."""
        name = "/".join(part for part in (self.namespace, self.name) if part)
        return " ".join(part for part in (self.kind, name) if part)


def json_members(text: bytes | memoryview) -> dict[str, memoryview]:
    """Return the JSON text of each member of a JSON object, by name; of a repeated name, the last member.

    Members whose name cannot be decoded are left out. Empty if ``text`` is not a JSON object.
    """
    view = memoryview(text)
    places = _projection.json_members(view)
    members: dict[str, memoryview] = {}
    for key, key_size, value, size in () if places is None else places.tolist():
        try:
            name = _TEXT.decode(view[key : key + key_size])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        members[name] = view[value : value + size]
    return members


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_HEADS: Final = msgspec.json.Decoder(_Head)


def object_head(text: bytes | memoryview) -> ObjectHead:
    """Return kind and metadata of an object from its JSON text. Never raises; unreadable fields are empty."""
    try:
        head = _HEADS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_head_by_parts(text)
    metadata = head.metadata
    return ObjectHead(
        head.api_version, head.kind, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version
    )


def _read_head_by_parts(text: bytes | memoryview) -> ObjectHead:
    """Return kind and metadata from a malformed JSON text, member by member; unreadable fields are empty."""
    members = json_members(text)
    metadata = json_members(members["metadata"]) if "metadata" in members else {}
    namespace, name, uid, version = (
        _decode_text(metadata.get(each)) for each in ("namespace", "name", "uid", "resourceVersion")
    )
    if not namespace and bytes(metadata.get("namespace", b'""')) not in (b'""', b"null"):
        name = ""  # its namespace is unknown, so the object cannot be identified
    return ObjectHead(
        _decode_text(members.get("apiVersion")), _decode_text(members.get("kind")), namespace, name, uid, version
    )


def _decode_text(value: memoryview | None) -> str:
    """Decode a JSON string; empty if ``value`` is None or not a JSON string."""
    try:
        return "" if value is None else _TEXT.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def find_deepest_path(text: bytes | memoryview) -> str:
    """Return the path to the most deeply nested value of a JSON text, cut after eight steps: ``spec.a[0].b...``.

    The path is empty if no object or list is inside.
    """
    view = memoryview(text)
    path = ""
    for _ in range(_STEPS):
        step, view = _find_deepest_step(view)
        if not step:
            return path.removeprefix(".")
        path += step
    return f"{path.removeprefix('.')}..."


def refuse_depth(text: bytes | memoryview) -> None:
    """Raise InputError for a text with more than 500 levels of nesting.

    A deeper text could be decoded here, but perhaps not by a caller with a deeper call stack.
    """
    if _projection.exceeds_depth(memoryview(text), _DEEPEST):
        raise InputError(Problem("nested too deeply", field=find_deepest_path(text)))


def _find_deepest_step(view: memoryview) -> tuple[str, memoryview]:
    """Return the path step from a JSON value to its direct child with the deepest nesting, and the child's JSON text.

    The step is ``.name`` or ``[index]``; it is empty if no child is an object or a list.
    """
    children = [
        (f"[{key}]" if "." in key or "/" in key else f".{key}", value) for key, value in json_members(view).items()
    ]
    elements = _projection.json_elements(view)
    if elements is not None:
        children = [(f"[{i}]", view[at : at + size]) for i, (at, size) in enumerate(elements.tolist())]
    depth, best = 0, ("", view)
    for step, value in children:
        _, nested = _projection.json_extent(value)
        if nested > depth:
            depth, best = nested, (step, value)
    return best


T = TypeVar("T")

_TOO_DEEP = "nested too deeply"

_PATH = lazy_pattern(r"^(?P<message>.*) - at `(?P<key>key` in `)?\$(?P<path>.*)`$", re.DOTALL)
_POSITION = lazy_pattern(r"\(byte (\d+)\)")
_STEP = lazy_pattern(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
# Maps in which a null value means the empty text, or zero.
_TEXT_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "data", "selector"})
_QUANTITY_MAPS = frozenset({
    "requests", "limits", "capacity", "allocatable", "overhead", "allocatedResources", "resources", "max", "min",
    "default", "defaultRequest", "maxLimitRequestRatio",
})  # fmt: skip

_OF_RESOURCES = frozenset({"requests", "limits", "claims"})
"""Members of a field ``resources`` that is not itself a map of quantities."""

# Caches the few distinct texts of very many quantities. An unhashable value (a list, a map) is not a quantity, as a
# second, slower decoding reports.
_known_hook = _projection.cached_conversion(Quantity, dec_hook, 1 << 12)

_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """Return the cached JSON decoder of a struct."""
    cached = _DECODERS.get(type_)
    if cached is None:
        cached = _DECODERS[type_] = msgspec.json.Decoder(type_, dec_hook=_known_hook)
    return cached


def from_json(
    raw: bytes | bytearray | memoryview | msgspec.Raw | str, type_: type[T], *, source: str = "", object_path: str = ""
) -> T:
    """Decode one object from its JSON text, treating null as absent like Go.

    Parameters
    ----------
    raw : bytes, str or msgspec.Raw
    type_ : type
        The struct to decode to.
    source : str
        File or other source, for errors.
    object_path : str
        The object's place in the source, for errors.

    Raises
    ------
    InputError
        If the text is malformed, nested too deeply, or does not match the struct; names the field if possible.
    """
    try:
        try:
            return decoder(type_).decode(raw)
        except msgspec.ValidationError:
            # Go treats null as absent, but msgspec does not: decode again, more slowly, without nulls.
            data = msgspec.json.decode(raw)
    except RecursionError:
        field = find_deepest_path(raw.encode() if isinstance(raw, str) else memoryview(raw))
        raise InputError(Problem(_TOO_DEEP, source, object_path, field)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = raw.encode() if isinstance(raw, str) else bytes(raw)
        raise InputError(syntax_problem(error, text, source, object_path)) from None
    return from_dict(data, type_, source=source, object_path=object_path)


def from_stored_json(raw: bytes | msgspec.Raw, type_: type[T], *, object_path: str = "") -> T:
    """Decode all fields of a stored object. Before, only the fields that decisions need were decoded.

    Raises UnreadableObjectError if a field cannot be read. ``object_path``: the object's place, for errors.
    """
    try:
        return from_json(raw, type_, object_path=object_path)
    except InputError as error:
        raise UnreadableObjectError(error.problems) from None


def from_dict(data: Any, type_: type[T], *, source: str = "", object_path: str = "") -> T:
    """Convert plain data (dicts, lists, strings, numbers) to an object, treating null as absent like Go.

    Parameters
    ----------
    data : Any
    type_ : type
        The struct to convert to.
    source : str
        File or other source, for errors.
    object_path : str
        The object's place in the source, for errors.

    Raises
    ------
    InputError
        If the data do not match the struct; names the field.
    """
    try:
        return _from_dict(data, type_, source, object_path)
    except RecursionError:
        raise InputError(Problem(_TOO_DEEP, source, object_path)) from None


def _from_dict(data: Any, type_: type[T], source: str, object_path: str) -> T:
    """Convert plain data; see :func:`from_dict`. Raises InputError."""
    try:
        return msgspec.convert(data, type_, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        first = error
    if isinstance(data, Mapping):
        data = _drop_nulls(data, "")
        try:
            return msgspec.convert(data, type_, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            first = error
    raise InputError(_build_problem(first, data, type_, source, object_path)) from None


def to_dict(value: Any) -> Any:
    """Convert an object to plain data, in camelCase, without fields that have their default value.

    Quantities become texts.
    """
    return msgspec.to_builtins(value, enc_hook=enc_hook)


def to_json(value: Any) -> bytes:
    """Encode a struct or plain data as JSON, structs without fields that have their default value."""
    return msgspec.json.encode(value, enc_hook=enc_hook)


def describe(prefix: str, kind: str, data: Any) -> str:
    """Return an object's name for messages, such as ``items[17] (Pod team-a/web-3)``.

    ``prefix``: its place, here ``items[17]``. ``data``: the object as plain data, whose metadata have the name. Parts
    that are missing are left out.
    """
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    name = ""
    if isinstance(metadata, Mapping):
        namespace, own = metadata.get("namespace"), metadata.get("name")
        name = escape("/".join(part for part in (namespace, own) if isinstance(part, str) and part))
    label = " ".join(part for part in (kind, name) if part)
    if prefix and label:
        return f"{prefix} ({label})"
    return prefix or label


def escape(text: str) -> str:
    """Return a name on one line, with escapes for unprintable characters."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def syntax_problem(
    error: msgspec.DecodeError | UnicodeDecodeError, text: bytes, source: str, object_path: str = ""
) -> Problem:
    """Return the problem for a JSON syntax error, or for a text that is not UTF-8.

    A syntax error has line and column; a text that ends too early, only the number of its last line. ``object_path``:
    the object's place in the source.
    """
    if (encoding := encoding_error(error, text)) is not None:
        return Problem(f"not UTF-8: {encoding}", source, object_path)
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


def encoding_error(error: Exception, text: bytes | memoryview | str) -> UnicodeDecodeError | None:
    """Return why a text that msgspec refused is not UTF-8; None if msgspec refused it for another reason.

    Since 0.23 msgspec reports such a text as a DecodeError without the position; before, as a UnicodeDecodeError.
    """
    if isinstance(error, UnicodeDecodeError):
        return error
    if "UTF-8" not in str(error):
        return None
    try:
        if not isinstance(text, str):
            str(text, "utf-8")
    except UnicodeDecodeError as cause:
        return cause
    return None


def _lower(message: str) -> str:
    """Return a message with a small first letter, unless it begins with an abbreviation."""
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def _drop_nulls(value: Any, key: str) -> Any:
    """Return plain data without members that are null. ``key``: the member that has the value.

    In maps of texts null is an empty text. In maps of quantities null stays, which is read as zero.
    """
    if isinstance(value, Mapping):
        if key in _TEXT_MAPS:
            return {name: "" if item is None else item for name, item in value.items()}
        if key in _QUANTITY_MAPS:
            return {
                name: _drop_nulls(item, str(name))
                for name, item in value.items()
                if item is not None or name not in _OF_RESOURCES
            }
        return {name: _drop_nulls(item, str(name)) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item, "") for item in value]
    return value


def _build_problem(error: msgspec.ValidationError, data: Any, type_: type, source: str, object_path: str) -> Problem:
    """Return the problem that an error of msgspec describes, with the field's path in ``data``."""
    match = _PATH.match(str(error))
    message, path = (match["message"], match["path"]) if match else (str(error), "")
    if match and match["key"]:
        return Problem(f"a key: {_lower(message)}", source, object_path, _to_field_path(message, path, data, type_))
    return Problem(_lower(message), source, object_path, _to_field_path(message, path, data, type_))


def _to_field_path(message: str, path: str, data: Any, type_: type) -> str:
    """Convert msgspec's ``path`` of a field to the form that the API uses.

    msgspec does not name the key of a map, so this function searches for the key in ``data`` whose value gives the
    same ``message``.
    """
    steps: list[str | int] = []
    for match in _STEP.finditer(path):
        name, index = match.groups()
        if name is not None:
            steps.append(name)
        elif index == "...":
            steps.append(_find_invalid_key(message, steps, data, type_))
        else:
            steps.append(int(index))
    text = "".join(f"[{step}]" if isinstance(step, int) or "." in step or "/" in step else f".{step}" for step in steps)
    return text.removeprefix(".")


def _find_invalid_key(message: str, steps: list[str | int], data: Any, type_: type) -> str:
    """Return the key of the map at ``steps`` whose value alone gives the same message; ``...`` if none does."""
    node = data
    for step in steps:
        node = node[step]
    for key, value in node.items():
        try:
            msgspec.convert(_replace_at(data, steps, {key: value}), type_, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            if str(error).startswith(message):
                return str(key)
    return "..."


def _replace_at(data: Any, steps: list[str | int], value: Any) -> Any:
    """Return a copy of ``data`` in which ``value`` is at ``steps``."""
    if not steps:
        return value
    copy: Any = list(data) if isinstance(data, list) else dict(data)
    copy[steps[0]] = _replace_at(data[steps[0]], steps[1:], value)
    return copy


class NumberText(str):
    """A number with a fraction or an exponent, as the JSON text writes it: quantities keep their form."""

    __slots__ = ()


_PLAIN = msgspec.json.Decoder(float_hook=NumberText)


def decode_plain(raw: msgspec.Raw | bytes | str) -> dict[str, Any]:
    """Decode the JSON text of an object to plain data. Numbers with a fraction or exponent become NumberText.

    The text must have been decoded before: msgspec's errors are not turned into InputError.
    """
    data: dict[str, Any] = _PLAIN.decode(raw)
    return data


def with_changes(data: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of ``data`` to which the differences between ``before`` and ``after`` are applied.

    ``before`` is what a struct models of ``data``, ``after`` the struct now, both as plain data. Fields that the struct
    does not model are unchanged. Lists of equal length are changed element by element, others replaced.
    """
    changed = {name: value for name, value in data.items() if name not in before or name in after}
    for name, value in after.items():
        if name not in before:
            changed[name] = value
        elif before[name] != value:
            changed[name] = _merge_changes(data.get(name), before[name], value)
    return changed


def _merge_changes(data: Any, before: Any, after: Any) -> Any:
    """Return a value of ``data`` after the change from ``before`` to ``after``; see :func:`with_changes`."""
    if before == after:
        return data
    if all(isinstance(each, Mapping) for each in (data, before, after)):
        return with_changes(data, before, after)
    if all(isinstance(each, list) for each in (data, before, after)) and len(data) == len(before) == len(after):
        return [_merge_changes(*each) for each in zip(data, before, after, strict=True)]
    return after
