"""Objects of a simulated API server: versions, conflicts, watches and patches.

Upstream: ``apimachinery/pkg/util/strategicpatch``, ``evanphx/json-patch``. Strategic merge patches support only the
lists that kscale writes, those with a merge key below.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

from msgspec.structs import replace

from kscale.effects import ApiError, Moment, VirtualTime, to_text
from kscale.effects.actions import ALREADY_EXISTS, CONFLICT, NOT_FOUND
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject, object_key
from kscale.objects.kinds import kind_of, with_namespace
from kscale.objects.names import created_pods_key, next_name, with_name
from kscale.objects.selectors import parse_selector
from kscale.world.kubernetes.resources import EVERYWHERE
from kscale.world.protocols import Watch

__all__ = [
    "ApiObjects",
    "Changes",
    "Listener",
    "PatchError",
    "RefusedError",
    "Wanted",
    "build_predicate",
    "json_patch",
    "merge",
    "one_by_one",
    "strategic",
]


_MERGE_KEYS: Final = {
    "conditions": "type", "containers": "name", "ownerReferences": "uid", "webhooks": "name", "env": "name"
}  # fmt: skip
_NOTHING: Final = object()


class PatchError(ValueError):
    """A JSON patch does not apply."""


def merge(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396) and return the new value; unchanged parts are shared with ``value``.

    The arguments are not changed.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), part)
    return result


def strategic(value: Any, patch: Any, field: str = "") -> Any:
    """Apply a strategic merge patch and return the new value; unchanged parts are shared with ``value``.

    The arguments are not changed. Maps are merged; None removes a member. Lists of the fields in ``_MERGE_KEYS`` are
    merged by their key, and new items come last; other lists are replaced.
    """
    if isinstance(patch, dict):
        merged = dict(value) if isinstance(value, dict) else {}
        for key, part in patch.items():
            if part is None:
                merged.pop(key, None)
            else:
                merged[key] = strategic(merged.get(key), part, key)
        return merged
    if isinstance(patch, list) and field in _MERGE_KEYS:
        name = _MERGE_KEYS[field]
        items = list(value or [])
        for part in patch:
            index = next((i for i, item in enumerate(items) if item.get(name) == part.get(name)), None)
            if index is None:
                items.append(copy.deepcopy(part))
            else:
                items[index] = strategic(items[index], part)
        return items
    return copy.deepcopy(patch)


def json_patch(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Apply a JSON patch (RFC 6902) without ``move`` and ``copy``, and return the new value.

    Changed parts are copied; the rest is shared with ``value``. Raises :class:`PatchError` if an operation does not
    apply.
    """
    for operation in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        value = _apply_at_path(value, parts, operation)
    return value


def _apply_at_path(target: Any, parts: Sequence[str], each: Mapping[str, Any]) -> Any:
    """Return a copy of a map or list with the operation ``each`` applied at the path ``parts``. Raises PatchError."""
    target = target.copy()
    if len(parts) == 1:
        _apply(target, parts[0], each)
        return target
    part = parts[0]
    below = _get_item(target, part)
    if not isinstance(below, list | dict):
        raise PatchError(f"{each['op']} operation does not apply: doc is missing path: {each['path']}")
    target[int(part) if isinstance(target, list) else part] = _apply_at_path(below, parts[1:], each)
    return target


def _apply(target: Any, last: str, each: Mapping[str, Any]) -> None:
    """Apply the JSON patch operation ``each`` to the member ``last`` of a map or list, in place. Raises PatchError."""
    current, key = _get_item(target, last), int(last) if isinstance(target, list) and last.isdigit() else last
    match each["op"]:
        case "test":
            if current != each.get("value"):
                raise PatchError(f"testing value {each['path']} failed")
        case "remove":
            if current is _NOTHING:
                raise PatchError(f"remove operation does not apply: doc is missing key: {each['path']}")
            del target[key]
        case "add" if isinstance(target, list):
            target.insert(len(target) if last == "-" else int(last), each["value"])
        case "replace" if current is _NOTHING:
            raise PatchError(f"replace operation does not apply: doc is missing key: {each['path']}")
        case _:
            target[key] = each["value"]


