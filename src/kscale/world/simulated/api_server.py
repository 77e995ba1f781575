"""Objects of a simulated API server: versions, conflicts, watches and patches.

Upstream: ``apimachinery/pkg/util/strategicpatch``, ``evanphx/json-patch``; of the former the lists that are written
here: those with a merge key below.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from zlib import crc32

from msgspec.structs import replace

from kscale.effects import ApiError, Moment, VirtualTime, to_text
from kscale.effects.outcomes import ALREADY_EXISTS, CONFLICT, NOT_FOUND
from kscale.errors import InputError
from kscale.objects.api.core import Event, Pod
from kscale.objects.api.meta import KubeObject, object_key
from kscale.objects.kinds import kind_of, with_namespace
from kscale.objects.names import next_name, pods_made_for, with_name
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
    "json_patch",
    "merge",
    "one_by_one",
    "strategic",
    "wanted",
]


_MERGE_KEYS: Final = {
    "conditions": "type", "containers": "name", "ownerReferences": "uid", "webhooks": "name", "env": "name"
}  # fmt: skip
_NOTHING: Final = object()


class PatchError(ValueError):
    """A JSON patch that does not apply."""


def merge(value: Any, patch: Any) -> Any:
    """A merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), part)
    return found


def strategic(value: Any, patch: Any, field: str = "") -> Any:
    """Maps merge; lists of known fields merge by their key, all others are replaced."""
    if isinstance(patch, dict):
        found = dict(value) if isinstance(value, dict) else {}
        for key, part in patch.items():
            if part is None:
                found.pop(key, None)
            else:
                found[key] = strategic(found.get(key), part, key)
        return found
    if isinstance(patch, list) and field in _MERGE_KEYS:
        name = _MERGE_KEYS[field]
        found_list = list(value or [])
        for part in patch:
            at = next((i for i, each in enumerate(found_list) if each.get(name) == part.get(name)), None)
            if at is None:
                found_list.append(copy.deepcopy(part))
            else:
                found_list[at] = strategic(found_list[at], part)
        return found_list
    return copy.deepcopy(patch)


def json_patch(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """A JSON patch (RFC 6902) without move and copy. Raises :class:`PatchError`.

    What it changes is copied, the rest is shared with what was given.
    """
    for each in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]]
        value = _patched(value, parts, each)
    return value


def _patched(target: Any, parts: Sequence[str], each: Mapping[str, Any]) -> Any:
    """A map or a list after one operation further down, or in it."""
    target = target.copy()
    if len(parts) == 1:
        _apply(target, parts[0], each)
        return target
    part = parts[0]
    below = _at(target, part)
    if not isinstance(below, list | dict):
        raise PatchError(f"{each['op']} operation does not apply: doc is missing path: {each['path']}")
    target[int(part) if isinstance(target, list) else part] = _patched(below, parts[1:], each)
    return target


def _apply(target: Any, last: str, each: Mapping[str, Any]) -> None:
    here, key = _at(target, last), int(last) if isinstance(target, list) and last.isdigit() else last
    match each["op"]:
        case "test":
            if here != each.get("value"):
                raise PatchError(f"testing value {each['path']} failed")
        case "remove":
            if here is _NOTHING:
                raise PatchError(f"remove operation does not apply: doc is missing key: {each['path']}")
            del target[key]
        case "add" if isinstance(target, list):
            target.insert(len(target) if last == "-" else int(last), each["value"])
        case "replace" if here is _NOTHING:
            raise PatchError(f"replace operation does not apply: doc is missing key: {each['path']}")
        case _:
            target[key] = each["value"]


def _at(target: Any, key: str) -> Any:
    if isinstance(target, list):
        return target[int(key)] if key.isdigit() and int(key) < len(target) else _NOTHING
    return target.get(key, _NOTHING) if isinstance(target, dict) else _NOTHING


_Object = TypeVar("_Object", bound=KubeObject)

Changes = Sequence[tuple[str, _Object | None, _Object | None]]
"""(key, before, after) of different objects of one kind that change together, at least one; None: there was none, or
there is none any more."""

Listener = Callable[[Changes[Any]], None]
"""Told what has become of some objects of a kind."""

_RESOURCES: Final = {each.kind: each.group_resource for each in EVERYWHERE}
_API_VERSIONS: Final = {each.kind: each.api_version for each in EVERYWHERE}
_NOTHING_OF_API_OBJECTS: Final[Mapping[str, Any]] = {}


