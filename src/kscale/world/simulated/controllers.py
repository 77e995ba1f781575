"""Base of workload controllers: owned pods, pod creation, and one turn per moment for all changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    "ScheduledCall",
    "WorkloadCounts",
]


HAPPENINGS: Final = 0
"""Rank of spontaneous events: a machine has booted, a container has started, load changes."""
CONTROLLERS: Final = 10
SCHEDULER: Final = 20
DISRUPTION: Final = 30
DRIVERS: Final = 40
"""Rank of the first driver; each driver has its own rank."""


class ScheduledCall:
    """Schedules a function once at the current moment, after actions of lower rank, however often it is requested."""

    __slots__ = ("_call", "_rank", "_time", "_waits")

    def __init__(self, time: VirtualTime, call: Callable[[], None], rank: int) -> None:
        self._time, self._call, self._rank = time, call, rank
        self._waits = False

    def schedule(self) -> None:
        """Schedule the function for the current moment unless it is scheduled already."""
        if not self._waits:
            self._waits = True
            self._time.at(self._time.now, self._run, rank=self._rank)

    def _run(self) -> None:
        """Run the scheduled call; it may be scheduled again from now on."""
        self._waits = False
        self._call()


Key = tuple[str, str, str]
"""Kind, namespace and name of a workload."""

_GOING, _ACTIVE, _READY = range(3)
_NOBODY: Final[Mapping[str, Pod]] = {}


@dataclass(slots=True)
class _Workload:
    """Top-level workload of the pods' owners.

    ``changes``: value of the change counter at the last change of one of its pods. ``ready``: number of ready pods.
    """

    key: Key
    owners: dict[str, _Pods] = field(default_factory=dict)
    changes: int = 0
    ready: int = 0


@dataclass(slots=True)
class _Pods:
    """Pods of one owner by key, in the order of creation.

    ``active`` counts pods that have not finished and are not being deleted, ``ready`` those of them that are ready.
    """

    workload: _Workload
    pods: dict[str, Pod] = field(default_factory=dict)
    active: int = 0
    ready: int = 0
    states: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, pod: Pod, state: int) -> None:
        """Add or update a pod. ``state``: result of :func:`_pod_state`."""
        self.pods[key] = pod
        before = self.states.get(key)
        if before != state:
            self._count(_GOING if before is None else before, state)
            self.states[key] = state

    def drop(self, key: str) -> None:
        """Remove a pod, and count it no more."""
        del self.pods[key]
        self._count(self.states.pop(key), _GOING)

    def _count(self, before: int, after: int) -> None:
        """Update the counts after a pod's state changed from ``before`` to ``after``."""
        if before != after:
            self.active += (after >= _ACTIVE) - (before >= _ACTIVE)
            ready = (after == _READY) - (before == _READY)
            self.ready += ready
            self.workload.ready += ready


def _pod_state(pod: Pod, ready: dict[int, bool]) -> int:
    """Return ``_GOING`` for a finished or terminating pod, otherwise ``_READY`` or ``_ACTIVE``.

    ``ready`` caches readiness by id of the list of conditions, which many pods of one batch of changes share.
    """
    if pod.metadata.deletion_timestamp is not None or pod.status.phase in ENDED:
        return _GOING
    conditions = id(pod.status.conditions)
    is_ready = ready.get(conditions)
    if is_ready is None:
        is_ready = ready[conditions] = pod_ready(pod)
    return _READY if is_ready else _ACTIVE