def _get_item(target: Any, key: str) -> Any:
    """Return a member of a map or an item of a list (``key`` is the index), or ``_NOTHING``."""
    if isinstance(target, list):
        return target[int(key)] if key.isdigit() and int(key) < len(target) else _NOTHING
    return target.get(key, _NOTHING) if isinstance(target, dict) else _NOTHING


_Object = TypeVar("_Object", bound=KubeObject)

Changes = Sequence[tuple[str, _Object | None, _Object | None]]
"""(key, before, after) of one or more distinct objects of a kind that change together; None stands for a missing
object."""

Listener = Callable[[Changes[Any]], None]
"""Called with the changes of objects of a kind."""

_RESOURCES: Final = {resource.kind: resource.group_resource for resource in EVERYWHERE}
_API_VERSIONS: Final = {resource.kind: resource.api_version for resource in EVERYWHERE}
_NO_OBJECTS: Final[Mapping[str, Any]] = {}


class RefusedError(Exception):
    """The API server rejects a request; ``error`` is the reason."""

    def __init__(self, message: str, code: int, reason: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.error = ApiError(message, code, reason, causes)


def one_by_one(call: Callable[[Any, Any], None]) -> Listener:
    """Convert a function of (old, new) to a listener, which calls it for each change."""

    def tell(changes: Changes[Any]) -> None:
        for _, old, new in changes:
            call(old, new)

    return tell


class _DeferredStatuses:
    """Statuses of objects of one kind that are built when the kind is read. ``make``: builds them, by key."""

    __slots__ = ("_make", "_statuses")

    def __init__(self, make: Callable[[], Mapping[str, object]]) -> None:
        self._make: Callable[[], Mapping[str, object]] | None = make
        self._statuses: Mapping[str, object] = _NO_OBJECTS

    def get(self, key: str) -> object:
        """Return the status of an object. The first call builds those of all objects."""
        if self._make is not None:
            self._statuses, self._make = self._make(), None
        return self._statuses[key]


class _Everything(NamedTuple):
    """Listener to all kinds but ``other_than``. ``statuses``: whether it is called if only a status is written."""

    call: Callable[[str, Changes[Any]], None]
    other_than: Collection[str]
    statuses: bool


class ApiObjects:
    """Objects by kind and key, each with a resource version. Returned objects are never changed in place.

    Listeners are called immediately, in the order of registration. Pods that change together are reported in one call.
    Listeners must not change objects; they schedule a
    :class:`~kscale.world.simulated.controllers.ScheduledCall` instead.
    """

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._kinds: dict[str, dict[str, KubeObject]] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._every: list[_Everything] = []
        self._calls: dict[tuple[str, bool], Sequence[Listener]] = {}  # by kind, and whether only statuses are written
        self._deferred: dict[
            str, dict[str, tuple[int, _DeferredStatuses]]
        ] = {}  # versions and statuses by kind and key
        self._made: Counter[str] = Counter()
        self._text: tuple[Moment, str] = (-1, "")
        self._versions: Counter[str] = Counter()  # by kind: a change of one kind does not affect the versions of others

    @property
    def now(self) -> Moment:
        """Return the current time of the simulation."""
        return self._time.now

    @property
    def now_text(self) -> str:
        """Return the current time in API format, in whole seconds."""
        second = self._time.now // 10**9
        if self._text[0] != second:
            self._text = second, to_text(second * 10**9) or ""
        return self._text[1]

    # -- reading -----------------------------------------------------------------------------------------------------

    def get_all(self, kind: str) -> Mapping[str, Any]:
        """Return the objects of a kind by key, in the order of creation: the stored mapping, which changes later."""
        if kind in self._deferred:
            self._build_deferred(kind)
        return self._kinds.get(kind, _NO_OBJECTS)

    def get(self, kind: str, namespace: str, name: str) -> Any:
        """Return one object. Raises :class:`RefusedError` (NotFound) if there is none."""
        if kind in self._deferred:
            self._build_deferred(kind)
        result = self._kinds.get(kind, _NO_OBJECTS).get(f"{namespace}/{name}" if namespace else name)
        if result is None:
            raise RefusedError(f'{_resource(kind)} "{name}" not found', 404, NOT_FOUND)
        return result

    def find(self, kind: str, key: str) -> Any:
        """Return the object of a kind with a key (:func:`object_key`: ``namespace/name`` or ``name``), or None."""
        if kind in self._deferred:
            self._build_deferred(kind)
        return self._kinds.get(kind, _NO_OBJECTS).get(key)

    def present(self, kind: str) -> Changes[Any]:
        """Return all objects of a kind as changes (key, None, object), for a new listener."""
        return [(key, None, item) for key, item in self.get_all(kind).items()]

    def __iter__(self) -> Iterator[KubeObject]:
        for kind in self._kinds:
            yield from self.get_all(kind).values()

    def get_version(self, kind: str) -> str:
        """Return the newest resource version of a kind; empty if no object of the kind was ever there."""
        version = self._versions[kind]
        return str(version) if version else ""

    # -- listeners ---------------------------------------------------------------------------------------------------

    def listen(self, kind: str, call: Listener) -> None:
        """Register a listener for changes of a kind. It is called at once with lists of (key, old, new)."""
        self._listeners.setdefault(kind, []).append(call)
        self._calls.clear()

    def listen_all(
        self,
        call: Callable[[str, Changes[Any]], None],
        *,
        other_than: Collection[str] = (),
        statuses: bool = True,
    ) -> None:
        """Register a listener for changes of all kinds but ``other_than``; it is called with (kind, changes).

        ``statuses``: whether it is also called after writes of a status alone.
        """
        self._every.append(_Everything(call, other_than, statuses))
        self._calls.clear()

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(self, new_object: _Object) -> _Object:
        """Add an object and return the stored version, with the next resource version.

        Namespace, name (from ``generateName``), UID, generation and creation time are filled in where they are missing.
        Raises :class:`RefusedError` (AlreadyExists) if the key is taken.
        """
        kind = new_object.kind or (kind_of(type(new_object)) or ("", ""))[1]
        item = with_namespace(new_object)
        existing = self._kinds.setdefault(kind, {})
        if not item.metadata.name:
            named = with_name(item, self._made)
            while named.key in existing:
                named = with_name(item, self._made)
            item = named
        elif item.key in existing:
            text = f'{_resource(kind)} "{item.name}" already exists'
            raise RefusedError(text, 409, ALREADY_EXISTS)
        version = self._next(kind)
        metadata = item.metadata
        item = replace(
            item,
            kind=kind,
            api_version=new_object.api_version or _API_VERSIONS.get(kind, ""),
            metadata=replace(
                metadata,
                uid=metadata.uid or _uid(kind, version),
                resource_version=str(version),
                generation=metadata.generation or 1,
                creation_timestamp=metadata.creation_timestamp or self.now_text,
            ),
        )
        existing[item.key] = item
        self._notify(kind, [(item.key, None, item)])
        return item

    def create_pods(self, template_pod: Pod, count: int) -> None:
        """Add ``count`` pods like ``template_pod``, with UIDs of their own and names from its ``generateName``."""
        template_pod = with_namespace(template_pod)
        source, existing, created = template_pod.metadata, self._kinds.setdefault("Pod", {}), self.now_text
        pod = replace(template_pod, kind="Pod", api_version=_API_VERSIONS["Pod"])
        metadata = replace(
            source, generation=source.generation or 1, creation_timestamp=source.creation_timestamp or created
        )
        changes: list[tuple[str, Pod | None, Pod | None]] = []
        namespace, generate_name, version = source.namespace, source.generate_name, self._versions["Pod"]
        for _ in range(count):
            key = ""
            while not key or key in existing:
                name = next_name("Pod", namespace, generate_name, self._made)
                key = object_key(namespace, name)
            version += 1
            named_metadata = replace(metadata, name=name, uid=_uid("Pod", version), resource_version=str(version))
            item = existing[key] = replace(pod, metadata=named_metadata)
            changes.append((key, None, item))
        self._versions["Pod"] = version
        if changes:
            self._notify("Pod", changes)

    def put(self, item: _Object) -> _Object:
        """Replace an existing object and return the new version.

        The generation rises if the spec has changed, except that of pods. Raises KeyError if there is no such object.
        Versions are not compared: the caller has just read the object.
        """
        kind, key = item.kind, item.key
        if kind in self._deferred:
            self._build_deferred(kind)
        objects = self._kinds[kind]
        old = objects[key]
        version = self._next(kind)
        metadata = item.metadata
        generation = metadata.generation
        if kind != "Pod" and getattr(item, "spec", None) is not getattr(old, "spec", None):
            generation = (old.metadata.generation or 0) + (getattr(item, "spec", None) != getattr(old, "spec", None))
        item = replace(item, metadata=replace(metadata, resource_version=str(version), generation=generation))
        objects[key] = item
        self._notify(kind, [(key, old, item)])
        return item

    def put_status(self, current: KubeObject, status: object) -> str:
        """Replace the status of an existing object, and return the new resource version.

        ``current``: the stored object, which the caller has just read; it is not compared with the stored one.
        """
        kind, metadata = current.kind, current.metadata
        key = object_key(metadata.namespace, metadata.name)
        number = self._versions[kind] = self._versions[kind] + 1
        version = str(number)
        item: Any = replace(current, status=status, metadata=replace(metadata, resource_version=version))
        self._kinds[kind][key] = item
        self._notify(kind, [(key, current, item)], status_only=True)
        return version

    def put_statuses_later(self, kind: str, keys: Sequence[str], make: Callable[[], Mapping[str, object]]) -> bool:
        """Replace the statuses of objects of one kind; they are built when an object of the kind is read.

        ``make`` is not called at all if all of its statuses are replaced before that.

        Parameters
        ----------
        kind : str
            The kind of the objects.
        keys : sequence of str
            Their keys, in the order of the writes. Each write has a resource version of its own.
        make : callable
            Returns the statuses by key; called at most once. The values that it uses must not change.

        Returns
        -------
        bool
            False, and nothing is replaced, if an object does not exist or a listener gets written statuses of the kind.
        """
        objects = self._kinds.get(kind, _NO_OBJECTS)
        if not all(map(objects.__contains__, keys)) or self._is_heard(kind):
            return False
        statuses, version = _DeferredStatuses(make), self._versions[kind]
        self._versions[kind] = version + len(keys)
        deferred = self._deferred.setdefault(kind, {})
        numbers = range(version + 1, version + len(keys) + 1)
        deferred.update(zip(keys, zip(numbers, repeat(statuses)), strict=True))
        return True

    def _is_heard(self, kind: str) -> bool:
        """Return whether there is a listener for written statuses of a kind."""
        return kind in self._listeners or any(each.statuses and kind not in each.other_than for each in self._every)

    def _build_deferred(self, kind: str) -> None:
        """Build the deferred statuses of a kind and store them in its objects."""
        objects: dict[str, Any] = self._kinds[kind]
        for key, (version, statuses) in self._deferred.pop(kind).items():
            current = objects[key]
            metadata = replace(current.metadata, resource_version=str(version))
            objects[key] = replace(current, status=statuses.get(key), metadata=metadata)

    def put_pods(self, pods: Iterable[tuple[str, Pod]]) -> None:
        """Replace several distinct pods, passed as (key, pod), in one change. Raises KeyError if one does not exist."""
        existing = self._kinds["Pod"]
        version = self._versions["Pod"]
        changes: list[tuple[str, Any, Any]] = []
        for key, pod in pods:
            version += 1
            item = replace(pod, metadata=replace(pod.metadata, resource_version=str(version)))
            changes.append((key, existing[key], item))
            existing[key] = item
        self._versions["Pod"] = version
        if changes:
            self._notify("Pod", changes)

    def check_version(self, current: KubeObject, version: str) -> None:
        """Check that an object still has the resource version that a caller read; an empty version matches any.

        Raises :class:`RefusedError` (Conflict) if it does not.
        """
        if version and version != current.metadata.resource_version:
            raise RefusedError(
                f'Operation cannot be fulfilled on {_resource(current.kind)} "{current.name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
                409,
                CONFLICT,
            )

    def remove(self, item: KubeObject) -> None:
        """Remove an object. Raises KeyError if it does not exist."""
        if item.kind != "Pod":  # its controller creates no further pods
            self._made.pop(created_pods_key(item), None)
        self._remove(item.kind, [item.key])

    def remove_pods(self, keys: Iterable[str]) -> None:
        """Remove several distinct pods, given by key, in one change. Raises KeyError if one does not exist."""
        self._remove("Pod", keys)

    def _remove(self, kind: str, keys: Iterable[str]) -> None:
        """Remove objects of a kind by key. Listeners get their last versions with new resource versions.

        Raises KeyError if an object does not exist.
        """
        if kind in self._deferred:
            self._build_deferred(kind)
        objects = self._kinds[kind]
        changes: list[tuple[str, Any, Any]] = []
        for key in keys:
            removed = objects.pop(key)
            version = str(self._next(kind))
            changes.append((key, replace(removed, metadata=replace(removed.metadata, resource_version=version)), None))
        if changes:
            self._notify(kind, changes)

    def get_current(self, pod: Pod) -> Pod | None:
        """Return the current version of a pod, or None if it was deleted, even if another pod has its name now."""
        return self.get_if_same(pod.key, pod.metadata.uid)

    def get_if_same(self, key: str, uid: str) -> Pod | None:
        """Return the pod with a key if it has this UID, else None."""
        pod = self._kinds["Pod"].get(key)
        return pod if isinstance(pod, Pod) and pod.metadata.uid == uid else None

    def _next(self, kind: str) -> int:
        """Return the next resource version of this kind; each kind counts separately, from 1."""
        self._versions[kind] += 1
        return self._versions[kind]

    def _notify(self, kind: str, changes: Changes[Any], *, status_only: bool = False) -> None:
        """Call the listeners of a kind, then those of all kinds. ``status_only``: only statuses were written."""
        calls = self._calls.get((kind, status_only))
        if calls is None:
            every = [
                partial(tell, kind)
                for tell, other_than, statuses in self._every
                if kind not in other_than and (statuses or not status_only)
            ]
            calls = self._calls[kind, status_only] = (*self._listeners.get(kind, ()), *every)
        for call in calls:
            call(changes)


def _uid(kind: str, version: int) -> str:
    """Return a UID that differs for each kind and resource version."""
    return f"{_begin_uid(kind)}{version:012x}"


@cache
def _begin_uid(kind: str) -> str:
    """Return the text with which all UIDs of a kind begin."""
    return f"{crc32(kind.encode()):08x}-0000-4000-8000-"


def _resource(kind: str) -> str:
    """Return the group-resource of a kind for messages."""
    return _RESOURCES.get(kind, f"{kind.lower()}s")


Wanted = Callable[[KubeObject], bool]
"""Returns whether an object is selected."""

_FIELDS: Final[dict[str, tuple[str, str]]] = {
    "metadata.name": ("", "metadata.name"),
    "metadata.namespace": ("", "metadata.namespace"),
    "spec.nodeName": ("Pod", "spec.node_name"),
    "status.phase": ("Pod", "status.phase"),
    "reason": ("Event", "reason"),
}
"""Kind that has a field (empty: all kinds), and its attribute. Objects of other kinds have an empty text instead."""


def build_predicate(watch: Watch) -> Wanted | None:
    """Return the predicate of a watch's namespace and selectors, or None if it selects everything.

    Raises InputError for a field selector that the simulation does not support.
    """
    tests: list[Wanted] = []
    if watch.namespace:
        tests.append(lambda item: item.metadata.namespace == watch.namespace)
    if watch.label_selector:
        selector = parse_selector(watch.label_selector)
        tests.append(lambda item: selector.matches(item.metadata.labels or {}))
    tests += [_requirement(text, watch.kind) for text in watch.field_selector.split(",") if text]
    if len(tests) < 2:
        return tests[0] if tests else None

    def is_wanted(item: KubeObject) -> bool:
        for test in tests:  # noqa: SIM110  # a hot path: any() and a generator take twice the time
            if not test(item):
                return False
        return True

    return is_wanted


def _requirement(text: str, kind: str) -> Wanted:
    """Parse one requirement of a field selector (``=``, ``==``, ``!=``) on objects of a kind.

    Raises InputError for an unsupported field.
    """
    name, equals, value = text.partition("=")
    field = _FIELDS.get(name.removesuffix("!"))
    if not equals or field is None:
        raise InputError(f"the simulated world cannot select by {text!r}")
    value, unequal, read = value.removeprefix("="), name.endswith("!"), attrgetter(field[1])
    if field[0] not in ("", kind):
        return lambda _: (value == "") is not unequal
    return (lambda item: read(item) != value) if unequal else (lambda item: read(item) == value)
