"""Base of workload controllers: owned pods, pod creation, and one turn per moment for all changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject, OwnerReference, object_key
from kscale.objects.conditions import pod_ready
from kscale.objects.pod_admission import PodClasses
from kscale.objects.pod_owners import controller_of
from kscale.objects.workloads import pods_of
from kscale.world.simulated.api_server import ApiObjects, Changes, one_by_one
from kscale.world.simulated.pods import ENDED

__all__ = [
    "CONTROLLERS",
    "DISRUPTION",
    "DRIVERS",
    "HAPPENINGS",
    "SCHEDULER",
    "Admit",
    "Controller",
    "Key",
    "OwnedPods",
    "PodMaker",
    "Turn",
]


HAPPENINGS: Final = 0
"""What comes about by itself: a machine has booted, a container has started, load changes."""
CONTROLLERS: Final = 10
SCHEDULER: Final = 20
DISRUPTION: Final = 30
DRIVERS: Final = 40
"""The first of the drivers; each has a rank of its own."""


class Turn:
    """Calls a function at the present moment, after what ranks before it, however often it is asked for till then."""

    __slots__ = ("_call", "_rank", "_time", "_waits")

    def __init__(self, time: VirtualTime, call: Callable[[], None], rank: int) -> None:
        self._time, self._call, self._rank = time, call, rank
        self._waits = False

    def ask(self) -> None:
        """Its turn comes."""
        if not self._waits:
            self._waits = True
            self._time.at(self._time.now, self._take, rank=self._rank)

    def _take(self) -> None:
        self._waits = False
        self._call()


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


Admit = Callable[[Pod], Pod]
"""What admission makes of a pod before it is stored."""


class PodMaker:
    """Makes pods as controllers do: what :func:`kscale.objects.workloads.pods_of` says of a workload, admitted.

    ``admit`` is asked for each pod, and once for pods that are alike and made together.
    """

    def __init__(self, api: ApiObjects, admit: Admit | None = None) -> None:
        self._api = api
        self.admit = admit
        self._classes: PodClasses | None = None
        self._patterns: dict[str, tuple[Any, Pod]] = {}
        for kind in ("PriorityClass", "RuntimeClass", "LimitRange"):
            api.listen(kind, lambda _: self._forget_all())
        for kind in ("ReplicaSet", "ReplicationController", "Job"):
            api.listen(kind, one_by_one(self._forget))

    def _forget_all(self) -> None:
        self._classes = None
        self._patterns.clear()

    def _forget(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if old is not None and new is None:
            self._patterns.pop(old.metadata.uid, None)

    @property
    def classes(self) -> PodClasses:
        """What of the cluster completes pods."""
        if self._classes is None:
            kinds = ("PriorityClass", "RuntimeClass", "LimitRange")
            self._classes = PodClasses.of(item for kind in kinds for item in self._api.of(kind).values())
        return self._classes

    def pattern(self, workload: Any) -> Pod:
        """What the pods of a workload have in common; worked out once for each of its versions of spec."""
        uid = workload.metadata.uid
        known = self._patterns.get(uid)
        if known is not None and known[0].spec.template is workload.spec.template:
            return known[1]
        made = next(pods_of(workload, 1, classes=self.classes))
        self._patterns[uid] = workload, made
        return made

    def make(self, pod: Pod, *, name: str = "", generate_name: str = "") -> Pod:
        """Stores a pod like this one under a name."""
        return self._api.create(self._admitted(pod, name, generate_name))

    def make_more(self, pod: Pod, count: int, *, generate_name: str) -> None:
        """Stores so many pods like this one under names that begin so."""
        self._api.create_pods(self._admitted(pod, "", generate_name), count)

    def _admitted(self, pod: Pod, name: str, generate_name: str) -> Pod:
        made = replace(pod, metadata=replace(pod.metadata, name=name, generate_name=generate_name, uid=""))
        return made if self.admit is None else self.admit(made)


class Controller(ABC):
    """The controller of one kind. What has changed at a moment is looked at once, in the order in which it came."""

    kind: ClassVar[str]

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, rank: int = 0) -> None:
        self._api, self._time, self._owned = api, time, owned
        self._changed: dict[str, None] = {}
        self._turn = Turn(time, self._take, CONTROLLERS + rank)
        owned.told[self.kind] = self.changed
        self._objects(api.present(self.kind))
        api.listen(self.kind, self._objects)

    def _objects(self, changes: Changes[KubeObject]) -> None:
        for key, _, _ in changes:
            self.changed(key)

    def changed(self, key: str) -> None:
        """An object, or a pod of it, is another."""
        if key not in self._changed:
            self._changed[key] = None
            self._turn.ask()

    def _take(self) -> None:
        changed, self._changed = self._changed, {}
        for key in changed:
            held = self._api.find(self.kind, key)
            if held is not None:
                self.sync(held)

    @abstractmethod
    def sync(self, held: Any) -> None:
        """Makes the world what the object says."""
