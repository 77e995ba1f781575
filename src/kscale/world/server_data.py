"""Decoding of all data from servers: API servers, metrics APIs and Prometheus.

Invalid data raises only :class:`UnreadableError`. No other module of ``kscale.world`` and ``kscale.drivers`` decodes
or converts data from a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kscale._native import _projection
from kscale.errors import InputError, Problem
from kscale.objects.api.meta import ApiStruct, Int64, KubeObject
from kscale.objects.decode import ObjectHead, decoder, from_dict, from_json, json_members, object_head
from kscale.objects.validation import check_times

__all__ = [
    "INITIAL_EVENTS_END",
    "Bookmark",
    "ServerEvent",
    "ServerList",
    "UnreadableError",
    "UnreadableObjectError",
    "read_change",
    "read_data",
    "read_event",
    "read_json",
    "read_list",
    "read_object",
]

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends a streaming list."""
_T = TypeVar("_T")
_Object = TypeVar("_Object", bound=KubeObject)


class UnreadableError(InputError):
    """Data from a server cannot be decoded, so the request has failed."""


class UnreadableObjectError(UnreadableError):
    """One object cannot be decoded and is skipped; ``head`` identifies it as far as possible."""

    def __init__(self, error: InputError, head: ObjectHead) -> None:
        label = head.label
        super().__init__([Problem(problem.message, problem.source, label, problem.field) for problem in error.problems])
        self.head = head


class _ErrorConversion:
    """Context that converts every error of a decoder to UnreadableError. It has no state, so one is enough."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, UnreadableError):
            return
        if isinstance(error, InputError):
            raise UnreadableError(error.problems) from None
        if isinstance(error, RecursionError):
            raise UnreadableError("nested too deeply") from None
        if isinstance(error, MemoryError):
            raise UnreadableError("too large for the memory of this process") from None
        if isinstance(error, ValueError | TypeError | ArithmeticError):  # msgspec.MsgspecError, UnicodeDecodeError, too
            raise UnreadableError(str(error)) from None


_CONVERTED_ERRORS: Final = _ErrorConversion()


def read_json(data: bytes | memoryview | msgspec.Raw, type_: type[_T]) -> _T:
    """Decode a JSON document into ``type_``. A null counts as absent, as in Go.

    Raises UnreadableError if the text is not JSON or does not match the type.
    """
    with _CONVERTED_ERRORS:
        return from_json(data, type_)


def read_data(data: Any, type_: type[_T]) -> _T:
    """Convert plain data (dicts, lists, texts, numbers) from a server into ``type_``.

    Raises UnreadableError if the data does not match the type.
    """
    with _CONVERTED_ERRORS:
        return from_dict(data, type_)


# -- objects ---------------------------------------------------------------------------------------------------------


def read_object(raw: bytes | memoryview | msgspec.Raw, type_: type[_Object]) -> _Object:
    """Decode one API object.

    Raises UnreadableObjectError if it does not match the type, or has no name or an invalid time.
    """
    try:
        with _CONVERTED_ERRORS:
            obj = from_json(raw, type_)
            _check(obj)
            return obj
    except UnreadableError as error:
        raise UnreadableObjectError(error, object_head(memoryview(raw))) from None


def _check(obj: KubeObject) -> None:
    """Raise InputError if an object has no name or an invalid time; a struct allows both, an API server neither."""
    if not obj.metadata.name:
        raise InputError(Problem("is empty", field="metadata.name"))
    check_times(obj)


# -- lists and watches -----------------------------------------------------------------------------------------------


class _ListMeta(ApiStruct):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: Int64 | None = None


class _List(ApiStruct):
    kind: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_LISTS: Final = msgspec.json.Decoder(_List)
_EVENTS: Final = msgspec.json.Decoder(_Event)


@cache
def _get_change_decoder(type_: type[KubeObject]) -> msgspec.json.Decoder[Any]:
    """Return the decoder of watch events whose objects are of this type."""
    return decoder(msgspec.defstruct("Changed", [("type", str), ("object", type_)]))


class ServerList(NamedTuple):
    """Page of a list; its items are not yet decoded."""

    kind: str
    resource_version: str
    continue_: str
    remaining: int
    items: Sequence[msgspec.Raw]


class ServerEvent(NamedTuple):
    """Event of a watch; its object is not yet decoded."""

    type: str
    object: msgspec.Raw


def read_list(data: bytes) -> ServerList:
    """Split a page of a list into its items without decoding them. Items may be nested to any depth.

    Raises UnreadableError if the data is not a list.
    """
    with _CONVERTED_ERRORS:
        try:
            page = _LISTS.decode(data)
        except (RecursionError, msgspec.ValidationError):  # an item is too deep, or there is a null
            page = _split_list(data)
    metadata = page.metadata
    remaining = metadata.remaining_item_count or 0
    return ServerList(page.kind, metadata.resource_version, metadata.continue_, remaining, page.items or ())


def _split_list(data: bytes) -> _List:
    """Split a page that the decoder rejects because it is nested too deeply or contains a null.

    Raises UnreadableError.
    """
    members = json_members(data)
    if not members:
        raise UnreadableError("not one JSON object with members")
    items: list[msgspec.Raw] = []
    text = members.pop("items", memoryview(b"null"))
    if bytes(text) != b"null":
        places = _projection.json_elements(text)
        if places is None:
            raise UnreadableError(Problem("expected an array", field="items"))
        items = [msgspec.Raw(text[start : start + size]) for start, size in places.tolist()]
    head = b",".join(b'"%s":%s' % (name.encode(), members[name]) for name in ("kind", "metadata") if name in members)
    page = from_json(b"{%s}" % head, _List)
    page.items = items
    return page


def read_event(line: bytes) -> ServerEvent:
    """Parse a watch line into the type of the event and its object, without decoding the object.

    The object may be nested to any depth. Raises UnreadableError if the line is not an event.
    """
    with _CONVERTED_ERRORS:
        try:
            event = _EVENTS.decode(line)
        except RecursionError:
            members = json_members(line)
            if "object" not in members:
                raise UnreadableError("an event without an object") from None
            event = _Event(from_json(members.get("type", memoryview(b'""')), str), msgspec.Raw(members["object"]))
    return ServerEvent(event.type, event.object)


def read_change(line: bytes, type_: type[_Object]) -> tuple[str, _Object] | None:
    """Decode an event in one step, which is faster, and return (type of the event, object).

    Returns None for a line that must be read by :func:`read_event`: an event of another type than ADDED, MODIFIED and
    DELETED, or one that cannot be decoded.
    """
    try:
        with _CONVERTED_ERRORS:
            event = _get_change_decoder(type_).decode(line)
            if event.type not in _CHANGES:
                return None
            _check(event.object)
    except UnreadableError:
        return None
    return event.type, event.object


class _BookmarkMeta(ApiStruct):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Bookmark(ApiStruct):
    """The object of a BOOKMARK event."""

    metadata: _BookmarkMeta = msgspec.field(default_factory=_BookmarkMeta)
