"""Where informers put what they bring."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

import msgspec

from kscale.effects import ApiError
from kscale.errors import InputError
from kscale.objects.decode import decoder, from_json
from kscale.objects.kinds import find_kind
from kscale.objects.meta import KubeObject
from kscale.world.kubernetes.status import read_status
from kscale.world.protocols import Change, Watch

__all__ = ["Absorbed", "ObjectSink", "Sink"]

_log = logging.getLogger(__name__)
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Absorbed(msgspec.Struct, frozen=True):
    """What became of bytes of a watch: how many were used (what is left is a piece of a line), how many events they
    were, and what :class:`~kscale.world.kubernetes.reflector.Batch` tells of them."""

    used: int
    events: int = 0
    version: str = ""
    only_added: bool = False
    synced: bool = False
    error: ApiError | None = None


class Sink(Protocol):
    """What an informer feeds. Raises :class:`~kscale.InputError` for what is no list and no watch of its kind."""

    @property
    def settled(self) -> bool:
        """What is there is a state that once was."""
        ...

    def begin(self) -> None:
        """A list begins; one that has not come to its end is forgotten."""
        ...

    def page(self, data: bytes) -> tuple[str, str]:
        """A page of it: the version of the list, and what to go on with."""
        ...

    def events(self, data: bytes) -> Absorbed:
        """Lines of a watch; of one that lists first, while a list is under way."""
        ...

    def settle(self) -> None:
        """The list has come to its end: what it did not bring is gone."""
        ...


class _ListMeta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    kind: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_lists: Final = msgspec.json.Decoder(_List)
_events: Final = msgspec.json.Decoder(_Event)
_bookmarks: Final = msgspec.json.Decoder(_Bookmark)


_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


@cache
def _with_object(type_: type[KubeObject]) -> msgspec.json.Decoder[Any]:
    """What reads an event and its object at once: it is looked at once instead of twice."""
    return decoder(msgspec.defstruct("Changed", [("type", str), ("object", type_)]))


class ObjectSink:
    """Objects of one kind, one by one, as structs.

    ``changed`` is told each change after it was made. A list replaces all at its end, what is gone first
    (client-go's ``Replace``); until then the old state stays.
    """

    __slots__ = ("_changed", "_changes", "_listing", "_type", "objects", "watch")

    def __init__(self, watch: Watch, changed: Callable[[Change], None]) -> None:
        self.watch = watch
        self.objects: dict[str, KubeObject] = {}
        """By ``namespace/name``, in the order in which they came."""
        self._type = find_kind(watch.api_version, watch.kind) or KubeObject
        self._changes = _with_object(self._type)
        self._changed = changed
        self._listing: dict[str, KubeObject] | None = None

    @property
    def settled(self) -> bool:
        return True

    def begin(self) -> None:
        self._listing = {}

    def page(self, data: bytes) -> tuple[str, str]:
        try:
            found = _lists.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"not a list of {self.watch.kind}: {error}") from None
        if not found.kind.endswith("List"):
            raise InputError(f"not a list of {self.watch.kind} but a {found.kind or 'text without a kind'}")
        for raw in found.items or ():
            new = self._read(raw)
            if new is not None:
                self._put(new)
        return found.metadata.version, found.metadata.continue_

    def settle(self) -> None:
        listed, self._listing = self._listing, None
        if listed is None:
            return
        for key in [key for key in self.objects if key not in listed]:
            old = self.objects.pop(key)
            self._changed(Change(watch=self.watch, old=old, missed=True))
        for new in listed.values():
            self._store(new)

    def events(self, data: bytes) -> Absorbed:
        end = data.rfind(b"\n") + 1
        count, version, only_added, synced, failed = 0, "", True, False, None
        for line in data[:end].splitlines():
            if not line.strip():
                continue
            whole = self._whole(line)
            if whole is not None:
                count += 1
                only_added = only_added and whole.type == "ADDED"
                version = self._apply(whole.type, whole.object) or version
                continue
            try:
                event = _events.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(f"not a watch of {self.watch.kind}: {error}") from None
            if event.type == "ERROR":
                failed = read_status(event.object) or ApiError("an ERROR event without a status", reason="Unknown")
                break
            count += 1
            only_added = only_added and event.type == "ADDED"
            if event.type == "BOOKMARK":
                meta = _bookmarks.decode(event.object).metadata
                version = meta.version or version
                synced = synced or (meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
                continue
            if event.type in _CHANGES:
                version = self._apply(event.type, self._read(event.object)) or version
            else:
                _log.error("Unknown watch event %r of %s", event.type, self.watch.kind)
        return Absorbed(end, count, version, only_added, synced, failed)

    def _whole(self, line: bytes) -> Any:
        """A change with its object, read in one go; None: it is none, or has to be read slowly."""
        try:
            found = self._changes.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if found.type not in _CHANGES:
            return None
        self._name(found.object)
        return found

    def _apply(self, type_: str, new: KubeObject | None) -> str:
        """What an event brings; gives its version."""
        if new is None:
            return ""
        if type_ != "DELETED":
            return self._put(new)
        if self._listing is not None:
            self._listing.pop(new.key, None)
        elif self.objects.pop(new.key, None) is not None:
            self._changed(Change(watch=self.watch, old=new))
        return new.metadata.resource_version

    def _read(self, raw: msgspec.Raw) -> KubeObject | None:
        try:
            found = from_json(raw, self._type)
        except InputError as error:
            _log.error("A %s cannot be read: %s", self.watch.kind, error)
            return None
        self._name(found)
        return found

    def _name(self, found: KubeObject) -> None:
        found.kind, found.api_version = self.watch.kind, self.watch.api_version

    def _put(self, new: KubeObject) -> str:
        if self._listing is not None:
            self._listing[new.key] = new
        else:
            self._store(new)
        return new.metadata.resource_version

    def _store(self, new: KubeObject) -> None:
        old = self.objects.get(new.key)
        version = new.metadata.resource_version
        if old is not None and version and old.metadata.resource_version == version:
            return
        self.objects[new.key] = new
        self._changed(Change(watch=self.watch, old=old, new=new))
