"""The garbage collector: what belonged to an object that is gone goes, too.

Upstream: ``pkg/controller/garbagecollector``, with its default, deletion in the background.
"""

from __future__ import annotations

from kscale.effects import VirtualTime
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject, ObjectMeta, OwnerReference, object_key
from kscale.world.simulated.api_objects import ApiObjects, Changes
from kscale.world.simulated.pods import delete_pod
from kscale.world.simulated.turns import CONTROLLERS, Turn

__all__ = ["GarbageCollector"]

_LAST = 9  # of the controllers


class GarbageCollector:
    """Deletes what an owner leaves behind, unless another of its owners is still there.

    Goes by owners that go in this world: what came without its owner, as from a dump that leaves it out, stays.
    """

    def __init__(self, api: ApiObjects, time: VirtualTime) -> None:
        self._api = api
        self._of: dict[str, dict[tuple[str, str], None]] = {}
        self._gone: dict[str, None] = {}
        self._turn = Turn(time, self._collect, CONTROLLERS + _LAST)
        for item in api:
            self._seen(item.kind, [(item.key, None, item)])
        api.listen_all(self._seen)

    def _seen(self, kind: str, changes: Changes[KubeObject]) -> None:
        for key, old, new in changes:
            if old is not None and new is not None and old.metadata.owner_references is new.metadata.owner_references:
                continue
            for item, is_there in ((old, False), (new, True)):
                for owner in item.metadata.owner_references if item is not None else ():
                    self._note(owner.uid, (kind, key), is_there=is_there)
            if old is not None and new is None:
                uid = old.metadata.uid
                if uid in self._of:
                    self._gone[uid] = None
                    self._turn.ask()

    def _note(self, uid: str, dependent: tuple[str, str], *, is_there: bool) -> None:
        held = self._of.setdefault(uid, {})
        if is_there:
            held[dependent] = None
            return
        held.pop(dependent, None)
        if not held:
            del self._of[uid]

    def _collect(self) -> None:
        gone, self._gone = self._gone, {}
        for uid in gone:
            for item in [self._api.find(kind, key) for kind, key in self._of.get(uid, {})]:
                if item is not None and not self._has_owner(item.metadata):
                    self._delete(item)

    def _delete(self, item: KubeObject) -> None:
        if isinstance(item, Pod):
            delete_pod(self._api, item)
        else:
            self._api.remove(item)

    def _has_owner(self, metadata: ObjectMeta) -> bool:
        return any(self._is_there(owner, metadata.namespace) for owner in metadata.owner_references)

    def _is_there(self, owner: OwnerReference, namespace: str) -> bool:
        for key in (object_key(namespace, owner.name), object_key("", owner.name)):
            held = self._api.find(owner.kind, key)
            if held is not None and held.metadata.uid == owner.uid:
                return True
        return False