class RefusedError(Exception):
    """The API server refuses; ``error`` says why."""

    def __init__(self, message: str, code: int, reason: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.error = ApiError(message, code, reason, causes)


def one_by_one(call: Callable[[Any, Any], None]) -> Listener:
    """A listener that tells a function (before, after) of each."""

    def tell(changes: Changes[Any]) -> None:
        for _, old, new in changes:
            call(old, new)

    return tell


class ApiObjects:
    """Objects by kind and key, each with its resource version. What is handed out is never changed.

    Listeners are told at once, in the order in which they came; of pods that change together they are told together.
    They change nothing themselves: they ask for a turn (:class:`~kscale.world.simulated.controllers.Turn`).
    """

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._kinds: dict[str, dict[str, KubeObject]] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._every: list[Callable[[str, Changes[Any]], None]] = []
        self._made: Counter[str] = Counter()
        self._text: tuple[Moment, str] = (-1, "")
        self._versions: Counter[str] = Counter()  # by kind: what happens to one kind does not show in another

    @property
    def now(self) -> Moment:
        """The time of the world."""
        return self._time.now

    @property
    def now_text(self) -> str:
        """As the API writes it: whole seconds."""
        second = self._time.now // 10**9
        if self._text[0] != second:
            self._text = second, to_text(second * 10**9) or ""
        return self._text[1]

    # -- looking -----------------------------------------------------------------------------------------------------

    def of(self, kind: str) -> Mapping[str, Any]:
        """The objects of a kind by key, in the order in which they came."""
        return self._kinds.get(kind, _NOTHING_OF_API_OBJECTS)

    def get(self, kind: str, namespace: str, name: str) -> Any:
        """One object. Raises :class:`RefusedError` if there is none."""
        found = self._kinds.get(kind, _NOTHING_OF_API_OBJECTS).get(object_key(namespace, name))
        if found is None:
            raise RefusedError(f'{_resource(kind)} "{name}" not found', 404, NOT_FOUND)
        return found

    def find(self, kind: str, key: str) -> Any:
        """One object by its key, or None."""
        return self._kinds.get(kind, _NOTHING_OF_API_OBJECTS).get(key)

    def present(self, kind: str) -> Changes[Any]:
        """All of a kind, as who has just come is told of it."""
        return [(key, None, item) for key, item in self.of(kind).items()]

    def __iter__(self) -> Iterator[KubeObject]:
        for found in self._kinds.values():
            yield from found.values()

    # -- being told --------------------------------------------------------------------------------------------------

    def listen(self, kind: str, call: Listener) -> None:
        """Tells of changes of a kind from now on."""
        self._listeners.setdefault(kind, []).append(call)

    def listen_all(self, call: Callable[[str, Changes[Any]], None]) -> None:
        """Tells (kind, changes) of all changes from now on."""
        self._every.append(call)

    # -- changing ----------------------------------------------------------------------------------------------------

    def create(self, made: _Object) -> _Object:
        """Adds an object; gives it a name (of ``generateName``), a UID, a version and the time. Raises
        :class:`RefusedError` for a key that is taken."""
        kind = made.kind or (kind_of(type(made)) or ("", ""))[1]
        item = with_namespace(made)
        held = self._kinds.setdefault(kind, {})
        if not item.metadata.name:
            named = with_name(item, self._made)
            while named.key in held:
                named = with_name(item, self._made)
            item = named
        elif item.key in held:
            text = f'{_resource(kind)} "{item.name}" already exists'
            raise RefusedError(text, 409, ALREADY_EXISTS)
        version = self._next(kind)
        metadata = item.metadata
        item = replace(
            item,
            kind=kind,
            api_version=made.api_version or _API_VERSIONS.get(kind, ""),
            metadata=replace(
                metadata,
                uid=metadata.uid or _uid(kind, version),
                resource_version=str(version),
                generation=metadata.generation or 1,
                creation_timestamp=metadata.creation_timestamp or self.now_text,
            ),
        )
        held[item.key] = item
        self._tell(kind, [(item.key, None, item)])
        return item

    def create_pods(self, made: Pod, count: int) -> None:
        """Adds so many pods like one that only says how their names begin (``generateName``)."""
        made = with_namespace(made)
        of, held, at = made.metadata, self._kinds.setdefault("Pod", {}), self.now_text
        pod = replace(made, kind="Pod", api_version=_API_VERSIONS["Pod"])
        metadata = replace(of, generation=of.generation or 1, creation_timestamp=of.creation_timestamp or at)
        changes: list[tuple[str, Pod | None, Pod | None]] = []
        for _ in range(count):
            key = ""
            while not key or key in held:
                name = next_name("Pod", of.namespace, of.generate_name, self._made)
                key = object_key(of.namespace, name)
            version = self._next("Pod")
            own = replace(metadata, name=name, uid=_uid("Pod", version), resource_version=str(version))
            item = held[key] = replace(pod, metadata=own)
            changes.append((key, None, item))
        if changes:
            self._tell("Pod", changes)

    def put(self, item: _Object) -> _Object:
        """An object that is there, as it is now; its version is a new one, and of another spec so is the generation.

        Whoever calls it has looked at the object just now: nothing is compared.
        """
        kind, key = item.kind, item.key
        held = self._kinds[kind]
        old = held[key]
        version = self._next(kind)
        metadata = item.metadata
        generation = metadata.generation
        if kind != "Pod" and getattr(item, "spec", None) is not getattr(old, "spec", None):
            generation = (old.metadata.generation or 0) + (getattr(item, "spec", None) != getattr(old, "spec", None))
        item = replace(item, metadata=replace(metadata, resource_version=str(version), generation=generation))
        held[key] = item
        self._tell(kind, [(key, old, item)])
        return item

    def put_status(self, held: KubeObject, status: object) -> str:
        """:meth:`put` for an object that is there, of which only the status is another; its new version."""
        kind, metadata = held.kind, held.metadata
        key, version = held.key, str(self._next(kind))
        item: Any = replace(held, status=status, metadata=replace(metadata, resource_version=version))
        self._kinds[kind][key] = item
        self._tell(kind, [(key, held, item)])
        return version

    def put_pods(self, pods: Iterable[tuple[str, Pod]]) -> None:
        """:meth:`put` for different pods, with their keys, which become what they are now together."""
        held = self._kinds["Pod"]
        version = self._versions["Pod"]
        changes: list[tuple[str, Any, Any]] = []
        for key, pod in pods:
            version += 1
            item = replace(pod, metadata=replace(pod.metadata, resource_version=str(version)))
            changes.append((key, held[key], item))
            held[key] = item
        self._versions["Pod"] = version
        if changes:
            self._tell("Pod", changes)

    def check_version(self, held: KubeObject, version: str) -> None:
        """Raises :class:`RefusedError` (a conflict) if an object is not what somebody read; an empty version is any."""
        if version and version != held.metadata.resource_version:
            raise RefusedError(
                f'Operation cannot be fulfilled on {_resource(held.kind)} "{held.name}": the object has been modified; '
                "please apply your changes to the latest version and try again",
                409,
                CONFLICT,
            )

    def remove(self, item: KubeObject) -> None:
        """An object goes."""
        if item.kind != "Pod":  # nobody makes objects in its name any more
            self._made.pop(pods_made_for(item), None)
        self._remove(item.kind, [item.key])

    def remove_pods(self, keys: Iterable[str]) -> None:
        """Different pods go together."""
        self._remove("Pod", keys)

    def _remove(self, kind: str, keys: Iterable[str]) -> None:
        held = self._kinds[kind]
        changes: list[tuple[str, Any, Any]] = []
        for key in keys:
            gone = held.pop(key)
            version = str(self._next(kind))
            changes.append((key, replace(gone, metadata=replace(gone.metadata, resource_version=version)), None))
        if changes:
            self._tell(kind, changes)

    def same(self, pod: Pod) -> Pod | None:
        """The pod as it is now, if it is still that one."""
        return self.same_under(pod.key, pod.metadata.uid)

    def same_under(self, key: str, uid: str) -> Pod | None:
        """The pod of a key, if it is the one with this UID."""
        found = self._kinds["Pod"].get(key)
        return found if isinstance(found, Pod) and found.metadata.uid == uid else None

    def _next(self, kind: str) -> int:
        self._versions[kind] += 1
        return self._versions[kind]

    def _tell(self, kind: str, changes: Changes[Any]) -> None:
        for call in self._listeners.get(kind, ()):
            call(changes)
        for tell in self._every:
            tell(kind, changes)


def _uid(kind: str, version: int) -> str:
    return f"{crc32(kind.encode()):08x}-0000-4000-8000-{version:012x}"


def _resource(kind: str) -> str:
    return _RESOURCES.get(kind, f"{kind.lower()}s")


Wanted = Callable[[KubeObject], bool]
"""Whether an object is one that is meant."""

_Read = Callable[[KubeObject], str]


def _of_pod(read: Callable[[Pod], str]) -> _Read:
    return lambda item: read(item) if isinstance(item, Pod) else ""


_FIELDS: Final[dict[str, _Read]] = {
    "metadata.name": lambda item: item.metadata.name,
    "metadata.namespace": lambda item: item.metadata.namespace,
    "spec.nodeName": _of_pod(lambda pod: pod.spec.node_name),
    "status.phase": _of_pod(lambda pod: pod.status.phase),
    "reason": lambda item: item.reason if isinstance(item, Event) else "",
}


def wanted(watch: Watch) -> Wanted | None:
    """What a watch selects; None: all. Raises InputError for a field that this world cannot select by."""
    tests: list[Wanted] = []
    if watch.namespace:
        tests.append(lambda item: item.metadata.namespace == watch.namespace)
    if watch.label_selector:
        selector = parse_selector(watch.label_selector)
        tests.append(lambda item: selector.matches(item.metadata.labels or {}))
    tests += [_requirement(text) for text in watch.field_selector.split(",") if text]
    if len(tests) < 2:
        return tests[0] if tests else None

    def is_wanted(item: KubeObject) -> bool:
        for test in tests:  # noqa: SIM110 - asked for every change of a pod: a generator would cost as much again
            if not test(item):
                return False
        return True

    return is_wanted


def _requirement(text: str) -> Wanted:
    name, equals, value = text.partition("=")
    unequal = name.endswith("!")
    read = _FIELDS.get(name.removesuffix("!"))
    if not equals or read is None:
        raise InputError(f"the simulated world cannot select by {text!r}")
    value = value.removeprefix("=")
    return lambda item: (read(item) == value) is not unequal
