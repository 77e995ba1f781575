"""The objects of a simulated API server: versions, conflicts, and who is told of changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from zlib import crc32

from msgspec.structs import replace

from kscale.effects import ApiError, Moment, VirtualTime, to_text
from kscale.effects.outcomes import ALREADY_EXISTS, CONFLICT, NOT_FOUND
from kscale.objects.core import Pod
from kscale.objects.generated_names import next_name, pods_made_for, with_name
from kscale.objects.kinds import kind_of
from kscale.objects.meta import KubeObject, object_key
from kscale.objects.namespaces import with_namespace
from kscale.world.kubernetes.resources import EVERYWHERE

__all__ = ["ApiObjects", "Changes", "Listener", "RefusedError", "one_by_one"]

_Object = TypeVar("_Object", bound=KubeObject)

Changes = Sequence[tuple[str, _Object | None, _Object | None]]
"""(key, before, after) of different objects of one kind that change together, at least one; None: there was none, or
there is none any more."""

Listener = Callable[[Changes[Any]], None]
"""Told what has become of some objects of a kind."""

_RESOURCES: Final = {each.kind: each.group_resource for each in EVERYWHERE}
_API_VERSIONS: Final = {each.kind: each.api_version for each in EVERYWHERE}
_NOTHING: Final[Mapping[str, Any]] = {}


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
    They change nothing themselves: they ask for a turn (:class:`~kscale.world.simulated.turns.Turn`).
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
        return self._kinds.get(kind, _NOTHING)

    def get(self, kind: str, namespace: str, name: str) -> Any:
        """One object. Raises :class:`RefusedError` if there is none."""
        found = self._kinds.get(kind, _NOTHING).get(object_key(namespace, name))
        if found is None:
            raise RefusedError(f'{_resource(kind)} "{name}" not found', 404, NOT_FOUND)
        return found

    def find(self, kind: str, key: str) -> Any:
        """One object by its key, or None."""
        return self._kinds.get(kind, _NOTHING).get(key)

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