class OwnedPods:
    """Pods by their controller, and by the workload above it (the Deployment of a ReplicaSet).

    ``listeners`` maps an owner's kind to the function that is called with the owner's key after a change.
    """

    def __init__(self, api: ApiObjects) -> None:
        self._api = api
        self._of: dict[str, _Pods] = {}
        self.workloads: dict[Key, _Workload] = {}
        self.turnover = 0  # number of workloads that were added or removed
        self.count = 0
        """Number of changes of owned pods."""
        self.listeners: dict[str, Callable[[str], None]] = {}
        self._pods(api.present("Pod"))
        api.listen("Pod", self._pods)

    def _pods(self, changes: Changes[Pod]) -> None:
        """Apply changes of pods to their owners, and notify the controllers."""
        owners: dict[str, tuple[OwnerReference, str]] = {}
        owner: OwnerReference | None = None
        ready: dict[int, bool] = {}
        controllers: dict[int, OwnerReference | None] = {}  # by identity of owner references, which many pods share
        last: object = None
        owned: _Pods | None = None
        for key, old, new in changes:
            pod = old if new is None else new
            assert pod is not None
            references = pod.metadata.owner_references
            if references is not last or owned is None:  # pods of an owner follow one another
                last, owned = references, None
                if id(references) in controllers:
                    owner = controllers[id(references)]
                else:
                    owner = controllers[id(references)] = controller_of(pod.metadata)
                if owner is None:
                    continue
                owned = self._of.get(owner.uid)
                if owned is None:
                    owned = self._of[owner.uid] = self._add_owner(owner, pod.metadata.namespace)
                if owner.uid not in owners:
                    owners[owner.uid] = owner, pod.metadata.namespace
            self.count += 1
            owned.workload.changes = self.count
            if new is not None:
                owned.put(key, new, _pod_state(new, ready))
            else:
                owned.drop(key)
                if not owned.pods:
                    assert owner is not None  # since the pod was in the owner's pods
                    self._remove_owner(owner.uid, owned.workload)
                    owned = None
        for owner, namespace in owners.values():
            notify = self.listeners.get(owner.kind)
            if notify is not None:
                notify(object_key(namespace, owner.name))

    def _add_owner(self, owner: OwnerReference, namespace: str) -> _Pods:
        """Register an owner, with the workload above it, and return its (empty) group of pods."""
        key = owner.kind, namespace, owner.name
        if owner.kind == "ReplicaSet":
            replica_set = self._api.find("ReplicaSet", object_key(namespace, owner.name))
            above = None if replica_set is None else controller_of(replica_set.metadata)
            if above is not None:
                key = above.kind, namespace, above.name
        workload = self.workloads.get(key)
        if workload is None:
            workload = self.workloads[key] = _Workload(key)
            self.turnover += 1
        pods = workload.owners[owner.uid] = _Pods(workload)
        return pods

    def _remove_owner(self, uid: str, workload: _Workload) -> None:
        """Remove an owner whose last pod has been deleted."""
        del self._of[uid], workload.owners[uid]
        if not workload.owners:
            del self.workloads[workload.key]
            self.turnover += 1

    # -- by owner ----------------------------------------------------------------------------------------------------

    def get_pods(self, uid: str) -> Mapping[str, Pod]:
        """Return the pods of an owner by key, in the order of creation: the stored mapping, which changes later."""
        owned = self._of.get(uid)
        return _NOBODY if owned is None else owned.pods

    def counts(self, uid: str) -> tuple[int, int]:
        """Return the number of (active, ready) pods of an owner; (0, 0) if it has no pods.

        Active pods are neither finished nor being deleted; ready pods are active ones.
        """
        owned = self._of.get(uid)
        return (0, 0) if owned is None else (owned.active, owned.ready)

    # -- by workload -------------------------------------------------------------------------------------------------

    def list_workload_pods(self, key: Key) -> Iterable[Pod]:
        """Return the pods of a workload, owner by owner."""
        workload = self.workloads.get(key)
        return () if workload is None else (pod for owned in workload.owners.values() for pod in owned.pods.values())

    def changes(self, key: Key) -> int:
        """Return a number that differs after every change of a workload's pods; 0 while it has none."""
        workload = self.workloads.get(key)
        return 0 if workload is None else workload.changes

    def find_workloads(self, keys: Iterable[Key]) -> WorkloadCounts:
        """Return the counts of some workloads, in their order."""
        return WorkloadCounts(self, tuple(keys))

    def count_ready(self, key: Key) -> int:
        """Return how many pods of a workload are ready and not being deleted."""
        workload = self.workloads.get(key)
        return 0 if workload is None else workload.ready


class WorkloadCounts:
    """Counts of the pods of some workloads (``keys``), whether these exist or not. The workloads are looked up once."""

    __slots__ = ("_owned", "_turnover", "_workloads", "keys")

    def __init__(self, owned: OwnedPods, keys: Sequence[Key]) -> None:
        self._owned, self.keys, self._turnover = owned, keys, -1
        self._workloads: list[_Workload | None] = []

    def _list(self) -> list[_Workload | None]:
        """Return the workloads, looked up again if any was added or removed; None for one without pods."""
        if self._turnover != self._owned.turnover:
            self._workloads = [self._owned.workloads.get(key) for key in self.keys]
            self._turnover = self._owned.turnover
        return self._workloads

    def list_changes(self) -> list[int]:
        """Return :meth:`OwnedPods.changes` of each workload."""
        return [0 if workload is None else workload.changes for workload in self._list()]

    def list_ready(self) -> list[int]:
        """Return :meth:`OwnedPods.count_ready` of each workload."""
        return [0 if workload is None else workload.ready for workload in self._list()]


Admit = Callable[[Pod], Pod]
"""Returns the admitted version of a new pod."""


class PodMaker:
    """Creates pods as controllers do: from :func:`kscale.objects.workloads.pods_of`, after admission.

    ``admit`` is called for each pod, but only once for the equivalent pods of :meth:`make_more`.
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
        """Drop the cached patterns and admission classes."""
        self._classes = None
        self._patterns.clear()

    def _forget(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Drop the cached pattern of a deleted workload."""
        if old is not None and new is None:
            self._patterns.pop(old.metadata.uid, None)

    @property
    def classes(self) -> PodClasses:
        """Return the PriorityClasses, RuntimeClasses and LimitRanges that admission applies to new pods."""
        if self._classes is None:
            kinds = ("PriorityClass", "RuntimeClass", "LimitRange")
            self._classes = PodClasses.of(item for kind in kinds for item in self._api.get_all(kind).values())
        return self._classes

    def pattern(self, workload: Any) -> Pod:
        """Return an unnamed pod of a workload, cached while its pod template is the same object."""
        uid = workload.metadata.uid
        cached = self._patterns.get(uid)
        if cached is not None and cached[0].spec.template is workload.spec.template:
            return cached[1]
        pod = next(pods_of(workload, 1, classes=self.classes))
        self._patterns[uid] = workload, pod
        return pod

    def make(self, pod: Pod, *, name: str = "", generate_name: str = "") -> Pod:
        """Create a pod like ``pod`` after admission, and return it.

        Its name is ``name``, or if that is empty, one generated from ``generate_name``.
        Raises RefusedError if there is a pod of this name.
        """
        return self._api.create(self._admit(pod, name, generate_name))

    def make_more(self, pod: Pod, count: int, *, generate_name: str) -> None:
        """Create ``count`` pods like ``pod``, with names that begin with ``generate_name``. They are admitted once."""
        self._api.create_pods(self._admit(pod, "", generate_name), count)

    def _admit(self, pod: Pod, name: str, generate_name: str) -> Pod:
        """Return the pod after admission, with these names and without a UID."""
        named = replace(pod, metadata=replace(pod.metadata, name=name, generate_name=generate_name, uid=""))
        return named if self.admit is None else self.admit(named)


class Controller(ABC):
    """Controller of one kind. All objects changed at a moment are synced once, in the order of their changes."""

    kind: ClassVar[str]

    def __init__(self, api: ApiObjects, time: VirtualTime, owned: OwnedPods, rank: int = 0) -> None:
        self._api, self._time, self._owned = api, time, owned
        self._changed: dict[str, None] = {}
        self._turn = ScheduledCall(time, self._run, CONTROLLERS + rank)
        owned.listeners[self.kind] = self.changed
        self._objects(api.present(self.kind))
        api.listen(self.kind, self._objects)

    def _objects(self, changes: Changes[KubeObject]) -> None:
        """Schedule a sync of all changed objects."""
        for key, _, _ in changes:
            self.changed(key)

    def changed(self, key: str) -> None:
        """Schedule a sync of an object after a change of the object or its pods."""
        if key not in self._changed:
            self._changed[key] = None
            self._turn.schedule()

    def _run(self) -> None:
        """Sync all objects that have changed and still exist."""
        changed, self._changed = self._changed, {}
        for key in changed:
            current = self._api.find(self.kind, key)
            if current is not None:
                self.sync(current)

    @abstractmethod
    def sync(self, item: Any) -> None:
        """Bring the cluster to the state that the object specifies."""
