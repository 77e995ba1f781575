"""Who owns which pods, and how many of them are active and ready: counted as they change, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kscale.objects.conditions import pod_ready
from kscale.objects.core import Pod
from kscale.objects.meta import OwnerReference, object_key
from kscale.objects.owners import controller_of
from kscale.world.simulated.api_objects import ApiObjects, Changes
from kscale.world.simulated.pods import ENDED

__all__ = ["Key", "OwnedPods"]

Key = tuple[str, str, str]
"""Kind, namespace and name of a workload."""

_GOING, _ACTIVE, _READY = range(3)
_NOBODY: Final[Mapping[str, Pod]] = {}


@dataclass(slots=True)
class _Workload:
    """Whose pods the pods of some owners are in the end; ``changes``: after so many of all changes one was theirs;
    ``ready``: how many are."""

    key: Key
    owners: dict[str, _Pods] = field(default_factory=dict)
    changes: int = 0
    ready: int = 0


@dataclass(slots=True)
class _Pods:
    """The pods of an owner by key, in the order in which they came. ``active`` have not ended and are not told to;
    ``ready`` of these are ready."""

    workload: _Workload
    pods: dict[str, Pod] = field(default_factory=dict)
    active: int = 0
    ready: int = 0
    states: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, pod: Pod, state: int) -> None:
        """A pod as it is now."""
        self.pods[key] = pod
        before = self.states.get(key)
        if before != state:
            self._count(_GOING if before is None else before, state)
            self.states[key] = state

    def drop(self, key: str) -> None:
        """One that is gone."""
        del self.pods[key]
        self._count(self.states.pop(key), _GOING)

    def _count(self, before: int, after: int) -> None:
        if before != after:
            self.active += (after >= _ACTIVE) - (before >= _ACTIVE)
            ready = (after == _READY) - (before == _READY)
            self.ready += ready
            self.workload.ready += ready


def _state(pod: Pod, ready: dict[int, bool]) -> int:
    """``ready``: what conditions that were looked at say, by identity."""
    if pod.metadata.deletion_timestamp is not None or pod.status.phase in ENDED:
        return _GOING
    conditions = id(pod.status.conditions)
    known = ready.get(conditions)
    if known is None:
        known = ready[conditions] = pod_ready(pod)
    return _READY if known else _ACTIVE


class OwnedPods:
    """Pods by who controls them, and by the workload that is above (the deployment of a replica set).

    ``told`` has, by kind, who is told of a change: the key of the owner.
    """

    def __init__(self, api: ApiObjects) -> None:
        self._api = api
        self._of: dict[str, _Pods] = {}
        self._workloads: dict[Key, _Workload] = {}
        self.count = 0
        """How often something has happened to a pod of somebody."""
        self.told: dict[str, Callable[[str], None]] = {}
        self._pods(api.present("Pod"))
        api.listen("Pod", self._pods)

    def _pods(self, changes: Changes[Pod]) -> None:
        owners: dict[str, tuple[OwnerReference, str]] = {}
        owner: OwnerReference | None = None
        ready: dict[int, bool] = {}
        controllers: dict[int, OwnerReference | None] = {}  # by identity of references, which many have in common
        last: object = None
        held: _Pods | None = None
        for key, old, new in changes:
            pod = old if new is None else new
            assert pod is not None
            references = pod.metadata.owner_references
            if references is not last or held is None:  # those of an owner come one after the other
                last, held = references, None
                if id(references) in controllers:
                    owner = controllers[id(references)]
                else:
                    owner = controllers[id(references)] = controller_of(pod.metadata)
                if owner is None:
                    continue
                held = self._of.get(owner.uid)
                if held is None:
                    held = self._of[owner.uid] = self._met(owner, pod.metadata.namespace)
                if owner.uid not in owners:
                    owners[owner.uid] = owner, pod.metadata.namespace
            self.count += 1
            held.workload.changes = self.count
            if new is not None:
                held.put(key, new, _state(new, ready))
            else:
                held.drop(key)
                if not held.pods:
                    assert owner is not None  # as somebody held it
                    self._left(owner.uid, held.workload)
                    held = None
        for owner, namespace in owners.values():
            tell = self.told.get(owner.kind)
            if tell is not None:
                tell(object_key(namespace, owner.name))

    def _met(self, owner: OwnerReference, namespace: str) -> _Pods:
        key = owner.kind, namespace, owner.name
        if owner.kind == "ReplicaSet":
            held = self._api.find("ReplicaSet", object_key(namespace, owner.name))
            above = None if held is None else controller_of(held.metadata)
            if above is not None:
                key = above.kind, namespace, above.name
        workload = self._workloads.get(key)
        if workload is None:
            workload = self._workloads[key] = _Workload(key)
        made = workload.owners[owner.uid] = _Pods(workload)
        return made

    def _left(self, uid: str, workload: _Workload) -> None:
        """The last pod of an owner is gone."""
        del self._of[uid], workload.owners[uid]
        if not workload.owners:
            del self._workloads[workload.key]

    # -- by owner ----------------------------------------------------------------------------------------------------

    def of(self, uid: str) -> Mapping[str, Pod]:
        """The pods of an owner by key, in the order in which they came."""
        held = self._of.get(uid)
        return _NOBODY if held is None else held.pods

    def counts(self, uid: str) -> tuple[int, int]:
        """(active, ready) pods of an owner."""
        held = self._of.get(uid)
        return (0, 0) if held is None else (held.active, held.ready)

    # -- by workload -------------------------------------------------------------------------------------------------

    def of_workload(self, key: Key) -> Iterable[Pod]:
        """The pods of a workload, owner by owner."""
        held = self._workloads.get(key)
        return () if held is None else (pod for each in held.owners.values() for pod in each.pods.values())

    def changes(self, key: Key) -> int:
        """Another number whenever something has happened to a pod of a workload; 0 while there are none."""
        held = self._workloads.get(key)
        return 0 if held is None else held.changes

    def ready(self, key: Key) -> int:
        """How many pods of a workload are ready, and not told to end."""
        held = self._workloads.get(key)
        return 0 if held is None else held.ready
