"""What the controllers of workloads have in common: how pods are made, and one turn for all that has changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from msgspec.structs import replace

from kscale.effects import VirtualTime
from kscale.objects.core import Pod
from kscale.objects.meta import KubeObject
from kscale.objects.pod_defaults import PodClasses
from kscale.objects.workloads import pods_of
from kscale.world.simulated.api_objects import ApiObjects, Changes, one_by_one
from kscale.world.simulated.owned_pods import OwnedPods
from kscale.world.simulated.turns import CONTROLLERS, Turn

__all__ = ["Admit", "Controller", "PodMaker"]

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
