"""What drainability rules may look at besides the pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_down.drainability.status import DrainStatus
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.effects import Moment, moment
from kscale.objects.apps import DaemonSet, ReplicaSet, StatefulSet
from kscale.objects.batch import Job
from kscale.objects.core import Pod, ReplicationController
from kscale.objects.meta import KubeObject

__all__ = ["DrainContext", "Listers", "Rule"]

_RESOURCES: dict[type[KubeObject], str] = {
    ReplicationController: "replicationcontroller",
    ReplicaSet: "replicaset.apps",
    StatefulSet: "statefulset.apps",
    DaemonSet: "daemonset.apps",
    Job: "job.batch",
}
_Kind = TypeVar("_Kind", bound=KubeObject)


class Listers:
    """The controllers that exist, by kind, namespace and name."""

    __slots__ = ("_objects", "_standing")

    def __init__(self, objects: Iterable[KubeObject] = ()) -> None:
        """Objects of other kinds are not kept."""
        self._objects: dict[tuple[type[KubeObject], str, str], Any] = {
            (type(item), item.metadata.namespace, item.metadata.name): item
            for item in objects
            if type(item) in _RESOURCES
        }
        self._standing: tuple[int, dict[tuple[type[KubeObject], str, str], bool]] | None = None

    def get(self, kind: type[_Kind], namespace: str, name: str) -> _Kind | None:
        found: _Kind | None = self._objects.get((kind, namespace, name))
        return found

    def standing(self, minimum: int) -> dict[tuple[type[KubeObject], str, str], bool]:
        """All that rules read of controllers (not to be written to): which there are, and whether they want fewer
        replicas than a minimum (:mod:`.rules.replica_count`)."""
        if self._standing is None or self._standing[0] != minimum:
            self._standing = minimum, {key: _has_too_few(item, minimum) for key, item in self._objects.items()}
        return self._standing[1]

    @staticmethod
    def not_found(kind: type[KubeObject], name: str) -> str:
        """The lister's error text."""
        return f'{_RESOURCES[kind]} "{name}" not found'


def _has_too_few(item: KubeObject, minimum: int) -> bool:
    if not isinstance(item, ReplicationController | ReplicaSet):
        return False
    return item.spec.replicas is not None and item.spec.replicas < minimum


@dataclass(frozen=True, slots=True)
class DrainContext:
    """``listers`` None: controllers are not looked up. ``now``: an aware datetime or a moment, else InputError.
    ``pdbs``: what is left of the disruption budgets at that moment; without it there are none."""

    now: Moment
    options: AutoscalingOptions
    listers: Listers | None = None
    pdbs: RemainingPdbTracker = field(default_factory=RemainingPdbTracker)

    def __post_init__(self) -> None:
        object.__setattr__(self, "now", moment(self.now))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its ``name``: ``check`` says of a pod, in a context, what draining its node would mean."""

    name: str
    check: Callable[[Pod, DrainContext], DrainStatus]
