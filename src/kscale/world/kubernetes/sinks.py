"""Where informers put what they bring."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from kscale.effects import ApiError
from kscale.errors import InputError, Problem
from kscale.objects.base import ApiStruct
from kscale.objects.kinds import find_kind
from kscale.objects.meta import KubeObject, object_key
from kscale.world.kubernetes.status import read_status
from kscale.world.protocols import Change, Watch
from kscale.world.server_data import (
    ServerEvent,
    UnreadableError,
    UnreadableObjectError,
    read_change,
    read_event,
    read_json,
    read_list,
    read_object,
)

__all__ = ["Absorbed", "ObjectSink", "Sink", "Unreadable"]

_log = logging.getLogger(__name__)
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_NAMES_LOGGED: Final = 1024


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

    @property
    def unreadable(self) -> int:
        """How many objects have been skipped so far because they cannot be read."""
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


class _Meta(ApiStruct):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(ApiStruct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


class Unreadable:
    """Objects of one kind that were skipped because they cannot be read: counts each, logs each object once."""

    __slots__ = ("_kind", "_logged", "count")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._logged: OrderedDict[str, None] = OrderedDict()
        self.count = 0

    def report(self, name: str, problem: Problem | InputError) -> None:
        """Count a skipped object, and log it unless it was the last time that it came, too."""
        self.count += 1
        if name in self._logged:
            self._logged.move_to_end(name)
            return
        self._logged[name] = None
        if len(self._logged) > _NAMES_LOGGED:
            self._logged.popitem(last=False)
        _log.error("Skipping a %s that cannot be read: %s", self._kind, problem)

    def forget(self, name: str) -> None:
        """The object can be read, or is gone: it is logged again the next time that it cannot."""
        if self._logged:
            self._logged.pop(name, None)


class ObjectSink:
    """Objects of one kind, one by one, as structs.

    ``changed`` is told each change after it was made. A list replaces all at its end, what is gone first
    (client-go's ``Replace``); until then the old state stays.

    An object that cannot be read is skipped (:attr:`unreadable`): the version of it that was read last stays, one that
    was never read is absent.
    """

    __slots__ = ("_changed", "_listing", "_skipped", "_type", "objects", "watch")

    def __init__(self, watch: Watch, changed: Callable[[Change], None]) -> None:
        self.watch = watch
        self.objects: dict[str, KubeObject] = {}
        """By ``namespace/name``, in the order in which they came."""
        self._type = find_kind(watch.api_version, watch.kind) or KubeObject
        self._changed = changed
        self._listing: dict[str, KubeObject] | None = None
        self._skipped = Unreadable(watch.kind)

    @property
    def settled(self) -> bool:
        return True

    @property
    def unreadable(self) -> int:
        return self._skipped.count

    def begin(self) -> None:
        self._listing = {}

    def page(self, data: bytes) -> tuple[str, str]:
        try:
            page = read_list(data)
        except UnreadableError as error:
            raise InputError(f"not a list of {self.watch.kind}: {error}") from None
        if not page.kind.endswith("List"):
            raise InputError(f"not a list of {self.watch.kind} but a {page.kind or 'text without a kind'}")
        for raw in page.items:
            try:
                self._put(self._read(raw))
            except UnreadableObjectError as error:
                self._skip(error)
        return page.resource_version, page.continue_

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
            change = read_change(line, self._type)
            if change is not None:
                count += 1
                only_added = only_added and change[0] == "ADDED"
                version = self._apply(change[0], self._named(change[1])) or version
                continue
            try:
                event = read_event(line)
            except UnreadableError as error:
                raise InputError(f"not a watch of {self.watch.kind}: {error}") from None
            if event.type == "ERROR":
                failed = read_status(event.object) or ApiError("an ERROR event without a status", reason="Unknown")
                break
            count += 1
            only_added = only_added and event.type == "ADDED"
            if event.type == "BOOKMARK":
                try:
                    meta = read_json(event.object, _Bookmark).metadata
                except UnreadableError as error:
                    raise InputError(f"not a bookmark of {self.watch.kind}: {error}") from None
                version = meta.resource_version or version
                synced = synced or (meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
            elif event.type in _CHANGES:
                version = self._apply_slowly(event) or version
            else:
                _log.error("Unknown watch event %r of %s", event.type, self.watch.kind)
        return Absorbed(end, count, version, only_added, synced, failed)

    def _apply(self, type_: str, new: KubeObject) -> str:
        """Apply a change; return the version of its object."""
        if type_ != "DELETED":
            return self._put(new)
        self._remove(new.key, new)
        return new.metadata.resource_version

    def _apply_slowly(self, event: ServerEvent) -> str:
        """The same for an event whose object may be unreadable."""
        try:
            return self._apply(event.type, self._read(event.object))
        except UnreadableObjectError as error:
            if event.type == "DELETED":
                self._remove(object_key(error.head.namespace, error.head.name))
            self._skip(error)
            return error.head.resource_version

    def _remove(self, key: str, last: KubeObject | None = None) -> None:
        """Remove an object; ``last``: as it was at its end, if that can be read."""
        if self._listing is not None:
            self._listing.pop(key, None)
        elif (old := self.objects.pop(key, None)) is not None:
            self._changed(Change(watch=self.watch, old=last or old))

    def _skip(self, error: UnreadableObjectError) -> None:
        """Skip an object; in a list the version that was read last is taken over."""
        head = error.head
        key = object_key(head.namespace, head.name)
        self._skipped.report(key, error)
        if self._listing is not None and key in self.objects:
            self._listing.setdefault(key, self.objects[key])

    def _read(self, raw: msgspec.Raw) -> KubeObject:
        return self._named(read_object(raw, self._type))

    def _named(self, obj: KubeObject) -> KubeObject:
        obj.kind, obj.api_version = self.watch.kind, self.watch.api_version
        self._skipped.forget(obj.key)
        return obj

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
