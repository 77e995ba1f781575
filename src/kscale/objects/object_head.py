"""Who an object is and where its text is too deep, read without recursion: for objects that cannot be decoded."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from kscale._native import _projection
from kscale.errors import InputError, Problem

__all__ = ["ObjectHead", "deep_field", "json_members", "object_head", "refuse_depth"]

_STEPS: Final = 8
_DEEPEST: Final = 500
_TEXT: Final = msgspec.json.Decoder(str)


class ObjectHead(NamedTuple):
    """What could be read of an object's kind and metadata; empty where it could not."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def label(self) -> str:
        """``ResourceClaim team-a/gpu``, as far as the parts are known."""
        name = "/".join(part for part in (self.namespace, self.name) if part)
        return " ".join(part for part in (self.kind, name) if part)


def json_members(text: bytes | memoryview) -> dict[str, memoryview]:
    """Return the members of a JSON object as texts; of a repeated key the last one. Empty if it is no object."""
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
    """Return who an object is, as far as its JSON text tells. Never raises."""
    try:
        head = _HEADS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _head_by_parts(text)
    metadata = head.metadata
    return ObjectHead(
        head.api_version, head.kind, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version
    )


def _head_by_parts(text: bytes | memoryview) -> ObjectHead:
    members = json_members(text)
    metadata = json_members(members["metadata"]) if "metadata" in members else {}
    return ObjectHead(
        _text(members.get("apiVersion")),
        _text(members.get("kind")),
        *(_text(metadata.get(name)) for name in ("namespace", "name", "uid", "resourceVersion")),
    )


def _text(value: memoryview | None) -> str:
    try:
        return "" if value is None else _TEXT.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def deep_field(text: bytes | memoryview) -> str:
    """Return the field path to the deepest part of a JSON text, at most a few steps of it: ``spec.a[0].b.c...``."""
    view = memoryview(text)
    path = ""
    for _ in range(_STEPS):
        step, view = _deepest_step(view)
        if not step:
            return path.removeprefix(".")
        path += step
    return f"{path.removeprefix('.')}..."


def refuse_depth(text: bytes | memoryview) -> None:
    """Raise InputError for a text so deep that it could be decoded now, but not by who has more calls open."""
    if _projection.json_extent(memoryview(text))[1] > _DEEPEST:
        raise InputError(Problem("nested too deeply", field=deep_field(text)))


def _deepest_step(view: memoryview) -> tuple[str, memoryview]:
    """The step to the child that is nested most deeply, and its text; an empty step if no child is nested."""
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
