"""Apply watch events, as the API server writes them, to a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject, ObjectMeta, Status, is_older_version, object_key
from kscale.objects.decode import ObjectHead, escape, from_json, object_head, refuse_depth
from kscale.objects.kinds import find_kind, group_of, with_namespace
from kscale.objects.validation import check_times, refuse_repeated_keys
from kscale.snapshot.changes import ChangedKeys, Watched
from kscale.snapshot.object_store import ObjectStore
from kscale.snapshot.pods.store import PodStore
from kscale.snapshot.text.pod_reader import ScannedItems, ScannedLines

__all__ = ["Applying", "StoredObjects", "decode_object", "watch"]

_TYPES: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
_ADDED, _DELETED, _BOOKMARK, _ERROR, _NO_EVENT = 0, 2, 3, 4, 255
_SYNCED: Final = "k8s.io/initial-events-end"


class StoredObjects(msgspec.Struct, frozen=True):
    """The pods and other objects of a cluster."""

    pods: PodStore
    objects: ObjectStore

    def put(self, item: KubeObject, raw: msgspec.Raw) -> ChangedKeys:
        """Add or replace an object, and return the change.

        If the object is stored with the same version already, mark it as seen and return no change.
        """
        key, version = item.key, item.metadata.resource_version
        if isinstance(item, Pod):
            if self.pods.has_version(key, version):
                self.pods.see(key)
                return ChangedKeys()
            exists = key in self.pods
            self.pods.put(item, raw)
        else:
            if self.objects.has_version(item.kind, key, version):
                self.objects.see(item.kind, key)
                return ChangedKeys()
            exists = self.objects.put(item)
        return ChangedKeys(modified=[key]) if exists else ChangedKeys(added=[key])

    def remove(self, item: KubeObject) -> ChangedKeys:
        """Remove an object, and return the change.

        The change is empty if the object does not exist, or if the stored object of this key has another UID.
        """
        key, uid = item.key, item.metadata.uid
        removed = self.pods.remove(key, uid) if isinstance(item, Pod) else self.objects.remove(item.kind, key, uid)
        return ChangedKeys(removed=[key]) if removed else ChangedKeys()

    def see(self, kind: str, key: str) -> None:
        """Mark an object as seen, without a change of its contents."""
        self.pods.see(key) if kind == "Pod" else self.objects.see(kind, key)

    def begin(self, kind: str) -> None:
        """Start to record which objects of a kind are seen. Raises RuntimeError if a listing of it is in progress."""
        self.pods.begin() if kind == "Pod" else self.objects.begin(kind)

    def end(self, kind: str) -> list[str]:
        """Stop recording which objects are seen, and return the keys of those that were not."""
        return self.pods.end() if kind == "Pod" else self.objects.end(kind)

    def drop(self, kind: str, keys: list[str]) -> None:
        """Remove the objects of a kind with these keys."""
        if kind == "Pod":
            self.pods.drop(keys)
        else:
            for key in keys:
                self.objects.remove(kind, key)


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_EVENTS: Final = msgspec.json.Decoder(_Event)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_object(text: memoryview, api_version: str = "", kind: str = "") -> KubeObject | str:
    """Decode an object from its JSON text; return its kind (``kind.group``) if kscale does not model the kind.

    ``api_version`` and ``kind`` are defaults for an object without them. Raises InputError if the object cannot be
    read.
    """
    head = object_head(text)
    api_version, kind = head.api_version or api_version, head.kind or kind
    if not kind:
        try:
            from_json(text, _Head)
        except InputError as error:
            raise InputError(f"not a Kubernetes object: {error}") from None
        raise InputError("no kind: not a Kubernetes object")
    type_ = find_kind(api_version, kind)
    if type_ is None:
        group = group_of(api_version)
        return f"{kind}.{group}" if group else kind
    obj = from_json(text, type_)
    if type_ is Pod:  # its text is stored and decoded again later
        refuse_depth(text)
    refuse_repeated_keys(text)
    check_times(obj)
    obj.kind, obj.api_version = obj.kind or kind, obj.api_version or api_version
    if not obj.name:
        raise InputError(Problem("is empty", "", kind, "metadata.name"))
    return with_namespace(obj)


class Applying:
    """Applies the objects of one text to the contents, pods as columns and other objects one by one, in order.

    ``kind`` is the default for objects without one; ``problems`` has the objects that cannot be read.
    """

    def __init__(
        self,
        contents: StoredObjects,
        view: memoryview,
        scanned: ScannedItems,
        deleted: NDArray[np.bool_] | None,
        kind: str = "",
    ) -> None:
        self._contents = contents
        self._kind = kind
        self._view = view
        self._scanned = scanned
        self._deleted = deleted
        self._done = 0  # pods in columns
        self.fast = np.flatnonzero(scanned.fast)
        self._changes: dict[str, list[ChangedKeys]] = {}
        self.problems: list[Problem] = []

    def run(self, slowly: Callable[[int, memoryview], None], place: str) -> None:
        """Apply all objects, and add those that cannot be read to ``problems``.

        ``slowly`` is called with number and text of each object that is not in columns, and may raise InputError.
        ``place`` is the format of an object's place in problems, with ``{at}`` or ``{line}``, its number from 0 or 1.
        """
        scanned = self._scanned
        slow = np.flatnonzero(~scanned.fast).tolist() if len(self.fast) < len(scanned.fast) else []
        for at in slow:
            begin = int(scanned.begin[at])
            text = self._view[begin : begin + int(scanned.size[at])]
            try:
                slowly(at, text)
            except InputError as error:
                head = object_head(text)
                head = msgspec.structs.replace(head, kind=head.kind or self._kind)
                label = escape(head.label)
                name = f"{place.format(at=at, line=at + 1)}{f' ({label})' if label else ''}"
                self.problems += [Problem(each.message, each.source, name, each.field) for each in error.problems]
                if head.kind and head.name:
                    self._contents.see(head.kind, _key(head))
        self._until(len(self.fast))

    def put(self, at: int, item: KubeObject, text: memoryview) -> None:
        """Apply the pods in columns that come before the object number ``at``, then add or replace the object."""
        if isinstance(item, Pod):
            self._until(int(np.searchsorted(self.fast, at)))
        self._record_change(item.kind, self._contents.put(item, msgspec.Raw(text)))

    def remove(self, at: int, item: KubeObject) -> None:
        """Apply the pods in columns that come before the object number ``at``, then remove the object."""
        if isinstance(item, Pod):
            self._until(int(np.searchsorted(self.fast, at)))
        self._record_change(item.kind, self._contents.remove(item))

    def remove_unreadable(self, at: int, head: ObjectHead) -> None:
        """Remove the object number ``at``, of which only ``head`` (kind, namespace, name, UID) can be read.

        Does nothing for a kind that kscale does not read.
        """
        type_ = find_kind(head.api_version, head.kind)
        if type_ is not None and head.name:
            metadata = ObjectMeta(name=head.name, namespace=head.namespace, uid=head.uid)
            self.remove(at, with_namespace(type_(kind=head.kind, api_version=head.api_version, metadata=metadata)))

    def _until(self, until: int) -> None:
        """Apply those of the first ``until`` pods in columns that were not applied so far."""
        if until <= self._done:
            return
        part = slice(self._done, until)
        pods = self._scanned.pods
        if until - self._done < len(self.fast):
            pods = pods.pick(part)
        deleted = None if self._deleted is None else self._deleted[self.fast[part]]
        self._done = until
        self._record_change("Pod", self._contents.pods.put_batch(pods, deleted))

    def _record_change(self, kind: str, change: ChangedKeys) -> None:
        """Store the changed keys of a kind, unless there are none."""
        if change:
            self._changes.setdefault(kind, []).append(change)

    def change(self, kind: str) -> ChangedKeys:
        """Return the changes of one kind."""
        return ChangedKeys.concatenate(self._changes.get(kind, ()))

    def changes(self) -> dict[str, ChangedKeys]:
        """Return the changes by kind."""
        return {kind: ChangedKeys.concatenate(parts) for kind, parts in self._changes.items()}


def watch(contents: StoredObjects, view: memoryview, lines: ScannedLines) -> Watched:
    """Apply the events of a watch to ``contents``, in order, and return what they changed.

    ``view``: the text of the events; ``lines``: the events that :meth:`PodReader.lines` has read from it.
    """
    if lines.fast is None:
        return _apply_pods(contents, lines)
    return _Watch(contents, view, lines).run()


def _apply_pods(contents: StoredObjects, lines: ScannedLines) -> Watched:
    """Apply events that are all of pods in columns. A faster path than :class:`_Watch`, with the same result."""
    types, versions = lines.types, lines.pods.column("version")
    deletes = types.count(_DELETED)
    deleted = np.frombuffer(types, dtype=np.uint8) == _DELETED if deletes else None
    change = contents.pods.put_batch(lines.pods, deleted)
    version = int(versions.max()) if len(types) > 1 else int(versions[0]) if types else -1
    return Watched(
        used=lines.lines.used,
        events=len(types),
        only_added=types.count(_ADDED) == len(types),
        changes={"Pod": change} if change else {},
        version=str(version) if version >= 0 else "",
    )


class _Watch:
    """Reads lines of a watch."""

    def __init__(self, contents: StoredObjects, view: memoryview, lines: ScannedLines) -> None:
        self._view = view
        self._lines = lines
        self._types = lines.types
        deleted = np.frombuffer(self._types, dtype=np.uint8) == _DELETED
        self._applying = Applying(contents, view, lines.items(), deleted if deleted.any() else None)
        self._version = ""
        self._list_end = -1  # line of the bookmark that ends a list, whose version is that of the list
        self._synced = False
        self._error: Status | None = None
        self._skipped: dict[str, int] = {}

    def run(self) -> Watched:
        """Apply all lines."""
        lines, applying = self._lines, self._applying
        applying.run(self._line, "line {line}")
        versions = lines.pods.column("version")
        if self._list_end >= 0:
            versions = versions[applying.fast > self._list_end]
        if len(versions) and (newest := int(versions.max())) >= 0:
            self._note_version(str(newest))
        return Watched(
            used=lines.lines.used,
            events=len(self._types) - self._types.count(_NO_EVENT),
            only_added=self._types.count(_ADDED) == len(self._types),
            changes=applying.changes(),
            version=self._version,
            synced=self._synced,
            error=self._error,
            skipped=self._skipped,
            problems=tuple(applying.problems),
        )

    def _line(self, at: int, text: memoryview) -> None:
        """Apply the line number ``at``, which is not a pod in columns.

        Raises InputError if the line is no event or cannot be read.
        """
        type_ = self._types[at]
        if type_ >= len(_TYPES):
            raise InputError(_explain_no_event(text if type_ == _NO_EVENT else self._get_line(at)))
        if type_ == _ERROR:
            try:
                self._error = from_json(text, Status)
            except InputError as error:
                self._error = Status(message=f"an ERROR event whose status cannot be read: {error}", reason="Unknown")
                raise
            return
        if type_ == _BOOKMARK:
            try:
                metadata = from_json(text, _Head).metadata
            except InputError as error:
                raise InputError(f"BOOKMARK without metadata: {error}") from None
            if (metadata.annotations or {}).get(_SYNCED) == "true":
                self._synced, self._version, self._list_end = True, "", at
            self._note_version(metadata.resource_version)
            return
        self._note_version(object_head(text).resource_version)
        try:
            obj = decode_object(text)
        except InputError:
            if type_ == _DELETED:
                self._applying.remove_unreadable(at, object_head(text))
            raise
        if isinstance(obj, str):
            self._skipped[obj] = self._skipped.get(obj, 0) + 1
        elif type_ == _DELETED:
            self._applying.remove(at, obj)
        else:
            self._applying.put(at, obj, text)

    def _note_version(self, version: str) -> None:
        """Store a resource version if it is the newest of the lines so far."""
        if version and not is_older_version(version, self._version):
            self._version = version

    def _get_line(self, at: int) -> memoryview:
        """Return the full text of the line number ``at``."""
        starts = self._lines.lines.columns()[0]
        end = int(starts[at + 1]) if at + 1 < len(starts) else self._lines.lines.used
        return self._view[int(starts[at]) : end]


def _explain_no_event(line: memoryview) -> str:
    """Return why a line is not a watch event."""
    try:
        event = _EVENTS.decode(line)
    except msgspec.ValidationError as error:
        return f"not an event of a watch: {error}"
    except _UNREADABLE as error:
        return f"damaged: {error}"
    if event.type not in _TYPES:
        return f"not an event of a watch: its type is {event.type!r}"
    return "damaged: a key comes twice, or is escaped"


def _key(head: ObjectHead) -> str:
    """Return the key under which an object is stored: the name of a node, otherwise :func:`object_key`."""
    return head.name if head.kind == "Node" else object_key(head.namespace, head.name)
