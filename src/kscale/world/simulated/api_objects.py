"""The objects of a simulated API server: versions, conflicts, and who is told of changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from zlib import crc32

from msgspec.structs import replace

from kscale.effects import ApiError, Moment, VirtualTime, to_text
from kscale.effects.outcomes import ALREADY_EXISTS, CONFLICT, NOT_FOUND
from kscale.objects.core import Pod
from kscale.objects.generated_names import pods_made_for, with_name
from kscale.objects.kinds import kind_of
from kscale.objects.meta import KubeObject, object_key
from kscale.objects.namespaces import with_namespace
from kscale.world.kubernetes.resources import EVERYWHERE

__all__ = ["ApiObjects", "Listener", "RefusedError"]

Listener = Callable[[KubeObject | None, KubeObject | None], None]
"""Told (before, after) of an object; None: there was none, or there is none any more."""

_Object = TypeVar("_Object", bound=KubeObject)
_RESOURCES: Final = {each.kind: each.group_resource for each in EVERYWHERE}
_API_VERSIONS: Final = {each.kind: each.api_version for each in EVERYWHERE}
_NOTHING: Final[Mapping[str, Any]] = {}


class RefusedError(Exception):
    """The API server refuses; ``error`` says why."""

    def __init__(self, message: str, code: int, reason: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.error = ApiError(message, code, reason, causes)


class ApiObjects:
    """Objects by kind and key, each with its resource version. What is handed out is never changed.

    Listeners are told at once, in the order in which they came. They change nothing themselves: they ask for a turn
    (:class:`~kscale.world.simulated.turns.Turn`).
    """

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._kinds: dict[str, dict[str, KubeObject]] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._every: list[Callable[[str, KubeObject | None, KubeObject | None], None]] = []
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

    def __iter__(self) -> Iterator[KubeObject]:
        for found in self._kinds.values():
            yield from found.values()

    # -- being told --------------------------------------------------------------------------------------------------

    def listen(self, kind: str, call: Listener) -> None:
        """Tells of changes of a kind from now on."""
        self._listeners.setdefault(kind, []).append(call)

    def listen_all(self, call: Callable[[str, KubeObject | None, KubeObject | None], None]) -> None:
        """Tells (kind, before, after) of all changes from now on."""
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
                uid=metadata.uid or f"{crc32(kind.encode()):08x}-0000-4000-8000-{version:012x}",
                resource_version=str(version),
                generation=metadata.generation or 1,
                creation_timestamp=metadata.creation_timestamp or self.now_text,
            ),
        )
        held[item.key] = item
        self._tell(kind, None, item)
        return item

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
        self._tell(kind, old, item)
        return item

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
        held = self._kinds[item.kind]
        gone = held.pop(item.key)
        if gone.kind != "Pod":  # nobody makes objects in its name any more
            self._made.pop(pods_made_for(gone), None)
        version = str(self._next(item.kind))
        gone = replace(gone, metadata=replace(gone.metadata, resource_version=version))
        self._tell(item.kind, gone, None)

    def same(self, pod: Pod) -> Pod | None:
        """The pod as it is now, if it is still that one."""
        found = self._kinds["Pod"].get(pod.key)
        return found if isinstance(found, Pod) and found.metadata.uid == pod.metadata.uid else None

    def _next(self, kind: str) -> int:
        self._versions[kind] += 1
        return self._versions[kind]

    def _tell(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        for call in self._listeners.get(kind, ()):
            call(old, new)
        for tell in self._every:
            tell(kind, old, new)


def _resource(kind: str) -> str:
    return _RESOURCES.get(kind, f"{kind.lower()}s")
