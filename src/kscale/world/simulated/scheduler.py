"""The scheduler: pods without a node get one, or are told that there is none for them.

What fits where, and which of the nodes that fit is taken, is :func:`kscale.scheduling.place.place`'s to say: the one
that kube-scheduler's scores put first, or without scores the first in list order.
"""

from __future__ import annotations

from typing import Final

from kscale.effects import VirtualTime
from kscale.objects.core import Node, Pod
from kscale.objects.meta import KubeObject
from kscale.scheduling.place import PlaceState, place
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.snapshot import Snapshot
from kscale.world.simulated.api_objects import ApiObjects
from kscale.world.simulated.pods import bound, finished, unschedulable
from kscale.world.simulated.turns import SCHEDULER, Turn
from kscale.world.simulated.view import ClusterView

__all__ = ["Scheduler"]

_STORAGE: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")


class Scheduler:
    """Takes all pods that wait at one moment together, by priority, then in the order in which they came.

    A pod without a place is looked at again when something has changed that could make room for it: a node, a pod that
    went or asks for less, a claim or a volume, and for a pod with affinity or spread also one that came.
    """

    def __init__(
        self, api: ApiObjects, view: ClusterView, time: VirtualTime, scores: ScoreOptions | None = None
    ) -> None:
        self._api, self._view, self._scores = api, view, scores
        self._state = PlaceState()
        self._waiting: dict[str, None] = {}
        self._refused: dict[str, None] = {}
        self._turn = Turn(time, self._schedule, SCHEDULER)
        for pod in api.of("Pod").values():
            self._pod(None, pod)
        api.listen("Pod", self._pod)
        api.listen("Node", self._node)
        for kind in _STORAGE:
            api.listen(kind, lambda _old, _new: self._look_again())

    def _pod(self, old: KubeObject | None, new: KubeObject | None) -> None:
        before, after = (each if isinstance(each, Pod) else None for each in (old, new))
        if after is None or finished(after):
            if before is not None:
                self._waiting.pop(before.key, None)
                self._refused.pop(before.key, None)
                if before.spec.node_name and not finished(before):
                    self._look_again()
        elif after.spec.node_name or after.metadata.deletion_timestamp is not None:
            self._waiting.pop(after.key, None)
            self._refused.pop(after.key, None)
            if before is not None and before.spec.node_name and _could_leave_more(before, after):
                self._look_again()
        elif not after.spec.scheduling_gates and after.key not in self._refused and after.key not in self._waiting:
            self._waiting[after.key] = None
            self._turn.ask()

    def _node(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if isinstance(new, Node) and (not isinstance(old, Node) or _could_take_more(old, new)):
            self._look_again()

    def _look_again(self) -> None:
        if self._refused:
            self._waiting = {**self._refused, **self._waiting}
            self._refused = {}
            self._turn.ask()

    def _choose(self, snapshot: Snapshot, pods: list[str]) -> dict[str, str]:
        """Pod -> node, highest priority first."""
        if self._scores is None:
            return place(snapshot, pods).placement
        placed = place(snapshot, pods, scores=self._scores, state=self._state)
        self._state = placed.state
        return placed.placement

    def _schedule(self) -> None:
        waiting, self._waiting = list(self._waiting), {}
        if not waiting:
            return
        snapshot = self._view.snapshot()
        found = self._choose(snapshot, waiting)
        at = self._api.now_text
        message = f"0/{len(snapshot.nodes)} nodes are available."
        for key, node in found.items():
            self._api.put(bound(self._api.find("Pod", key), node, at))
        for key in waiting:
            if key in found:
                continue
            self._refused[key] = None
            pod = self._api.find("Pod", key)
            if not pod.status.conditions:
                self._api.put(unschedulable(pod, message, at))
        if found and any(_looks_at_others(self._api.find("Pod", key)) for key in self._refused):
            self._look_again()  # whom they want to be with may be there now


def _looks_at_others(pod: Pod) -> bool:
    return pod.spec.affinity is not None or bool(pod.spec.topology_spread_constraints)


def _could_leave_more(old: Pod, new: Pod) -> bool:
    """Whether a pod on a node asks for something else since it changed, or counts for something else."""
    return (
        old.spec.containers != new.spec.containers
        or old.metadata.labels != new.metadata.labels
        or [each.allocated_resources for each in old.status.container_statuses]
        != [each.allocated_resources for each in new.status.container_statuses]
    )


def _could_take_more(old: Node, new: Node) -> bool:
    """Whether another pod may fit on a node since it changed."""
    return (
        old.spec.unschedulable != new.spec.unschedulable
        or old.spec.taints != new.spec.taints
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )
